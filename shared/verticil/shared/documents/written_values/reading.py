"""The reader of a column's values: from the text of a table to a number on the scale of its type."""

from __future__ import annotations

import calendar
import contextlib
import datetime as dt
import math
import re
from collections.abc import Callable, Collection
from typing import Final, Literal

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.documents.written_values.dates import DAY, ISO_DATE, ISO_MOMENT, ISO_TIME, DatePattern, is_pattern
from verticil.shared.documents.written_values.numbers import OLD_STYLES, NumberStyle, read_number, read_plain

Kind = Literal["category", "ordered", "boolean", "integer", "number", "date", "datetime", "time"]
"""Types of columns."""
KINDS: Final[tuple[Kind, ...]] = ("category", "ordered", "boolean", "integer", "number", "date", "datetime", "time")
NUMBERS: Final = frozenset({"integer", "number"})
MOMENTS: Final = frozenset({"date", "datetime", "time"})
_DATES: Final = {
    "YYYY-MM-DD": re.compile(r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})(?:[T ].*)?"),
    "DD.MM.YYYY": re.compile(r"(?P<d>[0-9]{1,2})\.(?P<m>[0-9]{1,2})\.(?P<y>[0-9]{4})"),
    "DD/MM/YYYY": re.compile(r"(?P<d>[0-9]{1,2})/(?P<m>[0-9]{1,2})/(?P<y>[0-9]{4})"),
    "MM/DD/YYYY": re.compile(r"(?P<m>[0-9]{1,2})/(?P<d>[0-9]{1,2})/(?P<y>[0-9]{4})"),
}
OLD_WAYS: Final = (*OLD_STYLES, *_DATES)
"""How version 1.0.0 reads the numbers of a column without a type. A date is its year and the part of it that has gone by."""
_MANY: Final = 1_000  # texts; of fewer Arrow is not worth its loading
_SIMPLE: Final = r"^-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_USUAL: Final = {
    "date": f"{ISO_DATE} | {ISO_DATE} hh:mm:ss.fZ | {ISO_MOMENT} | {ISO_DATE} hh:mm",
    "datetime": f"{ISO_MOMENT} | {ISO_DATE} hh:mm:ss.fZ | {ISO_DATE}Thh:mmZ | {ISO_DATE} hh:mmZ | {ISO_DATE}",
    "time": f"{ISO_TIME} | hh:mm",
}
"""What is read of moments where the site says nothing."""


def usual_pattern(kind: str) -> str:
    """Return the pattern that moments of a type are read by where nobody says another one."""
    return _USUAL[kind]


def check_written(written: str) -> None:
    """Check how a site says that a column is written: see `value_reader`.

    Raises:
        ValueError: it is neither a style of numbers nor a pattern of dates.
    """
    if written in OLD_WAYS or is_pattern(written):
        return
    try:
        NumberStyle.of(written)
    except ValueError:
        raise ValueError(
            f"got '{written[:40]}', expected the number 1234.5 as the table writes it, such as 1.234,5 or 1234.5%, or a pattern "
            "of dates, such as DD.MM.YYYY hh:mm"
        ) from None


def value_reader(kind: str | None, written: str = "") -> Callable[[str], float | None]:
    """Return what reads the texts of a column.

    Args:
        kind: the column's type; None: it has none, and dates are years with their part that has gone by.
        written: how the table writes it: a style of numbers (`numbers`) or a pattern (`dates`); empty: as is usual for the type.

    Returns:
        A function from a text to the value, None where it has none: a number; of a date the days since 1970-01-01, of a
        moment the seconds since 1970-01-01T00:00 (see `dates`), of a time of day the seconds since midnight.

    Raises:
        ValueError: `written` is no style of numbers, or no pattern that says what the type needs.

    >>> value_reader("date", "DD.MM.YYYY")("03.01.1970"), value_reader("time")("01:00")
    (2.0, 3600.0)
    """
    if kind not in MOMENTS:
        return _number_reader(written or "plain", in_years=kind is None)
    pattern = DatePattern.of(written if written and written not in OLD_STYLES else _USUAL[str(kind)])
    if not (pattern.has_time if kind == "time" else pattern.has_date):
        raise ValueError(f"the pattern '{written}' does not say {'the time of day' if kind == 'time' else 'the day'}")

    def read_day(text: str) -> float | None:
        seconds = pattern.read(text)
        return None if seconds is None else float(math.floor(seconds / DAY))

    def read_time(text: str) -> float | None:
        seconds = pattern.read(text)
        return None if seconds is None else seconds % DAY

    return {"date": read_day, "time": read_time}.get(str(kind), pattern.read)


