"""The ways to the miner: pseudonyms and artifacts out, the alignment in. Each resumes where the miner stands.

The miner's committed offset is the only bookmark: after a broken connection, a killed process or a rejected chunk the
next call asks for it and sends the rest, at most 32 MiB a stream. Nothing here decides whether something may leave;
whoever calls has an approval that binds and, for artifacts, a row in the ledger.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from verticil.shared.core.arrays import give_back
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.transport.chunks import STREAM_LIMIT, make_chunks, plain_data
from verticil.shared.federation.transport.interface import Coordinator
from verticil.wire.v1 import common_pb2, coordinator_pb2

_FRUITLESS: Final = 3
"""Streams in a row that end with next to nothing committed before the caller's backoff takes over."""
_LEAST_BYTES: Final = 65_536
"""What a stream that does not reach the end has to have committed, for it to count."""
_BITMAP_LIMIT: Final = 2**28  # two thousand million records
_ALIGNMENT_SECONDS: Final = 600.0
_SLOWEST: Final = 8192
"""Bytes of a bitmap in a second: what comes more slowly for longer than the seconds above does not come at all."""

R = TypeVar("R")
T = TypeVar("T")
Progress = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """What the miner says of the common people; to be checked against the party's own pseudonyms.

    Attributes:
        n_common: how many there are.
        common_sha256: SHA-256 of the common pseudonyms, ascending.
        bitmap: bit i of byte j is record 8j+i of this party's sorted list.
        statements: what parties have signed about the common list; not yet verified.
    """

    n_common: int
    common_sha256: bytes
    bitmap: bytes
    statements: tuple[common_pb2.Signed, ...] = ()


async def send_pseudonyms(
    coordinator: Coordinator,
    study_digest: bytes,
    pseudonyms: bytes | memoryview,
    *,
    chunk_bytes: int,
    progress: Progress,
) -> None:
    """Send the party's sorted pseudonyms, from where the miner stands.

    Args:
        coordinator: the connection.
        study_digest: of the proposal.
        pseudonyms: 16 bytes for each record, ascending.
        chunk_bytes: plain bytes in a chunk.
        progress: receives the percentage on the miner's disk.

    Raises:
        PeerFault: those of the connection; OFFSET_MISMATCH when the miner does not get further.
    """
    raw = np.frombuffer(pseudonyms, dtype=np.uint8)
    digest = hashlib.sha256()
    for start in range(0, raw.size, STREAM_LIMIT):
        digest.update(raw[start : start + STREAM_LIMIT].data)
        give_back(raw[start : start + STREAM_LIMIT])
    head = coordinator_pb2.PutPseudonymsRequest(study_digest=study_digest, size=raw.size, sha256=digest.digest())

    def stream(offset: int) -> Iterator[coordinator_pb2.PutPseudonymsRequest]:
        yield head
        for chunk in make_chunks(raw.data, offset=offset, chunk_bytes=chunk_bytes):
            yield coordinator_pb2.PutPseudonymsRequest(chunk=chunk)
        give_back(raw[offset : offset + STREAM_LIMIT])

    await send_all(coordinator.put_pseudonyms, head, stream, size=raw.size, what="pseudonyms", progress=progress)
    await progress(100)


