import asyncio
import tempfile
from pathlib import Path

from support import miner_service
from verticil.shared.federation.identity.identity import Role
from verticil.wire.v1.control_pb2 import CountStudiesRequest


async def main(folder: Path) -> None:
    """A real miner with one study; an auditor may count, too."""
    federation = miner_service.Federation(folder / "state", miner_service.make_keys(folder))
    async with federation.node:
        await federation.submit(miner_service.make_study())
        reply = await federation.control("anna").count_studies(CountStudiesRequest())
        audited = await federation.control("otto", Role.AUDITOR).count_studies(CountStudiesRequest())
    federation.node.close()
    assert (reply.known, audited.known) == (1, 1)


with tempfile.TemporaryDirectory() as made:
    asyncio.run(main(Path(made)))
