"""The calibration of Gaussian noise, its drawing by thresholds."""

from __future__ import annotations

import doctest
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from support.calibration import SIGMAS
from verticil.shared.mechanisms import gaussian
from verticil.shared.mechanisms.gaussian import (
    LARGEST_SIGMA,
    analytic_delta,
    analytic_sigma,
    rounded_gaussian_thresholds,
    sampling_slack,
    share_sigma,
    whole_numbers,
)


def test_doctests():
    assert doctest.testmod(gaussian).failed == 0


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), SIGMAS)
def test_the_calibration_is_that_of_the_methods(epsilon, delta, sigma):
    """Reference numbers of the project's notes on Balle & Wang's theorem 8."""
    assert analytic_sigma(epsilon, delta) == pytest.approx(sigma, abs=6e-7)
    assert analytic_sigma(epsilon, delta, sensitivity=3.0) == pytest.approx(3 * sigma, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-15])
def test_the_calibrated_noise_is_enough_and_hardly_more(epsilon, delta):
    sigma = analytic_sigma(epsilon, delta)
    assert analytic_delta(sigma, epsilon) <= delta
    assert analytic_delta(sigma * 0.999, epsilon) > delta


def test_delta_by_numerical_integration():
    """delta = integral of max(0, p - e^epsilon q) over the two densities; midpoint rule, 200,000 points."""
    sigma, epsilon = 2.0, 0.7
    x = np.linspace(-30, 30, 200_001)
    step = x[1] - x[0]

    def density(mean):
        return np.exp(-((x - mean) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))

    delta = np.maximum(density(1.0) - math.exp(epsilon) * density(0.0), 0).sum() * step
    assert analytic_delta(sigma, epsilon) == pytest.approx(delta, rel=1e-6)


def test_far_in_the_tail_the_series_continues_the_error_function():
    """ln Phi(-30) = -454.3212439955 (Abramowitz & Stegun 26.2.12 with the first eight terms)."""
    below, above = gaussian._log_normal_cdf(-30.0000001), gaussian._log_normal_cdf(-29.9999999)
    assert below == pytest.approx(above, rel=1e-7)
    assert below == pytest.approx(-454.3212439955, rel=1e-7)


def test_replacing_one_person_costs_more_than_adding_one():
    """Sensitivity sqrt(2 T): two cells move by one in each of T tables."""
    alone = analytic_sigma(1.0, 1e-9)
    for n_tables in (1, 4, 15):
        assert share_sigma(1.0, 1e-9, n_tables) == pytest.approx(math.sqrt(2 * n_tables) * alone, rel=1e-6)


def test_the_slack_of_the_sampling_is_within_what_is_set_aside():
    sigma = share_sigma(1.0, 1e-9, 15)
    assert analytic_delta(sigma, 1.0, sensitivity=math.sqrt(30)) + sampling_slack(sigma, 1.0) < 1e-9


def _error_function(x: Decimal) -> Decimal:
    """The Maclaurin series, 80 digits."""
    term, total, n = x, x, 0
    while abs(term) > Decimal(10) ** -75:
        n += 1
        term = -term * x * x / n
        total += term / (2 * n + 1)
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
    return 2 * total / pi.sqrt()


@pytest.mark.parametrize("sigma", [0.5, 0.792237, 1.0, 2.5, 30.1])
def test_thresholds_are_the_cumulative_normal_at_half_integers(sigma):
    """To one unit of 2^-128 and the folded tails, against an independent series with 80 digits."""
    thresholds = rounded_gaussian_thresholds(sigma)
    reach = len(thresholds) // 2
    with localcontext() as context:
        context.prec = 80
        worst = Decimal(0)
        for number in range(0, len(thresholds), max(1, len(thresholds) // 40)):
            x = (Decimal(number - reach) + Decimal("0.5")) / Decimal(sigma) / Decimal(2).sqrt()
            exact = (1 + _error_function(x)) / 2 * 2**128
            worst = max(worst, abs(exact - thresholds[number]))
        assert worst < 2
    assert len(thresholds) == 2 * reach
    assert list(thresholds) == sorted(thresholds)


def test_a_word_is_compared_with_all_128_bits():
    """A first word that equals a threshold's first word is decided by the second."""
    sigma = 3.0
    thresholds = rounded_gaussian_thresholds(sigma)
    reach = len(thresholds) // 2
    units = [0, 2**128 - 1, *(t + change for t in thresholds[reach - 3 : reach + 3] for change in (-1, 0, 1))]
    words = np.array([[unit >> 64, unit & (2**64 - 1)] for unit in units], dtype=np.uint64)
    expected = [sum(t <= unit for t in thresholds) - reach for unit in units]
    assert whole_numbers(words, sigma).tolist() == expected
    assert expected[:2] == [-reach + sum(t <= 0 for t in thresholds), reach - sum(t > 2**128 - 1 for t in thresholds)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: analytic_sigma(0.0, 1e-9),
        lambda: analytic_sigma(1.0, 0.0),
        lambda: analytic_sigma(math.inf, 1e-9),
        lambda: share_sigma(1.0, 1e-9, 0),
        lambda: share_sigma(1e-5, 1e-9, 100),  # beyond LARGEST_SIGMA
        lambda: share_sigma(1.0, 1e-30, 1),  # below what the thresholds can promise
        lambda: rounded_gaussian_thresholds(2 * LARGEST_SIGMA),
        lambda: rounded_gaussian_thresholds(0.1),
    ],
)
def test_what_cannot_be_promised_is_refused(make):
    with pytest.raises(ValueError, match=r"."):
        make()


def test_the_slack_counts_every_cell_and_threshold():
    """Every cell adds its total variation: each of 2 b thresholds, and the tails, are off by less than 2^-128."""
    per_cell = (1 + math.e) * 2 * math.ceil(13.5 * 100) * 2.0**-128
    assert 2**30 * per_cell <= gaussian.sampling_slack(100.0, 1.0) < 2**30 * per_cell * 1.01
