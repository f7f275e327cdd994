"""A family's conditional probabilities with their uncertainty, and one-way shares.

Two answers for every cell. `probability`, what is sampled from: by the counts of the EM, or of another estimator that is asked
for, leaning on families with fewer parents (`parent_smoothing`) or, where a study says so, with a Dirichlet prior in every cell
(`estimators.em_estimate` says why it is added once); always a distribution.
`estimate`: the ratio of unbiased counts N^_jk / N^_j, with a standard error by the delta method from the exact covariance
(sampling and randomization; Ma & Sivakumar, section 5). With theta = N^_jk / N^_j, m_jy = sum of the released counts with
child category y, weighted by the squares of the parents' inverses at j, and z the child's P^-1,

    Var(theta_jk) = sum_y m_jy (z_yk - theta_jk)^2 / N^_j^2,

which is G C_jj G^T of the covariance blocks written out (the term N^ N^^T / n drops out: the estimate is a ratio).

Where the child is in one compound with parents (`design`), both z_jk and z_j vary with that compound's entry y, and

    Var(theta_jk) = sum_y m_jy (z_jky^2 - 2 theta_jk z_jky z_jy + theta_jk^2 z_jy^2) / N^_j^2,

z_j the sum of z_jk over k, m_jy as before from the other units. Independent noise of variance s that was added to the observed
table adds the same expression with s in the place of every released count.

A cell that rules leave impossible is 0, with no error; N^_j is then the sum over the other cells, and z_j that of their z
(where the child has an axis of its own and one entry a record; else all cells', which makes errors rather too large).

Intervals are conditional on the structure and cut to [0, 1] at the end, never before. Where anything is randomized they are Wald
intervals; where nothing is, Wilson's score intervals (1927), because Wald's cover far too little in cells of a few people (.14 of
.95 at worst, and no width at all where no record is in the cell). Of 2,000 records, Wilson's of 95 % cover .93 to .97 in every
cell that 6 people or more are expected in. A configuration whose estimated count is below three of its standard deviations is
unstable and has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.mechanisms.channel import Channel
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import Estimator, clip, em_estimate, marginal_estimate
from verticil.shared.numerics.estimation.inverse_estimation import Design, FamilyDesign, as_design
from verticil.shared.numerics.estimation.parent_smoothing import backed_off
from verticil.shared.numerics.estimation.suppression import pooled_rows, pooled_shares
from verticil.shared.numerics.model.network import Family, Marginal, Projection

UNSTABLE_BELOW = 3.0
"""Standard deviations of a parent configuration's estimated count."""

_ROUNDING = 1e-9
"""Share of the records: a count of zero that went through the inverse of another axis is zero only up to rounding."""


def family_parameters(
    observed_table: Counts,
    design: Design,
    child: int,
    parents: Sequence[int],
    *,
    prior_count: float | None,
    level: float,
    estimator: Estimator = em_estimate,
    noise_variance: float = 0.0,
    minimum_count: int = 0,
) -> Family:
    """Estimate the conditional probabilities of one variable.

    Args:
        observed_table: counts of released records, one axis for each unit of the design; of single columns
            (K_parent_1, .., K_parent_Q, K_child), parents ascending.
        design: how the family was randomized; for single columns the channel of each axis will do.
        child: position of the variable in the schema.
        parents: positions of its parents, ascending.
        prior_count: Dirichlet pseudo-count of every possible cell, for `probability` only; None: `parent_smoothing`.
        level: of the intervals.
        estimator: of the counts behind `probability`; the estimate and its intervals are the inverse's with any.
        noise_variance: of independent noise that was added to every cell of `observed_table`, which may then be negative; the
            estimator gets it with negative cells cut to 0.
        minimum_count: a probability that rests on an estimate of fewer people is replaced (`backoff`); 0: none is.

    Raises:
        ValueError: the shapes do not fit, there is no record, or the estimator gives a negative probability.
    """
    n_axes = len(parents) + 1
    design = design if isinstance(design, FamilyDesign) or len(design) != n_axes else as_design(design)
    if not isinstance(design, FamilyDesign) or len(design.shape) != n_axes or observed_table.ndim != len(design.axes):
        n_columns = len(design.axes if isinstance(design, FamilyDesign) else design)
        raise ValueError(
            f"family of variable {child}: {observed_table.ndim} axes and {n_columns} transitions, "
            f"expected {n_axes} for its {len(parents)} parents"
        )
    n_states = design.shape[-1]
    n = max(float(observed_table.sum()), 1.0) if noise_variance else float(observed_table.sum())
    counts = design.estimate(observed_table).reshape(-1, n_states)
    possible_cells = None if design.allowed is None else design.allowed.reshape(-1, n_states)
    if possible_cells is not None:
        counts = np.where(possible_cells, counts, 0.0)
    possible = None if design.possible is None else design.possible.reshape(-1, n_states)
    table = estimator(
        _cut(observed_table) if noise_variance else observed_table, design, prior_count=prior_count or 0.0
    )
    fit = table.reshape(-1, n_states)
    if prior_count is None:
        probability = backed_off(table, design)
        fit = fit.sum(axis=1, keepdims=True) * probability
    else:
        probability = _conditional(fit, possible)
    totals = counts.sum(axis=1)
    deviation = _parents_deviation(observed_table, design, noise_variance)
    present = totals > _ROUNDING * n
    unstable = np.repeat((~present | (totals < UNSTABLE_BELOW * deviation))[:, None], n_states, axis=1)
    divisor = np.where(present, totals, np.nan)[:, None]
    estimate = counts / divisor
    standard_error = _standard_error(observed_table, design, estimate, divisor, noise_variance)
    in_pool = None
    exact = _is_exact(design, noise_variance)
    low, high = _interval(estimate, standard_error, level, divisor if exact else None)
    if possible_cells is not None:
        standard_error, low, high = (
            np.where(possible_cells | ~present[:, None], array, 0.0) for array in (standard_error, low, high)
        )
    if minimum_count:
        probability, in_pool, factor = pooled_rows(probability, counts, fit.sum(axis=0), possible, minimum_count)
        unstable = unstable | in_pool
        estimate, standard_error, low, high = (
            np.where(in_pool, np.nan, array * factor[:, None]) for array in (estimate, standard_error, low, high)
        )
    return Family(
        child=child,
        parents=tuple(parents),
        probability=probability,
        estimate=estimate,
        standard_error=standard_error,
        interval_low=np.where(unstable, np.nan, np.clip(low, 0.0, 1.0)),
        interval_high=np.where(unstable, np.nan, np.clip(high, 0.0, 1.0)),
        unstable=unstable,
        projection=Projection(
            mass_moved=float(np.abs(counts - fit).sum()) / (2 * n),
            negative_cells=int(np.count_nonzero(counts < -_ROUNDING * n)),
        ),
        replaced=in_pool,
    )


