"""Compounds in a study: the domain of one draw, every scheme over it, and what is refused with which words."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
import rfc8785

from support.documents import study_toml
from support.studies import read
from verticil.analyst.lint import lint
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.documents.record import encode
from verticil.shared.documents.toml_table import Table
from verticil.shared.mechanisms import privacy
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.privacy.study_table import study_table
from verticil.shared.study import canonical
from verticil.shared.study.approval import Approval, check_approval, check_own_part, declared_units, parse_approval
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_declarations
from verticil.shared.study.unit import Unit

HEAD = study_toml(
    "clinic.age: young old",
    "insurer.claims: none some",
    "clinic.marital: single married widowed",
    "clinic.ward: a b",
    name="homes",
    epsilon=2.0,
)
# The order of `jointly` is not that of the variables: marital is slow, age is fast.
JOINT = """\
[[randomization]]
jointly = ["marital", "age"]
impossible = [["widowed", "young"]]
"""
STUDY = HEAD + JOINT + 'scheme = "symmetric"\nepsilon = 1.5\n'
DOMAIN = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 1))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return read(tmp_path, STUDY)


def test_a_compound_is_one_draw_over_the_combinations_that_are_left(study: Study):
    # The compound stands where its first variable, age, stands in the schema.
    assert [unit.variables for unit in study.units] == [("marital", "age"), ("claims",), ("ward",)]
    unit = study.units[0]
    assert (unit.owner, unit.scheme, unit.is_compound, unit.impossible) == ("clinic", "symmetric", True, ((2, 0),))
    assert study.domain_of(0) == DOMAIN
    assert study.domain_of(1) == ((0,), (1,))
    # K-ary response over D = 5 combinations: diagonal e^eps / (e^eps + 4).
    assert unit.transition.probabilities[0, 0] == pytest.approx(math.exp(1.5) / (math.exp(1.5) + 4), abs=1e-15)
    assert privacy.epsilon(unit.transition) == pytest.approx(1.5, abs=1e-9)
    assert study.units_of("clinic") == (0, 2)
    assert [study.unit_of(name) for name in study.schema.names] == [0, 1, 0, 2]


def test_estimation_sees_positions_domain_and_channel(study: Study):
    assert study.column_unit(0) == ColumnUnit(variables=(2, 0), domain=DOMAIN, channel=study.units[0].transition)
    assert study.column_unit(2) == ColumnUnit(variables=(3,), domain=None, channel=study.units[2].transition)


@pytest.mark.parametrize(
    ("scheme", "first_row"),
    [
        ('scheme = "symmetric"\nkeep = 0.6', (0.6, 0.1, 0.1, 0.1, 0.1)),
        ('scheme = "none"', (1, 0, 0, 0, 0)),
        (
            'scheme = "matrix"\nrows = [[0.5, 0.5, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]',
            (0.5, 0.5, 0, 0, 0),
        ),
        (
            'scheme = "blocks"\nkeep = 0.75\n'
            'groups = [[["single", "young"], ["married", "young"]], [["single", "old"], ["married", "old"], ["widowed", "old"]]]',
            (0.75, 0, 0.25, 0, 0),
        ),
    ],
)
def test_every_scheme_is_over_the_combinations(tmp_path: Path, scheme: str, first_row: tuple[float, ...]):
    study = read(tmp_path, HEAD + JOINT + scheme + "\n")
    assert study.units[0].transition.probabilities[0].tolist() == pytest.approx(first_row, abs=1e-15)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_two_levels_of_combinations_keep_their_groups(tmp_path: Path):
    groups = (
        '[[["single", "young"], ["single", "old"]], [["married", "young"], ["married", "old"], ["widowed", "old"]]]'
    )
    scheme = f'scheme = "two-level"\nepsilon_group = 1.0\nepsilon_within = 0.5\ngroups = {groups}\n'
    study = read(tmp_path, HEAD + JOINT + scheme)
    assert study.units[0].two_level is not None
    assert study.units[0].two_level.groups == ((0, 1), (2, 3, 4))
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


def test_binary_is_for_two_combinations_only(tmp_path: Path):
    with pytest.raises(Misuse, match="'binary' for 'marital', 'age' with 5 categories, expected 2"):
        read(tmp_path, HEAD + JOINT + 'scheme = "binary"\np1 = 0.1\np2 = 0.1\n')
    joint = '[[randomization]]\njointly = ["age", "ward"]\nimpossible = [["young", "a"], ["old", "b"]]\n'
    study = read(tmp_path, HEAD + joint + 'scheme = "binary"\np1 = 0.1\np2 = 0.25\n')
    assert study.domain_of(0) == ((0, 1), (1, 0))
    assert float(privacy.gamma(study.units[0].transition) or 0) == pytest.approx(7.5, abs=1e-12)  # randomization.md 1.1


NONE = 'scheme = "none"\n'
SQUARE = str(np.eye(6).tolist())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            JOINT + f'scheme = "matrix"\nrows = {SQUARE}\n',
            "rows: 6 rows, expected 5, one for each of the 3 x 2 combinations less 1 impossible of 'marital', 'age', "
            "the first slowest",
        ),
        (
            '[[randomization]]\njointly = ["marital", "claims"]\n' + NONE,
            "'marital' belongs to 'clinic' and 'claims' to 'insurer', expected columns of one party",
        ),
        (JOINT.replace("jointly", 'variables = ["ward"]\njointly') + NONE, "stands beside 'variables'"),
        (JOINT.replace("jointly", "variables") + NONE, "impossible: goes with 'jointly'"),
        (JOINT.replace('"age"]', '"agee"]') + NONE, "'agee' is not a variable of the study"),
        (JOINT.replace('"age"]', '"marital"]') + NONE, "'marital' is in randomization[1] already"),
        (JOINT + NONE + '[[randomization]]\nvariables = ["age"]\n' + NONE, "'age' is in randomization[1] already"),
        ("[[randomization]]\njointly = []\n" + NONE, "the list is empty"),
        (
            JOINT.replace('"young"]]', '"young"], ["widowed", "young"]]') + NONE,
            "combination 2 (widowed, young) stands there",
        ),
        (JOINT.replace('"young"]]', '"young", "a"]]') + NONE, "combination 1 has 3 labels, expected 2"),
        (JOINT.replace('"widowed", "young"', '"widow", "young"') + NONE, "'widow' is not a category of 'marital'"),
        (JOINT.replace('"widowed", "young"', '"young", "widowed"') + NONE, "'young' is not a category of 'marital'"),
        (
            '[[randomization]]\njointly = ["age", "ward"]\n'
            'impossible = [["young", "a"], ["old", "b"], ["old", "a"]]\n' + NONE,
            "3 of 4 combinations are removed, expected at least 2",
        ),
        (
            JOINT + 'scheme = "blocks"\nkeep = 0.9\ngroups = [[["widowed", "young"]]]\n',
            "'widowed, young' is not a possible combination of 'marital', 'age'",
        ),
        (JOINT + 'scheme = "blocks"\nkeep = 0.9\ngroups = [["widowed"]]\n', "'widowed' is not a possible combination"),
    ],
)
def test_bad_compounds_are_refused_with_reason(tmp_path: Path, more: str, words: str):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, HEAD + more)
    assert caught.value.code == "STUDY_INVALID"
    assert words in caught.value.message
    assert "study.toml: randomization[" in caught.value.message


@pytest.mark.parametrize("key", ["jointly = ['age', 'ward']", "impossible = []"])
def test_what_is_said_for_all_other_columns_makes_no_compound(tmp_path: Path, key: str):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, HEAD + key + "\n")
    assert "randomization_default" in caught.value.message
    assert "makes no compounds" in caught.value.message


def test_labels_in_another_order_get_a_hint(tmp_path: Path):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, HEAD + JOINT.replace('"widowed", "young"', '"young", "widowed"') + NONE)
    assert "in the order of jointly: 'marital', 'age'" in caught.value.hint


def test_a_compound_too_large_for_its_matrix_is_refused(tmp_path: Path):
    labels = ", ".join(f'"c{i}"' for i in range(40))
    wide = HEAD.replace('["young", "old"]', f"[{labels}]").replace('["a", "b"]', f"[{labels}]")
    joint = '[[randomization]]\njointly = ["age", "ward"]\n'
    with pytest.raises(Misuse, match="'age', 'ward' has 1600 combinations, a matrix has at most 700000 cells"):
        read(tmp_path, wide + joint + NONE)
    with pytest.raises(Misuse, match="expected at most 100000"):
        read(tmp_path, wide.replace('"c39"', ", ".join(f'"c{i}"' for i in range(39, 500))) + joint + NONE)


def test_a_total_is_divided_among_the_columns_outside_the_compound(tmp_path: Path):
    text = STUDY.replace('[randomization_default]\nscheme = "symmetric"\nepsilon = 2.0\n', "")
    text += '[allocate]\nrule = "equal-contrast"\ntotal_epsilon = 3.5\n'
    study = read(tmp_path, text)
    epsilons = [privacy.epsilon(unit.transition) for unit in study.units]
    # 3.5 - 1.5 for the compound leaves 2 for two binary columns.
    assert epsilons == pytest.approx([1.5, 1.0, 1.0], abs=1e-5)


# ---- bytes --------------------------------------------------------------------------------------------------------------


def test_a_compound_adds_its_impossible_combinations_to_the_bytes(study: Study):
    units = json.loads(canonical.to_bytes(study))["units"]
    assert units[0]["variables"] == ["marital", "age"]
    assert units[0]["impossible"] == [[2, 0]]
    assert [set(unit) for unit in units[1:]] == [{"variables", "party", "scheme", "matrix"}] * 2
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["units"].reverse(), "not in the order of their first variables"),
        (lambda d: d["units"][0].update(impossible=[[2, 0], [2, 0]]), "not ascending"),
        (lambda d: d["units"][0].update(impossible=[[2, 1], [2, 0]]), "not ascending"),
        (lambda d: d["units"][0].update(impossible=[[3, 0]]), "not one code for each"),
        (lambda d: d["units"][0].update(impossible=[[-1, 0]]), "not one code for each"),
        (lambda d: d["units"][0].update(impossible=[[0, 0], [2, 0]]), "the matrix is 5 x 5, expected 4 x 4"),
        (lambda d: d["units"][0].pop("impossible"), "the matrix is 5 x 5, expected 6 x 6"),
        (lambda d: d["units"][2].update(impossible=[]), "not in canonical form"),
        (lambda d: d["units"][0].update(variables=["marital", "claims"]), "do not hold every variable once"),
        (
            lambda d: (d["variables"][0].update(party="insurer"), d["variables"][1].update(party="clinic")),
            "'age' is randomized by 'clinic', expected its party 'insurer'",
        ),
    ],
)
def test_foreign_compounds_are_checked(study: Study, change, words: str):
    value = json.loads(canonical.to_bytes(study))
    change(value)
    with pytest.raises(PeerFault) as caught:
        canonical.from_bytes(rfc8785.dumps(value))
    assert words in caught.value.message


def test_a_foreign_unit_of_endless_combinations_is_refused_at_once(study: Study):
    value = json.loads(canonical.to_bytes(study))
    labels = [str(i) for i in range(60_000)]
    for place in (0, 2):
        value["variables"][place].update(labels=labels)
    with pytest.raises(PeerFault, match="3600000000 combinations of categories, expected at most 100000"):
        canonical.from_bytes(rfc8785.dumps(value))


# ---- a party's own declarations -----------------------------------------------------------------------------------------


def declare(study: Study, text: str):
    return read_declarations(
        Table(tomllib.loads("[[randomization]]\n" + text), source="party.toml").tables("randomization"), study, "clinic"
    )


WEAKER = 'scheme = "symmetric"\nepsilon = 1.0\n'


def test_a_party_declares_the_whole_compound_with_the_studys_domain(study: Study):
    plain = declare(study, 'jointly = ["marital", "age"]\n' + WEAKER)
    assert declare(study, 'jointly = ["marital", "age"]\nimpossible = [["widowed", "young"]]\n' + WEAKER) == plain
    assert plain[0].impossible == ((2, 0),)
    assert privacy.epsilon(plain[0].transition) == pytest.approx(1.0, abs=1e-9)
    assert study.with_declaration(plain).domain_of(0) == DOMAIN


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        (
            'variables = ["age"]\n',
            "'age': study 'homes' randomizes 'age' in the compound marital, age",
            '"marital", "age"',
        ),
        ('jointly = ["age", "marital"]\n', "randomizes 'age' in the compound marital, age", "in its order"),
        ('jointly = ["age", "ward"]\n', "randomizes 'age' in the compound marital, age", "whole compound"),
        ('jointly = ["ward", "age"]\n', "no compound of study 'homes', which randomizes 'ward' by itself", "by itself"),
        ('jointly = ["marital", "agee"]\n', "'agee' is not a variable of study 'homes'", "as the study has it"),
        ('jointly = ["marital", "claims"]\n', "'claims' belongs to 'insurer'", "its own columns"),
        ('jointly = ["marital", "age"]\nimpossible = []\n', "0 combinations that are not the 1 of the study", "leave"),
        (
            'jointly = ["marital", "age"]\nimpossible = [["single", "old"]]\n',
            "1 combinations that are not the 1 of the study",
            "leave the key out",
        ),
    ],
)
def test_other_declarations_are_refused(study: Study, text: str, words: str, hint: str):
    with pytest.raises(Misuse) as caught:
        declare(study, text + WEAKER)
    assert caught.value.code == "CONFIG_INVALID"
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_declarations_for_compounds_of_other_studies_are_passed_over_but_not_misspellings(study: Study):
    assert declare(study, 'jointly = ["height", "weight"]\n' + WEAKER) == {}
    with pytest.raises(Misuse, match="'maritall' is not a variable"):
        declare(study, 'jointly = ["maritall", "weight"]\n' + WEAKER)


def test_a_weaker_compound_is_refused_by_its_gamma(study: Study):
    with pytest.raises(
        Refusal, match=r"columns 'marital, age': declared gamma 7\.38906, expected at most the study's 4\.48169"
    ):
        declare(study, 'jointly = ["marital", "age"]\nscheme = "symmetric"\nepsilon = 2\n')


def test_a_declaration_cannot_change_a_domain(study: Study):
    other = dataclasses.replace(study.units[0], impossible=((1, 0),))
    with pytest.raises(ValueError, match="without 1 combinations"):
        study.with_declaration({0: other})


def approval_of(study: Study, unit: Unit) -> Approval:
    units = {0: unit, 2: study.units[2]}
    body = encode(
        Approval(
            proposal_digest=canonical.digest(study),
            party="clinic",
            units=declared_units(units, {index: f"{index:064x}" for index in units}),
            minimum_common_records=1000,
            approver="officer",
            approved_at=dt.datetime(2026, 11, 21, tzinfo=dt.UTC),
            expires=study.expires,
        )
    )
    return parse_approval(body)


def other_holdings(study: Study) -> list[Unit]:
    """Units of the same size over other combinations, or in another order."""
    unit = study.units[0]
    turned = dataclasses.replace(unit, variables=("age", "marital"), impossible=((0, 2),))
    return [dataclasses.replace(unit, impossible=((1, 0),)), turned]


def test_an_approval_holds_for_the_studys_combinations_only(study: Study):
    check_approval(approval_of(study, study.units[0]), study, "clinic")
    for unit in other_holdings(study):
        with pytest.raises(PeerFault, match="unit 0 is not that of 'marital'"):
            check_approval(approval_of(study, unit), study, "clinic")


def test_a_party_takes_no_effective_study_over_other_combinations(study: Study):
    check_own_part(study, study, "insurer")
    for unit in other_holdings(study):
        told = dataclasses.replace(study, units=(unit, *study.units[1:]))
        with pytest.raises(
            PeerFault, match="columns 'marital, age': unit 0 has other columns or categories than approved"
        ):
            check_own_part(study, told, "insurer")


# ---- what is said about them ----------------------------------------------------------------------------------------------


def test_one_row_and_one_epsilon_for_the_compound(study: Study):
    table = study_table(study)
    assert [(row.variable, row.n_states, row.impossible) for row in table.rows] == [
        ("marital, age", 5, 1),
        ("claims", 2, 0),
        ("ward", 2, 0),
    ]
    assert table.total_epsilon == pytest.approx(1.5 + 2 + 2, abs=1e-9)
    assert dict(table.party_totals)["clinic"] == pytest.approx(3.5, abs=1e-9)


def test_a_category_without_a_possible_combination_is_found(tmp_path: Path):
    joint = JOINT.replace('[["widowed", "young"]]', '[["widowed", "young"], ["widowed", "old"]]')
    study = read(tmp_path, HEAD + joint + 'scheme = "symmetric"\nepsilon = 1.5\n')
    found = [finding for finding in lint(study, n=30_000) if finding.code == "category-impossible"]
    assert [(finding.where, "'widowed' of 'marital'" in finding.message) for finding in found] == [
        ("columns 'marital, age'", True)
    ]


def test_a_breach_rule_looks_at_the_compound(tmp_path: Path):
    with pytest.raises(Misuse, match=r"columns 'marital, age' has gamma 4\.48169; expected gamma below 4"):
        read(
            tmp_path,
            STUDY.replace("epsilon = 2.0", "epsilon = 1.0") + "[breach]\nprior = 0.2\nposterior = 0.5\n",
        )
