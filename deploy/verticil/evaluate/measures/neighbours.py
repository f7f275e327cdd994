"""The published records nearest to known ones, over categories and numbers at once.

The distance is Gower's (1971): a mean over the columns, in which a category differs by 1 or not at all and two numbers by a share
of the column's spread. The share is that of the published numbers that lie between the two, so that one extreme number does
not make all others alike. Missing differs by 1 from every number, and not at all from missing.

Shares are rounded to `UNITS` steps, so that distances are sums of whole numbers: equal ones are equal, and a column can be
subtracted again. Everything is computed in blocks, for as many records as there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.evaluate.measures.coded import CodedTable
from verticil.shared.core.arrays import Bools, Codes, Floats, Ints

UNITS: Final = 2048
"""Of a whole difference in one column; fewer where a table has more than 31 columns."""
_MOST_KINDS: Final = 13  # of missing that are told apart, so that places fit 16 bits
_CELLS: Final = 400_000  # distances at a time: they stay in the processor's cache

Units = NDArray[np.uint16]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Records as distances need them.

    Attributes:
        table: the records.
        places: of a column of numbers (n,), int16: the number's place among the published ones, 0 to `units`; above it missing.
        missing: whether a column of numbers lacks any, in these records or in the published ones.
        units: of a whole difference.
    """

    table: CodedTable
    places: tuple[NDArray[np.int16] | None, ...]
    missing: tuple[bool, ...]
    units: int

    @property
    def n(self) -> int:
        """Number of records of the table."""
        return self.table.n


