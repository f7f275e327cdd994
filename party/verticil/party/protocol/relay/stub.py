"""`Peer` through the relay: each call is one request and the pieces of its answer, under the rules of `relay.proto`.

The pieces arrive in sequence and the last one is marked: a gap is CHUNK_CORRUPT, a missing end is DEADLINE, and nothing of a
message is told before all its pieces are there. A call of which nothing has arrived when the peer or the miner is started anew is
made again. A stream's answer may end early; `verticil.shared.transport.parts` reads on from
the offset that it has reached, which is also how the answering side is held back.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, MutableMapping
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from verticil.party.protocol.relay.client import BrokenOffError, Call, Post
from verticil.shared.errors import PeerFault
from verticil.shared.transport.calling.client import MESSAGE_LIMIT
from verticil.shared.transport.errors_on_wire import from_detail
from verticil.shared.transport.methods import Download, Method, Unary
from verticil.shared.transport.peer import Peer
from verticil.wire.v1 import relay_pb2

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

_ATTEMPTS: Final = 8
"""Once without the present challenge, once with it; and again, should somebody have been started anew meanwhile."""


class _AgainError(Exception):
    """Nothing was told yet, and the same request, asked again, will be answered."""


class RelayPeer(Peer):
    """Another party, asked through the miner.

    Args:
        post: this party's.
        name: of the party that is asked.
        challenges: what each party last challenged us with.
        idle_timeout_seconds: an answer that makes no progress for so long has failed.
    """

    def __init__(
        self, post: Post, name: str, challenges: MutableMapping[str, bytes], *, idle_timeout_seconds: float
    ) -> None:
        self._post = post
        self._name = name
        self._challenges = challenges
        self._idle = idle_timeout_seconds
        self._closed = False

    async def unary(self, method: Unary[Q, R], request: Q) -> R:
        """See `Calls.unary`."""
        patience = min(method.deadline(request), self._idle)
        async with contextlib.aclosing(self._replies(method, request, patience)) as replies:
            async for reply in replies:
                return reply
        raise PeerFault("MESSAGE_INVALID", f"{method.name}: ended without a reply")

    async def receive(self, method: Download[Q, R], request: Q) -> AsyncGenerator[R, None]:
        """See `Calls.receive`."""
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
        asked = relay_pb2.RelayRequest(
            method=method, message=request.SerializeToString(), challenge=self._challenges.get(self._name, b"")
        )
        with self._post.call(self._name) as call:
            await self._post.send(self._name, relay_pb2.RelayMessage(call=call.name, request=asked))
            whole, expected = bytearray(), 0
            while True:
                try:
                    reply = await self._piece(call, expected, patience_seconds)
                except BrokenOffError:
                    if expected == 0:
                        raise _AgainError from None
                    raise
                expected += 1
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

    async def _piece(self, call: Call, expected: int, patience_seconds: float) -> relay_pb2.RelayReply:
        """The next piece of the answer.

        Raises:
            _AgainError: there is none: the request was not fresh; the challenge is known now.
            PeerFault: CHUNK_CORRUPT, one is missing before it; and as `Call.next`.
        """
        while True:
            message = await call.next(patience_seconds)
            if message.WhichOneof("what") == "challenge":
                if expected == 0:
                    self._challenges[self._name] = message.challenge
                    raise _AgainError
            elif message.sequence > expected:
                raise PeerFault(
                    "CHUNK_CORRUPT",
                    f"piece {message.sequence} of an answer arrived, expected {expected}",
                    hint="the relay lost or moved one; it is asked again",
                )
            elif message.sequence == expected:
                return message.reply
