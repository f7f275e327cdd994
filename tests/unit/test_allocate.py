"""`[allocate]`: a total epsilon divided by the equal-lambda rule, beside explicit tables, with caps."""

from __future__ import annotations

import math

import pytest

from support.documents import study_toml
from support.studies import read
from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.allocation import equal_contrast
from verticil.shared.privacy.study_table import study_table
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

HEAD = study_toml("clinic.ward: a b c d", "clinic.smoker: no yes", "insurer.income: low middle high")
ALLOCATE = """\
[allocate]
rule = "equal-contrast"
total_epsilon = 6.0
"""
OWN = '[[randomization]]\nvariables = ["income"]\nscheme = "symmetric"\nepsilon = 2.0\n'
STEP = 1e-6


def contrast(n_states: int, epsilon: float) -> float:
    return (math.exp(epsilon) - 1) / (math.exp(epsilon) + n_states - 1)


def epsilons(study: Study) -> list[float]:
    return [privacy.epsilon(unit.transition) for unit in study.units]


def test_two_columns_in_closed_form():
    # lambda = 1/2: e^epsilon = (1 + (K - 1)/2) / (1/2) = K + 1.
    got = equal_contrast([2, 4, 9], math.log(3 * 5 * 10), [None] * 3)
    assert got == pytest.approx([math.log(3), math.log(5), math.log(10)], abs=STEP)


def test_a_cap_takes_a_column_out_and_the_rest_is_divided_among_the_others():
    assert equal_contrast([2, 4, 9], math.log(15) + 1.25, [None, None, 1.25]) == pytest.approx(
        [math.log(3), math.log(5), 1.25], abs=STEP
    )
    # A cap that does not bind changes nothing.
    assert equal_contrast([2, 4], 3.0, [2.9, None]) == equal_contrast([2, 4], 3.0, [None, None])
    # All at their caps: the total is not used up.
    assert equal_contrast([2, 4], 30.0, [1.0, 2.0]) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("n_states", "total", "caps"),
    [([], 1.0, []), ([2], 1.0, []), ([1], 1.0, [None]), ([2], 0.0, [None]), ([2], 1.0, [0.0])],
)
def test_the_rule_refuses_what_is_no_allocation(n_states, total, caps):
    with pytest.raises(ValueError, match="expected"):
        equal_contrast(n_states, total, caps)


def test_a_study_holds_symmetric_matrices_of_equal_contrast(tmp_path):
    study = read(tmp_path, HEAD + ALLOCATE)
    assert [unit.scheme for unit in study.units] == ["symmetric"] * 3
    factors = [privacy.contrast_factor(unit.transition) for unit in study.units]
    assert factors == pytest.approx([factors[0]] * 3, abs=STEP)
    assert factors[0] == pytest.approx(contrast(4, epsilons(study)[0]), rel=1e-9)
    assert 6.0 - 3 * STEP <= math.fsum(epsilons(study)) <= 6.0
    assert study_table(study).total_epsilon <= 6.0
    assert canonical.from_bytes(canonical.to_bytes(study)) == study
    assert b"allocate" not in canonical.to_bytes(study)


def test_the_resolved_study_is_the_one_with_the_same_epsilons_written_out(tmp_path):
    allocated = read(tmp_path, HEAD + ALLOCATE)
    tables = "".join(
        f'[[randomization]]\nvariables = ["{unit.variables[0]}"]\nscheme = "symmetric"\nepsilon = {epsilon}\n'
        for unit, epsilon in zip(allocated.units, equal_contrast([4, 2, 3], 6.0, [None] * 3), strict=True)
    )
    assert canonical.digest(read(tmp_path, HEAD + tables)) == canonical.digest(allocated)


def test_explicit_tables_stay_and_count(tmp_path):
    study = read(tmp_path, HEAD + OWN + ALLOCATE)
    alone = read(tmp_path, HEAD + OWN + '[randomization_default]\nscheme = "symmetric"\nepsilon = 1\n')
    assert study.units[2] == alone.units[2]
    assert epsilons(study)[:2] == pytest.approx(equal_contrast([4, 2], 4.0, [None, None]), abs=1e-9)
    assert math.fsum(epsilons(study)) == pytest.approx(6.0, abs=3 * STEP)


