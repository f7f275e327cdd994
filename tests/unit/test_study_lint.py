"""What `study check` says: the table against closed forms and the table of randomization.md 1.1, and each finding once."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from verticil.analyst.lint import lint
from verticil.shared.mechanisms.transition import binary, blocks, identity, quantize, symmetric
from verticil.shared.numerics.model.artifact import pack
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.privacy.study_table import study_table
from verticil.shared.study.document import QuorumRule, Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import Unit

EXAMPLE = read_study(Path(__file__).parents[1] / "vectors" / "study_example.toml")
N = 30_647


def with_unit(index: int, scheme: str, matrix: NDArray[np.float64]) -> Study:
    unit = dataclasses.replace(EXAMPLE.units[index], scheme=scheme, transition=quantize(matrix))
    return EXAMPLE.with_declaration({index: unit})


def with_variable(n_states: int, epsilon: float) -> Study:
    """The example with its first column replaced by one of `n_states` categories."""
    variable = Variable(name="age", owner="census_bureau", labels=tuple(f"c{i}" for i in range(n_states)))
    unit = Unit(
        variables=("age",),
        owner="census_bureau",
        scheme="symmetric",
        transition=quantize(symmetric(n_states, epsilon=epsilon)),
    )
    return dataclasses.replace(
        EXAMPLE,
        schema=Schema(variables=(variable, *EXAMPLE.schema.variables[1:])),
        units=(unit, *EXAMPLE.units[1:]),
    )


WIDE = {("bin-wide", "variable 'capital-gain'")}


def codes(study: Study, n: int = N, today: dt.date | None = None) -> set[tuple[str, str]]:
    return {(finding.code, finding.where) for finding in lint(study, n=n, today=today)}


def test_the_example_has_one_wide_bin_and_nothing_else_at_its_size():
    assert codes(EXAMPLE, today=dt.date(2026, 11, 21)) == WIDE


def test_a_bin_much_wider_than_its_neighbours_is_a_warning_until_its_mean_is_declared():
    (found,) = lint(EXAMPLE, n=N, today=dt.date(2026, 11, 21))
    assert (found.severity, found.message[:15]) == ("warning", "[10000,100000):")
    place = EXAMPLE.schema.index("capital-gain")
    variables = list(EXAMPLE.schema.variables)
    variables[place] = dataclasses.replace(variables[place], means=variables[place].bins[:-1])
    assert codes(dataclasses.replace(EXAMPLE, schema=Schema(variables=tuple(variables)))) == set()


@pytest.mark.parametrize(
    ("n_states", "epsilon", "expected"),
    [  # the table "n = 40,000, two like columns" of randomization.md 1.1: n a^4, a = (e^eps - 1) / (e^eps + K - 1)
        (2, 1, 1824),
        (2, 4, 34548),
        (4, 2, 5721),
        (8, 1, 39),
        (8, 3, 9861),
        (16, 1, 4),
        (16, 2, 265),
        (16, 4, 14069),
    ],
)
def test_effective_records_are_those_of_the_table(n_states: int, epsilon: float, expected: int):
    row = study_table(with_variable(n_states, epsilon), 40_000).rows[0]
    assert round(row.effective_records) == expected
    assert row.too_noisy == (expected < 5 * n_states**2)


def test_a_row_has_the_closed_forms_of_the_symmetric_matrix():
    row = study_table(EXAMPLE, N).rows[2]  # race: K = 5, epsilon 2
    p = 1 / (math.exp(2) + 4)
    a = 1 - 5 * p
    assert (row.variable, row.party, row.scheme, row.n_states) == ("race", "census_bureau", "symmetric", 5)
    assert row.epsilon == pytest.approx(2, abs=1e-9)
    assert row.kept == pytest.approx(1 - 4 * p, abs=1e-12)
    assert row.condition_number == pytest.approx(1 / a, rel=1e-9)
    assert row.half_width == pytest.approx(1.959964 * math.sqrt(0.2 * 0.8 / N) / a, rel=1e-6)
    assert row.max_posterior == pytest.approx(0.15 * math.e**2 / (0.15 * math.e**2 + 0.85), rel=1e-9)


def test_totals_are_sums():
    table = study_table(EXAMPLE, N)
    assert dict(table.party_totals) == pytest.approx(
        {"census_bureau": 16, "employer": 9, "tax_office": 9 + math.log(18)}, abs=1e-8
    )
    assert table.total_epsilon == pytest.approx(34 + math.log(18), abs=1e-8)
    assert study_table(with_unit(1, "none", identity(2)), N).total_epsilon == math.inf


def test_feature_15_the_bytes_to_send_are_those_of_the_artifacts():
    table = study_table(EXAMPLE, N)
    sizes = [len(pack(np.zeros(N, dtype=np.uint8), unit.transition.n_states)) for unit in EXAMPLE.units]
    assert table.bytes_sent == sum(sizes)


def test_without_n_the_studys_minimum_counts():
    assert study_table(EXAMPLE).n == 1000
    assert ("too-noisy-for-links", "column 'education'") in {(f.code, f.where) for f in lint(EXAMPLE)}


@pytest.mark.parametrize(
    ("study", "expected"),
    [
        (with_unit(1, "none", identity(2)), ("epsilon-infinite", "column 'sex'")),
        (with_unit(2, "blocks", blocks([(0, 1), (2, 3, 4)], 5, keep=0.8)), ("epsilon-infinite", "column 'race'")),
        (with_unit(1, "binary", binary(0.0, 0.2)), ("epsilon-infinite", "column 'sex'")),
        (with_unit(1, "binary", binary(0.8, 0.9)), ("relabels", "column 'sex'")),
        (with_unit(2, "symmetric", symmetric(5, keep=0.1)), ("relabels", "column 'race'")),
        (with_variable(4, 5.5), ("epsilon-large", "column 'age'")),
        (with_variable(16, 1.0), ("ill-conditioned", "column 'age'")),
        (with_variable(16, 1.0), ("too-noisy-for-links", "column 'age'")),
        (with_variable(51, 3.0), ("many-categories", "column 'age'")),
        (with_variable(100, 3.0), ("families-cut", "structure.max_family_cells")),
        (with_variable(4, 8.0), ("party-total-large", "party 'census_bureau'")),
        (with_variable(4, 8.0), ("total-large", "all columns")),
    ],
)
def test_feature_15_each_finding_is_found(study: Study, expected: tuple[str, str]):
    assert expected in codes(study)


def test_a_party_without_whom_no_sub_model_is_possible_is_named():
    first = EXAMPLE.parties[0]
    own = next(variable.name for variable in EXAMPLE.schema.variables if variable.owner == first)
    named = dataclasses.replace(
        EXAMPLE,
        quorum=QuorumRule(deadline_seconds=3600, minimum=2),
        structure=dataclasses.replace(EXAMPLE.structure, required=(), forbidden=((own, own),), tiers=()),
    )
    found = [finding.message for finding in lint(named) if finding.code == "party-indispensable"]
    assert found == [
        f"the study cannot go on without party '{first}': structure.forbidden names '{own}', a column of party '{first}'"
    ]
    free = dataclasses.replace(named, structure=dataclasses.replace(named.structure, forbidden=()))
    without = dataclasses.replace(named, quorum=QuorumRule(deadline_seconds=3600))
    assert "party-indispensable" not in {code for study in (free, without) for code, _ in codes(study)}


def test_findings_about_the_head():
    few = dataclasses.replace(EXAMPLE, linkage=dataclasses.replace(EXAMPLE.linkage, minimum_common_records=20))
    assert ("minimum-small", "linkage.minimum_common_records") in codes(few)
    assert ("expires-soon", "expires") in codes(EXAMPLE, today=dt.date(2099, 12, 30))
    late = lint(EXAMPLE, n=999, today=dt.date(2100, 1, 1))
    assert [(finding.severity, finding.code) for finding in late[:2]] == [
        ("error", "expired"),
        ("error", "below-minimum"),
    ]
    assert all(finding.severity == "warning" for finding in late[2:])


def test_a_family_with_more_cells_than_records_is_named_with_what_the_records_are_worth():
    """Only where somebody says how many records there will be; the widest families that a search may come to."""
    wide = with_variable(100, 3.0)  # 100 x 5 x 2 x ..: the widest that 2 parents and 20,000 cells admit
    (found,) = [finding for finding in lint(wide, n=1000) if finding.code == "few-records"]
    assert found.severity == "warning"
    assert "the table of 'age' with the parents " in found.message
    assert "and 1,000 records are expected, worth " in found.message
    assert " unrandomized ones: most of its probabilities would be guesses" in found.message
    assert "max_family_cells" in found.hint
    assert not [finding for finding in lint(wide) if finding.code == "few-records"]
    assert not [finding for finding in lint(wide, n=10**6) if finding.code == "few-records"]
    names = EXAMPLE.schema.names
    parents = tuple((name, () if position < 2 else names[:2]) for position, name in enumerate(names))
    given = dataclasses.replace(
        EXAMPLE, structure=dataclasses.replace(EXAMPLE.structure, method="given", parents=parents)
    )
    cells = [EXAMPLE.schema.n_states[0] * EXAMPLE.schema.n_states[1] * k for k in EXAMPLE.schema.n_states[2:]]
    found_given = [finding.message for finding in lint(given, n=min(cells)) if finding.code == "few-records"]
    assert len(found_given) == sum(size > min(cells) for size in cells) > 0
    assert all(f"'{names[0]}', '{names[1]}' has " in message for message in found_given)


def test_a_family_that_would_be_cut_is_named():
    (found,) = [finding for finding in lint(with_variable(100, 3.0), n=N) if finding.code == "families-cut"]
    assert "('age', " in found.message
    assert "or raise max_family_cells" in found.hint


def test_labels_that_look_alike():
    variable = dataclasses.replace(EXAMPLE.schema[1], labels=("male", "Male"))
    study = dataclasses.replace(
        EXAMPLE, schema=Schema(variables=(EXAMPLE.schema[0], variable, *EXAMPLE.schema.variables[2:]))
    )
    assert codes(study) == {("labels-alike", "variable 'sex'")} | WIDE


def test_every_finding_says_what_to_do():
    for study in (with_variable(100, 8.0), with_unit(1, "none", identity(2))):
        for finding in lint(study, today=dt.date(2100, 1, 1)):
            assert finding.message
            assert finding.hint
