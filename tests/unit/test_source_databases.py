"""Tables in DuckDB and SQLite files, and by SQLAlchemy: the rows of a CSV file, only what is asked for; and what may be wrong."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

from verticil.party.dataset.source import read_records
from verticil.party.dataset.sources import optional_packages as packages
from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.dataset.sources.statement import no_query, no_table, select
from verticil.shared.core.errors import DataFault, Misuse, VerticilError
from verticil.shared.core.installation import install_command
from verticil.shared.numerics.model.schema import Variable

N = 7_000
CANARY = "4711"
SECRET = "no_word_of_this"


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verticil.party.dataset.sources.stream.PART_ROWS", 2_000)


def duckdb_at(path: Path, *statements: str) -> None:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def sqlite_at(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_two_columns_of_one_name_are_refused_by_name(people: DatasetRule) -> None:
    """DuckDB took the first."""
    twice = replace(people, table="", query='SELECT id, n, "odd name" AS n FROM people')
    with pytest.raises(DataFault, match="column 'n' occurs 2 times, expected once"):
        header(twice)
    assert header(replace(people, table="", query="SELECT id, n FROM people -- no more")) == ("id", "n")


PEOPLE = "SELECT printf('p%06d', i) AS id, i % 3 AS n, 'x' || (i % 2) AS \"odd name\", 'not asked for' AS note FROM "
SERIES = {
    "duckdb": f"range({N}) g(i)",
    "sqlite": f"(WITH RECURSIVE g(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM g LIMIT {N}) SELECT i FROM g)",
}
MAKE: dict[str, Callable[..., None]] = {"duckdb": duckdb_at, "sqlite": sqlite_at}


@pytest.fixture(scope="module", params=["duckdb", "sqlite", "sqlalchemy"])
def people(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DatasetRule:
    """A table `people` and an empty one `nobody`, in each kind of database that needs no server."""
    kind = "sqlite" if request.param == "sqlalchemy" else request.param
    path = tmp_path_factory.mktemp("people") / f"clinic.{kind}"
    MAKE[kind](
        path, f"CREATE TABLE people AS {PEOPLE}{SERIES[kind]}", "CREATE TABLE nobody AS SELECT * FROM people LIMIT 0"
    )
    if request.param == "sqlalchemy":
        server = Server(url=f"sqlite+pysqlite:///{path}")
        return DatasetRule(format="server", server=server, id="id", table="people")
    return DatasetRule(path=path, format=kind, id="id", table="people")


def rows(rule: DatasetRule, *wanted: str) -> list[tuple[str, ...]]:
    assert missing_columns(rule, header(rule), wanted) is None
    parts = [part for part in read_parts(rule, wanted) if part.n_rows]
    assert all(list(part.columns) == list(wanted) for part in parts)
    return [row for part in parts for row in zip(*(part.columns[name].texts() for name in wanted), strict=True)]


def fault(rule: DatasetRule, *wanted: str) -> VerticilError:
    with pytest.raises(VerticilError) as caught:
        rows(rule, *wanted)
    chained = caught.value.__context__  # what a database said may quote rows
    assert chained is None or isinstance(chained, FileNotFoundError)
    assert not any(word in f"{caught.value} {caught.value.hint}" for word in (CANARY, SECRET))
    return caught.value


def test_a_table_is_read_in_parts_by_the_columns_that_are_asked_for(people: DatasetRule) -> None:
    assert header(people) == ("id", "n", "odd name", "note")
    parts = list(read_parts(people, ["odd name", "id"]))
    assert len(parts) > 1
    assert all(set(part.columns) == {"id", "odd name"} for part in parts)
    found = rows(people, "id", "n", "odd name")
    assert found == [(f"p{i:06d}", str(i % 3), f"x{i % 2}") for i in range(N)]


def test_a_query_is_a_table(people: DatasetRule) -> None:
    """With its own order, aliases and a comment at the end."""
    query = 'SELECT id AS person, n * 2 AS "N" FROM people WHERE n = 1 ORDER BY id DESC -- the newest first\n'
    rule = replace(people, table="", query=query)
    assert header(rule) == ("person", "N")
    assert rows(rule, "N", "person") == [("2", f"p{i:06d}") for i in reversed(range(1, N, 3))]


def test_an_empty_table_has_columns_and_no_rows(people: DatasetRule) -> None:
    assert rows(replace(people, table="nobody"), "id") == []


def test_records_are_those_of_the_same_table_as_text(people: DatasetRule, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("id,n\n" + "".join(f"p{i:06d},{i % 3}\n" for i in range(N)))
    variable = Variable(name="n", owner="clinic", labels=("0", "1", "2"))
    one, two = (
        read_records(rule, [variable], ["trim"]) for rule in (people, DatasetRule(path=path, format="csv", id="id"))
    )
    assert one.ids == two.ids
    assert one.codes["n"].tolist() == two.codes["n"].tolist()


def test_reading_that_is_left_leaves_no_lock(people: DatasetRule) -> None:
    reading = read_parts(people, ["id"])
    next(reading)
    del reading
    assert next(read_parts(people, ["id"])).n_rows


# ---- what is wrong


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM people RETURNING id",
        "WITH x AS (SELECT 1) INSERT INTO people SELECT id, 1, '', '' FROM people",
        "SELECT id FROM people) verticil; DELETE FROM people; SELECT id FROM (SELECT id FROM people",
        "PRAGMA user_version = 5",
        "ATTACH 'other' AS other",
        "COPY people TO 'out.csv'",
    ],
)
def test_a_query_that_writes_is_refused_by_the_database_itself(people: DatasetRule, query: str) -> None:
    """Also where nobody looked at its words before."""
    found = fault(replace(people, table="", query=query), "id")
    assert found.code == "DATA_UNREADABLE"
    assert len(rows(people, "id")) == N


def test_a_table_or_column_that_is_not_there(people: DatasetRule) -> None:
    absent = fault(replace(people, table="none"), "id")
    assert absent.code == ("DATA_UNREADABLE" if people.server else "DATA_FILE_MISSING")
    assert fault(replace(people, table="", query="SELECT nix FROM people"), "nix").code == "DATA_UNREADABLE"
    missing = missing_columns(people, header(people), ["id", "N"])
    assert missing is not None
    assert "did" not in missing.message
    assert (missing.code, missing.hint) == ("DATA_COLUMN_MISSING", "'n' for 'N'?")


def test_a_column_that_goes_between_its_name_and_its_rows(tmp_path: Path) -> None:
    """A view that was replaced meanwhile: read anew, and not taken for empty."""
    for kind, make in MAKE.items():
        path = tmp_path / f"t.{kind}"
        make(path, "CREATE TABLE t AS SELECT 1 AS id, 2 AS n", "CREATE VIEW v AS SELECT * FROM t")
        rule = DatasetRule(path=path, format=kind, id="id", table="v")  # type: ignore[arg-type]
        assert header(rule) == ("id", "n")
        make(path, "DROP VIEW v", "CREATE VIEW v AS SELECT n AS n, id AS person FROM t")
        with pytest.raises(DataFault) as caught:
            list(read_parts(rule, ["id"]))
        assert caught.value.code == "DATA_INTERRUPTED"
        assert rows(rule, "n") == [("2",)]  # at another place, which is all the same


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_value_in_which_a_query_fails_looks_like_a_database_that_is_down(tmp_path: Path, kind: str) -> None:
    """Neither the value nor that there is one is in the message, and the code is one that is waited out and told to nobody."""
    path = tmp_path / f"t.{kind}"
    MAKE[kind](path, f"CREATE TABLE t AS SELECT i AS id, 'v{CANARY}' AS v FROM {SERIES[kind]}")
    fails = "CAST(v AS INTEGER)" if kind == "duckdb" else "json_extract(v, '$.a')"
    found = fault(DatasetRule(path=path, format=kind, id="id", query=f"SELECT id, {fails} AS n FROM t"), "n")  # type: ignore[arg-type]
    assert found.code == "DATA_INTERRUPTED"
    assert found.message == f"t.{kind}: the database ended the reading"


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_file_that_is_no_database(tmp_path: Path, kind: str) -> None:
    rule = DatasetRule(path=tmp_path / f"t.{kind}", format=kind, id="id", table="t")  # type: ignore[arg-type]
    assert fault(rule, "id").code == "DATA_FILE_MISSING"
    assert not rule.path.exists()
    rule.path.write_bytes(b"id,n\n" + CANARY.encode() * 1000)
    assert fault(rule, "id").code == "DATA_UNREADABLE"
    rule.path.write_bytes(b"")
    assert fault(rule, "id").code == "DATA_EMPTY"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[[str, Path], None]]:
    """Another process that has a database open to write, and keeps it so until the end of the test."""
    programs: list[subprocess.Popen[bytes]] = []

    def opened(kind: str, path: Path) -> None:
        code = {
            "duckdb": "import duckdb, sys; c = duckdb.connect(sys.argv[1])",
            "sqlite": "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN EXCLUSIVE')",
        }[kind]
        program = subprocess.Popen(
            [sys.executable, "-c", f"{code}; print('open', flush=True); sys.stdin.read()", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == b"open\n"

    yield opened
    for program in programs:
        program.communicate()


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_file_that_a_program_has_open_to_write(
    tmp_path: Path, kind: str, writer: Callable[[str, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verticil.party.dataset.sources.sqlite._SECONDS", 0.1)
    path = tmp_path / f"t.{kind}"
    MAKE[kind](path, "CREATE TABLE t AS SELECT 1 AS id")
    writer(kind, path)
    found = fault(DatasetRule(path=path, format=kind, id="id", table="t"), "id")  # type: ignore[arg-type]
    assert (found.code, "locked" in found.message) == ("DATA_INTERRUPTED", True)


def test_sqlite_shows_one_state_to_one_read(tmp_path: Path) -> None:
    """A writer that commits between two parts is seen by the next read."""
    path = tmp_path / "t.sqlite"
    sqlite_at(path, "PRAGMA journal_mode = WAL", f"CREATE TABLE t AS SELECT i AS id, 1 AS n FROM {SERIES['sqlite']}")
    rule = DatasetRule(path=path, format="sqlite", id="id", table="t")
    reading = read_parts(rule, ["n"])
    first = next(reading)
    sqlite_at(path, "UPDATE t SET n = 2")
    assert {text for part in (first, *reading) for text in part.columns["n"].distinct} == {"1"}
    assert set(rows(rule, "n")) == {("2",)}


@pytest.mark.machine
def test_a_disk_without_room_for_what_duckdb_sorts(
    small_disk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verticil.party.dataset.sources.duckdb.MEMORY", "24MiB")
    path = small_disk.path / "t.duckdb"
    duckdb_at(path, "CREATE TABLE t AS SELECT 1 AS id")
    query = f"SELECT i AS id, repeat('{CANARY}', 5) || i AS v FROM range(3000000) g(i), t ORDER BY v"
    rule = DatasetRule(path=path, format="duckdb", id="id", query=query)
    found = fault(rule, "v")
    assert found.code == "DISK_FULL"
    assert rows(replace(rule, query="", table="t"), "id") == [("1",)]
    assert [entry.name for entry in small_disk.path.iterdir() if "tmp" in entry.name] == []


@pytest.mark.parametrize(
    ("module", "rule", "extra"),
    [
        ("duckdb", {"format": "duckdb"}, "duckdb"),
        ("adbc_driver_postgresql", {"server": Server(url="postgresql://u@h/d")}, "postgresql"),
        ("sqlalchemy", {"server": Server(url="mysql+pymysql://u@h/d")}, "sqlalchemy"),
    ],
)
def test_a_package_that_is_not_there_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, rule: dict[str, Any], extra: str
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == module else find_spec(name))
    (tmp_path / "t.duckdb").write_bytes(b"something")
    found = fault(
        DatasetRule(**{"format": "server", "id": "id", "table": "t", "path": tmp_path / "t.duckdb", **rule}), "id"
    )
    assert (found.code, install_command(extra) in found.hint) == ("CONFIG_INVALID", True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"nosuch://u:{SECRET}@h/d", "SQLAlchemy knows no database nosuch"),
        (f"mysql+nosuch://u:{SECRET}@h/d", "SQLAlchemy knows no database mysql+nosuch"),
        (f"oracle+oracledb://u:{SECRET}@h/d", "oracle+oracledb needs the driver oracledb, which is not installed"),
    ],
)
def test_a_driver_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, url: str, message: str) -> None:
    monkeypatch.setenv("CLINIC_URL", url)
    found = fault(DatasetRule(format="server", server=Server(url_env="CLINIC_URL"), id="id", table="t"), "id")
    assert isinstance(found, Misuse)
    assert message in found.message


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    server = Server(url=f"sqlite+pysqlite:///file:{tmp_path}/none.sqlite?mode=ro&uri=true")
    found = fault(DatasetRule(format="server", server=server, id="id", table="t"), "id")
    assert (found.code, found.message) == (
        "DATA_INTERRUPTED",
        "table 't': the database cannot be reached, or it refuses every login",
    )


def test_sqlalchemy_logs_nothing_that_a_driver_says(people: DatasetRule, caplog: pytest.LogCaptureFixture) -> None:
    """Its pool logs errors with the driver's, whose text may be of a row."""
    assert header(people)
    if people.server is None:
        return
    for name in ("sqlalchemy", "sqlalchemy.pool", "sqlalchemy.engine.Engine", "sqlalchemy.pool.impl.NullPool"):
        logging.getLogger(name).error("Error closing cursor: %s", CANARY)
    assert caplog.records == []


