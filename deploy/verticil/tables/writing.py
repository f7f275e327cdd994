"""How a column writes its values, guessed from its distinct texts: a style of numbers, or a pattern of dates.

A guess is made from at most `SAMPLE` texts, taken evenly, and is the way of writing that reads most of them. Where two ways read
the same texts as other values (12,345; 03/04/2021), what the column shows decides where it can, and the guess says so where it
cannot.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from verticil.shared.documents.written_values.dates import DAY, DatePattern
from verticil.shared.documents.written_values.numbers import (
    EXAMPLES,
    MAGNIFIED,
    MAGNITUDES,
    MAX_STYLE,
    OLD_STYLES,
    NumberStyle,
    read_plain,
)
from verticil.shared.documents.written_values.reading import value_reader

SAMPLE: Final = 2_000
"""Most texts that a guess looks at."""
_MOST_UNIT: Final = 12  # letters of a unit
ENOUGH: Final = 0.9
"""Of the texts are read, or a column is not written so."""
_CORE: Final = re.compile(
    r"(?P<before>[^0-9+\-\u2212\u2013<>\u2264\u2265.,]*?)\s*(?P<core>[<>\u2264\u2265=\s]*[+\-\u2212\u2013]?\s*"
    r"[^0-9\s]{0,3}?[0-9.,'\u2019\s\u00a0\u2007\u2009\u202f]*[0-9](?:[eE][+-]?[0-9]+)?[.,]?)\s*(?P<behind>[^0-9]*)"
)
_EXAMPLE_OF: Final = {"plain": "1234.5", "decimal-comma": "1234,5"}
_CURRENCY: Final = re.compile(r"[A-Z]{3}|Rs|kr|Fr|CHF")
_MAGNITUDE: Final = re.compile(
    rf"(?<=[0-9.,])[ \u00a0]?({'|'.join(map(re.escape, sorted(MAGNITUDES, key=len, reverse=True)))})(?![^\W_])"
)
_MONEY: Final = re.compile(r"[^\W\d_]{3}\b|[$€£¥₹₽₩₺₴]|\b(?:Rs|kr|Fr|zł|Kč)\b")
_THREE: Final = re.compile(r"[+\-\u2212]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")
_UNUSUAL_SIGNS: Final = re.compile("[\u2212\u2012\u2013\u2014\ufe63\uff0d<>\u2264\u2265]")
DAYS: Final = (
    "YYYY-MM-DD", "DD.MM.YYYY", "DD/MM/YYYY", "MM/DD/YYYY", "YYYY/MM/DD", "YYYY.MM.DD", "DD-MM-YYYY", "MM-DD-YYYY", "YYYYMMDD",
    "DD MON YYYY", "DD-MON-YYYY", "DD. MONTH YYYY", "DDMONYYYY", "MON DD, YYYY", "MON DD YYYY", "DD/MON/YYYY", "DD.MM.YY",
    "DD/MM/YY", "MM/DD/YY", "DD-MM-YY", "DD-MON-YY", "DD MON YY", "YYYY-MM", "MM/YYYY", "MM.YYYY", "MON YYYY", "MON-YYYY",
    "MON-YY", "YYYY MON", "WEEKDAY, DD MON YYYY", "WEEKDAY, DD. MONTH YYYY", "WEEKDAY, MON DD, YYYY", "WEEKDAY MON DD YYYY",
    "YYYY年MM月DD日", "WEEKDAY, DD.MM.YYYY", "WEEKDAY DD.MM.YYYY", "WEEKDAY DD/MM/YYYY", "WEEKDAY MM/DD/YYYY",
)  # fmt: skip
"""Patterns of days that are tried, the more usual first."""
_TIMES: Final = (
    "hh:mm",
    "hh:mm:ss.f",
    "hh:mm AM",
    "hh:mm:ss AM",
    "hh:mmAM",
    "hh:mm:ssAM",
    "hh.mm",
    "hh.mm.ss.f AM",
    "hhhmm",
    "hh:mm Uhr",
)
_ZONED: Final = ("hh:mmZ", "hh:mm:ss.fZ")
_JOINTS: Final = (" ", "T", ", ")
_RUNS: Final = ("YYYYMMDDThhmmss", "YYYYMMDDThhmmssZ", "YYYYMMDD hhmmss", "YYYYMMDDThhmm", "YYYYMMDD hhmm")
_OF_WIDTH: Final = {
    6: ("YYYYMM", "YYMMDD", "DDMMYY", "MMDDYY"),
    8: ("YYYYMMDD", "DDMMYYYY", "MMDDYYYY"),
    12: ("YYYYMMDDhhmm",),
    14: ("YYYYMMDDhhmmss",),
}
"""Patterns of so many digits."""
_EPOCHS: Final = {"epoch s": (10, 10), "epoch ms": (13, 13), "epoch us": (16, 16), "epoch ns": (19, 19)}
_FEWEST_DIGITS: Final = 3  # of a time of day
_FIRST_EPOCH: Final = 5e8  # 1985-11-05: earlier whole numbers of ten digits are taken for numbers
_LAST_EPOCH: Final = 4e9
_LONGEST_SPAN: Final = 1.3e9  # 41 years
_FEW_MOMENTS: Final = 20  # fewer whole numbers of one width are no evidence
_LAST_OF_POSIX: Final = 68  # two digits up to here are 20.., the others 19..
_PARTLY: Final = 0.3  # of the numbers have a unit of letters behind a blank, or the letters are part of codes
_FIRST_YEAR, _LAST_YEAR = 1800, 2200  # of eight digits that are a date
_DIGITS: Final = re.compile(r"[0-9]+")
_SECONDS: Final = re.compile(r"[0-9]{10}\.[0-9]+")
_LONG_NAME: Final = re.compile(r"[^\W\d_]{5,}")
_TAIL: Final = re.compile("[+\u2212\u2012\u2013\u2014-]{1,2}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a column writes its values.

    Attributes:
        written: what party.toml says of it: see `written_values.reading.value_reader`.
        n_read: how many of the texts that were looked at it reads.
        n_texts: how many were looked at.
        doubt: what else it could be, and why it was taken so; empty: there is none.
        unit: of numbers; empty: none.
    """

    written: str
    n_read: int
    n_texts: int
    doubt: str = ""
    unit: str = ""

    @property
    def share(self) -> float:
        """The part of the texts that it reads, 0 to 1."""
        return self.n_read / self.n_texts if self.n_texts else 0.0


