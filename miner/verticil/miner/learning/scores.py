"""How much two variables tell about each other, estimated from randomized columns.

Two questions, answered by different tables:

- *Is there anything?* Under randomization that is independent per column, two variables that are independent stay so after it;
  so the ordinary chi-square test on the released pair has an exact null, and no knowledge of the matrices is needed. Rare
  categories of the released columns are merged first (merging preserves independence) until the smallest expected count
  is at least 1. Level `alpha` over all d(d-1)/2 pairs together (Bonferroni).
- *How much?* The mutual information of the released pair is attenuated and useless as a value. The corrected table (inverse
  of the Kronecker product of both matrices, negative cells cut to 0, scaled to sum 1) has it, biased upward by the noise.

The bias is taken off. To second order, with F the released pair's shares, n records, Q = P^-1, p the corrected one-way shares:

    bias = a^T F b / 2n,    a_y = sum_x (Q_a[y, x] - p_x)^2 / max(p_x, 3 sd(p_x)),    b the same of the other column;

without randomization it is the familiar (K_a - 1)(K_b - 1) / 2n. The floor under p_x is needed: without it one rare category,
whose share is uncertain beyond its size, makes the bias of every pair of its variable so large that no edge is left.

A pair that fails the test, or whose information does not exceed its bias, has information 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.counting import PairTables
from verticil.shared.model import kronecker
from verticil.shared.model.transition import Transition

__all__ = ["PairScores", "independence_p_value", "noise_bias", "pair_scores", "plug_in_information"]

Floats = NDArray[np.float64]

FLOOR_DEVIATIONS = 3.0
"""A share counts as at least this many of its standard deviations where the bias divides by it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairScores:
    """Scores of all pairs; every array is (d, d), symmetric, read-only.

    Attributes:
        information: nats, float64, >= 0; 0 on the diagonal and for pairs without significant information.
        p_value: of the test of independence, float64; 1 on the diagonal.
        significant: bool; p_value is below the level of one pair.
        level: level of one pair, alpha / (d(d-1)/2).
    """

    information: Floats
    p_value: Floats
    significant: NDArray[np.bool_]
    level: float


def pair_scores(tables: PairTables, transitions: Sequence[Transition], *, alpha: float = 0.05) -> PairScores:
    """Score all pairs.

    Args:
        tables: counts of the released columns.
        transitions: the matrix of each column.
        alpha: false-alarm rate over all pairs together.
    """
    d = len(tables.n_states)
    information, p_value = np.zeros((d, d)), np.ones((d, d))
    level = alpha / max(d * (d - 1) // 2, 1)
    ratings = _ratings(tables, transitions)
    for a, b in tables.pairs():
        observed = tables.table(a, b)
        p_value[a, b] = p_value[b, a] = independence_p_value(observed)
        if p_value[a, b] < level:
            corrected = kronecker.estimate_counts(observed, [transitions[a], transitions[b]])
            bias = _bias(observed, ratings[a], ratings[b])
            information[a, b] = information[b, a] = max(plug_in_information(corrected) - bias, 0.0)
    significant = p_value < level
    for array in (information, p_value, significant):
        array.setflags(write=False)
    return PairScores(information=information, p_value=p_value, significant=significant, level=level)


def plug_in_information(table: Floats | NDArray[np.int64]) -> float:
    """Mutual information of a table, nats; negative cells count as 0, the rest is scaled to sum 1.

    >>> round(plug_in_information(np.array([[50, 0], [0, 50]])), 6)  # ln 2
    0.693147
    """
    cells = np.maximum(table, 0.0)
    total = cells.sum()
    if total <= 0:
        return 0.0
    cells = cells / total
    product = np.outer(cells.sum(axis=1), cells.sum(axis=0))
    filled = cells > 0
    return float((cells[filled] * np.log(cells[filled] / product[filled])).sum())


def noise_bias(observed: NDArray[np.int64], transition_a: Transition, transition_b: Transition) -> float:
    """What sampling and randomization add to the mutual information of the corrected table, to second order, nats.

    Args:
        observed: (K_a, K_b) counts of the released pair.
        transition_a, transition_b: the matrices of both columns.
    """
    return _bias(observed, _rating(observed.sum(axis=1), transition_a), _rating(observed.sum(axis=0), transition_b))


def _bias(observed: NDArray[np.int64], rating_a: Floats, rating_b: Floats) -> float:
    n = int(observed.sum())
    return float(rating_a @ (observed / n) @ rating_b) / (2 * n) if n else 0.0


def _ratings(tables: PairTables, transitions: Sequence[Transition]) -> list[Floats]:
    d = len(tables.n_states)
    if d < 2:
        return []
    counts = [tables.table(a, (a + 1) % d).sum(axis=1) for a in range(d)]
    return [_rating(count, transition) for count, transition in zip(counts, transitions, strict=True)]


def _rating(counts: NDArray[np.int64], transition: Transition) -> Floats:
    """The vector a of the module's formula: how much one released category y adds to the bias."""
    n = max(int(counts.sum()), 1)
    released = counts / n
    inverse = transition.inverse
    share = released @ inverse
    deviation = np.sqrt(np.maximum(released @ inverse**2 - share**2, 0.0) / n)
    floor = np.maximum(share, FLOOR_DEVIATIONS * deviation)
    # A share of exactly 0 without noise: the category never occurs and adds nothing.
    weight = np.divide(1.0, floor, out=np.zeros_like(floor), where=floor > 0)
    return np.asarray((inverse - share) ** 2 @ weight, dtype=np.float64)


def independence_p_value(observed: NDArray[np.int64]) -> float:
    """P-value of Pearson's chi-square test of independence, after merging rare categories.

    Categories of one column are merged, rarest first, until each has at least sqrt(n) records, so that no expected count is
    below 1; (K_a - 1)(K_b - 1) degrees of freedom of what is left. 1 when only one category is left in a column.

    >>> independence_p_value(np.array([[30, 10], [20, 40]])) < 1e-4
    True
    """
    from scipy.special import gammaincc

    n = int(observed.sum())
    if n == 0:
        return 1.0
    table = _merge_rare(_merge_rare(observed, n).T, n)
    rows, columns = table.shape
    if min(rows, columns) < 2:
        return 1.0
    expected = np.outer(table.sum(axis=1) / n, table.sum(axis=0))
    statistic = float(((table - expected) ** 2 / expected).sum())
    return float(gammaincc((rows - 1) * (columns - 1) / 2, statistic / 2))


def _merge_rare(table: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Merge the rarest rows until each has at least sqrt(n) records."""
    totals = table.sum(axis=1)
    order = np.argsort(totals, kind="stable")
    # The merged row is the shortest run of rarest rows that reaches sqrt(n) and leaves only rows that reach it alone.
    enough = math.sqrt(n)
    size = max(int((totals < enough).sum()), 1)
    while size < len(totals) and totals[order[:size]].sum() < enough:
        size += 1
    merged = table[order[:size]].sum(axis=0, keepdims=True)
    return np.concatenate([merged, table[order[size:]]])
