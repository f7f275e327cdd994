"""A structure that the study gives: nothing is searched, everything is checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verticil.miner.learning.search.protocol import (
    Checkpoint,
    SearchProblem,
    SearchResult,
    opened,
    sealed,
    total_weight,
    violations,
)
from verticil.shared.model.graph import Dag


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
        (seed,) = opened(self, problem, checkpoint, "seed")
        return GivenNetwork(problem=problem, seed=int(seed))
