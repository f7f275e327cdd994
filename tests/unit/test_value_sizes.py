"""A value of a table has a size limit in every source, and is refused by column and row, never by what it says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from verticil.party.dataset.sources.open_source import read_parts
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import STORED_VALUE_BYTES, VALUE_BYTES

LONG = VALUE_BYTES + 1
SHORT = VALUE_BYTES


def csv(folder: Path, texts: list[str]) -> DatasetRule:
    path = folder / "people.csv"
    rows = "".join(f'{i},"{text}"\n' for i, text in enumerate(texts))
    path.write_text(f"id,note\n{rows}")
    return DatasetRule(path=path, format="csv", id="id")


def parquet_file(folder: Path, texts: list[str]) -> DatasetRule:
    path = folder / "people.parquet"
    parquet.write_table(
        pa.table({"id": range(len(texts)), "note": texts}), path, data_page_size=4 << 20, write_batch_size=1
    )
    return DatasetRule(path=path, format="parquet", id="id")


def arrow_file(folder: Path, texts: list[str], kind: pa.DataType | None = None) -> DatasetRule:
    path = folder / "people.arrow"
    table = pa.table({"id": range(len(texts)), "note": pa.array(texts, kind or pa.string())})
    feather.write_feather(table, str(path), compression="uncompressed")
    return DatasetRule(path=path, format="arrow", id="id")


def views(folder: Path, texts: list[str]) -> DatasetRule:
    return arrow_file(folder, texts, pa.string_view())


def sqlite_file(folder: Path, texts: list[str]) -> DatasetRule:
    path = folder / "people.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE people (id INTEGER, note TEXT)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", enumerate(texts))
        connection.commit()
    return DatasetRule(path=path, format="sqlite", id="id", table="people")


def sqlalchemy_url(folder: Path, texts: list[str]) -> DatasetRule:
    server = Server(url=f"sqlite+pysqlite:///{sqlite_file(folder, texts).path}")
    return DatasetRule(format="server", server=server, id="id", table="people")


def duckdb_file(folder: Path, texts: list[str]) -> DatasetRule:
    path = folder / "people.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE people (id INTEGER, note VARCHAR)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", [list(row) for row in enumerate(texts)])
    return DatasetRule(path=path, format="duckdb", id="id", table="people")


SOURCES: list[Callable[[Path, list[str]], DatasetRule]] = [
    csv,
    parquet_file,
    arrow_file,
    views,
    sqlite_file,
    sqlalchemy_url,
    duckdb_file,
]


@pytest.mark.parametrize("source", SOURCES)
def test_a_long_value_is_refused_by_column_and_row(
    source: Callable[[Path, list[str]], DatasetRule], tmp_path: Path
) -> None:
    rule = source(tmp_path, ["x", "y", "9" * SHORT, "9" * LONG, "z"])
    row = 5 if rule.format == "csv" else 4  # a CSV file's header is its first row
    with pytest.raises(DataFault, match=f"column 'note': the value in row {row} has more than 1 MiB") as caught:
        list(read_parts(rule, ["id", "note"]))
    assert caught.value.code == "DATA_UNREADABLE"
    assert "9999" not in str(caught.value)
    assert sum(part.n_rows for part in read_parts(rule, ["id"])) == 5, "nobody asked for the column"


@pytest.mark.parametrize("source", SOURCES)
def test_values_up_to_the_limit_are_read_as_they_are(
    source: Callable[[Path, list[str]], DatasetRule], tmp_path: Path
) -> None:
    texts = ["x", "é" * (SHORT // 2), "", "9" * SHORT]
    parts = list(read_parts(source(tmp_path, texts), ["note"]))
    assert [text for part in parts for text in part.columns["note"].texts()] == texts


def test_a_row_longer_than_a_block_of_csv_is_named_too(tmp_path: Path) -> None:
    """A value of 5 MiB in quotes with line ends and commas, behind a row that is empty."""
    path = tmp_path / "people.csv"
    path.write_text('id,note,last\n1,"a ""quoted"" one",x\n\n2,"' + ("," + "a" * 199 + "\n") * (5 << 12) + '",y\n')
    rule = DatasetRule(path=path, format="csv", id="id")
    with pytest.raises(DataFault, match="column 'note': the value in row 3 has more than 1 MiB"):
        list(read_parts(rule, ["note", "last"]))


def test_sqlite_names_the_column_of_a_value_that_it_does_not_hand_out(tmp_path: Path) -> None:
    rule = sqlite_file(tmp_path, ["x", "y"])
    with closing(sqlite3.connect(rule.path)) as connection:
        connection.execute("INSERT INTO people VALUES (3, zeroblob(?))", [STORED_VALUE_BYTES + 1])
        connection.commit()
    with pytest.raises(DataFault, match="column 'note': the value in row 3 has more than"):
        list(read_parts(rule, ["id", "note"]))


@pytest.mark.parametrize("source", [parquet_file, views, sqlite_file, duckdb_file])
def test_a_part_has_few_rows_where_values_are_long(
    source: Callable[[Path, list[str]], DatasetRule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred texts of a quarter of a megabyte, in parts of four: a database is asked for 64 rows at once."""
    for module in ("verticil.party.dataset.sources.stream", "verticil.shared.documents.foreign_files.parquet_pages"):
        monkeypatch.setattr(f"{module}.PART_BYTES", 4 << 20)
    texts = [f"{i:03d}{'9' * ((1 << 18) - 3)}" for i in range(100)]
    parts = list(read_parts(source(tmp_path, texts), ["note"]))
    assert [text for part in parts for text in part.columns["note"].texts()] == texts
    assert (
        max(sum(map(len, part.columns["note"].distinct)) for part in parts)
        <= (26 if source is duckdb_file else 16) << 20
    )
