"""The drill, with real processes: killed and cut off in the middle of a study, and the same release in the end."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.drill import run_drill
from verticil.cli.main import main

WITH_A_MINER = ["cut", "kill", "restart", "kill", "restart", "restore"]


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("model", "rows", "done"),
    [
        ("central", 500, WITH_A_MINER),
        ("peer", 500, ["cut", "kill", "restart", "restore"]),
        ("masked", 1000, WITH_A_MINER),
    ],
)
def test_the_drill_publishes_the_same_release(
    model: str,
    rows: int,
    done: list[str],
    tmp_path: Path,
    in_the_table: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (out := tmp_path / "out").mkdir()
    steps: list[str] = []
    drill = asyncio.run(run_drill(out, model=model, rows=rows, seed=3, step=steps.append))
    assert [event.what for event in drill.events] == done
    assert {"model.json", "synthetic.csv"} <= drill.digests.keys()
    assert model != "central" or "column 12" in drill.digests
    assert all(cost > 0 for cost in drill.epsilon_charged.values())
    assert sum(step.startswith("CHAOS") for step in steps) == len(done)
    assert list(temporary.iterdir()) == []
    release = next(iter(drill.demo.published.releases.values()))
    assert main(["release", "verify", str(release), "--ca", str(out / "ca.crt"), "--format", "json"]) == 0
    in_the_table(f"the drill, {model}", times=len(done), lost=[])
