"""One estimate and its interval from several synthetic sets of records, by two rules.

- `of_spread` (Martins, Gonçalves & Galletti, equations 10 and 11): the mean, and Student's t by the spread of the sets alone. It
  tells how sure the sets are of the statistic of *their own network*; what the original records leave open is not in it.
- `of_full` (Raghunathan, Reiter & Rubin 2003, multiple imputation for statistical disclosure limitation): T = (1 + 1/m) b - u,
  with b the variance between the sets and u the mean of their own variances. For sets of which every record is drawn from a
  posterior predictive distribution, each set from parameters of its own: the sets of a study with `[structure] method =
  "posterior"`. With few sets T is often near 0 or below; no smaller than the variance that the original records would give (u,
  where sets are as large) is believed here, and Student's t has m - 1 degrees of freedom. Those of the rule's authors, (m - 1) (1
  - u / ((1 + 1/m) b))^2, are next to none there, and the interval is without bound: of 5 sets of 500 records one in ten is more
  than a thousand times as wide as it should be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """An estimate from several sets.

    Attributes:
        estimate: mean of the sets'.
        variance: of the estimate, by the rule.
        df: degrees of freedom of Student's t.
        low, high: ends of the interval.
    """

    estimate: float
    variance: float
    df: float
    low: float
    high: float


def of_spread(estimates: Sequence[float], *, level: float = 0.95) -> Combined:
    """Combine by the spread of the sets alone: mean ± t_{m-1} s / sqrt(m).

    Args:
        estimates: of each set, at least two.
        level: of the interval.

    Raises:
        ValueError: fewer than two sets, or a level that is no share.

    >>> of_spread([1.0, 2.0, 3.0]).estimate
    2.0
    """
    between = _between(estimates)
    return _interval(estimates, between / len(estimates), len(estimates) - 1, level)


def of_full(
    estimates: Sequence[float], variances: Sequence[float], *, level: float = 0.95, factor: float = 1.0
) -> Combined:
    """Combine fully synthetic sets.

    Args:
        estimates: of each set, at least two.
        variances: that each set alone gives its estimate.
        level: of the interval.
        factor: records of a synthetic set for each original one.

    Raises:
        ValueError: fewer than two sets, another number of variances, or a level that is no share.
    """
    m = len(estimates)
    between, within = (1 + 1 / m) * _between(estimates), _within(estimates, variances)
    return _interval(estimates, max(between - within, factor * within), m - 1, level)


def _between(estimates: Sequence[float]) -> float:
    if len(estimates) < 2:
        raise ValueError(f"{len(estimates)} sets, expected at least two: one alone does not tell how far they differ")
    return float(np.var(estimates, ddof=1))


def _within(estimates: Sequence[float], variances: Sequence[float]) -> float:
    if len(variances) != len(estimates) or min(variances) < 0:
        raise ValueError(f"{len(variances)} variances of {len(estimates)} sets, expected one of each, not negative")
    return float(np.mean(variances))


def _interval(estimates: Sequence[float], variance: float, df: float, level: float) -> Combined:
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ValueError(f"an interval of the level {level}, expected a share above 0 and below 1")
    mean = float(np.mean(estimates))
    half = float(stdtrit(df, (1 + level) / 2)) * math.sqrt(variance)
    return Combined(estimate=mean, variance=variance, df=df, low=mean - half, high=mean + half)
