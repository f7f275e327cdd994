"""The loops over atoms. Imports numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.arrays import Floats
from verticil.shared.compiled import compiled

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
    """Add the weight of each atom to its cell's sum, in place."""
    for atom in range(len(cells)):
        sums[cells[atom]] += weights[atom]


@compiled
def multiply_weights(cells: Cells, weights: Floats, factor: Floats) -> None:
    """Multiply each atom's weight by its cell's factor, in place."""
    for atom in range(len(cells)):
        weights[atom] *= factor[cells[atom]]
