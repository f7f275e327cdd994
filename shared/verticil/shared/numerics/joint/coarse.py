"""Two resolutions: every pair with an ordered column is measured once more in runs of neighbouring categories.

The noise on a count does not depend on how many people it counts, so a table of few large cells is measured well where one of
many small cells drowns. A run has about a fifth of the people (`SHARE`), by shares that have noise already: so which categories
are in a run costs nothing. A category with more than a fifth stands alone, and so does one that is not in the order (missing, a
point). The mixture is fitted to both resolutions at once; whatever else reads the tables reads `NoisyTables.combined`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint.noise import noised, noised_runs
from verticil.shared.numerics.joint.noisy_tables import CoarseTables, MeasuredTable, NoisyTables, sum_runs

SHARE: Final = 0.2
"""Of the people, in a run."""


def runs_of(shares: Floats, order: Sequence[int]) -> NDArray[np.intp]:
    """Return which run each category is in.

    Args:
        shares: (K,) of the people, with noise.
        order: the codes of the ordered categories, in their order; each other category stands alone.

    Returns:
        (K,) numbers from 0.

    >>> runs_of(np.array([0.05, 0.05, 0.1, 0.5, 0.1, 0.1, 0.1]), range(6)).tolist()
    [0, 0, 0, 1, 2, 2, 3]
    """
    runs: list[list[int]] = []
    filled = SHARE  # so that the first category begins a run
    for code in order:
        share = max(float(shares[code]), 0.0)
        if filled + share / 2 > SHARE or not runs:
            runs.append([])
            filled = 0.0
        runs[-1].append(code)
        filled += share
    numbered = set(order)
    runs += [[code] for code in range(len(shares)) if code not in numbered]
    found = np.empty(len(shares), np.intp)
    for number, codes in enumerate(runs):
        found[codes] = number
    return found


def pairs_with_order(orders: Sequence[Sequence[int]], tables: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return the pairs among some tables of units of which one has more ordered categories than there are runs.

    Args:
        orders: of each unit.
        tables: their units.
    """
    return tuple(units for units in tables if len(units) == 2 and any(len(orders[unit]) * SHARE > 1 for unit in units))


def summed(exact: NoisyTables, noisy: NoisyTables, pairs: Sequence[tuple[int, ...]]) -> CoarseTables:
    """Return the coarse tables of exact counts, without noise yet, by the runs that noisy tables of them give.

    Args:
        exact: the counts.
        noisy: the same with noise, and with the orders of the variables.
        pairs: of units, that are measured.
    """
    runs = runs_by(noisy)
    return CoarseTables(runs=runs, tables=tuple(in_runs(exact, runs, pairs)))


def noised_in_sets(
    exact: NoisyTables,
    pairs: Sequence[tuple[int, ...]],
    key: bytes,
    *,
    sigma: float | Sequence[float],
    coarse_sigma: float | None,
) -> NoisyTables:
    """Return the tables of exact counts with noise, and with the second resolution of some pairs; arguments as of `noise.noised`.

    Args:
        exact: the counts.
        pairs: of units, that are measured in runs too.
        key: of the noise.
        sigma: parameter of the noise on each count; or that of each table.
        coarse_sigma: the same of the tables in runs; None: there are none.
    """
    noisy = noised(exact, sigma, key)
    if coarse_sigma is None:
        return noisy
    return replace(noisy, coarse=noised_runs(summed(exact, noisy, pairs), coarse_sigma, key))


def runs_by(noisy: NoisyTables) -> tuple[NDArray[np.intp], ...]:
    """Return the run of each entry of each unit, by the noisy shares of the entries; a compound's stand alone."""
    alone = [unit.variables[0] if len(unit.variables) == 1 else None for unit in noisy.units]
    return tuple(
        runs_of(noisy.one_way(unit)[0] / noisy.people, () if variable is None else noisy.orders[variable])
        for unit, variable in enumerate(alone)
    )


def in_runs(
    exact: NoisyTables, runs: Sequence[NDArray[np.intp]], pairs: Sequence[tuple[int, ...]]
) -> list[MeasuredTable]:
    """Return the tables of some pairs of units, added up over runs; their noise is still to be added."""
    found = []
    for units in pairs:
        table = exact.table(units)
        assert table is not None
        counts = table.counts
        for axis, unit in enumerate(units):
            counts = sum_runs(counts, runs[unit], axis)
        found.append(MeasuredTable(units=units, counts=counts))
    return found
