"""The genetic algorithm of Hittmeir, Mayer and Ekelhart (2022), section III, exactly.

Ordering and connectivity chromosomes; Initialization, Crossover, Order Flip, Swap with repair, Next Generation with elitism
(the tests have them in plain Python; here the compiled kernels do the same with the same random numbers). Fitness is the
sum of the weights of all valid parents. The best individual of the last generation is the result.

The one deviation: a parent of weight 0 (its pair failed the test of independence, or the edge is forbidden) is dropped when
the network is made. Fitness does not change by it. Where the limit on a family's cells binds, which the paper does not have,
the lightest parents are dropped, in the fitness too. Required edges, tiers and custom networks (section IV of the paper) are
kept by the operators themselves; a problem without them runs the paper's own.

The paper's algorithm keeps the ordering nearly fixed once its elite agree and reaches 92 to 98 per cent of the largest possible
fitness on 15 to 31 variables; that is a property of the method, not of this program.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.compiled import genetic_kernels
from verticil.miner.learning.search.draws import stream_state
from verticil.miner.learning.search.protocol import (
    Checkpoint,
    SearchProblem,
    SearchResult,
    fitting_parents,
    open_checkpoint,
    sealed,
    total_weight,
)
from verticil.miner.learning.search.tuning import TUNING
from verticil.shared.numerics.model.graph import Dag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """One generation. Its arrays are never written again.

    Attributes:
        problem: what is searched.
        seed: the seed.
        generation: its number; the initial one is 0.
        stream: (1,), uint64, state of the random numbers.
        orders: (P, d), int32.
        families: (P, d, k), int32; under constraints -1 for an empty slot.
        fitness: (P,), float64.
    """

    problem: SearchProblem
    seed: int
    generation: int
    stream: NDArray[np.uint64]
    orders: NDArray[np.int32]
    families: NDArray[np.int32]
    fitness: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneticSearch:
    """The searcher; see `verticil.miner.learning.search.protocol.Searcher`.

    Attributes:
        population: individuals in a generation, P.
        selected: the fittest that the next generation is made from, S.
        generations: e.
        mutation_rate: r; None for 1/d.
    """

    population: int = TUNING.population
    selected: int = TUNING.elite
    generations: int = TUNING.generations
    mutation_rate: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.selected <= self.population or self.generations < 0:
            raise ValueError(
                f"P={self.population}, S={self.selected}, e={self.generations}: expected 1 <= S <= P and e >= 0"
            )
        if self.mutation_rate is not None and not 0 <= self.mutation_rate <= 1:
            raise ValueError(f"mutation rate {self.mutation_rate}, expected 0 to 1")

    def start(self, problem: SearchProblem, seed: int) -> Population:
        """Return the initial population."""
        d = len(problem.n_states)
        k = min(problem.max_parents, d - 1)
        stream = np.array([stream_state(seed)], dtype=np.uint64)
        orders = np.empty((self.population, d), dtype=np.int32)
        families = np.empty((self.population, d, k), dtype=np.int32)
        for child in range(d):
            required_parents = problem.required_parents(child)
            families[:, child, : len(required_parents)] = required_parents
        limits = _limits(problem)
        genetic_kernels.first_generation(stream, orders, families, *limits)
        return Population(
            problem=problem,
            seed=seed,
            generation=0,
            stream=stream,
            orders=orders,
            families=families,
            fitness=_fitness(problem, orders, families, limits),
        )

    def step(self, state: Population) -> Population:
        """Return the next generation."""
        d = len(state.problem.n_states)
        rate = 1 / d if self.mutation_rate is None else self.mutation_rate
        fittest = np.argsort(-state.fitness, kind="stable")[: self.selected]
        stream, orders, families = state.stream.copy(), np.empty_like(state.orders), np.empty_like(state.families)
        limits = _limits(state.problem)
        genetic_kernels.next_generation(stream, rate, fittest, state.orders, state.families, orders, families, *limits)
        return dataclasses.replace(
            state,
            generation=state.generation + 1,
            stream=stream,
            orders=orders,
            families=families,
            fitness=_fitness(state.problem, orders, families, limits),
        )

    def progress(self, state: Population) -> float:
        """Return the share of the generations that are made."""
        return state.generation / self.generations if self.generations else 1.0

    def result(self, state: Population) -> SearchResult:
        """Return the network of the fittest individual of the last generation."""
        best = int(np.argmax(state.fitness))
        dag, dropped_edges = decode(state.problem, state.orders[best], state.families[best])
        return SearchResult(
            dag=dag,
            fitness=total_weight(state.problem, dag),
            generations=state.generation,
            dropped_edges=dropped_edges,
            seed=state.seed,
        )

    def checkpoint(self, state: Population) -> Checkpoint:
        """Return the generation as a checkpoint."""
        return sealed(
            self,
            state.problem,
            seed=np.array(state.seed),
            generation=np.array(state.generation),
            stream=state.stream,
            orders=state.orders,
            families=state.families,
        )

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> Population:
        """Resume from a checkpoint; see `Searcher.resume`."""
        seed, generation, stream, orders, families = open_checkpoint(
            self, problem, checkpoint, "seed", "generation", "stream", "orders", "families"
        )
        whole = orders.astype(np.int32), families.astype(np.int32)
        return Population(
            problem=problem,
            seed=int(seed),
            generation=int(generation),
            stream=stream.astype(np.uint64),
            orders=whole[0],
            families=whole[1],
            fitness=_fitness(problem, *whole, _limits(problem)),
        )


class _Limits(NamedTuple):
    """The constraints as the kernels take them, in their order; the fields are explained in `compiled.genetic`."""

    n_required: NDArray[np.int64]
    allowed: NDArray[np.bool_] | None
    before: NDArray[np.bool_] | None


def _limits(problem: SearchProblem) -> _Limits:
    """Return the limits that the operators keep; forbidden edges alone are weights of 0, and the operators the paper's own."""
    constraints = problem.constraints
    if constraints is None or constraints.only_forbids:
        return _Limits(np.zeros(len(problem.n_states), dtype=np.int64), None, None)
    return _Limits(
        constraints.required.sum(axis=0).astype(np.int64),
        constraints.allowed & ~constraints.required,
        constraints.before.copy(),
    )


def decode(
    problem: SearchProblem, order: NDArray[np.int32], families: NDArray[np.int32]
) -> tuple[Dag, tuple[tuple[int, int], ...]]:
    """Make the network of one individual.

    Args:
        problem: what is searched.
        order: (d,), the ordering chromosome.
        families: (d, k), the connectivity chromosome.

    Returns:
        the network, and the edges (parent, child) whose parent precedes the child but that were dropped.
    """
    place = {int(attribute): position for position, attribute in enumerate(order)}
    parents: list[tuple[int, ...]] = []
    dropped_edges: list[tuple[int, int]] = []
    for child, family in enumerate(families.tolist()):
        valid = sorted(parent for parent in family if parent >= 0 and place[parent] < place[child])
        fitting = fitting_parents(problem, child, valid)
        parents.append(fitting)
        dropped_edges.extend((parent, child) for parent in valid if parent not in fitting)
    return Dag(parents=tuple(parents)), tuple(dropped_edges)


def _fitness(
    problem: SearchProblem, orders: NDArray[np.int32], families: NDArray[np.int32], limits: _Limits
) -> NDArray[np.float64]:
    fitness = np.empty(len(orders), dtype=np.float64)
    n_states = np.array(problem.n_states, dtype=np.int64)
    cells = float(problem.max_family_cells)
    genetic_kernels.evaluate(orders, families, limits.n_required, problem.weights, n_states, cells, fitness)
    return fitness
