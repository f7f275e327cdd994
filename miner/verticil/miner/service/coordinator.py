"""The service that parties dial into: wire messages to and from the rules of `session`.

Every call is safe to repeat and tells state, never events. Who calls is the certificate's identity; that a study, a unit or an
upload is the caller's is checked before anything is read or written. Nothing blocks the event loop: facts, files, digests
and unpacking are done in worker threads.
"""

# A service's methods are called by the names of the wire contract.
# ruff: noqa: N802

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

from verticil.miner.rules.blocking_parties import refuse_left_out
from verticil.miner.rules.leases import HEARTBEAT_SECONDS, LEASE_SECONDS, Changes, Leases, PartyProgress
from verticil.miner.rules.message_rounds import MessageRounds
from verticil.miner.rules.session import Session, countersign, timestamp, withdrawn_text
from verticil.miner.service.linking import Begun, Linking, between_parties
from verticil.miner.service.relay import Relay
from verticil.miner.service.round_messages import RoundMessages
from verticil.miner.service.scores import Scores
from verticil.miner.service.transfer import receive, release_parts
from verticil.miner.storage.linkage import linked_parties
from verticil.miner.storage.records import Failure, StoredColumn, StoredList, StudyRecord, Upload
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.federation.transport.chunks import ChunkReader
from verticil.shared.federation.transport.errors_on_wire import to_detail
from verticil.shared.federation.transport.fetch import read_chunks
from verticil.shared.federation.transport.version import answer_hello
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State, is_final
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

R = TypeVar("R", coordinator_pb2.PutPseudonymsRequest, coordinator_pb2.PutBlindedRequest)

MAX_WAIT_SECONDS: Final = 60
_REPLY_BYTES: Final = 3_500_000
"""A poll's reply stays below the 4 MiB that a peer receives; studies left out follow with the next poll."""
_STREAMS_OF_ONE_PARTY: Final = 2
"""One that works, and one that the miner does not know yet to be dead."""
_NO_BITMAP: Final = (0, b"")
"""With order-commitment all rows are common."""
_STAGES: Final = ("approving", "reading", "linking", "randomizing", "uploading", "masking")


