"""Single columns: Kolmogorov-Smirnov of numbers, chi square of categories, and the distance beside.

A p value says whether a difference can be chance, not how large it is: of many records a difference that matters to nobody has a
p value near 0, of few records none has. So the distance (total variation of the categories or bins) always stands beside. Where
two tables are samples of one population, p values are uniform and their mean is 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from verticil.evaluate.measures.coded import CodedTable
from verticil.shared.core.arrays import Counts, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A test of whether two samples are of one distribution.

    Attributes:
        statistic: the largest difference of the two distribution functions, or chi square.
        p_value: probability of one as large where they are; NaN with `statistic` where nothing can be tested.
        degrees_of_freedom: of chi square; 0 of Kolmogorov-Smirnov.
    """

    __test__ = False  # pytest would take the name for a collection of tests

    statistic: float
    p_value: float
    degrees_of_freedom: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of two tables.

    Attributes:
        name: of the column.
        kind: which test.
        test: its result.
        distance: total variation distance of the categories or bins.
    """

    name: str
    kind: Literal["kolmogorov-smirnov", "chi square"]
    test: Test
    distance: float


def kolmogorov_smirnov(real: Floats, other: Floats) -> Test:
    """Test numbers without NaN; the p value is that of large samples, which ties make too large.

    >>> found = kolmogorov_smirnov(np.arange(8.0), np.arange(8.0) + 4)
    >>> found.statistic, round(found.p_value, 4)
    (0.5, 0.1875)
    """
    from scipy.stats import ks_2samp

    real, other = real[~np.isnan(real)], other[~np.isnan(other)]
    if not len(real) or not len(other):
        return Test(statistic=math.nan, p_value=math.nan)
    statistic, p_value = cast("tuple[float, float]", ks_2samp(real, other, method="asymp"))
    return Test(statistic=float(statistic), p_value=float(p_value))


def chi_square(real: Counts, other: Counts) -> Test:
    """Test two tables of the same categories: is how often these occur the same?

    Categories that neither has do not count.

    >>> found = chi_square(np.array([30, 10, 0]), np.array([20, 20, 0]))
    >>> round(found.statistic, 4), round(found.p_value, 4), found.degrees_of_freedom
    (5.3333, 0.0209, 1)
    """
    from scipy.stats import chi2_contingency

    table = np.stack([real, other])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2 or not table.sum(axis=1).all():
        return Test(statistic=math.nan, p_value=math.nan)
    statistic, p_value, degrees, _ = cast("tuple[float, float, int, Floats]", chi2_contingency(table, correction=False))
    return Test(statistic=float(statistic), p_value=float(p_value), degrees_of_freedom=int(degrees))


def univariate(real: CodedTable, other: CodedTable) -> tuple[Column, ...]:
    """Test every column: numbers by Kolmogorov-Smirnov, others by chi square."""
    return tuple(_column(real, other, place) for place in range(len(real.names)))


def _column(real: CodedTable, other: CodedTable, place: int) -> Column:
    counts: list[NDArray[np.int64]] = [
        np.bincount(table.codes[place], minlength=real.n_states[place]) for table in (real, other)
    ]
    shares = [own / max(1, own.sum()) for own in counts]
    mine, theirs = real.values[place], other.values[place]
    numbers = mine is not None and theirs is not None
    return Column(
        name=real.names[place],
        kind="kolmogorov-smirnov" if numbers else "chi square",
        test=kolmogorov_smirnov(mine, theirs) if mine is not None and theirs is not None else chi_square(*counts),
        distance=float(np.abs(shares[0] - shares[1]).sum() / 2),
    )
