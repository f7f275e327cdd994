"""Hill climbing with a tabu list, for any score that is a sum over families (Bouckaert 1995; scores.md section 2).

A move adds, deletes or reverses one edge; where a variable has as many parents as the limits admit, the one that is missed least
goes for the one that comes (a swap, without which the limits hold the climb where the first edges happened to point). Every step
makes the best move that is not tabu, also where it loses, so that the search leaves local optima; a pair of variables whose edge
was changed is tabu for `tabu_length` moves, unless the move leads to the best score so far. A climb ends when `patience` moves in
a row have not done that, and gives the best network it saw.

One climb among the `near` pairs is followed by one among all that the constraints allow. Then come `rounds` (iterated local
search, Lourenço, Martin & Stützle 2003): in the network that is kept a variable and a neighbour lose their edges, or change
places; a short climb among the near pairs and the kept edges follows, and what it gives is kept where it is not worse. A last
climb is among all pairs again, so no single move betters the end: never worse than the beginning, and no promise of the best of
all.

Deterministic: the seed is not used; of equal moves deleting goes before adding before reversing, then the smaller parent,
then the smaller child. After a move only the families that it changed are scored again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.protocol import (
    Checkpoint,
    FamilyValue,
    Remembered,
    SearchProblem,
    SearchResult,
    open_checkpoint,
    sealed,
    violations,
)
from verticil.miner.learning.search.tuning import TUNING
from verticil.shared.core.arrays import Bools
from verticil.shared.numerics.model.graph import Dag

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
        stage: which climb this is: 0 among the near pairs, 1 among all, then the rounds, the last among all.
        kept_edges, kept_score: the best network of the climbs before.
        edges: (d, d), bool, ``[parent, child]``: the current network.
        score: its score, nats.
        best_edges, best_score: the best network of this climb.
        gains: (d, d), float64, ``[v, child]``: what the child's score gains when v becomes its parent, or ceases to be;
            -inf where that must not be.
        leaves: (d, d), int64, ``[v, child]``: the parent that goes when v becomes one; -1 for none.
        stale: children whose gains are not computed yet.
        tabu_until: (d, d), int64, symmetric: number of the move from which on the pair may be changed again.
        moves: moves made.
        idle: moves since the best score of this climb rose.
        finished: there is nothing left to do.
    """

    problem: SearchProblem
    value: Remembered
    seed: int
    stage: int
    kept_edges: Bools
    kept_score: float
    edges: Bools
    score: float
    best_edges: Bools
    best_score: float
    gains: NDArray[np.float64]
    leaves: NDArray[np.int64]
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
        patience: moves in a row without a new best score before a climb ends.
        rounds: how often the kept network is changed and climbed from again; None: once for each variable, at most 64.
        near: (d, d), bool, symmetric: the pairs that are looked at first and in the rounds; None: all.
        ahead: is told a child and the sets of parents that `score` is about to be asked of, to count them in one pass.
    """

    score: FamilyValue = field(repr=False)
    initial: Dag | None = None
    tabu_length: int = TUNING.tabu_length
    patience: int = TUNING.patience
    rounds: int | None = None
    near: Bools | None = field(default=None, repr=False)
    ahead: Callable[[int, Sequence[tuple[int, ...]]], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.tabu_length < 0 or self.patience < 1 or (self.rounds is not None and self.rounds < 0):
            raise ValueError(
                f"tabu_length {self.tabu_length}, patience {self.patience}, rounds {self.rounds}: "
                "expected >= 0, >= 1 and >= 0"
            )

    def start(self, problem: SearchProblem, seed: int) -> ClimbState:
        """Start with the initial network, nothing compared yet.

        Raises:
            ValueError: the initial network violates a limit or constraint.
        """
        d = len(problem.n_states)
        dag = self.initial or Dag(parents=tuple(problem.required_parents(child) for child in range(d)))
        if dag.n_variables != d:
            raise ValueError(f"an initial network of {dag.n_variables} variables, expected {d}")
        if faults := violations(problem, dag):
            raise ValueError(f"the initial network: {'; '.join(faults)}")
        value = Remembered(self.score, unit=_UNIT)
        edges = np.zeros((d, d), dtype=np.bool_)
        for parent, child in dag.edges():
            edges[parent, child] = True
        score = sum(value(child, parents) for child, parents in enumerate(dag.parents))
        return ClimbState(
            problem=problem,
            value=value,
            seed=seed,
            stage=0,
            kept_edges=edges,
            kept_score=score,
            edges=edges,
            score=score,
            best_edges=edges,
            best_score=score,
            gains=np.full((d, d), -np.inf),
            leaves=np.full((d, d), -1),
            stale=tuple(range(d)),
            tabu_until=np.zeros((d, d), dtype=np.int64),
            moves=0,
            idle=0,
            finished=False,
        )

    def step(self, state: ClimbState) -> ClimbState:
        """Compute a few children's gains where they are not known, else make the best move, else begin the next climb."""
        if state.finished:
            return state
        if state.stale:
            some = max(len(state.edges) // TUNING.parts, 1)
            gains, leaves = state.gains.copy(), state.leaves.copy()
            open_edges = self._open(state.problem, state.stage, state.kept_edges)
            for child in state.stale[:some]:
                gains[:, child], leaves[:, child] = self._gains(state, child, open_edges[:, child])
            return dataclasses.replace(state, gains=gains, leaves=leaves, stale=state.stale[some:])
        d = len(state.edges)
        if (best_move := _best_move(state)) is None:
            return self._following(state)
        move, parent, child, gain = best_move
        edges, tabu_until = state.edges.copy(), state.tabu_until.copy()
        until = state.moves + 1 + min(self.tabu_length, d * (d - 1) // 4)
        edges[parent, child] = move == _ADD
        edges[child, parent] = move == _REVERSE
        tabu_until[parent, child] = tabu_until[child, parent] = until
        gets, new = (parent, child) if move == _REVERSE else (child, parent)
        if move != _DELETE and (old := int(state.leaves[new, gets])) >= 0:
            edges[old, gets] = False
            tabu_until[old, gets] = tabu_until[gets, old] = until
        score = state.score + gain
        better = score > state.best_score
        next_state = dataclasses.replace(
            state,
            edges=edges,
            score=score,
            best_edges=edges if better else state.best_edges,
            best_score=score if better else state.best_score,
            stale=(parent, child) if move == _REVERSE else (child,),
            tabu_until=tabu_until,
            moves=state.moves + 1,
            idle=0 if better else state.idle + 1,
        )
        return self._following(next_state) if next_state.idle >= self._patience(state) else next_state

    def progress(self, state: ClimbState) -> float:
        """Estimate the progress: half for the first comparison, half for the climbs; how many moves there will be is unknown."""
        if state.finished:
            return 1.0
        d = len(state.edges)
        if not state.moves and state.stage == 0:
            return 0.5 * (1 - len(state.stale) / d)
        return 0.5 + 0.5 * state.stage / (self._last(d) + 1)

    def result(self, state: ClimbState) -> SearchResult:
        """Return the best network so far."""
        edges, score = _better(state)
        return SearchResult(
            dag=Dag(parents=tuple(tuple(np.flatnonzero(column).tolist()) for column in edges.T)),
            fitness=score,
            generations=state.moves,
            dropped_edges=(),
            seed=state.seed,
        )

    def checkpoint(self, state: ClimbState) -> Checkpoint:
        """Return the networks, the gains and the tabu list; not the memory."""
        return sealed(
            self,
            state.problem,
            counts=np.array([state.seed, state.stage, state.moves, state.idle, int(state.finished)]),
            scores=np.array([state.score, state.best_score, state.kept_score]),
            edges=np.stack([state.edges, state.best_edges, state.kept_edges]),
            gains=state.gains,
            leaves=state.leaves,
            stale=np.array(state.stale, dtype=np.int64),
            tabu_until=state.tabu_until,
        )

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> ClimbState:
        """See `Searcher.resume`. Whether the score is the same function cannot be seen."""
        counts, scores, edges, gains, leaves, stale, tabu_until = open_checkpoint(
            self, problem, checkpoint, "counts", "scores", "edges", "gains", "leaves", "stale", "tabu_until"
        )
        seed, stage, moves, idle, is_finished = (int(count) for count in counts)
        current, best, kept_edges = edges.astype(np.bool_)
        return ClimbState(
            problem=problem,
            value=Remembered(self.score, unit=_UNIT),
            seed=seed,
            stage=stage,
            kept_edges=kept_edges,
            kept_score=float(scores[2]),
            edges=current,
            score=float(scores[0]),
            best_edges=best,
            best_score=float(scores[1]),
            gains=gains.astype(np.float64),
            leaves=leaves.astype(np.int64),
            stale=tuple(int(child) for child in stale),
            tabu_until=tabu_until.astype(np.int64),
            moves=moves,
            idle=idle,
            finished=bool(is_finished),
        )

    def _gains(self, state: ClimbState, child: int, open_edges: Bools) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return what the child's score gains by one parent more, or less; and the parent that goes for the one that comes."""
        problem, d = state.problem, len(state.edges)
        parents, required_parents = (
            tuple(np.flatnonzero(state.edges[:, child]).tolist()),
            problem.required_parents(child),
        )
        possible: list[tuple[int, int, tuple[int, ...]]] = []
        looked_at = open_edges | state.edges[:, child]
        for v in np.flatnonzero(looked_at).tolist():
            if v in required_parents:
                continue
            if v in parents:
                possible.append((v, -1, tuple(p for p in parents if p != v)))
            elif problem.fits(child, wider := tuple(sorted((*parents, v)))):
                possible.append((v, -1, wider))
            else:
                swaps = ((old, tuple(p for p in wider if p != old)) for old in parents if old not in required_parents)
                possible += [(v, old, swap) for old, swap in swaps if problem.fits(child, swap)]
        if self.ahead is not None:
            self.ahead(child, [new_parents for _, _, new_parents in possible])
        gains, leaves = np.full(d, -np.inf), np.full(d, -1)
        now = state.value(child, parents)
        for v, old, new_parents in possible:
            if (gain := state.value(child, new_parents) - now) > gains[v]:
                gains[v], leaves[v] = gain, old
        return gains, leaves

    def _following(self, state: ClimbState) -> ClimbState:
        """Return the next climb, which keeps this one's best network where it is not worse; or the end."""
        kept_edges, score = _better(state)
        problem, stage, d = state.problem, state.stage + 1, len(kept_edges)
        if stage > self._last(d):
            return dataclasses.replace(state, finished=True)
        edges = kept_edges
        if self._is_round(stage, d):
            edges = _perturb(problem, kept_edges, (stage - 2) * d // (self._last(d) - 2), trade=stage % 2 == 1)
        differs = edges != state.edges
        differs |= self._open(problem, stage, kept_edges) != self._open(problem, state.stage, state.kept_edges)
        families = (tuple(np.flatnonzero(column).tolist()) for column in edges.T)
        score_now = sum(state.value(child, parents) for child, parents in enumerate(families))
        return dataclasses.replace(
            state,
            stage=stage,
            kept_edges=kept_edges,
            kept_score=score,
            edges=edges,
            score=score_now,
            best_edges=edges,
            best_score=score_now,
            stale=tuple(sorted({*state.stale, *np.flatnonzero(differs.any(axis=0)).tolist()})),
            tabu_until=np.zeros((d, d), dtype=np.int64),
            idle=0,
        )

    def _open(self, problem: SearchProblem, stage: int, kept_edges: Bools) -> Bools:
        """Return ``[parent, child]``: the edges that a climb may add or delete."""
        d = len(kept_edges)
        possible = ~np.eye(d, dtype=np.bool_) if problem.constraints is None else problem.constraints.allowed
        if self.near is None or (stage > 0 and not self._is_round(stage, d)):
            return possible
        return possible & (self.near | kept_edges | kept_edges.T)

    def _is_round(self, stage: int, d: int) -> bool:
        return 1 < stage < self._last(d)

    def _last(self, d: int) -> int:
        rounds = min(d, TUNING.most_rounds) if self.rounds is None else self.rounds
        return 2 + rounds if rounds or self.near is not None else 0

    def _patience(self, state: ClimbState) -> int:
        return (
            min(self.patience, TUNING.short_patience)
            if self._is_round(state.stage, len(state.edges))
            else self.patience
        )


def _better(state: ClimbState) -> tuple[Bools, float]:
    """Return the better of the kept network and this climb's best; of equals the latter, so that the rounds go on from there."""
    if state.best_score >= state.kept_score:
        return state.best_edges, state.best_score
    return state.kept_edges, state.kept_score


def _perturb(problem: SearchProblem, kept_edges: Bools, v: int, *, trade: bool) -> Bools:
    """Take away the edges of a variable and of the neighbour that follows it, or exchange their places, as far as they may."""
    d, constraints = len(kept_edges), problem.constraints
    required_edges = np.zeros((d, d), dtype=np.bool_) if constraints is None else constraints.required
    neighbours = np.flatnonzero(kept_edges[v] | kept_edges[:, v])
    pair = [v, *neighbours[np.argsort((neighbours - v) % d)][:1].tolist()]
    if not trade or required_edges[pair].any() or required_edges[:, pair].any():
        edges = kept_edges.copy()
        edges[pair] = edges[:, pair] = False
        return edges | (kept_edges & required_edges)
    places = np.arange(d)
    places[pair] = pair[::-1]
    edges = kept_edges[np.ix_(places, places)]
    if constraints is not None:
        edges &= constraints.allowed
    for child in range(d):
        if not problem.fits(child, np.flatnonzero(edges[:, child]).tolist()):
            edges[:, child] = required_edges[:, child]
    return edges


def _best_move(state: ClimbState) -> tuple[int, int, int, float] | None:
    """Deleting, adding or reversing which edge (parent, child) gains most, and what; None where no move is possible.

    Moves that would close a cycle are none, nor those of tabu pairs, unless they lead to the best score so far.
    """
    edges, gains = state.edges, state.gains
    descends = _ancestors(edges)
    parents, children = np.nonzero(edges)
    # Reversed, an edge closes a cycle when another parent of the child is, or descends from, the parent.
    reversal_gains = gains[parents, children] + gains[children, parents]
    reversal_gains[np.count_nonzero(descends[parents] & edges.T[children], axis=1) > 1] = -np.inf

    def exclude_tabu(gain: NDArray[np.float64], until: NDArray[np.int64]) -> NDArray[np.float64]:
        is_tabu = (until > state.moves) & ~(state.score + gain > state.best_score)
        return np.where(is_tabu, -np.inf, gain)

    until = state.tabu_until[parents, children]
    # What may become an edge: of many variables few of all pairs.
    places = np.flatnonzero(gains > -np.inf)
    closes_cycle = edges.ravel()[places] | descends.T.ravel()[places]
    addition_gains = np.where(
        closes_cycle, -np.inf, exclude_tabu(gains.ravel()[places], state.tabu_until.ravel()[places])
    )
    best: tuple[int, int, int, float] | None = None
    for move, gain in ((_DELETE, gains[parents, children]), (_ADD, addition_gains), (_REVERSE, reversal_gains)):
        some = gain if move == _ADD else exclude_tabu(gain, until)
        place = int(np.argmax(some)) if some.size else -1
        if place < 0 or not np.isfinite(most := float(some[place])) or (best is not None and most <= best[3]):
            continue
        parent, child = (
            divmod(int(places[place]), len(edges)) if move == _ADD else (int(parents[place]), int(children[place]))
        )
        best = move, parent, child, most
    return best


def _ancestors(edges: Bools) -> Bools:
    """Return ``[a, v]``: a is v or an ancestor of it; the edges have no cycle."""
    d = len(edges)
    families: list[list[int]] = [[] for _ in range(d)]
    for parent, child in np.argwhere(edges).tolist():
        families[child].append(parent)
    ancestor_bits = [1 << v for v in range(d)]  # of each variable, a bit for each of its ancestors
    for v in Dag(parents=tuple(map(tuple, families))).topological_order():
        for parent in families[v]:
            ancestor_bits[v] |= ancestor_bits[parent]
    size = (d + 7) // 8
    packed_bits = np.frombuffer(b"".join(bits.to_bytes(size, "little") for bits in ancestor_bits), dtype=np.uint8)
    return np.unpackbits(packed_bits.reshape(d, size), axis=1, count=d, bitorder="little").astype(np.bool_).T
