"""Estimates from randomized records are unbiased, and their errors are what is said of them.

Every test is seeded and states its null hypothesis, its number of runs and its false-alarm rate (at most 1e-6 for the whole
test, Bonferroni over what it looks at), and rejects a planted fault. Records are released with the very thresholds that a
party samples with, so quantization, sampling and estimation are tested together.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.contingency import family_table
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.numerics.estimation.parameters import family_parameters, marginal_parameters

FALSE_ALARM = 1e-6
RUNS = 400
COUNTS = np.array([[900, 300, 150], [200, 350, 1100]])  # parent (2) x child (3), 3,000 records
TRANSITIONS = [quantize(binary(0.1, 0.25)), quantize(np.array([[0.6, 0.3, 0.1], [0.05, 0.9, 0.05], [0.2, 0.2, 0.6]]))]


def release(codes, transition, generator):
    """Randomize codes as the contract says: #{j : u >= t_j}."""
    limits, lead = transition.thresholds()
    u = generator.integers(0, 2**64, codes.shape, dtype=np.uint64)
    return lead[codes] + (u[:, None] > limits[codes]).sum(axis=1).astype(lead.dtype)


@pytest.fixture(scope="module")
def tables():
    """RUNS randomizations of one fixed set of records, counted: (RUNS, 2, 3)."""
    generator = np.random.default_rng(20_261_121)
    cells = np.indices(COUNTS.shape).reshape(2, -1)
    columns = [np.repeat(axis, COUNTS.ravel()).astype(np.uint8) for axis in cells]
    return np.array(
        [
            family_table([release(c, t, generator) for c, t in zip(columns, TRANSITIONS, strict=True)], COUNTS.shape)
            for _ in range(RUNS)
        ]
    )


@pytest.fixture(scope="module")
def deviation():
    """Standard deviation of one estimate over the randomization alone: Theorem 2, dense, from the true counts."""
    p = np.kron(*(t.probabilities for t in TRANSITIONS))
    n = COUNTS.ravel().astype(float)
    inverse = np.linalg.inv(p)
    covariance = inverse.T @ (np.diag(n @ p) - p.T @ np.diag(n) @ p) @ inverse
    return np.sqrt(covariance.diagonal()).reshape(COUNTS.shape)


def largest_z(estimates, deviation):
    """Null: every cell's mean over the runs is its true count. Normal by the central limit theorem (1.2 M records)."""
    return float(np.abs((estimates.mean(axis=0) - COUNTS) / (deviation / math.sqrt(RUNS))).max())


Z_LIMIT = NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / COUNTS.size)  # two-sided, 6 cells


def test_estimates_are_unbiased(tables, deviation):
    assert largest_z(np.array([as_design(TRANSITIONS).estimate(t) for t in tables]), deviation) < Z_LIMIT


@pytest.mark.parametrize("axis", [0, 1])
def test_a_transposed_matrix_is_rejected(tables, deviation, axis):
    matrices = [t.inverse for t in TRANSITIONS]
    matrices[axis] = matrices[axis].T
    assert largest_z(np.array([apply_axes(t, matrices) for t in tables]), deviation) > Z_LIMIT


def test_a_matrix_that_is_off_by_two_percent_is_rejected_on_both_sides(tables, deviation):
    for p1 in (0.08, 0.12):
        wrong = [quantize(binary(p1, 0.25)), TRANSITIONS[1]]
        assert largest_z(np.array([as_design(wrong).estimate(t) for t in tables]), deviation) > Z_LIMIT


def variance_passes(tables, claimed):
    """Null: the variance over the runs is the claimed one; (RUNS - 1) s^2 / claimed is chi-square, two-sided, 6 cells."""
    estimates = np.array([as_design(TRANSITIONS).estimate(t) for t in tables])
    statistic = (RUNS - 1) * estimates.var(axis=0, ddof=1) / claimed
    tail = FALSE_ALARM / 2 / COUNTS.size
    low, high = stats.chi2.ppf(tail, RUNS - 1), stats.chi2.isf(tail, RUNS - 1)
    return bool(((low < statistic) & (statistic < high)).all())


def test_the_randomization_variance_is_the_claimed_one(tables):
    claimed = np.mean([as_design(TRANSITIONS).variance_pram(t) for t in tables], axis=0)
    assert variance_passes(tables, claimed)
    assert not variance_passes(tables, claimed * 0.6)
    assert not variance_passes(tables, claimed * 1.7)


def covered(low, high, truth, level):
    """Null: an interval covers with its level, up to 2 points for its own approximation; binomial, per cell, two-sided."""
    runs = len(low)
    hits = ((low <= truth) & (truth <= high)).sum(axis=0)
    tail = FALSE_ALARM / 2 / hits.size
    least = stats.binom.ppf(tail, runs, level - 0.02)
    most = stats.binom.isf(tail, runs, min(level + 0.02, 1.0))
    return bool(((hits >= least) & (hits <= most)).all())


@pytest.mark.whole
def test_intervals_of_conditional_probabilities_cover():
    # Sampling and randomization: the records are drawn anew in every run.
    generator = np.random.default_rng(77)
    joint = COUNTS / COUNTS.sum()
    truth = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    released = apply_axes(joint, [t.probabilities for t in TRANSITIONS])
    runs = generator.multinomial(4000, released.ravel(), size=RUNS).reshape(-1, 2, 3)
    families = [family_parameters(t, TRANSITIONS, 1, (0,), prior_count=0.5, level=0.9) for t in runs]
    assert not any(family.unstable.any() for family in families)
    estimates = np.array([family.estimate for family in families])
    low = np.array([family.interval_low for family in families])
    high = np.array([family.interval_high for family in families])
    assert covered(low, high, truth, 0.9)
    for factor in (0.6, 2.0):  # too narrow, too wide
        assert not covered(*(estimates + factor * (end - estimates) for end in (low, high)), truth, 0.9)


def test_intervals_of_shares_cover():
    generator = np.random.default_rng(78)
    truth = np.array([0.5, 0.3, 0.15, 0.05])
    transition = quantize(symmetric(4, epsilon=1.5))
    runs = generator.multinomial(20_000, truth @ transition.probabilities, size=2000)
    shares = [marginal_parameters(t, transition, variable=0, model=truth, level=0.95) for t in runs]
    low, high = (np.array([getattr(s, name) for s in shares]) for name in ("interval_low", "interval_high"))
    assert covered(low, high, truth, 0.95)
    # Leaving out the randomization, as if the released records were the true ones, is rejected.
    naive = [marginal_parameters(t, quantize(identity(4)), variable=0, model=truth, level=0.95) for t in runs]
    low, high = (np.array([getattr(s, name) for s in naive]) for name in ("interval_low", "interval_high"))
    assert not covered(low, high, truth, 0.95)
