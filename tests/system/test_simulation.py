"""The simulation: from the command, from Python, with files, frames or one table; and its release in other programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from verticil.cli.main import main
from verticil.shared.core.errors import VerticilError
from verticil.simulation import Simulated, simulate
from verticil.simulation.federations import adult


@pytest.fixture(
    scope="module", params=['[release]\nsample_from = "network"', pytest.param("[release]", marks=pytest.mark.slow)]
)
def shipped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Simulated, Path]:
    """The shipped federation at its full size; without the joint model, which takes most of the time, or as it is."""
    folder = tmp_path_factory.mktemp("shipped")
    (study := folder / "study.toml").write_text(
        adult.study_text().replace("[release]", request.param), encoding="utf-8"
    )
    tables = adult.write_tables(folder / "tables")
    return simulate(study, tables, seed=1, out=folder / "out" / "release", compare=True), folder / "out"


@pytest.mark.whole
def test_the_shipped_federation_links_and_learns(shipped: tuple[Simulated, Path]) -> None:
    result, out = shipped
    assert result.n_common == 30_647  # the data's own README says so
    assert len(result.synthetic) == 30_647
    assert result.epsilon_per_person == pytest.approx(36.8904, abs=1e-4)  # 10 columns at 3, two at 2, ln 18
    assert result.comparison is not None
    assert [found.n_tables for found in result.comparison.synthetic] == [13, 78, 286]
    assert result.comparison.synthetic[1].mean < result.comparison.independent[1].mean
    assert main(["release", "verify", str(out / "release"), "--ca", str(out / "ca.crt"), "--format", "json"]) == 0


@pytest.mark.whole
def test_synthetic_values_are_declared_ones(shipped: tuple[Simulated, Path]) -> None:
    result, _ = shipped
    for variable in result.network.schema.variables:
        column = result.synthetic[variable.name]
        if variable.bins:
            assert column.min() >= variable.bins[0]
            assert column.max() < variable.bins[-1]
            assert (column == column.round()).all()
        else:
            assert set(column.unique()) <= set(variable.labels)


@pytest.mark.whole
def test_frames_files_and_one_table_give_the_same(
    tmp_path: Path, study_text: str, write_federation_tables: Callable[..., dict[str, Path]]
) -> None:
    tables = write_federation_tables(tmp_path / "tables", 2000)
    (study := tmp_path / "study.toml").write_text(study_text)
    frames = {name: pd.read_csv(path, dtype=str, keep_default_na=False) for name, path in tables.items()}
    whole = frames["clinic"].merge(frames["insurer"], on="id")
    from_files = simulate(study, tables, seed=3)
    from_frames = simulate(str(study), frames, seed=3)
    assert from_files.n_common == from_frames.n_common == len(whole)
    pd.testing.assert_frame_equal(from_files.synthetic, from_frames.synthetic)
    assert from_files.comparison is None
    assert from_files.release is None
    without_ids = simulate(study, whole.drop(columns="id"), seed=3, compare=True)
    assert without_ids.n_common == len(whole)
    assert without_ids.comparison is not None
    assert without_ids.comparison.synthetic[0].n_tables == 5


def test_it_runs_where_an_event_loop_runs_already(
    tmp_path: Path, study_text: str, write_federation_tables: Callable[..., dict[str, Path]]
) -> None:
    tables = write_federation_tables(tmp_path / "tables", 1500)
    (study := tmp_path / "study.toml").write_text(study_text)

    async def notebook() -> Simulated:
        return simulate(study, tables, seed=3)

    assert asyncio.run(notebook()).n_common > 1000


def test_the_command_reports_distances(
    tmp_path: Path,
    study_text: str,
    write_federation_tables: Callable[..., dict[str, Path]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables = write_federation_tables(tmp_path / "tables", 1500)
    (study := tmp_path / "study.toml").write_text(study_text)
    data = [part for name, path in tables.items() for part in ("--data", f"{name}={path}")]
    arguments = ["simulate", str(study), *data, "--out", str(tmp_path / "out"), "--seed", "2", "--compare"]
    assert main([*arguments, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["distance"]) == {"synthetic", "bootstrap", "independent"}
    assert result["distance"]["independent"]["1-way"]["mean"] == pytest.approx(0, abs=1e-12)
    assert Path(result["release"], "manifest.json").is_file()
    assert main([*arguments, "--format", "json"]) == 2  # the folder is in use now
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "FILE_EXISTS"


@pytest.mark.parametrize(
    ("tables", "code", "words"),
    [
        ({"clinic": "clinic.csv"}, "USAGE", "insurer"),
        ({"clinic": "clinic.csv", "insurer": "insurer.csv", "bank": "x.csv"}, "USAGE", "bank"),
        ("nowhere.csv", "DATA_FILE_MISSING", "nowhere.csv"),
    ],
    ids=["a party without table", "a table without party", "no such table"],
)
def test_misuse_is_named(tmp_path: Path, study_text: str, tables: Any, code: str, words: str) -> None:
    (study := tmp_path / "study.toml").write_text(study_text)
    with pytest.raises(VerticilError, match=words) as caught:
        simulate(study, tables)
    assert caught.value.code == code
