"""The way to every table that a party may have: names and rows, by what ``[dataset.NAME]`` says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Final, Protocol, TypeVar

from verticil.party.dataset.sources import files
from verticil.party.dataset.sources.packages import require_package
from verticil.party.dataset.sources.reading import LONGEST_SECONDS, Cancel, read
from verticil.party.dataset.sources.server import POSTGRESQL
from verticil.party.dataset.table import DatasetRule, TablePart
from verticil.shared.core.errors import DataFault

T = TypeVar("T")
_SECOND: Final = re.compile(r"[^:]+:\d+")


class _Database(Protocol):
    """A module beside this one, of a kind of database."""

    def header(self, rule: DatasetRule, cancel: Cancel) -> tuple[str, ...]: ...

    def parts(self, rule: DatasetRule, wanted: Sequence[str], cancel: Cancel) -> Iterator[TablePart]: ...


def header(rule: DatasetRule) -> tuple[str, ...]:
    """See `verticil.party.dataset.table.header`."""
    require_package(rule)
    if (database := _database(rule)) is None:
        return files.header(rule)

    def found(cancel: Cancel) -> Iterator[tuple[str, ...]]:
        yield database.header(rule, cancel)

    with closing(_read(rule, found)) as reading:
        names = next(reading)
    if rule.query:
        _check_names(rule, names)
    return names


def _check_names(rule: DatasetRule, names: Sequence[str]) -> None:
    """Refuse a query with two columns of one name: databases take the first, the second, or neither.

    SQLite names the second one of a query ``name:1``.
    """
    found = Counter(name.partition(":")[0] if _SECOND.fullmatch(name) else name for name in names)
    name, times = next(iter(found.most_common(1)), ("", 0))
    if times > 1:
        raise DataFault(
            "DATA_UNREADABLE",
            f"{rule.name}: column '{name}' occurs {times} times, expected once",
            hint="give each column of the query a name of its own: SELECT .. AS name",
        )


def parts(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]:
    """See `verticil.party.dataset.table.read_parts`."""
    require_package(rule)
    if (database := _database(rule)) is None:
        return files.parts(rule, wanted)
    return _read(rule, lambda cancel: database.parts(rule, wanted, cancel))


def _read(rule: DatasetRule, items: Callable[[Cancel], Iterator[T]]) -> Generator[T]:
    """PostgreSQL limits a statement by itself, and its administrator may say how."""
    is_limited = rule.server is not None and rule.server.scheme() in POSTGRESQL
    return read(rule, items, longest_seconds=None if is_limited else LONGEST_SECONDS)


def _database(rule: DatasetRule) -> _Database | None:
    """Each imports what only it needs; None: the table is in files."""
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
