"""Two parties and a miner that learns, up to a release that waits for countersignatures."""

from __future__ import annotations

import asyncio
from typing import Any

from support import PATIENCE_SECONDS
from support import party_session as session
from verticil.miner.config import ServiceLimits
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.party.operator import commands
from verticil.party.operator.commands import countersign
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.study.states import State

STUDY = session.STUDY


GIVEN = STUDY.replace('method = "genetic"\nseed = 1', 'method = "given"\nparents = { income = ["sex"] }')


class Publishing(session.Federation):
    """A federation whose miner learns."""

    async def start_miner(self) -> None:
        self.node = MinerNode(
            self.root / "miner",
            identity=Identity(federation="trial", role=Role.MINER, name="miner"),
            authority=(self.pki / "ca" / "ca.crt").read_bytes(),
            signer=SigningKey.load(self.pki / "miner.sign", self.pki / "miner.crt"),
            executor=InlineLearning(clock=utc_now),
            limits=ServiceLimits(disk_reserve_bytes=0),
            randomized_days=30,
        )
        await self.node.__aenter__()

    async def to_review(self, publish: str) -> bytes:
        """Take a study to where its release waits at both parties."""
        digest = await self.submit(GIVEN + publish)
        self.start()
        for name in self.wires:
            await self.until_stage(name, "waiting for approval")
            await asyncio.to_thread(commands.approve, self.config(name), "trial", "officer")
        await self.until(digest, State.REVIEW)
        for name in self.wires:
            await self.until_stage(name, WAITS)
        return digest

    async def until_gone(self, name: str, digest: bytes) -> None:
        """The party's copy of the release is removed at the end of the study."""
        folder = self.root / name / "state" / "review" / digest.hex()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await asyncio.to_thread(folder.exists):
                pass

    async def countersign(self, name: str) -> dict[str, Any]:
        return await asyncio.to_thread(countersign, self.config(name), "trial", f"officer@{name}")


WAITS = "the release waits for your countersignature"


ALL = '[publish]\ncountersign = "all"\n'
