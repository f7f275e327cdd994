"""The noise that a party adds to its tables is the rounded Gaussian that it is said to be.

Null: the draws are independent rounded Gaussians of standard deviation sigma. n = 400,000 draws of one key. Each test has a
false-alarm rate of at most 1e-6 under the null and must reject noise whose sigma is 10 % too small (and, for the distribution,
noise with a uniform shape of the right variance). One key is used, so the outcome is the same on every run.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from verticil.shared.mechanisms.gaussian import share_sigma, whole_numbers
from verticil.shared.mechanisms.share_noise import ROUNDED, ShareNoise

N = 400_000
FALSE_ALARM = 1e-6
SIGMAS = {"small": (8.0, 1e-6, 1), "demo": (1.0, 1e-9, 15)}


@pytest.fixture(scope="module", params=sorted(SIGMAS))
def case(request):
    epsilon, delta, n_tables = SIGMAS[request.param]
    noise = ShareNoise(noise=ROUNDED, key=bytes(range(32)), epsilon=epsilon, delta=delta, n_tables=n_tables)
    return noise.sigma, noise.add(b"family", np.zeros(N)).astype(np.int64)


def _too_small(sigma: float) -> np.ndarray:
    words = np.random.default_rng(1).integers(0, 2**64, (N, 2), dtype=np.uint64)
    return whole_numbers(words, 0.9 * sigma)


def _variance_z(draws: np.ndarray, sigma: float) -> float:
    """(s^2 - v) / sd of s^2; the fourth moment of a rounded Gaussian is 3 v^2 within 1 % at sigma > 0.5."""
    variance = sigma**2 + 1 / 12
    return (float(np.mean(draws.astype(float) ** 2)) - variance) / (variance * math.sqrt(2 / N))


def _chi_square_p(draws: np.ndarray, sigma: float) -> float:
    """Pearson's test of the counts of each whole number, tails pooled to an expectation of at least 20."""
    normal = NormalDist(0, sigma)
    reach = next(k for k in range(10_000) if N * normal.cdf(-k - 0.5) < 20) - 1
    inner = np.arange(-reach, reach + 1)
    probability = np.array([normal.cdf(k + 0.5) - normal.cdf(k - 0.5) for k in inner])
    probability = np.concatenate([[normal.cdf(-reach - 0.5)], probability, [normal.cdf(-reach - 0.5)]])
    counts = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=len(probability))
    statistic = float(((counts - N * probability) ** 2 / (N * probability)).sum())
    return float(stats.chi2.sf(statistic, len(probability) - 1))


def test_the_variance_is_that_of_the_statement(case):
    sigma, draws = case
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)
    assert abs(_variance_z(draws, sigma)) < limit
    assert abs(_variance_z(_too_small(sigma), sigma)) > 10 * limit


def test_the_distribution_is_the_rounded_gaussian(case):
    sigma, draws = case
    assert _chi_square_p(draws, sigma) > FALSE_ALARM
    assert _chi_square_p(_too_small(sigma), sigma) < FALSE_ALARM
    width = math.sqrt(12 * (sigma**2 + 1 / 12))
    uniform = np.rint(np.random.default_rng(2).uniform(-width / 2, width / 2, N)).astype(np.int64)
    assert _chi_square_p(uniform, sigma) < FALSE_ALARM


def test_the_mean_is_zero_and_neighbours_are_unrelated(case):
    sigma, draws = case
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / 4)
    deviation = math.sqrt(sigma**2 + 1 / 12)
    assert abs(draws.mean()) < limit * deviation / math.sqrt(N)
    product = draws[:-1].astype(float) * draws[1:]
    assert abs(product.mean()) < limit * deviation**2 / math.sqrt(N - 1)
    shifted = draws + 0.05 * deviation  # a planted bias of a twentieth
    assert abs(shifted.mean()) > limit * deviation / math.sqrt(N)


def test_sigma_is_not_that_of_adding_one_person():
    """The planted fault that this relation invites: sqrt(2) too small is found by the same test."""
    sigma = share_sigma(1.0, 1e-9, 15)
    noise = ShareNoise(noise=ROUNDED, key=bytes(32), epsilon=1.0, delta=1e-9, n_tables=15)
    draws = noise.add(b"x", np.zeros(N))
    assert _variance_z(draws, sigma / math.sqrt(2)) > 100
