"""Conditional probabilities that lean on families with fewer parents, as far as few records are behind them.

With N the estimated counts of a family, j a configuration of its parents S and k a category of the child,

    p_S(k | j) = (N_jk + w_S p_T(k | j)) / (N_j + w_S),    w_S = RECORDS / prod lambda,

T is S without the parent that tells least about the child beside the others, and the shares of a child without parents lean on
equal shares, with the weight of one record. lambda is the contrast factor of a randomized column of the family
(`unit_axis.contrast_factor`; 1 without randomization): where noise is stronger, a row has to hold more records to be believed.
The weight belongs to a row, so that a table with more cells is not moved further away from its counts.

Form and constant were chosen on networks whose truth is known: ``tests/bench/prior.py`` has the figures.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.estimation.axes import plogp
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign
from verticil.shared.numerics.estimation.unit_axis import contrast_factor

RECORDS: Final = 10.0
"""What the family with a parent less counts for in each row."""
_ROUNDING: Final = 9  # decimals of nats a record: equal parents are equal on any processor


def row_weight(design: FamilyDesign, parents: tuple[int, ...]) -> float:
    """w_S, records, of some of the family's parents, by their places in it."""
    members = {*parents, len(design.shape) - 1}
    factors = [contrast_factor(axis) for axis in design.axes if members & set(axis.members)]
    return (RECORDS if parents else 1.0) / math.prod(factors)


def backed_off(counts: Floats, design: FamilyDesign) -> Floats:
    """Return the conditional probabilities of a family.

    Args:
        counts: (K_parent_1, .., K_child), estimated counts.
        design: how the family was randomized.

    Returns:
        (J, K), rows sum to 1; what is impossible is 0, everything else more than 0 where no count is negative.
    """
    n_states = counts.shape[-1]
    rows = np.full(n_states, 1 / n_states)
    for parents in reversed(_fewer_and_fewer(counts)):
        margin = counts.sum(axis=tuple(set(range(counts.ndim - 1)).difference(parents)), keepdims=True)
        weight = row_weight(design, parents)
        rows = (margin + weight * rows) / (margin.sum(axis=-1, keepdims=True) + weight)
    table = rows.reshape(-1, n_states)
    if design.possible is not None:
        possible = design.possible.reshape(-1, n_states)
        table = table * (possible | ~possible.any(axis=1, keepdims=True))
        table /= table.sum(axis=1, keepdims=True)
    return table


def leaned_on(rows: Floats, totals: Floats, design: FamilyDesign) -> Floats:
    """Return the rows t that the rows p' of `backed_off` leaned on, from those and from the totals of the counts.

    With N_j p_j + w t_j = (N_j + w) p'_j for each row, and the same for t and the smaller table that it leans on, the sum over
    the rows that lean on one t gives (N_t + w_t + m w) t = sum_j (N_j + w) p'_j + w_t u, m the number of those rows and u what
    t leans on. Each size is solved for in the next smaller one, down to equal shares.

    Args:
        rows: (K_parent_1, .., K_child), what `backed_off` returns.
        totals: (K_parent_1, ..), records in each row.
        design: how the family was randomized.

    Returns:
        Shares of the same number of axes; the axis of the parent that is left out has length 1.
    """
    chain = _fewer_and_fewer(totals[..., None] * rows)
    totals, weight = totals[..., None], row_weight(design, chain[0])
    weighted_rows, lent, steps = (totals + weight) * rows, np.zeros_like(totals), list[tuple[Floats, Floats, float]]()
    for larger, smaller in itertools.pairwise(chain):
        (axis,) = set(larger) - set(smaller)
        n_rows, totals = totals.shape[axis], totals.sum(axis=axis, keepdims=True)
        next_weight = row_weight(design, smaller)
        sums = weighted_rows.sum(axis=axis, keepdims=True)
        divisor = totals + next_weight + weight * n_rows - lent.sum(axis=axis, keepdims=True)
        steps.append((sums, divisor, next_weight))
        weighted_rows, lent, weight = (
            (totals + next_weight) * sums / divisor,
            (totals + next_weight) * next_weight / divisor,
            next_weight,
        )
    base = np.full(rows.shape[-1], 1 / rows.shape[-1])
    for sums, divisor, step_weight in reversed(steps):
        base = (sums + step_weight * base) / divisor
    return base


def _fewer_and_fewer(counts: Floats) -> list[tuple[int, ...]]:
    """Return all parents, then those without the one that tells least, and so on to none; of equals the last goes
    first.
    """
    n = max(float(counts.sum()), 1.0)
    child = counts.ndim - 1

    def information(parents: tuple[int, ...]) -> float:
        table = counts.sum(axis=tuple(set(range(child)).difference(parents)))
        return round((plogp(table) - plogp(table.sum(axis=-1))) / n, _ROUNDING)

    chain = [tuple(range(child))]
    while larger := chain[-1]:
        fewer = [tuple(p for p in larger if p != parent) for parent in reversed(larger)]
        chain.append(max(fewer, key=information))
    return chain
