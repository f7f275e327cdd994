"""Sentences for people that say no more than is so: of coalitions, of small figures, of parts of a mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verticil.cli.budget_text import cost_text
from verticil.cli.output import epsilon_text
from verticil.curator.synthesis import _consequence
from verticil.shared.numerics.joint.estimate import JointEstimate
from verticil.shared.numerics.model.joint import Mixture
from verticil.shared.pages.words import greek
from verticil.shared.privacy.figures import epsilon_words
from verticil.shared.privacy.masked_figures import four_figures
from verticil.shared.release import wording
from verticil.shared.study.document import MaskedRule, Study, TablesRule


def masked(study: Study, **rule: object) -> Study:
    """The study of two parties with a third one."""
    units = (dataclasses.replace(study.units[0], owner="tax"), *study.units[1:])
    first = dataclasses.replace(study.schema.variables[0], owner="tax")
    return dataclasses.replace(
        study,
        model="masked",
        parties=(*study.parties, "tax"),
        schema=dataclasses.replace(study.schema, variables=(first, *study.schema.variables[1:])),
        units=units,
        tables=TablesRule(epsilon=1.0, delta=1e-9),
        masked=MaskedRule(**rule),  # type: ignore[arg-type]
    )


def test_three_parties_that_deal_are_covered_one_by_one(release_study: Study) -> None:
    """Each deals the pair of the other two, so any two are a dealer and its partner."""
    found = four_figures(masked(release_study, dealer="party"))
    assert found is not None
    assert (
        "against each single one, and against no two parties: any two are a dealer of masks and its partner"
        in (found.words[0])
    )
    by_miner = four_figures(masked(release_study, dealer="miner"))
    assert by_miner is not None
    assert "against no two parties" in by_miner.words[0]
    assert "any two are" not in by_miner.words[0]


@pytest.mark.parametrize("shown", [epsilon_text, wording.epsilon, epsilon_words, lambda value: cost_text(value, 0.0)])
def test_a_thousandth_is_not_shown_as_a_hundredth(shown: object) -> None:
    assert str(shown(0.001)).removeprefix("epsilon ") == "0.001"  # type: ignore[operator]
    assert str(shown(1.234)).removeprefix("epsilon ") == "1.24"  # type: ignore[operator]


@pytest.mark.parametrize(
    ("alpha", "nearer", "words"),
    [
        (1.0, None, ""),
        (0.9999, None, ""),
        (0.25, None, "; 25 % of what it shows of how columns go together is kept"),
        (
            0.0,
            1.26,
            "; the tables themselves, negative counts as 0, are estimated to be 1.3 times nearer to the people",
        ),
    ],
)
def test_what_follows_from_a_fit_that_missed_its_tables(alpha: float, nearer: float | None, words: str) -> None:
    missed = JointEstimate(
        model=Mixture(weights=np.ones(1), probability=(np.ones((1, 1)),)), kind="mixture", steps=1, discrepancy=2.0,
        reached=False, alpha=alpha, guarded=True, start=(), tables_nearer=nearer,
    )  # fmt: skip
    assert _consequence(missed) == words


def test_a_key_that_has_to_be_written_is_not_put_into_greek() -> None:
    assert greek("add max_public_epsilon and more; epsilon 1") == "add max_public_epsilon and more; ε 1"
