"""``verticil demo --model masked``: real processes, nobody sees a row, and the miner signs what is learned from noisy tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS

PARTIES = {"census_bureau", "employer", "tax_office"}
COMMAND = [sys.executable, "-m", "verticil.cli", "demo", "--model", "masked", "--rows", "1000", "--seed", "3"]


def run(folder: Path, *more: str, seconds: float = 2 * PATIENCE_SECONDS) -> dict[str, Any]:
    (temporary := folder / "temporary").mkdir()
    done = subprocess.run(
        [*COMMAND, *more, "--out", "out", "--format", "json"],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.whole
def test_the_demonstration_of_masked_tables_publishes_and_verifies(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert (result["verified"], result["common_records"]) == (True, 1000)
    assert result["epsilon_per_person"] == 78.0  # the floor: 13 columns at 6, for a dealer with the partner it dealt to
    assert set(result["peak_memory_mib"]) == {"miner", *PARTIES}
    release = tmp_path / "out" / "release"
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["study"]["model"] == "masked"
    assert manifest["simulation"] is False
    model = json.loads((release / "model.json").read_text(encoding="utf-8"))
    costs = {
        account["account"]: (account["epsilon"], account["delta"]) for account in model["privacy"]["accounts"]["list"]
    }
    assert costs["public"] == pytest.approx((1.0, 1e-9), rel=1e-6)
    verify = [sys.executable, "-m", "verticil.cli", "release", "verify", str(release), "--ca", "out/ca.crt"]
    assert (
        subprocess.run(verify, cwd=tmp_path, capture_output=True, timeout=PATIENCE_SECONDS, check=False).returncode == 0
    )


@pytest.mark.slow
def test_no_party_has_to_listen(tmp_path: Path) -> None:
    result = run(tmp_path, "--relay", "--keep")
    assert (result["relay"], result["common_records"]) == (True, 1000)
    federation = tmp_path / "out" / "federation"
    assert all("serving peers" not in (federation / f"{name}.log").read_text(encoding="utf-8") for name in PARTIES)
