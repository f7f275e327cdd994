"""One study that every party's operator loads, at this party: from loading to the common people, and the ends.

Promises
- Nothing that a peer says is believed without a check against the study, the own lists and the signatures; what is wrong ends the
  study here, names the peer, and is sent to all peers.
- What is not there yet is waited for, and `status` says for whom and for what.

A protocol between parties is a `BetweenStudy` with facts (`remembered`), a planner (`next_step`) and steps (`carry_on`) of its
own. What holds for every protocol is said in `verticil.party.protocol.engine` and `verticil.party.protocol.context`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from verticil.party.protocol.context import agreement
from verticil.party.protocol.engine import Outcome, StudyRun
from verticil.party.protocol.outgoing_errors import words_of
from verticil.party.protocol.planning import PeerFailedError, Plan, WaitedForError
from verticil.party.protocol.with_peers import alignment, publication
from verticil.party.protocol.with_peers.artifact_store import Kind, kept_after
from verticil.party.protocol.with_peers.context import PeerContext, PeerStudyContext, known_structure, lacking_packages
from verticil.party.protocol.with_peers.network import all_of
from verticil.party.protocol.with_peers.plan import Facts, Step
from verticil.party.storage.studies import StudyRecord, stamp
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError, from_code
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import serial_of
from verticil.shared.federation.transport.errors_on_wire import from_detail, shorten
from verticil.shared.storage.durable import remove_tree
from verticil.shared.study.approval import check_approval, effective_study, parse_approval
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import peer_pb2

F = TypeVar("F", bound=Facts)

_log = logging.getLogger(__name__)


class BetweenStudy(StudyRun, Generic[F]):
    """The work on one study that every party's operator loads.

    Args:
        between: what all studies between peers share.
        digest: SHA-256 of the proposal.
    """

    facts: F
    """What this party remembered when the step was planned."""

    def __init__(self, between: PeerContext, digest: bytes) -> None:
        super().__init__(between.node, digest)
        self.between = between
        self.store = between.store

    # ---- what a protocol between parties has of its own

    @abstractmethod
    def read_facts(self, record: StudyRecord) -> F:
        """Return what this party remembers of the study; begins with `common_facts`."""

    @abstractmethod
    def next_step(self, facts: F) -> Plan:
        """Return the next step: a pure function of what this party remembers."""

    @abstractmethod
    async def carry_on(self, step: StrEnum, context: PeerStudyContext) -> str | None:
        """Do a step of a study that every party has approved; see `StudyRun.act`."""

    # ---- what all have in common

    def plan(self) -> tuple[StudyRecord, Plan]:
        """See `StudyRun.plan`; the state, too, is what this party itself finds out."""
        record = self.site.state.study(self.digest)
        self.facts = self.read_facts(record)
        end = self.next_step(self.facts)
        if end.step.value != Step.END.value and end.state is not None:  # END writes that down together with the end
            failure = self.facts.failure if is_final(end.state) else ""
            self.site.state.move(self.digest, end.state, failure)
        return record, end

    async def act(self, step: StrEnum, record: StudyRecord) -> str | None:
        """Do one step; see `StudyRun.act`."""
        actions: Mapping[StrEnum, Callable[[StudyRecord], Awaitable[str | None]]] = {
            Step.END: self._end,
            Step.CLEAR: self._clear,
            Step.APPROVE: self.approve,
            Step.ASK: self._ask,
            Step.AGREE: self._agree,
        }
        if (action := actions.get(step)) is not None:
            return await action(record)
        if (waiting := self.between.unheard(record.task.proposal_study)) is not None:
            return waiting
        context = await asyncio.to_thread(self._context, record)
        match step:
            case Step.LIST:
                await alignment.make_running_list(context)
            case Step.COMMON:
                await alignment.take_common_list(context)
            case Step.SIGN:
                return await self._sign(context)
            case _:
                return await self.carry_on(step, context)
        return None

    async def rest(self, record: StudyRecord) -> Outcome:
        """See `StudyRun.rest`: it has ended here."""
        del record
        self.data.drop()
        return Outcome.ENDED

    async def listen(self, record: StudyRecord) -> None:
        """See `StudyRun.listen`; before all parties have approved, asking for approvals has heard it."""
        if not self.facts.agreed:
            return

        async def hear(name: str) -> None:
            await self._digest_of(record, name)

        await all_of(hear(name) for name in self.facts.peers)

    def overdue(self, record: StudyRecord, waiting: str) -> PeerFault | None:
        """See `StudyRun.overdue`; the deadline runs from when this party heard of the study."""
        quorum = record.task.proposal_study.quorum
        if quorum is None:
            return None
        end = dt.datetime.fromisoformat(record.seen_at) + dt.timedelta(seconds=quorum.deadline_seconds)
        if self.node.clock() < end:
            return None
        return PeerFault(
            "DEADLINE_PASSED",
            f"study '{record.study_id}': at {stamp(end)} '{self.node.me}' could not go on: {waiting}",
            hint="find out what held it up, and load the study again under a new id, with a later [quorum] deadline",
        )

    def common_facts(self, record: StudyRecord) -> Facts:
        """Return what this party remembers of any study between parties."""
        state, me, digest = self.site.state, self.node.me, self.digest
        proposal = record.task.proposal_study
        items = self.store.items(digest)
        names_by_kind = {kind: frozenset(name for which, name in items if which is kind) for kind in Kind}
        artifacts = state.artifacts(digest, record.task.effective_digest)
        return Facts(
            state=State(record.task.state),
            party=me,
            parties=proposal.parties,
            expired=proposal.is_expired(self.node.clock().date()),
            automatic=self.approves_itself,
            approved=record.approval is not None,
            n_votes=record.n_votes,
            denied=record.denial_sent is not None,
            revoked=record.revocation_sent is not None,
            failure=record.failure.code if record.failure is not None else record.task.failure,
            approvals=names_by_kind[Kind.APPROVAL],
            agreed=bool(record.task.effective),
            committing=proposal.linkage.mode != "keyed-hash",
            listed=alignment.is_listed(items, proposal.parties),
            common=bool(names_by_kind[Kind.COMMON]) and record.n_common is not None,
            statements=names_by_kind[Kind.STATEMENT],
            assembled=me in names_by_kind[Kind.SIGNATURE] and publication.release_folder(self.site, digest).is_dir(),
            signatures=names_by_kind[Kind.SIGNATURE],
            leftovers=bool(artifacts) or self.store.holds(digest, keep=kept_after(State(record.task.state))),
        )

    # ---- ends

    async def _end(self, record: StudyRecord) -> None:
        """Record that the study has ended without a release, then drop what was made for it."""
        study_end = self.next_step(self.facts)

        def end() -> None:
            remove_tree(publication.release_folder(self.site, self.digest), ignore_errors=True)
            self.site.state.show(self.digest, study_end.stage, at=self.node.clock())
            self.site.state.move(self.digest, study_end.state or State.FAILED, self.facts.failure)

        await asyncio.to_thread(end)
        await self._clear(record)

    async def _clear(self, record: StudyRecord) -> None:
        def clear() -> None:
            self.drop_columns()
            self.store.clear(record.digest, keep=kept_after(State(self.site.state.study(record.digest).task.state)))

        await asyncio.to_thread(clear)

    # ---- agreement

    async def _ask(self, record: StudyRecord) -> str | None:
        """Compare digests with peers and take their approvals in.

        Raises:
            Misuse: CONFIG_INVALID, packages that the study takes are not installed here.
        """
        if (lacking := lacking_packages(self.site.config)) is not None:
            raise lacking
        proposal = record.task.proposal_study
        if record.approval is not None:
            await asyncio.to_thread(self.site.voting.check_binding, record, self.node.clock().date())
        waiting = await all_of(self._ask_one(record, proposal, name) for name in self.facts.peers)
        if record.approval is None:
            return self.next_step(self.facts).stage  # what this party's own people have to do comes first
        return waiting

    async def _ask_one(self, record: StudyRecord, proposal: Study, name: str) -> None:
        reply = await self._digest_of(record, name)
        if reply.study_digest != record.digest:
            raise PeerFailedError(
                PeerFault(
                    "STUDY_MISMATCH",
                    f"study '{record.study_id}': '{name}' loaded the digest {reply.study_digest[:32].hex()},"
                    f" '{self.node.me}' loaded {record.digest.hex()}",
                    hint="compare the files; load one and the same, under a new id, at every party",
                )
            )
        if reply.software != self.between.software:
            raise WaitedForError(
                f"waiting for '{name}' to run the same versions: {shorten(reply.software, 200)}; here: {self.between.software}"
            )
        if not reply.HasField("approval"):
            against = words_of(reply.objections)
            raise WaitedForError(
                f"waiting for '{name}' to approve" + (f"; its policy does not permit it: {against}" if against else "")
            )
        signed = reply.approval
        try:
            self.node.verify(signed, role=Role.PARTY, name=name)
            await self.node.heavily(lambda: check_approval(parse_approval(signed.body), proposal, name))
        except VerticilError as error:
            if error.code == "CERTIFICATE_REVOKED":
                raise WaitedForError(f"waiting for '{name}' to approve with another key: {error.message}") from None
            raise PeerFailedError(from_code(error.code, f"party '{name}': {error.message}", hint=error.hint)) from None
        await asyncio.to_thread(self.store.put, self.digest, Kind.APPROVAL, signed, name)

    async def _digest_of(self, record: StudyRecord, name: str) -> peer_pb2.GetStudyDigestReply:
        """Return what a peer says of the study.

        Raises:
            PeerFailedError: that it has ended there.
            WaitedForError: nothing yet.
        """
        request = peer_pb2.GetStudyDigestRequest(
            study_id=record.study_id, study_digest=record.digest, software=self.between.software
        )
        reply = await self.between.peers.ask(
            name, lambda peer: peer.get_study_digest(request), what="to load the study"
        )
        if reply.HasField("failure") and reply.study_digest == record.digest:
            raise PeerFailedError(_peer_end(name, from_detail(reply.failure)))
        mine, theirs = record.task.effective_digest, reply.effective_digest[:32]
        if mine and theirs and mine != theirs:
            raise PeerFailedError(
                PeerFault(
                    "STUDY_MISMATCH",
                    f"study '{record.study_id}': '{name}' carries out the effective study {theirs.hex()},"
                    f" '{self.node.me}' {mine.hex()}",
                    hint="a party has approved other designs towards one than towards the other; nothing is computed",
                )
            )
        return reply

    async def _agree(self, record: StudyRecord) -> None:
        """Everybody has approved: make the effective study; but ask whose approval a key signed that has been revoked since."""
        store, node = self.store, self.node

        def agree() -> None:
            approvals = {name: store.signed(record.digest, Kind.APPROVAL, name) for name in self.facts.peers}
            revoked_serials = node.revocations.serials()
            void = [name for name, signed in approvals.items() if serial_of(signed) in revoked_serials]
            for name in void:
                _log.warning("the approval of '%s' is void: its certificate was revoked", name)
                store.forget(record.digest, Kind.APPROVAL, name)
            if void:
                return
            self.site.state.mark_acknowledged(record.digest, "remote_approved")
            proposal = record.task.proposal_study
            bodies = [
                self.site.state.study(record.digest).approval or b"",
                *(signed.body for signed in approvals.values()),
            ]
            effective = effective_study(proposal, [parse_approval(body) for body in bodies])
            self.site.state.agree(record.digest, to_bytes(effective), digest_of(effective))

        await self.node.heavily(agree)

    # ---- after it

    async def _sign(self, context: PeerStudyContext) -> str | None:
        missing = [name for name in context.others if name not in self.facts.signatures]
        waiting = await publication.collect_signatures(context, missing)
        if waiting is None:
            await publication.publish(context)
            await asyncio.to_thread(self.site.state.move, self.digest, State.PUBLISHED)
            _log.info("published, signed by %d parties", len(context.study.parties))
        return waiting

    def _context(self, record: StudyRecord) -> PeerStudyContext:
        agreed_study = agreement(self.site, record, self.node.clock().date())
        return PeerStudyContext(
            node=self.node,
            record=record,
            agreed=agreed_study,
            data=self.data,
            between=self.between,
            known_structure=known_structure(self.store, record, agreed_study.effective),
        )


def _peer_end(name: str, error: VerticilError) -> VerticilError:
    """Return the end of a study, as a peer reports it; pass on what the peer itself had from another node."""
    if error.code == "STUDY_DENIED":
        return Refusal(
            "STUDY_DENIED", f"'{name}' has {error.message}" if error.message.startswith("denied") else error.message
        )
    hint = f"'{name}' says: {error.hint}" if error.hint else ""
    if error.code in {"STUDY_WITHDRAWN", "STUDY_EXPIRED"}:
        return Refusal(error.code, error.message, hint=hint)
    return Refusal("STUDY_WITHDRAWN", f"'{name}' cannot go on: {error.code}: {error.message}", hint=hint)
