"""How much of a fitted model to believe: mixing it with the product of its margins, by what tables that it has not seen say.

A model is fitted to a part A of what was measured, and i is the product of the same part's margins; with D their difference in
the released tables, f_B the tables of the rest, and W the weights of cells,

    alpha = sum W D (f_B - i) / sum W D^2, within 0 and 1, over all parts together

is the mixture alpha model + (1 - alpha) product that is nearest to the rest by least squares. Where there is little to see, or a
fit did not come to its end, alpha falls towards 0. The parts are

* of randomized or exact counts: people. Each of the tables' parts is the rest once (`MeasuredTable.parts`);
* of noisy tables: f_A = f + t s Z and f_B = f - s Z / t with s the standard deviation of the noise and Z standard normal: their
  noise is independent (Gaussian thinning, with t = `Tuning.guard_part`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.joint.classes import independent_rows
from verticil.shared.numerics.joint.layout import Layout, Singles
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.joint.targets import expected_table
from verticil.shared.numerics.joint.tuning import TUNING


def can_be_guarded(tables: NoisyTables) -> bool:
    """Return whether there are parts to hold out: noise on every table, or tables that were counted in parts."""
    if tables.has_noise:
        return all(table.sigma > 0 for table in tables.tables)
    return len({len(table.parts) for table in tables.tables}) == 1 and len(tables.tables[0].parts) > 1


def parts(tables: NoisyTables, seed: Sequence[int]) -> Iterator[tuple[NoisyTables, NoisyTables]]:
    """Yield what is fitted and what is held out, a few times."""
    if not tables.has_noise:
        for held in range(len(tables.tables[0].parts)):
            yield _of_people(tables, held, rest=True), _of_people(tables, held, rest=False)
        return
    for draw in range(TUNING.guard_draws):
        rng = np.random.default_rng([*seed, draw])
        fitted, held_out = _thinned(tables.tables, rng)
        own, rest = _with(tables, fitted, tables.people), _with(tables, held_out, tables.people)
        if tables.coarse is not None:
            coarse_fitted, coarse_rest = _thinned(tables.coarse.tables, rng)
            own = dataclasses.replace(own, coarse=dataclasses.replace(tables.coarse, tables=tuple(coarse_fitted)))
            rest = dataclasses.replace(rest, coarse=dataclasses.replace(tables.coarse, tables=tuple(coarse_rest)))
        yield own, rest.combined()


def _thinned(
    tables: Sequence[MeasuredTable], rng: np.random.Generator
) -> tuple[list[MeasuredTable], list[MeasuredTable]]:
    """Return tables with noise in two parts whose noise is independent: what is fitted, and what is held out."""
    fitted: list[MeasuredTable] = []
    held_out: list[MeasuredTable] = []
    for table in tables:
        noise = table.sigma * rng.standard_normal(table.counts.shape)
        for into, factor in ((fitted, TUNING.guard_part), (held_out, -1 / TUNING.guard_part)):
            sigma = table.sigma * (1 + factor**2) ** 0.5
            into.append(MeasuredTable(units=table.units, counts=table.counts + factor * noise, sigma=sigma))
    return fitted, held_out


def _of_people(tables: NoisyTables, held: int, *, rest: bool) -> NoisyTables:
    chosen = [
        MeasuredTable(units=table.units, counts=table.counts - table.parts[held] if rest else table.parts[held])
        for table in tables.tables
    ]
    return _with(tables, chosen, float(chosen[0].counts.sum()))


def _with(tables: NoisyTables, chosen: Sequence[MeasuredTable], people: float) -> NoisyTables:
    return dataclasses.replace(tables, tables=tuple(chosen), n_records=max(round(people), 1))


def agreement(
    layout: Layout,
    rows: Singles,
    start: Sequence[Floats],
    held_out: NoisyTables,
    *,
    weights: Floats | None = None,
) -> tuple[float, float]:
    """sum W D (f_B - i) and sum W D^2 of one part, over the tables of two and more units.

    Args:
        layout: of rows.
        rows: (m, S): the model's components.
        start: the margins of the same part.
        held_out: the rest.
        weights: (m,) of the components, which then have classes: i is the mixture of the classes in which nothing else goes
            together. None: all weigh alike.
    """
    released = layout.released(rows)
    own, own_weights = np.concatenate(list(start))[None].astype(np.float32), None
    if weights is not None:
        own, own_weights = independent_rows(rows, weights, start, layout)
    product = layout.released(own).astype(np.float64)
    above = below = 0.0
    n = held_out.people
    for table in held_out.tables:
        if len(table.units) == 1:
            continue
        places = [layout.entries[unit] for unit in table.units]
        independent = np.ones((), np.float64)
        if own_weights is None:
            for place in places:
                independent = np.multiply.outer(independent, product[0, place])
        else:
            independent = expected_table([product[:, place] for place in places], own_weights)
        difference = expected_table([released[:, place].astype(np.float64) for place in places], weights) - independent
        if held_out.has_noise:
            weight: Floats | float = (n / table.sigma) ** 2
        else:
            weight = 1 / np.maximum(independent, 0.5 / n)
        above += float((weight * difference * (table.counts / n - independent)).sum())
        below += float((weight * difference**2).sum())
    return above, below


def alpha(sums: Sequence[tuple[float, float]]) -> float:
    """Return the share of the model, from the sums of all parts; 1 where the model is the product."""
    above, below = (sum(column) for column in zip(*sums, strict=True))
    return float(np.clip(above / below, 0.0, 1.0)) if below > 0 else 1.0
