"""Answers to what peers ask through the relay, by the same service object that answers those who dial.

Promises
- Who asks is whose seal the request bears. The role table stands before the service as it does over gRPC; that there is no
  certificate here, and so no serial number to look up in a deny-list, is made up for at the miner: it takes and passes on nothing
  for a revoked certificate. Where the miner is not trusted with that either, take the party's line out of ``[sealing]``.
- A request is answered once and only if it is fresh (`ReplayProtection`).
- At most `MESSAGES_IN_FLIGHT` messages of a stream (4 MiB) are on their way to a caller; then the answer ends, and the caller
  asks again from where it is. The miner's quota holds back what goes beyond that, piece by piece.
- At most `CALLS_AT_A_TIME` calls of one peer are answered at the same time.
- What goes wrong is answered as over gRPC: an error of ours with its code, anything else without its text.

Replay protection tells a new request from one that the relay repeats. No clocks: hospital clocks differ. Each sender has a
challenge, random and unknown to the relay (it travels sealed). A request carries the challenge that its sender received last,
and names itself by a random call. It is answered if the challenge is the present one and the call is new to it. A request with
another challenge, such as the first of a sender or one that was recorded before this party was started, is not answered: its
sender receives the present challenge and asks again. After `CALLS` calls a sender gets a new challenge, so that the calls to
remember are bounded. Nothing of it is stored: a new process draws new challenges.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final, cast

from google.protobuf.message import DecodeError, Message

from verticil.party.protocol.relay.client import CALL_BYTES, RelayClient
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.transport.authorization import NOT_LET_IN, RefusedCall, check_access
from verticil.shared.federation.transport.errors_on_wire import to_detail, without_text
from verticil.shared.federation.transport.interface import AnyMethod, Download, Peer, Service
from verticil.shared.federation.transport.sealing import PIECE_LIMIT
from verticil.wire.v1 import relay_pb2

MESSAGES_IN_FLIGHT: Final = 8
CALLS_AT_A_TIME: Final = 8

_METHODS: Final[dict[str, AnyMethod]] = {method.name: method for method in Peer.methods()}

_log = logging.getLogger(__name__)


class RelayServer:
    """Implements `verticil.party.protocol.relay.client.RequestHandler`. Belongs to one event loop.

    Args:
        service: answers; None: this party is dialled, and answers nothing here.
        federation: its name.
        post: takes the answers.
        on_refusal: receives each call that is refused for who its caller is. Must be quick.
    """

    def __init__(
        self,
        service: Service | None,
        federation: str,
        post: RelayClient,
        on_refusal: Callable[[RefusedCall], None] | None = None,
    ) -> None:
        self._service = service
        self._federation = federation
        self._post = post
        self._on_refusal = on_refusal
        self._replays = ReplayProtection()
        self._running: dict[asyncio.Task[None], str] = {}
        self._calls: Counter[str] = Counter()

    def request(self, source: str, message: relay_pb2.RelayMessage) -> None:
        """Answer a peer's question; see `RequestHandler.request`."""
        verdict = self._replays.judge(source, message.call, message.request.challenge)
        if verdict is Verdict.STALE:
            reply = relay_pb2.RelayMessage(call=message.call, challenge=self._replays.challenge(source))
            self._start(source, self._tell(source, reply))
        elif verdict is Verdict.NEW:
            self._start(source, self._answer(source, message))

    def forget(self, source: str | None) -> None:
        """Stop answering; see `RequestHandler.forget`."""
        for task, caller in self._running.items():
            if source in {None, caller}:
                task.cancel()

    async def close(self) -> None:
        """End all answers to peers."""
        self.forget(None)
        await asyncio.gather(*self._running, return_exceptions=True)

    def _start(self, source: str, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._running[task] = source
        task.add_done_callback(self._forget_task)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        del self._running[task]

    async def _tell(self, source: str, message: relay_pb2.RelayMessage) -> None:
        with contextlib.suppress(VerticilError):  # it asks again
            await self._post.deliver(source, message)

    async def _answer(self, source: str, message: relay_pb2.RelayMessage) -> None:
        method, answer = message.request.method, _Answer(self._post, source, message.call)
        self._calls[source] += 1
        try:
            failure: VerticilError | None = None
            async with contextlib.aclosing(self._replies(source, message.request)) as replies:
                while True:
                    try:
                        reply = await anext(replies, None)
                    except VerticilError as error:
                        failure = error
                        break
                    except Exception as error:  # noqa: BLE001 (a caller never reads of what we did not foresee)
                        failure = without_text(error, method=method[:40])
                        break
                    if reply is None:
                        break
                    await answer.add(reply)
            if failure is not None and failure.code in NOT_LET_IN:
                self._note(source, method, failure)
            await answer.end(failure)
        except VerticilError as error:
            _log.info("an answer for '%s' was given up: %s", source, error)
        finally:
            self._calls[source] -= 1

    def _note(self, source: str, method: str, failure: VerticilError) -> None:
        """Log a refusal and write it down, as a server does."""
        identity = Identity(federation=self._federation, role=Role.PARTY, name=source)
        name = f"/{Peer.contract.full_name}/{method if method in _METHODS else '?'}"
        _log.warning("%s by %s through the relay: %s", name, identity, failure)
        if self._on_refusal is not None:
            self._on_refusal(
                RefusedCall(caller=str(identity), serial="", method=name, code=failure.code, message=failure.message)
            )

    async def _replies(self, source: str, request: relay_pb2.RelayRequest) -> AsyncGenerator[Message, None]:
        """Return what the service replies, as far as it goes into one answer."""
        if self._calls[source] > CALLS_AT_A_TIME:
            raise PeerFault("RESOURCE_EXHAUSTED", f"{CALLS_AT_A_TIME} calls are being answered", hint="try again later")
        if self._service is None:
            raise PeerFault(
                "UNREACHABLE",
                "this party is dialled, and does not answer through the miner",
                hint="the same federation.toml belongs at every site",
            )
        identity = Identity(federation=self._federation, role=Role.PARTY, name=source)
        name = f"/{Peer.contract.full_name}/{request.method[:40]}"
        check_access(identity, name, federation=self._federation)
        method = _METHODS[request.method]
        try:
            question = method.request.FromString(request.message)
        except DecodeError:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"not a {method.request.DESCRIPTOR.name}",
                hint="use the same version on both sides",
            ) from None
        behaviour = getattr(self._service, method.name)
        if not isinstance(method, Download):
            yield await cast("Awaitable[Message]", behaviour(identity, question))
            return
        replies = cast("AsyncIterator[Message]", behaviour(identity, question))
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(replies, AsyncGenerator):
                await stack.enter_async_context(contextlib.aclosing(replies))
            n_replies = 0
            async for reply in replies:
                yield reply
                n_replies += 1
                if n_replies == MESSAGES_IN_FLIGHT:
                    return


