"""The containers' plan: who mounts what, who may do what. (Running it under an engine is another test's business.)"""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from verticil.simulation.containers import Role, _compose

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
def test_daemons_are_probed_by_a_program_that_starts_no_python(compose: dict[str, Any], name: str) -> None:
    assert compose["services"][name]["healthcheck"]["test"] == ["CMD", "verticil-probe", f"/federation/{name}/state"]
    assert "COPY deploy/verticil-probe /usr/local/bin/" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert os.access(DEPLOY / "verticil-probe", os.X_OK)
    assert (DEPLOY / "verticil-probe").read_text(encoding="utf-8").startswith("#!/bin/sh\n")


def written(parties: tuple[str, ...], role: Role = "party") -> dict[str, Any]:
    """What `study run --on compose` writes."""
    return yaml.safe_load(_compose(parties, is_seeded=False, role=role))


@pytest.mark.parametrize("where", ["shipped", "written by study run"])
def test_every_container_has_limits_and_its_log_is_rotated(compose: dict[str, Any], where: str) -> None:
    services = (compose if where == "shipped" else written(PARTIES))["services"]
    assert set(services) >= {*DAEMONS, "analyst"}
    for name, service in services.items():
        role, default = ("PARTY", "2g") if name in PARTIES else ("MINER", "4g")
        assert service["mem_limit"] == f"${{{role}_MEMORY:-{default}}}"
        assert service["pids_limit"] == 1024
        options = service["logging"]["options"]
        assert (service["logging"]["driver"], options) == ("json-file", {"max-size": "10m", "max-file": "5"})
        if name in DAEMONS:
            assert service["healthcheck"]["test"] == ["CMD", "verticil-probe", f"/federation/{name}/state"]


def test_with_masked_tables_the_parties_images_and_the_key_service_differ_and_nothing_else() -> None:
    services = yaml.safe_load((DEPLOY / "compose-masked.yaml").read_text(encoding="utf-8"))["services"]
    assert {name: set(service) for name, service in services.items()} == {
        "keys": {"command"},
        **{party: {"image", "build"} for party in PARTIES},
    }
    assert services["keys"]["command"][-2:] == ["--model", "masked"]
    assert {(services[name]["image"], services[name]["build"]["target"]) for name in PARTIES} == {
        ("verticil-peer:1.0.0", "peer")
    }
    images = {
        name: service["image"].split(":")[0] for name, service in written(PARTIES, role="peer")["services"].items()
    }
    assert {name for name, image in images.items() if image == "verticil-peer"} == set(PARTIES)


@pytest.mark.machine
@pytest.mark.parametrize("where", ["shipped", "masked", "written by study run"])
def test_compose_accepts_the_file(tmp_path: Path, where: str, program: Callable[[str], str]) -> None:
    path = DEPLOY / "compose.yaml"
    if where == "written by study run":
        (path := tmp_path / "compose.yaml").write_text(_compose(PARTIES, is_seeded=False), encoding="utf-8")
    second = ["-f", str(DEPLOY / "compose-masked.yaml")] if where == "masked" else []
    done = subprocess.run(
        [program("docker-compose"), "-f", str(path), *second, "config", "-q"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
