"""Counting randomized columns: the tables of all pairs, and the table of one family.

Columns may be memory-mapped; they are read in blocks of records, once, and only a block is held. Little work is done with the
plain reference (`verticil.shared.model.contingency`), much with the compiled kernels: the counts are the same, and a small
study does not wait for a compiler. Every code is checked against its number of categories before it is used as an index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model import contingency
from verticil.shared.model.design import FamilyDesign

__all__ = ["MAX_PAIR_CELLS", "Codes", "PairTables", "all_pair_tables", "family_counts", "family_table"]

Codes = NDArray[np.uint8] | NDArray[np.uint16]
Method = Literal["auto", "kernel", "plain"]

MAX_PAIR_CELLS: Final = 2**26
"""Most cells of all pair tables together: 512 MiB of counts."""

_BLOCK: Final = 32_768  # records
_KERNEL_FROM: Final = 60_000_000  # increments; below, plain counting is done before the compiled kernel is loaded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairTables:
    """The contingency tables of all pairs of d columns.

    Attributes:
        n_states: number of categories of each column.
        counts: (total cells,), int64, read-only: the tables (a, b), a < b, one after the other, each (K_a, K_b) in C order.
        n_records: number of records, the sum of every table.
    """

    n_states: tuple[int, ...]
    counts: NDArray[np.int64]
    n_records: int
    _offsets: dict[tuple[int, int], int] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        offset = 0
        for a, b in self.pairs():
            self._offsets[a, b] = offset
            offset += self.n_states[a] * self.n_states[b]
        if self.counts.shape != (offset,):
            raise ValueError(f"counts have shape {self.counts.shape}, expected ({offset},)")
        self.counts.setflags(write=False)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """All pairs (a, b), a < b, in the order of the tables."""
        d = len(self.n_states)
        return ((a, b) for a in range(d) for b in range(a + 1, d))

    def table(self, a: int, b: int) -> NDArray[np.int64]:
        """The table of columns `a` and `b`, shape (K_a, K_b); the same memory in either order."""
        low, high = min(a, b), max(a, b)
        offset = self._offsets[low, high]
        shape = (self.n_states[low], self.n_states[high])
        table = self.counts[offset : offset + shape[0] * shape[1]].reshape(shape)
        return table if a < b else table.T


def all_pair_tables(
    columns: Sequence[Codes],
    n_states: Sequence[int],
    *,
    method: Method = "auto",
    cancelled: Callable[[], None] | None = None,
) -> PairTables:
    """Count every pair of columns.

    Args:
        columns: d arrays of n codes each.
        n_states: number of categories of each column.
        method: ``kernel``, ``plain``, or whichever is quicker for this much work.
        cancelled: called between blocks; may raise.

    Raises:
        ValueError: columns differ in length, a code is not below its number of categories, or the tables have more
            than `MAX_PAIR_CELLS` cells.
    """
    n, states = _check(columns, n_states)
    d = len(states)
    cells = (sum(states) ** 2 - sum(k * k for k in states)) // 2
    if cells > MAX_PAIR_CELLS:
        raise ValueError(f"the tables of all pairs have {cells} cells, expected at most {MAX_PAIR_CELLS}")
    if method == "plain" or (method == "auto" and n * d * (d - 1) // 2 < _KERNEL_FROM):
        parts = [np.zeros(0, dtype=np.int64)]
        for a in range(d):
            for b in range(a + 1, d):
                if cancelled is not None:
                    cancelled()
                parts.append(contingency.pair_table(columns[a], columns[b], states[a], states[b]).ravel())
        return PairTables(n_states=states, counts=np.concatenate(parts), n_records=n)
    from verticil.miner.learning import kernels

    counts = np.zeros(cells, dtype=np.int64)
    n_states_array = np.array(states, dtype=np.int64)
    for block in _blocks(columns, states, n):
        if cancelled is not None:
            cancelled()
        first, second = np.zeros(cells, dtype=np.uint32), np.zeros(cells, dtype=np.uint32)
        kernels.count_pairs(block, n_states_array, first, second)
        counts += first
        counts += second
    return PairTables(n_states=states, counts=counts, n_records=n)


def family_table(columns: Sequence[Codes], n_states: Sequence[int], *, method: Method = "auto") -> NDArray[np.int64]:
    """Count the combinations of a few columns.

    Args:
        columns: one array of n codes for each axis of the table.
        n_states: number of categories of each.
        method: ``kernel``, ``plain``, or whichever is quicker for this much work.

    Returns:
        counts, shape `n_states`, int64.

    Raises:
        ValueError: columns differ in length, or a code is not below its number of categories.
    """
    n, states = _check(columns, n_states)
    if method == "plain" or (method == "auto" and n * len(states) < _KERNEL_FROM):
        return contingency.family_table(columns, states)
    from verticil.miner.learning import kernels

    counts = np.zeros(math.prod(states), dtype=np.int64)
    n_states_array = np.array(states, dtype=np.int64)
    for block in _blocks(columns, states, n):
        kernels.count_family(block, n_states_array, counts)
    return counts.reshape(states)


def family_counts(
    columns: Mapping[int, Codes], design: FamilyDesign, *, method: Method = "auto"
) -> NDArray[np.int64] | NDArray[np.float64]:
    """Count the released records of a family whose columns may be compounds and subsets.

    Args:
        columns: released codes of each unit by its index, see `contingency.design_columns`.
        design: of the family.
        method: ``kernel``, ``plain``, or whichever is quicker; the kernel counts no subsets.

    Returns:
        Of the shape `FamilyDesign.released_shape`; float64 where a column is a subset's, else int64.

    Raises:
        ValueError: the columns have not the same number of records, or a code is out of range.
    """
    if any(axis.channel.codes_per_record > 1 for axis in design.axes):
        return contingency.family_counts(columns, design)
    if all(axis.merged is None for axis in design.axes):
        return family_table([columns[unit] for unit in design.units], design.released_shape, method=method)
    arranged = cast("list[Codes]", contingency.design_columns(columns, design))
    return family_table(arranged, design.released_shape, method=method)


def _check(columns: Sequence[Codes], n_states: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    if not columns or len(columns) != len(n_states):
        raise ValueError(
            f"{len(columns)} columns and {len(n_states)} numbers of categories, expected as many, at least one"
        )
    n = len(columns[0])
    for position, column in enumerate(columns):
        if column.shape != (n,) or column.dtype.name not in ("uint8", "uint16"):
            raise ValueError(
                f"column {position} is {column.dtype} of shape {column.shape}, expected uint8 or uint16 of ({n},)"
            )
    return n, tuple(int(k) for k in n_states)


def _check_codes(column: Codes, n_states: int) -> None:
    if len(column) and (highest := int(column.max())) >= n_states:
        raise ValueError(f"code {highest} in a column of {n_states} categories")


def _blocks(columns: Sequence[Codes], n_states: Sequence[int], n: int) -> Iterator[NDArray[np.uint16]]:
    buffer = np.empty((len(columns), min(n, _BLOCK)), dtype=np.uint16)
    for start in range(0, n, _BLOCK):
        length = min(_BLOCK, n - start)
        block = buffer if length == buffer.shape[1] else np.empty((len(columns), length), dtype=np.uint16)
        for row, column, k in zip(block, columns, n_states, strict=True):
            piece = column[start : start + length]
            _check_codes(piece, k)
            row[:] = piece
        yield block