class Coordinator:
    """Answers `verticil.shared.federation.transport.interface.Coordinator`.

    Args:
        session: the rules.
        changes: wakes pollers, and is notified of changes.
        leases: who is online, and how far each party is.
        scores: answers for studies between peers.
        relay: passes sealed envelopes on between them.
        rounds: of the studies that have some.
        messages: of those rounds.
        revocations: the deny-list, which is sent to parties.
        max_concurrent_uploads: streams received at the same time; others wait for their turn.
    """

    def __init__(
        self,
        session: Session,
        changes: Changes,
        leases: Leases,
        scores: Scores,
        relay: Relay,
        *,
        rounds: MessageRounds,
        messages: RoundMessages,
        max_concurrent_uploads: int,
        revocations: Revocations = EMPTY_DENY_LIST,
    ) -> None:
        self._revocations = revocations
        self._session = session
        self._scores = scores
        self._relay = relay
        self._linking = Linking(session)
        self._rounds = rounds
        self._messages = messages
        self._changes = changes
        self._leases = leases
        self._uploads = asyncio.Semaphore(max_concurrent_uploads)
        self._uploads_of: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_STREAMS_OF_ONE_PARTY)
        )

    @contextlib.asynccontextmanager
    async def _place(self, party: str) -> AsyncGenerator[None, None]:
        """Hold a place for one stream; no party can take all places."""
        async with self._uploads_of[party], self._uploads:
            yield

    async def Hello(self, identity: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """Exchange versions.

        Raises:
            PeerFault: VERSION_UNSUPPORTED.
        """
        reply = answer_hello(
            request,
            federation=self._session.identity.federation,
            lease_seconds=LEASE_SECONDS,
            at=self._session.clock(),
            deny_list=self._revocations.newer_than(request.deny_list_number),
        )
        with self._leases.call(identity.name):
            reply.epoch = self._leases.greet(identity.name, request.session)
            reply.heartbeat_seconds = HEARTBEAT_SECONDS
            self._changes.notify()  # a poll of an earlier session need not wait any longer
            return reply

    async def Poll(self, identity: Identity, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        """Answer with the studies whose version is not the one that the party knows; wait for one if there is none.

        Raises:
            PeerFault: SESSION_REPLACED, a later session of the same party has begun.
        """
        versions = {study.study_digest: study.version for study in request.known}
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_seconds, MAX_WAIT_SECONDS)
        if request.epoch or request.wait_seconds:  # else it is a person's tool that looks, and no daemon that lives
            self._leases.hear(identity.name, request.epoch)
        forgotten_studies = await asyncio.to_thread(self._session.catalogue.forgotten.among, versions)
        while True:
            generation = self._changes.generation
            self._leases.check_session(identity.name, request.epoch)
            news = await asyncio.to_thread(self._tasks, identity.name, versions)
            if news or forgotten_studies or self._changes.closed or loop.time() >= end:
                crl = self._revocations.newer_than(request.deny_list_number)
                return coordinator_pb2.PollReply(
                    tasks=news, lease_seconds=LEASE_SECONDS, deny_list=crl, forgotten=forgotten_studies
                )
            await self._changes.wait(generation, end - loop.time())

    def _tasks(self, party: str, versions: dict[bytes, int]) -> list[coordinator_pb2.StudyTask]:
        tasks, size = list[coordinator_pb2.StudyTask](), 0
        for digest, version_now in self._session.catalogue.versions().items():
            if versions.get(digest) == version_now or not self._session.concerns(digest, party):
                continue
            record = self._session.record(digest)
            task = self._task(record, party)
            if digest not in versions:
                _prove(task, record, party)
                if record.effective_digest and opens_tables(self._session.effective(record)):
                    _prove_round(task, record, party, self._rounds.proof(digest, party))
            size += task.ByteSize() + 16
            if tasks and size > _REPLY_BYTES:
                break
            tasks.append(task)
        return tasks

    def _task(self, record: StudyRecord, party: str) -> coordinator_pb2.StudyTask:
        if (refusal := refuse_left_out(record, party)) is not None:
            return self._ended_without(record, refusal)
        state = self._session.state(record)
        units = () if not record.effective_digest else self._session.effective(record).units_of(party)
        task = coordinator_pb2.StudyTask(
            study_digest=record.digest,
            version=record.version,
            state=common_pb2.StudyState.ValueType(state.value),
            proposal=record.proposal,
            effective=record.effective,
            effective_digest=record.effective_digest,
            approved=party in record.approvals,
            pseudonyms_complete=party in linked_parties(record, self._session.current(record)),
            alignment_confirmed=party in record.confirmed,
            units_received=[unit for unit in units if unit in record.columns],
            units_damaged=[unit for unit in units if unit in record.damaged],
            review_manifest_sha256=record.review_manifest if state is State.REVIEW else b"",
            submitter=record.submitter,
        )
        detail = end_of(record, state)
        if detail is not None:
            task.failure.CopyFrom(detail)
        if (deletion := record.deletions.get(party)) is not None:
            task.deletion.CopyFrom(deletion.message)
        if record.sub_model is not None:
            task.sub_model.CopyFrom(record.sub_model.message)
        return task

    def _ended_without(self, record: StudyRecord, refusal: Refusal) -> coordinator_pb2.StudyTask:
        """Return the task of a party that was left out: for it the study has ended, whatever becomes of it."""
        return coordinator_pb2.StudyTask(
            study_digest=record.digest,
            version=record.version,
            state=common_pb2.StudyState.ValueType(State.FAILED.value),
            proposal=record.proposal,
            failure=to_detail(refusal),
            submitter=record.submitter,
        )

    async def Report(self, identity: Identity, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        """Record what the party tells.

        Raises:
            VerticilError: as the rules of `Session` say.
        """
        with self._leases.call(identity.name):
            what = request.WhichOneof("what")
            digest, party, session = request.study_digest, identity.name, self._session
            if what == "approval":
                await asyncio.to_thread(session.approve, digest, party, request.approval)
                self._leases.clear_progress(digest, party)  # it does not wait for this approval any more
            elif what == "denial":
                await asyncio.to_thread(session.deny, digest, party, request.denial.reason)
            elif what == "confirmed_common_sha256":
                await asyncio.to_thread(session.confirm, digest, party, request.confirmed_common_sha256)
            elif what == "commitment":
                await asyncio.to_thread(self._linking.commit, digest, party, request.commitment)
            elif what == "failure":
                await asyncio.to_thread(session.report_failure, digest, party, Failure.of(request.failure))
            elif what == "withdrawal":
                await asyncio.to_thread(session.revoke, digest, party, request.withdrawal.reason)
            elif what == "countersign":
                await asyncio.to_thread(countersign, session, digest, party, request.countersign)
            elif what == "progress":
                await asyncio.to_thread(self._progress, digest, party, request.progress)
            else:
                raise PeerFault(
                    "MESSAGE_INVALID",
                    "report: says nothing, expected one of approval, denial, confirmation, commitment, failure, progress,"
                    " withdrawal, countersignature",
                )
            record = await asyncio.to_thread(session.record, digest)
            if what != "progress":
                self._changes.notify()
        return coordinator_pb2.ReportReply(version=record.version)

    def _progress(self, digest: bytes, party: str, progress: coordinator_pb2.Progress) -> None:
        self._session.position(self._session.record(digest), party)
        if progress.stage not in _STAGES or progress.percent > 100:
            raise PeerFault(
                "MESSAGE_INVALID", f"progress: expected one of {', '.join(_STAGES)} and a percent of 0 to 100"
            )
        self._leases.set_progress(digest, party, PartyProgress.of(progress))

    async def PutPseudonyms(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutPseudonymsRequest]
    ) -> coordinator_pb2.PutPseudonymsReply:
        """Take in (a part of) the party's pseudonym list."""
        session, party = self._session, identity.name

        def begin(first: coordinator_pb2.PutPseudonymsRequest) -> Begun:
            record = session.record(first.study_digest)
            session.position(record, party)
            present_list = record.lists.get(party)
            if (
                present_list is None or not present_list.complete
            ):  # asking again for what is complete is always answered
                session.require(record, State.ALIGNING)
            proposal, minimum = session.proposal(record), session.minimum(record)
            if opens_tables(proposal):
                raise between_parties(record)
            if (mode := proposal.linkage.mode) != "keyed-hash":
                raise PeerFault("MESSAGE_INVALID", f"study '{record.study_id}': linkage '{mode}' has no pseudonyms")
            arriving = session.intake.pseudonyms(record, proposal, party)
            new_list = StoredList(size=first.size, sha256=first.sha256)
            return arriving, session.intake.begin_list(arriving, record, proposal, new_list, minimum=minimum)

        missing = "pseudonym list: an empty stream, expected a first message with digest and size"
        offset, complete = await self._take_in(party, requests, begin, missing=missing)
        return coordinator_pb2.PutPseudonymsReply(committed_offset=offset, complete=complete)

    async def PutBlinded(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutBlindedRequest]
    ) -> coordinator_pb2.PutBlindedReply:
        """Take in (a part of) a blinded list; see `Linking.begin`."""
        begin = functools.partial(self._linking.begin, identity.name)
        missing = "blinded list: an empty stream, expected a first message with its digest"
        offset, complete = await self._take_in(identity.name, requests, begin, missing=missing)
        return coordinator_pb2.PutBlindedReply(committed_offset=offset, complete=complete)

    async def _take_in(
        self, party: str, requests: AsyncIterator[R], begin: Callable[[R], Begun], *, missing: str
    ) -> tuple[int, bool]:
        """Take in (a part of) a list, from the committed offset; check it when it is whole.

        Args:
            party: who sends it.
            requests: the stream.
            begin: by the first message: the list, and what is stored of it; blocks.
            missing: the problem of a stream without a message.

        Returns:
            The committed offset, and whether the list is whole and checked.
        """
        intake = self._session.intake
        first = await anext(requests, None)
        if first is None:
            raise PeerFault("MESSAGE_INVALID", missing)

        async def chunks() -> AsyncIterator[common_pb2.Chunk]:
            if first.HasField("chunk"):
                yield first.chunk
            async for request in requests:
                self._leases.hear(party)
                yield request.chunk

        with self._leases.call(party):
            arriving, entry = await asyncio.to_thread(begin, first)
            if entry.complete:
                return entry.committed, True

            def append(offset: int, data: bytes) -> int:
                return intake.append_list(arriving, sha256=first.sha256, offset=offset, data=data)

            async with self._place(party):
                new_offset = await receive(ChunkReader(offset=entry.committed, size=first.size), chunks(), append)
            if new_offset == first.size:
                await asyncio.to_thread(intake.complete_list, arriving)
                self._changes.notify()
            return new_offset, new_offset == first.size

    async def GetAlignment(
        self, identity: Identity, request: coordinator_pb2.GetAlignmentRequest
    ) -> AsyncGenerator[coordinator_pb2.AlignmentPart, None]:
        """Stream the bitmap over the party's own list."""
        session, party = self._session, identity.name

        def look() -> tuple[StudyRecord, int]:
            record = session.record(request.study_digest)
            position = session.position(record, party)
            session.require_aligned(record, State.ALIGNING, State.PREPARING, State.UPLOADING, State.REVIEW)
            if request.offset > (size := record.bitmaps.get(party, _NO_BITMAP)[0]):
                raise PeerFault("MESSAGE_INVALID", f"bitmap: offset {request.offset}, expected at most {size}")
            return record, position

        with self._leases.call(party):
            record, position = await asyncio.to_thread(look)
            size = record.bitmaps.get(party, _NO_BITMAP)[0]
            facts = coordinator_pb2.AlignmentPart(
                n_common=record.n_common or 0, common_sha256=record.common_sha256, bitmap_size=size
            )
            facts.statements.extend(signed.message for signed in record.commitments.values())
            if request.offset == size:
                yield facts
                return
            path = session.store.study(record.digest).bitmap(position)
            async for chunk in read_chunks(path, offset=request.offset, what="bitmap"):
                facts.chunk.CopyFrom(chunk)
                yield facts
                facts.ClearField("statements")

    async def GetBlinded(
        self, identity: Identity, request: coordinator_pb2.GetBlindedRequest
    ) -> AsyncGenerator[coordinator_pb2.BlindedPart, None]:
        """Stream a blinded list to the party whose turn is next; see `Linking.get`."""
        with self._leases.call(identity.name):
            async with contextlib.aclosing(self._linking.get(identity.name, request)) as parts:
                async for part in parts:
                    yield part

    async def BeginUpload(
        self, identity: Identity, request: coordinator_pb2.BeginUploadRequest
    ) -> coordinator_pb2.BeginUploadReply:
        """Say from which offset an artifact of the party's own is expected, or that it is stored."""
        session, party = self._session, identity.name

        def begin() -> Upload | StoredColumn:
            record = session.own_unit(request.effective_digest, request.unit, party)
            if opens_tables(session.effective(record)):
                raise between_parties(record)
            if request.unit not in record.columns:
                session.require(record, State.PREPARING, State.UPLOADING)
            return session.intake.begin_upload(
                record, session.effective(record), request.unit, size=request.size, sha256=request.sha256
            )

        with self._leases.call(party):
            upload = await asyncio.to_thread(begin)
        if isinstance(upload, StoredColumn):
            return coordinator_pb2.BeginUploadReply(
                upload_id=upload.upload_id, committed_offset=upload.artifact_size, receipt=upload.receipt.message
            )
        return coordinator_pb2.BeginUploadReply(upload_id=upload.upload_id, committed_offset=upload.committed)

    def _own_upload(self, upload_id: str, party: str) -> tuple[StudyRecord, Upload | StoredColumn]:
        """Return the party's own upload, in transit or finished, and its study.

        Raises:
            PeerFault: OFFSET_MISMATCH, there is none; NOT_OWNER.
        """
        catalogue = self._session.catalogue
        stored_column = catalogue.finished_upload(upload_id)
        upload: Upload | StoredColumn | None
        if stored_column is not None:
            study, upload = stored_column
        elif (upload := catalogue.uploads.find(upload_id)) is not None:
            study = upload.study
        else:
            raise PeerFault("OFFSET_MISMATCH", "upload: no such upload", hint="begin the upload again")
        record = self._session.record(study)
        if self._session.effective(record).units[upload.unit].owner != party:
            raise PeerFault(
                "NOT_OWNER",
                f"upload: belongs to another party than '{party}'",
                hint="a party uploads its own columns only",
            )
        return record, upload

    async def PutChunks(self, identity: Identity, requests: AsyncIterator[common_pb2.Chunk]) -> common_pb2.ChunkAck:
        """Take in one stream of an artifact; the reply says what is on the disk."""
        session, party = self._session, identity.name
        first = await anext(requests, None)
        if first is None:
            raise PeerFault("MESSAGE_INVALID", "artifact: an empty stream, expected chunks")

        def begin() -> Upload:
            record, upload = self._own_upload(first.upload_id, party)
            session.require(record, State.PREPARING, State.UPLOADING)
            if isinstance(upload, StoredColumn):
                raise PeerFault(
                    "OFFSET_MISMATCH",
                    f"artifact: is stored already, expected no chunk at offset {first.offset}",
                    hint="finish it",
                )
            return upload

        async def chunks() -> AsyncIterator[common_pb2.Chunk]:
            yield first
            async for chunk in requests:
                self._leases.hear(party)
                yield chunk

        with self._leases.call(party):
            upload = await asyncio.to_thread(begin)

            def append(offset: int, data: bytes) -> int:
                return session.intake.append_upload(upload.upload_id, offset=offset, data=data)

            reader = ChunkReader(offset=upload.committed, size=upload.size, upload_id=upload.upload_id)
            async with self._place(party):
                return common_pb2.ChunkAck(committed_offset=await receive(reader, chunks(), append))

    async def FinishUpload(
        self, identity: Identity, request: coordinator_pb2.FinishUploadRequest
    ) -> coordinator_pb2.FinishUploadReply:
        """Verify an artifact and give its receipt; again, the same receipt."""
        session, party = self._session, identity.name

        def finish() -> StoredColumn:
            record, upload = self._own_upload(request.upload_id, party)
            if isinstance(upload, StoredColumn):
                return upload
            session.require(record, State.PREPARING, State.UPLOADING)
            return session.intake.finish_upload(
                request.upload_id,
                record,
                session.effective(record),
                miner=session.identity.name,
                received_at=timestamp(session.clock()),
                sign=session.sign,
            )

        with self._leases.call(party):
            column = await asyncio.shield(asyncio.to_thread(finish))
        self._changes.notify()
        return coordinator_pb2.FinishUploadReply(receipt=column.receipt.message)

    async def GetRelease(
        self, identity: Identity, request: common_pb2.GetReleaseRequest
    ) -> AsyncGenerator[common_pb2.ReleasePart, None]:
        """Stream a file of a published release, or of one that waits for countersignatures, to a party of the study."""

        def look() -> None:
            self._session.position(self._session.record(request.study_digest), identity.name)

        with self._leases.call(identity.name):
            await asyncio.to_thread(look)
            async with contextlib.aclosing(release_parts(self._session, request, to_party=True)) as parts:
                async for part in parts:
                    yield part

    async def PutScores(
        self, identity: Identity, request: coordinator_pb2.PutScoresRequest
    ) -> coordinator_pb2.PutScoresReply:
        """Take in a party's scores of a study between peers, and tell the structure when there is one; see `Scores.put`."""
        with self._leases.call(identity.name):
            return await self._scores.put(identity.name, request)

    async def PutRelay(
        self, identity: Identity, request: coordinator_pb2.PutRelayRequest
    ) -> coordinator_pb2.PutRelayReply:
        """Take in a sealed envelope for another party; see `Relay.put`."""
        with self._leases.call(identity.name):
            self._relay.put(identity.name, request.recipient, request.sealed)
            return coordinator_pb2.PutRelayReply()

    async def TakeRelay(
        self, identity: Identity, request: coordinator_pb2.TakeRelayRequest
    ) -> coordinator_pb2.TakeRelayReply:
        """Hand out what others left for the party; see `Relay.take`."""
        with self._leases.call(identity.name):
            return await self._relay.take(identity.name, request)

    async def ListMasked(self, identity: Identity, request: peer_pb2.ListMaskedRequest) -> peer_pb2.ListMaskedReply:
        """Tell which messages of a round are here for the party; see `RoundMessages.list`."""
        with self._leases.call(identity.name):
            return await self._messages.list(identity.name, request, most_seconds=MAX_WAIT_SECONDS)

    async def GetMasked(
        self, identity: Identity, request: peer_pb2.GetMaskedRequest
    ) -> AsyncGenerator[peer_pb2.Part, None]:
        """Stream a message of a round to the party that it is sealed for; see `RoundMessages.get`."""
        with self._leases.call(identity.name):
            async with contextlib.aclosing(self._messages.get(identity.name, request)) as parts:
                async for part in parts:
                    yield part

    async def PutMasked(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutMaskedRequest]
    ) -> coordinator_pb2.PutMaskedReply:
        """Take in (a part of) a message of a round; see `RoundMessages.begin`."""
        party = identity.name
        first = await anext(requests, None)
        if first is None:
            raise PeerFault("MESSAGE_INVALID", "message of a round: an empty stream, expected its size and digest")

        async def chunks() -> AsyncIterator[common_pb2.Chunk]:
            if first.HasField("chunk"):
                yield first.chunk
            async for request in requests:
                self._leases.hear(party)
                yield request.chunk

        with self._leases.call(party):
            take_in = await asyncio.to_thread(self._messages.begin, party, first)
            if take_in is None:
                return coordinator_pb2.PutMaskedReply(committed_offset=first.size, complete=True)
            async with self._place(party):
                return await take_in(chunks())


