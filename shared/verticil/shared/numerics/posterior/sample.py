"""A sample of graphs from their posterior: what chains leave behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.posterior.diagnostics import Diagnostics, bulk_size, rank_r_hat, tail_size
from verticil.shared.numerics.posterior.parent_sets import Masks
from verticil.shared.numerics.posterior.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GraphSample:
    """Graphs of several chains, as many of each, in the order in which they were met. All arrays are read-only.

    Attributes:
        parents: (draws, d), uint64: bit u of ``[i, v]`` for the edge u -> v.
        log_weight: (draws,), of each graph, nats.
        chain: (draws,), int16, which chain it is from, ascending.
        steps: steps of each chain, those before the first graph among them.
        burn_in: steps of each chain before its first graph.
        every: steps from one graph to the next.
        change: how much more effort has changed an edge's probability, at most; it counts as a difference between chains.
        diagnostics: whether the chains agree.
        edge_probability: (d, d), ``[parent, child]``, the share of the graphs that have the edge.
        edge_error: (d, d), the Monte-Carlo standard error of it, from the means of parts of the chains.
        skeleton_probability: (d, d), symmetric, the share of the graphs that link the two in either direction.

    Raises:
        ValueError: the arrays do not fit each other, chains are of different lengths or too short, or a graph has a cycle.
    """

    parents: Masks
    log_weight: Floats
    chain: NDArray[np.int16]
    steps: int
    burn_in: int
    every: int
    change: float = 0.0
    diagnostics: Diagnostics = field(init=False)
    edge_probability: Floats = field(init=False)
    edge_error: Floats = field(init=False)
    skeleton_probability: Floats = field(init=False)

    def __post_init__(self) -> None:
        draws, d = self.parents.shape
        chains = len(np.unique(self.chain))
        n = draws // max(chains, 1)
        if self.log_weight.shape != (draws,) or not np.array_equal(self.chain, np.repeat(np.arange(chains), n)):
            raise ValueError(
                f"{draws} graphs of {chains} chains, expected as many of each chain, one chain after the other"
            )
        if n < 4:
            raise ValueError(f"{n} graphs of each chain, expected at least 4")
        by_chain = self.parents.reshape(chains, n, d)
        batches = min(TUNING.batches, n)
        means = np.empty((chains, batches, d, d))
        shares = np.empty((chains, d, d))
        for number, graphs in enumerate(by_chain):
            for parent in range(d):
                edges = ((graphs >> np.uint64(parent)) & np.uint64(1)).astype(np.float64)
                shares[number, parent] = edges.mean(axis=0)
                means[number, :, parent] = edges[: n // batches * batches].reshape(batches, -1, d).mean(axis=1)
        probability = shares.mean(axis=0)
        # Both how parts of a chain differ and how chains do: a chain that stays where it is has parts that do not differ.
        within = means.reshape(-1, d, d).var(axis=0, ddof=1) / (chains * batches)
        between = shares.var(axis=0, ddof=1) / chains if chains > 1 else np.zeros((d, d))
        traces = self.log_weight.reshape(chains, n)
        difference = max(float(np.abs(shares - probability).max()), self.change)
        series = [traces, *_least_sure(by_chain, probability + probability.T)]
        r_hat = max(map(rank_r_hat, series))
        arrays = {
            "edge_probability": probability,
            "edge_error": np.sqrt(np.maximum(within, between)),
            "skeleton_probability": probability + probability.T,
        }
        for name, array in arrays.items():
            object.__setattr__(self, name, array)
        for name in ("parents", "log_weight", "chain", *arrays):
            getattr(self, name).setflags(write=False)
        diagnostics = Diagnostics(
            r_hat=r_hat,
            edge_difference=difference,
            effective_size=min(map(bulk_size, series)),
            tail_size=tail_size(traces),
            agree=chains > 1 and r_hat <= TUNING.most_r_hat and difference < TUNING.most_difference,
        )
        object.__setattr__(self, "diagnostics", diagnostics)

    @property
    def n_draws(self) -> int:
        """Graphs of all chains together."""
        return len(self.parents)

    @property
    def n_variables(self) -> int:
        """Number of variables, d."""
        return int(self.parents.shape[1])

    def dag(self, draw: int) -> Dag:
        """Return one graph of the sample."""
        return dag_of(self.parents[draw])

    def distinct(self) -> tuple[tuple[Dag, float], ...]:
        """Return every different graph with its share of the sample, the most frequent first, of equals the smaller
        masks.
        """
        counts = Counter(tuple(map(int, masks)) for masks in self.parents)
        items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return tuple((dag_of(np.array(masks, dtype=np.uint64)), count / self.n_draws) for masks, count in items)


def _least_sure(by_chain: Masks, probability: Floats) -> list[Floats]:
    """(chains, n) each, 0 or 1: whether a graph has a link, of those that are least sure."""
    first, second = np.triu_indices(len(probability), 1)
    order = np.argsort(np.abs(probability[first, second] - 0.5), kind="stable")[: TUNING.traced_links]
    series: list[Floats] = []
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if 0 < probability[a, b] < 1:
            either = (by_chain[:, :, b] >> np.uint64(a)) | (by_chain[:, :, a] >> np.uint64(b))
            series.append((either & np.uint64(1)).astype(np.float64))
    return series


def dag_of(masks: Masks) -> Dag:
    """Return the graph of (d,) masks of parents.

    >>> dag_of(np.array([0, 1, 3], dtype=np.uint64)).parents
    ((), (0,), (0, 1))
    """
    return Dag(parents=tuple(tuple(u for u in range(len(masks)) if mask >> u & 1) for mask in masks.tolist()))
