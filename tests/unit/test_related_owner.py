"""One owner with related tables: one charge for a person with all rows, a release with a table each, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import frictionless
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import verticil.api as vt
from support.related import STAY, STUDY, people_with_visits
from verticil.cli.main import app
from verticil.curator import Synthesized, synthesize
from verticil.party.site import init_state
from verticil.shared.core.errors import DataFault, GateFailed, Misuse
from verticil.shared.related.figures import row_figures
from verticil.shared.related.structure import records_fault
from verticil.shared.release.limits import release_limits
from verticil.shared.release.related import check_related
from verticil.shared.release.verification import verify_release
from verticil.shared.synthesis.record_checks import read_records

N = 4000
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
EPSILON = 4.0


def run(folder: Path, out: str | None = None, **how: object) -> Synthesized:
    return synthesize(
        folder / "people.csv",
        folder / "study.toml",
        tables=how.pop("tables", {"visits": folder / "visits.csv"}),
        id_column=how.pop("id_column", "pid"),
        epsilon=EPSILON,
        out=None if out is None else folder / out,
        clock=lambda: NOON,
        **how,  # type: ignore[arg-type]  # of synthesize
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Synthesized]:
    folder = tmp_path_factory.mktemp("clinic")
    people, visits = people_with_visits(N)
    people.to_csv(folder / "people.csv", index=False)
    visits.to_csv(folder / "visits.csv", index=False)
    (folder / "study.toml").write_text(STUDY + '[identifier]\nname = "key"\nformat = "P%06d"\n')
    (folder / "verticil-curator").mkdir(mode=0o700)
    init_state(folder / "verticil-curator" / "state", site_secret=bytes(range(32)))
    return folder, run(folder, "made")


@pytest.mark.whole
def test_the_release_has_people_and_visits(made: tuple[Path, Synthesized]) -> None:
    folder, found = made
    release = vt.load(folder / "made/release", ca=folder / "made/ca.crt")
    tables = release.tables()
    assert list(tables) == ["people", "visits"]
    people, visits = tables["people"], tables["visits"]
    assert list(people.columns) == ["key", "sex", "age"]
    assert list(visits.columns) == ["key", "row", "admitted", "ward"]
    assert people["key"].iloc[0] == "P000001"
    assert len(people) == N == len(found.records)
    assert set(visits["key"]) <= set(people["key"])
    assert len(visits) == int(found.records["visits.rows"].sum())
    for name, table in tables.items():
        text = pd.read_csv(folder / "made" / "release" / f"{name}.csv", dtype=str)
        assert text.shape == table.shape
        assert pd.read_parquet(folder / "made" / "release" / f"{name}.parquet").shape == table.shape


def test_no_order_is_broken_and_no_slot_beyond_the_count_is_filled(made: tuple[Path, Synthesized]) -> None:
    folder, found = made
    study = found.study
    codes = read_records(folder / "made/release/synthetic.parquet", study.schema, N, identifier=study.identifier)
    assert records_fault(study.related, study.schema, codes) == ""
    visits = vt.load(folder / "made/release", ca=folder / "made/ca.crt").tables()["visits"]
    days = pd.to_datetime(visits["admitted"].astype(str))
    same = visits["key"].eq(visits["key"].shift())
    assert (days.diff()[same] >= pd.Timedelta(0)).all()
    assert visits["row"].tolist() == (visits.groupby("key").cumcount() + 1).tolist()


def test_rows_transitions_and_gaps_are_near_those_of_the_people(made: tuple[Path, Synthesized]) -> None:
    """Of 4,000 people at epsilon 4, by a fixed secret. Shares of the number of rows are within 3 points, and who stays in a ward
    is within 10 points of the chance of staying: a third of those who are drawn anew stay, too.
    """
    folder, found = made
    study = found.study
    codes = read_records(folder / "made/release/synthetic.parquet", study.schema, N, identifier=study.identifier)
    figures = row_figures(study.related[0], study.schema, codes)
    real = pd.read_csv(folder / "visits.csv").groupby("pid").size().clip(upper=3).value_counts() / N
    assert np.abs(figures.people[1:] - real.sort_index().to_numpy()).max() < 0.03
    stay = STAY + (1 - STAY) / 3
    assert np.abs(np.diag(figures.transitions[0].shares) - stay).max() < 0.1
    assert figures.gaps is not None
    assert figures.gaps[1][-3:].sum() < 0.05  # gaps are below 40 days


@pytest.mark.whole
def test_everything_costs_a_person_once(made: tuple[Path, Synthesized]) -> None:
    folder, found = made
    assert found.spending.cost.epsilon == EPSILON
    again = run(folder)
    assert again.spending.again
    assert again.records.equals(found.records)


@pytest.mark.whole
def test_the_package_has_keys_and_frictionless_accepts_them(made: tuple[Path, Synthesized], tmp_path: Path) -> None:
    folder, _ = made
    release = Path(shutil.copytree(folder / "made" / "release", tmp_path / "release"))
    package = json.loads((release / "datapackage.json").read_text())
    by_name = {item["name"]: item["schema"] for item in package["resources"]}
    assert by_name["people-csv"]["primaryKey"] == ["key"]
    assert by_name["visits-csv"]["primaryKey"] == ["key", "row"]
    assert by_name["visits-csv"]["foreignKeys"][0]["reference"] == {"resource": "people-csv", "fields": ["key"]}
    report = frictionless.validate(str(release / "datapackage.json"))
    assert report.valid, report.flatten(["type", "message"])
    lines = (release / "visits.csv").read_text().splitlines()
    (release / "visits.csv").write_text("\n".join([lines[0], lines[1].replace("P00000", "Q00000"), *lines[2:]]) + "\n")
    errors = frictionless.validate(str(release / "datapackage.json")).flatten(["type"])
    assert ["foreign-key"] in errors  # what it accepted it had looked at


def test_rows_of_nobody_leave_a_release_without_rows(tmp_path: Path) -> None:
    """The register has visits of other people only: a batch without a known person, and a table with a header alone."""
    people, visits = people_with_visits(600)
    people.to_csv(tmp_path / "people.csv", index=False)
    visits.assign(pid="q" + visits["pid"]).to_csv(tmp_path / "visits.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    found = synthesize(
        tmp_path / "people.csv",
        tmp_path / "study.toml",
        tables={"visits": tmp_path / "visits.csv"},
        id_column="pid",
        epsilon=80,
        seed=1,
        out=tmp_path / "made",
    )
    assert any("are of people who are not in the table of people" in warning for warning in found.warnings)
    release = tmp_path / "made" / "release"
    verify_release(release, ca_certificate=(tmp_path / "made" / "ca.crt").read_bytes())
    assert len(pd.read_csv(release / "visits.csv")) == len(pd.read_parquet(release / "visits.parquet")) == 0


def test_frictionless_accepts_numbers_in_order_that_add_up_beyond_the_last_edge(tmp_path: Path) -> None:
    """Three readings a person, each 40 to 59 after the one before: of a meter that is declared up to 60."""
    draw, n = np.random.default_rng(4), 200
    pd.DataFrame({"pid": range(n), "sex": draw.choice(["f", "m"], n), "age": 30}).to_csv(
        tmp_path / "people.csv", index=False
    )
    meter = np.cumsum(draw.integers(40, 60, (n, 3)), axis=1).ravel()
    rows = pd.DataFrame({"pid": np.repeat(range(n), 3), "admitted": np.minimum(meter, 179), "ward": "A"})
    rows.to_csv(tmp_path / "visits.csv", index=False)
    text = STUDY.replace(
        'type = "date"\nbins = [2020-01-01, 2020-07-01, 2021-01-01]', 'type = "integer"\nbins = [0, 30, 60]'
    )
    text = text.replace('written = "DD.MM.YYYY"', 'written = "plain"')
    (tmp_path / "study.toml").write_text(text.replace('order = "admitted"', 'order = "admitted"\ngaps = [0, 40, 60]'))
    made = run(tmp_path, "made", accept_noise=True)
    release = tmp_path / "made" / "release"
    assert pd.read_csv(release / "visits.csv")["admitted"].max() > 60
    report = frictionless.validate(str(release / "datapackage.json"))
    assert report.valid, report.flatten(["type", "message"])
    package = json.loads((release / "datapackage.json").read_text())
    (field,) = (
        field
        for item in package["resources"]
        if item["name"] == "visits-csv"
        for field in item["schema"]["fields"]
        if field["name"] == "admitted"
    )
    assert field["constraints"] == {"required": True, "minimum": 0}
    assert made.n_records == n


@pytest.mark.parametrize("name", ["visits.csv", "people.csv", "visits.parquet"])
def test_tables_that_are_not_those_of_the_records_are_found(
    made: tuple[Path, Synthesized], tmp_path: Path, name: str
) -> None:
    folder, found = made
    release = Path(shutil.copytree(folder / "made" / "release", tmp_path / "release"))
    check_related(release, found.study, N)
    if name.endswith(".csv"):
        lines = (release / name).read_text().splitlines()
        (release / name).write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    else:
        pd.read_parquet(release / name).iloc[::-1].to_parquet(release / name, index=False)
    with pytest.raises(GateFailed, match=f"RELEASE_INVALID.*{name}"):
        check_related(release, found.study, N)


def test_no_file_is_larger_than_a_fetch_takes(made: tuple[Path, Synthesized]) -> None:
    limits = release_limits(made[1].study, N, total=2**40).files
    release = made[0] / "made/release"
    for path in release.iterdir():
        assert path.stat().st_size <= limits[path.name], path.name
    assert {"people.csv", "people.parquet", "visits.csv", "visits.parquet"} <= limits.keys()


def test_the_report_tells_of_rows(made: tuple[Path, Synthesized]) -> None:
    page = (made[0] / "made/release/report.html").read_text()
    for words in ("Rows of <bdi>visits</bdi>", "To the next row", "<bdi>ward</bdi> of the next row", "people.csv"):
        assert words in page


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"tables": {}}, Misuse, "no file for the related table 'visits'"),
        (
            {"tables": [pd.DataFrame({"pid": [1]})]},
            Misuse,
            "tables: got a list, expected a mapping from names of related tables",
        ),
        ({"tables": pd.DataFrame({"pid": [1]})}, Misuse, "tables: got a DataFrame, expected a mapping"),
        ({"tables": {"visit": "x.csv"}}, Misuse, "has no \\[\\[table\\]\\] of this name"),
        ({"id_column": None}, DataFault, "nothing says which column names the person"),
        ({"tables": {"visits": "none.csv"}}, DataFault, "DATA_FILE_MISSING"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_charged(
    made: tuple[Path, Synthesized], tmp_path: Path, how: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(made[0], state=tmp_path / "other", **how)


def test_a_table_without_the_id_and_one_file_for_two_tables_are_refused(
    made: tuple[Path, Synthesized], tmp_path: Path
) -> None:
    folder, _ = made
    pd.read_csv(folder / "visits.csv").drop(columns="pid").to_csv(tmp_path / "visits.csv", index=False)
    with pytest.raises(DataFault, match=r"visits\.csv.*pid"):
        run(folder, tables={"visits": tmp_path / "visits.csv"})
    with pytest.raises(Misuse, match="one file, and study 'visits' has related tables"):
        run(folder, "records.csv")


@pytest.mark.whole
def test_the_command_takes_tables_by_name(made: tuple[Path, Synthesized], tmp_path: Path) -> None:
    folder, _ = made
    arguments = ["synthesize", str(folder / "people.csv"), "--study", str(folder / "study.toml"), "--id", "pid"]
    state = ["--state", str(folder / "verticil-curator"), "--epsilon", str(EPSILON), "--out", str(tmp_path / "made")]
    for table, words in (("visits", "expected NAME=FILE"), ("claims=x.csv", "has no [[table]] of this name")):
        result = CliRunner().invoke(app, [*arguments, *state, "--table", table])
        assert result.exit_code != 0
        assert isinstance(result.exception, Misuse)
        assert words in str(result.exception)
    result = CliRunner().invoke(app, [*arguments, *state, "--table", f"visits={folder / 'visits.csv'}"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "made/release/visits.csv").is_file()


def test_evaluate_compares_people_rows_and_transitions(made: tuple[Path, Synthesized], tmp_path: Path) -> None:
    """Each figure lies below that of a table whose columns have nothing to do with each other, but the gaps, which it keeps."""
    folder, _ = made
    found = vt.evaluate(
        folder / "people.csv",
        {"made": folder / "made"},
        related={"visits": folder / "visits.csv"},
        id_column="pid",
        only=["distances"],
    )
    figures = {item.figure: item for item in found.related}
    assert list(figures) == ["people", "columns", "pairs", "transitions", "transitions_worst", "gaps"]
    for name in ("transitions", "transitions_worst"):
        assert figures[name].value < figures[name].baseline / 2
        assert figures[name].floor < figures[name].baseline / 2
    assert figures["people"].value < 0.03
    assert figures["people"].baseline == 0.0
    assert {item.candidate for item in found.figures} == {"made"}
    assert set(found.facts["columns"]) == {"sex", "age"}  # type: ignore[arg-type]  # JSON
    page = found.write(tmp_path / "page")
    assert "Rows of people" in (page / "evaluation.html").read_text()
    assert len(json.loads((page / "evaluation.json").read_text())["related"]) == 6
    without = vt.evaluate(folder / "people.csv", {"made": folder / "made"}, only=["distances"])
    assert any("rows of related tables are not compared" in note for note in without.notes)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"related": {"visit": "visits.csv"}, "id_column": "pid"}, "has no"),
        ({"related": {"visits": "visits.csv"}}, "--table without --id"),
        ({"related": {"visits": "visits.csv"}, "id_column": "pid", "synthetic": "people.csv"}, "goes with the folders"),
    ],
)  # fmt: skip
def test_evaluate_refuses_tables_that_it_cannot_compare(
    made: tuple[Path, Synthesized], how: dict[str, object], message: str
) -> None:
    folder, _ = made
    with pytest.raises(Misuse, match=message):
        vt.evaluate(
            folder / "people.csv",
            {"made": folder / str(how.pop("synthetic", "made"))},
            only=["distances"],
            **how,  # type: ignore[arg-type]  # of evaluate
        )
