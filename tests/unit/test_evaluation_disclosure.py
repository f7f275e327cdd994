"""Attacks on tables of which it is known what they tell: fresh samples, planted leaks, planted rules, no holdout."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.knowledge import FUNCTION, study
from verticil.evaluate.coding import coding
from verticil.evaluate.disclosure import METRICS
from verticil.evaluate.evaluation import Evaluation, evaluate
from verticil.evaluate.reading import table_of
from verticil.evaluate.resampling import rounds

HEADLINES = {"membership", "attribution", "linkability", "singling_out"}
NEAREST = ["membership", "attribution", "linkability", "singling_out"]


def people(seed: int, n: int) -> pd.DataFrame:
    """Ten columns that hang together through a hidden one."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=n)
    found = {}
    for place in range(6):
        mixed = hidden + generator.normal(size=n) * 1.5
        found[f"kind{place}"] = np.digitize(mixed, np.linspace(-2, 2, 3 + place % 4)).astype(str)
    for place in range(4):
        found[f"number{place}"] = np.round(50 + 10 * (hidden + generator.normal(size=n)), 1)
    return pd.DataFrame(found)


def attacked(real: pd.DataFrame, synthetic: pd.DataFrame, holdout: pd.DataFrame | None, **kinds: object) -> Evaluation:
    return evaluate(real, {"S": synthetic}, holdout=holdout, only=kinds.pop("only", NEAREST), **kinds)  # type: ignore[arg-type]


def verdicts(found: Evaluation) -> dict[str, str]:
    return {figure.asked.key: figure.verdict for figure in found.figures}


def leaky(real: pd.DataFrame, fresh: pd.DataFrame, share: float) -> pd.DataFrame:
    """A share of a fresh sample's records replaced by real ones."""
    chosen = np.random.default_rng(5).choice(len(real), int(share * len(fresh)), replace=False)
    return pd.concat([real.iloc[chosen], fresh.iloc[len(chosen) :]], ignore_index=True)


def overfit(real: pd.DataFrame, fresh: pd.DataFrame, column: str) -> pd.DataFrame:
    """A fresh sample, in which one column is that of the real record nearest by all others: learned by heart."""
    apart = np.zeros((len(fresh), len(real)))
    for name in (name for name in real.columns if name != column):
        a, b = fresh[name].to_numpy()[:, None], real[name].to_numpy()[None, :]
        apart += np.abs(a - b) / 40 if name.startswith("number") else a != b
    return fresh.assign(**{column: real[column].to_numpy()[apart.argmin(axis=1)]})


REAL, HOLDOUT, FRESH = people(1, 2000), people(2, 1000), people(3, 2000)


@pytest.mark.whole
def test_a_fresh_sample_is_not_flagged_and_a_copy_is() -> None:
    """Each figure flags a fresh sample in at most one of 100 cases (Student's bound, five seeds), so one of 25 of all four."""
    fresh = attacked(REAL, FRESH, HOLDOUT)
    assert verdicts(fresh) == dict.fromkeys(HEADLINES, "floor")
    copy = attacked(REAL, REAL, HOLDOUT)
    assert set(verdicts(copy)) == HEADLINES
    assert "floor" not in verdicts(copy).values()
    assert all(figure.baseline > 0.5 for figure in copy.figures)


@pytest.mark.whole
def test_a_few_copied_records_are_found() -> None:
    """Four of 100 records; the chance that a sound table shows it is that of the test above."""
    real, holdout, fresh = people(11, 5000), people(12, 3000), people(13, 5000)
    assert verdicts(attacked(real, fresh, holdout, only=["membership"])) == {"membership": "floor"}
    found = attacked(real, leaky(real, fresh, 0.04), holdout, only=["membership"])
    (figure,) = found.figures
    assert figure.verdict != "floor"
    assert figure.value == pytest.approx(0.01 + 0.04, abs=0.015)
    rows = found.metrics["membership"].query("table == 'S'")
    # Of 5,000 people, 200 of them copied, 3,000 are attacked: 120, with a standard deviation of 7.
    assert rows["copied"].mean() == pytest.approx(0.04, abs=4 * 7 / 3000)
    assert rows["copied_of_others"].max() == 0.0


