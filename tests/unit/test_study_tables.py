"""``[tables]``: which tables a study measures, how much noise they carry, what it costs whom, and what does not go with it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.documents import study_toml
from verticil.analyst.lint import lint
from verticil.cli.main import main
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.gaussian import analytic_sigma
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, delta_at
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import NoisyTables, from_json, plan_events, to_json
from verticil.shared.privacy.plan import budget_plan
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.study import canonical, rules
from verticil.shared.study.document import QuorumRule, ShareRule, Study, TablesRule
from verticil.shared.study.reading import read_study
from verticil.shared.study.sub_model import obstacle
from verticil.shared.study.table_rules import check_tables
from verticil.shared.study.tables import tables_noise, tables_of, tables_sigma
from verticil.shared.study.unit import Unit

RULE = TablesRule(epsilon=1.0, delta=1e-9, three_way=(("income", "age", "weight"),))


@pytest.fixture
def study(release_study: Study) -> Study:
    """Five columns, each with a bound but for the last, and noise on their tables."""
    return dataclasses.replace(release_study, tables=RULE)


def test_it_is_read_from_a_file_and_from_bytes_and_enters_the_digest(tmp_path: Path) -> None:
    def read(more: str) -> Study:
        columns = ("north.sex: f m", "north.age: young old", "south.visits: few many")
        (tmp_path / "study.toml").write_text(study_toml(*columns, minimum=100, epsilon=2.0) + more)
        return read_study(tmp_path / "study.toml")

    plain, noisy = read(""), read("[tables]\nepsilon = 1\ndelta = 1e-9\n")
    assert noisy.tables == TablesRule(epsilon=1.0, delta=1e-9)
    assert (
        canonical.digest(dataclasses.replace(noisy, tables=None)) == canonical.digest(plain) != canonical.digest(noisy)
    )
    named = read('[tables]\nepsilon = 1\ndelta = 1e-9\nthree_way = [["visits", "sex", "age"]]\n')
    assert canonical.from_bytes(canonical.to_bytes(named)) == named
    assert tables_of(named) == ((0, 1), (0, 2), (1, 2), (0, 1, 2))
    with pytest.raises(Misuse, match=r"tables\.epsilon: missing"):
        read("[tables]\ndelta = 1e-9\n")
    with pytest.raises(Misuse, match="three_way"):
        read('[tables]\nepsilon = 1\ndelta = 1e-9\nthree_way = [["visits", "sex"]]\n')


def test_all_pairs_are_measured_and_the_noise_is_proved_for_a_person_who_is_replaced(study: Study) -> None:
    """2 T counts change by one; sigma is the least with 11 significant bits, near the Gaussian's for sensitivity sqrt(2 T)."""
    rules.check(study, source="study")
    assert tables_of(study) == (*itertools.combinations(range(5), 2), (0, 2, 3))
    sigma, changed = tables_sigma(study), 2 * 11
    assert delta_at(Counter({DiscreteGaussianLoss(sigma=sigma): changed}), 1.0) <= 1e-9
    assert sigma == pytest.approx(analytic_sigma(1.0, 1e-9, sensitivity=math.sqrt(changed)), rel=2e-3)
    alone = dataclasses.replace(study, units=study.units[:1])
    assert tables_of(dataclasses.replace(alone, tables=dataclasses.replace(RULE, three_way=()))) == ((0,),)


def test_what_it_costs_is_what_was_asked_and_the_two_totals_are_apart(study: Study) -> None:
    columns, tables = (
        [item.event for item in plan_events(study, "clinic") if (item.unit is None) == bool(what)] for what in (0, 1)
    )
    (event,) = tables
    assert isinstance(event, NoisyTables)
    assert (event.sigma, event.tables, event.sensitivity) == (tables_sigma(study), 11, math.sqrt(22))
    assert cost_of(event) == Cost(epsilon=1.0, delta=1e-9)
    assert from_json(to_json(event)) == event
    assert {item.reader for item in columns} == {"miner"}
    plain = privacy_statement(dataclasses.replace(study, tables=None))
    bounded = dataclasses.replace(study, units=study.units[:4])
    for asked in (study, bounded):
        said = privacy_statement(asked)
        costs = {item.reader.name: item.cost for item in said.accounts}
        assert costs["columns"].delta == 0
        assert costs["public"] == Cost(epsilon=1.0, delta=1e-9)  # once, though both parties record it
        assert said.together == costs["columns"]  # what the miner learns of the columns, and nothing on top
    assert [item.cost for item in plain.accounts] == [Cost(epsilon=math.inf)] * 2
    assert all("rests on the miner's word" in item.words for item in privacy_statement(study).events)
    plan = budget_plan(study, 1000)
    assert {item.account: item.epsilon for item in plan.person} == {"columns": math.inf, "public": 1.0}
    (draw,) = (draw for draw in plan.parties[0].draws if draw.account == "others")
    assert draw.sigma == tables_sigma(study)


