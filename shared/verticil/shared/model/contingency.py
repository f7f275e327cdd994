"""Plain counting of contingency tables with numpy: the reference beside the miner's kernels, and all that small jobs need.

Counts are of the released codes as they are; nothing here knows about randomization.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["family_table", "pair_table"]

Codes = NDArray[np.unsignedinteger]
Counts = NDArray[np.int64]


def pair_table(a: Codes, b: Codes, n_states_a: int, n_states_b: int) -> Counts:
    """Count the pairs of two columns.

    Args:
        a, b: (n,), unsigned codes.
        n_states_a, n_states_b: numbers of categories.

    Returns:
        (n_states_a, n_states_b), int64.

    Raises:
        ValueError: the lengths differ, or a code is out of range.
    """
    return family_table([a, b], [n_states_a, n_states_b])


def family_table(columns: Sequence[Codes], n_states: Sequence[int]) -> Counts:
    """Count the combinations of some columns.

    Args:
        columns: arrays (n,) of unsigned codes; a family's parents in ascending order, then its child.
        n_states: number of categories of each.

    Returns:
        One axis for each column, in their order; int64.

    Raises:
        ValueError: there is no column, the lengths differ, or a code is out of range.

    >>> family_table([np.array([0, 1, 1], np.uint8), np.array([2, 0, 0], np.uint8)], [2, 3]).tolist()
    [[0, 0, 1], [2, 0, 0]]
    """
    if not columns or len(columns) != len(n_states) or len({column.shape for column in columns}) != 1:
        raise ValueError(
            f"{len(columns)} columns and {len(n_states)} numbers of states, expected as many, of one length"
        )
    index = np.zeros(columns[0].shape, dtype=np.int64)
    for position, (column, states) in enumerate(zip(columns, n_states, strict=True)):
        if column.size and int(column.max()) >= states:
            raise ValueError(f"column {position}: code out of range, expected below {states}")
        index *= states
        index += column
    return np.bincount(index, minlength=math.prod(n_states)).astype(np.int64, copy=False).reshape(tuple(n_states))
