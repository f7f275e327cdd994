"""How probable a variable's column is given its parents' columns, the probabilities themselves integrated out.

With N_jk records of parent configuration j and category k, N_j their sum over k, and prior counts a_jk,

    log p = sum_j [ln G(a_j) - ln G(a_j + N_j)] + sum_jk [ln G(a_jk + N_jk) - ln G(a_jk)],

G the gamma function. a_jk = 1 (`dirichlet_score`) is the uniform prior of Martins, Gonçalves & Galletti, equation 7, for any
number of categories; graphs that say the same about independence differ in it. a_jk = e / (J K) (`bdeu_score`) gives them
the same score (Heckerman, Geiger & Chickering 1995, section 8). Counts need not be whole: tempered ones are not.
"""

from __future__ import annotations

from collections.abc import Callable

from scipy.special import gammaln

from verticil.shared.core.arrays import Counts

FamilyValue = Callable[[int, tuple[int, ...]], float]
"""(child, parents ascending) -> nats."""


def dirichlet_score(table: Counts, *, pseudo: float = 1.0) -> float:
    """Return the logarithm of a column's probability under equal prior counts, nats.

    Args:
        table: (J, K) counts >= 0, parent configurations by the child's categories.
        pseudo: prior count of every cell, > 0.

    Raises:
        ValueError: the table has another number of axes, or the prior count is not positive.

    >>> import math, numpy as np
    >>> math.isclose(dirichlet_score(np.array([[1, 0]])), math.log(1 / 2))
    True
    """
    if table.ndim != 2 or not pseudo > 0:
        raise ValueError(f"a table of {table.ndim} axes and the prior count {pseudo}, expected 2 axes and > 0")
    row = pseudo * table.shape[1]
    configurations = gammaln(row) - gammaln(row + table.sum(axis=1))
    return float(configurations.sum() + (gammaln(pseudo + table) - gammaln(pseudo)).sum())


def bdeu_score(table: Counts, *, equivalent: float = 1.0) -> float:
    """Return the same under prior counts of `equivalent` records in all, spread evenly over the cells; see
    `dirichlet_score`.
    """
    return dirichlet_score(table, pseudo=equivalent / max(table.size, 1))
