"""What follows from slots alone: which categories go with which number of rows, and which pairs of columns are measured.

A slot beyond the count is empty, and a slot up to the count is not. That is structure and no finding: no noise touches it, and
every model and every record has it. Of all pairs of columns those are measured that say how a person's rows come about: columns
of the person with all others (the counts are columns of the person), columns within a slot, and columns of neighbouring slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes
from verticil.shared.numerics.joint.classes import Division
from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.related.tables import RelatedTable, empty_code, is_structural

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Where the columns of one related table stand in a schema.

    Attributes:
        table: the table.
        count: position of the column that says how many slots are filled; its code is that number.
        columns: positions of the columns of each slot.
        empty: the code of each of them where there is no row.
        structural: for each of them, whether that code says so; else a row can have it, too.
    """

    table: RelatedTable
    count: int
    columns: tuple[tuple[int, ...], ...]
    empty: tuple[tuple[int, ...], ...]
    structural: tuple[tuple[bool, ...], ...]


def slots_of(table: RelatedTable, schema: Schema) -> Slots:
    """Return where a table's slots stand.

    Raises:
        KeyError: the schema does not have them.
        ValueError: a column has no category for an empty slot.
    """
    places = tuple(tuple(map(schema.index, table.slot(number))) for number in range(1, table.max_rows + 1))
    return Slots(
        table=table,
        count=schema.index(table.count),
        columns=places,
        empty=tuple(tuple(empty_code(schema[place]) for place in slot) for slot in places),
        structural=tuple(tuple(is_structural(schema[place]) for place in slot) for slot in places),
    )


def possible_codes(slots: Slots, number: int, place: int, n_states: int) -> Mask:
    """Return which codes a slot's column can have with each number of rows: (max_rows + 1, n_states).

    Args:
        slots: the table's.
        number: of the slot, from 0.
        place: of the column within it.
        n_states: of the column.
    """
    codes = np.arange(n_states)
    is_empty = codes == slots.empty[number][place]
    filled = ~is_empty if slots.structural[number][place] else np.ones(n_states, np.bool_)
    rows = np.arange(slots.table.max_rows + 1)[:, None]
    return np.where(rows > number, filled[None], is_empty[None])


def divisions(tables: Sequence[RelatedTable], schema: Schema) -> tuple[Division, ...]:
    """Return, for each table, how its count divides people, as a joint model keeps it (`joint.classes`)."""
    return tuple(_division(slots_of(table, schema), schema) for table in tables)


def _division(slots: Slots, schema: Schema) -> Division:
    n_states = schema.n_states
    starts = np.concatenate([[0], np.cumsum(n_states)])
    allowed = np.ones((slots.table.max_rows + 1, starts[-1]), np.bool_)
    allowed[:, starts[slots.count] : starts[slots.count + 1]] = np.eye(slots.table.max_rows + 1, dtype=np.bool_)
    for number, slot in enumerate(slots.columns):
        for place, column in enumerate(slot):
            part = slice(starts[column], starts[column + 1])
            allowed[:, part] = possible_codes(slots, number, place, n_states[column])
    return Division(variable=slots.count, allowed=allowed)


def slot_numbers(tables: Sequence[RelatedTable]) -> Mapping[str, tuple[str, int]]:
    """Return, for each column of a slot, its table and the number of its slot, counted from 1."""
    return {
        name: (table.name, number)
        for table in tables
        for number in range(1, table.max_rows + 1)
        for name in table.slot(number)
    }


def is_measured(one: tuple[str, int] | None, other: tuple[str, int] | None) -> bool:
    """Return whether a pair of columns is measured where pairs are chosen by structure.

    Args:
        one, other: their tables and slots (`slot_numbers`); None: a column of the person.
    """
    return one is None or other is None or (one[0] == other[0] and abs(one[1] - other[1]) <= 1)


def records_fault(tables: Sequence[RelatedTable], schema: Schema, codes: Sequence[AnyCodes]) -> str:
    """Say which column of some records does not fit the number of rows; empty: all fit.

    Args:
        tables: of the study.
        schema: its variables.
        codes: (n,) of each of them.
    """
    for table in tables:
        slots = slots_of(table, schema)
        for number, slot in enumerate(slots.columns):
            for place, column in enumerate(slot):
                possible = possible_codes(slots, number, place, schema.n_states[column])
                if not possible[codes[slots.count], codes[column]].all():
                    return f"column '{schema[column].name}' does not fit the number of rows in '{table.count}'"
    return ""


def model_fault(tables: Sequence[RelatedTable], schema: Schema, model: JointModel) -> str:
    """Say which column of a joint model does not fit the number of rows; empty: every record that it can have fits."""
    if not isinstance(model, Mixture):
        return records_fault(tables, schema, list(model.codes[model.weights > 0].T))
    used = model.weights > 0
    for table in tables:
        slots = slots_of(table, schema)
        count = model.probability[slots.count][used] > 0
        for number, slot in enumerate(slots.columns):
            for place, column in enumerate(slot):
                possible = possible_codes(slots, number, place, schema.n_states[column])
                has = model.probability[column][used] > 0
                if np.einsum("mr,mk,rk->", count, has, ~possible, dtype=np.int64):
                    return f"column '{schema[column].name}' does not fit the number of rows in '{table.count}'"
    return ""


def possible_together(tables: Sequence[RelatedTable], schema: Schema, members: Sequence[int]) -> Mask | None:
    """Return which combinations of some variables' categories the slots leave possible: an axis for each; None: all.

    Args:
        tables: of the study.
        schema: its variables.
        members: positions of different ones.
    """
    shape = tuple(schema.n_states[member] for member in members)
    possible = np.ones(shape, np.bool_)
    for table in tables:
        slots = slots_of(table, schema)
        places = {column: (k, place) for k, slot in enumerate(slots.columns) for place, column in enumerate(slot)}
        if not any(member in places for member in members):
            continue
        some = np.zeros(shape, np.bool_)
        codes = [
            np.eye(table.max_rows + 1, dtype=np.bool_)
            if member == slots.count
            else possible_codes(slots, *places[member], size)
            if member in places
            else np.ones((table.max_rows + 1, size), np.bool_)
            for member, size in zip(members, shape, strict=True)
        ]
        for rows in range(table.max_rows + 1):
            own = np.ones((), np.bool_)
            for of_member in codes:
                own = np.multiply.outer(own, of_member[rows])
            some |= own
        possible &= some
    return None if possible.all() else possible
