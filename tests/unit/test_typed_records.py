"""Typed columns: what a study may say of them, which code a text gets, and records that come back with their types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.api.frames import type_records
from verticil.party.dataset.encoding import Codebook, Outcome
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.documents.config import toml_table
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.numerics.knowledge.rules import Knowledge, Order
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.formats.table_files import write_table
from verticil.shared.study import canonical
from verticil.shared.study.codebook import variable_from
from verticil.shared.study.document import IdentifierRule, Study
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.record_checks import read_records
from verticil.shared.synthesis.synthesis import decode

STUDY = """
schema = 1
id = "visits"
title = "Visits"
purpose = "A test"
expires = 2099-12-31
{keys}
[[party]]
name = "clinic"

[[party]]
name = "insurer"

[linkage]
minimum_common_records = 100

[randomization_default]
scheme = "symmetric"
epsilon = 30.0

[structure]
method = "tree"
score = "mutual-information"
max_parents = 1

[identifier]
name = "pid"
format = "P%06d"

[[variable]]
party = "clinic"
name = "seen"
type = "date"
bins = [2019-01-01, 2019-07-01, 2020-01-01]
points = [1900-01-01]
format = "DD.MM.YYYY"
missing = {{ category = "unknown", spellings = ["NA"] }}

[[variable]]
party = "clinic"
name = "weight"
type = "number"
bins = [30, 60, 80, 120.5]
points = [0, 60, 999.9]
decimals = 1
unit = "kg"
missing = {{ category = "none", spellings = [""] }}

[[variable]]
party = "clinic"
name = "count"
type = "integer"
points = [0, 1, 5]
bins = [3, 10]

[[variable]]
party = "insurer"
name = "code"
type = "category"
categories = ["A00", "B99", "rest"]
groups = {{ "A00" = ["A", "a"], "B99" = ["B"] }}
other = "rest"

[[variable]]
party = "insurer"
name = "moment"
type = "datetime"
timezone = "Europe/Berlin"
bins = [2019-01-01T00:00:00Z, 2019-07-01T12:00:00Z, 2020-01-01T00:00:00Z]

[[variable]]
party = "insurer"
name = "hour"
type = "time"
bins = ["00:00", "08:30", "24:00"]

[[variable]]
party = "insurer"
name = "member"
type = "boolean"
categories = ["True", "False", "missing"]
missing = {{ category = "missing", spellings = [""] }}

