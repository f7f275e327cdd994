"""Endings of numbers: found in a table, declared by a study, and kept by its records inside their bins."""

from __future__ import annotations

import dataclasses
import datetime as dt
import warnings
from pathlib import Path

import numpy as np
import pytest

from support.documents import study_toml
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import Table
from verticil.shared.documents.written_values.dates import DAY
from verticil.shared.numerics.estimation.profiles import grid_of
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.codebook import variable_from
from verticil.shared.study.draft_review import origin_words
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.typed_variables import even_bins, next_written
from verticil.shared.synthesis.endings import ends_so
from verticil.shared.synthesis.synthesis import written_columns
from verticil.tables.endings import find_endings
from verticil.tables.profile import profile_table


def price(**keys: object) -> Variable:
    table = {"party": "a", "name": "price", "type": "number", "decimals": 2, "bins": [0, 5.5, 10, 40], **keys}
    return variable_from(Table(table, source="test"))


def numbers(variable: Variable, codes: np.ndarray, seed: int = 0, at_once: int | None = None) -> np.ndarray:
    columns = written_columns(Schema(variables=(variable,)), [codes], np.random.default_rng(seed), at_once=at_once)
    return np.concatenate([column.numbers for column in columns])


def counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct, weights = np.unique(values, return_counts=True)
    return distinct, weights.astype(np.int64)


PRICES = {"99": 0.7, "95": 0.2}
CLOCK = {"type": "time", "decimals": None, "format": "hh:mm", "bins": ["08:00", "12:00", "18:00"]}
DAYS = [dt.date(2020, month, 1) for month in (1, 3, 6)]


def test_records_have_the_declared_endings_as_often_as_declared_and_stay_in_their_bins() -> None:
    variable = price(endings=PRICES)
    codes = np.random.default_rng(1).integers(0, 3, 30_000)
    values = numbers(variable, codes)
    cents = np.round(values * 100).astype(int) % 100
    # five standard deviations of a share of 30,000 records are below 0.015: a false alarm in 1e-6
    assert abs((cents == 99).mean() - 0.7) < 0.015
    assert abs((cents == 95).mean() - 0.2) < 0.015
    assert len(np.unique(cents)) > 60, "a tenth of the records end as they may"
    assert np.array_equal(np.searchsorted(variable.bins, values, side="right") - 1, codes)


def test_endings_that_come_from_the_table_are_said_beside_measured_bins() -> None:
    text = study_toml("a.sex: f m", "b.x: p q") + (
        '[[variable]]\nparty = "a"\nname = "price"\ntype = "number"\nbins = "private"\nbounds = [0, 40]\n'
        'endings = { "99" = 0.7 }\nfrom = "table"\n[randomization_default]\nscheme = "none"\n'
        "[tables]\nepsilon = 1\ndelta = 1e-9\n"
    )
    sentence = "The endings of numbers of 1 column (price) were taken from the data themselves: no noise covers them."
    assert sentence in origin_words(read_study_text(text, Path()))
    assert sentence not in origin_words(read_study_text(text.replace('endings = { "99" = 0.7 }\n', ""), Path()))


def test_the_same_records_come_in_parts_of_any_size() -> None:
    variable, codes = price(endings=PRICES), np.random.default_rng(2).integers(0, 3, 1_000)
    assert np.array_equal(numbers(variable, codes), numbers(variable, codes, at_once=137))


def test_a_bin_without_an_ending_has_the_others_and_one_without_any_keeps_its_numbers() -> None:
    variable = price(bins=[9.0, 9.3, 9.97, 12.0], endings=PRICES)
    codes = np.repeat([0, 1, 2], 2_000)
    first, second, third = np.split(np.round(numbers(variable, codes) * 100).astype(int) % 100, 3)
    assert not np.isin(first, [95, 99]).any()
    assert (second != 99).all()
    assert (second == 95).mean() > 0.5
    assert (third == 99).mean() > 0.5


def ages(bins: list[int], endings: dict[str, float], points: list[int], counts: list[int]) -> np.ndarray:
    table = {"party": "a", "name": "age", "type": "integer", "bins": bins, "endings": endings, "points": points}
    return numbers(variable_from(Table(table, source="test")), np.repeat(np.arange(len(counts)), counts))


def test_bins_that_hold_one_ending_alone_leave_less_of_it_to_the_others() -> None:
    values = ages([20, 30, 31, 50], {"0": 0.4, "5": 0.2}, [90], [4_000, 2_000, 4_000])
    # five standard deviations of a share of 8,000 records are below .028: a false alarm in 1e-6
    assert abs((values % 10 == 0).mean() - 0.4) < 0.028
    assert abs((values % 10 == 5).mean() - 0.2) < 0.028
    assert (values[4_000:6_000] == 30).all()


