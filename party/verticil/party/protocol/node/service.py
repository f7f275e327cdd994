"""What this party answers to its peers.

Promises
- It sends what is on the disk and computes nothing: what is not there yet is NOT_READY.
- Only parties of the study get an answer. The digest of the study is compared at any time. A list of pseudonyms leaves when all
  parties have approved: the running list to the successor only, the common list (the last party's) to all. A blinded list
  leaves to the next party in the ring, and to all when every party has blinded it; places in it go back to the party before. A
  column leaves to a party that reads it, with the same structure and the same common list, and to no other. Parameters and
  the signature go to all parties. When the study has ended and everything is deleted, each gets a signed statement of that.
- Before each answer the approval must still bind: policy, expiry, declaration; a denial, a revocation or a failure of this party
  ends all answers but the news of it, and a column that is on its way ends with the part (512 KiB) that is being sent.
- A column's row for the party that asks is in the ledger, and its line in the audit log, on the disk, before its first byte goes
  out. Who asked for what is not theirs is in the audit log, too: each caller and reason once while the daemon runs.
- Of a fault of this site's tables, machine or configuration only the code leaves (`disclosure`).

Everything that touches the disk is done in a worker thread.
"""

# A service's methods are called by the names of the wire contract.
# ruff: noqa: N802

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, TypeVar

from verticil.party.dataset.blinding import BlindingState
from verticil.party.protocol.context import Agreed, PartyContext, agreement
from verticil.party.protocol.node.peer_reckoning import held_of
from verticil.party.protocol.node.registry import files_of_protocols, party_protocol
from verticil.party.protocol.outgoing_errors import redact_error, told_objections
from verticil.party.protocol.planning import LostError, StoppedError
from verticil.party.protocol.randomization import enter_in_ledger
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore, Item, Kind, kept_after
from verticil.party.protocol.with_peers.context import known_structure
from verticil.party.protocol.with_peers.rounds import MessageRounds
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.federation.alignment.statements import receiver, sender
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.transport.errors_on_wire import to_detail
from verticil.shared.federation.transport.fetch import send_parts
from verticil.shared.federation.transport.version import answer_hello
from verticil.shared.release.formats.deletion import Deleted, Ended, PeerDeletion
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import common_pb2, peer_pb2

LEASE_SECONDS: Final = 60

R = TypeVar("R")
T = TypeVar("T")

_LISTS: Final = {
    "keyed-hash": (peer_pb2.PSEUDONYM_LIST_RUNNING, peer_pb2.PSEUDONYM_LIST_COMMON),
    "order-commitment": (peer_pb2.PSEUDONYM_LIST_COMMITMENT,),
    "dh-psi": (
        peer_pb2.PSEUDONYM_LIST_COMMITMENT,
        peer_pb2.PSEUDONYM_LIST_BLINDED,
        peer_pb2.PSEUDONYM_LIST_STEPS,
        peer_pb2.PSEUDONYM_LIST_POSITIONS,
    ),
}
"""What may be asked for in each mode of linkage."""
_OF_AN_OWNER: Final[Mapping[int, Kind]] = {
    peer_pb2.PSEUDONYM_LIST_BLINDED: Kind.BLINDED,
    peer_pb2.PSEUDONYM_LIST_STEPS: Kind.STEPS,
    peer_pb2.PSEUDONYM_LIST_POSITIONS: Kind.POSITIONS,
}

_ENDED: Final[Mapping[State, Ended]] = {
    State.PUBLISHED: "published",
    State.DENIED: "denied",
    State.EXPIRED: "expired",
    State.WITHDRAWN: "withdrawn",
    State.FAILED: "failed",
}