def test_one_overfit_column_is_found_and_named() -> None:
    found = attacked(REAL, overfit(REAL, FRESH, "kind3"), HOLDOUT, only=["attribution"])
    (figure,) = found.figures
    assert figure.verdict != "floor"
    rows = found.metrics["attribution.details"]
    assert rows.loc[rows["advantage"].idxmax(), "column"] == "kind3"


def test_nobody_is_attacked_twice() -> None:
    coded = coding(table_of(REAL, name="R"), {"S": table_of(FRESH, name="S")}, table_of(HOLDOUT, name="H"))
    place = np.arange(REAL.shape[0])
    real, holdout = (
        dataclasses.replace(table, values=(*table.values[:-1], place[: table.n].astype(float)))
        for table in (coded.real, coded.holdout)
        if table is not None
    )
    made = list(rounds(real, holdout, size=1000, seed=3, full=False))
    for tables in ([one.members for one in made], [one.others for one in made]):
        ids = np.concatenate([table.values[-1] for table in tables])
        assert len(set(ids.tolist())) == len(ids) == 1000  # as many members as there are others
    for one in made:
        for inside, whole in ((one.members, one.real), (one.others, one.tested)):
            assert all(np.array_equal(a, b[: inside.n]) for a, b in zip(inside.codes, whole.codes, strict=True))
        kept = {id_ for table in (one.real, one.floor) for id_ in table.values[-1].tolist()}
        assert len(kept) == 2000


@pytest.mark.whole
def test_the_same_seed_gives_the_same_figures_and_every_metric_runs_alone() -> None:
    whole = attacked(REAL[:600], FRESH[:300], HOLDOUT[:200], only=NEAREST, seed=4).to_dict()
    again = attacked(REAL[:600], FRESH[:300], HOLDOUT[:200], only=["linkability", "singling_out"], seed=4).to_dict()
    for name in ("linkability", "singling_out"):
        assert again["metrics"][name] == whole["metrics"][name]  # type: ignore[index, call-overload]
        assert again["details"][name] == whole["details"][name]  # type: ignore[index, call-overload]
    assert len([asked for metric in METRICS for asked in metric.figures]) <= 4


def test_without_a_holdout_attacks_are_skipped_and_it_is_said() -> None:
    evaluation = attacked(REAL[:200], FRESH[:100], None, only=["disclosure"])
    assert {figure.asked.key for figure in evaluation.figures} == HEADLINES
    assert {(figure.verdict, math.isnan(figure.value)) for figure in evaluation.figures} == {("not computed", True)}
    assert set(evaluation.left_out) == {metric.name for metric in METRICS}
    assert all("is skipped" in reason and "--holdout" in reason for reason in evaluation.left_out.values())
    assert evaluation.measured == {}
    assert "was skipped" in evaluation._repr_html_() or "is skipped" in evaluation._repr_html_()


def test_too_few_people_are_not_attacked_and_it_is_said() -> None:
    found = attacked(REAL[:90], FRESH[:60], HOLDOUT[:90], only=["linkability"])
    (figure,) = found.figures
    assert figure.verdict == "not computed"
    assert "is skipped: it needs 100 records of the real table and of the holdout" in figure.reason


def test_an_attack_that_nobody_withstands_tells_nothing_of_members() -> None:
    """One record is nearest to everybody by all columns: every link is made, of members and others alike."""
    same = FRESH.assign(**{name: FRESH[name].iloc[0] for name in FRESH})
    (figure,) = attacked(REAL[:400], same[:200], HOLDOUT[:300], only=["linkability"]).figures
    assert (figure.value, figure.verdict) == (0.0, "floor")


# ---- rules


