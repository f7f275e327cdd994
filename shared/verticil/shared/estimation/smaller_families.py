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

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.estimation.design import FamilyDesign
from verticil.shared.estimation.unit_axis import contrast_factor

__all__ = ["RECORDS", "backed_off", "row_weight"]

Floats = NDArray[np.float64]

RECORDS: Final = 10.0
"""What the family with a parent less counts for in each row."""
_ROUNDING: Final = 9  # decimals of nats a record: equal parents are equal on any processor


def row_weight(design: FamilyDesign, parents: tuple[int, ...]) -> float:
    """w_S, records, of some of the family's parents, by their places in it."""
    members = {*parents, len(design.shape) - 1}
    touched = [contrast_factor(axis) for axis in design.axes if members & set(axis.members)]
    return (RECORDS if parents else 1.0) / math.prod(touched)


def backed_off(counts: Floats, design: FamilyDesign) -> Floats:
    """The conditional probabilities of a family.

    Args:
        counts: (K_parent_1, .., K_child), estimated counts.
        design: how the family was randomized.

    Returns:
        (J, K), rows sum to 1; what is impossible is 0, everything else more than 0 where no count is negative.
    """
    n_states = counts.shape[-1]
    rows = np.full(n_states, 1 / n_states)
    for parents in reversed(_fewer_and_fewer(counts)):
        summed = counts.sum(axis=tuple(set(range(counts.ndim - 1)).difference(parents)), keepdims=True)
        weight = row_weight(design, parents)
        rows = (summed + weight * rows) / (summed.sum(axis=-1, keepdims=True) + weight)
    table = rows.reshape(-1, n_states)
    if design.possible is not None:
        possible = design.possible.reshape(-1, n_states)
        table = table * (possible | ~possible.any(axis=1, keepdims=True))
        table /= table.sum(axis=1, keepdims=True)
    return table


def _fewer_and_fewer(counts: Floats) -> list[tuple[int, ...]]:
    """All parents, then without the one that tells least, and so on to none; of equals the last goes first."""
    n = max(float(counts.sum()), 1.0)
    child = counts.ndim - 1

    def told(parents: tuple[int, ...]) -> float:
        table = counts.sum(axis=tuple(set(range(child)).difference(parents)))
        return round((_plogp(table) - _plogp(table.sum(axis=-1))) / n, _ROUNDING)

    chain = [tuple(range(child))]
    while left := chain[-1]:
        fewer = [tuple(p for p in left if p != gone) for gone in reversed(left)]
        chain.append(max(fewer, key=told))
    return chain


def _plogp(table: Floats) -> float:
    filled = table[table > 0]
    return float(filled @ np.log(filled))
