"""The information of families of columns that are not randomized, each set of variables counted once.

The mutual information of a variable with several others jointly is, from columns that are not randomized,

    I(X; Y_1 .. Y_k) = H(X) + H(Y) - H(X, Y),    H = ln n - 1/n sum_c n_c ln n_c

over the filled cells of a count. Every set of variables is counted once, whatever families it takes part in: the search of
PrivBayes asks for far more families than there are sets. The information is the plain one of the records (no correction for its
bias): what DataSynthesizer uses, and what grows with every parent that is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes

_DENSE_FACTOR: Final = 4  # cells per record up to which a table is counted in full


class JointInformation:
    """The information of families, each set of variables counted once; see the module's text.

    Args:
        columns: d arrays of n codes.
        n_states: number of categories of each; every code is below it.

    >>> x = np.array([0, 0, 1, 1], dtype=np.uint8)
    >>> y = np.array([0, 1, 0, 1], dtype=np.uint8)
    >>> round(JointInformation([x, y, x ^ y], (2, 2, 2))(2, (0, 1)), 6)  # ln 2: only together they tell
    0.693147
    """

    def __init__(self, columns: Sequence[Codes], n_states: Sequence[int]) -> None:
        self._columns = [column.astype(np.int64) for column in columns]
        self._n_states = tuple(n_states)
        self._n = len(columns[0])
        counts = np.arange(self._n + 1, dtype=np.float64)
        self._terms = counts * np.log(np.maximum(counts, 1.0))
        self._entropies: dict[tuple[int, ...], float] = {}
        # The last set that was numbered in each size: sets are asked for in an order in which it is often the beginning.
        self._begun: dict[int, tuple[tuple[int, ...], NDArray[np.int64], int]] = {}

    def __call__(self, child: int, parents: tuple[int, ...]) -> float:
        """The information, nats; see `verticil.miner.learning.search.protocol.FamilyValue`."""
        family = tuple(sorted((*parents, child)))
        return max(self._entropy((child,)) + self._entropy(parents) - self._entropy(family), 0.0)

    def _entropy(self, members: tuple[int, ...]) -> float:
        if members not in self._entropies:
            index, cells = self._numbered(members)
            counts = np.bincount(index, minlength=cells)
            self._entropies[members] = float(np.log(max(self._n, 1)) - self._terms[counts].sum() / max(self._n, 1))
        return self._entropies[members]

    def _numbered(self, members: tuple[int, ...]) -> tuple[NDArray[np.int64], int]:
        """The cell of each record in the table of `members`, and how many cells there are."""
        if len(members) == 1:
            return self._columns[members[0]], self._n_states[members[0]]
        start = members[:-1]
        known = self._begun.get(len(start))
        if known is not None and known[0] == start:
            index, cells = known[1], known[2]
        else:
            index, cells = self._numbered(start)
            if cells > _DENSE_FACTOR * self._n:
                distinct, index = np.unique(index, return_inverse=True)
                cells = len(distinct)
            self._begun[len(start)] = (start, index, cells)
        last = members[-1]
        index, cells = index * self._n_states[last], cells * self._n_states[last]
        index += self._columns[last]
        if cells > 2**26:
            distinct, index = np.unique(index, return_inverse=True)
            cells = len(distinct)
        return index, cells
