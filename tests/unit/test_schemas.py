"""Both nodes' databases: one schema, whole; a later one is a step, in one transaction behind a copy; earlier ones are refused.

No step has shipped yet, so one is planted here: whoever adds the first one finds the machinery tested on both schemas.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.documents import party_toml
from support.site_folder import write_site
from verticil.cli.main import main
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.forgotten_catalogue import check_memory, inspect_catalogue
from verticil.miner.storage.schema import SCHEMA as OF_MINER
from verticil.party.storage.database import FILE_NAME as PARTY
from verticil.party.storage.database import SCHEMA as OF_PARTY
from verticil.party.storage.database import Database as PartyDatabase
from verticil.party.storage.database import holds_nothing
from verticil.shared.core.errors import DataFault
from verticil.shared.storage.database import Database, Schema, inspect, version_of
from verticil.shared.storage.durable import DurableStep, watch_steps

SCHEMAS = {"party": OF_PARTY, "miner": OF_MINER}
both = pytest.mark.parametrize("node", SCHEMAS)
INSERT = {
    "party": "INSERT INTO rule_approval (digest, at) VALUES (x'aa', '2027-01-01T00:00:00Z')",
    "miner": "INSERT INTO forgotten VALUES (x'aa', '2027-01-01T00:00:00Z')",
}
TABLE = {"party": "rule_approval", "miner": "forgotten"}


def planted(node: str, *, also: Callable[[sqlite3.Connection], None] = lambda _: None) -> Schema:
    """Version 2, which nobody has: a column more, filled from another one, and a table."""

    def step(connection: sqlite3.Connection) -> None:
        connection.execute(f"ALTER TABLE {TABLE[node]} ADD COLUMN day TEXT NOT NULL DEFAULT ''")
        connection.execute(f"UPDATE {TABLE[node]} SET day = substr(at, 1, 10)")
        also(connection)
        connection.execute("CREATE TABLE planted (x INTEGER)")

    return dataclasses.replace(SCHEMAS[node], steps=(*SCHEMAS[node].steps, step))


def of_version_1(node: str, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / ("party.sqlite" if node == "party" else "catalogue.sqlite")
    with Database(path, SCHEMAS[node]) as database:
        database.write(INSERT[node])
    return path


def contents(path: Path) -> tuple[list[Any], ...]:
    """Whole: what it is, its tables, and their rows."""
    with closing(sqlite3.connect(path)) as opened:
        tables = opened.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        named = [name for name, sql in tables if sql and sql.startswith("CREATE TABLE")]
        rows = [(name, opened.execute(f"SELECT * FROM {name}").fetchall()) for name in named]
        heads = [opened.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")]
    return tables, rows, heads


def before_1_0_0(path: Path, version: int, *tables: str) -> Path:
    """A database as programs before the first tag made them: a version, and no application id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as made:
        for table in tables:
            made.execute(table)
        made.execute(f"PRAGMA user_version = {version}")
        made.commit()
    return path


@both
def test_a_new_database_has_version_1_and_says_whose_it_is(node: str, tmp_path: Path) -> None:
    path = of_version_1(node, tmp_path)
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("PRAGMA user_version").fetchone() == (1,)
        assert opened.execute("PRAGMA application_id").fetchone() == (SCHEMAS[node].application_id,)
    assert OF_PARTY.application_id != OF_MINER.application_id
    other = {"party": OF_MINER, "miner": OF_PARTY}[node]
    before = contents(path)
    with pytest.raises(DataFault, match=f"is not {other.what}") as caught:
        Database(path, other)
    assert (caught.value.code, contents(path)) == ("STATE_CORRUPT", before)


@both
def test_a_planted_step_keeps_every_row_and_a_copy_of_what_was(node: str, tmp_path: Path) -> None:
    path = of_version_1(node, tmp_path)
    before = contents(path)
    with Database(path, planted(node)) as database:
        assert database.rows(f"SELECT day FROM {TABLE[node]}") == [("2027-01-01",)]
        database.check()
    assert inspect(path, planted(node)) == 2
    assert contents(path.with_name(f"{path.name}.version-1")) == before
    with pytest.raises(DataFault, match="schema version 2, expected at most 1") as caught:  # a newer one is refused
        Database(path, SCHEMAS[node])
    assert caught.value.code == "STATE_CORRUPT"
    assert version_of(path, planted(node)) == 2


