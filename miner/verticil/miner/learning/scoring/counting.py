"""Counting randomized columns: the tables of all pairs, and the tables of families.

Columns may be memory-mapped; they are read in blocks of records, and only blocks are held. Little work is done with the plain
reference (`shared.numerics.estimation.contingency`), much with the compiled kernel (`groups`): the counts are the same, and a
small study does not wait for a compiler. Every code is checked against its number of categories before it is used as an index.

Which columns are counted together, so that one increment serves several pairs.

The table of a group of columns holds the tables of all its pairs: they are its sums over the other columns. So the pairs of d
columns are covered by groups, as few and as small as possible. With 2^m - 1 columns of which any three may be counted together,
the groups are the lines of a Steiner triple system, and each pair is in exactly one; a few categories each allow larger groups.

A greedy cover, not the smallest one: that is a hard problem. Every pair is taken from the first group that has it.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.scoring.column_groups import count_groups, count_passes
from verticil.miner.learning.scoring.tuning import TUNING
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.estimation import contingency
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign

Method = Literal["auto", "kernel", "plain"]


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
    _starts: tuple[int, ...] = field(init=False, repr=False)
    _sums: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The tables of column a lie together, and within them that of b behind those of the columns between.
        sums = tuple(itertools.accumulate(self.n_states, initial=0))
        sizes = (k * (sums[-1] - sums[a + 1]) for a, k in enumerate(self.n_states))
        object.__setattr__(self, "_sums", sums)
        object.__setattr__(self, "_starts", tuple(itertools.accumulate(sizes, initial=0)))
        if self.counts.shape != (self._starts[-1],):
            raise ValueError(f"counts have shape {self.counts.shape}, expected ({self._starts[-1]},)")
        self.counts.setflags(write=False)

    def offset(self, a: int, b: int) -> int:
        """Return where the table (a, b), a < b, starts in `counts`."""
        return self._starts[a] + self.n_states[a] * (self._sums[b] - self._sums[a + 1])

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Return all pairs (a, b), a < b, in the order of the tables."""
        return itertools.combinations(range(len(self.n_states)), 2)

    def table(self, a: int, b: int) -> NDArray[np.int64]:
        """Return the table of columns `a` and `b`, shape (K_a, K_b); the same memory in either order."""
        low, high = min(a, b), max(a, b)
        offset = self.offset(low, high)
        shape = (self.n_states[low], self.n_states[high])
        table = self.counts[offset : offset + shape[0] * shape[1]].reshape(shape)
        return table if a < b else table.T


def all_pair_tables(
    columns: Sequence[Codes],
    n_states: Sequence[int],
    *,
    method: Method = "auto",
    threads: int | None = None,
    check: Callable[[], None] | None = None,
) -> PairTables:
    """Count every pair of columns.

    The kernel counts groups of columns (`cover`): one increment for a record serves all pairs of its group.

    Args:
        columns: d arrays of n codes each.
        n_states: number of categories of each column.
        method: ``kernel``, ``plain``, or whichever is quicker for this much work.
        threads: of the kernel; None: two where they help. The counts are the same.
        check: called between blocks; may raise.

    Raises:
        ValueError: columns differ in length, a code is not below its number of categories, or the tables have more
            than `TUNING.most_pair_cells` cells.
    """
    n, states = checked_columns(columns, n_states)
    d = len(states)
    cells = (sum(states) ** 2 - sum(k * k for k in states)) // 2
    if cells > TUNING.most_pair_cells:
        raise ValueError(f"the tables of all pairs have {cells} cells, expected at most {TUNING.most_pair_cells}")
    counts = np.zeros(cells, dtype=np.int64)
    tables = PairTables(n_states=states, counts=counts.view(), n_records=n)  # of which only the view is read-only
    if method == "plain" or (method == "auto" and not _is_much(n * math.comb(d, 2))):
        for a, b in tables.pairs():
            if check is not None:
                check()
            table = contingency.pair_table(columns[a], columns[b], states[a], states[b])
            counts[(start := tables.offset(a, b)) : start + table.size] = table.ravel()
    elif n < TUNING.cover_records:
        start = 0
        for some in count_passes(columns, states, list(tables.pairs()), threads=threads, check=check):
            counts[start : start + len(some.counts)] = some.counts
            start += len(some.counts)
    else:
        for group, table in count_groups(columns, states, pair_groups(states), threads=threads, check=check):
            for (a, b), of_pair in _pairs_of(group, table):
                counts[(start := tables.offset(a, b)) : start + of_pair.size] = of_pair.ravel()
    return tables


