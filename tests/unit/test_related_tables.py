"""Several rows a person in a study: what is read into slots, what is refused by name, and which pairs are measured."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from support.related import STUDY
from verticil.curator.study import owners_study
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.joint import Mixture, WeightedRecords
from verticil.shared.numerics.model.schema import Missing, Variable
from verticil.shared.related.structure import divisions, model_fault, possible_together, records_fault
from verticil.shared.related.tables import EMPTY, row_variables, usual_gaps
from verticil.shared.study import canonical, rules
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study, read_study_text
from verticil.shared.study.tables import tables_of


def study(text: str = STUDY) -> Study:
    return read_study_text(text, Path())


def changed(old: str, new: str, text: str = STUDY) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_a_table_becomes_a_count_and_slots() -> None:
    found = study()
    assert found.schema.names == (
        "sex", "age", "visits.rows",
        "visits[1].admitted", "visits[1].ward", "visits[2].admitted.gap", "visits[2].ward",
        "visits[3].admitted.gap", "visits[3].ward",
    )  # fmt: skip
    count, date, ward, gap = found.schema.variables[2:6]
    assert count.points == (0.0, 1.0, 2.0, 3.0)
    assert count.kind == "integer"
    assert date.labels == ("[2020-01-01,2020-07-01)", "[2020-07-01,2021-01-01)", EMPTY)
    assert ward.labels == ("A", "B", "C", EMPTY)
    assert gap.unit == "days"
    assert gap.kind == "integer"
    assert gap.bins == (
        0.0,
        1.0,
        2.0,
        8.0,
        15.0,
        31.0,
        61.0,
        91.0,
        181.0,
        367.0,
    )  # from the declared year, not from data
    assert [v.labels for v in row_variables(found.related[0], found.schema)] == [date.labels[:-1], ward.labels[:-1]]


def test_the_canonical_form_has_the_slots_and_no_study_without_tables_changes() -> None:
    found = study()
    again = canonical.from_bytes(canonical.to_bytes(found), source="study.json", wire=False)
    assert again == found
    assert canonical.digest(again) == canonical.digest(found)
    without = dataclasses.replace(found, related=())
    assert b"related" not in canonical.to_bytes(without)
    with pytest.raises(Misuse, match="its slots are not among the variables"):
        rules.check(
            dataclasses.replace(found, related=(dataclasses.replace(found.related[0], name="claims"),)), source="x"
        )
    more = dataclasses.replace(found.schema[4], labels=("A", "B", "D", EMPTY))
    variables = (*found.schema.variables[:4], more, *found.schema.variables[5:])
    with pytest.raises(Misuse, match="not those that follow from its columns"):
        rules.check(
            dataclasses.replace(found, schema=dataclasses.replace(found.schema, variables=variables)), source="x"
        )


def test_a_declared_missing_category_is_the_empty_one_of_a_slot() -> None:
    ward = 'categories = ["A", "B", "C"]'
    missing = 'categories = ["A", "B", "C", "?"]\nmissing = { category = "?", spellings = ["NA"] }'
    found = study(changed(ward, missing))
    assert found.schema[4].labels == ("A", "B", "C", "?")
    assert row_variables(found.related[0], found.schema)[1].missing == Missing(category="?", spellings=("NA",))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_rows = 3", "max_rows = 0", "max_rows: got 0, expected 1 to 200"),
        ("max_rows = 3", "max_rows = 201", "max_rows: got 201, expected 1 to 200"),
        ('order = "admitted"', 'order = "seen"', "'seen' is no column of the table, expected one of admitted, ward"),
        ('order = "admitted"', 'order = "ward"', "'ward' has no type, expected one of date, datetime, integer, number"),
        ('order = "admitted"', 'keep = "best"', "keep"),
        ('order = "admitted"', 'order = "admitted"\ngaps = [1, 2]', "ascending from 0"),
        ('order = "admitted"', "gaps = [0, 2]", "goes with 'order'"),
        ('[[table]]\nname = "visits"', '[[table]]\nname = "visit"', "'visits' is no \\[\\[table\\]\\] of the study"),
        ('categories = ["A", "B", "C"]', 'categories = ["A", "no row"]', "has the category 'no row'"),
        ('name = "ward"', 'name = "admitted"', "'admitted' is declared twice in one table"),
        ("[tables]", '[release]\nsample_from = "network"\n[tables]', "do not keep what related tables"),
        ("[tables]", '[structure]\nmethod = "posterior"\nscore = "bdeu"\n[tables]', "do not keep what related tables"),
        ("epsilon = 1.0\ndelta = 1e-9", 'epsilon = 1.0\ndelta = 1e-9\npairs = "some"', "pairs"),
        (
            "[tables]",
            '[[randomization]]\njointly = ["visits.ward", "sex"]\nscheme = "none"\n[tables]',
            "'visits.ward' is a column of a related table",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_by_name(old: str, new: str, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        study(changed(old, new))


@pytest.mark.parametrize("name", ["people", "Synthetic", "a.b", "1st", "x" * 64])
def test_a_table_is_called_as_a_file_can_be(name: str) -> None:
    with pytest.raises(Misuse, match="a letter first, and none of people, synthetic"):
        study(STUDY.replace('"visits"', f'"{name}"'))


def test_two_tables_of_one_name_are_refused() -> None:
    second = '[[table]]\nname = "visits"\nparty = "clinic"\nmax_rows = 2\n[[variable]]'
    with pytest.raises(Misuse, match="'visits' is the name of 2 tables"):
        study(STUDY.replace("[[variable]]", second, 1))


def test_more_slots_than_a_study_can_have_are_refused() -> None:
    columns = "".join(
        f'[[variable]]\nparty = "clinic"\ntable = "visits"\nname = "c{n}"\ncategories = ["x", "y"]\n' for n in range(5)
    )
    text = changed("max_rows = 3", "max_rows = 200").replace("[tables]", columns + "[tables]")
    with pytest.raises(Misuse, match="200 slots of 7 columns are 1401 columns, and the study has 2 others"):
        study(text)


def test_one_row_is_enough_and_a_column_in_all_slots_has_one_name() -> None:
    text = changed(
        "[randomization_default]",
        '[[randomization]]\nvariables = ["visits.ward"]\nscheme = "none"\n[randomization_default]',
    )
    found = study(text)
    assert [unit.scheme for unit in found.units if "ward" in unit.variables[0]] == ["none"] * 3
    assert len(study(changed("max_rows = 3", "max_rows = 1")).related[0].names) == 3


def test_pairs_are_measured_by_structure_unless_all_are_asked_for() -> None:
    found = study()
    names = found.schema.names
    pairs = {frozenset(names[v] for v in members) for members in tables_of(found)}
    assert frozenset({"sex", "visits[3].ward"}) in pairs
    assert frozenset({"visits.rows", "visits[3].ward"}) in pairs
    assert frozenset({"visits[1].ward", "visits[2].ward"}) in pairs
    assert frozenset({"visits[3].ward", "visits[3].admitted.gap"}) in pairs
    assert frozenset({"visits[1].ward", "visits[3].ward"}) not in pairs
    assert len(pairs) == 9 * 8 // 2 - 2 * 2  # slots 1 and 3 have two columns each
    text = changed("epsilon = 1.0\ndelta = 1e-9", 'epsilon = 1.0\ndelta = 1e-9\npairs = "all"')
    assert len(tables_of(study(text))) == 9 * 8 // 2
    allowed = found.constraints().allowed
    assert not allowed[names.index("visits[1].ward"), names.index("visits[3].ward")]


def test_pairs_go_with_related_tables_alone(tmp_path: Path) -> None:
    without = dataclasses.replace(study(), related=())
    assert without.tables is not None
    with pytest.raises(Misuse, match="goes with related tables"):
        rules.check(dataclasses.replace(without, tables=dataclasses.replace(without.tables, pairs="all")), source="x")


def test_between_peers_related_tables_are_refused_by_name() -> None:
    text = changed('purpose = "Visits"', 'purpose = "Visits"\nmodel = "peer"').partition("[tables]")[0]
    second = '[[party]]\nname = "bank"\n[[variable]]\nparty = "bank"\nname = "income"\ncategories = ["low", "high"]\n'
    default = '[randomization_default]\nscheme = "symmetric"\nepsilon = 3.0\n'
    with pytest.raises(Misuse, match="'peer' has no related tables"):
        study(text + second + default)


def test_a_slot_beyond_the_count_is_empty_and_one_up_to_it_is_not() -> None:
    """Every combination of the codes of count and slots, held against the rule as it is said."""
    found = study()
    members = [found.schema.index(name) for name in ("visits.rows", "visits[1].ward", "visits[3].ward")]
    possible = possible_together(found.related, found.schema, members)
    assert possible is not None
    for count, first, third in itertools.product(range(4), range(4), range(4)):
        assert possible[count, first, third] == ((first == 3) == (count < 1) and (third == 3) == (count < 3))
    assert possible_together(found.related, found.schema, [0, 1]) is None
    (division,) = divisions(found.related, found.schema)
    assert division.allowed.shape == (4, sum(found.schema.n_states))


def test_models_and_records_that_do_not_fit_the_count_are_found() -> None:
    found = study()
    draw = np.random.default_rng(1)
    codes = np.array([[0, 0, 1, 0, 2, 9, 3, 9, 3], [1, 1, 0, 2, 3, 9, 3, 9, 3]], dtype=np.uint16)
    assert records_fault(found.related, found.schema, list(codes.T)) == ""
    model = WeightedRecords(n_states=found.schema.n_states, codes=codes, weights=np.array([0.5, 0.5]))
    assert model_fault(found.related, found.schema, model) == ""
    codes[1, 4] = 2  # a ward without a row
    assert "visits[1].ward" in records_fault(found.related, found.schema, list(codes.T))
    rows = [draw.dirichlet(np.ones(k), 3) for k in found.schema.n_states]
    mixture = Mixture(weights=np.ones(3) / 3, probability=tuple(rows))
    assert "does not fit the number of rows" in model_fault(found.related, found.schema, mixture)


def test_gaps_follow_from_the_declared_range() -> None:
    number = Variable(name="t", owner="a", labels=("x", "y"), kind="number", bins=(0.0, 0.5, 1.0), decimals=1)
    assert usual_gaps(number)[0] == 0
    assert max(usual_gaps(number)) >= 1
    assert sorted(set(usual_gaps(number))) == list(usual_gaps(number))
    year = Variable(name="t", owner="a", labels=("x", "y"), kind="integer", integer=True, points=(1.0, 10.0))
    assert usual_gaps(year) == (0.0, 1.0, 2.0, 3.0, 5.0, 10.0)


def test_the_owners_study_keeps_the_tables(tmp_path: Path) -> None:
    party = STUDY.replace('name = "clinic"', 'name = "clinic"\n[[party]]\nname = "bank"', 1)
    column = '\n[[variable]]\nparty = "bank"\nname = "income"\ncategories = ["low", "high"]\n'
    (tmp_path / "study.toml").write_text(party + column)
    own = owners_study(read_study(tmp_path / "study.toml", by_owner=True), method="joint")
    assert own.related[0].party == "owner"
    assert own.schema.names[:3] == ("sex", "age", "income")
    with pytest.raises(Misuse, match="do not keep what related tables"):
        owners_study(read_study(tmp_path / "study.toml", by_owner=True), method="network")
