"""``release.regress`` and ``release.tabulate``: formulas, refusals with their reasons, and people's own numbers without noise."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from support.release_tables import all_pairs, least_squares, owner_study, release_of
from support.studies import study_of
from verticil.analysis.design import design_of
from verticil.analysis.formula import Formula, Term, parse
from verticil.analysis.moments import regress_tables
from verticil.analysis.published_shares import Measured
from verticil.analysis.regression import regress
from verticil.analysis.tabulation import tabulate
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.numerics.estimation.contingency import family_table
from verticil.shared.numerics.model.schema import Missing, Variable
from verticil.shared.study.document import Study

VARIABLES = (
    Variable(name="weight", owner="a", labels=("[40,60)", "[60,80)", "[80,120)"), bins=(40.0, 60.0, 80.0, 120.0)),
    Variable(
        name="age", owner="a", labels=("[20,50)", "[50,90)", "?"), bins=(20.0, 50.0, 90.0), integer=True,
        missing=Missing(category="?", spellings=("?",)),
    ),
    Variable(name="home-ward", owner="a", labels=("north", "south", "east", "ship")),
    Variable(name="smoker", owner="a", labels=("no", "yes")),
)  # fmt: skip
NAMES = tuple(variable.name for variable in VARIABLES)


def people(n: int, seed: int = 1) -> list[np.ndarray]:
    """Codes of made-up people, of whom nobody lives on a ship."""
    generator = np.random.default_rng(seed)
    ward = generator.choice(3, n, p=[0.5, 0.3, 0.2])
    age = generator.choice(3, n, p=[0.5, 0.4, 0.1])
    smoker = generator.random(n) < 0.2 + 0.2 * (ward == 1) + 0.2 * (age == 1)
    score = 0.8 * (age == 1) + 0.9 * smoker - 0.5 * (ward == 2) + generator.standard_normal(n)
    return [c.astype(np.uint8) for c in (np.digitize(score, [0.0, 1.0]), age, ward, smoker)]


def exact_study(names: tuple[str, ...] = NAMES) -> Study:
    return all_pairs(study_of(VARIABLES), names)


@pytest.fixture(scope="module")
def exact() -> SimpleNamespace:
    return release_of(people(4000), exact_study(), seed=1)


@pytest.fixture(scope="module")
def noisy() -> SimpleNamespace:
    return release_of(people(4000), owner_study(exact_study(), 1.0), seed=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y ~ a + C(b)", Formula(outcome="y", event=None, terms=(Term(column="a"), Term(column="b", as_categories=True)))),
        (" y == '>50K' ~ `hours-per + week` + 1", Formula(outcome="y", event=">50K", terms=(Term(column="hours-per + week"),))),
        ("`a ~ b` == c ~ d", Formula(outcome="a ~ b", event="c", terms=(Term(column="d"),))),
        ("hours-per-week ~ a", Formula(outcome="hours-per-week", event=None, terms=(Term(column="a"),))),
    ],
)  # fmt: skip
def test_a_formula_is_read(text: str, expected: Formula) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("y", "one '~'"), ("y ~ a ~ b", "one '~'"), ("y ~ ", "one '~'"), ("y ~ 1", "no predictor"),
        ("y ~ a + a", "'a' stands there twice"),
        ("y ~ a + y", "'y' stands there twice"), ("y ~ a:b", "'a:b' is no column"), ("y ~ log(a)", "is no column"),
        ("y ~ a + -1", "is no column"), ("y ~ a + ", "is no column"),
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused(text: str, problem: str) -> None:
    with pytest.raises(Misuse, match=re.escape(problem)) as caught:
        parse(text)
    assert caught.value.code == "USAGE"


@pytest.mark.parametrize(
    ("formula", "message", "hint"),
    [
        ("weight ~ smokre", "'smokre': no such variable", "did you mean 'smoker'?"),
        ("smoker == 'yse' ~ age", "'yse' is not a category of 'smoker'", "did you mean 'yes'?"),
        ("smoker ~ age", "'smoker' has categories and no numbers", "== 'category'"),
        ("age ~ smoker", "some people have no value of 'age'", "== 'category'"),
    ],
)
def test_what_is_not_in_the_release_is_named(noisy: SimpleNamespace, formula: str, message: str, hint: str) -> None:
    with pytest.raises(Misuse, match=re.escape(message)) as caught:
        regress(noisy, formula, level=0.95)
    assert hint in caught.value.hint


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0])
def test_a_level_that_is_no_share_is_refused(noisy: SimpleNamespace, level: float) -> None:
    with pytest.raises(Misuse, match="level: got"):
        regress(noisy, "weight ~ age", level=level)
    with pytest.raises(Misuse, match="level: got"):
        tabulate(noisy, ["weight"], level=level)


def test_pairs_that_are_not_published_are_named_as_a_study_writes_them() -> None:
    release = release_of(people(1000), exact_study(("weight", "age")), seed=1)
    with pytest.raises(Misuse, match=re.escape('["weight", "smoker"]')) as caught:
        regress(release, "weight ~ smoker", level=0.95)
    assert "[release]" in caught.value.hint
    with pytest.raises(Misuse, match=re.escape('["home-ward", "smoker"]')):
        tabulate(release, ["smoker", "home-ward"], level=0.95)
    with pytest.raises(Misuse, match="got 3 columns"):
        tabulate(release, ["smoker", "home-ward", "age"], level=0.95)
    with pytest.raises(Misuse, match="two different ones"):
        tabulate(release, ["smoker", "smoker"], level=0.95)


def test_without_noise_the_coefficients_are_the_peoples_own(exact: SimpleNamespace) -> None:
    result = regress(exact, "weight ~ age + `home-ward` + smoker", level=0.95)
    design = result.design
    assert design.labels == ("Intercept", "age", "age[?]", "home-ward[south]", "home-ward[east]", "smoker[yes]")
    assert design.reference == {"home-ward": "north", "smoker": "no"}
    assert design.merged == ("home-ward[ship]",)
    own, variance = least_squares(people(4000), design)
    np.testing.assert_allclose(result.coefficients.estimate, own, atol=1e-8)
    np.testing.assert_allclose(result.coefficients.standard_error, np.sqrt(variance), rtol=0.2)


def test_a_table_of_exact_counts_is_the_peoples_own(exact: SimpleNamespace) -> None:
    table = tabulate(exact, ["smoker", "age"], level=0.95)
    counts = family_table([people(4000)[3], people(4000)[1]], (2, 3)) / 4000
    np.testing.assert_allclose(table.estimate, counts, atol=1e-12)
    np.testing.assert_allclose(table.standard_error, np.sqrt(counts * (1 - counts) / 4000), rtol=1e-9)
    one = tabulate(exact, ["age"], level=0.95)
    np.testing.assert_allclose(one.estimate, table.estimate.sum(axis=0), atol=1e-12)


def test_noise_widens_intervals_and_a_larger_level_does_too(exact: SimpleNamespace, noisy: SimpleNamespace) -> None:
    formula = "weight ~ age + smoker"
    narrow, wide = (regress(r, formula, level=0.95).coefficients for r in (exact, noisy))
    wider = regress(noisy, formula, level=0.99).coefficients
    assert np.all(wide.standard_error > narrow.standard_error)
    assert np.all((wider.low < wide.low) & (wide.high < wider.high))
    table = tabulate(noisy, ["age", "smoker"], level=0.95)
    np.testing.assert_allclose(table.estimate.sum(), 1.0)
    again = regress(noisy, formula, level=0.95).coefficients
    np.testing.assert_array_equal(again.low, wide.low)


def test_a_column_that_drowned_and_too_many_coefficients_are_refused() -> None:
    release = release_of(people(400), owner_study(exact_study(), 0.02), seed=3)
    with pytest.raises(GateFailed, match="TOO_NOISY"):
        regress(release, "weight ~ age + smoker", level=0.95)
    release = release_of(people(400), owner_study(exact_study(), 0.3), seed=3)
    with pytest.raises(GateFailed, match=r"does not allow|visible") as caught:
        regress(release, "weight ~ age + C(`home-ward`) + smoker", level=0.95)
    assert caught.value.hint


def test_columns_that_determine_each_other_are_refused() -> None:
    columns = people(3000)
    columns[2] = columns[1]
    release = release_of(columns, exact_study(), seed=1)
    with pytest.raises(GateFailed, match="TOO_NOISY"):
        regress(release, "weight ~ C(age) + `home-ward`", level=0.95)


def test_a_merged_missing_value_counts_as_the_mean(exact: SimpleNamespace) -> None:
    design = design_of(exact, parse("weight ~ age + smoker"))
    smaller, transform = design.without(2)  # age[?]
    assert smaller.labels == ("Intercept", "age", "smoker[yes]")
    assert smaller.merged == ("age[?]",)
    predictor = smaller.predictors[0]
    assert predictor.features[2, 0] == pytest.approx(design.predictors[0].mean)
    full = np.concatenate([[1.0], design.predictors[0].features[2], [0.0]])
    np.testing.assert_allclose(transform @ full, [1.0, predictor.features[2, 0], 0.0])
    assert [design.without(place) for place in (0, 1, 3)] == [None, None, None]


def test_randomized_columns_are_corrected() -> None:
    """Eight draws of the same people and new randomization: estimates scatter around the people's own, as their errors say."""
    columns, study = people(6000), all_pairs(study_of(VARIABLES, epsilon=2.0), NAMES[:2] + NAMES[3:])
    scores, own_errors = [], []
    for seed in range(8):
        release = release_of(columns, study, seed=seed)
        design, result = regress_tables(Measured(release), design_of(release, parse("weight ~ age + smoker")), 0.95)
        own, variance = least_squares(columns, design)
        scores.append((result.estimate - own) / result.standard_error)
        own_errors.append(result.standard_error / np.sqrt(variance))
    assert np.abs(np.mean(scores, axis=0)).max() < 4 / np.sqrt(8)
    assert 0.3 < np.std(scores) < 1.5
    assert np.mean(own_errors) > 1.5  # the randomization is most of it
