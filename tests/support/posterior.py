"""Small tables whose exact posteriors are known, and parent sets of any table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.posterior.graphs import run_chains
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.posterior.chains import Chains, shapes_of
from verticil.shared.numerics.posterior.local_scores import FamilyValue, dirichlet_score
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.sample import GraphSample

THREE = np.array([30, 10, 20, 5, 4, 16, 3, 12]).reshape(2, 2, 2)
FOUR = np.array([24, 6, 9, 11, 3, 8, 2, 14, 7, 5, 4, 6, 1, 9, 3, 18]).reshape(2, 2, 2, 2)
MIXED = np.array([12, 3, 7, 8, 5, 9, 2, 10, 6, 4, 3, 11]).reshape(2, 3, 2)


def sample_graphs(sets: ParentSets, chains: Chains, *, seed: int) -> GraphSample:
    """Graphs of chains that nobody stops."""
    return run_chains(chains, sets, seed, None, UNINTERRUPTED)


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


def plain_redraw(
    sets: ParentSets, graph: Sequence[int], chosen: Sequence[int], generator: np.random.Generator
) -> list[int]:
    """Draw the parents of some variables anew, in plain numpy: `verticil.shared.numerics.posterior.kernels.redraw` as one would
    write it.

    For each graph H on the chosen ones, the sets of each that meet the descendants of all its parents in H, and of none of the
    others, are looked for in its whole table.
    """
    left = [0 if v in chosen else mask for v, mask in enumerate(graph)]
    below = {v: descendants(left, v) for v in chosen}
    options: list[tuple[float, list[tuple[NDArray[np.uint64], Floats]]]] = []
    for shape in shapes_of(len(chosen)).tolist():
        weight, found = 0.0, []
        for v, mask in zip(chosen, shape, strict=True):
            masks, log_weight = sets.of(v)
            fits = np.ones(len(masks), dtype=bool)
            for place, other in enumerate(chosen):
                meets = (masks & np.uint64(below[other])) != 0
                fits &= meets if mask >> place & 1 else ~meets
            found.append((masks[fits], log_weight[fits]))
            weight += np.logaddexp.reduce(log_weight[fits]) if fits.any() else -np.inf
        options.append((weight, found))
    weights = np.array([weight for weight, _ in options])
    share = np.exp(weights - weights.max())
    _, families = options[generator.choice(len(options), p=share / share.sum())]
    for v, (masks, log_weight) in zip(chosen, families, strict=True):
        share = np.exp(log_weight - log_weight.max())
        left[v] = int(generator.choice(masks, p=share / share.sum()))
    return left


def descendants(graph: Sequence[int], variable: int) -> int:
    """A variable and its descendants, as a mask."""
    found, before = 1 << variable, 0
    while found != before:
        before = found
        for v, mask in enumerate(graph):
            if mask & found:
                found |= 1 << v
    return found
