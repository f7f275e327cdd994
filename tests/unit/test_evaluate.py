"""`verticil evaluate` on small tables whose worth is known: what is flagged, what cannot be computed, limits, rules, bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import verticil.api as vt
from support import documents, knowledge, trial
from verticil.cli.main import app
from verticil.evaluate import Evaluation, evaluate, suite
from verticil.evaluate.coding import coding
from verticil.evaluate.evaluation import HTML, INTERNAL, JSON
from verticil.evaluate.figures import Asked, figure, summaries, worst_first
from verticil.evaluate.reading import table_of
from verticil.shared.core.errors import DataFault, GateFailed, Misuse
from verticil.shared.core.installation import install_command
from verticil.shared.study.document import Study

N = 400


def people(seed: int, n: int = N) -> pd.DataFrame:
    """Ward and age say whether people are sick, both with holes, and ward where they live. Few are alike in everything."""
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 80, n).astype(float)
    ward = generator.choice(["a", "b", "c"], n).astype(object)
    sick = generator.random(n) < 0.1 + 0.5 * (age > 50) + 0.3 * (ward == "a")
    age[:5], ward[:7] = np.nan, None
    city, job = generator.choice(list("klmnop"), n), generator.integers(1, 8, n)
    city = np.where(generator.random(n) < 0.6, np.where(ward == "a", "k", np.where(ward == "b", "l", "m")), city)
    smoker = generator.random(n) < 0.3
    return pd.DataFrame({"age": age, "ward": ward, "city": city, "job": job, "smoker": smoker, "sick": sick})


def independent(frame: pd.DataFrame, seed: int = 9) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    return pd.DataFrame({name: frame[name].to_numpy()[generator.permutation(len(frame))] for name in frame})


@pytest.fixture(scope="module")
def found() -> Evaluation:
    real = people(1, 800)
    only = [metric.name for metric in suite.METRICS if metric.name != "classifiers"]  # they learn as those of utility
    return evaluate(real, {"independent": independent(real), "copy": real}, holdout=people(2, 800), only=only)


@pytest.mark.whole
def test_a_copy_is_disclosive_and_independent_columns_are_useless(found: Evaluation) -> None:
    flags = {item.candidate: item.flags for item in found.summaries}
    assert "disclosive" in flags["copy"]
    assert "useless" not in flags["copy"]
    assert "disclosive" not in flags["independent"]
    assert "useless" in flags["independent"]
    assert [item.candidate for item in found.summaries] == ["copy", "independent"]


@pytest.mark.whole
def test_at_most_a_dozen_figures_each_with_floor_baseline_and_seeds_the_worst_first(found: Evaluation) -> None:
    assert 8 <= len(suite.headline()) <= 12
    assert len({asked.key for asked in suite.headline()}) == len(suite.headline())
    table = found.headline
    assert len(table) == 2 * len(suite.headline())
    known = table[table["verdict"] != "not computed"]
    assert known[["value", "floor", "baseline"]].notna().all(axis=None)
    assert (known["seeds"] == 5).all()
    left = table[table["verdict"] == "not computed"]
    assert left["value"].isna().all()
    assert set(left["reason"]) == {"needs a study whose knowledge states rules (--study)"}
    rank = {"baseline": 0, "between": 1, "unclear": 2, "floor": 3, "not computed": 4}
    worst = [min(rank[item.verdict] for item in row) for _, row in worst_first(found.figures)]
    assert worst == sorted(worst)


def test_what_a_table_does_not_determine_is_not_known_and_no_gain() -> None:
    """One answer for everybody determines no coefficient: intervals without ends overlap by 0, and no difference is known."""
    real = people(1, 1500)
    found = evaluate(real, real.assign(sick=True), only=["regression"], target="sick")
    rows = [row for row in found.to_dict()["metrics"]["regression"] if row["table"] == "synthetic"]  # type: ignore[index, call-overload]
    assert [row["interval_overlap"] for row in rows] == [0.0] * 5
    assert [row["standardized_difference"] for row in rows] == [None] * 5
    (row,) = found.headline.to_dict("records")
    assert (row["value"], row["verdict"]) == (0.0, "baseline")


@pytest.mark.whole
def test_the_page_needs_nothing_else_and_says_what_it_is(found: Evaluation) -> None:
    page = found._repr_html_()
    assert "<strong>Internal.</strong>" in page
    for alien in ("<script", "http://", "https://", "<img", "<link"):
        assert alien not in page
    for asked in suite.headline():
        assert asked.title in page
    for metric in suite.METRICS:
        assert metric.says
        assert (metric.title in page) == (metric.name != "classifiers")
    drawn = sum(not math.isnan(item.position) for item in found.figures)
    assert page.count('<svg class="strips" role="img"') == drawn >= 10
    assert page.count("floor and baseline cannot be told apart") == sum(
        "cannot be told apart" in item.reason for item in found.figures
    )
    assert "At most 10,000 records are compared and learned from, 5,000 tested and 1,000 attacked for each seed" in page
    assert repr(found).count("\n") == 2
    assert found.to_dict()["internal"] == INTERNAL


def test_another_seed_gives_other_numbers_and_nothing_is_overwritten(tmp_path: Path) -> None:
    """That the same one gives the same numbers of other metrics, in another process too, the test of the page sees."""
    real, other = people(1, 120), people(3, 120)
    values = [evaluate(real, other, only=["columns"], seed=seed) for seed in (4, 4, 5)]
    assert values[0].to_dict() == values[1].to_dict()
    assert values[0].to_dict()["metrics"] != values[2].to_dict()["metrics"]
    made = values[0].write(tmp_path / "a")
    assert sorted(path.name for path in made.iterdir()) == [HTML, JSON]
    with pytest.raises(Misuse, match="exists already"):
        values[0].write(made)
    with pytest.raises(Misuse, match="no such folder"):
        values[0].write(tmp_path / "none" / "a")


@pytest.mark.parametrize(("out", "says"), [(".", "FILE_EXISTS"), ("/proc/evaluation", "cannot be written")])
def test_where_nothing_can_be_written_nothing_is_computed(tmp_path: Path, out: str, says: str) -> None:
    asked = ("--real", tmp_path / "none.csv", "--synthetic", tmp_path / "none.csv", "--out", tmp_path / out)
    with pytest.raises(Misuse, match=says):
        CliRunner().invoke(app, ["evaluate", *map(str, asked)], catch_exceptions=False)


def test_only_some_metrics_and_each_that_runs_is_told_before() -> None:
    told: list[tuple[str, float]] = []
    found = evaluate(people(1), people(3), only=["columns", "knowledge"], progress=lambda *step: told.append(step))
    assert list(found.measured) == ["columns"]
    assert list(found.left_out) == ["violations"]
    assert [name for name, _ in told] == ["reading", "Tests of single columns", "done"]
    assert [part for _, part in told] == sorted(part for _, part in told)
    with pytest.raises(Misuse, match="unknown metric 'propensty'") as caught:
        evaluate(people(1), people(3), only=["propensty"])
    assert "'propensity'" in str(caught.value.hint)
    with pytest.raises(Misuse, match="column 'sik' cannot be predicted") as caught:
        evaluate(people(1), people(3), target="sik")
    assert "'sick'" in str(caught.value.hint)


def test_a_figure_differs_from_a_reference_where_one_more_seed_of_that_would_not_lie() -> None:
    """By hand: five seeds of mean .12 and deviation .0158, t of 4 degrees at .99 is 3.747: up to .12 + 3.747 * .0158 * sqrt(6/5)
    = .1849. Below .6 by the same: .5351."""
    asked = Asked(key="x", title="x", family="fidelity", better="lower", says="", floor="", baseline="")
    floor, baseline = [0.1, 0.11, 0.12, 0.13, 0.14], [0.58, 0.59, 0.6, 0.61, 0.62]
    for value, verdict in (
        (0.05, "floor"),
        (0.1848, "floor"),
        (0.185, "between"),
        (0.535, "between"),
        (0.5352, "baseline"),
        (0.8, "baseline"),
        (math.nan, "not computed"),
    ):
        assert figure(asked, "S", [value] * 5, floor, baseline).verdict == verdict
        higher = dataclasses.replace(asked, better="higher")
        turned = figure(higher, "S", [-value] * 5, [-x for x in floor], [-x for x in baseline])
        assert (turned.verdict, turned.floor) == (verdict, pytest.approx(-0.12))
    once = figure(asked, "S", [0.33, *[math.nan] * 4], floor, baseline)
    assert (once.seeds, once.value, once.verdict) == (1, 0.33, "not computed")
    assert figure(asked, "S", [0.36] * 5, floor, baseline).position == pytest.approx(0.5)
    # Of independent seeds the bound of a mean: .12 + 3.747 * .0158 / sqrt(5) = .1465.
    for value, verdict in ((0.1464, "floor"), (0.1466, "between")):
        assert figure(asked, "S", [value] * 5, floor, baseline, independent=True).verdict == verdict
    # What all of a seed's values share is in no difference: here .01, of a deviation of .0158 * 10.
    shifts = [10 * x for x in floor]
    shared = [[x + shift for shift in shifts] for x in (0.01, 0.0, 1.0)]
    assert figure(asked, "S", *shared).verdict == "between"
    together = figure(asked, "S", [0.9] * 5, floor, [0.1, 0.11, 0.12, 0.13, 0.19])
    assert math.isnan(together.position)
    assert "cannot be told apart" in together.reason
    assert together.verdict == "baseline"
    assert figure(asked, "S", [0.1] * 5, floor, [0.1, 0.11, 0.12, 0.13, 0.19]).verdict == "unclear"
    assert figure(asked, "S", [], [], []).verdict == "not computed"
    (one,) = summaries([figure(asked, "S", [math.nan] * 5, floor, baseline)])
    assert (one.of_use, one.flags) == (0, ())
    assert math.isnan(one.distance)


@pytest.mark.whole
def test_another_sample_of_the_same_people_is_no_worse_than_chance() -> None:
    """30 tables of 4 figures; a bound is passed by chance in 1 of 100 at most, so more than 6 of 120 in 1 of 4,000 cases."""
    found = [
        item
        for k in range(30)
        for item in evaluate(
            people(2 * k, 200), people(2 * k + 1, 200), only=["distances", "regression"], seed=9 * k
        ).figures
    ]
    assert len(found) == 120
    assert sum(item.verdict in {"between", "baseline"} for item in found) <= 6


def command(folder: Path, *arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--out", str(folder)])
    if isinstance(result.exception, GateFailed):
        return result.exception.exit_code, f"{result.exception.code} {result.exception}"
    return result.exit_code, result.output


def test_a_limit_that_is_passed_ends_with_6_and_one_of_nothing_known_is_refused(tmp_path: Path) -> None:
    real, other, limits = tmp_path / "real.csv", tmp_path / "other.parquet", tmp_path / "limits.toml"
    people(1).to_csv(real, index=False)
    independent(people(1)).to_parquet(other)
    asked = ("--real", real, "--synthetic", other, "--only", "distances", "--fail-over", limits)
    limits.write_text("schema = 1\n[limits]\ndistance_1 = 0.2\ndistance_2 = 0.5\n")
    assert command(tmp_path / "a", *asked)[0] == 0
    limits.write_text("schema = 1\n[limits]\ndistance_1 = 0.2\ndistance_2 = 0.01\nviolations = 0.5\n")
    code, said = command(tmp_path / "b", *asked)
    assert code == 6
    assert "LIMIT_EXCEEDED" in said
    assert "other: distance_2 0." in said
    assert "violations not computed, limit 0.5" in said
    assert (tmp_path / "b" / HTML).is_file()
    code, output = command(tmp_path / "c", *asked, "--format", "json")
    assert code == 6
    assert len(json.loads(output[output.index("{") :])["exceeded"]) == 2
    limits.write_text("schema = 1\n[limits]\ndistance_9 = 0.2\n")
    with pytest.raises(Misuse, match="distance_9"):
        CliRunner().invoke(app, ["evaluate", *map(str, asked)], catch_exceptions=False)


def test_without_scikit_learn_it_says_what_to_install_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "verticil.evaluate.evaluation.find_spec", lambda module: None if module == "sklearn" else module
    )
    with pytest.raises(Misuse, match="evaluation needs scikit-learn, not installed here") as caught:
        evaluate(people(1), people(3), only=["distances"])
    assert caught.value.hint == install_command("evaluate")


# ---- knowledge


RULE = 'kind = "implication"\nname = "married"\nif = { relationship = "Husband" }\nthen = { sex = "Male" }'


def known(n: int = 200, seed: int = 1) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    relationship = generator.choice(["Husband", "Wife", "Child"], n)
    sex = np.where(
        relationship == "Husband",
        "Male",
        np.where(relationship == "Wife", "Female", generator.choice(["Male", "Female"], n)),
    )
    education = generator.choice(["none", "some", "Bachelors"], n)
    number = pd.Series(education).map({"none": "1", "some": "9", "Bachelors": "13"})
    return pd.DataFrame({"relationship": relationship, "sex": sex, "education": education, "education-num": number})


def test_violations_are_counted_rule_by_rule(tmp_path: Path) -> None:
    study: Study = knowledge.study(tmp_path, RULE, knowledge.FUNCTION)
    real = known()
    wrong = real.copy()
    husbands = wrong.index[wrong["relationship"] == "Husband"][:10]
    graduates = wrong.index[wrong["education"] == "Bachelors"][:20]
    wrong.loc[husbands, "sex"] = "Female"
    wrong.loc[graduates, "education-num"] = "9"
    found = evaluate(real, {"right": real, "wrong": wrong}, study=study, only=["knowledge"], full=True)
    rows = found.metrics["violations"]
    assert (rows[rows["table"] == "right"].drop(columns=["table", "seed"]) == 0).all(axis=None)
    # Half of the 200 records are in a round; over the five seeds 10 and 20 of 200 are 5 and 10 % of them, give or take chance.
    mean = rows[rows["table"] == "wrong"].mean(numeric_only=True)
    assert mean["rule married"] == pytest.approx(10 / 200, abs=0.03)
    assert mean["violations"] == pytest.approx(len({*husbands, *graduates}) / 200, abs=0.05)
    by_function = [name for name in rows.columns if "education" in name]
    assert mean[by_function[0]] == pytest.approx(20 / 200, abs=0.04)
    verdicts = {item.candidate: item.verdict for item in found.figures}
    assert verdicts == {"right": "floor", "wrong": "between"}
    assert found.facts["rules"] == ["married", by_function[0].removeprefix("rule ")]


def test_a_declared_column_of_too_many_categories_shifts_no_rule(tmp_path: Path) -> None:
    """The rule is about columns behind one whose categories are the real table's."""
    many = ", ".join(f'"p{number}"' for number in range(150))
    place = f'[[variable]]\nparty = "register"\nname = "place"\ncategories = [{many}]\n'
    head = knowledge.HEAD.replace("[[variable]]", place + "[[variable]]", 1)
    study = knowledge.study(tmp_path, RULE, head=head)
    real = known().assign(place=[f"p{number % 150}" for number in range(200)])
    wrong = real.assign(sex=np.where(real["relationship"] == "Husband", "Female", real["sex"]))
    found = coding(table_of(real, name="R"), {"S": table_of(wrong, name="S")}, study=study)
    assert any("'place': the study has 150 categories" in note for note in found.notes)
    assert found.support is not None
    assert found.support.violations(found.real.codes[: len(found.support.schema.variables)]) == {}
    broken = found.support.violations(found.synthetic["S"].codes)
    assert broken == {"married": int((real["relationship"] == "Husband").sum())}


