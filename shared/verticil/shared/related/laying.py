"""Rows of people put into slots, as codes.

Rows of a person are sorted by the order column. Rows with the same value there are sorted by their categories, so that the order
of the source does not matter; rows without a value come last. Without an order column they stay as the source has them. Of more
rows than slots the first, the last, or some by a secret are kept. Nothing here depends on what others ask for, and nothing is
refused: what could not be laid is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Bools, Codes, Floats
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.related.structure import slots_of
from verticil.shared.related.tables import RelatedTable

Places = NDArray[np.intp]
Tags = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows of a related table. Secret.

    Attributes:
        people: (m,) the number of each row's person, from 0; -1: the person is not in the table of people.
        codes: for each column (m,), as a row has it; of the order column, too.
        undeclared: for some columns (m,): the rows whose value has no category.
        order: (m,) values of the order column; NaN: none, as where a value has no bin or point. None: the table has no order.
    """

    people: Places = field(repr=False)
    codes: Mapping[str, Codes] = field(repr=False)
    undeclared: Mapping[str, Bools] = field(repr=False)
    order: Floats | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """Rows in slots. Secret; the numbers are for who holds the table.

    Attributes:
        codes: for each column of `RelatedTable.names` (n,): a code for each person.
        undeclared: for some of them (n,): the people who get a category drawn.
        n_rows: rows of the source.
        n_beyond: rows that found no slot, of people with more than `max_rows`.
        n_people_beyond: those people.
        n_unknown: rows whose person is not in the table of people.
        n_without: people without a row.
        n_unordered: rows without a value in the order column.
        n_tied: rows with the value of the order column that the person's row before has.
        n_ragged: lines of the source that are no rows: they have too many or too few fields.
        n_undeclared: for some columns, but for that of the order: the rows whose value has no category.
    """

    codes: Mapping[str, Codes] = field(repr=False)
    undeclared: Mapping[str, Bools] = field(repr=False)
    n_rows: int
    n_beyond: int
    n_people_beyond: int
    n_unknown: int
    n_without: int
    n_unordered: int
    n_tied: int
    n_ragged: int
    n_undeclared: Mapping[str, int]


def lay(table: RelatedTable, schema: Schema, rows: Rows, tags: Tags, *, key: bytes) -> Laid:
    """Put rows into slots.

    Args:
        table: the table.
        schema: has the slots.
        rows: of any people, in any order.
        tags: (n, w) bytes that name each person at this site.
        key: secret of the site, 16 to 64 bytes, by which rows are kept at random.
    """
    known = np.flatnonzero(rows.people >= 0)
    known = known[_sorted(table, rows, known)]
    laying = Laying(table, schema, tags, key=key, open_columns=rows.undeclared)
    laying.take(
        Rows(
            people=rows.people[known],
            codes={name: codes[known] for name, codes in rows.codes.items()},
            undeclared={name: is_open[known] for name, is_open in rows.undeclared.items()},
            order=None if rows.order is None else rows.order[known],
        )
    )
    n_unordered = 0 if rows.order is None else int(np.isnan(rows.order).sum())
    n_undeclared = {name: int(is_open.sum()) for name, is_open in rows.undeclared.items()}
    return laying.finish(len(rows.people), n_unordered=n_unordered, n_undeclared=n_undeclared)


def _sorted(table: RelatedTable, rows: Rows, some: Places) -> Places:
    """Return the order of some rows: by person, then as the module says."""
    if rows.order is None:
        return np.argsort(rows.people[some], kind="stable")
    ties: list[NDArray[np.generic]] = [rows.codes[column][some] for column in reversed(table.columns)]
    ties += [rows.undeclared[column][some] for column in reversed(table.columns) if column in rows.undeclared]
    return np.lexsort([*ties, rows.order[some], rows.people[some]])


