"""Knowledge in words: one sentence for each rule, the same wherever people read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from verticil.shared.numerics.knowledge.rules import (
    Condition,
    Flag,
    Function,
    Groups,
    Item,
    Knowledge,
    Order,
    Refinement,
    Rule,
    SoftRule,
)
from verticil.shared.numerics.model.schema import Schema, Variable

HEADING: Final = "Stated, not learned"
EXPLAINED: Final = (
    "This was stated before anybody looked at data: it spends no epsilon, no data support it, and what it rules out stands in no "
    "synthetic record."
)
_NAME_LETTERS: Final = 120
_SHOWN_ROWS: Final = 30


def describe_knowledge(knowledge: Knowledge | None, schema: Schema) -> tuple[str, ...]:
    """Write a sentence for everything that a study states, kind by kind; none where it states nothing.

    Args:
        knowledge: checked.
        schema: the study's variables.
    """
    if knowledge is None:
        return ()
    variables = {variable.name: variable for variable in (*schema.variables, *knowledge.variables)}
    return tuple(_describe_item(item, variables) for item in knowledge.items)


def usual_name(item: Item, variables: Mapping[str, Variable]) -> str:
    """Return the name of what has none: its sentence, cut."""
    text = _sentence(item, variables)
    return text if len(text) <= _NAME_LETTERS else text[: _NAME_LETTERS - 1].rstrip() + "…"


def _describe_item(item: Item, variables: Mapping[str, Variable]) -> str:
    text = _sentence(item, variables)
    if not item.name.startswith(usual_name(item, variables)):
        return f"{item.name}: {text}."
    return f"{text[0].upper()}{text[1:]}." if text.startswith(("where ", "never ")) else f"{text}."


def _sentence(item: Item, variables: Mapping[str, Variable]) -> str:  # noqa: PLR0911 - one for each kind
    match item:
        case Rule():
            return _rule(item, variables)
        case Order():
            lower = " + ".join((item.lower, *item.plus))
            numbers = "all" if item.plus else "both"
            return f"{lower} is {'less than' if item.strict else 'at most'} {item.upper}, where {numbers} are numbers"
        case Function():
            return f"{item.variable.name} follows from {join_names(item.of)} and is sent by nobody: {_table(item)}"
        case Groups():
            groups = "; ".join(f"{name} ({quote(labels)})" for name, labels in item.groups)
            return f"{item.variable} has the groups {groups}"
        case Refinement():
            return f"{item.variable} is a property of finer values, drawn by published weights: {_finer(item)}"
        case Flag():
            no, yes = variables[item.variable].labels[:2]
            return f"{_where(item.when, variables)}, {item.variable} is '{yes}', else '{no}'; its party writes it from them"
        case SoftRule():
            then = _any(item.then, variables)
            return (
                f"{_where(item.when, variables)}, {then} with probability {item.probability:g} (it rules out nothing)"
            )


def _rule(rule: Rule, variables: Mapping[str, Variable]) -> str:
    if rule.then:
        return f"{_where(rule.when, variables)}, {_any(rule.then, variables)}"
    if len(rule.when) == 1:
        return f"never {_condition(rule.when[0], variables)}"
    return f"never together: {' and '.join(_condition(condition, variables) for condition in rule.when)}"


def _where(conditions: Sequence[Condition], variables: Mapping[str, Variable]) -> str:
    return f"where {' and '.join(_condition(condition, variables) for condition in conditions)}"


def _any(conditions: Sequence[Condition], variables: Mapping[str, Variable]) -> str:
    return " or ".join(_condition(condition, variables) for condition in conditions)


def _condition(condition: Condition, variables: Mapping[str, Variable]) -> str:
    """Describe one condition; bins side by side as a range, and nearly all categories by those that are missing."""
    variable = variables[condition.variable]
    codes = [variable.labels.index(label) for label in condition.values]
    if variable.bins is not None and codes == list(range(codes[0], codes[-1] + 1)) and codes[-1] < variable.n_bins:
        low, high = f"{variable.bins[codes[0]]:.15g}", f"{variable.bins[codes[-1] + 1]:.15g}"
        if variable.kind is not None:  # as people write them: a date is no number of days
            low, high = condition.values[0][1:].partition(",")[0], condition.values[-1][:-1].rpartition(",")[2]
        start = "" if codes[0] == 0 else f"from {low}"
        end = "" if codes[-1] == variable.n_bins - 1 else f"below {high}"
        return f"{variable.name} is {' and '.join(filter(None, (start, end))) or _in_bins(variable)}"
    others = [label for label in variable.labels if label not in condition.values]
    if others and 2 * len(others) < len(codes):
        return f"{variable.name} is {'not' if len(others) == 1 else 'none of'} {quote(others)}"
    return f"{variable.name} is {'' if len(codes) == 1 else 'one of '}{quote(condition.values)}"


def _in_bins(variable: Variable) -> str:
    return "a number" if variable.kind in {None, "integer", "number"} else f"a {variable.kind}"


def _table(function: Function) -> str:
    others = [] if function.otherwise is None else [f"else '{function.otherwise}'"]
    if len(function.values) > _SHOWN_ROWS:
        return "; ".join([f"by a table of {len(function.values):,} rows", *others])
    return "; ".join([*(f"{quote(labels)} gives '{value}'" for *labels, value in function.values), *others])


def _finer(refinement: Refinement) -> str:
    finer: dict[str, list[str]] = {}
    for label, value, weight in refinement.values:
        finer.setdefault(label, []).append(f"'{value}' ({weight:g})")
    if len(refinement.values) > _SHOWN_ROWS:
        return f"{len(refinement.values):,} values of {len(finer)} categories"
    return "; ".join(f"'{label}' becomes {' or '.join(values)}" for label, values in finer.items())


def quote(labels: Iterable[str]) -> str:
    """Put each in quotation marks, with commas between."""
    return ", ".join(f"'{label}'" for label in labels)


def join_names(names: Sequence[str]) -> str:
    """Join names with commas, and "and" before the last."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
