"""report.html of a study with compounds and subset selection: what the privacy section says of them."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest

from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.release.report.page import render
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.unit import Unit


@pytest.fixture(scope="module")
def designed(release_study: Study) -> Study:
    """One compound of five combinations, and one of twelve that is released as sets."""
    units = (
        Unit(
            variables=("smoker", "age"),
            owner="clinic",
            scheme="symmetric",
            transition=quantize(symmetric(5, epsilon=1.5)),
            impossible=((1, 0),),
        ),
        Unit(
            variables=("income", "weight", "region"),
            owner="registry",
            scheme="subset",
            transition=subset_selection(12, epsilon=1.0, size=3),
        ),
    )
    study = dataclasses.replace(release_study, units=units)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study
    return study


@pytest.fixture(scope="module")
def words(designed: Study, release_content) -> str:
    content = dataclasses.replace(release_content, study=designed, effective_digest=canonical.digest(designed).hex())
    text = re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<style>.*?</style>", "", render(content)))
    return " ".join(html.unescape(text).split()).replace(" .", ".")


def test_a_compound_is_one_row_and_one_sentence(words: str):
    assert (
        "smoker with age were randomized together: one draw over 5 combinations, without 1 that was declared" in words
    )
    assert "income with weight with region were randomized together: one draw over 12 combinations." in words


def test_a_set_is_said_in_words(words: str):
    # p = 3 e / (3 e + 9) = 0.4754, rounded down
    sentence = "as a set of 3 of its 12 categories that holds the true one 47.5% of the time"
    assert f"was released {sentence}. Every category is possible behind every set." in words
    assert "47.5% (in a set)" in words


def test_the_total_is_that_of_the_two_draws(designed: Study, words: str):
    assert privacy_statement(designed).epsilon_per_person == pytest.approx(2.5, abs=1e-9)
    assert "All 5 columns of one person together: ε = 2.50" in words
