"""As many parents as the records are worth: `max_parents` is the most that a study allows, not what every table can bear.

A family of c cells keeps its parents where

    n prod lambda^2 >= LEAST c,

n the records, lambda the contrast factor of a randomized column of the family (`unit_axis.contrast_factor`; 1 without
randomization), so that the left side is what the records are worth. Else the parent with the least information about the child
goes, again and again, until that holds. Required parents stay, and so does the last one: a test has shown that it tells
something. Estimates of a larger table follow the noise, and what is sampled from them is further from the truth than with fewer
parents; without noise leaning on smaller tables (`smaller_families`) is enough, unless cells are many times the records.

The constant was chosen on networks whose truth is known: ``tests/bench/prior.py`` has the figures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Final

from verticil.miner.learning.search.protocol import SearchProblem, SearchResult
from verticil.shared.model.graph import Dag

LEAST: Final = 0.1
"""Effective records a cell."""


def cut_parents(
    result: SearchResult, problem: SearchProblem, *, n_records: int, noise: Callable[[Sequence[int]], float]
) -> SearchResult:
    """Leave out the parents that the records do not bear.

    Args:
        result: what was found; its fitness stays that of the search.
        problem: what was searched.
        n_records: released records.
        noise: 1 over the product of the contrast factors of some variables (`FamilyScores.noise`).

    Returns:
        The result with its `cut_edges`.
    """
    cut: list[tuple[int, int]] = []
    kept = [_borne(problem, child, parents, n_records, noise) for child, parents in enumerate(result.dag.parents)]
    for child, (before, after) in enumerate(zip(result.dag.parents, kept, strict=True)):
        cut += [(parent, child) for parent in before if parent not in after]
    return dataclasses.replace(result, dag=Dag(parents=tuple(kept)), cut_edges=tuple(cut)) if cut else result


def _borne(
    problem: SearchProblem,
    child: int,
    parents: Sequence[int],
    n_records: int,
    noise: Callable[[Sequence[int]], float],
) -> tuple[int, ...]:
    required = problem.required_parents(child)
    # The last goes first; of equals the one with the larger number.
    kept = sorted(parents, key=lambda p: (p not in required, -problem.weights[p, child], p))
    while len(kept) > 1 and kept[-1] not in required:
        members = (*kept, child)
        if LEAST * math.prod(problem.n_states[v] for v in members) * noise(members) ** 2 <= n_records:
            break
        kept.pop()
    return tuple(sorted(kept))
