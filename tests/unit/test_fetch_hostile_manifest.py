"""A miner's manifest that means harm: what it lists is not fetched, and nothing is left behind."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from verticil.shared.errors import PeerFault
from verticil.shared.transport.calling.fetch import fetch_release
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
