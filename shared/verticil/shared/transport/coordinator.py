"""The two services of the miner, as the caller sees them and as the one who answers writes them.

Caller's side: `Coordinator` (a party) and `Control` (an analyst) are what a program calls. The module `remote` implements
them over gRPC, `in_memory` over a service object in the same process, each message serialized and parsed on its way, so
that both run the same code. Every method raises `VerticilError` and nothing else (`remote` says which); every call is
safe to repeat.

Answering side: `CoordinatorService` and `ControlService` are what the miner implements. A service object has one method
for each rpc, called by the rpc's name with the caller's identity, taken from the certificate, and the request:

- one request, one reply: ``async def Poll(self, identity, request) -> PollReply``;
- a stream of requests: ``async def PutChunks(self, identity, requests) -> ChunkAck`` where `requests` is an async
  iterator of messages. It may be left before its end (an early reply or an error ends the call). It raises DEADLINE when
  the caller makes no progress;
- a stream of replies: an async generator, ``async def GetRelease(self, identity, request)`` that yields ``ReleasePart``.

What a service raises reaches the caller: a `VerticilError` as it is, anything else as INTERNAL without its text. A caller
that goes away cancels the method (`asyncio.CancelledError`): clean up in ``finally`` and let it pass. Role and federation
are checked before a service is called (`access`); whether this party may do this to this study is the service's to check.
Nothing here blocks the event loop, and a service must not either.
"""

# A service's methods are called by the names of the wire contract.
# ruff: noqa: N802

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Protocol, TypeAlias

from verticil.shared.errors import PeerFault
from verticil.shared.identity.identity import Identity
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

Source: TypeAlias = Iterable[coordinator_pb2.PutPseudonymsRequest] | AsyncIterable[coordinator_pb2.PutPseudonymsRequest]
"""What `Coordinator.put_pseudonyms` takes. A plain iterable is read in a worker thread, so it may read a file."""
BlindedSource: TypeAlias = (
    Iterable[coordinator_pb2.PutBlindedRequest] | AsyncIterable[coordinator_pb2.PutBlindedRequest]
)
"""What `Coordinator.put_blinded` takes."""


class AnsweredLater(PeerFault):
    """The request was taken, and its answer comes with what the miner tells next: there is no line to it, files are carried."""

    def __init__(self, what: str) -> None:
        super().__init__("NOT_READY", f"{what}: goes to the miner in a file, and so does the answer come")


