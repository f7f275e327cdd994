"""The interval of highest density of some draws: the shortest one that holds a given share of them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats

LEVEL: Final = 0.98
"""Of the intervals of predictive draws (Martins, Gonçalves & Galletti, section 3)."""


def hpd(draws: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Return the shortest interval that holds ceil(level M) of M draws; of several the lowest.

    Args:
        draws: (m,); those that are NaN, a statistic that is not defined on its records, do not count.
        level: 0 to 1, ends excluded.

    Returns:
        (low, high); NaN where no draw is defined.

    Raises:
        ValueError: the level is not a share.

    >>> hpd(np.array([5.0, 1.0, 1.5, 2.0, 9.0]), 0.6)
    (1.0, 2.0)
    """
    if not 0 < level < 1:
        raise ValueError(f"an interval of the level {level}, expected a share above 0 and below 1")
    values = np.sort(draws[~np.isnan(draws)])
    if not len(values):
        return math.nan, math.nan
    n_inside = math.ceil(round(level * len(values), 9))  # .98 times 50 is a hair above 49
    widths = values[n_inside - 1 :] - values[: len(values) - n_inside + 1]
    start = int(np.argmin(widths))
    return float(values[start]), float(values[start + n_inside - 1])
