"""The production interface without a network: a caller and a service object in one process (simulation, tests).

Every message is serialized and parsed on its way, an error travels as `ErrorDetail`, and the role table applies, so both sides
run the same code as over gRPC and cannot share a mutable object. There are no deadlines and no retries: nothing can be lost here.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import TypeVar, cast

from google.protobuf.message import Message

from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.transport.authorization import check_access
from verticil.shared.federation.transport.errors_on_wire import from_detail, to_detail, without_text
from verticil.shared.federation.transport.interface import (
    AnyMethod,
    Calls,
    Control,
    Coordinator,
    Download,
    Messages,
    Method,
    Peer,
    Service,
    Unary,
    Upload,
)
from verticil.wire.v1 import common_pb2

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class _InMemory(Calls):
    """Calls of a service object: access, then the call.

    Args:
        service: answers.
        identity: who calls.
        federation: of the one who answers; the caller's when absent.
    """

    _teller = "the miner"

    def __init__(self, service: Service, identity: Identity, *, federation: str | None = None) -> None:
        self._service = service
        self._identity = identity
        self._federation = identity.federation if federation is None else federation
        self._closed = False

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """Make a unary call; see `Calls.unary`."""
        behaviour = self._behaviour(method)
        return await self._reply(method, behaviour(self._identity, _send(request)))

    async def send(self, method: Upload[Q, R], requests: Messages[Q]) -> R:
        """Send a stream; see `Calls.send`."""
        behaviour = self._behaviour(method)
        async with contextlib.aclosing(_arriving(requests)) as arriving:
            return await self._reply(method, behaviour(self._identity, arriving))

    async def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Receive a stream; see `Calls.receive`."""
        behaviour = self._behaviour(method)
        replies = cast("AsyncIterator[R]", behaviour(self._identity, _send(request)))
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(replies, AsyncGenerator):
                await stack.enter_async_context(contextlib.aclosing(replies))
            while True:
                try:
                    reply = _send(await anext(replies))
                except StopAsyncIteration:
                    return
                except Exception as error:  # noqa: BLE001 (whatever a service raises is sent as over the network)
                    raise self._make_reported_error(error, method) from None
                yield reply

    async def close(self) -> None:
        """Refuse further calls. Repeatable."""
        self._closed = True

    def _behaviour(self, method: AnyMethod) -> Callable[[Identity, object], object]:
        if self._closed:
            raise PeerFault("UNREACHABLE", f"{method.name}: the connection is closed")
        check_access(self._identity, method.path, federation=self._federation)
        return cast("Callable[[Identity, object], object]", getattr(self._service, method.name))

    async def _reply(self, method: Method[Q, R], reply: object) -> R:
        try:
            return _send(await cast("Awaitable[R]", reply))
        except Exception as error:  # noqa: BLE001 (the same)
            raise self._make_reported_error(error, method) from None

    def _make_reported_error(self, error: Exception, method: AnyMethod) -> VerticilError:
        own_error = error if isinstance(error, VerticilError) else without_text(error, method=method.name)
        detail = common_pb2.ErrorDetail.FromString(to_detail(own_error).SerializeToString())
        return from_detail(detail, teller=self._teller)


class InMemoryCoordinator(_InMemory, Coordinator):
    """`Coordinator` on a miner's service object."""


class InMemoryControl(_InMemory, Control):
    """`Control` on a miner's service object."""


class InMemoryPeer(_InMemory, Peer):
    """`Peer` on a party's service object."""

    _teller = "the peer"


def _send(message: R) -> R:
    return type(message).FromString(message.SerializeToString())


async def _arriving(messages: Messages[Q]) -> AsyncGenerator[Q, None]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield _send(message)
    else:
        for message in messages:
            yield _send(message)
