"""Dates, moments and times of day as tables write them.

A pattern is made of tokens and literal letters: ``YYYY`` ``YY`` ``MM`` ``DD`` ``MON`` (Jan) ``MONTH`` (January) ``hh`` ``mm``
``ss`` ``.f`` (a part of a second, may be left out) ``AM`` (or PM) ``WEEKDAY`` (Mon, Monday; not checked) ``Z`` (a zone: Z, UTC,
+01:00, CET; may be left out). Beside them ``epoch s``, ``epoch ms``, ``epoch us``, ``epoch ns``: units since 1970-01-01T00:00
UTC. Patterns joined by `` | `` are tried in turn, and the first one writes. Two-digit years are 1969 to 2068 (POSIX), and 1927 to
2026 where the pattern ends with `` until 2026``. Years are 1 to 9999, of the Gregorian calendar.

A moment is a number of seconds since 1970-01-01T00:00: of UTC where its text has a zone, else as it is written.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import re
from dataclasses import dataclass
from typing import Final

DAY: Final = 86_400
"""Seconds of a day."""
ISO_DATE: Final = "YYYY-MM-DD"
ISO_MOMENT: Final = "YYYY-MM-DDThh:mm:ss.fZ"
ISO_TIME: Final = "hh:mm:ss.f"
MAX_PATTERN: Final = 120
"""Most letters of a way of writing."""
_MOST_WAYS: Final = 20
_EPOCH: Final = {"epoch s": 1.0, "epoch ms": 1e3, "epoch us": 1e6, "epoch ns": 1e9}
_ZERO: Final = dt.date(1970, 1, 1).toordinal()
_NAMES: Final = (
    "january february march april may june july august september october november december",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "jänner feber maerz april mai juni juli august september oktober november dezember",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "januar februar marts april maj juni juli august september oktober november december",
    "januari februari mars april maj juni juli augusti september oktober november december",
)
_SHORT_NAMES: Final = (
    "sept set dic dez déc dec févr fév juil avr jui mrz mär jän okt oct ago aou aoû gen mag giu lug ott ene"
)
_SHORT_MONTHS: Final = (9, 9, 12, 12, 12, 12, 2, 2, 7, 4, 7, 3, 3, 1, 10, 10, 8, 8, 8, 1, 5, 6, 7, 10, 1)
_ENGLISH: Final = [name.capitalize() for name in _NAMES[0].split()]
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_POSIX_LAST: Final = 2068  # year that two digits can say
_UNTIL: Final = re.compile(r"(?P<pattern>.+) until (?P<year>[1-9][0-9]{2,3})")
_ZONES: Final = {
    "WET": 0, "WEST": 1, "BST": 1, "CET": 1, "CEST": 2, "MEZ": 1, "MESZ": 2, "EET": 2, "EEST": 3, "EST": -5, "EDT": -4, "CST": -6,
    "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}  # fmt: skip
"""Hours that the zones of Europe and North America are ahead of UTC (RFC 2822 where it has them)."""
_TOKENS: Final = {
    "YYYY": "(?P<year>[0-9]{4})",
    "YY": "(?P<short_year>[0-9]{2})",
    "MONTH": r"(?P<name>[^\W\d_]+)\.?",
    "MON": r"(?P<name>[^\W\d_]+)\.?",
    "MM": "(?P<month>[0-9]{1,2})",
    "DD": "(?P<day>[0-9]{1,2})",
    "hh": "(?P<hour>[0-9]{1,2})",
    "mm": "(?P<minute>[0-9]{2})",
    "ss": "(?P<second>[0-9]{2})",
    ".f": r"(?:[.,](?P<part>[0-9]{1,9}))?",
    "AM": "(?P<half>[AaPp])[.]?[Mm][.]?",
    "WEEKDAY": r"(?P<weekday>[^\W\d_]+)\.?",
    "Z": rf"(?:[ ]?(?P<zone>Z|(?:UTC|GMT)?[+-][0-9]{{2}}:?[0-9]{{2}}|[+-][0-9]{{2}}|UTC|GMT|{'|'.join(_ZONES)})"
    r"(?:\[[\w/+-]+\])?)?",
}
_TOKEN: Final = re.compile("|".join(re.escape(token) for token in sorted(_TOKENS, key=len, reverse=True)))


@functools.cache
def _months() -> dict[str, int]:
    """Return the number of a month by its name or the first three letters of it, in case-folded letters."""
    months: dict[str, int] = dict(zip(_SHORT_NAMES.split(), _SHORT_MONTHS, strict=True))
    for names in _NAMES:
        for number, name in enumerate(names.split(), 1):
            months[name] = number
            months.setdefault(name[:3], number)
            months.setdefault(name[:4], number)
    return months


@dataclass(frozen=True, slots=True, kw_only=True)
class _One:
    """One pattern of a `DatePattern`: its tokens in order with the literal texts between them."""

    text: str
    pieces: tuple[str, ...]
    last_year: int = _POSIX_LAST

    @property
    def tokens(self) -> frozenset[str]:
        return frozenset(self.pieces) & _TOKENS.keys()

    @property
    def has_day(self) -> bool:
        return bool(self.tokens & {"YYYY", "YY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePattern:
    """How a column writes dates, moments or times of day.

    Attributes:
        text: the pattern as it is written.
    """

    text: str
    _ways: tuple[_One, ...]

    @classmethod
    def of(cls, text: str) -> DatePattern:
        """Return the pattern of a text.

        Raises:
            ValueError: it is no pattern.
        """
        ways = text.split(" | ")
        if len(ways) > _MOST_WAYS:
            raise ValueError(f"{len(ways)} ways of writing, expected a pattern with at most {_MOST_WAYS}")
        if (longest := max(map(len, ways))) > MAX_PATTERN:
            raise ValueError(f"{longest} letters, expected a pattern of at most {MAX_PATTERN}")
        return cls(text=text, _ways=tuple(map(_one, ways)))

    @property
    def has_date(self) -> bool:
        """Whether each way of writing says the day; where it says the month alone, that is its first day."""
        return all(one.text in _EPOCH or one.has_day for one in self._ways)

    @property
    def has_time(self) -> bool:
        """Whether some way of writing says the time of day."""
        return any(one.text in _EPOCH or "hh" in one.tokens for one in self._ways)

    @property
    def has_zone(self) -> bool:
        """Whether some way of writing says the zone."""
        return any(one.text in _EPOCH or "Z" in one.tokens for one in self._ways)

    def read(self, text: str) -> float | None:
        """Return the moment of a text in seconds, see the module; None: it is none. A time without a day is of 1970-01-01.

        >>> DatePattern.of("DD.MM.YYYY").read("2.1.1970"), DatePattern.of("YYYYMMDD").read("19700132")
        (86400.0, None)
        """
        bare = text.strip()
        for one in self._ways:
            if (seconds := _read(one, bare)) is not None:
                return seconds
        return None

    def write(self, seconds: float) -> str:
        """Return the text of a moment, in the first way of writing.

        Raises:
            ValueError: its year is not 1 to 9999.

        >>> DatePattern.of("DD-MON-YYYY hh:mm").write(86_400 + 3_660)
        '02-Jan-1970 01:01'
        """
        one = self._ways[0]
        if one.text in _EPOCH:
            return str(round(seconds * _EPOCH[one.text]))
        micro = round(seconds * 1e6)
        day, rest = divmod(micro, DAY * 1_000_000)
        if not 1 <= day + _ZERO <= dt.date.max.toordinal():
            raise ValueError("a year before 1 or after 9999 cannot be written")
        date, (second, part) = dt.date.fromordinal(day + _ZERO), divmod(rest, 1_000_000)
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        texts = {
            "YYYY": f"{date.year:04d}",
            "YY": f"{date.year % 100:02d}",
            "MONTH": _ENGLISH[date.month - 1],
            "MON": _ENGLISH[date.month - 1][:3],
            "MM": f"{date.month:02d}",
            "DD": f"{date.day:02d}",
            "hh": f"{(hour + 11) % 12 + 1 if 'AM' in one.tokens else hour:02d}",
            "mm": f"{minute:02d}",
            "ss": f"{second:02d}",
            ".f": f".{part:06d}".rstrip("0") if part else "",
            "AM": "AM" if hour < 12 else "PM",
            "WEEKDAY": _WEEKDAYS[date.weekday()],
            "Z": "Z",
        }
        return "".join(texts.get(piece, piece) for piece in one.pieces)


@functools.lru_cache(maxsize=2048)
def _one(text: str) -> _One:
    """Return one pattern.

    Raises:
        ValueError: it is none.
    """
    if text in _EPOCH:
        return _One(text=text, pieces=())
    until = _UNTIL.fullmatch(text)
    bare = text if until is None else until["pattern"]
    pieces, at = list[str](), 0
    for match in _TOKEN.finditer(bare):
        pieces += [bare[at : match.start()]] * (match.start() > at)
        pieces.append(match.group())
        at = match.end()
    pieces += [bare[at:]] * (at < len(bare))
    one = _One(text=text, pieces=tuple(pieces), last_year=_POSIX_LAST if until is None else int(until["year"]))
    groups = [_group(piece) for piece in pieces if piece in _TOKENS]
    is_day = one.has_day and one.tokens & {"MM", "MON", "MONTH"} and ("DD" in one.tokens or "hh" not in one.tokens)
    has_part_of_day = one.tokens & {"DD", "MM", "MON", "MONTH", "YYYY", "YY"}
    is_unsuited = until is not None and "YY" not in one.tokens
    if (
        len(set(groups)) < len(groups)
        or (has_part_of_day and not is_day)
        or not (is_day or "hh" in one.tokens)
        or is_unsuited
    ):
        raise ValueError(
            f"got '{text[:MAX_PATTERN]}', expected a pattern such as YYYY-MM-DD, DD.MM.YYYY hh:mm, DD-MON-YY, hh:mm or epoch s"
        )
    return one


def _group(token: str) -> str:
    match = re.search(r"\(\?P<(\w+)>", _TOKENS[token])
    return "" if match is None else {"short_year": "year", "name": "month"}.get(match[1], match[1])


@functools.lru_cache(maxsize=2048)
def _compiled(one: _One) -> re.Pattern[str]:
    """Compile a pattern; between digits without a separator, each token has all its digits."""
    parts = list[str]()
    for place, piece in enumerate(one.pieces):
        pattern = _TOKENS.get(piece, re.escape(piece).replace(r"\ ", "[ \u00a0]+"))
        beside = (*one.pieces[max(place - 1, 0) : place], *one.pieces[place + 1 : place + 2])
        if any(other in _TOKENS and other not in {".f", "AM", "Z"} for other in beside):
            pattern = pattern.replace("{1,2}", "{2}")
        parts.append(pattern)
    return re.compile("".join(parts))


def _read(one: _One, text: str) -> float | None:
    if one.text in _EPOCH:
        return float(text) / _EPOCH[one.text] if re.fullmatch(r"[+-]?[0-9]{1,20}(?:\.[0-9]+)?", text) else None
    match = _compiled(one).fullmatch(text)
    if match is None:
        return None
    fields = match.groupdict()
    seconds = _seconds_of_day(fields)
    if seconds is None or not one.has_day:
        return seconds
    last = one.last_year
    year = int(fields["year"]) if fields.get("year") else (int(fields["short_year"]) - last - 1) % 100 + last - 99
    month = int(fields["month"]) if fields.get("month") else _months().get(fields["name"].casefold(), 0)
    try:
        day = dt.date(year, month, int(fields.get("day") or 1)).toordinal() - _ZERO
    except ValueError:
        return None
    return day * float(DAY) + seconds - _offset(fields.get("zone"))


def _seconds_of_day(fields: dict[str, str | None]) -> float | None:
    """Return the seconds since midnight; 24:00 is none."""
    hour, minute, second = (int(fields.get(name) or 0) for name in ("hour", "minute", "second"))
    if fields.get("half"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (fields["half"] in {"p", "P"})
    if hour > 23 or minute > 59 or second > 59:
        return None
    return 3600.0 * hour + 60 * minute + second + float(f"0.{fields.get('part') or '0'}")


def _offset(zone: str | None) -> float:
    """Return how many seconds a zone is ahead of UTC."""
    if not zone:
        return 0.0
    if zone in _ZONES:
        return 3600.0 * _ZONES[zone]
    bare = zone.removeprefix("UTC").removeprefix("GMT")
    if bare[:1] not in {"+", "-"}:
        return 0.0
    digits = bare[1:].replace(":", "").ljust(4, "0")
    return math.copysign(3600.0 * int(digits[:2]) + 60 * int(digits[2:]), float(f"{bare[0]}1"))


_STRPTIME: Final = {
    "YYYY": "%Y", "YY": "%y", "MONTH": "%B", "MON": "%b", "MM": "%m", "DD": "%d", "hh": "%H", "mm": "%M", "ss": "%S", ".f": "",
    "AM": "%p", "Z": "Z", "WEEKDAY": "%a",
}  # fmt: skip


def strptime_format(pattern: str) -> str:
    """Return a pattern in the letters of ``strptime``, for other programs; of an epoch ``any``.

    >>> strptime_format("DD.MM.YYYY hh:mm")
    '%d.%m.%Y %H:%M'
    """
    first = pattern.partition(" | ")[0]
    if first in _EPOCH:
        return "any"
    one = _one(first)
    letters = "".join(_STRPTIME.get(piece, piece.replace("%", "%%")) for piece in one.pieces)
    return letters.replace("%H", "%I") if "AM" in one.tokens else letters


def is_pattern(text: str) -> bool:
    """Return whether a text is a pattern of dates, moments or times."""
    try:
        DatePattern.of(text)
    except ValueError:
        return False
    return True
