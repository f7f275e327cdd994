"""Reading how a column is encoded: categories or bins, other, missing; in a study, and in a site's own codebook."""

from __future__ import annotations

from typing import Final

from verticil.shared.config import Table
from verticil.shared.model.schema import Missing, Variable
from verticil.shared.study import rules
from verticil.shared.study.vocabulary import starts_a_formula

CODEBOOK_KEYS: Final = ("categories", "bins", "integer", "representatives", "means", "outside", "other", "missing")


def variable_from(table: Table) -> Variable:
    """The variable that a ``[[variable]]`` table of a study declares.

    Raises:
        Misuse: the table's code, or STUDY_INVALID.
    """
    table.only("party", "name", *CODEBOOK_KEYS)
    variable = codebook_from(table, name=table.value(str, "name"), owner=table.value(str, "party"))
    for key, texts in (("name", (variable.name,)), ("categories", variable.labels)):
        if found := next(filter(starts_a_formula, texts), ""):
            hint = (
                "spreadsheets take it for a formula; declare another text, and recode the local one to it in party.toml"
            )
            table.fail(key, f"'{found}' begins with '{found[0]}' and is no number", hint=hint)
    return variable


def codebook_from(table: Table, *, name: str, owner: str) -> Variable:
    """What the `CODEBOOK_KEYS` of a table say of a column.

    Args:
        table: of a study, or of a site's own codebook.
        name: of the variable, or of the local column.
        owner: of the variable.

    Raises:
        Misuse: the table's code, or STUDY_INVALID.
    """
    if table.has("categories") == table.has("bins"):
        table.fail(
            "categories",
            f"'{name}' has {'both' if table.has('bins') else 'neither'}, expected either categories or bins",
        )
    other = table.value(str, "other") if table.has("other") else None
    missing = _missing(table.table("missing")) if table.has("missing") else None
    bins, representatives, means = (
        tuple(number + 0.0 for number in table.numbers(key)) if table.has(key) else None  # -0.0 is 0
        for key in ("bins", "representatives", "means")
    )
    if bins is not None:
        appended = [category for category in (other, missing.category if missing else None) if category is not None]
        labels = rules.bin_labels(bins) + tuple(dict.fromkeys(appended))
    else:
        labels = table.strings("categories")
        for key in ("integer", "representatives", "means", "outside"):
            if table.has(key):
                table.fail(key, f"'{name}' has categories; this key goes with bins")
        for key, category in (("other", other), ("missing.category", missing.category if missing else None)):
            if category is not None and category not in labels:
                table.fail(
                    key, f"'{category}' is not among the categories of '{name}'", hint="declare it in categories"
                )
    return rules.make_variable(
        name=name,
        owner=owner,
        labels=labels,
        bins=bins,
        integer=table.value(bool, "integer", False),
        representatives=representatives,
        means=means,
        outside=rules.outside_from(table, "outside") if bins is not None else "error",
        other=other,
        missing=missing,
        where=f"{table.source}: {table.where} '{name}'",
    )


def _missing(table: Table) -> Missing:
    table.only("category", "spellings")
    return Missing(category=table.value(str, "category"), spellings=table.strings("spellings"))
