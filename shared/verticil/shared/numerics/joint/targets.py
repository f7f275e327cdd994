"""Measured tables as the blocks of one symmetric matrix, and how far a model's tables are from them.

Rows and columns are the released entries of all units (`layout`). The block of two units is their measured table in shares of the
people; blocks that were not measured, and those of a unit with itself, weigh nothing. Tables of one unit, or of three and more,
do not fit into a matrix and stand beside it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint.layout import Layout, Singles
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables, sum_runs
from verticil.shared.numerics.joint.one_way import one_way_shares
from verticil.shared.numerics.joint.shrinkage import toward_independence
from verticil.shared.numerics.joint.tuning import TUNING

Rows = TypeVar("Rows", Singles, Floats)


@dataclass(frozen=True, slots=True, eq=False)
class OtherTable:
    """A table of one unit, or of three and more.

    Attributes:
        units: its units.
        shares: (M_first, ..): observed, of the people.
        weight: (M_first, ..): of a squared residual, 1 over its variance with noise, else 1.
        exact: whether its columns are as they are.
    """

    units: tuple[int, ...]
    shares: Singles
    weight: Singles
    exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class Twin:
    """The same tables with noise, every cell moved by `Tuning.moved` standard deviations up or down: what a fit makes of it tells
    how much of the noise it takes up (`stopping`).

    Attributes:
        shares: (E, E), as of `Targets`.
        move: (E, E): how far each cell moved, over its variance.
        others: as of `Targets`.
        start: (S,): the variables' distributions as these tables have them.
    """

    shares: Singles
    move: Singles
    others: tuple[OtherTable, ...]
    start: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What a model is fitted to. Arrays are of single precision.

    Attributes:
        layout: of rows.
        n: people.
        noisy: whether noise is on the tables: residuals are then in units of their variance.
        shares: (E, E): what is fitted, of the people; 0 where nothing was measured.
        observed: (E, E): what was measured; the same but where tables are shrunk.
        weight: (E, E): with noise 1 over the variance of a cell, else 1; 0 where nothing was measured.
        margins: (E,): of every unit, as they were observed.
        plain: (E,): 1 for the entries of a column that is as it is, else 0.
        per_record: (E,): how many entries a released record of the unit has.
        others: tables of one unit, or of three and more; one-way tables only where no larger one has their unit.
        cells: how many cells were measured, each once.
        twin: with noise.
    """

    layout: Layout
    n: float
    noisy: bool
    shares: Singles
    observed: Singles
    weight: Singles
    margins: Singles
    plain: Singles
    per_record: Singles
    others: tuple[OtherTable, ...]
    cells: int
    twin: Twin | None


def all_targets(
    tables: NoisyTables,
    start: Sequence[Floats],
    *,
    layout: Layout | None = None,
    shrunk: bool = False,
    with_twin: bool = True,
) -> tuple[Targets, ...]:
    """Return the targets of a fit at each resolution: of the tables, and of their coarse ones; arguments as of `targets`."""
    fine = targets(tables, start, layout=layout, shrunk=shrunk, with_twin=with_twin)
    if tables.coarse is None:
        return (fine,)
    runs = Layout(tables.n_states, tables.units, tables.coarse.runs)
    return fine, targets(tables, start, layout=runs, shrunk=shrunk, with_twin=with_twin)


