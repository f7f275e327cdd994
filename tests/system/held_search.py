"""The program ``verticil``, whose miner keeps what a search has found to itself until the file ``GO_ON`` is there.

In the environment: ``GO_ON``, and ``SEARCHES``, a file that is there once a search has made a step. Run by test_peer_learned.py.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from unittest import mock

from verticil.cli.main import run
from verticil.miner.scheduler.learning import SpawnedLearning

talk = SpawnedLearning._talk


async def held(process: Any, line: bytes, progress: Any) -> str:
    """Talk to the learning process, as the product does, and wait."""

    def told(stage: str, percent: int) -> None:
        Path(os.environ["SEARCHES"]).touch()
        progress(stage, percent)

    found = await talk(process, line, told)
    while not Path(os.environ["GO_ON"]).exists():
        await asyncio.sleep(0.02)
    return found


if __name__ == "__main__":
    with mock.patch.object(SpawnedLearning, "_talk", staticmethod(held)):
        run()
