"""What a search for a structure is: a problem, a searcher that works in small steps, a result.

A searcher is pure: it has no clock, no files and no threads; its random numbers come from the seed alone. Steps are short (well
below a second), so that `run_search` can report progress and stop between any two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model.graph import Dag

__all__ = [
    "LearningCancelled",
    "SearchProblem",
    "SearchResult",
    "Searcher",
    "fitting_parents",
    "run_search",
    "total_weight",
]

State = TypeVar("State")

_WEIGHT_UNIT: Final = 2.0**-40


class LearningCancelled(Exception):  # not an error: somebody asked for it
    """The work was asked to stop, and stopped between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchProblem:
    """What is searched: the DAG with the largest total weight of its edges, within limits on every family.

    Weights are rounded to multiples of 2^-40, so that sums are exact: equal networks have equal totals, in whatever order
    their edges are added.

    Attributes:
        weights: (d, d), float64, ``weights[parent, child]`` >= 0, nats; 0 on the diagonal and for an edge that must not be.
        n_states: number of categories of each variable.
        max_parents: most parents of a variable; with 0 there is only the network without edges.
        max_family_cells: most cells of a family's table (parents and child).
    """

    weights: NDArray[np.float64]
    n_states: tuple[int, ...]
    max_parents: int
    max_family_cells: int

    def __post_init__(self) -> None:
        d = len(self.n_states)
        weights = np.round(np.array(self.weights, dtype=np.float64) / _WEIGHT_UNIT) * _WEIGHT_UNIT
        if (
            weights.shape != (d, d)
            or not (weights >= 0).all()
            or not np.isfinite(weights).all()
            or weights.diagonal().any()
        ):
            raise ValueError(f"expected ({d}, {d}) finite weights >= 0 with a zero diagonal, got shape {weights.shape}")
        if d < 1 or self.max_parents < 0 or self.max_family_cells < 1:
            raise ValueError(
                f"{d} variables, {self.max_parents} parents, {self.max_family_cells} cells: expected at least 1, 0 and 1"
            )
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found.

    Attributes:
        dag: the network.
        fitness: total weight of its edges, nats.
        generations: steps made (generations of the genetic algorithm).
        dropped_edges: edges (parent, child) that the winner proposed and that were left out: of weight 0 (no significant
            information, or forbidden), or too many cells.
        seed: the seed.
    """

    dag: Dag
    fitness: float
    generations: int
    dropped_edges: tuple[tuple[int, int], ...]
    seed: int


class Searcher(Protocol[State]):
    """One way to search. A state belongs to the searcher that made it; a step returns a new one."""

    def start(self, problem: SearchProblem, seed: int) -> State:
        """The state before the first step."""
        ...

    def step(self, state: State) -> State:
        """One short piece of work."""
        ...

    def progress(self, state: State) -> float:
        """The share of the work that is done; 1 when there is nothing left to do."""
        ...

    def result(self, state: State) -> SearchResult:
        """The best network so far."""
        ...


def run_search(
    searcher: Searcher[State],
    problem: SearchProblem,
    *,
    seed: int,
    progress: Callable[[float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> SearchResult:
    """Start, step until done, hand over the result.

    Args:
        searcher: how to search.
        problem: what to search.
        seed: any whole number >= 0.
        progress: is told the share that is done after every step.
        cancelled: is asked before every step.

    Raises:
        LearningCancelled: `cancelled` said so.
    """
    state = searcher.start(problem, seed)
    while (done := searcher.progress(state)) < 1.0:
        if cancelled is not None and cancelled():
            raise LearningCancelled
        state = searcher.step(state)
        if progress is not None:
            progress(done)
    return searcher.result(state)


def fitting_parents(problem: SearchProblem, child: int, parents: Sequence[int]) -> tuple[int, ...]:
    """The parents that a network keeps of those proposed for `child`, ascending.

    Parents of weight 0 go first; then the lightest one (of equals the one with the larger number), again and again until
    the family's table has at most `max_family_cells` cells.

    >>> problem = SearchProblem(weights=np.array([[0, 0, 1.0], [0, 0, 2.0], [0, 0, 0]]), n_states=(4, 4, 4),
    ...                         max_parents=2, max_family_cells=16)
    >>> fitting_parents(problem, 2, (0, 1))
    (1,)
    """
    kept = sorted((p for p in parents if problem.weights[p, child] > 0), key=lambda p: (-problem.weights[p, child], p))
    while kept and math.prod(problem.n_states[p] for p in (*kept, child)) > problem.max_family_cells:
        kept.pop()
    return tuple(sorted(kept))


def total_weight(problem: SearchProblem, dag: Dag) -> float:
    """Sum of the weights of all edges of `dag`; exact, because weights are multiples of 2^-40."""
    return float(sum(problem.weights[parent, child] for parent, child in dag.edges()))
