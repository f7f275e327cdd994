"""The compiled loop of `whole_rows`: what is expected of every clique, given each record's reports. Imports numba."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.core.compiled import compiled

Places = NDArray[np.int32]


@compiled
def expect(  # noqa: PLR0912, PLR0917  # one loop over records; numba kernels take positions
    codes: Places,
    likelihood: Floats,
    first: Places,
    potentials: Floats,
    starts: Places,
    above: Places,
    separators: Places,
    upward: Places,
    downward: Places,
    down_starts: Places,
    reports: Places,
    variables: Places,
    categories: Places,
    category_starts: Places,
    sums: Floats,
    block: int,
) -> float:
    """Add up, over records, the probability of every cell of every clique given a record's reports.

    Args:
        codes: (d, n) released codes.
        likelihood: (sum of K, M): of each category of each variable, the probability of each report.
        first: (d,) row of each variable's first category there.
        potentials: (cells,) of all cliques, one after the other, children before parents.
        starts: (cliques + 1,) where each clique's cells start.
        above: (cliques,) each clique's parent; the last one is the root.
        separators: (cliques + 1,) where each clique's message to its parent starts.
        upward: (cells,) the cell of its clique's message that each cell belongs to.
        downward: of each clique but the root, for every cell of its parent the cell of the message.
        down_starts: (cliques,) where that starts.
        reports: (cliques + 1,) the first of the reports that enter a clique.
        variables: (d,) the variable of each report.
        categories: of each report, for every cell of its clique the variable's category.
        category_starts: (d,) where that starts.
        sums: (cells,), written to.
        block: records at a time.

    Returns:
        The logarithm of the likelihood of all records; one that is impossible counts as e^-690 and adds nothing to the sums.
    """
    n, cliques = codes.shape[1], len(above)
    of_records = np.empty((len(likelihood), block))
    work = np.empty((starts[cliques], block))
    message = np.empty((separators[cliques], block))
    part = np.empty((separators[cliques], block))
    total = np.empty((cliques, block))
    logarithm = 0.0
    for begin in range(0, n, block):
        m = min(block, n - begin)
        for v in range(len(first) - 1):
            for row in range(first[v], first[v + 1]):
                for b in range(m):
                    of_records[row, b] = likelihood[row, codes[v, begin + b]]
        for k in range(cliques):
            start, end = starts[k], starts[k + 1]
            for cell in range(start, end):
                potential = potentials[cell]
                for b in range(m):
                    work[cell, b] = potential
            for report in range(reports[k], reports[k + 1]):
                row0, category0 = first[variables[report]], category_starts[report]
                for cell in range(start, end):
                    row = row0 + categories[category0 + cell - start]
                    for b in range(m):
                        work[cell, b] *= of_records[row, b]
        for k in range(cliques):
            start, end, low, high = starts[k], starts[k + 1], separators[k], separators[k + 1]
            for row in range(low, high):
                for b in range(m):
                    message[row, b] = 0.0
            for cell in range(start, end):
                row = low + upward[cell]
                for b in range(m):
                    message[row, b] += work[cell, b]
            for b in range(m):
                total[k, b] = 0.0
            for row in range(low, high):
                for b in range(m):
                    total[k, b] += message[row, b]
            for b in range(m):
                if total[k, b] > 1e-300:
                    logarithm += math.log(total[k, b])
                    total[k, b] = 1 / total[k, b]
                else:
                    logarithm -= 690.0
                    total[k, b] = 0.0
            for row in range(low, high):
                for b in range(m):
                    message[row, b] *= total[k, b]
            if k < cliques - 1:
                up, down = starts[above[k]], down_starts[k]
                for cell in range(up, starts[above[k] + 1]):
                    row = low + downward[down + cell - up]
                    for b in range(m):
                        work[cell, b] *= message[row, b]
        for k in range(cliques - 1, -1, -1):
            start, end, low, high = starts[k], starts[k + 1], separators[k], separators[k + 1]
            if k == cliques - 1:
                for cell in range(start, end):
                    for b in range(m):
                        work[cell, b] *= total[k, b]
            else:
                up, down = starts[above[k]], down_starts[k]
                for row in range(low, high):
                    for b in range(m):
                        part[row, b] = 0.0
                for cell in range(up, starts[above[k] + 1]):
                    row = low + downward[down + cell - up]
                    for b in range(m):
                        part[row, b] += work[cell, b]
                for row in range(low, high):
                    for b in range(m):
                        if message[row, b] > 0.0:
                            part[row, b] *= total[k, b] / message[row, b]
                        else:
                            part[row, b] = 0.0
                for cell in range(start, end):
                    row = low + upward[cell]
                    for b in range(m):
                        work[cell, b] *= part[row, b]
            for cell in range(start, end):
                cell_sum = 0.0
                for b in range(m):
                    cell_sum += work[cell, b]
                sums[cell] += cell_sum
    return logarithm
