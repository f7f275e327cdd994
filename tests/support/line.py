"""The drill's line between two nodes (`verticil.simulation.chaos.Line`) with more faults: narrow, silent, half closed, or with a
byte changed.

Each way has faults of its own, which may be set and taken back while connections run. A way that is held loses nothing (TCP's
sender waits). Faults that count bytes count over all connections of the line since they were set, and happen once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from verticil.simulation import chaos

_PIECE_BYTES: Final = 65_536
_NARROW_PIECE_BYTES: Final = 1_024
"""Of a narrow line: pieces small enough that its rate is even."""


class _Cut(ConnectionResetError):
    """This line resets a connection, on purpose."""


class Way(chaos.Way):
    """One direction of a line, and what is done to the bytes that go there.

    Attributes:
        bytes_per_second: the rate; 0: as fast as it can.
        cut_after: reset the connection when so many more bytes have passed; None: never.
        half_close_after: end this way, and this way only, when so many more bytes have passed.
        corrupt_after: change the byte that comes after so many more bytes.
        passed: bytes that went this way.
        happened: how many of the three last faults took place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes_per_second = 0.0
        self.cut_after: int | None = None
        self.half_close_after: int | None = None
        self.corrupt_after: int | None = None
        self.passed = 0
        self.happened = 0
        self._flowing = asyncio.Event()
        self._flowing.set()

    def hold(self) -> None:
        """Let nothing through until `release`: a black hole, for who waits at the other end."""
        self._flowing.clear()

    def release(self) -> None:
        """Let everything through again, what has waited first."""
        self._flowing.set()

    async def carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Forward until the source ends; the sink is then told that there is no more."""
        while data := await source.read(_NARROW_PIECE_BYTES if self.bytes_per_second else _PIECE_BYTES):
            wait = self.delay_seconds + (len(data) / self.bytes_per_second if self.bytes_per_second else 0.0)
            if wait:
                await asyncio.sleep(wait)
            await self._flowing.wait()
            if not await self._forward(data, sink):
                break
        if sink.can_write_eof():
            sink.write_eof()

    async def _forward(self, data: bytes, sink: asyncio.StreamWriter) -> bool:
        """Send a piece on, disturbed as is due; whether this way goes on."""
        data = self._corrupted(data)
        cut, self.cut_after = _reached(self.cut_after, len(data))
        ended, self.half_close_after = _reached(self.half_close_after, len(data))
        ends = [end for end in (cut, ended) if end is not None]
        data = data[: min(ends, default=len(data))]
        self.passed += len(data)
        self.happened += len(ends)
        sink.write(data)
        await sink.drain()
        if cut is not None:
            raise _Cut
        return ended is None

    def _corrupted(self, data: bytes) -> bytes:
        at, self.corrupt_after = _reached(self.corrupt_after, len(data), whole=False)
        if at is None:
            return data
        self.happened += 1
        return data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]


def _reached(after: int | None, n_bytes: int, *, whole: bool = True) -> tuple[int | None, int | None]:
    """Where in these bytes a fault is due, and what is left of its count when it is not.

    Args:
        after: how many bytes come first.
        n_bytes: how many there are now.
        whole: the fault comes behind the last of those; else it is the next byte's, which must be there.
    """
    if after is None:
        return None, None
    return (after, None) if after < n_bytes + whole else (None, after - n_bytes)


class Line(chaos.Line):
    """A port that forwards to another, with faults on both ways."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.onward, self.back = Way(), Way()
