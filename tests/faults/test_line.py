"""The line that misbehaves does what it says, and nothing else: between two plain sockets, without any node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from support.line import Line
from support.sameness import differences

DATA = bytes(range(256)) * 400


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[Line]:
    """A line to a service that sends everything back, and says that it has ended when the caller has."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        async with Line(server.sockets[0].getsockname()[1]) as line:
            yield line
    finally:
        server.close()


async def exchange(line: Line, data: bytes = DATA) -> bytes:
    """What comes back, until the other side ends or the line breaks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
    back = b""
    with contextlib.suppress(OSError):
        writer.write(data)
        if writer.can_write_eof():
            writer.write_eof()
        while piece := await reader.read(65_536):
            back += piece
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return back


async def test_a_line_without_faults_loses_and_changes_nothing() -> None:
    async with echoing() as line:
        assert await exchange(line) == DATA
        assert (line.onward.passed, line.back.passed, line.onward.happened) == (len(DATA), len(DATA), 0)


@pytest.mark.parametrize("after", [0, 1, 5000, len(DATA) - 1])
async def test_one_byte_is_changed_where_it_was_asked_for(after: int) -> None:
    async with echoing() as line:
        line.onward.corrupt_after = after
        back = await exchange(line)
        assert [at for at, (one, other) in enumerate(zip(DATA, back, strict=True)) if one != other] == [after]
        assert (await exchange(line), line.onward.happened) == (DATA, 1)  # once


@pytest.mark.parametrize("after", [0, 1, 5000])
async def test_a_connection_is_cut_after_so_many_bytes_and_the_next_one_is_not(after: int) -> None:
    async with echoing() as line:
        line.onward.cut_after = after
        assert len(await exchange(line)) <= after
        assert (line.onward.passed, line.onward.happened) == (after, 1)
        assert await exchange(line) == DATA


async def test_a_half_closed_line_still_brings_the_answer() -> None:
    async with echoing() as line:
        line.onward.half_close_after = 3000
        assert await exchange(line) == DATA[:3000]
        assert await exchange(line) == DATA


async def test_a_held_line_brings_nothing_until_it_is_released_and_then_all() -> None:
    async with echoing() as line:
        line.back.hold()
        waiting = asyncio.ensure_future(exchange(line))
        while line.onward.passed < len(DATA):
            await asyncio.sleep(0)
        assert (line.back.passed, waiting.done()) == (0, False)
        line.back.release()
        assert await waiting == DATA


async def test_a_cut_line_resets_what_there_is_and_what_comes_until_it_is_restored() -> None:
    async with echoing() as line:
        line.back.hold()
        waiting = asyncio.ensure_future(exchange(line))
        while line.onward.passed < len(DATA):
            await asyncio.sleep(0)
        await line.cut()
        line.back.release()
        assert await waiting == b""
        assert await exchange(line) == b""
        line.restore()
        assert await exchange(line) == DATA


async def test_a_narrow_and_a_slow_line_take_their_time() -> None:
    loop = asyncio.get_running_loop()
    async with echoing() as line:
        line.onward.bytes_per_second = 100_000
        line.back.delay_seconds = 0.05
        begun = loop.time()
        assert await exchange(line, DATA[:20_000]) == DATA[:20_000]
        assert loop.time() - begun > 0.24


def test_what_differs_is_named() -> None:
    assert differences({"model.json": "1"}, {"model.json": "1"}) == []
    assert differences({"model.json": "1", "column 0": "2"}, {"model.json": "3"}) == ["column 0", "model.json"]
