"""What a library yields, as parts of a table; and its errors in our words.

Promises: exceptions of libraries quote rows, so they are looked at, and neither chained nor quoted; no part has more than
`PART_ROWS` rows. Once a row may have been looked at, whatever ends the reading is DATA_INTERRUPTED (or DISK_FULL): a value in
which a query fails, as in a cast or a division, looks to others like a database that is down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from verticil.party.dataset.table import (
    PART_ROWS,
    DatasetRule,
    TablePart,
    TextColumn,
    next_of,
    text_column,
    text_of,
    unreadable,
)
from verticil.shared.errors import DataFault, VerticilError

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


def parts_of_batches(batches: Iterator[pa.RecordBatch], wanted: Sequence[str]) -> Iterator[TablePart]:
    """Batches of Arrow; their columns are found by name."""
    for batch in batches:
        places = {name: batch.schema.get_field_index(name) for name in wanted}
        for start in range(0, batch.num_rows, PART_ROWS):
            piece = batch[start : start + PART_ROWS]
            columns = {name: text_column(piece.column(place)) for name, place in places.items()}
            yield TablePart(n_rows=piece.num_rows, columns=columns)


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