def points(synthetic: CodedTable, *others: CodedTable) -> list[Points]:
    """Return records on one scale, the published ones', which comes first.

    Args:
        synthetic: what numbers are placed among.
        others: tables with the same columns.

    >>> numbers = np.array([1.0, 2, 3, 1e9])
    >>> table = CodedTable(names=("a",), codes=(np.zeros(4, dtype=np.uint8),), n_states=(1,), values=(numbers,))
    >>> points(table)[0].places[0].tolist()  # shares 1/8, 3/8, 5/8, 7/8
    [256, 768, 1280, 1792]
    """
    units = max(1, min(UNITS, np.iinfo(np.uint16).max // len(synthetic.names)))
    tables = (synthetic, *others)
    scales = [None if values is None else np.sort(values[~np.isnan(values)]) for values in synthetic.values]
    places = [
        tuple(
            None if scale is None or values is None else _place_numbers(values, codes, scale, states, units)
            for scale, values, codes, states in zip(scales, table.values, table.codes, table.n_states, strict=True)
        )
        for table in tables
    ]
    missing = tuple(
        any(column is not None and bool((column > units).any()) for column in columns)
        for columns in zip(*places, strict=True)
    )
    return [
        Points(table=table, places=columns, missing=missing, units=units)
        for table, columns in zip(tables, places, strict=True)
    ]


def _place_numbers(values: Floats, codes: Codes, scale: Floats, n_states: int, units: int) -> NDArray[np.int16]:
    """Return the share of the scale below a number, of what equals it half; kinds of missing are a whole difference apart."""
    below, up_to = (np.searchsorted(scale, values, side=side) for side in ("left", "right"))
    shares = (below + up_to) / max(2 * len(scale), 1)
    kinds = np.minimum(n_states - 1 - codes.astype(np.int64), _MOST_KINDS)
    return np.where(np.isnan(values), (2 + kinds) * units, np.rint(shares * units)).astype(np.int16)


class Distances:
    """Distances of some records to the published ones, in units, a block of records at a time."""

    def __init__(self, records: Points, synthetic: Points) -> None:
        self._asked, self._published, self.units = records, synthetic, records.units
        self.n_columns = len(records.table.names)
        step = max(1, _CELLS // synthetic.n)
        self.blocks = [slice(start, min(start + step, records.n)) for start in range(0, records.n, step)]
        shape = (min(step, records.n), synthetic.n)
        self._differ, self._apart = np.empty(shape, dtype=np.bool_), np.empty(shape, dtype=np.int16)

    def total(self, block: slice, columns: Sequence[int]) -> Units:
        """Return (records of the block, published records), the sum over some columns."""
        total = np.zeros((block.stop - block.start, self._published.n), dtype=np.uint16)
        differences = np.zeros(total.shape, dtype=np.uint8)
        categories = [column for column in columns if self._asked.places[column] is None]
        for number, column in enumerate(categories, 1):
            differences += self._differing(block, column).view(np.uint8)
            if number % 255 == 0 or number == len(categories):
                total += np.multiply(differences, self.units, dtype=np.uint16)
                differences[:] = 0
        for column in columns:
            if self._asked.places[column] is not None:
                total += self._between(block, column)
        return total

    def without(self, total: Units, block: slice, column: int) -> Units:
        """Take one of its columns away from a sum."""
        if self._asked.places[column] is not None:
            return total - self._between(block, column)
        return total - np.multiply(self._differing(block, column), self.units, dtype=np.uint16)

    def _differing(self, block: slice, column: int) -> Bools:
        out = self._differ[: block.stop - block.start]
        mine, theirs = (points.table.codes[column] for points in (self._asked, self._published))
        return np.not_equal(mine[block, None], theirs[None, :], out=out)

    def _between(self, block: slice, column: int) -> Units:
        out = self._apart[: block.stop - block.start]
        mine, theirs = (points.places[column] for points in (self._asked, self._published))
        assert mine is not None
        assert theirs is not None
        np.abs(np.subtract(mine[block, None], theirs[None, :], out=out), out=out)
        if self._asked.missing[column]:
            np.minimum(out, np.int16(self.units), out=out)
        return out.view(np.uint16)


def nearest(records: Points, synthetic: Points) -> Ints:
    """Return (n,), the distance to the nearest published record, in units, summed over the columns."""
    distances = Distances(records, synthetic)
    nearest_distance = np.empty(records.n, dtype=np.int64)
    for block in distances.blocks:
        nearest_distance[block] = distances.total(block, range(distances.n_columns)).min(axis=1)
    return nearest_distance


def find_links(records: Points, synthetic: Points, one_side: Sequence[int]) -> Bools:
    """Return whether a published record is among the nearest by some columns and by all others alike, too.

    The linkability of Giomi, Boenisch, Wehmeyer & Tasnadi (2023): who has some columns of a person, and the others of unknown
    people, takes two parts for one person's where the same published record is nearest to both. Where several are equally
    near, one in common is enough.

    Args:
        records, synthetic: records.
        one_side: positions of the columns of one side; the others are the other side's.

    Returns:
        (n,).
    """
    distances = Distances(records, synthetic)
    right = [column for column in range(distances.n_columns) if column not in set(one_side)]
    is_linked = np.empty(records.n, dtype=np.bool_)
    for block in distances.blocks:
        both = np.ones((block.stop - block.start, synthetic.n), dtype=np.bool_)
        for columns in (one_side, right):
            total = distances.total(block, columns)
            both &= total == total.min(axis=1, keepdims=True)
        is_linked[block] = both.any(axis=1)
    return is_linked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guess:
    """What the nearest published records say of one column of each record, which they were not chosen by.

    Attributes:
        column: its position.
        counts: (n, K), how many of the nearest have each category.
        first: (n,), place of the first of them; -1: none has a category that is possible.
    """

    column: int
    counts: Ints
    first: Ints


def guesses(records: Points, synthetic: Points, possible: Sequence[Bools | None]) -> Iterator[Guess]:
    """Yield what the records nearest by all other columns say of every column.

    Args:
        records, synthetic: records.
        possible: of each column (n, K), which categories each record can have, as far as rules say; None: all.

    Yields:
        One of each column, in their order.
    """
    distances = Distances(records, synthetic)
    n_columns, states = distances.n_columns, records.table.n_states
    counts = [np.zeros((records.n, size), dtype=np.int64) for size in states]
    first = np.full((n_columns, records.n), -1, dtype=np.int64)
    for block in distances.blocks:
        total = distances.total(block, range(n_columns))
        size = len(total)
        for column in range(n_columns):
            rest = distances.without(total, block, column)
            hits = np.flatnonzero(rest == rest.min(axis=1, keepdims=True))
            row, record = hits // synthetic.n, hits % synthetic.n
            category = synthetic.table.codes[column][record].astype(np.int64)
            if (mask := possible[column]) is not None:
                is_possible = mask[block][row, category]
                row, record, category = row[is_possible], record[is_possible], category[is_possible]
            tables = np.bincount(row * states[column] + category, minlength=size * states[column])
            counts[column][block] = tables.reshape(size, states[column])
            rows, at = np.unique(row, return_index=True)
            first[column, block.start + rows] = record[at]
    for column in range(n_columns):
        yield Guess(column=column, counts=counts[column], first=first[column])
