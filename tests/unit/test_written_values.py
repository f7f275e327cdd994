"""Texts of tables and the values that they stand for: styles of numbers, patterns of dates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verticil.shared.documents.written_values.dates import DAY, DatePattern
from verticil.shared.documents.written_values.numbers import EXAMPLES, NumberStyle, read_number
from verticil.shared.documents.written_values.reading import OLD_WAYS, check_written, number_of, value_reader

FORMATS = (
    "YYYY-MM-DD",
    "DD.MM.YYYY",
    "DD/MM/YYYY",
    "MM/DD/YYYY",
    "YYYY/MM/DD",
    "DD-MM-YYYY",
    "YYYYMMDD",
    "DD MON YYYY",
    "MONTH DD, YYYY",
    "DDMONYYYY",
)


@pytest.mark.parametrize(
    ("style", "text", "number"),
    [
        ("1,234.5", "12,345", 12345.0),
        ("1,234.5", "12,34", None),
        ("1,234.5", "1234", 1234.0),
        ("1.234,5", "1.299,99", 1299.99),
        ("1.234,5", "1.29", None),
        ("1 234,5", "12\u202f345,6", 12345.6),
        ("1'234.5", "1\u2019234.5", 1234.5),
        ("1234.5%", "12.5 %", 12.5),
        ("1234.5%", "12.5", 12.5),
        ("1234.5", "12.5%", None),
        ("\u20ac1,234.5", "-\u20ac 1,299.5", -1299.5),
        ("1234,5 mg/dl", "7,25 mg/dl", 7.25),
        ("1234.5", "\u221212", -12.0),
        ("1234,5", "< 0,6", 0.6),
        ("1234.5", "1e-13", 1e-13),
        ("1234.5", ".", None),
        ("1234.5", "", None),
        ("1234.5", "1.2.3", None),
        ("1,234.5", "(1,177)", -1177.0),
        ("1234.5", "(12", None),
        ("1234.5", "12.5-", -12.5),
        ("1234.5", "-12.5-", None),
        ("1234,5", "4822,-", 4822.0),
        ("1234.5", "90+", 90.0),
        ("1,234.5", "5,82,271", 582271.0),
        ("plain", "\u221212", None),
        ("\u00a31234.5(k)", "-\u00a34.8k", -4800.0),
        ("1234,5(k) \u20ac", "1,1 Mrd. \u20ac", 1.1e9),
        ("1234.5(k)", "950", 950.0),
        ("1234.5(k)", "4.8q", None),
        ("1234.5", "4.8k", None),
        ("1234.5 k", "4.8 k", 4.8),
    ],
)
def test_a_style_reads_what_it_shows_and_nothing_else(style: str, text: str, number: float | None) -> None:
    assert read_number(text, style) == number


@pytest.mark.parametrize(
    ("pattern", "text", "iso"),
    [
        ("DD-MM-YYYY", "06-02-2016", "2016-02-06"),
        ("MM/DD/YY", "1/2/85", "1985-01-02"),
        ("MM/DD/YY", "1/2/68", "2068-01-02"),
        ("MM/DD/YY", "1/2/69", "1969-01-02"),
        ("DD MON YYYY", "3 sept. 2020", "2020-09-03"),
        ("DD. MONTH YYYY", "3. M\u00e4rz 2020", "2020-03-03"),
        ("YYYY-MM", "2020-03", "2020-03-01"),
        ("YYYYMMDD", "2016026", None),
        ("YYYY-MM-DD", "2019-02-29", None),
        ("YYYY-MM-DD", "9999-12-31", "9999-12-31"),
        ("YYYY-MM-DD", "1066-10-14", "1066-10-14"),
        ("YYYY-MM-DD | DD.MM.YYYY", "14.10.1066", "1066-10-14"),
        ("epoch ns", "1678111758881747200", "2023-03-06"),
        ("YYYY-MM-DD hh:mmZ", "2020-01-01 00:30+01:00", "2019-12-31"),
        ("DD/MM/YYYY hh:mm AM", "01/02/2020 12:30 AM", "2020-02-01"),
        ("DD/MM/YYYY hh:mm", "01/02/2020 24:30", None),
        ("DD.MM.YY until 2026", "31.12.27", "1927-12-31"),
        ("DD.MM.YY until 2026", "31.12.26", "2026-12-31"),
        ("WEEKDAY, DD MON YYYY", "Thu, 29 Sep 2022", "2022-09-29"),
        ("YYYY-MM-DD hh:mmZ", "2020-01-01 00:30 CET", "2019-12-31"),
        ("YYYY-MM-DD hh:mmZ", "2020-01-01 00:30 GMT+0100", "2019-12-31"),
        ("YYYY-MM-DDThh:mmZ", "2020-01-01T23:30-05:00[America/New_York]", "2020-01-02"),
    ],
)
def test_a_pattern_reads_days(pattern: str, text: str, iso: str | None) -> None:
    day = value_reader("date", pattern)(text)
    assert (None if day is None else DatePattern.of("YYYY-MM-DD").write(day * DAY)) == iso


@given(day=st.integers(-719_162, 2_932_896), pattern=st.sampled_from(FORMATS))
def test_what_a_pattern_writes_it_reads(day: int, pattern: str) -> None:
    assert value_reader("date", pattern)(DatePattern.of(pattern).write(day * float(DAY))) == day


@given(milliseconds=st.integers(-(10**13), 10**13), zone=st.sampled_from(["", "Z"]))
def test_a_moment_comes_back_to_the_millisecond(milliseconds: int, zone: str) -> None:
    pattern = DatePattern.of(f"YYYY-MM-DDThh:mm:ss.f{zone}")
    assert pattern.read(pattern.write(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-5)


@given(number=st.integers(-(10**9), 10**9), style=st.sampled_from(EXAMPLES))
def test_every_style_reads_plain_digits(number: int, style: str) -> None:
    assert read_number(str(number), style) == number


@given(text=st.text(max_size=12), way=st.sampled_from(OLD_WAYS))
def test_the_ways_of_the_first_version_read_what_they_read(text: str, way: str) -> None:
    assert value_reader(None, way)(text) == number_of(text, way)


@pytest.mark.parametrize(
    "written",
    ["abc", "DD", "YYYY", "hh:DD", "1.23", "YYYY-YY-MM-DD", "DD.MM.YYYY until 2026", "x1234.5x", "1234.5" + "x" * 60],
)
def test_what_is_no_way_of_writing_is_refused_with_examples(written: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        check_written(written)


def test_a_number_beyond_a_limit_is_known_as_one() -> None:
    style = NumberStyle.of("1234.5")
    assert [style.is_limit(text) for text in ("< 0.6", "90+", "90", "12-")] == [True, True, False, False]


def test_times_of_day_and_years_have_their_own_scales() -> None:
    assert value_reader("time", "hh:mm")("01:30") == 5400.0
    assert value_reader("time", "hh:mm AM")("12:30 AM") == 1800.0
    assert value_reader(None, "YYYY/MM/DD")("2020/07/02") == pytest.approx(2020.5, abs=0.001)
    with pytest.raises(ValueError, match="does not say the day"):
        value_reader("date", "hh:mm")
    with pytest.raises(ValueError, match="of numbers"):
        value_reader("number", "DD.MM.YYYY")
