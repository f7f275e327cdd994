"""Randomization schemes as they are written in TOML: one table of keys becomes one quantized matrix for each draw.

The same keys stand in a study's ``[[randomization]]``, in its ``[randomization_default]`` and in a party's own declaration
(contract.md section 1; the matrices are those of randomization.md 1.1). Every scheme states its keys; any other key is an error.
A scheme is over a `Domain`: the categories of a column, or the combinations of a compound, which `groups` then name as lists of
labels, as in ``groups = [[["Never-married", "Own-child"], ["Divorced", "Own-child"]], ...]``. Groups of one column can be those
of the study's knowledge, by their rule's name: ``groups = "services"``.

``subset`` releases a set of categories for each record in place of one. It is offered where it is worth that: from 8 categories
on and up to epsilon 1 (randomization.md 1.1).

In place of the default a study may divide a total among its columns:

    [allocate]
    rule = "equal-contrast"        # see `verticil.shared.mechanisms.allocation`
    total_epsilon = 24.0           # of one person, all columns of the study together
    max_epsilon = 3.0              # the most that any column may get, as sites limit it; optional
    caps = { income = 1.5 }        # the most that single columns may get; optional

Columns with a ``[[randomization]]`` table of their own stay as they are and count towards the total; every other column becomes
``symmetric`` with its part of the rest. The resolved study holds these matrices and nothing of the rule. The total is never
exceeded; it is not used up when every column that is left is at its cap.

One draw randomizes a column, or the combinations of several columns of one party (a compound).

    [[randomization]]
    jointly = ["marital-status", "relationship"]
    impossible = [["Never-married", "Husband"], ["Never-married", "Wife"]]

The domain of a compound is the product of its categories in the order of `jointly`, the first slowest, without the impossible
combinations (randomization.md 1.1). Its size D is what a matrix has rows of.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, cast

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.documents.toml_table import Table, near_hint
from verticil.shared.mechanisms import privacy, transition
from verticil.shared.mechanisms.allocation import equal_contrast
from verticil.shared.mechanisms.subset import LARGEST_EPSILON, LEAST_STATES, Subset, subset_selection
from verticil.shared.mechanisms.transition import SCALE, Transition
from verticil.shared.numerics.knowledge.rules import Groups, Knowledge
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study import vocabulary
from verticil.shared.study.unit import TwoLevel, Unit
from verticil.shared.study.vocabulary import MAX_COMBINATIONS

_STRENGTHS: Final = ("epsilon", "gamma", "keep", "flip")
_RULES: Final = ("equal-contrast",)


def check_keys(table: Table, *names: str) -> None:
    """Check that the table has the keys of its scheme, and besides those only `names`.

    Raises:
        Misuse: the table's code.
    """
    every = {key for scheme in SCHEMES.values() for key in scheme.keys}
    table.only("scheme", *names, *every, "jointly", "impossible", "allocate")
    if table.has("allocate"):
        table.fail("allocate", "does not go here", hint="[allocate] is a table of its own, at the top of a study")
    for key in ("jointly", "impossible"):
        if table.has(key) and key not in names:
            table.fail(
                key,
                "does not go here: what is said for all other columns makes no compounds",
                hint="write a [[randomization]] table with jointly = [...]",
            )
    scheme = table.choice("scheme", SCHEMES)
    for key in sorted(every):
        if table.has(key) and key not in SCHEMES[scheme].keys:
            key_names = ", ".join(SCHEMES[scheme].keys) or "no key"
            table.fail(key, f"does not go with the scheme '{scheme}'", hint=f"'{scheme}' takes {key_names}")


def unit_for(table: Table, domain: Domain, knowledge: Knowledge | None = None) -> Unit:
    """Return the unit that randomizes `domain` as the table (with checked keys) says.

    Args:
        table: unread.
        domain: what is randomized.
        knowledge: what the study states: its groups can be named.

    Raises:
        Misuse: the table's code, MATRIX_INVALID or MATRIX_SINGULAR.
    """
    scheme = table.value(str, "scheme")
    if isinstance(table.raw("groups"), str):
        table = _with_named_groups(table, domain, () if knowledge is None else knowledge.groups)
    _check_cells(table, "jointly" if domain.is_compound else "variables", domain)
    unit = SCHEMES[scheme].made(table, domain, _where(table, domain))
    if isinstance(unit, Subset):
        return _with(domain, scheme, unit)
    levels, matrix = unit if isinstance(unit, tuple) else (None, unit)
    is_bounded = scheme == "two-level" or (scheme == "symmetric" and table.has("epsilon"))
    return _unit(table, domain, scheme, matrix, levels=levels, is_bounded=is_bounded)


def allocated_units(table: Table, variables: Sequence[Variable], explicit: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units of the columns that the ``[allocate]`` table randomizes; see the module's docstring.

    Args:
        table: the ``[allocate]`` table, unread.
        variables: the columns without a table of their own.
        explicit: the units of the columns with one, compounds among them.

    Raises:
        Misuse: the table's code; MATRIX_SINGULAR, a cap leaves nothing to estimate.
    """
    table.only("rule", "total_epsilon", "max_epsilon", "caps")
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
                f"column '{', '.join(unit.variables)}' has infinite epsilon by its own table: no total can be kept",
                hint="use [randomization_default] in place of [allocate], or another scheme for the column",
            )
    epsilon_of_explicit = privacy.total_epsilon(privacy.epsilon(unit.transition) for unit in explicit)
    explanation = f"the columns with tables of their own take {epsilon_of_explicit:.6g} of it, " if explicit else ""
    rest = total - epsilon_of_explicit
    epsilons = equal_contrast([variable.n_states for variable in variables], rest, caps) if rest > 0 else ()
    if not epsilons or any(
        level <= _least_epsilon(variable) and level != cap
        for level, variable, cap in zip(epsilons, variables, caps, strict=True)
    ):
        table.fail(
            "total_epsilon",
            f"got {total:g}, which is too small: {explanation}{max(rest, 0):.6g} is left for {len(variables)}",
            hint="raise the total, or randomize the columns with tables of their own more strongly",
        )
    units: list[Unit] = []
    for variable, epsilon in zip(variables, epsilons, strict=True):
        domain = single(variable)
        _check_cells(table, "rule", domain)
        matrix = transition.symmetric(domain.n_states, epsilon=epsilon, where=_where(table, domain))
        units.append(_unit(table, domain, "symmetric", matrix, key="total_epsilon", is_bounded=True))
    return tuple(units)


