"""The profile of a number: noisy histograms over a public grid, and what follows from them: bins, points, shares inside bins.

A grid is public: it follows from the bounds that a study states. Whole numbers of up to `MOST_WHOLE` values have a cell each, and
one histogram. Other columns have `CELLS` cells, of equal width, or of equal width of asinh where the bounds are wide beside the
column's step. A second histogram divides the cells that have many people by the first one, into up to `PARTS` parts. So the
bounds matter little where most people are. Usual codes of missing answers, 0, and the points that the study declares have a cell
of their own in the first histogram, and none in the second; where each whole number has a cell, only those outside the bounds.
Two more cells count what lies below and above the bounds.

From the noisy counts alone follow

- points: those that are declared, and candidates of more people than 4 standard deviations of the noise and `LEAST_POINT` of all;
- ends: the outermost cells around which there are more people than 3 standard deviations of the noise; none where nowhere are
  more than 4. An end stays at the bound
  where 3 standard deviations of all the cells behind it are more people than half a bin has, because the noise could hide so many
  there; and, where cells have one width, if there are more than 2 in these cells together;
- shares of the cells: runs of cells are divided in two again and again, as the counts say where these are beyond the noise;
- bins: about `BINS` groups of neighbouring cells with as many people each by these; a cell with more stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats, Ints

BINS: Final = 16
CELLS: Final = 200
PARTS: Final = 64
MOST_WHOLE: Final = 256
LEAST_POINT: Final = 0.005
CODES: Final = (-9999, -999, -99, -9, -1, 0, 9, 97, 98, 99, 997, 998, 999, 9997, 9998, 9999, 99999, 999999)
"""Candidates for points: zero, and what questionnaires write for a missing answer."""
_WIDE: Final = 2_000  # steps between bounds, above which cells are wider where numbers are larger
_FINEST: Final = 1e-8  # of the bounds: smaller numbers are one cell
_AROUND: Final = (2, 10)  # cells on each side that are added up: few tell where an end is, many that somebody is there
_BEYOND: Final = 3.0
"""Standard deviations of noise that nobody makes. An end too far out, which one column in five has, costs less than one that cuts
people off: the cells there have next to no share."""
_BEYOND_OF_REST: Final = 2.0
"""The same of all cells behind an end together, where cells have one width: there an end too far out costs next to nothing."""
_HIDDEN: Final = 0.5
"""Of a bin's people: where noise could hide more behind an end, the end stays at the bound."""
_NOT_OF_NOISE: Final = 4.0
"""Standard deviations that noise alone makes in a few of a hundred columns. A point has more, and so has some cell of a column
that the noise does not hide."""
_DIVISIONS: Final = (0.375, 0.4375, 0.5, 0.5625, 0.625)
"""Where runs of cells are divided: the mean of several trees has no steps where one of them divides."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The public cells of a profile; see the module.

    Attributes:
        edges: (cells + 1,), rising: of the first histogram.
        fine: rising: those, and the edges of all parts that cells can be divided into.
        candidates: values with a cell of their own, ascending.
        declared: those among them that are points whatever is counted.
    """

    edges: Floats
    fine: Floats
    candidates: tuple[float, ...]
    declared: frozenset[float]

    @property
    def is_even(self) -> bool:
        """Whether the cells of the first histogram have about one width."""
        widths = np.diff(self.edges)
        return bool(widths.max() < 3 * widths.min())

    @property
    def even_bins(self) -> tuple[float, ...]:
        """The edges of `BINS` groups of as many cells each: bins that follow the grid's scale, and no count."""
        places = np.linspace(0, len(self.edges) - 1, min(BINS, len(self.edges) - 1) + 1)
        return tuple(self.edges[np.rint(places).astype(int)].tolist())

    @property
    def size(self) -> int:
        """Number of cells of the first histogram: between edges, below and above them, and of the candidates."""
        return len(self.edges) + 1 + len(self.candidates)


def n_histograms(bounds: tuple[float, float], step: float) -> int:
    """Return how many histograms a column's profile has; see `grid_of`."""
    return 1 if _is_whole(bounds, step) else 2


