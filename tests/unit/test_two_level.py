"""Two responses one after the other: the matrix against brute force over its cells, its epsilon, and how it is shown."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import rfc8785

from support.studies import read
from verticil.analyst.lint import lint
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.transition import SCALE, quantize, symmetric, two_level
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.privacy.study_table import study_table
from verticil.shared.release.report.page import render
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import TwoLevel

# Recorded before any of these features existed, when bins said that a number outside is an error; a study that was submitted so,
# and uses none of the features, keeps it.
EXAMPLE_DIGEST = "2347303b1343c51e6281697cf4ab4cb3451001710b80e5fe48d1b45ff613db85"
EXAMPLE = Path(__file__).parents[2] / "deploy" / "verticil" / "simulation" / "federations" / "adult" / "study.toml"

STUDY = """\
schema = 1
id = "small"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[[variable]]
party = "clinic"
name = "ward"
categories = ["a", "b", "c", "d"]
[[variable]]
party = "insurer"
name = "claims"
categories = ["none", "some"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[[randomization]]
variables = ["ward"]
scheme = "two-level"
groups = [["a", "c", "d"], ["b"]]
epsilon_group = 1.0
epsilon_within = 1.5
"""

DESIGNS = [  # sizes of groups, epsilon of the group, epsilon within; the first is from randomization.md 1.1
    ((8, 4, 4), 1.0, 1.0),
    ((3, 1), 1.0, 1.5),
    ((1, 1, 2), 0.5, 3.0),
    ((2, 2), 3.0, 0.25),
    ((5, 2, 1, 8), 0.1, 2.0),
    ((20, 3), 2.0, 0.1),
]


def in_order(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    ends = np.cumsum(sizes)
    return [tuple(range(end - size, end)) for end, size in zip(ends.tolist(), sizes, strict=True)]


def by_cases(groups: Sequence[Sequence[int]], true: int, released: int, group: float, within: float) -> float:
    """The probability, from the words of the design: which group is reported, and then which value."""
    own = next(number for number, members in enumerate(groups) if true in members)
    total = 0.0
    for reported, members in enumerate(groups):
        p_group = (math.exp(group) if reported == own else 1.0) / (math.exp(group) + len(groups) - 1)
        for value in members:
            if reported != own:
                p_value = 1 / len(members)
            else:
                p_value = (math.exp(within) if value == true else 1.0) / (math.exp(within) + len(members) - 1)
            total += p_group * p_value if value == released else 0.0
    return total


def closed_form(sizes: Sequence[int], group: float, within: float) -> float:
    levels = []
    for m in sizes:
        p, q = math.exp(within) / (math.exp(within) + m - 1), 1 / (math.exp(within) + m - 1)
        levels.append(group + math.log(m * p))
        if m > 1:
            levels += [within, abs(group + math.log(m * q))]
    return max(levels)


@pytest.mark.parametrize(("sizes", "group", "within"), DESIGNS)
def test_every_cell_is_what_the_design_says(sizes, group, within):
    groups = in_order(sizes)
    matrix = two_level(groups, sum(sizes), epsilon_group=group, epsilon_within=within)
    for true in range(sum(sizes)):
        for released in range(sum(sizes)):
            assert matrix[true, released] == pytest.approx(by_cases(groups, true, released, group, within), rel=1e-13)


@pytest.mark.parametrize(("sizes", "group", "within"), DESIGNS)
def test_its_epsilon_is_that_of_the_cells(sizes, group, within):
    transition = quantize(two_level(in_order(sizes), sum(sizes), epsilon_group=group, epsilon_within=within))
    columns = list(zip(*transition.weights, strict=True))
    brute = max(math.log(above / below) for column in columns for above in column for below in column)
    assert privacy.epsilon(transition) == pytest.approx(brute, rel=1e-12)
    assert privacy.epsilon(transition) == pytest.approx(closed_form(sizes, group, within), rel=1e-12)
    assert privacy.k_measure(transition) == sum(sizes)  # nothing that is released rules anything out


def test_the_example_of_the_design_notes():
    transition = quantize(two_level(in_order((8, 4, 4)), 16, epsilon_group=1.0, epsilon_within=1.0))
    assert round(privacy.epsilon(transition), 3) == 1.805


def test_groups_need_not_be_neighbours():
    matrix = two_level([(0, 3), (2,), (1,)], 4, epsilon_group=math.log(2), epsilon_within=math.log(3))
    assert matrix * 16 == pytest.approx(np.array([[6, 4, 4, 2], [2, 8, 4, 2], [2, 4, 8, 2], [2, 4, 4, 6]]))


@pytest.mark.parametrize(
    ("groups", "group", "within", "words"),
    [
        ([(0, 1, 2, 3)], 1.0, 1.0, "1 groups of 4 categories, expected at least two groups"),
        ([(0,), (1,), (2,), (3,)], 1.0, 1.0, "one of them of two or more"),
        ([(0, 1), (2,)], 1.0, 1.0, "not a partition"),
        ([(0, 1), (1, 2, 3)], 1.0, 1.0, "not a partition"),
        ([(0, 1), (2, 3), ()], 1.0, 1.0, "a group is empty"),
        ([(0, 1), (2, 3)], 0.0, 1.0, "epsilon_group is 0"),
        ([(0, 1), (2, 3)], math.inf, 1.0, "epsilon_group is inf"),
        ([(0, 1), (2, 3)], 1.0, math.nan, "epsilon_within is nan"),
    ],
)
def test_what_is_not_two_levels_is_refused(groups, group, within, words):
    with pytest.raises(Misuse) as caught:
        two_level(groups, 4, epsilon_group=group, epsilon_within=within)
    assert caught.value.code == "MATRIX_INVALID"
    assert words in caught.value.message


def test_a_study_holds_the_matrix_and_both_numbers(tmp_path):
    study = read(tmp_path, STUDY)
    unit = study.units[0]
    assert unit.scheme == "two-level"
    assert unit.two_level == TwoLevel(groups=((0, 2, 3), (1,)), epsilon_group=1.0, epsilon_within=1.5)
    expected = two_level([(0, 2, 3), (1,)], 4, epsilon_group=1.0, epsilon_within=1.5)
    assert unit.transition.probabilities == pytest.approx(expected, abs=1e-15)
    assert study.units[1].two_level is None
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


NAMED = (
    STUDY.replace('[["a", "c", "d"], ["b"]]', '"sides"')
    + """
[[knowledge.rule]]
kind = "groups"
name = "sides"
column = "ward"
groups = { left = ["a", "c", "d"], right = ["b"] }
"""
)


def test_groups_of_the_study_s_knowledge_are_named(tmp_path):
    """The same matrix as with the groups written out; and for `blocks`."""
    assert read(tmp_path, NAMED).units == read(tmp_path, STUDY).units
    levels = "epsilon_group = 1.0\nepsilon_within = 1.5"
    blocks = [text.replace('"two-level"', '"blocks"').replace(levels, "epsilon = 1.0") for text in (NAMED, STUDY)]
    named, written = (read(tmp_path, text).units for text in blocks)
    assert named == written
    for old, new, words in (
        ('groups = "sides"', 'groups = "side"', "groups: 'side' names no groups of the study"),
        (
            'variables = ["ward"]',
            'variables = ["ward", "claims"]',
            "'sides' groups the categories of 'ward', and this is",
        ),
    ):
        with pytest.raises(Misuse) as caught:
            read(tmp_path, NAMED.replace(old, new, 1))
        assert words in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("epsilon_within = 1.5", "", "STUDY_INVALID", "epsilon_within: missing"),
        ("epsilon_within = 1.5", "epsilon_within = 1.5\nepsilon = 2", "STUDY_INVALID", "epsilon: does not go with"),
        ('["b"]]', '["B"]]', "STUDY_INVALID", "'B' is not a category of 'ward'"),
        ('["b"]]', "]", "MATRIX_INVALID", "not a partition"),
        ("epsilon_group = 1.0", "epsilon_group = 60", "STUDY_INVALID", "positive but below 2^-64"),
        ("epsilon_within = 1.5", "epsilon_within = 900", "STUDY_INVALID", "positive but below 2^-64"),
        ("epsilon = 2.0", "epsilon = 900", "STUDY_INVALID", "positive but below 2^-64"),
        ("epsilon_group = 1.0", "epsilon_group = 1e-9", "MATRIX_SINGULAR", "the matrix is singular"),
        ('"two-level"', '"subset"', "STUDY_INVALID", "epsilon_group: does not go with the scheme 'subset'"),
        ('variables = ["ward"]', 'jointly = ["ward"]', "STUDY_INVALID", "'ward' alone, expected two variables or more"),
    ],
)
def test_bad_declarations_are_refused_with_reason(tmp_path, old, new, code, words):
    assert old in STUDY
    with pytest.raises(Misuse) as caught:
        read(tmp_path, STUDY.replace(old, new, 1))
    assert caught.value.code == code
    assert words in caught.value.message


def test_the_shipped_example_keeps_its_digest():
    study = read_study(EXAMPLE)
    variables = [dataclasses.replace(v, outside="error") for v in study.schema.variables]
    parameters = dataclasses.replace(study.parameters, prior_count=0.5)  # as it was read when this digest was made
    data = canonical.to_bytes(
        dataclasses.replace(study, schema=Schema(variables=tuple(variables)), parameters=parameters)
    )
    assert hashlib.sha256(data).hexdigest() == EXAMPLE_DIGEST
    assert canonical.digest(canonical.from_bytes(data)).hex() == EXAMPLE_DIGEST


def change(tmp_path, edit) -> bytes:
    value = json.loads(canonical.to_bytes(read(tmp_path, STUDY)))
    edit(value["units"][0])
    return rfc8785.dumps(value)


def weaken(unit):
    # A little mass of one row moves to the diagonal: still two-level in name.
    row = unit["matrix"][0]
    row[0], row[1] = str(int(row[0]) + SCALE // 1000), str(int(row[1]) - SCALE // 1000)


def with_zeros(unit):
    # Group responses so strong that quantization makes the cells between the groups zero: the group would be sent exactly.
    unit["two_level"]["epsilon_group"] = 60.0
    matrix = quantize(two_level([(0, 2, 3), (1,)], 4, epsilon_group=60.0, epsilon_within=1.5))
    assert matrix.weights[0][1] == 0
    unit["matrix"] = [[str(weight) for weight in row] for row in matrix.weights]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (weaken, "not one of the scheme 'two-level'"),
        (with_zeros, "not one of the scheme 'two-level'"),
        (lambda unit: unit["two_level"].update(epsilon_within=1.4), "not one of the scheme 'two-level'"),
        (lambda unit: unit["two_level"].update(groups=[[0, 1], [2, 3]]), "not one of the scheme 'two-level'"),
        (lambda unit: unit["two_level"].update(groups=[[0, 2, 3], [9]]), "not a partition"),
        (lambda unit: unit["two_level"].update(groups=[[0, 2, 3], [True]]), "expected a list of whole numbers"),
        (lambda unit: unit["two_level"].update(note="x"), "unknown key"),
        (lambda unit: unit.pop("two_level"), "goes with the scheme 'two-level'"),
        (lambda unit: unit.update(scheme="matrix"), "goes with the scheme 'two-level'"),
        (lambda unit: unit.update(two_level=None), "null, expected a value"),
    ],
)
def test_bytes_whose_numbers_are_not_the_matrix_are_refused(tmp_path, edit, words):
    with pytest.raises(PeerFault) as caught:
        canonical.from_bytes(change(tmp_path, edit))
    assert caught.value.code == "MESSAGE_INVALID"
    assert words in caught.value.message


def test_the_estimators_take_it_out_again():
    """Expected released counts of a table give the table back: inverse exactly, EM as the fixed point."""
    ward = quantize(two_level([(0, 2, 3), (1,)], 4, epsilon_group=1.0, epsilon_within=1.5))
    other = quantize(symmetric(2, epsilon=1.0))
    table = np.array([[400.0, 100], [50, 250], [120, 30], [10, 40]])
    released = ward.probabilities.T @ table @ other.probabilities
    assert as_design([ward, other]).estimate(released) == pytest.approx(table, rel=1e-9)
    assert em_projection(released, [ward, other], iterations=5000, tolerance=1e-12) == pytest.approx(table, abs=1.0)


def test_the_check_of_a_study_shows_both_numbers_and_the_exact_epsilon(tmp_path):
    row = study_table(read(tmp_path, STUDY), 30_000).rows[0]
    assert row.scheme == "two-level"
    assert row.two_level is not None
    assert row.two_level.text == "epsilon 1 for the group (2 groups), 1.5 within it"
    assert row.epsilon == pytest.approx(closed_form((3, 1), 1.0, 1.5), rel=1e-12)
    assert "epsilon-infinite" not in {finding.code for finding in lint(read(tmp_path, STUDY), n=30_000)}


def test_a_large_group_beside_a_small_one_may_relabel_and_the_hint_is_about_groups(tmp_path):
    text = STUDY.replace("epsilon_group = 1.0", "epsilon_group = 0.2").replace("within = 1.5", "within = 0.2")
    (finding,) = [f for f in lint(read(tmp_path, text), n=10**9) if f.code == "relabels"]
    assert "groups more alike in size" in finding.hint


def test_the_report_says_both_numbers_and_that_nothing_was_exact(release_content):
    study = release_content.study
    levels = TwoLevel(groups=((0, 1), (2,)), epsilon_group=1.0, epsilon_within=0.5)
    matrix = two_level(levels.groups, 3, epsilon_group=1.0, epsilon_within=0.5)
    unit = dataclasses.replace(study.units[0], scheme="two-level", transition=quantize(matrix), two_level=levels)
    changed = study.with_declaration({0: unit})
    content = dataclasses.replace(release_content, study=changed, effective_digest=canonical.digest(changed).hex())
    page = " ".join(render(content).split())
    assert "in two steps: epsilon 1 for the group (2 groups), 0.5 within it." in page
    assert "nothing of this column was sent exactly" in page
    assert "in two steps" not in render(release_content)