def marginal_parameters(
    table: Counts,
    design: Channel | FamilyDesign,
    *,
    variable: int,
    model: Floats,
    level: float,
    noise_variance: float = 0.0,
    people: float | None = None,
    minimum_count: int = 0,
) -> Marginal:
    """Estimate one variable's shares.

    Args:
        table: (M,), counts of released records.
        design: the column's channel, or a design of this one variable.
        variable: position in the schema.
        model: (K,), the network's own shares (`network_marginals`).
        level: of the intervals.
        noise_variance, minimum_count: see `family_parameters`; what is replaced there has no estimate and no interval here.
        people: see `marginal_estimate`; to be given with noise.

    Raises:
        ValueError: there is no record.
    """
    share, standard_error = marginal_estimate(table, design, noise_variance=noise_variance, people=people)
    if minimum_count:
        in_pool = pooled_shares(np.maximum(share, 0.0), share * (people or float(table.sum())), None, minimum_count)[1]
        share, standard_error = (np.where(in_pool, np.nan, array) for array in (share, standard_error))
    each = design if isinstance(design, FamilyDesign) else as_design([design])
    exact = _is_exact(each, noise_variance)
    low, high = _interval(share, standard_error, level, np.float64(table.sum()) if exact else None)
    return Marginal(
        variable=variable,
        estimate=share,
        standard_error=standard_error,
        interval_low=np.clip(low, 0.0, 1.0),
        interval_high=np.clip(high, 0.0, 1.0),
        model=model,
    )


def joint_shares(
    table: Counts,
    design: FamilyDesign,
    *,
    level: float,
    noise_variance: float = 0.0,
    people: float | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Unbiased shares of the combinations of some variables, with intervals that all hold together.

    Args:
        table: counts of released records.
        design: how they were randomized.
        level: of all intervals of the table together, by Bonferroni.
        noise_variance: of independent noise that was added to every cell of `table`.
        people: see `marginal_estimate`; to be given with noise.

    Returns:
        Shares, lower and upper ends, all of `design.shape`; 0 where rules leave nothing possible. Where a column is randomized a
        cell's variance is at least what it would be with one person in it.

    Raises:
        ValueError: there is no record.
    """
    share, _ = marginal_estimate(table, design, people=people)
    n = people or float(table.sum())
    exact = _is_exact(design, noise_variance)
    noise = noise_variance * design.noise_gain() if noise_variance else 0.0
    error = np.sqrt(np.maximum(design.variance_total(table), 1.0) + noise) / n
    each = 1 - (1 - level) / share.size
    low, high = _interval(share, error, each, np.float64(n) if exact else None)
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    if (possible := design.allowed) is not None:
        share, low, high = (np.where(possible, array, 0.0) for array in (share, low, high))
    return share, low, high


def _cut(table: Counts) -> Floats:
    """Noisy counts without negative cells, of the same sum; where nothing is left of them, one record in every cell."""
    cut = clip(np.asarray(table, dtype=np.float64))
    return cut if cut.sum() > 0 else np.ones(table.shape)


def _conditional(counts: Floats, possible: NDArray[np.bool_] | None) -> Floats:
    """Rows to sum 1: (J, K); a parent configuration without mass gets the child's marginal, as far as it is possible there."""
    totals = counts.sum(axis=1, keepdims=True)
    marginal = counts.sum(axis=0) / counts.sum()
    if possible is not None:
        marginal = marginal * (possible | ~possible.any(axis=1, keepdims=True))
        is_empty = marginal.sum(axis=1, keepdims=True) == 0
        marginal = np.where(is_empty, possible, marginal)
        marginal /= marginal.sum(axis=1, keepdims=True)
    rows: Floats = np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), marginal)
    return rows


