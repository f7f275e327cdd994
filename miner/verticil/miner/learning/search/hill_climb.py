"""Hill climbing with a tabu list, for any score that is a sum over families (Bouckaert 1995; methods.md section 2).

A move adds, deletes or reverses one edge. Every step makes the best move that is not tabu, also where it loses, so that the
search leaves local optima; a pair of variables whose edge was changed is tabu for `tabu_length` moves, unless the move leads to
the best score so far. The search ends when `patience` moves in a row have not done that, and gives the best network it saw:
never worse than the one it began with, and no promise of the best of all.

Deterministic: the seed is not used; of equal moves deleting goes before adding before reversing, then the smaller parent,
then the smaller child. After a move only the families that it changed are scored again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.families import FamilyValue, Remembered
from verticil.miner.learning.search.protocol import (
    Checkpoint,
    SearchProblem,
    SearchResult,
    opened,
    sealed,
    violations,
)
from verticil.shared.model.graph import Dag

__all__ = ["ClimbState", "HillClimbSearch"]

_UNIT: Final = 2.0**-20
"""Nats. Far below what tells networks apart, and a sum of scores of ten million records is still exact."""

_DELETE, _ADD, _REVERSE = range(3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClimbState:
    """Where the search stands. Its arrays are never written again.

    Attributes:
        problem: what is searched.
        value: the score, with its memory.
        seed: the seed; not used.
        edges: (d, d), bool, ``[parent, child]``: the current network.
        score: its score, nats.
        best_edges, best_score: the best network so far.
        gains: (d, d), float64, ``[v, child]``: what the child's score gains when v becomes its parent, or ceases to be;
            -inf where that must not be.
        stale: children whose gains are not computed yet.
        tabu_until: (d, d), int64, symmetric: number of the move from which on the pair may be changed again.
        moves: moves made.
        idle: moves since the best score rose.
        finished: there is nothing left to do.
    """

    problem: SearchProblem
    value: Remembered
    seed: int
    edges: NDArray[np.bool_]
    score: float
    best_edges: NDArray[np.bool_]
    best_score: float
    gains: NDArray[np.float64]
    stale: tuple[int, ...]
    tabu_until: NDArray[np.int64]
    moves: int
    idle: int
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HillClimbSearch:
    """The searcher; see `verticil.miner.learning.search.protocol.Searcher`. The fitness is the total score.

    Attributes:
        score: the score of a family, nats; larger is better.
        initial: the network to begin with; None for the required edges.
        tabu_length: moves for which a changed pair stays as it is; at most half the pairs are held.
        patience: moves in a row without a new best score before the search ends.
    """

    score: FamilyValue = field(repr=False)
    initial: Dag | None = None
    tabu_length: int = 10
    patience: int = 15

    def __post_init__(self) -> None:
        if self.tabu_length < 0 or self.patience < 1:
            raise ValueError(f"tabu_length {self.tabu_length}, patience {self.patience}: expected >= 0 and >= 1")

    def start(self, problem: SearchProblem, seed: int) -> ClimbState:
        """The initial network, nothing compared yet.

        Raises:
            ValueError: the initial network violates a limit or constraint.
        """
        d = len(problem.n_states)
        dag = self.initial or Dag(parents=tuple(problem.required_parents(child) for child in range(d)))
        if dag.n_variables != d:
            raise ValueError(f"an initial network of {dag.n_variables} variables, expected {d}")
        if found := violations(problem, dag):
            raise ValueError(f"the initial network: {'; '.join(found)}")
        value = Remembered(self.score, unit=_UNIT)
        edges = np.zeros((d, d), dtype=np.bool_)
        for parent, child in dag.edges():
            edges[parent, child] = True
        score = sum(value(child, parents) for child, parents in enumerate(dag.parents))
        return ClimbState(
            problem=problem,
            value=value,
            seed=seed,
            edges=edges,
            score=score,
            best_edges=edges,
            best_score=score,
            gains=np.full((d, d), -np.inf),
            stale=tuple(range(d)),
            tabu_until=np.zeros((d, d), dtype=np.int64),
            moves=0,
            idle=0,
            finished=False,
        )

    def step(self, state: ClimbState) -> ClimbState:
        """Compute one child's gains where they are not known, else make the best move."""
        if state.finished:
            return state
        if state.stale:
            child, *stale = state.stale
            gains = state.gains.copy()
            gains[:, child] = _gains(state, child)
            return dataclasses.replace(state, gains=gains, stale=tuple(stale))
        d = len(state.edges)
        gain = _moves(state.edges, state.gains)
        held = (state.tabu_until > state.moves) & ~(state.score + gain > state.best_score)
        gain[held] = -np.inf
        move, parent, child = (int(i) for i in np.unravel_index(int(np.argmax(gain)), gain.shape))
        if not np.isfinite(gain[move, parent, child]):
            return dataclasses.replace(state, finished=True)
        edges, tabu_until = state.edges.copy(), state.tabu_until.copy()
        edges[parent, child] = move == _ADD
        edges[child, parent] = move == _REVERSE
        tabu_until[parent, child] = tabu_until[child, parent] = (
            state.moves + 1 + min(self.tabu_length, d * (d - 1) // 4)
        )
        score = state.score + float(gain[move, parent, child])
        better = score > state.best_score
        idle = 0 if better else state.idle + 1
        return dataclasses.replace(
            state,
            edges=edges,
            score=score,
            best_edges=edges if better else state.best_edges,
            best_score=score if better else state.best_score,
            stale=(parent, child) if move == _REVERSE else (child,),
            tabu_until=tabu_until,
            moves=state.moves + 1,
            idle=idle,
            finished=idle >= self.patience,
        )

    def progress(self, state: ClimbState) -> float:
        """An estimate, since nobody knows how many moves there will be: half for the first comparison, then towards 1."""
        if state.finished:
            return 1.0
        d = len(state.edges)
        if not state.moves:
            return 0.5 * (1 - len(state.stale) / d)
        return 1 - 0.5 / (1 + state.moves / d)

    def result(self, state: ClimbState) -> SearchResult:
        """The best network so far."""
        parents = tuple(tuple(np.flatnonzero(column).tolist()) for column in state.best_edges.T)
        return SearchResult(
            dag=Dag(parents=parents),
            fitness=state.best_score,
            generations=state.moves,
            dropped_edges=(),
            seed=state.seed,
        )

    def checkpoint(self, state: ClimbState) -> Checkpoint:
        """The networks, the gains and the tabu list; not the memory."""
        return sealed(
            self,
            state.problem,
            counts=np.array([state.seed, state.moves, state.idle, int(state.finished)]),
            scores=np.array([state.score, state.best_score]),
            edges=np.stack([state.edges, state.best_edges]),
            gains=state.gains,
            stale=np.array(state.stale, dtype=np.int64),
            tabu_until=state.tabu_until,
        )

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> ClimbState:
        """See `Searcher.resume`. Whether the score is the same function cannot be seen."""
        counts, scores, edges, gains, stale, tabu_until = opened(
            self, problem, checkpoint, "counts", "scores", "edges", "gains", "stale", "tabu_until"
        )
        seed, moves, idle, finished = (int(count) for count in counts)
        current, best = edges.astype(np.bool_)
        return ClimbState(
            problem=problem,
            value=Remembered(self.score, unit=_UNIT),
            seed=seed,
            edges=current,
            score=float(scores[0]),
            best_edges=best,
            best_score=float(scores[1]),
            gains=gains.astype(np.float64),
            stale=tuple(int(child) for child in stale),
            tabu_until=tabu_until.astype(np.int64),
            moves=moves,
            idle=idle,
            finished=bool(finished),
        )


def _gains(state: ClimbState, child: int) -> NDArray[np.float64]:
    """What the child's score gains by one parent more, or less."""
    problem = state.problem
    parents = tuple(np.flatnonzero(state.edges[:, child]).tolist())
    now, required = state.value(child, parents), problem.required_parents(child)
    gains = np.full(len(state.edges), -np.inf)
    for v in problem.may_have(child):
        changed = tuple(p for p in parents if p != v) if v in parents else tuple(sorted((*parents, v)))
        if v not in required and problem.fits(child, changed):
            gains[v] = state.value(child, changed) - now
    return gains


def _moves(edges: NDArray[np.bool_], gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """(3, d, d), float64: what deleting, adding and reversing parent -> child gains; -inf where there would be a cycle."""
    descends = _ancestors(edges)
    result = np.full((3, *edges.shape), -np.inf)
    result[_DELETE][edges] = gains[edges]
    free = ~edges & ~descends.T
    result[_ADD][free] = gains[free]
    # Reversed, the edge closes a cycle when another parent of the child is, or descends from, the parent.
    routes = descends.astype(np.float64) @ edges
    turn = edges & (routes == 1)
    result[_REVERSE][turn] = gains[turn] + gains.T[turn]
    return result


def _ancestors(edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``[a, v]``: a is v or an ancestor of it."""
    reach = edges | np.eye(len(edges), dtype=np.bool_)
    for via in range(len(edges)):
        reach |= reach[:, via, None] & reach[None, via, :]
    return reach
