"""Whether stated knowledge means anything for a study's variables, and leaves any record possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NoReturn

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.numerics.knowledge.columns import refined_variable
from verticil.shared.numerics.knowledge.rules import (
    MAX_RULES,
    Condition,
    Flag,
    Function,
    Groups,
    Knowledge,
    Order,
    Refinement,
)
from verticil.shared.numerics.knowledge.support import Support, function_codes, ordered_together, support
from verticil.shared.numerics.knowledge.words import join_names, quote
from verticil.shared.numerics.model.schema import Schema, Variable

MAX_NAME: Final = 200
"""Letters in the name of a rule."""
MAX_ORDERED: Final = 5
"""Variables that orders connect: their numbers are drawn together (`synthesis.ordered`)."""
MAX_FUNCTION_CELLS: Final = 1_000_000
"""Combinations of the variables that another follows from."""


def check_knowledge(knowledge: Knowledge, schema: Schema, *, source: str) -> Support:
    """Check knowledge against the variables that it is about.

    Args:
        knowledge: what is stated.
        schema: the study's variables, without those that follow from others.
        source: name of the place, for messages.

    Returns:
        What the hard rules leave possible.

    Raises:
        Misuse: STUDY_INVALID.
    """
    checks = _Checks(knowledge, schema, source)
    checks.names()
    for function in knowledge.functions:
        checks.function(function)
    positions = [function.position for function in knowledge.functions]
    n_columns = len(schema) + len(positions)
    if sorted(set(positions)) != positions or any(not 0 <= place < n_columns for place in positions):
        checks.fail("functions", f"their places are not ascending and different ones of {n_columns} columns")
    for rule in knowledge.rules:
        checks.conditions(rule.name, rule.when, rule.then)
    for soft in knowledge.soft:
        checks.conditions(soft.name, soft.when, soft.then)
        if not soft.then:
            checks.fail(soft.name, "says of nothing how probable it is, expected 'then'")
        if not 0 < soft.probability < 1:
            checks.fail(soft.name, f"probability {soft.probability:g}, expected more than 0 and less than 1")
    checks.flags(knowledge.flags)
    for order in knowledge.orders:
        checks.order(order)
    checks.orders(knowledge.orders)
    for groups in knowledge.groups:
        checks.groups(groups)
    for refinement in knowledge.refinements:
        checks.refinement(refinement)
    variables = [refinement.variable for refinement in knowledge.refinements]
    if twice := next((item for item in knowledge.refinements if variables.count(item.variable) > 1), None):
        checks.fail(twice.name, f"'{twice.variable}' has finer values by another rule, too, expected one rule for each")
    limits = support(knowledge, schema, source=source)
    try:
        against = limits.conflict({})
    except ValueError as error:
        raise Misuse(
            "STUDY_INVALID",
            f"{source}: whether any record is possible cannot be found out: {error}",
            hint="say it by rules over fewer variables",
        ) from None
    if against is not None:
        raise Misuse(
            "STUDY_INVALID",
            f"{source}: no record is possible: {join_names([quote([name]) for name in against])} contradict each other",
            hint="take one of them out, or correct it",
        )
    return limits


class _Checks:
    def __init__(self, knowledge: Knowledge, schema: Schema, source: str) -> None:
        self._knowledge, self._source = knowledge, source
        self._variables = {variable.name: variable for variable in schema.variables}
        self._schema_names = schema.names

    def fail(self, name: str, problem: str, *, hint: str = "") -> NoReturn:
        raise Misuse("STUDY_INVALID", f"{self._source}: rule '{name[:MAX_NAME]}': {problem}", hint=hint)

    def names(self) -> None:
        names = self._knowledge.names
        if not names:
            raise Misuse(
                "STUDY_INVALID", f"{self._source}: it states nothing, expected at least one rule, or no knowledge"
            )
        if len(names) > MAX_RULES:
            raise Misuse("STUDY_INVALID", f"{self._source}: {len(names)} rules, expected at most {MAX_RULES}")
        for name in names:
            if not 1 <= len(name) <= MAX_NAME or name != name.strip() or not name.isprintable():
                raise Misuse(
                    "STUDY_INVALID",
                    f"{self._source}: a rule's name is {name[:MAX_NAME]!r}, expected a printed text of 1 to {MAX_NAME} letters",
                )
        if twice := next((name for name in names if names.count(name) > 1), None):
            self.fail(twice, "two rules have this name", hint="give each a name of its own")

    def variable(self, name: str, variable: str) -> Variable:
        if variable not in self._variables:
            self.fail(
                name,
                f"'{variable[:MAX_NAME]}' is not a variable of the study",
                hint=near_hint(variable, self._variables),
            )
        return self._variables[variable]

    def labels(self, name: str, variable: Variable, labels: Sequence[str]) -> None:
        for label in labels:
            if label not in variable.labels:
                self.fail(
                    name,
                    f"'{label[:MAX_NAME]}' is not a category of '{variable.name}'",
                    hint=near_hint(label, variable.labels),
                )
        if len(set(labels)) < len(labels):
            self.fail(name, f"a category of '{variable.name}' stands there twice, expected once")

    def conditions(self, name: str, when: Sequence[Condition], then: Sequence[Condition]) -> None:
        if not when:
            self.fail(name, "says nothing of when it holds, expected at least one condition")
        for side in (when, then):
            for condition in side:
                variable = self.variable(name, condition.variable)
                self.labels(name, variable, condition.values)
                if not condition.values:
                    self.fail(name, f"no category of '{variable.name}', expected at least one")
                if list(condition.values) != [label for label in variable.labels if label in condition.values]:
                    self.fail(name, f"the categories of '{variable.name}' are not in its order")
            names = [condition.variable for condition in side]
            if len(set(names)) < len(names):
                self.fail(name, "a variable stands twice on one side, expected one condition for each")

    def flags(self, flags: Sequence[Flag]) -> None:
        for flag in flags:
            self.flag(flag)

    def flag(self, flag: Flag) -> None:
        self.conditions(flag.name, flag.when, ())
        own = self.variable(flag.name, flag.variable)
        flags = [item.variable for item in self._knowledge.flags]
        if len(set(flags)) < len(flags):
            self.fail(flag.name, "a variable is the flag of two rules, expected one of its own for each")
        if own.n_states != 2 or own.n_valued or own.other is not None or own.missing is not None:
            self.fail(flag.name, f"'{own.name}' is a flag, expected two categories and no more: for no, then for yes")
        if any(item.variable == own.name for item in self._knowledge.refinements):
            self.fail(flag.name, f"'{own.name}' is a flag, expected no finer values of it")
        for name in (flag.variable, *(condition.variable for condition in flag.when)):
            variable = self._variables[name]
            if name not in self._schema_names:
                self.fail(flag.name, f"'{name}' follows from others, expected variables that a party sends")
            if variable.owner != own.owner:
                self.fail(
                    flag.name,
                    f"'{name}' is a column of '{variable.owner}', and the flag '{own.name}' one of '{own.owner}': nobody "
                    "could write it",
                )
        if inner := next((condition.variable for condition in flag.when if condition.variable in flags), None):
            self.fail(flag.name, f"'{inner}' is a flag itself, expected columns of the table")

    def order(self, order: Order) -> None:
        if order.lower == order.upper:
            self.fail(order.name, f"compares '{order.lower}' with itself, expected two variables")
        if order.plus:
            self._check_sum(order)
        for name in order.variables:
            variable = self.variable(order.name, name)
            if name not in self._schema_names or not variable.n_valued:
                self.fail(order.name, f"'{name}' has no bins, expected a binned variable that a party sends")
            if variable.representatives is not None or variable.means is not None:
                what = "representatives" if variable.means is None else "means"
                self.fail(order.name, f"'{name}' has {what}, expected values that are spread evenly over its bins")

    def _check_sum(self, order: Order) -> None:
        """Check that numbers that are added up are written as what they are compared with is."""
        lower, upper = self.variable(order.name, order.lower), self.variable(order.name, order.upper)
        written = [(each.kind, each.decimals, each.format, each.timezone) for each in (lower, upper)]
        if written[0] != written[1] or None in {each.kind for each in (lower, upper)}:
            self.fail(
                order.name,
                f"'{order.lower}' and '{order.upper}' are written in different ways, expected one type, format and decimals",
            )

    def orders(self, orders: Sequence[Order]) -> None:
        for names in ordered_together(orders):
            own = [order for order in orders if order.lower in names]
            if len({name for order in own if not order.plus for name in order.variables}) > MAX_ORDERED:
                self.fail(
                    own[0].name,
                    f"with other orders it connects {len(names)} variables, expected at most {MAX_ORDERED}",
                )
            above = {name: {order.upper for order in own if order.lower == name} for name in names}
            while ends := [name for name, upper in above.items() if not upper & above.keys()]:
                above = {name: upper for name, upper in above.items() if name not in ends}
            if above:
                circle = next(order for order in own if order.lower in above and order.upper in above)
                self.fail(
                    circle.name, f"it is part of a circle of orders through '{circle.lower}' and '{circle.upper}'"
                )

    def function(self, function: Function) -> None:
        name, own = function.name, function.variable
        if own.name in self._variables:
            self.fail(name, f"'{own.name}' is there already, expected a variable that nothing else makes")
        if not function.of or len(set(function.of)) < len(function.of):
            self.fail(name, "expected at least one variable that it follows from, each once")
        of = [self.variable(name, variable) for variable in function.of]
        if math.prod(variable.n_states for variable in of) > MAX_FUNCTION_CELLS:
            self.fail(name, f"its variables have more than {MAX_FUNCTION_CELLS} combinations")
        for row in function.values:
            if len(row) != len(of) + 1:
                self.fail(
                    name, f"a row of {len(row)} texts, expected a category of each of {len(of)} variables and a value"
                )
            for variable, label in zip((*of, own), row, strict=True):
                self.labels(name, variable, [label])
        if function.otherwise is not None:
            self.labels(name, own, [function.otherwise])
        index = [{label: code for code, label in enumerate(variable.labels)} for variable in of]
        keys = [tuple(place[label] for place, label in zip(index, row, strict=False)) for row in function.values]
        if sorted(set(keys)) != keys:
            self.fail(name, "its combinations are not different ones in the order of their categories")
        try:
            function_codes(function, of)
        except KeyError as error:
            (labels,) = error.args
            at = ", ".join(f"{variable.name} = {label}" for variable, label in zip(of, labels, strict=True))
            self.fail(
                name,
                f"'{own.name}' has no value where {at}",
                hint="name one, or say what it is in all other cases (otherwise)",
            )
        self._variables[own.name] = own

    def groups(self, groups: Groups) -> None:
        variable = self.variable(groups.name, groups.variable)
        members = [label for _, labels in groups.groups for label in labels]
        self.labels(groups.name, variable, members)
        if missing := [label for label in variable.labels if label not in members]:
            self.fail(
                groups.name, f"'{missing[0]}' is in no group, expected every category of '{variable.name}' in one"
            )
        if any(not labels for _, labels in groups.groups) or len({name for name, _ in groups.groups}) < len(
            groups.groups
        ):
            self.fail(groups.name, "a group is empty, or two have one name")

    def refinement(self, refinement: Refinement) -> None:
        name = refinement.name
        if refinement.variable not in self._schema_names:
            self.variable(name, refinement.variable)
            self.fail(name, f"'{refinement.variable}' follows from others, expected a variable that a party sends")
        variable = self.variable(name, refinement.variable)
        if variable.n_valued:
            self.fail(name, f"'{variable.name}' has bins or points, expected categories")
        self.labels(name, variable, list(dict.fromkeys(label for label, _, _ in refinement.values)))
        finer = [value for _, value, _ in refinement.values]
        if len(set(finer)) < len(finer):
            self.fail(name, f"a value of '{variable.name}' has two properties, expected one")
        if any(not value or value != value.strip() or not value.isprintable() for value in finer):
            self.fail(name, "a finer value is empty, has blanks at its ends, or is no printed text")
        spellings = () if variable.missing is None else variable.missing.spellings
        for label, value, _ in refinement.values:
            if value in spellings or (value != label and value in variable.labels):
                what = "a spelling of missing values" if value in spellings else "another category"
                self.fail(name, f"the finer value '{value[:MAX_NAME]}' of '{label}' is {what} of '{variable.name}'")
        if any(not 0 < weight < math.inf for _, _, weight in refinement.values):
            self.fail(name, "a weight is not a finite number above 0")
        try:
            refined_variable(variable, refinement)
        except ValueError as error:
            self.fail(name, str(error))