FLAG = """
kind = "soft"
if = { relationship = ["Husband", "Wife"], age = { from = 30 } }
then = { sex = "Male" }
probability = 0.5
flag = "settled"
"""
SETTLED = '[[variable]]\nparty = "register"\nname = "settled"\ncategories = ["no", "yes"]\n'


def test_columns_that_follow_are_written_for_tables_of_people(tmp_path: Path) -> None:
    """As if the tables had them; what follows from a value that the study does not know is no category of the study."""
    head = knowledge.HEAD.replace("[randomization", f"{SETTLED}[randomization", 1)
    study = knowledge.study(tmp_path, RULE, FLAG, knowledge.FUNCTION, head=head)
    generator = np.random.default_rng(3)
    real, others = (known(seed=seed).assign(age=generator.integers(0, 90, 200)) for seed in (1, 2))
    settled = [np.where((t["relationship"] != "Child") & (t["age"] >= 30), "yes", "no") for t in (real, others)]
    by_hand, candidate = real.assign(settled=settled[0]), others.assign(settled=settled[1])
    assert 0.2 < (by_hand["settled"] == "yes").mean() < 0.8
    bare = real.drop(columns="education-num")
    found = coding(
        table_of(bare, name="R"),
        {"S": table_of(candidate, name="S"), "T": table_of(bare, name="T")},
        table_of(others.drop(columns="education-num"), name="H"),
        study=study,
    )
    expected = coding(table_of(by_hand, name="R"), {"S": table_of(candidate, name="S")}, study=study)
    assert (
        found.real.names
        == expected.real.names
        == (*known().columns[:2], "age", "education", "settled", "education-num")
    )
    for table in (found.real, found.synthetic["T"]):
        assert all(np.array_equal(a, b) for a, b in zip(table.codes, expected.real.codes, strict=True))
    assert found.holdout is not None
    assert all(np.array_equal(a, b) for a, b in zip(found.holdout.codes, expected.synthetic["S"].codes, strict=True))
    assert "column 'settled' is written from relationship, age in the real table, as the study says" in found.notes
    unknown = bare.assign(relationship="Cousin", education="unheard of")
    with pytest.raises(DataFault):  # of a whole column
        coding(table_of(unknown, name="R"), {"S": table_of(candidate, name="S")}, study=study)
    unknown.loc[100:] = bare.loc[100:]
    found = coding(table_of(unknown, name="R"), {"S": table_of(candidate, name="S")}, study=study)
    assert found.labels[-1][-1] == "not in the study"
    assert (found.real.codes[-1][:100] == 3).all()
    assert (found.real.codes[-2][:100] == 0).all()
    assert np.array_equal(found.real.codes[-1][100:], expected.real.codes[-1][100:])


