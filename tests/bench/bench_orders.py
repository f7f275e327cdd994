"""Searching orders against the genetic algorithm and against the best known, at the sizes of the paper."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from figure import Figure, cpu_seconds

from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.order import ExactSearch, OrderSearch
from verticil.miner.learning.search.protocol import SearchProblem, run_search

SEEDS = range(3)
MATRICES = range(5)


def problem_of(d: int, seed: int) -> SearchProblem:
    """Random symmetric weights, k=3; every second one heavy-tailed, as mutual information is."""
    generator = np.random.default_rng(seed)
    draw = generator.random((d, d)) if seed % 2 else generator.exponential(size=(d, d)) ** 3
    upper = np.triu(draw, 1)
    return SearchProblem(weights=upper + upper.T, n_states=(4,) * d, max_parents=3, max_family_cells=20_000)


def figures() -> Iterator[Figure]:
    """Fitness in per cent of the optimum (15 variables) or of the best known, and CPU seconds from seed to network."""
    for search in (OrderSearch(chains=1, moves=10, rounds=1), GeneticSearch(generations=1), ExactSearch()):
        run_search(search, problem_of(6, 0), seed=0)  # compiles
    reached = 0
    for matrix in MATRICES:
        problem = problem_of(15, matrix)
        optimum = run_search(ExactSearch(), problem, seed=0).fitness
        reached += sum(run_search(OrderSearch(), problem, seed=seed).fitness == optimum for seed in SEEDS)
    runs = len(MATRICES) * len(SEEDS)
    yield Figure(
        name="order search, d=15: runs that reach the optimum",
        ours=100 * reached / runs,
        reference=None,
        ratio=None,
        target="100",
        unit="% of runs",
        met=reached == runs,
        note=f"{len(MATRICES)} matrices, {len(SEEDS)} seeds; the optimum by subset dynamic programming",
    )
    yield Figure(
        name="exact search, d=15",
        ours=cpu_seconds(lambda: run_search(ExactSearch(), problem_of(15, 0), seed=0)),
        reference=None,
        ratio=None,
        target="-",
        unit="CPU s",
    )
    for d in (31, 100):
        shares: list[float] = []
        for matrix in (0, 1):
            problem = problem_of(d, matrix)
            found = [run_search(OrderSearch(), problem, seed=seed).fitness for seed in SEEDS]
            long = run_search(OrderSearch(chains=4, moves=400_000), problem, seed=1000).fitness
            shares += [100 * fitness / max(long, *found) for fitness in found]
        problem = problem_of(d, 1)
        ours = cpu_seconds(lambda problem=problem: run_search(OrderSearch(), problem, seed=1))
        genetic = cpu_seconds(lambda problem=problem: run_search(GeneticSearch(), problem, seed=1))
        yield Figure(
            name=f"order search, d={d}: worst fitness",
            ours=min(shares),
            reference=None,
            ratio=None,
            target=">= 99.5",
            unit="% of best known",
            met=min(shares) >= 99.5,
            note="best known: the best of four chains of 400,000 moves and of the runs themselves; 2 matrices, 3 seeds",
        )
        yield Figure(
            name=f"order search, d={d}, k=3",
            ours=ours,
            reference=genetic,
            ratio=genetic / ours,
            target="> 1 times",
            unit="CPU s",
            met=ours < genetic,
            note="reference: the genetic algorithm of the paper, e=400, on the same problem",
        )
