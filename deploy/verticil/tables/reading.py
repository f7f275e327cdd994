"""How a file is read: delimiter, encoding; guessed, for who holds the table."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from verticil.party.dataset.sources.csv_files import DELIMITERS, undecodable
from verticil.party.dataset.sources.source_table import DATABASES, ENDINGS, DatasetRule
from verticil.shared.core.errors import DataFault

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ONLY_CP1252 = re.compile(rb"[\x80-\x9f]")


def check_is_file(path: Path) -> None:
    """Refuse a table that is no file.

    Raises:
        DataFault: DATA_FILE_MISSING.
    """
    if not path.is_file():
        problem = "is a folder, expected a file" if path.is_dir() else "no such file"
        raise DataFault("DATA_FILE_MISSING", f"{path}: {problem}", hint="check the path that was given for the table")


def dataset_rule(path: Path, id_column: str) -> DatasetRule:
    """Return how to read a file; one that is not there, or no table, is for the reader to refuse."""
    kind = ENDINGS.get(path.suffix.lower(), "csv")
    if kind != "csv" and kind not in DATABASES:
        return DatasetRule(path=path, format=kind, id=id_column)
    encoding = _encoding(path) if path.is_file() else "utf-8"
    delimiter = ","
    if path.is_file():
        with path.open(encoding=encoding, errors="replace", newline="") as file:
            first = file.readline(1 << 16)
        delimiter = max(DELIMITERS, key=first.count)
    return DatasetRule(path=path, format="csv", id=id_column, delimiter=delimiter, encoding=encoding)


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(4)
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    if b"\0" in start:
        return "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    if undecodable(DatasetRule(path=path, format="csv", id="")) is None:
        return "utf-8"
    with path.open("rb") as file:
        windows = any(_ONLY_CP1252.search(chunk) for chunk in iter(lambda: file.read(1 << 20), b""))
    is_cp1252 = windows and undecodable(DatasetRule(path=path, format="csv", id="", encoding="cp1252")) is None
    return "cp1252" if is_cp1252 else "latin-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read, and what of that is not the usual."""

    rule: DatasetRule
    remarks: tuple[str, ...] = ()


def guess_reading(path: Path, *, sheet: str = "") -> Reading:
    """Guess."""
    return Reading(rule=dataset_rule(path, ""))
