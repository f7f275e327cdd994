"""Asking stated knowledge: is a combination possible, and what do the rules leave (Kotal & Joshi's reasoner, KIPPS section 3).

It knows no data and no model: what is possible here may be rare, and what is impossible is so by the rules alone.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.documents.written_values.reading import MOMENTS, usual_pattern, value_reader
from verticil.shared.numerics.knowledge.addresses import canonical_address
from verticil.shared.numerics.knowledge.rules import Condition, Function, Knowledge, Rule
from verticil.shared.numerics.knowledge.support import least_and_largest, support
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.numerics.model.elimination import total
from verticil.shared.numerics.model.schema import Schema, Variable

_LITTLE_LEFT: Final = 1e-3
"""A smaller share of all combinations is worth a warning: a record of a model that knows no rules is hardly ever possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Possibility:
    """Whether a combination is possible.

    Attributes:
        possible: some record has it.
        given: (variable, its category), as it was understood.
        rules: names of rules that together make it impossible, none of which can be spared; empty: it is possible.
        words: of each of these rules, its sentence.
    """

    possible: bool
    given: tuple[tuple[str, str], ...]
    rules: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far a hard rule reaches.

    Attributes:
        rule: its name.
        variables: of the schema, that it is about.
        combinations: of their categories.
        forbidden: share of these that it forbids.
    """

    rule: str
    variables: tuple[str, ...]
    combinations: int
    forbidden: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What is worth a warning.

    Attributes:
        code: for programs.
        where: what it is about.
        message: in words.
        hint: what to do.
    """

    code: str
    where: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A category that no record can have, and by which rules."""

    variable: str
    category: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What knowledge leaves.

    Attributes:
        rules: of each hard rule, how far it reaches.
        dead: categories that no record can have.
        possible: share of all combinations of the variables in rules that is possible; None: too large a table to find out.
        remarks: warnings.
    """

    rules: tuple[Reach, ...]
    dead: tuple[Dead, ...]
    possible: float | None
    remarks: tuple[Remark, ...]


def ask(
    knowledge: Knowledge | None, schema: Schema, values: Mapping[str, str], *, structure: Sequence[Rule] = ()
) -> Possibility:
    """Find out whether any record can have some values.

    Args:
        knowledge: checked; None: everything is possible.
        schema: the study's variables.
        values: variable -> a category; or a number, of a binned variable; or a finer value, of one that is a property.
        structure: rules that nobody states and every record keeps, as of slots without a row.

    Raises:
        Misuse: USAGE, a variable or a value is not in the study; STUDY_INVALID, finding out needs too large a table.
    """
    statements = knowledge or Knowledge()
    statements = dataclasses.replace(statements, rules=(*statements.rules, *structure))
    variables = {variable.name: variable for variable in (*schema.variables, *statements.variables)}
    categories = {name: _category(statements, variables, name, text) for name, text in values.items()}
    codes = {
        schema.index(name): variables[name].labels.index(label) for name, label in categories.items() if name in schema
    }
    conditions = [  # of what follows from others: nothing else can be its value
        Rule(name=function.name, when=(Condition(variable=name, values=others),))
        for function in statements.functions
        if (name := function.variable.name) in categories
        and (others := tuple(label for label in function.variable.labels if label != categories[name]))
    ]
    limits = support(dataclasses.replace(statements, rules=(*statements.rules, *conditions)), schema)
    try:
        against = limits.conflict(codes)
    except ValueError as error:
        raise Misuse("STUDY_INVALID", f"knowledge: whether it is possible cannot be found out: {error}") from None
    rules = tuple(dict.fromkeys(against or _broken_order(statements, variables, values, categories)))
    sentences = dict(zip(statements.names, describe_knowledge(statements, schema), strict=True))
    return Possibility(
        possible=not rules,
        given=tuple(categories.items()),
        rules=rules,
        words=tuple(sentences[rule] for rule in rules),
    )


def reach(knowledge: Knowledge | None, schema: Schema) -> Reached:
    """Find out what knowledge leaves, and what in it is worth a warning.

    Raises:
        Misuse: STUDY_INVALID, finding out needs too large a table.
    """
    limits = support(knowledge, schema)
    names = schema.names
    rules = tuple(
        Reach(
            rule=name,
            variables=tuple(names[position] for position in scope),
            combinations=table.size,
            forbidden=1 - float(table.mean()),
        )
        for name, (scope, table) in zip(limits.names, limits.factors, strict=True)
    )
    try:
        dead = tuple(Dead(variable=variable, category=label, rules=by) for variable, label, by in limits.dead())
    except ValueError as error:
        raise Misuse("STUDY_INVALID", f"knowledge: what it leaves possible cannot be found out: {error}") from None
    even = [
        ((v,), np.full(schema.n_states[v], 1 / schema.n_states[v]))
        for v in {v for scope, _ in limits.factors for v in scope}
    ]
    try:
        possible = float(total([*limits.factors, *even], schema.n_states, ())) if even else 1.0
    except ValueError:
        possible = None
    functions = () if knowledge is None else knowledge.functions
    return Reached(rules=rules, dead=dead, possible=possible, remarks=tuple(_remarks(rules, dead, possible, functions)))


