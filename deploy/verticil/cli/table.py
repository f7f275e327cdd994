"""``verticil table``: what a table is, column by column, and what a draft of a study would make of it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, plain_table, put, say
from verticil.shared.core.errors import printable


def table_command(
    table: Annotated[
        Path, typer.Argument(metavar="FILE", help="A table: CSV, Parquet, a workbook, a file of SPSS, Stata or SAS.")
    ],
    columns: Annotated[str, typer.Option("--columns", metavar="A,B,..", help="The only columns to look at.")] = "",
    sheet: Annotated[str, typer.Option("--sheet", metavar="NAME", help="The sheet of a workbook.")] = "",
    form: FormatOption = Format.text,
) -> None:
    """Show what a table is: each column's type, missing values, and what a draft of a study would make of it.

    Nothing is written or sent. Counts and some values of the table are shown: it is for who holds the table.
    """
    from verticil.tables.columns import Choice
    from verticil.tables.profile import profile_table
    from verticil.tables.reading import check_sheet
    from verticil.tables.words import column_lines

    check_sheet([table], sheet)
    profile = profile_table("owner", table, Choice(columns=tuple(filter(None, columns.split(","))), sheet=sheet))
    lines = list(column_lines(profile))
    answer = {
        "file": table.name,
        "rows": profile.texts.n_rows,
        "notes": list(profile.notes),
        "columns": [dataclasses.asdict(line) for line in lines],
    }
    if emit(answer, form=form):
        return
    say(f"{table.name}: {profile.texts.n_rows:,} rows, {len(lines)} columns")
    for note in profile.notes:
        sys.stdout.write(f"note: {printable(note)}\n")
    shown = plain_table("column", "type", "missing", "becomes", right=("distinct", "zeros", "in other"))
    for line in lines:
        shown.add_row(line.name, line.type, line.missing, line.becomes, line.distinct, line.zeros, line.other)
    put(shown)
    for line in lines:
        for reason in line.reasons:
            sys.stdout.write(printable(f'"{line.name}": {reason}') + "\n")
