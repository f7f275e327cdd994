"""Randomization schemes as they are written in TOML: one table of keys becomes one quantized matrix for each column.

The same keys stand in a study's ``[[randomization]]``, in its ``[randomization_default]`` and in a party's own declaration
(contract.md section 1; the matrices are those of methods.md 1.1). Every scheme states its keys; any other key is an error.

In place of the default a study may divide a total among its columns:

    [allocate]
    rule = "equal-contrast"        # see `verticil.shared.model.allocation`
    total_epsilon = 24.0           # of one person, all columns of the study together
    caps = { income = 1.5 }        # the most that single columns may get; optional

Columns with a ``[[randomization]]`` table of their own stay as they are and count towards the total; every other column becomes
``symmetric`` with its part of the rest. The resolved study holds these matrices and nothing of the rule. The total is never
exceeded; it is not used up when every column that is left is at its cap.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.config import Table
from verticil.shared.errors import Misuse
from verticil.shared.model import privacy, transition
from verticil.shared.model.allocation import equal_contrast
from verticil.shared.model.schema import Variable
from verticil.shared.study import rules
from verticil.shared.study.document import TwoLevel, Unit

__all__ = ["allocated_units", "check_keys", "unit_for"]

_STRENGTHS: Final = ("epsilon", "gamma", "keep", "flip")
_KEYS: Final = {
    "symmetric": _STRENGTHS,
    "binary": ("p1", "p2"),
    "blocks": ("groups", *_STRENGTHS),
    "two-level": ("groups", "epsilon_group", "epsilon_within"),
    "matrix": ("rows",),
    "none": (),
}
_LATER: Final = ("jointly", "impossible", "subset_size")
"""Keys that the contract knows and this version refuses by name."""
_RULES: Final = ("equal-contrast",)


def check_keys(table: Table, *names: str) -> None:
    """Check that the table has the keys of its scheme, and besides those only `names`.

    Raises:
        Misuse: the table's code, or STUDY_UNSUPPORTED.
    """
    every = {key for keys in _KEYS.values() for key in keys}
    table.only("scheme", *names, *every, *_LATER, "allocate")
    if table.has("allocate"):
        table.fail("allocate", "does not go here", hint="[allocate] is a table of its own, at the top of a study")
    for key in ("jointly", "impossible"):
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
    where = _where(table, variable)
    _check_cells(table, "variables", variable)
    levels: TwoLevel | None = None
    match scheme:
        case "symmetric":
            matrix = transition.symmetric(variable.n_states, **_strength(table), where=where)
        case "binary":
            if variable.n_states != 2:
                table.fail("scheme", f"'binary' for '{variable.name}' with {variable.n_states} categories, expected 2")
            matrix = transition.binary(table.value(float, "p1"), table.value(float, "p2"), where=where)
        case "blocks":
            matrix = transition.blocks(_groups(table, variable), variable.n_states, **_strength(table), where=where)
        case "two-level":
            levels = TwoLevel(
                groups=tuple(_groups(table, variable)),
                epsilon_group=table.value(float, "epsilon_group"),
                epsilon_within=table.value(float, "epsilon_within"),
            )
            matrix = transition.two_level(
                levels.groups,
                variable.n_states,
                epsilon_group=levels.epsilon_group,
                epsilon_within=levels.epsilon_within,
                where=where,
            )
        case "matrix":
            matrix = _rows(table, variable)
        case _:
            matrix = transition.identity(variable.n_states)
    bounded = scheme == "two-level" or (scheme == "symmetric" and table.has("epsilon"))
    return _unit(table, variable, scheme, matrix, levels=levels, bounded=bounded)


def allocated_units(table: Table, variables: Sequence[Variable], explicit: Sequence[Unit]) -> tuple[Unit, ...]:
    """The units of the columns that the ``[allocate]`` table randomizes; see the module's docstring.

    Args:
        table: the ``[allocate]`` table, unread.
        variables: the columns without a table of their own.
        explicit: the units of the columns with one.

    Raises:
        Misuse: the table's code; MATRIX_SINGULAR, a cap leaves nothing to estimate.
    """
    table.only("rule", "total_epsilon", "caps")
    table.choice("rule", _RULES)
    total = table.value(float, "total_epsilon")
    if not 0 < total < math.inf:
        table.fail("total_epsilon", f"got {total:g}, expected a finite number > 0")
    caps = _caps(table, variables, explicit)
    if not variables:
        table.fail("rule", "every column has a [[randomization]] table of its own, expected one without at least")
    for unit in explicit:
        if math.isinf(privacy.epsilon(unit.transition)):
            table.fail(
                "total_epsilon",
                f"column '{unit.variables[0]}' has infinite epsilon by its own table: no total can be kept",
                hint="use [randomization_default] in place of [allocate], or another scheme for the column",
            )
    taken = privacy.total_epsilon(privacy.epsilon(unit.transition) for unit in explicit)
    named = f"the columns with tables of their own take {taken:.6g} of it, " if explicit else ""
    rest = total - taken
    epsilons = equal_contrast([variable.n_states for variable in variables], rest, caps) if rest > 0 else ()
    if not epsilons or any(
        level <= _least_epsilon(variable) and level != cap
        for level, variable, cap in zip(epsilons, variables, caps, strict=True)
    ):
        table.fail(
            "total_epsilon",
            f"got {total:g}, which is too small: {named}{max(rest, 0):.6g} is left for {len(variables)}",
            hint="raise the total, or randomize the columns with tables of their own more strongly",
        )
    units: list[Unit] = []
    for variable, epsilon in zip(variables, epsilons, strict=True):
        _check_cells(table, "rule", variable)
        matrix = transition.symmetric(variable.n_states, epsilon=epsilon, where=_where(table, variable))
        units.append(_unit(table, variable, "symmetric", matrix, key="total_epsilon", bounded=True))
    return tuple(units)


def _caps(table: Table, variables: Sequence[Variable], explicit: Sequence[Unit]) -> list[float | None]:
    raw = table.raw("caps")
    given = table.table("caps", optional=True)
    names = [variable.name for variable in variables]
    own = [name for unit in explicit for name in unit.variables]
    for name in cast("dict[str, object]", raw or {}):
        if name in own:
            given.fail(
                name,
                "the column has a [[randomization]] table of its own, expected a cap for one without",
                hint="remove it",
            )
        if name not in names:
            near = difflib.get_close_matches(name, [*names, *own], 1, 0.5)
            given.fail(name, "not a variable of the study", hint=f"did you mean '{near[0]}'?" if near else "")
        if not 0 < (cap := given.value(float, name)) < math.inf:
            given.fail(name, f"got {cap:g}, expected a finite number > 0")
    return [given.value(float, name) if given.has(name) else None for name in names]


def _least_epsilon(variable: Variable) -> float:
    """Below it the symmetric matrix counts as singular: its condition number is (e^epsilon + K - 1) / (e^epsilon - 1)."""
    return math.log1p(variable.n_states / (transition.CONDITION_LIMIT - 1))


def _where(table: Table, variable: Variable) -> str:
    return f"{table.source}: {table.where}: column '{variable.name}'"


def _check_cells(table: Table, key: str, variable: Variable) -> None:
    if variable.n_states**2 > rules.MAX_CELLS:
        table.fail(
            key, f"'{variable.name}' has {variable.n_states} categories, a matrix has at most {rules.MAX_CELLS} cells"
        )


def _unit(
    table: Table,
    variable: Variable,
    scheme: str,
    matrix: NDArray[np.float64],
    *,
    key: str = "scheme",
    levels: TwoLevel | None = None,
    bounded: bool = False,
) -> Unit:
    """Quantize; with `bounded` the declaration promises a finite epsilon, also where floating point has lost a cell."""
    transition.validate_matrix(matrix, where=_where(table, variable))
    quantized = transition.quantize(matrix)
    # A zero that was not declared would silently make epsilon infinite.
    if any(
        weight == 0 and (bounded or matrix[i, j] > 0)
        for i, row in enumerate(quantized.weights)
        for j, weight in enumerate(row)
    ):
        table.fail(
            key,
            f"a probability for '{variable.name}' is positive but below 2^-64",
            hint="weaken the scheme, or use 'none'",
        )
    return Unit(variables=(variable.name,), owner=variable.owner, scheme=scheme, transition=quantized, two_level=levels)


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
