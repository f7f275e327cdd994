"""GreedyBayes of PrivBayes (Zhang et al. 2017) as DataSynthesizer has it, without its privacy noise.

From a random first variable on, the variable and the set of placed variables whose mutual information is the largest are
added, again and again. The information is that of the variable with the *joint* of its parents, so it needs one table for every
family that is looked at; the callback brings it, and is asked once for each.

DataSynthesizer gives every variable ``min(k, number of placed variables)`` parents. So does this search, except where the limits
or constraints admit fewer: looked at are the sets that hold the required parents, are within the limits, and to which no placed
allowed variable can be added. A variable whose best set brings no information has its required parents only. Of equal
information the smaller variable goes first, then the set whose members were placed first, as in DataSynthesizer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from verticil.miner.learning.search.draws import Draws, stream_state
from verticil.miner.learning.search.protocol import (
    Checkpoint,
    FamilyValue,
    Remembered,
    SearchProblem,
    SearchResult,
    open_checkpoint,
    sealed,
)
from verticil.shared.numerics.model.graph import Dag

_UNIT: Final = 2.0**-40

Candidate = tuple[float, tuple[int, ...]]
"""Information, and the parents in the order in which they were placed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GreedyState:
    """Where the search stands.

    Attributes:
        problem: what is searched.
        value: the information, with its memory.
        seed: the seed.
        order: the placed variables, in the order in which they were.
        chosen: for each variable what it was placed with; None before.
        best: for each variable that is not placed the best set among those looked at; None before there is one.
        looked: how many of the variables that could be next have been looked at in this round.
        steps: steps made.
    """

    problem: SearchProblem
    value: Remembered
    seed: int
    order: tuple[int, ...]
    chosen: tuple[Candidate | None, ...]
    best: tuple[Candidate | None, ...]
    looked: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedySearch:
    """The searcher; see `verticil.miner.learning.search.protocol.Searcher`. The fitness is the families' total information.

    Attributes:
        information: the mutual information of a variable with the joint of its parents, nats; never asked without parents.
    """

    information: FamilyValue = field(repr=False)

    def start(self, problem: SearchProblem, seed: int) -> GreedyState:
        """Start with no variable placed."""
        nothing = (None,) * len(problem.n_states)
        return GreedyState(
            problem=problem,
            value=Remembered(self.information, unit=_UNIT),
            seed=seed,
            order=(),
            chosen=nothing,
            best=nothing,
            looked=0,
            steps=0,
        )

    def step(self, state: GreedyState) -> GreedyState:
        """Look at one variable's new sets of parents, or place the best variable."""
        following = dataclasses.replace(state, steps=state.steps + 1)
        ready = _ready(state)
        if not ready:
            return state
        if not state.order:
            root = ready[Draws(stream_state(state.seed)).below(len(ready))]
            return _place(following, root, (0.0, ()))
        if state.looked < len(ready):
            child = ready[state.looked]
            best = tuple(_best(state, child) if v == child else previous for v, previous in enumerate(state.best))
            return dataclasses.replace(following, best=best, looked=state.looked + 1)
        leaders = [(candidate, child) for child in ready if (candidate := state.best[child]) is not None]
        candidate, child = max(leaders, key=lambda leader: (leader[0][0], -leader[1]))
        if candidate[0] <= 0:
            candidate = (0.0, state.problem.required_parents(child))
        return _place(following, child, candidate)

    def progress(self, state: GreedyState) -> float:
        """Return the share of the variables that are placed; those looked at count in part."""
        d, n_placed = len(state.chosen), len(state.order)
        return 1.0 if n_placed == d else (n_placed + state.looked / (d - n_placed + 1)) / d

    def result(self, state: GreedyState) -> SearchResult:
        """Return the network of the placed variables; the others have their required parents."""
        parents = tuple(
            tuple(sorted(candidate[1])) if candidate is not None else state.problem.required_parents(child)
            for child, candidate in enumerate(state.chosen)
        )
        return SearchResult(
            dag=Dag(parents=parents),
            fitness=sum(candidate[0] for candidate in state.chosen if candidate is not None),
            generations=state.steps,
            dropped_edges=(),
            seed=state.seed,
        )

    def checkpoint(self, state: GreedyState) -> Checkpoint:
        """Return what is placed and what has been found; not the memory."""
        d = len(state.chosen)
        information, members = np.full((2, d), np.nan), np.full((2, d, d), -1)
        for row, candidates in enumerate((state.chosen, state.best)):
            for child, candidate in enumerate(candidates):
                if candidate is not None:
                    information[row, child] = candidate[0]
                    members[row, child, : len(candidate[1])] = candidate[1]
        return sealed(
            self,
            state.problem,
            seed=np.array(state.seed),
            order=np.array(state.order, dtype=np.int64),
            counts=np.array([state.looked, state.steps]),
            information=information,
            members=members,
        )

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> GreedyState:
        """See `Searcher.resume`. Whether the information is the same function cannot be seen."""
        seed, order, counts, information, members = open_checkpoint(
            self, problem, checkpoint, "seed", "order", "counts", "information", "members"
        )
        choices, best = (
            tuple(
                None if np.isnan(value) else (float(value), tuple(int(v) for v in row if v >= 0))
                for value, row in zip(values, rows, strict=True)
            )
            for values, rows in zip(information.astype(np.float64), members.astype(np.int64), strict=True)
        )
        return GreedyState(
            problem=problem,
            value=Remembered(self.information, unit=_UNIT),
            seed=int(seed),
            order=tuple(int(v) for v in order),
            chosen=choices,
            best=best,
            looked=int(counts[0]),
            steps=int(counts[1]),
        )