[[variable]]
party = "insurer"
name = "size"
type = "ordered"
categories = ["small", "large"]
"""
N = 4000


def study(keys: str = "") -> Study:
    return read_study_text(STUDY.format(keys=keys), Path())


def variable(text: str) -> Variable:
    table = toml_table(
        f'schema = 1\n[[variable]]\nparty = "clinic"\nname = "v"\n{text}', source="study.toml", code="STUDY_INVALID"
    )
    return variable_from(table.tables("variable")[0])


def codes_of_all(schema: Schema) -> list[Codes]:
    generator = np.random.default_rng(3)
    return [generator.integers(0, item.n_states, N).astype(np.uint8) for item in schema.variables]


# ---- what a study may say


@pytest.mark.parametrize(
    ("text", "problem"),
    {
        "decimals of a date": ('type = "date"\nbins = [2019-01-01, 2020-01-01]\ndecimals = 1', "decimals"),
        "numbers for dates": ('type = "date"\nbins = [1, 2]', "expected dates"),
        "a point twice": ('type = "integer"\npoints = [1, 1]\nbins = [0, 5]', "twice"),
        "a point that is not finite": ('type = "number"\npoints = [1, inf]\nbins = [0, 5]', "finite"),
        "a negative number of decimals": ('type = "number"\nbins = [0, 5, 9]\ndecimals = -1', "0 to 12"),
        "too many decimals": ('type = "number"\nbins = [0, 5, 9]\ndecimals = 13', "0 to 12"),
        "an edge with more decimals": ('type = "number"\nbins = [0, 0.25, 0.5]\ndecimals = 1', "decimals"),
        "a bin without a value": ('type = "integer"\nbins = [0, 2]\npoints = [0, 1]', "besides its points"),
        "an unknown zone": (
            'type = "datetime"\ntimezone = "Mars"\nbins = [2019-01-01, 2019-06-15, 2020-01-01]',
            "Mars",
        ),
        "no pattern": ('type = "date"\nformat = "dd"\nbins = [2019-01-01, 2019-06-15, 2020-01-01]', "format"),
        "a format without the day": (
            'type = "date"\nformat = "YYYY-MM"\nbins = [2019-01-15, 2019-06-15, 2020-01-01]',
            "format",
        ),
        "two groups of a value": (
            'type = "category"\ncategories = ["a", "b"]\ngroups = { a = ["x"], b = ["x"] }',
            "two groups",
        ),
        "group_by": ('type = "category"\ncategories = ["a", "b"]\ngroup_by = "first:3"', "prefix:N"),
        "a key without a type": ('categories = ["a", "b"]\nunit = "kg"', "no type"),
        "three truths": ('type = "boolean"\ncategories = ["true", "false", "perhaps"]', "boolean"),
        "integer beside a type": ('type = "integer"\ninteger = true\nbins = [0, 5]', "integer"),
        "an unknown type": ('type = "money"\nbins = [0, 5]', "money"),
    }.values(),
)
def test_what_does_not_go_with_a_type_is_refused_by_its_name(text: str, problem: str) -> None:
    with pytest.raises(Misuse, match=problem) as refused:
        variable(text)
    assert refused.value.code == "STUDY_INVALID"


def test_a_typed_study_has_one_canonical_form_and_labels_that_people_read() -> None:
    own = study()
    assert canonical.from_bytes(canonical.to_bytes(own), source="study.json", wire=False) == own
    labels = {item.name: item.labels for item in own.schema.variables}
    assert labels["seen"] == ("[2019-01-01,2019-07-01)", "[2019-07-01,2020-01-01)", "1900-01-01", "unknown")
    assert labels["hour"] == ("[00:00,08:30)", "[08:30,24:00)")
    assert labels["weight"][3:] == ("0", "60", "999.9", "none")


@pytest.mark.parametrize(
    ("change", "problem"),
    {
        "the name of a variable": (('name = "pid"', 'name = "seen"'), "is a variable"),
        "no number": (("P%06d", "P"), "one number"),
        "two numbers": (("P%06d", "%d%d"), "one number"),
        "a text": (("P%06d", "%s"), "one number"),
        "a formula": (("P%06d", "=%d"), "formula"),
    }.values(),
)
def test_a_key_that_records_cannot_have_is_refused(change: tuple[str, str], problem: str) -> None:
    with pytest.raises(Misuse, match=problem):
        read_study_text(STUDY.format(keys="").replace(*change), Path())


# ---- codes


@pytest.mark.parametrize(
    ("name", "text", "label"),
    [
        ("seen", "03.07.2019", "[2019-07-01,2020-01-01)"),
        ("seen", "2019-07-03", "[2019-07-01,2020-01-01)"),
        ("seen", "01.01.1900", "1900-01-01"),
        ("seen", "NA", "unknown"),
        ("seen", "", "unknown"),
        ("weight", "60", "60"),
        ("weight", "60.1", "[60,80)"),
        ("weight", "999.9", "999.9"),
        ("weight", "999.8", "[80,120.5)"),
        ("weight", "0.0", "0"),
        ("count", "4", "[3,10)"),
        ("count", "5", "5"),
        ("code", "a", "A00"),
        ("code", "A00", "A00"),
        ("code", "Z", "rest"),
        ("moment", "2019-07-01T14:00:00+02:00", "[2019-07-01T12:00:00,2020-01-01)"),
        ("hour", "08:30", "[08:30,24:00)"),
        ("member", "true", "True"),
        ("member", "", "missing"),
    ],
)
def test_a_text_gets_the_code_that_its_value_has(name: str, text: str, label: str) -> None:
    schema = study().schema
    item = schema[schema.index(name)]
    codes, _ = Codebook(item, {}, where="people.csv").encode([text])
    assert item.labels[codes[0]] == label


def test_first_letters_make_the_category() -> None:
    item = variable('type = "category"\ncategories = ["A00", "B01", "rest"]\ngroup_by = "prefix:3"\nother = "rest"')
    assert Codebook(item, {}, where="t").encode(["A00.1", "B019", "C", "A0"])[0].tolist() == [0, 1, 2, 2]


@settings(derandomize=True, deadline=None, max_examples=150, database=None)
@given(
    st.lists(st.integers(-400, 400), min_size=3, max_size=6, unique=True).map(sorted),
    st.lists(st.integers(-500, 500), min_size=1, max_size=4, unique=True).map(sorted),
    st.integers(-500, 500),
)
def test_a_number_goes_into_the_bin_that_holds_it_and_a_point_is_itself(
    edges: list[int], points: list[int], number: int
) -> None:
    for low, high in itertools.pairwise(edges):
        if len([point for point in points if low <= point < high]) >= high - low:
            return
    item = variable(f'type = "integer"\nbins = {edges}\npoints = {points}')
    codes, outcomes = Codebook(item, {}, where="t").encode([str(number)])
    label = item.labels[codes[0]]
    if number in points:
        assert label == str(number)
    elif edges[0] <= number < edges[-1]:
        low, high = (int(end) for end in label[1:-1].split(","))
        assert low <= number < high
    else:
        assert outcomes[0] == Outcome.CLAMPED


# ---- records


@pytest.fixture(scope="module")
def records() -> tuple[Study, list[Codes], pd.DataFrame]:
    own = study()
    codes = codes_of_all(own.schema)
    return own, codes, decode(own.schema, codes, np.random.default_rng(1))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_records_are_read_back_code_by_code(records, suffix: str, tmp_path: Path) -> None:
    own, codes, frame = records
    write_table(frame, tmp_path / f"t{suffix}", schema=own.schema, identifier=own.identifier)
    again = read_records(tmp_path / f"t{suffix}", own.schema, N, identifier=own.identifier)
    for name, one, other in zip(own.schema.names, codes, again, strict=True):
        assert np.array_equal(one, other), name


def test_records_have_the_types_of_their_columns(records, tmp_path: Path) -> None:
    own, codes, frame = records
    write_table(frame, tmp_path / "t.parquet", schema=own.schema, identifier=own.identifier)
    table = type_records(pd.read_parquet(tmp_path / "t.parquet"), own.schema, own.identifier)
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == {
        "pid": "string",
        "seen": "object",
        "weight": "Float64",
        "count": "Int64",
        "code": "string",
        "moment": "datetime64[us, Europe/Berlin]",
        "hour": "object",
        "member": "boolean",
        "size": "category",
    }
    assert table["size"].cat.ordered
    assert table["pid"].tolist()[::3999] == ["P000001", "P004000"]
    assert {type(value) for value in table["seen"]} == {dt.date, type(None)}
    by_name = dict(zip(own.schema.names, codes, strict=True))
    assert (table["seen"].isna() == (by_name["seen"] == 3)).all()
    assert ((table["weight"] == 60).fillna(False) == (by_name["weight"] == 4)).all()  # no number of a bin is a point
    assert ((table["count"] == 5) == (by_name["count"] == 3)).all()
    weights = table["weight"].dropna().to_numpy(dtype=float)
    assert np.array_equal(weights, np.round(weights, 1))
    assert len(np.unique(weights)) > 700  # of 905 tenths


def test_a_csv_file_has_plain_numbers_formats_and_empty_fields(records, tmp_path: Path) -> None:
    own, codes, frame = records
    write_table(frame, tmp_path / "t.csv", schema=own.schema, identifier=own.identifier)
    text = pd.read_csv(tmp_path / "t.csv", dtype=str, keep_default_na=False)
    assert text["weight"].str.fullmatch(r"[0-9]+\.[0-9]|").all()
    assert text["seen"].str.fullmatch(r"[0-9]{2}\.[0-9]{2}\.[0-9]{4}|").all()
    assert (text["member"] == np.array(["True", "False", ""])[codes[6]]).all()
    assert text["moment"].str.fullmatch(r"2019-[0-9-]{5}T[0-9:]{8}Z").all()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("pid", "P000003"),
        ("pid", "2"),
        ("seen", "2019-07-03"),
        ("seen", "31.12.1899"),
        ("seen", "01.01.2020"),
        ("weight", "1e400"),
        ("weight", "nan"),
        ("weight", "120.5"),
        ("count", "2"),
        ("count", ""),
        ("member", "missing"),
        ("code", "a"),
        ("hour", "24:00:00"),
        ("size", ""),
    ],
)
def test_a_value_that_no_record_can_have_is_refused(records, column: str, value: str, tmp_path: Path) -> None:
    own, _, frame = records
    write_table(frame.iloc[:5], tmp_path / "t.csv", schema=own.schema, identifier=own.identifier)
    table = pd.read_csv(tmp_path / "t.csv", dtype=str, keep_default_na=False)
    read_records(tmp_path / "t.csv", own.schema, 5, identifier=own.identifier)
    table.loc[1, column] = value
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(GateFailed, match=column):
        read_records(tmp_path / "t.csv", own.schema, 5, identifier=own.identifier)


@settings(derandomize=True, deadline=None, max_examples=100, database=None)
@given(st.dates(dt.date(1600, 1, 1), dt.date(9998, 12, 31)), st.sampled_from(["DD.MM.YYYY", "YYYYMMDD", "MM/DD/YYYY"]))
def test_a_date_is_written_as_it_is_read(day: dt.date, pattern: str) -> None:
    item = variable(
        f'type = "date"\nformat = "{pattern}"\nbins = [{day}, {day + dt.timedelta(days=1)}]\npoints = [1599-01-01]'
    )
    table = decode(Schema(variables=(item,)), [np.array([0, 1], dtype=np.uint8)], np.random.default_rng(1))
    assert table["v"].tolist() == [day, dt.date(1599, 1, 1)]
    text = day.strftime({"DD.MM.YYYY": "%d.%m.%Y", "YYYYMMDD": "%Y%m%d", "MM/DD/YYYY": "%m/%d/%Y"}[pattern])
    assert value_reader("date", pattern)(text) == (day - dt.date(1970, 1, 1)).days


def test_keys_say_nothing_of_records() -> None:
    assert IdentifierRule(name="pid").format == "%d"
    plain = STUDY.format(keys="").replace('[identifier]\nname = "pid"\nformat = "P%06d"\n', "")
    assert b"identifier" not in canonical.to_bytes(read_study_text(plain, Path()))


# ---- what else knows points and dates


def test_a_range_of_a_rule_takes_dates_and_has_the_points_in_it() -> None:
    text = STUDY.format(keys="").replace(
        "[identifier]",
        '[[knowledge.rule]]\nkind = "forbidden"\nall = { seen = { from = 2019-07-01 }, weight = { below = 60 } }\n\n[identifier]',
    )
    own = read_study_text(text, Path())
    assert own.knowledge is not None
    first, second = own.knowledge.rules[0].when  # in the order of the schema
    assert first.values == ("[2019-07-01,2020-01-01)",)
    assert second.values == ("[30,60)", "0")
    words = " ".join(describe_knowledge(own.knowledge, own.schema))
    assert "seen is from 2019-07-01" in words
    with pytest.raises(Misuse, match="2019-03-01 is no edge"):
        read_study_text(text.replace("from = 2019-07-01", "from = 2019-03-01"), Path())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_order_of_dates_and_points_holds_in_records(suffix: str, tmp_path: Path) -> None:
    seen = variable('type = "date"\nbins = [2019-01-01, 2019-07-01, 2020-01-01]\npoints = [1900-01-01]')
    left = dataclasses.replace(
        variable('type = "date"\nbins = [2019-01-01, 2020-01-01]\npoints = [9999-12-31]'), name="w"
    )
    schema = Schema(variables=(seen, left))
    knowledge = Knowledge(orders=(Order(name="in order", lower="v", upper="w", strict=True),))
    codes = [np.repeat(np.arange(3), 2).astype(np.uint8), np.tile(np.arange(2), 3).astype(np.uint8)]
    codes = [np.tile(column, 200) for column in codes]
    frame = decode(schema, codes, np.random.default_rng(1), knowledge=knowledge)
    assert (frame["v"] < frame["w"]).all()
    write_table(frame, tmp_path / f"t{suffix}", schema=schema)
    again = read_records(tmp_path / f"t{suffix}", schema, 1200, knowledge)
    assert all(np.array_equal(one, other) for one, other in zip(codes, again, strict=True))


@settings(derandomize=True, deadline=None, max_examples=20, database=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_a_column_comes_back_within_its_sampling_error(seed: int, decimals: int) -> None:
    """Kolmogorov's distance of two samples of 2,000 is above .065 in one of 5,000 such pairs, so in none of twenty."""
    generator, n = np.random.default_rng(seed), 2000
    values = np.round(generator.gamma(2.0, 30.0, n), decimals)
    values[: n // 5] = 0
    rest = values[values > 0]
    step = 10.0**-decimals
    edges = np.unique(np.round(np.quantile(rest, np.linspace(0, 1, 41)), decimals))
    edges = np.append(edges[:-1], np.round(edges[-1] + step, decimals))
    item = variable(f'type = "number"\ndecimals = {decimals}\npoints = [0]\nbins = {[float(edge) for edge in edges]}')
    codes, outcomes = Codebook(item, {}, where="t").encode([f"{value:.{decimals}f}" for value in values])
    assert (outcomes == Outcome.CATEGORY).all()
    table = decode(Schema(variables=(item,)), [codes.astype(np.uint8)], np.random.default_rng(1))
    own = table["v"].to_numpy(dtype=float)
    assert ((own == 0) == (values == 0)).all()
    grid = np.sort(np.concatenate([own, values]))
    distance = np.abs(
        np.searchsorted(np.sort(own), grid, side="right") - np.searchsorted(np.sort(values), grid, side="right")
    ).max()
    assert distance / n < 0.065


def test_an_empty_field_is_missing_beside_another_category_for_the_rest() -> None:
    item = variable(
        'type = "category"\ncategories = ["a", "rest", "none"]\nother = "rest"\n'
        'missing = { category = "none", spellings = ["NA"] }'
    )
    assert Codebook(item, {}, where="t").encode(["", "NA", "b"])[0].tolist() == [2, 2, 1]
