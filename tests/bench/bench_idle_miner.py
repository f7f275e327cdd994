"""What a miner does while nothing happens: one look at all open studies, every five seconds, and its share of a core."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, cpu_seconds

from support import party_session
from verticil.miner.scheduler.scheduler import _TICK_SECONDS
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study

FEW, MANY = 25, 200
LOOKS = 5


async def one_look(n_studies: int) -> float:
    """CPU seconds of one look at so many studies that wait for approval."""
    with tempfile.TemporaryDirectory() as folder:
        pki = Path(folder) / "pki"
        pki.mkdir()
        federation = party_session.Federation(Path(folder), party_session.make_pki(pki))
        await federation.start_miner()
        assert federation.node is not None
        scheduler, catalogue = federation.node.scheduler, federation.node.catalogue
        path = Path(folder) / "study.toml"
        for number in range(n_studies):
            path.write_text(party_session.STUDY.replace('id = "', f'id = "n{number}-', 1))
            proposal = canonical.to_bytes(read_study(path))
            digest = hashlib.sha256(proposal).digest()
            catalogue.add_study(
                digest, study_id=f"n{number}", proposal=proposal, submitter="lee", at="2026-11-22T00:00:00Z"
            )
        await scheduler._visit_all(scheduler.advance)

        def looks() -> None:
            for _ in range(LOOKS):
                for digest in catalogue.unsettled():
                    scheduler._update_state(digest)

        taken = cpu_seconds(looks) / LOOKS
        await federation.stop_miner()
        return taken


def figures() -> Iterator[Figure]:
    """How the work grows with the number of studies, and its share of a core."""
    few, many = asyncio.run(one_look(FEW)), asyncio.run(one_look(MANY))
    growth = many / few / (MANY / FEW)
    yield Figure(
        name=f"an idle miner, {MANY} open studies: growth a study",
        ours=growth,
        target="<= 1.5",
        unit=f"of that at {FEW} studies",
        met=growth <= 1.5,
        note="1 is linear; when decoded studies were forgotten beyond 64 it was 2 to 4",
    )
    share = 100 * many / _TICK_SECONDS
    yield Figure(
        name=f"an idle miner, {MANY} open studies",
        ours=share,
        target="<= 3",
        unit="% of a core",
        met=share <= 3,
    )
