"""Whether a server serves: the standard health service (grpc.health.v1), behind the same gates as everything else.

gRPC ships one for asyncio, but its watchers stay parked while a server stops, for the whole grace. Names: the full names
of the services, and the empty name for the server as a whole.
"""

# A service's methods are called by the names of the protocol.
# ruff: noqa: N802

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TypeAlias

import grpc.aio
from grpc_health.v1 import health_pb2

from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.transport.client import Connection

_Reply: TypeAlias = health_pb2.HealthCheckResponse


class ServiceUnknown(PeerFault):
    """There is no service of the name asked for: NOT_FOUND, as the protocol wants it."""

    def __init__(self) -> None:
        super().__init__("MESSAGE_INVALID", "health: no service of this name")


class HealthService:
    """Answers for services that serve from construction until `stop`.

    Args:
        names: full names of the services.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = ("", *names)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Say NOT_SERVING from now on, also to those who watch."""
        self._stopped.set()

    async def Check(self, identity: Identity, request: health_pb2.HealthCheckRequest) -> _Reply:
        """Return the state of one service."""
        del identity
        if request.service not in self._names:
            raise ServiceUnknown
        return self._state()

    async def Watch(self, identity: Identity, request: health_pb2.HealthCheckRequest) -> AsyncGenerator[_Reply, None]:
        """Yield the state of one service now and when it changes."""
        del identity
        if request.service not in self._names:
            yield _Reply(status=_Reply.SERVICE_UNKNOWN)
            return
        if not self._stopped.is_set():
            yield _Reply(status=_Reply.SERVING)
            await self._stopped.wait()
        yield _Reply(status=_Reply.NOT_SERVING)

    def _state(self) -> _Reply:
        return _Reply(status=_Reply.NOT_SERVING if self._stopped.is_set() else _Reply.SERVING)


async def check_health(connection: Connection, *, timeout_seconds: float = 5.0) -> dict[str, str]:
    """Ask the peer whether it serves; what `verticil healthcheck` does.

    Returns:
        What it tells of itself besides: `verticil.shared.federation.transport.version.PROTOCOL_KEY` and ``TIME_KEY``, from
        version 2 on.

    Raises:
        PeerFault: NOT_READY when it does not serve (now), and as `Connection.unary`.
    """
    check: grpc.aio.UnaryUnaryMultiCallable[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]
    check = connection.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    reply, metadata = await connection.ask(check, health_pb2.HealthCheckRequest(), timeout_seconds=timeout_seconds)
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise PeerFault("NOT_READY", "the service is not serving", hint="it is starting or stopping")
    return metadata
