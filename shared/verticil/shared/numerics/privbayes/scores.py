"""Algorithm 1 of PrivBayes: a noisy score of every pair of attributes; or scores from pair tables that are private already."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Floats, Ints
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.numerics.estimation.contingency import pair_table

LABEL: Final = b"scores"
"""Names their draw."""


def score_of(table: Ints) -> int:
    """S of a pair, rounded to the nearest whole number (halves upwards): half the sum of |C_xy - C_x C_y / n|.

    Args:
        table: (K_a, K_b), whole numbers; at most 2^31 records.

    >>> score_of(np.array([[5, 0], [0, 5]]))
    5
    """
    n = int(table.sum())
    if n == 0:
        return 0
    twice = int(np.abs(n * table - np.outer(table.sum(axis=1), table.sum(axis=0))).sum())  # 2 n S
    return (twice + n) // (2 * n)


def exact_scores(columns: Sequence[AnyCodes], n_states: Sequence[int]) -> Ints:
    """S of every pair: (d, d), symmetric, the diagonal 0. It is not private.

    Args:
        columns: (n,) codes of each attribute.
        n_states: K of each.

    Raises:
        ValueError: the lengths differ, or a code is out of range.
    """
    scores = np.zeros((len(columns), len(columns)), dtype=np.int64)
    for a, b in itertools.combinations(range(len(columns)), 2):
        scores[a, b] = scores[b, a] = score_of(pair_table(columns[a], columns[b], n_states[a], n_states[b]))
    return scores


def noisy_scores(columns: Sequence[AnyCodes], n_states: Sequence[int], *, key: bytes, sigma: float) -> Ints:
    """Algorithm 1: the scores with discrete Gaussian noise, a function of the arguments alone.

    Args:
        columns, n_states: see `exact_scores`.
        key: 32 bytes, secret.
        sigma: sigma_NL, the noise's parameter.

    Returns:
        (d, d), int64, symmetric, the diagonal 0; scores can be negative.

    Raises:
        ValueError: as `exact_scores`, or as `discrete_gaussian.draw`.
    """
    scores = exact_scores(columns, n_states)
    upper = np.triu_indices(len(scores), 1)
    noisy = np.zeros_like(scores)
    noisy[upper] = scores[upper] + discrete_gaussian.draw(key, LABEL, (len(upper[0]),), sigma)
    return noisy + noisy.T


def scores_of_tables(tables: Mapping[tuple[int, int], Floats], n_attributes: int) -> Floats:
    """Scores from pair tables that are private already: no more noise is added, and nothing is spent.

    Args:
        tables: (a, b), a < b -> (K_a, K_b), counts of every pair.
        n_attributes: d.

    Returns:
        (d, d), symmetric, the diagonal 0.

    >>> float(scores_of_tables({(0, 1): np.array([[5.0, 0.0], [0.0, 5.0]])}, 2)[0, 1])
    5.0
    """
    scores = np.zeros((n_attributes, n_attributes))
    for (a, b), table in tables.items():
        product = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(float(table.sum()), 1.0)
        scores[a, b] = scores[b, a] = float(np.abs(table - product).sum()) / 2
    return scores
