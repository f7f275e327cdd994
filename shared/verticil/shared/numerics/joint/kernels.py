"""The loops over atoms, and over the probabilities of a mixture. Imports numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.core.compiled import compiled
from verticil.shared.numerics.joint.layout import Singles

Cells = NDArray[np.int32]


@compiled
def number_cells(cells: Cells, places: Cells, size: int) -> None:
    """Number the cells of a table of one unit more, in place.

    Args:
        cells: (A,) each atom's cell in the table without the unit.
        places: (A,) its category in the unit.
        size: categories of the unit.
    """
    for atom in range(len(cells)):
        cells[atom] = cells[atom] * size + places[atom]


@compiled
def add_weights(cells: Cells, weights: Floats, sums: Floats) -> None:
    """Add the weight of each atom to its cell's sum, in place.

    Neighbouring atoms, which mostly have the same cell, go to four sums in turn: none waits for the one before.
    """
    lanes = np.zeros((4, len(sums)))
    whole = len(cells) - len(cells) % 4
    for atom in range(0, whole, 4):
        lanes[0, cells[atom]] += weights[atom]
        lanes[1, cells[atom + 1]] += weights[atom + 1]
        lanes[2, cells[atom + 2]] += weights[atom + 2]
        lanes[3, cells[atom + 3]] += weights[atom + 3]
    for atom in range(whole, len(cells)):
        lanes[0, cells[atom]] += weights[atom]
    for lane in range(4):
        for cell in range(len(sums)):
            sums[cell] += lanes[lane, cell]


@compiled
def multiply_weights(cells: Cells, weights: Floats, factor: Floats) -> None:
    """Multiply each atom's weight by its cell's factor, in place."""
    for atom in range(len(cells)):
        weights[atom] *= factor[cells[atom]]


@compiled
def compare_pair(share: Floats, observed: Floats, variance: Floats, least: float) -> tuple[float, float]:
    """Compare a table of two units with what was observed, margins out.

    Args:
        share: (K, L) of each cell.
        observed: (K, L), likewise.
        variance: (K, L) of the noise in each cell.
        least: what a cell of the product of the margins is taken to be at least.

    Returns:
        The sum of squares of the residual, less what its margins say, and that of the variances, both over the product of the
        margins.
    """
    rows, columns = share.shape
    first, second, missed_first, missed_second = np.zeros(rows), np.zeros(columns), np.zeros(rows), np.zeros(columns)
    for a in range(rows):
        for c in range(columns):
            difference = share[a, c] - observed[a, c]
            first[a] += share[a, c]
            second[c] += share[a, c]
            missed_first[a] += difference
            missed_second[c] += difference
    squares = variances = 0.0
    for a in range(rows):
        for c in range(columns):
            residual = share[a, c] - observed[a, c] - missed_first[a] * second[c] - first[a] * missed_second[c]
            product = max(first[a] * second[c], least)
            squares += residual**2 / product
            variances += variance[a, c] / product
    return squares, variances


@compiled
def _sum(row: Singles, start: int, stop: int) -> np.float32:
    """Return the sum of some entries."""
    total = np.float32(0)
    for i in range(start, stop):
        total += row[i]
    return total


@compiled
def normalize(rows: Singles, ends: NDArray[np.int64]) -> None:
    """Divide each variable's entries by their sum, in place.

    Args:
        rows: (m, S).
        ends: (d,) where each variable's entries end.
    """
    for place in range(len(rows)):
        row, start = rows[place], 0
        for stop in ends:
            total = _sum(row, start, stop)
            for i in range(start, stop):
                row[i] /= total
            start = stop


@compiled
def through_softmax(rows: Singles, gradient: Singles, ends: NDArray[np.int64]) -> None:
    """Take the gradient for probabilities back to the one for their logits, in place.

    Args:
        rows: (m, S) probabilities.
        gradient: (m, S) for them.
        ends: see `normalize`.
    """
    for place in range(len(rows)):
        row, own, start = rows[place], gradient[place], 0
        for stop in ends:
            for i in range(start, stop):
                own[i] *= row[i]
            total = _sum(own, start, stop)
            for i in range(start, stop):
                own[i] -= row[i] * total
            start = stop
