"""Numbers inside bins with the endings that their column has: see `verticil.shared.study.endings`.

Each record draws an ending of those that its bin holds, or none, and its number becomes the nearest one that ends so inside the
bin: no record changes its bin. Bins that hold nothing but endings have them anyhow; the others have what is left of each share.
"""

from __future__ import annotations

import itertools

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Bools, Floats, Ints
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.endings import Lattice, lattice_of
from verticil.shared.study.typed_variables import value_step, written_format


def ending_weights(variable: Variable, codes: AnyCodes) -> Floats:
    """Return how often a record of each bin has each ending, and none: (bins, endings + 1).

    Args:
        variable: with bins and endings.
        codes: (n,) of all records.
    """
    edges, lattices = _edges(variable), _lattices(variable)
    values = np.array(
        [[_count(variable, lattice, *bin_) for lattice in lattices] for bin_ in itertools.pairwise(edges)]
    )
    points = [round(point / value_step(variable)) for point in variable.points]
    sizes = np.array(
        [high - low - sum(low <= point < high for point in points) for low, high in itertools.pairwise(edges)]
    )
    people = np.bincount(codes, minlength=variable.n_bins)[: variable.n_bins].astype(np.float64)
    shares = np.array([share for _, share in variable.endings])
    has = values > 0
    is_closed = (values.sum(axis=1) >= sizes) & has.any(axis=1)
    closed = _normalized(np.where(has, shares, 0.0))
    chance = np.array([1 / lattice.period for lattice in lattices])  # of a number that ends as it may
    rest = max(1 - shares.sum(), 0.0) / max(1 - chance.sum(), 1e-9)
    is_open = has.any(axis=1) & ~is_closed
    wanted = np.maximum((shares - rest * chance) * people.sum() - people[is_closed] @ closed[is_closed], 0.0)
    room = np.maximum(people[is_open] @ has[is_open], 1.0)
    left = _normalized(np.where(has, wanted / room if wanted.any() else shares, 0.0))
    bare = people[~has.any(axis=1)].sum()
    none = np.where(is_open, np.clip((rest * people.sum() - bare) / max(people[is_open].sum(), 1.0), 0.0, 1.0), 1.0)
    open_weights = np.column_stack([left * (1 - none)[:, None], none])
    return np.where(is_closed[:, None], np.column_stack([closed, 1 - closed.sum(axis=1)]), open_weights)


def _normalized(weights: Floats) -> Floats:
    """Return weights whose rows add up to 1, or to 0 where they have none."""
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), dtype=np.float64)


def with_endings(
    variable: Variable, codes: AnyCodes, numbers: Floats | Ints, weights: Floats, chances: Floats
) -> Floats | Ints:
    """Return the numbers of records with their column's endings.

    Args:
        variable: with bins and endings.
        codes: (n,).
        numbers: (n,) one in each record's bin; records without a bin keep theirs.
        weights: see `ending_weights`.
        chances: (n,) from 0 to below 1, which draw each record's ending.
    """
    step = value_step(variable)
    lattices = _lattices(variable)
    result = np.asarray(numbers, dtype=np.float64).copy()
    for place, (low, high) in enumerate(itertools.pairwise(_edges(variable))):
        rows = np.flatnonzero(codes == place)
        ending = np.searchsorted(np.cumsum(weights[place][:-1]), chances[rows], side="right")
        for number, lattice in enumerate(lattices):
            own = rows[ending == number]
            result[own] = _nearest(result[own] / step, lattice, low, high) * step
    return np.round(result).astype(np.int64) if variable.integer else np.round(result, variable.decimals or 0)


def ends_so(variable: Variable, numbers: Floats) -> Bools:
    """Return which numbers have one of the column's endings."""
    units = np.round(np.asarray(numbers) / value_step(variable))
    hits = [
        (np.abs(units) if lattice.by_size else units) % lattice.period == lattice.residue
        for lattice in _lattices(variable)
    ]
    return np.asarray(np.any(hits, axis=0), dtype=np.bool_)


def _edges(variable: Variable) -> list[int]:
    return [round(edge / value_step(variable)) for edge in variable.bins or ()]


def _lattices(variable: Variable) -> list[Lattice]:
    pattern = written_format(variable) if variable.kind in {"time", "datetime"} else ""
    return [lattice_of(text, str(variable.kind), pattern) for text, _ in variable.endings]


def _values(lattice: Lattice, low: int, high: int) -> range:
    """Return the values with an ending from `low` to below `high`."""
    residue = -lattice.residue if lattice.by_size and low + high < 0 else lattice.residue
    return range(low + (residue - low) % lattice.period, high, lattice.period)


def _length(values: range) -> int:
    """Return how many values a range has, which can be more than `len` counts."""
    return max(-((values.start - values.stop) // values.step), 0)


def _count(variable: Variable, lattice: Lattice, low: int, high: int) -> int:
    """Return how many values of a bin have the ending and are no points."""
    values = _values(lattice, low, high)
    return _length(values) - sum(round(point / value_step(variable)) in values for point in variable.points)


def _nearest(units: Floats, lattice: Lattice, low: int, high: int) -> Floats:
    """Return the nearest values with an ending inside a bin that has one; none where there are no units."""
    values = _values(lattice, low, high)
    if not len(units):
        return units
    place = np.clip(np.round((units - values[0]) / lattice.period), 0, _length(values) - 1)
    return np.asarray(values[0] + lattice.period * place, dtype=np.float64)