def _is_whole(bounds: tuple[float, float], step: float) -> bool:
    return step == 1 and bounds[1] - bounds[0] <= MOST_WHOLE


def grid_of(
    bounds: tuple[float, float], *, step: float, codes: bool, points: Sequence[float] = (), also: Sequence[float] = ()
) -> Grid:
    """Return the grid of a column.

    Args:
        bounds: the values that are counted cell by cell, from the first to below the second; public.
        step: of the column's values, such as 1 for whole numbers; its cells are no narrower.
        codes: whether `CODES` are candidates: of numbers, not of moments.
        points: of the column; those that are no `CODES` are declared.
        also: further edges.
    """
    low, high = bounds
    if _is_whole(bounds, step):
        edges = fine = np.arange(low, high + 1)
        usual = [float(code) for code in CODES if codes and not low <= code < high]
    else:
        usual = [float(code) for code in CODES if codes]
        if codes and (high - low) / step > _WIDE:
            unit = max(step, _FINEST * (high - low))
            edges = np.sinh(np.linspace(math.asinh(low / unit), math.asinh(high / unit), CELLS + 1)) * unit
        else:
            edges = np.linspace(low, high, CELLS + 1)
        edges = _in_steps(np.concatenate([edges, also]), bounds, step)
        parts = np.arange(PARTS) / PARTS
        fine = _in_steps((edges[:-1, None] + np.diff(edges)[:, None] * parts).ravel(), bounds, step)
        fine = np.union1d(fine, edges)
    declared = frozenset(point for point in points if not (codes and point in CODES))
    return Grid(edges, fine, tuple(sorted({*usual, *declared})), declared)


def _in_steps(edges: Floats, bounds: tuple[float, float], step: float) -> Floats:
    low, high = bounds
    multiples = np.rint(edges / step) * step
    found = np.unique(
        multiples if step >= 1 else np.round(multiples, 12)
    )  # of seconds since 1970 twelve decimals are no digits
    inside = found[(found > low) & (found < high)]
    return np.asarray([low, *inside.tolist(), high], dtype=np.float64)


