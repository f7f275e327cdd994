"""The answering side: a gRPC server that talks only to nodes of its federation, over mutual TLS.

Three gates stand before a service, and each is shut unless it is opened: TLS accepts only certificates that the
federation's authority issued for this purpose; the caller's identity is the URI in that certificate, read anew for each
call together with its validity and the deny-list (a stream also looks at that with each message, and what was revoked
meanwhile gets no answer); the role table says who may call the method. Which call was refused for whom is logged, and passed
to `on_refusal`, and so is a call of a method that there is not. A service object (see `coordinator`) then gets the identity
and the parsed request. A `VerticilError` goes back as `ErrorDetail` in the trailing metadata, anything else as INTERNAL
without text. Limits: 4 MiB a message, `maximum_concurrent_rpcs` calls at a time, a quarter of them for one caller, an idle
time for streams in either direction. A renewed certificate is shown from the next handshake on.

The server belongs to the event loop in which it was started. Nothing here computes or touches the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from verticil.shared.core import logs
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.config import cannot_listen, socket_address
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import CredentialSource, utc_now
from verticil.shared.federation.transport.authorization import (
    EMPTY_DENY_LIST,
    ROLES,
    Authorizer,
    Caller,
    Context,
    OnCaller,
    RefusedCall,
    Revocations,
    TooManyCalls,
)
from verticil.shared.federation.transport.channel import CertificateChoice, configure_server
from verticil.shared.federation.transport.client import KEEPALIVE_SECONDS, REQUEST_ID, REQUEST_KEY, request_id
from verticil.shared.federation.transport.errors_on_wire import ERROR_KEY, status_of, to_detail, without_text
from verticil.shared.federation.transport.health import HealthService, ServiceUnknown
from verticil.shared.federation.transport.interface import MESSAGE_LIMIT, Binding
from verticil.shared.federation.transport.metrics import Metrics
from verticil.shared.federation.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION, TIME_KEY

T = TypeVar("T")

_HEALTH: Final = cast("ServiceDescriptor", health_pb2.DESCRIPTOR.services_by_name["Health"])

_log = logging.getLogger(__name__)

SERVER_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Pings are allowed twice as often as our clients send them. The C macro is called ..._MIN_RECV_..., the option is not,
    # and gRPC ignores a name that it does not know in silence.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 500),
    ("grpc.so_reuseport", 0),  # a second server on the port fails, loudly
    ("grpc.max_connection_age_ms", 3_600_000),  # so that new certificates come into use
    ("grpc.max_connection_age_grace_ms", 300_000),  # one stream of 32 MiB at 1 Mbit/s takes 268 s
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.per_message_decompression", 0),  # no node compresses: 4 MiB of zeros would unpack to 4 GiB
)
"""Channel options of a server (contract.md section 3)."""

_Standing: TypeAlias = Callable[[], None]
"""Raises CERTIFICATE_REVOKED when the caller's certificate has been revoked by now."""