def test_a_sensitive_column_is_capped(tmp_path):
    study = read(tmp_path, HEAD + ALLOCATE + "caps = { income = 0.5 }\n")
    assert epsilons(study)[2] == pytest.approx(0.5, abs=1e-9)
    assert epsilons(study)[:2] == pytest.approx(equal_contrast([4, 2], 5.5, [None, None]), abs=1e-9)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (OWN + ALLOCATE.replace("6.0", "2.0"), "STUDY_INVALID", "total_epsilon: got 2, which is too small"),
        (
            OWN + ALLOCATE.replace("6.0", "1.5"),
            "STUDY_INVALID",
            "the columns with tables of their own take 2 of it, 0 is left for 2",
        ),
        (ALLOCATE.replace("6.0", "1e-6"), "STUDY_INVALID", "is too small"),
        (ALLOCATE.replace("6.0", "1e-5"), "STUDY_INVALID", "is too small"),
        (ALLOCATE.replace("6.0", "0"), "STUDY_INVALID", "got 0, expected a finite number > 0"),
        (ALLOCATE.replace("6.0", "inf"), "STUDY_INVALID", "got inf, expected a finite number > 0"),
        (ALLOCATE.replace("6.0", "500"), "STUDY_INVALID", "positive but below 2^-64"),
        (ALLOCATE.replace("6.0", "1e6"), "STUDY_INVALID", "positive but below 2^-64"),
        (ALLOCATE.replace("total_epsilon = 6.0\n", ""), "STUDY_INVALID", "allocate.total_epsilon: missing"),
        (ALLOCATE.replace('"equal-contrast"', '"even"'), "STUDY_INVALID", "got 'even', expected one of equal-contrast"),
        (ALLOCATE + "cap = {}", "STUDY_INVALID", "allocate.cap: unknown key"),
        (ALLOCATE + "caps = { incme = 1.5 }", "STUDY_INVALID", "allocate.caps.incme: not a variable"),
        (ALLOCATE + "caps = { income = -1 }", "STUDY_INVALID", "allocate.caps.income: got -1"),
        (ALLOCATE + "caps = { income = true }", "STUDY_INVALID", "allocate.caps.income: got true/false"),
        (ALLOCATE + "caps = 1", "STUDY_INVALID", "allocate.caps: got a whole number, expected a table"),
        (ALLOCATE + "caps = { income = 1e-9 }", "MATRIX_SINGULAR", "allocate: column 'income': the matrix is singular"),
        (OWN + ALLOCATE + "caps = { income = 1 }", "STUDY_INVALID", "income: the column has a [[randomization]] table"),
        (ALLOCATE + '[randomization_default]\nscheme = "none"', "STUDY_INVALID", "beside [randomization_default]"),
        (
            ALLOCATE + '[[randomization]]\nvariables = ["ward", "smoker", "income"]\nscheme = "symmetric"\nepsilon = 1',
            "STUDY_INVALID",
            "every column has a [[randomization]] table",
        ),
        (
            ALLOCATE + '[[randomization]]\nvariables = ["ward"]\nscheme = "none"',
            "STUDY_INVALID",
            "'ward' has infinite epsilon",
        ),
    ],
)
def test_bad_allocations_are_refused_with_reason(tmp_path, text, code, words):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, HEAD + text)
    assert caught.value.code == code
    assert words in caught.value.message


def test_the_short_form_is_told_the_long_one(tmp_path):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, 'allocate = "equal-contrast"\n' + HEAD)
    assert "expected a table" in caught.value.message
    assert "total_epsilon" in caught.value.hint


def test_a_misspelt_cap_is_told_the_variable(tmp_path):
    with pytest.raises(Misuse) as caught:
        read(tmp_path, HEAD + ALLOCATE + "caps = { incme = 1.5 }")
    assert caught.value.hint == "did you mean 'income'?"


def test_no_column_gets_more_than_the_cap_of_all_columns(tmp_path):
    """What sites limit for each column is one key, however many columns there are."""
    study = read(tmp_path, HEAD + ALLOCATE.replace("6.0", "30.0") + "max_epsilon = 3.0\n")
    assert epsilons(study) == pytest.approx([3.0] * 3, abs=STEP)
    assert max(epsilons(study)) <= 3.0 + privacy.EPSILON_TOLERANCE
    both = read(tmp_path, HEAD + ALLOCATE + "max_epsilon = 2.0\ncaps = { income = 0.5 }\n")
    assert epsilons(both)[2] == pytest.approx(0.5, abs=1e-9)
    assert max(epsilons(both)) <= 2.0 + privacy.EPSILON_TOLERANCE
    # One that does not bind changes nothing, also not the digest.
    free = read(tmp_path, HEAD + ALLOCATE + "max_epsilon = 5.0\n")
    assert canonical.digest(free) == canonical.digest(read(tmp_path, HEAD + ALLOCATE))
    for wrong in ("max_epsilon = 0.0\n", "max_epsilon = nan\n", "max_epsilon = 1.0\ncaps = { income = 1.5 }\n"):
        with pytest.raises(Misuse, match=r"allocate.*(max_epsilon|caps\.income)"):
            read(tmp_path, HEAD + ALLOCATE + wrong)
