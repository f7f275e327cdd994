"""Feature 9 and 11: nodes that are killed or stopped at random points of a study, as processes, over mutual TLS on loopback.

Every run must end with the release of the undisturbed one (the same model, networks, synthetic records and randomized columns,
byte for byte), with each party charged once and its audit chain whole. `pytest -m faults tests/faults` runs all of it.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

from verticil.wire.v1 import common_pb2

NODES = ("miner", "clinic", "insurer")


def where(study: Any) -> str:
    if study is None:
        return "nobody told"
    stored = sum(party.units_received for party in study.parties)
    return f"{common_pb2.StudyState.Name(study.state).removeprefix('STUDY_STATE_').lower()}, {stored} columns stored"


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("first", range(0, 100, 4))
async def test_feature_9_random_kills_lose_nothing(
    first: int, federation: Any, in_the_table: Callable[..., None]
) -> None:
    """A hundred seeds: each draws a node and a moment, four in one study, one after the other."""
    found: list[str] = []
    async with federation.run() as run:

        async def disturb() -> None:
            for seed in range(first, first + 4):
                draw = random.Random(seed)
                victim = draw.choice(NODES)
                await asyncio.sleep(draw.uniform(0.0, federation.calm_seconds / 2))
                found.append(f"seed {seed}: {victim}, {where(await run.state())}")
                await run.kill(victim)

        lost = await federation.lost(run, disturb())
    in_the_table("SIGKILL of a random node at a random moment", times=4, lost=lost, detail="; ".join(found))


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("victim", NODES)
@pytest.mark.parametrize("seconds", [3, 60])
async def test_feature_20_a_node_that_is_stopped_for_a_while_goes_on(
    seconds: int, victim: str, federation: Any, in_the_table: Callable[..., None]
) -> None:
    async with federation.run() as run:
        for line in run.lines.values():
            line.onward.delay_seconds = 0.1

        async def disturb() -> None:
            await run.until(lambda study: any(party.pseudonyms_complete for party in study.parties))
            child = run.children.running[victim]
            child.send_signal(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            child.send_signal(signal.SIGCONT)

        lost = await federation.lost(run, disturb())
        in_the_table(f"SIGSTOP for {seconds} s", lost=lost)
