"""How a table at hand would have to be declared in party.toml, guessed from it: delimiter, encoding, how numbers are written.

For drafts and simulations, whose author holds the tables; a node guesses nothing. The node's own reader then reads the file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from verticil.party.dataset.encoding import WRITTEN, number_of
from verticil.party.dataset.table import DELIMITERS, DatasetRule, undecodable

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ONLY_CP1252 = re.compile(rb"[\x80-\x9f]")


def dataset_rule(path: Path, id_column: str) -> DatasetRule:
    """How to read a file; one that is not there, or no table, is for the reader to refuse."""
    if path.suffix.lower() in {".parquet", ".pq"}:
        return DatasetRule(path=path, format="parquet", id=id_column)
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
    known = windows and undecodable(DatasetRule(path=path, format="csv", id="", encoding="cp1252")) is None
    return "cp1252" if known else "latin-1"


def numbers_of(texts: Iterable[str]) -> tuple[str, Mapping[str, float]]:
    """The way of writing in which most of the texts are numbers, and these numbers; of two alike the first of `WRITTEN`.

    >>> numbers_of(["3", "1,5", "N"])
    ('decimal-comma', {'3': 3.0, '1,5': 1.5})
    """
    texts = list(texts)
    ways = {
        written: {text: number for text in texts if (number := number_of(text, written)) is not None}
        for written in WRITTEN
    }
    best = max(ways, key=lambda written: len(ways[written]))
    return best, ways[best]
