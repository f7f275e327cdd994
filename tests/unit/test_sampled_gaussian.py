"""Steps of DP-SGD: their loss against sums that bound it from both sides, its domination, and the event of a training."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest

from verticil.gan.accounting import GeneratorTraining, training_for
from verticil.shared.mechanisms.loss import GaussianLoss, SampledGaussianLoss, delta_at, epsilon_at
from verticil.shared.privacy.accountant import add_or_remove, cost_of, together
from verticil.shared.privacy.events import from_json, to_json


def density(x: np.ndarray, q: float, mean: float) -> np.ndarray:
    """Of the mixture, in standard deviations, without its constant factor."""
    return (1 - q) * np.exp(-(x**2) / 2) + q * np.exp(-((x - mean) ** 2) / 2)


def bounds(q: float, mean_p: float, mean_q: float, times: int, epsilon: float) -> tuple[float, float]:
    """Of delta: the losses of 400,000 cells of the noise put on a grid of 1 / 4,000, all down and all up, and added."""
    edges = np.linspace(-12, 12, 400_001)
    x, grid = (edges[1:] + edges[:-1]) / 2, 4_000
    p, other = density(x, q, mean_p), density(x, q, mean_q)
    losses, mass = np.log(p / other), p / p.sum()
    found = []
    for whole in (np.floor(losses * grid).astype(int) - 1, np.ceil(losses * grid).astype(int) + 1):
        first, size = whole.min() * times, (whole.max() - whole.min()) * times + 1
        spectrum = np.fft.rfft(np.bincount(whole - whole.min(), weights=mass), 1 << int(size).bit_length())
        summed = np.fft.irfft(spectrum**times)[:size]
        at = (first + np.arange(size)) / grid
        above = at > epsilon
        found.append(float(summed[above] @ -np.expm1(epsilon - at[above])))
    return found[0], found[1]


@pytest.mark.parametrize(("sigma", "rate", "times"), [(0.8, 0.1, 3), (1.5, 0.02, 40), (3.0, 0.3, 20)])
@pytest.mark.parametrize("replaced", [True, False])
def test_steps_against_sums_from_both_sides(sigma, rate, times, replaced):
    found = delta_at(Counter({SampledGaussianLoss(sigma=sigma, rate=rate, replaced=replaced): times}), 0.7)
    one = 1 / sigma
    pairs = [(one, -one)] if replaced else [(one, 0.0), (0.0, -one)]
    low, high = np.max([bounds(rate, *pair, times, 0.7) for pair in pairs], axis=0)
    assert low <= found <= high


def test_who_is_always_taken_has_the_loss_of_gaussian_noise():
    for replaced, mu in ((True, 2 / 1.5), (False, 1 / 1.5)):
        found = epsilon_at(Counter({SampledGaussianLoss(sigma=1.5, rate=1.0, replaced=replaced): 3}), 1e-6)
        exact = epsilon_at(Counter({GaussianLoss(mu=mu): 3}), 1e-6)
        assert exact * (1 - 1e-11) <= found <= exact * (1 + 1e-6)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.3, 3.0])
def test_no_two_vectors_of_a_person_tell_more_than_opposite_ones(alpha):
    """On a grid of the plane; a pair of vectors that is told apart by more would be found."""
    sigma, q, n = 0.9, 0.2, 401
    axis = np.linspace(-9, 9, n)
    plane = np.stack(np.meshgrid(axis, axis, indexing="ij"))

    def mixture(at: np.ndarray) -> np.ndarray:
        own = np.exp(-((plane - at[:, None, None] / sigma) ** 2).sum(axis=0) / 2)
        return ((1 - q) * np.exp(-(plane**2).sum(axis=0) / 2) + q * own) * (axis[1] - axis[0]) ** 2 / (2 * math.pi)

    def told(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.maximum(mixture(x) - alpha * mixture(y), 0).sum())

    most = told(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    drawn = np.random.default_rng(20240917)
    for _ in range(40):
        x, y = (v / np.linalg.norm(v) * drawn.choice([1.0, drawn.random()]) for v in drawn.normal(size=(2, 2)))
        assert told(x, y) <= most * (1 + 1e-4)  # what the grid is off by
    if alpha >= 1:
        loss = SampledGaussianLoss(sigma=sigma, rate=q)
        assert most * (1 - 1e-6) <= delta_at([loss], math.log(alpha)) <= most * (1 + 1e-3)


@pytest.mark.parametrize("values", [{"sigma": 0.2}, {"sigma": math.inf}, {"rate": 0.0}, {"rate": 1.5}])
def test_what_is_out_of_range_has_no_loss(values):
    with pytest.raises(ValueError, match="expected"):
        SampledGaussianLoss(**{"sigma": 1.0, "rate": 0.5, **values})


def test_the_noise_for_an_epsilon_is_enough_and_hardly_more():
    event = training_for(3.0, 1e-9, steps=200, rate=0.02, tables=13)
    assert (cost_of(event).epsilon, cost_of(event).delta) == (3.0, 1e-9)
    told = dataclasses.replace(event, epsilon=None)
    assert 2.98 < cost_of(told).epsilon <= 3.0
    less = dataclasses.replace(event, sigma=event.sigma * 0.99)
    assert cost_of(less).epsilon > 3.0
    beside = add_or_remove([event])
    assert beside is not None
    assert 1.5 < beside.epsilon < 2.5
    assert together([event, event]).epsilon < 6.0


def test_the_event_is_written_and_read_back():
    event = training_for(3.0, 1e-9, steps=200, rate=0.02, tables=13)
    assert from_json(to_json(event)) == event


@pytest.mark.parametrize(
    "values", [{"steps": 0}, {"tables": 0}, {"delta": 0.0}, {"epsilon": math.inf}, {"counts": 0.1}]
)
def test_a_training_that_cannot_be_is_refused(values):
    fine = {"steps": 10, "rate": 0.1, "sigma": 1.0, "tables": 2, "counts": 5.0, "delta": 1e-9}
    with pytest.raises(ValueError, match="expected"):
        GeneratorTraining(**(fine | values))


def test_an_epsilon_for_which_no_noise_is_enough_is_refused():
    with pytest.raises(ValueError, match="allow a larger epsilon"):
        training_for(1e-5, 1e-9, steps=200, rate=0.02, tables=13)