class Laying:
    """Rows that are put into slots some people after the other, so that not all rows need be there at once.

    Args:
        table, schema, tags, key: as for `lay`.
        open_columns: columns of the table that have values without a category.
    """

    def __init__(
        self, table: RelatedTable, schema: Schema, tags: Tags, *, key: bytes, open_columns: Collection[str]
    ) -> None:
        self._table, self._schema, self._tags, self._key = table, schema, tags, key
        self._slots, n_people = slots_of(table, schema), len(tags)
        self._codes = {table.count: np.zeros(n_people, schema[self._slots.count].code_dtype)}
        self._undeclared: dict[str, Bools] = {}
        for columns, empty in zip(self._slots.columns, self._slots.empty, strict=True):
            for column, code, name in zip(columns, empty, table.columns, strict=True):
                variable = schema[column]
                self._codes[variable.name] = np.full(n_people, code, dtype=variable.code_dtype)
                if name in open_columns:
                    self._undeclared[variable.name] = np.zeros(n_people, np.bool_)
        self._n_taken = self._n_beyond = self._n_people_beyond = self._n_with = self._n_tied = 0

    def take(self, rows: Rows) -> None:
        """Lay the rows of some people: all of theirs, of nobody else, by person and then in the order that the module says."""
        whose, first, totals = np.unique(rows.people, return_index=True, return_counts=True)
        place, most = np.repeat(np.arange(len(whose)), totals), self._table.max_rows
        if self._table.keep == "random":
            is_kept = _by_lot(totals, first, most, self._tags[whose], self._key)
        else:
            rank = np.arange(len(place)) - first[place]
            start = np.maximum(totals - most, 0)[place] if self._table.keep == "last" else 0
            is_kept = (rank >= start) & (rank < start + most)
        counts = np.minimum(totals, most)
        self._codes[self._table.count][whose] = counts
        kept, place = np.flatnonzero(is_kept), place[is_kept]
        self._fill(rows, kept=kept, number=np.arange(len(kept)) - (np.cumsum(counts) - counts)[place])
        self._n_taken += len(rows.people)
        self._n_with += len(whose)
        self._n_beyond += int(totals.sum() - counts.sum())
        self._n_people_beyond += int(np.count_nonzero(totals > most))
        if rows.order is not None:
            is_same = (rows.people[1:] == rows.people[:-1]) & (rows.order[1:] == rows.order[:-1])
            self._n_tied += int(np.count_nonzero(is_same))

    def finish(self, n_rows: int, *, n_unordered: int, n_undeclared: Mapping[str, int], n_ragged: int = 0) -> Laid:
        """Return what was laid.

        Args:
            n_rows: rows of the source.
            n_unordered: those of them without a value in the order column.
            n_undeclared: by column, those of them whose value has no category.
            n_ragged: lines of the source that are no rows.
        """
        return Laid(
            codes=self._codes,
            undeclared=self._undeclared,
            n_rows=n_rows,
            n_beyond=self._n_beyond,
            n_people_beyond=self._n_people_beyond,
            n_unknown=n_rows - self._n_taken,
            n_without=len(self._tags) - self._n_with,
            n_unordered=n_unordered,
            n_tied=self._n_tied,
            n_ragged=n_ragged,
            n_undeclared={name: n for name, n in n_undeclared.items() if n and name != self._table.order},
        )

    def _fill(self, rows: Rows, *, kept: Places, number: Places) -> None:
        """Write the columns of all slots, and where a category is to be drawn.

        Args:
            rows: of some people.
            kept, number: the rows that are laid, and of each the slot, from 0.
        """
        table, schema = self._table, self._schema
        gaps = np.full(len(kept), np.nan)
        if rows.order is not None:
            gaps[1:] = np.diff(rows.order[kept])
        for slot, columns in enumerate(self._slots.columns):
            inside = number == slot
            which = kept[inside]
            whose = rows.people[which]
            for place, (column, name) in enumerate(zip(columns, table.columns, strict=True)):
                variable = schema[column]
                row_codes = rows.codes[name][which]
                if name == table.order and slot > 0:
                    n_valued = schema[self._slots.columns[0][place]].n_valued
                    row_codes = _gap_codes(variable, gaps[inside], row_codes, n_valued)
                self._codes[variable.name][whose] = row_codes
                if variable.name in self._undeclared:
                    self._undeclared[variable.name][whose] = rows.undeclared[name][which]


def _by_lot(totals: Places, first: Places, most: int, tags: Tags, key: bytes) -> Bools:
    """Return which sorted rows are kept: of each person those with the lowest lots, which a secret draws.

    Every row gets a lot, also where all are kept: how long this takes says nothing about how many rows a person has.
    """
    n_rows, person = int(totals.sum()), np.repeat(np.arange(len(totals)), totals)
    rank = np.arange(n_rows) - first[person]
    named = np.concatenate([tags[person], rank.astype(">u8").view(np.uint8).reshape(-1, 8)], axis=1)
    width, packed, empty = named.shape[1], named.tobytes(), hashlib.blake2b(key=key, digest_size=8)
    drawn = bytearray()
    for start in range(0, len(packed), width):
        lot = empty.copy()
        lot.update(packed[start : start + width])
        drawn += lot.digest()
    is_kept = np.empty(n_rows, np.bool_)
    is_kept[np.lexsort([np.frombuffer(drawn, ">u8"), person])] = rank < most
    return is_kept


def _gap_codes(variable: Variable, gaps: Floats, row_codes: Codes, n_valued: int) -> Codes:
    """Return the categories of the time since the row before.

    Args:
        variable: the column of the gap.
        gaps: (r,) not negative; NaN: the row has no value in the order column.
        row_codes: (r,) codes of the order column. Its words (other, missing) stand behind its `n_valued` values, as they stand
            behind the bins of the gap.
        n_valued: of the order column.
    """
    has_gap = ~np.isnan(gaps)
    edges = np.asarray(variable.bins, dtype=np.float64)
    codes = np.clip(np.searchsorted(edges, np.where(has_gap, gaps, 0.0), side="right") - 1, 0, variable.n_bins - 1)
    words = variable.n_bins + np.maximum(row_codes.astype(np.int64) - n_valued, 0)
    return np.where(has_gap, codes, words).astype(variable.code_dtype)
