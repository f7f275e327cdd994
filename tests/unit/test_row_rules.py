"""Rules over the rows of people: stated once, kept by every row of every record, whatever the bins leave open."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.api import load
from verticil.curator import synthesize
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.knowledge.reasoning import ask
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.study.canonical import from_bytes, to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.related_tables import slot_rules
from verticil.shared.synthesis.ordered_numbers import broken_order, ordered_numbers

N = 1200
STUDY = """
schema = 1
id = "deaths"
purpose = "Visits and deaths"
expires = 2099-01-01
[[party]]
name = "clinic"
[[table]]
name = "visits"
party = "clinic"
max_rows = 4
order = "admitted"
gaps = [0, 15, 61, 200]
[[variable]]
party = "clinic"
name = "sex"
categories = ["f", "m"]
from = "public"
[[variable]]
party = "clinic"
name = "born"
type = "date"
bins = [2018-01-01, 2019-07-01, 2020-07-01]
from = "public"
[[variable]]
party = "clinic"
name = "death"
type = "date"
bins = [2019-01-01, 2019-09-01, 2020-03-01, 2020-07-01]
missing = { category = "alive", spellings = [""] }
from = "public"
[[variable]]
party = "clinic"
table = "visits"
name = "admitted"
type = "date"
bins = [2019-01-01, 2019-06-01, 2020-01-01, 2020-07-01]
from = "public"
[[variable]]
party = "clinic"
table = "visits"
name = "ward"
categories = ["heart", "birth", "death"]
from = "public"
[tables]
epsilon = 20.0
delta = 1e-9
[randomization_default]
scheme = "none"
[[knowledge.rule]]
kind = "order"
name = "no visit after death"
lower = "visits.admitted"
upper = "death"
[[knowledge.rule]]
kind = "order"
name = "no visit before birth"
lower = "born"
upper = "visits.admitted"
[[knowledge.rule]]
kind = "implication"
name = "who gives birth"
if = { "visits.ward" = "birth" }
then = { sex = "f" }
[[knowledge.rule]]
kind = "last-row"
name = "nobody leaves the ward of the dead"
if = { "visits.ward" = "death" }
"""


def study(text: str = STUDY) -> Study:
    return read_study_text(text, Path(), by_owner=True)


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return people and visits that keep the rules; half of the people die on a day at which visits would have gone on."""
    draw = np.random.default_rng(3)
    start = pd.Timestamp("2019-01-01")
    sex = draw.choice(["f", "m"], N)
    death = np.where(draw.random(N) < 0.5, draw.integers(30, 500, N), 10_000)
    born = draw.integers(-300, 5, N)
    rows = []
    for person in range(N):
        day = int(draw.integers(5, 150))
        for _ in range(draw.integers(0, 5)):
            if day > death[person]:
                break
            ward = str(draw.choice(["heart", "birth"] if sex[person] == "f" else ["heart"]))
            rows.append((person, day, ward))
            day += int(draw.integers(0, 150))
        if rows and rows[-1][0] == person and draw.random() < 0.2:
            rows[-1] = (person, rows[-1][1], "death")
    visits = pd.DataFrame(rows, columns=["id", "admitted", "ward"])
    visits["admitted"] = (start + pd.to_timedelta(visits["admitted"], unit="D")).dt.strftime("%Y-%m-%d")

    def day_texts(days: np.ndarray) -> np.ndarray:
        return (start + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d").to_numpy(object)

    died = np.where(death < 10_000, day_texts(np.minimum(death, 500)), "")
    return pd.DataFrame({"id": range(N), "sex": sex, "born": day_texts(born), "death": died}), visits


@pytest.mark.whole
def test_every_row_of_every_record_keeps_the_rules(tmp_path: Path) -> None:
    people, visits = tables()
    people.to_csv(tmp_path / "people.csv", index=False)
    visits.to_csv(tmp_path / "visits.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    made = synthesize(
        tmp_path / "people.csv",
        tmp_path / "study.toml",
        tables={"visits": tmp_path / "visits.csv"},
        id_column="id",
        out=tmp_path / "made",
        state=tmp_path / "state",
        accept_noise=True,
    )
    assert made.n_records == N
    release = load(tmp_path / "made" / "release", ca=tmp_path / "made" / "ca.crt")
    release.verify()
    of_people, of_visits = release.tables()["people"], release.tables()["visits"]
    joined = of_visits.merge(of_people, on="person")
    seen, death, born = (pd.to_datetime(joined[name]) for name in ("admitted", "death", "born"))
    died = death.notna()
    assert died.sum() > 200
    assert (seen[died] <= death[died]).all()
    assert (born <= seen).all()
    assert (joined["sex"][joined["ward"] == "birth"] == "f").all()
    last = of_visits.groupby("person")["row"].transform("max") == of_visits["row"]
    assert last[of_visits["ward"] == "death"].all()
    assert (of_visits["ward"] == "death").sum() > 20
    page = release.file("report.html").read_text()
    assert "no visit after death" in page
    assert "nobody leaves the ward of the dead" in page


def test_a_rule_of_rows_is_one_for_each_slot_and_comes_back_from_bytes() -> None:
    read = study()
    assert read.knowledge is not None
    sums = {order.name: order.variables for order in read.knowledge.orders}
    assert sums["no visit after death"] == ("visits[1].admitted", "death")
    assert ("visits[1].admitted", "visits[2].admitted.gap", "visits[3].admitted.gap", "death") in sums.values()
    assert [each for each in sums.values() if "born" in each] == [("born", "visits[1].admitted")]
    last = [rule for rule in read.knowledge.rules if rule.name.startswith("nobody leaves")]
    assert [rule.then[0].values for rule in last] == [("1",), ("2",), ("3",)]
    birth = [rule for rule in read.knowledge.rules if rule.name.startswith("who gives")]
    assert [rule.when[0].values for rule in birth] == [("1", "2", "3", "4"), ("2", "3", "4"), ("3", "4"), ("4",)]
    assert from_bytes(to_bytes(read)).knowledge == read.knowledge


def test_numbers_keep_sums_where_bins_leave_next_to_nothing() -> None:
    """Nine visits, 40 days apart or more, in the fourteen months before a death: of draws one in some hundred thousand fits."""
    text = STUDY.replace("max_rows = 4", "max_rows = 9").replace("gaps = [0, 15, 61, 200]", "gaps = [0, 40, 200]")
    read, n = study(text), 600
    assert read.knowledge is not None
    schema, codes = read.schema, []
    for variable in schema.variables:
        fixed = {"visits.rows": 9, "visits[1].admitted": 0, "death": 1, "born": 0}
        code = 1 if variable.name.endswith(".gap") else fixed.get(variable.name, 0)
        codes.append(np.full(n, code, variable.code_dtype))
    numbers = ordered_numbers(schema, read.knowledge.orders, codes, np.random.default_rng(1))
    written = {name: np.asarray(values, np.float64) for name, (values, _) in numbers.items()}
    assert broken_order(read.knowledge.orders, written, schema) is None
    gap = written["visits[5].admitted.gap"]
    assert gap.min() >= 40
    assert gap.max() < 200
    assert len(np.unique(gap)) > 20  # they are drawn, and not the least that is possible
    total = written["visits[1].admitted"] + sum(written[f"visits[{k}].admitted.gap"] for k in range(2, 10))
    late = broken_order(read.knowledge.orders, {**written, "death": total - 1}, schema)
    assert late is not None


def test_records_whose_bins_cannot_keep_a_sum_are_impossible() -> None:
    read = study()
    rules = support(read.knowledge, read.schema)
    assert rules.restricts
    codes = [np.zeros(2, variable.code_dtype) for variable in read.schema.variables]
    place = {name: k for k, name in enumerate(read.schema.names)}
    for name, code in (("visits.rows", 2), ("visits[1].admitted", 2), ("death", 1), ("visits[2].admitted.gap", 0)):
        codes[place[name]][:] = code
    for number in (3, 4):
        for name in (f"visits[{number}].admitted.gap", f"visits[{number}].ward"):
            codes[place[name]][:] = read.schema[place[name]].labels.index("no row")
    codes[place["visits[2].admitted.gap"]][1] = 2  # 61 days after January 2020 are in March, and death is before it
    assert rules.holds(codes).tolist() == [True, False]
    assert rules.find_broken_rule(codes).startswith("no visit after death")


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ("visits[1].admitted=2019-05-01 visits[2].admitted.gap=2 visits[3].admitted.gap=60 death=2019-07-02", ""),
        (
            "visits[1].admitted=2019-05-01 visits[2].admitted.gap=3 visits[3].admitted.gap=60 death=2019-07-02",
            "no visit after death (3)",
        ),
        ("visits[1].admitted=2019-05-01 visits[3].admitted.gap=62 death=2019-07-02", ""),
        ("visits[1].admitted=2019-05-01 visits[3].admitted.gap=63 death=2019-07-02", "no visit after death (3)"),
        ("visits[1].admitted=2019-05-01 visits[3].admitted.gap=63 death=alive", ""),
        ("visits[1].admitted=2019-05-01 visits[3].admitted.gap=[61,200) death=2019-06-30", "no visit after death (3)"),
        ("visits[2].admitted.gap=63 death=2019-01-02", ""),  # no first day is given, and none need be
        ("visits.rows=2 visits[2].ward=heart", ""),
        ("visits.rows=1 visits[2].ward=heart", "a row in visits[2].ward"),
        ("visits.rows=1 visits[2].ward=no_row visits[1].ward=heart", ""),
        ("visits.rows=1 visits[1].ward=no_row", "no row in visits[1].ward"),
        ("visits[1].ward=birth sex=m", "who gives birth; a row in visits[1].ward"),
        (
            "visits[1].ward=death visits[2].ward=heart",
            "nobody leaves the ward of the dead; a row in visits[2].ward",
        ),
    ],
)
def test_what_is_asked_of_rows_is_answered_with_times_added_up_and_slots_filled(given: str, rules: str) -> None:
    read = study()
    values = dict(pair.replace("_", " ").split("=") for pair in given.split())
    answer = ask(read.knowledge, read.schema, values, structure=tuple(slot_rules(read, values)))
    assert "; ".join(answer.rules) == rules
    assert answer.possible == (not rules)
    assert len(answer.words) == len(answer.rules)


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ('lower = "visits.admitted"', 'lower = "visits.admited"', "'visits.admited' is not a variable of the study"),
        ('upper = "death"', 'upper = "visits.admitted"', "both columns are of rows"),
        ('if = { "visits.ward" = "death" }', 'if = { sex = "f" }', "names no column of a related table"),
        ('if = { "visits.ward" = "death" }', 'if = { "visits.admitted" = { from = 2020-01-01 } }', "orders the rows"),
        ('if = { "visits.ward" = "death" }', 'if = { "visits.ward" = "deth" }', "'deth'"),
        (
            'kind = "last-row"',
            'kind = "soft"\nprobability = 0.5\nthen = { sex = "f" }',
            "names columns of the related table",
        ),
        (
            'missing = { category = "alive", spellings = [""] }',
            'missing = { category = "alive", spellings = [""] }\nformat = "MM/YYYY"',
            "are written in different ways",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(was: str, becomes: str, message: str) -> None:
    assert was in STUDY
    with pytest.raises(Misuse, match=re.escape(message)):
        study(STUDY.replace(was, becomes, 1))
