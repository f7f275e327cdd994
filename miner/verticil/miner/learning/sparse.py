"""Counting a family whose table is too large to be held: only its occupied cells, of which there are at most as many as records.

The counts are those of `counting.family_table`, without the zeros. What needs every cell (the estimators correct a whole table)
cannot use them; sums over records can. A sparse table becomes a dense one only below a stated number of cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.counting import MAX_FAMILY_CELLS, checked_columns
from verticil.miner.learning.groups import block_records, blocks
from verticil.shared.arrays import Codes, Ints
from verticil.shared.errors import DataFault

Cells = NDArray[np.uint16]

_KEY_BITS = 63


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseTable:
    """The occupied cells of a table. Its arrays are read-only.

    Attributes:
        shape: number of categories of each axis.
        cells: (m, q), uint16: the codes of each occupied cell, in lexicographic order.
        counts: (m,), int64, all positive; their sum is the number of records.
    """

    shape: tuple[int, ...]
    cells: Cells
    counts: Ints

    def __post_init__(self) -> None:
        if self.cells.shape != (len(self.counts), len(self.shape)):
            raise ValueError(f"cells have shape {self.cells.shape}, expected ({len(self.counts)}, {len(self.shape)})")
        self.cells.setflags(write=False)
        self.counts.setflags(write=False)

    @property
    def n_cells(self) -> int:
        """Cells of the dense table; may be larger than any array."""
        return math.prod(self.shape)

    def dense(self, *, max_cells: int = MAX_FAMILY_CELLS) -> Ints:
        """The whole table, of `shape`, int64.

        Raises:
            DataFault: LEARNING_FAILED, it has more than `max_cells` cells.
        """
        if self.n_cells > max_cells:
            raise DataFault(
                "LEARNING_FAILED",
                f"the dense table of {' x '.join(map(str, self.shape))} categories has {self.n_cells} cells, expected at "
                f"most {max_cells}; {len(self.counts)} are occupied",
                hint="use the occupied cells, allow fewer parents or declare fewer categories",
            )
        table = np.zeros(self.shape, dtype=np.int64)
        table[tuple(self.cells.T)] = self.counts
        return table

    def marginal(self, axes: Sequence[int]) -> SparseTable:
        """Sum over all axes but some.

        Args:
            axes: which stay, in this order.
        """
        chosen = list(axes)
        return _collected(self.cells[:, chosen], self.counts, tuple(self.shape[axis] for axis in chosen))


def sparse_family_table(
    columns: Sequence[Codes], n_states: Sequence[int], *, cancelled: Callable[[], None] | None = None
) -> SparseTable:
    """Count the occupied combinations of some columns, in one pass.

    Args:
        columns: one array of n codes for each axis of the table; may be memory-mapped.
        n_states: number of categories of each.
        cancelled: called between blocks; may raise.

    Raises:
        ValueError: columns differ in length, or a code is not below its number of categories.

    >>> table = sparse_family_table([np.array([1, 0, 1], np.uint8), np.array([7, 2, 7], np.uint8)], [256, 256])
    >>> table.cells.tolist(), table.counts.tolist()
    ([[0, 2], [1, 7]], [1, 2])
    """
    n, states = checked_columns(columns, n_states)
    size = block_records(len(columns))
    # Tables of blocks are joined when they are as large as what is joined already: each cell is moved a few times only.
    joined, waiting, n_waiting = _nothing(states), list[SparseTable](), 0
    for block in blocks(columns, states, range(0, n, size), size, range(len(columns))):
        if cancelled is not None:
            cancelled()
        waiting.append(_collected(block.T, np.ones(block.shape[1], dtype=np.int64), states))
        n_waiting += len(waiting[-1].counts)
        if n_waiting >= max(len(joined.counts), size):
            joined, waiting, n_waiting = _joined([joined, *waiting]), [], 0
    return _joined([joined, *waiting])


def _nothing(shape: tuple[int, ...]) -> SparseTable:
    return SparseTable(
        shape=shape, cells=np.zeros((0, len(shape)), dtype=np.uint16), counts=np.zeros(0, dtype=np.int64)
    )


def _joined(tables: Sequence[SparseTable]) -> SparseTable:
    if len(tables) == 1:
        return tables[0]
    return _collected(
        np.concatenate([table.cells for table in tables]),
        np.concatenate([table.counts for table in tables]),
        tables[0].shape,
    )


def _collected(codes: NDArray[np.unsignedinteger], counts: Ints, shape: tuple[int, ...]) -> SparseTable:
    """Add the counts of equal rows of `codes`, (m, q)."""
    keys = np.zeros(len(codes), dtype=np.int64)
    room = 1  # keys are below it
    for axis, states in enumerate(shape):
        if room * states >= 1 << _KEY_BITS:  # 63 bits are full: number the combinations that occur, in their order
            distinct, keys = np.unique(keys, return_inverse=True)
            keys = keys.astype(np.int64, copy=False)
            room = max(len(distinct), 1)
        keys *= states
        keys += codes[:, axis]
        room *= states
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(len(ordered), 1), dtype=np.bool_), ordered[1:] != ordered[:-1]]))
    summed = np.add.reduceat(counts[order], first) if len(first) else np.zeros(0, dtype=np.int64)
    return SparseTable(shape=shape, cells=np.ascontiguousarray(codes[order[first]], dtype=np.uint16), counts=summed)
