"""A release is judged by its own codebook, with the values beside and the difference explained; what does not fit is named."""

from __future__ import annotations

import dataclasses
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from verticil.cli.main import app
from verticil.evaluate import Evaluation, evaluate
from verticil.evaluate.shapes import REST
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

STUDY = """\
schema = 1
id = "incomes"
title = "Incomes"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "owner"
[[variable]]
party = "owner"
name = "income"
bins = [0, 20000, 40000, 60000, 80000, 100000]
[[variable]]
party = "owner"
name = "icd"
categories = ["I10", "J45", "other"]
other = "other"
[[variable]]
party = "owner"
name = "ward"
categories = ["a", "b", "c"]
[[variable]]
party = "owner"
name = "sick"
categories = ["no", "yes"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
"""


def people(seed: int, n: int = 600) -> pd.DataFrame:
    """Incomes are round thousands, eight of ten diagnoses rare; incomes say who is sick, diagnoses in which ward."""
    generator = np.random.default_rng(seed)
    income = generator.choice(np.arange(2, 100, 7) * 1000, n)
    icd = np.where(generator.random(n) < 0.2, "I10", [f"Q{code}" for code in generator.integers(10, 30, n)])
    ward = np.where(generator.random(n) < 0.2, generator.choice(["a", "b", "c"], n), np.where(icd == "I10", "a", "b"))
    sick = np.where(generator.random(n) < 0.05 + 0.9 * (income > 60_000), "yes", "no")
    return pd.DataFrame({"income": income, "icd": icd, "ward": ward, "sick": sick})


def as_released(table: pd.DataFrame, seed: int = 5) -> pd.DataFrame:
    """The same people as a release has them: spread evenly over their bins, and rare diagnoses as `other`."""
    within = np.random.default_rng(seed).uniform(0, 20_000, len(table))
    return table.assign(
        income=table["income"] // 20_000 * 20_000 + within, icd=table["icd"].where(table["icd"] == "I10", "other")
    )


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "study.toml").write_text(STUDY)
    return read_study(tmp_path / "study.toml")


@pytest.fixture
def release(tmp_path: Path, study: Study) -> Path:
    folder = tmp_path / "made" / "release"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (folder / "study.json").write_bytes(canonical.to_bytes(study))
    as_released(people(2)).to_parquet(folder / "synthetic.parquet")
    return folder


def figures(evaluation: Evaluation) -> dict[str, tuple[float, float, str]]:
    return {item.asked.key: (item.value, item.by_value, item.verdict) for item in evaluation.figures}


def test_a_release_is_judged_by_its_codebook_and_the_difference_to_values_is_explained(
    release: Path, study: Study
) -> None:
    for given in (release, release.parent):
        evaluation = evaluate(people(1), given, only=["distances"])
        for value, by_value, verdict in figures(evaluation).values():
            assert verdict == "floor"
            assert by_value > value + 0.1
        assert evaluation.facts["judged_by"] == "codebook"
    first, second = evaluation.differences["made"]
    assert first.startswith("icd: distance 0.0")
    assert first.endswith("by value: `other` holds 81% of people")
    assert second.startswith("income: distance 0.0")
    assert second.endswith("by value: values within a bin are spread evenly")
    linked = dataclasses.replace(study, release=dataclasses.replace(study.release, within_bins="linked"))
    (release / "study.json").write_bytes(canonical.to_bytes(linked))
    _, second = evaluate(people(1), release.parent, only=["distances"]).differences["made"]
    assert second.endswith("by value: values within a bin follow the shares of the bins beside")
    by_values = evaluate(people(1), release / "synthetic.parquet", only=["distances"])
    assert figures(by_values)["distance_2"][2] == "baseline"
    assert all(math.isnan(by_value) for _, by_value, _ in figures(by_values).values())
    assert by_values.differences == {}
    assert any("give the release's folder" in note for note in by_values.notes)


