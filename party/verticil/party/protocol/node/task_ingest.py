"""What the miner sends of a study, taken in: checked, remembered, held against the ledger; by whatever way it came.

A task is state, never an event: what it says takes the place of what was known. `read_proposal` refuses what is no study of this
party's; `remember` writes down what the rest of the party goes by.

A sub-model counts when the miner signed a statement of exactly the effective study that comes with it. Whether it is one that
was approved here, and still meets the site's policy, is checked before each step (`verticil.party.protocol.context.agreement`).
A proposal never names parties that are left out.

What the miner may make this party remember is bounded
- A study that has ended here has ended: no later word of the miner opens it again, be it a lie or an honest miner that was
  restored from an older backup (the same proposal, submitted again, is the same study, and stays ended there, too). The miner is
  told so, and the log says it once.
- Of studies that nobody here has decided at most ``policy.max_open_studies`` are kept while they go on, and on a day as many
  that have ended; further ones are not stored before there is room again. What came first stays.
- What does not hold is counted in the audit log, by node and code (`AuditLog.refuse`), and changes nothing.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import logging
from collections.abc import Collection
from typing import Final

from verticil.party.audit.log import Event, What
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.node.registry import party_protocol
from verticil.party.protocol.reconciliation.forgotten import reconcile
from verticil.party.protocol.reconciliation.reconciler import Verifier
from verticil.party.site import Site
from verticil.party.storage.studies import Task
from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.toml_table import is_name
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.federation.transport.errors_on_wire import from_detail, shorten
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.states import State, is_final
from verticil.shared.study.sub_model import check_sub_model, left_out_words, parse_sub_model
from verticil.wire.v1 import coordinator_pb2

_log = logging.getLogger(__name__)

_STATES: Final = frozenset(int(state) for state in State)
_LARGEST_VERSION: Final = 2**63 - 1
"""What the database can hold."""
_A_DAY: Final = dt.timedelta(days=1)
"""So long an undecided study that has ended counts against the limit."""
_AS_TOLD: Final = "as the miner says"
_LONGEST_WORDS: Final = 500


def read_proposal(node: PartyContext, task: coordinator_pb2.StudyTask) -> Study:
    """Return the proposal of a study that this party can serve; blocks.

    Args:
        node: this party.
        task: as the miner sent it.

    Raises:
        PeerFault: STUDY_MISMATCH, MESSAGE_INVALID, PARTY_UNKNOWN, IDENTITY_REFUSED, CERTIFICATE_INVALID.
    """
    if hashlib.sha256(task.proposal).digest() != task.study_digest:
        raise PeerFault("STUDY_MISMATCH", "the proposal does not have the digest that was sent with it")
    if task.state not in _STATES or not 0 < task.version <= _LARGEST_VERSION:
        raise PeerFault("MESSAGE_INVALID", f"state {task.state}, version {task.version}: no such task")
    study = parse_canonical(task.proposal)
    if node.me not in study.parties:
        raise PeerFault("PARTY_UNKNOWN", f"study '{study.id}': this party is not in it")
    if not protocol_of(study).coordinated:
        raise PeerFault("STUDY_MISMATCH", f"study '{study.id}': its operators load it; no miner sends it")
    if study.left_out:
        raise PeerFault(
            "STUDY_MISMATCH", f"study '{study.id}': a proposal that leaves parties out, expected their columns"
        )
    effective = parse_canonical(task.effective) if task.effective else study
    if task.effective and hashlib.sha256(task.effective).digest() != task.effective_digest:
        raise PeerFault(
            "STUDY_MISMATCH", f"study '{study.id}': its effective study does not have the digest that was sent with it"
        )
    own, units = effective.units_of(node.me), [*task.units_received, *task.units_damaged]
    if not set(units) <= set(own) or len(units) > len(own):
        raise PeerFault(
            "MESSAGE_INVALID", f"study '{study.id}': units are reported as received that are not this party's"
        )
    _check_sub_model(node, task, study, effective)
    return study


def _check_sub_model(node: PartyContext, task: coordinator_pb2.StudyTask, study: Study, effective: Study) -> None:
    if not effective.left_out:
        return
    if not task.HasField("sub_model"):
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{study.id}': the miner sends a sub-model without a signed statement of it",
            hint="nothing was sent for it",
        )
    sub_model = parse_sub_model(task.sub_model.body)
    # It outlives the miner's certificate.
    revocations = node.revocations.since()
    verify_signed(task.sub_model, node.authority, role=Role.MINER, at=sub_model.decided_at, deny_list=revocations)
    effective_digest = task.effective_digest
    check_sub_model(
        sub_model, proposal_digest=task.study_digest, effective=effective, effective_digest=effective_digest
    )


def has_room(site: Site, at: dt.datetime, *, over: bool = False) -> bool:
    """Return whether one more study that nobody here decided is stored; blocks.

    Args:
        site: this party.
        at: now.
        over: the miner says that it has ended already: such a study takes no room from those that go on.
    """
    limit = site.config.policy.max_open_studies
    going_on, n_ended = site.state.count_undecided(at - _A_DAY)
    return n_ended < limit if over else going_on < limit and going_on + n_ended < 2 * limit


def remember(
    node: PartyContext, message: coordinator_pb2.StudyTask, study: Study, *, fresh: bool, accept_older: bool = False
) -> bool:
    """Write down what the miner sent. Blocks.

    Args:
        node: this party.
        message: the task.
        study: as `read_proposal` gave it.
        fresh: it is the first that comes on a connection, or comes whole in a file: what it does not say to be there is not.
        accept_older: charge what the miner has and the ledger does not know, in place of refusing.

    Returns:
        Whether it is kept; False: there is no room.

    Raises:
        Refusal: LEDGER_OLDER.
        PeerFault: STUDY_MISMATCH, it has ended here, and the miner says that it goes on; nothing was changed.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    task = _task_of(message)
    site, at = node.site, node.clock()
    stored_task = site.state.study(task.digest).task if site.state.knows(task.digest) else None
    over = stored_task is not None and is_final(State(stored_task.state))
    is_stored = stored_task is not None or has_room(site, at, over=is_final(State(task.state)))
    if is_stored and not over:
        if stored_task is None:
            event = Event(what=What.STUDY_SEEN, who="miner", study=task.digest, study_id=study.id, detail=_AS_TOLD)
            site.audit.record(event, at)
        gone_on = _sub_model_event(message, study.id)
        if gone_on and not (stored_task and stored_task.effective_digest == message.effective_digest):
            site.audit.record(gone_on, at)
        # A reply that was under way when the approval came has a version before it.
        approved_at = site.state.approval_version(task.digest)
        newer = stored_task is not None and task.version > max(stored_task.version, approved_at)
        if newer and not task.approved and not is_final(State(task.state)):
            before = site.state.study(task.digest)
            if before.task.approved and before.approval is not None:
                _log.warning("the miner asks for the approval of study '%s' again, as when a key was revoked", study.id)
        site.state.remember(task, study.id, at)
        if study.publish is not None and len(message.review_manifest_sha256) == 32:
            site.decisions.ask_for_review(task.digest, message.review_manifest_sha256)
        if fresh:
            site.state.reconcile(task.digest, task.units_received)
        elif message.units_damaged:
            _log.warning("study '%s': the miner asks again for columns that its disk has damaged", study.id)
            units = range(len(parse_canonical(message.effective or message.proposal).units))
            site.state.reconcile(task.digest, [unit for unit in units if unit not in message.units_damaged])
    is_reminded = fresh and is_stored and _remind_of_revocation(node, message, study.id)
    if is_stored and message.HasField("deletion"):
        site.revocations.take_deletion(
            task.digest, study.id, message.deletion, authority=node.authority, at=at, deny_list=node.revocations.since()
        )
    verifier = Verifier(site=site, authority=node.authority, revoked=node.revocations.since())
    if message.HasField("approval") and verifier.has_approved(message.approval, task.digest):
        node.approved_there.add(task.digest)
    prove = functools.partial(party_protocol(study).reconciler.from_miner, verifier, message)
    reconcile(site, prove, accept_older=accept_older, at=at)
    if stored_task is not None and over and not is_reminded and not is_final(State(task.state)):
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{study.id}' has ended here ({State(stored_task.state).words}), the miner says: {State(task.state).words}",
            hint="nothing is sent for it any more; was the miner restored from an older backup? its operator closes it there",
        )
    return is_stored