class Coordinator(Protocol):
    """What a party asks of the miner."""

    async def hello(self, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """Exchange versions; the first call of a session."""
        ...

    async def poll(self, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        """Wait at most ``wait_seconds`` for studies that are newer than what the party knows."""
        ...

    async def report(self, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        """Tell the party's approval, denial, confirmation, failure or progress."""
        ...

    async def put_pseudonyms(self, requests: Source) -> coordinator_pb2.PutPseudonymsReply:
        """Send (a part of) the party's pseudonyms, or ask for the committed offset."""
        ...

    def get_alignment(
        self, request: coordinator_pb2.GetAlignmentRequest
    ) -> AsyncIterator[coordinator_pb2.AlignmentPart]:
        """Read the bitmap over the party's pseudonyms, from an offset. Close the iterator when leaving it early."""
        ...

    async def put_blinded(self, requests: BlindedSource) -> coordinator_pb2.PutBlindedReply:
        """Send (a part of) a blinded list, or ask for the committed offset."""
        ...

    def get_blinded(self, request: coordinator_pb2.GetBlindedRequest) -> AsyncIterator[coordinator_pb2.BlindedPart]:
        """Read the blinded list whose next station this party is, from an offset. Close the iterator when leaving it early."""
        ...

    async def begin_upload(self, request: coordinator_pb2.BeginUploadRequest) -> coordinator_pb2.BeginUploadReply:
        """Begin or resume the upload of one unit."""
        ...

    async def put_chunks(
        self, chunks: Iterable[common_pb2.Chunk] | AsyncIterable[common_pb2.Chunk]
    ) -> common_pb2.ChunkAck:
        """Send one stream of chunks; the reply says what is on the miner's disk."""
        ...

    async def finish_upload(self, request: coordinator_pb2.FinishUploadRequest) -> coordinator_pb2.FinishUploadReply:
        """Have the artifact verified and receipted."""
        ...

    def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncIterator[common_pb2.ReleasePart]:
        """Read a file of a published release, from an offset. Close the iterator when leaving it early."""
        ...

    async def put_scores(self, request: coordinator_pb2.PutScoresRequest) -> coordinator_pb2.PutScoresReply:
        """Model I: give the party's pair scores, and wait at most ``wait_seconds`` for the structure; again, only the latter."""
        ...

    async def put_relay(self, request: coordinator_pb2.PutRelayRequest) -> coordinator_pb2.PutRelayReply:
        """Model I: leave a sealed envelope for another party."""
        ...

    async def take_relay(self, request: coordinator_pb2.TakeRelayRequest) -> coordinator_pb2.TakeRelayReply:
        """Model I: wait at most ``wait_seconds`` for envelopes that others left for the party."""
        ...

    async def close(self) -> None:
        """Give up the connection. Repeatable."""
        ...


class Control(Protocol):
    """What an analyst or a consumer asks of the miner."""

    async def submit_study(self, request: control_pb2.SubmitStudyRequest) -> control_pb2.SubmitStudyReply:
        """Propose a study to the parties."""
        ...

    async def get_study(self, request: control_pb2.GetStudyRequest) -> control_pb2.GetStudyReply:
        """Where a study stands; with ``wait_seconds``, when it has moved on."""
        ...

    async def list_studies(self, request: control_pb2.ListStudiesRequest) -> control_pb2.ListStudiesReply:
        """All studies."""
        ...

    async def cancel_study(self, request: control_pb2.CancelStudyRequest) -> control_pb2.CancelStudyReply:
        """Withdraw a study."""
        ...

    def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncIterator[common_pb2.ReleasePart]:
        """Read a file of a published release, from an offset. Close the iterator when leaving it early."""
        ...

    async def close(self) -> None:
        """Give up the connection. Repeatable."""
        ...


class CoordinatorService(Protocol):
    """What the miner answers to parties; see the module's docstring for the shape of a method."""

    async def Hello(self, identity: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """See `Coordinator.hello`."""
        ...

    async def Poll(self, identity: Identity, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        """See `Coordinator.poll`. Answers at once when the daemon is about to stop."""
        ...

    async def Report(self, identity: Identity, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        """See `Coordinator.report`."""
        ...

    async def PutPseudonyms(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutPseudonymsRequest]
    ) -> coordinator_pb2.PutPseudonymsReply:
        """See `Coordinator.put_pseudonyms`."""
        ...

    def GetAlignment(
        self, identity: Identity, request: coordinator_pb2.GetAlignmentRequest
    ) -> AsyncIterator[coordinator_pb2.AlignmentPart]:
        """See `Coordinator.get_alignment`."""
        ...

    async def PutBlinded(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutBlindedRequest]
    ) -> coordinator_pb2.PutBlindedReply:
        """See `Coordinator.put_blinded`."""
        ...

    def GetBlinded(
        self, identity: Identity, request: coordinator_pb2.GetBlindedRequest
    ) -> AsyncIterator[coordinator_pb2.BlindedPart]:
        """See `Coordinator.get_blinded`."""
        ...

    async def BeginUpload(
        self, identity: Identity, request: coordinator_pb2.BeginUploadRequest
    ) -> coordinator_pb2.BeginUploadReply:
        """See `Coordinator.begin_upload`."""
        ...

    async def PutChunks(self, identity: Identity, requests: AsyncIterator[common_pb2.Chunk]) -> common_pb2.ChunkAck:
        """See `Coordinator.put_chunks`."""
        ...

    async def FinishUpload(
        self, identity: Identity, request: coordinator_pb2.FinishUploadRequest
    ) -> coordinator_pb2.FinishUploadReply:
        """See `Coordinator.finish_upload`."""
        ...

    def GetRelease(
        self, identity: Identity, request: common_pb2.GetReleaseRequest
    ) -> AsyncIterator[common_pb2.ReleasePart]:
        """See `Coordinator.get_release`."""
        ...

    async def PutScores(
        self, identity: Identity, request: coordinator_pb2.PutScoresRequest
    ) -> coordinator_pb2.PutScoresReply:
        """See `Coordinator.put_scores`. Answers at once when the daemon is about to stop."""
        ...

    async def PutRelay(
        self, identity: Identity, request: coordinator_pb2.PutRelayRequest
    ) -> coordinator_pb2.PutRelayReply:
        """See `Coordinator.put_relay`."""
        ...

    async def TakeRelay(
        self, identity: Identity, request: coordinator_pb2.TakeRelayRequest
    ) -> coordinator_pb2.TakeRelayReply:
        """See `Coordinator.take_relay`. Answers at once when the daemon is about to stop."""
        ...


class ControlService(Protocol):
    """What the miner answers to analysts and consumers; see the module's docstring for the shape of a method."""

    async def SubmitStudy(
        self, identity: Identity, request: control_pb2.SubmitStudyRequest
    ) -> control_pb2.SubmitStudyReply:
        """See `Control.submit_study`."""
        ...

    async def GetStudy(self, identity: Identity, request: control_pb2.GetStudyRequest) -> control_pb2.GetStudyReply:
        """See `Control.get_study`."""
        ...

    async def ListStudies(
        self, identity: Identity, request: control_pb2.ListStudiesRequest
    ) -> control_pb2.ListStudiesReply:
        """See `Control.list_studies`."""
        ...

    async def CancelStudy(
        self, identity: Identity, request: control_pb2.CancelStudyRequest
    ) -> control_pb2.CancelStudyReply:
        """See `Control.cancel_study`."""
        ...

    def GetRelease(
        self, identity: Identity, request: common_pb2.GetReleaseRequest
    ) -> AsyncIterator[common_pb2.ReleasePart]:
        """See `Control.get_release`."""
        ...
