"""What a study states, as the generator meets it: the parts of its condition, and the rules that its loss knows.

Parts of the condition are one-hot: of the discrete values, of groups of a column's categories (the paper's masks), and one flag
for each rule, set where the rule's conditions hold ("KIPPS", section 3.2.1: one entry of all is set). A row's condition is one of
its own entries, and not, as in the paper, a row to a condition that was drawn first: then rare values' rows are taken more often,
and the chance to be taken is not what an accountant of sampling assumes.

`probability` is for numpy and for torch: it uses only what arrays of both have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticil.shared.numerics.knowledge.rules import Condition, Function, Knowledge, Order, Rule
from verticil.shared.numerics.knowledge.support import function_codes, support
from verticil.shared.numerics.model.schema import Schema

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Literal:
    """Some columns have one of some combinations.

    Attributes:
        scope: positions of the columns, ascending.
        table: one axis for each; a numpy mask, or the same as the array that probabilities come in.
    """

    scope: tuple[int, ...]
    table: Any

    def holds(self, codes: Sequence[NDArray[Any]]) -> Mask:
        """(n,), of records; the table is a mask."""
        return np.asarray(self.table[tuple(codes[column] for column in self.scope)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """A rule of the loss: where all of `body` hold, one of `head` holds with a probability.

    Attributes:
        name: the rule's.
        body: may be empty: always.
        head: at least one.
        probability: 1 of a hard rule.
        flagged: whether the condition has a flag for it.
    """

    name: str
    body: tuple[Literal, ...]
    head: tuple[Literal, ...]
    probability: float = 1.0
    flagged: bool = True

    def triggered(self, codes: Sequence[NDArray[Any]]) -> Mask:
        """(n,), whether all of the body hold."""
        met = np.ones(len(codes[0]), dtype=np.bool_)
        for literal in self.body:
            met &= literal.holds(codes)
        return met

    def violated(self, codes: Sequence[NDArray[Any]]) -> Mask:
        """(n,), whether the body holds and nothing of the head."""
        met = self.triggered(codes)
        for literal in self.head:
            met &= ~literal.holds(codes)
        return met


def probability(parts: Sequence[Any], literal: Literal) -> Any:
    """Of a literal, where columns are drawn independently.

    Args:
        parts: (n, K) of each column, rows sum to 1.
        literal: with a table of the same kind of array.

    Returns:
        (n,)
    """
    first, *others = (parts[column] for column in literal.scope)
    found = first @ literal.table.reshape(literal.table.shape[0], -1)
    for part in others:
        found = (part[:, :, None] * found.reshape(found.shape[0], part.shape[1], -1)).sum(axis=1)
    return found.reshape(found.shape[0])


def body_probability(parts: Sequence[Any], term: Term) -> Any:
    """(n,), that all of the body hold: each by itself, where they share no column; 1 without any."""
    found = parts[0].sum(axis=1) * 0 + 1
    for literal in term.body:
        found = found * probability(parts, literal)
    return found


def head_probability(parts: Sequence[Any], term: Term) -> Any:
    """(n,), that one of the head holds: each by itself."""
    none = parts[0].sum(axis=1) * 0 + 1
    for literal in term.head:
        none = none * (1 - probability(parts, literal))
    return 1 - none


def terms(knowledge: Knowledge | None, schema: Schema) -> tuple[Term, ...]:
    """The rules of the loss.

    A function whose column is in the schema is one rule for each combination of what it follows from; of an order each bin of the
    lower column is one. A function whose column is not in the schema needs none: it is made by lookup.

    Args:
        knowledge: checked; None: nothing is stated.
        schema: the columns that are generated.
    """
    if knowledge is None:
        return ()
    made = _Made(knowledge, schema)
    found = [made.implication(rule.name, rule.when, rule.then) for rule in knowledge.rules]
    found += [made.implication(rule.name, rule.when, rule.then, rule.probability) for rule in knowledge.soft]
    for order in knowledge.orders:
        found += made.order(order)
    for function in knowledge.functions:
        if function.variable.name in schema:
            found += made.function(function)
    return tuple(found)


class _Made:
    def __init__(self, knowledge: Knowledge, schema: Schema) -> None:
        self._knowledge, self._schema = knowledge, schema

    def implication(self, name: str, when: Sequence[Condition], then: Sequence[Condition], chance: float = 1.0) -> Term:
        """A rule; what never holds together is a rule whose head is that the last does not hold."""
        body, head = [self.literal(item) for item in when], [self.literal(item) for item in then]
        if not head:
            last = body.pop()
            head = [Literal(scope=last.scope, table=~last.table)]
        return Term(name=name, body=tuple(body), head=tuple(head), probability=chance)

    def order(self, order: Order) -> list[Term]:
        """Of each bin of the lower column that not every bin of the upper one goes with."""
        ((scope, table),) = support(Knowledge(orders=(order,)), self._schema).factors
        low, high = self._schema.index(order.lower), self._schema.index(order.upper)
        met = table > 0 if scope == (low, high) else table.T > 0
        return [self._one(order.name, {low: code}, high, met[code]) for code in range(len(met)) if not met[code].all()]

    def function(self, function: Function) -> list[Term]:
        """Of each combination of what it follows from; `of` are columns of the schema."""
        of = [self._schema.index(name) for name in function.of]
        values = function_codes(function, [self._schema[column] for column in of])
        place = self._schema.index(function.variable.name)
        states = np.arange(function.variable.n_states)
        return [
            self._one(function.name, dict(zip(of, codes, strict=True)), place, states == value)
            for codes, value in np.ndenumerate(values)
        ]

    def _one(self, name: str, body: dict[int, int], column: int, head: Mask) -> Term:
        """Columns have these codes: another one has a code of a mask."""
        when = [
            Literal(scope=(place,), table=np.arange(self._schema[place].n_states) == code)
            for place, code in body.items()
        ]
        return Term(name=name, body=tuple(when), head=(Literal(scope=(column,), table=head),), flagged=False)

    def literal(self, condition: Condition) -> Literal:
        """A condition on a column, or on one that follows from others: then on these."""
        if condition.variable in self._schema:
            place = self._schema.index(condition.variable)
            labels = self._schema[place].labels
            return Literal(scope=(place,), table=np.isin(labels, condition.values))
        never = Knowledge(
            rules=(Rule(name=condition.variable, when=(condition,)),), functions=self._knowledge.functions
        )
        ((scope, table),) = support(never, self._schema).factors
        return Literal(scope=scope, table=table == 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The entries of the condition: those of each column, then those of each `Groups`, then a flag for each rule.

    Attributes:
        n_states: K of each column.
        groups: (column, group of each of its codes).
        rules: with flags.
    """

    n_states: tuple[int, ...]
    groups: tuple[tuple[int, NDArray[np.int64]], ...]
    rules: tuple[Term, ...]

    @property
    def n_items(self) -> int:
        """Columns, groups and flags: a row's entry is one of these."""
        return len(self.n_states) + len(self.groups) + len(self.rules)

    @property
    def size(self) -> int:
        """Entries."""
        return sum(self.n_states) + sum(int(of.max()) + 1 for _, of in self.groups) + len(self.rules)

    def entries(self, codes: Sequence[NDArray[Any]], words: NDArray[np.float64]) -> NDArray[np.int64]:
        """The entry of each row that is set: a function of the row and of its own random numbers.

        Args:
            codes: (n,) of each column.
            words: (n, 2), uniform in [0, 1): which item, and which column in place of a flag that the row does not set.

        Returns:
            (n,)
        """
        drawn = (words[:, 0] * self.n_items).astype(np.int64)
        instead = (words[:, 1] * len(self.n_states)).astype(np.int64)
        offset = sum(self.n_states) + sum(int(of.max()) + 1 for _, of in self.groups)
        found = np.full(len(drawn), -1, dtype=np.int64)
        for place, term in enumerate(self.rules):
            item = len(self.n_states) + len(self.groups) + place
            met = term.triggered(codes)
            found[(drawn == item) & met] = offset + place
            drawn = np.where((drawn == item) & ~met, instead, drawn)
        offset = sum(self.n_states)
        for place, (column, of) in enumerate(self.groups):
            chosen = drawn == len(self.n_states) + place
            found[chosen] = offset + of[codes[column][chosen]]
            offset += int(of.max()) + 1
        offset = 0
        for place, size in enumerate(self.n_states):
            chosen = drawn == place
            found[chosen] = offset + codes[place][chosen]
            offset += size
        return found


def parts_of(knowledge: Knowledge | None, schema: Schema, rules: Sequence[Term]) -> Parts:
    """The condition of a table.

    Args:
        knowledge: as for `terms`; its groups of columns of the schema are used.
        schema: the columns that are generated.
        rules: `terms` of them.
    """
    groups: list[tuple[int, NDArray[np.int64]]] = []
    for item in () if knowledge is None else knowledge.groups:
        if item.variable in schema:
            place = schema.index(item.variable)
            named = {label: number for number, (_, labels) in enumerate(item.groups) for label in labels}
            groups.append((place, np.array([named[label] for label in schema[place].labels])))
    return Parts(n_states=schema.n_states, groups=tuple(groups), rules=tuple(term for term in rules if term.flagged))
