"""Columns as people write them, kind by kind: what each is taken for, and what the owner is told."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pytest

from verticil.analyst.draft import Wording, draft
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import Table
from verticil.shared.documents.written_values.dates import DAY
from verticil.shared.study.codebook import variable_from
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.synthesis import decode
from verticil.tables.columns import Choice, ColumnProfile
from verticil.tables.profile import profile_table
from verticil.tables.ranges import outer_ends
from verticil.tables.words import column_lines, has_own_end

N: Final = 600
_RNG: Final = np.random.default_rng(5)
DAYS: Final = [dt.date(2015, 1, 1) + dt.timedelta(days=int(day)) for day in _RNG.integers(0, 3000, N)]
MOMENTS: Final = [dt.datetime(2020, 1, 1) + dt.timedelta(seconds=int(second)) for second in _RNG.integers(0, 10**8, N)]
INCOMES: Final = np.round(_RNG.lognormal(9, 1, N), 2)
HEIGHTS: Final = np.round(_RNG.normal(50, 10, N), 1)
AGES: Final = _RNG.integers(18, 90, N)
PARTS: Final = _RNG.random(N)
THIS_YEAR: Final = dt.datetime.now(dt.UTC).year
BIRTHS: Final = [dt.date(THIS_YEAR - 98, 1, 1) + dt.timedelta(days=60 * place) for place in range(N)]
_GERMAN: Final = ("Jan", "Feb", "M\u00e4r", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez")
Make = Callable[[int], str]


def profile_of(tmp_path: Path, values: list[str], name: str = "x") -> tuple[ColumnProfile, str]:
    """Return the profile of one column, and all that is said of it."""
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([[name, "sex"], *([value, "FM"[place % 2]] for place, value in enumerate(values))])
    profile = profile_table("owner", path)
    return profile.columns[0], "\n".join(next(iter(column_lines(profile))).reasons)


@pytest.mark.parametrize(
    ("make", "kind", "written"),
    [
        (lambda i: f"{DAYS[i].day}. {_GERMAN[DAYS[i].month - 1]}. {DAYS[i].year}", "date", "DD. MONTH YYYY"),
        (lambda i: DAYS[i].strftime("%B %d, %Y"), "date", "MONTH DD, YYYY"),
        (lambda i: DAYS[i].strftime("%a, %d %b %Y"), "date", "WEEKDAY, DD MON YYYY"),
        (lambda i: MOMENTS[i].strftime("%a, %d %b %Y %H:%M:%S +0000"), "datetime", "WEEKDAY, DD MON YYYY hh:mm:ss.fZ"),
        (lambda i: DAYS[i].strftime("%Y%m"), "date", "YYYYMM"),
        (lambda i: DAYS[i].strftime("%y%m%d"), "date", "YYMMDD"),
        (lambda i: DAYS[i].strftime("%d%m%y"), "date", "DDMMYY"),
        (lambda i: DAYS[i].strftime("%d%m%Y"), "date", "DDMMYYYY"),
        (lambda i: MOMENTS[i].strftime("%Y%m%d%H%M%S"), "datetime", "YYYYMMDDhhmmss"),
        (lambda i: MOMENTS[i].strftime("%Y%m%dT%H%M%SZ"), "datetime", "YYYYMMDDThhmmssZ"),
        (lambda i: MOMENTS[i].strftime("%Y-%m-%d %H:%M:%S CET"), "datetime", "YYYY-MM-DD hh:mm:ss.fZ"),
        (lambda i: MOMENTS[i].strftime("%Y-%m-%dT%H:%M+01:00[Europe/Berlin]"), "datetime", "YYYY-MM-DDThh:mmZ"),
        (lambda i: MOMENTS[i].strftime("%-I:%M%p").lower(), "time", "hh:mmAM"),
        (lambda i: f"{MOMENTS[i].replace(tzinfo=dt.UTC).timestamp():.2f}", "datetime", "epoch s"),
        (lambda i: f"({-x:.0f})" if (x := INCOMES[i] - 6000) < 0 else f"{x:.0f}", "integer", "1234.5"),
        (lambda i: f"{-x:.2f}-" if (x := INCOMES[i] - 6000) < 0 else f"{x:.2f}", "number", "1234.5"),
        (lambda i: f"(${-x:,.2f})" if (x := INCOMES[i] - 6000) < 0 else f"${x:,.2f}", "number", "$1,234.5"),
        (lambda i: f"{INCOMES[i]:.0f},-", "integer", "1234,5"),
        (lambda i: f"{i % 90 + 1},{i % 77:02d},{i * 7 % 1000:03d}", "integer", "1,234.5"),
        (lambda i: f"{HEIGHTS[i]} kg" if i % 2 else f"{HEIGHTS[i]}", "number", "1234.5 kg"),
        (lambda i: f"{HEIGHTS[i]}*" if i % 9 == 0 else f"{HEIGHTS[i]}", "number", "1234.5 *"),
        (lambda i: "90+" if AGES[i] > 80 else str(AGES[i]), "integer", "1234.5"),
        (lambda i: f"\u20ac{INCOMES[i]}" if i % 2 else f"{INCOMES[i]} \u20ac", "number", "1234.5 \u20ac"),
        (lambda i: MOMENTS[i].strftime("%H:%M:%S+0000"), "time", "hh:mm:ss.fZ"),
        (lambda i: MOMENTS[i].strftime("%-Hh%M"), "time", "hhhmm"),
        (lambda i: MOMENTS[i].strftime("%d-%b-%y %I.%M.%S.000000 %p").upper(), "datetime", "DD-MON-YY hh.mm.ss.f AM"),
        (
            lambda i: f"{DAYS[i].year}\u5e74{DAYS[i].month}\u6708{DAYS[i].day}\u65e5",
            "date",
            "YYYY\u5e74MM\u6708DD\u65e5",
        ),
    ],
)
def test_dates_and_numbers_are_read_as_people_write_them(tmp_path: Path, make: Make, kind: str, written: str) -> None:
    column, _ = profile_of(tmp_path, [make(place) for place in range(N)])
    assert (column.kind, column.written, column.left_out, column.n_missing) == (kind, written, "", 0)
    assert len(column.bins) > 6


def test_two_digits_of_years_of_birth_are_of_the_last_hundred_years(tmp_path: Path) -> None:
    column, words = profile_of(tmp_path, [day.strftime("%d.%m.%y") for day in BIRTHS])
    assert column.written == f"DD.MM.YY until {THIS_YEAR}"
    assert column.bins[0] * DAY < 0  # before 1970
    assert f"its years have two digits, and are taken for {THIS_YEAR - 99} to {THIS_YEAR}" in words
    text = draft({"owner": tmp_path / "t.csv"}, wording=Wording(public=True, title="A", purpose="B"))
    assert (
        read_study_text(text, Path()).schema.variables[0].format == column.written
    )  # its last edge is none of its days
    column, words = profile_of(tmp_path, [day.strftime("%d.%m.%y") for day in DAYS])
    assert column.written == "DD.MM.YY"
    assert "are taken for 1969 to 2068" in words


@pytest.mark.parametrize(
    ("make", "categories", "word"),
    [
        (lambda i: ("TRUE", "true", "False")[i % 3], ("False", "TRUE"), "several spellings"),
        (lambda i: ("0-4", "5-9", "10-14", "20+")[i % 4], ("0-4", "5-9", "10-14", "20+"), ""),
        (lambda i: ("01", "09", "10", "36")[i % 4], ("01", "09", "10", "36"), "leading zeros"),
        (lambda i: ("male", "Male", "female")[i % 3], ("Male", "female", "male"), "'Male', 'male' differ in capitals"),
        (lambda i: ("(1)", "(2)")[i % 2], ("(1)", "(2)"), ""),
        (lambda i: ("home", "work", "=A1")[i % 3], ("home", "work"), "(33.3%) begins with a sign of a formula"),
        (lambda i: ("A+", "A-", "0-", "0+")[i % 4], ("0+", "0-", "A+", "A-"), ""),
    ],
)
def test_words_and_codes_are_categories(tmp_path: Path, make: Make, categories: tuple[str, ...], word: str) -> None:
    column, words = profile_of(tmp_path, [make(place) for place in range(N)])
    assert (column.categories, column.bins, word in words) == (categories, (), True)


def test_codes_with_decimals_are_categories(tmp_path: Path) -> None:
    codes = [f"{250 + 37 * k}.{k % 7}" for k in range(20)]
    column, words = profile_of(tmp_path, [codes[place % 20] for place in range(N)])
    assert (column.kind, set(column.categories)) == ("category", set(codes))
    assert "taken for codes" in words
    column, _ = profile_of(tmp_path, [f"{value:.1f}" for value in np.round(HEIGHTS * 2) / 4])
    assert column.kind == "number"


def test_a_code_for_unknown_among_decimals_is_a_point(tmp_path: Path) -> None:
    column, words = profile_of(
        tmp_path, ["999.9" if part < 0.06 else str(x) for part, x in zip(PARTS, HEIGHTS, strict=True)]
    )
    assert column.points == (999.9,)
    assert column.bins[-1] < 120
    assert "999.9 in" in words


@pytest.mark.parametrize(
    ("code", "rest"),
    [("99", AGES), ("0", AGES + 5), ("0", HEIGHTS + 60), ("-1", AGES)],
)
def test_a_code_that_stands_apart_is_a_point_and_nobody_is_between(tmp_path: Path, code: str, rest: np.ndarray) -> None:
    column, words = profile_of(tmp_path, [code if part < 0.04 else str(x) for part, x in zip(PARTS, rest, strict=True)])
    assert column.points == (float(code),)
    assert not column.bins[0] <= float(code) < column.bins[-1]
    assert f"{code} in" in words
    low, high = min(rest), max(rest)
    assert column.bins[0] <= low < high < column.bins[-1]


@pytest.mark.parametrize("codes", [("88", "99"), ("97", "98", "99"), ("7777777", "9999999"), ("-9", "-8", "-7")])
def test_codes_of_one_family_are_points_though_each_hides_the_gap_of_another(
    tmp_path: Path, codes: tuple[str, ...]
) -> None:
    values = [codes[place % len(codes)] if PARTS[place] < 0.12 else str(AGES[place] % 30) for place in range(N)]
    column, words = profile_of(tmp_path, values)
    assert column.points == column.far == tuple(map(float, codes))
    assert column.bins[-1] <= 31
    assert all(f"{code} in" in words for code in codes)


def test_numbers_of_one_family_that_lie_among_the_others_are_no_codes(tmp_path: Path) -> None:
    column, _ = profile_of(tmp_path, [str(70 + age % 30) for age in AGES])
    assert column.far == ()
    few = ["99"] * 9 + ["98"] * 50 + [str(age % 30) for age in AGES]  # nine people have one of the two
    assert 99 not in profile_of(tmp_path, few)[0].points


def test_a_zero_with_a_sign_is_a_zero(tmp_path: Path) -> None:
    values = ["-0.0" if PARTS[place] < 0.4 else f"{HEIGHTS[place] + 50:.1f}" for place in range(N)]
    column, _ = profile_of(tmp_path, values)
    assert [str(point) for point in column.points] == ["0.0"]


def test_days_of_a_spreadsheet_stay_numbers_and_are_said(tmp_path: Path) -> None:
    values = [str((day - dt.date(1899, 12, 30)).days) for day in DAYS]
    column, words = profile_of(tmp_path, values, name="visitDate")
    assert column.kind == "integer"
    assert f"{min(values)} for {min(DAYS)}" in words
    _, words = profile_of(tmp_path, values, name="steps")
    assert "spreadsheet" not in words


def test_a_mark_beside_empty_cells_is_left_out_with_what_to_do(tmp_path: Path) -> None:
    column, _ = profile_of(tmp_path, ["x" if part < 0.2 else "" for part in PARTS])
    assert "the other" in column.left_out
    assert "write no there" in column.left_out


def test_a_scale_by_fives_keeps_its_steps(tmp_path: Path) -> None:
    column, _ = profile_of(tmp_path, [str(5 * (age % 17)) for age in AGES])
    assert column.points == tuple(range(0, 85, 5))
    assert column.bins == ()


def test_ends_of_bins_are_short_decimals() -> None:
    assert outer_ends(-1.6, 1.6, whole=False, resolution=0.1) == (-1.6, 1.7)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda i: f"{HEIGHTS[i]} kg" if i % 2 else f"{HEIGHTS[i]} lb", "several units or marks behind them (kg, lb)"),
        (lambda i: f"{HEIGHTS[i]}" if i % 2 else f"{HEIGHTS[i]}".replace(".", ","), "a decimal comma in others"),
        (lambda i: f"{90 + AGES[i]}/{50 + i % 40}", "two numbers with '/' between"),
        (lambda i: f"{i % 50}:{i % 60:02d}:{i % 57:02d}", "write each as one number of the smallest unit"),
        (lambda i: f"{i % 50}h {i % 60}m", "write each as one number of the smallest unit"),
        (lambda i: f"{i % 18} years {i % 11} months", "write each as one number of the smallest unit"),
        (lambda i: f"{DAYS[i].year}-W{DAYS[i].isocalendar()[1] // 3:02d}", 'group_by = "prefix:4"'),
        (lambda i: f"{'xy'[i % 2]}\nz", "has a line break"),
        (lambda i: f"{10 + i % 50}:{i % 60:02d}", "write lengths of time as a number of minutes"),
    ],
)
def test_what_is_left_out_says_how_it_is_mended(tmp_path: Path, make: Make, word: str) -> None:
    column, words = profile_of(tmp_path, [make(place) for place in range(N)])
    assert column.left_out
    assert word in words


def test_limits_zones_and_signs_are_said(tmp_path: Path) -> None:
    values = ["< 0.6" if part < 0.2 else f"{x / 10:.1f}" for part, x in zip(PARTS, HEIGHTS, strict=True)]
    column, words = profile_of(tmp_path, values)
    assert 0.6 in column.points
    assert f"{values.count('< 0.6')} of 600 rows hold a number beyond a limit, such as '< 0.6'" in words
    _, words = profile_of(tmp_path, [moment.strftime("%Y-%m-%dT%H:%M:%S+02:00") for moment in MOMENTS])
    assert "records have them in UTC" in words
    _, words = profile_of(tmp_path, [f"{x - 50:.1f}".replace("-", "\u2212") for x in HEIGHTS])
    assert "signs that programs do not write" in words


def test_letters_behind_a_few_numbers_are_no_unit(tmp_path: Path) -> None:
    column, _ = profile_of(tmp_path, [f"{age}a" if place % 9 == 0 else str(age) for place, age in enumerate(AGES)])
    assert column.kind == "category"


def test_numbers_of_telephones_are_no_dates(tmp_path: Path) -> None:
    column, _ = profile_of(tmp_path, [day.strftime("%d%m%y") for day in DAYS], name="phone")
    assert column.kind != "date"


@pytest.mark.parametrize(("first", "word"), [(0, "count the rows"), (7, "give it one in the header")])
def test_a_column_without_a_name_is_left_out(tmp_path: Path, first: int, word: str) -> None:
    column, _ = profile_of(tmp_path, [str(place + first) for place in range(N)], name="")
    assert word in column.left_out


def test_two_names_that_differ_in_blanks_give_no_two_variables(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age, age\n" + "1,2\n3,4\n" * 20, encoding="utf-8")
    assert [bool(column.left_out) for column in profile_table("owner", tmp_path / "t.csv").columns] == [False, True]


def test_more_categories_than_a_study_can_have_are_refused_with_what_to_do() -> None:
    labels = [f"c{place}" for place in range(65_537)]
    table = {"party": "a", "name": "code", "categories": labels}
    with pytest.raises(Misuse, match="65537 categories, expected 2 to 65536") as caught:
        variable_from(Table(table, source="study.toml"))
    assert "group_by" in str(caught.value.hint)
    assert variable_from(Table({**table, "categories": labels[:-1]}, source="study.toml")).n_states == 65_536


def test_a_table_with_65_537_texts_has_no_category_for_each_and_says_how_to_group_them(tmp_path: Path) -> None:
    column, words = profile_of(tmp_path, [f"c{place:05d}" for place in range(65_537)] * 2)
    assert column.left_out
    assert "group_by" in words


# ---- moments with an order of their own


def profile_of_frame(tmp_path: Path, values: object) -> tuple[ColumnProfile, str]:
    """Return the profile of one column of a data frame, and its lines of a draft."""
    pd.DataFrame({"x": values, "sex": ["F", "M"] * (N // 2)}).to_parquet(tmp_path / "t.parquet", index=False)
    text = draft({"owner": tmp_path / "t.parquet"}, wording=Wording(title="a", purpose="b", bins=True))
    return profile_table("owner", tmp_path / "t.parquet").columns[0], text


@pytest.mark.parametrize(
    ("moments", "pattern", "where"),
    [
        (pd.to_datetime(DAYS), "YYYY-MM-DDT00:00:00", "at midnight"),
        (pd.to_datetime(DAYS).tz_localize("UTC"), "YYYY-MM-DDT00:00:00Z", "at midnight"),
        (pd.to_datetime(DAYS).to_period("M").to_timestamp(), "YYYY-MM-01T00:00:00", "on the first of a month"),
        ([day.replace(day=1) for day in DAYS], "YYYY-MM-01", "on the first of a month"),
        (pd.to_datetime(MOMENTS), "", ""),
        (pd.to_datetime([*MOMENTS[:-1], MOMENTS[0].replace(hour=0, minute=0, second=0)]), "", ""),
        (pd.to_datetime(DAYS) + pd.to_timedelta([0] * (N - 1) + [1], unit="s"), "", ""),
        ([*[day.replace(day=1) for day in DAYS[:-1]], dt.date(2016, 2, 2)], "", ""),
        (pd.to_datetime(DAYS).tz_localize("Europe/Zurich"), "", ""),
    ],
)
def test_moments_that_are_all_at_midnight_or_on_a_first_stay_so(
    tmp_path: Path, moments: object, pattern: str, where: str
) -> None:
    profile, text = profile_of_frame(tmp_path, moments)
    assert profile.whole_format == pattern
    assert (f'format = "{pattern}"  # review' in text) is bool(pattern)
    assert ("those of records are, too" in text) is bool(where)
    assert where in text
    if pattern:
        study = read_study_text(text.replace("reviewed = false", "reviewed = true"), tmp_path)
        frame = decode(
            study.schema, [np.arange(N, dtype=np.uint8) % k for k in study.schema.n_states], np.random.default_rng(1)
        )
        drawn = pd.to_datetime(frame["x"]).dt.tz_localize(None)
        assert (drawn == (drawn.dt.to_period("M").dt.to_timestamp() if "01" in pattern else drawn.dt.floor("D"))).all()


def test_few_days_with_enough_rows_are_points_and_others_are_not(tmp_path: Path) -> None:
    waves = [dt.date(2020 + year, month, 15) for year in range(3) for month in (3, 9)]
    assert profile_of_frame(tmp_path, [waves[i % 6] for i in range(N)])[0].points == tuple(
        float((day - dt.date(1970, 1, 1)).days) for day in waves
    )
    weekly = [dt.date(2020, 1, 6) + dt.timedelta(days=7 * (i % 30)) for i in range(N)]
    assert len(profile_of_frame(tmp_path, weekly)[0].points) == 30
    assert profile_table("owner", tmp_path / "t.parquet", Choice(epsilon=3.0)).columns[0].bins  # 30 categories drown
    for days in (
        [dt.date(2020, 1, 6) + dt.timedelta(days=7 * (i % 31)) for i in range(N)],  # more than a scale has
        [dt.date(2020, 1, 6) + dt.timedelta(days=i % 30) for i in range(N)],  # nobody is missing between
        [waves[i % 5 if i < N - 9 else 5] for i in range(N)],  # nine people have a day of their own
    ):
        assert profile_of_frame(tmp_path, days)[0].bins


@pytest.mark.parametrize(
    ("numbers", "kind", "written"),
    [
        ([int(day.strftime("%Y%m%d")) for day in DAYS], "date", "YYYYMMDD"),
        ([float(day.strftime("%Y%m%d")) if i % 9 else None for i, day in enumerate(DAYS)], "date", "YYYYMMDD"),
        ([int(day.strftime("%Y%m")) for day in DAYS], "date", "YYYYMM"),
        ([int(moment.replace(tzinfo=dt.UTC).timestamp()) for moment in MOMENTS], "datetime", "epoch s"),
        ([int(day.strftime("%y%m%d")) for day in DAYS], "integer", ""),
        ([int(day.strftime("%d%m%Y")) for day in DAYS], "integer", ""),
        (20_000_000 + 100 * AGES, "integer", ""),
    ],
)
def test_dates_in_columns_of_numbers_are_dates(tmp_path: Path, numbers: object, kind: str, written: str) -> None:
    """A program that reads a file makes numbers of digits: 20150335 is no day, and no record has it."""
    profile, _ = profile_of_frame(tmp_path, numbers)
    assert (profile.kind, profile.written) == (kind, written)


def test_squares_are_numbers_although_they_have_gaps(tmp_path: Path) -> None:
    squares, codes = (AGES // 2) ** 2, (AGES // 2) ** 2 + AGES // 2 % 3
    assert profile_of_frame(tmp_path, squares)[0].kind == "integer"
    assert profile_of_frame(tmp_path, codes)[0].kind == "category"


@pytest.mark.parametrize(
    ("numbers", "decimals"),
    [
        (_RNG.lognormal(24, 2, N), 1),  # 13 digits before the point
        (_RNG.uniform(0, 1, N), 12),
        (np.round(_RNG.lognormal(0, 5, N), 10), 8),  # beside a million; small numbers keep three digits
        (np.round(_RNG.normal(1e9, 1e5, N), 2), 2),
    ],
)
def test_decimals_that_only_the_machine_knows_are_none(tmp_path: Path, numbers: np.ndarray, decimals: int) -> None:
    assert abs(profile_of_frame(tmp_path, numbers)[0].decimals - decimals) <= 1  # type: ignore[operator]


def test_an_end_that_is_one_persons_number_is_said_and_that_of_a_scale_is_not(tmp_path: Path) -> None:
    scale = np.arange(N) % 51 * 2  # eleven people or more have each
    ages = np.concatenate([[17, 93], _RNG.integers(20, 90, N - 2)])
    for numbers, is_own in ((scale, False), (ages, True)):
        assert has_own_end(profile_of_frame(tmp_path, numbers)[0]) is is_own
