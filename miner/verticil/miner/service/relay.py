"""The blind relay: sealed envelopes from party to party, for those who can only dial out (Model I).

A party leaves an envelope for another one and takes what others left for it. What is in an envelope is sealed end to end with
keys that the parties pinned (`verticil.shared.federation.transport.sealing`); here it is bytes. What the miner gets to know is
who left something for whom, when, and how many bytes, and nothing of that is written down.

Envelopes are kept in memory only, until their recipient says that they have arrived, for two minutes at most. A miner that is
killed loses them, and so may a slow recipient; a call between parties that lost a part of its answer is made again and goes on
where it was, so nothing else is lost. After a restart a box has another name, by which a party notices at once.

Limits: an envelope of 528 KiB; 16 MiB and 1024 envelopes from one party to another; a quarter of all room from one party. What
goes beyond is RESOURCE_EXHAUSTED, and the sender waits. Only for a party that is here, taking, anything is accepted; for others
the sender gets UNREACHABLE at once. An envelope that is left twice while it lies there lies there once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from verticil.miner.rules.leases import Changes
from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.toml_table import is_name
from verticil.shared.federation.transport.sealing import ENVELOPE_LIMIT
from verticil.wire.v1 import coordinator_pb2

PAIR_BYTES: Final = 16 << 20
PAIR_ENVELOPES: Final = 1024
KEPT_SECONDS: Final = 120.0
PRESENT_SECONDS: Final = 60.0
"""So long after its last question a party counts as taking; it asks again at once, or after a broken connection."""
MAX_WAIT_SECONDS: Final = 60
_SENDERS_SHARE: Final = 4
_REPLY_BYTES: Final = 3_500_000
"""Below the 4 MiB that a peer receives in one message."""
_ENTRY_BYTES: Final = 256
"""What an envelope takes besides its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    number: int
    sender: str
    sealed: bytes
    sha256: bytes
    until: float

    @property
    def size(self) -> int:
        return len(self.sealed) + _ENTRY_BYTES


@dataclass(slots=True, kw_only=True)
class _Box:
    """What lies here for one party."""

    name: int = field(default_factory=lambda: secrets.randbits(63) | 1)
    last: int = 0
    envelopes: deque[_Envelope] = field(default_factory=deque)
    known: set[bytes] = field(default_factory=set)
    bytes_from: Counter[str] = field(default_factory=Counter)
    count_from: Counter[str] = field(default_factory=Counter)
    waiting: int = 0
    seen: float = 0.0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """Boxes of sealed envelopes. Belongs to one event loop; computes nothing that takes long.

    Args:
        changes: calls when the miner is about to stop, and no call waits from then on.
        max_bytes: of all envelopes together.
        monotonic: seconds.

    Attributes:
        max_bytes: the limit.
        held_bytes: what lies here now; may be read from any thread.
    """

    def __init__(self, changes: Changes, *, max_bytes: int, monotonic: Callable[[], float]) -> None:
        self._changes = changes
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._monotonic = monotonic
        self._boxes: dict[str, _Box] = {}
        self._bytes_from: Counter[str] = Counter()
        changes.closing.append(self._wake)

    def put(self, sender: str, recipient: str, sealed: bytes) -> None:
        """Keep an envelope until its recipient takes it.

        Raises:
            PeerFault: MESSAGE_INVALID, no such recipient or too many bytes; UNREACHABLE, the recipient does not take anything
                now; RESOURCE_EXHAUSTED, too much lies here already.
        """
        if not is_name(recipient) or recipient == sender or not 0 < len(sealed) <= ENVELOPE_LIMIT:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"envelope of {len(sealed)} bytes, expected another party's name and 1 to {ENVELOPE_LIMIT} bytes",
            )
        now = self._monotonic()
        box = self._boxes.get(recipient)
        if box is None or not (box.waiting or now - box.seen < PRESENT_SECONDS):
            raise PeerFault(
                "UNREACHABLE",
                f"party '{recipient}' does not take messages from the miner now",
                hint="its daemon must run, with [peer] in party.toml; it is tried again",
            )
        self._expire(now)
        sha256 = hashlib.sha256(sender.encode("ascii") + b"\n" + sealed).digest()
        if sha256 in box.known:
            return
        size = len(sealed) + _ENTRY_BYTES
        self._check_room(sender, recipient, box, size)
        box.last += 1
        envelope = _Envelope(number=box.last, sender=sender, sealed=sealed, sha256=sha256, until=now + KEPT_SECONDS)
        box.envelopes.append(envelope)
        box.known.add(sha256)
        box.bytes_from[sender] += size
        box.count_from[sender] += 1
        self._bytes_from[sender] += size
        self.held_bytes += size
        box.arrived.set()

    def _check_room(self, sender: str, recipient: str, box: _Box, size: int) -> None:
        if not self.max_bytes:
            raise PeerFault(
                "RESOURCE_EXHAUSTED", "this miner relays nothing", hint="its operator sets [limits] max_relay_bytes"
            )
        for amount, limit, what in (
            (box.bytes_from[sender] + size, PAIR_BYTES, f"bytes for '{recipient}'"),
            (box.count_from[sender] + 1, PAIR_ENVELOPES, f"envelopes for '{recipient}'"),
            (self._bytes_from[sender] + size, self.max_bytes // _SENDERS_SHARE, "bytes of this sender"),
            (self.held_bytes + size, self.max_bytes, "bytes of all senders"),
        ):
            if amount > limit:
                raise PeerFault(
                    "RESOURCE_EXHAUSTED", f"relay: {amount} {what}, expected at most {limit}", hint="try again later"
                )

    async def take(self, recipient: str, request: coordinator_pb2.TakeRelayRequest) -> coordinator_pb2.TakeRelayReply:
        """Hand out the oldest envelopes; wait for one if there is none."""
        box = self._boxes.setdefault(recipient, _Box())
        if request.box == box.name:
            while box.envelopes and box.envelopes[0].number <= request.after:
                self._drop_first(box)
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_seconds, MAX_WAIT_SECONDS)
        box.waiting += 1
        try:
            await asyncio.sleep(0)  # who asks without pause must not keep the others from their turn
            while True:
                self._expire(self._monotonic())
                remaining = end - loop.time()
                if box.envelopes or self._changes.closed or remaining <= 0:
                    return _reply_of(box)
                box.arrived.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(remaining):
                        await box.arrived.wait()
        finally:
            box.waiting -= 1
            box.seen = self._monotonic()

    def _expire(self, now: float) -> None:
        for box in self._boxes.values():
            while box.envelopes and box.envelopes[0].until <= now:
                self._drop_first(box)

    def _drop_first(self, box: _Box) -> None:
        envelope = box.envelopes.popleft()
        box.known.discard(envelope.sha256)
        for counter in (box.bytes_from, self._bytes_from):
            counter[envelope.sender] -= envelope.size
        box.count_from[envelope.sender] -= 1
        self.held_bytes -= envelope.size

    def _wake(self) -> None:
        for box in self._boxes.values():
            box.arrived.set()


def _reply_of(box: _Box) -> coordinator_pb2.TakeRelayReply:
    reply, size = coordinator_pb2.TakeRelayReply(box=box.name), 0
    for envelope in box.envelopes:
        size += envelope.size
        if reply.envelopes and size > _REPLY_BYTES:
            break
        reply.envelopes.add(number=envelope.number, source=envelope.sender, sealed=envelope.sealed)
    return reply
