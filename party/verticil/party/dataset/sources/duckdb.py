"""Tables in a DuckDB file, or in what a view in it reads.

Promises: one read is one statement, so one state; the file is opened to be read. A query may use `MEMORY` before DuckDB writes
what it sorts or joins into a folder beside the file (DuckDB's own, ``FILE.tmp``). Nothing is installed over the network.
Types that Arrow has no text for are written as DuckDB itself writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from verticil.party.dataset.sources.reading import Cancel
from verticil.party.dataset.sources.source_table import DatasetRule, TablePart, check_file, unreadable
from verticil.party.dataset.sources.statement import NO_ROWS, quote_name, select
from verticil.party.dataset.sources.stream import (
    ARROW_ERRORS,
    first_that_applies,
    merge_batches,
    no_such_table,
    not_understood,
    parts_of_batches,
    translate_errors,
)
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import VALUE_BYTES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY: Final = "512MiB"
_ROWS_AT_ONCE: Final = 2048
"""Rows of a batch that DuckDB hands out: the least that it works on."""
_DIRECT: Final = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("FLOAT", "DOUBLE", "DECIMAL", "DATE", "TIME", "VARCHAR", "ENUM"),
    *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
)
"""Types that `verticil.party.dataset.sources.texts.text_column` writes."""


def header(rule: DatasetRule, cancel: Cancel) -> tuple[str, ...]:
    """Return the names of the columns; raises as `verticil.party.dataset.sources.open_source.header`."""
    check_file(rule)
    return next(translate_errors(_names(rule, cancel), _errors(), partial(_fault, rule, before_rows=True)))


def parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    """Yield the rows; raises as `verticil.party.dataset.sources.open_source.read_parts`."""
    check_file(rule)
    return translate_errors(_parts(rule, column_names, cancel), _errors(), partial(_fault, rule))


def _errors() -> tuple[type[Exception], ...]:
    import duckdb

    return duckdb.Error, *ARROW_ERRORS


def _names(rule: DatasetRule, cancel: Cancel) -> Iterator[tuple[str, ...]]:
    """Yield the names of a query's columns as it stands; in a query around it DuckDB renames the second column of a name."""
    with closing(_open(rule)) as connection, cancel.by(connection.interrupt):
        column_names = [name for name, _ in _describe_columns(rule, connection)]
        yield tuple(connection.sql(rule.query).columns if rule.query else column_names)


def _describe_columns(rule: DatasetRule, connection: DuckDBPyConnection) -> list[tuple[str, str]]:
    """Name and type of each column."""
    relation = connection.sql(select(rule, None) + NO_ROWS)
    return [(name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)]


def _parts(rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]:
    with closing(_open(rule)) as connection, cancel.by(connection.interrupt):
        kinds = dict(_describe_columns(rule, connection))
        columns = [_expression(quote_name(name), kinds.get(name, "").partition("(")[0]) for name in column_names]
        batches = connection.sql(select(rule, columns)).to_arrow_reader(_ROWS_AT_ONCE)
        yield from parts_of_batches(rule, merge_batches(batches), column_names)


def _expression(name: str, kind: str) -> str:
    """Write what is asked for a column; DuckDB cuts what is too long, so that it is seen to be and is not handed out.

    >>> _expression('"age"', "INTEGER"), _expression('"note"', "VARCHAR")
    ('"age"', 'left("note", 1048577) AS "note"')
    """
    if kind in _DIRECT and kind != "VARCHAR":
        return name
    text = name if kind == "VARCHAR" else f"CAST({name} AS VARCHAR)"
    return f"left({text}, {VALUE_BYTES + 1}) AS {name}"


def _open(rule: DatasetRule) -> DuckDBPyConnection:
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": MEMORY,
        "autoinstall_known_extensions": False,
    }
    return duckdb.connect(str(rule.path), read_only=True, config=settings)


def _fault(rule: DatasetRule, error: Exception, *, before_rows: bool = False) -> DataFault:
    """Return the fault that an error means; `before_rows`: it came before any row was looked at, so the statement is
    wrong.
    """
    import duckdb

    message, damage = str(error), "not a DuckDB file, damaged, or of another version of DuckDB"
    cases = (
        (
            "not a valid DuckDB database" in message or isinstance(error, duckdb.SerializationException),
            unreadable(rule, damage),
        ),
        (
            "Could not set lock" in message,
            DataFault(
                "DATA_INTERRUPTED",
                f"{rule.name}: locked by a program that has it open to write",
                hint="DuckDB allows no other reader meanwhile",
            ),
        ),
        (
            "No space left" in message or isinstance(error, duckdb.OutOfMemoryException),
            DataFault(
                "DISK_FULL",
                f"{rule.name}: no room for what the query sorts or joins beyond {MEMORY}",
                hint=f"it is written into {rule.name}.tmp beside the file",
            ),
        ),
        (
            before_rows and isinstance(error, duckdb.CatalogException) and "Table with name" in message,
            no_such_table(rule),
        ),
        (before_rows and isinstance(error, duckdb.ProgrammingError), not_understood(rule, "duckdb")),
    )
    return first_that_applies(rule, cases)
