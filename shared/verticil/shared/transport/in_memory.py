"""The production interface without a network: a caller and a service object in one process (simulation, tests).

Every message is serialized and parsed on its way, an error travels as `ErrorDetail`, and the role table applies, so both sides
run the same code as over gRPC and cannot share a mutable object. There are no deadlines and no retries: nothing can be lost here.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Iterable
from typing import TypeVar

from google.protobuf.message import Message

from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.identity.identity import Identity
from verticil.shared.transport.access import check_access
from verticil.shared.transport.coordinator import BlindedSource, ControlService, CoordinatorService, Source
from verticil.shared.transport.errors_on_wire import from_detail, to_detail, without_text
from verticil.shared.transport.peer import PeerService
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2, peer_pb2

M = TypeVar("M", bound=Message)

_COORDINATOR = "/verticil.wire.v1.Coordinator/"
_CONTROL = "/verticil.wire.v1.Control/"
_PEER = "/verticil.wire.v1.Peer/"


def _sent(message: M) -> M:
    return type(message).FromString(message.SerializeToString())


def _told(error: Exception, method: str, teller: str) -> VerticilError:
    known = error if isinstance(error, VerticilError) else without_text(error, method=method)
    return from_detail(common_pb2.ErrorDetail.FromString(to_detail(known).SerializeToString()), teller=teller)


async def _arriving(messages: Iterable[M] | AsyncIterable[M]) -> AsyncGenerator[M, None]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield _sent(message)
    else:
        for message in messages:
            yield _sent(message)


class _Wire:
    """One caller's way to a service: access, then the call."""

    def __init__(self, identity: Identity, federation: str | None, prefix: str) -> None:
        self._identity = identity
        self._federation = identity.federation if federation is None else federation
        self._prefix = prefix
        self._teller = "the peer" if prefix == _PEER else "the miner"
        self._closed = False

    def _enter(self, method: str) -> None:
        if self._closed:
            raise PeerFault("UNREACHABLE", f"{method}: the connection is closed")
        check_access(self._identity, self._prefix + method, federation=self._federation)

    async def _one(self, method: str, reply: Awaitable[M]) -> M:
        try:
            return _sent(await reply)
        except Exception as error:  # noqa: BLE001 (whatever a service raises is told as over the network)
            raise _told(error, method, self._teller) from None

    async def _many(self, method: str, replies: AsyncIterator[M]) -> AsyncGenerator[M, None]:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(replies, AsyncGenerator):
                await stack.enter_async_context(contextlib.aclosing(replies))
            while True:
                try:
                    reply = _sent(await anext(replies))
                except StopAsyncIteration:
                    return
                except Exception as error:  # noqa: BLE001 (the same)
                    raise _told(error, method, self._teller) from None
                yield reply

    async def close(self) -> None:
        """Refuse further calls. Repeatable."""
        self._closed = True


