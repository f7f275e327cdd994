"""What a site says of one column: ``[dataset.NAME.columns.VARIABLE]`` of party.toml, and what a draft says of it."""

from __future__ import annotations

from typing import cast

from verticil.party.dataset.sources.source_table import ColumnRule
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
    rule = ColumnRule(
        source=table.value(str, "source", variable),
        recode=cast("dict[str, str]", pairs),
        written=table.value(str, "written", "plain"),
    )
    try:
        check_written(rule.written)
    except ValueError as error:
        table.fail("written", str(error))
    table.finish()
    return rule
