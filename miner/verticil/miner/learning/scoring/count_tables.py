"""The tables of families, counted when they are first asked for and remembered in a bounded number of bytes.

Searches ask for overlapping families again and again, and the parameters ask for the winners once more: whoever shares one
`FamilyTables` shares its counts. Remembering changes what a search costs, never what it finds.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import cast

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.scoring.counting import design_tables
from verticil.miner.learning.scoring.tuning import TUNING
from verticil.miner.learning.search.protocol import remember
from verticil.shared.core.arrays import Codes, Counts
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, FamilyDesign, family_design

Axes = tuple[int, ...]


class FamilyTables:
    """Counts of any family of some released columns. May be shared by threads.

    Args:
        columns: released codes of each unit, in unit order or by its index.
        units: how they were randomized.
        n_states: number of categories of each variable.
        names: of the variables, for messages; None: their positions.
        cancelled: called before a table is counted; may raise.
        max_bytes: of the tables that are remembered; those not asked for longest are forgotten first. 0: none is.

    >>> from verticil.shared.mechanisms.transition import identity, quantize
    >>> units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(2))) for v in range(2)]
    >>> tables = FamilyTables(dict(enumerate(np.array([[0, 1, 1], [0, 0, 1]], np.uint8))), units, (2, 2))
    >>> [tables.count_family(axes)[0].tolist() for axes in ((0, 1), (1, 0))]
    [[[1, 0], [1, 1]], [[1, 1], [0, 1]]]
    """

    def __init__(
        self,
        columns: Sequence[Codes] | Mapping[int, Codes],
        units: Sequence[ColumnUnit],
        n_states: Sequence[int],
        names: Sequence[str] | None = None,
        *,
        check: Callable[[], None] | None = None,
        max_bytes: int = TUNING.most_table_bytes,
    ) -> None:
        self._columns: Mapping[int, Codes] = columns if isinstance(columns, Mapping) else dict(enumerate(columns))
        self.units, self.n_states = tuple(units), tuple(n_states)
        self.names = tuple(map(str, range(len(self.n_states)))) if names is None else tuple(names)
        self._cancelled = check
        self._max_bytes = max_bytes
        self._alone = {
            unit.variables[0] for unit in self.units if unit.domain is None and unit.channel.codes_per_record == 1
        }
        self._known: OrderedDict[Axes, Counts] = OrderedDict()
        self._designs: dict[Axes, FamilyDesign] = {}
        self._n_bytes = self._n_increments = 0
        self._lock = RLock()

    @property
    def n_records(self) -> int:
        """Records of every column."""
        return len(self._columns[0]) // self.units[0].channel.codes_per_record

    def count_family(self, axes: Sequence[int]) -> tuple[Counts, FamilyDesign]:
        """Return the released records of a family, and how its columns were randomized.

        Args:
            axes: positions of its variables: the parents ascending, then the child.

        Returns:
            The table, of the shape `FamilyDesign.released_shape`, C order, read-only; float64 where a column is a subset's, else
            int64. And the design.

        Raises:
            ValueError: the columns do not fit the units.
            DataFault: LEARNING_FAILED, the released table is larger than can be counted.
        """
        family = tuple(axes)
        if (cells := self.n_cells(family)) > TUNING.most_pair_cells:
            *parents, child = (f"'{self.names[v]}'" for v in family)
            parent_words = f" with the parents {', '.join(parents)}" if parents else ""
            raise DataFault(
                "LEARNING_FAILED",
                f"the family of {child}{parent_words}: its released table has {cells} cells, "
                f"expected at most {TUNING.most_pair_cells}",
                hint="declare fewer categories or bins for these variables, or smaller compounds",
            )
        key = self._key(family)
        if self._cancelled is not None and key not in self._known:
            self._cancelled()
        with self._lock:
            table = self._known.get(key)
            if table is None:
                table = self._sum_out(key)
            if table is None:
                (table,) = self._count([key], None)
            self._remember(key, table)
        return _arrange(table, key, family), self.design(family)

    def design(self, axes: Sequence[int]) -> FamilyDesign:
        """Return the design of a family, see `family_design`."""
        family = tuple(axes)
        if (design := self._designs.get(family)) is None:
            design = family_design(self.units, self.n_states, family)
            remember(self._designs, family, design, most=TUNING.most_designs)
        return design

    def n_cells(self, axes: Sequence[int]) -> int:
        """Return the number of cells of the family's released table; nothing is counted."""
        return math.prod(self.design(axes).released_shape)

    def count_ahead(self, families: Iterable[Sequence[int]], *, check: Callable[[], None] | None = None) -> None:
        """Count several families in one pass, as many as can be remembered, in this order; the others when they are asked for.

        Args:
            families: see `count_family`.
            check: called between blocks; may raise.

        Raises:
            ValueError: the columns do not fit the units.
        """
        with self._lock:
            keys = dict.fromkeys(self._key(tuple(axes)) for axes in families)
            bytes_left = self._max_bytes
            new: list[Axes] = []
            for key in keys:
                size = 8 * self.n_cells(key)
                if size <= bytes_left:
                    bytes_left -= size
                    if key not in self._known:
                        new.append(key)
            for key, table in zip(new, self._count(new, check), strict=True):
                self._remember(key, table)

    def _key(self, axes: Axes) -> Axes:
        # Where each variable is a column of its own, the order of the axes is one of presentation.
        return tuple(sorted(axes)) if self._alone.issuperset(axes) else axes

    def _count(self, keys: Sequence[Axes], check: Callable[[], None] | None) -> list[Counts]:
        self._n_increments += self.n_records * sum(map(len, keys))
        much = self._n_increments >= TUNING.kernel_increments  # of all tables so far together
        tables = design_tables(
            self._columns,
            [self.design(key) for key in keys],
            method="kernel" if much else "auto",
            check=check,
        )
        for table in tables:
            table.setflags(write=False)
        return tables

    def _sum_out(self, key: Axes) -> Counts | None:
        """Return the table of one variable from that of a family that has it."""
        if len(key) != 1 or not self._alone.issuperset(key):
            return None
        variable = key[0]
        for axes, table in self._known.items():
            if variable in axes and self._alone.issuperset(axes):
                others = tuple(place for place, axis in enumerate(axes) if axis != variable)
                margin: NDArray[np.int64] = np.asarray(table, dtype=np.int64).sum(axis=others)
                margin.setflags(write=False)
                return margin
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


def _arrange(table: Counts, key: Axes, axes: Axes) -> Counts:
    if key == axes:
        return table
    ordered_table = cast("Counts", np.ascontiguousarray(table.transpose([key.index(axis) for axis in axes])))
    ordered_table.setflags(write=False)
    return ordered_table
