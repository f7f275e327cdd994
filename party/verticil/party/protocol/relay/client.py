"""This party's post at the miner: seals and leaves envelopes for peers, takes and opens those that others left for it.

Promises
- Only what opens with the pinned key of the peer that it is said to be from is heard; anything else is counted, logged once for
  each name and dropped. So nothing that the miner writes itself, changes or sends to the wrong party is ever acted on.
- An envelope is sealed once, and left again until the miner has it, at most for the idle time. It is named as arrived only with
  the next question, so what a broken connection lost is sent again; calls know repeated pieces by their sequence.
- Calls under way are broken off at once when the miner or the peer was started anew, for their answers may be lost. That a peer
  says so is sealed and counts once, but the miner may have kept it back: it can so break calls off, as it can by dropping them.
- An error of the miner never ends a study: whatever it answers, the peer cannot be reached now.

The daemon's own session with the miner is another connection; this one begins no lease.

`Peer` through the relay: each call is one request and the pieces of its answer, under the rules of `relay.proto`.

The pieces arrive in sequence and the last one is marked: a gap is CHUNK_CORRUPT, a missing end is DEADLINE, and nothing of a
message is passed on before all its pieces are there. A call of which nothing has arrived when the peer or the miner is started
anew is made again. A stream's answer may end early; `verticil.shared.federation.transport.fetch` reads on from the offset that it
has reached, which is also how the answering side is held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Generator, MutableMapping
from typing import Final, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from verticil.party.protocol.retry import Backoff
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.transport.errors_on_wire import from_detail, retriable, without_text
from verticil.shared.federation.transport.interface import MESSAGE_LIMIT, Coordinator, Download, Method, Peer, Unary
from verticil.shared.federation.transport.sealing import Seals
from verticil.wire.v1 import coordinator_pb2, relay_pb2

CALL_BYTES: Final = 16
"""Length of a call's name, and of a challenge."""
TAKE_SECONDS: Final = 30
QUEUE_LIMIT: Final = 256
"""More pieces than one call's answer can have (`verticil.party.protocol.relay.server`)."""
_STARTS: Final = 64
"""A peer's announcements to remember: each counts once."""
_SOON_SECONDS: Final = 0.05
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class BrokenOffError(PeerFault):
    """UNREACHABLE: the peer or the miner was started anew, and the answer of a call may be lost."""

    def __init__(self, why: str) -> None:
        super().__init__("UNREACHABLE", why, hint="it is asked again")


class RequestHandler(Protocol):
    """Who hears of requests."""

    def request(self, source: str, message: relay_pb2.RelayMessage) -> None:
        """Answer a question of a peer."""
        ...

    def forget(self, source: str | None) -> None:
        """Stop answering a peer (None: every peer), which does not wait any more."""
        ...


class Call:
    """One call of ours while its answer arrives.

    Attributes:
        name: of the call.
        peer: who is asked.
    """

    def __init__(self, peer: str) -> None:
        self.name = secrets.token_bytes(CALL_BYTES)
        self.peer = peer
        self._arrived: asyncio.Queue[relay_pb2.RelayMessage | PeerFault] = asyncio.Queue()

    def add(self, piece: relay_pb2.RelayMessage | PeerFault) -> None:
        """Add a piece of the answer, or the reason why there is none."""
        if self._arrived.qsize() < QUEUE_LIMIT:
            self._arrived.put_nowait(piece)

    async def next(self, patience_seconds: float) -> relay_pb2.RelayMessage:
        """Return the next piece of the answer.

        Raises:
            PeerFault: DEADLINE.
            BrokenOffError: do not wait for it.
        """
        try:
            async with asyncio.timeout(patience_seconds):
                piece = await self._arrived.get()
        except TimeoutError:
            raise PeerFault(
                "DEADLINE", f"no answer through the miner for {patience_seconds:g} s", hint="it is asked again"
            ) from None
        if isinstance(piece, PeerFault):
            raise piece
        return piece


