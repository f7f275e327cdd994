"""The procedures of Hittmeir et al. (2022), section III, line by line of the paper's pseudo-code.

Statistical tests here: chi-square against an exactly enumerated distribution, fixed seeds, false-alarm rate 1e-6 each.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from support.genetic_operators import (
    Individual,
    crossover,
    initial_individual,
    next_generation,
    order_flip,
    swap,
)
from verticil.miner.learning.search.draws import Draws

SHAPES = [(2, 1), (4, 2), (7, 3), (5, 4), (12, 1)]
FALSE_ALARM = 1e-6


def valid(individual: Individual, d: int, k: int) -> bool:
    return sorted(individual.order) == list(range(d)) and all(
        len(set(family)) == k and j not in family and set(family) <= set(range(d))
        for j, family in enumerate(individual.families)
    )


def prior(individual: Individual, j: int) -> set[int]:
    return set(individual.order[: individual.order.index(j)])


def shuffled_order(individual: Individual, seed: int) -> Individual:
    """The same connectivity under another order, so that members come too late."""
    order = np.random.default_rng(seed).permutation(len(individual.order)).tolist()
    return Individual(order=tuple(order), families=individual.families)


def rejects(observed: Counter, expected: dict[object, float]) -> bool:
    """Whether the chi-square test rejects at FALSE_ALARM that `observed` comes from the probabilities `expected`."""
    total = sum(observed.values())
    if set(observed) - set(expected):
        return True
    statistic = sum((observed[key] - total * p) ** 2 / (total * p) for key, p in expected.items())
    return bool(chi2.sf(statistic, len(expected) - 1) < FALSE_ALARM)


def test_the_generator_is_splitmix64():
    draws = Draws(1234567)  # numbers: Rosetta Code, "Pseudo-random numbers/Splitmix64"
    assert [draws.word() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@pytest.mark.parametrize(("d", "k"), SHAPES)
def test_initialization_takes_k_prior_attributes_or_all_of_them(d, k):
    draws = Draws(d * 100 + k)
    for _ in range(50):
        individual = initial_individual(d, k, draws)
        assert valid(individual, d, k)
        for j in range(d):
            before = prior(individual, j)
            family = set(individual.families[j])
            assert family <= before if len(before) >= k else before <= family  # lines 6 and 7


def test_initialization_is_uniform_over_orders_and_parents():
    draws = Draws(5)
    individuals = [initial_individual(4, 2, draws) for _ in range(6000)]
    orders = Counter(individual.order for individual in individuals)
    assert not rejects(orders, dict.fromkeys(itertools.permutations(range(4)), 1 / 24))
    last = Counter()
    for individual in individuals:
        *_, j = individual.order
        last[frozenset(individual.order.index(p) for p in individual.families[j])] += 1
    assert not rejects(last, {frozenset(pair): 1 / 3 for pair in itertools.combinations(range(3), 2)})
    # The test has power: a generator that favours the first place by a fifth is rejected.
    assert rejects(Counter({0: 2400, 1: 1800, 2: 1800}), dict.fromkeys(range(3), 1 / 3))


def test_crossover_takes_the_first_j_sets_and_the_others_from_the_second():
    draws = Draws(9)
    one, two = initial_individual(5, 2, draws), initial_individual(5, 2, draws)
    assert all(a != b for a, b in zip(one.families, two.families, strict=True))
    cuts = Counter()
    for _ in range(3000):
        child = crossover(one, two, draws)
        assert child.order == one.order
        (cut,) = [j for j in range(6) if child.families == one.families[:j] + two.families[j:]]
        cuts[cut] += 1
    assert not rejects(cuts, dict.fromkeys(range(6), 1 / 6))  # j is uniform in [0, d], both ends possible


def flipped(order: tuple[int, ...], partners: tuple[int | None, ...]) -> tuple[int, ...]:
    result = list(order)
    for f, g in zip(order, partners, strict=True):
        if g is not None:
            p, q = result.index(f), result.index(g)
            result[p], result[q] = g, f
    return tuple(result)


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_order_flip_has_the_distribution_of_the_pseudo_code(rate):
    individual = Individual(order=(2, 0, 1), families=((1,), (2,), (0,)))
    exact: dict[object, float] = {}
    for partners in itertools.product((None, 0, 1, 2), repeat=3):
        p = float(np.prod([1 - rate if g is None else rate / 3 for g in partners]))
        result = flipped(individual.order, partners)
        exact[result] = exact.get(result, 0.0) + p
    draws = Draws(1)
    seen = Counter()
    for _ in range(6000):
        result = order_flip(individual, rate, draws)
        assert result.families == individual.families
        seen[result.order] += 1
    assert not rejects(seen, exact)
    assert rejects(seen, dict.fromkeys(itertools.permutations(range(3)), 1 / 6))  # planted: uniform orders


def test_order_flip_at_rate_zero_changes_nothing():
    individual = initial_individual(6, 2, Draws(3))
    assert order_flip(individual, 0.0, Draws(4)) == individual


@pytest.mark.parametrize(("d", "k"), SHAPES)
def test_swap_at_rate_zero_repairs_and_nothing_else(d, k):
    draws = Draws(17)
    repaired = 0
    for seed in range(40):
        before = shuffled_order(initial_individual(d, k, draws), seed)
        after = swap(before, 0.0, draws)
        assert valid(after, d, k)
        assert after.order == before.order
        for j in range(d):
            earlier = prior(before, j)
            for old, new in zip(before.families[j], after.families[j], strict=True):
                if old in earlier:
                    assert new == old
                elif new != old:
                    assert new in earlier  # lines 2 to 6
                    repaired += 1
                else:
                    assert earlier <= set(after.families[j])  # F was empty
    assert bool(repaired) == (k < d - 1)  # with k = d - 1 every attribute is in C_j already


@pytest.mark.parametrize(("d", "k"), [(4, 2), (7, 3)])
def test_swap_at_rate_one_exchanges_every_member_that_it_can(d, k):
    draws = Draws(23)
    for _ in range(40):
        before = initial_individual(d, k, draws)  # nothing that could be repaired
        after = swap(before, 1.0, draws)
        assert valid(after, d, k)
        for j in range(d):
            if len(prior(before, j)) <= k:  # line 10: F is empty
                assert after.families[j] == before.families[j]
            else:  # F never holds what is in C_j; the first slot is not touched again
                assert set(after.families[j]) <= prior(before, j)
                assert after.families[j][0] not in before.families[j]


def test_swap_draws_the_replacement_uniformly_from_prior_attributes_not_in_the_family():
    individual = Individual(order=(0, 1, 2, 3, 4), families=((4,), (0,), (0,), (1,), (2,)))
    draws = Draws(31)
    seen = Counter(swap(individual, 1.0, draws).families[4][0] for _ in range(3000))
    assert not rejects(seen, dict.fromkeys((0, 1, 3), 1 / 3))


def test_the_elite_leads_the_next_generation_unaltered():
    draws = Draws(2)
    elite = [initial_individual(6, 2, draws) for _ in range(4)]
    generation = next_generation(elite, 30, 0.3, draws)
    assert len(generation) == 30
    assert list(generation[:4]) == elite
    assert all(valid(individual, 6, 2) for individual in generation)


def test_without_mutation_the_next_generation_repeats_the_elite():
    draws = Draws(2)
    elite = [initial_individual(6, 2, draws) for _ in range(3)]
    generation = next_generation(elite, 303, 0.0, draws)
    seen = Counter(elite.index(individual) for individual in generation[3:])
    assert not rejects(seen, dict.fromkeys(range(3), 1 / 3))  # line 3: a random individual of the elite


def test_at_rate_one_every_newcomer_is_a_crossover():
    draws = Draws(6)
    elite = [Individual(order=(0, 1), families=((1,), (0,))), Individual(order=(1, 0), families=((1,), (0,)))]
    orders = {individual.order for individual in next_generation(elite, 50, 1.0, draws)}
    assert orders == {(0, 1), (1, 0)}