def test_a_column_of_which_no_value_is_in_the_release_is_compared_by_the_codebook(release: Path) -> None:
    """Every real diagnosis is rare, and every released one `other`: nearer there is none, and by value all are elsewhere."""
    as_released(people(2)).assign(icd="other").to_parquet(release / "synthetic.parquet")
    evaluation = evaluate(people(1).assign(icd="Q99"), release, only=["distances"])
    assert evaluation.differences["release"][0].startswith("icd: distance 0.000 by the codebook, 1.000 by value")


def test_models_and_tests_of_a_release_see_its_codes_and_attackers_its_numbers(release: Path) -> None:
    """A tree tells evenly spread numbers from round ones; from codes it tells nothing."""
    evaluation = evaluate(people(1), release, only=["columns", "propensity"])
    by_values = evaluate(people(1), release / "synthetic.parquet", only=["propensity"])
    assert figures(evaluation)["propensity"][0] < 1.5 < 3 < figures(by_values)["propensity"][0]
    rows = evaluation.details["columns"]
    assert {row["test"] for row in rows if row["column"] == "income"} == {"chi square"}
    assert {row["test"] for row in evaluate(people(1), people(2), only=["columns"]).details["columns"]} == {
        "chi square", "kolmogorov-smirnov",
    }  # fmt: skip
    real = people(1)
    copy = evaluate(real, real, holdout=people(3), study=release.parents[1] / "study.toml", only=["membership"])
    assert copy.metrics["membership"].query("table == 'synthetic'")["copied"].tolist() == [1.0] * 5


