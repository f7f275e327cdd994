"""Published probabilities are whole multiples of 2^-24, so that every reader of every format holds the same numbers.

Such a number has at most 24 significant bits: it is exact in double and in single precision (pyAgrum reads BIF in single
precision), rows sum to exactly 1 in either, and a written model samples exactly like the one in memory. Rounding moves a
probability by less than 2^-24 = 6e-8 (a row in which more than half of the categories are rarer than 2^-24: by a little more),
thousands of times less than the standard error of any estimate from fewer than 10^8 people. Zero stays zero and positive stays
positive: rounding makes nothing impossible that the model allows.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.numerics.model.network import Network

RESOLUTION: Final = 2**24
"""Probabilities are multiples of one over this."""

_TOGETHER: Final = 2**18  # cells
_WIDEST: Final = 2**17  # a row of the records of a joint model


def round_rows(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round each row to multiples of 2^-24 that sum to exactly 1, by largest remainder.

    Args:
        probability: (J, K), float64, not negative; rows sum to 1 within 1e-9.

    Returns:
        (J, K), float64: each row the multiples of 2^-24 nearest to it among those that sum to 1, keep zeros, and keep what is
        positive positive. Rows that are rounded already come back unchanged. Ties go to the lower category.

    Raises:
        ValueError: not two axes, a negative or not finite entry, a row that does not sum to 1, or K above 2^17.

    >>> (round_rows(np.array([[1 / 3, 1 / 3, 1 / 3, 0.0]])) * RESOLUTION).tolist()
    [[5592406.0, 5592405.0, 5592405.0, 0.0]]
    """
    if probability.ndim != 2 or not 1 <= probability.shape[1] <= _WIDEST:
        raise ValueError(f"probabilities have the shape {probability.shape}, expected (J, K) with K in 1..{_WIDEST}")
    if not (probability >= 0).all() or not np.allclose(probability.sum(axis=1), 1.0, rtol=0, atol=1e-9):
        raise ValueError("a row of probabilities is negative or does not sum to 1 within 1e-9")
    exact = probability * RESOLUTION
    units = np.floor(exact)
    remainder = exact - units
    is_raised = (units == 0) & (probability > 0)  # these take their one unit first, whatever their remainder
    units[is_raised] = 1
    remainder[is_raised] -= 1
    positive = probability > 0
    short = RESOLUTION - units.sum(axis=1)
    # Nearly always a unit at a time is enough: such rows are settled together, the others one by one.
    giving, taking = np.count_nonzero(positive, axis=1), np.count_nonzero(units > 1, axis=1)
    together = np.where(short > 0, short <= giving, -short <= taking) & (short != 0)
    size = max(_TOGETHER // probability.shape[1], 1)
    rows = np.flatnonzero(together)
    for start in range(0, len(rows), size):
        piece = rows[start : start + size]
        units[piece] = _settle_rows(units[piece], remainder[piece], short[piece], positive=positive[piece])
    for row in np.flatnonzero((short != 0) & ~together):
        _settle(units[row], remainder[row], int(short[row]), positive=positive[row])
    return units / RESOLUTION


def _settle_rows(
    units: NDArray[np.float64],
    remainder: NDArray[np.float64],
    short: NDArray[np.float64],
    *,
    positive: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Apply `_settle` to rows in which no cell has to move by more than one unit."""
    step = np.sign(short)[:, None]
    open_cells = np.where(step > 0, positive, units > 1)
    order = np.argsort(np.where(open_cells, -step * remainder, np.inf), axis=1, kind="stable")
    best = np.arange(units.shape[1]) < np.abs(short)[:, None]
    moves = np.zeros(units.shape)
    np.put_along_axis(moves, order, best.astype(np.float64), axis=1)
    return units + step * moves


def _settle(
    units: NDArray[np.float64], remainder: NDArray[np.float64], short: int, *, positive: NDArray[np.bool_]
) -> None:
    """Give (or, when `short` is negative, take) units where that comes nearest to the exact row; in place."""
    step = 1 if short > 0 else -1
    while short:
        open_cells = np.flatnonzero(positive if step > 0 else units > 1)
        best = open_cells[np.argsort(-step * remainder[open_cells], kind="stable")[: abs(short)]]
        amount = max(1, abs(short) // open_cells.size)  # many units and few cells: several at a time
        moves = np.full(best.size, float(amount)) if step > 0 else np.minimum(amount, units[best] - 1)
        units[best] += step * moves
        remainder[best] -= step * moves
        short -= step * int(moves.sum())


def round_network(network: Network) -> Network:
    """Return the network with each family's probabilities rounded by `round_rows`; estimates and intervals stay as they
    are.
    """
    families = tuple(
        dataclasses.replace(family, probability=round_rows(family.probability)) for family in network.families
    )
    return dataclasses.replace(network, families=families)


def round_joint(model: JointModel) -> JointModel:
    """Return the joint model with its weights, and the rows of a mixture's tables, rounded by `round_rows`.

    Raises:
        ValueError: it has more than 2^17 components or records.
    """
    weights = round_rows(model.weights[None, :])[0]
    if isinstance(model, Mixture):
        return Mixture(weights=weights, probability=tuple(map(round_rows, model.probability)))
    return dataclasses.replace(model, weights=weights)
