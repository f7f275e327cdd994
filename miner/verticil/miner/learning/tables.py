"""The tables of families, counted when they are first asked for and remembered in a bounded number of bytes.

Searches ask for overlapping families again and again, and the parameters ask for the winners once more: whoever shares one
`FamilyTables` shares its counts. Remembering changes what a search costs, never what it finds.

Of a family whose table is too large to be held only the occupied cells are counted (`SparseTable`), of which there are at most
as many as records.

The counts are those of `counting.family_table`, without the zeros. What needs every cell (the estimators correct a whole table)
cannot use them; sums over records can. A sparse table becomes a dense one only below a stated number of cells.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.counting import (
    KERNEL_FROM,
    MAX_FAMILY_CELLS,
    MAX_PAIR_CELLS,
    Method,
    checked_columns,
    design_tables,
)
from verticil.miner.learning.groups import block_records, blocks
from verticil.miner.learning.search.protocol import remember
from verticil.shared.arrays import Codes, Counts, Ints
from verticil.shared.errors import DataFault
from verticil.shared.estimation import contingency
from verticil.shared.estimation.design import ColumnUnit, FamilyDesign, family_design

Axes = tuple[int, ...]

_MAX_BYTES: Final = 2**28
_MOST_DESIGNS: Final = 2**12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountedFamily:
    """The released records of one family.

    Attributes:
        observed: of the shape `FamilyDesign.released_shape`, C order, read-only; float64 where a column is a subset's, else
            int64.
        design: how its columns were randomized.
    """

    observed: Counts
    design: FamilyDesign


class FamilyTables:
    """Counts of any family of some released columns. May be shared by threads.

    Args:
        columns: released codes of each unit, in unit order or by its index.
        units: how they were randomized.
        n_states: number of categories of each variable.
        names: of the variables, for messages; None: their positions.
        cancelled: called before a table is counted; may raise.
        max_bytes: of the tables that are remembered; those not asked for longest are forgotten first. 0: none is.
        method, threads: see `counting.all_pair_tables`; how much work there is, is told by all tables so far together.

    >>> from verticil.shared.channels.transition import identity, quantize
    >>> units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(2))) for v in range(2)]
    >>> tables = FamilyTables(dict(enumerate(np.array([[0, 1, 1], [0, 0, 1]], np.uint8))), units, (2, 2))
    >>> tables.family((0, 1)).observed.tolist(), tables.family((1, 0)).observed.tolist(), tables.n_counted
    ([[1, 0], [1, 1]], [[1, 1], [0, 1]], 1)
    """

    def __init__(
        self,
        columns: Sequence[Codes] | Mapping[int, Codes],
        units: Sequence[ColumnUnit],
        n_states: Sequence[int],
        names: Sequence[str] | None = None,
        *,
        cancelled: Callable[[], None] | None = None,
        max_bytes: int = _MAX_BYTES,
        method: Method = "auto",
        threads: int | None = None,
    ) -> None:
        self._columns: Mapping[int, Codes] = columns if isinstance(columns, Mapping) else dict(enumerate(columns))
        self.units, self.n_states = tuple(units), tuple(n_states)
        self.names = tuple(map(str, range(len(self.n_states)))) if names is None else tuple(names)
        self._cancelled = cancelled
        self._max_bytes = max_bytes
        self._method: Method = method
        self._threads = threads
        self._alone = {
            unit.variables[0] for unit in self.units if unit.domain is None and unit.channel.codes_per_record == 1
        }
        self._known: OrderedDict[Axes, Counts] = OrderedDict()
        self._designs: dict[Axes, FamilyDesign] = {}
        self._n_bytes = self._n_counted = self._n_increments = 0
        self._lock = RLock()

    @property
    def n_bytes(self) -> int:
        """Bytes of the tables that are remembered."""
        return self._n_bytes

    @property
    def n_counted(self) -> int:
        """How many tables were counted so far."""
        return self._n_counted

    @property
    def n_records(self) -> int:
        """Records of every column."""
        return len(self._columns[0]) // self.units[0].channel.codes_per_record

    def counted(self, axes: Sequence[int]) -> tuple[Counts, FamilyDesign]:
        """The observed table of some variables, and its design; the axes in the order that is asked for.

        Raises:
            DataFault: LEARNING_FAILED, the released table is larger than can be counted.
        """
        wanted = tuple(axes)
        if (cells := self.n_cells(wanted)) > MAX_PAIR_CELLS:
            *parents, child = (f"'{self.names[v]}'" for v in wanted)
            given = f" with the parents {', '.join(parents)}" if parents else ""
            raise DataFault(
                "LEARNING_FAILED",
                f"the family of {child}{given}: its released table has {cells} cells, expected at most {MAX_PAIR_CELLS}",
                hint="declare fewer categories or bins for these variables, or smaller compounds",
            )
        if self._cancelled is not None and self._key(wanted) not in self._known:
            self._cancelled()
        family = self.family(wanted)
        return family.observed, family.design

    def design(self, axes: Sequence[int]) -> FamilyDesign:
        """The design of a family, see `family_design`."""
        wanted = tuple(axes)
        if (found := self._designs.get(wanted)) is None:
            found = family_design(self.units, self.n_states, wanted)
            remember(self._designs, wanted, found, most=_MOST_DESIGNS)
        return found

    def n_cells(self, axes: Sequence[int]) -> int:
        """Cells of the family's released table; nothing is counted."""
        return math.prod(self.design(axes).released_shape)

    def family(self, axes: Sequence[int]) -> CountedFamily:
        """The released records of a family.

        Args:
            axes: positions of its variables: the parents ascending, then the child.

        Raises:
            ValueError: the columns do not fit the units.
            DataFault: LEARNING_FAILED, the table is too large: see `counting.MAX_FAMILY_CELLS`.
        """
        wanted = tuple(axes)
        key = self._key(wanted)
        with self._lock:
            table = self._known.get(key)
            if table is None:
                table = self._summed(key)
            if table is None:
                (table,) = self._count([key], None)
            self._remember(key, table)
        return CountedFamily(observed=_arranged(table, key, wanted), design=self.design(wanted))

    def count_ahead(self, families: Iterable[Sequence[int]], *, cancelled: Callable[[], None] | None = None) -> None:
        """Count several families in one pass, as many as can be remembered, in this order; the others when they are asked for.

        Args:
            families: see `family`.
            cancelled: called between blocks; may raise.

        Raises:
            ValueError: the columns do not fit the units.
        """
        with self._lock:
            keys = dict.fromkeys(self._key(tuple(axes)) for axes in families)
            left = self._max_bytes
            new: list[Axes] = []
            for key in keys:
                size = 8 * self.n_cells(key)
                if size <= left:
                    left -= size
                    if key not in self._known:
                        new.append(key)
            for key, table in zip(new, self._count(new, cancelled), strict=True):
                self._remember(key, table)

    def occupied(self, axes: Sequence[int], *, cancelled: Callable[[], None] | None = None) -> SparseTable:
        """The occupied cells of a family's released table, for one that is too large; not remembered.

        Raises:
            ValueError: the columns do not fit the units.
            DataFault: LEARNING_FAILED, a column is a subset's: its records are in several cells.
        """
        design = self.design(axes)
        if any(axis.channel.codes_per_record > 1 for axis in design.axes):
            raise DataFault(
                "LEARNING_FAILED",
                f"family {tuple(axes)}: a record of a subset column is in several cells, expected one",
                hint="count the whole table, or randomize the column with one code a record",
            )
        if any(axis.merged is not None for axis in design.axes):
            columns = cast("list[Codes]", contingency.design_columns(self._columns, design))
        else:
            columns = [self._columns[unit] for unit in design.units]
        return sparse_family_table(columns, design.released_shape, cancelled=cancelled)

    def _key(self, axes: Axes) -> Axes:
        # Where each variable is a column of its own, the order of the axes is one of presentation.
        return tuple(sorted(axes)) if self._alone.issuperset(axes) else axes

    def _count(self, keys: Sequence[Axes], cancelled: Callable[[], None] | None) -> list[Counts]:
        self._n_increments += self.n_records * sum(map(len, keys))
        much = self._method == "auto" and self._n_increments >= KERNEL_FROM
        tables = design_tables(
            self._columns,
            [self.design(key) for key in keys],
            method="kernel" if much else self._method,
            threads=self._threads,
            cancelled=cancelled,
        )
        for table in tables:
            table.setflags(write=False)
        self._n_counted += len(tables)
        return tables

    def _summed(self, key: Axes) -> Counts | None:
        """The table of one variable from that of a family that has it."""
        if len(key) != 1 or not self._alone.issuperset(key):
            return None
        variable = key[0]
        for known, table in self._known.items():
            if variable in known and self._alone.issuperset(known):
                others = tuple(place for place, axis in enumerate(known) if axis != variable)
                summed: NDArray[np.int64] = np.asarray(table, dtype=np.int64).sum(axis=others)
                summed.setflags(write=False)
                return summed
        return None

    def _remember(self, key: Axes, table: Counts) -> None:
        if key in self._known:
            self._known.move_to_end(key)
            return
        if table.nbytes > self._max_bytes:
            return
        self._known[key] = table
        self._n_bytes += table.nbytes
        while self._n_bytes > self._max_bytes:
            _, oldest = self._known.popitem(last=False)
            self._n_bytes -= oldest.nbytes


def _arranged(table: Counts, key: Axes, axes: Axes) -> Counts:
    if key == axes:
        return table
    arranged = cast("Counts", np.ascontiguousarray(table.transpose([key.index(axis) for axis in axes])))
    arranged.setflags(write=False)
    return arranged


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
