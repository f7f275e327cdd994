"""Coefficients of a release scatter around the population's as their standard errors say: noise, people and randomization.

Of S releases the sum of squares of (estimate - truth) / error is chi-squared with S degrees of freedom for each coefficient. The
test is two-sided at `FALSE_ALARM` for all coefficients together. Seeds are fixed, so it raises no false alarm. Standard errors
that leave the noise on tables out, or take it three times as large, are planted and must be rejected."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from support.release_tables import all_pairs, least_squares, owner_study, release_of
from support.studies import study_of
from verticil.analysis.design import design_of
from verticil.analysis.formula import parse
from verticil.analysis.moments import regress_tables
from verticil.analysis.published_shares import Measured
from verticil.shared.numerics.model.schema import Variable

FALSE_ALARM = 1e-6
SEEDS = 40
VARIABLES = (
    Variable(name="weight", owner="a", labels=("[40,60)", "[60,80)", "[80,120)"), bins=(40.0, 60.0, 80.0, 120.0)),
    Variable(name="age", owner="a", labels=("[20,40)", "[40,60)", "[60,90)"), bins=(20.0, 40.0, 60.0, 90.0)),
    Variable(name="ward", owner="a", labels=("north", "south", "east")),
    Variable(name="smoker", owner="a", labels=("no", "yes")),
)
FORMULA = parse("weight ~ age + ward + smoker")


def population(n: int) -> list[np.ndarray]:
    generator = np.random.default_rng(7)
    ward, age = generator.choice(3, n, p=[0.5, 0.3, 0.2]), generator.choice(3, n, p=[0.4, 0.4, 0.2])
    smoker = generator.random(n) < 0.2 + 0.15 * (ward == 1) + 0.15 * age
    score = 0.6 * age + 0.9 * smoker - 0.5 * (ward == 2) + generator.standard_normal(n)
    return [column.astype(np.uint8) for column in (np.digitize(score, [0.3, 1.3]), age, ward, smoker)]


def scores(factor: float, *, randomized: bool = False) -> np.ndarray:
    """(S, p): standardized errors of the coefficients, the deviation of the noise taken `factor` times as large as it is."""
    everybody = population(40_000)
    study = all_pairs(study_of(VARIABLES, epsilon=3.0 if randomized else None), [v.name for v in VARIABLES])
    study = study if randomized else owner_study(study, 1.0)
    rows = []
    for seed in range(SEEDS):
        chosen = np.random.default_rng([seed, 11]).integers(0, 40_000, 4000)
        release = release_of([column[chosen] for column in everybody], study, seed)
        measured = Measured(release)
        measured.tables = {units: factor * sigma for units, sigma in measured.tables.items() if factor}
        design, result = regress_tables(measured, design_of(release, FORMULA), 0.95)
        truth, _ = least_squares(everybody, design)
        rows.append((result.estimate - truth) / result.standard_error)
    return np.array(rows)


def p_value(errors: np.ndarray) -> float:
    """Two-sided, of all coefficients together by Bonferroni."""
    squares = (errors**2).sum(axis=0)
    tails = np.minimum(stats.chi2.cdf(squares, len(errors)), stats.chi2.sf(squares, len(errors)))
    return float(min(1.0, 2 * tails.min() * errors.shape[1]))


@pytest.mark.slow
@pytest.mark.parametrize("randomized", [False, True])
def test_coefficients_scatter_as_their_errors_say(randomized: bool) -> None:
    errors = scores(1.0, randomized=randomized)
    assert p_value(errors) > FALSE_ALARM
    assert abs(errors.mean(axis=0)).max() < stats.norm.isf(FALSE_ALARM / 2 / errors.shape[1]) / np.sqrt(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.0, 3.0])
def test_errors_without_the_noise_or_with_too_much_are_rejected(factor: float) -> None:
    assert p_value(scores(factor)) < FALSE_ALARM
