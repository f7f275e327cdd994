"""The services over gRPC: the miner's `Coordinator` and `Control`, and a party's `Peer`, on a `Connection`.

Deadlines: 30 seconds for a call; a call that waits on purpose gets 15 seconds more than it waits; streams have the connection's
idle time. Errors are those of `Connection`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import Final

import grpc.aio
from grpc_health.v1 import health_pb2

from verticil.shared.errors import PeerFault
from verticil.shared.transport.calling.client import Connection
from verticil.shared.transport.coordinator import BlindedSource, Source
from verticil.wire.v1 import (
    common_pb2,
    control_pb2,
    control_pb2_grpc,
    coordinator_pb2,
    coordinator_pb2_grpc,
    peer_pb2,
    peer_pb2_grpc,
)

_HELLO_SECONDS: Final = 10
"""Short: where nobody answers, the next attempt is worth more than waiting on."""
_CALL_SECONDS: Final = 30.0
_WAIT_MARGIN_SECONDS: Final = 15.0


async def check_health(connection: Connection, *, timeout_seconds: float = 5.0) -> dict[str, str]:
    """Ask the peer whether it serves; what `verticil healthcheck` does.

    Returns:
        What it tells of itself besides: `verticil.shared.transport.version.PROTOCOL_KEY` and ``TIME_KEY``, from version 2 on.

    Raises:
        PeerFault: NOT_READY when it does not serve (now), and as `Connection.unary`.
    """
    check: grpc.aio.UnaryUnaryMultiCallable[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]
    check = connection.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    reply, told = await connection.ask(check, health_pb2.HealthCheckRequest(), timeout_seconds=timeout_seconds)
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise PeerFault("NOT_READY", "the service is not serving", hint="it is starting or stopping")
    return told


class GrpcCoordinator:
    """`Coordinator` over gRPC.

    Args:
        connection: to the miner, with a party's credentials; closed together with this.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = coordinator_pb2_grpc.CoordinatorStub(connection.channel)

    async def hello(self, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """See `Coordinator.hello`."""
        return await self._connection.unary(self._stub.Hello, request, timeout_seconds=_HELLO_SECONDS)

    async def poll(self, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        """See `Coordinator.poll`."""
        seconds = request.wait_seconds + _WAIT_MARGIN_SECONDS
        return await self._connection.unary(self._stub.Poll, request, timeout_seconds=seconds)

    async def report(self, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        """See `Coordinator.report`."""
        return await self._connection.unary(self._stub.Report, request, timeout_seconds=_CALL_SECONDS)

    async def put_pseudonyms(self, requests: Source) -> coordinator_pb2.PutPseudonymsReply:
        """See `Coordinator.put_pseudonyms`."""
        return await self._connection.send(self._stub.PutPseudonyms, requests)

    async def get_alignment(
        self, request: coordinator_pb2.GetAlignmentRequest
    ) -> AsyncGenerator[coordinator_pb2.AlignmentPart, None]:
        """See `Coordinator.get_alignment`."""
        async with contextlib.aclosing(self._connection.receive(self._stub.GetAlignment, request)) as parts:
            async for part in parts:
                yield part

    async def put_blinded(self, requests: BlindedSource) -> coordinator_pb2.PutBlindedReply:
        """See `Coordinator.put_blinded`."""
        return await self._connection.send(self._stub.PutBlinded, requests)

    async def get_blinded(
        self, request: coordinator_pb2.GetBlindedRequest
    ) -> AsyncGenerator[coordinator_pb2.BlindedPart, None]:
        """See `Coordinator.get_blinded`."""
        async with contextlib.aclosing(self._connection.receive(self._stub.GetBlinded, request)) as parts:
            async for part in parts:
                yield part

    async def begin_upload(self, request: coordinator_pb2.BeginUploadRequest) -> coordinator_pb2.BeginUploadReply:
        """See `Coordinator.begin_upload`."""
        return await self._connection.unary(self._stub.BeginUpload, request, timeout_seconds=_CALL_SECONDS)

    async def put_chunks(
        self, chunks: Iterable[common_pb2.Chunk] | AsyncIterable[common_pb2.Chunk]
    ) -> common_pb2.ChunkAck:
        """See `Coordinator.put_chunks`."""
        return await self._connection.send(self._stub.PutChunks, chunks)

    async def finish_upload(self, request: coordinator_pb2.FinishUploadRequest) -> coordinator_pb2.FinishUploadReply:
        """See `Coordinator.finish_upload`."""
        return await self._connection.unary(self._stub.FinishUpload, request, timeout_seconds=_CALL_SECONDS)

    async def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncGenerator[common_pb2.ReleasePart, None]:
        """See `Coordinator.get_release`."""
        async with contextlib.aclosing(self._connection.receive(self._stub.GetRelease, request)) as parts:
            async for part in parts:
                yield part

    async def put_scores(self, request: coordinator_pb2.PutScoresRequest) -> coordinator_pb2.PutScoresReply:
        """See `Coordinator.put_scores`."""
        seconds = max(_CALL_SECONDS, request.wait_seconds + _WAIT_MARGIN_SECONDS)
        return await self._connection.unary(self._stub.PutScores, request, timeout_seconds=seconds)

    async def put_relay(self, request: coordinator_pb2.PutRelayRequest) -> coordinator_pb2.PutRelayReply:
        """See `Coordinator.put_relay`."""
        return await self._connection.unary(self._stub.PutRelay, request, timeout_seconds=_CALL_SECONDS)

    async def take_relay(self, request: coordinator_pb2.TakeRelayRequest) -> coordinator_pb2.TakeRelayReply:
        """See `Coordinator.take_relay`."""
        seconds = max(_CALL_SECONDS, request.wait_seconds + _WAIT_MARGIN_SECONDS)
        return await self._connection.unary(self._stub.TakeRelay, request, timeout_seconds=seconds)

    async def close(self) -> None:
        """Close the connection. Repeatable."""
        await self._connection.close()


class GrpcControl:
    """`Control` over gRPC.

    Args:
        connection: to the miner, with an analyst's credentials; closed together with this.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = control_pb2_grpc.ControlStub(connection.channel)

    async def submit_study(self, request: control_pb2.SubmitStudyRequest) -> control_pb2.SubmitStudyReply:
        """See `Control.submit_study`."""
        return await self._connection.unary(self._stub.SubmitStudy, request, timeout_seconds=_CALL_SECONDS)

    async def get_study(self, request: control_pb2.GetStudyRequest) -> control_pb2.GetStudyReply:
        """See `Control.get_study`."""
        seconds = max(_CALL_SECONDS, request.wait_seconds + _WAIT_MARGIN_SECONDS)
        return await self._connection.unary(self._stub.GetStudy, request, timeout_seconds=seconds)

    async def list_studies(self, request: control_pb2.ListStudiesRequest) -> control_pb2.ListStudiesReply:
        """See `Control.list_studies`."""
        return await self._connection.unary(self._stub.ListStudies, request, timeout_seconds=_CALL_SECONDS)

    async def cancel_study(self, request: control_pb2.CancelStudyRequest) -> control_pb2.CancelStudyReply:
        """See `Control.cancel_study`."""
        return await self._connection.unary(self._stub.CancelStudy, request, timeout_seconds=_CALL_SECONDS)

    async def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncGenerator[common_pb2.ReleasePart, None]:
        """See `Control.get_release`."""
        async with contextlib.aclosing(self._connection.receive(self._stub.GetRelease, request)) as parts:
            async for part in parts:
                yield part

    async def close(self) -> None:
        """Close the connection. Repeatable."""
        await self._connection.close()


class GrpcPeer:
    """`Peer` over gRPC.

    Args:
        connection: to another party (`verticil.shared.transport.calling.client.dial_peer`), with a party's credentials; closed
            together with this.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = peer_pb2_grpc.PeerStub(connection.channel)

    async def hello(self, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        """See `Peer.hello`."""
        return await self._connection.unary(self._stub.Hello, request, timeout_seconds=_CALL_SECONDS)

    async def get_study_digest(self, request: peer_pb2.GetStudyDigestRequest) -> peer_pb2.GetStudyDigestReply:
        """See `Peer.get_study_digest`."""
        return await self._connection.unary(self._stub.GetStudyDigest, request, timeout_seconds=_CALL_SECONDS)

    async def get_pseudonyms(self, request: peer_pb2.GetPseudonymsRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """See `Peer.get_pseudonyms`."""
        async with contextlib.aclosing(self._connection.receive(self._stub.GetPseudonyms, request)) as parts:
            async for part in parts:
                yield part

    async def get_column(self, request: peer_pb2.GetColumnRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """See `Peer.get_column`."""
        async with contextlib.aclosing(self._connection.receive(self._stub.GetColumn, request)) as parts:
            async for part in parts:
                yield part

    async def get_parameters(self, request: peer_pb2.GetParametersRequest) -> AsyncGenerator[peer_pb2.Part, None]:
        """See `Peer.get_parameters`."""
        async with contextlib.aclosing(self._connection.receive(self._stub.GetParameters, request)) as parts:
            async for part in parts:
                yield part

    async def get_signature(self, request: peer_pb2.GetSignatureRequest) -> peer_pb2.GetSignatureReply:
        """See `Peer.get_signature`."""
        return await self._connection.unary(self._stub.GetSignature, request, timeout_seconds=_CALL_SECONDS)

    async def get_deletion(self, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        """See `Peer.get_deletion`."""
        return await self._connection.unary(self._stub.GetDeletion, request, timeout_seconds=_CALL_SECONDS)

    async def close(self) -> None:
        """Close the connection. Repeatable."""
        await self._connection.close()