def test_a_bin_whose_only_ending_is_a_point_has_none_and_the_others_have_more() -> None:
    values = ages([20, 30, 32, 50], {"0": 0.5}, [30], [4_000, 2_000, 4_000])
    assert (values[4_000:6_000] == 31).all()
    assert abs((values % 10 == 0).mean() - 0.5) < 0.028


def test_a_point_is_no_ending_of_a_bin_and_endings_replace_what_equals_a_point() -> None:
    variable = price(points=[9.99], endings={"99": 1.0})
    values = numbers(variable, np.full(2_000, 1))
    assert set(np.unique(values)) == {5.99, 6.99, 7.99, 8.99}
    assert numbers(variable, np.array([3]))[0] == 9.99


def test_numbers_below_zero_end_in_the_digits_that_are_written() -> None:
    variable = price(bins=[-40, -20, 0], endings={"99": 1.0})
    values = numbers(variable, np.array([0, 1] * 500))
    assert {f"{value:.2f}"[-2:] for value in values.tolist()} == {"99"}


@pytest.mark.parametrize(
    ("form", "endings", "last"),
    [
        ("hh:mm", {"00": 0.5, "30": 0.5}, {0, 1800}),
        ("hh:mm:ss", {"15:00": 1.0}, {900}),
        ("hh:mm:ss", {"00": 1.0}, None),
    ],
)
def test_times_of_day_end_on_their_minutes(form: str, endings: dict[str, float], last: set[int] | None) -> None:
    table = {"party": "a", "name": "t", "type": "time", "format": form, "bins": ["08:00", "12:00", "18:00"]}
    variable = variable_from(Table({**table, "endings": endings}, source="test"))
    values = numbers(variable, np.array([0, 1] * 500))
    assert ends_so(variable, values).all()
    assert last is None or set((values % 3600).tolist()) == last


@pytest.mark.parametrize("year", [1950, 2020])
def test_moments_keep_their_times_of_day_before_1970_too(year: int) -> None:
    table = {"party": "a", "name": "seen", "type": "datetime"}
    table |= {
        "bins": [dt.datetime(year, month, 1) for month in (1, 3, 6)],
        "endings": {"08:00:00": 0.7, "16:30:00": 0.3},
    }
    variable = variable_from(Table(table, source="test"))
    values = numbers(variable, np.array([0, 1] * 2_000))
    assert ends_so(variable, values).all()
    times, counts = np.unique(values % DAY, return_counts=True)
    assert times.tolist() == [8 * 3600, 16.5 * 3600]
    assert counts[0] / 4_000 == pytest.approx(0.7, abs=0.04)  # five standard errors
    assert find_endings(*counted(values), kind="datetime", pattern="YYYY-MM-DDThh:mm:ss") == (
        ("08:00:00", pytest.approx(0.7, abs=0.04)),
        ("16:30:00", pytest.approx(0.3, abs=0.04)),
    )
    quarters = variable_from(Table({**table, "endings": {"15": 1.0}, "format": "YYYY-MM-DD hh:mm"}, source="test"))
    assert set((numbers(quarters, np.array([0, 1] * 500)) % 3600).tolist()) == {900}


def test_columns_without_endings_keep_the_numbers_that_they_had() -> None:
    codes = np.random.default_rng(3).integers(0, 3, 500)
    ended, plain = price(endings={"99": 1.0}), price()
    schema = Schema(variables=(dataclasses.replace(plain, name="other"), plain))
    both = list(written_columns(schema, [codes, codes], np.random.default_rng(4)))
    own = numbers(dataclasses.replace(plain, name="other"), codes, seed=4)
    assert np.array_equal(both[0].numbers, own)
    assert not np.array_equal(numbers(ended, codes, seed=4), own)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"endings": {"9x": 0.5}}, "the ending '9x' is none"),
        ({"endings": {"99": 1.5}}, "has the share 1.5"),
        ({"endings": {"99": 0.6, "95": 0.6}}, "are 1.2 together"),
        ({"endings": {"99": 0.5, "5": 0.2}}, "differ in length"),
        ({"endings": {"99": 0.5}, "representatives": [1, 6, 20]}, "without representatives"),
        ({"type": "date", "decimals": None, "bins": None, "endings": {"01": 1.0}}, "this key goes with"),
        ({"type": None, "decimals": None, "endings": {"01": 1.0}}, "has no type"),
        (
            {"type": "time", "decimals": None, "bins": ["08:00", "12:00", "18:00"], "endings": {"09:00:00": 1.0}},
            "'09:00:00' is none",
        ),
        ({**CLOCK, "endings": {"15:00": 1.0}}, "has seconds, and the format has none"),
        (
            {**CLOCK, "type": "datetime", "bins": DAYS, "format": "YYYY-MM-DD hh:mm", "endings": {"08:00:30": 1.0}},
            "has seconds",
        ),
    ],
)
def test_endings_that_cannot_be_are_refused(keys: dict[str, object], words: str) -> None:
    table = {"party": "a", "name": "price", "type": "number", "decimals": 2, "bins": [0, 5.5, 10, 40], **keys}
    with pytest.raises(Misuse, match="price") as caught:
        variable_from(Table({key: value for key, value in table.items() if value is not None}, source="test"))
    assert words in str(caught.value)