# ---- the statement


@pytest.mark.parametrize(
    ("query", "is_right"),
    [
        ("select 1", True),
        ("  (SELECT 1) UNION (SELECT 2);\n", True),
        ("-- people\nWITH a AS (SELECT 1) SELECT * FROM a /* ; */", True),
        ("SELECT ';' AS \"a;b\", $$;$$, $x$ ; $x$", True),
        ("FROM people", True),
        ("", False),
        ("-- nothing", False),
        ("UPDATE t SET a = 1", False),
        ("EXPLAIN ANALYZE DELETE FROM t", False),
        ("SELECT 1; SELECT 2", False),
        ("SELECT 1; -- and", False),
    ],
)
def test_a_query_is_one_statement_that_reads(query: str, is_right: bool) -> None:
    assert (no_query(query) == "") is is_right


@pytest.mark.parametrize(
    ("table", "sql"),
    [
        ("people", '"people"'),
        ("Research.People of 2020", '"Research"."People of 2020"'),
        ('a."b.c ""d"""', '"a"."b.c ""d"""'),
        ("a.b.c.d", None),
        ("a..b", None),
        ('a"b', None),
        ("a;b", '"a;b"'),
        ("", None),
    ],
)
def test_the_name_of_a_table_is_taken_as_it_is_written(table: str, sql: str | None) -> None:
    assert (no_table(table) == "") is (sql is not None)
    if sql is not None:
        rule = DatasetRule(format="duckdb", id="id", table=table)
        assert select(rule, ['"x"']) == f'SELECT "x" FROM {sql}'
