"""The containers' plan: who mounts what, who may do what. (Running it under an engine is another test's business.)"""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DAEMONS = ("miner", "census_bureau", "employer", "tax_office")
PARTIES = DAEMONS[1:]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def volumes(service: dict[str, Any]) -> set[str]:
    return {entry.split(":")[0] for entry in service.get("volumes", [])}


def reads_a_linkage_key(compose: dict[str, Any], name: str) -> bool:
    # The linkage key lies in the parties' folders, and each folder is a volume of its own.
    return bool(volumes(compose["services"][name]) & set(PARTIES))


def test_the_miner_never_mounts_the_linkage_key(compose: dict[str, Any]) -> None:
    assert not reads_a_linkage_key(compose, "miner")
    assert not reads_a_linkage_key(compose, "analyst")
    assert reads_a_linkage_key(compose, "employer")
    planted = copy.deepcopy(compose)
    planted["services"]["miner"]["volumes"].append("employer:/federation/employer:ro")
    assert reads_a_linkage_key(planted, "miner")


def test_daemons_are_started_again_and_what_is_done_once_is_not(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name for name in services if services[name].get("restart") == "unless-stopped"} == set(DAEMONS)


def test_a_party_runs_the_partys_image_and_nobody_else_does(compose: dict[str, Any]) -> None:
    services = compose["services"]
    runs = {name: (service["build"]["target"], service["image"].split(":")[0]) for name, service in services.items()}
    assert {name for name, ran in runs.items() if ran == ("party", "verticil-party")} == set(PARTIES)
    assert {name for name, ran in runs.items() if ran == ("miner", "verticil-miner")} == set(services) - set(PARTIES)
    stages = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert all(f"FROM node AS {target}\n" in stages for target in ("party", "peer", "miner"))


def test_every_party_mounts_its_own_volume_only(compose: dict[str, Any]) -> None:
    for party in PARTIES:
        assert volumes(compose["services"][party]) == {party}


def test_parties_share_networks_with_the_miner_only(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for party in PARTIES:
        assert services[party]["networks"] == [party]
        assert all(party not in services[other].get("networks", []) for other in PARTIES if other != party)
    assert all(network["internal"] for network in compose["networks"].values())
    assert services["keys"]["network_mode"] == "none"
    assert all("ports" not in service for service in services.values())


@pytest.mark.parametrize("name", [*DAEMONS, "keys", "analyst"])
def test_services_are_confined(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "privileged" not in service
    assert "user" not in service  # the image's own, which is not root:
    assert "USER 10001:10001" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DAEMONS)
def test_daemons_are_probed_by_the_programs_own_command(compose: dict[str, Any], name: str) -> None:
    config = "miner.toml" if name == "miner" else "party.toml"
    expected = ["CMD", "verticil", "healthcheck", "--config", f"/federation/{name}/{config}"]
    assert compose["services"][name]["healthcheck"]["test"] == expected


def test_compose_accepts_the_file(tmp_path: Path) -> None:
    command = shutil.which("docker-compose")
    if command is None:
        pytest.skip("docker-compose is not installed")
    done = subprocess.run(
        [command, "-f", str(DEPLOY / "compose.yaml"), "config", "-q"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
