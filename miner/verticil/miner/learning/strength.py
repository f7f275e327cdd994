"""How strongly the records speak for each edge: a bootstrap over the randomized records.

With the records drawn again n times with replacement, is the child's family still better with this parent than without it? The
strength of an edge is the share of such samples in which it is, by the score `bic-noise` of `family_scores`, the rest of the
network being as it is. No search is repeated. The score is the same however the structure was found: it is the one that tells
right edges from wrong ones under noise. (CHILD, 50,000 records, edges found with `bic` at epsilon 2: of 24 right ones 23 have
strength 1 and one .89; of 13 wrong ones 11 are below .4 and one is 1. By `bic` itself all wrong ones are above .5.) An edge of
little strength can still make synthetic records better.

Counts of a family in resampled records are multinomial, with the observed shares as probabilities. So a family's table is all
that is needed: records are not read again. (Of a subset unit the entries of a record are drawn as if each came from a record of
its own: its samples spread a little too much.)

Where nothing is randomized the gain of a parent is a sum over records, so its spread over samples is known beforehand; a gain
that is farther than `_DECIDED` of its standard deviations from 0 has the same sign in every sample, and none is drawn.

Resampling adds the noise of the records once more to every gain, in which noise looks like information (Steck and Jaakkola
2003), so the samples' gains are shifted to have the observed gain as their mean.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.family_scores import EM_STEPS, FamilyScores
from verticil.miner.learning.tables import FamilyTables
from verticil.shared.estimation.axes import apply_axes
from verticil.shared.estimation.design import FamilyDesign, UnitAxis
from verticil.shared.estimation.estimators import START_FLOOR
from verticil.shared.model.graph import Dag

__all__ = ["SAMPLES", "edge_strengths", "without_member"]

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

SAMPLES: Final = 100
_BLOCK: Final = 2**17  # cells that are corrected at a time
_DECIDED: Final = 8.0  # in a hundred samples of a normal distribution one is that far away with probability 1e-13


def edge_strengths(
    dag: Dag,
    tables: FamilyTables,
    *,
    seed: int,
    samples: int = SAMPLES,
    check: Callable[[], None] | None = None,
) -> Mapping[tuple[int, int], float]:
    """The strength of every edge.

    Args:
        dag: the network.
        tables: the released counts.
        seed: any whole number >= 0; a family's samples depend on it and on the family alone.
        samples: how often records are drawn again.
        check: called before each family; may raise.

    Returns:
        (parent, child) -> 0 to 1.
    """
    scores = FamilyScores(tables)
    found: dict[tuple[int, int], float] = {}
    for child, parents in enumerate(dag.parents):
        if not parents:
            continue
        if check is not None:
            check()
        observed, design = tables.counted((*parents, child))
        costs = [
            _penalty(scores, child, parents) - _penalty(scores, child, tuple(p for p in parents if p != parent))
            for parent in parents
        ]
        known = _decided(observed, design, costs)
        if len(known) == len(parents):
            found.update({(parent, child): known[place] for place, parent in enumerate(parents)})
            continue
        generator = np.random.Generator(np.random.Philox(key=[seed, child]))
        n = tables.n_records
        drawn = generator.multinomial(n, observed.ravel() / observed.sum(), size=samples).astype(np.float64)
        drawn = drawn.reshape(samples, *observed.shape)
        actual = np.concatenate([np.asarray(observed, dtype=np.float64)[None], drawn])
        whole = _likelihoods(actual, design)
        for place, parent in enumerate(parents):
            if place in known:
                found[parent, child] = known[place]
                continue
            reduced, summed = without_member(design, place)
            fewer = _likelihoods(actual.sum(axis=1 + summed) if summed is not None else actual, reduced)
            gains = whole - fewer - costs[place]
            again = gains[1:] - gains[1:].mean() + gains[0]
            found[parent, child] = float((again > 0).mean())
    return found


def without_member(design: FamilyDesign, place: int) -> tuple[FamilyDesign, int | None]:
    """The design of a family without one variable, on the same released entries.

    Args:
        design: of the family.
        place: of the variable in the family's shape; not the last.

    Returns:
        The design, and the axis of the observed table that is to be summed out first; None: none is.
    """
    axes: list[UnitAxis] = []
    summed: int | None = None
    for number, axis in enumerate(design.axes):
        renumbered = tuple(member - (member > place) for member in axis.members if member != place)
        if not renumbered:
            summed = number
            continue
        if place not in axis.members:
            axes.append(dataclasses.replace(axis, members=renumbered))
            continue
        at = axis.members.index(place)
        cells = np.arange(axis.n_cells, dtype=np.intp) if axis.cells is None else axis.cells
        codes = list(np.unravel_index(cells, axis.shape))
        shape = tuple(states for position, states in enumerate(axis.shape) if position != at)
        del codes[at]
        axes.append(
            UnitAxis(
                unit=axis.unit,
                members=renumbered,
                shape=shape,
                channel=axis.channel,
                cells=np.ravel_multi_index(codes, shape).astype(np.intp),
                merged=axis.merged,
            )
        )
    shape = tuple(states for position, states in enumerate(design.shape) if position != place)
    return FamilyDesign(axes=tuple(axes), shape=shape), summed


def _decided(observed: Counts | Floats, design: FamilyDesign, costs: Sequence[float]) -> dict[int, float]:
    """The strengths that need no samples: place of the parent -> 0 or 1.

    With p the observed shares, a record in the cell (j, k) adds log p(k | j) - log p(k | j without the parent) to the gain. To
    the variance of their sum over n records comes at most 2 for each occupied cell, from the shares' own spread.
    """
    if any(axis.forward is not None or axis.members != (place,) for place, axis in enumerate(design.axes)):
        return {}
    n = float(observed.sum())
    shares = np.asarray(observed, dtype=np.float64) / n
    occupied = np.nonzero(shares)
    p = shares[occupied]
    known: dict[int, float] = {}
    of_family = p / shares.sum(axis=-1)[occupied[:-1]]
    for place, cost in enumerate(costs):
        rest = shares.sum(axis=place)
        cell = tuple(codes for axis, codes in enumerate(occupied) if axis != place)
        ratio = np.log(of_family / (rest[cell] / rest.sum(axis=-1)[cell[:-1]]))
        mean = float(p @ ratio)
        deviation = math.sqrt(n * max(float(p @ ratio**2) - mean * mean, 0.0) + 2 * len(p))
        if abs(gain := n * mean - cost) > _DECIDED * deviation:
            known[place] = float(gain > 0)
    return known


def _penalty(scores: FamilyScores, child: int, parents: tuple[int, ...]) -> float:
    return scores.penalty(child, parents) * scores.noise((*parents, child))


def _likelihoods(tables: Floats, design: FamilyDesign) -> Floats:
    """`FamilyScores.likelihood` of many observed tables (B, ..) of one design: (B,)."""
    size = max(1, _BLOCK // math.prod(tables.shape[1:]))
    parts = [_block_likelihoods(tables[start : start + size], design) for start in range(0, len(tables), size)]
    return np.concatenate(parts)


def _block_likelihoods(tables: Floats, design: FamilyDesign) -> Floats:
    n = tables.reshape(len(tables), -1).sum(axis=1)
    released = tables / _each(n, tables.ndim)
    forward = [axis.forward for axis in design.axes]
    backward = [None if matrix is None else np.ascontiguousarray(matrix.T) for matrix in forward]
    current = released
    if any(matrix is not None for matrix in forward):
        current = _start(released, design)
        for _ in range(EM_STEPS):
            expected = apply_axes(current, [None, *forward])
            ratio = np.divide(released, expected, out=np.zeros_like(released), where=expected > 0)
            current = current * apply_axes(ratio, [None, *backward])
            current /= _each(current.reshape(len(current), -1).sum(axis=1), current.ndim)
    table = apply_axes(current, [None, *(axis.spread for axis in design.axes)])
    # The child is the last member of the last axis: its categories are next to each other.
    cells = table.reshape(len(table), -1, design.shape[-1])
    rows = cells.sum(axis=2)
    likelihood: Floats = n * (_plogp(cells.reshape(len(cells), -1)) - _plogp(rows))
    return likelihood


def _start(released: Floats, design: FamilyDesign) -> Floats:
    """As `estimation.em_projection` starts: the product of the clipped one-way estimates."""
    start = np.ones((len(released), *(1 for _ in design.axes)))
    for place, axis in enumerate(design.axes):
        others = tuple(1 + other for other in range(len(design.axes)) if other != place)
        share = np.maximum(apply_axes(released.sum(axis=others), [None, axis.restore]), 0.0)
        share /= share.sum(axis=1, keepdims=True)
        share = (1 - START_FLOOR) * share + START_FLOOR / share.shape[1]
        start = start * share.reshape(len(share), *(-1 if other == place else 1 for other in range(len(design.axes))))
    return start


def _plogp(shares: Floats) -> Floats:
    return np.asarray((shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1), dtype=np.float64)


def _each(values: Floats, ndim: int) -> Floats:
    return values.reshape(-1, *(1 for _ in range(ndim - 1)))