def targets(
    tables: NoisyTables,
    start: Sequence[Floats],
    *,
    layout: Layout | None = None,
    shrunk: bool = False,
    with_twin: bool = True,
) -> Targets:
    """Return the targets of a fit.

    Args:
        tables: what was measured.
        start: the distribution of each variable (`one_way.one_way_shares`); the scatter of the randomization follows from it.
        layout: of the same tables, where it is there already; one of their runs asks for the coarse tables.
        shrunk: whether tables of pairs with noise are fitted as `shrinkage` has them.
        with_twin: whether tables with noise get their twin, without which nothing tells when to stop.
    """
    layout = layout or Layout(tables.n_states, tables.units)
    n, size = tables.people, layout.n_entries
    row = np.concatenate(list(start))[None].astype(np.float32)
    mean, square = layout.released(row)[0], layout.released(row, squared=True)[0]
    margins = np.empty(size, np.float32)
    plain, per_record = np.empty(size, np.float32), np.empty(size, np.float32)
    for unit, columns in enumerate(layout.entries):
        channel = tables.units[unit].channel
        margin = tables.one_way(unit)[0] / n
        margins[columns] = sum_runs(margin, layout.runs[unit], 0) if layout.runs else margin
        plain[columns] = channel.is_identity
        per_record[columns] = channel.codes_per_record
    others: list[OtherTable] = []
    chosen: list[tuple[MeasuredTable, Floats]] = []
    measured = tables.coarse.tables if tables.coarse is not None and layout.runs else tables.tables
    of_pairs = _pair_weights(tables.has_noise, measured, layout, n, (mean, square, per_record))
    for table in measured:
        if len(table.units) == 1 and table.sigma == 0 and _in_larger(table, tables):
            continue  # the larger tables say the same
        places = [layout.entries[unit] for unit in table.units]
        if len(places) == 2:
            chosen.append((table, of_pairs[places[0], places[1]]))
            continue
        own = np.ones(table.counts.shape)
        if tables.has_noise:
            own = _weight(table.sigma, n, [(mean[place], square[place], per_record[place]) for place in places])
        chosen.append((table, own))
        exact = all(tables.units[unit].channel.is_identity for unit in table.units)
        others.append(OtherTable(table.units, (table.counts / n).astype(np.float32), own.astype(np.float32), exact))
    weight = of_pairs.astype(np.float32)
    weight += weight.T
    observed = shares = _pairs(layout, [table for table, _ in chosen], n)
    if shrunk:
        shares = toward_independence(layout, observed, weight, mean)
    twin = None
    if with_twin and tables.has_noise:
        twin = _twin(tables, chosen, layout, others, start=start, shrunk_by=weight if shrunk else None)
    return Targets(
        layout,
        n,
        tables.has_noise,
        shares,
        observed,
        weight,
        margins,
        plain,
        per_record,
        tuple(others),
        sum(table.counts.size for table, _ in chosen),
        twin,
    )


def _twin(
    tables: NoisyTables,
    chosen: Sequence[tuple[MeasuredTable, Floats]],
    layout: Layout,
    others: Sequence[OtherTable],
    *,
    start: Sequence[Floats],
    shrunk_by: Singles | None,
) -> Twin:
    """Return the twin of some of the tables, with the weights of their cells.

    Args:
        tables: all, with noise.
        chosen: those that are fitted, each with the weights of its cells.
        layout: of the same.
        others: those that are not of pairs.
        start: the variables' distributions, which those of coarse tables stay.
        shrunk_by: where tables of pairs are shrunk, the weights of all.
    """
    n = tables.people
    rng = np.random.default_rng(bool(layout.runs))  # has nothing to do with the noise that the tables have
    moved: list[MeasuredTable] = []
    move = np.zeros((layout.n_entries, layout.n_entries), np.float32)
    for table, own in chosen:
        up = rng.integers(0, 2, own.shape) * 2 - 1
        moved.append(
            MeasuredTable(
                units=table.units, counts=table.counts + TUNING.moved * n * up / np.sqrt(own), sigma=table.sigma
            )
        )
        if len(table.units) == 2:
            first, second = (layout.entries[unit] for unit in table.units)
            far = TUNING.moved * up * np.sqrt(own)
            move[first, second], move[second, first] = far, far.T
    if not layout.runs:
        start = one_way_shares(dataclasses.replace(tables, tables=tuple(moved), n_records=max(round(n), 1)))
    shares = _pairs(layout, moved, n)
    if shrunk_by is not None:
        row = np.concatenate(list(start))[None].astype(np.float32)
        shares = toward_independence(layout, shares, shrunk_by, layout.released(row)[0])
    beyond = [(table.counts / n).astype(np.float32) for table in moved if len(table.units) != 2]
    own_others = tuple(dataclasses.replace(one, shares=to) for one, to in zip(others, beyond, strict=True))
    return Twin(shares, move, own_others, np.concatenate(list(start)))


def _in_larger(table: MeasuredTable, tables: NoisyTables) -> bool:
    return any(table.units[0] in more.units for more in tables.tables if more is not table)


