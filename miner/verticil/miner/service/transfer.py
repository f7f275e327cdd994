"""Streams of chunks to and from the disk, in batches of at most 4 MiB, off the event loop.

A batch is decoded, written and committed in one worker thread before the next is read, so memory is bounded and flow control
reaches the sender. When a chunk is wrong, the good ones before it are committed first: they need not be sent again.

A published release is handed out file by file, from an offset. Only a name that the catalogue lists for this release is ever
opened, and only after publication; a party of the study that asks to review it may read the release that waits for
countersignatures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from verticil.miner.rules.session import Session
from verticil.miner.storage.records import ReleaseFile
from verticil.shared.core.errors import Misuse, PeerFault, VerticilError
from verticil.shared.federation.transport.chunks import BATCH, CHUNK_LIMIT, ChunkReader
from verticil.shared.federation.transport.fetch import read_chunks
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2


def _take_in(reader: ChunkReader, chunks: list[common_pb2.Chunk], append: Callable[[int, bytes], int]) -> int:
    start = reader.offset
    plain = bytearray()
    problem: VerticilError | None = None
    try:
        for chunk in chunks:
            plain += reader.read(chunk)
    except VerticilError as error:
        problem = error
    offset = append(start, bytes(plain)) if plain else start
    if problem is not None:
        raise problem
    return offset


async def receive(
    reader: ChunkReader, chunks: AsyncIterator[common_pb2.Chunk], append: Callable[[int, bytes], int]
) -> int:
    """Take in a stream.

    Args:
        reader: checks order, size and checksums; stands at the committed offset.
        chunks: the stream.
        append: writes bytes at an offset, commits, returns the committed offset; blocks.

    Returns:
        The committed offset.

    Raises:
        PeerFault: CHUNK_CORRUPT, OFFSET_MISMATCH or MESSAGE_INVALID; everything before the fault is committed.
        DataFault: DISK_FULL.
    """
    offset = reader.offset
    batch: list[common_pb2.Chunk] = []
    async for chunk in chunks:
        if len(chunk.data) > CHUNK_LIMIT:  # before it waits in memory; a message may have 4 MiB
            raise PeerFault(
                "CHUNK_CORRUPT",
                f"chunk at offset {chunk.offset}: got {len(chunk.data)} bytes, expected 1 to {CHUNK_LIMIT}",
            )
        batch.append(chunk)
        if len(batch) == BATCH:
            offset = await asyncio.to_thread(_take_in, reader, batch, append)
            batch = []
    if batch:
        offset = await asyncio.to_thread(_take_in, reader, batch, append)
    return offset


async def release_parts(
    session: Session, request: common_pb2.GetReleaseRequest, *, to_party: bool = False
) -> AsyncGenerator[common_pb2.ReleasePart, None]:
    """Yield the parts of one stream; at least one, so that an empty rest still tells size and SHA-256.

    Args:
        session: the rules.
        request: what is asked for.
        to_party: a party of the study asks.

    Raises:
        Misuse: STUDY_UNKNOWN; FILE_MISSING, the release has no such file.
        PeerFault: NOT_READY, not published yet; MESSAGE_INVALID, an offset behind the end.
        VerticilError: how the study ended, if it ended otherwise.
    """

    def look() -> ReleaseFile:
        record = session.record(request.study_digest)
        session.require(
            record, *([State.PUBLISHED, State.REVIEW] if to_party and request.review else [State.PUBLISHED])
        )
        file = session.catalogue.release_file(record.digest, request.path)
        if file is None:
            raise Misuse(
                "FILE_MISSING",
                f"release of study '{record.study_id}': no such file",
                hint="manifest.json lists the files",
            )
        if request.offset > file.size:
            raise PeerFault("MESSAGE_INVALID", f"{file.path}: offset {request.offset}, expected at most {file.size}")
        return file

    file = await asyncio.to_thread(look)
    part = common_pb2.ReleasePart(size=file.size, sha256=file.sha256)
    if request.offset == file.size:
        yield part
        return
    path = session.store.study(request.study_digest).release / file.path
    async for chunk in read_chunks(path, offset=request.offset, what=file.path):
        part.chunk.CopyFrom(chunk)
        yield part
