"""Knowledge as values, in the form that the study's digest binds: names and labels, every label written out.

A hard rule says what no record can be (`Rule`, `Order`), or what a column is given others (`Function`): such a column is not in
the study's schema, is sent by nobody and costs nothing, and is made again for every synthetic record. `Refinement` gives
synthetic records finer values than the study has, from a published distribution. `Groups` name groups of one column's
categories, for randomization in two levels and for people. A `Flag` is a column that says of each record whether a rule applies,
and is sent, learned and drawn as any other. A `SoftRule` is a published probability and no more: it never makes anything
impossible. What hard rules make of tables and records is `support`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Final, TypeAlias

from verticil.shared.documents.record import OPTIONAL
from verticil.shared.numerics.model.schema import Variable

MAX_RULES: Final = 1000
"""Of all kinds together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A variable has one of some categories.

    Attributes:
        variable: its name; of the schema, or one that is a function of others.
        values: labels, in the variable's order, at least one.
    """

    variable: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """No record meets all of some conditions and none of others: an implication, or a forbidden combination.

    Attributes:
        name: for people; different from those of all others.
        when: conditions that hold together, at least one, each of another variable.
        then: where they do, one of these holds. Empty: they never hold together.
    """

    name: str
    when: tuple[Condition, ...]
    then: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The number in one binned variable is at most that in another; nothing is said where one of them has no number.

    Attributes:
        name: see `Rule`.
        lower, upper: names of binned variables.
        strict: whether it is less.
        plus: names of binned variables whose numbers are added to that of `lower`: times between rows.
    """

    name: str
    lower: str
    upper: str
    strict: bool = False
    plus: Annotated[tuple[str, ...], OPTIONAL] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables that it names."""
        return (self.lower, *self.plus, self.upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A variable that follows from others: it stands in no schema, nobody sends it, and every synthetic record has it.

    Attributes:
        name: see `Rule`.
        variable: the variable, with the party that holds it.
        position: its place among all columns of a release, those of the schema and those that follow, from 0.
        of: names of the variables that it follows from; of the schema, or functions that stand before this one.
        values: (their labels, then its label), for combinations of theirs; ascending by their categories' order.
        otherwise: its label for all combinations that are not in `values`; None: all are.
    """

    name: str
    variable: Variable
    position: int
    of: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    otherwise: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of one variable's categories.

    Attributes:
        name: see `Rule`; a scheme of randomization refers to it.
        variable: name of the variable.
        groups: (name, its labels); together all labels, each once.
    """

    name: str
    variable: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """The categories of a variable are properties of finer values: a class for an address, a service for a port.

    A party writes the property in place of the value before anything is randomized; a synthetic record gets a finer value of its
    property, drawn from the published weights.

    Attributes:
        name: see `Rule`.
        variable: name of the variable; of the schema.
        values: (label, finer value, weight > 0); a finer value belongs to one label. A label without any stays as it is.
    """

    name: str
    variable: str
    values: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftRule:
    """A published probability: among records that meet all of `when`, so many meet one of `then`.

    Attributes:
        name: see `Rule`.
        when, then: as in `Rule`; neither is empty.
        probability: between 0 and 1, both excluded.
    """

    name: str
    when: tuple[Condition, ...]
    then: tuple[Condition, ...]
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Whether a rule applies, as a column (Kotal & Joshi, section 3.1.3): its second category where all conditions hold.

    The party that has the columns of the conditions writes it from them before anything is randomized; no table needs to have it.

    Attributes:
        name: see `Rule`.
        variable: name of a variable of the schema with two categories.
        when: conditions on variables of the same party, all of the schema, at least one.
    """

    name: str
    variable: str
    when: tuple[Condition, ...]


Item: TypeAlias = Rule | Order | Function | Groups | Refinement | SoftRule | Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """All that a study states of records: ``[knowledge]``. Of each kind in any order, functions by their places."""

    rules: Annotated[tuple[Rule, ...], OPTIONAL] = ()
    orders: Annotated[tuple[Order, ...], OPTIONAL] = ()
    functions: Annotated[tuple[Function, ...], OPTIONAL] = ()
    groups: Annotated[tuple[Groups, ...], OPTIONAL] = ()
    refinements: Annotated[tuple[Refinement, ...], OPTIONAL] = ()
    soft: Annotated[tuple[SoftRule, ...], OPTIONAL] = ()
    flags: Annotated[tuple[Flag, ...], OPTIONAL] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """All that is stated, kind by kind."""
        return tuple(item for field in fields(self) for item in getattr(self, field.name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that is stated, kind by kind."""
        return tuple(item.name for item in self.items)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables that follow from others, by their places."""
        return tuple(function.variable for function in self.functions)

    @property
    def restricts(self) -> bool:
        """Whether some combination of the schema's variables is impossible."""
        return bool(self.rules or self.orders or self.flags)

    @property
    def named_variables(self) -> frozenset[str]:
        """Names of the variables whose values something that is stated names."""
        conditions = [*(c for rule in self.rules for c in (*rule.when, *rule.then))]
        conditions += [c for rule in self.soft for c in (*rule.when, *rule.then)]
        conditions += [c for flag in self.flags for c in flag.when]
        named = {condition.variable for condition in conditions} | {flag.variable for flag in self.flags}
        named |= {group.variable for group in self.groups} | {item.variable for item in self.refinements}
        named.update(name for function in self.functions for name in function.of)
        named.update(name for order in self.orders for name in order.variables)
        return frozenset(named)

    def properties(self, variable: str) -> dict[str, str]:
        """Finer value -> the category of a variable that a party writes in its place."""
        return {
            value: label for item in self.refinements if item.variable == variable for label, value, _ in item.values
        }

    def flag(self, variable: str) -> Flag | None:
        """Return what makes a variable a flag; None: it is none."""
        return next((item for item in self.flags if item.variable == variable), None)

    def function(self, variable: str) -> Function | None:
        """Return what makes a variable follow from others; None: nothing does."""
        return next((item for item in self.functions if item.variable.name == variable), None)
