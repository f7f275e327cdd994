"""The way to every table that a party may have: names and rows, by what ``[dataset.NAME]`` says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from verticil.party.dataset.sources.packages import require_package
from verticil.party.dataset.sources.server import POSTGRESQL
from verticil.party.dataset.table import DatasetRule, TablePart
from verticil.shared.errors import DataFault

_SECOND: Final = re.compile(r"[^:]+:\d+")


class _Source(Protocol):
    """A module beside this one."""

    def header(self, rule: DatasetRule) -> tuple[str, ...]: ...

    def parts(self, rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]: ...


def header(rule: DatasetRule) -> tuple[str, ...]:
    """See `verticil.party.dataset.table.header`."""
    names = _source(rule).header(rule)
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
    return _source(rule).parts(rule, wanted)


def _source(rule: DatasetRule) -> _Source:
    """Each imports what only it needs.

    Raises:
        Misuse: CONFIG_INVALID, that is not installed.
    """
    require_package(rule)
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
    from verticil.party.dataset.sources import files

    return files
