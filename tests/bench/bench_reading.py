"""Reading and encoding a table of a million people, an id and five columns, from every place that a party may have it at."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from figure import Figure, cpu_seconds, not_run
from pyarrow import csv, parquet

from verticil.party.dataset.source import read_records
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.documents.toml_table import Table
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.codebook import codebook_from

N_ROWS = 1_000_000
NAMES = ("id", "c0", "c1", "c2", "c3", "number")
VARIABLES = (
    *(Variable(name=name, owner="a", labels=tuple("01234")) for name in NAMES[1:5]),
    codebook_from(Table({"bins": [0, 20, 40, 60, 80, 100]}, source="bench"), name="number", owner="a"),
)


def table() -> pa.Table:
    """Ten-digit ids in an order of no meaning, four columns of five categories, numbers with one place."""
    draw = np.random.default_rng(1)
    ids = [f"{row * 7919 % 10**10:010d}" for row in range(N_ROWS)]
    categories = [pa.array(draw.integers(0, 5, N_ROWS)).cast(pa.string()) for _ in range(4)]
    return pa.table([pa.array(ids), *categories, np.round(draw.normal(50, 20, N_ROWS), 1)], names=list(NAMES))


def _read(rule: DatasetRule) -> float:
    def work() -> None:
        assert read_records(rule, VARIABLES, ("trim",)).n_records == N_ROWS

    return cpu_seconds(work, repeats=2)


def figures() -> Iterator[Figure]:
    """CSV beside pandas, then the others beside CSV."""
    with tempfile.TemporaryDirectory() as made:
        folder, whole = Path(made), table()
        csv.write_csv(whole, folder / "t.csv", csv.WriteOptions(quoting_style="needed"))
        plain = DatasetRule(path=folder / "t.csv", format="csv", id="id")
        ours = _read(plain)
        pandas = cpu_seconds(lambda: pd.read_csv(folder / "t.csv", dtype=str, keep_default_na=False), repeats=2)
        yield _figure("CSV", ours, pandas, note="pandas.read_csv with dtype=str, which encodes nothing")
        parquet.write_table(whole, folder / "t.parquet")
        yield _figure("Parquet", _read(DatasetRule(path=folder / "t.parquet", format="parquet", id="id")), ours)
        with _duckdb(folder / "t.duckdb", whole) as rule:
            yield _figure("DuckDB", _read(rule), ours)
        with _sqlite(folder / "t.sqlite", whole) as rule:
            yield _figure("SQLite", _read(rule), ours)
            alchemy = Server(url=f"sqlite+pysqlite:///{rule.path}")
            yield _figure(
                "SQLite by SQLAlchemy", _read(DatasetRule(format="server", server=alchemy, id="id", table="t")), ours
            )
        if not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
            yield not_run("reading, PostgreSQL", target="-", unit="CPU s", why="PostgreSQL is not installed")
            return
        with _postgresql(whole) as rule:
            yield _figure(
                "PostgreSQL", _read(rule), ours, note="the same from CSV; the server's own seconds do not count"
            )


def _figure(where: str, ours: float, reference: float, *, note: str = "the same from CSV") -> Figure:
    name = f"reading, {where}, 1M rows x 6"
    return Figure(name=name, ours=ours, reference=reference, ratio=reference / ours, note=note)


@contextlib.contextmanager
def _duckdb(path: Path, whole: pa.Table) -> Iterator[DatasetRule]:
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.register("whole", whole)
        connection.execute("CREATE TABLE t AS SELECT * FROM whole")
    yield DatasetRule(path=path, format="duckdb", id="id", table="t")


@contextlib.contextmanager
def _sqlite(path: Path, whole: pa.Table) -> Iterator[DatasetRule]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(NAMES)})")
        rows = zip(*(column.to_pylist() for column in whole.columns), strict=True)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
    yield DatasetRule(path=path, format="sqlite", id="id", table="t")


@contextlib.contextmanager
def _postgresql(whole: pa.Table) -> Iterator[DatasetRule]:
    from adbc_driver_postgresql import dbapi

    from support.postgresql import started

    with started() as server:
        with dbapi.connect(server.url()) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("t", whole)
            connection.commit()
        yield DatasetRule(format="server", server=Server(url=server.url()), id="id", table="t")
