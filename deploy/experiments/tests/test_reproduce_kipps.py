"""``verticil reproduce kipps``: the quick form (``pytest -m gan``), going on after an interruption, its page, its options."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest

from verticil.cli.main import main
from verticil.experiments.kipps import datasets, experiment, figures, page, tables
from verticil.experiments.kipps.attacks import Attribute, Guessed, Membership
from verticil.experiments.kipps.experiment import (
    DELTA,
    EPSILON,
    OTHERS,
    PARTS,
    QUICK,
    REAL,
    Asked,
    RecordSource,
    Row,
    Training,
)
from verticil.experiments.kipps.measures import CLASSIFIERS, Fidelity, Learned, most_accurate
from verticil.reproduce import command, kipps
from verticil.reproduce.experiment import Options
from verticil.reproduce.kipps_methods import WAYS
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.core.installation import install_experiments
from verticil.shared.numerics.knowledge.support import support

SMALL = dataclasses.replace(QUICK, members=300, others=200, permutations=2, people=60)


@pytest.mark.gan
@pytest.mark.timeout(3600)  # a minute and a half of a processor, which may be shared by many
def test_the_quick_form_runs_every_way_on_every_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["reproduce", "kipps", "--quick", "--out", str(out), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    names = {f"{part.replace(' ', '-')}.{form}" for part in PARTS for form in ("svg", "png")}
    assert {path.name for path in out.iterdir()} == {"numbers.json", "index.html", *names}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert answer["simulated"] == ["Network traffic, simulated"]
    rows = {(row["data"], row["way"]): row for row in answer["rows"]}
    assert len(rows) == len(answer["rows"]) == 3 * (2 + len(WAYS))
    for (data, way), row in rows.items():
        if way == REAL.name:
            assert row["membership"]["records"]["accuracy"] > 0.5 + 4 * row["membership"]["error"]
            assert row["attribute"]["members"] > row["attribute"]["others"] + 4 * row["attribute"]["error"]
            continue
        fidelity = row["fidelity"]
        assert 0 <= fidelity["pmse"] <= fidelity["most"] == 0.25
        assert fidelity["overlap"] is None or 0 <= fidelity["overlap"] <= 1
        known = next((one.known for one in WAYS if one.name == way), True)
        if known and "Diabetes" not in data:
            assert fidelity["violations"] == 0 or way == OTHERS.name
        if answer["ways"][way]["epsilon"]:
            error = row["membership"]["error"]
            assert row["membership"]["records"]["accuracy"] < most_accurate(EPSILON, DELTA) + 4 * error
    for name in ("Adult", "Network traffic, simulated"):
        assert rows[name, "DPWGAN"]["fidelity"]["violations"] > 0.1


def test_a_run_that_was_interrupted_goes_on_where_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two ways that give the records themselves in another order, on simulated traffic."""

    def shuffled(_data: datasets.DataSet, frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
        return frame.sample(frac=1, random_state=asked.seed)

    few = tuple(RecordSource(name=name, words=name, make=shuffled) for name in ("one", "another"))
    monkeypatch.setattr(kipps, "WAYS", few)
    monkeypatch.setattr(kipps, "_tables", lambda _unsw: [datasets.traffic(rows=1000)])
    monkeypatch.setattr(kipps, "version", lambda _name: "1")
    monkeypatch.setattr(command, "find_spec", lambda _name: True)
    monkeypatch.setattr(experiment, "QUICK", SMALL)
    whole = experiment.measured
    made: list[str] = []

    def until(data, way, *args, **named):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(way.name)
        return whole(data, way, *args, **named)

    arguments = ["reproduce", "kipps", "--quick", "--figure", "4", "--out", str(tmp_path / "out"), "--format", "json"]
    with monkeypatch.context() as patched:
        patched.setattr(experiment, "measured", until)
        assert main(arguments) != 0
    assert made == [REAL.name, few[0].name]
    assert [path.name for path in tmp_path.iterdir()] == [".out.partial"]
    capsys.readouterr()
    rest: list[str] = []

    def recorded(data, way, *args, **named):
        rest.append(way.name)
        return whole(data, way, *args, **named)

    monkeypatch.setattr(experiment, "measured", recorded)
    assert main(arguments) == 0
    resumed = json.loads(capsys.readouterr().out)["rows"]
    assert rest == [few[1].name]
    arguments[arguments.index("--out") + 1] = str(tmp_path / "again")
    assert main(arguments) == 0
    again = json.loads(capsys.readouterr().out)["rows"]
    assert rest == [few[1].name, REAL.name, few[0].name, few[1].name]
    assert [{**row, "seconds": 0} for row in again] == [{**row, "seconds": 0} for row in resumed]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "out"]


def test_networks_with_rules_give_the_same_records_for_a_seed_and_none_breaks_a_rule() -> None:
    data = datasets.traffic(rows=600)
    way = next(way for way in WAYS if way.name == "joint, rules")
    asked = Asked(epsilon=3.0, delta=1e-5, training=Training(steps=1, batch=1), seed=4, n=300)
    assert way.make is not None
    one, other = (way.make(data, data.frame.iloc[:300], asked) for _ in range(2))
    assert one.equals(other)
    assert list(one.columns) == list(data.frame.columns)
    coded = data.coded(one)
    assert support(data.knowledge, data.schema).holds(datasets.recoded(data, coded.codes)).all()


# ---- the page