class PeerService:
    """Answers `verticil.shared.federation.transport.interface.Peer`.

    Args:
        node: this party.
        store: what is sent.
        software: what decides a release's bytes here (`verticil.shared.release.peer_assembly.software_text`).
        rounds: the open rounds of each protocol that has some.
    """

    def __init__(
        self, node: PartyContext, store: ArtifactStore, *, software: str, rounds: Sequence[MessageRounds] = ()
    ) -> None:
        self._node = node
        self._site = node.site
        self._store = store
        self._software = software
        self._rounds = tuple(rounds)

    async def Hello(self, identity: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """Exchange versions.

        Raises:
            PeerFault: VERSION_UNSUPPORTED.
        """
        del identity
        return answer_hello(
            request,
            federation=self._site.config.federation.name,
            lease_seconds=LEASE_SECONDS,
            at=self._node.clock(),
            deny_list=self._node.revocations.newer_than(request.deny_list_number),
        )

    async def GetStudyDigest(
        self, identity: Identity, request: peer_pb2.GetStudyDigestRequest
    ) -> peer_pb2.GetStudyDigestReply:
        """Send the digest of what was loaded here, and what this party has decided.

        Raises:
            PeerFault: NOT_READY, no such study was loaded here; PARTY_UNKNOWN.
        """
        return await self._answer(identity.name, self._digest, request)

    async def GetPseudonyms(
        self, identity: Identity, request: peer_pb2.GetPseudonymsRequest
    ) -> AsyncGenerator[peer_pb2.Part]:
        """Send a list of pseudonyms, a blinded list or a commitment to whom it is for.

        Raises:
            PeerFault: NOT_READY; IDENTITY_REFUSED, the list is for another party; NOT_OWNER, another party sends it.
            Refusal: the approval does not bind any more.
        """
        path, item = await self._answer(identity.name, self._pseudonyms, request)
        async with aclosing(
            send_parts(path, offset=request.offset, what="list of pseudonyms", sha256=item.sha256)
        ) as parts:
            async for part in parts:
                yield part

    async def GetColumn(self, identity: Identity, request: peer_pb2.GetColumnRequest) -> AsyncGenerator[peer_pb2.Part]:
        """Send a randomized unit to a party that reads it.

        Raises:
            PeerFault: NOT_READY; NOT_OWNER, it is not this party's, or the caller does not read it; STUDY_MISMATCH, the caller
                has another common list or another structure.
            Refusal: the approval does not bind any more, or the ledger refuses.
        """
        digest, path, sha256 = await self._answer(identity.name, self._column, request)
        async with aclosing(
            send_parts(path, offset=request.offset, what=f"unit {request.unit}", sha256=sha256)
        ) as parts:
            async for part in parts:
                await asyncio.to_thread(self._check_goes_on, digest)
                yield part

    async def GetParameters(
        self, identity: Identity, request: peer_pb2.GetParametersRequest
    ) -> AsyncGenerator[peer_pb2.Part]:
        """Send this party's signed parameters, or the caller's own, which a caller that lost them has sent before.

        Raises:
            PeerFault: NOT_READY; STUDY_MISMATCH, published and dropped.
            Refusal: the approval does not bind any more.
        """
        path, item = await self._answer(identity.name, self._parameters, request)
        async with aclosing(send_parts(path, offset=request.offset, what="parameters", sha256=item.sha256)) as parts:
            async for part in parts:
                yield part

    async def GetSignature(
        self, identity: Identity, request: peer_pb2.GetSignatureRequest
    ) -> peer_pb2.GetSignatureReply:
        """Send this party's signature of the manifest that it assembled.

        Raises:
            PeerFault: NOT_READY.
            Refusal: the approval does not bind any more.
        """
        signed = await self._answer(identity.name, self._signature, request.effective_digest)
        return peer_pb2.GetSignatureReply(manifest=signed)

    async def GetDeletion(self, identity: Identity, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        """Sign what this party has deleted of the caller's (`verticil.party.policy.revocation`), or what it has.

        Raises:
            PeerFault: NOT_READY, the study goes on here, or not everything is deleted yet; PARTY_UNKNOWN.
        """
        if request.held:
            make_holding = functools.partial(held_of, self._node, self._store)
            return peer_pb2.GetDeletionReply(held=await self._answer(identity.name, make_holding, request.study_digest))
        body = await self._answer(identity.name, self._deletion, request.study_digest)
        return peer_pb2.GetDeletionReply(deletion=self._node.signing_key.sign(body))

    async def ListMasked(self, identity: Identity, request: peer_pb2.ListMaskedRequest) -> peer_pb2.ListMaskedReply:
        """Tell which messages of a round are here for the caller.

        Raises:
            PeerFault: NOT_READY, the round has not begun here, or it has ended.
            Refusal: the approval does not bind any more.
        """
        return await self._answer(identity.name, self._list_masked, request)

    async def GetMasked(self, identity: Identity, request: peer_pb2.GetMaskedRequest) -> AsyncGenerator[peer_pb2.Part]:
        """Send a message of a round to its recipient.

        Raises:
            PeerFault: NOT_READY, it is not there yet; NOT_OWNER, it is for somebody else.
            Refusal: the approval does not bind any more.
        """
        digest, path, sha256 = await self._answer(identity.name, self._message, request)
        what = f"message {request.index} of the round"
        async with aclosing(send_parts(path, offset=request.offset, what=what, sha256=sha256)) as parts:
            async for part in parts:
                await asyncio.to_thread(self._check_goes_on, digest)
                yield part

    async def _answer(self, caller: str, find: Callable[[str, R], T], request: R) -> T:
        """Return what a worker thread returns, or raise the error as it may leave the site."""
        try:
            return await asyncio.to_thread(find, caller, request)
        except VerticilError as error:
            raise redact_error(error) from None

    # ---- in worker threads

    def _digest(self, caller: str, request: peer_pb2.GetStudyDigestRequest) -> peer_pb2.GetStudyDigestReply:
        record = self._load_record(request.study_digest, request.study_id, "GetStudyDigest")
        if record is None:
            raise PeerFault("NOT_READY", f"study '{request.study_id[:63]}' was not loaded here")
        proposal = record.task.proposal_study
        _check_party(proposal, caller)
        reply = peer_pb2.GetStudyDigestReply(study_digest=record.digest, software=self._software)
        failure = self._failure(record, proposal)
        if failure is not None:
            reply.failure.CopyFrom(to_detail(failure))
        elif record.approval is not None and request.study_digest == record.digest:
            today = self._node.clock().date()
            # What does not bind is not sent; this party's own work on the study ends for it, and that is sent.
            with suppress(Refusal):
                self._site.voting.check_binding(record, today)
                if not record.task.approved:
                    self._site.state.mark_acknowledged(
                        record.digest, "remote_approved"
                    )  # from now on it cannot be replaced
                reply.approval.CopyFrom(self._node.signing_key.sign(record.approval))
        elif request.study_digest == record.digest and (
            objections := told_objections(self._site, record, self._node.clock())
        ):
            reply.objections.CopyFrom(objections)
        if failure is None and request.study_digest == record.digest:
            reply.effective_digest = record.task.effective_digest
        return reply

    def _load_record(self, digest: bytes, study_id: str, method: str) -> StudyRecord | None:
        """Return the study with this digest, else the one with this id; of studies that a miner runs, one that answers
        `method`.
        """
        records = [
            record
            for record in self._site.state.studies()
            if record.digest == digest or record.study_id == study_id
            if not protocol_of(study := record.task.proposal_study).coordinated
            or method in party_protocol(study).serves
        ]
        exact = [record for record in records if record.digest == digest]
        candidates = exact or records
        return candidates[-1] if candidates else None

    def _failure(self, record: StudyRecord, proposal: Study) -> VerticilError | None:
        state = State(record.task.state)
        if state is State.PUBLISHED:
            return None
        if (revocation := self._site.revocations.get(record.digest)) is not None:
            return Refusal("STUDY_WITHDRAWN", f"revoked by '{self._site.config.name}': {revocation.reason}")
        if record.denial_sent is not None:
            return Refusal("STUDY_DENIED", f"denied: {self._site.decisions.denial_reason(record.digest)}")
        if record.failure is not None:
            return redact_error(record.failure)
        if state is State.EXPIRED or proposal.is_expired(self._node.clock().date()):
            return Refusal("STUDY_EXPIRED", f"its last day was {proposal.expires}")
        return None

    def _open(self, caller: str, effective_digest: bytes, method: str) -> tuple[StudyRecord, Agreed]:
        """Return a study that all parties have approved and that goes on here, for one of its parties; its protocol answers
        `method`.

        A study of Model II is none: what its parties randomize is for no other node, whatever daemon runs beside.
        """
        record = self._site.state.find_effective(effective_digest)
        if record is None or method not in party_protocol(record.task.effective_study).serves:
            raise PeerFault("NOT_READY", "this party has not every party's approval of such a study yet")
        _check_party(record.task.effective_study, caller)
        _check_not_ended(record)
        if record.approval is None:
            raise PeerFault("NOT_READY", "this party's approval is awaited again")
        try:
            return record, agreement(self._site, record, self._node.clock().date())
        except StoppedError:
            raise _ended_here() from None

    def _check_goes_on(self, digest: bytes) -> None:
        """Break off what is on its way of a study that was revoked, has failed or has ended."""
        if digest in self._site.revocations.list_stopped():
            raise _ended_here()
        _check_not_ended(self._site.state.study(digest))

    def _pseudonyms(self, caller: str, request: peer_pb2.GetPseudonymsRequest) -> tuple[Path, Item]:
        record, agreed_study = self._open(caller, request.effective_digest, "GetPseudonyms")
        parties, me = agreed_study.effective.parties, self._site.config.name
        mode = agreed_study.effective.linkage.mode
        if request.list not in _LISTS[mode]:
            expected_kinds = " or ".join(f"{peer_pb2.PseudonymList.Name(number)} ({number})" for number in _LISTS[mode])
            raise PeerFault("MESSAGE_INVALID", f"linkage '{mode}': list {request.list}, expected {expected_kinds}")
        if request.list in _OF_AN_OWNER:
            return self._find_blinded(caller, request, record, agreed_study.effective)
        if request.list == peer_pb2.PSEUDONYM_LIST_RUNNING:
            successor = parties[parties.index(me) + 1 :][:1]
            if (caller,) != successor:
                raise PeerFault("IDENTITY_REFUSED", f"the running list of '{me}' is not for '{caller}'")
            return self._find_stored(record, Kind.RUNNING)
        if request.list == peer_pb2.PSEUDONYM_LIST_COMMITMENT:
            return self._find_stored(record, Kind.COMMITMENT)
        if me != parties[-1]:
            raise PeerFault("NOT_OWNER", f"the common list is told by '{parties[-1]}', not by '{me}'")
        return self._find_stored(record, Kind.COMMON)

    def _find_blinded(
        self, caller: str, request: peer_pb2.GetPseudonymsRequest, record: StudyRecord, study: Study
    ) -> tuple[Path, Item]:
        """Return a list that was blinded here, what was signed of it, or the places in it of the common people."""
        parties, me = study.parties, self._site.config.name
        if request.owner >= len(parties):
            raise PeerFault("MESSAGE_INVALID", f"blinded list {request.owner}, of {len(parties)} parties")
        hop = (parties.index(me) - request.owner) % len(parties)
        kind, is_full = _OF_AN_OWNER[request.list], hop == len(parties) - 1
        if kind is Kind.POSITIONS:
            readers = {sender(parties, request.owner, hop - 1)} if hop else set[str]()
        else:
            readers = set(parties) if is_full else {receiver(parties, request.owner, hop)}
        if caller not in readers:
            raise PeerFault(
                "IDENTITY_REFUSED",
                f"what '{me}' tells of the blinded list of '{parties[request.owner]}' is not for '{caller}'",
            )
        try:
            return self._store.find_intact(record.digest, kind, str(request.owner))
        except LostError:
            if record.n_common is None:
                raise PeerFault("NOT_READY", "it is not there yet") from None
            raise PeerFault(
                "STUDY_MISMATCH",
                f"study '{record.study_id}': the common people are found, and what was made for that is dropped",
                hint="is the state of the party that asks an old backup? every party had what it needed",
            ) from None

    def _column(self, caller: str, request: peer_pb2.GetColumnRequest) -> tuple[bytes, Path, bytes]:
        record, agreed_study = self._open(caller, request.effective_digest, "GetColumn")
        study, me = agreed_study.effective, self._site.config.name
        if request.unit >= len(study.units) or study.units[request.unit].owner != me:
            raise PeerFault("NOT_OWNER", f"unit {request.unit} is not one of '{me}'")
        self._check_reader(caller, record, study, request)
        if record.common_sha256 is None:
            raise PeerFault("NOT_READY", "the common list is not known here yet")
        if request.common_sha256 != record.common_sha256:
            raise PeerFault(
                "STUDY_MISMATCH",
                f"common list {request.common_sha256.hex()[:12]}, here {record.common_sha256.hex()[:12]}",
                hint="nothing was sent",
            )
        item = self._site.state.artifacts(record.digest, record.task.effective_digest).get(request.unit)
        if item is None:
            raise _not_there(record, f"unit {request.unit} is not randomized yet")
        if not self._node.spool.holds(item.sha256):
            self._site.state.forget_artifact(record.digest, item.unit)
            raise PeerFault("NOT_READY", f"unit {request.unit} is randomized again")
        # Each attempted send is in the ledger. A stream that goes on where another one broke off belongs to that one's.
        if request.offset == 0 or not self._site.ledger.has_sent(record.digest, item.unit, caller, item.sha256):
            try:
                enter_in_ledger(self._site, record, item, caller, self._node.clock())
            except StoppedError:
                raise _ended_here() from None
        return record.digest, self._node.spool.path(item.sha256), item.sha256

    def _check_reader(self, caller: str, record: StudyRecord, study: Study, request: peer_pb2.GetColumnRequest) -> None:
        """Refuse a caller that does not read the unit: for scores without a structure, with it for the parameters of a child."""
        protocol = protocol_of(study)
        if not request.structure_sha256:
            readers = protocol.asked_by(study, request.unit, None)
        else:
            structure = known_structure(self._store, record, study)
            if structure is None:
                raise PeerFault("NOT_READY", "the structure is not known here yet")
            if request.structure_sha256 != structure.sha256:
                raise PeerFault(
                    "STUDY_MISMATCH",
                    f"structure {request.structure_sha256.hex()[:12]}, here {structure.sha256.hex()[:12]}",
                    hint="nothing was sent",
                )
            readers = protocol.asked_by(study, request.unit, structure.dag)
        if caller not in readers:
            names = ", ".join(study.units[request.unit].variables)
            raise PeerFault("NOT_OWNER", f"'{caller}' does not read column '{names}'", hint="nothing was sent")

    def _parameters(self, caller: str, request: peer_pb2.GetParametersRequest) -> tuple[Path, Item]:
        record, _ = self._open(caller, request.effective_digest, "GetParameters")
        return self._find_stored(record, Kind.STATEMENT, caller if request.yours else self._site.config.name)

    def _list_masked(self, caller: str, request: peer_pb2.ListMaskedRequest) -> peer_pb2.ListMaskedReply:
        self._open(caller, request.effective_digest, "ListMasked")
        there = self._find_rounds(request.effective_digest).messages_for(
            request.effective_digest, caller, frozenset(request.have)
        )
        return peer_pb2.ListMaskedReply(index=there)

    def _find_rounds(self, effective_digest: bytes) -> MessageRounds:
        """Return the rounds among which a study's is."""
        for rounds in self._rounds:
            if rounds.has(effective_digest):
                return rounds
        raise PeerFault("NOT_READY", "the round of masked tables has not begun here")

    def _message(self, caller: str, request: peer_pb2.GetMaskedRequest) -> tuple[bytes, Path, bytes]:
        record, _ = self._open(caller, request.effective_digest, "GetMasked")
        rounds = self._find_rounds(request.effective_digest)
        return record.digest, *rounds.message(request.effective_digest, caller, request.index)

    def _signature(self, caller: str, effective_digest: bytes) -> common_pb2.Signed:
        record, _ = self._open(caller, effective_digest, "GetSignature")
        try:
            return self._store.signed(record.digest, Kind.SIGNATURE, self._site.config.name)
        except LostError:
            raise PeerFault("NOT_READY", "the release is not assembled here yet") from None

    def _deletion(self, caller: str, digest: bytes) -> bytes:
        """Return the body of the statement. It is made when everything is gone, and stays as it was made first."""
        record = self._load_record(digest, "", "GetDeletion")
        if record is None or record.digest != digest:
            raise PeerFault("NOT_READY", "such a study was not loaded here")
        proposal = record.task.proposal_study
        _check_party(proposal, caller)
        state = State(record.task.state)
        if not is_final(state):
            raise PeerFault("NOT_READY", "the study has not ended here yet")
        has_remains = (
            self._store.holds(digest, keep=kept_after(state)),
            BlindingState(self._site.config.state_directory, digest).exists(),
            bool(files_of_protocols(self._site.config.state_directory, digest)),
        )
        if any(has_remains):
            raise PeerFault("NOT_READY", "not everything is deleted here yet")
        at = self._node.clock()
        return self._site.revocations.give(self._delete_items(record, proposal, caller, at), at)

    def _delete_items(self, record: StudyRecord, proposal: Study, caller: str, at: dt.datetime) -> PeerDeletion:
        dropped_items = {
            key: Deleted(sha256=item.sha256, size=item.size)
            for key, item in self._store.list_dropped(record.digest).items()
        }
        columns = {int(name): item for (kind, name), item in dropped_items.items() if kind is Kind.COLUMN}
        return PeerDeletion(
            study_digest=record.digest,
            study_id=record.study_id,
            party=caller,
            columns={unit: item for unit, item in columns.items() if proposal.units[unit].owner == caller},
            parameters=dropped_items.get((Kind.STATEMENT, caller)),
            ended=_ENDED[State(record.task.state)],
            peer=self._site.config.name,
            deleted_at=at.replace(microsecond=0),
        )

    def _find_stored(self, record: StudyRecord, kind: Kind, name: str = "") -> tuple[Path, Item]:
        try:
            return self._store.find_intact(record.digest, kind, name)
        except LostError:
            # What is waited for, or fails, is for this site's people: it can name folders, addresses and third parties.
            raise _not_there(record, "it is not there yet") from None


def _not_there(record: StudyRecord, why: str) -> PeerFault:
    """Why something cannot be sent. All parties had everything when they signed what is published: who asks lost it."""
    if record.task.state != State.PUBLISHED:
        return PeerFault("NOT_READY", why)
    return PeerFault(
        "STUDY_MISMATCH",
        f"study '{record.study_id}' is published, and what was made for it is dropped",
        hint="is the state of the party that asks an old backup? every party that published has the release",
    )


def _ended_here() -> PeerFault:
    return PeerFault("NOT_READY", "the study has ended here", hint="see the reason under the study's digest")


def _check_not_ended(record: StudyRecord) -> None:
    has_ended = is_final(State(record.task.state)) and State(record.task.state) is not State.PUBLISHED
    over = (record.failure is not None, record.denial_sent is not None, record.revocation_sent is not None)
    if has_ended or any(over):
        raise _ended_here()


def _check_party(study: Study, caller: str) -> None:
    if caller not in study.parties:
        raise PeerFault("PARTY_UNKNOWN", f"study '{study.id}': '{caller}' is not one of its parties")
