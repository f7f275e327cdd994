"""A read of a database that does not answer: an end of the program breaks it off, a person hears of it, and it has a limit."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from verticil.party.dataset.sources import open_source, reading
from verticil.party.dataset.sources.open_source import read_parts
from verticil.party.dataset.sources.reading import Cancel, Stop, read, stopped_by
from verticil.party.dataset.sources.server import Server
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault

ENDLESS = {
    "duckdb": "SELECT max(hash(i, j)) AS id FROM range(1000000000) a(i), range(1000000000) b(j)",
    "sqlite": "WITH RECURSIVE g(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM g) SELECT count(*) AS id FROM g",
}


@pytest.fixture(params=["duckdb", "sqlite", "sqlalchemy"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> DatasetRule:
    """A query that no database ever answers."""
    kind = "sqlite" if request.param == "sqlalchemy" else request.param
    path = tmp_path / f"t.{kind}"
    with closing(duckdb.connect(str(path)) if kind == "duckdb" else sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS id")
    if request.param == "sqlalchemy":
        server = Server(url=f"sqlite+pysqlite:///{path}")
        return DatasetRule(format="server", server=server, id="id", query=ENDLESS[kind])
    return DatasetRule(path=path, format=kind, id="id", query=ENDLESS[kind])


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SAID_AFTER_SECONDS", 0.05)


class _AtWarning(logging.Handler):
    """Sets a stop when it is said that a database is waited for: by then the database works."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self.stop, self.lines = stop, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        threading.Thread(target=self.stop.set).start()


@pytest.fixture
def at_warning() -> _AtWarning:
    """Put before the reads of the test."""
    return _AtWarning(Stop())


def read_until_stopped(rule: DatasetRule, handler: _AtWarning) -> DataFault:
    log = logging.getLogger(reading.__name__)
    log.addHandler(handler)
    try:
        with stopped_by(handler.stop), pytest.raises(DataFault) as caught:
            list(read_parts(rule, ["id"]))
    finally:
        log.removeHandler(handler)
    return caught.value


def of_databases() -> list[threading.Thread]:
    """Threads in which a database is read."""
    return [thread for thread in threading.enumerate() if thread.name == "database"]


def test_an_end_of_the_program_breaks_off_what_a_database_does(endless: DatasetRule, at_warning: _AtWarning) -> None:
    found = read_until_stopped(endless, at_warning)
    assert (found.code, "the program ends" in found.message) == ("DATA_INTERRUPTED", True)
    assert found.__context__ is None
    assert of_databases() == []  # the database itself has stopped
    assert len(at_warning.lines) == 1
    assert "waiting for the database" in at_warning.lines[0]
    assert read_until_stopped(endless, at_warning).code == "DATA_INTERRUPTED"  # one that begins later ends at once


def test_a_read_that_takes_longer_than_its_limit_is_broken_off_by_name(
    endless: DatasetRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_source, "LONGEST_SECONDS", 0.1)
    with pytest.raises(DataFault) as caught:
        list(read_parts(endless, ["id"]))
    assert (caught.value.code, "has not answered for" in caught.value.message) == ("DATA_INTERRUPTED", True)
    assert of_databases() == []


def test_a_driver_that_nobody_can_break_off_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_TO_CLOSE_SECONDS", 0.2)
    held, stop = threading.Event(), Stop()

    def items(cancel: Cancel):
        with cancel.by(None):
            threading.Thread(target=stop.set).start()
            held.wait()
            yield 1

    rule = DatasetRule(format="server", server=Server(url="x://y"), id="id", table="t")
    with stopped_by(stop), pytest.raises(DataFault, match="the program ends"):
        next(read(rule, items))
    assert len(of_databases()) == 1
    held.set()
    of_databases()[0].join()


def test_a_stop_reaches_the_threads_that_a_task_starts(endless: DatasetRule, at_warning: _AtWarning) -> None:
    """As the daemon's do: a context goes with the thread, and the stop with the context."""

    async def serve() -> DataFault:
        with stopped_by(at_warning.stop):
            return await asyncio.to_thread(read_until_stopped, endless, _AtWarning(at_warning.stop))

    assert asyncio.run(serve()).code == "DATA_INTERRUPTED"


COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from verticil.party.dataset.sources import reading
from verticil.party.dataset.sources.open_source import read_parts
from verticil.party.dataset.sources.source_table import DatasetRule
reading.SAID_AFTER_SECONDS = 0.1
list(read_parts(DatasetRule(path=Path(sys.argv[1]), format="sqlite", id="id", query=sys.argv[2]), ["id"]))
"""


def test_ctrl_c_ends_a_command_that_waits_for_a_database(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id)")
    program = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(path), ENDLESS["sqlite"]],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    assert "waiting for the database" in program.stderr.readline()
    program.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in program.communicate()[1]
    assert program.returncode != 0


def test_a_lock_that_another_connection_holds_is_named_through_sqlalchemy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as a query that the database does not understand, which ends a study."""
    from verticil.party.dataset.sources import sqlalchemy

    monkeypatch.setitem(sqlalchemy._LOCK_TIME_OUTS, "sqlite", ("PRAGMA busy_timeout = 50",))
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id)")
        connection.execute("BEGIN EXCLUSIVE")
        rule = DatasetRule(format="server", server=Server(url=f"sqlite+pysqlite:///{path}"), id="id", table="t")
        with pytest.raises(DataFault) as caught:
            open_source.header(rule)
        assert (caught.value.code, "locked" in caught.value.message) == ("DATA_INTERRUPTED", True)
        connection.execute("ROLLBACK")
    assert open_source.header(rule) == ("id",)
