"""Where numbers lie inside their bins: linked to each other, and dense where people are.

Records come with a bin for each number. Two numbers that hang together do so inside their bins, too, so the places are drawn
from a Gaussian copula: each number is a latent normal z that its bin holds in an interval, between the normal quantiles of the
shares below and up to it. The correlations are those of the records' own bins. With m the mean of z in its bin, and cov the
covariance of two such columns,

    corr(z_a, z_c) = cov(m_a, m_c) / (var m_a var m_c),

the grouping correction (Sheppard, 1898, for intervals of a normal). Columns of at most `MOST_HELPERS` categories help: their
indicators stand beside the z, as they are. Two sweeps of a Gibbs sampler draw the z (Geman & Geman, 1984), given their
intervals; then the ranks within each bin are the places, so that no column's distribution depends on the copula.

A place becomes a number by the column's measured profile, else by a monotone cubic through the shares of the bins (Fritsch &
Carlson, 1980).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Floats
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import Study
from verticil.shared.study.profiles import measured_profiles

MOST_HELPERS: Final = 6
_SWEEPS: Final = 2
_FIT: Final = 200_000  # records that correlations are computed from
_MOST: Final = 0.98  # of a correlation: two intervals of one normal leave nothing to draw
_POINTS_OF_A_BIN: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """How the values of a column lie along its scale.

    Attributes:
        edges: rising.
        cumulative: (len(edges),): the share below each.
    """

    edges: Floats
    cumulative: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InsideBins:
    """How a study has numbers placed inside bins.

    Attributes:
        linked: whether places are linked, and columns without a profile have a smooth shape.
        shapes: of variables by position, from their measured profiles.
    """

    linked: bool
    shapes: Mapping[int, Shape]


def inside_bins(study: Study) -> InsideBins | None:
    """Return how a study has numbers placed inside bins; None: evenly."""
    linked = study.release.within_bins == "linked"
    shapes = {
        place: Shape(edges=profile.edges, cumulative=np.append(0.0, np.cumsum(profile.shares)))
        for place, profile in measured_profiles(study).items()
    }
    return InsideBins(linked=linked, shapes=shapes) if linked or shapes else None


def places_in_bins(
    schema: Schema, codes: Sequence[AnyCodes], generator: np.random.Generator, *, linked: bool
) -> dict[int, Floats]:
    """Return a place from 0 to below 1 inside its bin for each number of each record.

    Args:
        schema: the variables.
        codes: (n,) of each.
        generator: advanced.
        linked: see the module; else places have nothing to do with each other.

    Returns:
        Position of a variable with bins that declares no other shape -> (n,).
    """
    numbers = [v for v, variable in enumerate(schema.variables) if _is_free(variable)]
    n = len(codes[0])
    if not linked or len(numbers) < 2 or n < 2:
        return {v: generator.random(n) for v in numbers}
    lows, highs, means = zip(*(_intervals(schema[v], codes[v]) for v in numbers), strict=True)
    helpers = _indicators(schema, codes, numbers)
    correlation = _correlation(np.stack([mean[:_FIT] for mean in means]), helpers[:, :_FIT])
    z = _gibbs(np.stack(lows), np.stack(highs), helpers, correlation, generator)
    return {v: _ranks(codes[v], z[place], schema[v].n_states, generator) for place, v in enumerate(numbers)}


def _is_free(variable: Variable) -> bool:
    return variable.n_bins > 0 and variable.means is None and variable.representatives is None


def _intervals(variable: Variable, codes: AnyCodes) -> tuple[Floats, Floats, Floats]:
    """(n,) each: the interval of the latent normal of each record, and its mean there.

    The point 0 has its place among the bins; other points and words say nothing of the size.
    """
    from scipy.special import ndtri

    counts = np.bincount(codes, minlength=variable.n_states).astype(np.float64)
    order = list(range(variable.n_bins))
    if 0.0 in variable.points:
        order.insert(int(np.searchsorted(variable.bins or (), 0.0)), variable.n_bins + variable.points.index(0.0))
    share = counts[order] / max(float(counts[order].sum()), 1.0)
    ends = np.append(0.0, np.cumsum(share)).clip(0.0, 1.0)
    quantiles = ndtri(ends)
    density = np.exp(-(quantiles**2) / 2) / math.sqrt(2 * math.pi)
    low, high = np.full(variable.n_states, -np.inf), np.full(variable.n_states, np.inf)
    mean = np.zeros(variable.n_states)
    low[order], high[order] = quantiles[:-1], quantiles[1:]
    mean[order] = np.divide(-np.diff(density), share, out=np.zeros(len(order)), where=share > 0)
    return low[codes], high[codes], mean[codes]


def _indicators(schema: Schema, codes: Sequence[AnyCodes], numbers: Sequence[int]) -> Floats:
    """(h, n): the standardised indicators of the categories of small columns, all but the first of each."""
    rows: list[Floats] = []
    for v, variable in enumerate(schema.variables):
        if v not in numbers and variable.n_states <= MOST_HELPERS:
            for code in range(1, variable.n_states):
                row = (codes[v] == code).astype(np.float64)
                spread = float(row.std())
                if spread > 0:
                    rows.append((row - row.mean()) / spread)
    return np.stack(rows) if rows else np.empty((0, len(codes[0])))


def _correlation(means: Floats, helpers: Floats) -> Floats:
    """(p + h, p + h): of the latent normals and the indicators, positive definite."""
    both = np.concatenate([means, helpers[:, : means.shape[1]]])
    both = both - both.mean(axis=1, keepdims=True)
    covariance = both @ both.T / both.shape[1]
    # an interval's mean has the variance var m < 1 of a z: cov(m_a, m_c) = corr var m_a var m_c; an indicator has its own
    scale = np.concatenate([np.diag(covariance)[: len(means)], np.ones(len(helpers))])
    scale = np.where(scale > 0, scale, 1.0)
    found = np.clip(covariance / np.outer(scale, scale), -_MOST, _MOST)
    np.fill_diagonal(found, 1.0)
    values, vectors = np.linalg.eigh(found)
    repaired = (vectors * np.maximum(values, 1 - _MOST)) @ vectors.T
    size = np.sqrt(np.diag(repaired))
    return np.asarray(repaired / np.outer(size, size), dtype=np.float64)


def _gibbs(lows: Floats, highs: Floats, helpers: Floats, correlation: Floats, generator: np.random.Generator) -> Floats:
    """(p, n): latent normals inside their intervals."""
    from scipy.special import ndtr, ndtri

    p, n = lows.shape
    z = np.concatenate([np.empty((p, n)), helpers])
    for v in range(p):
        start, stop = ndtr(lows[v]), ndtr(highs[v])
        z[v] = ndtri(np.clip(start + (stop - start) * generator.random(n), 1e-12, 1 - 1e-12))
    for _ in range(_SWEEPS):
        for v in range(p):
            others = [other for other in range(len(z)) if other != v]
            weights = np.linalg.solve(correlation[np.ix_(others, others)], correlation[others, v])
            left = math.sqrt(max(1 - float(weights @ correlation[others, v]), 1 - _MOST))
            middle = weights @ z[others]
            # the lower tail is exact to the last digit, so an interval above the middle is drawn as its mirror image
            low, high = (lows[v] - middle) / left, (highs[v] - middle) / left
            mirrored = low > 0
            start, stop = ndtr(np.where(mirrored, -high, low)), ndtr(np.where(mirrored, -low, high))
            drawn = ndtri(np.maximum(start + (stop - start) * generator.random(n), 1e-300))
            z[v] = np.clip(middle + left * np.where(mirrored, -drawn, drawn), lows[v], highs[v])
    return z[:p]


def _ranks(codes: AnyCodes, z: Floats, n_states: int, generator: np.random.Generator) -> Floats:
    """(n,): the rank of each z among those of the same category, as a place from 0 to below 1."""
    order = np.lexsort((z, codes))
    counts = np.bincount(codes, minlength=n_states)
    ranks = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.empty(len(codes))
    places[order] = (ranks + generator.random(len(codes))) / np.repeat(counts, counts)
    return np.minimum(places, np.nextafter(1.0, 0.0))


def smooth_shape(variable: Variable, codes: AnyCodes) -> Shape:
    """Return a monotone cubic through the shares of a column's bins among the records."""
    from scipy.interpolate import PchipInterpolator

    edges = np.asarray(variable.bins, np.float64)
    counts = np.bincount(codes, minlength=variable.n_states)[: variable.n_bins].astype(np.float64)
    cumulative = np.append(0.0, np.cumsum(counts)) / max(float(counts.sum()), 1.0)
    parts = np.arange(_POINTS_OF_A_BIN) / _POINTS_OF_A_BIN
    fine = np.append((edges[:-1, None] + np.diff(edges)[:, None] * parts).ravel(), edges[-1])
    return Shape(edges=fine, cumulative=np.asarray(PchipInterpolator(edges, cumulative)(fine), np.float64))


