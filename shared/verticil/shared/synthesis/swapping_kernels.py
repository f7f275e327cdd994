"""The compiled forms of `joint_records`' counts and swaps: the same decisions, in whole numbers.

Imports numba; `joint_records` imports this module only where numba is installed and the work is worth a compiler.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.compiled import compiled


@compiled
def count(places: NDArray[np.uint32], counts: NDArray[np.int64]) -> None:
    """Count the records in each cell of every pair of variables a < b.

    Args:
        places: (n, d) each record's categories, as places among the categories of all variables.
        counts: (S, S), changed in place.
    """
    d = places.shape[1]
    for i in range(places.shape[0]):
        for a in range(d):
            for b in range(a + 1, d):
                counts[places[i, a], places[i, b]] += 1


@compiled
def swap(
    places: NDArray[np.uint32],
    at: NDArray[np.int64],
    proposals: NDArray[np.uint32],
    above: NDArray[np.int64],
    weight: NDArray[np.int64],
) -> None:
    """Replace records by proposed ones where that costs less than nothing; `places` and `above` in place.

    Args:
        places: (n, d) see `count`.
        at: (m,) which record each proposal would replace.
        proposals: (m, d) places.
        above: (S, S) twice how many records too many are in a cell, weighted; cells of variables a < b alone count.
        weight: (S, S) the weight of a record in a cell.
    """
    d = places.shape[1]
    for m in range(at.shape[0]):
        old, new = places[at[m]], proposals[m]
        cost = 0
        for a in range(d):
            for b in range(a + 1, d):
                if old[a] != new[a] or old[b] != new[b]:
                    cost += above[new[a], new[b]] + weight[new[a], new[b]]
                    cost += weight[old[a], old[b]] - above[old[a], old[b]]
        if cost < 0:
            for a in range(d):
                for b in range(a + 1, d):
                    if old[a] != new[a] or old[b] != new[b]:
                        above[new[a], new[b]] += 2 * weight[new[a], new[b]]
                        above[old[a], old[b]] -= 2 * weight[old[a], old[b]]
            old[:] = new
