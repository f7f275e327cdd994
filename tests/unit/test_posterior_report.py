"""The report of a release of sampled graphs: its first screen, its words for probability and strength, and what the sets are."""

from __future__ import annotations

import dataclasses
import doctest
import html
import math
import re

import pytest

from support.releases import with_posterior
from verticil.shared.numerics.posterior.tuning import TUNING
from verticil.shared.release.formats import posterior as format_
from verticil.shared.release.posterior import posterior_remarks
from verticil.shared.release.report import posterior as posterior_report
from verticil.shared.release.report.page import render
from verticil.shared.release.report.posterior import posterior_view


def words(page: str) -> str:
    return html.unescape(" ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL).split()))


@pytest.fixture(scope="module")
def content(release_content):
    return with_posterior(release_content)


def test_chains_that_disagree_are_on_the_first_screen(release_content, content):
    """Before the figures; and nowhere where they agree."""
    page = words(render(with_posterior(release_content, agree=False)))
    at = page.index("The chains do not agree.")
    assert at < page.index("1. What this is")
    assert "R-hat is 1.32" in page[at : at + 400]
    assert "differs by up to 40.0 percentage points" in page[at : at + 500]
    assert "The chains do not agree" not in words(render(content))


def test_records_as_they_are_have_no_differential_privacy(content):
    exact = dataclasses.replace(content, posterior=dataclasses.replace(content.posterior, source="records"))
    page = words(render(exact))
    assert page.index("No differential privacy.") < page.index("1. What this is")
    assert "No differential privacy" not in words(render(content))


def test_each_link_has_both_directions_and_none(content):
    page = words(render(content))
    assert "age , smoker 66.7 ± 1.0% 33.3 ± 1.0% 0.0% →" in page
    assert "income , weight 33.3 ± 1.0% 0% 66.7% –" in page
    assert "41 different graphs among 4,000; the most frequent one has 50.0%" in page
    assert "R-hat of their log weight and least sure links is 1.01 (at most 1.01 is asked for)" in page
    assert "Before any data, the prior held all graphs alike." in page
    view = posterior_view(content)
    assert view is not None
    assert [link.consensus for link in view.links] == ["→", "→", "→", "→", "–"]
    penalty = dataclasses.replace(content.study.posterior, prior="penalty", gamma=0.5, alpha=2.0)
    other = posterior_view(
        dataclasses.replace(
            content,
            study=(study := dataclasses.replace(content.study, posterior=penalty)),
            effective_digest=_digest(study),
        )
    )
    assert other is not None
    assert "exp(−0.5 p^2)" in other.prior


def _digest(study) -> str:
    from verticil.shared.study import canonical

    return canonical.digest(study).hex()


def test_probability_and_strength_are_two_words(content):
    """Strength is only spoken of where the release has strengths, and then both are explained beside each other."""
    assert "strength" not in words(render(content))
    names = content.study.schema.names
    rows = [[names[parent], names[child], 0.9] for parent, child in content.network.dag.edges()]
    page = words(render(dataclasses.replace(content, search={**content.search, "edge_strength": rows})))
    assert "A probability says how far these data settle the arrow, a strength how far other people" in page


def test_statistics_that_are_not_defined_have_empty_cells(content):
    page = words(render(content))
    assert "p-value of the chi-square test of independence of age and smoker 0.4 0.2 to 0.6 1 of 3" in page
    assert "share with smoker = yes 3 of 3" in page


def test_a_statistic_whose_draws_are_worth_too_little_is_named(content):
    """By its number and its column."""
    posterior, schema = content.posterior, content.network.schema
    assert posterior_remarks(posterior, schema.names) == ()
    few = dataclasses.replace(posterior.predictive[0], r_hat=1.034, effective=312.4, tail=801.0)
    none = dataclasses.replace(posterior.predictive[1], r_hat=math.nan, effective=math.nan, tail=math.nan)
    made = format_.read(format_.write(dataclasses.replace(posterior, predictive=(few, none)), schema, {}), schema)
    read = made.predictive[0]
    assert (read.r_hat, read.effective, read.tail) == (1.034, 312.4, 801.0)
    first, second = posterior_remarks(made, schema.names)
    assert first.startswith(
        "statistic 1, chi-square of age: its draws are worth 312 independent ones, 801 in the tails"
    )
    assert "R-hat of 1.034" in first
    assert second.startswith("statistic 2, mle of smoker: it is defined on too few sets")
    page = words(render(dataclasses.replace(content, posterior=made)))
    assert "To be noted: statistic 1, chi-square of age" in page
    assert "312 (801 in the tails)" in page
    enough = dataclasses.replace(few, r_hat=1.01, effective=500.0, tail=500.0)
    assert posterior_remarks(dataclasses.replace(posterior, predictive=(enough,)), schema.names) == ()
    assert (TUNING.most_r_hat, 500) == (format_.MOST_R_HAT, format_.LEAST_DRAWS)


def test_where_the_prior_speaks_and_where_a_column_is_constant_it_is_said(content):
    """On the first screen, and with the remarks; not where an arrow moves by .05."""
    posterior, schema = content.posterior, content.network.schema

    def moved(by: float) -> format_.PublishedPosterior:
        made = dataclasses.replace(
            posterior, agreement=dataclasses.replace(posterior.agreement, moved=by), constant=(1,)
        )
        return format_.read(format_.write(made, schema, {}), schema)

    prior, constant = posterior_remarks(moved(0.049), schema.names)
    assert prior.startswith("the prior speaks: what was learned from moves no arrow's probability by 0.05 or more")
    assert constant.startswith("column 'smoker' has one value in all released records")
    page = words(render(dataclasses.replace(content, posterior=moved(0.049))))
    assert page.index("The prior speaks.") < page.index("1. What this is")
    assert posterior_remarks(moved(0.05), schema.names) == (constant,)
    assert "The prior speaks" not in words(render(dataclasses.replace(content, posterior=moved(0.05))))
    assert b"moved_from_prior" not in format_.write(posterior, schema, {})
    assert b'"constant"' not in format_.write(posterior, schema, {})


def test_the_sets_are_explained(content, release_content):
    page = words(render(content))
    assert "set-1.csv to set-3.csv have 1,234 records each" in page
    assert "(1 + 1/3) b − ū" in page
    assert "with 2 degrees of freedom" in page
    assert "each in its part of them" in page
    assert "1,234 synthetic records were drawn from networks like it, sampled in proportion to" in page
    assert "age , smoker [0,18) , no 16.7% 11.7–23.7%" in page
    consensus = words(render(with_posterior(release_content, sample_from="network")))
    assert "synthetic.csv is not from them" in consensus
    assert "set-1.csv" not in words(render(release_content))


def test_examples_in_the_docstrings():
    assert doctest.testmod(posterior_report).failed == 0
