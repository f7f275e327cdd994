"""Properties of the two-level design, of the equal-contrast allocation and of the breach rule, over random designs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verticil.shared.model import privacy
from verticil.shared.model.allocation import equal_contrast
from verticil.shared.model.transition import quantize, symmetric, two_level

STEP = 1e-6
level = st.floats(0.05, 6.0)


@st.composite
def groups(draw: st.DrawFn) -> list[tuple[int, ...]]:
    sizes = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5).filter(lambda sizes: max(sizes) > 1))
    states = draw(st.permutations(range(sum(sizes))))
    return [tuple(states[sum(sizes[:i]) : sum(sizes[: i + 1])]) for i in range(len(sizes))]


@given(members=groups(), group=level, within=level)
def test_epsilon_of_two_levels_is_the_largest_of_three_terms(members, group, within):
    n_states = sum(map(len, members))
    transition = quantize(two_level(members, n_states, epsilon_group=group, epsilon_within=within))
    terms: list[float] = []
    for m in map(len, members):
        total = math.exp(within) + m - 1
        terms.append(group + within + math.log(m / total))
        terms += [within, abs(group + math.log(m / total))] if m > 1 else []
    found = privacy.epsilon(transition)
    assert found == pytest.approx(max(terms), rel=1e-9)
    assert found <= group + within + privacy.EPSILON_TOLERANCE
    assert all(weight > 0 for row in transition.weights for weight in row)


@given(
    columns=st.lists(st.tuples(st.integers(2, 60), st.none() | st.floats(0.1, 5.0)), min_size=1, max_size=12),
    each=st.floats(0.05, 8.0),
)
def test_an_allocation_keeps_total_caps_and_equal_contrasts(columns, each):
    n_states, caps = [k for k, _ in columns], [cap for _, cap in columns]
    total = each * len(columns)
    epsilons = equal_contrast(n_states, total, caps)
    assert math.fsum(epsilons) <= total + 1e-12
    free = [(k, epsilon) for k, epsilon, cap in zip(n_states, epsilons, caps, strict=True) if epsilon != cap]
    kept = [1 - k / (math.exp(epsilon) + k - 1) for k, epsilon in free]
    assert kept == pytest.approx(kept[:1] * len(kept), abs=STEP)
    for k, epsilon, cap in zip(n_states, epsilons, caps, strict=True):
        assert cap is None or epsilon <= cap
        if epsilon == cap and kept:  # a capped column would have got more
            assert 1 - k / (math.exp(epsilon) + k - 1) <= max(kept) + STEP
    if free:
        assert math.fsum(epsilons) >= total - STEP * len(columns) - 1e-9


@given(
    n_states=st.integers(2, 20),
    epsilon=st.floats(0.05, 8.0),
    beliefs=st.tuples(st.floats(0.001, 0.999), st.floats(0.001, 0.999)).filter(lambda pair: pair[0] < pair[1]),
)
def test_a_breach_is_possible_when_the_worst_posterior_reaches_it(n_states, epsilon, beliefs):
    prior, posterior = beliefs
    transition = quantize(symmetric(n_states, epsilon=epsilon))
    worst = privacy.max_posterior(prior, epsilon=privacy.epsilon(transition))
    if abs(worst - posterior) > 1e-6:
        assert privacy.breach_free(transition, prior, posterior) == (worst < posterior)
