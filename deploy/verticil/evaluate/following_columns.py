"""Columns that a study says follow from others of a record, written where a table lacks what another one has.

Synthetic records have a column for each flag of a rule and for each column that is a function of others; a table of people need
have neither. They are written from its other columns, as the study says, so that all tables have the same columns. A column of
numbers is not: the study says its bin, and no number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.encoding import Codebook
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.columns import flag_codes
from verticil.shared.numerics.knowledge.rules import Flag, Function, Knowledge
from verticil.shared.numerics.knowledge.support import function_codes
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.tables.settings import way_of
from verticil.tables.texts import TextColumn, TextTable

UNDECLARED: Final = "not in the study"
"""What follows from a value that the study does not declare."""


def with_derived(tables: Mapping[str, TextTable], study: Study) -> tuple[dict[str, TextTable], list[str]]:
    """Add the columns that follow from a table's own, where another table has them; also return notes of each.

    Args:
        tables: name -> table, their columns by the study's names.
        study: what states it.
    """
    extended_tables, notes = dict(tables), list[str]()
    for name, item in _derivations(study).items():
        if not any(name in table.columns for table in tables.values()):
            continue
        for table_name, table in extended_tables.items():
            of = _follows(item)
            if name not in table.columns and table.columns.keys() >= set(of):
                extended_tables[table_name] = dataclasses.replace(
                    table, columns={**table.columns, name: _derive_column(item, table, study)}
                )
                notes.append(f"column '{name}' is written from {', '.join(of)} in {table_name}, as the study says")
    return extended_tables, notes


def following(study: Study) -> dict[str, tuple[str, ...]]:
    """Return every column that follows from others, and all that it follows from, directly or not."""
    knowledge = Knowledge() if study.knowledge is None else study.knowledge
    origins = {flag.variable: _follows(flag) for flag in knowledge.flags}
    for function in knowledge.functions:
        further = [name for of in function.of for name in origins.get(of, ())]
        origins[function.variable.name] = (*function.of, *further)
    return origins


def derived_from(study: Study, columns: Sequence[str]) -> list[str]:
    """Return the columns that follow from some of a study's, or from others that do; without columns of numbers."""
    available = set(columns)
    for name, item in _derivations(study).items():
        if available.issuperset(_follows(item)):
            available.add(name)
    return sorted(available.difference(columns))


def _derivations(study: Study) -> dict[str, Flag | Function]:
    """Return flags, then functions by their places: each follows from columns of the table, or from those before it."""
    if study.knowledge is None:
        return {}
    flags: dict[str, Flag | Function] = {flag.variable: flag for flag in study.knowledge.flags}
    return flags | {item.variable.name: item for item in study.knowledge.functions if item.variable.bins is None}


def _follows(item: Flag | Function) -> tuple[str, ...]:
    return item.of if isinstance(item, Function) else tuple(condition.variable for condition in item.when)


def _derive_column(item: Flag | Function, table: TextTable, study: Study) -> TextColumn:
    """Derive a column; of a value that the study does not declare no condition holds, and nothing follows."""
    knowledge = Knowledge() if study.knowledge is None else study.knowledge
    variables = {variable.name: variable for variable in (*study.schema.variables, *knowledge.variables)}
    of = _follows(item)
    source_codes = {name: _codes(table.columns[name], variables[name], knowledge.properties(name)) for name in of}
    has_undeclared = np.logical_or.reduce([codes < 0 for codes in source_codes.values()])
    codes: dict[str, Codes] = {name: np.maximum(own, 0).astype(np.uint16) for name, own in source_codes.items()}
    if isinstance(item, Flag):
        labels = variables[item.variable].labels
        derived_codes = np.where(has_undeclared, 0, flag_codes(item, variables, codes))
    else:
        labels = (*item.variable.labels, UNDECLARED)
        follows = function_codes(item, [variables[name] for name in of])[tuple(codes.values())]
        derived_codes = np.where(has_undeclared, len(labels) - 1, follows)
    distinct, index, counts = np.unique(derived_codes, return_inverse=True, return_counts=True)
    return TextColumn(
        party=table.columns[of[0]].party,
        source=item.variable if isinstance(item, Flag) else item.variable.name,
        texts=[labels[code] for code in distinct.tolist()],
        counts=counts.tolist(),
        index=index,
    )


def _codes(column: TextColumn, variable: Variable, properties: Mapping[str, str]) -> NDArray[np.int32]:
    """Return (n,), -1 where the study does not declare the value."""
    number_format = way_of(variable, column.texts)
    codebook = Codebook(variable, properties, style=number_format, where=f"column '{variable.name}'")
    return codebook.encode(column.texts)[0][column.index]
