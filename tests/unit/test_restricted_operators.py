"""The procedures under constraints, line by line: what section III of the paper does, among what section IV leaves free.

Statistical tests: chi-square against a uniform distribution, fixed seeds, false-alarm rate 1e-6 each.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from scipy.stats import chi2

from support.genetic_operators import Individual, crossover
from support.genetic_operators import next_generation as plain_next_generation
from support.restricted_operators import (
    EMPTY,
    Limits,
    initial_individual,
    next_generation,
    order_flip,
    swap,
)
from verticil.miner.learning.search.draws import Draws

D, K = 6, 3
LIMITS = Limits(  # 0 is required for 3 and precedes it; 5 is nobody's parent; 1 may have 0 only
    before=(frozenset(), frozenset(), frozenset(), frozenset({0}), frozenset(), frozenset()),
    allowed=(
        frozenset({1, 2, 4}),
        frozenset({0}),
        frozenset({0, 1, 3, 4}),
        frozenset({1, 2, 4}),
        frozenset({0, 1, 2, 3}),
        frozenset({0, 1, 2, 3, 4}),
    ),
    required=((), (), (), (0,), (), ()),
)


def uniform(seen: Counter, n_outcomes: int) -> bool:
    total = sum(seen.values())
    expected = total / n_outcomes
    statistic = sum((count - expected) ** 2 / expected for count in seen.values())
    statistic += (n_outcomes - len(seen)) * expected
    return len(seen) <= n_outcomes and bool(chi2.sf(statistic, n_outcomes - 1) >= 1e-6)


def prior(individual: Individual, j: int) -> set[int]:
    return set(individual.order[: individual.order.index(j)])


def meets(individual: Individual) -> bool:
    return sorted(individual.order) == list(range(D)) and all(
        len(family) == K
        and family[: len(LIMITS.required[j])] == LIMITS.required[j]
        and set(family[len(LIMITS.required[j]) :]) <= LIMITS.allowed[j] | {EMPTY}
        and len(set(family) - {EMPTY}) == len([p for p in family if p != EMPTY])
        and LIMITS.before[j] <= prior(individual, j)
        for j, family in enumerate(individual.families)
    )


def test_initialization_takes_what_precedes_and_is_allowed_before_anything_else():
    draws = Draws(3)
    for _ in range(200):
        individual = initial_individual(K, LIMITS, draws)
        assert meets(individual)
        for j, family in enumerate(individual.families):
            own = set(family[len(LIMITS.required[j]) :]) - {EMPTY}
            earlier = LIMITS.allowed[j] & prior(individual, j)
            free = K - len(LIMITS.required[j])
            assert own <= earlier if len(earlier) >= free else earlier <= own  # lines 6 and 7
            assert len(own) == min(free, len(LIMITS.allowed[j]))  # a slot is empty only where nobody is left


def test_initialization_without_constraints_is_uniform_over_orders():
    free = Limits(
        before=(frozenset(),) * 3,
        allowed=tuple(frozenset(range(3)) - {j} for j in range(3)),
        required=((),) * 3,
    )
    draws = Draws(11)
    assert uniform(Counter(initial_individual(1, free, draws).order for _ in range(3000)), 6)


def test_initialization_draws_uniformly_among_the_allowed_that_precede():
    draws, seen = Draws(5), Counter()
    for _ in range(20_000):
        individual = initial_individual(K, LIMITS, draws)
        if individual.order[-1] == 5:
            seen[frozenset(individual.families[5])] += 1
    assert uniform(seen, len(list(itertools.combinations(range(5), K))))


def test_crossover_keeps_required_parents_in_their_slots():
    draws = Draws(8)
    one, two = initial_individual(K, LIMITS, draws), initial_individual(K, LIMITS, draws)
    children = {crossover(one, two, draws) for _ in range(200)}
    assert len(children) > 2
    assert all(child.order == one.order and child.families[3][0] == 0 for child in children)


def test_order_flip_leaves_out_only_what_would_break_the_order():
    individual = Individual(order=(0, 3, 1, 2, 4, 5), families=((),) * D)
    draws = Draws(21)
    seen = Counter(order_flip(individual, 0.2, LIMITS, draws).order for _ in range(4000))
    assert all(order.index(0) < order.index(3) for order in seen)
    assert (5, 3, 1, 2, 4, 0) not in seen
    assert (0, 5, 1, 2, 4, 3) in seen
    assert order_flip(individual, 0.0, LIMITS, draws) == individual


def test_swap_repairs_uniformly_among_the_allowed_and_leaves_required_parents():
    """Variable 5 stands last and one of its members is misplaced: the others of 0..4 are as likely."""
    order = (0, 1, 2, 3, 4, 5)
    families = ((EMPTY,) * K, (0, EMPTY, EMPTY), (0, 1, 4), (0, 1, 4), (0, 1, 2), (0, 1, 2))
    individual = Individual(order=order, families=families)
    draws, repaired = Draws(2), Counter()
    for _ in range(3000):
        after = swap(individual, 0.0, LIMITS, draws)
        assert after.order == order
        assert after.families[0] == families[0]  # nobody precedes it
        assert after.families[1] == families[1]
        assert after.families[4:] == families[4:]  # nothing to repair
        assert after.families[2] == families[2]  # 4 comes too late, and nobody that is allowed and precedes is left
        assert after.families[3][:2] == (0, 1)
        repaired[after.families[3][2]] += 1
    assert set(repaired) == {2}
    late = Individual(order=(5, 4, 0, 1, 2, 3), families=(*families[:3], (0, EMPTY, EMPTY), *families[4:]))
    filled = Counter(frozenset(swap(late, 0.0, LIMITS, draws).families[3][1:]) for _ in range(3000))
    assert uniform(filled, 3)  # two of the allowed 1, 2, 4: all precede


def test_swap_at_rate_one_never_touches_a_required_parent():
    draws = Draws(13)
    for _ in range(200):
        before = initial_individual(K, LIMITS, draws)
        after = swap(before, 1.0, LIMITS, draws)
        assert meets(after)
        assert after.families[3][0] == 0


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_next_generation_keeps_the_elite_and_repairs_whatever_it_adds(rate):
    """Lines 1, 8 and 9, under constraints and without: Swap comes last, after Order Flip."""
    draws = Draws(31)
    elite = [initial_individual(K, LIMITS, draws) for _ in range(4)]
    generation = next_generation(elite, 60, rate, LIMITS, draws)
    assert list(generation[:4]) == elite
    assert len(generation) == 60
    assert all(map(meets, generation))
    for individual in generation[4:]:
        for j, family in enumerate(individual.families):
            earlier = LIMITS.allowed[j] & prior(individual, j)
            if set(family) - set(LIMITS.required[j]) - earlier:  # what could not be repaired
                assert earlier <= set(family)
    plain = [Individual(order=(2, 0, 1, 3), families=((1, 2), (0, 2), (0, 1), (0, 1)))]
    for individual in plain_next_generation(plain, 60, rate, draws)[1:]:
        for j, family in enumerate(individual.families):
            if set(family) - prior(individual, j):
                assert prior(individual, j) <= set(family)
