"""A miner's daemon on a port of this machine."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from verticil.miner.config import MinerConfig, load_miner
from verticil.miner.daemon import init_miner, run_miner
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.transport.client import Connection

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation on disk: authority, federation.toml, miner.toml, certificates."""
    root = tmp_path_factory.mktemp("federation")
    sha256 = create_authority(root / "ca", "trial")
    (root / "federation.toml").write_text(
        f'schema = 1\nname = "trial"\nca_certificate = "ca/ca.crt"\nca_sha256 = "{sha256}"\n[miner]\nendpoint = "localhost:1"\n'
    )
    for name, role in (("miner", Role.MINER), ("north", Role.PARTY), ("anna", Role.ANALYST)):
        issue(root / "ca", name, role, root / "pki", hosts=("localhost",) if role is Role.MINER else ())
    init_miner(root, name="miner", federation=root / "federation.toml", listen="127.0.0.1:0")
    return root


class Daemon:
    """`run_miner` as a task; `port` once it serves."""

    def __init__(self, config: MinerConfig) -> None:
        self.config, self.stop = config, asyncio.Event()
        self.listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> int:
        self.task = asyncio.create_task(run_miner(self.config, stop=self.stop, on_start=self.listening.set_result))
        await asyncio.wait([self.task, self.listening], return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            self.task.result()
        return await self.listening

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, PATIENCE_SECONDS)


def connection(folder: Path, name: str, port: int) -> Connection:
    federation = load_miner(folder / "miner.toml").federation
    credentials = load_credentials(folder / "pki" / f"{name}.crt", folder / "pki" / f"{name}.key", federation)
    return Connection(f"127.0.0.1:{port}", credentials, server_name="localhost")
