"""``model = "masked"``: what a study may ask, who deals, who is covered and who is not, its plan and its bytes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.documents import study_toml
from support.studies import numbered, study_of
from verticil.analyst.lint import lint
from verticil.analyst.models import compare_models
from verticil.analyst.prediction import predict_study
from verticil.cli.main import main
from verticil.miner.learning.exact_tables import tables_with
from verticil.miner.storage.noisy_table_files import read_tables, write_tables
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.record import decode, encode
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.pair_products import sizes_of
from verticil.shared.masked.round.schedule import triples_of
from verticil.shared.mechanisms.privacy import Breach, epsilon
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.numerics.joint.prediction import predict
from verticil.shared.privacy.accounts import Cost
from verticil.shared.study import canonical, rules
from verticil.shared.study.document import LeftOut, MaskedRule, QuorumRule, Study, TablesRule
from verticil.shared.study.masked import (
    bytes_of,
    covered_coalitions,
    dealers,
    deals_by_party,
    list_exposures,
    plan_of,
    slot_milliseconds,
    triples,
)
from verticil.shared.study.protocols import table_deviations
from verticil.shared.study.reading import read_study
from verticil.shared.study.sub_model import narrow
from verticil.shared.study.tables import tables_of, tables_sigma

SIZES = {"a": (2, 3), "b": (4,), "c": (5, 2), "d": (3,), "e": (2,)}
ADULT = {"one": (9, 42, 7, 16, 8), "two": (15, 6, 5, 16, 2), "three": (20, 20, 22)}


def masked(parties: int, *, sizes: dict[str, tuple[int, ...]] = SIZES, **said: Any) -> Study:
    """A study of the first so many parties; `said` in ``[masked]``."""
    names = list(sizes)[:parties]
    variables = [
        dataclasses.replace(variable, name=f"{name}{place}")
        for name in names
        for place, variable in enumerate(numbered(sizes[name], name))
    ]
    rule = MaskedRule(**said) if said else None
    return study_of(
        variables,
        epsilon=6.0,
        model="masked",
        tables=TablesRule(epsilon=1.0, delta=1e-9),
        masked=rule,
        parameters=dataclasses.replace(study_of(variables).parameters, prior_count=None),
        structure={"method": "hill-climb", "score": "bic"},
    )


def refused(study: Study) -> Misuse:
    with pytest.raises(Misuse) as error:
        rules.check(study, source="study")
    return error.value


# ---- reading


def test_it_is_read_from_a_file_with_a_floor_of_six_and_enters_the_digest(tmp_path: Path) -> None:
    columns = ("north.sex: f m", "north.age: young old", "south.visits: few many")
    text = study_toml(*columns, minimum=100, keys='model = "masked"\n')
    tables = "[tables]\nepsilon = 1\ndelta = 1e-9\n"

    def read(text: str) -> Study:
        (tmp_path / "study.toml").write_text(text)
        return read_study(tmp_path / "study.toml")

    said = read(text + tables + '[masked]\ndealer = "miner"\ntolerate = 1\nunchecked = ["south"]\n')
    assert said.masked == MaskedRule(dealer="miner", unchecked=("south",))
    assert canonical.from_bytes(canonical.to_bytes(said)) == said
    plain = read(text + tables)
    assert plain.masked is None
    assert [(unit.scheme, round(epsilon(unit.transition), 9)) for unit in plain.units] == [("symmetric", 6.0)] * 3
    assert canonical.digest(plain) != canonical.digest(said)
    with pytest.raises(Misuse, match=r"masked\.dealer"):
        read(text + tables + '[masked]\ndealer = "nobody"\n')
    with pytest.raises(Misuse, match=r"masked\.deal: unknown key"):
        read(text + tables + '[masked]\ndeal = "miner"\n')
    with pytest.raises(Misuse, match=r"masked: goes with the model 'masked', got 'central'"):
        read(study_toml(*columns, epsilon=2.0) + tables + '[masked]\ndealer = "miner"\n')


# ---- the plan


def test_a_plan_is_a_function_of_the_study_and_the_people_and_has_one_form() -> None:
    study = masked(3)
    rules.check(study, source="study")
    plan = plan_of(study, 1000)
    assert plan == plan_of(study, 1000)
    assert decode(Plan, encode(plan), source="plan") == plan
    assert plan.digest != plan_of(study, 1001).digest
    assert plan.digest != plan_of(study, 1000, round=2).digest
    assert plan_of(study, 1000, proposal=b"\1" * 32).study == b"\1" * 32
    assert plan.effective == canonical.digest(study) == plan.study
    assert plan.tables == tables_of(study)
    assert (plan.owners, plan.sizes) == ((0, 0, 1, 2, 2), (2, 3, 4, 5, 2))
    assert [sizes_of(plan, name) for name in plan.parties] == [(2, 3), (4,), (5, 2)]
    assert dict(zip(plan.pairs, plan.dealers, strict=True)) == {("a", "b"): "c", ("a", "c"): "b", ("b", "c"): "a"}
    assert [plan.crosses(table) for table in ((0, 1), (0, 2))] == [False, True]


def test_who_tries_again_has_another_study_whose_only_round_has_its_own_plan() -> None:
    study = masked(3)
    again = dataclasses.replace(study, id="again")
    plans = [plan_of(item, 100) for item in (study, again)]
    assert [plan.round for plan in plans] == [1, 1]
    assert plans[0].study != plans[1].study
    assert plans[0].digest != plans[1].digest


@pytest.mark.parametrize(
    ("parties", "said"), [(2, {}), (3, {}), (3, {"count_miner": True}), (5, {"tolerate": 2, "dealer": "miner"})]
)
def test_what_each_draws_is_the_least_double_that_leaves_sigma_without_those_tolerated(
    parties: int, said: dict[str, Any]
) -> None:
    study = masked(parties, **said)
    plan = plan_of(study, 1000)
    each, left = Fraction(*plan.sigma_each), len(plan.counted) - plan.tolerate
    assert Fraction(*plan.sigma) == Fraction(tables_sigma(study))
    assert each**2 * left >= Fraction(*plan.sigma) ** 2 > Fraction(math.nextafter(float(each), 0)) ** 2 * left
    across, within = math.sqrt(len(plan.counted)) * float(each), tables_sigma(study)
    assert table_deviations(study) == tuple(across if plan.crosses(table) else within for table in plan.tables)
    deviations = [plan.deviation_at(index) for index in range(len(plan.tables))]
    assert deviations == pytest.approx(table_deviations(study))


def test_what_the_miner_learns_from_has_the_noise_of_each_table(tmp_path: Path) -> None:
    study = masked(3)
    shapes = [tuple(study.units[unit].transition.n_states for unit in table) for table in tables_of(study)]
    tables = tables_with(study, [np.full(shape, 7) for shape in shapes], 100)
    assert not tables.has_noise
    write_tables(tmp_path / "noisy", tables, bytes(32))
    found = read_tables(tmp_path / "noisy", study, 100, bytes(32), noisy=True)
    assert tuple(table.sigma for table in found.tables) == table_deviations(study)
    assert len({table.sigma for table in found.tables}) == 2


def test_the_predicted_error_is_that_of_the_mean_noise() -> None:
    study = masked(3)
    mean = math.sqrt(sum(each**2 for each in table_deviations(study)) / len(tables_of(study)))
    assert predict_study(study, 5000) == predict([unit.transition for unit in study.units], 5000, sigma=mean)


SPOILED: dict[str, dict[str, Any]] = {
    "one name": {"parties": ("a", "a", "c")},
    "no name": {"parties": ("a", "", "c")},
    "UTF-8": {"miner": "\ud800"},
    "operators": {"operators": {"a": "a"}},
    "one operator": {"operators": {"a": "x", "b": "b", "c": "x", "miner": "miner"}},
    "an owner beyond": {"owners": (0, 0, 1, 2, 3)},
    "a size less": {"sizes": (2, 3, 4, 5)},
    "three of two parties": {"tables": ((0, 1, 2),)},
    "a unit beyond": {"tables": ((0, 5),)},
    "not ascending": {"tables": ((1, 0),)},
    "negative": {"tables": ((-1, 0),)},
    "a table twice": {"tables": ((0, 1), (0, 1))},
    "no table": {"tables": ()},
    "a dealer in its pair": {"dealers": ("a", "b", "a")},
    "a dealer less": {"dealers": ("c", "b")},
    "a stranger deals": {"dealers": ("c", "b", "x")},
    "counted in another order": {"counted": ("b", "a", "c")},
    "tolerate none": {"tolerate": 0},
    "tolerate all": {"tolerate": 3},
    "tolerate as many as there are parties": {
        "counted": ("a", "b", "c", "miner"),
        "tolerate": 3,
        "sigma_each": (60, 1),
    },
    "two that are counted of one operator": {
        "counted": ("a", "b", "c", "miner"),
        "operators": {"a": "a", "b": "b", "c": "c", "miner": "a"},
    },
    "epsilon": {"epsilon": math.inf},
    "not in lowest terms": {"sigma": (2, 2)},
    "no double": {"sigma_each": (10**30 + 1, 10**29)},
    "too little without those tolerated": {"sigma_each": (15, 1)},
    "below 0": {"sigma": (-30, 1)},
    "unchecked stranger": {"unchecked": ("x",)},
    "round": {"round": 0},
    "people": {"n_people": 0},
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_plan_whose_parts_do_not_go_together_is_none(what: str) -> None:
    with pytest.raises((ValueError, Misuse)):
        dataclasses.replace(plan_of(masked(3), 1000), **SPOILED[what])


def test_a_plan_that_counts_the_miner_too_is_one_while_a_party_is_left_and_all_are_apart() -> None:
    study = masked(3)
    counted = {"counted": ("a", "b", "c", "miner"), "sigma_each": (60, 1)}
    assert dataclasses.replace(plan_of(study, 1000), **counted, tolerate=2).counted[-1] == "miner"


def test_too_many_people_for_the_field_or_for_the_bytes_are_refused() -> None:
    study = masked(3, max_bytes=2**52)
    with pytest.raises(Misuse, match="counts of 2147483648 people"):
        plan_of(study, 2**31)
    assert bytes_of(masked(3), 10**8).once > 4 * 2**30
    with pytest.raises(Misuse, match="max_bytes"):
        plan_of(masked(3), 10**8)


# ---- who deals, and who is covered


@pytest.mark.parametrize("parties", [3, 4, 5])
def test_a_third_party_deals_and_the_work_is_spread(parties: int) -> None:
    study = masked(parties, sizes=dict.fromkeys("abcde", (3,)))
    assert deals_by_party(study)
    found = dealers(study)
    assert all(dealer not in pair for pair, dealer in zip(itertools.combinations(study.parties, 2), found, strict=True))
    dealt = [found.count(name) for name in study.parties]
    assert max(dealt) - min(dealt) <= 1
    assert dealers(masked(parties, dealer="miner")) == ("miner",) * math.comb(parties, 2)


def test_with_two_parties_the_miner_deals_and_reads_with_either() -> None:
    study = masked(2)
    assert dealers(study) == ("miner",)
    assert [(item.partner, item.owners, item.units) for item in list_exposures(study)] == [
        ("a", ("b",), (2,)),
        ("b", ("a",), (0, 1)),
    ]
    assert list(covered_coalitions(study)) == [("a",), ("b",), ("miner",)]
    assert list(covered_coalitions(masked(2, count_miner=True))) == [("a",), ("b",), ("miner",)]


def test_a_miner_that_deals_reads_with_one_party_the_columns_of_all_others() -> None:
    study = masked(3, dealer="miner")
    assert [(item.dealer, item.partner, item.owners) for item in list_exposures(study)] == [
        ("miner", "a", ("b", "c")),
        ("miner", "b", ("a", "c")),
        ("miner", "c", ("a", "b")),
    ]
    two = masked(3, dealer="miner", tolerate=2)
    rules.check(two, source="study")
    assert list(covered_coalitions(two)) == [("a", "b"), ("a", "c"), ("b", "c"), ("miner",)]


def test_with_three_parties_that_deal_any_two_are_a_dealer_with_its_partner() -> None:
    study = masked(3)
    assert list(covered_coalitions(study)) == [("a", "miner"), ("b", "miner"), ("c", "miner")]
    assert {(item.dealer, item.partner): item.owners for item in list_exposures(study)} == {
        ("a", "b"): ("c",),
        ("a", "c"): ("b",),
        ("b", "a"): ("c",),
        ("b", "c"): ("a",),
        ("c", "a"): ("b",),
        ("c", "b"): ("a",),
    }


@pytest.mark.parametrize("parties", [4, 5])
@pytest.mark.parametrize("dealer", ["party", "miner"])
def test_the_coalitions_that_are_covered_are_those_that_a_search_of_all_finds(parties: int, dealer: str) -> None:
    """By brute force over all sets of contributors; with third parties of four, one coalition of two is covered."""
    for tolerate in (1, 2):
        study = masked(parties, dealer=dealer, tolerate=tolerate)
        apart = {frozenset((item.dealer, item.partner)) for item in list_exposures(study)}
        names = (*study.parties, "miner")
        good = [
            set(some)
            for size in range(1, parties + 2)
            for some in itertools.combinations(names, size)
            if len(set(some) - {"miner"}) <= tolerate
            and not any(frozenset(two) in apart for two in itertools.combinations(some, 2))
        ]
        largest = [some for some in good if len(some - {"miner"}) == tolerate or some == {"miner"}]
        largest = [some for some in largest if not any(some < other for other in good)]
        assert sorted(map(sorted, covered_coalitions(study))) == sorted(map(sorted, largest))
        if (parties, dealer, tolerate) == (4, "party", 2):
            assert len(list(covered_coalitions(study))) == 1


# ---- what is refused


def test_what_a_masked_study_may_not_ask_is_refused_by_name() -> None:
    def problem(study: Study) -> str:
        return refused(study).message

    three = masked(3)
    rules.check(three, source="study")
    assert "there is one [[party]], expected at least 2" in problem(masked(1))
    assert "masked.tolerate: got 0, expected 1 to 2" in problem(masked(3, tolerate=0))
    assert "masked.tolerate: got 3, expected 1 to 2" in problem(masked(3, tolerate=3))
    assert "masked.tolerate: got 2, expected 1 to 1" in problem(masked(2, tolerate=2, count_miner=True))
    assert "any 2 of those who draw noise are a dealer with its partner" in problem(masked(3, tolerate=2))
    assert "masked.dealer: a third party deals" in problem(masked(2, dealer="party"))
    assert "'x' is no party of the study" in problem(masked(3, unchecked=("x",)))
    assert "stands there twice" in problem(masked(3, unchecked=("a", "a")))
    assert "masked.max_bytes: got 0" in problem(masked(3, max_bytes=0))
    assert "masked.max_bytes: a round with 1 people has" in problem(masked(3, max_bytes=100))
    assert "tables: missing" in problem(dataclasses.replace(three, tables=None))
    weak = dataclasses.replace(three, tables=TablesRule(epsilon=40.0, delta=1e-3))
    assert "from each of 3 contributors: expected 3 to 16384" in problem(weak)
    assert refused(with_triples(three, ("a0", "a1", "b0"))).code == "STUDY_UNSUPPORTED"
    assert "'a0, a1, b0' are columns of two organisations" in problem(with_triples(three, ("a0", "a1", "b0")))
    sub = dataclasses.replace(three, quorum=QuorumRule(deadline_seconds=3600, minimum=2))
    assert "with 2 parties of the smallest sub-model (quorum.min)" in problem(sub)
    assert "the name 'miner'" in problem(masked(3, sizes={"a": (2,), "miner": (2,), "c": (2,)}))
    many = dict.fromkeys((f"p{place:02}" for place in range(26)), (2,))
    assert "26 contributors draw noise, expected at most 25" in problem(masked(26, sizes=many))
    linkage = dataclasses.replace(three.linkage, minimum_common_records=2**31)
    asked = dataclasses.replace(masked(3, max_bytes=2**52), linkage=linkage)
    assert "counts of 2147483648 people" in problem(asked)


def test_a_set_of_categories_is_refused_and_a_raw_column_is_not() -> None:
    study = masked(3, sizes={"a": (9,), "b": (4,), "c": (5,)})
    unit = study.units[0]
    sets = dataclasses.replace(unit, scheme="subset", transition=subset_selection(9, epsilon=1.0))
    assert "'subset'" in refused(dataclasses.replace(study, units=(sets, *study.units[1:]))).message
    rules.check(dataclasses.replace(study, units=tuple(study_of(study.schema.variables).units)), source="study")


def test_a_breach_rule_holds_for_columns_that_only_a_dealer_with_its_partner_can_read() -> None:
    study = dataclasses.replace(masked(3), breach=Breach(prior=0.1, posterior=0.5))
    assert "has gamma" in refused(study).message


# ---- tables of three columns


def with_triples(study: Study, *three_way: tuple[str, str, str]) -> Study:
    return dataclasses.replace(study, tables=TablesRule(epsilon=1.0, delta=1e-9, three_way=three_way))


def test_of_a_triple_the_miner_reads_with_any_one_of_the_three_what_the_others_have_in_the_table() -> None:
    study = with_triples(masked(4), ("c0", "a1", "b0"))
    rules.check(study, source="study")
    assert triples(study) == ((1, 2, 3),)
    with_miner = {item.partner: (item.owners, item.units) for item in list_exposures(study) if item.dealer == "miner"}
    assert with_miner == {"a": (("b", "c"), (2, 3)), "b": (("a", "c"), (1, 3)), "c": (("a", "b"), (1, 2))}
    assert not [item for item in list_exposures(masked(4)) if item.dealer == "miner"]
    assert list(covered_coalitions(study)) == [("a",), ("b",), ("c",), ("d", "miner")]
    plan = plan_of(study, 1000)
    assert plan.tables[-1] == (1, 2, 3)
    assert [found.units for found in triples_of(plan)] == [(1, 2, 3)]
    assert table_deviations(study)[-1] == plan.deviation_at(plan.tables.index((1, 2, 3))) > tables_sigma(study)
    said = next(item for item in lint(study, n=5000) if item.code == "miner-deals-triples")
    assert "deals the masks of one table of three parties' columns" in said.message


def test_a_triple_within_one_party_is_counted_by_its_owner() -> None:
    study = with_triples(masked(2, sizes={"a": (2, 3, 2), "b": (4,)}), ("a0", "a1", "a2"))
    rules.check(study, source="study")
    assert triples(study) == triples_of(plan_of(study, 1000)) == ()
    assert table_deviations(study)[-1] == tables_sigma(study)


@pytest.mark.parametrize(("size", "times"), [(2, 5.0), (16, 3.25)])
def test_what_a_triple_takes_is_what_the_page_says(size: int, times: float) -> None:
    """Section 8: three sets and the alphas are five times the plain dealing where all K are 2, three times where they are
    large."""
    study = masked(3, sizes=dict.fromkeys("abc", (size,)), max_bytes=10**9, unchecked=("a", "b", "c"))
    more, plain = bytes_of(with_triples(study, ("a0", "b0", "c0")), 10_000), bytes_of(study, 10_000)
    dealing = 4 * 10_000 * 3 * size**2
    assert more.products + more.checks - plain.products - 4 * size**3 == times * dealing
    assert more.masked == 2 * plain.masked  # each of the three sends its rows to both others once more
    assert more.relayed - plain.relayed == 2 * (more.masked - plain.masked + more.checks)
    few = dataclasses.replace(study, masked=MaskedRule(max_bytes=plain.once + 10**6, unchecked=("a", "b", "c")))
    with pytest.raises(Misuse, match="max_bytes"):
        plan_of(with_triples(few, ("a0", "b0", "c0")), 10_000)
    assert slot_milliseconds(with_triples(study, ("a0", "b0", "c0")), 10_000) > slot_milliseconds(study, 10_000)


# ---- bytes and time


def test_the_bytes_are_those_of_the_page() -> None:
    """Adult over three parties (model-three.md section 3, "Sizes"): U 49.0 MB, check of two runs 20.3 MB, the rest below 1 MB."""
    study = masked(3, sizes=ADULT)
    assert [sum(sizes) for sizes in ADULT.values()] == [82, 44, 62]
    payload = bytes_of(study, 32_561)
    assert round(payload.masked / 1e6, 1) == 49.0
    assert round(payload.checks / 1e6, 1) == 20.3
    assert payload.products + payload.shares + payload.opened < 1e6
    assert payload.once <= 75e6
    assert payload.once + payload.relayed // 2 <= 2.1 * payload.once
    assert bytes_of(masked(3, sizes=ADULT, unchecked=tuple(ADULT)), 32_561).checks == 0
    by_miner = bytes_of(masked(3, sizes=ADULT, dealer="miner"), 32_561)
    assert by_miner.once == payload.once
    assert by_miner.relayed == 2 * payload.masked


def test_a_slot_is_longer_for_more_people_and_short_for_few() -> None:
    assert 250 <= slot_milliseconds(masked(3), 100) < 300
    assert 1000 < slot_milliseconds(masked(3, sizes=ADULT), 32_561) < 10_000


# ---- what the analyst is told


def test_what_is_said_of_a_masked_study_is_said_for_whom() -> None:
    def found(study: Study, n: int = 5000) -> dict[str, str]:
        return {item.code: f"{item.severity}: {item.where}: {item.message}" for item in lint(study, n=n)}

    raw = dataclasses.replace(masked(3), units=tuple(study_of(masked(3).schema.variables).units))
    assert "leaves to a dealer of masks with its partner it as it is" in found(raw)["epsilon-infinite"]
    usual = found(masked(3, sizes=ADULT))
    assert "epsilon-large" not in usual
    assert usual["total-large"].startswith(
        "note: all columns: all columns of one person sum to epsilon 78, for a dealer"
    )
    assert usual["membership-not-covered"].startswith("note")
    assert not {"miner-deals", "rows-unchecked", "no-plan"} & usual.keys()
    assert found(masked(3, dealer="miner"))["miner-deals"].startswith("warning")
    assert "miner-deals" not in found(masked(2))
    assert "of a, c" in found(masked(3, unchecked=("a", "c")))["rows-unchecked"]
    assert found(masked(3), 10**8)["no-plan"].startswith("error: masked: study 'test': masked.max_bytes")


def test_one_table_compares_the_models() -> None:
    study = masked(3, sizes=ADULT)
    central, peer, here = compare_models(study, 32_561)
    assert [row.model for row in (central, peer, here)] == ["central", "peer", "masked"]
    assert not any(row.missing for row in (central, peer, here))
    assert (here.costs["public"], here.costs["columns"]) == (Cost(epsilon=1.0, delta=1e-9),) * 2
    assert here.costs["dealer"].epsilon > here.costs["public"].epsilon + 77
    assert central.costs["public"] == Cost(epsilon=1.0, delta=1e-9)
    assert central.costs["columns"].epsilon == pytest.approx(78, rel=1e-6)
    assert peer.costs["public"].epsilon > 78
    assert here.bytes_sent == bytes_of(study, 32_561).once > central.bytes_sent
    assert central.exchanges < peer.exchanges < here.exchanges
    assert central.two_way is not None
    assert here.two_way is not None
    assert central.two_way < here.two_way < 1.5 * central.two_way
    back = compare_models(dataclasses.replace(study, model="central", masked=None), 32_561)
    assert back == (central, peer, here)
    assert "tables: missing" in compare_models(study_of(study.schema.variables, epsilon=6.0), 100)[2].missing


def test_study_check_says_the_four_figures_first_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("north.sex: f m", "north.age: young old", "south.visits: few many")
    text = study_toml(*columns, minimum=1000, keys='model = "masked"\n') + "[tables]\nepsilon = 1\ndelta = 1e-9\n"
    (tmp_path / "study.toml").write_text(text)
    assert main(["study", "check", str(tmp_path / "study.toml")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("everybody: epsilon 1, delta 1e-09")
    assert "this study by each model" in said
    assert main(["study", "check", str(tmp_path / "study.toml"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["figures"]["everybody"] == {"epsilon": 1.0, "delta": 1e-9, "tables": 3}
    assert [row["model"] for row in document["models"]] == ["central", "peer", "masked"]


def test_a_sub_model_keeps_who_deals_and_its_plan_is_of_those_who_remain() -> None:
    study = dataclasses.replace(masked(4), quorum=QuorumRule(deadline_seconds=3600, minimum=3))
    rules.check(study, source="study")
    rest = narrow(study, (LeftOut(party="b", missing="approval"),))
    plan = plan_of(rest, 1000, proposal=canonical.digest(study))
    assert plan.parties == ("a", "c", "d")
    assert plan.dealers == ("d", "c", "a")
    two = masked(3, dealer="miner")
    fewer = dataclasses.replace(two, quorum=QuorumRule(deadline_seconds=3600, minimum=2))
    assert dealers(narrow(fewer, (LeftOut(party="c", missing="denial"),))) == ("miner",)
