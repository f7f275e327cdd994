"""What the miner tells of a study, taken in: checked, remembered, held against the ledger; by whatever way it came.

A task is state, never an event: what it says takes the place of what was known. `understood` refuses what is no study of this
party's; `remember` writes down what the rest of the party goes by.

A sub-model counts when the miner signed a statement of exactly the effective study that is told with it. Whether it is one that
was approved here, and still meets the site's policy, is checked before each step (`randomization.agreement`).
A proposal never names parties that are left out.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Mapping
from typing import Final

from verticil.party.control.approval import parsed
from verticil.party.control.state import StudyRecord, Task
from verticil.party.custody.reckoning import proven, reckon
from verticil.party.evidence.audit import DAEMON, Event, What
from verticil.party.exchange.node import Node
from verticil.shared.errors import PeerFault
from verticil.shared.identity.identity import Role, is_name
from verticil.shared.identity.signing import verify_signed
from verticil.shared.study.document import Study
from verticil.shared.study.states import State, is_final
from verticil.shared.study.sub_model import check_sub_model, left_out_words, parse_sub_model
from verticil.shared.transport.errors_on_wire import from_detail
from verticil.wire.v1 import coordinator_pb2

__all__ = ["ask_again", "remember", "understood"]

_log = logging.getLogger(__name__)

_STATES: Final = frozenset(int(state) for state in State)
_LARGEST_VERSION: Final = 2**63 - 1
"""What the database can hold."""
_LONGEST_WORDS: Final = 500


def understood(
    told: coordinator_pb2.StudyTask, party: str, *, authority: bytes, revoked: Mapping[int, dt.datetime]
) -> Study:
    """The proposal of a study that this party can serve; blocks.

    Args:
        told: by the miner.
        party: this one.
        authority: the federation's, PEM.
        revoked: serial numbers, and since when they do not count.

    Raises:
        PeerFault: STUDY_MISMATCH, MESSAGE_INVALID, PARTY_UNKNOWN, IDENTITY_REFUSED, CERTIFICATE_INVALID.
    """
    if hashlib.sha256(told.proposal).digest() != told.study_digest:
        raise PeerFault("STUDY_MISMATCH", "the proposal does not have the digest that is told")
    if told.state not in _STATES or told.version > _LARGEST_VERSION:
        raise PeerFault("MESSAGE_INVALID", f"state {told.state}, version {told.version}: no such task")
    study = parsed(told.proposal)
    if party not in study.parties:
        raise PeerFault("PARTY_UNKNOWN", f"study '{study.id}': this party is not in it")
    if study.model != "central":
        raise PeerFault("STUDY_MISMATCH", f"study '{study.id}': its operators load it, no miner tells it")
    if study.left_out:
        raise PeerFault(
            "STUDY_MISMATCH", f"study '{study.id}': a proposal that leaves parties out, expected their columns"
        )
    _check_sub_model(told, study, authority=authority, revoked=revoked)
    return study


def _check_sub_model(
    told: coordinator_pb2.StudyTask, study: Study, *, authority: bytes, revoked: Mapping[int, dt.datetime]
) -> None:
    effective = parsed(told.effective) if told.effective else None
    if effective is None or not effective.left_out:
        return
    if not told.HasField("sub_model"):
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{study.id}': the miner tells a sub-model without a signed statement of it",
            hint="nothing was sent for it",
        )
    found = parse_sub_model(told.sub_model.body)
    # It outlives the miner's certificate.
    verify_signed(told.sub_model, authority, role=Role.MINER, at=found.decided_at, revoked=revoked)
    check_sub_model(
        found,
        proposal_digest=told.study_digest,
        effective=effective,
        effective_digest=told.effective_digest,
    )


def remember(
    node: Node, told: coordinator_pb2.StudyTask, study: Study, *, fresh: bool, accept_older: bool = False
) -> None:
    """Write down what the miner told. Blocks.

    Args:
        node: this party.
        told: the task.
        study: as `understood` gave it.
        fresh: it is the first that is told on a connection, or comes whole in a file: what it does not say to be there is not.
        accept_older: charge what the miner has and the ledger does not know, in place of refusing.

    Raises:
        Refusal: LEDGER_OLDER.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    task = _task_of(told)
    site, at = node.site, node.clock()
    known = site.state.knows(task.digest)
    if not known:
        site.audit.record(Event(what=What.STUDY_SEEN, who="miner", study=task.digest, study_id=study.id), at)
    gone_on = _sub_model_event(told, study.id)
    if gone_on and not (known and site.state.study(task.digest).task.effective_digest == told.effective_digest):
        site.audit.record(gone_on, at)
    if known and not task.approved and not is_final(State(task.state)):
        before = site.state.study(task.digest)
        if before.task.approved and before.approval is not None:
            _log.warning("the miner asks for the approval of study '%s' again, as when a key was revoked", study.id)
    site.state.remember(task, study.id, at)
    if study.publish is not None and len(told.review_manifest_sha256) == 32:
        site.minutes.ask_for_review(task.digest, told.review_manifest_sha256)
    if fresh:
        site.state.reconcile(task.digest, task.units_received)
    if told.HasField("deletion"):
        site.revocations.take_deletion(
            task.digest, study.id, told.deletion, authority=node.authority, at=at, revoked=node.revocations.since()
        )
    deletion = site.revocations.deletion(task.digest)
    deleted = tuple(deletion.artifacts) if deletion is not None else ()
    shown = proven(site, told, deleted=deleted, authority=node.authority, revoked=node.revocations.since())
    reckon(site, task, deleted=deleted, shown=shown, accept_older=accept_older, at=at)


def ask_again(node: Node, record: StudyRecord, why: str) -> None:
    """Forget an approval that nobody else has, or has any more, and that does not hold here: the people are asked anew. Blocks.

    Args:
        node: this party.
        record: the study.
        why: what does not hold, in words.
    """
    event = Event(what=What.APPROVAL_VOID, who=DAEMON, study=record.digest, study_id=record.study_id, detail=why)
    with node.site.database.transaction():
        node.site.audit.record(event, node.clock())
        node.site.state.disapprove(record.digest, votes=True)
    _log.warning("study '%s' waits for a new approval: %s", record.study_id, why)


def _task_of(told: coordinator_pb2.StudyTask) -> Task:
    """What is stored of it."""
    return Task(
        digest=told.study_digest,
        version=told.version,
        state=told.state,
        proposal=told.proposal,
        effective=told.effective,
        effective_digest=told.effective_digest,
        approved=told.approved,
        pseudonyms_complete=told.pseudonyms_complete,
        alignment_confirmed=told.alignment_confirmed,
        units_received=tuple(told.units_received),
        failure=from_detail(told.failure).code if told.HasField("failure") else "",
        submitter=told.submitter if is_name(told.submitter) else "",
        ended_words=_printable(told.failure.message),
    )


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text[:_LONGEST_WORDS])


def _sub_model_event(told: coordinator_pb2.StudyTask, study_id: str) -> Event | None:
    """The line for the audit log of a sub-model that is told; None: all parties are in the study."""
    if not told.HasField("sub_model"):
        return None
    gone = parse_sub_model(told.sub_model.body).left_out
    return Event(
        what=What.SUB_MODEL,
        who="miner",
        study=told.study_digest,
        study_id=study_id,
        peer_event=hashlib.sha256(told.sub_model.body).digest(),
        detail="; ".join(f"without {left_out_words(item)}" for item in gone),
    )
