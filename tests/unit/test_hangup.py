"""A closed terminal does not end a daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from verticil.cli.daemons import run_until_stopped
from verticil.shared.core.health import Vitals


def test_sighup_is_logged_and_a_node_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "verticil")
    arrived: list[int] = []
    stopped: list[bool] = []

    async def serve(stop: asyncio.Event, vitals: Vitals) -> None:
        del vitals
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.1)
        stopped.append(stop.is_set())

    before = signal.signal(
        signal.SIGHUP, lambda number, _: arrived.append(number)
    )  # by default it would end this process
    try:
        run_until_stopped(serve, state=tmp_path, with_parent=False)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (arrived, stopped) == ([], [False])
    assert "SIGHUP changes nothing" in caplog.text
