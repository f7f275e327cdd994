"""What a database is asked where people have several rows: one row a person, or a summary of a person's rows.

Each is a query around what party.toml says, so `statement.select` reads it like any other. Ids are compared as the database has
them. Rows without a value in the order column come last. Rows with the same order are told apart by all of their columns as
text, where it is known how the database writes text; so a repeat reads the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from verticil.party.dataset.sources.conditions import as_sql, read_condition
from verticil.party.dataset.sources.server import POSTGRESQL
from verticil.party.dataset.sources.source_table import DatasetRule, Summary
from verticil.party.dataset.sources.statement import from_clause, quote_name

RANK: Final = "verticil_rank"
TOTAL: Final = "verticil_total"
"""Columns of `ranked`: the number of a row among those of its person, from 1, and how many they are."""
PERSON: Final = "verticil_person"
VALUE: Final = "verticil_value"
PLACE: Final = "verticil_place"
"""Columns of `summarised`: the id, the summary, and the first order column of the row that it is from."""
_TEXTS: Final = {
    "postgresql": "text",
    "duckdb": "VARCHAR",
    "sqlite": "TEXT",
    "mysql": "CHAR",
    "mariadb": "CHAR",
}
"""Kind of database -> the type that every column can be cast to."""


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a database writes names and texts; `text`: empty, not known."""

    quote: Callable[[str], str]
    text: str


def _dialect(rule: DatasetRule) -> _Dialect:
    if rule.server is None and rule.format == "sqlite":
        from verticil.party.dataset.sources import sqlite

        return _Dialect(sqlite.quote_name, _TEXTS["sqlite"])
    if rule.server is None or rule.server.scheme() in POSTGRESQL:
        return _Dialect(quote_name, _TEXTS["duckdb" if rule.server is None else "postgresql"])
    from verticil.party.dataset.sources import sqlalchemy

    dialect = sqlalchemy.dialect_of(rule)
    return _Dialect(dialect.identifier_preparer.quote, _TEXTS.get(dialect.name, ""))


def _asked(rule: DatasetRule, query: str) -> DatasetRule:
    return replace(rule, table="", query=query, one_row="", columns={}, tables={})


def ranked(rule: DatasetRule, names: Sequence[str], *, last: bool = False) -> DatasetRule:
    """Return the rule to read all rows with their `RANK` and `TOTAL`.

    Args:
        rule: of a database.
        names: of all its columns.
        last: count from the last row on.
    """
    dialect = _dialect(rule)
    person, way = dialect.quote(rule.id), " DESC" if last else ""
    keys: list[str] = []
    for name in rule.order:
        keys += [f"CASE WHEN {dialect.quote(name)} IS NULL THEN 1 ELSE 0 END", dialect.quote(name) + way]
    if dialect.text:
        keys += [f"CAST({dialect.quote(name)} AS {dialect.text}){way}" for name in names if name != rule.id]
    window = f"PARTITION BY {person} ORDER BY {', '.join(keys or [person])}"
    return _asked(
        rule,
        f"SELECT verticil_rows.*, row_number() OVER ({window}) AS {RANK}, count(*) OVER (PARTITION BY {person}) AS {TOTAL} "
        f"FROM {from_clause(rule, quote=dialect.quote)} verticil_rows",
    )


def first_ranked(rule: DatasetRule, names: Sequence[str], *, last: bool) -> DatasetRule:
    """Return the rule to read the first or the last row of each person; arguments as of `ranked`."""
    query = ranked(rule, names, last=last).query
    return _asked(rule, f"SELECT verticil_first.* FROM ({query}) verticil_first WHERE verticil_first.{RANK} = 1")


def summarised(rule: DatasetRule, names: Sequence[str], summary: Summary) -> DatasetRule:
    """Return the rule to read a summary of each person's rows, for those who have rows that count.

    Args:
        rule: of the related table, in a database.
        names: of all its columns.
        summary: what is asked.
    """
    dialect = _dialect(rule)
    where = f" WHERE {as_sql(read_condition(summary.where), dialect.quote)}" if summary.where else ""
    rows, person = f"{from_clause(rule, quote=dialect.quote)} verticil_rows{where}", dialect.quote(rule.id)
    if summary.kind in ("first", "last"):
        inner = _asked(rule, f"SELECT verticil_rows.* FROM {rows}")
        first = first_ranked(replace(inner, order=rule.order), names, last=summary.kind == "last")
        picked = f"{person} AS {PERSON}, {dialect.quote(summary.column)} AS {VALUE}, {dialect.quote(rule.order[0])} AS {PLACE}"
        return replace(_asked(rule, f"SELECT {picked} FROM ({first.query}) verticil_summary"), id=PERSON)
    value = f"{summary.kind}({dialect.quote(summary.column)})" if summary.column else "count(*)"
    return replace(
        _asked(rule, f"SELECT {person} AS {PERSON}, {value} AS {VALUE} FROM {rows} GROUP BY {person}"), id=PERSON
    )
