"""What a party does next in a study with masked tables, and what its rounds are named and kept by."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.party.policy.decision_store import Review
from verticil.party.protocol.masked import rounds
from verticil.party.protocol.masked.plan import FROM_PEERS, Step, plan
from verticil.party.protocol.with_miner.plan import Step as Told
from verticil.party.storage.studies import StudyRecord, Task
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.study.states import State

TASK = Task(
    digest=bytes(32),
    version=1,
    state=State.PREPARING,
    proposal=b"{}",
    effective=b"{}",
    effective_digest=bytes(32),
    approved=True,
    pseudonyms_complete=True,
    alignment_confirmed=True,
)
RECORD = StudyRecord(
    study_id="trial",
    seen_at="2026-01-05T00:00:00Z",
    task=TASK,
    stage="",
    percent=0,
    stage_at="",
    n_common=7,
    common_sha256=bytes(32),
    approval=b"{}",
    n_votes=1,
    denial_sent=None,
    failure=None,
    failure_sent=False,
)
READY: dict[str, Any] = {
    "automatic": False,
    "has_listed": True,
    "common": True,
    "own_units": {1, 2},
    "spooled_units": {1, 2},
    "has_finished": False,
    "has_begun": True,
    "leftovers": True,
}
WAITS = Review(manifest_sha256=bytes(32), fetched=False, body=None, signature=None, certificate=None, sent=False)


def step(
    record: StudyRecord = RECORD, *, state: State = State.PREPARING, task: dict[str, Any] | None = None, **facts: Any
):
    told = replace(record.task, state=state, **(task or {}))
    return plan(replace(record, task=told), **{**READY, **facts}).step


def test_the_steps_follow_each_other_up_to_the_opened_tables() -> None:
    told = {"pseudonyms_complete": False, "alignment_confirmed": False}
    aligning: dict[str, Any] = {
        "state": State.ALIGNING,
        "task": told,
        "has_begun": False,
        "leftovers": False,
        "spooled_units": set(),
    }
    assert step(**aligning, has_listed=False, common=False) is Step.LIST
    assert step(**aligning, common=False) is Step.COMMON
    assert step(**aligning) is Step.COMMIT
    assert step(**{**aligning, "task": {**told, "pseudonyms_complete": True}}) is Step.COMMIT
    waiting = {**aligning, "task": None}
    assert step(**waiting) == Step.REST, "the others have not said yet how many they found"
    assert step(spooled_units={1}) is Step.RANDOMIZE
    assert step() is Step.ROUND
    assert step(state=State.UPLOADING) is Step.ROUND
    assert step(state=State.UPLOADING, has_finished=True) == Step.REST
    assert {Step.LIST, Step.COMMON, Step.ROUND} == FROM_PEERS


def test_nothing_is_made_before_every_party_has_approved() -> None:
    before = {"effective": b"", "effective_digest": b""}
    assert (
        step(replace(RECORD, approval=None), state=State.AWAITING_APPROVAL, task={**before, "approved": False})
        == Told.REST
    )
    assert step(state=State.AWAITING_APPROVAL, task={**before, "approved": False}) is Told.TELL_APPROVAL
    assert step(state=State.AWAITING_APPROVAL, task=before) == Told.REST


@pytest.mark.parametrize("state", [State.ESTIMATING, State.LEARNING, State.REVIEW, State.PUBLISHED])
def test_the_opened_tables_are_fetched_however_fast_the_miner_is(state: State) -> None:
    assert step(state=state, review=WAITS) is Step.ROUND
    after = {State.REVIEW: Told.FETCH_REVIEW, State.PUBLISHED: Told.CLEAR}.get(state, Told.REST)
    assert step(state=state, review=WAITS, has_finished=True) == after
    assert step(state=state, review=WAITS, has_begun=False) == after, "no second round begins"


@pytest.mark.parametrize("state", [State.UPLOADING, State.REVIEW, State.PUBLISHED])
def test_what_this_site_stopped_is_cleared_and_told_and_no_round_goes_on(state: State) -> None:
    revoked = replace(RECORD, revocation_sent=False)
    assert step(revoked, state=state) is Told.CLEAR
    assert step(revoked, state=state, leftovers=False) is Told.TELL_REVOCATION
    failed = replace(RECORD, failure=Refusal("APPROVAL_VOID", "x"))
    assert step(failed, state=state) is (Told.CLEAR if state is State.PUBLISHED else Told.TELL_FAILURE)
    assert step(replace(RECORD, denial_sent=False), state=State.UPLOADING) is Told.TELL_DENIAL
    assert step(state=State.FAILED) is Told.CLEAR
    assert step(state=State.FAILED, leftovers=False) == Told.REST


def test_the_common_order_is_told_under_a_key_of_the_study_that_the_miner_has_not() -> None:
    """Recomputed from the page: HMAC-SHA-256 under HKDF of the linkage key, with the list of label and study as information."""
    key, study, people = bytes(range(32)), b"s" * 32, b"p" * 48

    def listed(*fields: bytes) -> bytes:
        return b"".join(len(field).to_bytes(8, "big") + field for field in fields)

    info = listed(b"verticil/masked/v1", b"hello", study)
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(key)
    told = rounds.keyed_order(key, study, people)
    assert told == hmac.digest(derived, people, "sha256")
    others = {
        rounds.keyed_order(key[::-1], study, people),
        rounds.keyed_order(key, b"t" * 32, people),
        rounds.keyed_order(key, study, people[::-1] + b"q"),
        hashlib.sha256(people).digest(),
    }
    assert len(others) == 4
    assert told not in others


def test_a_round_is_open_as_long_as_there_is_more_than_its_line(tmp_path: Path) -> None:
    folder = rounds.folder_of(tmp_path, b"\x0a" * 32)
    assert folder == tmp_path / "masked" / ("0a" * 32)
    at = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
    rounds.end(folder, at)
    assert not folder.exists(), "of a round that was not begun no line stays"
    (folder / "sent").mkdir(parents=True)
    assert rounds.is_open(folder)
    rounds.end(folder, at)
    assert [item.name for item in folder.iterdir()] == ["ended"]
    assert not rounds.is_open(folder)


def test_a_round_that_is_not_open_answers_nobody() -> None:
    with pytest.raises(PeerFault, match="has not begun here") as error:
        rounds.Rounds().get(bytes(32))
    assert error.value.code == "NOT_READY"
