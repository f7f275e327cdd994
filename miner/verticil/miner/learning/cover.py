"""Which columns are counted together, so that one increment serves several pairs.

The table of a group of columns holds the tables of all its pairs: they are its sums over the other columns. So the pairs of d
columns are covered by groups, as few and as small as possible. With 2^m - 1 columns of which any three may be counted together,
the groups are the lines of a Steiner triple system, and each pair is in exactly one; a few categories each allow larger groups.

A greedy cover, not the smallest one: that is a hard problem. Every pair is taken from the first group that has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

GROUP_CELLS: Final = 2**16
"""Most cells of a group of more than two columns: its cells are numbered with 16 bits."""

_DOUBLE_COST: Final = 35_000.0
"""Cells at which a record costs twice as much as in a table that stays in the first-level cache (measured)."""


def pair_groups(n_states: Sequence[int]) -> list[tuple[int, ...]]:
    """Groups of columns that cover every pair.

    Args:
        n_states: number of categories of each column.

    Returns:
        Ascending groups of at least two columns; every pair is in one or more. A group of more than two columns has at most
        `GROUP_CELLS` cells; a pair that has more is a group of its own.

    >>> pair_groups([20] * 7)
    [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]
    >>> pair_groups([2, 2, 2, 2])
    [(0, 1, 2, 3)]
    >>> pair_groups([300, 300, 2])
    [(0, 1), (0, 2), (1, 2)]
    """
    # Triples alone waste nothing where d fits them; larger groups overlap but are fewer. The cheaper cover is taken.
    covers = [_greedy(n_states, 3)]
    if math.prod(sorted(n_states)[:4]) <= GROUP_CELLS:
        covers.append(_greedy(n_states, GROUP_CELLS.bit_length()))
    return min(covers, key=lambda groups: sum(_cost(math.prod(n_states[c] for c in group)) for group in groups))


def _cost(cells: float) -> float:
    """Of counting a record in a table, in increments."""
    return 1.0 + cells / _DOUBLE_COST


def _greedy(n_states: Sequence[int], largest: int) -> list[tuple[int, ...]]:
    d = len(n_states)
    states = np.array(n_states, dtype=np.float64)
    left = ~np.eye(d, dtype=np.bool_)  # pairs that no group has yet, symmetric
    groups: list[tuple[int, ...]] = []
    for a in range(d):
        while left[a].any():
            group = [a, int(left[a].argmax())]
            cells, pairs = float(states[group].prod()), 1
            gain = left[group].sum(axis=0)
            while len(group) < largest:
                grown = cells * states
                # The first of the best: in equal columns this is the lexicographic code, a Steiner system for 2^m - 1.
                value = np.where(
                    (gain > 0) & (grown <= GROUP_CELLS), (pairs + gain) / (1.0 + grown / _DOUBLE_COST), 0.0
                )
                value[group] = 0.0
                best = int(value.argmax())
                if value[best] <= pairs / _cost(cells):
                    break
                group.append(best)
                cells, pairs = float(grown[best]), pairs + int(gain[best])
                gain += left[best]
            for member in group:
                left[member, group] = False
            groups.append(tuple(sorted(group)))
    return groups