def _prove(task: coordinator_pb2.StudyTask, record: StudyRecord, party: str) -> None:
    """Show the party what it signed, and what was signed for it: a ledger that was restored from an old backup asks for both."""
    if (approval := record.approvals.get(party)) is not None:
        task.approval.CopyFrom(approval.message)
        task.receipts.extend(record.columns[unit].receipt.message for unit in task.units_received)


def _prove_round(
    task: coordinator_pb2.StudyTask, record: StudyRecord, party: str, messages: Sequence[common_pb2.Signed]
) -> None:
    """Show the party its own signatures of a study with masked tables: under the number of common people, and of its round."""
    task.round_messages.extend(messages)
    if (statement := record.commitments.get(party)) is not None:
        task.commitment.CopyFrom(statement.message)


def end_of(record: StudyRecord, state: State) -> common_pb2.ErrorDetail | None:
    """Say why a study ended otherwise than published; None for others."""
    if not is_final(state) or state is State.PUBLISHED:
        return None
    if state is State.FAILED and record.failure is not None:
        return record.failure.detail
    if state is State.DENIED:
        reasons = "; ".join(
            f"party '{party}': {reason or 'no reason given'}" for party, reason in sorted(record.denials.items())
        )
        return common_pb2.ErrorDetail(code="STUDY_DENIED", message=reasons)
    if state is State.WITHDRAWN:
        return common_pb2.ErrorDetail(code="STUDY_WITHDRAWN", message=withdrawn_text(record))
    return common_pb2.ErrorDetail(code="STUDY_EXPIRED", message="the last valid day has passed")
