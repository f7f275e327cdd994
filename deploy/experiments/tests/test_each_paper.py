"""One quick test of each paper, in the usual run: `verticil reproduce` runs a part of it, and prints theirs beside ours.

All other tests of this folder have the marker `experiments`. KIPPS needs torch for its ways: here real records alone are
measured, which needs none.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from verticil.cli.main import main
from verticil.experiments.kipps import experiment
from verticil.experiments.privbayes import datasets, nist
from verticil.reproduce import command, kipps


@pytest.mark.parametrize(
    ("arguments", "key", "verdicts"),
    [
        (["ma-sivakumar", "--table", "2", "--runs", "2"], "table_2", {"found", "not found", "not asked"}),
        (["martins", "--table", "1"], "table_3", set()),
        (["hittmeir", "--quick", "--table", "2"], "table_2", {"not asked"}),
    ],
    ids=["ma-sivakumar", "martins", "hittmeir"],
)
def test_a_part_of_a_paper_is_run_and_held_against_it(
    arguments: list[str], key: str, verdicts: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out"), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["paper"] == arguments[0]
    assert key in answer
    assert {claim["verdict"] for claim in answer["claims"]} <= verdicts
    assert answer["files"][0] == str(tmp_path / "out" / "numbers.json")


def test_privbayes_scores_the_survey_itself_as_perfect() -> None:
    survey = datasets.survey()
    same = nist.scores(survey, survey.columns, seed=1)
    assert same.clustering == same.classification == 1_000_000
    assert same.k_marginal == 1_000


@pytest.mark.whole
def test_kipps_measures_what_needs_no_torch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dataclasses.replace(experiment.QUICK, members=120, others=80, permutations=1, people=40)
    monkeypatch.setattr(experiment, "QUICK", small)
    monkeypatch.setattr(kipps, "WAYS", ())
    monkeypatch.setattr(kipps, "version", lambda _name: "1")
    monkeypatch.setattr(command, "find_spec", lambda _name: True)
    out = tmp_path / "out"
    assert main(["reproduce", "kipps", "--quick", "--figure", "4", "--out", str(out), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["way"] for row in answer["rows"]} <= {experiment.REAL.name, experiment.OTHERS.name}
    assert {path.name for path in out.iterdir()} == {"numbers.json", "index.html", "figure-4.svg", "figure-4.png"}
