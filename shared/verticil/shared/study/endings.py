"""Endings of a column's values: the digits in which most of its numbers end, as prices do in .99 and appointments on quarters.

``endings = { "99" = 0.7, "95" = 0.2 }`` says that 70 % of the values end in 99 as records write them, 20 % in 95, and that the
others end as they may. The digits are the last ones of a number, the minutes, seconds, or both (``"15"``, ``"15:00"``) of a
moment, or the time of day of a date with a time (``"08:00:00"``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from verticil.shared.documents.written_values.dates import DAY, DatePattern
from verticil.shared.documents.written_values.reading import NUMBERS

Endings = tuple[tuple[str, float], ...]
ENDED_KINDS = NUMBERS | {"time", "datetime"}
"""Types whose values can have endings."""
MOST_DIGITS = 6
_DIGITS = re.compile(f"[0-9]{{1,{MOST_DIGITS}}}")
_MOMENT = re.compile("[0-5][0-9](?::[0-5][0-9])?")
_TIME_OF_DAY = re.compile("(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]")


@dataclass(frozen=True, slots=True)
class Lattice:
    """Where values with one ending lie: `residue`, and every `period` from there, in steps of the column.

    Attributes:
        period, residue: see above.
        by_size: whether a value below zero has the digits of its size, as numbers have, and moments before 1970 have not.
    """

    period: int
    residue: int
    by_size: bool = False


def lattice_of(ending: str, kind: str, pattern: str) -> Lattice:
    """Return where values with an ending lie; a step is the last digit of a number, of moments a second.

    Args:
        ending: digits; of moments minutes and seconds, or the last of them that the pattern has; or the time of day.
        kind: the column's type.
        pattern: of a moment.

    >>> [lattice_of(text, "time", pattern).residue for text, pattern in (("15", "hh:mm"), ("30", "hh:mm:ss"))]
    [900, 30]
    """
    if kind in NUMBERS:
        return Lattice(10 ** len(ending), int(ending), by_size=True)
    parts = list(map(int, ending.split(":")))
    if len(parts) == 3:
        return Lattice(DAY, 3600 * parts[0] + 60 * parts[1] + parts[2])
    if len(parts) == 2:
        return Lattice(3600, 60 * parts[0] + parts[1])
    return Lattice(60, parts[0]) if "ss" in pattern else Lattice(3600, 60 * parts[0])


def problems_of_endings(endings: Endings, kind: str, pattern: str) -> Iterator[str]:
    """Yield what is wrong with endings: their digits, their shares, or what they stand beside."""
    is_number = kind in NUMBERS
    forms: tuple[re.Pattern[str], ...] = (_MOMENT,)
    expected = 'minutes, seconds or both, such as "15" or "15:00"'
    if is_number:
        forms, expected = (_DIGITS,), f"1 to {MOST_DIGITS} digits"
    elif kind == "datetime":
        forms, expected = (_MOMENT, _TIME_OF_DAY), f'{expected}; or the time of day, such as "08:00:00"'
    for text, share in endings:
        if not any(form.fullmatch(text) for form in forms):
            yield f"the ending '{text[:20]}' is none, expected {expected}"
            return
        if not (math.isfinite(share) and 0 < share <= 1):
            yield f"the ending '{text}' has the share {share:g}, expected more than 0, at most 1"
    if len({len(text) for text, _ in endings}) > 1:
        yield "endings differ in length, expected as many digits in each"
    if math.fsum(share for _, share in endings) > 1 + 1e-9:
        yield f"the shares of the endings are {math.fsum(share for _, share in endings):g} together, expected at most 1"
    if not is_number and not DatePattern.of(pattern).has_time:
        yield "the format says no time of day, whose minutes an ending would be"
    # A time of day may name the second 00 of a format without seconds; minutes and seconds would be read as something else.
    has_seconds = any(text.count(":") == 1 or (":" in text and not text.endswith(":00")) for text, _ in endings)
    if not is_number and has_seconds and "ss" not in pattern:
        yield "an ending has seconds, and the format has none"