def families(seed: int, n: int) -> pd.DataFrame:
    """Keeps the rules: a husband is male, a wife female, no child has a degree; education determines its number."""
    generator = np.random.default_rng(seed)
    relationship = generator.choice(["Husband", "Wife", "Child"], n, p=[0.4, 0.2, 0.4])
    sex = np.where(
        relationship == "Husband",
        "Male",
        np.where(relationship == "Wife", "Female", generator.choice(["Male", "Female"], n)),
    )
    child = relationship == "Child"
    education = np.where(
        child, generator.choice(["none", "some"], n), generator.choice(["none", "some", "Bachelors"], n)
    )
    numbers = {"none": "1", "some": "9", "Bachelors": "13"}
    return pd.DataFrame(
        {
            "relationship": relationship,
            "sex": sex,
            "education": education,
            "education-num": [numbers[level] for level in education],
            "years": generator.integers(0, 30, n),
        }
    )


RULES = (
    'name = "husband"\nkind = "implication"\nif = { relationship = ["Husband"] }\nthen = { sex = ["Male"] }',
    'name = "wife"\nkind = "implication"\nif = { relationship = ["Wife"] }\nthen = { sex = ["Female"] }',
    'name = "child"\nkind = "implication"\nif = { relationship = ["Child"] }\nthen = { education = ["none", "some"] }',
)


def test_what_rules_determine_is_nobodys_success(tmp_path: Path) -> None:
    """Without them the attack takes for inference what anybody knows who has no published record."""
    real, holdout, fresh = families(1, 2000), families(2, 1000), families(3, 2000)
    knowing = study(tmp_path, *RULES, 'name = "number"' + FUNCTION)
    found = {
        name: evaluate(real, {"S": fresh}, holdout=holdout, study=given, only=["attribution"])
        .metrics["attribution.details"]
        .set_index("column")
        for name, given in (("with", knowing), ("without", None))
    }
    without, given = found["without"], found["with"]
    assert without["determined"].eq(0).all()
    assert without.loc["education-num", "attributed"] > 0.99
    assert given.loc["education-num", "determined"] == 1.0
    assert given.loc["education-num", "attributed"] == given.loc["education-num", "most_common"] == 0.0
    assert math.isnan(given.loc["education-num", "risk"])
    # Six of ten are husbands and wives; of the others nothing tells the sex.
    assert given.loc["sex", "determined"] == pytest.approx(0.6, abs=4 * math.sqrt(0.24 / 400))
    assert given.loc["sex", "attributed"] == pytest.approx(0.2, abs=4 * math.sqrt(0.24 / 400))
    assert without.loc["sex", "attributed"] == pytest.approx(0.8, abs=4 * math.sqrt(0.24 / 400))
    # Education follows from its number, so that it is determined, too; relationship from nothing.
    assert given.loc["education", "determined"] == 1.0
    assert given.loc["relationship", "determined"] < 1.0


def test_an_attacker_with_rules_guesses_better_from_a_table_that_breaks_them(tmp_path: Path) -> None:
    """Independent columns put women among husbands; the attacker knows better, of members and others alike."""
    real, holdout = families(1, 2000), families(2, 1000)
    generator = np.random.default_rng(1)
    broken = pd.DataFrame({name: generator.permutation(column) for name, column in real.items()})
    plain, knowing = study(tmp_path), study(tmp_path, *RULES[2:])
    rows = [
        evaluate(real, {"S": broken}, holdout=holdout, study=given, only=["attribution"])
        .metrics["attribution.details"]
        .set_index("column")
        .loc["education"]
        for given in (plain, knowing)
    ]
    assert rows[1]["attributed"] > rows[0]["attributed"] + 0.03
    assert rows[1]["attributed_of_others"] > rows[0]["attributed_of_others"] + 0.03
    assert rows[1]["most_common"] >= rows[0]["most_common"]


def test_parties_columns_are_the_two_sides(tmp_path: Path) -> None:
    real, holdout, fresh = families(1, 400), families(2, 200), families(3, 400)
    found = evaluate(real, {"S": fresh}, holdout=holdout, study=study(tmp_path), only=["linkability"])
    assert found.metrics["linkability.details"]["one_side"].tolist() == ["school"]
    assert found.metrics["linkability.details"]["columns"].tolist() == [3]
