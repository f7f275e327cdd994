"""The network of the largest total weight, by dynamic programming over the subsets of the variables.

Every network has an order of its variables, and in an order the best parents of a variable depend on the set of its
predecessors only: the best order of a set ends with one of its members, behind the best order of the others (Silander and
Myllymaki 2006, for additive weights). Exact under every constraint, and under the limit on a family's cells, where the best
set of parents is found by branch and bound without a limit on the sets looked at.

Subsets are of one block of `Constraints.blocks` at a time, so that tiers make larger problems exact too.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.compiled import orders
from verticil.miner.learning.search.order import Tables, best_network, tables_of
from verticil.miner.learning.search.protocol import (
    Checkpoint,
    SearchProblem,
    SearchResult,
    opened,
    sealed,
    total_weight,
)

MAX_BLOCK: Final = 15
"""Most variables of one block: 2^15 subsets."""

_STEP_SUBSETS: Final = 2**13
_NO_LIMIT: Final = 2**62


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
        """Nothing is done yet.

        Raises:
            ValueError: a block has more than `MAX_BLOCK` variables.
        """
        if (widest := max(map(len, _blocks(problem)))) > MAX_BLOCK:
            raise ValueError(
                f"{widest} variables may stand in any order, expected at most {MAX_BLOCK}; use the method 'order'"
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
        """Some thousand subsets; the last ones of a block bring its order."""
        blocks, tables = _blocks(state.problem), state.tables
        if state.block == len(blocks):
            return state
        members = np.array(blocks[state.block], dtype=np.int32)
        size = 2 ** len(members)
        table, latest = np.empty(size), np.empty(size, dtype=np.int8)
        done, last = state.n_subsets, min(state.n_subsets + _STEP_SUBSETS, size)
        table[:done], latest[:done] = state.table[:done], state.latest[:done]
        base = np.zeros(len(state.order), dtype=np.uint8)
        placed = state.order[state.order >= 0]
        base[placed] = 1
        orders.fill_subsets(
            table,
            done,
            last,
            members,
            base,
            tables.before,
            tables.candidates,
            tables.heavy,
            tables.limits,
            latest,
        )
        if last < size:
            return dataclasses.replace(state, table=table, latest=latest, n_subsets=last)
        order, subset = state.order.copy(), size - 1
        for place in range(len(placed) + len(members) - 1, len(placed) - 1, -1):
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
        """Share of the subsets of all blocks that is done."""
        sizes = [1 << len(block) for block in _blocks(state.problem)]
        return (sum(sizes[: state.block]) + state.n_subsets) / sum(sizes)

    def result(self, state: ExactState) -> SearchResult:
        """The network of the best order; blocks that are not done stand in some order that the constraints admit."""
        rest = [v for block in _blocks(state.problem)[state.block :] for v in _sorted(block, state.tables)]
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
        """The finished orders and subsets."""
        done = state.n_subsets
        return sealed(
            self,
            state.problem,
            seed=np.array(state.seed),
            order=state.order,
            counts=np.array([state.block, done]),
            table=state.table[:done],
            latest=state.latest[:done],
        )

    def resume(self, problem: SearchProblem, checkpoint: Checkpoint) -> ExactState:
        """See `Searcher.resume`."""
        seed, order, counts, table, latest = opened(
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


def _sorted(block: tuple[int, ...], tables: Tables) -> list[int]:
    """The members of a block in an order that keeps `before`: by the number of their predecessors."""
    return sorted(block, key=lambda v: int(tables.before[:, v].sum()))
