"""``verticil reproduce martins``: its parts, the quick form whole behind ``-m slow``."""

import json
import re
from pathlib import Path

import pytest

from verticil.cli.main import main


@pytest.mark.slow
def test_every_table_and_figure_is_run_and_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "martins", "--quick", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    for table in range(1, 7):
        assert f"Table {table}: " in shown
    pictures = {f"figure-{number}.{form}" for number in range(1, 15) for form in ("svg", "png")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"numbers.json", *pictures}
    answer = json.loads((tmp_path / "out" / "numbers.json").read_text(encoding="utf-8"))
    assert len(answer["table_3"]) == 28
    assert {row["figure"] for row in answer["figures"]} == set(range(2, 15))
    assert max(row["sampling_error"] for row in answer["table_3"]) < 0.05
    assert answer["spent"]["cpu_seconds"] < 300
    for text in ("A quick run", "stand-in", "Errata of the paper", "theirs", "written:"):
        assert text in shown


def test_a_table_alone_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "martins", "--table", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"2 +2 +3 \(erratum\)", shown)
    assert "Table 2: " not in shown
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_the_stand_in(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["reproduce", "martins", "--figure", "7", "--quick", "--repeats", "2", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["survey"]["stand_in"] is True
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"numbers.json", "figure-7.svg", "figure-7.png"}
    assert [row["prior"] for row in answer["figures"]] == ["P1"] * 3 + ["P2"] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "7"], "expected --table 1 to 6"),
        (["--figure", "15"], "--figure 1 to 14"),
        (["--runs", "5"], "--runs, --model and --credit-card are of other papers"),
    ],
    ids=str,
)
def test_what_it_has_not_is_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "martins", *arguments]) == 2
    assert said in capsys.readouterr().err