def _ready(state: GreedyState) -> list[int]:
    """Return variables that can be placed now, ascending: everything that must precede them is placed."""
    placed_variables = set(state.order)
    return [
        v
        for v in range(len(state.chosen))
        if v not in placed_variables and state.problem.must_precede(v) <= placed_variables
    ]


def _place(state: GreedyState, child: int, candidate: Candidate) -> GreedyState:
    choices = tuple(candidate if v == child else choice for v, choice in enumerate(state.chosen))
    return dataclasses.replace(state, order=(*state.order, child), chosen=choices, looked=0)


def _best(state: GreedyState, child: int) -> Candidate:
    """Return the best set of placed parents: of the new ones and the best of before, or of all where that can now be added to."""
    problem, newest, old = state.problem, state.order[-1], state.best[child]
    possible_parents = set(problem.may_have(child))
    pool = [v for v in state.order if v in possible_parents]
    required_parents = tuple(v for v in pool if v in problem.required_parents(child))
    place = {v: number for number, v in enumerate(state.order)}

    def earlier(one: Candidate, other: Candidate) -> bool:
        return [place[v] for v in one[1]] < [place[v] for v in other[1]]

    candidates: Iterator[tuple[int, ...]]
    best: Candidate | None
    if old is not None and _is_maximal(problem, child, old[1], pool):
        base = (*required_parents, newest)
        new = newest in possible_parents and problem.fits(child, base)
        candidates = _maximal_sets(problem, child, base, pool) if new else iter(())
        best = old
    else:
        candidates = _maximal_sets(problem, child, required_parents, pool)
        best = None
    for members in candidates:
        information = state.value(child, tuple(sorted(members))) if members else 0.0
        trial = (information, tuple(sorted(members, key=lambda v: place[v])))
        if best is None or information > best[0] or (information == best[0] and earlier(trial, best)):
            best = trial
    if best is None:
        raise AssertionError("the required parents are within the limits, so there is a set")
    return best


def _is_maximal(problem: SearchProblem, child: int, members: Sequence[int], pool: Sequence[int]) -> bool:
    return len(members) == problem.max_parents or not any(
        v not in members and problem.fits(child, (*members, v)) for v in pool
    )


def _maximal_sets(
    problem: SearchProblem, child: int, base: tuple[int, ...], pool: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Return sets of `base` and members of `pool` within the limits, to which no other member can be added."""
    others = [v for v in pool if v not in base]

    def grow(members: tuple[int, ...], start: int) -> Iterator[tuple[int, ...]]:
        if _is_maximal(problem, child, members, pool):
            yield members
            return
        for number in range(start, len(others)):
            wider = (*members, others[number])
            if problem.fits(child, wider):
                yield from grow(wider, number + 1)

    return grow(base, 0)
