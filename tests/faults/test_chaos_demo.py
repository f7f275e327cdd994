"""``verticil demo --chaos`` as a user runs it: killed and cut off before the user's eyes, and the same release in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from verticil.cli.main import main


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("model", "done"),
    [
        ("central", ["cut", "kill", "restart", "kill", "restart", "restore"]),
        ("peer", ["cut", "kill", "restart", "restore"]),
    ],
)
def test_the_drill_publishes_the_same_release(
    model: str, done: list[str], tmp_path: Path, in_the_table: Callable[..., None]
) -> None:
    command = [
        sys.executable,
        "-m",
        "verticil.cli",
        "demo",
        "--chaos",
        "--model",
        model,
        "--rows",
        "500",
        "--out",
        "out",
    ]
    (temporary := tmp_path / "temporary").mkdir()
    drill = subprocess.run(
        [*command, "--seed", "3", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert drill.returncode == 0, drill.stdout + drill.stderr
    found = json.loads(drill.stdout)
    chaos = found["chaos"]
    assert chaos["same_release"] is True
    assert [event["what"] for event in chaos["events"]] == done
    assert {"model.json", "synthetic.csv"} <= chaos["digests"].keys()
    assert model == "peer" or "column 12" in chaos["digests"]
    assert all(cost > 0 for cost in chaos["epsilon_charged"].values())
    assert drill.stderr.count("CHAOS") == len(done)
    assert list(temporary.iterdir()) == []
    release, authority = str(tmp_path / found["release"]), str(tmp_path / found["ca_certificate"])
    assert main(["release", "verify", release, "--ca", authority, "--format", "json"]) == 0
    in_the_table(f"verticil demo --chaos, {model}", times=len(done), lost=[])
