"""The posterior over all graphs of few variables, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.posterior.parent_sets import Masks, ParentSets
from verticil.shared.numerics.posterior.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactPosterior:
    """All graphs that have a positive weight.

    Attributes:
        parents: (graphs, d), uint64: bit u of ``[g, v]`` for the edge u -> v; ascending, the first variable first.
        probability: (graphs,), of each; the sum is 1.
        log_normalizer: the logarithm of the sum of all graphs' weights, nats.
        edge_probability: (d, d), ``[parent, child]``.
    """

    parents: Masks
    probability: Floats
    log_normalizer: float
    edge_probability: Floats

    def of(self, *parents: int) -> float:
        """Return the probability of one graph, given by the masks of its variables' parents; 0 where it is not
        possible.
        """
        return float(self.probability[(self.parents == np.array(parents, dtype=np.uint64)).all(axis=1)].sum())


def exact_posterior(sets: ParentSets) -> ExactPosterior:
    """Weigh every graph.

    Raises:
        ValueError: there are more than `TUNING.most_exact_variables` variables.
    """
    d = sets.n_variables
    if d > TUNING.most_exact_variables:
        raise ValueError(f"{d} variables, expected at most {TUNING.most_exact_variables} for all graphs")
    weights = [dict(zip(*(array.tolist() for array in sets.of(v)), strict=True)) for v in range(d)]
    graphs = list(acyclic([sorted(sets.of(v)[0].tolist()) for v in range(d)]))
    weight = np.array([sum(weights[v][mask] for v, mask in enumerate(graph)) for graph in graphs])
    top = weight.max()
    share = np.exp(weight - top)
    parents = np.array(graphs, dtype=np.uint64)
    probability = share / share.sum()
    return ExactPosterior(
        parents=parents,
        probability=probability,
        log_normalizer=float(top + np.log(share.sum())),
        edge_probability=np.einsum("g,gpc->pc", probability, edges_of(parents)),
    )


def edges_of(parents: Masks) -> Floats:
    """(graphs, d, d), 0 or 1, ``[graph, parent, child]``, of (graphs, d) masks."""
    d = parents.shape[1]
    bits = (parents[:, None, :] >> np.arange(d, dtype=np.uint64)[None, :, None]) & np.uint64(1)
    return bits.astype(np.float64)


def acyclic(choices: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """List every choice of one mask for each variable that makes no cycle, in the order of the masks."""
    d = len(choices)

    def extend(masks: tuple[int, ...], above: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """`above`: the ancestors of each variable in what is chosen, the variable itself with them."""
        v = len(masks)
        if v == d:
            yield masks
            return
        for mask in choices[v]:
            ancestors = 0
            for u in range(d):
                if mask >> u & 1:
                    ancestors |= above[u]
            if not ancestors >> v & 1:
                yield from extend((*masks, mask), tuple(a | ancestors if a >> v & 1 else a for a in above))

    yield from extend((), tuple(1 << v for v in range(d)))