def _caps(table: Table, variables: Sequence[Variable], explicit: Sequence[Unit]) -> list[float | None]:
    every = table.value(float, "max_epsilon") if table.has("max_epsilon") else None
    if every is not None and not 0 < every < math.inf:
        table.fail("max_epsilon", f"got {every:g}, expected a finite number > 0")
    raw = table.raw("caps")
    caps_table = table.table("caps", optional=True)
    names = [variable.name for variable in variables]
    own = [name for unit in explicit for name in unit.variables]
    for name in cast("dict[str, object]", raw or {}):
        if name in own:
            caps_table.fail(
                name,
                "the column has a [[randomization]] table of its own, expected a cap for one without",
                hint="remove it",
            )
        if name not in names:
            caps_table.fail(name, "not a variable of the study", hint=near_hint(name, [*names, *own]))
        if not 0 < (cap := caps_table.value(float, name)) < math.inf:
            caps_table.fail(name, f"got {cap:g}, expected a finite number > 0")
        if every is not None and cap > every:
            caps_table.fail(name, f"got {cap:g}, expected at most max_epsilon = {every:g}, the cap of all columns")
    return [caps_table.value(float, name) if caps_table.has(name) else every for name in names]


def _least_epsilon(variable: Variable) -> float:
    """Below it the symmetric matrix counts as singular: its condition number is (e^epsilon + K - 1) / (e^epsilon - 1)."""
    return math.log1p(variable.n_states / (transition.CONDITION_LIMIT - 1))


def _where(table: Table, domain: Domain) -> str:
    return f"{table.source}: {table.where}: {domain.where}"


def _check_cells(table: Table, key: str, domain: Domain) -> None:
    if domain.n_states**2 > vocabulary.MAX_CELLS:
        what = "combinations" if domain.is_compound else "categories"
        table.fail(
            key, f"{domain.text} has {domain.n_states} {what}, a matrix has at most {vocabulary.MAX_CELLS} cells"
        )


