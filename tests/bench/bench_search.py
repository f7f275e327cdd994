"""The genetic search at the paper's size."""

from __future__ import annotations

import numpy as np
from figure import Figure, cpu_seconds

from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.protocol import SearchProblem, run_search


def figures() -> list[Figure]:
    """P=200, S=10, e=400, k=3 from seed to network, compiled before; 15 and 31 variables."""
    result: list[Figure] = []
    for d, limit in ((15, 1.0), (31, None)):
        upper = np.triu(np.random.default_rng(2).random((d, d)), 1)
        problem = SearchProblem(weights=upper + upper.T, n_states=(4,) * d, max_parents=3, max_family_cells=20_000)
        run_search(GeneticSearch(generations=1), problem, seed=1)  # compiles
        ours = cpu_seconds(lambda problem=problem: run_search(GeneticSearch(), problem, seed=1))
        result.append(
            Figure(
                name=f"genetic search, d={d}, e=400, k=3",
                ours=ours,
                reference=None,
                ratio=None,
                target=f"< {limit:g}" if limit else "-",
                unit="CPU s",
                met=ours < limit if limit else None,
            )
        )
    return result
