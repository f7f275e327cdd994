"""What each column of a table is taken for, and what is said of it."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.analyst.draft import Wording, draft
from verticil.shared.core.errors import DataFault
from verticil.shared.study.reading import read_study_text
from verticil.tables.columns import Choice, ColumnProfile
from verticil.tables.profile import profile_table
from verticil.tables.ranges import ends_a_scale, find_points, number_edges, outer_ends, rounded_bounds
from verticil.tables.words import column_lines
from verticil.tables.writing import guess_dates, guess_numbers

N = 600


def profile_of(
    tmp_path: Path, values: Sequence[str], *, name: str = "x", delimiter: str = ",", **other: Sequence[str]
) -> ColumnProfile:
    """Profile a column of a CSV file that has a second one."""
    path = tmp_path / "t.csv"
    columns = {name: values, "sex": ["F", "M"] * (len(values) // 2), **other}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return profile_table("owner", path).columns[0]


def days(pattern: str) -> list[str]:
    return [stamp.strftime(pattern) for stamp in pd.date_range("2015-01-03", periods=N, freq="2D")]


@pytest.mark.parametrize(
    ("pattern", "kind", "written"),
    [
        ("%Y-%m-%d", "date", ""),
        ("%d.%m.%Y", "date", "DD.MM.YYYY"),
        ("%m/%d/%Y", "date", "MM/DD/YYYY"),
        ("%d-%m-%Y", "date", "DD-MM-YYYY"),
        ("%Y%m%d", "date", "YYYYMMDD"),
        ("%d %b %Y", "date", "DD MON YYYY"),
        ("%d.%m.%y", "date", "DD.MM.YY"),
        ("%d/%m/%Y 00:00", "date", "DD/MM/YYYY hh:mm"),
        ("%d/%m/%Y 07:30", "datetime", "DD/MM/YYYY hh:mm"),
        ("%Y-%m-%dT12:00:00Z", "datetime", "YYYY-MM-DDThh:mm:ss.fZ"),
        ("%s000000000", "datetime", "epoch ns"),
    ],
)
def test_dates_are_dates_however_they_are_written(tmp_path: Path, pattern: str, kind: str, written: str) -> None:
    column = profile_of(tmp_path, days(pattern))
    assert (column.kind, column.written, column.left_out) == (kind, written, "")
    assert len(column.bins) > 6


def test_two_ways_of_writing_dates_are_both_read(tmp_path: Path) -> None:
    mixed = [
        iso if place % 3 else german
        for place, (iso, german) in enumerate(zip(days("%Y-%m-%d"), days("%d.%m.%Y"), strict=True))
    ]
    column = profile_of(tmp_path, mixed)
    assert column.kind == "date"
    assert set(column.written.split(" | ")) == {"YYYY-MM-DD", "DD.MM.YYYY"}


def test_that_days_or_months_could_come_first_is_said() -> None:
    guess = guess_dates([f"0{day}/0{month}/2020" for day in range(1, 8) for month in range(1, 8)])
    assert guess is not None
    assert "MM/DD/YYYY" in guess.doubt
    assert guess_dates(["13/01/2020", "01/02/2020"]).doubt == ""  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("texts", "delimiter", "written", "is_in_doubt"),
    [
        (["13,982", "900", *(f"{k},000" for k in range(1, 12))], ",", "1,234.5", False),
        (["13,982", "22,507"], ",", "1,234.5", True),
        (["13,982", "22,507"], ";", "decimal-comma", True),
        (["0,125", "0,250"], ";", "decimal-comma", False),
        (["1.299,99", "850,00"], ";", "1.234,5", False),
        (["13.982", "22.507"], ";", "1.234,5", True),
        (["13.982", "22.507"], ",", "plain", False),
        (["12 345", "999"], ",", "1 234.5", False),
        (["12.5%", "7%"], ",", "1234.5%", False),
        (["\u20ac5.20", "\u20ac1,200.00"], ",", "\u20ac1,234.5", False),
        (["5 kg", "82.5 kg"], ",", "1234.5 kg", False),
        (["\u221212", "5"], ",", "1234.5", False),
        (["< 0,6", "1,2"], ";", "1234,5", False),
        (["1.5", "2"], ",", "plain", False),
        (["\u00a34.8k", "\u00a3950", "\u00a31.2M"], ",", "\u00a31234.5(k)", True),
        (["4,8 Mio. \u20ac", "950 \u20ac", "1,2 Mrd. \u20ac"], ";", "1234,5(k) \u20ac", True),
        (["4.8k", "950", "12k"], ",", "1234.5(k)", True),
        (["180 m", "12 m"], ",", "1234.5 m", False),
        (["EUR 4.8", "EUR 3"], ",", "EUR1234.5", False),
    ],
)
def test_how_numbers_are_written_is_guessed(texts: list[str], delimiter: str, written: str, is_in_doubt: bool) -> None:
    guess = guess_numbers(texts, delimiter=delimiter)
    assert (guess.written, bool(guess.doubt), guess.share) == (written, is_in_doubt, 1.0)


def test_ranges_in_words_are_categories(tmp_path: Path) -> None:
    column = profile_of(tmp_path, ["<=50K", ">50K"] * (N // 2))
    assert (column.kind, column.categories) == ("category", ("<=50K", ">50K"))


def test_a_measure_of_few_steps_has_bins_that_hold_more_than_points(tmp_path: Path) -> None:
    degrees = [f"{value:.1f} \u00b0C" for value in np.random.default_rng(4).normal(37, 0.5, N)]
    column = profile_of(tmp_path, degrees)
    assert (column.kind, column.unit, column.points) == ("number", "\u00b0C", ())
    crowded = ["5" if place % 3 == 0 else "6" if place % 3 == 1 else str(place % 50) for place in range(N)]
    column = profile_of(tmp_path, crowded)
    for low, high in itertools.pairwise(column.bins):
        assert high - low > sum(low <= point < high for point in column.points)


def test_leading_zeros_and_few_sparse_whole_numbers_are_codes(tmp_path: Path) -> None:
    zips = [f"0{1000 + 37 * (place % 30)}" for place in range(N)]
    occupations = [str(1465 + 307 * (place % 25) + place % 25 % 3) for place in range(N)]
    for values, n in ((zips, 30), (occupations, 25)):
        column = profile_of(tmp_path, values)
        assert (column.kind, len(column.categories), column.bins) == ("category", n, ())
    assert "codes" in " ".join(profile_of(tmp_path, occupations).reasons)


def test_a_measure_with_gaps_in_its_tail_is_no_code(tmp_path: Path) -> None:
    sugar = [str(round(value)) for value in np.random.default_rng(1).lognormal(1.8, 0.9, N)]
    ages = [str(18 + place % 60) for place in range(N)]
    pressures = [str(100 + round(value)) for value in np.random.default_rng(2).lognormal(2.2, 0.9, N)]
    assert {profile_of(tmp_path, values).kind for values in (sugar, ages, pressures)} == {"integer"}


def test_ends_are_rounded_by_the_range_and_not_by_the_size_of_numbers() -> None:
    assert outer_ends(309.04, 310.98, whole=False) == (309.0, 311.0)
    assert outer_ends(-0.42, 0.41, whole=False) == (-0.42, 0.42)
    assert outer_ends(0.0, 1.0, whole=False, resolution=0.001, keeps_high=True) == (0.0, 1.001)
    assert outer_ends(0.0, 987.0, whole=True) == (0.0, 990.0)


@pytest.mark.parametrize(
    ("high", "decimals", "rows", "last", "bound"),
    [
        (1.0, 4, 12, 1.0001, 1.0001),  # many have it
        (1.0, 4, 1, 1.0001, 1.0001),  # a power of ten
        (100.0, 1, 1, 100.1, 100.1),
        (4.0, 2, 10, 4.01, 4.01),
        (4.0, 2, 9, 4.1, 5.0),  # a few people's number
        (1000.0, 0, 1, 1001.0, 1001.0),
        (3000.0, 0, 1, 3100.0, 4000.0),
    ],
)
def test_records_end_where_a_scale_ends(high: float, decimals: int, rows: int, last: float, bound: float) -> None:
    """Records of a column of percentages went up to 110."""
    values = np.unique(np.round(np.linspace(0, 0.99 * high, 700), decimals))
    values, weights = np.append(values, high), np.append(np.full(len(values), 20), rows)
    edges = number_edges(values, weights, resolution=10.0**-decimals, n_bins=16)
    assert edges[-1] == last
    assert rounded_bounds(edges, "number", keeps_high=ends_a_scale(values, weights))[1] == bound


def test_a_value_that_many_have_is_a_point_among_decimals(tmp_path: Path) -> None:
    column = profile_of(tmp_path, ["7.25" if place % 5 == 0 else f"{place / 7:.2f}" for place in range(N)])
    assert column.points == (7.25,)


def test_a_code_for_unknown_among_numbers_is_a_point_and_is_said(tmp_path: Path) -> None:
    column = profile_of(tmp_path, ["999" if place % 10 == 0 else str(90 + place % 100) for place in range(N)])
    assert column.points == (999.0,)
    assert column.bins[-1] <= 200
    line = next(iter(column_lines(profile_table("owner", tmp_path / "t.csv"))))
    assert any("999 in 60 rows (10.0%)" in reason for reason in line.reasons)


def test_zeros_are_a_point_and_bins_hold_every_other_number(tmp_path: Path) -> None:
    costs = ["0.00" if place % 2 else f"{75 + place * 1.37:.2f}" for place in range(N)]
    column = profile_of(tmp_path, costs)
    assert (column.kind, column.decimals, column.points) == ("number", 2, (0.0,))
    numbers = np.array([float(cost) for cost in costs if float(cost)])
    assert column.bins[0] <= numbers.min()
    assert column.bins[-1] > numbers.max()


@pytest.mark.parametrize(
    ("values", "becomes", "word"),
    [
        (["AS", "EU", "NA", "OC"], ("AS", "EU", "NA", "OC"), "category"),
        (["+", "-", "-", "+"], ("+", "-"), "signs"),
        (["mild", "none", "severe", ""], ("mild", "none", "severe"), "empty"),
        (["red", "green", "NA", "blue"], ("blue", "green", "red"), "taken for missing"),
        (["red", "green", " NA ", "blue"], ("blue", "green", "red"), "taken for missing"),
        (["K", "CL", "NA", "MG"], ("CL", "K", "MG", "NA"), "code"),
        (["F", "M", "NA", "F"], ("F", "M"), "taken for missing"),
        (["A", "B", "#DIV/0!", "(null)"], ("A", "B"), ""),
    ],
)
def test_words_for_missing_are_taken_as_the_column_shows_them(
    tmp_path: Path, values: list[str], becomes: tuple[str, ...], word: str
) -> None:
    column = profile_of(tmp_path, values * (N // 4))
    assert column.categories == becomes
    assert word in " ".join(column.reasons)


def test_a_word_that_is_missing_among_numbers_is_missing_in_the_whole_table(tmp_path: Path) -> None:
    ages = ["NA" if place % 7 == 0 else str(20 + place % 50) for place in range(N)]
    column = profile_of(tmp_path, ["AS", "EU", "NA", "OC"] * (N // 4), age=ages)
    assert column.categories == ("AS", "EU", "OC")
    assert column.n_missing == N // 4


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        (
            "note",
            [f"seen on the ward by the doctor of day number {place % 90}, all well" for place in range(N)],
            "free text",
        ),
        ("name", [f"Person {place}" for place in range(N)], "identifying"),
        ("row", [str(place + 1) for place in range(N)], "count up"),
        ("phone", [str(2_125_550_000 + 104_729 * place) for place in range(N)], "accounts"),
        ("konto", [str(40_000_000 + 7919 * place) for place in range(N)], "accounts"),
        ("patient_id", [str(place // 3) for place in range(N)], "repeats in 400 of 600 rows"),
        ("one", ["x"] * N, "1 distinct value"),
        ("conc", [f"{1 + place / 7}e-13" for place in range(N)], "smaller unit"),
    ],
)
def test_what_names_or_tells_nothing_is_left_out_with_the_reason(
    tmp_path: Path, name: str, values: list[str], reason: str
) -> None:
    assert reason in profile_of(tmp_path, values, name=name).left_out


def test_nearly_unique_measures_stay_numbers(tmp_path: Path) -> None:
    incomes = [str(12_000 + 97 * place + place % 13) for place in range(N)]
    weights = [f"{3 + place / 171:.4f}" for place in range(N)]
    assert [profile_of(tmp_path, values, name="y").left_out for values in (incomes, weights)] == ["", ""]


def test_few_numbers_with_a_word_among_them_are_categories(tmp_path: Path) -> None:
    column = profile_of(tmp_path, ["K", "1", "2", "3"] * (N // 4))
    assert (column.kind, column.categories, column.n_missing) == ("category", ("1", "2", "3", "K"), 0)


def test_blanks_around_values_and_names_are_taken_off(tmp_path: Path) -> None:
    column = profile_of(tmp_path, [" nurse", "clerk"] * (N // 2), name=" job")
    assert (column.name, column.source, column.categories, column.recode) == (
        "job",
        " job",
        ("clerk", "nurse"),
        {" nurse": "nurse"},
    )


def test_the_types_of_a_parquet_file_are_taken(tmp_path: Path) -> None:
    numbers = np.arange(N)
    frame = pd.DataFrame(
        {
            "flag": numbers % 3 == 0,
            "count": pd.array(numbers % 5, dtype="Int64"),
            "rate": numbers / 8,
            "grade": pd.Categorical(
                np.array(["low", "mid", "high"])[numbers % 3], categories=["low", "mid", "high"], ordered=True
            ),
            "seen": pd.date_range("2020-01-01", periods=N, freq="7h", tz="Europe/Berlin"),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    columns = profile_table("owner", tmp_path / "t.parquet").columns
    assert [column.kind for column in columns] == ["boolean", "integer", "number", "ordered", "datetime"]
    assert columns[3].categories == ("low", "mid", "high")


def test_a_column_whose_type_no_study_has_is_left_out_alone(tmp_path: Path) -> None:
    frame = pd.DataFrame({"sex": ["F", "M"] * 20, "stay": pd.to_timedelta(np.arange(40), unit="h")})
    frame["codes"] = [[number] for number in range(40)]
    frame.to_parquet(tmp_path / "t.parquet")
    profile = profile_table("owner", tmp_path / "t.parquet")
    assert [column.name for column in profile.columns] == ["sex", "stay", "codes"]
    assert profile.columns[1].left_out.startswith("its type is duration")
    assert "list" in profile.columns[2].left_out
    assert not profile.columns[0].left_out


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("Patient-ID", True),
        ("patientid", True),
        ("personId", True),
        ("person_id", True),
        ("id", True),
        ("paid", False),
        ("valid", False),
        ("bid", False),
        ("fluid", False),
    ],
)
def test_only_a_name_of_a_person_makes_a_repeated_column_an_id(tmp_path: Path, name: str, is_named: bool) -> None:
    values = [str(number // 2 + 100) for number in range(1000)]
    pd.DataFrame({name: values, "sex": ["F", "M"] * 500}).to_csv(tmp_path / "t.csv", index=False)
    column = profile_table("owner", tmp_path / "t.csv").columns[0]
    assert ("it repeats in 500 of 1,000 rows" in column.left_out) == is_named
    assert bool(column.left_out) == is_named


def test_categories_of_a_randomized_column_are_as_many_as_its_noise_leaves(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    towns = [f"town {place % 60:02d}" for place in range(3000)]
    pd.DataFrame({"town": towns, "sex": ["F", "M"] * 1500}).to_csv(path, index=False)
    own, shared = (profile_table("owner", path, Choice(epsilon=epsilon)).columns[0] for epsilon in (None, 2.0))
    assert len(own.categories) == 60
    assert 8 <= len(shared.categories) < 30
    assert any("% of the people are in 'other'" in reason for reason in shared.reasons)


def test_codes_of_which_many_are_other_are_proposed_by_their_first_letters(tmp_path: Path) -> None:
    r = np.random.default_rng(1)
    codes = [
        f"{'ABCDE'[chapter]}{number:02d}"
        for chapter, number in zip(r.integers(0, 5, 3000), r.integers(0, 99, 3000), strict=True)
    ]
    words = [f"{first} {second}" for first, second in r.integers(0, 40, (3000, 2))]
    pd.DataFrame({"icd": codes, "words": words}).to_csv(tmp_path / "t.csv", index=False)
    icd, other = profile_table("owner", tmp_path / "t.csv").columns
    assert 'their first 2 letters make 50 categories of them: group_by = "prefix:2"' in icd.reasons[-1]
    assert not any("group_by" in reason for reason in other.reasons)


def test_a_number_with_more_decimals_than_a_study_has_is_no_point(tmp_path: Path) -> None:
    r = np.random.default_rng(1)
    spread, few = r.normal(4, 1, 1000), np.array([1 / 3, 2 / 3, 1.0])[r.integers(0, 3, 1000)]
    spread[:200] = np.log(70)
    steps = np.append(np.arange(14) / 2, 4.8054895401002)[r.integers(0, 15, 1000)]  # one has 13 decimals
    pd.DataFrame({"spread": spread, "few": few, "steps": steps}).to_csv(tmp_path / "t.csv", index=False)
    text = draft({"owner": tmp_path / "t.csv"}, wording=Wording(public=True, title="A", purpose="B"))
    one, other, scale = read_study_text(text, Path()).schema.variables
    assert (len(scale.labels), "4.8054895401002" in scale.labels) == (15, True)
    assert one.bins is not None
    assert one.points == ()
    assert other.labels == ("0.3333333333333333", "0.6666666666666666", "1.0")
    assert "more than 12 decimals, so they are taken for categories" in text


def test_edges_and_points_rest_on_ten_rows_and_cover_the_table() -> None:
    generator = np.random.default_rng(3)
    for _ in range(50):
        numbers = np.round(generator.lognormal(generator.uniform(-2, 8), generator.uniform(0.1, 1.5), 300), 2)
        values, weights = np.unique(numbers, return_counts=True)
        points = find_points(values, weights)
        rest = ~np.isin(values, points.values)
        edges = number_edges(values[rest], weights[rest], resolution=0.01, n_bins=20)
        if len(edges) < 2:
            continue
        assert edges == sorted(set(edges))
        places = np.searchsorted(edges, values[rest], side="right") - 1
        assert places.min() >= 0
        assert places.max() <= len(edges) - 2
        assert min(np.bincount(places, weights=weights[rest])) >= 10


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    profile_of(tmp_path, ["1", "2"] * (N // 2))
    with pytest.raises(DataFault, match="no column 'y'"):
        profile_table("owner", tmp_path / "t.csv", Choice(columns=("y",)))