def test_what_follows_from_the_predicted_column_does_not_tell_it(tmp_path: Path) -> None:
    """Education is drawn of three by chance, and its number says it: who learns that is right in all cases, else in a third."""
    study = knowledge.study(tmp_path, knowledge.FUNCTION)
    found = evaluate(known(400), known(400, seed=2), study=study, only=["utility", "regression"], target="education")
    assert found.metrics["utility"]["accuracy"].max() < 0.5
    assert {row["column"] for row in found.details["regression"]} == {"constant", "relationship", "sex"}


# ---- a party


WORN = """knowledge.rule = [
  { kind = "soft", if = { smoker = "yes", age = "old" }, then = { claims = "many" }, probability = 0.5, flag = "worn" },
]"""
"""No table has its flag, and the synthetic records do."""


@pytest.mark.whole
def test_a_party_holds_its_own_columns_against_a_release_and_is_told_what_nobody_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.tried(
        'randomization_default = { scheme = "symmetric", epsilon = 3.0 }\nstructure = { method = "tree" }\n' + WORN,
        tmp_path,
        more='{ party = "clinic", name = "worn", categories = ["no", "yes"] },',
    )
    authority = hashlib.sha256((tmp_path / "ca.crt").read_bytes()).hexdigest()
    (tmp_path / "federation.toml").write_text(documents.FEDERATION.replace("0" * 64, authority))
    config = tmp_path / "party.toml"
    config.write_text(documents.party_toml(datasets=documents.PEOPLE.replace("people.csv", "clinic.csv")))

    def refused(*_: object) -> None:
        raise AssertionError("something would leave")

    monkeypatch.setattr(socket.socket, "connect", refused)
    arguments = ["party", "evaluate", str(tmp_path / "release"), "--config", str(config), "--only", "distances"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out" / JSON).read_text())
    assert document["facts"]["columns"] == ["age", "smoker", "worn"]
    assert "column 'worn' is written from age, smoker in the real table, as the study says" in document["notes"]
    assert document["across"]["pairs_across"] == 3
    assert "Nobody has both columns" in document["across"]["says"]
    assert [pair["parties"] for pair in document["across"]["pairs"]] == [["clinic", "insurer"]] * len(
        document["across"]["pairs"]
    )
    assert "4. What nobody in this federation can evaluate" in (tmp_path / "out" / HTML).read_text()
    people = pd.read_csv(tmp_path / "clinic.csv").merge(pd.read_csv(tmp_path / "insurer.csv"), on="id")
    release = vt.load(tmp_path / "release", ca=tmp_path / "ca.crt")
    by_python = vt.evaluate(people.drop(columns="id"), release, only=["knowledge"])
    assert by_python.facts["columns"] == ["age", "smoker", "claims", "worn"]
    assert by_python.headline["verdict"].tolist() == ["floor"]
    synthetic = tmp_path / "release" / "synthetic.csv"
    synthetic.chmod(0o644)
    synthetic.write_text(synthetic.read_text().replace("yes", "no", 1))
    with pytest.raises(GateFailed, match=r"synthetic\.csv"):
        CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "not")], catch_exceptions=False)
    assert not (tmp_path / "not").exists()


def test_one_record_and_a_release_that_is_no_table_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataFault, match="the holdout: 1 row, expected at least 20"):
        evaluate(people(1), people(3), holdout=people(2).iloc[:1])
    with pytest.raises(DataFault, match="is a folder, expected a file"):
        evaluate(people(1), tmp_path)