def _unit(
    table: Table,
    domain: Domain,
    scheme: str,
    matrix: Floats,
    *,
    key: str = "scheme",
    levels: TwoLevel | None = None,
    is_bounded: bool = False,
) -> Unit:
    """Quantize; with `is_bounded` the declaration promises a finite epsilon, also where floating point has lost a cell."""
    transition.validate_matrix(matrix, where=_where(table, domain))
    channel = transition.quantize(matrix)
    # A zero that was not declared would silently make epsilon infinite.
    if any(
        weight == 0 and (is_bounded or matrix[i, j] > 0)
        for i, row in enumerate(channel.weights)
        for j, weight in enumerate(row)
    ):
        table.fail(
            key,
            f"a probability for {domain.text} is positive but below 2^-64",
            hint="weaken the scheme, or use 'none'",
        )
    return _with(domain, scheme, channel, levels)


def _with(domain: Domain, scheme: str, channel: Transition | Subset, levels: TwoLevel | None = None) -> Unit:
    return Unit(
        variables=domain.names,
        owner=domain.variables[0].owner,
        scheme=scheme,
        transition=channel,
        two_level=levels,
        impossible=domain.impossible,
    )


def _subset(table: Table, domain: Domain) -> Subset:
    n_states, epsilon = domain.n_states, table.value(float, "epsilon")
    hint = "use 'symmetric', which releases one category"
    if n_states < LEAST_STATES:
        table.fail(
            "scheme",
            f"'subset' for {domain.text} with {n_states} categories, expected at least {LEAST_STATES}",
            hint=hint,
        )
    if epsilon > LARGEST_EPSILON:
        table.fail("epsilon", f"got {epsilon:g}, expected at most {LARGEST_EPSILON:g} with 'subset'", hint=hint)
    size = table.value(int, "subset_size") if table.has("subset_size") else None
    if size is not None and not 1 <= size < n_states:
        table.fail("subset_size", f"got {size}, expected 1 to {n_states - 1} of {n_states} categories")
    if not epsilon > 0:  # also for NaN
        table.fail("epsilon", f"got {epsilon:g}, expected a number > 0")
    try:
        selection = subset_selection(n_states, epsilon=epsilon, size=size)
    except ValueError:
        return table.fail("epsilon", f"got {epsilon:g}, which cannot be told from no information at all")
    transition.validate_matrix(selection.probabilities, where=_where(table, domain))
    return selection


def _strength(table: Table) -> dict[str, float]:
    keys = [key for key in _STRENGTHS if table.has(key)]
    if len(keys) != 1:
        table.fail(
            "scheme", f"got {' and '.join(keys) or 'none of them'}, expected exactly one of {', '.join(_STRENGTHS)}"
        )
    return {keys[0]: table.value(float, keys[0])}


def _with_named_groups(table: Table, domain: Domain, groups: Sequence[Groups]) -> Table:
    name = table.value(str, "groups")
    match = next((item for item in groups if item.name == name), None)
    if match is None:
        hint = (
            near_hint(name, [item.name for item in groups])
            or 'a [[knowledge.rule]] of the kind "groups" has such a name'
        )
        table.fail("groups", f"'{name}' names no groups of the study", hint=hint)
    if domain.names != (match.variable,):
        table.fail("groups", f"'{name}' groups the categories of '{match.variable}', and this is {domain.where}")
    return table.with_value("groups", [list(labels) for _, labels in match.groups])


def _groups(table: Table, domain: Domain) -> list[tuple[int, ...]]:
    groups: list[tuple[int, ...]] = []
    for row in table.rows("groups"):
        group: list[int] = []
        for label in row:
            position = domain.position(label)
            if position is None:
                _no_category(table, domain, label)
            group.append(position)
        groups.append(tuple(group))
    return groups


def _no_category(table: Table, domain: Domain, label: object) -> NoReturn:
    if domain.is_compound:
        label_text = ", ".join(map(str, cast("list[object]", label))) if isinstance(label, list) else str(label)
        example = json.dumps(list(domain.labels[0]), ensure_ascii=False)
        table.fail(
            "groups",
            f"'{label_text}' is not a possible combination of {domain.text}",
            hint=f"groups are lists of combinations in the order of jointly, such as {example}",
        )
    hint = near_hint(str(label), domain.variables[0].labels)
    table.fail("groups", f"'{label}' is not a category of {domain.text}", hint=hint)


def _rows(table: Table, domain: Domain) -> Floats:
    rows = table.rows("rows")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows):
            table.fail("rows", f"row {number} has {len(row)} numbers, expected {len(rows)} as there are rows")
        for cell in row:
            if isinstance(cell, bool) or not isinstance(cell, int | float):
                table.fail("rows", f"row {number} holds something that is not a number")
    if len(rows) != domain.n_states:
        table.fail("rows", f"{len(rows)} rows, expected {domain.n_states}, {domain.size_text}")
    try:
        return np.array(cast("list[list[float]]", rows), dtype=np.float64)
    except OverflowError:
        return table.fail("rows", "a number is too large")


