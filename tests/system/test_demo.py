"""The demonstration as a user runs it, and that nothing stays behind, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import frictionless
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from support import PATIENCE_SECONDS
from verticil.shared.release.formats import model_json
from verticil.shared.release.formats.bif import label_map

COMMAND = [sys.executable, "-m", "verticil.cli", "demo", "--rows", "1000", "--seed", "3", "--format", "json"]


def descendants(marker: str) -> list[int]:
    """Processes whose environment carries `marker`: every child of a run inherits it."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and marker.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def environment(tmp_path: Path, marker: str) -> dict[str, str]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return {**os.environ, "TMPDIR": str(temporary), "VERTICIL_TEST_RUN": marker}


def nothing_left(tmp_path: Path, marker: str) -> None:
    assert descendants(marker) == []
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, subprocess.CompletedProcess[str]]:
    """The folder that the demonstration ran in, its mark, and what it said."""
    folder, marker = tmp_path_factory.mktemp("demonstrated"), f"run-{os.getpid()}-whole"
    done = subprocess.run(
        [*COMMAND, "--out", "out"],
        cwd=folder,
        env=environment(folder, marker),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    return folder, marker, done


@pytest.mark.whole
def test_feature_1_demo_publishes_verifies_and_leaves_nothing_behind(demonstrated) -> None:
    folder, marker, done = demonstrated
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["verified"] is True
    assert result["common_records"] == 1000
    assert result["epsilon_per_person"] == pytest.approx(36.89, abs=0.01)  # 10 x 3 + 2 x 2 + ln 18
    assert set(result["peak_memory_mib"]) == {"miner", "census_bureau", "employer", "tax_office"}
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["ca.crt", "release"]
    manifest = json.loads((folder / "out" / "release" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["simulation"] is False
    nothing_left(folder, marker)


@pytest.mark.whole
def test_frictionless_pandas_and_pyarrow_read_the_demos_release(demonstrated) -> None:
    release = demonstrated[0] / "out" / "release"
    report = frictionless.validate(str(release / "datapackage.json"))
    assert report.valid, report.flatten(["type", "message"])
    assert [task.name for task in report.tasks] == ["synthetic-csv", "synthetic-parquet"]
    fields = [
        f["name"] for f in json.loads((release / "datapackage.json").read_text())["resources"][1]["schema"]["fields"]
    ]
    from_csv, from_parquet = pd.read_csv(release / "synthetic.csv"), pd.read_parquet(release / "synthetic.parquet")
    assert len(from_csv) == len(from_parquet) == 1000
    assert (
        list(from_csv)
        == list(from_parquet)
        == pyarrow.parquet.read_schema(release / "synthetic.parquet").names
        == fields
    )
    assert (from_csv.astype(str) == from_parquet.astype(str)).all().all()
    pairs = json.loads((release / "model.json").read_text())["pairs"]["tables"]
    edges = json.loads((release / "model.json").read_text())["structure"]["edges"]
    assert [table["variables"] for table in pairs] == edges
    assert all(np.array(table["estimate"]).sum() == pytest.approx(1) for table in pairs)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["network.bifxml", "network.bif"])
def test_pgmpy_and_pyagrum_read_the_demos_release(demonstrated, name, read_elsewhere, difference) -> None:
    release = demonstrated[0] / "out" / "release"
    network = model_json.read((release / "model.json").read_bytes())
    tokens, plain = label_map(network.schema), name.endswith("xml")
    names = network.schema.names if plain else tokens.variables
    labels = tuple(variable.labels for variable in network.schema.variables) if plain else tokens.categories
    assert difference(network, read_elsewhere(release / name), names, labels) <= 1e-9


@pytest.mark.whole
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    marker = f"run-{os.getpid()}-{number.name}"
    child = subprocess.Popen(
        [*COMMAND, "--out", "out"],
        cwd=tmp_path,
        env=environment(tmp_path, marker),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    for line in child.stderr:
        if "parties started" in line:
            break
    child.send_signal(number)
    out, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == code, err
    end = time.monotonic() + PATIENCE_SECONDS
    while descendants(marker) and time.monotonic() < end:  # killed outright, the nodes see that their parent is gone
        time.sleep(0.05)
    assert descendants(marker) == []
    if number is not signal.SIGKILL:
        assert json.loads(out)["error"]["code"] == "INTERRUPTED"
        assert not (tmp_path / "out").exists()
        nothing_left(tmp_path, marker)


@pytest.mark.whole
def test_demo_refuses_a_folder_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    done = subprocess.run(
        [*COMMAND, "--out", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "FILE_EXISTS"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