def read_texts(texts: Collection[str], kind: str | None, written: str = "") -> Floats:
    """Return the values of many texts, NaN where one has none: what `value_reader` reads of each, and plain numbers quicker.

    >>> read_texts(["1.5", "x"], "number").tolist()
    [1.5, nan]
    """
    read = value_reader(kind, written)
    if read is read_plain and len(texts) >= _MANY:
        return _read_plain_texts(texts)
    return np.array([math.nan if (value := read(text)) is None else value for text in texts], dtype=np.float64)


def _read_plain_texts(texts: Collection[str]) -> Floats:
    """Return plain numbers by Arrow's parser, which rounds as Python's does; what it cannot read Python reads."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        whole = pa.array(list(texts), pa.large_string())
    except UnicodeEncodeError:  # a byte that was no letter
        whole = pa.array([text if text.isascii() else "" for text in texts], pa.large_string())
    with contextlib.suppress(pa.ArrowInvalid):  # it reads nothing that is no plain number, but nan and infinite ones
        numbers: Floats = whole.cast(pa.float64()).to_numpy()
        if np.isfinite(numbers).all():
            return numbers
    is_simple = pc.call_function("match_substring_regex", [whole], pc.MatchSubstringOptions(_SIMPLE))
    plain = pc.call_function("if_else", [is_simple, whole, pa.scalar(None, whole.type)])
    values = plain.cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
    for place in np.flatnonzero(np.isnan(values)).tolist():
        if (number := read_plain(whole[place].as_py())) is not None:
            values[place] = number
    return np.asarray(values, dtype=np.float64)


def _number_reader(written: str, *, in_years: bool) -> Callable[[str], float | None]:
    if is_pattern(written) and not in_years:
        raise ValueError(f"the pattern '{written}' is of dates, and the column is of numbers")
    if written == "plain":
        return read_plain
    if written in OLD_WAYS:
        return lambda text: number_of(text, written)
    if is_pattern(written):
        pattern = DatePattern.of(written)
        return lambda text: None if (seconds := pattern.read(text)) is None else year_of(seconds)
    return NumberStyle.of(written).read


def year_of(seconds: float) -> float:
    """Return a moment as its year and the part of that year that has gone by, in days.

    >>> year_of(0.0), year_of(86_400.0 * 365)
    (1970.0, 1971.0)
    """
    day = dt.date.fromordinal(dt.date(1970, 1, 1).toordinal() + math.floor(seconds / DAY))
    passed = (day - dt.date(day.year, 1, 1)).days
    return day.year + passed / (366 if calendar.isleap(day.year) else 365)


def number_of(text: str, written: str = "plain") -> float | None:
    """Parse a text as version 1.0.0 does, in one of `OLD_WAYS`; None: the text is no number.

    >>> number_of("1.5e3"), number_of("1,5", "decimal-comma"), number_of("02.07.2019", "DD.MM.YYYY"), number_of("inf")
    (1500.0, 1.5, 2019.4986301369863, None)
    """
    if written in OLD_STYLES:
        return read_number(text, written)
    if (date := _DATES[written].fullmatch(text.strip())) is None:
        return None
    try:
        day = dt.date(int(date["y"]), int(date["m"]), int(date["d"]))
    except ValueError:
        return None
    return year_of((day.toordinal() - dt.date(1970, 1, 1).toordinal()) * float(DAY))
