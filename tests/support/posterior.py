"""Small tables whose exact posteriors are known, and parent sets of any table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from verticil.shared.arrays import Counts
from verticil.shared.model.constraints import Constraints
from verticil.shared.posterior.local_scores import FamilyValue, dirichlet_score
from verticil.shared.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.posterior.prior import StructurePrior

THREE = np.array([30, 10, 20, 5, 4, 16, 3, 12]).reshape(2, 2, 2)
FOUR = np.array([24, 6, 9, 11, 3, 8, 2, 14, 7, 5, 4, 6, 1, 9, 3, 18]).reshape(2, 2, 2, 2)
MIXED = np.array([12, 3, 7, 8, 5, 9, 2, 10, 6, 4, 3, 11]).reshape(2, 3, 2)


def value_of(counts: Counts, score: Callable[[Counts], float] = dirichlet_score) -> FamilyValue:
    """The score of a family from the table of all variables."""

    def value(child: int, parents: tuple[int, ...]) -> float:
        members = sorted((*parents, child))
        table = counts.sum(axis=tuple(v for v in range(counts.ndim) if v not in members))
        return score(np.moveaxis(table, members.index(child), -1).reshape(-1, counts.shape[child]))

    return value


def sets_of(
    counts: Counts,
    score: Callable[[Counts], float] = dirichlet_score,
    *,
    gamma: float = 0.0,
    alpha: float = 1.0,
    max_parents: int | None = None,
    constraints: Constraints | None = None,
    candidates: Sequence[tuple[int, ...]] | None = None,
) -> ParentSets:
    """Every set of parents within the limits."""
    return parent_sets(
        value_of(counts, score),
        counts.shape,
        max_parents=counts.ndim - 1 if max_parents is None else max_parents,
        max_family_cells=10**6,
        prior=StructurePrior(gamma=gamma, alpha=alpha),
        constraints=constraints,
        candidates=candidates,
    )
