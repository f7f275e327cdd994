"""``verticil study run``: what it writes for containers, that these folders hold the same study, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.sameness import differences, essence
from verticil.cli.main import main
from verticil.shared.core.errors import Misuse
from verticil.shared.study.canonical import digest
from verticil.shared.study.reading import read_study
from verticil.simulation.containers import lay_out_containers
from verticil.simulation.in_process import run_federation


@dataclass(frozen=True, kw_only=True)
class Case:
    study: Path
    tables: dict[str, Path]

    @property
    def data(self) -> list[str]:
        return [word for party, path in self.tables.items() for word in ("--data", f"{party}={path}")]


@pytest.fixture
def case(tmp_path: Path, study_text: str, write_federation_tables: Callable[..., dict[str, Path]]) -> Case:
    (tmp_path / "study.toml").write_text(study_text + "\n[simulation]\nseed = 9\n")
    return Case(study=tmp_path / "study.toml", tables=write_federation_tables(tmp_path / "tables", 2000))


@pytest.mark.whole
def test_feature_31_the_containers_folders_give_the_release_of_a_local_run(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes as containers mount them, with memory between them instead of an engine; the seed is the study file's."""
    words = ["study", "run", str(case.study), *case.data, "--format", "json"]
    assert main([*words, "--on", "local", "--out", str(tmp_path / "local")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seed"], told["on"]) == (9, "local")
    study = read_study(case.study)
    (place := tmp_path / "containers").mkdir()
    made = lay_out_containers(place, case.study, study, case.tables, id_column="id", seed=9)
    assert read_study(made.analyst / "study.toml") == study
    asyncio.run(run_federation(made, study, tmp_path / "release", is_seeded=True))
    assert differences(essence(tmp_path / "local" / "release"), essence(tmp_path / "release")) == []


def test_feature_31_what_is_written_for_containers_is_confined(case: Case, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["study", "run", str(case.study), "--on", "compose", "--prepare", *case.data, "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["compose.yaml", "federation"]
    compose: dict[str, Any] = yaml.safe_load((out / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"miner", "clinic", "insurer", "analyst"}
    for name, service in services.items():
        assert service["volumes"] == [f"./federation/{name}:/federation/{name}"]
        assert (service["read_only"], service["cap_drop"], "ports" in service) == (True, ["ALL"], False)
        assert (out / "federation" / name / "ca.crt").is_file()
    for party in case.tables:
        assert services[party]["networks"] == [party]
        assert (out / "federation" / party / "table.csv").read_bytes() == case.tables[party].read_bytes()
    assert all(network["internal"] for network in compose["networks"].values())
    assert "--seed-derived" in services["miner"]["command"]
    assert not (out / "federation" / "miner" / "secrets").exists()


def test_feature_31_the_seed_of_simulations_is_no_part_of_the_study(
    case: Case, study_text: str, tmp_path: Path
) -> None:
    (tmp_path / "plain.toml").write_text(study_text)
    assert digest(read_study(case.study)) == digest(read_study(tmp_path / "plain.toml"))
    for wrong in ("seed = -1", 'seed = "x"', "sead = 1"):
        (tmp_path / "plain.toml").write_text(study_text + f"\n[simulation]\n{wrong}\n")
        with pytest.raises(Misuse, match="simulation") as caught:
            read_study(tmp_path / "plain.toml")
        assert caught.value.code == "STUDY_INVALID"


def test_feature_31_what_does_not_go_together_is_refused(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("PATH", str(tmp_path))  # no engine here
    refused = {
        "not with --on prod": ["--on", "prod", *case.data],
        "only with --on compose": ["--on", "local", "--prepare", *case.data],
        "either --table": ["--on", "local"],
        "no table for": ["--on", "compose", "--prepare", *case.data[:2]],
        "docker compose: no such command": ["--on", "compose", *case.data],
    }
    for problem, words in refused.items():
        assert main(["study", "run", str(case.study), *words, "--out", str(out), "--format", "json"]) == 2
        assert problem in json.loads(capsys.readouterr().out)["error"]["message"]
        assert not out.exists()
