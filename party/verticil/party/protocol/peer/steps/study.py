"""One study between peers at this party, from loading to the published release: does the steps that `session` plans.

Promises
- In every step the approval is checked again: study, own declaration, policy, expiry; before the first pseudonym, before
  randomization and before learning the data, too.
- Nothing that a peer says is believed without a check against the study, the own lists and the signatures; what is wrong ends the
  study here, names the peer, and is told to all peers.
- Every step may be broken off and repeated. What is not there yet is waited for, and `status` says for whom and for what.

CPU work and the disk's waits happen in worker threads, one study at a time.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum

from verticil.party.policy import approval
from verticil.party.policy.by_rule import approve_by_rule
from verticil.party.protocol.central.disclosure import words_of
from verticil.party.protocol.central.randomization import agreement
from verticil.party.protocol.central.task_ingest import AskedAgainError
from verticil.party.protocol.peer.artifact_store import Kind, LostError, kept_after
from verticil.party.protocol.peer.calls import PeerFailedError, WaitedForError, all_of
from verticil.party.protocol.peer.plan import Facts, Plan, Step, plan
from verticil.party.protocol.peer.steps import alignment, columns, learning, publication, ring
from verticil.party.protocol.peer.steps.turn import Data, Turn, Work
from verticil.party.protocol.peer.structure import known_structure
from verticil.party.protocol.psi.blinding_state import Workshop
from verticil.party.site import AUTOMATIC
from verticil.party.storage.studies import StudyRecord, stamp
from verticil.shared.errors import PeerFault, Refusal, VerticilError, from_code
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import serial_of, verify_signed
from verticil.shared.study.approval import check_approval, effective_study, parse_approval
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.states import State, is_final
from verticil.shared.transport.errors_on_wire import from_detail, shown
from verticil.wire.v1 import common_pb2, peer_pb2

_log = logging.getLogger(__name__)


class Outcome(Enum):
    """What came of a step."""

    DONE = "done"
    WAITING = "waiting"
    ENDED = "ended"


class PeerStudy:
    """The work on one study. Steps are done one after the other.

    Args:
        work: what all studies share.
        digest: SHA-256 of the proposal.
    """

    def __init__(self, work: Work, digest: bytes) -> None:
        self._work = work
        self._site = work.node.site
        self._digest = digest
        self._data = Data(work)
        self._waiting: Step | None = None
        self._waited_for = ""
        self._for_people = False  # no rule approves it

    @property
    def waited_for(self) -> str:
        """Who was waited for after the last step that ended so, and for what."""
        return self._waited_for

    async def step(self) -> Outcome:
        """Do the next step.

        Returns:
            Whether something was done, others are waited for (`status` says for whom), or the study has ended here.

        Raises:
            VerticilError: of this party; what is a peer's fault has been recorded and told.
        """
        record, facts, found = await asyncio.to_thread(self._plan)
        self._waiting = None
        if found.step is Step.REST:
            self._data.drop()
            return Outcome.ENDED
        actions: Mapping[Step, Callable[[StudyRecord, Facts], Awaitable[str | None]]] = {
            Step.END: self._end,
            Step.CLEAR: self._clear,
            Step.APPROVE: self._approve,
            Step.ASK: self._ask,
            Step.AGREE: self._agree,
        }
        action = actions.get(found.step)
        try:
            waiting = await (action(record, facts) if action else self._carry_on(found.step, record, facts))
            if waiting is not None:
                await self._hear(record, facts)
        except AskedAgainError:
            self._data.drop()
            self._for_people, waiting = False, None
        except WaitedForError as error:
            waiting = str(error)
            try:
                await self._hear(record, facts)
            except PeerFailedError as failed:
                return await self._failed(failed.error)
        except LostError:
            return Outcome.DONE  # what was lost is made or pulled again
        except PeerFailedError as failed:
            return await self._failed(failed.error)
        if waiting is None:
            return Outcome.DONE
        return await self._wait(record, found.step, waiting)

    async def _wait(self, record: StudyRecord, step: Step, waiting: str) -> Outcome:
        """Show who is waited for, unless the study's deadline has passed."""
        if (late := self._overdue(record, waiting)) is not None:
            return await self._failed(late)
        self._waiting, self._waited_for = step, waiting
        await asyncio.to_thread(self._site.state.show, self._digest, waiting, at=self._work.node.clock())
        return Outcome.WAITING

    # ---- planning

    def _plan(self) -> tuple[StudyRecord, Facts, Plan]:
        record = self._site.state.study(self._digest)
        facts = self._facts(record)
        found = plan(facts)
        failure = facts.failure if is_final(found.state) else ""
        if found.step is not Step.END:  # its action writes that down together with the end
            self._site.state.move(self._digest, found.state, failure)
        if found.step is not self._waiting:  # else who is waited for is shown on
            self._site.state.show(self._digest, found.stage, at=self._work.node.clock())
        return record, facts, found

    def _facts(self, record: StudyRecord) -> Facts:
        state, me, digest = self._site.state, self._work.me, self._digest
        proposal = approval.parsed(record.task.proposal)
        agreed = bool(record.task.effective)
        study = approval.parsed(record.task.effective) if agreed else proposal
        structure = known_structure(self._work.shelf, record, study) if agreed else None
        items = self._work.shelf.items(digest)
        named = {kind: frozenset(name for which, name in items if which is kind) for kind in Kind}
        spooled = state.artifacts(digest, record.task.effective_digest)
        return Facts(
            state=State(record.task.state),
            party=me,
            parties=proposal.parties,
            expired=proposal.expired(self._work.node.clock().date()),
            automatic=self._site.config.policy.approval in {"auto", "rules"} and not self._for_people,
            approved=record.approval is not None,
            n_votes=record.n_votes,
            denied=record.denial_sent is not None,
            revoked=record.revocation_sent is not None,
            failure=record.failure.code if record.failure is not None else record.task.failure,
            approvals=named[Kind.APPROVAL],
            agreed=agreed,
            committing=proposal.linkage.mode != "keyed-hash",
            listed=bool(named[Kind.RUNNING] or named[Kind.COMMITMENT])
            or len(named[Kind.BLINDED] & named[Kind.STEPS]) == len(proposal.parties),
            common=bool(named[Kind.COMMON]) and record.n_common is not None,
            structure=structure is not None,
            wanted=columns.wanted_units(study, me, structure) if agreed else frozenset(),
            received=frozenset(int(name) for name in named[Kind.COLUMN]),
            needed=columns.needed_units(study, me, structure) if agreed else frozenset(),
            spooled=frozenset(spooled),
            statements=named[Kind.STATEMENT],
            assembled=me in named[Kind.SIGNATURE] and publication.release_folder(self._site, digest).is_dir(),
            signatures=named[Kind.SIGNATURE],
            leftovers=bool(spooled) or self._work.shelf.holds(digest, keep=kept_after(State(record.task.state))),
        )

    # ---- ends

    def _overdue(self, record: StudyRecord, waiting: str) -> PeerFault | None:
        """What ends a study that is still waiting after its deadline; it runs from when this party heard of the study."""
        quorum = approval.parsed(record.task.proposal).quorum
        if quorum is None:
            return None
        end = dt.datetime.fromisoformat(record.seen_at) + dt.timedelta(seconds=quorum.deadline_seconds)
        if self._work.node.clock() < end:
            return None
        return PeerFault(
            "DEADLINE_PASSED",
            f"study '{record.study_id}': at {stamp(end)} '{self._work.me}' could not go on: {waiting}",
            hint="find out what held it up, and load the study again under a new id, with a later [quorum] deadline",
        )

    async def _failed(self, error: VerticilError) -> Outcome:
        _log.error("the study has ended: %s", error)
        await asyncio.to_thread(self._work.node.fail, self._digest, error)
        return Outcome.DONE

    async def _end(self, record: StudyRecord, facts: Facts) -> None:
        """The study has ended without a release: write it down, then drop what was made for it."""
        found = plan(facts)

        def end() -> None:
            publication.drop_release(self._site, self._digest)
            self._site.state.show(self._digest, found.stage, at=self._work.node.clock())
            self._site.state.move(self._digest, found.state, facts.failure)

        await asyncio.to_thread(end)
        await self._clear(record, facts)

    async def _clear(self, record: StudyRecord, facts: Facts) -> None:
        del facts
        self._data.drop()

        def clear() -> None:
            Workshop(self._site.config.state_directory, record.digest).drop()
            for sha256 in self._site.state.clear(record.digest):
                self._work.node.spool.discard(sha256)
            self._work.shelf.clear(
                record.digest, keep=kept_after(State(self._site.state.study(record.digest).task.state))
            )

        await asyncio.to_thread(clear)

    # ---- agreement

    async def _approve(self, record: StudyRecord, facts: Facts) -> None:
        del facts
        at = self._work.node.clock()
        if self._site.config.policy.approval == "rules":
            rule = await self._work.heavily(lambda: approve_by_rule(self._site, record, at))
            self._for_people = rule is None
            return
        holding = await self._data.read(record)
        await self._work.heavily(lambda: self._site.approve(record, AUTOMATIC, at, holding=holding))

    async def _ask(self, record: StudyRecord, facts: Facts) -> str | None:
        """Compare digests with peers and take their approvals in."""
        proposal = approval.parsed(record.task.proposal)
        if record.approval is not None:
            await asyncio.to_thread(self._site.check_binding, record, self._work.node.clock().date())
        waiting = await all_of(self._ask_one(record, proposal, name) for name in facts.peers)
        if record.approval is None:
            return plan(facts).stage  # what this party's own people have to do comes first
        return waiting

    async def _ask_one(self, record: StudyRecord, proposal: Study, name: str) -> None:
        reply = await self._digest_of(record, name)
        if reply.study_digest != record.digest:
            raise PeerFailedError(
                PeerFault(
                    "STUDY_MISMATCH",
                    f"study '{record.study_id}': '{name}' loaded the digest {reply.study_digest[:32].hex()},"
                    f" '{self._work.me}' loaded {record.digest.hex()}",
                    hint="compare the files; load one and the same, under a new id, at every party",
                )
            )
        if reply.software != self._work.software:
            raise WaitedForError(
                f"waiting for '{name}' to run the same versions: {shown(reply.software, 200)}; here: {self._work.software}"
            )
        if not reply.HasField("approval"):
            against = words_of(reply.objections)
            raise WaitedForError(
                f"waiting for '{name}' to approve" + (f"; its policy does not permit it: {against}" if against else "")
            )
        signed = reply.approval
        try:
            node = self._work.node
            verify_signed(
                signed, node.authority, role=Role.PARTY, name=name, at=node.clock(), revoked=node.revocations.since()
            )
            await self._work.heavily(lambda: check_approval(parse_approval(signed.body), proposal, name))
        except VerticilError as error:
            if error.code == "CERTIFICATE_REVOKED":
                raise WaitedForError(f"waiting for '{name}' to approve with another key: {error.message}") from None
            raise PeerFailedError(from_code(error.code, f"party '{name}': {error.message}", hint=error.hint)) from None
        data = signed.SerializeToString(deterministic=True)
        await asyncio.to_thread(self._work.shelf.put, self._digest, Kind.APPROVAL, data, name)

    async def _digest_of(self, record: StudyRecord, name: str) -> peer_pb2.GetStudyDigestReply:
        """What a peer says of the study.

        Raises:
            PeerFailedError: that it has ended there.
            WaitedForError: nothing yet.
        """
        request = peer_pb2.GetStudyDigestRequest(
            study_id=record.study_id, study_digest=record.digest, software=self._work.software
        )
        reply = await self._work.peers.ask(name, lambda peer: peer.get_study_digest(request), what="to load the study")
        if reply.HasField("failure") and reply.study_digest == record.digest:
            raise PeerFailedError(_heard(name, from_detail(reply.failure)))
        mine, theirs = record.task.effective_digest, reply.effective_digest[:32]
        if mine and theirs and mine != theirs:
            raise PeerFailedError(
                PeerFault(
                    "STUDY_MISMATCH",
                    f"study '{record.study_id}': '{name}' carries out the effective study {theirs.hex()},"
                    f" '{self._work.me}' {mine.hex()}",
                    hint="a party has approved other designs towards one than towards the other; nothing is computed",
                )
            )
        return reply

    async def _hear(self, record: StudyRecord, facts: Facts) -> None:
        """While others are waited for: has the study ended at one of them?"""
        if not facts.agreed:
            return  # asking for approvals has heard it

        async def hear(name: str) -> None:
            await self._digest_of(record, name)

        await all_of(hear(name) for name in facts.peers)

    async def _agree(self, record: StudyRecord, facts: Facts) -> None:
        """Everybody has approved: make the effective study; but ask whose approval a key signed that has been revoked since."""
        shelf, node = self._work.shelf, self._work.node

        def agree() -> None:
            given = {
                name: common_pb2.Signed.FromString(shelf.read(record.digest, Kind.APPROVAL, name))
                for name in facts.peers
            }
            revoked = node.revocations.serials()
            void = [name for name, signed in given.items() if serial_of(signed) in revoked]
            for name in void:
                _log.warning("the approval of '%s' is void: its certificate was revoked", name)
                shelf.forget(record.digest, Kind.APPROVAL, name)
            if void:
                return
            self._site.state.told(record.digest, "remote_approved")
            proposal = approval.parsed(record.task.proposal)
            bodies = [
                self._site.state.study(record.digest).approval or b"",
                *(signed.body for signed in given.values()),
            ]
            effective = effective_study(proposal, [parse_approval(body) for body in bodies])
            self._site.state.agree(record.digest, to_bytes(effective), digest_of(effective))

        await self._work.heavily(agree)

    # ---- after it

    async def _carry_on(self, step: Step, record: StudyRecord, facts: Facts) -> str | None:
        work, turn = self._work, await asyncio.to_thread(self._turn, record)
        match step:
            case Step.LIST if turn.study.linkage.mode == "dh-psi":
                await ring.blind_lists(work, self._data, turn)
            case Step.LIST:
                await alignment.make_running_list(work, self._data, turn)
            case Step.COMMON if turn.study.linkage.mode == "dh-psi":
                await ring.find_common_people(work, self._data, turn)
            case Step.COMMON:
                await alignment.take_common_list(work, self._data, turn)
            case Step.RANDOMIZE:
                await columns.randomize_columns(work, self._data, turn, facts.needed)
            case Step.PULL:
                return await columns.pull_columns(work, turn, facts.wanted - facts.received)
            case Step.SCORE:
                await learning.find_structure(work, self._data, turn)
            case Step.LEARN:
                await learning.learn_parameters(work, self._data, turn)
                self._data.drop()
            case Step.COLLECT:
                missing = [name for name in facts.peers if name not in facts.statements]
                return await learning.collect_statements(work, turn, missing)
            case Step.ASSEMBLE:
                await publication.assemble_release(work, turn)
            case _:
                return await self._sign(turn, facts)
        return None

    async def _sign(self, turn: Turn, facts: Facts) -> str | None:
        missing = [name for name in facts.peers if name not in facts.signatures]
        waiting = await publication.collect_signatures(self._work, turn, missing)
        if waiting is None:
            await publication.publish(self._work, turn)
            await asyncio.to_thread(self._site.state.move, self._digest, State.PUBLISHED)
            _log.info("published, signed by %d parties", 1 + len(facts.peers))
        return waiting

    def _turn(self, record: StudyRecord) -> Turn:
        agreed = agreement(self._site, record, self._work.node.clock().date())
        return Turn(
            record=record,
            agreed=agreed,
            structure=known_structure(self._work.shelf, record, agreed.effective),
        )


def _heard(name: str, told: VerticilError) -> VerticilError:
    """The end of a study, as a peer tells it. What it had itself from somebody else is passed on as it is."""
    if told.code == "STUDY_DENIED":
        return Refusal(
            "STUDY_DENIED", f"'{name}' has {told.message}" if told.message.startswith("denied") else told.message
        )
    hint = f"'{name}' says: {told.hint}" if told.hint else ""
    if told.code in {"STUDY_WITHDRAWN", "STUDY_EXPIRED"}:
        return Refusal(told.code, told.message, hint=hint)
    return Refusal("STUDY_WITHDRAWN", f"'{name}' cannot go on: {told.code}: {told.message}", hint=hint)
