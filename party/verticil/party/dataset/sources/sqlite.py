"""Tables in an SQLite file.

Promises: one read is one transaction, so one state; the file is opened to be read, and an authorizer lets a statement do nothing
else. A value has the text of its own class, and none is refused. (SQLite knows no other types: a truth value is ``1``, a date is
what the program wrote that stored it.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from typing import Final
from urllib.parse import quote

from verticil.party.dataset.sources.reading import Cancel
from verticil.party.dataset.sources.source_table import DatasetRule, TablePart, check_file, unreadable, value_too_long
from verticil.party.dataset.sources.statement import NO_ROWS, select
from verticil.party.dataset.sources.stream import (
    first_that_applies,
    no_such_table,
    not_understood,
    parts_of_rows,
    translate_errors,
    writes,
)
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import STORED_VALUE_BYTES, VALUE_BYTES

_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_SECONDS: Final = 10.0
"""How long another program may keep the file locked."""


def header(rule: DatasetRule, cancel: Cancel) -> tuple[str, ...]:
    """Return the names of the columns; raises as `verticil.party.dataset.sources.open_source.header`."""
    check_file(rule)
    return next(translate_errors(_names(rule, cancel), (sqlite3.Error,), partial(_fault, rule, before_rows=True)))


def parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    """Yield the rows; raises as `verticil.party.dataset.sources.open_source.read_parts`."""
    check_file(rule)
    return translate_errors(_parts(rule, column_names, cancel), (sqlite3.Error,), partial(_fault, rule))


def _names(rule: DatasetRule, cancel: Cancel) -> Iterator[tuple[str, ...]]:
    with closing(_open(rule)) as connection, cancel.by(connection.interrupt):
        yield tuple(
            column[0] for column in connection.execute(select(rule, None, quote=quote_name) + NO_ROWS).description
        )


def _parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    with closing(_open(rule)) as connection, cancel.by(connection.interrupt):
        yield from parts_of_rows(rule, _rows(rule, connection, column_names), column_names)


def _rows(rule: DatasetRule, connection: sqlite3.Connection, column_names: Sequence[str]) -> Iterator[Sequence[object]]:
    """Yield the rows; a value above `VALUE_BYTES` comes as so many zeros, and one above `STORED_VALUE_BYTES` is refused
    here.
    """
    columns = [_expression(quote_name(name)) for name in column_names]
    n_rows = 0
    is_long = False
    try:
        for row in connection.execute(select(rule, columns, quote=quote_name)):
            n_rows += 1
            yield row
    except sqlite3.DataError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_TOOBIG:
            raise
        is_long = True
    if is_long:
        raise value_too_long(rule, *_long_value(rule, connection, column_names, n_rows))


def _long_value(
    rule: DatasetRule, connection: sqlite3.Connection, column_names: Sequence[str], n_rows: int
) -> tuple[str, int]:
    """Return column and row of a value that SQLite does not hand out, behind so many rows or, as Python reads ahead, one more."""
    for row, name in product((n_rows, n_rows + 1), column_names):
        statement = select(rule, [_expression(quote_name(name))], quote=quote_name)
        try:
            connection.execute(f"{statement} LIMIT 1 OFFSET {row}").fetchall()
        except sqlite3.DataError:
            return name, row + 1
    return column_names[0], n_rows + 1


def _expression(name: str) -> str:
    """Write what is asked for a column; a length is in bytes, also of a text that is no UTF-8."""
    return f"CASE WHEN length(CAST({name} AS BLOB)) > {VALUE_BYTES} THEN zeroblob({VALUE_BYTES + 1}) ELSE {name} END"


def _open(rule: DatasetRule) -> sqlite3.Connection:
    place = f"file:{quote(str(rule.path.absolute()))}?mode=ro"
    connection = sqlite3.connect(place, uri=True, isolation_level=None, timeout=_SECONDS)
    connection.text_factory = bytes  # which `text_of` takes for text, whether it is UTF-8 or not
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, STORED_VALUE_BYTES)
    connection.execute("BEGIN")
    connection.set_authorizer(_permission)
    return connection


def quote_name(name: str) -> str:
    """Return what stands in standard SQL's quotation marks and is no column; SQLite takes it for a text."""
    return "`" + name.replace("`", "``") + "`"


def _permission(action: int, *_names: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def _fault(rule: DatasetRule, error: Exception, *, before_rows: bool = False) -> DataFault:
    """Return the fault that an error means; `before_rows`: it came before any row was looked at, so the statement is
    wrong.
    """
    code, message = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF, str(error)
    cases = (
        (code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}, unreadable(rule, "not an SQLite file, or damaged")),
        (
            code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED},
            DataFault(
                "DATA_INTERRUPTED",
                f"{rule.name}: locked for {_SECONDS:g} seconds by a program that writes to it",
                hint="in the journal mode WAL it would not keep others from reading",
            ),
        ),
        (
            code == sqlite3.SQLITE_FULL,
            DataFault("DISK_FULL", f"{rule.name}: no room for what the query sorts", hint="see SQLITE_TMPDIR"),
        ),
        (
            code == sqlite3.SQLITE_CANTOPEN,
            unreadable(
                rule, "cannot be opened", hint="in the journal mode WAL its folder must be writable for this user"
            ),
        ),
        (code == sqlite3.SQLITE_AUTH or "not authorized" in message, writes(rule)),
        (before_rows and "no such table" in message, no_such_table(rule)),
        (before_rows and code == sqlite3.SQLITE_ERROR, not_understood(rule, "sqlite3")),
    )
    return first_that_applies(rule, cases)
