"""Statistics of records, by name: what an analyst would compute from the real ones, asked of synthetic ones.

A statistic is any function from `Records` to a number, NaN where it is not defined on them; your own is one too. Those here are
values, so that a table can say which was asked. They take positions of variables and codes of categories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Floats, Ints, distinct_rows
from verticil.shared.numerics.estimation.contingency import family_table
from verticil.shared.numerics.posterior.tuning import TUNING

_NORMAL_95: Final = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """Records, real or synthetic.

    Attributes:
        columns: (n,) codes of each variable.
        n_states: K of each.
        numbers: (n,) of some variables with bins: the numbers inside them, NaN where there is none.
    """

    columns: Sequence[AnyCodes]
    n_states: tuple[int, ...]
    numbers: Mapping[int, Floats] = field(default_factory=dict[int, Floats])

    def counts(self, *variables: int) -> Ints:
        """Count how many records have each combination: one axis for each variable, in this order."""
        return family_table([self.columns[v] for v in variables], [self.n_states[v] for v in variables])

    def distinct(self, variables: Sequence[int]) -> tuple[Ints, Ints]:
        """Return the combinations that there are, (m, number of variables), and how many records have each, (m,)."""
        rows = np.column_stack([self.columns[v].astype(np.int64) for v in variables])
        codes, _, counts = distinct_rows(rows)
        return codes, counts


Statistic = Callable[[Records], float]
"""NaN where it is not defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The maximum-likelihood estimate of P(variable = code | others = their codes): a share of records.

    Attributes:
        variable: position.
        code: of its category.
        given: position of another variable -> code.
    """

    variable: int
    code: int
    given: Mapping[int, int] = field(default_factory=dict[int, int])

    def __call__(self, records: Records) -> float:
        """Return the share; NaN where nobody is in what is given."""
        n, hits = self.counts(records)
        return hits / n if n else math.nan

    def counts(self, records: Records) -> tuple[int, int]:
        """Records in what is given, and how many of those have the category."""
        table = records.counts(*self.given, self.variable)[tuple(self.given.values())]
        return int(table.sum()), int(table[self.code])

    def interval(self, records: Records) -> tuple[float, float]:
        """Return the interval of the level 95 %, by the normal distribution; NaN where nobody is in what is given."""
        n, hits = self.counts(records)
        if not n:
            return math.nan, math.nan
        share = hits / n
        half = _NORMAL_95 * math.sqrt(share * (1 - share) / n)
        return share - half, share + half


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean of a variable's numbers, of the records whose other variables have the given codes.

    Attributes:
        variable: position; of records that have its `Records.numbers`.
        given: position of another variable -> code.
    """

    variable: int
    given: Mapping[int, int] = field(default_factory=dict[int, int])

    def __call__(self, records: Records) -> float:
        """Return the mean; NaN where nobody in what is given has a number."""
        numbers = records.numbers[self.variable]
        is_counted = ~np.isnan(numbers)
        for v, code in self.given.items():
            is_counted &= records.columns[v] == code
        return float(numbers[is_counted].mean()) if is_counted.any() else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How far a share's 95 % interval overlaps with a given one: 0 (disjoint) to 1 (the same).

    O_IC of Martins, Gonçalves & Galletti, equation 12: twice the length of the common part over the sum of both lengths.

    Attributes:
        share: of which the interval is.
        low, high: the given interval, that of the original records.
    """

    share: Share
    low: float
    high: float

    @classmethod
    def with_original(cls, share: Share, records: Records) -> Overlap:
        """Return the same statistic with the interval of these records."""
        low, high = share.interval(records)
        return cls(share=share, low=low, high=high)

    def __call__(self, records: Records) -> float:
        """Return the overlap; NaN where an interval is not defined or both are points."""
        low, high = self.share.interval(records)
        lengths = (self.high - self.low) + (high - low)
        if math.isnan(lengths) or lengths <= 0:
            return math.nan
        return max(0.0, 2 * (min(self.high, high) - max(self.low, low)) / lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChiSquare:
    """The p-value of Pearson's chi-square test of independence of two variables, without a correction for continuity.

    Categories that nobody has are left out; no others are merged.

    Attributes:
        first, second: positions.
    """

    first: int
    second: int

    def __call__(self, records: Records) -> float:
        """Return the p-value; NaN where a variable has one category left."""
        from scipy.special import gammaincc

        table = records.counts(self.first, self.second)
        table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
        if min(table.shape) < 2:
            return math.nan
        expected_counts = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        statistic = float(((table - expected_counts) ** 2 / expected_counts).sum())
        return float(gammaincc((table.shape[0] - 1) * (table.shape[1] - 1) / 2, statistic / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A coefficient of a regression with a constant, by least squares or (`event`) logistic, by maximum likelihood.

    Attributes:
        response: position of what is explained.
        predictors: positions of what explains it.
        of: the predictor whose coefficient it is; None: the constant.
        event: code of the response's category that is 1, all others 0: logistic. None: linear, in the response's values.
        values: position -> the value of each category, such as the middles of bins; of a variable that is not named, its codes.
    """

    response: int
    predictors: tuple[int, ...]
    of: int | None
    event: int | None = None
    values: Mapping[int, Sequence[float]] = field(default_factory=dict[int, Sequence[float]])

    def __call__(self, records: Records) -> float:
        """Return the coefficient; NaN where the predictors do not determine it, or categories are separated."""
        codes, counts = records.distinct((*self.predictors, self.response))
        x = np.column_stack(
            [np.ones(len(codes)), *(self._values(v, codes[:, i]) for i, v in enumerate(self.predictors))]
        )
        weights = counts.astype(np.float64)
        if np.linalg.matrix_rank(x) < x.shape[1]:
            return math.nan
        if self.event is None:
            y = self._values(self.response, codes[:, -1])
            weighted_x = x.T * weights
            coefficients: Floats | None = np.asarray(np.linalg.solve(weighted_x @ x, weighted_x @ y), dtype=np.float64)
        else:
            coefficients = fit_logistic(x, (codes[:, -1] == self.event).astype(np.float64), weights)
        if coefficients is None:
            return math.nan
        return float(coefficients[0 if self.of is None else 1 + self.predictors.index(self.of)])

    def _values(self, variable: int, codes: Ints) -> Floats:
        values = self.values.get(variable)
        return codes.astype(np.float64) if values is None else np.asarray(values, dtype=np.float64)[codes]


def fit_logistic(x: Floats, y: Floats, weights: Floats) -> Floats | None:
    """Return the coefficients by Newton's method; None where the likelihood has no maximum or it was not reached."""
    beta = np.zeros(x.shape[1])
    for _ in range(TUNING.newton_steps):
        logits = x @ beta
        if float(np.abs(logits).max()) > TUNING.largest_logit:
            return None
        share = 1 / (1 + np.exp(-logits))
        hessian = (x.T * (weights * share * (1 - share))) @ x
        try:
            step = np.asarray(np.linalg.solve(hessian, x.T @ (weights * (y - share))), dtype=np.float64)
        except np.linalg.LinAlgError:
            return None
        beta += step
        if float(np.abs(step).max()) <= TUNING.newton_tolerance * (1 + float(np.abs(beta).max())):
            return beta
    return None