def _symmetric(table: Table, domain: Domain, where: str) -> Floats:
    return transition.symmetric(domain.n_states, **_strength(table), where=where)


def _binary(table: Table, domain: Domain, where: str) -> Floats:
    if domain.n_states != 2:
        table.fail("scheme", f"'binary' for {domain.text} with {domain.n_states} categories, expected 2")
    return transition.binary(table.value(float, "p1"), table.value(float, "p2"), where=where)


def _blocks(table: Table, domain: Domain, where: str) -> Floats:
    return transition.blocks(_groups(table, domain), domain.n_states, **_strength(table), where=where)


def _two_level(table: Table, domain: Domain, where: str) -> tuple[TwoLevel, Floats]:
    levels = TwoLevel(
        groups=tuple(_groups(table, domain)),
        epsilon_group=table.value(float, "epsilon_group"),
        epsilon_within=table.value(float, "epsilon_within"),
    )
    return levels, _of_levels(levels, domain.n_states, where)


def _of_levels(levels: TwoLevel, n_states: int, where: str) -> Floats:
    return transition.two_level(
        levels.groups, n_states, epsilon_group=levels.epsilon_group, epsilon_within=levels.epsilon_within, where=where
    )


def _is_symmetric(unit: Unit, channel: Transition, where: str) -> bool:
    weights = channel.weights
    diagonal = [row[i] for i, row in enumerate(weights)]
    others = [weight for i, row in enumerate(weights) for j, weight in enumerate(row) if i != j]
    # The quantizer gives whole missing units to the first of equal remainders, so equal cells differ by one at most;
    # the diagonal of a large matrix takes up what the rounding of the others leaves.
    return max(others) - min(others) <= 1 and max(diagonal) - min(diagonal) <= len(weights)


