"""Rows of people put into slots, as codes.

Rows of a person are sorted by the order column. Rows with the same value there are sorted by their categories, so that the order
of the source does not matter; rows without a value come last. Without an order column they stay as the source has them. Of more
rows than slots the first, the last, or some by a secret are kept. Nothing here depends on what others ask for, and nothing is
refused: what could not be laid is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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
    """

    codes: Mapping[str, Codes] = field(repr=False)
    undeclared: Mapping[str, Bools] = field(repr=False)
    n_rows: int
    n_beyond: int
    n_people_beyond: int
    n_unknown: int
    n_without: int
    n_unordered: int


def lay(table: RelatedTable, schema: Schema, rows: Rows, tags: Tags, *, key: bytes) -> Laid:
    """Put rows into slots.

    Args:
        table: the table.
        schema: has the slots.
        rows: of any people, in any order.
        tags: (n, w) bytes that name each person at this site.
        key: secret of the site, 16 to 64 bytes, by which rows are kept at random.
    """
    n_people = len(tags)
    known = np.flatnonzero(rows.people >= 0)
    known = known[_sorted(table, rows, known)]
    people = rows.people[known]
    totals = np.bincount(people, minlength=n_people)
    first = np.cumsum(totals) - totals
    if table.keep == "random":
        is_kept = _by_lot(totals, first, table.max_rows, tags, key)
    else:
        rank = np.arange(len(known)) - first[people]
        start = np.maximum(totals - table.max_rows, 0)[people] if table.keep == "last" else 0
        is_kept = (rank >= start) & (rank < start + table.max_rows)
    kept, people = known[is_kept], people[is_kept]
    counts = np.minimum(totals, table.max_rows)
    number = np.arange(len(kept)) - (np.cumsum(counts) - counts)[people]
    codes, undeclared = _filled(table, schema, rows, kept=kept, people=people, number=number, n_people=n_people)
    count = schema[schema.index(table.count)]
    return Laid(
        codes={table.count: counts.astype(count.code_dtype), **codes},
        undeclared=undeclared,
        n_rows=len(rows.people),
        n_beyond=int(totals.sum() - counts.sum()),
        n_people_beyond=int(np.count_nonzero(totals > table.max_rows)),
        n_unknown=len(rows.people) - int(totals.sum()),
        n_without=int(np.count_nonzero(totals == 0)),
        n_unordered=0 if rows.order is None else int(np.isnan(rows.order).sum()),
    )


def _sorted(table: RelatedTable, rows: Rows, some: Places) -> Places:
    """Return the order of some rows: by person, then as the module says."""
    if rows.order is None:
        return np.argsort(rows.people[some], kind="stable")
    ties: list[NDArray[np.generic]] = [rows.codes[column][some] for column in reversed(table.columns)]
    ties += [rows.undeclared[column][some] for column in reversed(table.columns) if column in rows.undeclared]
    return np.lexsort([*ties, rows.order[some], rows.people[some]])


def _by_lot(totals: Places, first: Places, most: int, tags: Tags, key: bytes) -> Bools:
    """Return which sorted rows are kept: of people with too many those with the lowest lots, which a secret draws."""
    is_kept = np.ones(int(totals.sum()), np.bool_)
    for person in np.flatnonzero(totals > most).tolist():
        tag, n_rows = tags[person].tobytes(), int(totals[person])
        lots = [hashlib.blake2b(tag + row.to_bytes(8, "big"), key=key, digest_size=8).digest() for row in range(n_rows)]
        kept = sorted(range(n_rows), key=lots.__getitem__)[:most]
        is_kept[first[person] : first[person] + n_rows] = np.isin(np.arange(n_rows), kept)
    return is_kept


def _filled(
    table: RelatedTable,
    schema: Schema,
    rows: Rows,
    *,
    kept: Places,
    people: Places,
    number: Places,
    n_people: int,
) -> tuple[dict[str, Codes], dict[str, Bools]]:
    """Return the columns of all slots, and where a category is to be drawn.

    Args:
        kept: rows that are laid.
        people, number: of each of them the person and the slot, from 0.
    """
    slots = slots_of(table, schema)
    gaps = np.full(len(kept), np.nan)
    if rows.order is not None:
        gaps[1:] = np.diff(rows.order[kept])
    codes, undeclared = dict[str, Codes](), dict[str, Bools]()
    for slot, columns in enumerate(slots.columns):
        inside = number == slot
        whose, which = people[inside], kept[inside]
        for place, (column, empty, name) in enumerate(zip(columns, slots.empty[slot], table.columns, strict=True)):
            variable = schema[column]
            own = np.full(n_people, empty, dtype=variable.code_dtype)
            row_codes = rows.codes[name][which]
            if name == table.order and slot > 0:
                row_codes = _gap_codes(variable, gaps[inside], row_codes, schema[slots.columns[0][place]].n_valued)
            own[whose] = row_codes
            codes[variable.name] = own
            if name in rows.undeclared:
                undeclared[variable.name] = np.zeros(n_people, np.bool_)
                undeclared[variable.name][whose] = rows.undeclared[name][which]
    return codes, undeclared


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
