"""The exact sampler draws the discrete Gaussian, for sigma from 1 to 10,000, and so does Canonne, Kamath & Steinke's beside it.

Null: the draws are independent discrete Gaussians of parameter sigma. n = 400,000 draws of one key for each sigma. Each test has
a false-alarm rate of at most 1e-6 under the null, and must reject noise whose sigma is 5 % too small. One key is used, so the
outcome is the same on every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from verticil.shared.mechanisms.discrete_gaussian import draw, variance

N = 400_000
FALSE_ALARM = 1e-6
SIGMAS = [1.0, 3.7, 10.0, 100.0, 1000.0, 10_000.0]
KEY = bytes(range(32))


@pytest.fixture(
    scope="module", params=[pytest.param(sigma, marks=pytest.mark.whole if sigma > 1000 else ()) for sigma in SIGMAS]
)
def case(request):
    sigma = request.param
    return sigma, draw(KEY, b"null", (N,), sigma), draw(KEY, b"planted", (N,), 0.95 * sigma)


def chi_square_p(draws: np.ndarray, sigma: float) -> float:
    """Pearson's test of the counts in runs of whole numbers, at most some 500, each expected to hold 20 or more draws.

    The weights are sums of e^(-x^2 / 2 sigma^2) over at least 40 sigma on each side; the runs follow from sigma alone.
    """
    reach = math.ceil(40 * sigma)
    numbers = np.arange(-reach, reach + 1)
    weights = np.exp(-((numbers / sigma) ** 2) / 2)
    expected = N * weights / math.fsum(weights)
    width = max(1, math.ceil(8 * sigma / 500))
    inner = np.flatnonzero(expected > 20 / width)  # contiguous: the weights fall on both sides
    edges = numbers[inner[0] : inner[-1] + 1 : width]
    run = np.searchsorted(edges, numbers, side="right")
    sums = np.bincount(run, weights=expected)
    counts = np.bincount(run[np.clip(draws, -reach, reach) + reach], minlength=len(sums))
    if sums[-1] < 20:
        sums, counts = (np.append(values[:-2], values[-2:].sum()) for values in (sums, counts))
    return float(stats.chi2.sf(((counts - sums) ** 2 / sums).sum(), len(sums) - 1))


def test_the_distribution_is_the_discrete_gaussian(case):
    sigma, draws, planted = case
    assert chi_square_p(draws, sigma) > FALSE_ALARM
    assert chi_square_p(planted, sigma) < FALSE_ALARM


def test_the_variance_is_the_stated_one(case):
    """(s^2 - v) / sd of s^2; the fourth moment is 3 v^2 within 1e-5 at sigma >= 1."""
    sigma, draws, planted = case
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)

    def z(numbers: np.ndarray) -> float:
        exact = variance(sigma)
        return (float(np.mean(numbers.astype(float) ** 2)) - exact) / (exact * math.sqrt(2 / N))

    assert abs(z(draws)) < limit
    assert z(planted) < -5 * limit


def test_the_mean_is_zero_and_neighbours_are_unrelated(case):
    sigma, draws, _ = case
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / 4)
    assert abs(draws.mean()) < limit * sigma / math.sqrt(N)
    product = draws[:-1].astype(float) * draws[1:]
    assert abs(product.mean()) < limit * sigma**2 / math.sqrt(N - 1)
    drifting = draws + 0.05 * sigma  # a planted bias of a twentieth
    assert abs(drifting.mean()) > limit * sigma / math.sqrt(N)


# ---- Canonne, Kamath & Steinke, algorithms 1 to 3, with fractions and single random bits


class Bits:
    """Uniform whole numbers from a generator, by rejection."""

    def __init__(self, seed: int) -> None:
        self.words = self._stream(np.random.default_rng(seed))

    @staticmethod
    def _stream(generator: np.random.Generator) -> Iterator[int]:
        while True:
            yield from generator.integers(0, 2**62, 4096).tolist()

    def below(self, n: int) -> int:
        whole = 2**62 // n * n
        return next(word for word in self.words if word < whole) % n


def bernoulli_exp(gamma: Fraction, bits: Bits) -> bool:
    """Algorithm 1: true with probability e^-gamma."""
    while gamma > 1:
        if not bernoulli_exp(Fraction(1), bits):
            return False
        gamma -= 1
    k = 1
    while bits.below(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def discrete_laplace(t: int, bits: Bits) -> int:
    """Algorithm 2 with s = 1: weights e^(-|x| / t)."""
    while True:
        u = bits.below(t)
        if not bernoulli_exp(Fraction(u, t), bits):
            continue
        v = 0
        while bernoulli_exp(Fraction(1), bits):
            v += 1
        magnitude = u + t * v
        negative = bits.below(2) == 1
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def rejected(sigma: Fraction, bits: Bits) -> int:
    """Algorithm 3."""
    t = math.floor(sigma) + 1
    while True:
        y = discrete_laplace(t, bits)
        if bernoulli_exp((abs(y) - sigma**2 / t) ** 2 / (2 * sigma**2), bits):
            return y


def two_sample_p(one: np.ndarray, two: np.ndarray) -> float:
    """Pearson's test of equal distributions, numbers pooled where both samples together have fewer than 40."""
    numbers, counts = np.unique(np.concatenate([one, two]), return_counts=True)
    kept = numbers[counts >= 40]
    tables = [
        np.bincount(np.searchsorted(kept, np.clip(some, kept[0], kept[-1])), minlength=len(kept)) for some in (one, two)
    ]
    return float(stats.chi2_contingency(np.array(tables))[1])


@pytest.mark.whole
@pytest.mark.parametrize("sigma", [1.0, 3.7, 10.0])
def test_inversion_and_rejection_draw_the_same(sigma):
    bits = Bits(seed=3)
    reference = np.array([rejected(Fraction(str(sigma)), bits) for _ in range(20_000)])
    assert two_sample_p(draw(KEY, b"null", (N,), sigma), reference) > FALSE_ALARM
    planted = draw(KEY, b"planted", (N,), 0.92 * sigma)  # of so few, 8 % is what can be seen
    assert two_sample_p(planted, reference) < FALSE_ALARM
