"""The catalogue: one transaction a fact, versions that only grow, facts that stay, files that are not ours."""

from __future__ import annotations

import sqlite3

import pytest

from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.records import Failure, ReleaseFile, StoredColumn, StoredSignature
from verticil.miner.storage.schema import SCHEMA
from verticil.shared.core.errors import DataFault

STUDY = b"s" * 32
SIGNED = StoredSignature(body=b"body", signature=b"signature", certificate=b"certificate")


def column(unit: int = 0, upload_id: str = "u0", receipt: StoredSignature = SIGNED) -> StoredColumn:
    return StoredColumn(
        unit=unit,
        upload_id=upload_id,
        artifact_sha256=b"a" * 32,
        artifact_size=20,
        n_records=7,
        item_bytes=1,
        column_sha256=b"c" * 32,
        receipt=receipt,
    )


@pytest.fixture
def catalogue(tmp_path):
    made = Catalogue(tmp_path / "catalogue.sqlite")
    made.add_study(STUDY, study_id="study", proposal=b"{}", submitter="anna", at="2026-11-21T10:00:00Z")
    yield made
    made.close()


FACTS = [
    lambda c: c.add_approval(STUDY, "a", SIGNED),
    lambda c: c.set_effective(STUDY, b"{ }", b"e" * 32),
    lambda c: c.align(STUDY, n_common=7, common_sha256=b"d" * 32, bitmaps={"a": (1, b"b" * 32)}),
    lambda c: c.confirm(STUDY, "a"),
    lambda c: c.uploads.begin(STUDY, "u0", unit=0, size=20, sha256=b"a" * 32),
    lambda c: c.add_column(STUDY, column()),
    lambda c: c.set_learning(STUDY, "estimating"),
    lambda c: c.set_learning(STUDY, "learning"),
    lambda c: c.publish(STUDY, [ReleaseFile(path="model.json", size=1, sha256=b"f" * 32)], at="2026-11-21T10:00:00Z"),
]


def test_each_fact_grows_the_version_once_and_survives_reopening(catalogue, tmp_path):
    for expected, fact in enumerate(FACTS, start=2):
        for _ in range(2):
            fact(catalogue)
            assert catalogue.versions() == {STUDY: expected}
    before = catalogue.study(STUDY)
    catalogue.close()
    reopened = Catalogue(tmp_path / "catalogue.sqlite")
    assert reopened.study(STUDY) == before
    assert before.columns[0] == column()
    assert (before.n_common, before.confirmed, before.learning) == (7, frozenset({"a"}), "learning")
    assert reopened.release_file(STUDY, "model.json").size == 1
    assert reopened.release_file(STUDY, "model.json/../x") is None
    reopened.close()


def test_first_facts_stay(catalogue):
    other = StoredSignature(body=b"other", signature=b"", certificate=b"")
    catalogue.add_approval(STUDY, "a", SIGNED)
    catalogue.add_approval(STUDY, "a", other)
    catalogue.add_column(STUDY, column())
    catalogue.add_column(STUDY, column(receipt=other))
    catalogue.fail(STUDY, Failure(code="DATA_CHANGED", message="first", hint=""))
    catalogue.fail(STUDY, Failure(code="INTERNAL", message="second", hint=""))
    catalogue.set_learning(STUDY, "learning")
    catalogue.set_learning(STUDY, "estimating")
    record = catalogue.study(STUDY)
    assert record.approvals["a"] == SIGNED
    assert record.columns[0].receipt == SIGNED
    assert record.failure.message == "first"
    assert record.learning == "learning"


@pytest.mark.parametrize(
    "end",
    [
        lambda c: c.fail(STUDY, Failure(code="INTERNAL", message="", hint="")),
        lambda c: c.withdraw(STUDY),
        lambda c: c.expire(STUDY),
        lambda c: c.add_denial(STUDY, "a", "no"),
    ],
)
def test_a_study_that_ended_is_not_published(catalogue, end):
    end(catalogue)
    assert not catalogue.publish(STUDY, [], at="2026-11-21T10:00:00Z")
    assert catalogue.study(STUDY).published_at is None


def test_a_study_that_was_denied_does_not_fail_as_well(catalogue):
    catalogue.add_denial(STUDY, "a", "no")
    version = catalogue.study(STUDY).version
    assert not catalogue.fail(STUDY, Failure(code="INTERNAL", message="", hint=""))
    assert (catalogue.study(STUDY).failure, catalogue.study(STUDY).version) == (None, version)


