"""A value has one text in Parquet, Arrow, CSV, DuckDB and PostgreSQL (written_values.csv). And what SQLite makes of values."""

from __future__ import annotations

import csv
import datetime as dt
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from support.postgresql import PostgreSQL
from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule, Format

TABLE = Path(__file__).parents[1] / "data" / "written_values.csv"


def _rows() -> list[tuple[str | None, str, str, str, str]]:
    """Value, type in Arrow, in PostgreSQL, in DuckDB, and text."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return [(None if value == "null" else value, *rest) for value, *rest in rows]  # type: ignore[misc]


ROWS: Final = _rows()
NAMES: Final = [f"c{number}" for number in range(len(ROWS))]
TEXTS: Final = tuple(row[4] for row in ROWS)


def texts(rule: DatasetRule) -> tuple[str, ...]:
    """Of the first row; the second one has nulls in all columns."""
    assert missing_columns(rule, header(rule), NAMES) is None
    parts = [part for part in read_parts(rule, NAMES) if part.n_rows]
    first, second = (row for part in parts for row in zip(*(part.columns[name].texts() for name in NAMES), strict=True))
    assert set(second) == {""}
    return first


def arrow_table() -> pa.Table:
    return pa.table({name: _arrow(value, kind) for name, (value, kind, *_) in zip(NAMES, ROWS, strict=True)})


def _arrow(value: str | None, kind: str) -> pa.Array:
    if kind == "null":
        return pa.nulls(2)
    column = pa.array([value, None], pa.string())
    if kind == "dictionary":
        return column.dictionary_encode()
    if kind == "time64[us]" and value is not None:
        return pa.array([dt.time.fromisoformat(value), None], pa.time64("us"))
    if kind == "uuid":
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID(value).bytes, None], pa.binary(16)))
    if decimal := re.fullmatch(r"decimal128\((\d+), (\d+)\)", kind):
        return column.cast(pa.decimal128(int(decimal[1]), int(decimal[2])))
    if instant := re.fullmatch(r"timestamp\[(\w+), (\w+)\]", kind):
        return column.cast(pa.timestamp(instant[1], instant[2]))
    return column.cast(pa.type_for_alias(kind))


def sql_table(place: int) -> str:
    """A statement that makes the table; `place` of the database in `ROWS`."""
    columns = [(name, row[0], row[place]) for name, row in zip(NAMES, ROWS, strict=True)]
    columns = [(name, value, "mood" if kind.lower() == "enum" else kind) for name, value, kind in columns]
    first, second = (
        ", ".join(
            f"CAST({'NULL' if value is None or empty else repr(value)} AS {kind}) AS {name}"
            for name, value, kind in columns
        )
        for empty in (False, True)
    )
    return f"CREATE TABLE t AS SELECT {first} UNION ALL SELECT {second}"


def test_the_page_has_the_types_that_people_use() -> None:
    assert len(ROWS) >= 20
    assert {"True", "7", "1.50", "2020-01-02", "0.1", "", "F"} <= set(TEXTS)


@pytest.mark.parametrize("ending", ["parquet", "feather", "csv"])
def test_values_in_files_have_the_texts_of_the_page(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    kinds: Mapping[str, Format] = {"parquet": "parquet", "feather": "arrow", "csv": "csv"}
    if ending == "parquet":
        parquet.write_table(arrow_table(), path)
    elif ending == "feather":
        feather.write_feather(arrow_table(), str(path))
    else:
        path.write_text("\n".join([",".join(NAMES), ",".join(TEXTS), "," * (len(NAMES) - 1)]) + "\n")
    assert texts(DatasetRule(path=path, format=kinds[ending], id=NAMES[0])) == TEXTS


def test_values_in_duckdb_have_the_texts_of_the_page(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('M', 'F')")
        connection.execute(sql_table(3))
    assert texts(DatasetRule(path=tmp_path / "t.duckdb", format="duckdb", id="c0", table="t")) == TEXTS


@pytest.mark.machine
def test_values_in_postgresql_have_the_texts_of_the_page(postgresql: PostgreSQL) -> None:
    postgresql.run("CREATE SCHEMA texts", "CREATE TYPE mood AS ENUM ('M', 'F')")
    postgresql.run(sql_table(2).replace("TABLE t ", "TABLE texts.t "))
    rule = DatasetRule(format="server", server=Server(url=postgresql.url()), id="c0", table="texts.t")
    assert texts(rule) == TEXTS


@pytest.mark.machine
def test_types_that_arrow_has_not_are_written_by_postgresql(postgresql: PostgreSQL) -> None:
    """And nothing that a column may hold keeps it from being read: infinite dates, numbers beyond Arrow's."""
    values = {
        "jsonb": ('{"a": [1, 2]}', '{"a": [1, 2]}'),
        "integer[]": ("{1,2}", "{1,2}"),
        "interval": ("1 day", "P1D"),
        "inet": ("10.0.0.1", "10.0.0.1/32"),
        "bytea": (r"\x01ff", r"\x01ff"),
        "timetz": ("10:20:30+01", "10:20:30+01"),
        "oid": ("4000000000", "4000000000"),
        "numeric": ("Infinity", "inf"),
        "double precision": ("-Infinity", "-inf"),
        "date": ("infinity", None),
        "timestamptz": ("-infinity", None),
    }
    columns = ", ".join(f"CAST('{value}' AS {kind}) AS c{i}" for i, (kind, (value, _)) in enumerate(values.items()))
    rule = DatasetRule(format="server", server=Server(url=postgresql.url()), id="c0", query=f"SELECT {columns} -- all")
    names = [f"c{i}" for i in range(len(values))]
    (part,) = read_parts(rule, names)
    for name, (kind, (_, text)) in zip(names, values.items(), strict=True):
        (found,) = part.columns[name].texts()
        assert found == text or (text is None and found.startswith("<value out of range")), kind