def planted() -> list[Row]:
    fidelity = Fidelity(
        pmse=0.2,
        most=0.25,
        chance=0.01,
        logistic_ratio=12.5,
        chi_square=0.04,
        chi_square_distance=0.1,
        ks=None,
        ks_statistic=None,
        overlap=0.6,
        overlap_signed=-3.0,
        difference=1234.5,
        median_difference=2.0,
        determined=1.0,
        distance=0.12,
        violations=0.05,
    )
    learned = Learned(accuracy=dict.fromkeys(CLASSIFIERS, 0.7), f1=dict.fromkeys(CLASSIFIERS, 0.5), majority=0.75)
    guessed = Guessed(accuracy=0.52, auc=0.53)
    membership = Membership(outputs=guessed, records=guessed, attacked=200, shadows=1, error=0.035)
    attribute = Attribute(
        members=0.31, others=0.3, without_rules=0.29, rules_alone=0.2, most_common=0.1, attacked=100, error=0.05
    )
    row = Row(
        data="A <table>", way="KIPPS", records=10, seconds=1.0, fidelity=fidelity, learned=learned, membership=membership,
        attribute=attribute,
    )  # fmt: skip
    return [Row(data="A <table>", way=REAL.name, records=10, seconds=0.0, learned=learned), row]


def test_the_page_has_every_number_in_its_tables_and_the_pictures_inside() -> None:
    rows = planted()
    pictures = {part: figures.draw(part, rows, "title") for part in PARTS}
    assert all(of["svg"].startswith(b"<?xml") and of["png"].startswith(b"\x89PNG") for of in pictures.values())
    html = page.render(
        rows, (REAL, OTHERS, *WAYS), QUICK, simulated=["A <table>"], quick=True, seed=1, look="",
        pictures={part: of["svg"] for part, of in pictures.items()},
    )  # fmt: skip
    for text in (".200", "1,234.5", "–", ".010 ± .100", ".520 ± .070", "opioid", "Simulated.", "A quick run.", "5.688"):
        assert text in html
    assert "A &lt;table&gt;" in html
    assert "A <table>" not in html
    assert html.count("data:image/svg+xml;base64,") == len(PARTS)
    assert "<script" not in html
    again = figures.draw("figure 4", rows, "title")
    assert again["svg"] == pictures["figure 4"]["svg"]


def test_what_is_printed_has_of_each_claim_theirs_ours_and_whether_it_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    beside = {"KIPPS": 0.35, "DPCTGAN": 0.4, "DPWGAN": 0.3, "PATE-GAN": 0.2, "TVAE": 0.1, "KIPPS, vae": 0.5}
    _, first = planted()
    assert first.fidelity is not None
    rows = [
        dataclasses.replace(first, way=way, fidelity=dataclasses.replace(first.fidelity, overlap=value))
        for way, value in beside.items()
    ]
    kipps._print(["table 1"], rows)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    start = lines.index("overlap of intervals is highest, tied with PATE-GAN (6.2)")
    assert " ".join(" ".join(lines[start + 1 : start + 9]).split()).startswith(
        "theirs: KIPPS 5.688 · DPCTGAN 5.593 · DPWGAN 2.108 · PATE-GAN 5.688 · TVAE 1.249 "
        "ours: KIPPS .350 · DPCTGAN .400 · DPWGAN .300 · PATE-GAN .200 · TVAE .100 · KIPPS, vae .500 "
        "(mean of A <table>; theirs of five tables) not found: DPCTGAN is not lower"
    )
    assert not any("membership" in line and "(6.4)" in line for line in lines)


def test_yardsticks_stand_in_the_tables_that_they_have() -> None:
    shown = tables.of_part("figure 2", planted())
    assert [[row[0] for row in one.rows] for one in shown[:1]] == [[REAL.name, "KIPPS"]]
    assert [row[0] for row in tables.of_part("table 1", planted())[0].rows] == ["KIPPS"]


# ---- what is asked for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kipps", "--runs", "5"], "--runs is of ma-sivakumar, got kipps"),
        (["kipps", "--repeats", "5"], "--repeats is of hittmeir, privbayes, martins, got kipps"),
        (["martins", "--unsw", "x.csv"], "--unsw is of kipps"),
    ],
    ids=str,
)
def test_options_of_other_papers_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_table_that_the_paper_has_not_is_refused() -> None:
    with pytest.raises(Misuse, match="kipps: no table 2 and no figure 1; there are table 1, figure 2"):
        Options(table=2, figure=1).parts("kipps", PARTS)
    assert Options().parts("kipps", PARTS) == PARTS
    assert Options(figure=3).parts("kipps", PARTS) == ("figure 3",)


def test_without_torch_the_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    assert main(["reproduce", "kipps", "--quick"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "reproduce kipps needs torch" in said
    assert install_experiments("gan") in said


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "DATA_FILE_MISSING"), (b"\xff\xfe\x00", "DATA_UNREADABLE"), (b"a,b\n1,2\n", "DATA_COLUMN_MISSING")],
    ids=["missing", "bytes", "columns"],
)
def test_a_file_that_is_not_unsws_is_named_before_anything_is_made(
    content: bytes | None, code: str, tmp_path: Path
) -> None:
    place = tmp_path / "unsw.csv"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(DataFault, match=code):
        kipps._read_unsw(place)


def test_a_few_rows_of_unsw_are_too_few(tmp_path: Path) -> None:
    row = "0.5,tcp,http,FIN,12,10,1500,900,31,29,0\n"
    place = tmp_path / "unsw.csv"
    place.write_text("dur,proto,service,state,spkts,dpkts,sbytes,dbytes,sttl,dttl,label\n" + row * 20)
    with pytest.raises(DataFault, match=r"DATA_EMPTY.*20 rows, expected at least 4,000"):
        kipps._read_unsw(place)
    place.write_text("dur,proto,service,state,spkts,dpkts,sbytes,dbytes,sttl,dttl,label\n" + row * 4000)
    assert len(kipps._read_unsw(place).frame) == 4000
