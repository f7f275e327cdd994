"""The way to every table that a party may have: names and rows, by what ``[dataset.NAME]`` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from verticil.party.dataset.sources.packages import require_package
from verticil.party.dataset.sources.server import POSTGRESQL
from verticil.party.dataset.table import DatasetRule, TablePart


class _Source(Protocol):
    """A module beside this one."""

    def header(self, rule: DatasetRule) -> tuple[str, ...]: ...

    def parts(self, rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]: ...


def header(rule: DatasetRule) -> tuple[str, ...]:
    """See `verticil.party.dataset.table.header`."""
    return _source(rule).header(rule)


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