# ---- found in a table


def test_prices_salaries_halves_and_quarters_are_found_with_their_shares() -> None:
    draw = np.random.default_rng(5)
    prices = np.floor(draw.lognormal(2.5, 0.8, 3_000)) + draw.choice([0.99, 0.95, 0.49], 3_000, p=[0.7, 0.2, 0.1])
    found = dict(find_endings(*counted(np.round(prices, 2)), kind="number", decimals=2))
    assert set(found) == {"99", "95", "49"}
    assert abs(found["99"] - 0.7) < 0.05
    salaries = np.round(draw.lognormal(8, 0.5, 3_000), -2)
    assert find_endings(*counted(salaries), kind="integer") == (("00", 1.0),)
    halves = np.round(draw.normal(75, 14, 3_000) * 2) / 2
    assert {text for text, _ in find_endings(*counted(halves), kind="number", decimals=1)} == {"0", "5"}
    quarters = 3600.0 * draw.integers(7, 19, 3_000) + draw.choice([0, 900, 1800, 2700], 3_000)
    assert {text for text, _ in find_endings(*counted(quarters), kind="time", pattern="hh:mm")} == {
        "00",
        "15",
        "30",
        "45",
    }
    assert {text for text, _ in find_endings(*counted(quarters), kind="time", pattern="hh:mm:ss")} == {
        "00:00", "15:00", "30:00", "45:00",
    }  # fmt: skip


def test_powers_of_ten_make_no_endings(tmp_path: Path) -> None:
    draw = np.random.default_rng(8).lognormal(0, 5, 2_000)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{x:.3e},{x:.2f}\n" for x in draw))
    assert profile_table("owner", tmp_path / "t.csv").columns[0].endings == ()


def test_large_numbers_of_many_decimals_have_no_endings_and_records_of_declared_ones_are_drawn() -> None:
    large = np.random.default_rng(9).lognormal(24, 2, 2_000)  # products of nations, to a millionth of a dollar
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_endings(*counted(large), kind="number", decimals=9) == ()
    variable = price(decimals=9, bins=[0, 1e13, 2e13], endings={"99": 1.0})
    drawn = numbers(variable, np.array([0, 1] * 50))
    assert ((drawn >= 0) & (drawn < 2e13)).all()


@pytest.mark.parametrize("seed", range(20))
def test_smooth_columns_have_no_endings(seed: int) -> None:
    """No false alarm in 20 draws of eight shapes, some of them narrow, where digits are uneven by themselves."""
    draw = np.random.default_rng(seed)
    shapes = {
        0: (draw.poisson(3, 2_000), draw.poisson(70, 2_000), draw.geometric(0.05, 2_000), draw.integers(18, 80, 400)),
        2: (draw.gamma(2, 40, 2_000), draw.lognormal(2, 1, 500), draw.normal(310, 0.6, 2_000), draw.uniform(0, 3, 300)),
    }
    for decimals, columns in shapes.items():
        for column in columns:
            values, weights = counted(np.round(column.astype(float), decimals))
            assert find_endings(values, weights, kind="number", decimals=decimals) == ()


def test_too_few_rows_and_rare_endings_say_nothing() -> None:
    assert find_endings(*counted(np.arange(19) * 100.0), kind="integer") == ()
    draw = np.random.default_rng(6)
    a_third = np.where(draw.random(3_000) < 0.33, 100 * draw.integers(5, 60, 3_000), draw.integers(500, 6_000, 3_000))
    assert find_endings(*counted(a_third.astype(float)), kind="integer") == ()


# ---- formats that leave out the seconds or the day


def test_bins_that_stand_for_measured_ones_can_be_written_in_the_format() -> None:
    months = even_bins((-10957.0, 12784.0), 1.0, "date", "MM/YYYY")
    assert months[0] == -10957.0
    assert months[-1] == 12784.0
    assert all(next_written(edge, "date", "MM/YYYY") == edge for edge in months[1:-1])
    assert next_written(24_192.0, "time", "hh:mm") == 24_240.0
    assert next_written(86_399.0, "time", "hh:mm") == 86_400.0


def test_the_cells_of_moments_are_whole_seconds() -> None:
    grid = grid_of((1_514_764_800.0, 1_704_067_200.0), step=1.0, codes=False)
    assert np.array_equal(grid.edges, np.rint(grid.edges))
    assert np.array_equal(grid.fine, np.rint(grid.fine))
