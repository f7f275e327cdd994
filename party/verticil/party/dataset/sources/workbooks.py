"""Tables in workbooks: .xlsx and .xlsm (macros are never run), .xls, .ods, read by python-calamine (the extra ``formats``).

A workbook is read as a whole. Cells become texts as `sources.texts` writes them: whole numbers in decimal, truths ``True`` and
``False``, dates by ISO 8601, empty cells empty. A row without any value is no row. The header is the first row that has as many
names as the widest one, behind the rows that `DatasetRule.skip` leaves out.
"""

from __future__ import annotations

import datetime as dt
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from verticil.party.dataset.sources.source_table import (
    PART_ROWS,
    DatasetRule,
    TablePart,
    TextColumn,
    attempt,
    unreadable,
    value_too_long,
)
from verticil.party.dataset.sources.texts import text_of
from verticil.party.dataset.sources.workbook_limits import check_workbook
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import VALUE_BYTES

Rows = list[list[str]]
_LISTED: Final = 10  # names of sheets in a message


def header(rule: DatasetRule) -> tuple[str, ...]:
    """Return the names of the sheet's columns; raises as `open_source.header`."""
    return tuple(_rows_of(rule)[0])


def parts(rule: DatasetRule, column_names: Sequence[str]) -> Iterator[TablePart]:
    """Yield the rows of the sheet; raises as `open_source.read_parts`."""
    names, *rows = _rows_of(rule)
    places = {name: names.index(name) for name in column_names}
    for start in range(0, max(len(rows), 1), PART_ROWS):
        part = rows[start : start + PART_ROWS]
        columns = {name: _column([row[place] for row in part]) for name, place in places.items()}
        for name, column in columns.items():
            for place, text in enumerate(column.distinct):
                if len(text) * 4 > VALUE_BYTES and len(text.encode("utf-8", "surrogatepass")) > VALUE_BYTES:
                    raise value_too_long(rule, name, int(np.flatnonzero(column.index == place)[0]) + start + 2)
        yield TablePart(n_rows=len(part), columns=columns)


def sheets_of(rule: DatasetRule) -> dict[str, tuple[int, int]]:
    """Return how many rows and columns each sheet has that has rows, by its name, in their order; raises as `header`."""
    book = _open(rule)
    cells = {name: _cells(book, name) or [] for name in book.sheet_names}
    return {name: (len(rows), max(map(len, rows))) for name, rows in cells.items() if len(rows) > 1}


def _column(texts: Sequence[str]) -> TextColumn:
    places: dict[str, int] = {}
    index = np.fromiter((places.setdefault(text, len(places)) for text in texts), dtype=np.int32, count=len(texts))
    return TextColumn(distinct=tuple(places), index=index)


def _open(rule: DatasetRule):  # type: ignore[no-untyped-def]
    import python_calamine

    problem = "this is no Excel workbook or spreadsheet that can be read, or it is damaged"
    hint = "open it in a spreadsheet program and save it as .xlsx or .csv"
    check_workbook(rule)
    errors = (python_calamine.CalamineError, OSError, ValueError, zipfile.BadZipFile)
    book = attempt(lambda: python_calamine.CalamineWorkbook.from_path(str(rule.path)), *errors)
    if book is None:
        raise unreadable(rule, problem, hint=hint)
    return book


def _cells(book: Any, name: str) -> list[list[object]] | None:
    """Return the rows of a sheet that have a value; None: it cannot be read."""
    import python_calamine

    cells = attempt(
        lambda: book.get_sheet_by_name(name).to_python(skip_empty_area=True),
        python_calamine.CalamineError,
        ValueError,
        OSError,
    )
    return None if cells is None else [row for row in cells if any(cell not in ("", None) for cell in row)]


def _rows_of(rule: DatasetRule) -> Rows:
    """Return header and rows of the sheet, all of one width."""
    book = _open(rule)
    names = list(book.sheet_names)
    listed = ", ".join(f"'{name}'" for name in names[:_LISTED])
    if rule.sheet and rule.sheet not in names:
        raise unreadable(
            rule, f"the workbook has no sheet '{rule.sheet}', its sheets are {listed}", hint="name one of them"
        )
    wanted = [rule.sheet] if rule.sheet else names
    sheets = {name: _cells(book, name) for name in wanted}
    rows = next((cells for cells in sheets.values() if cells is not None and len(cells) > 1), None)
    if rows is None and (damaged := [name for name, cells in sheets.items() if cells is None]):
        raise unreadable(
            rule,
            f"the sheet '{damaged[0]}' cannot be read: it is damaged, or has too many cells",
            hint="save it as .csv",
        )
    if rows is None:
        which = f"the sheet '{rule.sheet}' has" if rule.sheet else f"the sheets {listed} of the workbook have"
        raise DataFault(
            "DATA_EMPTY", f"{rule.name}: {which} no rows below a header", hint="is the table on another sheet?"
        )
    rows = rows[rule.skip :]
    width = max(map(len, rows))
    texts = [[_text(cell) for cell in row] + [""] * (width - len(row)) for row in rows]
    named = [sum(bool(text) for text in row) for row in texts[:50]]
    first = next(place for place, count in enumerate(named) if count == max(named))
    if first and _lacks_first(texts[first - 1], texts[first]):
        first -= 1  # the index of pandas, and the row names of R, have no name
    head = texts[first]
    used = [place for place, name in enumerate(head) if name or any(row[place] for row in texts[first + 1 :])]
    if unnamed := [place + 1 for place in used if not head[place] and (place or not _lacks_first(head, texts[-1]))]:
        raise unreadable(
            rule, f"column {unnamed[0]} of the sheet has values and no name", hint="give it a name in the header"
        )
    return [[row[place] for place in used] for row in texts[first:]]


def _lacks_first(names: Sequence[str], row: Sequence[str]) -> bool:
    """Return whether a row has a distinct name for each value of another but the first."""
    inner = [name for name in names if name]
    wanted = [bool(text) for text in row]
    has_names = not names[0] and len(inner) > 1 and len(set(inner)) == len(inner) == len(names) - 1
    return has_names and wanted[0] and not any(map(_is_number, inner))


def _is_number(text: str) -> bool:
    return attempt(lambda: float(text), ValueError) is not None


def _text(cell: object) -> str:
    if isinstance(cell, dt.timedelta):
        return str(cell)
    return text_of(cell)
