"""``verticil demo --model peer``: no miner, and every party ends with the same signed release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS

# Quick tests run Model I between real processes, too: test_knowledge_nodes.py, test_peer_canary.py.
pytestmark = pytest.mark.slow

PARTIES = {"census_bureau", "employer", "tax_office"}


@pytest.mark.whole
def test_every_party_ends_with_the_same_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "verticil.cli", "demo", "--model", "peer", "--rows", "2000", "--seed", "3"]
    (temporary := tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [*command, "--out", "out", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["common_records"] == 2000
    assert (
        result["epsilon_per_person"] == 15.0
    )  # age, sex, race, relationship and education, 3 each; the others never leave
    assert set(result["peak_memory_mib"]) == PARTIES == set(result["releases"])
    releases = [Path(tmp_path, path) for path in result["releases"].values()]
    for name in sorted(path.name for path in releases[0].iterdir()):
        assert len({(release / name).read_bytes() for release in releases}) == 1, name
    manifest = json.loads((releases[0] / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["study"]["model"] == "peer"
    assert manifest["simulation"] is False
    signatures = json.loads((releases[0] / "manifest.sig").read_text(encoding="utf-8"))["signatures"]
    assert len(signatures) == len(PARTIES)
    assert list(temporary.iterdir()) == []
    verify = [sys.executable, "-m", "verticil.cli", "release", "verify", str(releases[1]), "--ca", "out/ca.crt"]
    assert (
        subprocess.run(verify, cwd=tmp_path, capture_output=True, timeout=PATIENCE_SECONDS, check=False).returncode == 0
    )


@pytest.mark.whole
def test_feature_12_the_demonstration_without_a_listening_party(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "verticil.cli",
        "demo",
        "--model",
        "peer",
        "--relay",
        "--rows",
        "2000",
        "--seed",
        "3",
    ]
    done = subprocess.run(
        [*command, "--out", "out", "--keep", "--format", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["relay"], result["common_records"]) == (True, 2000)
    assert set(result["releases"]) == PARTIES
    assert set(result["peak_memory_mib"]) == {"miner", *PARTIES}
    federation = tmp_path / "out" / "federation"
    assert all("serving peers" not in (federation / f"{name}.log").read_text(encoding="utf-8") for name in PARTIES)
    assert not list((federation / "miner").rglob("*.seal"))
