"""A program: one end of an upload into a slow disk, with its own memory measured. Run by test_memory.py.

``miner FOLDER BYTES RATE`` serves uploads with the product's own receiving, writing and flushing; a watcher of
`verticil.shared.storage.durable` holds every flush up, so that the disk takes RATE bytes a second. ``party FOLDER BYTES PORT``
sends a file of so many random bytes with the product's own sending. Each prints how much its resident memory grew at most since
before the first byte.
"""

# A service's methods are called by the names of the wire contract.
# ruff: noqa: N802

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from verticil.miner.service.transfer import receive
from verticil.miner.storage.store import append_durably
from verticil.party.protocol.with_miner.upload import send_artifact
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.transport.chunks import ChunkReader
from verticil.shared.federation.transport.client import Connection, GrpcCoordinator
from verticil.shared.federation.transport.interface import Coordinator, bind
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.storage import durable
from verticil.wire.v1 import common_pb2, coordinator_pb2


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """The most that resident memory grew since the start, looked at ten times a second."""

    def __init__(self) -> None:
        self.start, self.most = resident(), 0
        self._stop = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            self.most = max(self.most, resident() - self.start)

    def end(self) -> int:
        self._stop.set()
        return max(self.most, resident() - self.start)


class Miner:
    """What of the coordinator an upload needs; the study's rules are left out, the way to the disk is not."""

    def __init__(self, folder: Path) -> None:
        self.path, self.size, self.committed = folder / "artifact", 0, 0
        self.done = asyncio.Event()
        self.growth: Growth | None = None

    async def BeginUpload(self, _: Identity, request: coordinator_pb2.BeginUploadRequest) -> Any:
        self.growth = self.growth or Growth()
        self.size = request.size
        return coordinator_pb2.BeginUploadReply(upload_id="one", committed_offset=self.committed)

    async def PutChunks(self, _: Identity, requests: AsyncIterator[common_pb2.Chunk]) -> common_pb2.ChunkAck:
        def append(offset: int, data: bytes) -> int:
            append_durably(self.path, offset, data)
            self.committed = offset + len(data)
            return self.committed

        reader = ChunkReader(offset=self.committed, size=self.size, upload_id="one")
        return common_pb2.ChunkAck(committed_offset=await receive(reader, requests, append))

    async def FinishUpload(self, _: Identity, request: coordinator_pb2.FinishUploadRequest) -> Any:
        self.done.set()
        return coordinator_pb2.FinishUploadReply(receipt=common_pb2.Signed(body=request.upload_id.encode()))

    def __getattr__(self, name: str) -> Any:
        if not name[0].isupper():
            raise AttributeError(name)
        return None  # another call of the contract: nobody makes it here


def slow(rate: int) -> Any:
    sizes: dict[Path, int] = {}

    def watch(step: durable.DurableStep) -> None:
        if step.kind == "sync-file" and step.moment == "before":
            size = step.path.stat().st_size
            time.sleep((size - sizes.get(step.path, 0)) / rate)
            sizes[step.path] = size

    return watch


async def serve(folder: Path, rate: int) -> None:
    federation = load_federation(folder / "miner" / "federation.toml")
    pki = folder / "miner" / "pki"
    credentials = load_credentials(pki / "miner.crt", pki / "miner.key", federation)
    miner = Miner(folder)
    server = RpcServer("127.0.0.1:0", credentials, [bind(Coordinator, miner)])
    print(await server.start(), flush=True)
    with durable.watch_steps(slow(rate)):
        await miner.done.wait()
    assert miner.growth is not None
    grown = miner.growth.end()
    digest = hashlib.file_digest(miner.path.open("rb"), "sha256").hexdigest()
    await server.stop(grace_seconds=1)
    print(json.dumps({"grown": grown, "sha256": digest}), flush=True)


async def send(folder: Path, size: int, port: int) -> None:
    federation = load_federation(folder / "clinic" / "federation.toml")
    pki = folder / "clinic" / "pki"
    credentials = load_credentials(pki / "clinic.crt", pki / "clinic.key", federation)
    path, digest, left = folder / "to-send", hashlib.sha256(), size
    with path.open("wb") as file:
        while left:
            block = os.urandom(min(left, 1 << 20))
            digest.update(block)
            file.write(block)
            left -= len(block)
    coordinator = GrpcCoordinator(Connection(f"127.0.0.1:{port}", credentials))

    async def progress(_percent: int) -> None:
        pass

    growth, begin = Growth(), time.monotonic()
    await send_artifact(
        coordinator,
        effective_digest=bytes(32),
        unit=0,
        path=path,
        sha256=digest.digest(),
        chunk_bytes=524_288,
        progress=progress,
    )
    seconds = time.monotonic() - begin
    print(json.dumps({"grown": growth.end(), "sha256": digest.hexdigest(), "seconds": seconds}), flush=True)
    await coordinator.close()


if __name__ == "__main__":
    role, place, number, other = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    asyncio.run(serve(place, other) if role == "miner" else send(place, number, other))
