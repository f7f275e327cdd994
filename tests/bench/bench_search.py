"""The genetic search at the paper's size, and its kernels against the plain procedures that the tests compare them with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from figure import Figure, cpu_seconds

from support.genetic_operators import Individual, initial_individual, next_generation
from verticil.miner.learning.search.draws import Draws, stream_state
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.protocol import SearchProblem, fitting_parents, run_search

POPULATION, ELITE, GENERATIONS, PLAIN_GENERATIONS = 200, 10, 400, 3


def problem_of(d: int) -> SearchProblem:
    """Random symmetric weights, k=3."""
    upper = np.triu(np.random.default_rng(2).random((d, d)), 1)
    return SearchProblem(weights=upper + upper.T, n_states=(4,) * d, max_parents=3, max_family_cells=20_000)


def plain(problem: SearchProblem, generations: int) -> None:
    """The same search, one individual at a time in plain Python."""
    d = len(problem.n_states)
    draws = Draws(stream_state(1))
    population = [initial_individual(d, problem.max_parents, draws) for _ in range(POPULATION)]
    for _ in range(generations):
        fitness = [_fitness(problem, individual) for individual in population]
        best = sorted(range(POPULATION), key=lambda i: (-fitness[i], i))[:ELITE]
        population = list(next_generation([population[i] for i in best], POPULATION, 1 / d, draws))


def _fitness(problem: SearchProblem, individual: Individual) -> float:
    place = {attribute: p for p, attribute in enumerate(individual.order)}
    return sum(
        float(problem.weights[parent, child])
        for child, family in enumerate(individual.families)
        for parent in fitting_parents(problem, child, [p for p in family if place[p] < place[child]])
    )


def figures() -> Iterator[Figure]:
    """P=200, S=10, e=400, k=3 from seed to network, compiled before; 15 and 31 variables."""
    for d, limit in ((15, 1.0), (31, None)):
        problem = problem_of(d)
        run_search(GeneticSearch(generations=1), problem, seed=1)  # compiles
        ours = cpu_seconds(lambda problem=problem: run_search(GeneticSearch(), problem, seed=1))
        reference = cpu_seconds(lambda problem=problem: plain(problem, PLAIN_GENERATIONS), repeats=1)
        reference *= GENERATIONS / PLAIN_GENERATIONS
        yield (
            Figure(
                name=f"genetic search, d={d}, e={GENERATIONS}, k=3",
                ours=ours,
                reference=reference,
                ratio=reference / ours,
                target=f"< {limit:g}" if limit else "-",
                met=ours < limit if limit else None,
                note=f"reference: our plain procedures, {PLAIN_GENERATIONS} generations timed in this run and scaled",
            )
        )
