"""Moments that are all at midnight, or on the first of a month, and the format by which those of records are, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from verticil.shared.core.arrays import Bools, Floats
from verticil.shared.documents.written_values.dates import DAY, DatePattern

_FEWEST: Final = 3  # distinct days, before the first of each month is more than chance


def _are_at_midnight(seconds: Floats) -> Bools:
    midnight: Bools = seconds % DAY == 0
    return midnight


def _are_first_of_month(seconds: Floats) -> Bools:
    days = (seconds // DAY).astype("datetime64[D]")
    first: Bools = days.astype("datetime64[M]").astype("datetime64[D]") == days
    return first


_UNITS: Final[tuple[tuple[str, dict[str, str], Callable[[Floats], Bools]], ...]] = (
    ("at midnight", {"hh": "00", "mm": "00", "ss": "00"}, _are_at_midnight),
    ("on the first of a month", {"DD": "01"}, _are_first_of_month),
)
"""Where moments can be, the digits that a pattern then has, and what tells whether moments are there."""


def find_whole_format(pattern: str, seconds: Floats) -> tuple[str, str]:
    """Return the pattern with digits for what is the same in all moments, and where they all are, in words; empty: nowhere.

    Args:
        pattern: that records would be written in.
        seconds: (v,) distinct moments since 1970-01-01T00:00.

    >>> import numpy as np
    >>> find_whole_format("YYYY-MM-DDThh:mm:ss", np.array([0.0, 86_400.0]))
    ('YYYY-MM-DDT00:00:00', 'at midnight')
    """
    found = "", ""
    for words, digits, are_so in _UNITS:
        if not are_so(seconds).all() or (len(seconds) < _FEWEST and "hh" not in digits):
            break
        whole = pattern
        for token, text in digits.items():
            whole = whole.replace(token, text)
        if whole == pattern:
            continue
        if not _writes_alike(whole, pattern, seconds):
            break
        pattern, found = whole, (whole, words)
    return found


def _writes_alike(whole: str, pattern: str, seconds: Floats) -> bool:
    """Return whether both patterns write some moments alike, and the first reads them; a pattern may have words for them."""
    some = seconds[:: max(len(seconds) // 50, 1)].tolist()
    try:
        own, other = DatePattern.of(whole), DatePattern.of(pattern)
        return all(
            own.write(moment) == other.write(moment) and own.read(own.write(moment)) == moment for moment in some
        )
    except ValueError:
        return False
