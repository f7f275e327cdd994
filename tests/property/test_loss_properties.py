"""Properties of composed privacy losses: they grow with what is lost, in no order, and post-processing is free."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from verticil.shared.mechanisms import loss
from verticil.shared.mechanisms.loss import (
    ApproximateLoss,
    DiscreteGaussianLoss,
    GaussianLoss,
    Loss,
    PureLoss,
    delta_at,
    epsilon_at,
)

NEARLY = 1e-9
"""Relative: rounding terms are added outward, and not the same in two sums."""

pure = st.builds(PureLoss, epsilon=st.floats(0.001, 3))
gaussian = st.builds(GaussianLoss, mu=st.floats(0.01, 2))
discrete = st.builds(DiscreteGaussianLoss, sigma=st.floats(0.5, 60), change=st.integers(1, 3))
approximate = st.builds(ApproximateLoss, epsilon=st.floats(0.001, 3), delta=st.floats(1e-12, 1e-7))
some = st.dictionaries(pure | gaussian | discrete | approximate, st.integers(1, 40), min_size=1, max_size=5).map(
    Counter
)
deltas = st.floats(-11, -1).map(lambda power: 10**power)
more = st.floats(1.001, 3)

common = settings(max_examples=20, deadline=None)


@st.composite
def increases(draw: st.DrawFn) -> tuple[Loss, Loss]:
    """A loss, and one that is larger in one of its numbers."""
    one, factor = draw(pure | gaussian | discrete | approximate), draw(more)
    match one:
        case PureLoss(epsilon=epsilon):
            return one, PureLoss(epsilon=epsilon * factor)
        case GaussianLoss(mu=mu):
            return one, GaussianLoss(mu=mu * factor)
        case ApproximateLoss(epsilon=epsilon, delta=delta):
            larger = draw(st.booleans())
            return one, ApproximateLoss(epsilon=epsilon * (factor if larger else 1), delta=delta * factor)
        case DiscreteGaussianLoss(sigma=sigma, change=change):
            return DiscreteGaussianLoss(sigma=sigma * factor, change=change), one


@pytest.mark.whole
@common
@given(beside=some, pair=increases(), times=st.integers(1, 20), delta=deltas)
def test_a_larger_loss_costs_more(beside, pair, times, delta):
    less, larger = (epsilon_at(beside + Counter({one: times}), delta) for one in pair)
    assert less <= larger * (1 + NEARLY) + 1e-12


@pytest.mark.whole
@common
@given(beside=some, sigma=st.floats(0.5, 20), change=st.integers(1, 3), delta=deltas)
def test_a_larger_change_costs_more(beside, sigma, change, delta):
    """The noise of a count that changes by more is that of a wider step, so nothing that is told is lost: see the merged one."""
    less, larger = (
        epsilon_at(beside + Counter({DiscreteGaussianLoss(sigma=sigma, change=c): 1}), delta)
        for c in (change, change + 1)
    )
    assert less <= larger * (1 + NEARLY) + 1e-12


@common
@given(losses=some, another=pure | gaussian | discrete | approximate, delta=deltas)
def test_another_event_never_lowers(losses, another, delta):
    assert epsilon_at(losses, delta) <= epsilon_at(losses + Counter([another]), delta) * (1 + NEARLY) + 1e-12


@pytest.mark.whole
@common
@given(losses=some, another=pure | gaussian | discrete | approximate, epsilon=st.floats(0, 8))
def test_another_event_never_lowers_delta(losses, another, epsilon):
    assert delta_at(losses, epsilon) <= delta_at(losses + Counter([another]), epsilon) * (1 + 1e-6) + 1e-40


@common
@given(losses=some, delta=deltas, data=st.data())
def test_the_order_is_of_no_matter(losses, delta, data):
    listed = list(losses.elements())[:30]
    expected = epsilon_at(listed, delta)
    shuffled = data.draw(st.permutations(listed))
    loss._epsilon_at.cache_clear()
    assert epsilon_at(shuffled, delta) == expected
    loss._epsilon_at.cache_clear()
    assert epsilon_at(dict(reversed(Counter(shuffled).items())), delta) == expected


@common
@given(losses=some, delta=deltas)
@example(losses=Counter({PureLoss(epsilon=0.01): 5}), delta=1e-3)
def test_delta_at_and_epsilon_at_are_inverse(losses, delta):
    epsilon = epsilon_at(losses, delta)
    assume(math.isfinite(epsilon))
    assert delta_at(losses, epsilon * (1 + NEARLY)) <= delta * (1 + 1e-6)
    plain = all(isinstance(one, PureLoss | ApproximateLoss) for one in losses)
    largest = math.fsum(
        one.epsilon * times for one, times in losses.items() if isinstance(one, PureLoss | ApproximateLoss)
    )
    if epsilon > 0 and not (plain and epsilon == largest):
        assert delta_at(losses, epsilon * (1 - 1e-6)) >= delta * (1 - 1e-6)


@common
@given(losses=some, low=deltas, high=deltas)
def test_epsilon_falls_as_delta_grows(losses, low, high):
    low, high = sorted((low, high))
    assert epsilon_at(losses, high) <= epsilon_at(losses, low) * (1 + NEARLY) + 1e-12


@common
@given(losses=some)
def test_never_above_the_plain_sum(losses):
    counted = {one: n for one, n in losses.items() if isinstance(one, PureLoss | ApproximateLoss)}
    total = math.fsum(one.epsilon for one, n in counted.items() for _ in range(n))
    slack = math.fsum(one.delta for one, n in counted.items() if isinstance(one, ApproximateLoss) for _ in range(n))
    assert epsilon_at(Counter(counted), slack) <= total


@common
@given(
    sigma=st.floats(0.5, 5),
    change=st.integers(1, 2),
    borders=st.sets(st.integers(-12, 12), min_size=1, max_size=8),
    epsilon=st.floats(0, 4),
)
def test_post_processing_is_free(sigma, change, borders, epsilon):
    """Outcomes that are told only by their range, both in the exact sum and put on a grid."""
    atoms = loss._discrete_atoms(DiscreteGaussianLoss(sigma=sigma, change=change))
    reach = len(atoms.losses) // 2
    told = np.searchsorted(sorted(borders), np.arange(-reach, reach + 1))
    under_p, under_q = (np.bincount(told, weights=m) for m in (atoms.under_p, atoms.under_q))
    kept = (under_p > 1e-30) & (under_q > 1e-30)
    merged = loss._Atoms(
        losses=np.log(under_p[kept] / under_q[kept]), under_p=under_p[kept], under_q=under_q[kept], error=1e-13
    )
    exact = float(np.maximum(under_p - math.exp(epsilon) * under_q, 0).sum())
    whole = delta_at([DiscreteGaussianLoss(sigma=sigma, change=change)], epsilon)
    assert exact <= whole * (1 + 1e-9) + 1e-15
    part, log_scale, _ = loss._tilt_atoms(merged, 1, 2.0**-10, 0.0)
    at = (part.first + np.arange(len(part.mass))) * 2.0**-10
    on_grid = float(part.mass @ np.maximum(-np.expm1(epsilon - at), 0)) * math.exp(log_scale)
    assert exact <= on_grid * (1 + 1e-9) + 1e-15


@pytest.mark.whole
@common
@given(losses=some, delta=deltas)
def test_a_bound_says_the_same_with_nothing_beside_it(losses, delta):
    """Losses of nothing neither cost nor change anything."""
    assert epsilon_at(losses + Counter({PureLoss(epsilon=0.0): 7}), delta) == epsilon_at(losses, delta)
