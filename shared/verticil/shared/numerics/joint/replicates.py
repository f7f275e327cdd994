"""People, and tables, as they could have come out: for the parametric bootstrap of what a model implies."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.joint.coarse import in_runs
from verticil.shared.numerics.joint.count import counted
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.joint.weighted_records import categories_of, draw_from_rows
from verticil.shared.numerics.model.joint import JointModel, WeightedRecords

MOST: Final = 100_000
"""People who are drawn; of more, the scatter is scaled."""


def _people(tables: NoisyTables, model: JointModel, n: int, generator: np.random.Generator) -> list[NDArray[np.intp]]:
    """Return other people from a model, as they would be released.

    Args:
        tables: how their columns are randomized.
        model: of the variables.
        n: how many.
        generator: source of all randomness; advanced.

    Returns:
        The codes of each unit, (n,).
    """
    codes = _records(model, n, generator)
    found: list[NDArray[np.intp]] = []
    for unit in tables.units:
        of_records = categories_of(codes, unit)
        if (of_records < 0).any():  # an impossible combination: one of the possible ones takes its place
            lost = np.flatnonzero(of_records < 0)
            of_records[lost] = generator.choice(of_records[of_records >= 0], size=len(lost))
        exact = unit.channel.is_identity
        found.append(of_records if exact else draw_from_rows(unit.channel.probabilities, of_records, generator))
    return found


def recounted(tables: NoisyTables, model: JointModel, generator: np.random.Generator) -> NoisyTables:
    """Return the same tables of other people from the same model, randomized as these are and without noise.

    Of more than `MOST` people so many are drawn, and their scatter about what the model expects is made smaller by the square
    root of the ratio.

    Args:
        tables: what was measured; its people are `NoisyTables.people`.
        model: of its variables.
        generator: source of all randomness; advanced.

    Raises:
        ValueError: a unit's records are sets.
    """
    if any(unit.channel.codes_per_record > 1 for unit in tables.units):
        raise ValueError("tables of sets cannot be drawn")
    n = max(round(tables.people), 1)
    drawn = min(n, MOST)
    released = _people(tables, model, drawn, generator)
    exact: list[MeasuredTable] = []
    columns = [codes.astype(np.uint16) for codes in released]
    widths = [unit.channel.n_states for unit in tables.units]
    found = counted(columns, widths, [table.units for table in tables.tables])
    for table, (_, own) in zip(tables.tables, found, strict=True):
        counts: Floats = own * np.float64(n / drawn)
        if drawn < n:
            variables = [tables.units[unit].variables for unit in table.units]
            shares = model.shares([v for of_unit in variables for v in of_unit])
            shares = shares.reshape([math.prod(tables.n_states[v] for v in of_unit) for of_unit in variables])
            shares = shares[np.ix_(*(_cells(tables, unit) for unit in table.units))]
            means = n * apply_axes(
                shares / shares.sum(), [tables.units[unit].channel.probabilities for unit in table.units]
            )
            counts = means + (counts - means) * (drawn / n) ** 0.5
        exact.append(MeasuredTable(units=table.units, counts=counts))
    return dataclasses.replace(tables, tables=tuple(exact), coarse=None)


def with_noise_of(tables: NoisyTables, people: NoisyTables, generator: np.random.Generator) -> NoisyTables:
    """Return the tables of other people with noise, and a second resolution, as these tables have.

    The noise is normal: it stands for noise on whole numbers here.

    Args:
        tables: what was measured.
        people: see `recounted`.
        generator: source of all randomness; advanced.
    """
    measured = [_noised(table, of.sigma, generator) for table, of in zip(people.tables, tables.tables, strict=True)]
    coarse = tables.coarse
    if coarse is not None:
        sums = in_runs(people, coarse.runs, [table.units for table in coarse.tables])
        noisy = [_noised(table, of.sigma, generator) for table, of in zip(sums, coarse.tables, strict=True)]
        coarse = dataclasses.replace(coarse, tables=tuple(noisy))
    return dataclasses.replace(tables, tables=tuple(measured), coarse=coarse)


def _noised(table: MeasuredTable, sigma: float, generator: np.random.Generator) -> MeasuredTable:
    noise = sigma * generator.standard_normal(table.counts.shape) if sigma else 0.0
    return MeasuredTable(units=table.units, counts=table.counts + noise, sigma=sigma)


def _records(model: JointModel, n: int, generator: np.random.Generator) -> NDArray[np.uint16]:
    """(n, d) codes of people."""
    components = np.repeat(np.arange(len(model.weights)), generator.multinomial(n, model.weights))
    if isinstance(model, WeightedRecords):
        return model.codes[components]
    codes = np.empty((n, len(model.probability)), np.uint16, order="F")
    for variable, table in enumerate(model.probability):
        codes[:, variable] = draw_from_rows(table, components, generator)
    return codes


def _cells(tables: NoisyTables, unit: int) -> NDArray[np.intp]:
    """Return which combination of its variables each category of a unit is, in C order."""
    of = tables.units[unit]
    shape = [tables.n_states[v] for v in of.variables]
    if of.domain is None:
        return np.arange(math.prod(shape), dtype=np.intp)
    return np.asarray(np.ravel_multi_index(np.array(of.domain, dtype=np.intp).T.tolist(), shape), dtype=np.intp)
