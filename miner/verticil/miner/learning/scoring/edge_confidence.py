"""How strongly the records speak for each edge, and how much the edge tells.

Is the child's family more likely with this parent than without it by more than chance and noise can do? The gain of a parent is
the difference of the likelihoods of EM-corrected counts (`family_scores`). Of two parents that tell the same, each is needless
beside the other: so the weakest parent of a family is put aside, when it is not confirmed, and the others are asked again. Two
bootstraps say what to think of a gain:

- of the *null*: tables are drawn in which the child does not depend on this parent given the others, with everything else as it
  was estimated, and randomized as the columns were. The mean and variance of their gains give the critical value, as the quantile
  of a gamma distribution. `TUNING.level` is that of all pairs of variables together: of networks without any right edge, one in
  twenty has one that is confirmed.
- of the *records*: with the records drawn again with replacement, the **strength** is the share of samples in which the gain is
  above the critical value; half or more is what the test of the records themselves confirms.

No score of a search enters, because none is a test: `bic-noise` pays for each probability as if the noise had made it, which took
31 of 36 certain edges of a census for nothing; by `bic` every false edge that a search finds is better than none. The **effect
The **effect size** is the gain less its mean under the null, for each record: the conditional mutual information, nats.

Counts of a family in resampled records are multinomial, with the observed shares as probabilities. So a family's table is all
that is needed: records are not read again. (The entries of a subset's record are drawn as if each was a record of its own, of
1/w of the weight.) Resampling adds the noise of the records once more to every gain, in which noise looks like information (Steck
and Jaakkola 2003), so the samples' gains are shifted to have the observed gain as their mean.

Where nothing is randomized the gain of a parent is a sum over records, so its spread over samples is known beforehand; a gain
that is farther than `TUNING.decided_deviations` of its standard deviations above all that chance does has strength 1, and no
sample is drawn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.tuning import TUNING
from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import START_FLOOR
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign
from verticil.shared.numerics.estimation.unit_axis import UnitAxis
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import CONFIRMED


class EdgeStrength(NamedTuple):
    """What the records say of one edge: its strength, 0 to 1, and the conditional mutual information in nats."""

    strength: float
    information: float


def edge_strengths(
    dag: Dag,
    tables: FamilyTables,
    *,
    seed: int,
    least: float = CONFIRMED,
    samples: int = TUNING.samples,
    check: Callable[[], None] | None = None,
) -> Mapping[tuple[int, int], EdgeStrength]:
    """Return the strength and the effect size of every edge.

    Args:
        dag: the network.
        tables: the released counts.
        seed: any whole number >= 0; a family's samples depend on it and on the family alone.
        least: edges of less strength do not take part when the others of their family are asked.
        samples: how often records are drawn again, and how many tables of the null are drawn for each edge.
        check: called before each family; may raise.

    Returns:
        (parent, child) -> what the records say of it.
    """
    strengths: dict[tuple[int, int], EdgeStrength] = {}
    for child, parents in enumerate(dag.parents):
        remaining = parents
        while remaining:
            if check is not None:
                check()
            here = _family_strengths(tables, child, remaining, seed=seed, samples=samples)
            strengths.update(here)
            weakest = min(here, key=lambda edge: (here[edge], edge))
            if here[weakest].strength >= least:
                break
            remaining = tuple(parent for parent in remaining if parent != weakest[0])
    return {edge: strengths[edge] for edge in dag.edges()}


def _family_strengths(
    tables: FamilyTables, child: int, parents: tuple[int, ...], *, seed: int, samples: int
) -> dict[tuple[int, int], EdgeStrength]:
    counts, design = tables.count_family((*parents, child))
    certain = _decide_without_samples(counts, design)
    strengths = {(parents[place], child): strength for place, strength in certain.items()}
    if len(certain) == len(parents):
        return strengths
    weight = math.prod(axis.channel.codes_per_record for axis in design.axes)
    n, d = tables.n_records, len(tables.n_states)
    level = TUNING.level / max(1, d * (d - 1) // 2)

    def draw(shares: Floats, number: int) -> Floats:
        generator = np.random.Generator(np.random.Philox(key=[seed, child], counter=[0, 0, 0, number]))
        draws = _multinomial(generator, n * weight, shares.ravel() / shares.sum(), samples)
        return draws.reshape(samples, *counts.shape) / weight

    released_counts = np.asarray(counts, dtype=np.float64)
    actual = np.concatenate([released_counts[None], draw(released_counts, 0)])
    whole = _likelihoods(actual, design)
    null_shares = _fit(released_counts[None] / released_counts.sum(), design, steps=TUNING.null_steps)[0]
    for place, parent in enumerate(parents):
        if place in certain:
            continue
        smaller_design, axis_to_sum = without_member(design, place)

        def gain(
            tables: Floats, likelihood: Floats, smaller: FamilyDesign = smaller_design, axis: int | None = axis_to_sum
        ) -> Floats:
            return likelihood - _likelihoods(tables if axis is None else tables.sum(axis=1 + axis), smaller)

        gains = gain(actual, whole)
        null = draw(_without_effect(null_shares, design, place), 1 + place)
        by_chance = gain(null, _likelihoods(null, design))
        mean, variance = float(by_chance.mean()), float(by_chance.var(ddof=1))
        critical = _critical(
            mean, variance, free=max(1, (design.shape[place] - 1) * (design.shape[-1] - 1)), level=level
        )
        again = gains[1:] - gains[1:].mean() + gains[0]
        strengths[parent, child] = EdgeStrength(
            strength=float((again > critical).mean()),
            information=max(float(gains[0]) - mean, 0.0) / n,
        )
    return strengths


def _multinomial(generator: np.random.Generator, n: int, shares: Floats, samples: int) -> Ints:
    """Return counts of `n` records, (samples, cells): many cells hold few of them, and those records are placed one by one.

    A binomial count costs the same for a cell of one record as for one of thousands, about what `TUNING.single_records` records
    do that are placed by the alias method (Walker 1977; Vose 1991).
    """
    rare = np.flatnonzero((shares > 0) & (shares * n < TUNING.single_records))
    common = np.flatnonzero(shares * n >= TUNING.single_records)
    of_rare = shares[rare].sum()
    table_counts = np.zeros((samples, len(shares)), dtype=np.int64)
    together = np.append(shares[common], of_rare)
    counts = generator.multinomial(n, together / together.sum(), size=samples)
    table_counts[:, common] = counts[:, :-1]
    if not counts[:, -1].any():
        return table_counts
    keep, other = _alias(shares[rare] / of_rare)
    place = generator.random(int(counts[:, -1].sum())) * len(rare)
    cell = place.astype(np.int64)
    np.minimum(cell, len(rare) - 1, out=cell)
    cell = np.where(place - cell < keep[cell], cell, other[cell])
    cell += np.repeat(np.arange(samples) * len(rare), counts[:, -1])
    table_counts[:, rare] = np.bincount(cell, minlength=samples * len(rare)).reshape(samples, len(rare))
    return table_counts


def _alias(shares: Floats) -> tuple[Floats, Ints]:
    """Return of each cell the part of its equal share that it keeps, and the cell that has the rest (Vose 1991)."""
    cells = len(shares)
    part = shares * cells
    keep, other = np.ones(cells), np.arange(cells)
    small, large = np.flatnonzero(part < 1).tolist(), np.flatnonzero(part >= 1).tolist()
    rest = part.tolist()
    while small and large:
        giver, taker = large[-1], small.pop()
        keep[taker], other[taker] = rest[taker], giver
        rest[giver] -= 1 - rest[taker]
        if rest[giver] < 1:
            small.append(large.pop())
    return keep, other


def _critical(mean: float, variance: float, *, free: int, level: float) -> float:
    """Return what a gain of the null exceeds with probability `level`: by a gamma distribution of this mean and variance.

    At least what it is of one table of `free` degrees of freedom without noise: where the estimate of the null is on the border
    of what is possible, its draws differ less than those of the real null.
    """
    from scipy.special import gammaincinv

    exact = float(gammaincinv(free / 2, 1 - level))  # the gain is half of a chi-square
    if mean <= 0 or variance <= 0:
        return exact
    return max(exact, float(gammaincinv(mean * mean / variance, 1 - level)) * variance / mean)


def _without_effect(shares: Floats, design: FamilyDesign, place: int) -> Floats:
    """Return released shares of a family in which the child does not depend on the parent at `place` given the others.

    Args:
        shares: true shares of the units' categories, one axis for each unit.
        design: of the family.
        place: of the parent.
    """
    spreads = [axis.spread for axis in design.axes]
    cells = design.arrange(apply_axes(shares, spreads))
    with_parent, with_child = cells.sum(axis=-1, keepdims=True), cells.sum(axis=place, keepdims=True)
    others = with_parent.sum(axis=place, keepdims=True)
    null = with_parent * np.divide(with_child, others, out=np.zeros_like(with_child), where=others > 0)
    # Back to one axis of cells for each unit, then to the unit's categories: as they share a cell now, or equally.
    members = [member for axis in design.axes for member in axis.members]
    null, cells = (table.transpose(members).reshape([axis.n_cells for axis in design.axes]) for table in (null, cells))
    indices = np.ix_(
        *(
            np.arange(axis.n_cells) if spread is None else spread.argmax(axis=1)
            for axis, spread in zip(design.axes, spreads, strict=True)
        )
    )
    if any(spread is not None for spread in spreads):
        sharing = apply_axes(np.ones(shares.shape), spreads)
        inside = np.divide(shares, cells[indices], out=1 / sharing[indices], where=cells[indices] > 0)
        null = null[indices] * inside
    return np.maximum(apply_axes(null, [axis.forward for axis in design.axes]), 0.0)


def without_member(design: FamilyDesign, place: int) -> tuple[FamilyDesign, int | None]:
    """Return the design of a family without one variable, on the same released entries.

    Args:
        design: of the family.
        place: of the variable in the family's shape; not the last.

    Returns:
        The design, and the axis of the observed table that is to be summed out first; None: none is.
    """
    axes: list[UnitAxis] = []
    axis_to_sum: int | None = None
    for number, axis in enumerate(design.axes):
        new_members = tuple(member - (member > place) for member in axis.members if member != place)
        if not new_members:
            axis_to_sum = number
            continue
        if place not in axis.members:
            axes.append(dataclasses.replace(axis, members=new_members))
            continue
        at = axis.members.index(place)
        cells = np.arange(axis.n_cells, dtype=np.intp) if axis.cells is None else axis.cells
        codes = list(np.unravel_index(cells, axis.shape))
        shape = tuple(states for position, states in enumerate(axis.shape) if position != at)
        del codes[at]
        axes.append(
            UnitAxis(
                unit=axis.unit,
                members=new_members,
                shape=shape,
                channel=axis.channel,
                cells=np.ravel_multi_index(codes, shape).astype(np.intp),
                merged=axis.merged,
            )
        )
    shape = tuple(states for position, states in enumerate(design.shape) if position != place)
    return FamilyDesign(axes=tuple(axes), shape=shape), axis_to_sum


def _decide_without_samples(counts: Ints | Floats, design: FamilyDesign) -> dict[int, EdgeStrength]:
    """Decide what needs no samples: place of the parent -> its strength.

    With p the observed shares, a record in the cell (j, k) adds log p(k | j) - log p(k | j without the parent) to the gain. To
    the variance of their sum over n records comes at most 2 for each occupied cell, from the shares' own spread.
    """
    if any(axis.forward is not None or axis.members != (place,) for place, axis in enumerate(design.axes)):
        return {}
    n = float(counts.sum())
    shares = np.asarray(counts, dtype=np.float64) / n
    nonzero_cells = np.nonzero(shares)
    p = shares[nonzero_cells]
    strengths: dict[int, EdgeStrength] = {}
    of_family = p / shares.sum(axis=-1)[nonzero_cells[:-1]]
    for place in range(shares.ndim - 1):
        rest = shares.sum(axis=place)
        cell = tuple(codes for axis, codes in enumerate(nonzero_cells) if axis != place)
        ratio = np.log(of_family / (rest[cell] / rest.sum(axis=-1)[cell[:-1]]))
        mean = float(p @ ratio)
        deviation = math.sqrt(n * max(float(p @ ratio**2) - mean * mean, 0.0) + 2 * len(p))
        # In the null a cell can be occupied where the parent's category and the child's are, given the others.
        with_parent, with_child = shares.sum(axis=-1) > 0, rest > 0
        n_possible = with_parent.sum(axis=place), with_child.sum(axis=-1)
        possible = float((n_possible[0] * n_possible[1]).sum())
        if (
            n * mean - TUNING.decided_deviations * deviation
            > TUNING.chance_of_cell * possible + TUNING.decided_deviations * math.sqrt(possible)
        ):
            free = float(((n_possible[0] - 1) * (n_possible[1] - 1))[n_possible[0] > 0].sum())
            strengths[place] = EdgeStrength(strength=1.0, information=max(mean - free / (2 * n), 0.0))
    return strengths


def _likelihoods(tables: Floats, design: FamilyDesign) -> Floats:
    """`FamilyScores.likelihood` of many observed tables (B, ..) of one design: (B,)."""
    size = max(1, TUNING.cells_together // math.prod(tables.shape[1:]))
    parts = [_block_likelihoods(tables[start : start + size], design) for start in range(0, len(tables), size)]
    return np.concatenate(parts)


def _block_likelihoods(tables: Floats, design: FamilyDesign) -> Floats:
    n = tables.reshape(len(tables), -1).sum(axis=1)
    current = _fit(tables / _each(n, tables.ndim), design)
    table = apply_axes(current, [None, *(axis.spread for axis in design.axes)])
    # The child is the last member of the last axis: its categories are next to each other.
    cells = table.reshape(len(table), -1, design.shape[-1])
    rows = cells.sum(axis=2)
    likelihood: Floats = n * (_plogp(cells.reshape(len(cells), -1)) - _plogp(rows))
    return likelihood


def _fit(entry_shares: Floats, design: FamilyDesign, *, steps: int = TUNING.em_steps) -> Floats:
    """Fit the shares of the units' categories by the EM, from the shares of their entries: (B, ..)."""
    forward = [axis.forward for axis in design.axes]
    backward = [None if matrix is None else np.ascontiguousarray(matrix.T) for matrix in forward]
    if all(matrix is None for matrix in forward):
        return entry_shares
    current = _start(entry_shares, design)
    for _ in range(steps):
        expected_shares = apply_axes(current, [None, *forward])
        ratio = np.divide(entry_shares, expected_shares, out=np.zeros_like(entry_shares), where=expected_shares > 0)
        current = current * apply_axes(ratio, [None, *backward])
        current /= _each(current.reshape(len(current), -1).sum(axis=1), current.ndim)
    return current


def _start(entry_shares: Floats, design: FamilyDesign) -> Floats:
    """Start as `estimation.em_projection` does: with the product of the clipped one-way estimates."""
    start = np.ones((len(entry_shares), *(1 for _ in design.axes)))
    for place, axis in enumerate(design.axes):
        others = tuple(1 + other for other in range(len(design.axes)) if other != place)
        share = np.maximum(apply_axes(entry_shares.sum(axis=others), [None, axis.restore]), 0.0)
        share /= share.sum(axis=1, keepdims=True)
        share = (1 - START_FLOOR) * share + START_FLOOR / share.shape[1]
        start = start * share.reshape(len(share), *(-1 if other == place else 1 for other in range(len(design.axes))))
    return start


def _plogp(shares: Floats) -> Floats:
    return np.asarray((shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1), dtype=np.float64)


def _each(values: Floats, ndim: int) -> Floats:
    return values.reshape(-1, *(1 for _ in range(ndim - 1)))