def parts_of(grid: Grid, counts: Sequence[int]) -> Floats:
    """Return the edges of the second histogram: where many people are by the first, cells are divided.

    Args:
        grid: see there.
        counts: of the first histogram, with noise.
    """
    cells = len(grid.edges) - 1
    noisy = np.maximum(np.asarray(counts[:cells], np.float64), 0.0)
    wanted = noisy / max(float(noisy.sum()), 1.0) * CELLS
    parts = np.clip(2 ** np.floor(np.log2(np.maximum(wanted, 1.0))), 1, PARTS).astype(int)
    at = np.searchsorted(grid.fine, grid.edges)
    chosen = [
        np.linspace(first, last, min(n, last - first) + 1).astype(int)
        for first, last, n in zip(at[:-1].tolist(), at[1:].tolist(), parts.tolist(), strict=True)
        if n > 1
    ]
    return np.asarray(grid.fine[np.unique(np.concatenate([at, *chosen]))], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """What noisy histograms say; see the module.

    Attributes:
        bins: rising edges; empty: the noise hides where people are.
        points: ascending.
        edges: of the cells inside the bins, rising; the edges of bins are among them.
        shares: of the cells, not negative; their sum is 1.
        below, above: noisy shares of the people whose numbers are outside the bounds, at least 0.
    """

    bins: tuple[float, ...]
    points: tuple[float, ...]
    edges: Floats
    shares: Floats
    below: float
    above: float


def profile_of(grid: Grid, counts: Sequence[int], sigma: float) -> Profile:
    """Return what noisy counts of a grid say.

    Args:
        grid: see there.
        counts: of the first histogram, and of the second, where there is one, behind it; with noise.
        sigma: standard deviation of the noise on each.

    Raises:
        ValueError: so many counts are not those of the grid.
    """
    if len(counts) < grid.size:
        raise ValueError(f"{len(counts)} counts of a grid, expected at least {grid.size}")
    noisy, n_cells = np.asarray(counts[: grid.size], np.float64), len(grid.edges) - 1
    people = max(float(noisy.sum()), 1.0)
    below, above = (max(float(noisy[n_cells + place]), 0.0) / people for place in (0, 1))
    cells, in_cells, points = noisy[:n_cells].copy(), np.zeros(n_cells), list[float]()
    for candidate, count in zip(grid.candidates, noisy[n_cells + 2 :].tolist(), strict=True):
        if candidate in grid.declared or count > max(_NOT_OF_NOISE * sigma, LEAST_POINT * people):
            points.append(candidate)
        else:
            in_cells[_cell(grid.edges, candidate)] += count
    in_cells[[0, -1]] += noisy[n_cells : n_cells + 2]
    seen = _ends(cells + in_cells, sigma, are_even=grid.is_even)
    edges, fine = grid.edges, cells
    if len(grid.fine) > len(grid.edges):
        edges, fine = _divided(grid, cells, counts)
    elif len(counts) > grid.size:
        raise ValueError(f"{len(counts)} counts of a grid, expected {grid.size}")
    if seen is None:
        even = np.full(len(edges) - 1, 1 / (len(edges) - 1))
        return Profile(bins=(), points=tuple(points), edges=edges, shares=even, below=below, above=above)
    first, last = _where_nobody_could_hide(*seen, n_cells, sigma, people)
    inside = (edges >= grid.edges[first]) & (edges <= grid.edges[last + 1])
    of = _cells(grid.edges, edges)
    fine = fine + in_cells[of] * np.diff(edges) / np.diff(grid.edges)[of]
    kept = inside[:-1] & inside[1:]
    widths = np.diff(edges) if grid.is_even else np.diff(edges) / np.diff(grid.edges)[of]
    edges, shares = edges[inside], _smooth(fine[kept], widths[kept], sigma)
    return Profile(
        bins=tuple(edges[_bounds_of_bins(shares)].tolist()),
        points=tuple(points),
        edges=edges,
        shares=shares,
        below=below,
        above=above,
    )


def _cell(edges: Floats, value: float) -> int:
    return int(np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(edges) - 2))


def _cells(edges: Floats, parts: Floats) -> Ints:
    """Return the cell of each part of cells, from the edges of both."""
    return np.asarray(np.searchsorted(edges, parts[:-1], side="right") - 1, dtype=np.int64)


def _divided(grid: Grid, cells: Floats, counts: Sequence[int]) -> tuple[Floats, Floats]:
    """Return edges and counts of the second histogram, brought together with the first by generalised least squares."""
    edges = parts_of(grid, counts)
    parts = np.asarray(counts[grid.size :], np.float64)
    if len(parts) != len(edges) - 1:
        raise ValueError(f"{len(counts)} counts of a grid, expected {grid.size + len(edges) - 1}")
    of = _cells(grid.edges, edges)
    n_parts, sums = np.bincount(of, minlength=len(cells)), np.bincount(of, weights=parts, minlength=len(cells))
    return edges, parts + ((cells - sums) / (n_parts + 1))[of]


def _ends(cells: Floats, sigma: float, *, are_even: bool) -> tuple[int, int] | None:
    """Return the outermost cells with people; none: the noise hides them.

    From the cells whose surroundings have people beyond noise, the ends move outward over windows that have some, too.
    """
    narrow, wide = (_excess(cells, around, sigma) for around in _AROUND)
    if max(narrow.max(), wide.max()) <= _NOT_OF_NOISE:
        return None
    there = np.flatnonzero(narrow > _BEYOND)
    if not len(there):
        there = np.flatnonzero(wide > _BEYOND)
    first, last = int(there[0]), int(there[-1])
    behind = len(cells) - 1 - _outward(cells[::-1], len(cells) - 1 - first, sigma, are_even=are_even)
    return behind, _outward(cells, last, sigma, are_even=are_even)


def _where_nobody_could_hide(first: int, last: int, n_cells: int, sigma: float, people: float) -> tuple[int, int]:
    """Return ends, or the bound where the noise on the cells behind an end could hide `_HIDDEN` of a bin's people."""
    most = (_HIDDEN * people / (BINS * _BEYOND * sigma)) ** 2
    return (first if first < most else 0), (last if n_cells - 1 - last < most else n_cells - 1)


