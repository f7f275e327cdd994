"""The services over gRPC: the miner's `Coordinator` and `Control`, and a party's `Peer`, on a `Connection`.

Deadlines are those of the tables (`verticil.shared.transport.methods`); streams have the connection's idle time. Errors are those
of `Connection`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TypeVar

import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from verticil.shared.errors import PeerFault
from verticil.shared.transport.calling.client import Connection
from verticil.shared.transport.coordinator import Control, Coordinator
from verticil.shared.transport.methods import Calls, Download, Messages, Unary, Upload
from verticil.shared.transport.peer import Peer

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


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


class _Grpc(Calls):
    """Calls over a connection.

    Args:
        connection: to the one who answers, with our credentials; closed together with this.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """See `Calls.unary`."""
        call: grpc.aio.UnaryUnaryMultiCallable[Q, R] = self._connection.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        return await self._connection.unary(call, request, timeout_seconds=method.deadline(request))

    async def send(self, method: Upload[Q, R], requests: Messages[Q]) -> R:
        """See `Calls.send`."""
        call: grpc.aio.StreamUnaryMultiCallable[Q, R] = self._connection.channel.stream_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        return await self._connection.send(call, requests)

    async def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """See `Calls.receive`."""
        call: grpc.aio.UnaryStreamMultiCallable[Q, R] = self._connection.channel.unary_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        async with contextlib.aclosing(self._connection.receive(call, request)) as replies:
            async for reply in replies:
                yield reply

    async def close(self) -> None:
        """Close the connection. Repeatable."""
        await self._connection.close()


class GrpcCoordinator(_Grpc, Coordinator):
    """`Coordinator` over gRPC."""


class GrpcControl(_Grpc, Control):
    """`Control` over gRPC."""


class GrpcPeer(_Grpc, Peer):
    """`Peer` over gRPC (`verticil.shared.transport.calling.client.dial_peer`)."""
