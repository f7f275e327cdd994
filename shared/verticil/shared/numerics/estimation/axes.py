"""Multiplying every axis of a table by a matrix of its own: the one piece of linear algebra that estimation stands on.

And the one sum that likelihoods and entropies are made of, `plogp`.

The Kronecker product of the matrices is never formed: an axis of K states costs K times the cells of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verticil.shared.core.arrays import Counts, Floats


def apply_axes(table: Counts, matrices: Sequence[Floats | None]) -> Floats:
    """Multiply every axis of a table by its matrix: out[.., x, ..] = sum_y table[.., y, ..] matrix[y, x].

    Args:
        table: (K_1, .., K_m).
        matrices: for each axis (K_a, L_a), or None for the identity.

    Returns:
        (L_1, .., L_m), float64, C order; never a view of `table`.

    Raises:
        ValueError: there are not as many matrices as axes, or a matrix does not fit its axis.
    """
    if len(matrices) != table.ndim:
        raise ValueError(f"{len(matrices)} matrices for a table of {table.ndim} axes")
    for axis, (matrix, states) in enumerate(zip(matrices, table.shape, strict=True)):
        if matrix is not None and (matrix.ndim != 2 or matrix.shape[0] != states):
            raise ValueError(f"axis {axis} has {states} states, but its matrix has shape {matrix.shape}")
    shape = tuple(
        states if matrix is None else matrix.shape[1] for states, matrix in zip(table.shape, matrices, strict=True)
    )
    if all(matrix is None for matrix in matrices):
        return np.array(table, dtype=np.float64, order="C")
    work = np.ascontiguousarray(table, dtype=np.float64)
    # The last axis is taken off and comes out in front; after one round all are in their old order. Axes without a matrix
    # wait in `carried` and are moved together.
    n_carried = 1
    for states, matrix in zip(reversed(table.shape), reversed(matrices), strict=True):
        if matrix is None:
            n_carried *= states
            continue
        if n_carried > 1:
            work = np.ascontiguousarray(work.reshape(-1, n_carried).T)
            n_carried = 1
        work = matrix.T @ work.reshape(-1, states).T
    return np.ascontiguousarray(work.reshape(-1, n_carried).T if n_carried > 1 else work).reshape(shape)


def plogp(cells: Counts) -> float:
    """Sum x log x over cells or shares that are not negative, nats; 0 log 0 is 0.

    >>> round(-plogp(np.array([0.5, 0.5, 0.0])), 6)  # ln 2
    0.693147
    """
    positive = cells[cells > 0]
    return float(positive @ np.log(positive))
