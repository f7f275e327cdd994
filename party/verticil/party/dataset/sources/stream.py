"""What a library yields, as parts of a table; and its errors in our words.

Promises: exceptions of libraries quote rows, so they are looked at, and neither chained nor quoted; no part has more than
`PART_ROWS` rows, or much more than `PART_BYTES` of texts; a value above `VALUE_BYTES` is refused by column and row. Once a row
may have been looked at, whatever ends the reading is DATA_INTERRUPTED (or DISK_FULL): a value in which a query fails, as in a
cast or a division, looks to others like a database that is down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from verticil.party.dataset.sources.source_table import (
    PART_ROWS,
    DatasetRule,
    TablePart,
    TextColumn,
    next_of,
    unreadable,
    value_too_long,
)
from verticil.party.dataset.sources.texts import byte_lengths, first_long, text_column, text_of
from verticil.shared.core.errors import DataFault, VerticilError
from verticil.shared.documents.foreign_files.limits import PART_BYTES, VALUE_BYTES

T = TypeVar("T")
ARROW_ERRORS: Final = (pa.ArrowException, ValueError, OSError)


def translate_errors(
    items: Iterator[T], errors: tuple[type[Exception], ...], translate: Callable[[Exception], VerticilError]
) -> Iterator[T]:
    """Yield the items of a library, with its errors as ours.

    Args:
        items: of a library.
        errors: what it may raise.
        translate: what each of them means here.

    Raises:
        VerticilError: as `translate` says, without a chained exception.
    """

    def next_item() -> list[T] | VerticilError:
        try:
            return next_of(items)
        except errors as error:
            return translate(error)

    while True:
        item = next_item()
        if isinstance(item, VerticilError):
            raise item
        if not item:
            return
        yield item[0]


def parts_of_batches(
    rule: DatasetRule, batches: Iterator[pa.RecordBatch], column_names: Sequence[str]
) -> Iterator[TablePart]:
    """Batches of Arrow; their columns are found by name.

    Args:
        rule: the table.
        batches: of a library.
        column_names: names of the columns.

    Raises:
        DataFault: DATA_UNREADABLE, a value is longer than `VALUE_BYTES`.
    """
    n_before = 0
    for batch in batches:
        own = batch.select(list(column_names))
        for start in range(0, batch.num_rows, PART_ROWS):
            piece = own[start : start + PART_ROWS]
            lengths = [byte_lengths(column) for column in piece.columns]
            for name, column, bytes_per_row in zip(column_names, piece.columns, lengths, strict=True):
                if (row := first_long(column, bytes_per_row)) is not None:
                    raise value_too_long(rule, name, n_before + start + row + 1)
            for part in _cut(piece, lengths):
                columns = {name: text_column(column) for name, column in zip(column_names, part.columns, strict=True)}
                yield TablePart(n_rows=part.num_rows, columns=columns)
        n_before += batch.num_rows


def merge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches until they have `PART_ROWS` rows or `PART_BYTES`."""
    waiting_batches: list[pa.RecordBatch] = []
    for batch in batches:
        waiting_batches.append(batch)
        if sum(map(len, waiting_batches)) >= PART_ROWS or sum(one.nbytes for one in waiting_batches) >= PART_BYTES:
            yield from _merge_batches(waiting_batches)
            waiting_batches = []
    yield from _merge_batches(waiting_batches)


