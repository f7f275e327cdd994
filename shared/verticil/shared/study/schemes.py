"""Randomization schemes as they are written in TOML: one table of keys becomes one quantized matrix for each column.

The same keys stand in a study's ``[[randomization]]``, in its ``[randomization_default]`` and in a party's own declaration
(contract.md section 1; the matrices are those of methods.md 1.1). Every scheme states its keys; any other key is an error.
"""

from __future__ import annotations

import difflib
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.config import Table
from verticil.shared.errors import Misuse
from verticil.shared.model import transition
from verticil.shared.model.schema import Variable
from verticil.shared.study import rules
from verticil.shared.study.document import Unit

__all__ = ["check_keys", "unit_for"]

_STRENGTHS: Final = ("epsilon", "gamma", "keep", "flip")
_KEYS: Final = {
    "symmetric": _STRENGTHS,
    "binary": ("p1", "p2"),
    "blocks": ("groups", *_STRENGTHS),
    "matrix": ("rows",),
    "none": (),
}
_LATER: Final = ("jointly", "impossible", "epsilon_group", "epsilon_within", "subset_size", "allocate")
"""Keys that the contract knows and this version refuses by name."""


def check_keys(table: Table, *names: str) -> None:
    """Check that the table has the keys of its scheme, and besides those only `names`.

    Raises:
        Misuse: the table's code, or STUDY_UNSUPPORTED.
    """
    every = {key for keys in _KEYS.values() for key in keys}
    table.only("scheme", *names, *every, *_LATER)
    for key in ("jointly", "impossible", "allocate"):
        if table.has(key):
            raise Misuse(
                "STUDY_UNSUPPORTED",
                f"{table.source}: {table.path(key)}: '{key}' is not yet supported",
                hint="randomize the variables independently: variables = [...]",
            )
    scheme = table.choice("scheme", rules.SCHEMES)
    rules.check_supported(rules.SCHEMES, scheme, where=f"{table.source}: {table.path('scheme')}")
    for key in (*sorted(every), *_LATER):
        if table.has(key) and key not in _KEYS[scheme]:
            expected = ", ".join(_KEYS[scheme]) or "no key"
            table.fail(key, f"does not go with the scheme '{scheme}'", hint=f"'{scheme}' takes {expected}")


def unit_for(table: Table, variable: Variable) -> Unit:
    """The unit that randomizes `variable` as the table (with checked keys) says.

    Raises:
        Misuse: the table's code, MATRIX_INVALID or MATRIX_SINGULAR.
    """
    scheme = table.value(str, "scheme")
    where = f"{table.source}: {table.where}: column '{variable.name}'"
    if variable.n_states**2 > rules.MAX_CELLS:
        table.fail(
            "variables",
            f"'{variable.name}' has {variable.n_states} categories, a matrix has at most {rules.MAX_CELLS} cells",
        )
    match scheme:
        case "symmetric":
            matrix = transition.symmetric(variable.n_states, **_strength(table), where=where)
        case "binary":
            if variable.n_states != 2:
                table.fail("scheme", f"'binary' for '{variable.name}' with {variable.n_states} categories, expected 2")
            matrix = transition.binary(table.value(float, "p1"), table.value(float, "p2"), where=where)
        case "blocks":
            matrix = transition.blocks(_groups(table, variable), variable.n_states, **_strength(table), where=where)
        case "matrix":
            matrix = _rows(table, variable)
        case _:
            matrix = transition.identity(variable.n_states)
    transition.validate_matrix(matrix, where=where)
    quantized = transition.quantize(matrix)
    # A zero that was not declared would silently make epsilon infinite.
    if any(weight == 0 and matrix[i, j] > 0 for i, row in enumerate(quantized.weights) for j, weight in enumerate(row)):
        table.fail(
            "scheme",
            f"a probability for '{variable.name}' is positive but below 2^-64",
            hint="weaken the scheme, or use 'none'",
        )
    return Unit(variables=(variable.name,), owner=variable.owner, scheme=scheme, transition=quantized)


def _strength(table: Table) -> dict[str, float]:
    given = [key for key in _STRENGTHS if table.has(key)]
    if len(given) != 1:
        table.fail(
            "scheme", f"got {' and '.join(given) or 'none of them'}, expected exactly one of {', '.join(_STRENGTHS)}"
        )
    return {given[0]: table.value(float, given[0])}


def _groups(table: Table, variable: Variable) -> list[tuple[int, ...]]:
    position = {label: code for code, label in enumerate(variable.labels)}
    groups: list[tuple[int, ...]] = []
    for row in table.rows("groups"):
        for label in row:
            if not isinstance(label, str) or label not in position:
                near = difflib.get_close_matches(str(label), position, 1)
                hint = f"did you mean '{near[0]}'?" if near else ""
                table.fail("groups", f"'{label}' is not a category of '{variable.name}'", hint=hint)
        groups.append(tuple(position[label] for label in cast("tuple[str, ...]", row)))
    return groups


def _rows(table: Table, variable: Variable) -> NDArray[np.float64]:
    k = variable.n_states
    rows = table.rows("rows")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows):
            table.fail("rows", f"row {number} has {len(row)} numbers, expected {len(rows)} as there are rows")
        for cell in row:
            if isinstance(cell, bool) or not isinstance(cell, int | float):
                table.fail("rows", f"row {number} holds something that is not a number")
    if len(rows) != k:
        table.fail("rows", f"{len(rows)} rows, expected {k}, one for each category of '{variable.name}'")
    try:
        return np.array(cast("list[list[float]]", rows), dtype=np.float64)
    except OverflowError:
        return table.fail("rows", "a number is too large")
