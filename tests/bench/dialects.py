"""Delimiters and headers of 300 files that Python's csv writer made by seed: ``python tests/bench/dialects.py``.

Files have one of seven delimiters, quoted fields with delimiters, line breaks and doubled marks inside, names of columns with
delimiters, decimal commas, 0 to 5 lines above the header, ``sep=`` or comments in front, and 1 to 200 rows. It prints of how many
files clevercsv and DuckDB's sniffer found the delimiter (293 and 130 on 2026-11-29; files of one column count as found), and of
how many the whole table came back cell by cell by `verticil.tables.reading` (286; most of the others have five rows or fewer,
where nothing tells a line above the header from the header).
"""

from __future__ import annotations

import csv
import io
import random
import sys
import tempfile
from pathlib import Path

import clevercsv
import duckdb

from verticil.shared.core.errors import VerticilError
from verticil.tables.texts import texts_of

FILES = 300
WORDS = (
    "cook",
    "nurse",
    "clerk",
    "driver",
    "none",
    "poor health",
    "very good",
    "a;b",
    "x,y",
    "it's",
    "12:30",
    "new york",
)
ABOVE = ("Export of 2024-01-01", "Site: A, ward 3", "", "Report 7; all patients")


def make(seed: int) -> tuple[str, str, list[str], list[list[str]]]:
    """Make the text of a file, its delimiter, the names of its columns, and its rows."""
    r = random.Random(seed)
    delimiter = r.choice(",;\t|:^ ")
    width = r.choice([1, 2, 3, 5, 8, 12] if delimiter == "," else [2, 3, 5, 8, 12])
    n = r.choice([1, 2, 5, 30, 200])
    kinds = [r.choice(["int", "float", "dec", "word", "date", "text", "id", "time"]) for _ in range(width)]
    kinds = ["float" if kind == "dec" and delimiter == "," else kind for kind in kinds]
    names = [
        f"{kind} {delimiter if r.random() < 0.5 else ','} no {place}" if r.random() < 0.2 else f"{kind}{place}"
        for place, kind in enumerate(kinds)
    ]
    rows = [[cell(r, kind, number) for kind in kinds] for number in range(n)]
    file = io.StringIO()
    above = r.choice([0] * 6 + [1, 2, 3, 4, 5])
    way = r.random()
    file.write("".join(f"{r.choice(ABOVE)}\n" for _ in range(above)))
    if not above and way < 0.16:
        file.write(f"sep={delimiter}\n" if way < 0.08 else "# made by a program\n# second line\n")
    quoting = r.choice([csv.QUOTE_MINIMAL] * 3 + [csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    writer = csv.writer(file, delimiter=delimiter, lineterminator=r.choice(["\n", "\r\n"]), quoting=quoting)
    writer.writerow(names)
    writer.writerows(rows)
    return file.getvalue(), delimiter, names, rows


def cell(r: random.Random, kind: str, number: int) -> str:
    """Draw a value of a kind."""
    return {
        "int": lambda: str(r.randint(0, 99)),
        "float": lambda: f"{r.uniform(0, 100):.2f}",
        "dec": lambda: f"{r.uniform(0, 100):.2f}".replace(".", ","),
        "word": lambda: r.choice(WORDS),
        "date": lambda: f"2020-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}",
        "time": lambda: f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}",
        "text": lambda: r.choice(['said "no"', "line\nbreak", "plain", "a, b and c", ""]),
        "id": lambda: f"P{number:05d}",
    }[kind]()


def comes_back(path: Path, names: list[str], rows: list[list[str]]) -> bool:
    """Return whether every cell of a file is read as it was written."""
    try:
        table = texts_of("owner", path)
    except VerticilError:
        return False
    cells = [[column.texts[place] for place in column.index] for column in table.columns.values()]
    return list(table.columns) == names and cells == [list(column) for column in zip(*rows, strict=True)]


def sniffed(path: Path) -> str:
    """Return the delimiter that DuckDB finds; empty: none."""
    try:
        row = duckdb.execute(f"SELECT Delimiter FROM sniff_csv('{path}', sample_size = 20000)").fetchone()
    except duckdb.Error:
        return ""
    return "" if row is None else str(row[0])


def main() -> int:
    """Compare, and print."""
    n_clever = n_duck = n_ours = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(FILES):
            text, delimiter, names, rows = make(seed)
            path = Path(folder) / f"{seed}.csv"
            path.write_text(text, newline="", encoding="utf-8")
            dialect = clevercsv.Sniffer().sniff(text[:20_000])
            n_clever += len(names) == 1 or (dialect is not None and dialect.delimiter == delimiter)
            n_duck += len(names) == 1 or sniffed(path) == delimiter
            n_ours += comes_back(path, names, rows)
    print(f"of {FILES} files: delimiter by clevercsv {n_clever}, by DuckDB {n_duck}; whole tables read {n_ours}")
    return 0 if n_ours >= n_duck else 1


if __name__ == "__main__":
    sys.exit(main())