def sample(texts: Sequence[str]) -> Sequence[str]:
    """Return at most `SAMPLE` of the texts, taken evenly."""
    return texts if len(texts) <= SAMPLE else [texts[place * len(texts) // SAMPLE] for place in range(SAMPLE)]


def guess_numbers(texts: Sequence[str], *, delimiter: str = ",") -> Writing:
    """Return the way of writing numbers that reads most of some distinct texts, of two alike the plainer one.

    Args:
        texts: without those for missing values.
        delimiter: of the file: a table with semicolons has decimal commas more often.

    >>> guess_numbers(["33.0%", "40.5%"]).written, guess_numbers(["1.299,99", "850,00"]).written
    ('1234.5%', '1.234,5')
    """
    some = sample(texts)
    if _are_plain(some):
        return Writing(written="plain", n_read=len(some), n_texts=len(some))
    if (bare := _without_magnitudes(some)) is not None:
        own = guess_numbers(bare, delimiter=delimiter)
        written = re.sub(r"(?<=[.,]5)", MAGNIFIED, _EXAMPLE_OF.get(own.written, own.written))
        doubt = "; ".join(
            filter(None, (own.doubt, "letters behind its numbers (k, M, bn) stand for thousands and more"))
        )
        return replace(own, written=written, doubt=doubt, n_texts=len(some))
    unit, is_before, unit_share = _unit(some)
    ways = [*OLD_STYLES, *EXAMPLES]
    if unit:
        ways += [f"{unit}{example}" if is_before else f"{example}{_gap(unit)}{unit}" for example in EXAMPLES]
    counts = {way: _count(value_reader("number", way), some) for way in ways}
    most = max(counts.values(), default=0)
    best = [way for way in ways if counts[way] == most]
    written, doubt = _thousands(best, some, delimiter)
    if written in OLD_STYLES and any(_UNUSUAL_SIGNS.search(text) for text in some):
        written = next((way for way in best if way not in OLD_STYLES), written)
    style = None if written in OLD_STYLES else NumberStyle.of(written)
    own_unit = "" if style is None else style.unit
    if style is not None:
        n_limits = sum(map(style.is_limit, some))
        if n_limits > most / 2 or all(text.strip().startswith("(") for text in some):
            most = 0  # <=50K and >50K are categories, and so are (1), (2)
    if own_unit and unit_share < ENOUGH:
        partly = (
            f"'{own_unit}' stands at {unit_share:.0%} of its distinct numbers: all are taken for numbers of one kind"
        )
        doubt = "; ".join(filter(None, (doubt, partly)))
        own_unit = own_unit if any(map(str.isalpha, own_unit)) else ""
    return Writing(written=written, n_read=most, n_texts=len(some), doubt=doubt, unit=own_unit)


def _without_magnitudes(texts: Sequence[str]) -> list[str] | None:
    """Return texts without the letters that stand for thousands and more behind their numbers; None: these are a unit, or codes.

    One letter alone multiplies where some numbers lack it, or money has it: all in m are metres.
    """
    bare = [_MAGNITUDE.sub("", text, count=1) for text in texts]
    letters = Counter(match[1] for text in texts if (match := _MAGNITUDE.search(text)) is not None)
    powers = {MAGNITUDES[letter] for letter in letters}
    has_bare = sum(letters.values()) < len(texts) and 3 in powers
    is_money = all(_MONEY.search(text) for text in texts)
    if len(powers) > 1 or (powers and (is_money or has_bare)):
        return bare
    return None


def _are_plain(texts: Sequence[str]) -> bool:
    """Return whether all texts are numbers as programs write them, and no mark in them can separate thousands."""
    marked = [text for text in texts if "." in text]
    is_decimal = not marked or any(_THREE.fullmatch(text.strip()) is None for text in marked)
    return is_decimal and all(read_plain(text) is not None for text in texts)


def _gap(unit: str) -> str:
    return "" if unit == "%" else " "


def _count(read: Callable[[str], float | None], texts: Sequence[str]) -> int:
    return sum(read(text) is not None for text in texts)


def _unit(texts: Sequence[str]) -> tuple[str, bool, float]:
    """Return the only unit that the numbers among the texts have, whether it stands before them, and the part that has it.

    No number is without the unit, or it is the only one and no part of a code. An empty unit: there is none.
    """
    units = Counter[tuple[str, bool]]()
    n = n_bare = 0
    for text in texts:
        match = _CORE.fullmatch(_without_signs(text))
        if match is None:
            continue
        n += 1
        before, behind = match["before"].strip(), match["behind"].strip()
        inner = re.sub(
            r"[0-9.,'\u2019\s\u00a0\u2007\u2009\u202f+\-\u2212\u2013<>\u2264\u2265=]|(?<=[0-9])[eE](?=[+-]?[0-9])",
            "",
            match["core"],
        )
        before = before or inner
        if before and behind:
            continue
        if unit := before or behind:
            units[unit, bool(before)] += 1
        else:
            n_bare += 1
    if not units or n < ENOUGH * len(texts):
        return "", False, 0.0
    (unit, is_before), _ = units.most_common(1)[0]
    count = units[unit, True] + units[unit, False]
    if is_before and unit.isalpha() and not _CURRENCY.fullmatch(unit):
        return "", False, 0.0  # A10 is a code
    fits = len(unit) <= min(_MOST_UNIT, MAX_STYLE - 10) and not any(letter in "|\"'" for letter in unit)
    has_letters = any(map(str.isalpha, unit))  # 12a is no number of a
    is_apart = any(text.strip().endswith(f" {unit}") for text in texts)
    is_alone = count + n_bare >= ENOUGH * n and (not has_letters or (is_apart and count >= _PARTLY * n))
    return (unit, is_before, count / n) if fits and (count >= ENOUGH * n or is_alone) else ("", False, 0.0)


def _without_signs(text: str) -> str:
    """Return a text without what makes its number negative, open or whole: ``(5)``, ``5-``, ``90+``, ``12,-``."""
    bare = text.strip()
    if bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    return _TAIL.sub("", bare) or bare


def _thousands(best: Sequence[str], texts: Sequence[str], delimiter: str) -> tuple[str, str]:
    """Return which of the ways that read the same texts is meant, and what is in doubt.

    A mark before exactly three digits everywhere separates thousands, if numbers below 1,000 stand without it, or a text has two
    of them; where each number has exactly one, that cannot be told, and the file's delimiter decides: between semicolons a point
    separates thousands and a comma is the decimal mark, else it is the other way round.
    """
    first = best[0]
    decimal_ways = {"plain": ".", "1234.5": ".", "decimal-comma": ",", "1234,5": ","}
    bare = re.sub(r"^[^0-9]*|[^0-9]*$", "", first) if first not in OLD_STYLES else first
    mark = decimal_ways.get(bare, "")
    group = {".": "1.234,5", ",": "1,234.5"}.get(mark, "")
    other = next((way for way in best if group and group in way), "")
    cores = [re.sub(r"[^0-9.,+\-\u2212]", "", text) for text in texts]
    marked = [core for core in cores if mark and mark in core]
    if not other or not marked or not all(_THREE.fullmatch(core) for core in marked):
        return first, ""
    below = [core for core in cores if mark not in core and core]
    if any(len(core.lstrip("+-\u2212")) > 3 for core in below):
        return first, ""
    if any(core.count(mark) > 1 for core in marked) or (below and len(marked) >= 10):
        return other, ""
    words = f"'{mark}' stands before three digits in each number: it is taken for "
    if (mark == ".") == (delimiter == ";"):
        return (
            other,
            f"{words}a separator between thousands, and could be a decimal {'comma' if mark == ',' else 'point'}",
        )
    return first, f"{words}the decimal mark, and could separate thousands" if mark == "," else ""


def guess_dates(texts: Sequence[str]) -> Writing | None:
    """Return how some distinct texts write dates, moments or times; None: most of them are none.

    >>> guess_dates(["06-02-2016", "21-01-2016"]).written, guess_dates(["3.1.2020", "x", "y"])
    ('DD-MM-YYYY', None)
    """
    some = sample(texts)
    if not some:
        return None
    if all(_DIGITS.fullmatch(text.strip()) or _SECONDS.fullmatch(text.strip()) for text in some):
        return _of_digits(some)
    ways, rest = list[str](), list(some)
    doubts = list[str]()
    while rest and len(ways) < 4:
        fits = {way: _count(DatePattern.of(way).read, rest) for way in _candidates(rest[:20])}
        if not fits or not (most := max(fits.values())):
            break
        best = next(way for way in fits if fits[way] == most)
        if not ways:
            doubts.append(_other_order(best, [way for way in fits if fits[way] == most], rest))
        best, doubt = _with_years(best, rest)
        ways.append(_with_long_names(best, rest))
        doubts.append(doubt)
        read = DatePattern.of(best).read
        rest = [text for text in rest if read(text) is None]
        if most < 0.02 * len(some):
            ways.pop()
            break
    n_read = len(some) - _count_unread(ways, some)
    if not ways or n_read < ENOUGH * len(some):
        return None
    doubt = "; ".join(dict.fromkeys(filter(None, doubts)))
    return Writing(written=" | ".join(ways), n_read=n_read, n_texts=len(some), doubt=doubt)


def _count_unread(ways: Sequence[str], texts: Sequence[str]) -> int:
    if not ways:
        return len(texts)
    read = DatePattern.of(" | ".join(ways)).read
    return sum(read(text) is None for text in texts)


def _with_long_names(way: str, texts: Sequence[str]) -> str:
    """Return a pattern with whole names of months where the texts have them."""
    is_short = "MON" in way and "MONTH" not in way and "WEEKDAY" not in way
    return way.replace("MON", "MONTH") if is_short and any(map(_LONG_NAME.search, texts)) else way


def _with_years(way: str, texts: Sequence[str]) -> tuple[str, str]:
    """Return a pattern of two-digit years with the last year that they say, and that this was taken so.

    Years until 2068 are this century's, which is wrong of dates of birth: where that makes dates of the last century and of years
    to come, or of these alone, no year is later than this one.
    """
    if not re.search("(?<!Y)YY(?!Y)", way):
        return way, ""
    read = DatePattern.of(way).read
    this_year = dt.datetime.now(dt.UTC).year
    to_come = (dt.date(this_year + 1, 1, 1).toordinal() - dt.date(1970, 1, 1).toordinal()) * float(DAY)
    moments = [moment for text in texts if (moment := read(text)) is not None]
    n_to_come = sum(moment >= to_come for moment in moments)
    last_century = (dt.date(2000, 1, 1).toordinal() - dt.date(1970, 1, 1).toordinal()) * float(DAY)
    has_last_century = any(moment < last_century for moment in moments)
    first, last = 1900 + _LAST_OF_POSIX + 1, 2000 + _LAST_OF_POSIX
    if n_to_come and (has_last_century or n_to_come == len(moments)):
        way, first, last = f"{way} until {this_year}", this_year - 99, this_year
    return way, f"its years have two digits, and are taken for {first} to {last}"


def _of_digits(texts: Sequence[str]) -> Writing | None:
    """Return how whole numbers write dates: digits of one width that all are a day of a usual year, or an epoch."""
    widths = {len(text.strip().partition(".")[0]) for text in texts}
    ways = _OF_WIDTH.get(next(iter(widths)), ()) if len(widths) == 1 else ()
    fits = [
        way
        for way in ways
        if len(texts) > (1 if way == "YYYYMMDD" else _FEW_MOMENTS) and all(_is_day(way, text) for text in texts)
    ]
    if fits:
        best = fits[0] if fits[0].startswith("YYYY") else min(fits, key=lambda way: _span(way, texts))
        way, doubt = _with_years(best, texts)
        doubts = "; ".join(filter(None, (_other_order(best, fits, texts), doubt)))
        return Writing(written=way, n_read=len(texts), n_texts=len(texts), doubt=doubts)
    if len(texts) < SAMPLE // 100:
        return None
    for way, (least, most) in _EPOCHS.items():
        if widths <= set(range(least, most + 1)):
            read = DatePattern.of(way).read
            moments = [read(text) for text in texts]
            known = [moment for moment in moments if moment is not None and _FIRST_EPOCH < moment < _LAST_EPOCH]
            if len(known) == len(texts) > _FEW_MOMENTS and max(known) - min(known) < _LONGEST_SPAN:
                return Writing(written=way, n_read=len(texts), n_texts=len(texts))
    return None


def _is_day(way: str, text: str) -> bool:
    """Return whether digits are a moment of a usual year."""
    seconds = DatePattern.of(way).read(text)
    return seconds is not None and _FIRST_YEAR <= 1970 + seconds / (365.2425 * DAY) < _LAST_YEAR + 1


def _span(way: str, texts: Sequence[str]) -> float:
    """Return how many seconds lie between the first and the last moment: of two ways to read digits the right one's are fewer."""
    read = DatePattern.of(way).read
    moments = [moment for text in texts if (moment := read(text)) is not None]
    return max(moments) - min(moments)


def _candidates(texts: Sequence[str]) -> list[str]:
    """Return the patterns that read at least one of a few texts: days, moments, times."""
    dated = [text for text in texts if sum(map(str.isdigit, text)) >= _FEWEST_DIGITS]
    present = [frozenset(text.replace("\u00a0", " ")) for text in dated]
    return [
        way for way, needed in _patterns() if any(needed <= letters for letters in present) and _reads_any(way, dated)
    ]


@functools.cache
def _patterns() -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the patterns that are tried, the more usual first, and the signs that a text of each has at least."""
    whole_days = [day for day in DAYS if "DD" in day]
    moments = [f"{day}{joint}{time}" for day, joint, time in itertools.product(whole_days, _JOINTS, (*_TIMES, *_ZONED))]
    ways = (*DAYS, *_TIMES, *_ZONED, *_RUNS, *moments)
    return tuple((way, frozenset(re.sub(r"\.f|[A-Za-z0-9]", "", way))) for way in ways)


def _reads_any(way: str, texts: Sequence[str]) -> bool:
    read = DatePattern.of(way).read
    return any(read(text) is not None for text in texts)


def _other_order(best: str, fits: Sequence[str], texts: Sequence[str]) -> str:
    """Return the doubt whether days or months come first; empty: a text shows it."""
    orders = {"DD/MM": "MM/DD", "MM/DD": "DD/MM", "DD-MM": "MM-DD", "DD.MM": "MM.DD", "DDMM": "MMDD", "MMDD": "DDMM"}
    for one, other in orders.items():
        twin = best.replace(one, other)
        if twin != best and twin in fits and len(texts) > 1:
            return f"no date shows whether days or months come first: it is taken for {best}, and could be {twin}"
    return ""


def is_midnight(seconds: float) -> bool:
    """Return whether a moment has no time of day."""
    return seconds % DAY == 0