@both
def test_a_planted_step_that_fails_leaves_everything_as_it_was(node: str, tmp_path: Path) -> None:
    def full(_connection: sqlite3.Connection) -> None:
        raise OSError("no room")

    path = of_version_1(node, tmp_path)
    before = contents(path)
    with pytest.raises(OSError, match="no room"):
        Database(path, planted(node, also=full))
    assert contents(path) == before
    Database(path, planted(node)).close()
    assert version_of(path, planted(node)) == 2


@both
def test_a_planted_step_that_is_killed_anywhere_is_taken_by_the_next_start(node: str, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def taken(place: Path, *, until: int) -> int:
        path, passed = of_version_1(node, place), list[DurableStep]()

        def kill(step: DurableStep) -> None:
            passed.append(step)
            if len(passed) == until:
                raise Killed

        try:
            with watch_steps(kill):
                Database(path, planted(node)).close()
        except Killed:
            is_done = passed[-1].kind == "commit" and passed[-1].moment == "after"
            assert version_of(path, planted(node)) == (2 if is_done else 1)
        with Database(path, planted(node)) as database:
            assert database.rows(f"SELECT day FROM {TABLE[node]}") == [("2027-01-01",)]
        return len(passed)

    steps = taken(tmp_path / "whole", until=0)
    assert steps == 8
    for until in range(1, steps + 1):
        taken(tmp_path / f"until-{until}", until=until)


@both
def test_an_older_database_that_is_only_looked_at_is_left_as_it_is(node: str, tmp_path: Path) -> None:
    path = of_version_1(node, tmp_path)
    with pytest.raises(DataFault, match="schema version 1, expected 2"):
        Database(path, planted(node), read_only=True)
    assert version_of(path, planted(node)) == 1


@pytest.mark.parametrize("version", [1, 8])
def test_a_party_s_state_of_before_the_first_tag_is_refused_by_name_and_left_as_it_is(
    version: int, tmp_path: Path
) -> None:
    path = before_1_0_0(
        tmp_path / PARTY, version, "CREATE TABLE study (digest BLOB)", "INSERT INTO study VALUES (x'aa')"
    )
    before = path.read_bytes()
    for use in (
        lambda: PartyDatabase(tmp_path),
        lambda: PartyDatabase(tmp_path, read_only=True),
        lambda: PartyDatabase(tmp_path, create=True),
        lambda: holds_nothing(tmp_path),
        lambda: inspect(path, OF_PARTY),
    ):
        with pytest.raises(
            DataFault, match=r"party\.sqlite: a party's state database of before version 1\.0\.0"
        ) as caught:
            use()
        assert (caught.value.code, caught.value.exit_code) == ("STATE_UNSUPPORTED", 1)
        assert "begin anew: `verticil party init` in another folder" in caught.value.hint
        assert "nothing was deleted" in caught.value.hint
    assert [item.name for item in tmp_path.iterdir()] == [PARTY]
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [1, 5])
def test_a_miner_s_state_of_before_the_first_tag_is_refused_by_name_and_left_as_it_is(
    version: int, tmp_path: Path
) -> None:
    study = "CREATE TABLE study (digest BLOB, version INTEGER)"
    path = before_1_0_0(tmp_path / "catalogue.sqlite", version, study, "INSERT INTO study VALUES (x'aa', 3)")
    before = path.read_bytes()
    for use in (lambda: Catalogue(path), lambda: check_memory(tmp_path), lambda: inspect_catalogue(tmp_path)):
        with pytest.raises(DataFault, match=r"the miner's catalogue of before version 1\.0\.0") as caught:
            use()
        assert (caught.value.code, caught.value.exit_code) == ("STATE_UNSUPPORTED", 1)
        assert "set another state_directory in miner.toml" in caught.value.hint
        assert "nothing was deleted" in caught.value.hint
    assert path.read_bytes() == before


def test_commands_on_a_party_of_before_the_first_tag_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state" / PARTY
    write_site(tmp_path, party_toml())
    state.unlink()
    before = before_1_0_0(state, 8, "CREATE TABLE study (digest BLOB)").read_bytes()
    config = str(tmp_path / "party.toml")
    for command in (
        ["party", "status", "--config", config],
        ["party", "ledger", "--config", config],
        ["party", "inbox", "--config", config],
    ):
        assert main(command) == 1, command
        told = capsys.readouterr().err
        assert "STATE_UNSUPPORTED" in told, command
        assert "of before version 1.0.0" in " ".join(told.split()), command
    assert state.read_bytes() == before
