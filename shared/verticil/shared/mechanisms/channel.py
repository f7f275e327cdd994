"""What estimation needs to know of a randomized unit: how a released record weighs on the true categories.

A unit has K true categories (of a column, or the combinations of a compound) and M released entries. A released record is one
entry, or, with subset selection, a set of w entries that each count as 1/w of a record; so a table of released counts always sums
to the number of records. The weights that make such a table an unbiased estimate are linear:

    z_x = sum over the record's entries y of (its share of the record) * inverse[y, x],      rows of `inverse` sum to 1,
    z_x^2 = sum over the record's entries y of (its share of the record) * inverse_square[y, x].

For a transition matrix P they are P^-1 and its elementwise square (Ma & Sivakumar, section 5); `subset` has its own.

The categories of a compound are combinations, and what is asked about is often a set of them ("the ward is 3, whatever the age").
`products` gives the second moments of such sums of weights, `lumps` says whether a compound may be read as if only some of its
variables had been randomized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Channel(Protocol):
    """How one unit is randomized. `transition.Transition` and `subset.Subset` are channels."""

    @property
    def n_states(self) -> int:
        """Number of true categories, K."""
        ...

    @property
    def is_identity(self) -> bool:
        """Whether every category is released as it is."""
        ...

    @property
    def codes_per_record(self) -> int:
        """How many codes a released record has: 1, or the size w of its set."""
        ...

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """(K, M): the expected share of each released entry, given the true category; rows sum to 1."""
        ...

    @property
    def inverse(self) -> NDArray[np.float64]:
        """(M, K): see the module."""
        ...

    @property
    def inverse_square(self) -> NDArray[np.float64]:
        """(M, K): see the module."""
        ...

    def products(self, first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
        """Second moments of sums of weights.

        Args:
            first, second: (K, R): column r sums the weights z_x with the factors ``first[x, r]``.

        Returns:
            (M, R): a matrix V such that, over the entries y of a record with the true category x, the expectation of the sum of
            (share of y) * V[y, r] is that of (sum_x first[x, r] z_x) (sum_x second[x, r] z_x), for every x.
        """
        ...

    def joint_shares(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Expected product of a record's shares of two entries: (M, M); `shares` (K,) are those of the true categories."""
        ...

    def lumps(self, classes: Sequence[int]) -> bool:
        """Return whether the class of what is released depends on nothing but the class of the true category.

        Decided on the channel's whole numbers, up to the rounding that made them.

        Args:
            classes: (K,) class of each category, as whole numbers from 0.
        """
        ...

    def digest(self) -> bytes:
        """SHA-256 of the channel's exact integers: 32 bytes."""
        ...
