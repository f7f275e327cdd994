"""The way to every table that a party may have: names and rows, by what ``[dataset.NAME]`` says."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Final, Protocol, TypeVar

from verticil.party.dataset.sources import files
from verticil.party.dataset.sources.csv_files import check_delimiter
from verticil.party.dataset.sources.optional_packages import require_package
from verticil.party.dataset.sources.reading import LONGEST_SECONDS, Cancel, read
from verticil.party.dataset.sources.server import POSTGRESQL
from verticil.party.dataset.sources.source_table import DatasetRule, TablePart
from verticil.shared.core.errors import DataFault

T = TypeVar("T")
_SECOND: Final = re.compile(r"[^:]+:\d+")


class _Database(Protocol):
    """A module beside this one, of a kind of database."""

    def header(self, rule: DatasetRule, cancel: Cancel) -> tuple[str, ...]: ...

    def parts(self, rule: DatasetRule, column_names: Sequence[str], cancel: Cancel) -> Iterator[TablePart]: ...


def header(rule: DatasetRule) -> tuple[str, ...]:
    """Return the names of the table's columns, in order.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY or DATA_INTERRUPTED.
        Misuse, DataFault: a server's credentials are not there (`verticil.party.dataset.sources.server`).
    """
    require_package(rule)
    if (database := _database(rule)) is None:
        return files.header(rule)

    def yield_header(cancel: Cancel) -> Iterator[tuple[str, ...]]:
        yield database.header(rule, cancel)

    with closing(_read(rule, yield_header)) as reading:
        names = next(reading)
    if rule.query:
        _check_names(rule, names)
    return names


def _check_names(rule: DatasetRule, names: Sequence[str]) -> None:
    """Refuse a query with two columns of one name: databases take the first, the second, or neither.

    SQLite names the second one of a query ``name:1``.
    """
    counts = Counter(name.partition(":")[0] if _SECOND.fullmatch(name) else name for name in names)
    name, times = next(iter(counts.most_common(1)), ("", 0))
    if times > 1:
        raise DataFault(
            "DATA_UNREADABLE",
            f"{rule.name}: column '{name}' occurs {times} times, expected once",
            hint="give each column of the query a name of its own: SELECT .. AS name",
        )


def read_parts(rule: DatasetRule, sources: Sequence[str]) -> Iterator[TablePart]:
    """Read the table's rows, part by part.

    Args:
        rule: the table.
        sources: the columns to read; all are there (see `missing_columns`).

    Raises:
        DataFault: DATA_UNREADABLE, DATA_INTERRUPTED (also DATA_FILE_MISSING).
        Misuse, DataFault: as `header`.
    """
    require_package(rule)
    column_names = list(dict.fromkeys(sources))
    if (database := _database(rule)) is None:
        return files.parts(rule, column_names)
    return _read(rule, lambda cancel: database.parts(rule, column_names, cancel))


def twice(rule: DatasetRule, name: str, times: int) -> DataFault:
    """Return the fault of a table in which several columns have one name."""
    which = f"column '{name}' occurs {times} times, expected once"
    if not name.strip():
        which = f"{times} columns have no name, expected one for each"
    return DataFault(
        "DATA_UNREADABLE",
        f"{rule.name}: {which}",
        hint="give each column a name of its own in the header",
    )


def missing_columns(rule: DatasetRule, names: Sequence[str], column_names: Sequence[str]) -> DataFault | None:
    """Return the fault of a table with columns `names` that lacks some of `column_names`; None when all are there.

    Raises:
        DataFault: DATA_UNREADABLE, another delimiter is in use, or a wanted column occurs twice.
    """
    file = rule.name
    counts = Counter(names)
    for name in column_names:
        if counts[name] > 1:
            raise twice(rule, name, counts[name])
    absent = [name for name in column_names if name not in counts]
    if not absent:
        return None
    if len(absent) == len(set(column_names)) and rule.format == "csv":
        check_delimiter(rule, column_names)
    near: list[str] = []
    if len(absent) < len(set(column_names)):  # else the first row may well be data, and is not quoted
        free = {name.casefold(): name for name in names if name not in column_names}
        for name in absent:
            near += [f"'{free[match]}' for '{name}'?" for match in difflib.get_close_matches(name.casefold(), free, 1)]
        of_people = (
            f"'{rule.id}' names the person: rename the column, or say which one does (id in party.toml, or --id)"
        )
        of_others = "name the local column with source in [dataset.NAME.columns.VARIABLE]"
        if rule.place:
            of_others = (
                "if the column has another name there, write into the study: [draft] with reviewed = true, and "
                f"[{rule.place}.columns.VARIABLE] with source = that name"
            )
        hint = " ".join(near) or (of_people if rule.id in absent else of_others)
    else:
        hint = "is the first row a header, and is the delimiter right?"
    quoted_names = ", ".join(f"'{name}'" for name in absent)
    return DataFault(
        "DATA_COLUMN_MISSING", f"{file}: no column {quoted_names}; the table has {len(names)} columns", hint=hint
    )


def rows_in_footer(rule: DatasetRule) -> int:
    """Return how many rows a Parquet file says that it has, before any is read; 0: another format, or no such file.

    A file that says too few is found out while it is read.
    """
    return files.rows_in_footer(rule) if rule.format == "parquet" else 0


def _read(rule: DatasetRule, items: Callable[[Cancel], Iterator[T]]) -> Generator[T]:
    """PostgreSQL limits a statement by itself, and its administrator may say how."""
    is_limited = rule.server is not None and rule.server.scheme() in POSTGRESQL
    return read(rule, items, longest_seconds=None if is_limited else LONGEST_SECONDS)


def _database(rule: DatasetRule) -> _Database | None:
    """Return the module for a database, which imports its libraries only when used; None: the table is in files."""
    if rule.server is not None and rule.server.scheme() in POSTGRESQL:
        from verticil.party.dataset.sources import postgresql

        return postgresql
    if rule.server is not None:
        from verticil.party.dataset.sources import sqlalchemy

        return sqlalchemy
    if rule.format == "duckdb":
        from verticil.party.dataset.sources import duckdb

        return duckdb
    if rule.format == "sqlite":
        from verticil.party.dataset.sources import sqlite

        return sqlite
    return None
