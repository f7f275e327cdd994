"""What an analyst would conclude: the coefficients of one regression on two tables, and how far their intervals overlap.

    IO    = ( o / (u1 - l1) + o / (u2 - l2) ) / 2,    o = min(u1, u2) - max(l1, l2)

(Karr, Kohnen, Oganian, Reiter & Sanil 2006; Snoke et al. 2018): 1 where the intervals are equal, below 0 where they are disjoint.

    O_IC  = 2 o / ( (u1 - l1) + (u2 - l2) ),    0 where they are disjoint

(Martins 2024, eq. 12): the same where both are equally wide. The standardized difference of a coefficient is
|b_synthetic - b_real| / se_real.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.logistic import fit, independent_columns, indicators
from verticil.shared.core.arrays import Bools, Codes, Floats, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LEAST_RECORDS: Final = 50
"""Of the real table in a category that gets a coefficient; rarer ones share one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coefficients:
    """Of one regression on one table.

    Attributes:
        names: column and code of each, ``("", 0)`` is the constant.
        values, errors: (w,), estimates and their standard errors; NaN where the table determines none.
    """

    names: tuple[tuple[str, int], ...]
    values: Floats
    errors: Floats

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return (w,) lower and (w,) upper ends, by the normal distribution."""
        from scipy.special import ndtri

        half = float(ndtri((1 + level) / 2)) * self.errors
        return self.values - half, self.values + half


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """Two tables' coefficients side by side, each (w,); NaN where the real table does not determine it.

    Attributes:
        overlap: of the intervals, IO.
        overlap_or_none: of the intervals, O_IC.
        difference: standardized; NaN, too, where the other table does not determine it.
    """

    overlap: Floats
    overlap_or_none: Floats
    difference: Floats


def interval_overlap(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> Floats:
    """Return IO of intervals (lower, upper); NaN where an end is.

    >>> a = lambda low, high: (np.array([low]), np.array([high]))
    >>> [float(interval_overlap(a(0.0, 2.0), a(*other))[0]) for other in ((0.0, 2.0), (1.0, 2.0), (3.0, 5.0))]
    [1.0, 0.75, -0.5]
    """
    (l1, u1), (l2, u2) = first, second
    shared = np.minimum(u1, u2) - np.maximum(l1, l2)
    overlap: Floats = (_ratio(shared, u1 - l1) + _ratio(shared, u2 - l2)) / 2
    return overlap


def interval_overlap_or_none(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> Floats:
    """Return O_IC of intervals (lower, upper); NaN where an end is.

    >>> a = lambda low, high: (np.array([low]), np.array([high]))
    >>> [round(float(interval_overlap_or_none(a(0.0, 2.0), a(*of))[0]), 4) for of in ((0.0, 2.0), (1.0, 2.0), (3.0, 5.0))]
    [1.0, 0.6667, 0.0]
    """
    (l1, u1), (l2, u2) = first, second
    shared = np.minimum(u1, u2) - np.maximum(l1, l2)
    return _ratio(2 * np.maximum(shared, 0.0), (u1 - l1) + (u2 - l2))


def coefficients(
    tables: tuple[CodedTable, CodedTable], target: int, *, least: int = LEAST_RECORDS, without: Collection[int] = ()
) -> tuple[Coefficients, Coefficients]:
    """Fit one logistic regression to both tables: has the target one category, or another one?

    The category is the most common one of which the real table determines a coefficient: where the others say of every record
    whether it has a category, none is.

    A category of another column has a coefficient where `least` real records have it, except for the column's most common one,
    which is what the others are compared with; rarer ones together have one, if they are as many. Categories that follow from
    those before them in the real table have none. Where in a table all records of a category have the same answer, no finite
    coefficient is best: it is NaN there, and those records leave the others as they are.

    Args:
        tables: the real one, then the other one.
        target: position of the column that is asked for.
        least: real records.
        without: positions of columns that are left out.
    """
    real = tables[0]
    features = [place for place in range(len(real.names)) if place != target and place not in without]
    code_maps, names, design_columns, start = [], [("", 0)], [0], 1
    for place in features:
        to = _merge_rare(np.bincount(real.codes[place], minlength=real.n_states[place]), least)
        counts = np.bincount(to[real.codes[place]], minlength=len(to))
        codes = [code for code in np.flatnonzero(counts).tolist() if code != int(counts.argmax())]
        code_maps.append(to)
        names += [(real.names[place], code) for code in codes]
        design_columns += [start + code for code in codes]
        start += len(to)
    designs = [
        indicators(
            [to[table.codes[place]] for place, to in zip(features, code_maps, strict=True)],
            [len(to) for to in code_maps],
        )
        for table in tables
    ]
    own = independent_columns(designs[0][:, design_columns])
    of_names, columns = [names[place] for place in own], np.array(design_columns)[own]
    category, first = 0, None
    for category in np.bincount(real.codes[target]).argsort(kind="stable")[::-1].tolist():
        first = _coefficients(designs[0][:, columns], real.codes[target] == category, of_names)
        if not np.isnan(first.values).all():
            break
    assert first is not None  # the target has a category
    return first, _coefficients(designs[1][:, columns], tables[1].codes[target] == category, of_names)


def agreement(real: Coefficients, other: Coefficients, level: float = 0.95) -> Agreement:
    """Compare how far the conclusions agree; the constant counts, too.

    A coefficient that the other table does not determine has an interval without ends. Its overlaps are what they tend to as an
    interval grows: IO 1/2, O_IC 0, so that a table does not gain by determining little. Its difference is NaN.

    Args:
        real, other: as `coefficients` gives them.
        level: of the intervals.
    """
    intervals = real.interval(level), other.interval(level)
    without = np.isnan(other.errors) & ~np.isnan(real.errors)
    return Agreement(
        overlap=np.where(without, 0.5, interval_overlap(*intervals)),
        overlap_or_none=np.where(without, 0.0, interval_overlap_or_none(*intervals)),
        difference=_ratio(np.abs(other.values - real.values), real.errors),
    )


def _merge_rare(counts: Ints, least: int) -> Codes:
    """(K,), the code that each code is counted as: rare ones as one of them, or with the most common where they are few."""
    rare = counts < least
    to = np.arange(len(counts), dtype=np.uint16)
    if rare.any():
        to[rare] = np.flatnonzero(rare)[0] if counts[rare].sum() >= least else counts.argmax()
    return to


def _coefficients(design: csr_array, answers: Bools, names: Sequence[tuple[str, int]]) -> Coefficients:
    if not len(answers) or answers.all() or not answers.any():
        nothing = np.full(len(names), np.nan)
        return Coefficients(names=tuple(names), values=nothing, errors=nothing)
    regression = fit(design, answers.astype(np.float64))
    return Coefficients(
        names=tuple(names), values=regression.coefficients, errors=np.sqrt(regression.covariance.diagonal())
    )


def _ratio(above: Floats, below: Floats) -> Floats:
    """Return the ratio; NaN where it is divided by 0."""
    ratio: Floats = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below != 0)
    return ratio