def family_table(
    columns: Sequence[Codes], n_states: Sequence[int], *, method: Method = "auto", threads: int | None = None
) -> NDArray[np.int64]:
    """Count the combinations of a few columns.

    Args:
        columns: one array of n codes for each axis of the table.
        n_states: number of categories of each.
        method: ``kernel``, ``plain``, or whichever is quicker for this much work.
        threads: of the kernel; None: two where they help.

    Returns:
        counts, shape `n_states`, int64.

    Raises:
        ValueError: columns differ in length, or a code is not below its number of categories.
        DataFault: LEARNING_FAILED, the table has more than `TUNING.most_family_cells` cells.
    """
    (table,) = family_tables(columns, n_states, [tuple(range(len(columns)))], method=method, threads=threads)
    return table


def family_tables(
    columns: Sequence[Codes],
    n_states: Sequence[int],
    families: Iterable[Sequence[int]],
    *,
    method: Method = "auto",
    threads: int | None = None,
    check: Callable[[], None] | None = None,
) -> list[NDArray[np.int64]]:
    """Count the combinations of several families of columns, in one pass.

    Args:
        columns: d arrays of n codes each.
        n_states: number of categories of each.
        families: positions of columns; of each family in the order of its axes.
        method, threads, check: see `all_pair_tables`.

    Returns:
        The table of each family, int64.

    Raises:
        ValueError: columns differ in length, or a code is not below its number of categories.
        DataFault: LEARNING_FAILED, a table has more than `TUNING.most_family_cells` cells.
    """
    n, states = checked_columns(columns, n_states)
    family_list = [tuple(family) for family in families]
    for family in family_list:
        _check_family([states[c] for c in family])
    if method == "kernel" or (method == "auto" and _is_much(n * sum(map(len, family_list)))):
        return [table for _, table in count_groups(columns, states, family_list, threads=threads, check=check)]
    tables = []
    for family in family_list:
        if check is not None:
            check()
        tables.append(contingency.family_table([columns[c] for c in family], [states[c] for c in family]))
    return tables


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
        DataFault: LEARNING_FAILED, the table has more than `TUNING.most_family_cells` cells.
    """
    (table,) = design_tables(columns, [design], method=method)
    return table


def design_tables(
    columns: Mapping[int, Codes],
    designs: Sequence[FamilyDesign],
    *,
    method: Method = "auto",
    threads: int | None = None,
    check: Callable[[], None] | None = None,
) -> list[NDArray[np.int64] | NDArray[np.float64]]:
    """Count the released records of several families; those of whole columns of one code a record in one pass.

    Args:
        columns, designs: see `family_counts`.
        method, threads, check: see `all_pair_tables`.

    Returns:
        The table of each design, see `family_counts`.

    Raises:
        ValueError, DataFault: see `family_counts`.
    """
    tables: dict[int, NDArray[np.int64] | NDArray[np.float64]] = {}
    whole: list[int] = []
    for place, design in enumerate(designs):
        if all(axis.merged is None and axis.channel.codes_per_record == 1 for axis in design.axes):
            whole.append(place)
            continue
        if check is not None:
            check()
        _check_family(design.released_shape)
        if any(axis.channel.codes_per_record > 1 for axis in design.axes):
            tables[place] = contingency.family_counts(columns, design)
        else:
            design_codes = cast("list[Codes]", contingency.design_columns(columns, design))
            tables[place] = family_table(design_codes, design.released_shape, method=method, threads=threads)
    if whole:
        states = {
            unit: entries
            for place in whole
            for unit, entries in zip(designs[place].units, designs[place].released_shape, strict=True)
        }
        units = sorted(states)
        whole_tables = family_tables(
            [columns[unit] for unit in units],
            [states[unit] for unit in units],
            [[units.index(unit) for unit in designs[place].units] for place in whole],
            method=method,
            threads=threads,
            check=check,
        )
        tables.update(zip(whole, whole_tables, strict=True))
    return [tables[place] for place in range(len(designs))]


def checked_columns(columns: Sequence[Codes], n_states: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Check the columns; return the number of records, and the numbers of categories.

    Raises:
        ValueError: there is no column, they differ in length, or are not of uint8 or uint16.
    """
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


