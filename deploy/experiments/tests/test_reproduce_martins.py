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
    claimed = {claim["name"]: claim["verdict"] for claim in answer["claims"]}
    assert set(claimed) == {"pnad-networks", "pnad-overlap", "pnad-mle", "pnad-p-value", "pnad-priors"}
    assert set(claimed.values()) == {"not asked"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"numbers.json", "figure-7.svg", "figure-7.png"}
    assert [row["prior"] for row in answer["figures"]] == ["P1"] * 3 + ["P2"] * 3


def households(n: int = 400) -> list[str]:
    """Lines of a CSV file as PNADcIBGE writes codes; every tenth person has another race, and so is left out."""
    lines = ["V1022,V2007,V2009,V2010,VD4019"]
    for row in range(n):
        race = ("1", "2", "4")[row % 3] if row % 10 else "5"
        lines.append(f"{1 + row % 2},{1 + row // 2 % 2},{20 + row % 60},{race},{1000 + row % 7 * 100}")
    return lines


def test_own_records_take_the_place_of_the_stand_in(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "pnad.csv").write_text("\n".join(households()) + "\n", encoding="utf-8")
    arguments = [
        "reproduce",
        "martins",
        "--table",
        "6",
        "--quick",
        "--repeats",
        "2",
        "--pnad",
        str(tmp_path / "pnad.csv"),
    ]
    assert main([*arguments, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["survey"]["stand_in"], answer["survey"]["records"]) == (False, 360)
    assert [claim["verdict"] for claim in answer["claims"] if claim["name"] == "pnad-networks"] != ["not asked"]


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        (["V1022,V2007,V2009,V2010", "1,1,30,1"], "DATA_COLUMN_MISSING", "no column 'VD4019'"),
        (households(50), "DATA_CATEGORY_UNSEEN", "45 records of the PNAD table have all of"),
        ([*households(), "7,1,30,1,900"], "DATA_CATEGORY_UNSEEN", "column 'V1022' of the PNAD table has a value"),
        ([*households(), "1,1,old,1,900"], "DATA_CATEGORY_UNSEEN", "column 'V2009' of the PNAD table is not a number"),
    ],
    ids=["column", "few", "code", "number"],
)
def test_own_records_that_are_none_are_named(
    lines: list[str], code: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pnad.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["reproduce", "martins", "--table", "6", "--pnad", str(tmp_path / "pnad.csv")]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert code in shown
    assert said in shown


def test_the_chains_are_what_the_user_chooses(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--burn-in", "1000", "--thinning", "8", "--draws", "50", "--sets", "7"]
    arguments = ["reproduce", "martins", "--table", "6", "--quick", "--repeats", "1", *chosen, "--format", "json"]
    assert main(arguments) == 0
    scale = json.loads(capsys.readouterr().out)["scale"]
    assert [scale[name] for name in ("steps", "burn_in", "thinning", "draws", "sets")] == [5000, 1000, 8, 50, 7]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--burn-in", "5000", "--quick"], "expected a burn-in below the steps"),
        (["--burn-in", "4950", "--quick", "--thinning", "10"], "leave 5 graphs of a chain, expected at least 20"),
        (["--thinning", "0"], "'--thinning'"),
        (["--draws", "1"], "'--draws'"),
        (["--sets", "1"], "'--sets'"),
        (["--colorado", "x.csv"], "--colorado is of privbayes, got martins"),
        (["--table", "7"], "expected --table 1 to 6"),
        (["--figure", "15"], "--figure 1 to 14"),
        (["--runs", "5"], "--runs is of ma-sivakumar, got martins"),
    ],
    ids=str,
)
def test_what_it_has_not_is_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "martins", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
