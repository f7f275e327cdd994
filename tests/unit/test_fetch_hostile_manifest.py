"""A miner's manifest that means harm: what it lists is not fetched, and nothing is left behind."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pyarrow as pa
import pytest
from pyarrow import parquet

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import GateFailed, PeerFault, VerticilError
from verticil.shared.federation.transport.chunks import STREAM_LIMIT, make_chunks, plain_data
from verticil.shared.federation.transport.client import CLIENT_OPTIONS
from verticil.shared.federation.transport.server import SERVER_OPTIONS
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.download import fetch_release
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import joint
from verticil.shared.release.limits import ReleaseLimits, release_limits
from verticil.shared.synthesis.record_checks import read_records, table_bytes
from verticil.wire.v1 import common_pb2


class Miner:
    """Has one file."""

    def __init__(self, manifest: bytes) -> None:
        self.manifest = manifest
        self.asked: list[str] = []

    async def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncIterator[common_pb2.ReleasePart]:
        self.asked.append(request.path)
        chunk = common_pb2.Chunk(data=self.manifest, crc32=zlib.crc32(self.manifest))
        digest = hashlib.sha256(self.manifest).digest()
        yield common_pb2.ReleasePart(size=len(self.manifest), sha256=digest, chunk=chunk)


NAMES = ("../x", "/etc/passwd", "", ".", "..", ".hidden", "a\0b", "\ud800", "x" * 300, "a\nb", "é")


@pytest.mark.parametrize(
    "manifest",
    [
        *(json.dumps({"files": {name: {"sha256": "00"}}}).encode() for name in NAMES),
        b"[" * 2000,
        b'{"files": []}',
        b"\xff",
    ],
)
async def test_what_a_hostile_manifest_lists_is_not_fetched(manifest: bytes, tmp_path: Path) -> None:
    miner = Miner(manifest)
    with pytest.raises(PeerFault) as refused:
        await fetch_release(miner, bytes(32), tmp_path / "release")
    assert refused.value.code == "ARTIFACT_INVALID"
    assert miner.asked == ["manifest.json"]
    assert list(tmp_path.iterdir()) == []


class Bomb:
    """A miner whose files are zeros, which travel as a thousandth of their size; it counts what it has sent."""

    def __init__(self, listed: dict[str, int], sent: dict[str, int] | None = None) -> None:
        entry = {"sha256": "00" * 32}
        manifest = json.dumps({"files": {name: {"bytes": size, **entry} for name, size in listed.items()}}).encode()
        self._sizes = {"manifest.json": len(manifest), **(listed if sent is None else sent)}
        self._manifest = manifest
        self.n_sent = 0

    async def get_release(self, request: common_pb2.GetReleaseRequest) -> AsyncIterator[common_pb2.ReleasePart]:
        size = self._sizes[request.path]
        whole = self._manifest if request.path == "manifest.json" else bytes(size)
        for chunk in make_chunks(whole, offset=request.offset, stream_limit=STREAM_LIMIT):
            self.n_sent += len(plain_data(chunk))
            yield common_pb2.ReleasePart(size=size, sha256=hashlib.sha256(whole).digest(), chunk=chunk)


LIMITS = ReleaseLimits(files={"manifest.json": 2**16, "model.json": 2**20, "synthetic.csv": 2**20}, total=3 * 2**19)


@pytest.mark.parametrize(
    ("bomb", "code", "most"),
    [
        (Bomb({"synthetic.csv": 2**25}), "RELEASE_INVALID", 2**16),
        (Bomb({"more.csv": 1}), "RELEASE_INVALID", 2**16),
        (Bomb({"model.json": -1}), "RELEASE_INVALID", 2**16),
        (Bomb({f"{n}.html": 1 for n in range(100)}), "RELEASE_INVALID", 2**16),
        (Bomb({"model.json": 2**20, "synthetic.csv": 2**20}), "RESOURCE_EXHAUSTED", 2**16),
        (Bomb({"synthetic.csv": 2**10}, sent={"synthetic.csv": 2**25}), "ARTIFACT_INVALID", 2**21),
        (Bomb({}, sent={"manifest.sig": 2**25}), "ARTIFACT_INVALID", 2**21),
    ],
    ids=["file", "name", "negative", "names", "total", "more-than-listed", "signature"],
)
async def test_a_release_larger_than_the_study_announces_is_broken_off_and_leaves_nothing(
    bomb: Bomb, code: str, most: int, tmp_path: Path
) -> None:
    limits = ReleaseLimits(files={**LIMITS.files, "manifest.sig": 2**16}, total=LIMITS.total)
    with pytest.raises(VerticilError) as refused:
        await fetch_release(bomb, bytes(32), tmp_path / "release", review=True, limits=limits)
    assert refused.value.code == code
    assert bomb.n_sent <= most
    assert list(tmp_path.iterdir()) == []


def test_the_limits_of_a_study_let_its_own_release_through_and_little_more(release_content, tmp_path: Path) -> None:
    """In every file; and a table of ten times as many records, or one file more, is beyond them."""
    content = release_content
    folder = write_release(tmp_path / "release", content)
    limits = release_limits(content.study, content.n_common, total=2**28)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(sizes) <= set(limits.files)
    assert [name for name, size in sizes.items() if size > limits.files[name]] == []
    assert limits.files["synthetic.csv"] < 2**20 + 2**16 + 200 * (
        content.study.release.synthetic_records or content.n_common
    )
    assert limits.files["model.json"] < 2**24 + joint.LIMIT


def test_a_parquet_table_that_unpacks_to_more_than_announced_is_not_unpacked(tmp_path: Path) -> None:
    """Within its size and its number of records, by a column that is none of the study's in what it holds."""
    schema = Schema(variables=(Variable(name="sex", owner="north", labels=("F", "M")),))
    wide = pa.table({"sex": pa.array([chr(65 + n % 26) * 2**16 + str(n) for n in range(500)])})
    parquet.write_table(wide, tmp_path / "synthetic.parquet", compression="zstd", use_dictionary=False)
    assert (tmp_path / "synthetic.parquet").stat().st_size < table_bytes(schema, 500)
    with pytest.raises(GateFailed, match="is larger than 500 records of the study can be"):
        read_records(tmp_path / "synthetic.parquet", schema, 500)


async def test_a_compressed_message_is_not_unpacked_by_either_side() -> None:
    """No node compresses; 4 MiB of gzip would unpack to 4 GiB, whatever the limit on a message says."""
    seen: list[bytes] = []

    async def echo(request: bytes, context: object) -> bytes:
        del context
        seen.append(request)
        return bytes(2**20)

    server = grpc.aio.server(options=SERVER_OPTIONS, compression=grpc.Compression.Gzip)
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CLIENT_OPTIONS) as channel:
        answer = await channel.unary_unary("/t/Echo")(
            bytes(2**20), compression=grpc.Compression.Gzip, timeout=PATIENCE_SECONDS
        )
    await server.stop(0)
    assert [len(received) < 2**14 for received in (*seen, answer)] == [
        True,
        True,
    ]  # packed as they came: no message of ours