def _pairs(layout: Layout, tables: Sequence[MeasuredTable], n: float) -> Singles:
    """(E, E): the shares of the tables of two units."""
    shares = np.zeros((layout.n_entries, layout.n_entries), np.float32)
    for table in tables:
        if len(table.units) == 2:
            first, second = (layout.entries[unit] for unit in table.units)
            shares[first, second] = table.counts / n
            shares[second, first] = shares[first, second].T
    return shares


def _pair_weights(
    has_noise: bool,
    tables: Sequence[MeasuredTable],
    layout: Layout,
    n: float,
    entries: tuple[Singles, Singles, Singles],
) -> Floats:
    """(E, E): the weights of the cells of all pairs, above the diagonal; 0 where nothing was measured.

    Args:
        has_noise: whether the tables have noise.
        tables: what was measured.
        layout: of the same.
        n: people.
        entries: (E,) each, see `_weight`.
    """
    found, at = np.zeros((layout.n_entries, layout.n_entries)), np.arange(layout.n_entries)
    of_first: dict[int, dict[float, list[int]]] = {}
    for table in tables:
        if len(table.units) == 2:
            first, second = table.units
            of_first.setdefault(first, {}).setdefault(table.sigma, []).append(second)
    for first, by_sigma in of_first.items():
        rows = layout.entries[first]
        for sigma, seconds in by_sigma.items():
            columns = np.concatenate([at[layout.entries[second]] for second in seconds])
            if has_noise:
                parts = [(mean[rows], square[rows], size[rows]) for mean, square, size in [entries]]
                parts += [(mean[columns], square[columns], size[columns]) for mean, square, size in [entries]]
                found[rows, columns] = _weight(sigma, n, parts)
            else:
                found[rows, columns] = 1.0
    return found


def _weight(sigma: float, n: float, parts: Sequence[tuple[Singles, Singles, Singles]]) -> Floats:
    """1 over the variance of each cell's share: noise, and the scatter of the randomization where there is any.

    A cell that neither moves may be as far off as a cell of an exact count (`Tuning.exact_variance`).

    Args:
        sigma: of the noise on a cell, people.
        n: people.
        parts: of each axis, what its entries are expected to be, the same through the squared channel, and how many entries a
            released record has.
    """
    mean, second, square = (np.ones((), np.float64) for _ in range(3))
    for expected, squared, per_record in parts:
        mean = np.multiply.outer(mean, expected.astype(np.float64))
        second = np.multiply.outer(second, (expected / per_record).astype(np.float64))
        square = np.multiply.outer(square, squared.astype(np.float64))
    variance = (sigma / n) ** 2 + np.maximum(second - square, 0.0) / n
    floor = TUNING.exact_variance * np.maximum(mean, 0.5 / n) / n if sigma == 0 else 0.0
    weights: Floats = 1 / np.maximum(variance, floor)
    return weights


def expected_table(released: Sequence[Rows], weights: Rows | None = None) -> Rows:
    """Return the mean over components of the outer product of their rows: (m, M_first), (m, M_second), .. to (M_first, M_second,
    ..).

    Args:
        released: rows of the components, for each axis.
        weights: (m,) of the components, that sum to 1; None: all alike.
    """
    first, *rest = released
    shape = tuple(rows.shape[1] for rows in released)
    if weights is not None:
        first = first * (len(first) * weights)[:, None]
    if not rest:
        mean: Rows = first.mean(axis=0)
        return mean
    table: Rows = np.matmul(first.T, outer_rows(rest))
    table /= len(first)
    return table.reshape(shape)


def outer_rows(released: Sequence[Rows]) -> Rows:
    """Return the outer product of each component's rows, flat: (m, M_first * M_second * ..)."""
    product = released[0]
    for rows in released[1:]:
        product = (product[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
    return product


def degrees(targets: Targets) -> float:
    """Return which part of a pair table's variance is left when what its margins say is taken out: (M_a - 1) (M_c - 1) of M_a
    M_c - 1.

    A record that is a set of w entries has the variance of M / w categories.
    """
    layout = targets.layout
    sizes = [(s.stop - s.start) / float(targets.per_record[s.start]) for s in layout.entries]
    left = full = 0.0
    for a, first in enumerate(layout.entries):
        for c in range(a):
            if targets.weight[first.start, layout.entries[c].start] > 0:
                left += (sizes[a] - 1) * (sizes[c] - 1)
                full += sizes[a] * sizes[c] - 1
    return left / full if full > 0 else math.nan
