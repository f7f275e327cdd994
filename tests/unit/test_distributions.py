"""What a node installs has no experiments; they are a distribution of their own, and `verticil reproduce` says which."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from typer.testing import CliRunner

from verticil.cli import reproduce
from verticil.cli.main import app

ROOT = Path(__file__).resolve().parents[2]


def packed(folder: Path) -> set[str]:
    """The modules and data in the wheel of the project in `folder`."""
    builder = WheelBuilder(str(folder))
    with builder.config.set_build_data({"artifacts": [], "force_include": {}, "build_hooks": ()}):
        found = {file.distribution_path for file in builder.recurse_included_files()}
        found |= {file.distribution_path for file in builder.recurse_forced_files(builder.config.get_force_include())}
    return found


def test_a_node_installs_no_experiments() -> None:
    own = packed(ROOT)
    assert {"verticil/party/daemon.py", "verticil/miner/daemon.py", "verticil/cli/main.py"} <= own
    assert not [path for path in own if "experiments" in path]


def test_the_experiments_are_whole_in_a_distribution_of_their_own() -> None:
    there = {
        f"verticil/experiments/{path.relative_to(ROOT / 'deploy/verticil/experiments')}"
        for path in (ROOT / "deploy/verticil/experiments").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(there) > 12
    assert there == {path for path in packed(ROOT / "deploy" / "experiments") if "__pycache__" not in path}


def test_reproduce_says_by_name_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        return None if name == "verticil.experiments" else importlib.util.find_spec(name)

    monkeypatch.setattr(reproduce, "find_spec", without)
    result = CliRunner().invoke(app, ["reproduce", "ma-sivakumar", "--table", "2"])
    assert result.exit_code != 0
    assert getattr(result.exception, "code", "") == "USAGE"
    assert "verticil-experiments" in str(result.exception)
    assert "pip install ./deploy/experiments" in getattr(result.exception, "hint", "")
