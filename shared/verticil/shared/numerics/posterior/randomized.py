"""Families of which the true counts are not known: scores by as many records as are left, and true counts drawn given released
ones.

Scores. Counts that were corrected for randomization are no data: their noise looks like dependence, and a score that takes
them for data finds it with near certainty (of three variables, two of them dependent, 5,000 people at epsilon 1: a total
variation of .89 to the exact posterior). With N^ the EM-corrected counts of a family, f as much of a record as the
randomization leaves for its interaction, and ls the Dirichlet score or BDeu (`local_scores`), one parent b more is worth

    t(S) = ls(f N^; S) - ls(f N^; no parents),    f = product of phi_v over the family,
    phi_v = (sum_xy p_x P_xy^2 / q_y - 1) / (K - 1),    q = p P,

phi_v the mean share of a column's contrasts that the randomization leaves: the chi-square of released with true categories
over its largest value (for equally frequent ones the square of `contrast_factor`). What some of the parents tell without the
others is less blurred than what all tell together, so each part of a family is worth what its own columns leave of it. A set S of
parents of v is worth the most of

    s(S - u) + t(S) - t(S - u)                                             for a parent u: v and u apart, given the others;
    s(S - u) + s(S - w) - s(S - u - w) + t(S) - t(S - u) - t(S - w) + t(S - u - w) - e(u, w | S - u - w)
                                                                           for two parents u, w that are apart, given the others,

s of smaller sets at the f of their own families, and e(u, w | R) = [s_w(R + u) - s_w(R)] - [t_w(R + u) - t_w(R)] what the link
between the two has more at its own f than at the family's. The first alone would charge an independent second parent for the
noise of the first, and find a link between them to get out of it (.1 exactly, and 1.00). Without randomization f = 1, everything
cancels, and the score is exact up to a constant of each variable.

All scores by family compare links at the noise of their own columns, and none can say what a noisy column tells of another one:
where columns are few, graphs are sampled with the true counts instead (`released`), which is exact.

Probabilities. Given the graph, the true counts X of a family and the shares pi of its cells are drawn in turn (data
augmentation; Tanner & Wong, 1987): pi given X from Dirichlet(a + X); X given pi and the released counts Y from multinomials,
the released records of an entry y shared out by P(x | y) ~ pi_x P_xy. Axis by axis, because a column is randomized on its
own: with x_1 .. x_(a-1) drawn,

    P(x_a | x_1 .. x_(a-1), y_a .. y_m) ~ P_a(x_a, y_a) sum over x_(a+1) .. x_m of pi_x prod_(b>a) P_b(x_b, y_b),

which costs the cells of the table times one axis, not times the cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign
from verticil.shared.numerics.estimation.unit_axis import UnitAxis, contrast_factor
from verticil.shared.numerics.posterior.tuning import TUNING

LocalScore = Literal["bdeu", "dirichlet"]


def left_of(axis: UnitAxis, shares: Floats) -> float:
    """phi_v of the module, 0 to 1; of a part of a compound, or of sets, the square of `contrast_factor`.

    Args:
        axis: of a family's design.
        shares: (L,), estimated shares of its cells.

    >>> from verticil.shared.numerics.estimation.inverse_estimation import as_design
    >>> from verticil.shared.mechanisms.transition import quantize, symmetric
    >>> round(left_of(as_design([quantize(symmetric(4, flip=0.1))]).axes[0], np.full(4, 0.25)), 9)
    0.36
    """
    forward = axis.forward
    if forward is None:
        return 1.0
    if axis.cells is not None or not axis.is_linear:
        return contrast_factor(axis) ** 2
    blend = (1 - TUNING.mixed_share) * shares + TUNING.mixed_share / len(shares)
    share = float((blend[:, None] * forward**2 / (blend @ forward)).sum() - 1) / max(len(shares) - 1, 1)
    return min(max(share, 0.0), 1.0)


def exact_scores(table: Floats, score: LocalScore) -> tuple[float, ...]:
    """Return the score of each variable of a family with all the others as its parents, less its score without parents.

    Args:
        table: (K_1, .., K_m), counts that are not negative.
        score: ``bdeu`` with an equivalent sample of 1, or ``dirichlet`` with a pseudo-count of 1 in every cell.

    Returns:
        For each axis, nats.

    >>> [round(value, 3) for value in exact_scores(np.array([[30.0, 0.0], [0.0, 30.0]]), "dirichlet")]
    [36.555, 36.555]
    """
    whole = _cells(table, score, 1)
    scores: list[float] = []
    for axis, states in enumerate(table.shape):
        others = tuple(other for other in range(table.ndim) if other != axis)
        alone = table.sum(axis=others)
        without = _cells(alone, score, 1) - _cells(alone.sum(keepdims=True), score, states)
        scores.append(whole - _cells(table.sum(axis=axis), score, states) - without)
    return tuple(scores)


def family_scores(table: Floats, factor: float, score: LocalScore) -> dict[tuple[int, tuple[int, ...]], float]:
    """Return what each variable of a family is worth with each set of the others as its parents, less it without
    parents.

    Args:
        table: (K_1, .., K_m), counts that are not negative.
        factor: f, above 0 and at most 1.
        score: see `exact_scores`.

    Returns:
        (child, parents ascending) -> nats; 0 without parents.
    """
    counts, m = factor * np.asarray(table, dtype=np.float64), table.ndim
    sums = {
        members: counts.sum(axis=tuple(v for v in range(m) if v not in members))
        for size in range(m + 1)
        for members in itertools.combinations(range(m), size)
    }
    whole = {members: _cells(each, score, 1) for members, each in sums.items()}
    scores: dict[tuple[int, tuple[int, ...]], float] = {}
    for child in range(m):
        states, alone = table.shape[child], 0.0
        for size in range(m):
            for parents in itertools.combinations([v for v in range(m) if v != child], size):
                # with BDeu a configuration's prior count is that of a cell of its table, whoever the child is
                rows = whole[parents] if score == "bdeu" else _cells(sums[parents], score, states)
                value = whole[tuple(sorted((*parents, child)))] - rows
                alone = alone if parents else value
                scores[child, parents] = value - alone
    return scores


def _cells(counts: Counts, score: LocalScore, together: int) -> float:
    """Sum over the cells of ln G(a + N) - ln G(a), each cell the sum of so many of the family's table."""
    pseudo = 1 / counts.size if score == "bdeu" else float(together)
    return float(gammaln(pseudo + counts).sum()) - counts.size * float(gammaln(pseudo))


