"""Endings that a column's numbers have more often than chance gives: prices in .99, salaries in hundreds, times on quarters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.documents.written_values.dates import DAY
from verticil.shared.documents.written_values.reading import NUMBERS
from verticil.shared.study.endings import Endings, lattice_of
from verticil.tables.ranges import FEWEST_ROWS

_COVERED: Final = 0.5  # of the rows have one of the endings, or the column has none
_ONE: Final = 0.02  # of the rows have each
_MORE: Final = 2.5  # times as many as an even spread gives
_MOST: Final = 12
_LONGEST: Final = 4  # digits
_PERIODS: Final = 2  # between the quarters of the rows: within fewer a smooth column has digits of its own
_BETTER: Final = 1.15  # times the information of shorter endings
_LARGEST: Final = 2.0**53  # steps: the last digits of larger numbers are those of the machine
_ALL: Final = 0.98  # of the rows: the others are slips of the pen


def find_endings(
    values: Floats, weights: Ints, *, kind: str, decimals: int = 0, pattern: str = "", zone: str = ""
) -> Endings:
    """Return the endings that a column keeps, with their shares of the rows, rounded; empty: its digits are spread.

    Args:
        values: (v,) distinct, ascending, without points.
        weights: (v,) rows of each.
        kind: the column's type.
        decimals: of a number.
        pattern: of a moment.
        zone: of moments, which are in UTC; of one whose hours differ from UTC's no time of day is an ending.
    """
    n = int(weights.sum())
    if n < 2 * FEWEST_ROWS:
        return ()
    steps = np.round(values * 10.0**decimals)
    if np.abs(steps).max() > _LARGEST:
        return ()
    units = (np.abs(steps) if kind in NUMBERS else steps).astype(np.int64)
    below = np.cumsum(weights)
    first, last = (values[min(int(np.searchsorted(below, n * part)), len(values) - 1)] for part in (0.25, 0.75))
    spread = float(last - first) * 10.0**decimals
    best: Endings = ()
    most = 0.0
    for texts in _candidates(kind, pattern, units, weights, has_hours=zone in {"", "UTC"}):
        period = lattice_of(texts[0], kind, pattern).period
        if spread < _PERIODS * period:
            break
        counts = np.bincount(units % period, weights=weights, minlength=period)
        least = max(_MORE * n / period, _ONE * n, FEWEST_ROWS)
        shares = {text: float(counts[lattice_of(text, kind, pattern).residue]) / n for text in texts}
        own = {text: share for text, share in shares.items() if share * n >= least}
        covered = math.fsum(own.values())
        if not own or covered < _COVERED or len(own) > _MOST:
            continue
        rest = max(1 - covered, 1e-9)
        information = math.fsum(share * math.log(share * period) for share in own.values())
        information += rest * math.log(rest * period / (period - len(own)))
        if information > _BETTER * most:
            most, best = information, _rounded(own, covered)
    return best


def _candidates(kind: str, pattern: str, units: Ints, weights: Ints, *, has_hours: bool) -> Iterator[Sequence[str]]:
    """Yield the endings of each length, the shortest first; of the times of day those that most rows have."""
    if kind in NUMBERS:
        yield from ([f"{digits:0{length}}" for digits in range(10**length)] for length in range(1, _LONGEST + 1))
        return
    minutes = [f"{minute:02}" for minute in range(60)]
    yield minutes
    if "ss" in pattern:
        yield [f"{minute}:00" for minute in minutes]
    if kind == "datetime" and has_hours:
        counts = np.bincount(units % DAY, weights=weights, minlength=DAY)
        seconds = np.argsort(-counts, kind="stable")[: _MOST + 1].tolist()
        yield [f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}" for second in seconds]


def _rounded(shares: dict[str, float], covered: float) -> Endings:
    """Return shares in hundredths, the most frequent first, at most 1 together; of nearly all rows as if they were all."""
    scale = 1 / covered if covered >= _ALL else 1.0
    hundredths = {text: round(100 * share * scale) for text, share in shares.items()}
    ranked = sorted(hundredths, key=lambda text: (-hundredths[text], text))
    excess = sum(hundredths.values()) - 100
    if excess > 0 or scale > 1:
        hundredths[ranked[0]] -= excess
    return tuple((text, hundredths[text] / 100) for text in ranked if hundredths[text] > 0)
