"""Reads the messages of a round that came: as many frames as they must have, and as large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from verticil.shared.core.errors import PeerFault
from verticil.shared.masked.round.documents import DOCUMENT_BYTES
from verticil.shared.masked.round.round_state import RoundState
from verticil.shared.masked.round.schedule import Check, Kind, Message
from verticil.shared.masked.round.secrets import SETS
from verticil.shared.masked.round.triple_products import SUMS

_SHORT: Final = {
    Kind.HELLO: DOCUMENT_BYTES,
    Kind.AGREED: 32,
    Kind.SEED: 64,
    Kind.STATEMENT: DOCUMENT_BYTES,
    Kind.AGREED_AGAIN: 32,
    Kind.THERE: 0,
    Kind.E_CLOSED: 32,
    Kind.E_OPEN: 64,
    Kind.C_CLOSED: 32,
    Kind.C_OPEN: 64,
    Kind.SUMS_CLOSED: 32,
    Kind.SUMS_OPEN: 4 * SUMS + 32,
    Kind.PASSED: 0,
    Kind.FITS: 0,
    Kind.CLOSED: 32,
    Kind.OPEN: 64,
    Kind.TOLD: 192,
    Kind.EXPECTED: 192,
    Kind.F_SHARE: 4,
    Kind.DONE: 0,
    Kind.RECEIPT: 32,
}
"""Bytes of messages of one frame; of documents at most."""


class Reader:
    """Of one node.

    Args:
        standing: of the node.
    """

    def __init__(self, standing: RoundState) -> None:
        self._s = standing

    def frame_sizes(self, message: Message) -> list[int]:
        """Bytes of each frame of a message, at most."""
        kind = message.kind
        if kind in _SHORT:
            return [_SHORT[kind] * (SETS if kind is Kind.SEED and message.table >= 0 else 1)]
        if message.group == (-1, -1):
            return self._table_frames(kind)
        if kind in {Kind.PRODUCT, Kind.ALPHA}:
            return self._dealt_frames(message)
        work = self._s.rows_work(message)
        if kind is Kind.MASKED:
            return [32, *_rows(work.blocks, work.widths[message.owner])]
        units = _rows(work.blocks, len(work.sizes[message.owner]))
        if kind is Kind.W_SHARE:
            return [32, *units]
        return [64, *units] if message.recipient == self._check_of(message).dealer else [64]  # a packet

    def _dealt_frames(self, message: Message) -> list[int]:
        """Return the frames of masks: their product, or what is told of them."""
        if message.table < 0:
            return [4 * math.prod(self._s.work(message.pair).widths.values())]
        work = self._s.triple_work(message.table)
        return work.dealt_sizes() if message.kind is Kind.PRODUCT else _rows(work.blocks, work.size(message.sender))

    def _table_frames(self, kind: Kind) -> list[int]:
        plan = self._s.plan
        cells = [math.prod(plan.shape_at(index)) for index in range(len(plan.opened))]
        return (
            [4 * count for count in cells] if kind is Kind.SHARE else [DOCUMENT_BYTES, *(8 * count for count in cells)]
        )

    def _check_of(self, message: Message) -> Check:
        return self._s.checks[message.about]

    def _name(self, message: Message) -> str:
        return self._s.mail.name(message)

    def _frames(self, message: Message) -> Iterator[bytes]:
        """Read the frames of a message that came, as many and as large as it must have."""
        sizes = self.frame_sizes(message)
        exact = message.kind not in {Kind.HELLO, Kind.STATEMENT, Kind.OPENED}
        for number, (size, frame) in enumerate(zip(sizes, self._s.read(message, sizes), strict=True)):
            if exact and len(frame) != size:
                raise self._wrong(message, f"frame {number} has {len(frame)} bytes, expected {size}")
            yield frame

    def _only(self, message: Message) -> bytes:
        """Read the one frame of a short message."""
        (frame,) = self._frames(message)
        return frame

    def _parts(self, message: Message) -> list[bytes]:
        """Read the one frame of a short message, in pieces of 32 bytes."""
        data = self._only(message)
        return [data[start : start + 32] for start in range(0, len(data), 32)]

    def _is_there(self, message: Message) -> bool:
        return self._s.folder.arrival_path(message.index).exists()

    def _wrong(self, message: Message, problem: str) -> PeerFault:
        return PeerFault(
            "MESSAGE_INVALID",
            f"{self._name(message)}: {problem}",
            hint="the round ends; look at both nodes' logs before a new one is approved",
        )


def _rows(blocks: tuple[slice, ...], width: int) -> list[int]:
    return [4 * width * (rows.stop - rows.start) for rows in blocks]
