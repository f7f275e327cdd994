"""The procedures of the genetic algorithm under constraints, in plain Python; `genetic_operators` has those of the paper.

The paper's section IV fixes some places of the ordering and forbids some parents "similar to the restriction we already have
for attributes that appear later". This is that, for any `Constraints`:

- An ordering always keeps `Limits.before`: Initialization sorts the random ordering so, taking the first attribute whose
  predecessors are all placed, again and again; Order Flip leaves out an exchange that would break it.
- Required parents are the first members of C_j and never change. The other slots take allowed parents only; a slot for
  which there is none is empty (-1), and Swap fills it when it can.

Crossover and the choice of the elite stay as they are. Nothing here is used for a problem without such constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from support.genetic_operators import Individual, crossover
from verticil.miner.learning.search.draws import Draws
from verticil.miner.learning.search.protocol import SearchProblem

EMPTY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Constraints on an individual.

    Attributes:
        before: for each attribute those that precede it in every ordering.
        allowed: for each attribute its possible parents, the required ones not among them.
        required: for each attribute its required parents, ascending.
    """

    before: tuple[frozenset[int], ...]
    allowed: tuple[frozenset[int], ...]
    required: tuple[tuple[int, ...], ...]


def limits_of(problem: SearchProblem) -> Limits:
    """The limits that the constraints of `problem` set."""
    variables = range(len(problem.n_states))
    required = tuple(problem.required_parents(j) for j in variables)
    return Limits(
        before=tuple(problem.must_precede(j) for j in variables),
        allowed=tuple(frozenset(problem.may_have(j)) - set(required[j]) for j in variables),
        required=required,
    )


def initial_individual(k: int, limits: Limits, draws: Draws) -> Individual:
    """Procedure Initialization, for one individual with k slots."""
    d = len(limits.before)
    shuffled = list(range(d))
    for p in range(d - 1, 0, -1):
        q = draws.below(p + 1)
        shuffled[p], shuffled[q] = shuffled[q], shuffled[p]
    order: list[int] = []
    while shuffled:
        j = next(j for j in shuffled if limits.before[j] <= set(order))
        shuffled.remove(j)
        order.append(j)
    families: list[tuple[int, ...]] = [()] * d
    for place, j in enumerate(order):
        prior = [f for f in order[:place] if f in limits.allowed[j]]
        behind = [f for f in order[place + 1 :] if f in limits.allowed[j]]
        family = list(limits.required[j])
        free = k - len(family)
        family += prior if len(prior) < free else _distinct(prior, free, draws)
        if len(prior) < free:
            family += _distinct(behind, min(free - len(prior), len(behind)), draws)
        families[j] = (*family, *[EMPTY] * (k - len(family)))
    return Individual(order=tuple(order), families=tuple(families))


def _distinct(pool: Sequence[int], size: int, draws: Draws) -> list[int]:
    left = list(pool)
    for c in range(size):
        q = c + draws.below(len(left) - c)
        left[c], left[q] = left[q], left[c]
    return left[:size]


def order_flip(individual: Individual, rate: float, limits: Limits, draws: Draws) -> Individual:
    """Procedure Order Flip; an exchange after which somebody would stand before a predecessor is left out."""
    order = list(individual.order)
    for f in individual.order:
        if draws.unit() < rate:
            g = draws.below(len(order))
            changed = [g if j == f else f if j == g else j for j in order]
            if all(limits.before[j] <= set(changed[:place]) for place, j in enumerate(changed)):
                order = changed
    return Individual(order=tuple(order), families=individual.families)


def swap(individual: Individual, rate: float, limits: Limits, draws: Draws) -> Individual:
    """Procedure Swap: members that come too late and empty slots are repaired, then members are swapped with `rate`."""
    order = individual.order
    families: list[tuple[int, ...]] = []
    for j, original in enumerate(individual.families):
        family = list(original)
        prior = order[: order.index(j)]
        own = range(len(limits.required[j]), len(family))
        pool = [f for f in prior if f in limits.allowed[j]]
        for slot in own:
            if original[slot] not in prior:
                _exchange(family, slot, pool, draws)
        for slot in own:
            if draws.unit() < rate:
                _exchange(family, slot, pool, draws)
        families.append(tuple(family))
    return Individual(order=order, families=tuple(families))


def _exchange(family: list[int], slot: int, pool: Sequence[int], draws: Draws) -> None:
    free = [f for f in pool if f not in family]
    if free:
        family[slot] = free[draws.below(len(free))]


def next_generation(
    elite: Sequence[Individual], population: int, rate: float, limits: Limits, draws: Draws
) -> tuple[Individual, ...]:
    """Procedure Next Generation; see `genetic_operators.next_generation`."""
    generation = list(elite)
    while len(generation) < population:
        individual = elite[draws.below(len(elite))]
        if draws.unit() < rate:
            individual = crossover(individual, elite[draws.below(len(elite))], draws)
        generation.append(swap(order_flip(individual, rate, limits, draws), rate, limits, draws))
    return tuple(generation)