def test_types_that_arrow_has_not_are_written_by_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    largest = 2**127 - 1
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT CAST('{largest}' AS HUGEINT) h, [1, 2] l, TIMETZ '10:20:30+01' z, 1.5::JSON j"
        )
    (part,) = read_parts(DatasetRule(path=path, format="duckdb", id="h", table="main.t"), ["l", "z", "h", "j"])
    assert [part.columns[name].texts() for name in ("h", "l", "z", "j")] == [
        [str(largest)],
        ["[1, 2]"],
        ["10:20:30+01"],
        ["1.5"],
    ]


def test_sqlite_writes_what_each_value_is(tmp_path: Path) -> None:
    """Whatever the column was declared to hold, and whether or not it is text at all."""
    values: list[tuple[Any, str]] = [
        (7, "7"),
        (7.0, "7"),
        (0.1, "0.1"),
        ("007", "007"),
        (True, "1"),
        (None, ""),
        (b"\xff", "\udcff"),
    ]
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as connection:
        connection.execute("CREATE TABLE t (v)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value, _ in values])
        connection.execute("INSERT INTO t VALUES (CAST(x'ff41' AS TEXT))")
        connection.commit()
    (part,) = read_parts(DatasetRule(path=tmp_path / "t.sqlite", format="sqlite", id="v", table="t"), ["v"])
    assert part.columns["v"].texts() == [*(text for _, text in values), "\udcffA"]


@pytest.mark.parametrize("texts", [["a", "", "é", "a"], ["a", "b\0c"], ["\udcff", "\udce2\udc82", "€"], ["\0"]])
def test_texts_of_sqlite_are_what_they_are_one_by_one(tmp_path: Path, texts: list[str]) -> None:
    """Also of bytes that are no UTF-8, cut off characters, and the sign that parts them."""
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as connection:
        connection.execute("CREATE TABLE t (v)")
        for text in texts:
            connection.execute("INSERT INTO t VALUES (CAST(? AS TEXT))", (text.encode("utf-8", "surrogateescape"),))
        connection.commit()
    (part,) = read_parts(DatasetRule(path=tmp_path / "t.sqlite", format="sqlite", id="v", table="t"), ["v"])
    assert part.columns["v"].texts() == texts