def _is_two_level(unit: Unit, channel: Transition, where: str) -> bool:
    if unit.two_level is None:
        return False
    weights = channel.weights
    levels = _of_levels(unit.two_level, len(weights), where)
    # Another machine's exp may differ in the last digit; quantization moves a cell by a few units of 2^-64.
    # A cell of zero would release something exactly, which the scheme promises not to do.
    difference = np.abs(channel.probabilities - levels)
    return bool((difference <= 1e-9 * levels + len(weights) / SCALE).all()) and all(map(all, weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to randomize a column, as a study names it.

    Attributes:
        keys: of its table.
        made: from the table and the domain (with where they stand, for messages): a matrix, also with the levels that it was made
            of, or a selection of subsets.
        is_one: whether a resolved unit's matrix is what the scheme's name tells the person who approves. One unit of 2^64 is
            quantization.
    """

    keys: tuple[str, ...]
    made: Callable[[Table, Domain, str], Floats | tuple[TwoLevel, Floats] | Subset]
    is_one: Callable[[Unit, Transition, str], bool] = lambda unit, channel, where: True


SCHEMES: Final[dict[str, Scheme]] = {
    "symmetric": Scheme(keys=_STRENGTHS, made=_symmetric, is_one=_is_symmetric),
    "binary": Scheme(keys=("p1", "p2"), made=_binary, is_one=lambda unit, channel, where: len(channel.weights) == 2),
    "blocks": Scheme(keys=("groups", *_STRENGTHS), made=_blocks),
    "matrix": Scheme(keys=("rows",), made=lambda table, domain, where: _rows(table, domain)),
    "none": Scheme(
        keys=(),
        made=lambda table, domain, where: transition.identity(domain.n_states),
        is_one=lambda unit, channel, where: channel.is_identity,
    ),
    "two-level": Scheme(keys=("groups", "epsilon_group", "epsilon_within"), made=_two_level, is_one=_is_two_level),
    "subset": Scheme(keys=("epsilon", "subset_size"), made=lambda table, domain, where: _subset(table, domain)),
}
"""By the names that a study has for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The categories that one draw is over.

    Attributes:
        variables: the column, or the columns of a compound in the order of `jointly`.
        impossible: combinations that are removed, ascending.
        labels: what a category is called: its label, or the labels of a combination.
    """

    variables: tuple[Variable, ...]
    impossible: tuple[tuple[int, ...], ...]
    labels: tuple[tuple[str, ...], ...]

    @property
    def n_states(self) -> int:
        """Number of categories: K of a column, D of a compound."""
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return tuple(variable.name for variable in self.variables)

    @property
    def is_compound(self) -> bool:
        """Whether there are several columns."""
        return len(self.variables) > 1

    @property
    def text(self) -> str:
        """The names for messages, quoted."""
        return ", ".join(f"'{name}'" for name in self.names)

    @property
    def where(self) -> str:
        """The domain for messages, as in ``column 'ward'``."""
        return f"column{'s' if self.is_compound else ''} {self.text}"

    @property
    def size_text(self) -> str:
        """How the number of categories comes about."""
        if not self.is_compound:
            return f"one for each category of {self.text}"
        product = " x ".join(str(variable.n_states) for variable in self.variables)
        reduction = f" combinations less {len(self.impossible)} impossible" if self.impossible else " combinations"
        return f"one for each of the {product}{reduction} of {self.text}, the first slowest"

    def position(self, label: object) -> int | None:
        """Return the category that a document calls `label`: a string, or a list of strings for a compound."""
        labels = label if self.is_compound else [label]
        if not isinstance(labels, list):
            return None
        key = tuple(cast("list[object]", labels))
        return self.labels.index(cast("tuple[str, ...]", key)) if key in self.labels else None


def single(variable: Variable) -> Domain:
    """Return the domain of one column."""
    return Domain(variables=(variable,), impossible=(), labels=tuple((label,) for label in variable.labels))


def compound(table: Table, names: Sequence[str], schema: Schema) -> Domain:
    """Return the domain of the compound that a ``[[randomization]]`` table names.

    Args:
        table: the table; its `impossible` is read here.
        names: its `jointly`, all variables of the study.
        schema: the study's.

    Raises:
        Misuse: the table's code.
    """
    variables = tuple(schema[schema.index(name)] for name in names)
    first = variables[0]
    for variable in variables[1:]:
        if variable.owner != first.owner:
            table.fail(
                "jointly",
                f"'{first.name}' belongs to '{first.owner}' and '{variable.name}' to '{variable.owner}', "
                "expected columns of one party",
                hint="one draw needs all its columns at one place; randomize the two independently: variables = [...]",
            )
    product = math.prod(variable.n_states for variable in variables)
    if product > MAX_COMBINATIONS:
        table.fail("jointly", f"{product} combinations of categories, expected at most {MAX_COMBINATIONS}")
    impossible = _impossible(table, variables)
    if product - len(impossible) < 2:
        table.fail(
            "impossible",
            f"{len(impossible)} of {product} combinations are removed, expected at least 2 that are left",
        )
    return compound_of(variables, impossible)


def compound_of(variables: Sequence[Variable], impossible: tuple[tuple[int, ...], ...]) -> Domain:
    """Return the domain of a compound, given what is removed from it (ascending)."""
    impossible_set = set(impossible)
    codes = itertools.product(*(range(variable.n_states) for variable in variables))
    return Domain(
        variables=tuple(variables),
        impossible=impossible,
        labels=tuple(
            tuple(variable.labels[code] for variable, code in zip(variables, combination, strict=True))
            for combination in codes
            if combination not in impossible_set
        ),
    )


def _impossible(table: Table, variables: Sequence[Variable]) -> tuple[tuple[int, ...], ...]:
    combinations: set[tuple[int, ...]] = set()
    names_text = ", ".join(f"'{variable.name}'" for variable in variables)
    for number, row in enumerate(table.rows("impossible", []), 1):
        if len(row) != len(variables):
            table.fail(
                "impossible",
                f"combination {number} has {len(row)} labels, expected {len(variables)}, one of each of {names_text}",
            )
        for label, variable in zip(row, variables, strict=True):
            if label not in variable.labels:
                is_swapped = any(label in other.labels for other in variables)
                table.fail(
                    "impossible",
                    f"combination {number}: '{label}' is not a category of '{variable.name}'",
                    hint=f"the labels stand in the order of jointly: {names_text}"
                    if is_swapped
                    else near_hint(str(label), variable.labels),
                )
        combination = tuple(v.labels.index(cast("str", label)) for label, v in zip(row, variables, strict=True))
        if combination in combinations:
            table.fail(
                "impossible", f"combination {number} ({', '.join(map(str, row))}) stands there twice, expected once"
            )
        combinations.add(combination)
    return tuple(sorted(combinations))