def _parents_deviation(table: Counts, design: FamilyDesign, noise_variance: float) -> Floats:
    """Standard deviation of the estimated count of each parent configuration: (J,)."""
    if len(design.shape) == 1:  # all records are in the one configuration; noise moves their number
        return np.full(1, math.sqrt(noise_variance * float(design.released_shape[-1])))
    of_parents = design.parents
    variance = of_parents.variance_total(design.parents_table(table))
    if noise_variance:
        alone = len(design.axes[-1].members) == 1  # then `parents_table` adds the noise of the child's entries
        variance = variance + noise_variance * (design.released_shape[-1] if alone else 1) * of_parents.noise_gain()
    deviation: Floats = np.sqrt(variance).reshape(-1)
    return deviation


def _standard_error(
    observed_table: Counts, design: FamilyDesign, estimate: Floats, divisor: Floats, noise_variance: float
) -> Floats:
    *others, last = design.axes
    if last.members[-1] != len(design.shape) - 1:
        raise ValueError("the child is not the last variable of the last axis")
    weights = apply_axes(observed_table, [*(axis.square for axis in others), None]).reshape(-1, last.n_entries)
    possible = design.allowed_cells
    # Of each row, which part of an entry's weights is in cells that can be: (J, M).
    inside = None
    if possible is not None and len(last.members) == 1 and last.is_linear:
        inside = possible.reshape(-1, last.n_cells).astype(np.float64) @ last.dense_inverse.T
    # The square, multiplied out: three passes over the table in place of one over J x K x K.
    if inside is not None:
        moment = weights if last.square is None else weights @ last.square
        cross, row_sums = (weights * inside) @ last.dense_inverse, (weights * inside**2).sum(axis=1, keepdims=True)
    elif len(last.members) == 1:
        moment, cross = (weights if matrix is None else weights @ matrix for matrix in (last.square, last.inverse))
        row_sums = weights.sum(axis=1, keepdims=True)
    else:
        moment, cross, row_sums = (weights @ matrix for matrix in last.ratio_moments())
    if noise_variance:
        gain = noise_variance * np.ones(())
        for axis in others:
            each = np.ones(axis.n_cells) if axis.inverse is None else (axis.inverse**2).sum(axis=0)
            gain = np.multiply.outer(gain, each)
        of_moment, of_cross, of_summed = last.ratio_gains()
        if inside is not None:
            of_cross, of_summed = inside @ last.dense_inverse, (inside**2).sum(axis=1, keepdims=True)
        moment = moment + gain.reshape(-1, 1) * of_moment
        cross = cross + gain.reshape(-1, 1) * of_cross
        row_sums = row_sums + gain.reshape(-1, 1) * of_summed

    def rows(table: Floats) -> Floats:
        cells = np.broadcast_to(table, (len(weights), last.n_cells)).reshape([axis.n_cells for axis in design.axes])
        return design.arrange(cells).reshape(estimate.shape)

    square = rows(moment) - 2 * estimate * rows(cross) + estimate**2 * rows(row_sums)
    error: Floats = np.sqrt(np.maximum(square, 0.0)) / divisor
    return error


def _is_exact(design: FamilyDesign, noise_variance: float) -> bool:
    return not noise_variance and all(axis.channel.is_identity for axis in design.axes)


def _interval(
    estimate: Floats, standard_error: Floats, level: float, n: Floats | np.float64 | None
) -> tuple[Floats, Floats]:
    """Return the interval, not cut: Wald's; Wilson's where the estimate is a share of `n` records that were counted as
    they are.
    """
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    if n is None:
        half = quantile * standard_error
        return estimate - half, estimate + half
    pull = quantile**2 / n
    middle = (estimate + pull / 2) / (1 + pull)
    half = np.sqrt(pull * (estimate * (1 - estimate) + pull / 4)) / (1 + pull)
    # No rounding error where nobody or everybody is in the cell: its share can be 0, or 1.
    return np.where(estimate == 0, 0.0, middle - half), np.where(estimate == 1, 1.0, middle + half)
