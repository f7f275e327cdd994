"""One coding for tables of anybody: types are reconciled, missing is a category, and what cannot be compared is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.evaluate.coding import Coding, coding
from verticil.evaluate.reading import table_of
from verticil.shared.core.errors import DataFault

N = 200


def frame(seed: int = 1, n: int = N) -> pd.DataFrame:
    """Numbers, words, a truth value, and holes in two of them."""
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 80, n).astype(float)
    ward = generator.choice(["a", "b", "c"], n).astype(object)
    age[:5], ward[:7] = np.nan, None
    return pd.DataFrame(
        {"age": age, "ward": ward, "smoker": generator.random(n) < 0.3, "code": generator.integers(0, 3, n)}
    )


def coded(real: pd.DataFrame, other: object, holdout: pd.DataFrame | None = None) -> Coding:
    tables = {"S": table_of(other, name="S")}  # type: ignore[arg-type]
    held = None if holdout is None else table_of(holdout, name="H")
    return coding(table_of(real, name="R"), tables, held)


def test_the_same_values_of_other_types_have_the_same_codes(tmp_path: Path) -> None:
    real = frame()
    csv, parquet, comma = tmp_path / "s.csv", tmp_path / "s.parquet", tmp_path / "comma.csv"
    real.to_csv(csv, index=False)
    real.to_parquet(parquet)
    real.to_csv(comma, index=False, sep=";", decimal=",", na_rep="?")
    other = real.assign(
        code=real["code"].astype(float),
        smoker=real["smoker"].astype(int),
        ward=real["ward"].astype("category"),
        age=real["age"].astype("Int64"),
    )
    texts = real.astype({"code": "string", "age": "string"})
    for table in (csv, parquet, comma, other, texts):
        found = coded(real, table)
        assert found.notes == ()
        for a, b in zip(found.real.codes, found.synthetic["S"].codes, strict=True):
            assert np.array_equal(a, b)
        age = found.synthetic["S"].values[0]
        assert age is not None
        assert np.array_equal(np.isnan(age), real["age"].isna())
    assert [labels[-1] for labels in found.labels] == ["missing", "missing", "True", "2"]
    assert [values is not None for values in found.real.values] == [True, False, False, False]


def test_numbers_and_moments_are_the_same_however_a_table_writes_them() -> None:
    generator = np.random.default_rng(3)
    costs, days = generator.lognormal(7, 1, N).round(2), pd.Timestamp("2020-01-01") + pd.to_timedelta(range(N), "D")
    real = frame().assign(
        cost=[f"${cost:,.2f}" for cost in costs], day=days.strftime("%d-%b-%y"), at=days.strftime("%d/%m/%Y 10:30")
    )
    plain = frame().assign(cost=costs, day=days.strftime("%Y-%m-%d 00:00"), at=days.strftime("%Y-%m-%dT10:30:00"))
    found = coded(real, plain)
    for place in (4, 5, 6):
        assert len(found.labels[place]) == 10
        assert np.array_equal(found.real.codes[place], found.synthetic["S"].codes[place])


def test_a_value_that_only_the_other_table_has_is_a_category() -> None:
    real = frame()
    found = coded(real, real.assign(ward=real["ward"].replace("a", "z")))
    assert found.labels[1] == ("a", "b", "c", "missing", "not in the real table")
    assert int(found.synthetic["S"].codes[1].max()) == 4


def test_what_cannot_be_compared_is_an_error_without_a_value() -> None:
    real = frame()
    strange = real.rename(columns=lambda name: f"{name}_2")
    for other, code, said in (
        (strange, "DATA_COLUMN_MISSING", "'age_2' for 'age'?"),
        (
            real.assign(ward="secret"),
            "DATA_CATEGORY_UNSEEN",
            "expected some of the real table's 4 values; none of its 1 value in 200 rows",
        ),
        (real.assign(age="secret"), "DATA_CATEGORY_UNSEEN", "column 'age': expected numbers"),
        (real.iloc[:1], "DATA_EMPTY", "1 row, expected at least 20"),
        (real[["age"]], "DATA_COLUMN_MISSING", "only column 'age' is in both tables, expected at least two"),
    ):
        with pytest.raises(DataFault) as caught:
            coded(real, other)
        assert caught.value.code == code
        assert said in str(caught.value)
        assert "secret" not in str(caught.value)


def test_columns_that_tell_nothing_are_left_out_and_said() -> None:
    real = frame(n=8000).assign(id=range(8000), country="x", name=[f"n{i}" for i in range(8000)])
    wide = real.assign(place=[f"p{i % 5000}" for i in range(8000)], street=[f"s{i % 3000}" for i in range(8000)])
    found = coded(wide, wide.assign(extra=1))
    assert found.real.names == ("age", "ward", "smoker", "code", "street")
    notes = "\n".join(found.notes)
    for said in (
        "only S has them: 'extra'",
        "'id' is left out: it names the record",
        "'country' is left out: it has one and the same value",
        "'name' is left out: 8,000 distinct texts in 8,000 records look identifying",
        "'place' is left out: 5,000 distinct texts",
        "'street': 3,000 categories; all but the 99 most frequent are one",
    ):
        assert said in notes


def test_a_holdout_that_overlaps_is_said_and_one_that_does_not_is_not() -> None:
    """That a holdout of others is named happens in less than one of 10,000 cases (four standard errors)."""
    real, others = frame(seed=1, n=1000), frame(seed=2, n=1000)
    assert coded(real, real, others).notes == ()
    mixed = pd.concat([others.iloc[:500], real.iloc[:500]])
    (note,) = coded(real, real, mixed).notes
    assert "the holdout overlaps the real table: about " in note