def _remind_of_revocation(node: PartyContext, task: coordinator_pb2.StudyTask, study_id: str) -> bool:
    """Have a revocation sent again that the miner knew: it would have ended the study, or deleted the columns. Whether it is."""
    site = node.site
    knows_revocation = State(task.state) is State.WITHDRAWN or task.HasField("deletion")
    if knows_revocation or not site.state.study(task.study_digest).revocation_sent:
        return False
    site.revocations.tell_again(task.study_digest)
    site.state.set_missing(task.study_digest, "revocation")
    _note_forgotten(node, task.study_digest, study_id, "the miner has lost the revocation; it is sent again")
    return True


def missing(node: PartyContext, digests: Collection[bytes]) -> dict[bytes, int]:
    """Note the studies that the miner knew and does not name any more. Blocks.

    Args:
        node: this party.
        digests: digests of all studies that it names.

    Returns:
        Digest and version of those that have not ended: whether they have, the miner is to say.
    """
    missing_digests = node.site.state.miss(digests)
    for study in missing_digests:
        if study.forgotten != "study":
            _note_forgotten(node, study.digest, study.study_id, "the miner does not know the study any more")
    return {study.digest: study.task.version for study in missing_digests if not is_final(State(study.task.state))}


def end_forgotten(node: PartyContext, digest: bytes) -> None:
    """End a study whose facts the miner has lost, as the miner's operator decided. Blocks."""
    record = node.site.state.study(digest)
    node.site.state.move(digest, State.WITHDRAWN, "STUDY_UNKNOWN")
    _note_forgotten(node, digest, record.study_id, "the miner has lost the study, and says that it has ended")


