"""What searches are compared with: the best network of an order in plain Python, and the simplest searcher of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verticil.miner.learning.search.order import best_network, tables_of
from verticil.miner.learning.search.protocol import (
    Checkpoint,
    SearchProblem,
    SearchResult,
    open_checkpoint,
    sealed,
    total_weight,
    violations,
)
from verticil.shared.numerics.model.graph import Dag


def completed(problem: SearchProblem, dag: Dag) -> Dag:
    """The best network in the topological order of `dag`, within the constraints: never of smaller weight than `dag`.

    `dag` must meet the constraints; its order then keeps the required edges.
    """
    return best_network(problem, tables_of(problem), dag.topological_order(), budget=2**62)


def order_weight(problem: SearchProblem, order: Sequence[int]) -> float:
    """The largest weight of a network in `order`, in plain Python and by trying all sets of parents: the reference."""

    def best(child: int, earlier: Sequence[int], chosen: tuple[int, ...]) -> float:
        if not problem.fits(child, chosen):
            return -1.0
        value = float(sum(problem.weights[p, child] for p in chosen))
        return max([value, *(best(child, earlier[i + 1 :], (*chosen, p)) for i, p in enumerate(earlier))])

    total = 0.0
    for place, child in enumerate(order):
        required = problem.required_parents(child)
        useful = [p for p in order[:place] if problem.weights[p, child] > 0 and p not in required]
        total += best(child, useful, required)
    return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GivenNetwork:
    """The state: all there is from the start."""

    problem: SearchProblem
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSearch:
    """The searcher; see `verticil.miner.learning.search.protocol.Searcher`. The fitness is the total weight of the edges.

    Attributes:
        dag: the network.
    """

    dag: Dag

    def start(self, problem: SearchProblem, seed: int) -> GivenNetwork:
        """Check the network.

        Raises:
            ValueError: it has another number of variables, or violates a limit or constraint (all are named).
        """
        if self.dag.n_variables != len(problem.n_states):
            raise ValueError(f"a network of {self.dag.n_variables} variables, expected {len(problem.n_states)}")
        if found := violations(problem, self.dag):
            raise ValueError(f"the given network: {'; '.join(found)}")
        return GivenNetwork(problem=problem, seed=seed)

    def step(self, state: GivenNetwork) -> GivenNetwork:
        """Nothing is left to do."""
        return state

    def progress(self, state: GivenNetwork) -> float:
        """Done."""
        return 1.0

    def result(self, state: GivenNetwork) -> SearchResult:
        """The network as it was given."""
        return SearchResult(
            dag=self.dag,
            fitness=total_weight(state.problem, self.dag),
            generations=0,
            dropped_edges=(),
            seed=state.seed,
        )

    def checkpoint(self, state: GivenNetwork) -> Checkpoint:
        """The seed."""
        return sealed(self, state.problem, seed=np.array(state.seed))

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> GivenNetwork:
        """See `Searcher.resume`."""
        (seed,) = open_checkpoint(self, problem, checkpoint, "seed")
        return GivenNetwork(problem=problem, seed=int(seed))
