"""Chunks: round trips, limits and everything that a receiver must refuse. CRC-32 check value: ITU-T V.42 ("123456789")."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.transport.chunks import CHUNK_LIMIT, STREAM_LIMIT, ChunkReader, make_chunks, plain_data
from verticil.wire.v1 import common_pb2

NOISE = os.urandom(3 * 4096 + 17)
ZEROS = bytes(3 * 4096 + 17)


def refused(code: str):
    return pytest.raises(PeerFault, match=f"^{code}: ")


@pytest.mark.parametrize("content", [b"", b"x", NOISE, ZEROS])
@pytest.mark.parametrize("offset", [0, 1, 4096, 12304, 12305, 99999])
def test_chunks_put_together_are_the_rest_of_the_artifact(content: bytes, offset: int, tmp_path: Path) -> None:
    file = tmp_path / "artifact"
    file.write_bytes(content)
    for source in (content, bytearray(content), memoryview(content), file):
        reader = ChunkReader(offset=offset, size=max(offset, len(content)), upload_id="u")
        got = b"".join(reader.read(c) for c in make_chunks(source, offset=offset, chunk_bytes=4096, upload_id="u"))
        assert got == content[offset:]
        assert reader.offset == max(offset, len(content))


def test_zlib_is_used_only_when_it_is_smaller() -> None:
    assert {c.encoding for c in make_chunks(NOISE)} == {common_pb2.ENCODING_IDENTITY}
    (packed,) = make_chunks(ZEROS)
    assert packed.encoding == common_pb2.ENCODING_ZLIB
    assert len(packed.data) < len(ZEROS)


def test_the_checksum_is_crc32_of_the_plain_bytes() -> None:
    (chunk,) = make_chunks(b"123456789")
    assert chunk.crc32 == 0xCBF43926


def test_a_stream_ends_at_its_limit_and_the_next_one_goes_on() -> None:
    content = bytes(STREAM_LIMIT + 3)
    first = list(make_chunks(content))
    reader = ChunkReader(offset=0, size=len(content))
    assert sum(len(reader.read(c)) for c in first) == STREAM_LIMIT
    (last,) = make_chunks(content, offset=reader.offset)
    with refused("MESSAGE_INVALID"):  # the same stream must not go on
        reader.read(last)
    assert ChunkReader(offset=STREAM_LIMIT, size=len(content)).read(last) == bytes(3)


@pytest.mark.parametrize(
    "arguments", [{"offset": -1}, {"chunk_bytes": 0}, {"chunk_bytes": CHUNK_LIMIT + 1}, {"stream_limit": 0}]
)
def test_numbers_out_of_range_are_misuse(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"out of range"):
        make_chunks(b"x", **arguments)


def zlib_chunk(data: bytes, plain: bytes) -> common_pb2.Chunk:
    return common_pb2.Chunk(data=data, crc32=zlib.crc32(plain), encoding=common_pb2.ENCODING_ZLIB)


BOMB = zlib.compress(bytes(64 * 1024 * 1024), 9)


@pytest.mark.parametrize(
    "chunk",
    [
        common_pb2.Chunk(),
        common_pb2.Chunk(data=b"x", crc32=1),
        common_pb2.Chunk(data=b"x", crc32=zlib.crc32(b"x"), encoding=7),  # type: ignore[arg-type] # an enum value of a newer peer
        common_pb2.Chunk(data=bytes(CHUNK_LIMIT + 1), crc32=zlib.crc32(bytes(CHUNK_LIMIT + 1))),
        zlib_chunk(BOMB, bytes(CHUNK_LIMIT)),
        zlib_chunk(zlib.compress(ZEROS)[:-1], ZEROS),
        zlib_chunk(zlib.compress(ZEROS) + b"x", ZEROS),
        zlib_chunk(b"not zlib", b"not zlib"),
        zlib_chunk(zlib.compress(b""), b""),
        zlib_chunk(zlib.compress(ZEROS), NOISE),
    ],
    ids=["empty", "crc", "encoding", "large", "bomb", "cut", "tail", "garbage", "zlib-empty", "zlib-crc"],
)
def test_what_is_wrong_with_a_chunk_is_noticed(chunk: common_pb2.Chunk) -> None:
    with refused("CHUNK_CORRUPT"):
        plain_data(chunk)


def test_the_largest_chunk_is_accepted_in_both_encodings() -> None:
    for plain in (os.urandom(CHUNK_LIMIT), bytes(CHUNK_LIMIT)):
        (chunk,) = make_chunks(plain)
        assert plain_data(chunk) == plain


def test_every_single_bit_flip_is_noticed() -> None:
    (chunk,) = make_chunks(b"randomized codes")
    for bit in range(8 * len(chunk.data)):
        data = bytearray(chunk.data)
        data[bit // 8] ^= 1 << bit % 8
        with refused("CHUNK_CORRUPT"):
            plain_data(common_pb2.Chunk(data=bytes(data), crc32=chunk.crc32))


def test_order_size_and_upload_are_watched() -> None:
    chunks = list(make_chunks(NOISE, chunk_bytes=4096, upload_id="u"))
    reader = ChunkReader(offset=0, size=len(NOISE), upload_id="u")
    with refused("OFFSET_MISMATCH"):
        reader.read(chunks[1])
    reader.read(chunks[0])
    with refused("OFFSET_MISMATCH"):
        reader.read(chunks[0])
    assert reader.offset == 4096
    with refused("MESSAGE_INVALID"):
        ChunkReader(offset=0, size=len(NOISE), upload_id="v").read(chunks[0])
    with refused("CHUNK_CORRUPT"):
        ChunkReader(offset=0, size=4095, upload_id="u").read(chunks[0])
