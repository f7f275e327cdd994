"""How much of each table's distance to a model is believed: adaptive shrinkage (Stephens 2017) of sums of squares.

Of a table with k degrees of freedom whose true distance to the model has the variance A, in units of that of the noise, the sum
of squares is (1 + A) times chi-squared with k degrees, and the part A / (1 + A) of what is seen is there. What A's there are is
told by all tables together: their shares among values of A are those of the largest likelihood, found by expectation
maximization, and each table's part is the mean of A / (1 + A) given its own sum of squares. So where a model explains most
tables, a table a little farther than others is taken for chance, and where it misses most, for what it is; a table on its own
(the estimator of James & Stein, 1961) cannot tell.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats

_VARIANCES: Final = np.concatenate([[0.0], 2.0 ** np.arange(-4, 10)])
_STEPS: Final = 500


def believed(squares: Floats, degrees: Floats) -> Floats:
    """Return the part of each table's distance that is there, within 0 and 1.

    Args:
        squares: (T,) sums of squares, in units of the variance of the noise.
        degrees: (T,) of freedom of each, so what noise alone gives on average.

    >>> believed(np.array([1.0, 900.0]), np.array([4.0, 9.0])).round(2).tolist()
    [0.0, 0.99]
    """
    logarithm = -0.5 * degrees[:, None] * np.log1p(_VARIANCES) - 0.5 * squares[:, None] / (1 + _VARIANCES)
    likelihood = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
    shares = np.full(len(_VARIANCES), 1 / len(_VARIANCES))
    given = likelihood * shares
    for _ in range(_STEPS if len(squares) else 0):
        given = likelihood * shares
        given /= given.sum(axis=1, keepdims=True)
        shares = given.mean(axis=0)
    return np.asarray(given @ (_VARIANCES / (1 + _VARIANCES)), dtype=np.float64)
