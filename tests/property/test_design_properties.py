"""Properties of compounds, subsets, the two-level design, the equal-contrast allocation and the breach rule."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.allocation import equal_contrast
from verticil.shared.mechanisms.subset import Subset, subset_selection
from verticil.shared.mechanisms.transition import SCALE, Transition, quantize, symmetric, two_level

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
        possible = privacy.Breach(prior=prior, posterior=posterior).possible(privacy.gamma(transition))
        assert possible == (worst >= posterior)


# ---- compounds ----------------------------------------------------------------------------------------------------------

Domain = Sequence[tuple[int, ...]]


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    """Products of two or three columns, some combinations removed."""
    states = draw(st.lists(st.integers(2, 4), min_size=2, max_size=3).filter(lambda states: math.prod(states) <= 24))
    every = list(itertools.product(*map(range, states)))
    kept = draw(st.lists(st.sampled_from(every), min_size=3, unique=True))
    return sorted(kept)


def worst_ratio(rows: Sequence[Sequence[Fraction]]) -> Fraction | None:
    """gamma by its definition, of any channel with exact probabilities."""
    worst = Fraction(1)
    for column in zip(*rows, strict=True):
        if max(column) == 0:
            continue
        if min(column) == 0:
            return None
        worst = max(worst, max(column) / min(column))
    return worst


def fixed_others(domain: Domain, member: int) -> list[list[int]]:
    """Positions of combinations that differ in one member only: what anybody can want to tell apart about it."""
    found: dict[tuple[int, ...], list[int]] = {}
    for position, combination in enumerate(domain):
        found.setdefault(combination[:member] + combination[member + 1 :], []).append(position)
    return [positions for positions in found.values() if len(positions) > 1]


@given(domain=domains(), data=st.data())
def test_gamma_of_a_compound_is_at_least_that_of_each_members_channel(domain: Domain, data: st.DataObject):
    d = len(domain)
    numbers = st.lists(st.integers(0, 9), min_size=d, max_size=d).filter(any)
    weights: list[tuple[int, ...]] = []
    for _ in range(d):
        row = data.draw(numbers)
        shares = [number * (SCALE // sum(row)) for number in row]
        shares[row.index(max(row))] += SCALE - sum(shares)
        weights.append(tuple(shares))
    transition = Transition(weights=tuple(weights))
    whole = privacy.gamma(transition)
    for member in range(len(domain[0])):
        values = sorted({combination[member] for combination in domain})
        for others in fixed_others(domain, member):
            rows = [
                [
                    Fraction(sum(weights[true][y] for y, released in enumerate(domain) if released[member] == value))
                    for value in values
                ]
                for true in others
            ]
            marginal = worst_ratio(rows)
            assert whole is None or (marginal is not None and marginal <= whole)


@given(domain=domains(), epsilon=st.floats(0.05, 2.0), data=st.data())
def test_a_set_of_combinations_tells_of_a_member_at_most_what_it_tells_of_all(domain, epsilon, data):
    d = len(domain)
    assume(d <= 8)
    size = data.draw(st.integers(1, d - 1))
    selection = subset_selection(d, epsilon=epsilon, size=size)
    keep = Fraction(selection.weight, SCALE)
    inside, outside = keep / math.comb(d - 1, size - 1), (1 - keep) / math.comb(d - 1, size)
    sets = list(itertools.combinations(range(d), size))
    channel = [[inside if true in members else outside for members in sets] for true in range(d)]
    assert all(sum(row) == 1 for row in channel)
    whole = privacy.gamma(selection)
    assert worst_ratio(channel) == whole
    assert whole is not None
    for member in range(len(domain[0])):
        seen = [tuple(sorted(domain[position][member] for position in members)) for members in sets]
        for others in fixed_others(domain, member):
            rows = [
                [
                    sum((p for p, view in zip(channel[true], seen, strict=True) if view == what), Fraction(0))
                    for what in set(seen)
                ]
                for true in others
            ]
            marginal = worst_ratio(rows)
            assert marginal is not None
            assert marginal <= whole


@given(n_states=st.integers(3, 60), epsilon=st.floats(0.01, 1.0), data=st.data())
def test_a_subset_never_promises_more_than_it_keeps(n_states, epsilon, data):
    size = data.draw(st.none() | st.integers(1, n_states - 1))
    selection = subset_selection(n_states, epsilon=epsilon, size=size)
    assert isinstance(selection, Subset)
    assert privacy.epsilon(selection) <= epsilon + 1e-15
    assert privacy.epsilon(selection) == pytest.approx(epsilon, abs=1e-12)
    assert 0 < privacy.contrast_factor(selection) <= 1
    assert 1 / privacy.contrast_factor(selection) <= privacy.condition_number(selection) * (1 + 1e-6)
    assert privacy.k_measure(selection) == n_states