def _outward(cells: Floats, last: int, sigma: float, *, are_even: bool) -> int:
    """Return the last cell behind which no window of cells has more people than noise makes of nobody."""
    while last < len(cells) - 1:
        rest = cells[last + 1 :]
        if are_even and float(rest.sum()) > _BEYOND_OF_REST * sigma * math.sqrt(len(rest)):
            return len(cells) - 1
        windows = (rest[: 2 * around + 1] for around in _AROUND)
        found = next((w for w in windows if float(w.sum()) > _BEYOND * sigma * math.sqrt(len(w))), None)
        if found is None:
            break
        last += len(found)
    return last


def _excess(cells: Floats, around: int, sigma: float) -> Floats:
    """Return the sum of the cells around each, in standard deviations of its noise."""
    sums, widths = (_summed(each, np.ones(2 * around + 1)) for each in (cells, np.ones(len(cells))))
    return np.asarray(sums / (sigma * np.sqrt(widths)), dtype=np.float64)


def _summed(values: Floats, weights: Floats) -> Floats:
    """Return the weighted sum of the values around each."""
    around = len(weights) // 2
    return np.convolve(values, weights, mode="full")[around : around + len(values)]


def _smooth(cells: Floats, widths: Floats, sigma: float) -> Floats:
    """Return shares of cells that follow the counts as far as these are beyond the noise: the mean of some trees of runs.

    Args:
        cells: noisy counts.
        widths: what a cell has beside others where nothing is known.
        sigma: standard deviation of the noise on each.
    """
    found = np.sum([_in_runs(cells, widths, sigma, part) for part in _DIVISIONS], axis=0)
    return np.asarray(found / found.sum(), dtype=np.float64)


def _in_runs(cells: Floats, widths: Floats, sigma: float, part: float) -> Floats:
    """Return counts that are not negative, of runs of cells that are divided in two until each is a cell.

    A run's people are divided as its widths are, and as its counts are where these differ by more than `_BEYOND` standard
    deviations of the noise. Other differences shrink by what runs of their level have beyond the noise. So cells without people
    get no part of the noise around them but that of the run which they are in.

    Args:
        part: of a run's cells that are in its first half.
    """
    count, width = (np.append(0.0, np.cumsum(values)) for values in (cells, widths))
    found = np.zeros(len(cells))
    first, last, people = np.array([0]), np.array([len(cells)]), np.array([max(count[-1], 1.0)])
    while len(first):
        is_cell = last - first == 1
        found[first[is_cell]] = people[is_cell]
        first, last, people = first[~is_cell], last[~is_cell], people[~is_cell]
        middle = np.clip(first + np.rint((last - first) * part).astype(int), first + 1, last - 1)
        share = (width[middle] - width[first]) / (width[last] - width[first])
        more = (count[middle] - count[first]) * (1 - share) - (count[last] - count[middle]) * share
        noise = sigma**2 * ((middle - first) * (1 - share) ** 2 + (last - middle) * share**2)
        weight = np.ones(len(first))
        is_noisy = more**2 <= _BEYOND**2 * noise
        beyond = max(math.fsum(more[is_noisy] ** 2 - noise[is_noisy]), 0.0) / max(int(is_noisy.sum()), 1)
        weight[is_noisy] = beyond / (beyond + noise[is_noisy])
        half = np.clip(people * share + weight * more, 0.0, people)
        first, last = np.stack((first, middle), axis=1).ravel(), np.stack((middle, last), axis=1).ravel()
        people = np.stack((half, people - half), axis=1).ravel()
    return found


def _bounds_of_bins(shares: Floats) -> list[int]:
    """Return where bins begin and end among cells, of about 1 / `BINS` of the people each."""
    each, bounds, filled = 1 / BINS, [0], 0.0
    for place, share in enumerate(shares.tolist()):
        if place > bounds[-1] and filled + share / 2 > each:
            bounds.append(place)
            filled = 0.0
        filled += share
    return [*bounds, len(shares)]