def values_at(variable: Variable, codes: AnyCodes, places: Floats, shape: Shape) -> Floats:
    """Return the value at a place in each record's bin, where the shape has that part of the bin's people below it.

    Args:
        variable: with bins.
        codes: (n,); a record without a bin gets a value of the last one.
        places: (n,) from 0 to below 1.
        shape: whose edges are those of the bins, and others.
    """
    bins = np.minimum(codes, variable.n_bins - 1).astype(np.intp)
    edges = np.asarray(variable.bins, np.float64)
    found = np.empty(len(codes))
    for number, (low, high) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        own = bins == number
        inside = (shape.edges >= low) & (shape.edges <= high)
        grid, below = shape.edges[inside], shape.cumulative[inside]
        if len(grid) < 2 or below[-1] <= below[0]:
            grid, below = np.array([low, high]), np.array([0.0, 1.0])
        found[own] = _inverse(below[0] + (below[-1] - below[0]) * places[own], grid, below)
    return found


def _inverse(wanted: Floats, grid: Floats, below: Floats) -> Floats:
    """Return where a rising function, linear between its points, has some values; a flat part counts as its upper end."""
    cell = np.clip(np.searchsorted(below, wanted, side="right") - 1, 0, len(grid) - 2)
    rise = below[cell + 1] - below[cell]
    part = np.divide(wanted - below[cell], rise, out=np.zeros(len(wanted)), where=rise > 0)
    found: NDArray[np.float64] = grid[cell] + np.minimum(part, np.nextafter(1.0, 0.0)) * (grid[cell + 1] - grid[cell])
    return found
