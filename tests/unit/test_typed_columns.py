"""Typed columns: what a study may say of them, which code a text gets, and that records come back with their types."""

from __future__ import annotations

import datetime as dt
import functools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import verticil.api as vt
from verticil.api.frames import typed_column
from verticil.curator.reading import read_table
from verticil.party.dataset.encoding import Codebook, style_of
from verticil.party.dataset.perturb import codebook_digest
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.written_values.dates import DAY, DatePattern
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.drawing import evidence_of
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.synthesis import decode
from verticil.shared.synthesis.typed_columns import codes_of, csv_frame

N = 1_500


def study_of(*lines: str) -> Study:
    """Read a study whose first column has the given keys."""
    text = "\n".join(
        [
            'schema = 1\nid = "typed"\npurpose = "types"\nexpires = 2030-01-01\n[[party]]\nname = "owner"',
            '[[variable]]\nparty = "owner"\nname = "x"',
            *lines,
            '[[variable]]\nparty = "owner"\nname = "sex"\ntype = "category"\ncategories = ["F", "M"]',
            '[randomization_default]\nscheme = "none"',
        ]
    )
    return read_study_text(text, Path())


def variable_of(*lines: str) -> Variable:
    return study_of(*lines).schema[0]


DATE = ('type = "date"', "bins = [2020-01-01, 2020-07-01, 2021-01-01]")
CODES = ("type = 'category'", "categories = ['A0', 'B1', 'x']")
NUMBER = ('type = "number"', "bins = [0, 10, 20.5]", "decimals = 2", "points = [0]")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (('type = "dates"', "bins = [1, 2]"), "did you mean 'date'"),
        (('type = "date"', "bins = [1, 2, 3]"), "dates, such as 2024-01-31"),
        (('type = "date"', "bins = [2020-01-01, 2021-01-01]", "decimals = 2"), "this key goes with number"),
        ((*DATE, 'format = "DD"'), "expected a pattern"),
        ((*DATE, 'format = "hh:mm"'), "does not say the day"),
        (("type = 'date'", "bins = [2020-01-15, 2020-07-01, 2020-09-01]", "format = 'YYYY-MM'"), "cannot write 2020-01-15"),
        (('type = "number"', "bins = [0, 0.005, 1]", "decimals = 2"), "0.005 has more than 2 decimals"),
        (('type = "number"', "bins = [0, 1, 2]", "decimals = 13"), "expected 0 to 12"),
        (('type = "integer"', "bins = [0, 1, 5]", "points = [0]"), r"\[0,1\) holds no value besides its points"),
        (('type = "integer"', "bins = [0, 5, 9]", "points = [2.5]"), "2.5 is no whole number"),
        (('type = "integer"', "points = [5, 3]"), "not finite and ascending"),
        (('type = "integer"', "points = [3]", 'other = "x"'), "neither bins nor two points"),
        (('type = "integer"', "bins = [0, 5, 9]", "integer = true"), "has a type, which says it"),
        (("type = 'integer'", "bins = [0, 5, 9]", "other = 'x'", "missing = {category = 'y', spellings = ['']}"), "expected one"),
        (('type = "boolean"', 'categories = ["yes", "no"]'), "true and false"),
        (("type = 'datetime'", "points = [2019-01-01T00:00:00, 2020-01-01T00:00:00]", "timezone = 'Mars'"), "not known"),
        (('type = "category"', 'categories = ["A", "B"]', 'group_by = "first"'), "expected prefix:N"),
        (('type = "category"', 'categories = ["A", "B"]', 'groups = { A = ["x"], B = ["x"] }'), "stands in two groups"),
        (('type = "category"', 'categories = ["A", "B"]', 'groups = { C = ["x"] }'), "'C' is not among the categories"),
        (("bins = [0, 1, 2]", "points = [1]"), "has no type; this key goes with one"),
        (('type = "category"', "bins = [0, 1, 2]"), "this key goes with"),
        (('type = "time"', 'bins = ["00:00", "25:00"]'), "times of day"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_type_is_refused_by_name(lines: tuple[str, ...], problem: str) -> None:
    with pytest.raises(Misuse, match=problem) as caught:
        study_of(*lines)
    assert caught.value.code == "STUDY_INVALID"


def test_labels_are_as_people_write_them() -> None:
    assert variable_of(*DATE, "points = [9999-12-31]").labels == (
        "[2020-01-01,2020-07-01)", "[2020-07-01,2021-01-01)", "9999-12-31",
    )  # fmt: skip
    assert variable_of('type = "time"', 'bins = ["00:00", "08:30", "24:00"]').labels == (
        "[00:00,08:30)",
        "[08:30,24:00)",
    )
    assert variable_of(*NUMBER, 'other = "unknown"').labels == ("[0,10)", "[10,20.5)", "0", "unknown")


def test_a_typed_study_comes_back_from_its_bytes() -> None:
    for lines in (DATE, NUMBER, ('type = "category"', 'categories = ["A0", "B1"]', 'group_by = "prefix:2"')):
        study = study_of(*lines)
        assert canonical.from_bytes(canonical.to_bytes(study), source="study.json") == study


def test_a_column_without_a_type_has_the_digest_it_had() -> None:
    plain = variable_of("bins = [0, 5, 9]", "integer = true")
    assert (plain.kind, plain.points) == (None, ())
    assert canonical.to_bytes(study_of("bins = [0, 5, 9]", "integer = true")).count(b'"type"') == 1  # that of sex
    typed = variable_of('type = "integer"', "bins = [0, 5, 9]")
    assert codebook_digest(plain, {}) != codebook_digest(typed, {})


@pytest.mark.parametrize(
    ("lines", "style", "texts", "codes"),
    [
        (NUMBER, "1.234,5", ["0", "0,00", "0,01", "9,99", "1.000"], [2, 2, 0, 0, 1]),
        ((*DATE, 'format = "DD.MM.YYYY"'), "plain", ["31.12.2020", "2020-06-30", "1.1.1990"], [1, 0, 0]),
        ((*DATE, "points = [9999-12-31]"), "DD/MM/YYYY", ["31/12/9999", "30/12/9999"], [2, 1]),
        ((*CODES, "other = 'x'", "group_by = 'prefix:2'"), "plain", ["A01", "B19", "C"], [0, 1, 2]),
        ((*CODES, "groups = { A0 = ['1', '2'] }"), "plain", ["1", "B1", "3"], [0, 1, -1]),
        (('type = "integer"', "points = [1, 2, 5]"), "plain", ["1", "5.0", "3"], [0, 2, -1]),
        (('type = "time"', 'bins = ["00:00", "08:30", "24:00"]'), "hh:mm AM", ["08:29 AM", "08:30 AM", "11:59 PM"], [0, 1, 1]),
    ],
)  # fmt: skip
def test_texts_get_the_codes_of_bins_points_and_groups(
    lines: tuple[str, ...], style: str, texts: list[str], codes: list[int]
) -> None:
    codebook = Codebook(variable_of(*lines), {}, style=style, where="t")
    assert codebook.encode(texts)[0].tolist() == codes


@functools.cache
def kinds() -> tuple[Variable, ...]:
    """A variable of each kind, with what is hardest to read back."""
    day = ("type = 'datetime'", "bins = [2020-01-01T00:00:00, 2020-01-02T00:00:00]", "points = [2030-01-01T00:00:00]")
    truths = (
        "type = 'boolean'",
        "categories = ['TRUE', 'FALSE', '?']",
        "missing = {category = '?', spellings = ['?']}",
    )
    return (
        variable_of(*NUMBER, 'other = "unknown"'),
        variable_of(*DATE, "points = [2020-03-01, 9999-12-31]", 'format = "DD.MM.YYYY"'),
        variable_of(*DATE, 'format = "YYYY-MM"'),
        variable_of('type = "integer"', "bins = [0, 4, 9]", "points = [1, 2, 7, 999]"),
        variable_of(*day, 'timezone = "Europe/Berlin"'),
        variable_of('type = "time"', 'bins = ["00:00", "08:30", "24:00"]', 'format = "hh:mm"'),
        variable_of(*truths),
        variable_of('type = "ordered"', 'categories = ["low", "high"]'),
    )


@pytest.mark.parametrize("kind", range(8))
@given(seed=st.integers(0, 99), drawn=st.lists(st.integers(0, 11), min_size=1, max_size=40))
@settings(max_examples=25)
def test_records_have_one_code_each_in_both_files(kind: int, seed: int, drawn: list[int]) -> None:
    """What is drawn for a code is read back as that code, from the text of a CSV file and from the value of a frame."""
    variable = kinds()[kind]
    codes = np.array([code % variable.n_states for code in drawn], dtype=np.uint8)
    schema = Schema(variables=(variable,))
    frame = decode(schema, [codes], np.random.default_rng(seed))
    texts = csv_frame(frame, schema)["x"].tolist()
    assert codes_of(variable, texts).tolist() == codes.tolist()
    values = frame["x"].astype(object)
    assert (
        codes_of(variable, [None if pd.isna(value) else _plain(value) for value in values]).tolist() == codes.tolist()
    )


def _plain(value: object) -> object:
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    return value.item() if isinstance(value, np.generic) else value


def frame_of_all_types() -> pd.DataFrame:
    """A table with a column of each type that pandas has, a fifth of the rates zero."""
    r = np.random.default_rng(5)
    seconds = pd.to_timedelta(r.integers(0, 10**6, N), unit="s")
    frame = pd.DataFrame(
        {
            "flag": r.random(N) < 0.3,
            "maybe": pd.array(np.where(r.random(N) < 0.2, None, r.random(N) < 0.5), dtype="boolean"),
            "few": pd.array(r.integers(0, 5, N), dtype="Int64"),
            "age": pd.array(r.integers(18, 90, N), dtype="Int64"),
            "rate": pd.array(np.where(r.random(N) < 0.2, 0, np.round(r.lognormal(3, 1, N), 2)), dtype="Float64"),
            "name": pd.array(r.choice(["a", "b", "c"], N), dtype="string"),
            "grade": pd.Categorical(
                r.choice(["low", "mid", "high"], N), categories=["low", "mid", "high"], ordered=True
            ),
            "day": [dt.date(2020, 1, 1) + dt.timedelta(days=int(day)) for day in r.integers(0, 900, N)],
            "seen": (pd.Timestamp("2021-01-01") + seconds).as_unit("us"),
            "zoned": (pd.Timestamp("2021-03-01", tz="UTC") + seconds).as_unit("us").tz_convert("Europe/Berlin"),
        }
    )
    frame.loc[:149, "few"] = pd.NA
    return frame


def kolmogorov(one: pd.Series, other: pd.Series) -> float:
    """Kolmogorov's distance; of two samples of 1,500 from one distribution one pair in a hundred differs by .06."""
    dates = one.dtype == object or pd.api.types.is_datetime64_any_dtype(one)
    real, ours = (
        np.sort(pd.to_datetime(item).astype("int64").to_numpy() if dates else item.astype(float).to_numpy())
        for item in (one, other)
    )
    grid = np.concatenate([real, ours])
    below = [np.searchsorted(item, grid, "right") / len(item) for item in (real, ours)]
    return float(np.abs(below[0] - below[1]).max())


def check_same_shape(frame: pd.DataFrame, table: pd.DataFrame) -> None:
    """Check types, shares of zeros and of missing values, and the distributions of numbers and dates."""
    assert table.dtypes.to_dict() == frame.dtypes.to_dict()
    assert abs((table["rate"] == 0).mean() - (frame["rate"] == 0).mean()) < 0.01
    for name in ("few", "maybe"):
        assert abs(table[name].isna().mean() - frame[name].isna().mean()) < 0.01, name
    for name in ("age", "rate", "day", "seen", "zoned"):
        assert kolmogorov(frame[name], table[name]) < 0.06, name
    assert set(table["few"].dropna()) == set(frame["few"].dropna())


def test_a_drafted_frame_comes_back_from_its_own_codes(tmp_path: Path) -> None:
    """Without noise and without a model: what the draft's categories, bins and points keep of each column by itself."""
    frame = frame_of_all_types()
    frame.to_parquet(tmp_path / "owner.parquet", index=False)
    study = vt.study.draft(
        {"owner": tmp_path / "owner.parquet"}, title="types", purpose="all of them", bins=True
    ).resolved
    own = read_table(
        tmp_path / "owner.parquet",
        study,
        dataset="owner",
        id_column=None,
        secret=SiteSecret(value=bytes(32)),
    )
    assert not any("neither" in remark for remark in own.remarks)
    records = decode(study.schema, own.codes, np.random.default_rng(2))
    table = pd.DataFrame({item.name: typed_column(records[item.name], item) for item in study.schema.variables})
    check_same_shape(frame, table)
    texts = csv_frame(records, study.schema)
    assert set(texts["flag"]) == {"True", "False"}
    assert all(len(text.partition(".")[2]) == 2 for text in texts["rate"])
    assert set(texts["few"]) == {"", "0", "1", "2", "3", "4"}


@pytest.mark.whole
def test_a_frame_comes_back_from_a_release_with_its_types(tmp_path: Path) -> None:
    frame = frame_of_all_types()
    study = vt.study.draft({"owner": frame}, title="types", purpose="all of them").mark_reviewed()
    release = vt.synthesize(frame, study, epsilon=200.0, out=tmp_path / "out", state=tmp_path / "state")
    check_same_shape(frame, release.table())


def test_points_and_dates_keep_stated_orders() -> None:
    text = "\n".join(
        [
            'schema = 1\nid = "order"\npurpose = "order"\nexpires = 2030-01-01\n[[party]]\nname = "owner"',
            *(
                f'[[variable]]\nparty = "owner"\nname = "{name}"\ntype = "date"\npoints = [2020-02-10]\n'
                "bins = [2020-01-01, 2020-03-01, 2020-06-01]"
                for name in ("admitted", "left")
            ),
            '[randomization_default]\nscheme = "none"',
            '[knowledge]\n[[knowledge.rule]]\nname = "leaves later"\nkind = "order"\nlower = "admitted"\nupper = "left"',
        ]
    )
    study = read_study_text(text, Path())
    codes = np.indices((3, 3)).reshape(2, -1).astype(np.uint8)
    codes = codes[:, study.support().holds(list(codes))]
    assert codes.shape[1] == 7  # from March on nobody leaves before March, and nobody on 10 February
    frame = decode(
        study.schema, [np.repeat(own, 50) for own in codes], np.random.default_rng(1), knowledge=study.knowledge
    )
    assert (pd.to_datetime(frame["admitted"]) <= pd.to_datetime(frame["left"])).all()


def test_days_of_the_first_and_of_the_last_year_are_days() -> None:
    variable = variable_of('type = "date"', "bins = [0001-01-01, 1066-10-14, 9999-12-31]")
    assert codes_of(variable, ["0001-01-01", "1066-10-14", "9999-12-30"]).tolist() == [0, 1, 1]
    assert DatePattern.of("YYYY-MM-DD").read("1066-10-14") == variable.bins[1] * DAY  # type: ignore[index]


@pytest.mark.parametrize("form", ["DD.MM.YYYY hh:mm:ss", "YYYY-MM-DDThh:mm:ss", "MONTH DD, YYYY at hh:mm:ss.f AM"])
def test_a_format_is_read_beside_the_usual_ways_however_long_it_is(form: str) -> None:
    variable = variable_of('type = "datetime"', f'format = "{form}"', "bins = [2019-01-01, 2020-01-01, 2021-01-01]")
    seconds = float(dt.datetime(2020, 5, 7, 13, 45, tzinfo=dt.UTC).timestamp())
    read = value_reader("datetime", style_of(variable, "plain"))
    assert read("2020-05-07 13:45") == read(DatePattern.of(form).write(seconds)) == seconds


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("YYYY-MM-DDT00:00:00", "2020-08-05"),
        ("YYYY-MM-DDT00:00:00", dt.date(2020, 8, 5)),
        ("DD.MM.YYYY hh:mm", "2020-08-05T10:00"),
        ("DD.MM.YYYY hh:mm", "05.08.2020 10:00"),
        ("DD.MM.YYYY hh:mm", pd.Timestamp("2020-08-05 10:00")),
        ("YYYY-MM-01T00:00:00", "2020-08-05"),
    ],
)
def test_a_question_names_a_moment_in_any_usual_way(form: str, given: object) -> None:
    keys = (
        "bins = [2020-01-01, 2020-07-01, 2021-01-01]",
        f'format = "{form}"',
        'missing = { category = "none", spellings = [""] }',
    )
    schema = study_of('type = "datetime"', *keys).schema
    assert evidence_of(schema, {schema[0].name: given}) == {0: 1}
    for wrong in ("x", "2022-01-01", dt.date(2019, 1, 1)):
        with pytest.raises(Misuse, match="is not a category") as caught:
            evidence_of(schema, {schema[0].name: wrong})
        assert "a moment from 2020-01-01 to below 2021-01-01" in caught.value.hint


def test_the_example_of_the_page_is_a_study() -> None:
    page = (Path(__file__).parents[2] / "deploy" / "docs" / "analyst" / "studies.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(\[identifier\].*?)```", page, re.DOTALL)
    head = 'schema = 1\nid = "page"\npurpose = "page"\nexpires = 2030-01-01\n[[party]]\nname = "clinic"\n'
    other = '[[variable]]\nparty = "clinic"\nname = "sex"\ncategories = ["F", "M"]\n[randomization_default]\nscheme = "none"\n'
    study = read_study_text(f"{head}{example}{other}", Path())
    assert study.identifier is not None
    assert study.schema[0].points == (-25_567.0,)
