"""The compiled loop of counting; the loops of the searches stand in `search.compiled`.

A kernel stands beside a plain reference that the tests compare it with: `shared.numerics.estimation.contingency` for counting.
Callers check shapes, codes and dtypes; a kernel checks nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.scoring.tuning import TUNING
from verticil.shared.core.arrays import Codes
from verticil.shared.core.compiled import compiled

_STEP = TUNING.kernel_records
_CACHED = TUNING.kernel_cells
_S16, _S32, _S48, _LOW = np.uint64(16), np.uint64(32), np.uint64(48), np.uint64(0xFFFF)


@compiled
def count_groups(  # noqa: PLR0912, PLR0917  # one loop and its unrolled middle; numba kernels take positions
    block: Codes,
    n_states: NDArray[np.int64],
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    tables: NDArray[np.int64],
    scratch: NDArray[np.uint16],
) -> None:
    """Add the records of `block` to the tables of groups of columns.

    Records take turns between two or four tables, so that equal neighbours do not wait for each other's increment. These are
    of 16 bits, so that they stay near the processor; a block is so short that no count outgrows them.

    Args:
        block: (d, m) codes, m at most 2 * 65,532.
        n_states: (d,) number of categories.
        members: columns of all groups, one group after the other.
        starts: (G + 1,) where each group starts in `members`.
        offsets: (G + 1,) where the table of each group starts in `tables`.
        tables: (total cells,) each table in C order, its first column slowest; added to.
        scratch: (4, 65,536), zero; left zero.
    """
    m = block.shape[1]
    index = np.empty(_STEP, dtype=np.uint16)
    words = index.view(np.uint64)
    for g in range(starts.shape[0] - 1):
        group = members[starts[g] : starts[g + 1]]
        table = tables[offsets[g] : offsets[g + 1]]
        cells = table.shape[0]
        if cells > _LOW + 1:
            for i in range(m):
                cell = np.int64(0)
                for c in group:
                    cell = cell * n_states[c] + np.int64(block[c, i])
                table[cell] += 1
            continue
        # Four tables where they stay in the first-level cache, else twice the same two.
        apart = 2 if cells <= _CACHED else 0
        one, two, three, four = (
            scratch[0, :cells],
            scratch[1, :cells],
            scratch[apart, :cells],
            scratch[apart + 1, :cells],
        )
        for start in range(0, m, _STEP):
            length = min(_STEP, m - start)
            codes = block[group[0], start : start + length]
            for i in range(length):
                index[i] = codes[i]
            for c in group[1:]:
                codes = block[c, start : start + length]
                width = np.uint16(n_states[c])
                for i in range(length):
                    index[i] = index[i] * width + codes[i]
            # Four indices a load: what bounds this loop is loads and stores, not arithmetic.
            quarter = length // 4
            for i in range(quarter):
                word = words[i]
                one[word & _LOW] += np.uint16(1)
                two[(word >> _S16) & _LOW] += np.uint16(1)
                three[(word >> _S32) & _LOW] += np.uint16(1)
                four[word >> _S48] += np.uint16(1)
            for i in range(4 * quarter, length):
                one[index[i]] += np.uint16(1)
        for i in range(cells):
            table[i] += np.int64(one[i]) + np.int64(two[i])
            one[i] = two[i] = 0
        if apart:
            for i in range(cells):
                table[i] += np.int64(three[i]) + np.int64(four[i])
                three[i] = four[i] = 0
