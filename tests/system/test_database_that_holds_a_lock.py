"""A real PostgreSQL that holds a lock: the daemon ends when it is told to, and a command says what it waits for, and ends, too.

Nothing but a cancelled read can end here: the database would wait an hour for the lock.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi
from pyarrow import csv

from support import PATIENCE_SECONDS
from support.postgresql import PostgreSQL

pytestmark = [pytest.mark.machine, pytest.mark.slow]

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'lender' AND wait_event_type = 'Lock'"
OPEN = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'lender'"


def until(server: PostgreSQL, query: str, count: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while server.run(query) != [(count,)]:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server(postgresql: PostgreSQL) -> Iterator[PostgreSQL]:
    postgresql.run(
        "CREATE SCHEMA lent",
        "CREATE TABLE lent.people (id text, smoker text, age text, town text, note text)",
        "CREATE ROLE lender LOGIN PASSWORD 'word'",
        "ALTER ROLE lender SET lock_timeout = '1h'",
        "GRANT USAGE ON SCHEMA lent TO lender",
        "GRANT SELECT ON lent.people TO lender",
    )
    yield postgresql
    postgresql.run("DROP SCHEMA lent CASCADE", "DROP ROLE lender")


@pytest.fixture
def nodes(make_nodes: Callable[..., Any], server: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A federation in which the clinic's table is in the database."""
    monkeypatch.setenv("LENT_WORD", "word")
    made = make_nodes(n=1200)
    config: Path = made.made.parties["clinic"] / "party.toml"
    text = config.read_text()
    (path,) = re.findall(r'^path = "(.*)"$', text, re.M)
    table = csv.read_csv(config.parent / path, convert_options=csv.ConvertOptions(
        column_types=dict.fromkeys(("id", "smoker", "age", "town", "note"), pa.string())))  # fmt: skip
    server.run("TRUNCATE lent.people")
    server.load("lent", "people", table)
    lines = [line for line in text.splitlines() if not re.match(r"(format|delimiter|encoding) = ", line)]
    url = server.url(user="lender", password="")
    where = f'url = "{url}"\npassword_env = "LENT_WORD"\ntable = "lent.people"'
    config.write_text("\n".join(lines).replace(f'path = "{path}"', where) + "\n")
    return made


def test_a_daemon_that_waits_for_a_lock_ends_when_it_is_told_to(nodes: Any, server: PostgreSQL) -> None:
    nodes.point_to(nodes.start_miner())
    nodes.submit()
    with dbapi.connect(server.url()) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE lent.people IN ACCESS EXCLUSIVE MODE")
        nodes.start_party("clinic")
        until(server, WAITING, 1)
        codes = nodes.stop()
        assert codes["clinic"] == 0, nodes.log("clinic")
        until(server, OPEN, 0)  # the database works for nobody any more
        connection.rollback()


@pytest.mark.parametrize("words", [("party", "check", "--config"), ("doctor",)])
def test_a_command_says_what_it_waits_for_and_ends_by_ctrl_c(
    nodes: Any, server: PostgreSQL, words: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "verticil.cli", *words, str(nodes.made.parties["clinic"] / "party.toml")]
    # a process in the background would ignore Ctrl-C
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with dbapi.connect(server.url()) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE lent.people IN ACCESS EXCLUSIVE MODE")
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=heard
        ) as program:
            until(server, WAITING, 1)
            assert program.stderr is not None
            said = program.stderr.readline()
            assert said.startswith("table 'lent.people': waiting for the database"), said
            program.send_signal(signal.SIGINT)
            rest = program.communicate(timeout=PATIENCE_SECONDS)
        assert program.returncode == 130, (said, rest)
        until(server, OPEN, 0)
        connection.rollback()