def changed(study: Study, **parts: Any) -> Study:
    structure = {key: parts.pop(key) for key in tuple(parts) if hasattr(study.structure, key)}
    tables = {key: parts.pop(key) for key in tuple(parts) if hasattr(RULE, key)}
    return dataclasses.replace(
        study,
        structure=dataclasses.replace(study.structure, **structure),
        tables=dataclasses.replace(RULE, **tables),
        **parts,
    )


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"epsilon": 0.0}, r"tables\.epsilon: got 0"),
        ({"epsilon": math.inf}, r"tables\.epsilon: got inf"),
        ({"epsilon": math.nan}, r"tables\.epsilon: got nan"),
        ({"delta": 0.0}, r"tables\.delta: got 0"),
        ({"delta": 0.02}, r"tables\.delta: got 0\.02, expected more than 0 and at most 0\.01"),
        ({"delta": 1e-40}, r"tables: delta 1e-40, expected at least 1e-30"),
        ({"epsilon": 1e-9}, r"tables: noise of .* people on each count of 11 tables, expected at most 1.638e\+04"),
        ({"three_way": (("age", "smoker", "nobody"),)}, r"three_way: 'nobody' is not a variable"),
        ({"three_way": (("age", "smoker", "age"),)}, r"three_way: 'age, smoker, age' names a column twice"),
        (
            {"three_way": (("age", "smoker", "income"), ("income", "age", "smoker"))},
            r"three_way: 'income, age, smoker': the table of these three stands there already",
        ),
        ({"max_family_cells": 17}, r"three_way: 'income, age, weight': a table of 18 cells, expected at most 17"),
        ({"method": "hill-climb", "score": "bdeu"}, r"structure\.score: 'bdeu' "),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused_by_name(study: Study, parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(Misuse, match=problem):
        rules.check(changed(study, **parts), source="study")


def test_sets_compounds_and_the_other_model_are_refused_by_name(study: Study, peer_study: Any) -> None:
    joint = Unit(
        variables=("income", "weight"), owner="registry", scheme="symmetric", transition=quantize(symmetric(6, epsilon=1.0))
    )  # fmt: skip
    compound = dataclasses.replace(study, units=(*study.units[:2], joint, study.units[4]))
    with pytest.raises(Misuse, match=r"'income, age, weight': some of them are randomized in one draw"):
        rules.check(compound, source="study")
    some = dataclasses.replace(study.units[0], scheme="subset", transition=subset_selection(3, epsilon=0.5, size=1))
    with pytest.raises(
        Misuse, match=r"column 'age': 'subset' releases a set of categories .* several cells of a table"
    ):
        check_tables(dataclasses.replace(study, units=(some, *study.units[1:])), source="study")
    peers = peer_study(
        tables=TablesRule(epsilon=1.0, delta=1e-9), share=ShareRule(epsilon=1.0, delta=1e-9, noise="discrete-gaussian")
    )
    with pytest.raises(Misuse, match=r"tables: goes with the model 'central'.* got 'peer'") as caught:
        rules.check(peers, source="study")
    assert "[share]" in (caught.value.hint or "")
    with pytest.raises(Misuse, match=r"share: does not go with the model 'central'"):
        rules.check(dataclasses.replace(study, share=ShareRule()), source="study")


def test_a_sub_model_without_a_column_that_a_table_names_is_not_approved_with_it(study: Study) -> None:
    waits = dataclasses.replace(study, quorum=QuorumRule(deadline_seconds=3600, minimum=1))
    assert obstacle(waits, ["clinic"]) == "tables.three_way names 'age', a column of party 'clinic'"


def test_an_event_of_before_is_unchanged(release_study: Study) -> None:
    """No study without the table causes another event than before."""
    assert {item.event.reader for item in plan_events(release_study, "clinic")} == {"columns"}
    assert '"reader"' not in events.to_json(plan_events(release_study, "clinic")[0].event)


def test_check_says_both_totals_sigma_and_when_noise_hides_the_tables(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def codes(asked: Study, n: int) -> dict[str, str]:
        return {finding.code: finding.message for finding in lint(asked, n=n)}

    noise = tables_noise(study)
    assert (noise.tables, noise.cells) == (
        11,
        3 * 2 + 3 * 2 + 3 * 3 + 3 * 2 + 2 * 2 + 2 * 3 + 2 * 2 + 2 * 3 + 2 * 2 + 3 * 2 + 18,
    )
    at = noise.sigma * noise.cells / noise.tables  # people at whom the average cell has sigma of them
    assert "noise-on-tables" in codes(study, math.ceil(at))
    assert (
        f"noise of standard deviation {noise.sigma:.4g} on each count of 11"
        in codes(study, int(at))["noise-above-cells"]
    )
    assert "delta-large" in codes(changed(study, delta=1e-3), 1000)
    assert "delta-large" not in codes(study, 1000)
    weak = study_toml("north.sex: f m", "south.visits: few many", minimum=100, epsilon=0.2)
    (path := tmp_path / "study.toml").write_text(weak + "[tables]\nepsilon = 0.5\ndelta = 1e-9\n")
    assert "noise-on-tables-idle" in codes(read_study(path), 20_000)
    assert main(["study", "check", str(path), "--n", "20000"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "what everybody but the miner learns rests on the miner's word" in shown
    assert "one person at all parties account columns: epsilon 0.40 one person" in shown
    assert "one person at all parties account public: epsilon 0.50, delta 1e-09" in shown
    assert main(["study", "check", str(path), "--n", "20000", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tables"] == {"tables": 1, "cells": 4, "sigma": tables_sigma(read_study(path))}
