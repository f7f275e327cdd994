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

from verticil.analyst.draft import TextColumn, TextTable, numbers_of
from verticil.party.dataset.encoding import Codebook
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.columns import flag_codes
from verticil.shared.numerics.knowledge.rules import Flag, Function, Knowledge
from verticil.shared.numerics.knowledge.support import function_codes
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study

UNDECLARED: Final = "not in the study"
"""What follows from a value that the study does not declare."""


def with_derived(tables: Mapping[str, TextTable], study: Study) -> tuple[dict[str, TextTable], list[str]]:
    """The tables with the columns that follow from theirs, where another of the tables has them; and notes of what was written.

    Args:
        tables: name -> table, their columns by the study's names.
        study: what states it.
    """
    found, notes = dict(tables), list[str]()
    for name, item in _stated(study).items():
        if not any(name in table.columns for table in tables.values()):
            continue
        for called, table in found.items():
            of = _follows(item)
            if name not in table.columns and table.columns.keys() >= set(of):
                found[called] = dataclasses.replace(
                    table, columns={**table.columns, name: _written(item, table, study)}
                )
                notes.append(f"column '{name}' is written from {', '.join(of)} in {called}, as the study says")
    return found, notes


def following(study: Study) -> dict[str, tuple[str, ...]]:
    """Every column that follows from others, by what the study states, and all that it follows from, directly or not."""
    known = Knowledge() if study.knowledge is None else study.knowledge
    found = {flag.variable: _follows(flag) for flag in known.flags}
    for function in known.functions:
        further = [name for of in function.of for name in found.get(of, ())]
        found[function.variable.name] = (*function.of, *further)
    return found


def derived_from(study: Study, columns: Sequence[str]) -> list[str]:
    """The columns that follow from some of a study's, or from others that do; without columns of numbers."""
    known = set(columns)
    for name, item in _stated(study).items():
        if known.issuperset(_follows(item)):
            known.add(name)
    return sorted(known.difference(columns))


def _stated(study: Study) -> dict[str, Flag | Function]:
    """Flags, then functions by their places: each follows from columns of the table, or from those before it."""
    if study.knowledge is None:
        return {}
    found: dict[str, Flag | Function] = {flag.variable: flag for flag in study.knowledge.flags}
    return found | {item.variable.name: item for item in study.knowledge.functions if item.variable.bins is None}


def _follows(item: Flag | Function) -> tuple[str, ...]:
    return item.of if isinstance(item, Function) else tuple(condition.variable for condition in item.when)


def _written(item: Flag | Function, table: TextTable, study: Study) -> TextColumn:
    """Of a value that the study does not declare no condition holds, and nothing follows."""
    known = Knowledge() if study.knowledge is None else study.knowledge
    variables = {variable.name: variable for variable in (*study.schema.variables, *known.variables)}
    of = _follows(item)
    found = {name: _codes(table.columns[name], variables[name], known.properties(name)) for name in of}
    undeclared = np.logical_or.reduce([codes < 0 for codes in found.values()])
    codes: dict[str, Codes] = {name: np.maximum(own, 0).astype(np.uint16) for name, own in found.items()}
    if isinstance(item, Flag):
        labels = variables[item.variable].labels
        made = np.where(undeclared, 0, flag_codes(item, variables, codes))
    else:
        labels = (*item.variable.labels, UNDECLARED)
        follows = function_codes(item, [variables[name] for name in of])[tuple(codes.values())]
        made = np.where(undeclared, len(labels) - 1, follows)
    seen, index, counts = np.unique(made, return_inverse=True, return_counts=True)
    return TextColumn(
        party=table.columns[of[0]].party,
        source=item.variable if isinstance(item, Flag) else item.variable.name,
        texts=[labels[code] for code in seen.tolist()],
        counts=counts.tolist(),
        index=index,
    )


def _codes(column: TextColumn, variable: Variable, properties: Mapping[str, str]) -> NDArray[np.int32]:
    """(n,), -1 where the study does not declare the value."""
    written = numbers_of(column.texts)[0] if variable.bins else "plain"
    codebook = Codebook(variable, properties, style=written, where=f"column '{variable.name}'")
    return codebook.encode(column.texts)[0][column.index]
