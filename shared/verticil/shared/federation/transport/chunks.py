"""Artifacts in pieces: what travels in `Chunk` messages, at an offset, with a checksum.

A chunk holds at most 512 KiB of plain bytes, a stream at most 32 MiB (contract.md section 3); a longer artifact takes several
streams, each beginning at the offset that the receiver has committed. Offsets, sizes and checksums are those of the plain bytes;
zlib is only a dress for the way and worn only when it is smaller, and never between peers, as its size would follow the values.
Randomized codes are near their entropy, so level 1 gets what there is to get (contract.md section 3).

The receiving side trusts nothing: `plain_data` never inflates more than a chunk may hold, `ChunkReader` watches order and total.
What is done with the bytes (files, digests, committed offsets) is not decided here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import PeerFault
from verticil.wire.v1 import common_pb2

CHUNK_LIMIT: Final = 524_288
"""Most plain bytes in one chunk."""
STREAM_LIMIT: Final = 33_554_432
"""Most plain bytes in one stream."""
BATCH: Final = 8
"""Chunks that are read or written in a worker thread at a time."""
_AGAIN: Final = "send it again from the committed offset"


def make_chunks(
    source: bytes | bytearray | memoryview | Path,
    *,
    offset: int = 0,
    chunk_bytes: int = CHUNK_LIMIT,
    upload_id: str = "",
    stream_limit: int = STREAM_LIMIT,
    compress: bool = True,
) -> Iterator[common_pb2.Chunk]:
    """Yield the chunks of one stream: `source` from `offset` to its end, or to `stream_limit` bytes further.

    To send a long artifact, call it again with each committed offset until that is the artifact's size. A file is opened when the
    first chunk is asked for, read piece by piece and closed when the iterator ends.

    Args:
        source: the artifact's bytes, or its file.
        offset: where to begin; at or past the end there are no chunks.
        chunk_bytes: plain bytes in a chunk, 1 to `CHUNK_LIMIT`.
        upload_id: what the receiver calls this upload; empty where the message around the chunk says it.
        stream_limit: plain bytes in the stream, 1 to `STREAM_LIMIT`.
        compress: chunks are compressed where that is smaller: then their size on the way depends on the bytes.

    Raises:
        ValueError: an argument is out of its range.
    """
    if offset < 0 or not 1 <= chunk_bytes <= CHUNK_LIMIT or not 1 <= stream_limit <= STREAM_LIMIT:
        raise ValueError(f"got offset {offset}, chunk_bytes {chunk_bytes}, stream_limit {stream_limit}: out of range")
    if isinstance(source, Path):
        pieces = _from_file(source, offset, chunk_bytes, stream_limit)
    else:
        pieces = _from_memory(source, offset, chunk_bytes, stream_limit)
    return (_chunk(upload_id, at, plain, compress=compress) for at, plain in pieces)


def _from_memory(
    source: bytes | bytearray | memoryview, offset: int, size: int, limit: int
) -> Iterator[tuple[int, bytes]]:
    view = memoryview(source).cast("B")
    end = min(len(view), offset + limit)
    for at in range(offset, end, size):
        yield at, bytes(view[at : min(at + size, end)])


def _from_file(source: Path, offset: int, size: int, limit: int) -> Iterator[tuple[int, bytes]]:
    with source.open("rb") as file:
        file.seek(offset)
        at, end = offset, offset + limit
        while plain := file.read(min(size, end - at)):
            yield at, plain
            at += len(plain)


def _chunk(upload_id: str, offset: int, plain: bytes, *, compress: bool) -> common_pb2.Chunk:
    shorter = zlib.compress(plain, 1) if compress else plain
    smaller = len(shorter) < len(plain)
    return common_pb2.Chunk(
        upload_id=upload_id,
        offset=offset,
        data=shorter if smaller else plain,
        crc32=zlib.crc32(plain),
        encoding=common_pb2.ENCODING_ZLIB if smaller else common_pb2.ENCODING_IDENTITY,
    )


def plain_data(chunk: common_pb2.Chunk) -> bytes:
    """Return the plain bytes of a received chunk, checked.

    Never allocates more than `CHUNK_LIMIT` and one byte, whatever the chunk claims.

    Raises:
        PeerFault: CHUNK_CORRUPT when the chunk is empty, too large, badly packed, of unknown encoding or fails its checksum.
    """
    where = f"chunk at offset {chunk.offset}"
    if chunk.encoding == common_pb2.ENCODING_IDENTITY:
        plain = chunk.data
    elif chunk.encoding == common_pb2.ENCODING_ZLIB:
        plain = _inflate(chunk.data, where)
    else:
        raise PeerFault(
            "CHUNK_CORRUPT", f"{where}: got encoding {chunk.encoding}, expected identity (0) or zlib (1)", hint=_AGAIN
        )
    if not 1 <= len(plain) <= CHUNK_LIMIT:
        size_text = "no bytes" if not plain else f"more than {CHUNK_LIMIT} bytes"
        raise PeerFault("CHUNK_CORRUPT", f"{where}: got {size_text}, expected 1 to {CHUNK_LIMIT}", hint=_AGAIN)
    if (crc := zlib.crc32(plain)) != chunk.crc32:
        raise PeerFault("CHUNK_CORRUPT", f"{where}: CRC-32 is {crc:08x}, expected {chunk.crc32:08x}", hint=_AGAIN)
    return plain


def _inflate(data: bytes, where: str) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, CHUNK_LIMIT + 1)
    except zlib.error:
        raise PeerFault("CHUNK_CORRUPT", f"{where}: not a zlib stream", hint=_AGAIN) from None
    if len(plain) <= CHUNK_LIMIT and (not inflater.eof or inflater.unused_data):
        problem = "has bytes after its end" if inflater.eof else "is cut off"
        raise PeerFault("CHUNK_CORRUPT", f"{where}: the zlib stream {problem}", hint=_AGAIN)
    return plain


class ChunkReader:
    """Reads the chunks of one stream in order.

    Attributes:
        offset: where the next chunk must begin.

    Args:
        offset: where the first chunk must begin (the committed offset).
        size: the artifact's whole size; no chunk may reach past it.
        upload_id: what each chunk must carry.
    """

    def __init__(self, *, offset: int, size: int, upload_id: str = "") -> None:
        self.offset = offset
        self._size = size
        self._end = offset + STREAM_LIMIT
        self._upload_id = upload_id

    def read(self, chunk: common_pb2.Chunk) -> bytes:
        """Return the chunk's plain bytes; move `offset` past them. After an error the reader stands where it stood.

        Raises:
            PeerFault: MESSAGE_INVALID for another upload's chunk or a stream that is too long, OFFSET_MISMATCH for a gap or an
                overlap, CHUNK_CORRUPT as in `plain_data` or when the chunk reaches past the artifact's end.
        """
        if chunk.upload_id != self._upload_id:
            raise PeerFault(
                "MESSAGE_INVALID", f"chunk at offset {chunk.offset}: belongs to another upload than its stream"
            )
        if chunk.offset != self.offset:
            raise PeerFault(
                "OFFSET_MISMATCH",
                f"got a chunk at offset {chunk.offset}, expected {self.offset}",
                hint="ask for the committed offset",
            )
        plain = plain_data(chunk)
        end = chunk.offset + len(plain)
        if end > self._size:
            raise PeerFault(
                "CHUNK_CORRUPT",
                f"chunk at offset {chunk.offset}: ends at {end}, expected at most {self._size}",
                hint=_AGAIN,
            )
        if end > self._end:
            raise PeerFault(
                "MESSAGE_INVALID", f"a stream carries more than {STREAM_LIMIT} bytes", hint="begin a new stream"
            )
        self.offset = end
        return plain
