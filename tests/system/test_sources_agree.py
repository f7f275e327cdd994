"""The same table in PostgreSQL, in a folder of Parquet files, in CSV, DuckDB and SQLite: the same release, byte for byte."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import dataset

from support.postgresql import PostgreSQL
from verticil.party.dataset.sources import sqlite
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.simulation import simulate

STUDY = """\
schema = 1
id = "sources"
purpose = "the same table at several places"
expires = 2099-12-31
party = [{ name = "clinic" }, { name = "insurer" }]
linkage = { minimum_common_records = 100 }
variable = [
  { party = "clinic", name = "smoker", categories = ["False", "True", "?"], missing = { category = "?", spellings = [""] } },
  { party = "clinic", name = "dose", bins = [0, 0.5, 1, 2] },
  { party = "clinic", name = "price", categories = ["0.50", "1.00", "1.50"] },
  { party = "clinic", name = "seen", categories = ["2020-01-01", "2020-01-02", "2020-01-03"] },
  { party = "insurer", name = "claims", categories = ["0", "1", "2"] },
]
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "tree" }
release = { synthetic_records = 500, seed = 7, sample_from = "network" }
"""
RELEASED = ("model.json", "network.bifxml", "network.bif", "synthetic.csv", "synthetic.parquet", "study.json")
N = 2000


def clinic() -> pa.Table:
    """2,000 people in an order of no meaning; a twentieth has no answer to one question."""
    draw = np.random.default_rng(4)
    smoker = draw.random(N) < 0.3
    day = dt.date(2020, 1, 1)
    return pa.table(
        {
            "note": pa.array(["not asked for"] * N),
            "id": pa.array([f"p{i:05d}" for i in draw.permutation(N)]),
            "smoker": pa.array([None if i % 20 == 0 else bool(x) for i, x in enumerate(smoker)]),
            "dose": pa.array(np.round(draw.random(N) + smoker, 3)),
            "price": pa.array([f"{k / 2:.2f}" for k in draw.integers(1, 4, N)]).cast(pa.decimal128(6, 2)),
            "seen": pa.array([day + dt.timedelta(days=int(k)) for k in draw.integers(0, 3, N)], pa.date32()),
        }
    )


def as_csv(table: pa.Table, path: Path) -> DatasetRule:
    """The texts of `written_values.csv`, written by pandas."""
    frame = pd.DataFrame(
        {name: [("" if x is None else str(x)) for x in table[name].to_pylist()] for name in table.column_names}
    )
    frame.to_csv(path / "clinic.csv", index=False)
    return DatasetRule(path=path / "clinic.csv", format="csv", id="id")


def as_parquet(table: pa.Table, path: Path) -> DatasetRule:
    """A folder for each day, which is a column of the table."""
    partitioning = dataset.partitioning(pa.schema([("seen", pa.string())]), flavor="hive")
    texts = table.set_column(table.schema.get_field_index("seen"), "seen", table["seen"].cast(pa.string()))
    dataset.write_dataset(texts, path / "lake", format="parquet", partitioning=partitioning)
    return DatasetRule(path=path / "lake", format="parquet", id="id")


def as_duckdb(table: pa.Table, path: Path) -> DatasetRule:
    with duckdb.connect(str(path / "t.duckdb")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE visits AS SELECT * FROM given ORDER BY hash(id)")
    return DatasetRule(path=path / "t.duckdb", format="duckdb", id="id", table="visits")


def as_sqlite(table: pa.Table, path: Path) -> DatasetRule:
    """Which has neither truth values nor decimal ones: a query says what is meant."""
    columns = [
        [str(x) if isinstance(x, dt.date) else x for x in table[name].to_pylist()]
        for name in ("id", "smoker", "dose", "seen")
    ]
    prices = [float(x) for x in table["price"].to_pylist()]
    with closing(sqlite3.connect(path / "t.sqlite")) as connection:
        connection.execute("CREATE TABLE visits (id TEXT, smoker BOOLEAN, dose REAL, seen DATE, price DECIMAL)")
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", zip(*columns, prices, strict=True))
        connection.commit()
    meant = "CASE smoker WHEN 1 THEN 'True' WHEN 0 THEN 'False' END AS smoker, printf('%.2f', price) AS price"
    query = f"SELECT id, dose, seen, {meant} FROM visits"
    return DatasetRule(path=path / "t.sqlite", format="sqlite", id="id", query=query)


def released(folder: Path, rule: DatasetRule) -> dict[str, bytes]:
    """What a release has of its study, without its signatures."""
    insurer = ["id,claims", *(f"p{i:05d},{(i * i) % 3}" for i in range(0, N, 2))]
    (folder / "insurer.csv").write_text("\n".join(insurer) + "\n")
    (folder / "study.toml").write_text(STUDY)
    simulate(folder / "study.toml", {"clinic": rule, "insurer": folder / "insurer.csv"}, seed=1, out=folder / "release")
    return {name: (folder / "release" / name).read_bytes() for name in RELEASED}


@pytest.fixture(scope="module")
def of_csv(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("csv")
    return released(folder, as_csv(clinic(), folder))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(as_parquet, marks=pytest.mark.whole),
        pytest.param(as_duckdb, marks=pytest.mark.slow),
        pytest.param(as_sqlite, marks=pytest.mark.slow),
    ],
)
def test_a_release_does_not_depend_on_where_the_table_is(
    tmp_path: Path, of_csv: dict[str, bytes], place: Callable[[pa.Table, Path], DatasetRule]
) -> None:
    assert released(tmp_path, place(clinic(), tmp_path)) == of_csv


@pytest.mark.whole
@pytest.mark.machine
def test_a_release_from_postgresql_is_that_from_a_file(
    tmp_path: Path, of_csv: dict[str, bytes], postgresql: PostgreSQL
) -> None:
    table = clinic()
    postgresql.run(
        "CREATE SCHEMA visits",
        "CREATE TABLE visits.people (id text, smoker boolean, dose double precision, price numeric(6, 2), seen date)",
    )
    postgresql.load("visits", "people", table.select(["id", "smoker", "dose", "price", "seen"]))
    (tmp_path / "word").write_text(postgresql.password + "\n")
    (tmp_path / "word").chmod(0o600)
    server = Server(url=postgresql.url(password=""), password_file=tmp_path / "word")
    rule = DatasetRule(format="server", server=server, id="id", table="visits.people")
    assert released(tmp_path, rule) == of_csv
    assert not any(postgresql.password.encode() in path.read_bytes() for path in (tmp_path / "release").iterdir())


@pytest.mark.slow
def test_a_release_does_depend_on_the_table(tmp_path: Path, of_csv: dict[str, bytes]) -> None:
    """Else these tests would hold whatever was read."""
    table = clinic()
    smoker = table.schema.get_field_index("smoker")
    turned = table.set_column(smoker, "smoker", pa.array([not x for x in table["smoker"].to_pylist()]))
    found = released(tmp_path, as_csv(turned, tmp_path))
    assert found["model.json"] != of_csv["model.json"]
    assert found["study.json"] == of_csv["study.json"]


@pytest.mark.whole
def test_a_database_that_cannot_be_read_for_a_while_changes_nothing(
    tmp_path: Path, of_csv: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is locked when the party's node reads names of columns, and again when it reads rows; the node tries again."""
    rule = as_sqlite(clinic(), tmp_path)
    opened, found = sqlite._open, list[str]()
    monkeypatch.setattr(sqlite, "_SECONDS", 0.01)

    def locked_at_first(of: DatasetRule) -> sqlite3.Connection:
        found.append("locked" if len(found) in {2, 4} else "open")  # the first two are of who lays the tables out
        if found[-1] == "open":
            return opened(of)
        with closing(sqlite3.connect(of.path)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            with closing(opened(of)) as reader:
                reader.execute("SELECT count(*) FROM visits")
        raise AssertionError("the lock did not hold")

    monkeypatch.setattr(sqlite, "_open", locked_at_first)
    assert released(tmp_path, rule) == of_csv
    assert found.count("locked") == 2
    assert len(found) > 5