def test_the_command_says_both_figures_and_that_attacks_are_skipped(release: Path, tmp_path: Path) -> None:
    people(1).to_csv(tmp_path / "people.csv", index=False)
    arguments = ["evaluate", "--real", str(tmp_path / "people.csv"), "--synthetic", str(release)]
    arguments += ["--only", "distances", "--only", "disclosure", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "by value" in words
    assert "`other` holds 81% of people" in words
    assert (
        "not computed of disclosure: membership, attribution, classifiers, linkability, singling_out: each is skipped"
        in words
    )
    assert "sick is predicted: the other columns tell" in words
    assert "no attack was made" in words
    page = (tmp_path / "out" / "evaluation.html").read_text()
    assert "`other` holds 81% of people" in page
    assert page.count('<th scope="col" class="number">By value</th>') == 1


# ---- which column is predicted


def test_the_column_that_the_others_tell_best_is_predicted_and_a_duplicate_only_where_nothing_else_is_told() -> None:
    real = people(1).drop(columns=["income", "icd"])
    generator = np.random.default_rng(8)
    real["noise"] = generator.choice(list("xyz"), len(real))
    real["told"] = np.where(generator.random(len(real)) < 0.9, real["sick"], "no")
    evaluation = evaluate(real, real, only=["columns"])
    assert evaluation.facts["target"] in {"sick", "told"}
    assert isinstance(share := evaluation.facts["target_told"], float)
    assert 0.4 < share < 0.97
    twice = real[["ward", "noise"]].assign(copy=real["ward"])
    assert evaluate(twice, twice, only=["columns"]).facts["target"] in {"ward", "copy"}
    duplicated = real.assign(copy=real["noise"])
    assert evaluate(duplicated, duplicated, only=["columns"]).facts["target"] in {"sick", "told"}
    assert evaluate(real, real, only=["columns"], target="noise").facts["target_told"] is None


def test_a_constant_target_is_refused_with_the_reason() -> None:
    real = people(1)
    constant = real.assign(sick="yes")
    for synthetic in (constant, real):  # left out where it is constant everywhere, compared where it is not
        with pytest.raises(
            Misuse, match="'sick' cannot be predicted: it has one value in all 600 rows of the real table"
        ) as caught:
            evaluate(constant, synthetic, only=["columns"], target="sick")
        assert "yes" not in str(caught.value)
    with pytest.raises(Misuse, match="'sik' cannot be predicted: it is not in the tables") as caught:
        evaluate(real, real, only=["columns"], target="sik")
    assert "'sick'" in str(caught.value.hint)


# ---- what does not fit


def test_a_release_without_its_study_is_refused_unless_the_study_is_given(release: Path) -> None:
    (release / "study.json").unlink()
    with pytest.raises(Misuse, match=r"no study\.json, expected the study") as caught:
        evaluate(people(1), release, only=["distances"])
    assert "--study" in str(caught.value.hint)
    again = evaluate(people(1), release, study=release.parents[1] / "study.toml", only=["distances"])
    assert figures(again)["distance_2"][2] == "floor"
    with pytest.raises(DataFault, match="is a folder, expected a file, or the folder of a release"):
        evaluate(people(1), release.parents[1], only=["distances"])


def test_releases_of_different_studies_are_judged_by_value_and_it_is_said(
    release: Path, study: Study, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    (other / "study.json").write_bytes(canonical.to_bytes(dataclasses.replace(study, title="Another one")))
    as_released(people(3)).to_parquet(other / "synthetic.parquet")
    evaluation = evaluate(people(1), {"one": release, "two": other}, only=["distances"])
    assert evaluation.facts["judged_by"] == "values"
    assert any("of different studies" in note for note in evaluation.notes)


def test_real_values_outside_the_studys_bins_are_named_with_their_share(release: Path) -> None:
    real = people(1)
    real.loc[:29, "income"] = 777_777
    real.loc[:5, "ward"] = "kept secret"
    evaluation = evaluate(real, release, only=["distances"])
    assert evaluation.facts["outside_the_study"] == {"income": 0.05, "ward": 0.01}
    text = " ".join(evaluation.notes)
    assert "column 'income': 5.0% of the real values lie outside the study's bins" in text
    assert (
        "column 'ward': values that the study does not declare are one category: 1.0% of the rows of the real table"
        in text
    )
    assert "5.0% of the real values lie outside" in " ".join(evaluation.differences["release"])
    assert "secret" not in text
    assert "777" not in text


def test_other_columns_spellings_and_types_are_named_with_what_was_expected_and_what_stands_there(
    release: Path,
) -> None:
    real = people(1)
    wider = evaluate(real.assign(height=range(600)).rename(columns={"ward": "Ward "}), release, only=["distances"])
    assert "left out, because release does not have them: 'Ward ', 'height' ('ward' for 'Ward '?)" in wider.notes
    assert wider.facts["columns"] == ["income", "icd", "sick"]
    alike = evaluate(real.assign(wards=range(600)), release, only=["distances"])
    assert "left out, because release does not have them: 'wards'" in alike.notes
    spelled = evaluate(real.assign(sick=real["sick"].replace("yes", "YES")), release, only=["distances"])
    yes = int((real["sick"] == "yes").sum())
    assert any(f"{yes} of them differ from a declared one by upper or lower case" in note for note in spelled.notes)
    for wrong, problem, hint in (
        (
            real.assign(income="secret"),
            "column 'income': expected numbers in the study's 5 bins; none of its 1 value in 600 rows",
            "",
        ),
        (
            real.assign(ward=np.arange(600)),
            "column 'ward': expected some of the study's 3 categories; none of its 600 values",
            "",
        ),
        (
            real.assign(ward=real["ward"].str.upper()),
            "column 'ward'",
            "600 of them differ from a declared one by upper",
        ),
    ):
        with pytest.raises(DataFault) as caught:
            evaluate(wrong, release, only=["distances"])
        assert caught.value.code == "DATA_CATEGORY_UNSEEN"
        assert f"the real table: {problem}" in caught.value.message
        assert hint in str(caught.value.hint)
        assert "secret" not in str(caught.value)


def test_a_holdout_of_ten_rows_is_refused() -> None:
    with pytest.raises(DataFault, match="the holdout: 10 rows, expected at least 20"):
        evaluate(people(1), people(2), holdout=people(3, 10), only=["distances"])


# ---- plots


def test_shapes_by_hand() -> None:
    """Half of the people are (a, x), half (b, y); a synthetic table has a quarter of each combination."""
    real = pd.DataFrame({"p": list("ab") * 50, "q": list("xy") * 50})
    synthetic = pd.DataFrame({"p": list("ab") * 50, "q": list("xxyy") * 25})
    shapes = evaluate(real, synthetic, only=["columns"]).shapes["synthetic"]
    assert [column.real for column in shapes.columns] == [(0.5, 0.5)] * 2
    assert shapes.distances.tolist() == [[0.0, 0.5], [0.5, 0.0]]
    assert shapes.real[0, 1] == pytest.approx(1.0)
    assert shapes.synthetic[0, 1] == pytest.approx(0.0)
    (pair,) = shapes.worst
    assert (pair.names, pair.rows, pair.columns, pair.distance) == (("p", "q"), ("a", "b"), ("x", "y"), 0.5)
    assert pair.real == ((0.5, 0.0), (0.0, 0.5))
    assert pair.synthetic == ((0.25, 0.25), (0.25, 0.25))


def test_rare_categories_are_drawn_together_and_many_columns_by_the_worst() -> None:
    generator = np.random.default_rng(1)
    many = pd.DataFrame({f"c{place}": [f"k{value}" for value in generator.integers(0, 60, 400)] for place in range(3)})
    shapes = evaluate(many, many, only=["columns"]).shapes["synthetic"]
    assert all(len(column.labels) == 25 and column.labels[-1] == REST for column in shapes.columns)
    assert all(sum(column.real) == pytest.approx(1.0) for column in shapes.columns)
    pair = shapes.worst[0]
    assert (pair.rows[-1], len(pair.rows)) == (REST, 8)
    assert np.sum(pair.real) == pytest.approx(1.0)
    wide = pd.DataFrame({f"c{place:02}": generator.integers(0, 3, 100) for place in range(62)}).astype(str)
    other = wide.assign(c61="0")
    drawn = evaluate(wide, other, only=["columns"]).shapes["synthetic"]
    assert (drawn.n_columns, len(drawn.columns), drawn.columns[-1].name) == (62, 60, "c61")
    assert drawn.columns[-1].distance == drawn.distances[-1, -1] == pytest.approx(1 - (wide["c61"] == "0").mean())


def test_plots_are_drawings_of_each_part_and_escape_what_they_show(tmp_path: Path) -> None:
    real = people(1).rename(columns={"ward": "<ward> & \x07"})
    evaluation = evaluate(
        real, {"one": real, "two": people(2).rename(columns={"ward": "<ward> & \x07"})}, only=["distances"]
    )
    for part in (None, "columns", "pairs", "correlations"):
        plot = evaluation.plot(part, candidate="two")  # type: ignore[arg-type]
        root = ET.fromstring(plot.svg)
        assert root.tag.endswith("svg")
        assert any("<ward>" in str(element.text) for element in root.iter())
    assert evaluation.plot("columns").save(tmp_path / "columns.svg").is_file()
    titles = [
        str(element.text)
        for element in ET.fromstring(evaluation.plot("pairs").svg).iter()
        if element.tag.endswith("title")
    ]
    assert len(titles) == 16
    for wrong in ({"part": "pie"}, {"candidate": "three"}):
        with pytest.raises(Misuse, match="no plot of"):
            evaluation.plot(**wrong)  # type: ignore[arg-type]
    page = evaluation._repr_html_()
    assert page.count('<figure class="plot"><svg') == 6
    assert page.count('<table class="pair">') == 2 * 5
    assert "<ward>" not in page
    document = evaluation.to_dict()
    assert set(document["plots"]) == {"one", "two"}  # type: ignore[arg-type]


def test_shapes_are_of_codes_that_both_tables_share(release: Path) -> None:
    """By the codebook a release's plots have the study's labels, not the real table's."""
    shapes = evaluate(people(1), release, only=["columns"]).shapes["release"]
    by_name = {column.name: column for column in shapes.columns}
    assert by_name["icd"].labels == ("I10", "J45", "other")
    assert by_name["income"].labels[0].startswith("[0,")
