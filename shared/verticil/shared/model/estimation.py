"""Estimates that are distributions: non-negative counts by constrained expectation-maximization, and one-way shares.

The inverse (`kronecker`) is unbiased and may be negative; it is what is reported, with intervals. What is sampled from has to
be a distribution. The EM (iterative Bayesian update) maximizes the likelihood of the released counts f over true
distributions pi,

    pi <- pi * P (f / (P^T pi)),   P applied axis by axis,

which is the inverse wherever the inverse is positive, and stays on the boundary where it is not. With a Dirichlet prior
(`prior_count` per cell) it is MAP-EM: each step adds the prior's mass. Clipping the inverse at zero instead is biased and
noisier. Nothing here gives intervals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verticil.shared.model.kronecker import Counts, apply_axes, estimate_counts, forward_matrices, variance_total
from verticil.shared.model.transition import Transition

__all__ = ["clip", "em_projection", "marginal_estimate"]

Floats = NDArray[np.float64]

START_FLOOR = 1e-6
"""Share of the uniform distribution in each one-way start: EM keeps an exact zero for ever."""


def clip(counts: Floats) -> Floats:
    """Set negative counts to 0 and rescale to the sum that they had; a table without positive cells becomes uniform.

    >>> clip(np.array([-3.0, 13.0])).tolist()
    [0.0, 10.0]
    """
    positive = np.maximum(counts, 0.0)
    total = float(counts.sum())
    if (mass := float(positive.sum())) <= 0 or total <= 0:
        return np.full(counts.shape, max(total, 0.0) / counts.size)
    return positive * (total / mass)


def marginal_estimate(observed: Counts, transition: Transition) -> tuple[Floats, Floats]:
    """Unbiased shares of one variable's categories, with standard errors of the total form.

    Args:
        observed: (K,), counts of released records.
        transition: of the column.

    Returns:
        share: (K,), sums to 1, not clipped; standard_error: (K,).

    Raises:
        ValueError: there is no record.
    """
    if (n := float(observed.sum())) <= 0:
        raise ValueError("the table has no record")
    return estimate_counts(observed, [transition]) / n, np.sqrt(variance_total(observed, [transition])) / n


def em_projection(
    observed: Counts,
    transitions: Sequence[Transition],
    *,
    iterations: int = 300,
    tolerance: float = 1e-7,
    prior_count: float = 0.0,
) -> Floats:
    """The most likely (with a prior: most probable) true counts that are not negative.

    Starts at the product of the clipped one-way estimates. A column that is not randomized stays as it was observed, up to
    the prior.

    Args:
        observed: (K_1, .., K_m), counts of released records.
        transitions: of each axis.
        iterations: at most so many steps.
        tolerance: stop when no cell's probability changes by more.
        prior_count: Dirichlet pseudo-count of every cell, >= 0.

    Returns:
        (K_1, .., K_m), float64, >= 0; sums to the observed sum n. With a prior, the counts are n times the posterior mode:
        (expected count + prior_count) n / (n + prior_count cells).

    Raises:
        ValueError: the transitions do not fit the table, or there is no record.

    >>> from verticil.shared.model.transition import binary, quantize
    >>> em_projection(np.array([10, 90]), [quantize(binary(0.25, 0.25))]).round(3).tolist()
    [0.0, 100.0]
    """
    n = float(observed.sum())
    if n <= 0:
        raise ValueError("the table has no record")
    if len(transitions) != observed.ndim:
        raise ValueError(f"{len(transitions)} transitions for a table of {observed.ndim} axes")
    forward = forward_matrices(transitions)
    backward = [None if matrix is None else np.ascontiguousarray(matrix.T) for matrix in forward]
    released = observed / n
    prior = prior_count / n
    scale = 1 / (1 + prior * observed.size)
    if all(matrix is None for matrix in forward):
        return (released + prior) * (scale * n)
    current = _start(observed, transitions)
    for _ in range(iterations):
        expected = apply_axes(current, forward)
        ratio = np.divide(released, expected, out=np.zeros_like(released), where=expected > 0)
        step = current * apply_axes(ratio, backward)
        step *= 1 / step.sum()  # rounding; also where a released cell is impossible under the start
        if prior:
            step = (step + prior) * scale
        change = float(np.abs(step - current).max())
        current = step
        if change < tolerance:
            break
    return current * n


def _start(observed: Counts, transitions: Sequence[Transition]) -> Floats:
    start = np.ones((1,) * observed.ndim)
    for axis, transition in enumerate(transitions):
        others = tuple(other for other in range(observed.ndim) if other != axis)
        share = clip(estimate_counts(observed.sum(axis=others), [transition]))
        share = (1 - START_FLOOR) * share / share.sum() + START_FLOOR / share.size
        start = start * share.reshape([-1 if other == axis else 1 for other in range(observed.ndim)])
    start /= start.sum()
    return start
