"""Estimates of true counts from counts of randomized records, with their covariance, axis by axis.

The matrix that randomizes a whole table is the Kronecker product of its columns' matrices (Ma & Sivakumar, section 5). It is
never formed: each axis of the table is multiplied by its own K x K matrix, which costs K times the cells. For a row vector of
counts E[N~] = N P, so N^ = N~ P^-1 is unbiased. Its sum is that of N~, and summing it over an axis gives the estimate of the
smaller table, both because the rows of P^-1 sum to 1. Estimates can be negative; `estimation` projects them.

Covariance, with z_y the row of P^-1 that belongs to the released cell y (the weight that such a record adds to each cell):

    Cov_total[N^] = sum_y N~_y z_y z_y^T - N^ N^^T / n         sampling and randomization
    Cov_pram[N^]  = sum_y N~_y z_y z_y^T - diag(N^)            randomization alone, the records being fixed

which needs no true counts; with E[N~] in the place of N~ the second is exactly Theorem 2 of the paper. A column that is not
randomized has no matrix here (None), and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model.transition import Transition

__all__ = [
    "apply_axes",
    "estimate_counts",
    "family_covariance_blocks",
    "forward_matrices",
    "inverse_matrices",
    "variance_pram",
    "variance_total",
]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64] | NDArray[np.float64]


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
    carried = 1
    for states, matrix in zip(reversed(table.shape), reversed(matrices), strict=True):
        if matrix is None:
            carried *= states
            continue
        if carried > 1:
            work = np.ascontiguousarray(work.reshape(-1, carried).T)
            carried = 1
        work = matrix.T @ work.reshape(-1, states).T
    return np.ascontiguousarray(work.reshape(-1, carried).T if carried > 1 else work).reshape(shape)


def inverse_matrices(transitions: Sequence[Transition]) -> list[Floats | None]:
    """P^-1 of each axis; None where it is the identity."""
    return [None if transition.is_identity else transition.inverse for transition in transitions]


def forward_matrices(transitions: Sequence[Transition]) -> list[Floats | None]:
    """P of each axis; None where it is the identity."""
    return [None if transition.is_identity else transition.probabilities for transition in transitions]


def estimate_counts(observed: Counts, transitions: Sequence[Transition]) -> Floats:
    """The unbiased estimate of the true counts.

    Args:
        observed: (K_1, .., K_m), counts of released records.
        transitions: of each axis.

    Returns:
        (K_1, .., K_m), float64; sums to the observed sum within 1e-9 of it; cells may be negative.

    Raises:
        ValueError: the transitions do not fit the table.

    >>> from verticil.shared.model.transition import binary, quantize
    >>> estimate_counts(np.array([64, 36]), [quantize(binary(0.1, 0.25))]).round(9).tolist()
    [60.0, 40.0]
    """
    return apply_axes(observed, inverse_matrices(transitions))


def variance_total(observed: Counts, transitions: Sequence[Transition]) -> Floats:
    """Variance of each estimated count, over sampling the records and randomizing them: the diagonal of Cov_total.

    Args:
        observed: (K_1, .., K_m), counts of released records.
        transitions: of each axis.

    Returns:
        (K_1, .., K_m), float64, >= 0.
    """
    estimate = estimate_counts(observed, transitions)
    n = max(float(observed.sum()), 1.0)
    return np.maximum(_second_moment(observed, transitions) - estimate**2 / n, 0.0)


def variance_pram(observed: Counts, transitions: Sequence[Transition]) -> Floats:
    """Variance of each estimated count over the randomization alone: the diagonal of Cov_pram, cut at 0.

    Args:
        observed: (K_1, .., K_m), counts of released records.
        transitions: of each axis.

    Returns:
        (K_1, .., K_m), float64, >= 0.
    """
    return np.maximum(_second_moment(observed, transitions) - estimate_counts(observed, transitions), 0.0)


def _second_moment(observed: Counts, transitions: Sequence[Transition]) -> Floats:
    return apply_axes(observed, [None if matrix is None else matrix**2 for matrix in inverse_matrices(transitions)])


def family_covariance_blocks(observed: Counts, transitions: Sequence[Transition], *, sampling: bool = True) -> Floats:
    """Covariance of the estimated counts of the child's categories within each parent configuration.

    Args:
        observed: (K_parent_1, .., K_parent_Q, K_child), counts of released records.
        transitions: of each axis.
        sampling: Cov_total; else Cov_pram.

    Returns:
        (J, K, K), float64: block j is Cov[N^_j., N^_j.]; only these blocks are computed, J K^3 operations.
    """
    *parents, child = transitions
    n_states = observed.shape[-1]
    # Within one parent configuration the parents' part of z_y is a common factor, so it enters squared.
    squares: list[Floats | None] = [None if m is None else m**2 for m in inverse_matrices(parents)]
    weights = apply_axes(observed, [*squares, None]).reshape(-1, n_states)
    outer = np.einsum("yk,yl->ykl", child.inverse, child.inverse).reshape(n_states, -1)
    moment = (weights @ outer).reshape(-1, n_states, n_states)
    estimate = estimate_counts(observed, transitions).reshape(-1, n_states)
    if sampling:
        subtracted: Floats = estimate[:, :, None] * estimate[:, None, :] / max(float(observed.sum()), 1.0)
    else:
        subtracted = estimate[:, :, None] * np.eye(n_states)
    blocks: Floats = moment - subtracted
    return blocks