class InMemoryCoordinator(_Wire):
    """`Coordinator` on a service object.

    Args:
        service: the miner's service.
        identity: who calls.
        federation: the miner's federation; the caller's when absent.
    """

    def __init__(self, service: CoordinatorService, identity: Identity, *, federation: str | None = None) -> None:
        super().__init__(identity, federation, _COORDINATOR)
        self._service = service

    async def hello(self, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """See `Coordinator.hello`."""
        self._enter("Hello")
        return await self._one("Hello", self._service.Hello(self._identity, _sent(request)))

    async def poll(self, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        """See `Coordinator.poll`."""
        self._enter("Poll")
        return await self._one("Poll", self._service.Poll(self._identity, _sent(request)))

    async def report(self, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        """See `Coordinator.report`."""
        self._enter("Report")
        return await self._one("Report", self._service.Report(self._identity, _sent(request)))

    async def put_pseudonyms(self, requests: Source) -> coordinator_pb2.PutPseudonymsReply:
        """See `Coordinator.put_pseudonyms`."""
        self._enter("PutPseudonyms")
        async with contextlib.aclosing(_arriving(requests)) as arriving:
            return await self._one("PutPseudonyms", self._service.PutPseudonyms(self._identity, arriving))

    async def get_alignment(
        self, request: coordinator_pb2.GetAlignmentRequest
    ) -> AsyncGenerator[coordinator_pb2.AlignmentPart, None]:
        """See `Coordinator.get_alignment`."""
        self._enter("GetAlignment")
        async with contextlib.aclosing(
            self._many("GetAlignment", self._service.GetAlignment(self._identity, _sent(request)))
        ) as parts:
            async for part in parts:
                yield part

    async def put_blinded(self, requests: BlindedSource) -> coordinator_pb2.PutBlindedReply:
        """See `Coordinator.put_blinded`."""
        self._enter("PutBlinded")
        async with contextlib.aclosing(_arriving(requests)) as arriving:
            return await self._one("PutBlinded", self._service.PutBlinded(self._identity, arriving))

    async def get_blinded(
        self, request: coordinator_pb2.GetBlindedRequest
    ) -> AsyncGenerator[coordinator_pb2.BlindedPart, None]:
        """See `Coordinator.get_blinded`."""
        self._enter("GetBlinded")
        async with contextlib.aclosing(
            self._many("GetBlinded", self._service.GetBlinded(self._identity, _sent(request)))
        ) as parts:
            async for part in parts:
                yield part

    async def begin_upload(self, request: coordinator_pb2.BeginUploadRequest) -> coordinator_pb2.BeginUploadReply:
        """See `Coordinator.begin_upload`."""
        self._enter("BeginUpload")
        return await self._one("BeginUpload", self._service.BeginUpload(self._identity, _sent(request)))

    async def put_chunks(
        self, chunks: Iterable[common_pb2.Chunk] | AsyncIterable[common_pb2.Chunk]
    ) -> common_pb2.ChunkAck:
        """See `Coordinator.put_chunks`."""
        self._enter("PutChunks")
        async with contextlib.aclosing(_arriving(chunks)) as arriving:
            return await self._one("PutChunks", self._service.PutChunks(self._identity, arriving))

    async def finish_upload(self, request: coordinator_pb2.FinishUploadRequest) -> coordinator_pb2.FinishUploadReply:
        """See `Coordinator.finish_upload`."""
        self._enter("FinishUpload")
        return await self._one("FinishUpload", self._service.FinishUpload(self._identity, _sent(request)))

    async def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncGenerator[common_pb2.ReleasePart, None]:
        """See `Coordinator.get_release`."""
        self._enter("GetRelease")
        async with contextlib.aclosing(
            self._many("GetRelease", self._service.GetRelease(self._identity, _sent(request)))
        ) as parts:
            async for part in parts:
                yield part

    async def put_scores(self, request: coordinator_pb2.PutScoresRequest) -> coordinator_pb2.PutScoresReply:
        """See `Coordinator.put_scores`."""
        self._enter("PutScores")
        return await self._one("PutScores", self._service.PutScores(self._identity, _sent(request)))

    async def put_relay(self, request: coordinator_pb2.PutRelayRequest) -> coordinator_pb2.PutRelayReply:
        """See `Coordinator.put_relay`."""
        self._enter("PutRelay")
        return await self._one("PutRelay", self._service.PutRelay(self._identity, _sent(request)))

    async def take_relay(self, request: coordinator_pb2.TakeRelayRequest) -> coordinator_pb2.TakeRelayReply:
        """See `Coordinator.take_relay`."""
        self._enter("TakeRelay")
        return await self._one("TakeRelay", self._service.TakeRelay(self._identity, _sent(request)))


class InMemoryControl(_Wire):
    """`Control` on a service object.

    Args:
        service: the miner's service.
        identity: who calls.
        federation: the miner's federation; the caller's when absent.
    """

    def __init__(self, service: ControlService, identity: Identity, *, federation: str | None = None) -> None:
        super().__init__(identity, federation, _CONTROL)
        self._service = service

    async def submit_study(self, request: control_pb2.SubmitStudyRequest) -> control_pb2.SubmitStudyReply:
        """See `Control.submit_study`."""
        self._enter("SubmitStudy")
        return await self._one("SubmitStudy", self._service.SubmitStudy(self._identity, _sent(request)))

    async def get_study(self, request: control_pb2.GetStudyRequest) -> control_pb2.GetStudyReply:
        """See `Control.get_study`."""
        self._enter("GetStudy")
        return await self._one("GetStudy", self._service.GetStudy(self._identity, _sent(request)))

    async def list_studies(self, request: control_pb2.ListStudiesRequest) -> control_pb2.ListStudiesReply:
        """See `Control.list_studies`."""
        self._enter("ListStudies")
        return await self._one("ListStudies", self._service.ListStudies(self._identity, _sent(request)))

    async def cancel_study(self, request: control_pb2.CancelStudyRequest) -> control_pb2.CancelStudyReply:
        """See `Control.cancel_study`."""
        self._enter("CancelStudy")
        return await self._one("CancelStudy", self._service.CancelStudy(self._identity, _sent(request)))

    async def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncGenerator[common_pb2.ReleasePart, None]:
        """See `Control.get_release`."""
        self._enter("GetRelease")
        async with contextlib.aclosing(
            self._many("GetRelease", self._service.GetRelease(self._identity, _sent(request)))
        ) as parts:
            async for part in parts:
                yield part


class InMemoryPeer(_Wire):
    """`Peer` on a service object.

    Args:
        service: the answering party's service.
        identity: who calls.
        federation: the answering party's federation; the caller's when absent.
    """

    def __init__(self, service: PeerService, identity: Identity, *, federation: str | None = None) -> None:
        super().__init__(identity, federation, _PEER)
        self._service = service

    async def hello(self, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """See `Peer.hello`."""
        self._enter("Hello")
        return await self._one("Hello", self._service.Hello(self._identity, _sent(request)))

    async def get_study_digest(self, request: peer_pb2.GetStudyDigestRequest) -> peer_pb2.GetStudyDigestReply:
        """See `Peer.get_study_digest`."""
        self._enter("GetStudyDigest")
        return await self._one("GetStudyDigest", self._service.GetStudyDigest(self._identity, _sent(request)))

    async def get_pseudonyms(self, request: peer_pb2.GetPseudonymsRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """See `Peer.get_pseudonyms`."""
        self._enter("GetPseudonyms")
        async with contextlib.aclosing(
            self._many("GetPseudonyms", self._service.GetPseudonyms(self._identity, _sent(request)))
        ) as parts:
            async for part in parts:
                yield part

    async def get_column(self, request: peer_pb2.GetColumnRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """See `Peer.get_column`."""
        self._enter("GetColumn")
        async with contextlib.aclosing(
            self._many("GetColumn", self._service.GetColumn(self._identity, _sent(request)))
        ) as parts:
            async for part in parts:
                yield part

    async def get_parameters(self, request: peer_pb2.GetParametersRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """See `Peer.get_parameters`."""
        self._enter("GetParameters")
        async with contextlib.aclosing(
            self._many("GetParameters", self._service.GetParameters(self._identity, _sent(request)))
        ) as parts:
            async for part in parts:
                yield part

    async def get_signature(self, request: peer_pb2.GetSignatureRequest) -> peer_pb2.GetSignatureReply:
        """See `Peer.get_signature`."""
        self._enter("GetSignature")
        return await self._one("GetSignature", self._service.GetSignature(self._identity, _sent(request)))

    async def get_deletion(self, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        """See `Peer.get_deletion`."""
        self._enter("GetDeletion")
        return await self._one("GetDeletion", self._service.GetDeletion(self._identity, _sent(request)))
