"""Replacing what rests on too few people by what is known of more.

Model I shares parameters that come from raw counts. A study may set a minimum count. Within each parent configuration the cells
whose estimated count is below it form a pool, whose probability is divided as the child's marginal divides it. A pool that
reaches the minimum keeps its own probability. One that does not gets the same rate as all such pools of the table have together
(or, where even these do not reach the minimum, as half the minimum would give them); the cells beside it keep their ratios. A
configuration that does not reach the minimum itself gets the marginal. Pools are not filled up with large cells: one frequent
category would then be given away to rare ones that may not even be possible. The marginal itself is treated first, there with the
next smallest cells and divided evenly: there is nothing further to back off to.

This is suppression, not noise: it makes no epsilon smaller, and what a reader computes from the cells that stay is not limited.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats

Mask = NDArray[np.bool_]


def pooled_shares(
    shares: Floats, counts: Floats, possible: Mask | None, minimum_count: float, *, base: Floats | None = None
) -> tuple[Floats, Mask]:
    """Pool the cells of one distribution.

    Args:
        shares: (K,), the distribution.
        counts: (K,), estimated number of people in each cell; may be negative.
        possible: (K,), cells that can be; the others stay 0 and are not pooled. None: all.
        minimum_count: of a pool.
        base: (K,), how a pool is divided; None: evenly.

    Returns:
        The distribution, and which of its cells were replaced.

    >>> pooled_shares(np.array([0.02, 0.08, 0.9]), np.array([2.0, 8.0, 90.0]), None, 10)
    (array([0.05, 0.05, 0.9 ]), array([ True,  True, False]))
    """
    cells = np.arange(len(shares)) if possible is None else np.flatnonzero(possible)
    in_pool = np.zeros(len(shares), dtype=np.bool_)
    ascending = cells[np.argsort(counts[cells], kind="stable")]
    n_small = int((counts[cells] < minimum_count).sum())
    if n_small == 0:
        return shares, in_pool
    is_enough = np.cumsum(counts[ascending])[n_small - 1 :] >= minimum_count
    size = n_small + int(np.argmax(is_enough)) if is_enough.any() else len(ascending)
    pool = ascending[:size]
    in_pool[pool] = True
    division = np.ones(len(pool)) if base is None or base[pool].sum() <= 0 else base[pool]
    pool_shares = shares.copy()
    pool_shares[pool] = shares[pool].sum() * division / division.sum()
    return pool_shares, in_pool


def pooled_rows(
    probability: Floats, counts: Floats, marginal: Floats, possible: Mask | None, minimum_count: float
) -> tuple[Floats, Mask, Floats]:
    """Pool the cells of every row of a conditional table.

    Args:
        probability: (J, K), rows sum to 1.
        counts: (J, K), estimated number of people in each cell; may be negative.
        marginal: (K,), the child's, of any sum.
        possible: (J, K), cells that can be. None: all.
        minimum_count: of a pool, and of a row.

    Returns:
        The table and which of its cells were replaced, (J, K) each; and (J,), the factor by which the estimated shares of the
        cells that stay have to be multiplied, so that they do not tell what was replaced.

    >>> rows, replaced, factor = pooled_rows(
    ...     np.array([[0.01, 0.99], [0.05, 0.95]]), np.array([[1.0, 99.0], [5.0, 95.0]]), np.array([6.0, 194.0]), None, 6
    ... )
    >>> rows.round(3).tolist(), replaced.tolist(), factor.round(3).tolist()
    ([[0.03, 0.97], [0.03, 0.97]], [[True, False], [True, False]], [0.98, 1.021])
    """
    somewhere = None if possible is None else np.asarray(possible.any(axis=0), dtype=np.bool_)
    base, _ = pooled_shares(marginal / marginal.sum(), counts.sum(axis=0), somewhere, minimum_count)
    cells = np.ones(counts.shape, dtype=np.bool_)
    if possible is not None:
        cells = np.where(possible.any(axis=1, keepdims=True), possible, cells)
    totals = counts.sum(axis=1)
    few = totals < minimum_count
    small = cells & (counts < minimum_count)
    pools = np.where(small, counts, 0.0).sum(axis=1)
    shared = ~few & small.any(axis=1) & (pools < minimum_count)
    rate = 0.0
    if shared.any():
        together = float(pools[shared].sum())
        rate = (together if together >= minimum_count else minimum_count / 2) / float(totals[shared].sum())
    rows, factor = probability.copy(), np.ones(len(counts))
    in_pool = small & ~few[:, None]
    for row in np.flatnonzero(in_pool.any(axis=1)):
        pool = small[row]
        mass = rate if shared[row] else float(probability[row, pool].sum())
        if shared[row]:
            rows[row, ~pool] *= (1 - mass) / probability[row, ~pool].sum()
            factor[row] = (1 - mass) / (1 - pools[row] / totals[row])
        rows[row, pool] = mass * _division(base, pool)
    for row in np.flatnonzero(few):
        rows[row], in_pool[row] = 0.0, cells[row]
        rows[row, cells[row]] = _division(base, cells[row])
    return rows, in_pool, factor


def _division(base: Floats, cells: Mask) -> Floats:
    """Return how the base divides one among some cells; evenly where it has nothing for them."""
    part = base[cells]
    return part / part.sum() if part.sum() > 0 else np.full(len(part), 1 / len(part))
