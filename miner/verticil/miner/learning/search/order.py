"""Searching the orders of the variables: in an order the best parents of each are known, so nothing else is searched.

With additive weights the best parents of a variable are its heaviest predecessors, `max_parents` of them (scores.md section
2): exactly so where no limit on a family's cells binds. Where one does, the heaviest set that fits is found by branch and
bound, exactly unless it would look at more than `TUNING.most_sets` sets of one family; then it is the best of those.

Each chain starts from a random order, anneals (a variable goes to another place, or two change places; only what lies between
is looked at again), and is then improved: every variable goes to its best place until none can be put better, then a few go to
random places and all is improved again, kept where it is not worse. The best order of all chains is the result. There is no
promise that it is the largest of all; `exact` has that for few variables.

No logarithm and no power is taken while searching, and sums are exact: a seed gives the same network on any machine.

The network of the largest total weight, by dynamic programming over the subsets of the variables.

Every network has an order of its variables, and in an order the best parents of a variable depend on the set of its
predecessors only: the best order of a set ends with one of its members, behind the best order of the others (Silander and
Myllymaki 2006, for additive weights). Exact under every constraint, and under the limit on a family's cells, where the best
set of parents is found by branch and bound without a limit on the sets looked at.

Subsets are of one block of `Constraints.blocks` at a time, so that tiers make larger problems exact too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.compiled import order_kernels
from verticil.miner.learning.search.draws import Draws, stream_state
from verticil.miner.learning.search.protocol import (
    Checkpoint,
    SearchProblem,
    SearchResult,
    open_checkpoint,
    sealed,
    total_weight,
)
from verticil.miner.learning.search.tuning import TUNING
from verticil.shared.numerics.model.graph import Dag

_NO_LIMIT: Final = 2**62
_QUANTILES: Final = np.round(-np.log((np.arange(1024) + 0.5) / 1024) * 2.0**20) / 2.0**20


class Tables(NamedTuple):
    """A problem as the kernels take it, in their order; the fields are explained in `compiled.orders`."""

    before: NDArray[np.bool_]
    candidates: NDArray[np.int32]
    heavy: NDArray[np.float64]
    limits: NDArray[np.int64]


def tables_of(problem: SearchProblem) -> Tables:
    """Prepare `problem` for the kernels."""
    d = len(problem.n_states)
    before = np.zeros((d, d), dtype=np.bool_) if problem.constraints is None else problem.constraints.before.copy()
    candidates, heavy = np.zeros((d, d), dtype=np.int32), np.zeros((d, d), dtype=np.float64)
    states = np.array(problem.n_states, dtype=np.int64)
    limits = np.zeros((d, 4), dtype=np.int64)
    limits[:, order_kernels.STATES] = states
    for child in range(d):
        required_parents = list(problem.required_parents(child))
        # In Python's whole numbers. No product within a family leaves 64 bits while it is compared with so much room.
        room = min(
            problem.max_family_cells // math.prod(problem.n_states[v] for v in (*required_parents, child)), 2**40
        )
        column = problem.weights[:, child]
        usable = (column > 0) & (states <= room)
        usable[required_parents] = False
        ranking = np.argsort(-column, kind="stable")
        ranking = ranking[usable[ranking]]
        candidates[child, : len(ranking)], heavy[child, : len(ranking)] = ranking, column[ranking]
        limits[child, : order_kernels.STATES] = len(ranking), min(problem.max_parents, d) - len(required_parents), room
    return Tables(before=before, candidates=candidates, heavy=heavy, limits=limits)


def best_network(
    problem: SearchProblem, tables: Tables, order: Sequence[int], *, budget: int = TUNING.most_sets
) -> Dag:
    """Return the network of the best parents in `order`, the required ones with them."""
    d = len(order)
    parents = np.zeros((d, d + 1), dtype=np.int64)
    _, candidates, heavy, limits = tables
    order_kernels.order_values(np.array(order, dtype=np.int32), candidates, heavy, limits, budget, np.empty(d), parents)
    return Dag(
        parents=tuple(
            tuple(sorted((*problem.required_parents(child), *row[1 : 1 + int(row[0])].tolist())))
            for child, row in enumerate(parents)
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderState:
    """Where the search stands. Its arrays are never written again.

    Attributes:
        problem: what is searched.
        tables: the same for the kernels.
        seed: the seed.
        stream: (1,), uint64, state of the random numbers.
        chain, moves, rounds: the number of the chain, and how many of its moves and improvements are done.
        temperature: of the last move, nats.
        order: (d,), int32, the current order.
        chain_order, chain_weight: the best one of this chain; the weight is -1 before there is one.
        best_order, best_weight: the best one of the finished chains.
    """

    problem: SearchProblem
    tables: Tables
    seed: int
    stream: NDArray[np.uint64]
    chain: int
    moves: int
    rounds: int
    temperature: float
    order: NDArray[np.int32]
    chain_order: NDArray[np.int32]
    chain_weight: float
    best_order: NDArray[np.int32]
    best_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSearch:
    """The searcher; see `verticil.miner.learning.search.protocol.Searcher`. The fitness is the total weight of the edges.

    Attributes:
        chains: how many starts; None for 120/d, at least 2, so that small problems, which cost little, are searched well.
        moves: moves of annealing in each; None for 600 d, at least 10,000 and at most 40,000.
        rounds: improvements after them; None for 1500/d.
        hot, cold: the first and the last temperature, in mean positive weights.
    """

    chains: int | None = None
    moves: int | None = None
    rounds: int | None = None
    hot: float = TUNING.hot
    cold: float = TUNING.cold

    def __post_init__(self) -> None:
        if min(self.moves or 0, self.rounds or 0) < 0 or (self.chains is not None and self.chains < 1):
            raise ValueError("expected at least one chain, and no negative number of moves or rounds")
        if not 0 < self.cold <= self.hot:
            raise ValueError(f"temperatures {self.hot} to {self.cold}, expected hot >= cold > 0")

    def start(self, problem: SearchProblem, seed: int) -> OrderState:
        """Start with a random order that keeps the constraints."""
        tables = tables_of(problem)
        stream = np.array([stream_state(seed)], dtype=np.uint64)
        order, stream = _random_order(tables, stream)
        return OrderState(
            problem=problem,
            tables=tables,
            seed=seed,
            stream=stream,
            chain=0,
            moves=0,
            rounds=0,
            temperature=self._hot(problem),
            order=order,
            chain_order=order,
            chain_weight=-1.0,
            best_order=order,
            best_weight=-1.0,
        )

    def step(self, state: OrderState) -> OrderState:
        """Make a few thousand moves, or a few improvements, or end a chain."""
        if self.progress(state) >= 1:
            return state
        if state.moves < self._moves(state.problem) and len(state.order) > 1:
            return self._anneal(state)
        if state.rounds <= self._rounds(state.problem):
            return self._improve(state)
        better = state.chain_weight > state.best_weight
        order, stream = _random_order(state.tables, state.stream)
        return dataclasses.replace(
            state,
            stream=stream,
            chain=state.chain + 1,
            moves=0,
            rounds=0,
            temperature=self._hot(state.problem),
            order=order,
            chain_order=order,
            chain_weight=-1.0,
            best_order=state.chain_order if better else state.best_order,
            best_weight=state.chain_weight if better else state.best_weight,
        )

    def progress(self, state: OrderState) -> float:
        """Return the share of the chains that is done, half of each for the annealing."""
        rounds = self._rounds(state.problem) + 1
        within = 0.5 * state.moves / max(self._moves(state.problem), 1) + 0.5 * state.rounds / rounds
        chains = self._chains(state.problem)
        return 1.0 if state.chain >= chains else min(state.chain + 0.99 * within, chains - 0.01) / chains

    def result(self, state: OrderState) -> SearchResult:
        """Return the network of the best order so far."""
        order = state.chain_order if state.chain_weight > state.best_weight else state.best_order
        dag = best_network(state.problem, state.tables, order.tolist())
        return SearchResult(
            dag=dag,
            fitness=total_weight(state.problem, dag),
            generations=state.chain * self._moves(state.problem) + state.moves,
            dropped_edges=(),
            seed=state.seed,
        )

    def checkpoint(self, state: OrderState) -> Checkpoint:
        """Return the orders and where the chain stands."""
        return sealed(
            self,
            state.problem,
            seed=np.array(state.seed),
            stream=state.stream,
            counts=np.array([state.chain, state.moves, state.rounds]),
            weights=np.array([state.temperature, state.chain_weight, state.best_weight]),
            orders=np.stack([state.order, state.chain_order, state.best_order]),
        )

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> OrderState:
        """Resume from a checkpoint; see `Searcher.resume`."""
        seed, stream, counts, weights, stored_orders = open_checkpoint(
            self, problem, checkpoint, "seed", "stream", "counts", "weights", "orders"
        )
        chain, moves, rounds = (int(count) for count in counts)
        temperature, chain_weight, best_weight = (float(weight) for weight in weights)
        order, chain_order, best_order = stored_orders.astype(np.int32)
        return OrderState(
            problem=problem,
            tables=tables_of(problem),
            seed=int(seed),
            stream=stream.astype(np.uint64),
            chain=chain,
            moves=moves,
            rounds=rounds,
            temperature=temperature,
            order=order,
            chain_order=chain_order,
            chain_weight=chain_weight,
            best_order=best_order,
            best_weight=best_weight,
        )

    def _chains(self, problem: SearchProblem) -> int:
        return max(2, TUNING.chains_times_variables // len(problem.n_states)) if self.chains is None else self.chains

    def _moves(self, problem: SearchProblem) -> int:
        if self.moves is not None:
            return self.moves
        return min(max(TUNING.least_moves, TUNING.moves_per_variable * len(problem.n_states)), TUNING.most_moves)

    def _rounds(self, problem: SearchProblem) -> int:
        return TUNING.rounds_times_variables // len(problem.n_states) if self.rounds is None else self.rounds

    def _hot(self, problem: SearchProblem) -> float:
        positive = problem.weights[problem.weights > 0]
        return self.hot * (float(positive.sum()) / len(positive)) if len(positive) else 0.0

    def _anneal(self, state: OrderState) -> OrderState:
        tables, n_moves = state.tables, self._moves(state.problem)
        moves = min(TUNING.step_moves, n_moves - state.moves)
        stream, order, chain_order = state.stream.copy(), state.order.copy(), state.chain_order.copy()
        # To 40 bits: a power may differ in its last bit from machine to machine.
        cooling = round((self.cold / self.hot) ** (1 / n_moves) * 2.0**40) / 2.0**40
        weight, temperature = order_kernels.anneal(
            stream,
            order,
            chain_order,
            state.chain_weight,
            moves,
            state.temperature,
            cooling,
            _QUANTILES,
            *tables,
            TUNING.most_sets,
        )
        return dataclasses.replace(
            state,
            stream=stream,
            moves=state.moves + moves,
            temperature=temperature,
            order=order,
            chain_order=chain_order,
            chain_weight=weight,
        )

    def _improve(self, state: OrderState) -> OrderState:
        """Improve the order; the first round is the improvement of the annealed order itself."""
        tables, stream = state.tables, state.stream.copy()
        best, weight, rounds = state.chain_order, state.chain_weight, state.rounds
        for _ in range(min(TUNING.step_rounds, self._rounds(state.problem) + 1 - rounds)):
            order = best.copy()
            if rounds:
                order_kernels.perturb(stream, order, tables.before, TUNING.perturbed_variables)
            new_weight = order_kernels.descend(order, *tables, TUNING.most_sets)
            if new_weight >= weight:
                best, weight = order, new_weight
            rounds += 1
        return dataclasses.replace(state, stream=stream, rounds=rounds, chain_order=best, chain_weight=weight)


def _random_order(tables: Tables, stream: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Return a shuffled order, sorted so that it keeps `before`: the first whose predecessors are all placed, again and again."""
    draws = Draws(int(stream[0]))
    d = len(tables.before)
    pending = list(range(d))
    for p in range(d - 1, 0, -1):
        q = draws.below(p + 1)
        pending[p], pending[q] = pending[q], pending[p]
    missing = tables.before.sum(axis=0)
    order: list[int] = []
    while pending:
        v = next(v for v in pending if missing[v] == 0)
        pending.remove(v)
        order.append(v)
        missing = missing - tables.before[v]
    return np.array(order, dtype=np.int32), np.array([draws.state], dtype=np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactState:
    """Where the search stands. Its arrays are never written again.

    Attributes:
        problem: what is searched.
        tables: the same for the kernels.
        seed: the seed; not used.
        order: (d,), int32, the best order of the finished blocks, then -1.
        block: number of the block that is searched.
        table: (2^b,), float64, the best weight of each subset of the block, as far as it is done.
        latest: (2^b,), int8, the member that comes last there.
        n_subsets: how many are done.
    """

    problem: SearchProblem
    tables: Tables
    seed: int
    order: NDArray[np.int32]
    block: int
    table: NDArray[np.float64]
    latest: NDArray[np.int8]
    n_subsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSearch:
    """The searcher; see `verticil.miner.learning.search.protocol.Searcher`. The fitness is the total weight of the edges."""

    def start(self, problem: SearchProblem, seed: int) -> ExactState:
        """Start with nothing done yet.

        Raises:
            ValueError: a block has more than `TUNING.most_block_variables` variables.
        """
        if (widest := max(map(len, _blocks(problem)))) > TUNING.most_block_variables:
            raise ValueError(
                f"{widest} variables may stand in any order, expected at most {TUNING.most_block_variables}; "
                "use the method 'order'"
            )
        return ExactState(
            problem=problem,
            tables=tables_of(problem),
            seed=seed,
            order=np.full(len(problem.n_states), -1, dtype=np.int32),
            block=0,
            table=np.empty(0),
            latest=np.empty(0, dtype=np.int8),
            n_subsets=0,
        )

    def step(self, state: ExactState) -> ExactState:
        """Do some thousand subsets; the last ones of a block bring its order."""
        blocks, tables = _blocks(state.problem), state.tables
        if state.block == len(blocks):
            return state
        members = np.array(blocks[state.block], dtype=np.int32)
        size = 2 ** len(members)
        table, latest = np.empty(size), np.empty(size, dtype=np.int8)
        n_done, last = state.n_subsets, min(state.n_subsets + TUNING.step_subsets, size)
        table[:n_done], latest[:n_done] = state.table[:n_done], state.latest[:n_done]
        base = np.zeros(len(state.order), dtype=np.uint8)
        placed_variables = state.order[state.order >= 0]
        base[placed_variables] = 1
        order_kernels.fill_subsets(table, n_done, last, members, base, *tables, latest)
        if last < size:
            return dataclasses.replace(state, table=table, latest=latest, n_subsets=last)
        order, subset = state.order.copy(), size - 1
        for place in range(len(placed_variables) + len(members) - 1, len(placed_variables) - 1, -1):
            order[place] = members[latest[subset]]
            subset ^= 1 << int(latest[subset])
        return dataclasses.replace(
            state,
            order=order,
            block=state.block + 1,
            table=np.empty(0),
            latest=np.empty(0, dtype=np.int8),
            n_subsets=0,
        )

    def progress(self, state: ExactState) -> float:
        """Return the share of the subsets of all blocks that is done."""
        sizes = [1 << len(block) for block in _blocks(state.problem)]
        return (sum(sizes[: state.block]) + state.n_subsets) / sum(sizes)

    def result(self, state: ExactState) -> SearchResult:
        """Return the network of the best order; blocks that are not done stand in some order that the constraints admit."""
        rest = [v for block in _blocks(state.problem)[state.block :] for v in _sort_block(block, state.tables)]
        order = [*state.order[state.order >= 0].tolist(), *rest]
        dag = best_network(state.problem, state.tables, order, budget=_NO_LIMIT)
        return SearchResult(
            dag=dag,
            fitness=total_weight(state.problem, dag),
            generations=sum(2 ** len(block) for block in _blocks(state.problem)[: state.block]) + state.n_subsets,
            dropped_edges=(),
            seed=state.seed,
        )

    def checkpoint(self, state: ExactState) -> Checkpoint:
        """Return the finished orders and subsets."""
        n_done = state.n_subsets
        return sealed(
            self,
            state.problem,
            seed=np.array(state.seed),
            order=state.order,
            counts=np.array([state.block, n_done]),
            table=state.table[:n_done],
            latest=state.latest[:n_done],
        )

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> ExactState:
        """Resume from a checkpoint; see `Searcher.resume`."""
        seed, order, counts, table, latest = open_checkpoint(
            self, problem, checkpoint, "seed", "order", "counts", "table", "latest"
        )
        return ExactState(
            problem=problem,
            tables=tables_of(problem),
            seed=int(seed),
            order=order.astype(np.int32),
            block=int(counts[0]),
            table=table.astype(np.float64),
            latest=latest.astype(np.int8),
            n_subsets=int(counts[1]),
        )


def _blocks(problem: SearchProblem) -> tuple[tuple[int, ...], ...]:
    if problem.constraints is None:
        return (tuple(range(len(problem.n_states))),)
    return problem.constraints.blocks


def _sort_block(block: tuple[int, ...], tables: Tables) -> list[int]:
    """Sort the members of a block so that they keep `before`: by the number of their predecessors."""
    return sorted(block, key=lambda v: int(tables.before[:, v].sum()))
