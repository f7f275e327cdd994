"""Moments that are all at midnight, or on the first of a month, and the format by which those of records are, too."""

from __future__ import annotations

from typing import Final

from verticil.shared.core.arrays import Floats
from verticil.shared.documents.written_values.dates import DatePattern

_FEWEST: Final = 3  # distinct days, before the first of each month is more than chance
_UNITS: Final = (("at midnight", {"hh": "00", "mm": "00", "ss": "00"}), ("on the first of a month", {"DD": "01"}))
"""Where moments can be, and the digits that a pattern then has."""


def find_whole_format(pattern: str, seconds: Floats) -> tuple[str, str]:
    """Return the pattern with digits for what is the same in all moments, and where they all are, in words; empty: nowhere.

    Args:
        pattern: that records would be written in.
        seconds: (v,) distinct moments since 1970-01-01T00:00.

    >>> import numpy as np
    >>> find_whole_format("YYYY-MM-DDThh:mm:ss", np.array([0.0, 86_400.0]))
    ('YYYY-MM-DDT00:00:00', 'at midnight')
    """
    moments, found = seconds.tolist(), ("", "")
    for words, digits in _UNITS:
        whole = pattern
        for token, text in digits.items():
            whole = whole.replace(token, text)
        if whole == pattern:
            continue
        if ("DD" in digits and len(moments) < _FEWEST) or not _says_all(whole, moments):
            break
        pattern, found = whole, (whole, words)
    return found


def _says_all(pattern: str, moments: list[float]) -> bool:
    """Return whether all of some moments are read as they are from what a pattern writes."""
    try:
        own = DatePattern.of(pattern)
        return all(own.read(own.write(moment)) == moment for moment in moments)
    except ValueError:  # no pattern any more, or a year that cannot be written
        return False