def _remarks(
    rules: Iterable[Reach], dead: Iterable[Dead], possible: float | None, functions: Iterable[Function]
) -> Iterable[Remark]:
    for rule in rules:
        if not rule.forbidden:
            yield Remark(
                code="rule-says-nothing",
                where=f"knowledge: rule '{rule.rule}'",
                message="it forbids no combination",
                hint="is a category missing in it, or one too many? else remove it",
            )
    for item in dead:
        by = ", ".join(f"'{rule}'" for rule in item.rules)
        yield Remark(
            code="category-impossible",
            where=f"knowledge: '{item.variable}'",
            message=f"no record can have '{item.category}', by {by}",
            hint="if that is meant, leave the category out; every category costs accuracy",
        )
    for function in functions:
        outcomes = {row[-1] for row in function.values} | {function.otherwise}
        if never := [label for label in function.variable.labels if label not in outcomes]:
            yield Remark(
                code="category-impossible",
                where=f"knowledge: rule '{function.name}'",
                message=f"'{function.variable.name}' never becomes '{never[0]}'"
                + (f" and {len(never) - 1} others" if len(never) > 1 else ""),
                hint="if that is meant, leave the category out",
            )
    if possible is not None and possible < _LITTLE_LEFT:
        yield Remark(
            code="little-left",
            where="knowledge",
            message=f"the rules leave {possible:.2g} of all combinations of their variables",
            hint="look whether a rule says more than was meant: verticil knowledge check shows what each forbids",
        )


def _category(knowledge: Knowledge, variables: Mapping[str, Variable], name: str, text: str) -> str:
    """Return the category that a value is in."""
    if name not in variables:
        raise Misuse("USAGE", f"'{name}' is not a variable of the study", hint=near_hint(name, variables))
    variable = variables[name]
    if text in variable.labels:
        return text
    finer = {value: label for item in knowledge.refinements if item.variable == name for label, value, _ in item.values}
    if text in finer:
        return finer[text]
    if (address := canonical_address(text)) is not None and address in finer:
        return finer[address]
    if address is None and finer and all(canonical_address(value) is not None for value in finer):
        raise Misuse(
            "USAGE",
            f"{name}: this is no address, expected an IPv4 or IPv6 address, or one of its categories",
            hint=near_hint(text, variable.labels) or f"as in {name}={variable.labels[0]}",
        )
    if variable.n_valued and (number := _number(variable, text)) is not None:
        if number in variable.points:
            return variable.labels[variable.n_bins + variable.points.index(number)]
        if variable.bins is not None:
            place = bisect_right(variable.bins, number) - 1
            return variable.labels[min(max(place, 0), variable.n_bins - 1)]
    kind = variable.kind if variable.kind in MOMENTS else "number"
    expectation = f"a {kind} or one of its categories" if variable.n_valued else "one of its categories"
    raise Misuse(
        "USAGE",
        f"{name}: '{text}' is no value of it, expected {expectation}",
        hint=near_hint(text, [*variable.labels, *finer]) or f"as in {name}={variable.labels[0]}",
    )


def _broken_order(
    knowledge: Knowledge, variables: Mapping[str, Variable], values: Mapping[str, str], categories: Mapping[str, str]
) -> tuple[str, ...]:
    """Name the first order that the given values cannot keep, though the tables of single rules leave it open.

    A number is compared as it is, a bin by its ends. Times between rows are added up: a row with a time has all rows before it,
    and a time that is not given is 0 or more.
    """
    ends = {name: _ends(variables[name], values[name], category) for name, category in categories.items()}
    for order in knowledge.orders:
        if any(name not in ends for name in (order.lower, *order.plus[-1:], order.upper)):
            continue
        least = sum((ends[name][0] for name in order.plus if name in ends), ends[order.lower][0])
        largest = ends[order.upper][1]
        if least > largest or (order.strict and least == largest):
            return (order.name,)
    return ()


def _ends(variable: Variable, text: str, category: str) -> tuple[float, float]:
    """Return the least and the largest number that a given value stands for; NaN: it is a word."""
    if text not in variable.labels and variable.n_valued and (number := _number(variable, text)) is not None:
        return number, number
    return least_and_largest(variable, variable.labels.index(category))


def _number(variable: Variable, text: str) -> float | None:
    """Return a value on the scale of a variable; None: the text is none."""
    if variable.kind in MOMENTS:
        usual = usual_pattern(str(variable.kind))
        return value_reader(variable.kind, f"{variable.format} | {usual}" if variable.format else usual)(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
