"""What a site says of one column: ``[dataset.NAME.columns.VARIABLE]`` of party.toml, and what a draft says of it."""

from __future__ import annotations

from typing import Final, cast, get_args

from verticil.party.dataset.sources.conditions import columns_in, read_condition
from verticil.party.dataset.sources.source_table import ColumnRule, Summary, SummaryKind
from verticil.shared.documents.toml_table import Table
from verticil.shared.documents.written_values.reading import check_written


def read_column_rule(table: Table, variable: str) -> ColumnRule:
    """Read the rule of a variable's column.

    Raises:
        Misuse: the table's code, a key is unknown or has another form.
    """
    recode = table.raw("recode") or {}
    if not isinstance(recode, dict):
        table.fail("recode", 'expected a table of texts, { "M" = "Male" }')
    pairs = cast("dict[str, object]", recode)
    if not all(isinstance(value, str) for value in pairs.values()):
        table.fail("recode", 'expected texts on both sides, { "M" = "Male" }')
    written = table.value(str, "written", "plain")
    try:
        check_written(written)
    except ValueError as error:
        table.fail("written", str(error))
    recoding = cast("dict[str, str]", pairs)
    if any([table.has("table"), table.has("summary"), table.has("where")]):
        summary = _summary(table, variable, written)
        is_own_text = summary.kind in _OF_TEXTS
        rule = ColumnRule(
            source=summary.source, recode=recoding, written=written if is_own_text else "plain", summary=summary
        )
    else:
        rule = ColumnRule(source=table.value(str, "source", variable), recode=recoding, written=written)
    table.finish()
    return rule


_OF_ROWS: Final = frozenset({"count", "any"})
_OF_TEXTS: Final = frozenset({"min", "max", "first", "last"})
"""Summaries that are one of the column's own texts, and so are written as it is."""


def _summary(table: Table, variable: str, written: str) -> Summary:
    """Read what a column of people is made of: ``table``, ``summary``, ``source`` and ``where``."""
    kind = cast("SummaryKind", table.choice("summary", get_args(SummaryKind)))
    if kind in _OF_ROWS:
        for key in ("source", "written"):
            if table.has(key):
                table.fail(key, f'stands beside summary = "{kind}", which is of rows and of no column of theirs')
    where = table.value(str, "where", "")
    if table.has("where"):
        try:
            read_condition(where)
        except ValueError as error:
            table.fail("where", str(error))
    return Summary(
        table=table.value(str, "table"),
        kind=kind,
        column="" if kind in _OF_ROWS else table.value(str, "source", variable),
        where=where,
        written=written,
    )


def columns_of_summary(summary: Summary) -> tuple[str, ...]:
    """Return the local columns of a related table that a summary looks at."""
    of_rows = columns_in(read_condition(summary.where)) if summary.where else ()
    return tuple(dict.fromkeys([*[summary.column] * bool(summary.column), *of_rows]))