def test_a_published_study_does_not_end_otherwise(catalogue):
    assert catalogue.publish(STUDY, [], at="2026-11-21T10:00:00Z")
    catalogue.fail(STUDY, Failure(code="INTERNAL", message="", hint=""))
    catalogue.withdraw(STUDY)
    catalogue.expire(STUDY)
    record = catalogue.study(STUDY)
    assert (record.failure, record.withdrawn, record.expired) == (None, False, False)


def test_columns_are_those_of_now(catalogue):
    for unit in range(3):
        catalogue.add_column(STUDY, column(unit=unit, upload_id=f"u{unit}"))
        assert list(catalogue.study(STUDY).columns) == list(range(unit + 1))
    catalogue.lose_column(STUDY, 1)
    lost = catalogue.study(STUDY)
    assert (list(lost.columns), list(lost.damaged)) == ([0, 2], [1])
    catalogue.add_column(STUDY, column(unit=1, upload_id="u1"))
    assert catalogue.study(STUDY).columns[1] == column(unit=1, upload_id="u1")

    def undone() -> None:
        with catalogue.database.transaction():
            catalogue.add_column(STUDY, column(unit=3, upload_id="gone"))
            assert 3 in catalogue.study(STUDY).columns
            raise RuntimeError

    with pytest.raises(RuntimeError):
        undone()
    assert list(catalogue.study(STUDY).columns) == [0, 1, 2]
    catalogue.add_column(STUDY, column(unit=3, upload_id="u3"))  # the version is now what it was in the transaction
    assert catalogue.study(STUDY).columns[3].upload_id == "u3"


def test_another_upload_of_a_unit_replaces_the_one_in_transit(catalogue):
    catalogue.uploads.begin(STUDY, "u0", unit=0, size=20, sha256=b"a" * 32)
    catalogue.uploads.commit("u0", 12)
    assert catalogue.uploads.begin(STUDY, "u0", unit=0, size=20, sha256=b"a" * 32).committed == 12
    assert catalogue.uploads.begin(STUDY, "u1", unit=0, size=20, sha256=b"b" * 32).committed == 0
    assert catalogue.uploads.find("u0") is None
    catalogue.add_column(STUDY, column(upload_id="u1"))
    assert catalogue.uploads.of_study(STUDY) == ()
    assert catalogue.finished_upload("u1") == (STUDY, column(upload_id="u1"))
    assert catalogue.finished_upload("u0") is None


def test_a_transaction_that_fails_in_the_middle_leaves_nothing(catalogue):
    before = catalogue.study(STUDY)
    with pytest.raises(sqlite3.IntegrityError):
        catalogue.publish(STUDY, [ReleaseFile(path="x", size=1, sha256=None)], at="2026-11-21T10:00:00Z")
    assert catalogue.study(STUDY) == before


def test_a_full_disk_is_an_error_and_leaves_the_facts(catalogue):
    """SQLite's own page limit stands in for the disk: the statement fails with SQLITE_FULL."""
    before = catalogue.study(STUDY)
    pages = catalogue.database.only(int, "PRAGMA page_count")
    catalogue.database.rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DataFault) as caught:
        catalogue.set_effective(STUDY, bytes(1_000_000), b"e" * 32)
    assert caught.value.code == "DISK_FULL"
    assert catalogue.study(STUDY) == before
    catalogue.database.rows("PRAGMA max_page_count = 1000000")
    catalogue.set_effective(STUDY, bytes(1_000_000), b"e" * 32)


def test_what_is_not_a_catalogue_is_refused(tmp_path):
    path = tmp_path / "catalogue.sqlite"
    path.write_bytes(b"something else, long enough to be read as a header " * 10)
    with pytest.raises(DataFault) as caught:
        Catalogue(path)
    assert caught.value.code == "STATE_CORRUPT"
    newer = tmp_path / "newer.sqlite"
    Catalogue(newer).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DataFault, match=f"version 99, expected at most {SCHEMA.version}"):
        Catalogue(newer)


def test_facts_are_written_through(catalogue):
    assert catalogue.database.only(str, "PRAGMA journal_mode") == "wal"
    assert catalogue.database.only(int, "PRAGMA synchronous") == 2  # FULL
