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

Every function takes a `design.FamilyDesign`, in which several variables may share an axis, or the channels of columns that were
randomized one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verticil.shared.arrays import Counts, Floats
from verticil.shared.channels.channel import Channel
from verticil.shared.estimation.axes import apply_axes
from verticil.shared.estimation.design import Design, as_design


def inverse_matrices(channels: Sequence[Channel]) -> list[Floats | None]:
    """P^-1 of each axis; None where it is the identity."""
    return [None if channel.is_identity else channel.inverse for channel in channels]


def forward_matrices(channels: Sequence[Channel]) -> list[Floats | None]:
    """P of each axis; None where it is the identity."""
    return [None if channel.is_identity else channel.probabilities for channel in channels]


def estimate_counts(observed: Counts, design: Design) -> Floats:
    """The unbiased estimate of the true counts.

    Args:
        observed: one axis for each unit (of single columns: for each column), counts of released records.
        design: how they were randomized.

    Returns:
        (K_1, .., K_m), float64; sums to the observed sum within 1e-9 of it; cells may be negative.

    Raises:
        ValueError: the design does not fit the table.

    >>> from verticil.shared.channels.transition import binary, quantize
    >>> estimate_counts(np.array([64, 36]), [quantize(binary(0.1, 0.25))]).round(9).tolist()
    [60.0, 40.0]
    """
    return as_design(design).estimate(observed)


def variance_total(observed: Counts, design: Design) -> Floats:
    """Variance of each estimated count, over sampling the records and randomizing them: the diagonal of Cov_total.

    Args:
        observed, design: see `estimate_counts`.

    Returns:
        (K_1, .., K_m), float64, >= 0.
    """
    return as_design(design).variance_total(observed)


def variance_pram(observed: Counts, design: Design) -> Floats:
    """Variance of each estimated count over the randomization alone: the diagonal of Cov_pram, cut at 0.

    Args:
        observed, design: see `estimate_counts`.

    Returns:
        (K_1, .., K_m), float64, >= 0.
    """
    return as_design(design).variance_pram(observed)


def family_covariance_blocks(observed: Counts, design: Design, *, sampling: bool = True) -> Floats:
    """Covariance of the estimated counts of the child's categories within each parent configuration.

    Args:
        observed, design: see `estimate_counts`; the child is the last variable.
        sampling: Cov_total; else Cov_pram.

    Returns:
        (J, K, K), float64: block j is Cov[N^_j., N^_j.]; only these blocks are computed, J K^3 operations.
    """
    design = as_design(design)
    design.fits(observed)
    *others, last = design.axes
    n_states = design.shape[-1]
    # Within one parent configuration the other units' part of z_y is a common factor, so it enters squared.
    weights = apply_axes(observed, [*(axis.square for axis in others), None]).reshape(-1, last.n_entries)
    moment = (weights @ last.child_products()).reshape(*(axis.n_cells for axis in others), last.n_cells, n_states)
    moment = np.stack([design.arrange(moment[..., state]) for state in range(n_states)], axis=-1)
    estimate = design.estimate(observed).reshape(-1, n_states)
    if sampling:
        subtracted: Floats = estimate[:, :, None] * estimate[:, None, :] / max(float(observed.sum()), 1.0)
    else:
        subtracted = estimate[:, :, None] * np.eye(n_states)
    blocks: Floats = moment.reshape(-1, n_states, n_states) - subtracted
    return blocks
