"""The miner's boxes of sealed envelopes: what is kept, for whom, for how long, and how much of it."""

from __future__ import annotations

import asyncio

import pytest

from verticil.miner.rules.leases import Changes
from verticil.miner.service.relay import (
    KEPT_SECONDS,
    PAIR_BYTES,
    PAIR_ENVELOPES,
    PRESENT_SECONDS,
    Relay,
)
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.transport.sealing import ENVELOPE_LIMIT
from verticil.wire.v1 import coordinator_pb2


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Boxes:
    def __init__(self, *, max_bytes: int = 1 << 28) -> None:
        self.clock, self.changes = Clock(), Changes()
        self.relay = Relay(self.changes, max_bytes=max_bytes, monotonic=self.clock)

    def put(self, sealed: bytes, *, sender: str = "a", recipient: str = "b") -> None:
        self.relay.put(sender, recipient, sealed)

    async def take(
        self, recipient: str = "b", *, box: int = 0, after: int = 0, wait: int = 0
    ) -> coordinator_pb2.TakeRelayReply:
        request = coordinator_pb2.TakeRelayRequest(box=box, after=after, wait_seconds=wait)
        return await self.relay.take(recipient, request)

    def refused(self, code: str, sealed: bytes, *, sender: str = "a", recipient: str = "b") -> str:
        with pytest.raises(PeerFault) as caught:
            self.put(sealed, sender=sender, recipient=recipient)
        assert caught.value.code == code
        return caught.value.message


def told(reply: coordinator_pb2.TakeRelayReply) -> list[tuple[str, bytes]]:
    return [(envelope.source, envelope.sealed) for envelope in reply.envelopes]


async def test_envelopes_are_told_in_order_until_they_have_arrived() -> None:
    boxes = Boxes()
    empty = await boxes.take()
    for number in range(3):
        boxes.put(b"%d" % number)
    boxes.put(b"1", sender="c")
    assert boxes.relay.held_bytes == 4 * 257 == boxes.relay._bytes_from.total()
    first = await boxes.take(box=empty.box)
    assert told(first) == [("a", b"0"), ("a", b"1"), ("a", b"2"), ("c", b"1")]
    assert told(await boxes.take(box=empty.box)) == told(first), "nobody has said that they arrived"
    assert told(await boxes.take(box=empty.box + 2, after=2**60)) == told(first), "of another miner's box"
    rest = await boxes.take(box=first.box, after=first.envelopes[1].number)
    assert told(rest) == [("a", b"2"), ("c", b"1")]
    assert told(await boxes.take("c")) == []
    assert told(await boxes.take(box=first.box, after=2**63)) == []
    assert boxes.relay.held_bytes == 0 == boxes.relay._bytes_from.total()


async def test_an_envelope_that_is_left_twice_lies_there_once() -> None:
    boxes = Boxes()
    reply = await boxes.take()
    boxes.put(b"x")
    boxes.put(b"x")
    found = await boxes.take(box=reply.box)
    assert told(found) == [("a", b"x")]
    assert told(await boxes.take(box=reply.box, after=found.envelopes[-1].number)) == []


async def test_nothing_is_kept_for_who_does_not_take() -> None:
    boxes = Boxes()
    assert "'b'" in boxes.refused("UNREACHABLE", b"x")
    await boxes.take()
    boxes.clock.now += PRESENT_SECONDS - 1
    boxes.put(b"x")
    boxes.clock.now += 1
    boxes.refused("UNREACHABLE", b"y")
    waiting = asyncio.create_task(boxes.take(wait=60, box=1))
    assert told(await waiting) == [("a", b"x")]


async def test_who_waits_gets_what_comes_and_is_present_meanwhile() -> None:
    boxes = Boxes()
    waiting = asyncio.create_task(boxes.take(wait=60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    boxes.clock.now += 10 * PRESENT_SECONDS
    boxes.put(b"x")
    assert told(await waiting) == [("a", b"x")]


async def test_a_miner_that_stops_answers_at_once() -> None:
    boxes = Boxes()
    waiting = asyncio.create_task(boxes.take(wait=60))
    await asyncio.sleep(0)
    boxes.changes.close()
    assert told(await waiting) == []
    assert told(await boxes.take(wait=60)) == []


async def test_envelopes_are_dropped_after_two_minutes() -> None:
    boxes = Boxes()
    reply = await boxes.take()
    boxes.put(b"old")
    boxes.clock.now += KEPT_SECONDS / 2
    await boxes.take(box=reply.box)
    boxes.put(b"new")
    boxes.clock.now += KEPT_SECONDS / 2
    assert told(await boxes.take(box=reply.box)) == [("a", b"new")]


async def test_what_one_pair_and_one_sender_may_leave_is_bounded() -> None:
    boxes = Boxes(max_bytes=4 * (PAIR_BYTES + ENVELOPE_LIMIT))
    for recipient in ("b", "c", "d"):
        await boxes.take(recipient)
    big = [bytes([number]) * (ENVELOPE_LIMIT - 256) for number in range(40)]
    fitting = PAIR_BYTES // ENVELOPE_LIMIT
    for sealed in big[:fitting]:
        boxes.put(sealed)
    assert "'b'" in boxes.refused("RESOURCE_EXHAUSTED", big[fitting])
    boxes.put(big[0], sender="e")
    boxes.put(big[0], recipient="c")
    assert "this sender" in boxes.refused("RESOURCE_EXHAUSTED", b"x" * ENVELOPE_LIMIT, recipient="d")
    for number in range(PAIR_ENVELOPES):
        boxes.put(b"%d" % number, sender="f", recipient="d")
    assert "envelopes" in boxes.refused("RESOURCE_EXHAUSTED", b"x", sender="f", recipient="d")
    found = await boxes.take(box=boxes.relay._boxes["b"].name, after=fitting)
    assert told(found) == [("e", big[0])]
    boxes.put(big[fitting])


async def test_all_room_is_bounded_and_a_miner_may_relay_nothing() -> None:
    boxes = Boxes(max_bytes=4 * 1000)
    await boxes.take()
    for sender in "cdef":
        boxes.put(b"x" * 700, sender=sender)
    assert "all senders" in boxes.refused("RESOURCE_EXHAUSTED", b"x" * 700)
    off = Boxes(max_bytes=0)
    await off.take()
    assert "nothing" in off.refused("RESOURCE_EXHAUSTED", b"x")


async def test_what_is_no_envelope_is_refused() -> None:
    boxes = Boxes()
    await boxes.take()
    for sealed, recipient in ((b"", "b"), (b"x" * (ENVELOPE_LIMIT + 1), "b"), (b"x", "a"), (b"x", "../b"), (b"x", "")):
        boxes.refused("MESSAGE_INVALID", sealed, recipient=recipient)


async def test_a_reply_stays_below_what_a_message_may_be() -> None:
    boxes = Boxes()
    reply = await boxes.take()
    for number in range(10):
        boxes.put(bytes([number]) * ENVELOPE_LIMIT)
    found = await boxes.take(box=reply.box)
    assert 0 < found.ByteSize() < 4_000_000
    rest = await boxes.take(box=reply.box, after=found.envelopes[-1].number)
    assert [e.number for e in (*found.envelopes, *rest.envelopes)] == list(range(1, 11))
