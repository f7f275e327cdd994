"""The one-shot key service of deploy/compose.yaml, run as it is run there."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from verticil.party.config import load_party


def run(out: Path) -> None:
    command = [sys.executable, "-m", "verticil.simulation.provision", "--out", str(out), "--endpoint", "miner:8443"]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)


def contents(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.mark.whole
def test_every_node_gets_its_own_and_the_miner_no_linkage_key(tmp_path: Path) -> None:
    for node in ("miner", "census_bureau", "employer", "tax_office", "analyst"):
        (tmp_path / node).mkdir()  # volumes exist already
    run(tmp_path)
    made = contents(tmp_path)
    key = made["employer/secrets/linkage.key"]
    assert made["census_bureau/secrets/linkage.key"] == made["tax_office/secrets/linkage.key"] == key
    assert [name for name, content in made.items() if key.strip() in content and not name.endswith("linkage.key")] == []
    assert not any(name.startswith(("miner/secrets", "analyst/secrets")) for name in made)
    for name, content in made.items():
        if b"PRIVATE KEY" in content or name.endswith(("linkage.key", "site.secret")):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    site_secrets = {made[f"{party}/state/site.secret"] for party in ("census_bureau", "employer", "tax_office")}
    assert len(site_secrets) == 3
    assert not any(name.endswith("ca.key") for name in made)  # the authority is thrown away
    assert load_party(tmp_path / "employer" / "party.toml").policy.on_small_difference == "warn"  # one after the other
    run(tmp_path)  # a second start changes nothing
    assert contents(tmp_path) == made
