"""`verticil example`: the same three tables for everybody, messy in the ways that the page names, whole or not at all."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from pathlib import Path

import pytest

from verticil.cli.main import main
from verticil.shared.storage import disk
from verticil.shared.study.draft_review import require_reviewed
from verticil.shared.study.reading import read_study
from verticil.simulation.federations.example import PEOPLE, tables

NAMES = ["hospital", "insurer", "registry"]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=";" if path.stem == "insurer" else ","))


def test_the_command_writes_three_tables_of_the_same_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "people").mkdir()
    assert main(["example", str(tmp_path / "people"), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert sorted(answer["tables"]) == NAMES
    read = {name: rows_of(Path(path)) for name, path in answer["tables"].items()}
    assert {name: len(own) for name, own in read.items()} == answer["rows"]
    ids = {name: {row["id"] for row in own} for name, own in read.items()}
    assert all(len(ids[name]) == len(own) for name, own in read.items())
    assert 0.9 * PEOPLE < len(set.intersection(*ids.values())) < min(map(len, ids.values())) < PEOPLE


def test_the_tables_are_messy_as_real_ones(tmp_path: Path) -> None:
    assert main(["example", str(tmp_path / "people")]) == 0
    hospital, insurer, registry = (rows_of(tmp_path / "people" / f"{name}.csv") for name in NAMES)
    assert all(re.fullmatch(r"[1-9]\d?\.[1-9]\d?\.\d{4}", row["born"]) for row in hospital)
    assert all(re.fullmatch(r"\d+,\d\d", row["claims_eur"]) for row in insurer)
    assert all(re.fullmatch(r"0\d", row["ward"]) for row in hospital)
    assert all(re.fullmatch(r"0\d{4}", row["town"]) for row in registry)
    assert {row["smoker"] for row in hospital} == {"yes", "no", "", "n/a"}
    assert {"", "n/a"} < {row["work"] for row in registry}


def test_the_draft_reads_dates_decimal_commas_and_codes_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the README drafts its study: nothing is left out, and a review alone is missing."""
    monkeypatch.chdir(tmp_path)
    assert main(["example", "people"]) == 0
    tables = [f"{name}=people/{name}.csv" for name in NAMES]
    wording = ["--title", "Smoking", "--purpose", "to try it"]
    assert main(["study", "draft", *tables, "--out", "study.toml", *wording, "--format", "json"]) == 0
    capsys.readouterr()
    Path("study.toml").write_text(Path("study.toml").read_text().replace("reviewed = false", "reviewed = true"))
    study = read_study(Path("study.toml"))
    require_reviewed(study)
    assert study.schema.names == ("born", "smoker", "ward", "plan", "claims_eur", "town", "household", "work")
    assert study.schema[2].labels == ("01", "02", "07")


def test_everybody_gets_the_same_bytes() -> None:
    digest = hashlib.sha256(b"".join(tables().values())).hexdigest()
    assert digest == "1777a4354aa15435cbd33da12b04e4578e6fff285422acae7f255c51aee2a8f8"


def test_a_folder_with_something_in_it_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text("id\n1\n")
    assert main(["example", str(tmp_path), "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], "another folder" in error["hint"]) == ("FILE_EXISTS", True)
    assert main(["example", str(tmp_path / "own.csv")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int, path: Path) -> None:
        if path.stem == "registry":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "sync_file", full)
    assert main(["example", str(tmp_path / "people")]) == 1
    assert not (tmp_path / "people").exists()
