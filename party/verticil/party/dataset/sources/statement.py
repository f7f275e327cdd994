"""The one statement that a database is asked: columns of a table, or of a query that stands in party.toml.

Promises: what is asked is ``SELECT columns FROM (what party.toml says)``, so that a query can only be one that yields rows: as a
part of another one no database takes a statement that writes, and none takes two. What a database may be told besides
(a transaction that only reads) is for its own module. Only the columns that are asked for are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from verticil.party.dataset.sources.source_table import DatasetRule

NO_ROWS: Final = " WHERE 1 = 0"
"""Behind a statement: its columns, and none of its rows."""
_PART: Final = r'(?:"(?:[^"]|"")+"|[^".\s](?:[^".]*[^".\s])?)'
_TABLE: Final = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")
_NO_WORDS: Final = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$""", re.DOTALL
)
_READS: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM"})


def no_table(table: str) -> str:
    """Return what is wrong with the name of a table; empty when nothing is.

    >>> no_table("clinic.people"), no_table('clinic."odd name"'), no_table("a.b.c.d")
    ('', '', 'expected NAME or SCHEMA.NAME, a name with a dot or a quotation mark in it as in \\'clinic."my.table"\\'')
    """
    if _TABLE.fullmatch(table):
        return ""
    return "expected NAME or SCHEMA.NAME, a name with a dot or a quotation mark in it as in 'clinic.\"my.table\"'"


def no_query(query: str) -> str:
    """Return what is wrong with a query, as far as its words show; empty when nothing is.

    >>> no_query("SELECT * FROM visits;"), no_query("DELETE FROM visits"), no_query("SELECT 1; DROP TABLE visits")
    ('', 'expected a query that only reads: SELECT, or WITH before it', 'has several statements, expected one')
    """
    bare = _NO_WORDS.sub(" ", query.strip().removesuffix(";"))
    words = bare.replace("(", " ").split()
    if not words or words[0].upper() not in _READS:
        return "expected a query that only reads: SELECT, or WITH before it"
    return "has several statements, expected one" if ";" in bare else ""


def quote_name(name: str) -> str:
    """Quote a name as standard SQL does.

    >>> quote_name("odd name")
    '"odd name"'
    """
    return '"' + name.replace('"', '""') + '"'


def select(rule: DatasetRule, columns: Sequence[str] | None, *, quote: Callable[[str], str] = quote_name) -> str:
    """Return the statement that reads the columns.

    Args:
        rule: of a database.
        columns: expressions, as SQL; None: all columns.
        quote: how the database wants a name.
    """
    column_list = "*" if columns is None else ", ".join(columns)
    name = " verticil" if rule.query else ""  # without AS, which Oracle does not know there
    return f"SELECT {column_list} FROM {from_clause(rule, quote=quote)}{name}"  # noqa: S608  the site's own party.toml says it


def from_clause(rule: DatasetRule, *, quote: Callable[[str], str] = quote_name) -> str:
    """Return what stands behind FROM: the quoted table, or the query in parentheses. Arguments as of `select`."""
    if rule.query:
        return (
            f"(\n{rule.query.strip().removesuffix(';')}\n)"  # on lines of their own, as the query may end in a comment
        )
    parts = re.findall(_PART, rule.table)
    names = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]
    return ".".join(map(quote, names))