def _merge_batches(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    return (
        batches
        if len(batches) < 2
        else pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    )


def _cut(piece: pa.RecordBatch, lengths: Sequence[NDArray[np.int64] | None]) -> Iterator[pa.RecordBatch]:
    """Cut rows into pieces of some `PART_BYTES` of texts; a column with a dictionary costs no more for more rows."""
    dense = [
        bytes_per_row
        for column, bytes_per_row in zip(piece.columns, lengths, strict=True)
        if bytes_per_row is not None and not pa.types.is_dictionary(column.type)
    ]
    if sum(int(bytes_per_row.sum()) for bytes_per_row in dense) <= PART_BYTES:
        yield piece
        return
    ends = np.cumsum(np.sum(dense, axis=0))
    start = n_done = 0
    while start < len(piece):
        end = max(start + 1, int(np.searchsorted(ends, n_done + PART_BYTES, side="right")))
        yield piece[start:end]
        start, n_done = end, int(ends[end - 1])


def parts_of_rows(rule: DatasetRule, rows: Iterator[Sequence[Any]], column_names: Sequence[str]) -> Iterator[TablePart]:
    """Rows of Python values, in the order of `column_names`, as parts of the table.

    Raises:
        DataFault: DATA_UNREADABLE, a value is longer than `VALUE_BYTES`.
    """
    waiting_rows: list[Sequence[Any]] = []
    n_before = n_bytes = 0
    while some := list(islice(rows, min(_ROWS_AT_ONCE, PART_ROWS - len(waiting_rows)))):
        for name, column in zip(column_names, zip(*some, strict=True), strict=True):
            sizes = [len(value) if isinstance(value, str | bytes | bytearray | memoryview) else 0 for value in column]
            if max(sizes) * 4 > VALUE_BYTES:  # at most 4 bytes a character
                for place, value in enumerate(column):
                    if _n_bytes(value) > VALUE_BYTES:
                        raise value_too_long(rule, name, n_before + place + 1)
            n_bytes += sum(sizes)
        waiting_rows += some
        n_before += len(some)
        if len(waiting_rows) >= PART_ROWS or n_bytes >= PART_BYTES:
            yield part_of_rows(waiting_rows, column_names)
            waiting_rows, n_bytes = [], 0
    if waiting_rows:
        yield part_of_rows(waiting_rows, column_names)


_ROWS_AT_ONCE: Final = 64
"""Rows that are asked for before their values are looked at."""


def _n_bytes(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return len(value) if isinstance(value, bytes | bytearray | memoryview) else 0


def part_of_rows(rows: Sequence[Sequence[Any]], column_names: Sequence[str]) -> TablePart:
    """Rows of Python values, in the order of `column_names`; each value by its own type (`table.text_of`)."""
    columns = {
        name: _text_column(_texts(column)) for name, column in zip(column_names, zip(*rows, strict=True), strict=True)
    }
    return TablePart(n_rows=len(rows), columns=columns)


def _texts(values: Sequence[Any]) -> Sequence[str]:
    kinds = set(map(type, values))
    if kinds == {str}:
        return values
    if kinds == {bytes}:
        # At once; no byte that is none of UTF-8 takes the separator for its own.
        texts = b"\0".join(values).decode("utf-8", "surrogateescape").split("\0")
        if len(texts) == len(values):
            return texts
    return list(map(str if kinds == {int} else text_of, values))


def _text_column(texts: Sequence[str]) -> TextColumn:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    index = np.fromiter(map(places.__getitem__, texts), dtype=np.int32, count=len(texts))
    return TextColumn(distinct=tuple(places), index=index)


# ---- what may be wrong with a database


def first_that_applies(rule: DatasetRule, cases: Iterable[tuple[bool, DataFault]]) -> DataFault:
    """Return the first fault whose condition holds; else that the database ended the reading."""
    hint = "nothing of it is used; it is read anew"
    default_fault = DataFault("DATA_INTERRUPTED", f"{rule.name}: the database ended the reading", hint=hint)
    return next((fault for applies, fault in cases if applies), default_fault)


def no_such_table(rule: DatasetRule) -> DataFault:
    """Return the fault of a statement whose table is not there."""
    hint = "see table or query in [dataset.NAME] of party.toml"
    return DataFault("DATA_FILE_MISSING", f"{rule.name}: a table that is named is not in the database", hint=hint)


def writes(rule: DatasetRule) -> DataFault:
    """Return the fault of a statement that does more than read."""
    return unreadable(rule, "the query does more than read, expected one that only reads")


def not_understood(rule: DatasetRule, program: str, *, code: str = "") -> DataFault:
    """Return the fault of a statement that the database does not understand; `program`: where a person may try it."""
    problem = f"the database does not understand the query{code and f' ({code})'}"
    return unreadable(rule, problem, hint=f"try it in {program}, between parentheses behind FROM")
