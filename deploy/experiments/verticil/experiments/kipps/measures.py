"""Table 1 and Figure 2 of some synthetic records: how like the real ones they are, and what classifiers learn from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.fidelity import distances
from verticil.evaluate.measures.propensity import logistic_propensity, tree_propensity
from verticil.evaluate.measures.regression import agreement, coefficients
from verticil.evaluate.measures.univariate import univariate
from verticil.evaluate.measures.utility import Labelled, utility
from verticil.experiments.kipps.datasets import DataSet, recoded
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.knowledge.support import support

CLASSIFIERS: Final = {
    "RF": "random forest",
    "KN": "nearest neighbours",
    "DT": "decision tree",
    "SV": "support vectors",
    "NN": "neural network",
}
"""The paper's, as `evaluate.measures.utility` calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """A row of Table 1; None where there is nothing to compute.

    Attributes:
        pmse: of a tree, at most `most`.
        most: c (1 - c).
        chance: pMSE of trees where which records are synthetic is permuted, the mean.
        logistic_ratio: pMSE of a logistic regression as a multiple of what two samples of one population give.
        chi_square, chi_square_distance: mean p-value of the columns of categories, and their mean total variation distance.
        ks, ks_statistic: mean p-value of the columns of numbers, and the mean largest difference of the distribution functions.
        overlap: of 95 % intervals of coefficients, 0 where they are disjoint, the mean; at most 1.
        overlap_signed: the same below 0 where they are disjoint, the median.
        difference, median_difference: standardized, of the coefficients.
        determined: share of the coefficients that both tables determine.
        distance: mean total variation distance of all tables of two columns.
        violations: share of the records that break a rule; None: there is no hard one.
    """

    pmse: float
    most: float
    chance: float
    logistic_ratio: float
    chi_square: float | None
    chi_square_distance: float | None
    ks: float | None
    ks_statistic: float | None
    overlap: float | None
    overlap_signed: float | None
    difference: float | None
    median_difference: float | None
    determined: float
    distance: float
    violations: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A group of Figure 2: classifiers that learned from the records, tested on others' real ones.

    Attributes:
        accuracy, f1: of each classifier; F1 is the mean over the classes.
        majority: share of the most common class of those tested.
    """

    accuracy: Mapping[str, float]
    f1: Mapping[str, float]
    majority: float

    @property
    def mean(self) -> float:
        """Mean accuracy."""
        return sum(self.accuracy.values()) / len(self.accuracy)

    @property
    def mean_f1(self) -> float:
        """Mean F1, which always saying the most common class does not reach."""
        return sum(self.f1.values()) / len(self.f1)


def fidelity(data: DataSet, real: CodedTable, synthetic: CodedTable, *, seed: int, permutations: int) -> Fidelity:
    """Compare as many synthetic records as real ones.

    Args:
        data: the data set.
        real, synthetic: all columns.
        seed: of trees.
        permutations: of which records are synthetic.
    """
    tree, chance = tree_propensity(
        real, synthetic, generator=np.random.default_rng([seed, 0xC]), permutations=permutations
    )
    logistic = logistic_propensity(real, synthetic)
    columns = univariate(real, synthetic)
    numbers = [column for column in columns if column.kind == "kolmogorov-smirnov"]
    categories = [column for column in columns if column.kind == "chi square"]
    agreed = agreement(*coefficients((real, synthetic), real.column(data.target)))
    rules = support(data.knowledge, data.schema)
    broken = ~rules.holds(recoded(data, synthetic.codes))
    return Fidelity(
        pmse=tree.value,
        most=tree.maximum,
        chance=chance.mean,
        logistic_ratio=logistic.ratio(logistic.independent),
        chi_square=_mean([column.test.p_value for column in categories]),
        chi_square_distance=_mean([column.distance for column in categories]),
        ks=_mean([column.test.p_value for column in numbers]),
        ks_statistic=_mean([column.test.statistic for column in numbers]),
        overlap=_mean(agreed.overlap_or_none),
        overlap_signed=_median(agreed.overlap),
        difference=_mean(agreed.difference),
        median_difference=_median(agreed.difference),
        determined=float((~np.isnan(agreed.difference)).mean()),
        distance=distances(real.codes, synthetic.codes, real.n_states, ways=2).mean,
        violations=float(broken.mean()) if rules.restricts else None,
    )


def learned(
    data: DataSet,
    synthetic: CodedTable,
    tested: CodedTable,
    *,
    seed: int,
    classifiers: Sequence[str] = tuple(CLASSIFIERS),
) -> Learned:
    """Train on synthetic records, test on real ones of other people.

    Args:
        data: the data set.
        synthetic, tested: all columns.
        seed: of the classifiers.
        classifiers: some of `CLASSIFIERS`.
    """
    target = tested.column(data.target)
    (found,) = utility(
        labelled(synthetic, target), [labelled(tested, target)], seed=seed, classifiers=classifiers,
        n_classes=tested.n_states[target],
    )  # fmt: skip
    return Learned(accuracy=found.accuracy, f1=found.f1, majority=found.majority)


def labelled(table: CodedTable, target: int) -> Labelled:
    """The other columns as features: numbers as they are, a category as its place."""
    return Labelled(features=features(table, but=target), target=table.codes[target].astype(np.int64))


def features(table: CodedTable, *, but: int | None = None) -> Floats:
    """(n, d) or, without one column, (n, d - 1)."""
    return np.column_stack(
        [
            codes.astype(np.float64) if values is None else values
            for place, (codes, values) in enumerate(zip(table.codes, table.values, strict=True))
            if place != but
        ]
    )


def _known(values: Sequence[float] | Floats) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    return found[~np.isnan(found)]


def _mean(values: Sequence[float] | Floats) -> float | None:
    known = _known(values)
    return math.fsum(known) / len(known) if len(known) else None


def _median(values: Sequence[float] | Floats) -> float | None:
    known = _known(values)
    return float(np.median(known)) if len(known) else None


def most_accurate(epsilon: float, delta: float) -> float:
    """The largest accuracy on membership that (epsilon, delta), for the replacement of one person, leaves to any attacker.

    The shares of members and of others who are taken for members differ by at most (e^eps - 1 + 2 delta) / (e^eps + 1) (P.
    Kairouz, S. Oh, P. Viswanath, "The composition theorem for differential privacy", ICML 2015).

    >>> round(most_accurate(0.0, 0.0), 3), round(most_accurate(3.0, 1e-5), 3)
    (0.5, 0.953)
    """
    return (1 + (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1)) / 2
