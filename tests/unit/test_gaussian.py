"""The calibration of Gaussian noise."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest

from support.calibration import SIGMAS
from verticil.shared.mechanisms import gaussian
from verticil.shared.mechanisms.gaussian import analytic_delta, analytic_sigma


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: analytic_sigma(0.0, 1e-9),
        lambda: analytic_sigma(1.0, 0.0),
        lambda: analytic_sigma(math.inf, 1e-9),
    ],
)
def test_what_cannot_be_promised_is_refused(make):
    with pytest.raises(ValueError, match=r"."):
        make()
