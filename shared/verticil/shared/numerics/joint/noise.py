"""Noise on the counts of tables, once: what a curator adds, and a miner that publishes what follows from noisy tables alone.

Every cell of every table has independent discrete Gaussian noise of one parameter
(`verticil.shared.mechanisms.discrete_gaussian`). What (epsilon, delta) that is, follows from the parameter and the number of
tables, and is the accountant's to say.

Sticky: the noise is a function of the key, the table's units, its shape and sigma, so adding it again gives the same tables.
Whoever adds it sees to it that no two different tables of the same units get it under one key: their difference has none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.numerics.joint.noisy_tables import CoarseTables, MeasuredTable, NoisyTables


def noised(tables: NoisyTables, sigma: float | Sequence[float], key: bytes) -> NoisyTables:
    """Return the tables with noise on every count; their parts are left out.

    Args:
        tables: exact, whole numbers.
        sigma: the noise's parameter, people; or that of each table.
        key: 32 bytes, secret. Whoever has it can take the noise out.

    Raises:
        ValueError: a table has noise already, or counts that are not whole; sigma or the key is out of its range.
    """
    sigmas = sigma if isinstance(sigma, Sequence) else [sigma] * len(tables.tables)
    noisy = tuple(_noised(table, each, key) for table, each in zip(tables.tables, sigmas, strict=True))
    return dataclasses.replace(tables, tables=noisy)


def noised_runs(coarse: CoarseTables, sigma: float, key: bytes) -> CoarseTables:
    """Return coarse tables with noise on every count; arguments as of `noised`, whose draws these never are."""
    return dataclasses.replace(coarse, tables=tuple(_noised(table, sigma, key, b"runs") for table in coarse.tables))


def _noised(table: MeasuredTable, sigma: float, key: bytes, of: bytes = b"") -> MeasuredTable:
    if table.sigma:
        raise ValueError(f"the table of the units {table.units} has noise already")
    if not np.array_equal(np.rint(table.counts), table.counts):
        raise ValueError(f"the counts of the units {table.units} are no whole numbers")
    label = of + b"".join(unit.to_bytes(4, "big") for unit in table.units)
    drawn = discrete_gaussian.draw(key, label, table.counts.shape, sigma)
    return MeasuredTable(
        units=table.units, counts=table.counts + drawn, sigma=math.sqrt(discrete_gaussian.variance(sigma))
    )
