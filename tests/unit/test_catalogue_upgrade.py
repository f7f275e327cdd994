"""A miner's catalogue of an older version is brought to this one when it is opened, and forgets nothing."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.records import StoredSignature
from verticil.miner.storage.schema import SCHEMA
from verticil.shared.core.errors import DataFault

DATA = Path(__file__).resolve().parents[1] / "data"
OLDER = range(1, SCHEMA.version)
HEARTS, LUNGS, SCORED = b"\xaa" * 32, b"\xbb" * 32, b"\xdd" * 32


def schema(path: Path) -> dict[str, str]:
    """Every table and index, in words without comments and spaces."""
    with closing(sqlite3.connect(path)) as opened:
        found = opened.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: re.sub(r"\s+", "", re.sub(r"--[^\n]*", "", sql)) for name, sql in found}


def contents(path: Path) -> dict[str, list[dict[str, object]]]:
    with closing(sqlite3.connect(path)) as opened:
        opened.row_factory = sqlite3.Row
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [dict(row) for row in opened.execute(f"SELECT * FROM {name}")] for name in tables}


@pytest.mark.parametrize("version", OLDER)
def test_every_older_catalogue_becomes_the_present_one_with_all_its_rows(version: int, tmp_path: Path) -> None:
    path = tmp_path / "catalogue.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.executescript((DATA / f"miner-schema-{version}.sql").read_text(encoding="utf-8"))
    before = contents(path)
    assert sum(len(rows) for rows in before.values()) >= 11
    catalogue = Catalogue(path)
    assert catalogue.digests() == (HEARTS, LUNGS)
    hearts, lungs = catalogue.study(HEARTS), catalogue.study(LUNGS)
    assert hearts is not None
    assert lungs is not None
    assert (hearts.version, hearts.n_common, hearts.published_at) == (12, 1234, "2026-01-03T00:00:00Z")
    assert hearts.approvals["insurer"] == StoredSignature(body=b"{}", signature=b"\x03", certificate=b"\x04")
    assert hearts.columns[0].receipt.signature == b"\x05"
    assert lungs.denials == {"clinic": "too little noise"}
    assert (hearts.revocations, hearts.countersignatures, hearts.commitments) == ({}, {}, {})
    upload = catalogue.uploads.find("u1")
    assert upload is not None
    assert upload.committed == 100
    # What later versions have besides can be used.
    assert catalogue.scores.put(SCORED, b"{}", expires=dt.date(2099, 12, 31), party="insurer", scores=[2])
    known = catalogue.scores.study(SCORED)
    assert known is not None
    assert known.parties == (frozenset({"clinic", "insurer"}) if version >= 2 else frozenset({"insurer"}))
    catalogue.close()
    after = contents(path)
    for table, rows in before.items():
        for old in rows:
            assert any(old.items() <= new.items() for new in after[table]), table
    Catalogue(tmp_path / "fresh.sqlite").close()
    assert schema(path) == schema(tmp_path / "fresh.sqlite")
    Catalogue(path).close()
    assert contents(path) == after  # opening it again changes nothing


def test_a_newer_catalogue_is_refused_by_its_version_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.sqlite"
    Catalogue(path).close()
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"PRAGMA user_version = {SCHEMA.version + 1}")
    before = contents(path)
    with pytest.raises(
        DataFault, match=f"schema version {SCHEMA.version + 1}, expected at most {SCHEMA.version}"
    ) as caught:
        Catalogue(path)
    assert (caught.value.code, caught.value.hint) == (
        "STATE_CORRUPT",
        "another version of verticil wrote it; use that version",
    )
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("PRAGMA user_version").fetchone() == (SCHEMA.version + 1,)
    assert contents(path) == before