class _Answer:
    """The pieces of one answer, left one after the other."""

    def __init__(self, post: RelayClient, recipient: str, call: bytes) -> None:
        self._post = post
        self._recipient = recipient
        self._call = call
        self._sequence = 0

    async def add(self, reply: Message) -> None:
        """Leave a message, in as many pieces as it takes."""
        raw = reply.SerializeToString()
        for start in range(0, max(1, len(raw)), PIECE_LIMIT):
            end = start + PIECE_LIMIT
            await self._leave(relay_pb2.RelayReply(data=raw[start:end], whole=end >= len(raw)))

    async def end(self, failure: VerticilError | None) -> None:
        """Say that nothing follows, and why if that is an error."""
        reply = relay_pb2.RelayReply(last=True)
        if failure is not None:
            reply.failure.CopyFrom(to_detail(failure))
        await self._leave(reply)

    async def _leave(self, reply: relay_pb2.RelayReply) -> None:
        message = relay_pb2.RelayMessage(call=self._call, sequence=self._sequence, reply=reply)
        self._sequence += 1
        await self._post.deliver(self._recipient, message)


CALLS: Final = 4096
"""Calls of one sender under one challenge."""


class Verdict(enum.Enum):
    """What a request is."""

    NEW = "new"
    """Answer it."""
    REPEATED = "repeated"
    """It came before; no answer is waited for."""
    STALE = "stale"
    """It does not carry the present challenge: its sender receives the present one."""


@dataclass(slots=True, kw_only=True)
class _Sender:
    challenge: bytes
    calls: set[bytes] = field(default_factory=set)


class ReplayProtection:
    """Which requests were answered already."""

    def __init__(self) -> None:
        self._senders: dict[str, _Sender] = {}

    def challenge(self, sender: str) -> bytes:
        """Return the challenge that the sender's next requests must carry."""
        return self._of(sender).challenge

    def judge(self, sender: str, call: bytes, challenge: bytes) -> Verdict:
        """Return whether to answer a request; record a new one, so that it is not new afterwards."""
        sender_state = self._of(sender)
        if challenge != sender_state.challenge:
            return Verdict.STALE
        if call in sender_state.calls:
            return Verdict.REPEATED
        sender_state.calls.add(call)
        return Verdict.NEW

    def _of(self, sender: str) -> _Sender:
        sender_state = self._senders.get(sender)
        if sender_state is None or len(sender_state.calls) >= CALLS:
            sender_state = self._senders[sender] = _Sender(challenge=secrets.token_bytes(CALL_BYTES))
        return sender_state
