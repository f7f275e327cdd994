"""What the miner tells of a study, taken in: checked, remembered, held against the ledger; by whatever way it came.

A task is state, never an event: what it says takes the place of what was known. `understood` refuses what is no study of this
party's; `remember` writes down what the rest of the party goes by.
"""

from __future__ import annotations

import hashlib
from typing import Final

from verticil.party.control.approval import parsed
from verticil.party.control.state import Task
from verticil.party.custody.reckoning import reckon
from verticil.party.evidence.audit import Event, What
from verticil.party.exchange.node import Node
from verticil.shared.errors import PeerFault
from verticil.shared.study.document import Study
from verticil.shared.study.states import State
from verticil.shared.transport.errors_on_wire import from_detail
from verticil.wire.v1 import coordinator_pb2

__all__ = ["remember", "understood"]

_STATES: Final = frozenset(int(state) for state in State)
_LARGEST_VERSION: Final = 2**63 - 1
"""What the database can hold."""


def understood(party: str, told: coordinator_pb2.StudyTask) -> Study:
    """The study that a task is about. Blocks.

    Args:
        party: this party's name.
        told: the task.

    Raises:
        VerticilError: it is not a study that this party can serve; the miner is to be told.
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
    return study


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
    task = Task(
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
    )
    site, at = node.site, node.clock()
    if not site.state.knows(task.digest):
        site.audit.record(Event(what=What.STUDY_SEEN, who="miner", study=task.digest, study_id=study.id), at)
    site.state.remember(task, study.id, at)
    if study.publish is not None and len(told.review_manifest_sha256) == 32:
        site.minutes.ask_for_review(task.digest, told.review_manifest_sha256)
    if fresh:
        site.state.reconcile(task.digest, task.units_received)
    if told.HasField("deletion"):
        site.revocations.take_deletion(task.digest, study.id, told.deletion, authority=node.authority, at=at)
    deletion = site.revocations.deletion(task.digest)
    deleted = deletion.artifacts if deletion is not None else ()
    reckon(site, task, deleted=tuple(deleted), accept_older=accept_older, at=at)
