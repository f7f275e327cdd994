"""What rows of people are like: how many a person has, what follows what, and how much time lies between.

From the codes of slots, of people or of records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Floats
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.related.structure import slots_of
from verticil.shared.related.tables import RelatedTable


@dataclass(frozen=True, slots=True, eq=False)
class Transitions:
    """Of one column, which value follows which.

    Attributes:
        column: its name.
        labels: K of its values, as a slot has them.
        shares: (K, K): of the rows with a value (first axis) that have a next one, the share of each next value.
        counts: (K,) rows with a value that have a next one.
    """

    column: str
    labels: tuple[str, ...]
    shares: Floats
    counts: Floats


@dataclass(frozen=True, slots=True, eq=False)
class RowFigures:
    """What the rows of one related table are like.

    Attributes:
        table: the table.
        people: (max_rows + 1,): the share of people with each number of rows.
        transitions: of the columns with values of their own in every slot, those that do not order the rows.
        gaps: labels and shares of the time to the next row; none: the table has no order, or one slot.
    """

    table: RelatedTable
    people: Floats
    transitions: tuple[Transitions, ...]
    gaps: tuple[tuple[str, ...], Floats] | None


def row_figures(table: RelatedTable, schema: Schema, codes: Sequence[AnyCodes]) -> RowFigures:
    """Return what some people's or records' rows are like.

    Args:
        table: the table.
        schema: has its slots.
        codes: (n,) of each variable, n at least 1.
    """
    counts = np.asarray(codes[schema.index(table.count)], dtype=np.intp)
    people = np.bincount(counts, minlength=table.max_rows + 1) / max(len(counts), 1)
    return RowFigures(table, people, tuple(_transitions(table, schema, codes)), _gaps(table, schema, codes, counts))


def _transitions(table: RelatedTable, schema: Schema, codes: Sequence[AnyCodes]) -> Iterator[Transitions]:
    slots = slots_of(table, schema)
    counts = np.asarray(codes[slots.count], dtype=np.intp)
    for place, name in enumerate(table.columns):
        if name == table.order or table.max_rows == 1:
            continue
        size = schema.n_states[slots.columns[0][place]]
        cells = np.zeros(size * size, np.int64)
        for number in range(1, table.max_rows):
            both = counts > number
            one, other = (
                np.asarray(codes[slots.columns[k][place]])[both].astype(np.intp) for k in (number - 1, number)
            )
            cells += np.bincount(one * size + other, minlength=size * size)
        kept = size - int(slots.structural[0][place])  # the category of an empty slot is the last one
        matrix = cells.reshape(size, size)[:kept, :kept].astype(np.float64)
        totals = matrix.sum(axis=1, keepdims=True)
        shares = np.divide(matrix, totals, out=np.full_like(matrix, np.nan), where=totals > 0)
        yield Transitions(name, schema[slots.columns[0][place]].labels[:kept], shares, totals[:, 0])


def _gaps(
    table: RelatedTable, schema: Schema, codes: Sequence[AnyCodes], counts: NDArray[np.intp]
) -> tuple[tuple[str, ...], Floats] | None:
    if table.order is None or table.max_rows == 1:
        return None
    names = table.slots_of(table.order)[1:]
    variable = schema[schema.index(names[0])]
    totals = np.zeros(variable.n_bins)
    for number, name in enumerate(names, 1):
        own = np.asarray(codes[schema.index(name)])[counts > number]
        totals += np.bincount(own[own < variable.n_bins], minlength=variable.n_bins)
    return variable.labels[: variable.n_bins], totals / max(totals.sum(), 1.0)
