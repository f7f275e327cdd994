"""The tree with the largest total weight: Chow and Liu (1968), thresholded, and rooted so that every constraint is met.

With equal weights in both directions it is a maximum spanning forest on the pairs of positive weight. Constraints make
directions unequal; the best network in which nobody has more than one parent is then a maximum branching (Chu and Liu 1965,
Edmonds 1967), which is found exactly. A variable with a required parent has that parent and no other.

Every component is rooted at its smallest variable for which turning the edges round costs nothing and is allowed.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.protocol import (
    Checkpoint,
    SearchProblem,
    SearchResult,
    open_checkpoint,
    sealed,
    total_weight,
)
from verticil.shared.numerics.model.graph import Dag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeState:
    """The state.

    Attributes:
        problem: what is searched.
        seed: the seed; not used.
        parent: (d,), int64, the one parent of each variable, -1 for none; None before the only step.
    """

    problem: SearchProblem
    seed: int
    parent: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSearch:
    """The searcher; see `verticil.miner.learning.search.protocol.Searcher`. The fitness is the total weight of the edges."""

    def start(self, problem: SearchProblem, seed: int) -> TreeState:
        """Start with nothing done yet.

        Raises:
            ValueError: a variable has two required parents, which no tree has.
        """
        for child in range(len(problem.n_states)):
            if len(required_parents := problem.required_parents(child)) > 1:
                raise ValueError(
                    f"variable {child} has {len(required_parents)} required parents, a tree admits one; use another method"
                )
        return TreeState(problem=problem, seed=seed, parent=None)

    def step(self, state: TreeState) -> TreeState:
        """Find the whole tree in one step."""
        usable = _usable(state.problem)
        parent = _root_trees(usable, maximum_branching(usable))
        parent.setflags(write=False)
        return dataclasses.replace(state, parent=parent)

    def progress(self, state: TreeState) -> float:
        """Return 0, then 1 after the step."""
        return float(state.parent is not None)

    def result(self, state: TreeState) -> SearchResult:
        """Return the tree; before the step, the required edges."""
        d = len(state.problem.n_states)
        if state.parent is None:
            parents = tuple(state.problem.required_parents(child) for child in range(d))
        else:
            parents = tuple((int(p),) if p >= 0 else () for p in state.parent)
        dag = Dag(parents=parents)
        return SearchResult(
            dag=dag,
            fitness=total_weight(state.problem, dag),
            generations=int(state.parent is not None),
            dropped_edges=(),
            seed=state.seed,
        )

    def checkpoint(self, state: TreeState) -> Checkpoint:
        """Return the seed and the tree, if it is there."""
        parent = np.empty(0, dtype=np.int64) if state.parent is None else state.parent
        return sealed(self, state.problem, seed=np.array(state.seed), parent=parent)

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> TreeState:
        """Resume from a checkpoint; see `Searcher.resume`."""
        seed, parent = open_checkpoint(self, problem, checkpoint, "seed", "parent")
        return TreeState(problem=problem, seed=int(seed), parent=parent.astype(np.int64) if parent.size else None)


def _usable(problem: SearchProblem) -> NDArray[np.float64]:
    """Return ``[parent, child]`` weights of the edges that a tree may have; a required edge outweighs all others together."""
    d = len(problem.n_states)
    weights = problem.weights.copy()
    # A whole number, so that sums with weights stay exact.
    heavy = float(np.ceil(weights.sum()) + 1)
    for child in range(d):
        for parent in range(d):
            if not problem.fits(child, (parent,)):
                weights[parent, child] = 0.0
        for parent in problem.required_parents(child):
            weights[:, child] = 0.0
            weights[parent, child] = heavy
    return weights


def maximum_branching(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Find the forest of directed trees with the largest total weight, by Edmonds' algorithm.

    Args:
        weights: (d, d), float64, ``weights[parent, child]`` >= 0; an edge of weight 0 is never taken. Sums must be exact for
            ties to be (they are, for the weights of a `SearchProblem`).

    Returns:
        (d,), int64: the parent of each variable, -1 for a root.
    """
    d = len(weights)
    # Every contracted cycle is one variable more, behind all others, so that nothing is copied: at most d - 1 of them.
    all_weights = np.zeros((2 * d - 1, 2 * d - 1))
    all_weights[:d, :d] = weights
    active = np.zeros(2 * d - 1, dtype=np.bool_)
    active[:d] = True
    parent = np.full(2 * d - 1, -1, dtype=np.int64)
    parent[:d] = _heaviest(all_weights[:, :d])
    cycles: list[_Cycle] = []
    while cycle := _a_cycle(parent, active):
        new = d + len(cycles)
        inside = np.array(cycle)
        active[inside] = False
        outside = np.flatnonzero(active)
        # An edge into the cycle at v replaces v's edge in it; what that costs is measured against the cheapest edge of the
        # cycle, which goes when nobody comes in.
        within = all_weights[parent[inside], inside]
        incoming = all_weights[np.ix_(outside, inside)]
        gain = np.where(incoming > 0, incoming - within + within.min(), 0.0)
        leaving = all_weights[np.ix_(inside, outside)]
        entry, leave = np.zeros(new, dtype=np.int64), np.zeros(new, dtype=np.int64)
        entry[outside] = inside[np.argmax(gain, axis=1)]
        leave[outside] = inside[np.argmax(leaving, axis=0)]
        around = parent[inside]
        cycles.append(_Cycle(inside=inside, around=around, cheapest=int(np.argmin(within)), entry=entry, leave=leave))
        all_weights[outside, new] = np.maximum(gain.max(axis=1, initial=0.0), 0.0)
        all_weights[new, outside] = leaving.max(axis=0)
        all_weights[inside] = 0.0
        active[new] = True
        parent[new] = _heaviest(all_weights[:, [new]])[0]
        cut = outside[np.isin(parent[outside], inside)]
        parent[cut] = _heaviest(all_weights[:, cut])
    for number, of in reversed(list(enumerate(cycles, start=d))):
        into = parent[number]
        children = np.flatnonzero(parent[:number] == number)
        children = children[active[children]]
        parent[children] = of.leave[children]
        active[number] = False
        active[of.inside] = True
        parent[of.inside] = of.around
        if into >= 0:
            parent[of.entry[into]] = into
        else:
            parent[of.inside[of.cheapest]] = -1
    return parent[:d]


