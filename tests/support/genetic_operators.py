"""The procedures of the genetic algorithm as the paper writes them (Hittmeir et al. 2022, section III), in plain Python.

This is the reference: one function for each procedure, one individual at a time, in the paper's words. The compiled kernels
in `compiled.genetic` of the search consume the same random numbers in the same order and must give the same populations.

An individual has two chromosomes: the ordering O, a permutation of the attributes 0 .. d-1, and the connectivity C, for
each attribute k distinct possible parents, k = min(max_parents, d - 1). C is independent of O; a member of C_j that does not
precede attribute j in O is ignored when the network is made. Where the paper leaves something open:

- The sets are kept as tuples of k slots; "for g in G" and "for c in C_j" go through the slots as they stand.
- An attribute is never a possible parent of itself, so Initialization fills up with attributes other than j.
- Order Flip goes through the attributes in the order that the individual had when the procedure began.
- Crossover is between two random elite individuals as in Next Generation; they may be the same one, and it changes nothing.
- Equal fitness: the individual with the smaller number comes first, so an elite stays before its later equals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verticil.miner.learning.search.draws import Draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual:
    """One member of the population.

    Attributes:
        order: the ordering chromosome, a permutation of 0 .. d-1.
        families: the connectivity chromosome; ``families[j]`` are the k possible parents of attribute j.
    """

    order: tuple[int, ...]
    families: tuple[tuple[int, ...], ...]


def initial_individual(d: int, k: int, draws: Draws) -> Individual:
    """Procedure Initialization, lines 2 to 9, for one individual."""
    order = list(range(d))
    for p in range(d - 1, 0, -1):
        q = draws.below(p + 1)
        order[p], order[q] = order[q], order[p]
    families: list[tuple[int, ...]] = [()] * d
    for place, j in enumerate(order):
        prior, behind = order[:place], order[place + 1 :]
        families[j] = _distinct(prior, k, draws) if place >= k else (*prior, *_distinct(behind, k - place, draws))
    return Individual(order=tuple(order), families=tuple(families))


def _distinct(pool: Sequence[int], size: int, draws: Draws) -> tuple[int, ...]:
    left = list(pool)
    for c in range(size):
        q = c + draws.below(len(left) - c)
        left[c], left[q] = left[q], left[c]
    return tuple(left[:size])


def crossover(first: Individual, second: Individual, draws: Draws) -> Individual:
    """Procedure Crossover: the first j sets of `first`, the last d - j of `second`, the order of `first`."""
    j = draws.below(len(first.order) + 1)
    return Individual(order=first.order, families=first.families[:j] + second.families[j:])


def order_flip(individual: Individual, rate: float, draws: Draws) -> Individual:
    """Procedure Order Flip: each attribute changes places with a random one with probability `rate`."""
    order = list(individual.order)
    for f in individual.order:
        if draws.unit() < rate:
            g = draws.below(len(order))
            p, q = order.index(f), order.index(g)
            order[p], order[q] = order[q], order[p]
    return Individual(order=tuple(order), families=individual.families)


def swap(individual: Individual, rate: float, draws: Draws) -> Individual:
    """Procedure Swap: members that come too late are repaired (lines 2 to 6), then members are swapped with `rate`."""
    order = individual.order
    families: list[tuple[int, ...]] = []
    for j, original in enumerate(individual.families):
        family = list(original)
        prior = order[: order.index(j)]
        for slot, g in enumerate(original):
            if g not in prior:
                _exchange(family, slot, prior, draws)
        for slot in range(len(family)):
            if draws.unit() < rate:
                _exchange(family, slot, prior, draws)
        families.append(tuple(family))
    return Individual(order=order, families=tuple(families))


def _exchange(family: list[int], slot: int, prior: Sequence[int], draws: Draws) -> None:
    free = [f for f in prior if f not in family]
    if free:
        family[slot] = free[draws.below(len(free))]


def next_generation(elite: Sequence[Individual], population: int, rate: float, draws: Draws) -> tuple[Individual, ...]:
    """Procedure Next Generation.

    Args:
        elite: the S fittest of the previous generation, best first; they lead the new one, unaltered.
        population: P.
        rate: the mutation rate r.
        draws: the random numbers.
    """
    generation = list(elite)
    while len(generation) < population:
        individual = elite[draws.below(len(elite))]
        if draws.unit() < rate:
            individual = crossover(individual, elite[draws.below(len(elite))], draws)
        generation.append(swap(order_flip(individual, rate, draws), rate, draws))
    return tuple(generation)
