"""The privacy ledger: charges, budgets, changed data, durability."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.limits.limits import Policy
from verticil.party.policy.ledger import Ledger
from verticil.party.storage.database import DaemonLock, Database
from verticil.shared.core.errors import DataFault, Refusal
from verticil.shared.privacy.events import RandomizedColumn

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
POLICY = Policy(
    approval="manual",
    approvers=(),
    approvers_needed=1,
    max_epsilon_per_column=3.0,
    max_epsilon_per_study=20.0,
    max_epsilon_lifetime=5.0,
    allow_infinite=(),
    minimum_common_records=1,
    minimum_parties=2,
    max_categories=50,
    deny_columns=(),
    recipients=("miner",),
    on_data_change="refuse",
)
RELEASE = ColumnDraw(
    variables=("sex",),
    dataset="people",
    sources=("SEX",),
    codebook_digest=b"c" * 32,
    transition_digest=b"t" * 32,
    secret_id=b"s" * 16,
    fingerprint=b"1" * 32,
    event=RandomizedColumn(epsilon=2.0),
)


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path, create=True) as opened:
        yield opened


@pytest.fixture
def ledger(database):
    return Ledger(database)


def send(ledger, release=RELEASE, policy=POLICY, tag=b"", recipient="miner"):
    return ledger.record(
        release,
        version_tag=tag,
        policy=policy,
        study_digest=b"d" * 32,
        study_id="study",
        unit=0,
        recipient=recipient,
        artifact_sha256=b"a" * 32,
        size=12,
        at=NOW,
    ).epsilon


def test_the_same_values_are_charged_once_and_every_attempt_is_counted(ledger):
    assert [send(ledger), send(ledger), send(ledger)] == [2.0, 0.0, 0.0]
    assert ledger.sum_charges("people").epsilon == 2.0
    assert [row.charged for row in ledger.rows()] == [2.0]
    assert ledger.attempts() == 3
    assert send(ledger, recipient="bank") == 0.0
    assert [row.charged for row in ledger.rows()] == [2.0, 0.0]
    assert ledger.attempts() == 4
    assert ledger.rows()[0].at == "2026-11-21T10:00:00Z"


def test_a_renamed_study_variable_costs_nothing(ledger):
    send(ledger)
    assert send(ledger, replace(RELEASE, variables=("gender",))) == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"codebook_digest": b"C" * 32},
        {"transition_digest": b"T" * 32},
        {"secret_id": b"S" * 16},
        {"sources": ("OTHER",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is_charged_in_full(ledger, change):
    send(ledger)
    assert send(ledger, replace(RELEASE, **change)) == 2.0


def test_lifetime_budget_is_per_data_set_and_survives_everything(ledger):
    send(ledger)
    send(ledger, replace(RELEASE, transition_digest=b"T" * 32))
    third = replace(RELEASE, secret_id=b"S" * 16, fingerprint=b"9" * 32)
    with pytest.raises(
        Refusal, match=r"data set 'people': epsilon 2 on top of what was charged before, expected at most 5"
    ) as caught:
        ledger.assess([third], POLICY)
    assert (caught.value.code, caught.value.exit_code) == ("BUDGET_EXCEEDED", 3)
    with pytest.raises(Refusal):
        send(ledger, third)
    assert len(ledger.rows()) == 2
    assert ledger.assess([replace(third, dataset="others")], POLICY)[0].charge.epsilon == 2.0
    assert send(ledger) == 0.0  # what was charged may still be sent again


def test_units_of_one_study_are_summed_before_any_is_sent(ledger):
    units = [replace(RELEASE, sources=(name,)) for name in "abc"]
    with pytest.raises(Refusal, match="epsilon 6 on top of what was"):
        ledger.assess(units, POLICY)


def test_changed_data_are_refused_unless_the_policy_says_otherwise(ledger):
    send(ledger)
    changed = replace(RELEASE, fingerprint=b"2" * 32)
    with pytest.raises(Refusal) as caught:
        ledger.assess([changed], POLICY)
    assert (caught.value.code, caught.value.exit_code) == ("DATA_CHANGED", 3)
    sticky = replace(POLICY, on_data_change="sticky")
    fresh = replace(POLICY, on_data_change="fresh")
    assert ledger.assess([changed], sticky)[0].version_tag == b""
    assert ledger.assess([changed], sticky)[0].charge.epsilon == 2.0
    assert ledger.assess([changed], fresh)[0].version_tag == changed.fingerprint
    assert send(ledger, changed, fresh, changed.fingerprint) == 2.0
    # Both versions are known now: neither draws again and neither is charged again, whatever the policy says later.
    assert send(ledger, changed, POLICY, changed.fingerprint) == 0.0
    assert send(ledger, RELEASE, fresh) == 0.0


@pytest.mark.parametrize("way", ["sticky", "fresh"])
def test_the_budget_does_not_tell_whether_data_are_the_same(ledger, way):
    """Where the policy accepts changed data there is room for them, or there is none for the same data either."""
    send(ledger)
    changed, others = replace(RELEASE, fingerprint=b"2" * 32), b"e" * 32

    def answer(release, limit):
        policy = replace(POLICY, on_data_change=way, max_epsilon_lifetime=limit)
        try:
            return ledger.assess([release], policy, study_digest=others)[0].at_most.epsilon
        except Refusal as error:
            return error.message

    for limit in (3.9, 4.0, 9.0):
        assert answer(RELEASE, limit) == answer(changed, limit)
    # The repeat is not charged all the same, and what was charged to this study may be sent again.
    exhausted = replace(POLICY, on_data_change=way, max_epsilon_lifetime=2.0)
    assert ledger.assess([RELEASE], exhausted, study_digest=b"d" * 32)[0].charge.epsilon == 0.0
    assert send(ledger, RELEASE, exhausted) == 0.0
    assert ledger.assess([RELEASE], replace(POLICY, on_data_change=way), study_digest=others)[0].charge.epsilon == 0.0


def test_noise_of_another_version_never_leaves(ledger):
    send(ledger)
    changed = replace(RELEASE, fingerprint=b"2" * 32)
    with pytest.raises(Refusal, match="its noise is not the one"):
        send(ledger, changed, replace(POLICY, on_data_change="fresh"), b"")
    assert len(ledger.rows()) == 1


def test_infinite_epsilon_needs_a_permit_and_is_not_in_the_sum(ledger):
    infinite = replace(RELEASE, event=RandomizedColumn(epsilon=math.inf))
    with pytest.raises(Refusal) as caught:
        ledger.assess([infinite], POLICY)
    assert (caught.value.code, caught.value.exit_code) == ("EPSILON_INFINITE", 3)
    assert send(ledger, infinite, replace(POLICY, allow_infinite=("sex",))) == math.inf
    assert ledger.rows()[0].epsilon == math.inf
    assert ledger.sum_charges("people").epsilon == 0.0
    assert ColumnDraw.from_json(infinite.to_json()) == infinite


def test_a_column_over_its_limit_is_refused(ledger):
    with pytest.raises(Refusal, match=r"column 'sex': epsilon 3\.1, expected at most 3"):
        ledger.assess([replace(RELEASE, event=RandomizedColumn(epsilon=3.1))], POLICY)
    ledger.assess([replace(RELEASE, event=RandomizedColumn(epsilon=3.0 + 4e-16))], POLICY)


@pytest.mark.parametrize("statement", ["UPDATE ledger SET charged = 0", "DELETE FROM ledger"])
def test_rows_are_never_changed_or_deleted(database, ledger, statement):
    send(ledger)
    with pytest.raises(sqlite3.IntegrityError, match="ledger rows are never"):
        database.write(statement)
    assert ledger.sum_charges("people").epsilon == 2.0


def test_every_transaction_is_flushed_to_the_disk(database):
    assert database.rows("PRAGMA synchronous") == [(2,)]  # 2 is FULL
    assert database.rows("PRAGMA journal_mode") == [("wal",)]


def test_a_row_survives_sigkill_right_after_it_was_written(tmp_path):
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from datetime import UTC, datetime\n"
        "from verticil.party.storage.database import Database\n"
        "database = Database(Path(sys.argv[1]), create=True)\n"
        "database.write(\"INSERT INTO heartbeat VALUES (1, 7, 'now', 1, '')\")\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, env=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL
    with Database(tmp_path) as database:
        assert database.rows("SELECT pid FROM heartbeat") == [(7,)]


def test_a_failed_transaction_leaves_nothing(database, ledger):
    def sent_and_lost():
        with database.transaction():
            send(ledger)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        sent_and_lost()
    assert ledger.rows() == ()


def test_a_full_disk_is_disk_full_and_harms_nothing(database, ledger):
    send(ledger)
    (pages,) = database.rows("PRAGMA page_count")[0]
    database.rows(f"PRAGMA max_page_count = {pages}")

    def until_full():
        for number in range(1000):
            send(ledger, recipient=f"party{number}")

    with pytest.raises(DataFault) as caught:
        until_full()
    assert caught.value.code == "DISK_FULL"
    kept = len(ledger.rows())
    database.rows("PRAGMA max_page_count = 1000000")
    send(ledger, recipient="another")
    assert len(ledger.rows()) == kept + 1


def test_another_process_is_noticed_and_a_second_daemon_refused(tmp_path, database):
    assert not database.changed()
    with Database(tmp_path) as other:
        other.write("INSERT INTO heartbeat VALUES (1, 1, 'now', 1, '')")
    assert database.changed()
    assert not database.changed()
    lock = DaemonLock(tmp_path)
    with pytest.raises(DataFault) as caught:
        DaemonLock(tmp_path)
    assert caught.value.code == "STATE_LOCKED"
    lock.close()
    DaemonLock(tmp_path).close()


def test_a_damaged_or_foreign_database_is_state_corrupt(tmp_path):
    with pytest.raises(DataFault) as caught:
        Database(tmp_path)
    assert caught.value.code == "STATE_CORRUPT"
    (tmp_path / "party.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(DataFault) as caught:
        Database(tmp_path)
    assert caught.value.code == "STATE_CORRUPT"
    assert caught.value.exit_code == 1


def test_a_newer_schema_is_refused(tmp_path):
    with Database(tmp_path, create=True) as database:
        database.write("PRAGMA user_version = 99")
    with pytest.raises(DataFault, match="schema version 99, expected at most 1"):
        Database(tmp_path)


def test_a_unit_with_infinite_epsilon_needs_every_one_of_its_variables_permitted(ledger):
    both = replace(RELEASE, variables=("sex", "age"), sources=("SEX", "AGE"), event=RandomizedColumn(epsilon=math.inf))
    for permitted in ((), ("sex",), ("age",)):
        with pytest.raises(Refusal, match="EPSILON_INFINITE"):
            send(ledger, both, replace(POLICY, allow_infinite=permitted))
    assert send(ledger, both, replace(POLICY, allow_infinite=("age", "sex"))) == math.inf
    assert ledger.sum_charges("people").epsilon == 0.0
