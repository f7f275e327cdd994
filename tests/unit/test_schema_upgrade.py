"""A site's database of an older version is brought to this one when it is opened, and forgets nothing."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from verticil.party.policy.ledger import Ledger
from verticil.party.storage.database import FILE_NAME, SCHEMA_VERSION, Database
from verticil.party.storage.studies import PartyState
from verticil.shared.errors import DataFault

DATA = Path(__file__).resolve().parents[1] / "data"
OLDER = range(1, SCHEMA_VERSION)


def schema(directory: Path) -> dict[str, str]:
    """Every table, index and trigger, in words without comments and spaces."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as opened:
        found = opened.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: re.sub(r"\s+", "", re.sub(r"--[^\n]*", "", sql)) for name, sql in found}


def contents(directory: Path) -> dict[str, list[dict[str, object]]]:
    with closing(sqlite3.connect(directory / FILE_NAME)) as opened:
        opened.row_factory = sqlite3.Row
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [dict(row) for row in opened.execute(f"SELECT * FROM {name}")] for name in tables}


@pytest.mark.parametrize("version", OLDER)
def test_every_older_schema_becomes_the_present_one_with_all_its_rows(version: int, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as made:
        made.executescript((DATA / f"party-schema-{version}.sql").read_text(encoding="utf-8"))
    before = contents(tmp_path)
    assert sum(len(rows) for rows in before.values()) >= 8
    with Database(tmp_path) as database:
        hearts, lungs = PartyState(database).studies()
        assert (hearts.study_id, hearts.approval, hearts.n_votes, hearts.n_common) == ("hearts", b"{}", 1, 1234)
        assert (lungs.study_id, lungs.denial_sent, lungs.revocation_sent) == ("lungs", True, None)
        assert Ledger(database).spent("people") == 2.5
        assert Ledger(database).columns_sent(hearts.digest) == {("smoker",)}
        with pytest.raises(sqlite3.IntegrityError, match="never changed"):
            database.write("UPDATE ledger SET charged = 0")
    after = contents(tmp_path)
    for table, rows in before.items():
        for old, new in zip(rows, after[table], strict=True):
            assert old.items() <= new.items(), table
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    Database(fresh, create=True).close()
    assert schema(tmp_path) == schema(fresh)
    Database(tmp_path).close()
    assert contents(tmp_path) == after  # opening it again changes nothing


def test_a_newer_schema_is_refused_and_not_touched(tmp_path: Path) -> None:
    Database(tmp_path, create=True).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as made:
        made.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(DataFault, match="another version of verticil wrote it"):
        Database(tmp_path)
