"""Values on the scale of a column's type: as TOML writes them, and as labels show them.

The scale of dates is days since 1970-01-01, that of moments seconds since then, that of times of day seconds since midnight.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final, cast

from verticil.shared.documents.toml_table import Table
from verticil.shared.documents.written_values.dates import DAY, ISO_DATE, DatePattern

_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
MOMENTS_IN_WORDS: Final = {
    "date": "dates, such as 2024-01-31, without quotes",
    "datetime": "date-times, such as 2024-01-31T08:00:00, without quotes",
    "time": 'times of day, such as "08:30"',
}


def read_moment(table: Table, key: str, kind: str | None) -> float:
    """Read one moment of a type that stands in a table.

    Raises:
        Misuse: the table's code, it is none.
    """
    return moment_of(table, key, str(kind), table.raw(key))


def moment_of(table: Table, key: str, kind: str, item: object) -> float:
    """Return a TOML date, date-time or time, or a time of day as text, on the scale of a type.

    Raises:
        Misuse: the table's code, it is none.
    """
    if kind == "time":
        match = _TIME.fullmatch(item) if isinstance(item, str) else None
        if match is not None:
            return 3600.0 * int(match[1]) + 60 * int(match[2]) + int(match[3] or 0)
        if item == "24:00":
            return float(DAY)
        if isinstance(item, dt.time):
            return 3600.0 * item.hour + 60 * item.minute + item.second
    elif isinstance(item, dt.datetime):
        if kind == "datetime":
            zone = dt.timedelta(0) if item.utcoffset() is None else cast("dt.timedelta", item.utcoffset())
            bare = item.replace(tzinfo=None)
            seconds = (bare.toordinal() - _EPOCH) * DAY + (bare - dt.datetime.combine(bare, dt.time())).total_seconds()
            return float(seconds - zone.total_seconds())
    elif isinstance(item, dt.date):
        days = item.toordinal() - _EPOCH
        return float(days if kind == "date" else days * DAY)
    return table.fail(key, f"got a {type(item).__name__}, expected {MOMENTS_IN_WORDS[kind]}")


def value_text(kind: str | None, value: float) -> str:
    """Return a value as labels have it: the shortest number, a date by ISO 8601, a time of day.

    >>> value_text("date", 0.0), value_text("time", 3600.0), value_text("number", 2.50), value_text(None, 3.0)
    ('1970-01-01', '01:00', '2.5', '3')
    """
    if kind == "date":
        return DatePattern.of(ISO_DATE).write(value * DAY)
    if kind == "datetime":
        return DatePattern.of("YYYY-MM-DD" if value % DAY == 0 else "YYYY-MM-DDThh:mm:ss").write(value)
    if kind == "time":
        minutes, second = divmod(round(value), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}" + (f":{second:02d}" if second else "")
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
