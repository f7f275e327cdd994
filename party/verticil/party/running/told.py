"""What the miner tells of a study: looked at before it is believed, and stored."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from typing import Final

from verticil.party.control.approval import parsed
from verticil.party.control.state import Task
from verticil.party.custody.reckoning import reckon
from verticil.party.evidence.audit import Event, What
from verticil.party.exchange.delivery import Node
from verticil.party.exchange.disclosure import outward
from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.study.states import State
from verticil.shared.transport.coordinator import Coordinator
from verticil.shared.transport.errors_on_wire import from_detail, to_detail
from verticil.wire.v1 import coordinator_pb2

__all__ = ["remember"]

_STATES: Final = frozenset(int(state) for state in State)
_LARGEST_VERSION: Final = 2**63 - 1
"""What the database can hold."""

_log = logging.getLogger(__name__)


async def remember(
    node: Node, coordinator: Coordinator, told: coordinator_pb2.StudyTask, *, fresh: bool, accept_older: bool
) -> bool:
    """Store what the miner tells of a study.

    Args:
        node: the party.
        coordinator: hears why a study cannot be served.
        told: the study as the miner has it.
        fresh: it is told for the first time on this connection.
        accept_older: charge what the miner has and the ledger does not know, in place of refusing to go on.

    Returns:
        False when it is not a study that this party can understand.

    Raises:
        DataFault: STATE_CORRUPT, DISK_FULL.
        Refusal: LEDGER_OLDER.
    """
    try:
        if hashlib.sha256(told.proposal).digest() != told.study_digest:
            raise PeerFault("STUDY_MISMATCH", "the proposal does not have the digest that is told")
        if told.state not in _STATES or told.version > _LARGEST_VERSION:
            raise PeerFault("MESSAGE_INVALID", f"state {told.state}, version {told.version}: no such task")
        study = await asyncio.to_thread(parsed, told.proposal)
        if node.site.config.name not in study.parties:
            raise PeerFault("PARTY_UNKNOWN", f"study '{study.id}': this party is not in it")
        if study.model != "central":
            raise PeerFault("STUDY_MISMATCH", f"study '{study.id}': its operators load it, no miner tells it")
    except VerticilError as error:
        _log.warning("study %s cannot be served: %s", told.study_digest[:32].hex(), error)
        report = coordinator_pb2.ReportRequest(study_digest=told.study_digest, failure=to_detail(outward(error)))
        with contextlib.suppress(VerticilError):
            await coordinator.report(report)
        return False
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

    def store() -> None:
        site, at = node.site, node.clock()
        if not site.state.knows(task.digest):
            site.audit.record(Event(what=What.STUDY_SEEN, who="miner", study=task.digest, study_id=study.id), at)
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
        deleted = deletion.artifacts if deletion is not None else ()
        reckon(site, task, deleted=tuple(deleted), accept_older=accept_older, at=at)

    await asyncio.to_thread(store)
    return True