class RpcServer:
    """One listening port.

    Args:
        listen: host:port; port 0 takes a free one.
        credentials: the server's own, read once or followed; the certificate must carry the host that callers dial.
        bindings: the services.
        idle_timeout_seconds: a stream that makes no progress for so long is ended.
        maximum_concurrent_rpcs: further calls are answered with RESOURCE_EXHAUSTED; so are those of a caller who has a quarter of
            them under way.
        roles: full method name -> roles that may call it; what is not there is refused to all.
        metrics: counts every call and its bytes.
        clock: the time that certificates are checked against at each call.
        revocations: the deny-list by which callers' certificates are refused.
        on_refusal: called with each call that is refused for who its caller is. Must be quick.
        on_caller: called with who calls and with which certificate, also when the call is refused. Must be quick.
    """

    def __init__(
        self,
        listen: str,
        credentials: CredentialSource,
        bindings: Sequence[Binding],
        *,
        idle_timeout_seconds: float = 120.0,
        maximum_concurrent_rpcs: int = 256,
        roles: Mapping[str, frozenset[Role]] = ROLES,
        metrics: Metrics | None = None,
        clock: Callable[[], dt.datetime] = utc_now,
        revocations: Revocations = EMPTY_DENY_LIST,
        on_refusal: Callable[[RefusedCall], None] | None = None,
        on_caller: OnCaller | None = None,
    ) -> None:
        self._listen = listen
        self._credentials = credentials
        self._bindings = tuple(bindings)
        self._idle = idle_timeout_seconds
        self._maximum = maximum_concurrent_rpcs
        self._gate = Authorizer(
            credentials.current().identity.federation,
            roles=roles,
            maximum=maximum_concurrent_rpcs,
            clock=clock,
            revocations=revocations,
            on_refusal=on_refusal,
            on_caller=on_caller,
        )
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._server: grpc.aio.Server | None = None
        self._health = HealthService(binding.descriptor.full_name for binding in self._bindings)
        self._running: set[asyncio.Task[object]] = set()

    async def start(self) -> int:
        """Begin to serve.

        Returns:
            The port.

        Raises:
            Misuse: CONFIG_INVALID when the address cannot be listened on.
        """
        server = grpc.aio.server(
            maximum_concurrent_rpcs=self._maximum,
            options=SERVER_OPTIONS,
        )
        for binding in (
            *self._bindings,
            Binding(descriptor=_HEALTH, service=self._health, omitted=frozenset({"List"})),
        ):
            server.add_generic_rpc_handlers((self._handler(binding),))
        server.add_generic_rpc_handlers((_Unknown(self._gate),))
        secure = grpc.dynamic_ssl_server_credentials(
            configure_server(self._credentials.current()),
            cast("Callable[[], grpc.ServerCertificateConfiguration]", CertificateChoice(self._credentials)),
            require_client_authentication=True,
        )
        try:
            port = server.add_secure_port(self._listen, secure)
        except RuntimeError:
            raise cannot_listen("listen", *socket_address(self._listen, where="listen")) from None
        await server.start()
        self._server = server
        _log.info("listening on %s, port %d", self._listen, port)
        return port

    async def stop(self, *, grace_seconds: float = 20.0) -> None:
        """Stop: health says NOT_SERVING, no new calls, those under way have `grace_seconds` to end, then they are cancelled.

        Returns when every call's handler has ended. A service that parks calls should answer them before this is called, or
        the whole grace is waited for. Repeatable.
        """
        server, self._server = self._server, None
        if server is None:
            return
        self._health.stop()
        await server.stop(grace_seconds)
        while self._running:  # server.stop does not wait for cancelled handlers to clean up
            await asyncio.wait(self._running)

    def _handler(self, binding: Binding) -> grpc.GenericRpcHandler:
        handlers = {
            method.name: self._method(binding, method)
            for method in binding.descriptor.methods
            if method.name not in binding.omitted
        }
        return grpc.method_handlers_generic_handler(binding.descriptor.full_name, handlers)

    def _method(self, binding: Binding, method: MethodDescriptor) -> grpc.RpcMethodHandler[bytes, Message]:
        """Return the handler of one method. Requests arrive as bytes, so that what cannot be parsed is answered here, too."""
        name = f"/{binding.descriptor.full_name}/{method.name}"
        behaviour = getattr(binding.service, method.name)
        kind, reply_kind = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

        def parse(raw: bytes) -> Message:
            self._metrics.count_bytes(name, "in", len(raw))
            return _parse(kind, raw)

        def serializer(reply: Message) -> bytes:
            raw = reply_kind.SerializeToString(reply)
            self._metrics.count_bytes(name, "out", len(raw))
            return raw

        async def one_to_one(raw: bytes, context: Context) -> Message:
            async def work(identity: Identity, _standing: _Standing) -> Message:
                return await cast("Awaitable[Message]", behaviour(identity, parse(raw)))

            return await self._answer(name, context, work)

        async def many_to_one(raw: AsyncIterable[bytes], context: Context) -> Message:
            async def work(identity: Identity, standing: _Standing) -> Message:
                async with contextlib.aclosing(self._arriving(raw, parse, standing)) as requests:
                    return await cast("Awaitable[Message]", behaviour(identity, requests))

            return await self._answer(name, context, work, before_ending=lambda: self._hear_out(raw, context))

        async def one_to_many(raw: bytes, context: Context) -> None:
            async def work(identity: Identity, standing: _Standing) -> None:
                replies = cast("AsyncIterator[Message]", behaviour(identity, parse(raw)))
                async with contextlib.AsyncExitStack() as stack:
                    if isinstance(replies, AsyncGenerator):
                        await stack.enter_async_context(contextlib.aclosing(replies))
                    async for reply in replies:
                        standing()
                        await self._moving(context.write(reply))

            await self._answer(name, context, work)

        if method.client_streaming and not method.server_streaming:
            return grpc.stream_unary_rpc_method_handler(many_to_one, response_serializer=serializer)
        if method.server_streaming and not method.client_streaming:
            return grpc.unary_stream_rpc_method_handler(one_to_many, response_serializer=serializer)
        if method.client_streaming:
            raise NotImplementedError(f"{name}: the wire contract has no method with two streams")
        return grpc.unary_unary_rpc_method_handler(one_to_one, response_serializer=serializer)

    async def _answer(
        self,
        method: str,
        context: Context,
        work: Callable[[Identity, _Standing], Awaitable[T]],
        *,
        before_ending: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Do the work for a caller who may have it done, and tell what went wrong."""
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        start, code = time.monotonic(), "CANCELLED"
        try:
            with logs.fields(request=_request_of(context)):
                outcome = await self._outcome(method, context, work)
            code = outcome.code if isinstance(outcome, VerticilError) else "OK"
            if before_ending is not None and not isinstance(outcome, TooManyCalls):
                await before_ending()
        finally:
            self._metrics.count_call(method, code, time.monotonic() - start)
        if isinstance(outcome, VerticilError):
            await _abort(context, outcome)
        return outcome

    async def _outcome(
        self, method: str, context: Context, work: Callable[[Identity, _Standing], Awaitable[T]]
    ) -> T | VerticilError:
        caller = Caller()
        try:
            context.set_trailing_metadata(self._of_ourselves())
            identity = self._gate.enter(method, context, caller)
            standing = functools.partial(self._gate.check_standing, caller, identity)
            outcome = await work(identity, standing)
            standing()
            return outcome
        except VerticilError as error:
            self._gate.note(method, caller, error)
            return error
        except Exception as error:  # noqa: BLE001 (a caller never gets the text of what we did not foresee)
            return without_text(error, method=method)

    def _of_ourselves(self) -> tuple[tuple[str, str], ...]:
        return (PROTOCOL_KEY, str(PROTOCOL_VERSION)), (TIME_KEY, str(round(self._clock().timestamp() * 1000)))

    async def _arriving(
        self, raw: AsyncIterable[bytes], parse: Callable[[bytes], Message], standing: _Standing
    ) -> AsyncGenerator[Message, None]:
        arriving = aiter(raw)
        while True:
            try:
                message = await self._moving(anext(arriving))
            except StopAsyncIteration:
                return
            standing()
            yield parse(message)

    async def _hear_out(self, raw: AsyncIterable[bytes], context: Context) -> None:
        """Tell the caller (by the reply's metadata) that it need not go on, and pass over what it had already sent."""
        await context.send_initial_metadata(())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._idle):
                async for _ in raw:
                    pass

    async def _moving(self, step: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._idle):
                return await step
        except TimeoutError:
            raise PeerFault(
                "DEADLINE", f"no progress for {self._idle:g} seconds", hint="go on from the committed offset"
            ) from None


class _Unknown(grpc.GenericRpcHandler):
    """Stands behind all services: what arrives here, none of them has. The caller gets the answer that gRPC itself would give."""

    def __init__(self, gate: Authorizer) -> None:
        self._gate = gate

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        async def refuse(_requests: AsyncIterable[bytes], context: Context) -> bytes:
            self._gate.unknown(method, context)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "", ())
            raise AssertionError("abort returned")

        return grpc.stream_unary_rpc_method_handler(refuse)


async def _abort(context: Context, error: VerticilError) -> NoReturn:
    status = grpc.StatusCode.NOT_FOUND if isinstance(error, ServiceUnknown) else status_of(error)
    detail = to_detail(error).SerializeToString()
    await context.abort(status, error.code, trailing_metadata=((ERROR_KEY, detail),))  # in place of what was set before
    raise AssertionError("abort returned")


def _request_of(context: Context) -> str:
    """Return the id that the caller gave to this call, if it looks like one of ours: what is logged is never a stranger's
    text.
    """
    given = next((value for key, value in context.invocation_metadata() or () if key == REQUEST_KEY), "")
    return given if isinstance(given, str) and REQUEST_ID.fullmatch(given) else request_id()


def _parse(kind: type[Message], raw: bytes) -> Message:
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise PeerFault(
            "MESSAGE_INVALID", f"not a {kind.DESCRIPTOR.name}", hint="use the same version on both sides"
        ) from None
