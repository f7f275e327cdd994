"""The numbers of the joint estimate made plainly: a loop over tables and components, in double precision."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables

Rows = NDArray[np.float64]


def released(tables: NoisyTables, row: Rows, unit: int, *, squared: bool = False) -> Rows:
    """What one component's probabilities, (S,), are released as in a unit."""
    ends = np.cumsum(tables.n_states)
    parts = [row[end - k : end] for end, k in zip(ends, tables.n_states, strict=True)]
    column = tables.units[unit]
    if column.domain is None:
        true = parts[column.variables[0]]
    else:
        true = np.array(
            [
                np.prod([parts[v][code] for v, code in zip(column.variables, codes, strict=True)])
                for codes in column.domain
            ]
        )
    matrix = column.channel.probabilities
    return true @ (matrix**2 if squared else matrix)


def expected(tables: NoisyTables, rows: Rows, table: MeasuredTable, *, squared: bool = False) -> Rows:
    """The mean over components, (M, S), of a table as it would be released."""
    made = [
        functools.reduce(np.multiply.outer, [released(tables, row, unit, squared=squared) for unit in table.units])
        for row in rows
    ]
    return np.mean(made, axis=0)


def variance(tables: NoisyTables, start: Rows, table: MeasuredTable) -> Rows:
    """Of each cell's share in a table with noise, at the margins `start`, (S,)."""
    n = tables.people
    scatter = expected(tables, start[None], table) - expected(tables, start[None], table, squared=True)
    return (table.sigma / n) ** 2 + np.maximum(scatter, 0) / n


def loss(tables: NoisyTables, rows: Rows, start: Rows) -> float:
    """Half the sum of squared residuals over their variances, of noisy tables."""
    n = tables.people
    return sum(
        float(((expected(tables, rows, t) - t.counts / n) ** 2 / variance(tables, start, t)).sum()) / 2
        for t in tables.tables
    )


def noise_discrepancy(tables: NoisyTables, rows: Rows, start: Rows) -> float:
    """The mean over cells of the squared residual over its variance."""
    return 2 * loss(tables, rows, start) / sum(t.counts.size for t in tables.tables)


def moved_with(tables: NoisyTables, moved: Sequence[MeasuredTable], rows: Rows, start: Rows) -> float:
    """How far a twin is from its original, along what was moved: rows (2, M, S) are of both."""
    return sum(
        float(
            (
                (expected(tables, rows[1], t) - expected(tables, rows[0], t))
                * (to.counts - t.counts)
                / tables.people
                / variance(tables, start, t)
            ).sum()
        )
        for t, to in zip(tables.tables, moved, strict=True)
    )


def shrunk(tables: NoisyTables, start: Rows, table: MeasuredTable, *, about: Rows | None = None) -> Rows:
    """The shares of a pair's table as James & Stein's estimator has them about the product of margins.

    These are `about` (None: `start`), (S,); variances are at `start`.
    """
    n, (rows, columns) = tables.people, table.counts.shape
    away = table.counts / n - expected(tables, (start if about is None else about)[None], table)
    centred = (np.eye(rows) - 1 / rows) @ away @ (np.eye(columns) - 1 / columns)
    explained = (rows - 1) * (columns - 1) / float((centred**2 / variance(tables, start, table)).sum())
    return table.counts / n - min(explained, 1.0) * centred


def records_discrepancy(tables: NoisyTables, rows: Rows) -> float:
    """The same of randomized pairs, the margins taken out (`verticil.shared.numerics.joint.stopping`)."""
    n = tables.people
    missed = explained = left = full = 0.0
    for t in tables.tables:
        e, f = expected(tables, rows, t), t.counts / n
        first, second = (np.mean([released(tables, row, unit) for row in rows], axis=0) for unit in t.units)
        rest = e - f - np.outer(first - f.sum(axis=1), second) - np.outer(first, second - f.sum(axis=0))
        m = np.maximum(np.outer(first, second), 0.5 / n)
        exact = all(tables.units[unit].channel.is_identity for unit in t.units)
        v = 0.3 * e if exact else e - expected(tables, rows, t, squared=True)
        missed += n * float((rest**2 / m).sum())
        explained += float((v / m).sum())
        left += (e.shape[0] - 1) * (e.shape[1] - 1)
        full += e.size - 1
    return missed / explained / (left / full)


def through_softmax(tables: NoisyTables, logits: Rows) -> Rows:
    """The probabilities of logits, (.., S)."""
    parts = np.split(np.exp(logits), np.cumsum(tables.n_states)[:-1], axis=-1)
    return np.concatenate([part / part.sum(axis=-1, keepdims=True) for part in parts], axis=-1)