class _Cycle(NamedTuple):
    """A cycle that became one variable.

    Attributes:
        inside, around: its variables, and the parent of each in the cycle.
        cheapest: the place in `inside` of the variable whose parent costs the least to give up.
        entry, leave: by variable outside: where its best edge into the cycle ends, and where the best one to it begins.
    """

    inside: NDArray[np.int64]
    around: NDArray[np.int64]
    cheapest: int
    entry: NDArray[np.int64]
    leave: NDArray[np.int64]


def _heaviest(columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return of each column the first row with the largest weight; -1 where none is positive."""
    best = np.argmax(columns, axis=0)
    return np.where(columns[best, np.arange(columns.shape[1])] > 0, best, -1).astype(np.int64)


def _a_cycle(parent: NDArray[np.int64], active: NDArray[np.bool_]) -> list[int]:
    above, colour = parent.tolist(), [-1] * len(parent)
    for start in np.flatnonzero(active).tolist():
        variable, path = start, list[int]()
        while variable >= 0 and colour[variable] < 0:
            colour[variable] = start
            path.append(variable)
            variable = above[variable]
        if variable >= 0 and colour[variable] == start:
            return sorted(path[path.index(variable) :])
    return []


def _root_trees(weights: NDArray[np.float64], parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the same forest, each tree rooted at its smallest variable that can be its root at the same total weight."""
    result = parent.copy()
    for variable in range(len(parent)):
        path = [variable]
        while result[path[-1]] >= 0:
            path.append(int(result[path[-1]]))
        # Everything above `variable` is turned round, unless a smaller variable of the tree is the root already.
        if path[-1] > variable and all(weights[c, p] == weights[p, c] for c, p in itertools.pairwise(path)):
            result[variable] = -1
            for below, above in itertools.pairwise(path):
                result[above] = below
    return result
