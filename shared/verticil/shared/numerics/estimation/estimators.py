"""Estimates that are distributions: non-negative counts by constrained expectation-maximization, and one-way shares.

The inverse (`design`) is unbiased and may be negative; it is what is reported, with intervals. What is sampled from has to
be a distribution. The EM (iterative Bayesian update) maximizes the likelihood of the released counts f over true
distributions pi,

    pi <- pi * P (f / (P^T pi)),   P applied axis by axis,

which is the inverse wherever the inverse is positive, and stays on the boundary where it is not.

A Dirichlet prior (`prior_count` per cell) can enter in two places. `em_estimate`, which the product samples from, adds it once to
the counts that the EM ended with: the posterior mean, were these counts observed. `em_projection` with a prior is MAP-EM, in
which every step adds the prior's mass: the mode of the exact posterior. In small tables under strong noise MAP-EM has the smaller
Kullback-Leibler distance (randomization.md 1.3). In families of a thousand cells it does harm: the EM cannot tell the prior's
records from real ones that the noise moved, and multiplies them, so that rare categories grow (on the shipped federation at
epsilon 3 a category with a share of 0.0 % got 1.2 %). Measured there with fresh secrets, mean two-way distance MAP-EM / once:
.0382 / .0321 at epsilon 3, .0917 / .0912 at 1; with 2,000 people .0818 / .0742 and .187 / .195.

`ESTIMATORS` holds the ways from released counts to true ones that a study may name: ``em``, ``clip`` (negative counts become 0,
the others are rescaled), ``simplex`` (the nearest distribution by least squares), and ``inverse``, which projects nothing. All
are the same where the inverse is not negative. The other two projections are biased and noisier than EM where noise is strong
(randomization.md 1.3). Nothing here gives intervals: they come from the inverse, whichever estimator is chosen.

The likelihood of a subset column is a composite one: every member of a set counts as 1/w of a record of its own, as in `channel`.
Its maximum is consistent, and the inverse where that is positive; what members of one set tell together is not in a table.

Where units are compounds (`design`), the EM runs over their whole domains and is summed to the family's cells at the end; the
others project the family's cells. A cell that stands for an impossible combination is 0 and gets no prior mass. So is one that
rules leave impossible (`FamilyDesign.allowed`): the EM starts without it and stays so, ``simplex`` looks for the nearest among
distributions that have nothing there, and the other two rescale what is left to all people.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.mechanisms.channel import Channel
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.inverse_estimation import Design, FamilyDesign, as_design
from verticil.shared.numerics.estimation.unit_axis import UnitAxis

START_FLOOR = 1e-6
"""Share of the uniform distribution in each one-way start: EM keeps an exact zero for ever."""

_STAY: Final = 0.01
"""A share that the acceleration would make negative stays at this part of what it was."""


class Estimator(Protocol):
    """A way from the counts of released records to those of the true ones."""

    def __call__(self, table: Counts, design: Design, *, prior_count: float = 0.0) -> Floats:
        """Estimate the true counts.

        Args:
            table: one axis for each unit (of single columns: for each column), counts of released records.
            design: how they were randomized.
            prior_count: Dirichlet pseudo-count of every possible cell, >= 0.

        Returns:
            (K_1, .., K_m), float64; sums to the observed sum n, the prior's mass being scaled into it.

        Raises:
            ValueError: the design does not fit the table, or there is no record.
        """
        ...


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


def simplex(counts: Floats) -> Floats:
    """Return the nearest counts, by least squares, that are not negative and have the same sum; the sum must be
    positive.

    All cells are lowered by the same amount, and what would be negative is 0 (Held, Wolfe & Crowder, 1974): the amount follows
    from the sorted cells.

    Raises:
        ValueError: the sum is not positive.

    >>> simplex(np.array([-3.0, 4.0, 9.0])).tolist()
    [0.0, 2.5, 7.5]
    """
    if (total := float(counts.sum())) <= 0:
        raise ValueError(f"the counts sum to {total:g}, expected more than 0")
    if counts.min() >= 0:
        return counts.copy()
    descending = np.sort(counts, axis=None)[::-1]
    thresholds = (np.cumsum(descending) - total) / np.arange(1, counts.size + 1)
    n_positive = int(np.count_nonzero(descending > thresholds))
    nearest: Floats = np.maximum(counts - thresholds[n_positive - 1], 0.0)
    return nearest


def em_estimate(table: Counts, design: Design, *, prior_count: float = 0.0) -> Floats:
    """Estimate the most likely counts that are not negative (`em_projection`), the prior added once to them: see
    `Estimator`.
    """
    return _with_prior(em_projection(table, design), design, prior_count)


def _within(counts: Floats, design: Design) -> Floats:
    """Set to 0 what rules make impossible, and rescale the rest to the same sum."""
    possible = as_design(design).allowed
    if possible is None:
        return counts
    total, inside = float(counts.sum()), np.where(possible, counts, 0.0)
    if (mass := float(inside.sum())) <= 0:
        inside, mass = possible.astype(np.float64), float(possible.sum())
    return np.asarray(inside * (total / mass), dtype=np.float64)


def inverse_estimate(table: Counts, design: Design, *, prior_count: float = 0.0) -> Floats:
    """Estimate without bias (`FamilyDesign.estimate`), with a prior; cells may be negative: see `Estimator`."""
    return _with_prior(_within(_estimate_without_bias(table, design), design), design, prior_count)


def clip_projection(table: Counts, design: Design, *, prior_count: float = 0.0) -> Floats:
    """Estimate without bias, set the negative cells to 0 and rescale the others (`clip`): see `Estimator`."""
    return _with_prior(_within(clip(_estimate_without_bias(table, design)), design), design, prior_count)


def simplex_projection(table: Counts, design: Design, *, prior_count: float = 0.0) -> Floats:
    """Estimate the distribution that is nearest to the unbiased estimate by least squares (`simplex`): see `Estimator`."""
    counts, possible = _estimate_without_bias(table, design), as_design(design).allowed
    if possible is None:
        return _with_prior(simplex(counts), design, prior_count)
    inside, nearest = counts[possible], np.zeros_like(counts)
    nearest[possible] = simplex(inside + (float(counts.sum()) - float(inside.sum())) / inside.size)
    return _with_prior(nearest, design, prior_count)


def marginal_estimate(
    table: Counts,
    design: Channel | FamilyDesign,
    *,
    noise_variance: float = 0.0,
    people: float | None = None,
) -> tuple[Floats, Floats]:
    """Unbiased shares of one variable's categories, with standard errors of the total form.

    Args:
        table: (M,), counts of released records.
        design: the column's channel, or a design of this one variable.
        noise_variance: of independent noise that was added to every cell of `table`.
        people: how many were counted; None: the sum of `table`. With noise that sum is off by the noise of all cells, which
            no error of a single cell has in it, so it is nothing to divide by.

    Returns:
        share: (K,), sums to 1 if `people` is the sum, not clipped; standard_error: (K,).

    Raises:
        ValueError: there is no record.
    """
    n = people or float(table.sum())
    if n <= 0:
        raise ValueError("the table has no record")
    design = design if isinstance(design, FamilyDesign) else as_design([design])
    variance = design.variance_total(table)
    if noise_variance:
        variance = variance + noise_variance * design.noise_gain()
    return design.estimate(table) / n, np.sqrt(variance) / n


def em_projection(
    table: Counts,
    design: Design,
    *,
    iterations: int = 300,
    tolerance: float = 1e-7,
    prior_count: float = 0.0,
) -> Floats:
    """Estimate the most likely (with a prior: most probable) true counts that are not negative.

    Starts at the product of the clipped one-way estimates of the units. A column that is not randomized stays as it was observed,
    up to the prior.

    Args:
        table: one axis for each unit (of single columns: for each column), counts of released records.
        design: how they were randomized.
        iterations: at most so many steps.
        tolerance: stop when no cell's probability changes by more.
        prior_count: Dirichlet pseudo-count of every possible cell, >= 0; the combinations that make up a cell share its.

    Returns:
        (K_1, .., K_m), float64, >= 0; sums to the observed sum n. With a prior, the counts are n times the posterior mode:
        (expected count + prior_count) n / (n + prior_count cells).

    Raises:
        ValueError: the design does not fit the table, or there is no record.

    >>> from verticil.shared.mechanisms.transition import binary, quantize
    >>> em_projection(np.array([10, 90]), [quantize(binary(0.25, 0.25))]).round(3).tolist()
    [0.0, 100.0]
    """
    n = float(table.sum())
    if n <= 0:
        raise ValueError("the table has no record")
    design = as_design(design)
    design.fits(table)
    spread = [axis.spread for axis in design.axes]
    shares = table / n
    prior = _prior_table(spread, prior_count / n)
    possible = design.allowed_categories
    if possible is not None:
        prior = np.asarray(prior * possible, dtype=np.float64)
    scale = 1 / (1 + prior_count / n * _n_possible(design))
    forward = [None if axis.forward is None else axis.forward[None] for axis in design.axes]
    if all(matrix is None for matrix in forward):
        start_shares = shares if possible is None else np.where(possible, shares, 0.0)
        if possible is not None:
            start_shares = start_shares / start_shares.sum() if start_shares.any() else possible / possible.sum()
        estimate = (start_shares + prior) * (scale * n)
    else:
        start = em_start(table, design)[None, None]
        estimate = (
            n
            * em_tables(
                shares[None, None],
                start,
                forward,
                steps=iterations,
                tolerance=tolerance,
                accelerate=False,
                prior=prior,
                scale=scale,
            )[0, 0]
        )
    return design.arrange(estimate if all(matrix is None for matrix in spread) else apply_axes(estimate, spread))


def em_tables(
    shares: Floats,
    start: Floats,
    forward: Sequence[Floats | None],
    *,
    steps: int,
    tolerance: float = 1e-7,
    accelerate: bool,
    prior: Floats | float = 0.0,
    scale: float = 1.0,
) -> Floats:
    """Run the EM for m designs of one shape with r tables each, every design until its tables stand still.

    Accelerated (SQUAREM; Varadhan & Roland, 2008), after every two steps each table goes on in their direction, as far as their
    lengths say, and a third step follows. Such a step does what ten or more plain ones do: under strong noise many plain steps
    from the start, where all variables are independent, still lead only half-way to a strong link.

    Args:
        shares: (m, r, M_1, ..), shares of the released entries.
        start: (m, r, D_1, ..), shares of the categories, see `em_start`.
        forward: for each axis (m, D, M), or None for the identity.
        steps: at most so many, of all kinds together.
        tolerance: stop when no share changes by more in a step.
        accelerate: or plain.
        prior: added to every step, of which then `scale` is the sum's inverse.
    """
    estimates = start.copy()
    active = np.arange(len(start))
    matrices = list(forward)
    current, axes = start, tuple(range(2, start.ndim))

    def step(tables: Floats) -> Floats:
        released_shares = along(tables, matrices)
        ratio = np.divide(shares, released_shares, out=np.zeros_like(shares), where=released_shares > 0)
        new = tables * along(ratio, [None if matrix is None else matrix.swapaxes(1, 2) for matrix in matrices])
        new /= new.sum(axis=axes, keepdims=True)  # rounding; also where a released cell is impossible under the start
        return (new + prior) * scale

    for n_done in range(0, steps, 3 if accelerate else 1):
        new = step(current)
        change = np.abs(new - current).max(axis=tuple(range(1, new.ndim)))
        if accelerate:
            first, new = new - current, step(new)
            second = new - current - 2 * first
            length = np.sqrt((first**2).sum(axis=axes, keepdims=True))
            bend = np.sqrt((second**2).sum(axis=axes, keepdims=True))
            far = np.maximum(np.divide(length, bend, out=np.ones_like(length), where=bend > 0), 1.0)
            ahead = current + 2 * far * first + far**2 * second
            ahead = np.where(ahead > 0, ahead, _STAY * new)
            new = step(ahead / ahead.sum(axis=axes, keepdims=True))
        still = (change < tolerance) | (n_done + (3 if accelerate else 1) >= steps)
        if still.any():
            estimates[active[still]] = new[still]
            if still.all():
                break
            active, new, shares = active[~still], new[~still], shares[~still]
            matrices = [None if matrix is None else matrix[~still] for matrix in matrices]
        current = new
    return estimates


def along(tables: Floats, matrices: Sequence[Floats | None]) -> Floats:
    """`axes.apply_axes` for m designs with r tables each, (m, r, ..): every design with matrices of its own, (m, S, T)."""
    for place, matrix in enumerate(matrices):
        if matrix is not None:
            there, back = _to_the_end(tables.ndim, place + 2)
            front = tables.transpose(there)
            product = front.reshape(len(front), -1, front.shape[-1]) @ matrix
            tables = product.reshape(*front.shape[:-1], -1).transpose(back)
    return tables


@functools.cache
def _to_the_end(n_axes: int, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the order of axes with one of them last, and the order that undoes it, which `np.moveaxis` finds anew each time.

    >>> _to_the_end(4, 1)
    ((0, 2, 3, 1), (0, 3, 1, 2))
    """
    others = [place for place in range(n_axes) if place != axis]
    return (*others, axis), (*range(axis), n_axes - 1, *range(axis, n_axes - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorChoice:
    """An estimator as a study names it.

    Attributes:
        estimate: the estimator.
        counts: what its counts are, for who reads the model.
        words: the same for who reads the report, beside the unbiased counts.
    """

    estimate: Estimator
    counts: str
    words: str


ESTIMATORS: Final[dict[str, EstimatorChoice]] = {
    "em": EstimatorChoice(
        estimate=em_estimate,
        counts="the most likely counts that are not negative, by constrained EM",
        words="the most probable counts that are not negative (constrained EM, with a prior)",
    ),
    "inverse": EstimatorChoice(
        estimate=inverse_estimate,
        counts="the unbiased counts, none of which is negative",
        words="the same counts (a study that asks for this ends where one is negative)",
    ),
    "clip": EstimatorChoice(
        estimate=clip_projection,
        counts="the unbiased counts, negative ones set to 0 and the others rescaled",
        words="the same counts with the negative ones set to zero and the others rescaled",
    ),
    "simplex": EstimatorChoice(
        estimate=simplex_projection,
        counts="the nearest counts to the unbiased ones that are not negative, by least squares",
        words="the nearest counts that are not negative (least squares)",
    ),
}
"""By the names that a study has for them."""


def _estimate_without_bias(table: Counts, design: Design) -> Floats:
    if float(table.sum()) <= 0:
        raise ValueError("the table has no record")
    return as_design(design).estimate(table)


def _with_prior(counts: Floats, design: Design, prior_count: float) -> Floats:
    """Add the prior's mass and scale back to the sum: the posterior mean, were the counts observed ones."""
    if prior_count == 0:
        return counts
    n = float(counts.sum())
    possible = as_design(design).possible
    if possible is None:
        return (counts + prior_count) * (n / (n + prior_count * counts.size))
    return (counts + prior_count * possible) * (n / (n + prior_count * int(possible.sum())))


def _n_possible(design: FamilyDesign) -> int:
    possible = design.possible
    return math.prod(design.shape) if possible is None else int(possible.sum())


def _prior_table(spread: list[Floats | None], mass: float) -> Floats | float:
    """Return the prior of every category: `mass` for each cell, in equal parts for the categories that are that cell."""
    if all(matrix is None for matrix in spread):
        return mass
    table = np.full((1,) * len(spread), mass)
    for axis, matrix in enumerate(spread):
        if matrix is not None:
            part = 1 / (matrix @ matrix.sum(axis=0))
            table = table * part.reshape([-1 if other == axis else 1 for other in range(len(spread))])
    return table


def em_start(table: Counts, design: FamilyDesign) -> Floats:
    """Return where the EM starts: shares of the units' categories, the product of the units' clipped one-way estimates."""
    start = np.ones((1,) * table.ndim)
    for place, axis in enumerate(design.axes):
        others = tuple(other for other in range(table.ndim) if other != place)
        share = clip(_one_way(table.sum(axis=others), axis))
        share = (1 - START_FLOOR) * share / share.sum() + START_FLOOR / share.size
        start = start * share.reshape([-1 if other == place else 1 for other in range(table.ndim)])
    if (possible := design.allowed_categories) is not None:
        start = start * possible
    start /= start.sum()
    return start


def _one_way(table: Counts, axis: UnitAxis) -> Floats:
    return apply_axes(table, [axis.restore])