def _note_forgotten(node: PartyContext, digest: bytes, study_id: str, detail: str) -> None:
    _log.warning("study '%s': %s", study_id, detail)
    event = Event(what=What.FORGOTTEN, who="miner", study=digest, study_id=study_id, detail=detail)
    node.site.audit.record(event, node.clock())


def _task_of(message: coordinator_pb2.StudyTask) -> Task:
    """Return the task as it is stored."""
    return Task(
        digest=message.study_digest,
        version=message.version,
        state=message.state,
        proposal=message.proposal,
        effective=message.effective,
        effective_digest=message.effective_digest,
        approved=message.approved,
        pseudonyms_complete=message.pseudonyms_complete,
        alignment_confirmed=message.alignment_confirmed,
        units_received=tuple(message.units_received),
        failure=from_detail(message.failure).code if message.HasField("failure") else "",
        submitter=message.submitter if is_name(message.submitter) else "",
        ended_words=shorten(message.failure.message, _LONGEST_WORDS),
    )


def _sub_model_event(task: coordinator_pb2.StudyTask, study_id: str) -> Event | None:
    """Return the line for the audit log of a sub-model, whose statement was verified; None: all parties are in the study."""
    if not (task.effective and parse_canonical(task.effective).left_out):
        return None
    absent_parties = parse_sub_model(task.sub_model.body).left_out
    return Event(
        what=What.SUB_MODEL,
        who="miner",
        study=task.study_digest,
        study_id=study_id,
        peer_event=hashlib.sha256(task.sub_model.body).digest(),
        detail="; ".join(f"without {left_out_words(item)}" for item in absent_parties),
    )
