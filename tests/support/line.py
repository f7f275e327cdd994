"""A TCP line between two nodes that is slow, narrow, silent, cut, half closed, or changes a byte, while connections run.

It listens on a port of this machine and forwards to another, and sees what an eavesdropper sees, TLS records. One that is cut
resets the connections it had and every new one until it is restored. A line belongs to the event loop in which it was opened.

Each way has faults of its own, which may be set and taken back while connections run. A way that is held loses nothing (TCP's
sender waits). Faults that count bytes count over all connections of the line since they were set, and happen once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

_HOST: Final = "127.0.0.1"
_PIECE_BYTES: Final = 65_536
_NARROW_PIECE_BYTES: Final = 1_024
"""Of a narrow line: pieces small enough that its rate is even."""


class _Cut(ConnectionResetError):
    """This line resets a connection, on purpose."""


class Way:
    """One direction of a line, and what is done to the bytes that go there.

    Attributes:
        delay_seconds: each piece waits so long before it goes on.
        bytes_per_second: the rate; 0: as fast as it can.
        cut_after: reset the connection when so many more bytes have passed; None: never.
        half_close_after: end this way, and this way only, when so many more bytes have passed.
        corrupt_after: change the byte that comes after so many more bytes.
        passed: bytes that went this way.
        happened: how many of the three last faults took place.
    """

    def __init__(self) -> None:
        self.delay_seconds = 0.0
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


class Line:
    """A port that forwards to another, with faults on both ways.

    Args:
        target: port of this machine.

    Attributes:
        onward: from who dials to who answers.
        back: the other way.
        port: where it listens; 0 before `open`.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.onward, self.back = Way(), Way()
        self.port = 0
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        """Begin to listen.

        Returns:
            The port.
        """
        self._server = await asyncio.start_server(self._accept, _HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def close(self) -> None:
        """End all connections and listen no more."""
        if self._server is not None:
            self._server.close()
        await self._end_all()

    async def __aenter__(self) -> Line:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def cut(self) -> None:
        """Reset every connection, and each new one until `restore`."""
        self._is_cut = True
        await self._end_all()

    def restore(self) -> None:
        """Serve again."""
        self._is_cut = False

    async def _end_all(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._connection(reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(
            lambda _task: writer.transport.abort()
        )  # of a task that was cancelled before it began, too

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            onward, back = await asyncio.open_connection(_HOST, self._target)
            ends.append(back)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.onward.carry(reader, back))
                group.create_task(self.back.carry(onward, writer))
        except* OSError:  # one end is gone or has been cut off: so is the other
            pass
        finally:
            for end in ends:
                end.transport.abort()
                with contextlib.suppress(OSError):
                    await end.wait_closed()
