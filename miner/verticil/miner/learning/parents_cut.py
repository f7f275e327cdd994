"""As many parents as the records are worth: `max_parents` is the most that a study allows, not what every table can bear.

A family of c cells keeps its parents where each cell rests on at least `LEAST` effective records,

    n prod lambda >= LEAST c,

lambda the contrast factor of a randomized column of the family (`unit_axis.contrast_factor`; 1 without randomization). Else the
parent with the least information about the child goes, again and again, until that holds; required parents stay, and so does the
only one that is left where it is a strong link (`pair_check.STRONG`): however noisy the table of a function is, independent
columns are further from the truth. A table with
fewer records a cell follows the noise, and what is sampled from it is further from the truth than with fewer parents.

The constant and the power of lambda were chosen on networks whose truth is known: ``tests/bench/prior.py`` has the figures. With
the square of lambda, which is what variances grow by, links go that tests have shown to be there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Final

from verticil.miner.learning.pair_check import STRONG
from verticil.miner.learning.search.protocol import SearchProblem, SearchResult
from verticil.shared.model.graph import Dag

__all__ = ["LEAST", "cut_parents"]

LEAST: Final = 3.0
"""Effective records of one cell."""


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
    while kept and kept[-1] not in required:
        members = (*kept, child)
        if len(kept) == 1 and problem.weights[kept[0], child] >= STRONG:
            break
        if LEAST * math.prod(problem.n_states[v] for v in members) * noise(members) <= n_records:
            break
        kept.pop()
    return tuple(sorted(kept))
