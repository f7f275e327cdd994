"""How much two variables tell about each other, estimated from randomized columns.

Two questions, answered by different numbers:

- *Is there anything?* A test of independence: `independence`.
- *How much?* The mutual information of the released pair is attenuated and useless as a value. The corrected table (the unbiased
  estimate, negative cells cut to 0, scaled to sum 1) has it, biased upward by the noise; the bias is taken off.

A pair that fails the test, or whose information does not exceed its bias, has information 0.

The bias, to second order, with f the released shares, Q the inverse, Q2 its second moments (`Channel.inverse_square`) and p the
corrected one-way shares, for two units:

    a^T f b / 2n,    a_u = sum_x (Q2[u, x] - 2 p_x Q[u, x] + p_x^2) / max(p_x, 3 sd(p_x)),    b the same of the other;

without randomization it is the familiar (K_a - 1)(K_b - 1) / 2n. The floor under p_x is needed: without it one rare category,
whose share is uncertain beyond its size, makes the bias of every pair of its variable so large that no edge is left. In one unit
the bias is sum_xy Var(D_xy) / (2 n^2 p_x p_y), with the same floors.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.estimation.axes import Counts
from verticil.shared.estimation.design import Design, FamilyDesign, UnitAxis
from verticil.shared.estimation.independence import as_pair, dependence_p_value, kronecker_product

__all__ = [
    "category_noise",
    "pair_bias",
    "pair_information",
    "plug_in_information",
]

Floats = NDArray[np.float64]

FLOOR_DEVIATIONS: Final = 3.0
"""A share counts as at least this many of its standard deviations where the bias divides by it."""


def pair_information(observed: Counts, design: Design, *, level: float, noise_variance: float = 0.0) -> float:
    """The mutual information of two variables.

    Args:
        observed: counts of released records (`contingency.family_counts`): one axis for each unit, in the design's order.
        design: of the two variables, or the channels of both columns.
        level: of the test of independence.
        noise_variance: of independent noise that was added to every cell of `observed`, which may then be negative.

    Returns:
        Nats; 0 where the test does not reject, or the information does not exceed its bias.

    Raises:
        ValueError: the design does not fit the table, or is not one of two variables.
    """
    design = as_pair(design)
    if not dependence_p_value(observed, design, noise_variance=noise_variance) < level:
        return 0.0
    bias = pair_bias(observed, design, noise_variance=noise_variance)
    return max(plug_in_information(design.estimate(observed)) - bias, 0.0)


def plug_in_information(table: Counts) -> float:
    """Mutual information of a table, nats; negative cells count as 0, the rest is scaled to sum 1.

    >>> round(plug_in_information(np.array([[50, 0], [0, 50]])), 6)  # ln 2
    0.693147
    """
    cells = np.maximum(table, 0.0)
    total = cells.sum()
    if total <= 0:
        return 0.0
    cells = cells / total
    product = np.outer(cells.sum(axis=1), cells.sum(axis=0))
    filled = cells > 0
    return float((cells[filled] * np.log(cells[filled] / product[filled])).sum())


def pair_bias(observed: Counts, design: Design, *, noise_variance: float = 0.0) -> float:
    """What sampling and randomization add to the mutual information of the corrected table, to second order, nats.

    Args:
        observed, design, noise_variance: see `pair_information`.
    """
    design = as_pair(design)
    design.fits(observed)
    n = float(observed.sum())
    if n <= 0:
        return 0.0
    if len(design.axes) == 1:
        return _bias_inside(observed, design, noise_variance)
    first, second = design.axes
    rating_a = category_noise(observed.sum(axis=1), first, noise_variance * second.n_entries)
    rating_b = category_noise(observed.sum(axis=0), second, noise_variance * first.n_entries)
    bias = float(rating_a @ (observed / n) @ rating_b) / (2 * n)
    if noise_variance:
        gains = [
            _noise_rating(counts, axis, noise_variance * other.n_entries)
            for counts, axis, other in ((observed.sum(axis=1), first, second), (observed.sum(axis=0), second, first))
        ]
        bias += noise_variance * gains[0] * gains[1] / (2 * n * n)
    return bias


def category_noise(counts: Counts, axis: UnitAxis, noise_variance: float = 0.0) -> Floats:
    """The vector a of the module's formula: how much one released entry adds to the bias of its variable's pairs.

    Args:
        counts: (M,), released records of the column.
        axis: the column's, with the one variable as its cells.
        noise_variance: of noise on each of the counts.

    Returns:
        (M,).
    """
    share, weight = _shares_and_weights(counts, axis, noise_variance)
    inverse = axis.dense_inverse
    if axis.is_linear:
        return np.asarray((inverse - share) ** 2 @ weight, dtype=np.float64)
    square = inverse if axis.square is None else axis.square
    return np.asarray((square - 2 * share * inverse + share**2) @ weight, dtype=np.float64)


def _shares_and_weights(counts: Counts, axis: UnitAxis, noise_variance: float) -> tuple[Floats, Floats]:
    """The corrected shares of a variable, and one over their floored values."""
    n = max(float(counts.sum()), 1.0)
    released = counts / n
    inverse, square = axis.dense_inverse, axis.square
    share = released @ inverse
    moment = released if square is None else released @ square
    if noise_variance:
        moment = moment + noise_variance / n * (inverse**2).sum(axis=0)
    deviation = np.sqrt(np.maximum(moment - share**2, 0.0) / n)
    return share, _one_over_floor(share, deviation)


def _one_over_floor(share: Floats, deviation: Floats) -> Floats:
    floor = np.maximum(share, FLOOR_DEVIATIONS * deviation)
    # A share of exactly 0 without noise: the category never occurs and adds nothing.
    return np.divide(1.0, floor, out=np.zeros_like(floor), where=floor > 0)


def _noise_rating(counts: Counts, axis: UnitAxis, noise_variance: float) -> float:
    share, weight = _shares_and_weights(counts, axis, noise_variance)
    return float(((axis.dense_inverse - share) ** 2).sum(axis=0) @ weight)


def _bias_inside(observed: Counts, design: FamilyDesign, noise_variance: float) -> float:
    """The bias where both variables are in one unit."""
    (axis,) = design.axes
    n = float(observed.sum())
    noise = noise_variance / n
    released, inverse = observed / n, axis.dense_inverse
    size_a, size_b = axis.shape
    sums = (
        kronecker_product(np.eye(size_a), np.ones((size_b, 1))),
        kronecker_product(np.ones((size_a, 1)), np.eye(size_b)),
    )
    shares: list[Floats] = []
    weights: list[Floats] = []
    for cells in sums:
        share = released @ inverse @ cells
        moment = released @ axis.products(cells, cells) + noise * ((inverse @ cells) ** 2).sum(axis=0)
        shares.append(share)
        weights.append(_one_over_floor(share, np.sqrt(np.maximum(moment - share**2, 0.0) / n)))
    centred = kronecker_product(
        *(np.eye(len(share)) - share for share in shares)
    )  # z @ centred: what one record adds to D
    variance = released @ axis.products(centred, centred) + noise * ((inverse @ centred) ** 2).sum(axis=0)
    if axis.possible is not None:
        variance = variance * axis.possible
    return float(variance @ kronecker_product(*weights)) / (2 * n)