def can_be_augmented(design: FamilyDesign, factor: float) -> bool:
    """Return whether true counts can be drawn: each record has one entry in every column, and it is not too much work.

    Of sets of entries the released table tells too little.
    """
    axes = [axis.forward for axis in design.axes]
    cells = math.prod(m if each is None else len(each) for m, each in zip(design.released_shape, axes, strict=True))
    entries = sum(each.shape[1] for each in axes if each is not None)
    return all(axis.is_linear for axis in design.axes) and cells * entries * _steps(factor) <= TUNING.most_family_work


def drawn_counts(
    released_table: Counts,
    design: FamilyDesign,
    estimate: Floats,
    m: int,
    *,
    factor: float,
    pseudo: float,
    generator: np.random.Generator,
) -> Floats:
    """Draw true counts of a family given the released ones, by a chain of its own for each draw: see the module.

    Args:
        released_table: the released counts, see `FamilyDesign.released_shape`.
        design: how they were randomized; `can_be_augmented`.
        estimate: (K_parent_1, .., K_child), N^.
        m: draws.
        factor: f; how many steps are made follows from it.
        pseudo: a, the prior's count in every possible cell, > 0.
        generator: source of all randomness; advanced.

    Returns:
        (m, K_parent_1, .., K_child), whole numbers as float64. Without randomization always the same.
    """
    spread = [axis.spread for axis in design.axes]
    channels = [axis.forward for axis in design.axes]
    counts = np.asarray(np.rint(released_table), dtype=np.int64)

    def arrange(table: Floats) -> Floats:
        return design.arrange(table if all(each is None for each in spread) else apply_axes(table, spread))

    if all(channel is None for channel in channels):
        return np.broadcast_to(arrange(counts.astype(np.float64)), (m, *design.shape))
    states = [k if channel is None else len(channel) for k, channel in zip(counts.shape, channels, strict=True)]
    prior = np.full((1,) * len(states), pseudo)
    for place, matrix in enumerate(spread):
        if matrix is not None:  # categories that are one cell share its pseudo-count
            part = 1 / (matrix @ matrix.sum(axis=0))
            prior = prior * part.reshape([-1 if other == place else 1 for other in range(len(states))])
    prior = np.broadcast_to(prior, states)
    if all(axis.cells is None and len(axis.members) == 1 for axis in design.axes):
        start = factor * estimate
    else:
        start = np.full(states, factor * float(counts.sum()) / math.prod(states))
    draws = np.empty((m, *design.shape))
    size = max(TUNING.cells_together // math.prod(states), 1)
    axes = tuple(range(1, 1 + len(states)))
    for first in range(0, m, size):
        true = np.broadcast_to(start, (min(size, m - first), *states))
        for _ in range(_steps(factor)):
            shares = generator.standard_gamma(prior + true)
            true = _shared_out(counts, channels, shares / shares.sum(axis=axes, keepdims=True), generator)
        for place, each in enumerate(true, start=first):
            draws[place] = arrange(each)
    return draws


def _steps(factor: float) -> int:
    return min(int(TUNING.augmentation_burn_in / factor) + 1, TUNING.most_augmentation_steps)


def _shared_out(
    released_counts: NDArray[np.int64],
    channels: Sequence[Floats | None],
    shares: Floats,
    generator: np.random.Generator,
) -> Floats:
    """Draw true counts given the shares of the cells, (chains, ..), and the released counts: the second half of a step."""
    ahead = [shares]  # with the axes behind a place turned into those of released entries, the last place first
    for place in range(len(channels) - 1, 0, -1):
        ahead.append(_along(ahead[-1], channels[place], place + 1))
    counts: NDArray[np.int64] = np.broadcast_to(released_counts, (len(shares), *released_counts.shape))
    for place, channel in enumerate(channels, start=1):
        table = ahead.pop()
        if channel is None:
            continue
        weights = np.moveaxis(table, place, -1)[..., None, :] * channel.T  # (.., M, D)
        totals = weights.sum(axis=-1, keepdims=True)
        if not (totals > 0).all():  # shares too small for a float
            weights = np.where(totals > 0, weights, channel.T)
            totals = weights.sum(axis=-1, keepdims=True)
        part = generator.multinomial(np.moveaxis(counts, place, -1), weights / totals)
        counts = np.moveaxis(part.sum(axis=-2), -1, place)
    return counts.astype(np.float64)


def _along(table: Floats, channel: Floats | None, place: int) -> Floats:
    if channel is None:
        return table
    return np.moveaxis(np.moveaxis(table, place, -1) @ channel, -1, place)


def matched_counts(probability: Floats, standard_error: Floats) -> Floats:
    """Counts whose Dirichlet distribution has the given means and, over each row together, the given variances.

    A row of a Dirichlet distribution with the sum s has the variances p (1 - p) / (s + 1).

    Args:
        probability: (J, K), rows sum to 1.
        standard_error: (J, K); NaN where nothing is known: such a row is worth one record.

    >>> matched_counts(np.array([[0.5, 0.5]]), np.array([[0.05, 0.05]])).round(9).tolist()
    [[49.5, 49.5]]
    """
    spread = (probability * (1 - probability)).sum(axis=1)
    square = (standard_error**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        records = spread / square - 1
    records = np.where(np.isfinite(records), np.maximum(records, 1.0), 1.0)
    return probability * records[:, None]
