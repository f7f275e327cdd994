"""A table in a real PostgreSQL: one state, only what is asked for, nothing written; and whatever goes wrong on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from adbc_driver_postgresql import dbapi

from support.party_example import EXAMPLE, FEDERATION
from support.ports import free_port
from support.postgresql import PostgreSQL
from verticil.party.config import load_party
from verticil.party.dataset.perturb import fingerprint, record_tags
from verticil.party.dataset.source import read_records
from verticil.party.dataset.sources import postgresql
from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault, VerticilError
from verticil.shared.numerics.model.schema import Variable

pytestmark = pytest.mark.machine

N = 100_000
CANARY = "4711"
WORD = "no/word:of@this"


@pytest.fixture(scope="module")
def server(postgresql: PostgreSQL) -> PostgreSQL:
    """A schema `clinic` with 100,000 people, and a user `reader` who may read it."""
    postgresql.run(
        "CREATE SCHEMA clinic",
        f"CREATE TABLE clinic.people AS SELECT 'p' || to_char(i, 'FM000000') AS id, i % 3 AS n, '{CANARY}' AS note,"
        f" 'x' || i % 2 AS \"Odd name\" FROM generate_series(0, {N - 1}) i",
        f"CREATE ROLE reader LOGIN PASSWORD '{WORD}'",
        "GRANT USAGE ON SCHEMA clinic TO reader",
        "GRANT SELECT ON clinic.people TO reader",
        "CREATE SEQUENCE clinic.counter",
        "GRANT ALL ON SEQUENCE clinic.counter TO reader",
        "CREATE VIEW clinic.partly AS SELECT id, n, 1 / (n - n) AS fails FROM clinic.people",
        "GRANT SELECT ON clinic.partly TO reader",
    )
    return postgresql


@pytest.fixture
def people(server: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> DatasetRule:
    monkeypatch.setenv("CLINIC_WORD", WORD)
    at = Server(url=server.url(user="reader", password=""), password_env="CLINIC_WORD")
    return DatasetRule(format="server", server=at, id="id", table="clinic.people")


@pytest.fixture
def reader_set(server: PostgreSQL) -> Iterator[PostgreSQL]:
    """Settings of the user are taken back."""
    yield server
    server.run("ALTER ROLE reader RESET ALL")


def rows(rule: DatasetRule, *wanted: str) -> list[tuple[str, ...]]:
    parts = [part for part in read_parts(rule, wanted) if part.n_rows]
    return [row for part in parts for row in zip(*(part.columns[name].texts() for name in wanted), strict=True)]


def asked(people: DatasetRule, query: str) -> DatasetRule:
    return dataclasses.replace(people, table="", query=query)


def fault(rule: DatasetRule, *wanted: str) -> VerticilError:
    def read() -> None:
        header(rule)
        rows(rule, *wanted)

    with pytest.raises(VerticilError) as caught:
        read()
    said = f"{caught.value} {caught.value.hint}"
    assert not any(word in said for word in (CANARY, WORD, "127.0.0.1", "%2F"))
    chained = caught.value.__context__  # what the server said may quote rows
    assert chained is None or isinstance(chained, FileNotFoundError)
    return caught.value


def test_the_rows_of_a_table(people: DatasetRule) -> None:
    assert header(people) == ("id", "n", "note", "Odd name")
    parts = list(read_parts(people, ["Odd name", "id"]))
    assert len(parts) > 1
    assert all(list(part.columns) == ["Odd name", "id"] for part in parts)
    assert rows(people, "id", "n", "Odd name") == [(f"p{i:06d}", str(i % 3), f"x{i % 2}") for i in range(N)]


def test_only_the_columns_that_are_asked_for_are_computed(people: DatasetRule) -> None:
    view = dataclasses.replace(people, table="clinic.partly")
    assert header(view) == ("id", "n", "fails")
    assert len(rows(view, "n", "id")) == N
    assert fault(view, "fails").message == "table 'clinic.partly': the database ended the reading"


def test_a_read_is_a_transaction_that_shows_one_state_and_writes_nothing(
    server: PostgreSQL, people: DatasetRule
) -> None:
    settings = "current_setting('transaction_isolation') AS level, current_setting('transaction_read_only') AS only"
    assert rows(asked(people, f"SELECT {settings}"), "level", "only") == [("repeatable read", "on")]
    reading = read_parts(people, ["n"])
    first = next(reading)
    server.run("UPDATE clinic.people SET n = n + 10 WHERE id = 'p099999'")
    try:
        assert {text for part in (first, *reading) for text in part.columns["n"].distinct} == {"0", "1", "2"}
        assert rows(people, "n", "id")[-1] == ("10", "p099999")
    finally:
        server.run("UPDATE clinic.people SET n = n - 10 WHERE id = 'p099999'")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT nextval('clinic.counter') AS n",
        "WITH gone AS (DELETE FROM clinic.people RETURNING n) SELECT n FROM gone",
        "SELECT 1 AS n) verticil; DELETE FROM clinic.people; SELECT n FROM (SELECT 1 AS n",
        "SELECT n INTO clinic.other FROM clinic.people",
    ],
)
def test_a_query_that_writes_is_refused(server: PostgreSQL, people: DatasetRule, query: str) -> None:
    """By a user who might."""
    assert people.server is not None
    owner = dataclasses.replace(asked(people, query), server=Server(url=server.url()))
    assert fault(owner, "n").code == "DATA_UNREADABLE"
    assert server.run("SELECT count(*), (SELECT last_value FROM clinic.counter) FROM clinic.people") == [(N, 1)]


def test_a_database_that_goes_away_in_mid_read(server: PostgreSQL, people: DatasetRule) -> None:
    reading = read_parts(
        asked(people, "SELECT i AS id, repeat('x', 50) AS note FROM generate_series(1, 3000000) i"), ["id", "note"]
    )
    next(reading)
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
    assert server.run(kill) == [(True,)]
    with pytest.raises(DataFault) as caught:
        list(reading)
    assert (caught.value.code, caught.value.message) == (
        "DATA_INTERRUPTED",
        "query: the database ended the reading",
    )
    assert caught.value.__context__ is None
    assert len(rows(people, "id")) == N


def test_a_time_out(people: DatasetRule, reader_set: PostgreSQL) -> None:
    reader_set.run("ALTER ROLE reader SET statement_timeout = '100ms'")
    slow = asked(people, f"SELECT id, CASE WHEN id = 'p{N - 1:06d}' THEN pg_sleep(60) END AS n FROM clinic.people")
    found = fault(slow, "id", "n")
    assert (found.code, "time-out" in found.message) == ("DATA_INTERRUPTED", True)


@pytest.mark.whole
def test_a_lock_that_another_program_holds_is_waited_for_and_named(
    server: PostgreSQL, people: DatasetRule, reader_set: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgresql._LIMITS, "lock_timeout", "200ms")
    with dbapi.connect(server.url()) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE clinic.people IN ACCESS EXCLUSIVE MODE")
        found = fault(people, "id")
        connection.rollback()
    assert (found.code, "holds a lock" in found.message) == ("DATA_INTERRUPTED", True)
    assert len(rows(people, "id")) == N


def test_two_columns_of_one_name_are_refused_by_name(people: DatasetRule) -> None:
    found = fault(asked(people, "SELECT id, note AS n, id AS n FROM clinic.people"), "id", "n")
    assert (found.code, found.message) == ("DATA_UNREADABLE", "query: column 'n' occurs 2 times, expected once")


def test_a_server_without_room_for_what_it_sorts(people: DatasetRule, reader_set: PostgreSQL) -> None:
    reader_set.run("ALTER ROLE reader SET temp_file_limit = '100kB'", "ALTER ROLE reader SET work_mem = '64kB'")
    found = fault(asked(people, "SELECT id, note FROM clinic.people ORDER BY md5(id)"), "id")
    assert (found.code, "no room" in found.message) == ("DATA_INTERRUPTED", True)


def test_reading_that_is_left_leaves_no_connection(server: PostgreSQL, people: DatasetRule) -> None:
    reading = read_parts(people, ["id"])
    next(reading)
    there = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader'"
    assert server.run(there) == [(1,)]
    del reading
    while server.run(there) != [(0,)]:  # the server notices by itself
        pass


def test_a_column_whose_type_changes_between_its_name_and_its_rows(server: PostgreSQL, people: DatasetRule) -> None:
    server.run("CREATE TABLE clinic.wards AS SELECT 7 AS id, 1.5 AS n", "GRANT SELECT ON clinic.wards TO reader")
    wards = dataclasses.replace(people, table="clinic.wards")
    assert header(wards) == ("id", "n")
    server.run("ALTER TABLE clinic.wards ALTER id TYPE uuid USING gen_random_uuid()", "ALTER TABLE clinic.wards DROP n")
    assert len(rows(wards, "id")[0][0]) == 36
    with pytest.raises(DataFault) as caught:
        rows(wards, "n")
    assert caught.value.code == "DATA_INTERRUPTED"


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"table": "clinic.nobody"}, "DATA_FILE_MISSING", "not in the database"),
        ({"table": "nowhere.people"}, "DATA_FILE_MISSING", "not in the database"),
        ({"table": "pg_authid"}, "DATA_UNREADABLE", "may not read it"),
        (
            {"table": "", "query": f"SELECT {CANARY} FROM clinic.people WHERE nix = 1"},
            "DATA_UNREADABLE",
            "SQLSTATE 42703",
        ),
        ({"table": "", "query": "SELECT id FRM people"}, "DATA_UNREADABLE", "SQLSTATE 42"),
    ],
)
def test_what_the_database_does_not_know(people: DatasetRule, change: dict[str, str], code: str, said: str) -> None:
    found = fault(dataclasses.replace(people, **change), "id")  # type: ignore[arg-type]
    assert (found.code, said in found.message) == (code, True)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://reader:wrong@127.0.0.1:{port}/postgres", "refuses the user or the password"),
        ("postgresql://reader@127.0.0.1:{port}/postgres", "wants a password"),
        ("postgresql://owner:{word}@127.0.0.1:{port}/4711", "has no such database or user"),
        ("postgresql://owner:{word}@127.0.0.1:{nobody}/postgres", "nothing listens there"),
        ("postgresql://owner:{word}@nowhere.invalid:{port}/postgres", "has an unknown host name"),
        (
            "postgresql://owner:{word}@127.0.0.1:{port}/postgres?sslmode=require",
            "cannot agree with this machine on TLS",
        ),
        ("postgresql://owner:{word}@127.0.0.1:{port}/postgres?nix=4711", "a parameter that libpq does not know"),
    ],
)
def test_a_database_that_lets_nobody_in(server: PostgreSQL, tmp_path: Path, url: str, said: str) -> None:
    """The whole URL is secret here, and what the library says of it is not passed on."""
    path = tmp_path / "url"
    path.write_text(url.format(port=server.port, nobody=free_port(), word=server.password) + "\n")
    path.chmod(0o600)
    found = fault(DatasetRule(format="server", server=Server(url_file=path), id="id", table="clinic.people"), "id")
    assert found.code == "DATA_INTERRUPTED"
    assert said in found.message
    assert server.password not in f"{found} {found.hint}"


def test_a_configuration_reads_the_table_and_never_has_the_password(server: PostgreSQL, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(FEDERATION)
    (tmp_path / "word").write_text(WORD + "\n")
    (tmp_path / "word").chmod(0o600)
    place = f'url = "{server.url(user="reader", password="")}"\npassword_file = "word"\ntable = "clinic.people"'
    text = EXAMPLE.replace('path = "census_bureau.csv"\nformat = "csv"', place)
    (tmp_path / "party.toml").write_text(text)
    config = load_party(tmp_path / "party.toml")
    assert WORD not in repr(config)
    assert len(rows(config.datasets["people"], "id")) == N
    (tmp_path / "word").chmod(0o640)
    assert fault(config.datasets["people"], "id").code == "CONFIG_INVALID"
    (tmp_path / "word").unlink()
    assert fault(config.datasets["people"], "id").code == "SECRET_MISSING"


@pytest.mark.whole
def test_a_view_whose_rows_change_between_two_reads_is_found(server: PostgreSQL, people: DatasetRule) -> None:
    """By the fingerprint that an approval binds to, which looks at no order: rows that have moved are the same data."""
    chance = "CREATE VIEW clinic.chance AS SELECT id, floor(3 * random())::int AS n FROM clinic.people"
    server.run(chance, "GRANT SELECT ON clinic.chance TO reader")
    assert len({fingerprint_of(dataclasses.replace(people, table="clinic.chance")) for _ in range(2)}) == 2
    before = fingerprint_of(people)
    server.run("UPDATE clinic.people SET note = '' WHERE n = 1")
    assert rows(people, "id")[:3] == [("p000000",), ("p000002",), ("p000003",)]
    assert fingerprint_of(people) == before
    server.run("UPDATE clinic.people SET n = 2 WHERE id = 'p000000'")
    assert fingerprint_of(people) != before


def fingerprint_of(rule: DatasetRule) -> bytes:
    records = read_records(rule, [Variable(name="n", owner="clinic", labels=("0", "1", "2"))], ())
    return fingerprint(record_tags(bytes(32), records.ids), records.codes["n"])