class RelayClient:
    """The way to and from all relayed peers. Belongs to one event loop.

    Args:
        seals: ours and theirs.
        dial: makes a connection to the miner.
        patience_seconds: how long an answer is left again while the miner does not take it.
        relayed_peers: who receives the news that this party was started; everybody whose key is pinned unless given.
    """

    def __init__(
        self,
        seals: Seals,
        dial: Callable[[], Coordinator],
        *,
        patience_seconds: float,
        relayed_peers: Collection[str] | None = None,
    ) -> None:
        self._peers = seals.peers if relayed_peers is None else tuple(relayed_peers)
        self._seals = seals
        self._dial = dial
        self._patience = patience_seconds
        self._line: Coordinator | None = None
        self._trouble = "not connected yet"
        self._calls: dict[bytes, Call] = {}
        self._box = 0
        self._after = 0
        self._refused: Counter[str] = Counter()
        self._started: defaultdict[str, deque[bytes]] = defaultdict(lambda: deque(maxlen=_STARTS))

    @property
    def refused(self) -> int:
        """Envelopes that did not open, or were not messages."""
        return self._refused.total()

    # ---- leaving

    @contextlib.contextmanager
    def call(self, peer: str) -> Generator[Call]:
        """Open a call whose answer is received while the context lasts."""
        call = Call(peer)
        self._calls[call.name] = call
        try:
            yield call
        finally:
            del self._calls[call.name]

    async def send(self, recipient: str, message: relay_pb2.RelayMessage) -> None:
        """Leave a message for a peer, now or not at all.

        Raises:
            PeerFault: UNREACHABLE, DEADLINE or RESOURCE_EXHAUSTED.
            Misuse: CONFIG_INVALID, there is no pinned key of that peer.
        """
        await self._put(await self._sealed(recipient, message))

    async def deliver(self, recipient: str, message: relay_pb2.RelayMessage) -> None:
        """Leave a message for a peer, and while that cannot be done try again.

        Raises:
            PeerFault: as `send`, when it could not be done for so long.
            Misuse: as `send`.
        """
        request = await self._sealed(recipient, message)
        backoff = Backoff(first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        while True:
            try:
                await self._put(request)
                return
            except PeerFault:
                if loop.time() >= end:
                    raise
            await asyncio.sleep(backoff.next_seconds())

    async def _sealed(self, recipient: str, message: relay_pb2.RelayMessage) -> coordinator_pb2.PutRelayRequest:
        sealed = await asyncio.to_thread(self._seals.seal, recipient, message.SerializeToString())
        return coordinator_pb2.PutRelayRequest(recipient=recipient, sealed=sealed)

    async def _put(self, request: coordinator_pb2.PutRelayRequest) -> None:
        if self._line is None:
            raise PeerFault("UNREACHABLE", f"the miner, which passes on what is for it: {self._trouble}")
        try:
            await self._line.put_relay(request)
        except VerticilError as error:
            if isinstance(error, PeerFault) and retriable(error):
                raise
            raise PeerFault(
                "UNREACHABLE", f"the miner does not pass on what is for it: {error.code}: {error.message}"
            ) from None

    # ---- taking

    async def run(self, handler: RequestHandler) -> None:
        """Take what comes, until cancelled."""
        backoff = Backoff()
        while True:
            line = self._dial()
            try:
                await self._take(line, handler, backoff)
            except VerticilError as error:
                if not self._trouble:
                    _log.warning("the relay at the miner cannot be reached: %s", error)
                self._trouble = f"{error.code}: {error.message}"
            except Exception as error:  # noqa: BLE001 (the relay must not end with one envelope)
                fault = without_text(error, method="relay")
                self._trouble = f"{fault.code}: {fault.message}"
            finally:
                self._line = None
                await line.close()
            await asyncio.sleep(backoff.next_seconds())

    async def _take(self, line: Coordinator, handler: RequestHandler, backoff: Backoff) -> None:
        wait = 0  # the first question only says that we are here
        loop = asyncio.get_running_loop()
        while True:
            request_time = loop.time()
            reply = await line.take_relay(
                coordinator_pb2.TakeRelayRequest(box=self._box, after=self._after, wait_seconds=wait)
            )
            wait, self._line, self._trouble = TAKE_SECONDS, line, ""
            backoff.reset()
            if reply.box != self._box:
                last_box, self._box, self._after = self._box, reply.box, 0
                await self._begin(handler, first=not last_box)
            for envelope in reply.envelopes:
                await self._open(envelope, handler)
                self._after = max(self._after, envelope.number)
            if not reply.envelopes and loop.time() - request_time < _SOON_SECONDS:
                await asyncio.sleep(_SOON_SECONDS)  # a miner that is about to stop answers at once

    async def _begin(self, handler: RequestHandler, *, first: bool) -> None:
        """Begin a new box: this party was started, or the miner was."""
        if not first:
            self._break_off(None, "the miner was started anew, and what was on its way is lost")
            handler.forget(None)
            return
        start_message = relay_pb2.RelayMessage(call=secrets.token_bytes(CALL_BYTES), started=True)
        for peer in self._peers:
            with contextlib.suppress(VerticilError):  # who is not here waits for nothing from us
                await self.send(peer, start_message)

    async def _open(self, envelope: coordinator_pb2.RelayEnvelope, handler: RequestHandler) -> None:
        source = envelope.source
        try:
            plain = await asyncio.to_thread(self._seals.open, source, envelope.sealed)
            message = relay_pb2.RelayMessage.FromString(plain)
        except (PeerFault, DecodeError) as error:
            self._refuse(source, str(error) if isinstance(error, PeerFault) else "sealed, but not a message")
            return
        what = message.WhichOneof("what")
        if what is None or len(message.call) != CALL_BYTES:
            self._refuse(source, "sealed, but a message of another version")
        elif what == "request":
            handler.request(source, message)
        elif what == "started":
            if message.call in self._started[source]:
                return
            self._started[source].append(message.call)
            self._break_off(source, f"'{source}' was started anew")
            handler.forget(source)
        elif (call := self._calls.get(message.call)) is not None and call.peer == source:
            call.add(message)

    def _break_off(self, peer: str | None, why: str) -> None:
        for call in self._calls.values():
            if peer in {None, call.peer}:
                call.add(BrokenOffError(why))

    def _refuse(self, source: str, why: str) -> None:
        peer_name = source if source in self._seals.peers else ""
        self._refused[peer_name] += 1
        level = logging.WARNING if self._refused[peer_name] == 1 else logging.DEBUG
        _log.log(level, "dropped an envelope from the miner: %s", why)


Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_ATTEMPTS: Final = 8
"""Once without the present challenge, once with it; and again, should somebody have been started anew meanwhile."""


class _AgainError(Exception):
    """Nothing was passed on yet, and the same request, asked again, will be answered."""


class RelayPeer(Peer):
    """Another party, asked through the miner.

    Args:
        post: this party's.
        name: of the party that is asked.
        challenges: what each party last challenged us with.
        idle_timeout_seconds: an answer that makes no progress for so long has failed.
    """

    def __init__(
        self, post: RelayClient, name: str, challenges: MutableMapping[str, bytes], *, idle_timeout_seconds: float
    ) -> None:
        self._post = post
        self._name = name
        self._challenges = challenges
        self._idle = idle_timeout_seconds
        self._closed = False

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """Call a method with one answer; see `Calls.unary`."""
        patience = min(method.deadline(request), self._idle)
        async with contextlib.aclosing(self._replies(method, request, patience)) as replies:
            async for reply in replies:
                return reply
        raise PeerFault("MESSAGE_INVALID", f"{method.name}: ended without a reply")

    async def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """Call a method with an answer in parts; see `Calls.receive`."""
        async with contextlib.aclosing(self._replies(method, request, self._idle)) as replies:
            async for reply in replies:
                yield reply

    async def close(self) -> None:
        """Refuse further calls. Repeatable."""
        self._closed = True

    async def _replies(self, method: Method[Q, R], request: Q, patience_seconds: float) -> AsyncGenerator[R, None]:
        if self._closed:
            raise PeerFault("UNREACHABLE", f"{method.name}: the connection is closed")
        for _ in range(_ATTEMPTS):
            try:
                async with contextlib.aclosing(self._answers(method.name, request, patience_seconds)) as answers:
                    async for raw in answers:
                        try:
                            reply = method.reply.FromString(raw)
                        except DecodeError:
                            raise PeerFault(
                                "MESSAGE_INVALID",
                                f"not a {method.reply.DESCRIPTOR.name}",
                                hint="use the same version there",
                            ) from None
                        yield reply
                return
            except _AgainError:
                continue
        raise PeerFault("DEADLINE", f"{method.name}: asked {_ATTEMPTS} times and answered never", hint="try again")

    async def _answers(self, method: str, request: Message, patience_seconds: float) -> AsyncGenerator[bytes, None]:
        request_message = relay_pb2.RelayRequest(
            method=method, message=request.SerializeToString(), challenge=self._challenges.get(self._name, b"")
        )
        with self._post.call(self._name) as call:
            await self._post.send(self._name, relay_pb2.RelayMessage(call=call.name, request=request_message))
            whole, expected_number = bytearray(), 0
            while True:
                try:
                    reply = await self._piece(call, expected_number, patience_seconds)
                except BrokenOffError:
                    if expected_number == 0:
                        raise _AgainError from None
                    raise
                expected_number += 1
                if reply.HasField("failure"):
                    raise from_detail(reply.failure, teller=f"party '{self._name}'")
                whole += reply.data
                if len(whole) > MESSAGE_LIMIT:
                    raise PeerFault("MESSAGE_INVALID", f"{method}: a reply of more than {MESSAGE_LIMIT} bytes")
                if reply.whole:
                    yield bytes(whole)
                    whole.clear()
                if reply.last:
                    if whole:
                        raise PeerFault("CHUNK_CORRUPT", f"{method}: the last piece of a message is missing")
                    return

    async def _piece(self, call: Call, next_number: int, patience_seconds: float) -> relay_pb2.RelayReply:
        """Return the next piece of the answer.

        Raises:
            _AgainError: there is none: the request was not fresh; the challenge is known now.
            PeerFault: CHUNK_CORRUPT, one is missing before it; and as `Call.next`.
        """
        while True:
            message = await call.next(patience_seconds)
            if message.WhichOneof("what") == "challenge":
                if next_number == 0:
                    self._challenges[self._name] = message.challenge
                    raise _AgainError
            elif message.sequence > next_number:
                raise PeerFault(
                    "CHUNK_CORRUPT",
                    f"piece {message.sequence} of an answer arrived, expected {next_number}",
                    hint="the relay lost or moved one; it is asked again",
                )
            elif message.sequence == next_number:
                return message.reply
