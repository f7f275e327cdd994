"""The database of both sides: rows as values, all or nothing, and a migration that keeps a copy of what was."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import DataFault
from verticil.shared.core.health import require_room
from verticil.shared.storage.database import Database, Schema, inspect, translate_sqlite_errors, version_of
from verticil.shared.storage.disk import looking_uri
from verticil.shared.storage.durable import DurableStep, watch_steps

FIRST = """
CREATE TABLE person (name TEXT PRIMARY KEY, age INTEGER, tall INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TRIGGER person_stays BEFORE DELETE ON person BEGIN SELECT RAISE(ABORT, 'people stay; always'); END;
"""


def second(connection: sqlite3.Connection) -> None:
    """A step that is more than statements."""
    connection.execute("ALTER TABLE person ADD COLUMN towns TEXT NOT NULL DEFAULT '[]'")
    for (name,) in connection.execute("SELECT name FROM person").fetchall():
        connection.execute("UPDATE person SET towns = ? WHERE name = ?", (f'["{name}ville"]', name))


ONE = Schema(steps=(FIRST,), application_id=7, what="a list of people")
TWO = Schema(steps=(FIRST, second), application_id=7, what="a list of people")


@dataclass(frozen=True, kw_only=True)
class Body:
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Person:
    name: str
    age: int | None
    tall: bool
    signed: Body
    towns: tuple[str, ...] = ()
    note: str = "none"


class Size(NamedTuple):
    n: int
    oldest: int | None


ADA = Person(name="Ada", age=36, tall=True, signed=Body(body=b"\x01"), towns=("London", "Paris"))
BOB = Person(name="Bob", age=None, tall=False, signed=Body(body=b""))


@pytest.fixture
def people(tmp_path: Path):
    with Database(tmp_path / "people.sqlite", TWO) as database:
        for person in (ADA, BOB):
            database.insert("person", Body(body=person.signed.body), name=person.name, age=person.age, tall=person.tall)
        database.write("UPDATE person SET towns = ? WHERE name = 'Ada'", ('["London", "Paris"]',))
        yield database


def test_a_row_is_read_as_the_value_whose_fields_are_its_columns(people: Database) -> None:
    assert people.read(Person, "SELECT * FROM person ORDER BY name") == [ADA, BOB]
    assert people.first(Person, "SELECT * FROM person WHERE name = ?", ("Zoe",)) is None
    (noted,) = people.read(Person, "SELECT * FROM person WHERE name = 'Bob'", note="new")
    assert noted.note == "new"
    assert people.only(Size, "SELECT COUNT(*) AS n, MAX(age) AS oldest FROM person") == Size(2, 36)
    assert people.read(str, "SELECT name FROM person ORDER BY name") == ["Ada", "Bob"]
    assert people.by(str, bool, "SELECT name, tall FROM person") == {"Ada": True, "Bob": False}
    assert people.by(str, Person, "SELECT name AS key, * FROM person")["Ada"] == ADA
    assert people.has("SELECT 1 FROM person WHERE name = 'Ada'")


@pytest.mark.parametrize(
    ("statement", "expected"),
    {
        "UPDATE person SET body = 'text'": "column body holds text, expected bytes",
        "UPDATE person SET age = 'old'": "column age holds text, expected a whole number or nothing",
        "UPDATE person SET tall = 2": "column tall holds a whole number, expected 0 or 1",
    }.items(),
)
def test_a_cell_of_another_type_is_named_and_not_shown(people: Database, statement: str, expected: str) -> None:
    people.write(statement)
    with pytest.raises(DataFault, match=expected) as caught:
        people.read(Person, "SELECT * FROM person")
    assert caught.value.code == "STATE_CORRUPT"


def test_a_value_is_written_into_the_columns_of_its_fields(people: Database) -> None:
    zoe = Body(body=b"\x07")
    assert people.insert("person", zoe, name="Zoe", tall=1, conflict="DO NOTHING") == 1
    assert people.insert("person", Body(body=b"\x08"), name="Zoe", tall=0, conflict="DO NOTHING") == 0
    with pytest.raises(sqlite3.IntegrityError):
        people.insert("person", zoe, name="Zoe", tall=1)
    (read,) = people.read(Person, "SELECT * FROM person WHERE name = 'Zoe'")
    assert (read.signed, read.tall, read.age) == (zoe, True, None)


def test_a_transaction_is_all_or_nothing_and_takes_back_what_stands_outside(people: Database) -> None:
    undone: list[str] = []

    def change() -> None:
        with people.transaction():
            people.undo_with(lambda: undone.append("file"))
            people.write("UPDATE person SET age = 1")
            with people.transaction():
                people.write("UPDATE person SET tall = 1")
            people.write("DELETE FROM person")

    with pytest.raises(sqlite3.IntegrityError, match="people stay; always"):
        change()
    assert people.read(Person, "SELECT * FROM person ORDER BY name") == [ADA, BOB]
    assert undone == ["file"]


def test_a_view_is_one_moment_whatever_others_write(people: Database) -> None:
    with people.view():
        before = people.read(int, "SELECT COUNT(*) FROM person")
        with Database(people.path, TWO) as other:
            other.insert("person", Body(body=b""), name="Cleo", tall=0)
        assert people.read(int, "SELECT COUNT(*) FROM person") == before == [2]
    assert people.read(int, "SELECT COUNT(*) FROM person") == [3]
    assert people.changed()
    assert not people.changed()


def test_a_migration_keeps_a_copy_of_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "people.sqlite"
    with Database(path, ONE) as database:
        database.insert("person", Body(body=b"\x01"), name="Ada", tall=1)
    assert [item.name for item in tmp_path.iterdir()] == ["people.sqlite"]  # a new file has nothing to copy
    with Database(path, TWO) as database:
        assert [person.towns for person in database.read(Person, "SELECT * FROM person")] == [("Adaville",)]
    copy = tmp_path / "people.sqlite.version-1"
    assert copy.stat().st_mode & 0o777 == 0o600
    with Database(copy, ONE) as database:  # the program before can use it
        assert [person.towns for person in database.read(Person, "SELECT * FROM person")] == [()]
    with pytest.raises(DataFault, match=r"people\.sqlite: schema version 2, expected at most 1") as caught:
        Database(path, ONE)
    assert (caught.value.code, version_of(path, TWO)) == ("STATE_CORRUPT", 2)


def test_a_migration_that_is_broken_off_at_any_step_is_made_by_the_next_start(tmp_path: Path) -> None:
    class BrokenOff(BaseException):
        pass

    def migrated(place: Path, *, until: int) -> int:
        path, passed = place / "people.sqlite", list[DurableStep]()
        place.mkdir()
        with Database(path, ONE) as database:
            database.insert("person", Body(body=b"\x01"), name="Ada", tall=1)

        def break_off(step: DurableStep) -> None:
            passed.append(step)
            if len(passed) == until:
                raise BrokenOff

        try:
            with watch_steps(break_off):
                Database(path, TWO).close()
        except BrokenOff:
            assert version_of(path, TWO) == (2 if passed[-1].kind == "commit" and passed[-1].moment == "after" else 1)
        with Database(path, TWO) as database:
            assert [person.towns for person in database.read(Person, "SELECT * FROM person")] == [("Adaville",)]
        with closing(sqlite3.connect(place / "people.sqlite.version-1")) as copy:
            assert copy.execute("SELECT name FROM person").fetchall() == [("Ada",)]
        return len(passed)

    steps = migrated(tmp_path / "whole", until=0)
    assert steps == 8  # the copy's bytes, its name and the folder, and the commit, before and after each
    for until in range(1, steps + 1):
        migrated(tmp_path / f"until-{until}", until=until)


def test_an_old_file_that_is_only_looked_at_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "people.sqlite"
    Database(path, ONE).close()
    with pytest.raises(DataFault, match="schema version 1, expected 2"):
        Database(path, TWO, read_only=True)
    assert (version_of(path, TWO), inspect(path, TWO)) == (1, 1)


def test_a_file_without_a_table_or_of_something_else_is_refused(people: Database, tmp_path: Path) -> None:
    people.check()
    people.write("DROP TRIGGER person_stays")
    with pytest.raises(DataFault, match="without trigger person_stays"):
        people.check()
    with pytest.raises(DataFault, match="without trigger person_stays"):
        inspect(people.path, TWO)
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as made:
        made.execute("CREATE TABLE person (x)")
    with pytest.raises(DataFault, match="cannot be used as a list of people") as caught:
        Database(other, TWO)
    assert caught.value.code == "STATE_CORRUPT"


def test_a_full_disk_is_one_error_and_leaves_what_was(people: Database) -> None:
    pages = people.only(int, "PRAGMA page_count")
    people.rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DataFault, match="no space left on the disk") as caught:
        people.insert("person", Body(body=bytes(1_000_000)), name="Zoe", tall=0)
    assert caught.value.code == "DISK_FULL"
    assert people.read(str, "SELECT name FROM person ORDER BY name") == ["Ada", "Bob"]


REFUSALS = {errno.ENOSPC: "DISK_FULL", errno.EDQUOT: "DISK_FULL", errno.EMFILE: "FILES_EXHAUSTED"} | {
    errno.EROFS: "STATE_READ_ONLY",
    errno.EIO: "STATE_CORRUPT",
    0: "STATE_CORRUPT",
}


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("said", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR_WRITE])
def test_a_file_that_sqlite_cannot_open_or_write_is_damaged_only_where_the_disk_takes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int, number: int
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    if number:
        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    path, error = tmp_path / "people.sqlite", sqlite3.OperationalError("as SQLite says it")
    path.touch()
    error.sqlite_errorcode = said
    with pytest.raises(DataFault) as caught, translate_sqlite_errors(path):
        raise error
    assert (caught.value.code, "backup" in caught.value.hint) == (REFUSALS[number], REFUSALS[number] == "STATE_CORRUPT")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.machine
def test_a_lack_of_inodes_is_a_full_disk_and_the_database_is_whole_afterwards(small_disk: Any) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=9", small_disk.path], check=True)
    path = small_disk.path / "people.sqlite"
    Database(path, TWO).close()
    for number in range(7):
        (small_disk.path / str(number)).touch()
    with pytest.raises(DataFault, match="9 inodes are free") as found:
        require_room(small_disk.path)
    with pytest.raises(DataFault, match="no space left") as caught:
        Database(path, TWO)
    assert (caught.value.code, found.value.code) == ("DISK_FULL", "DISK_FULL")
    for number in range(3):
        (small_disk.path / str(number)).unlink()
    Database(path, TWO).close()


def test_looking_at_a_database_meets_a_log_that_is_taken_away_at_that_moment(tmp_path: Path) -> None:
    path, log, stop = tmp_path / "some.sqlite", tmp_path / "some.sqlite-wal", threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            log.write_bytes(b"x")
            log.unlink()

    with ThreadPoolExecutor(1) as pool:
        goes = pool.submit(come_and_go)
        try:
            seen, end = set[bool](), time.monotonic() + PATIENCE_SECONDS
            while seen != {False, True} and time.monotonic() < end:
                seen |= {looking_uri(path).endswith("immutable=1") for _ in range(20_000)}
        finally:
            stop.set()
        goes.result()
    assert seen == {False, True}
