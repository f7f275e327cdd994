"""Propensity: how well a model tells synthetic from real records, as the mean squared error of its probabilities (pMSE).

    pMSE = (1/N) sum_i (p^_i - c)^2,    c = n_synthetic / N,    0 <= pMSE <= c (1 - c)

(Woo, Reiter, Oganian & Karr 2009; Snoke, Raab, Nowok, Dibben & Slavkovic 2018). A model tells records apart by chance, too: with
k parameters of a logistic regression, k - 1 of them free, N pMSE is distributed as a multiple of chi square with k - 1 degrees of
freedom. Which multiple depends on what is taken as random, and two answers are in use:

- **conditional** (Snoke 2018, section 3): the synthetic records are drawn from a model that was fitted to these real ones, which
  are given: (1 - c)^2 c / N.
- **independent**: both tables are samples of one population: c (1 - c) / N, at c = 1/2 twice as much.

Two halves of one table have the second as expectation, so a ratio to the first is about 2 where nothing is wrong. Both are given.
k is the rank of the design: columns that follow from others add no parameter. What a tree does by chance is found by permuting
which records are synthetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.logistic import fit, indicators
from verticil.shared.core.arrays import Floats

PERMUTATIONS: Final = 4
"""Their mean is known to its `Null.error`, some 2 % of itself on 5,000 records of each table."""
_LEAF: Final = 20  # records in a leaf, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Null:
    """What chance does to pMSE.

    Attributes:
        mean, deviation: of the distribution.
        error: standard error of `mean`; 0 where it is a formula.
    """

    mean: float
    deviation: float
    error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Propensity:
    """A pMSE.

    Attributes:
        value: of the tables.
        share: c, the share of the synthetic records.
        n: N, records of both.
        rank: k, parameters of the logistic regression with its constant; 0: a tree.
    """

    value: float
    share: float
    n: int
    rank: int

    @property
    def maximum(self) -> float:
        """c (1 - c): every record is told apart."""
        return self.share * (1 - self.share)

    @property
    def conditional(self) -> Null:
        """Of a logistic regression, the real records given; NaN of a tree."""
        return self._null((1 - self.share) * self.maximum / self.n)

    @property
    def independent(self) -> Null:
        """Of a logistic regression, both tables samples of one population; NaN of a tree."""
        return self._null(self.maximum / self.n)

    def _null(self, multiple: float) -> Null:
        if self.rank < 1:
            return Null(mean=math.nan, deviation=math.nan)
        free = self.rank - 1
        return Null(mean=free * multiple, deviation=math.sqrt(2 * free) * multiple)

    def ratio(self, null: Null) -> float:
        """Return pMSE as a multiple of what chance does; NaN where chance does nothing."""
        return self.value / null.mean if null.mean > 0 else math.nan

    def standardize(self, null: Null) -> float:
        """Return (pMSE - mean) / deviation of what chance does (S_pMSE); NaN where that has none."""
        return (self.value - null.mean) / null.deviation if null.deviation > 0 else math.nan


def logistic_propensity(real: CodedTable, synthetic: CodedTable) -> Propensity:
    """Return pMSE of a logistic regression on the categories of all columns, without interactions.

    >>> codes = lambda *of: (np.array(of, dtype=np.uint8),)
    >>> table = lambda of: CodedTable(names=("a",), codes=of, n_states=(2,), values=(None,))
    >>> found = logistic_propensity(table(codes(0, 0, 1, 1)), table(codes(0, 1, 1, 1)))
    >>> round(found.value, 9), found.rank, found.independent.mean, found.conditional.mean  # p^ = 1/3 of 0, 3/5 of 1
    (0.016666667, 2, 0.03125, 0.015625)
    """
    labels, n = _label(real, synthetic)
    both = [np.concatenate([mine, theirs]) for mine, theirs in zip(real.codes, synthetic.codes, strict=True)]
    design = indicators(both, real.n_states)
    regression = fit(design, labels)
    share = synthetic.n / n
    return Propensity(value=_error(regression.probabilities, share), share=share, n=n, rank=regression.rank)


def tree_propensity(
    real: CodedTable, synthetic: CodedTable, *, generator: np.random.Generator, permutations: int = PERMUTATIONS
) -> tuple[Propensity, Null]:
    """Return pMSE of a classification tree, and what trees do where which records are synthetic is permuted.

    A tree finds interactions that the logistic regression does not. It is grown on numbers where there are some, else on codes,
    and no split needs to gain anything (where tables of single columns agree, the first one gains nothing): only the least number
    of records in a leaf ends it, so that it fits chance, too, and says something beside the permutations alone.

    Args:
        real, synthetic: the tables.
        generator: of the permutations, and of which of equal splits a tree takes.
        permutations: how many; 0: the null is NaN.

    Raises:
        ImportError: scikit-learn is not there.
    """
    labels, n = _label(real, synthetic)
    share = synthetic.n / n
    features = np.concatenate([_features(real), _features(synthetic)])
    seed = int(generator.integers(2**31))
    value = _error(_tree(features, labels, seed), share)
    chance = [_error(_tree(features, generator.permutation(labels), seed), share) for _ in range(permutations)]
    deviation = float(np.std(chance, ddof=1)) if permutations > 1 else math.nan
    return Propensity(value=value, share=share, n=n, rank=0), Null(
        mean=float(np.mean(chance)) if chance else math.nan,
        deviation=deviation,
        error=deviation / math.sqrt(permutations) if permutations else math.nan,
    )


def _label(real: CodedTable, synthetic: CodedTable) -> tuple[Floats, int]:
    """Return 0 of real, 1 of synthetic records, and how many these are."""
    return np.repeat([0.0, 1.0], [real.n, synthetic.n]), real.n + synthetic.n


def _error(probabilities: Floats, share: float) -> float:
    return float(np.mean((probabilities - share) ** 2))


def _features(table: CodedTable) -> NDArray[np.float32]:
    """Return (n, d): numbers, below all others where there is none; a category as its code."""
    least = float(np.finfo(np.float32).min)
    columns = [
        codes.astype(np.float64) if values is None else np.nan_to_num(values, nan=least)
        for codes, values in zip(table.codes, table.values, strict=True)
    ]
    return np.column_stack(columns).astype(np.float32)


def _tree(features: NDArray[np.float32], labels: Floats, seed: int) -> Floats:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(min_samples_leaf=_LEAF, random_state=seed)
    return np.asarray(tree.fit(features, labels).predict_proba(features), dtype=np.float64)[:, 1]
