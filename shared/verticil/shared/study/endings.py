"""Endings of a column's values: the digits in which most of its numbers end, as prices do in .99 and appointments on quarters.

``endings = { "99" = 0.7, "95" = 0.2 }`` says that 70 % of the values end in 99 as records write them, 20 % in 95, and that the
others end as they may. The digits are the last ones of a number, or the minutes, seconds, or both (``"15"``, ``"15:00"``) of a
moment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from verticil.shared.documents.written_values.dates import DatePattern
from verticil.shared.documents.written_values.reading import NUMBERS

Endings = tuple[tuple[str, float], ...]
ENDED_KINDS = NUMBERS | {"time", "datetime"}
"""Types whose values can have endings."""
MOST_DIGITS = 6
_DIGITS = re.compile(f"[0-9]{{1,{MOST_DIGITS}}}")
_MOMENT = re.compile("[0-5][0-9](?::[0-5][0-9])?")


@dataclass(frozen=True, slots=True)
class Lattice:
    """Where values with one ending lie: `residue`, and every `period` from there, in steps of the column."""

    period: int
    residue: int


def lattice_of(ending: str, kind: str, pattern: str) -> Lattice:
    """Return where values with an ending lie; a step is the last digit of a number, of moments a second.

    Args:
        ending: digits; of moments minutes and seconds, or the last of them that the pattern has.
        kind: the column's type.
        pattern: of a moment.

    >>> lattice_of("99", "number", ""), lattice_of("15", "time", "hh:mm"), lattice_of("30", "time", "hh:mm:ss")
    (Lattice(period=100, residue=99), Lattice(period=3600, residue=900), Lattice(period=60, residue=30))
    """
    if kind in NUMBERS:
        return Lattice(10 ** len(ending), int(ending))
    first, _, second = ending.partition(":")
    if second:
        return Lattice(3600, 60 * int(first) + int(second))
    return Lattice(60, int(first)) if "ss" in pattern else Lattice(3600, 60 * int(first))


def problems_of_endings(endings: Endings, kind: str, pattern: str) -> Iterator[str]:
    """Yield what is wrong with endings: their digits, their shares, or what they stand beside."""
    is_number = kind in NUMBERS
    for text, share in endings:
        if (_DIGITS if is_number else _MOMENT).fullmatch(text) is None:
            expected = (
                f"1 to {MOST_DIGITS} digits" if is_number else 'minutes, seconds or both, such as "15" or "15:00"'
            )
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
    if not is_number and ":" in endings[0][0] and "ss" not in pattern:
        yield "an ending has seconds, and the format has none"
