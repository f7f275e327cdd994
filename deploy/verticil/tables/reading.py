"""How a file is read, guessed for who holds the table: its kind, encoding, delimiter, header and sheet. A node guesses none."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from verticil.party.dataset.sources import workbooks
from verticil.party.dataset.sources.csv_files import DELIMITERS
from verticil.party.dataset.sources.opening import is_compressed, lines_of
from verticil.party.dataset.sources.optional_packages import require_package
from verticil.party.dataset.sources.source_table import DATABASES, ENDINGS, WORKBOOKS, DatasetRule, Format, unreadable
from verticil.shared.core.errors import DataFault, Misuse
from verticil.tables.delimiters import columns_in_runs, count_typed, find_form, has_units_below
from verticil.tables.encodings import guess_encoding
from verticil.tables.other_files import check_form, check_is_text
from verticil.tables.ranges import FEWEST_ROWS

_PACKINGS: Final = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip"})
_SAMPLE_LINES: Final = 2_000
_SAMPLE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read.

    Attributes:
        rule: without an id.
        remarks: what is not the usual, or could be taken otherwise, in sentences.
    """

    rule: DatasetRule
    remarks: tuple[str, ...] = ()


def check_is_file(path: Path) -> None:
    """Refuse a table that is no file.

    Raises:
        DataFault: DATA_FILE_MISSING.
    """
    if path.is_file():
        return
    problem, hint = "no such file", "check the path that was given for the table"
    if path.is_dir():
        problem = "is a folder, expected a file"
    elif path.exists():  # the table is read more than once
        problem, hint = "is a pipe or a device, expected a file", "write the table to a file and give its path"
    raise DataFault("DATA_FILE_MISSING", f"{path}: {problem}", hint=hint)


def check_sheet(paths: Iterable[Path], sheet: str) -> None:
    """Refuse the name of a sheet where no table is a workbook.

    Args:
        paths: the files of the tables.
        sheet: that was asked for; empty: none.

    Raises:
        Misuse: USAGE.
    """
    if sheet and not any(_kind(path) in WORKBOOKS for path in paths):
        raise Misuse("USAGE", f"--sheet: got '{sheet}', and no table is a workbook", hint="leave --sheet out")


def _kind(path: Path) -> Format:
    """Return what a file is by the ending of its name, before one of a packed file."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    ending = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in _PACKINGS else suffixes[-1] if suffixes else ""
    return ENDINGS.get(ending, "csv")


def guess_reading(path: Path, *, sheet: str = "") -> Reading:
    """Guess how a file is read. One that is empty is for the reader to refuse.

    Args:
        path: the file.
        sheet: of a workbook; empty: the first one with rows.

    Raises:
        DataFault: DATA_FILE_MISSING; DATA_UNREADABLE, most of its lines become no row.
        Misuse: CONFIG_INVALID, its kind needs a package that is not installed.
    """
    check_is_file(path)
    kind = _kind(path)
    rule = DatasetRule(path=path, format=kind if kind not in DATABASES else "csv", id="", sheet=sheet)
    if not path.stat().st_size:
        return Reading(rule=rule)
    if kind in WORKBOOKS:
        return _of_workbook(rule)
    if rule.format != "csv":
        return Reading(rule=rule)
    return _of_csv(rule)


def _of_workbook(rule: DatasetRule) -> Reading:
    require_package(rule)
    if rule.sheet:
        return Reading(rule=rule)
    sheets = workbooks.sheets_of(rule)
    names = list(sheets)
    tables = [name for name, (n_rows, n_columns) in sheets.items() if n_rows > FEWEST_ROWS and n_columns > 1]
    best = next(iter([*tables, *names]), "")
    others = ", ".join(f"'{name}'" for name in names if name != best)
    why = ", the first one that holds a table" if names and best != names[0] else ""
    remark = f"the workbook has several sheets with rows: '{best}' is read{why}, not {others}; --sheet names one"
    return Reading(rule=replace(rule, sheet=best) if why else rule, remarks=(remark,) * bool(others))


def _of_csv(rule: DatasetRule) -> Reading:
    encoding, remarks = guess_encoding(rule)
    rule = replace(rule, encoding=encoding)
    check_is_text(rule)
    if is_compressed(rule):
        remarks = [*remarks, "the file is compressed: it is inflated while it is read"]
    lines = _sample(rule)
    form = find_form(lines)
    check_form(rule, lines, form)
    rule = replace(rule, delimiter=form.delimiter, skip=form.skip)
    is_open = form.n_fields == 1 or (form.delimiter == " " and not all(form.header))
    if is_open and (n_columns := columns_in_runs(lines[form.skip :])) > 1:
        raise unreadable(
            rule,
            f"runs of blanks seem to separate {n_columns} columns, expected one delimiter, such as a comma",
            hint="write it as CSV; pandas reads it with read_csv(FILE, sep=r'\\s+')",
        )
    if typed := count_typed(form.header):
        remarks.append(
            f"{typed} of the {len(form.header)} names in the header are numbers or dates: is the first row one of the table, and "
            "the header missing?"
        )
    if form.delimiter not in {",", ";", "\t"}:
        remarks.append(f"{DELIMITERS[form.delimiter]} is the delimiter")
    if form.skip:
        lines_above = "1 line above it is" if form.skip == 1 else f"{form.skip} lines above it are"
        remarks.append(f"the header is in line {form.skip + 1}: {lines_above} left out")
    if has_units_below(form, lines):
        remarks.append(f"line {form.skip + 2} seems to hold units, and is a row of the table: take it out of the file")
    if any('\\"' in line for line in lines):
        remarks.append('a reversed stroke stands before quotation marks, and stays in the texts: CSV doubles them ("")')
    return Reading(rule=rule, remarks=tuple(remarks))


def _sample(rule: DatasetRule) -> list[str]:
    """Return the first lines of a file, none cut off unless it is the only one."""
    lines, size = list[str](), 0
    with closing(lines_of(rule)) as all_lines:
        for line in islice(all_lines, _SAMPLE_LINES):
            size += len(line)
            if size > _SAMPLE_BYTES and lines:
                break
            lines.append(line)
    return lines
