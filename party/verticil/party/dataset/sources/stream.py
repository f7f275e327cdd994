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


def guarded(
    items: Iterator[T], errors: tuple[type[Exception], ...], told: Callable[[Exception], VerticilError]
) -> Iterator[T]:
    """The same items.

    Args:
        items: of a library.
        errors: what it may raise.
        told: what each of them means here.

    Raises:
        VerticilError: as `told` says, without a chained exception.
    """

    def next_item() -> list[T] | VerticilError:
        try:
            return next_of(items)
        except errors as error:
            return told(error)

    while True:
        found = next_item()
        if isinstance(found, VerticilError):
            raise found
        if not found:
            return
        yield found[0]


def parts_of_batches(
    rule: DatasetRule, batches: Iterator[pa.RecordBatch], wanted: Sequence[str]
) -> Iterator[TablePart]:
    """Batches of Arrow; their columns are found by name.

    Args:
        rule: the table.
        batches: of a library.
        wanted: names of the columns.

    Raises:
        DataFault: DATA_UNREADABLE, a value is longer than `VALUE_BYTES`.
    """
    n_before = 0
    for batch in batches:
        own = batch.select(list(wanted))
        for start in range(0, batch.num_rows, PART_ROWS):
            piece = own[start : start + PART_ROWS]
            lengths = [byte_lengths(column) for column in piece.columns]
            for name, column, found in zip(wanted, piece.columns, lengths, strict=True):
                if (row := first_long(column, found)) is not None:
                    raise value_too_long(rule, name, n_before + start + row + 1)
            for part in _cut(piece, lengths):
                columns = {name: text_column(column) for name, column in zip(wanted, part.columns, strict=True)}
                yield TablePart(n_rows=part.num_rows, columns=columns)
        n_before += batch.num_rows


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches until they have `PART_ROWS` rows or `PART_BYTES`."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= PART_ROWS or sum(one.nbytes for one in held) >= PART_BYTES:
            yield from _joined(held)
            held = []
    yield from _joined(held)


def _joined(held: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    return held if len(held) < 2 else pa.Table.from_batches(held).unify_dictionaries().combine_chunks().to_batches()


def _cut(piece: pa.RecordBatch, lengths: Sequence[NDArray[np.int64] | None]) -> Iterator[pa.RecordBatch]:
    """Cut rows into pieces of some `PART_BYTES` of texts; a column with a dictionary costs no more for more rows."""
    dense = [
        found
        for column, found in zip(piece.columns, lengths, strict=True)
        if found is not None and not pa.types.is_dictionary(column.type)
    ]
    if sum(int(found.sum()) for found in dense) <= PART_BYTES:
        yield piece
        return
    ends = np.cumsum(np.sum(dense, axis=0))
    start = done = 0
    while start < len(piece):
        end = max(start + 1, int(np.searchsorted(ends, done + PART_BYTES, side="right")))
        yield piece[start:end]
        start, done = end, int(ends[end - 1])


def parts_of_rows(rule: DatasetRule, rows: Iterator[Sequence[Any]], wanted: Sequence[str]) -> Iterator[TablePart]:
    """Rows of Python values, in the order of `wanted`, as parts of the table.

    Raises:
        DataFault: DATA_UNREADABLE, a value is longer than `VALUE_BYTES`.
    """
    held: list[Sequence[Any]] = []
    n_before = n_bytes = 0
    while some := list(islice(rows, min(_ROWS_AT_ONCE, PART_ROWS - len(held)))):
        for name, column in zip(wanted, zip(*some, strict=True), strict=True):
            sizes = [len(value) if isinstance(value, str | bytes | bytearray | memoryview) else 0 for value in column]
            if max(sizes) * 4 > VALUE_BYTES:  # at most 4 bytes a character
                for place, value in enumerate(column):
                    if _n_bytes(value) > VALUE_BYTES:
                        raise value_too_long(rule, name, n_before + place + 1)
            n_bytes += sum(sizes)
        held += some
        n_before += len(some)
        if len(held) >= PART_ROWS or n_bytes >= PART_BYTES:
            yield part_of_rows(held, wanted)
            held, n_bytes = [], 0
    if held:
        yield part_of_rows(held, wanted)


_ROWS_AT_ONCE: Final = 64
"""Rows that are asked for before their values are looked at."""


def _n_bytes(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return len(value) if isinstance(value, bytes | bytearray | memoryview) else 0


def part_of_rows(rows: Sequence[Sequence[Any]], wanted: Sequence[str]) -> TablePart:
    """Rows of Python values, in the order of `wanted`; each value by its own type (`table.text_of`)."""
    columns = {name: _text_column(_texts(column)) for name, column in zip(wanted, zip(*rows, strict=True), strict=True)}
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
    """The first fault whose condition holds; else that the reading was ended."""
    hint = "nothing of it is used; it is read anew"
    ended = DataFault("DATA_INTERRUPTED", f"{rule.name}: the database ended the reading", hint=hint)
    return next((fault for applies, fault in cases if applies), ended)


def no_such_table(rule: DatasetRule) -> DataFault:
    """A table in the statement is not there."""
    hint = "see table or query in [dataset.NAME] of party.toml"
    return DataFault("DATA_FILE_MISSING", f"{rule.name}: a table that is named is not in the database", hint=hint)


def writes(rule: DatasetRule) -> DataFault:
    """The statement does more than read."""
    return unreadable(rule, "the query does more than read, expected one that only reads")


def not_understood(rule: DatasetRule, program: str, *, code: str = "") -> DataFault:
    """The statement is none for this database; `program`: where a person may try it."""
    problem = f"the database does not understand the query{code and f' ({code})'}"
    return unreadable(rule, problem, hint=f"try it in {program}, between parentheses behind FROM")