async def send_all(
    put: Callable[
        [Iterable[R]],
        Awaitable[
            coordinator_pb2.PutPseudonymsReply | coordinator_pb2.PutBlindedReply | coordinator_pb2.PutMaskedReply
        ],
    ],
    head: R,
    stream: Callable[[int], Iterable[R]],
    *,
    size: int,
    what: str,
    progress: Progress | None = None,
) -> None:
    """Send a list, or another whole, from where the miner stands until it has all of it.

    Args:
        put: the call.
        head: announces it.
        stream: the head and what follows from an offset.
        size: its bytes.
        what: it is, for messages.
        progress: receives the percentage on the miner's disk.

    Raises:
        PeerFault: those of the connection; OFFSET_MISMATCH when the miner does not get further.
    """

    async def send_rest() -> None:
        reply, fruitless = await put([head]), 0
        while not reply.complete:
            before = _offset(reply.committed_offset, size)
            if progress is not None:
                await progress(100 * before // max(size, 1))
            reply = await put(stream(before))
            fruitless = _watch(fruitless, before, reply.committed_offset, what, is_complete=reply.complete)

    await _again_once(send_rest)


async def fetch_alignment(coordinator: Coordinator, study_digest: bytes, *, n_records: int) -> Alignment:
    """Read the bitmap over this party's list, and what the parties have signed about the common one.

    Args:
        coordinator: the connection.
        study_digest: of the proposal.
        n_records: length of this party's list; 0 where all rows are common and there is no bitmap.

    Raises:
        PeerFault: NOT_READY while other parties' pseudonyms are missing; ALIGNMENT_MISMATCH when the bitmap is not one over
            `n_records` records; CHUNK_CORRUPT, OFFSET_MISMATCH, and those of the connection.
    """
    expected_size = (n_records + 7) // 8
    bitmap = bytearray()
    head: tuple[int, bytes] | None = None
    statements: tuple[common_pb2.Signed, ...] = ()
    request = coordinator_pb2.GetAlignmentRequest(study_digest=study_digest, offset=0)
    limit = _ALIGNMENT_SECONDS + expected_size / _SLOWEST
    async with aclosing(coordinator.get_alignment(request)) as parts, _deadline("the alignment", limit):
        async for part in parts:
            if head is not None and not part.HasField("chunk"):
                raise PeerFault("MESSAGE_INVALID", "the alignment: a part without a byte")
            if head is None:
                head, statements = (part.n_common, part.common_sha256), tuple(part.statements)
            if (part.n_common, part.common_sha256) != head:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH",
                    "the miner changed which people are common while it sent them; nothing of it was taken",
                    hint="ask the miner's operator",
                )
            if part.bitmap_size != expected_size:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH",
                    f"a bitmap of {part.bitmap_size} bytes over {n_records} records, expected {expected_size}",
                )
            if expected_size > _BITMAP_LIMIT:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH",
                    f"a bitmap of {expected_size} bytes over {n_records} records, expected at most {_BITMAP_LIMIT}",
                )
            if part.HasField("chunk") and part.chunk.data:
                if part.chunk.offset != len(bitmap):
                    raise PeerFault(
                        "OFFSET_MISMATCH", f"bitmap: chunk at offset {part.chunk.offset}, expected {len(bitmap)}"
                    )
                bitmap += plain_data(part.chunk)
            if len(bitmap) > expected_size:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH", f"a bitmap of more than {expected_size} bytes over {n_records} records"
                )
    if head is None or len(bitmap) != expected_size:
        raise PeerFault("UNREACHABLE", f"the bitmap broke off after {len(bitmap)} of {expected_size} bytes")
    return Alignment(n_common=head[0], common_sha256=head[1], bitmap=bytes(bitmap), statements=statements)


async def send_artifact(
    coordinator: Coordinator,
    *,
    effective_digest: bytes,
    unit: int,
    path: Path,
    sha256: bytes,
    chunk_bytes: int,
    progress: Progress,
) -> common_pb2.Signed:
    """Send one unit from the spool, from where the miner stands, and have it receipted.

    Args:
        coordinator: the connection.
        effective_digest: of the effective study.
        unit: index in the effective study.
        path: file in the spool.
        sha256: of the file.
        chunk_bytes: plain bytes in a chunk.
        progress: receives the percentage on the miner's disk.

    Returns:
        The miner's signed receipt, not yet verified.

    Raises:
        PeerFault: those of the connection; OFFSET_MISMATCH when the miner does not get further.
    """
    size = path.stat().st_size
    begin = coordinator_pb2.BeginUploadRequest(effective_digest=effective_digest, unit=unit, size=size, sha256=sha256)

    async def send_rest() -> common_pb2.Signed:
        reply = await coordinator.begin_upload(begin)
        if reply.HasField("receipt"):
            return reply.receipt
        offset, fruitless = _offset(reply.committed_offset, size), 0
        while offset < size:
            chunks = make_chunks(
                path, offset=offset, chunk_bytes=chunk_bytes, upload_id=reply.upload_id, stream_limit=STREAM_LIMIT
            )
            ack = await coordinator.put_chunks(chunks)
            fruitless = _watch(
                fruitless, offset, ack.committed_offset, f"unit {unit}", is_complete=ack.committed_offset == size
            )
            offset = _offset(ack.committed_offset, size)
            await progress(100 * offset // max(size, 1))
        return (await coordinator.finish_upload(coordinator_pb2.FinishUploadRequest(upload_id=reply.upload_id))).receipt

    return await _again_once(send_rest)


async def _again_once(send: Callable[[], Awaitable[T]]) -> T:
    """Send a whole; once more where what the miner had of it was damaged, or of another one: it has forgotten that then.

    Raises:
        PeerFault: ARTIFACT_INVALID, it was so again; those of `send`.
    """
    try:
        return await send()
    except PeerFault as error:
        if error.code != "ARTIFACT_INVALID":
            raise
        return await send()


def _offset(n_committed: int, size: int) -> int:
    if n_committed > size:
        raise PeerFault("OFFSET_MISMATCH", f"the miner has committed {n_committed} bytes, expected at most {size}")
    return n_committed


def _watch(fruitless: int, before: int, after: int, what: str, *, is_complete: bool) -> int:
    if is_complete or after - before >= _LEAST_BYTES:
        return 0
    if fruitless + 1 >= _FRUITLESS:
        raise PeerFault(
            "OFFSET_MISMATCH", f"{what}: the miner stays at or near byte {after}", hint="it is tried again later"
        )
    return fruitless + 1


@asynccontextmanager
async def _deadline(what: str, seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise PeerFault(
            "DEADLINE", f"{what}: not whole after {seconds:.0f} s", hint="it is tried again later"
        ) from None
