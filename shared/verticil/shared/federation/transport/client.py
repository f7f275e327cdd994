"""Calls to a peer over gRPC with mutual TLS: one connection, deadlines, and every failure as an error of ours.

A unary call has a deadline. A stream has none: it fails when it makes no progress for the connection's idle time, however
long it takes altogether. gRPC itself repeats only unary calls, which are all safe to repeat, and only when the peer was
not there; a stream is never replayed, its caller goes on from the committed offset. A peer that refuses our certificate
looks to gRPC like one that is not there, so after such a failure `diagnose` finds out which it is. Renewed certificates and a
new deny-list are taken up between two calls (`channel`).

Channel options are those measured in contract.md section 3. A connection belongs to the event loop in which it was
made and must be closed there.

`GrpcCoordinator`, `GrpcControl` and `GrpcPeer` make the calls of `verticil.shared.federation.transport.interface` on a
`Connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from verticil.shared.core import logs
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.config import is_loopback
from verticil.shared.federation.identity.identity import Identity, peer_host
from verticil.shared.federation.identity.pki import Credentials, CredentialSource
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.federation.transport.channel import ReloadingChannel, diagnose, served_certificate, split_endpoint
from verticil.shared.federation.transport.errors_on_wire import interpret, told_in
from verticil.shared.federation.transport.interface import (
    MESSAGE_LIMIT,
    AnyMethod,
    Calls,
    Control,
    Coordinator,
    Download,
    Messages,
    Peer,
    Unary,
    Upload,
)

KEEPALIVE_SECONDS: Final = 60
"""Time between pings on a silent connection; below what clouds and firewalls cut (4 to 10 minutes)."""
REQUEST_KEY: Final = "verticil-request"
"""Metadata with the id of a call, chosen by the caller: it stands in the log lines of both sides and means nothing else."""
REQUEST_ID: Final = re.compile(r"[0-9a-f]{12}")
"""What such an id looks like."""

_log = logging.getLogger(__name__)


def request_id() -> str:
    """Make a new id for one call."""
    return secrets.token_hex(6)


T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def _service_config() -> str:
    unary = [
        {"service": calls.contract.full_name, "method": method.name}
        for calls in (Coordinator, Control, Peer)
        for method in calls.methods()
        if isinstance(method, Unary)
    ]
    policy = {
        "maxAttempts": 3,  # the callers of this have loops of their own
        "initialBackoff": "0.2s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    return json.dumps({"methodConfig": [{"name": unary, "retryPolicy": policy}]})


CLIENT_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 30_000),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.per_message_decompression", 0),  # no node compresses: 4 MiB of zeros would unpack to 4 GiB
    ("grpc.service_config", _service_config()),
    ("grpc.use_local_subchannel_pool", 1),  # two identities in one process must not share a connection
)
"""Channel options of a client (contract.md section 3)."""


def client_channel(
    endpoint: str, credentials: Credentials, *, server_name: str | None = None, trusted_pem: bytes | None = None
) -> grpc.aio.Channel:
    """Open a channel to `endpoint`; it connects with its first call.

    Args:
        endpoint: host:port.
        credentials: ours.
        server_name: name that the server's certificate must carry; the endpoint's host when absent.
        trusted_pem: certificates (PEM) by which the server's is verified; the authority's when absent.
    """
    options: list[tuple[str, int | str]] = [*CLIENT_OPTIONS]
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    host = split_endpoint(endpoint)[0]
    if host == "localhost" or is_loopback(host):
        options.append(("grpc.enable_http_proxy", 0))  # a site's proxy cannot reach this machine's own ports
    secure = grpc.ssl_channel_credentials(
        credentials.ca_pem if trusted_pem is None else trusted_pem, credentials.key_pem, credentials.chain_pem
    )
    return grpc.aio.secure_channel(endpoint, secure, options=options)


class Connection:
    """A channel to one peer, with deadlines and our errors. With `target` it reaches that node and no other: any other node at
    the address is refused before it gets a request.

    Args:
        endpoint: host:port.
        credentials: ours, read once or followed.
        idle_timeout_seconds: a stream that makes no progress for so long has failed.
        server_name: name that the server's certificate must carry; the expected node's, or the endpoint's host, when absent.
        target: who must be there; absent: the node whose certificate is for the endpoint's host.
        revocations: the deny-list by which the server's certificate is refused.

    Attributes:
        channel: for making calls of the wire contract, and for nothing else.
    """

    def __init__(
        self,
        endpoint: str,
        credentials: CredentialSource,
        *,
        idle_timeout_seconds: float = 120.0,
        server_name: str | None = None,
        target: Identity | None = None,
        revocations: Revocations = EMPTY_DENY_LIST,
    ) -> None:
        if server_name is None and target is not None:
            server_name = peer_host(target)
        self._line = ReloadingChannel(
            credentials,
            revocations,
            make=lambda ours, trusted: client_channel(endpoint, ours, server_name=server_name, trusted_pem=trusted),
            server_certificate=lambda ours: served_certificate(endpoint, ours, server_name=server_name, target=target),
        )
        self.channel = self._line.as_channel()
        self._endpoint = endpoint
        self._expected = target
        self._peer = endpoint if target is None else f"{target.role} '{target.name}' at {endpoint}"
        self._teller = "the miner" if target is None else f"{target.role} '{target.name}'"
        self._credentials = credentials
        self._idle = idle_timeout_seconds
        self._server_name = server_name

    async def close(self) -> None:
        """Close the channel; calls under way end with an error. Repeatable."""
        await self._line.close()

    async def unary(self, method: grpc.aio.UnaryUnaryMultiCallable[Q, R], request: Q, *, timeout_seconds: float) -> R:
        """Send one request and return its reply.

        Raises:
            VerticilError: what the peer answered.
            PeerFault: DEADLINE, UNREACHABLE, TLS_REFUSED, RESOURCE_EXHAUSTED, VERSION_UNSUPPORTED or MESSAGE_INVALID.
        """
        return (await self.ask(method, request, timeout_seconds=timeout_seconds))[0]

    async def ask(
        self, method: grpc.aio.UnaryUnaryMultiCallable[Q, R], request: Q, *, timeout_seconds: float
    ) -> tuple[R, dict[str, str]]:
        """Send one request; return its reply, and what the answering node tells of itself besides (its trailing metadata).

        Raises:
            VerticilError: as `unary`.
        """
        await self._line.refresh()
        call_id = request_id()
        try:
            call = method(request, timeout=timeout_seconds, metadata=((REQUEST_KEY, call_id),))
            reply = await self._step(call, None)
            metadata = await call.trailing_metadata()
            return reply, {key: value for key, value in metadata or () if isinstance(value, str)}
        except grpc.aio.AioRpcError as error:
            raise await self._ours(error, call_id) from None
        except grpc.aio.UsageError:
            raise self._make_closed_fault() from None

    async def send(
        self, method: grpc.aio.StreamUnaryMultiCallable[Q, R], requests: Iterable[Q] | AsyncIterable[Q]
    ) -> R:
        """Send a stream of requests and return the one reply. A plain iterable is read in a worker thread.

        The peer may answer before the stream's end; then the rest is not sent.

        Raises:
            VerticilError: what the peer answered.
            PeerFault: as `unary`; DEADLINE when the peer takes nothing, or says nothing after the end, for the idle time.
        """
        await self._line.refresh()
        call_id = request_id()
        try:
            call = method(metadata=((REQUEST_KEY, call_id),))
        except grpc.aio.UsageError:
            raise self._make_closed_fault() from None
        # A reply's metadata come early when the peer has heard enough; it then waits for the end of our stream. (Were it to
        # end the call at once, a write under way would fail and grpc.aio might put "INTERNAL" in place of the call's status.)
        decision = asyncio.ensure_future(call.initial_metadata())
        try:
            async with contextlib.aclosing(_each(requests)) as outgoing:
                async for request in outgoing:
                    if decision.done():
                        break
                    try:
                        await self._step(call.write(request), self._idle)
                    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                        break  # the connection broke; the call's own result says more than write() does
            await self._step(call.done_writing(), self._idle)
            return await self._step(call, self._idle)
        except grpc.aio.AioRpcError as error:
            raise await self._ours(error, call_id) from None
        finally:
            decision.cancel()
            call.cancel()

    async def receive(self, method: grpc.aio.UnaryStreamMultiCallable[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Send one request and yield a stream of replies. Close the generator when leaving it early.

        Raises:
            VerticilError: what the peer answered.
            PeerFault: as `unary`; DEADLINE when nothing arrives for the idle time.
        """
        await self._line.refresh()
        call_id = request_id()
        try:
            call = method(request, metadata=((REQUEST_KEY, call_id),))
        except grpc.aio.UsageError:
            raise self._make_closed_fault() from None
        try:
            replies = aiter(call)
            while True:
                try:
                    reply = await self._step(anext(replies), self._idle)
                except StopAsyncIteration:
                    return
                yield reply
        except grpc.aio.AioRpcError as error:
            raise await self._ours(error, call_id) from None
        finally:
            call.cancel()

    async def _step(self, step: Awaitable[T], seconds: float | None) -> T:
        """Wait for one step of a call, at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await step
        except TimeoutError:
            raise self._make_stalled_fault() from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._make_closed_fault() from None  # not this task is cancelled but the call, by `close`

    def _make_closed_fault(self) -> PeerFault:
        return PeerFault("UNREACHABLE", f"{self._peer}: the connection was closed on this side")

    def _make_stalled_fault(self) -> PeerFault:
        return PeerFault(
            "DEADLINE", f"{self._peer}: no progress for {self._idle:g} s", hint="try again: it goes on where it was"
        )

    async def _ours(self, error: grpc.aio.AioRpcError, call_id: str) -> VerticilError:
        """Return the error that a failed call stands for."""
        reported_error = told_in(error, self._teller)
        with logs.fields(request=call_id):
            _log.debug("%s: %s", self._peer, reported_error.code if reported_error is not None else error.code().name)
        if reported_error is None and error.code() is grpc.StatusCode.UNAVAILABLE:
            self._line.forget_pinned()  # the server may have a new certificate
            return await asyncio.to_thread(
                diagnose,
                self._endpoint,
                self._credentials.current(),
                server_name=self._server_name,
                target=self._expected,
            )
        return interpret(error, self._peer) if reported_error is None else reported_error


async def _each(messages: Iterable[Q] | AsyncIterable[Q]) -> AsyncGenerator[Q, None]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
        return
    iterator = iter(messages)
    while (following := await asyncio.to_thread(next, iterator, None)) is not None:
        yield following


class _Grpc(Calls):
    """Calls over a connection.

    Args:
        connection: to the one who answers, with our credentials; closed together with this.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """Make a unary call; see `Calls.unary`."""
        call: grpc.aio.UnaryUnaryMultiCallable[Q, R] = _make_stub(self._connection.channel.unary_unary, method)
        return await self._connection.unary(call, request, timeout_seconds=method.deadline(request))

    async def send(self, method: Upload[Q, R], requests: Messages[Q]) -> R:
        """Send a stream; see `Calls.send`."""
        call: grpc.aio.StreamUnaryMultiCallable[Q, R] = _make_stub(self._connection.channel.stream_unary, method)
        return await self._connection.send(call, requests)

    async def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Receive a stream; see `Calls.receive`."""
        call: grpc.aio.UnaryStreamMultiCallable[Q, R] = _make_stub(self._connection.channel.unary_stream, method)
        async with contextlib.aclosing(self._connection.receive(call, request)) as replies:
            async for reply in replies:
                yield reply

    async def close(self) -> None:
        """Close the connection. Repeatable."""
        await self._connection.close()


def _make_stub(make: Callable[..., T], method: AnyMethod) -> T:
    """Return a channel's method for what the interface describes."""
    return make(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.reply.FromString,
    )


class GrpcCoordinator(_Grpc, Coordinator):
    """The service `Coordinator` over gRPC."""


class GrpcControl(_Grpc, Control):
    """The service `Control` over gRPC."""


class GrpcPeer(_Grpc, Peer):
    """`Peer` over gRPC (a connection to the expected party)."""
