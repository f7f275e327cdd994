"""A site's database of an older version is brought to this one when it is opened, and forgets nothing."""

from __future__ import annotations

import math
import re
import sqlite3
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import cast

import pytest

from verticil.party.dataset.releases import Release
from verticil.party.policy.ledger import Ledger
from verticil.party.storage import database as party_database
from verticil.party.storage.database import FILE_NAME, SCHEMA_VERSION, Database
from verticil.party.storage.studies import PartyState
from verticil.shared.core.errors import DataFault
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import ExactStatistics, GaussianCounts, RandomizedColumn

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
        found = {name: [dict(row) for row in opened.execute(f"SELECT * FROM {name}")] for name in tables}
    found["sqlite_sequence"].sort(key=lambda row: str(row["name"]))
    return found


def as_of_6(row: dict[str, object]) -> dict[str, object]:
    """What version 6 keeps as it was: not a negative number in place of a unit, nor what a unit's noise is told by."""
    kept = {key: value for key, value in row.items() if key != "facts"}
    return kept | {"unit": None} if isinstance(kept.get("unit"), int) and cast("int", kept["unit"]) < 0 else kept


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
        assert Ledger(database).spent("people").epsilon == 2.5
        assert Ledger(database).columns_sent(hearts.digest) == {("smoker",)}
        with pytest.raises(sqlite3.IntegrityError, match="never changed"):
            database.write("UPDATE ledger SET charged = 0")
    after = contents(tmp_path)
    for table, rows in before.items():
        if table != "delta_charge":  # a delta stands in the ledger now
            for old, new in zip(map(as_of_6, rows), map(as_of_6, after[table]), strict=True):
                assert old.items() <= new.items(), table
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    Database(fresh, create=True).close()
    assert schema(tmp_path) == schema(fresh)
    Database(tmp_path).close()
    assert contents(tmp_path) == after  # opening it again changes nothing


def test_a_ledger_of_numbers_becomes_one_of_events_at_the_same_charges(tmp_path: Path) -> None:
    """Version 5 kept an epsilon a row, statistics under the unit -1, and deltas elsewhere."""
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as made:
        made.executescript((DATA / "party-schema-5.sql").read_text(encoding="utf-8"))
        (epsilon,) = made.execute("SELECT sum(charged) FROM ledger WHERE charged < 9e999").fetchone()
        (delta,) = made.execute("SELECT sum(delta) FROM delta_charge").fetchone()
    with Database(tmp_path) as database:
        ledger = Ledger(database)
        assert ledger.spent("people").epsilon + ledger.spent("clinic").epsilon == pytest.approx(epsilon)
        assert ledger.spent("clinic") == Cost(epsilon=math.fsum([0.30000000000000004, 0.5, 1.25]), delta=delta)
        noise = GaussianCounts(epsilon=0.5, delta=3e-7)
        assert [(row.event, row.charged, row.charged_delta) for row in ledger.rows()[1:]] == [
            (RandomizedColumn(epsilon=0.30000000000000004), 0.30000000000000004, 0.0),
            (noise, 0.5, 3e-7),
            (noise, 0.0, 0.0),
            (RandomizedColumn(epsilon=1.25), 1.25, 0.0),
            (ExactStatistics(), math.inf, 0.0),
        ]
        assert all((row.epsilon, row.delta) == tuple(astuple(cost_of(row.event))) for row in ledger.rows())
        units = database.rows("SELECT unit, kind FROM ledger ORDER BY number")
        assert [unit for unit, _ in units] == [0, 2, None, None, None, None]
        peers = ledger.rows()[1].study_digest
        assert ledger.columns_sent(bytes.fromhex(peers)) == {("age",), ("weight",)}
        assert ledger.has_statistics(bytes.fromhex(peers), noise)
        assert not ledger.has_statistics(bytes.fromhex(peers), ExactStatistics())
        assert database.rows("SELECT number, kind, unit, epsilon, delta FROM reserved") == [
            (0, "randomized-column", 0, 0.7, 0.0),
            (1, "gaussian-counts", None, 0.4, 2e-7),
        ]
        ((facts,),) = database.rows("SELECT facts FROM artifact")
        assert Release.from_json(str(facts)).event == RandomizedColumn(epsilon=1.0986122886681098)
        ((row,),) = database.rows("SELECT max(seq) FROM sqlite_sequence WHERE name = 'ledger'")
        assert row == 6
        database.check()
    copy = tmp_path / f"{FILE_NAME}.version-5"
    with closing(sqlite3.connect(copy)) as before:
        assert before.execute("PRAGMA user_version").fetchone() == (5,)
        assert before.execute("SELECT count(*), min(unit) FROM ledger").fetchone() == (6, -2)


def test_a_migration_that_breaks_off_leaves_the_older_database_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as made:
        made.executescript((DATA / "party-schema-5.sql").read_text(encoding="utf-8"))
    before, tables = contents(tmp_path), schema(tmp_path)

    def full(_facts: str) -> str:
        raise OSError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(party_database, "_facts_of_5", full)  # the last statement of the step
        with pytest.raises(DataFault):
            Database(tmp_path)
    assert (contents(tmp_path), schema(tmp_path)) == (before, tables)
    with Database(tmp_path) as database:
        assert len(Ledger(database).rows()) == 6


def test_a_newer_schema_is_refused_and_not_touched(tmp_path: Path) -> None:
    Database(tmp_path, create=True).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as made:
        made.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(DataFault, match="another version of verticil wrote it"):
        Database(tmp_path)