def _is_much(increments: int) -> bool:
    """Return whether the kernel is quicker, its loading included."""
    return increments >= (TUNING.next_kernel_increments if "numba" in sys.modules else TUNING.kernel_increments)


def _check_family(shape: Sequence[int]) -> None:
    if (cells := math.prod(shape)) > TUNING.most_family_cells:
        raise DataFault(
            "LEARNING_FAILED",
            f"a family of {' x '.join(map(str, shape))} categories has a table of {cells} cells, expected at most "
            f"{TUNING.most_family_cells}",
            hint="allow fewer parents, or declare fewer categories",
        )


def _pairs_of(group: tuple[int, ...], table: NDArray[np.int64]) -> Iterator[tuple[tuple[int, int], NDArray[np.int64]]]:
    """Yield the tables of all pairs of a group; axes that no later pair needs are summed out on the way."""
    for i in range(len(group) - 1):
        rest = table
        for j in range(len(group) - 1, i, -1):
            yield (group[i], group[j]), rest.sum(axis=tuple(range(1, rest.ndim - 1)))
            rest = rest.sum(axis=-1)
        table = table.sum(axis=0)


def pair_groups(n_states: Sequence[int]) -> list[tuple[int, ...]]:
    """Return groups of columns that cover every pair.

    Args:
        n_states: number of categories of each column.

    Returns:
        Ascending groups of at least two columns; every pair is in one or more. A group of more than two columns has at most
        `TUNING.group_cells` cells; a pair that has more is a group of its own.

    >>> pair_groups([20] * 7)
    [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]
    >>> pair_groups([2, 2, 2, 2])
    [(0, 1, 2, 3)]
    >>> pair_groups([300, 300, 2])
    [(0, 1), (0, 2), (1, 2)]
    """
    # Triples alone waste nothing where d fits them; larger groups overlap but are fewer. The cheaper cover is taken.
    covers = [_greedy(n_states, 3)]
    if math.prod(sorted(n_states)[:4]) <= TUNING.group_cells:
        covers.append(_greedy(n_states, TUNING.group_cells.bit_length()))
    return min(covers, key=lambda groups: sum(_cost(math.prod(n_states[c] for c in group)) for group in groups))


def _cost(cells: float) -> float:
    """Return the cost of counting a record in a table, in increments."""
    return 1.0 + cells / TUNING.double_cost_cells


def _greedy(n_states: Sequence[int], largest: int) -> list[tuple[int, ...]]:
    d = len(n_states)
    states = np.array(n_states, dtype=np.float64)
    open_pairs = ~np.eye(d, dtype=np.bool_)  # pairs that no group has yet, symmetric
    groups: list[tuple[int, ...]] = []
    for a in range(d):
        while open_pairs[a].any():
            group = [a, int(open_pairs[a].argmax())]
            cells, pairs = float(states[group].prod()), 1
            gain = open_pairs[group].sum(axis=0)
            while len(group) < largest:
                new_cells = cells * states
                # The first of the best: in equal columns this is the lexicographic code, a Steiner system for 2^m - 1.
                value = np.where(
                    (gain > 0) & (new_cells <= TUNING.group_cells),
                    (pairs + gain) / (1.0 + new_cells / TUNING.double_cost_cells),
                    0.0,
                )
                value[group] = 0.0
                best = int(value.argmax())
                if value[best] <= pairs / _cost(cells):
                    break
                group.append(best)
                cells, pairs = float(new_cells[best]), pairs + int(gain[best])
                gain += open_pairs[best]
            for member in group:
                open_pairs[member, group] = False
            groups.append(tuple(sorted(group)))
    return groups
