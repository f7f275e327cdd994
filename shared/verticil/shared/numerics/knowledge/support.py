"""What hard rules leave possible: tables of 0 and 1 over the variables that a rule names, and what follows from all together.

Each rule becomes one factor (Koller & Friedman, Probabilistic Graphical Models, section 4.1). A variable that is a function of
others is replaced by these, so every factor is over variables of the schema. What several rules forbid together is found by
eliminating variables from their product, exactly: whether any record is possible, which combinations of some variables can be
completed to a record, and of a contradiction a smallest set of rules that makes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.knowledge.rules import Condition, Flag, Function, Knowledge, Order, Rule
from verticil.shared.numerics.model.elimination import Factor, total
from verticil.shared.numerics.model.schema import Schema, Variable

MAX_SCOPE_CELLS: Final = 1_000_000
"""Combinations of the variables that one rule names."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class OrderOfSum:
    """Whether some numbers in the bins of a record, added up, can be at most another one.

    Attributes:
        name: the rule's.
        least: of each variable that is added up, its position and (K,) the least number of each category; NaN: it has none.
        upper: position of the other one.
        largest: (K,) its largest numbers.
        strict: whether the sum is less.
    """

    name: str
    least: tuple[tuple[int, NDArray[np.float64]], ...]
    upper: int
    largest: NDArray[np.float64]
    strict: bool

    def holds(self, codes: Sequence[Codes]) -> Mask:
        """(n,), of each record whether it can be so; it can where a number is not there."""
        total = sum((numbers[codes[place]] for place, numbers in self.least), np.zeros(len(codes[0])))
        largest = self.largest[codes[self.upper]]
        with np.errstate(invalid="ignore"):
            return ~(total >= largest if self.strict else total > largest)


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """The combinations of the schema's variables that meet every hard rule.

    Attributes:
        schema: the variables.
        factors: of each rule: its variables (positions, ascending) and a table with an axis for each, 1 where the rule is met.
        names: of each factor, the rule's.
        weights: of categories of single variables, beside the factors, by which records of one network are drawn (`raking`).
        sums: orders of numbers that are added up, which have too many variables for a table: records meet them, too.
    """

    schema: Schema
    factors: tuple[Factor, ...]
    names: tuple[str, ...]
    weights: tuple[Factor, ...] = ()
    sums: tuple[OrderOfSum, ...] = ()
    _tables: dict[tuple[int, ...], Mask] = field(default_factory=dict, repr=False)

    @property
    def limits(self) -> tuple[Factor, ...]:
        """The factors that make anything impossible, and the weights."""
        return (*(factor for factor in self.factors if not factor[1].all()), *self.weights)

    @property
    def restricts(self) -> bool:
        """Whether anything is impossible."""
        return bool(self.limits or self.sums)

    def holds(self, codes: Sequence[Codes]) -> Mask:
        """(n,), whether each record meets every rule.

        Args:
            codes: (n,) for each variable of the schema.
        """
        holds = np.ones(len(codes[0]), dtype=np.bool_)
        for scope, table in self.factors:
            holds &= table[tuple(codes[variable] for variable in scope)] > 0
        for each in self.sums:
            holds &= each.holds(codes)
        return holds

    def find_broken_rule(self, codes: Sequence[Codes]) -> str:
        """Return the name of a rule that some record does not meet; empty: all meet all."""
        return next(iter(self.violations(codes)), "")

    def violations(self, codes: Sequence[Codes]) -> dict[str, int]:
        """Count how many of some records do not meet a rule, for each rule that not all meet. Arguments as for `holds`."""
        counts = {
            name: int(np.count_nonzero(table[tuple(codes[variable] for variable in scope)] == 0))
            for name, (scope, table) in zip(self.names, self.factors, strict=True)
        } | {each.name: int(np.count_nonzero(~each.holds(codes))) for each in self.sums}
        return {name: count for name, count in counts.items() if count}

    def table(self, members: Sequence[int]) -> Mask:
        """Find out which combinations of some variables can be completed to a record: one axis for each, in their
        order.

        Raises:
            ValueError: finding out needs a table of more than `MAX_CLIQUE_CELLS` cells.
        """
        key = tuple(members)
        if key not in self._tables:
            shape = tuple(self.schema.n_states[member] for member in key)
            factors = self._connected_factors(key)
            possible = np.ones(shape, dtype=np.bool_)
            if factors:
                inside = tuple(sorted(key))
                sums = total(factors, self.schema.n_states, inside, whether=True)
                possible &= sums.transpose([inside.index(member) for member in key]) > 0
            possible.setflags(write=False)
            self._tables[key] = possible
        return self._tables[key]

    def zeros(self, members: Sequence[int]) -> Mask | None:
        """`table`, for estimation: None where nothing is impossible.

        Where finding out what all rules say together needs too large a table, it is what rules among these variables say.
        """
        try:
            possible = self.table(members)
        except ValueError:
            own = Support(self.schema, tuple(f for f in self.factors if set(f[0]) <= set(members)), ())
            possible = own.table(members)
        return None if possible.all() else possible

    def conflict(self, codes: Mapping[int, int]) -> tuple[str, ...] | None:
        """Name the rules that make a combination impossible.

        Args:
            codes: variable -> code; empty asks whether there is any record at all.

        Returns:
            Names of a set of rules that together leave no record, and of which none can be spared, in their order; None where
            there is a record.

        Raises:
            ValueError: see `table`.
        """
        factors = self._at(codes)
        if self._some(factors):
            return None
        alone = next((place for place, factor in enumerate(factors) if not self._some([factor])), None)
        if alone is not None:
            return (self.names[alone],)
        necessary = list(range(len(factors)))
        for rule in range(len(factors)):
            without = [place for place in necessary if place != rule]
            if not self._some([factors[place] for place in without]):
                necessary = without
        return tuple(self.names[place] for place in necessary)

    def dead(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        """Categories that became impossible: (variable, label, names of the rules), in the schema's order.

        Raises:
            ValueError: see `table`.
        """
        categories: list[tuple[str, str, tuple[str, ...]]] = []
        for place, variable in enumerate(self.schema.variables):
            for code in np.flatnonzero(~self.table((place,))).tolist():
                categories.append((variable.name, variable.labels[code], self.conflict({place: code}) or ()))
        return tuple(categories)

    def _at(self, codes: Mapping[int, int]) -> list[Factor]:
        """Return the factors where some variables have these codes; these then have no axis."""
        return [
            (
                tuple(v for v in scope if v not in codes),
                table[tuple(codes.get(v, slice(None)) for v in scope)],
            )
            for scope, table in self.factors
        ]

    def _some(self, factors: Sequence[Factor]) -> bool:
        return not factors or bool(total(factors, self.schema.n_states, (), whether=True) > 0)

    def _connected_factors(self, members: Sequence[int]) -> list[Factor]:
        """Return the factors that say anything of these variables, also through others."""
        variables, factors, others = set(members), list[Factor](), list(self.factors)
        while near := [factor for factor in others if variables & set(factor[0])]:
            others = [factor for factor in others if not variables & set(factor[0])]
            factors += near
            variables.update(variable for scope, _ in near for variable in scope)
        return factors


def support(knowledge: Knowledge | None, schema: Schema, *, source: str = "knowledge") -> Support:
    """Find out what the hard rules leave possible.

    Args:
        knowledge: checked (`checking.check_knowledge`); None: everything is possible.
        schema: the study's variables.
        source: what messages call the place.

    Raises:
        Misuse: STUDY_INVALID, a rule names variables with too many combinations.
    """
    if knowledge is None:
        return Support(schema, (), ())
    tables = _Tables(knowledge, schema, source)
    orders = tuple(order for order in knowledge.orders if not order.plus)
    hard: list[Rule | Order] = [*knowledge.rules, *orders]
    factors = [tables.rule(item) if isinstance(item, Rule) else tables.order(item) for item in hard]
    factors += [tables.flag(item) for item in knowledge.flags]
    names = [item.name for item in (*hard, *knowledge.flags)]
    for variables in ordered_together(orders):
        own = [order for order in orders if order.lower in variables]
        if {order.lower for order in own} & {order.upper for order in own}:
            names.append("' and '".join(order.name for order in own))
            factors.append(tables.chain(own, names[-1], variables))
    sums = tuple(tables.order_of_sum(order) for order in knowledge.orders if order.plus)
    return Support(schema, tuple(factors), tuple(names), sums=sums)


def ordered_together(orders: Sequence[Order]) -> list[tuple[str, ...]]:
    """Return the variables that orders connect, also through others: each in one tuple, in the order in which they are
    named.
    """
    groups: list[list[str]] = []
    for order in orders:
        near = [names for names in groups if {*order.variables} & set(names)]
        groups = [names for names in groups if names not in near]
        groups.append(list(dict.fromkeys([*(name for names in near for name in names), *order.variables])))
    return [tuple(names) for names in groups]


def function_codes(function: Function, of: Sequence[Variable]) -> NDArray[np.uint16]:
    """Return the code of a function's variable for every combination of those it follows from: one axis for each.

    Raises:
        KeyError: a combination has no value, and there is none for all others.
    """
    shape = tuple(variable.n_states for variable in of)
    place = [{label: code for code, label in enumerate(variable.labels)} for variable in of]
    own = {label: code for code, label in enumerate(function.variable.labels)}
    codes = np.full(shape, -1 if function.otherwise is None else own[function.otherwise], dtype=np.int64)
    for *labels, value in function.values:
        codes[tuple(index[label] for index, label in zip(place, labels, strict=True))] = own[value]
    if (codes < 0).any():
        missing = np.argwhere(codes < 0)[0]
        raise KeyError(tuple(variable.labels[code] for variable, code in zip(of, missing, strict=True)))
    return codes.astype(np.uint16)


class _Tables:
    def __init__(self, knowledge: Knowledge, schema: Schema, source: str) -> None:
        self._knowledge, self._schema, self._source = knowledge, schema, source

    def rule(self, rule: Rule) -> Factor:
        """1 but where all of `when` and none of `then` hold."""
        scope = self._scope(rule.name, [item.variable for item in (*rule.when, *rule.then)])
        sizes = [self._schema.n_states[variable] for variable in scope]
        is_violation = np.ones(sizes, dtype=np.bool_)
        for condition in rule.when:
            is_violation &= self._holds(condition, scope)
        for condition in rule.then:
            is_violation &= ~self._holds(condition, scope)
        return scope, (~is_violation).astype(np.float64)

    def flag(self, flag: Flag) -> Factor:
        """1 where the flag says whether all its conditions hold."""
        scope = self._scope(flag.name, [flag.variable, *(item.variable for item in flag.when)])
        applies = np.ones([self._schema.n_states[variable] for variable in scope], dtype=np.bool_)
        for condition in flag.when:
            applies &= self._holds(condition, scope)
        flags = self._place_axes(*self._codes(flag.variable), scope) == 1
        return scope, (flags == applies).astype(np.float64)

    def order(self, order: Order) -> Factor:
        """1 where some number of the one bin is at most (less than) one of the other, and where there is no number."""
        scope = self._scope(order.name, [order.lower, order.upper])
        low, high = (self._schema[self._schema.index(name)] for name in (order.lower, order.upper))
        first, last = _first_numbers(low), _last_numbers(high)
        table = np.ones((low.n_states, high.n_states))
        holds = first[:, None] < last[None, :] if order.strict else first[:, None] <= last[None, :]
        table[: low.n_valued, : high.n_valued] = holds
        return scope, table if scope == tuple(map(self._schema.index, (order.lower, order.upper))) else table.T

    def order_of_sum(self, order: Order) -> OrderOfSum:
        """Return what an order of numbers that are added up leaves possible."""
        upper = self._schema[self._schema.index(order.upper)]
        added = [self._schema[self._schema.index(name)] for name in (order.lower, *order.plus)]
        return OrderOfSum(
            name=order.name,
            least=tuple((self._schema.index(each.name), _with_words(each, _first_numbers(each))) for each in added),
            upper=self._schema.index(upper.name),
            largest=_with_words(upper, _last_numbers(upper)),
            strict=order.strict,
        )

    def chain(self, orders: Sequence[Order], name: str, variables: Sequence[str]) -> Factor:
        """1 where there are numbers in the bins that keep all of some orders: one may follow from others through a third bin."""
        scope = self._scope(name, variables)
        low, high, there = dict[str, NDArray[np.float64]](), dict[str, NDArray[np.float64]](), dict[str, Mask]()
        for variable in variables:
            position = self._schema.index(variable)
            own, axes = self._schema[position], [-1 if member == position else 1 for member in scope]
            rest = own.n_states - own.n_valued
            low[variable] = np.append(_first_numbers(own), [-np.inf] * rest).reshape(axes)
            high[variable] = np.append(_last_numbers(own), [np.inf] * rest).reshape(axes)
            there[variable] = (np.arange(own.n_states) < own.n_valued).reshape(axes)
        for order in list(orders) * len(orders):
            one, other = (self._schema[self._schema.index(item)] for item in (order.lower, order.upper))
            least = low[one.name]
            if order.strict:
                least = least + 1 if one.integer and other.integer else np.nextafter(least, np.inf)
            both = there[one.name] & there[other.name]
            low[other.name] = np.where(both, np.maximum(low[other.name], least), low[other.name])
        table = np.ones([self._schema.n_states[member] for member in scope], dtype=np.bool_)
        for variable in variables:
            table &= low[variable] <= high[variable]
        return scope, table.astype(np.float64)

    def _scope(self, name: str, variables: Sequence[str]) -> tuple[int, ...]:
        core = tuple(sorted({position for variable in variables for position in self._core(variable)}))
        cells = math.prod(self._schema.n_states[position] for position in core)
        if cells > MAX_SCOPE_CELLS:
            raise Misuse(
                "STUDY_INVALID",
                f"{self._source}: rule '{name}': its {len(core)} variables have {cells} combinations, "
                f"expected at most {MAX_SCOPE_CELLS}",
                hint="say it by several rules over fewer variables, or over coarser categories",
            )
        return core

    def _core(self, variable: str) -> tuple[int, ...]:
        """Positions of the schema's variables that a variable is, or follows from; ascending."""
        function = self._knowledge.function(variable)
        if function is None:
            return (self._schema.index(variable),)
        return tuple(sorted({position for name in function.of for position in self._core(name)}))

    def _codes(self, variable: str) -> tuple[tuple[int, ...], NDArray[np.uint16]]:
        """Return the variable's code for every combination of the schema's variables that it is, or follows from."""
        function, core = self._knowledge.function(variable), self._core(variable)
        if function is None:
            return core, np.arange(self._schema.n_states[core[0]], dtype=np.uint16)
        inner = [self._place_axes(*self._codes(name), core) for name in function.of]
        of = [self._variable(name) for name in function.of]
        sizes = [self._schema.n_states[position] for position in core]
        return core, function_codes(function, of)[tuple(np.broadcast_to(codes, sizes) for codes in inner)]

    def _variable(self, name: str) -> Variable:
        function = self._knowledge.function(name)
        return self._schema[self._schema.index(name)] if function is None else function.variable

    def _holds(self, condition: Condition, scope: tuple[int, ...]) -> Mask:
        labels = self._variable(condition.variable).labels
        among = np.array([label in set(condition.values) for label in labels])
        core, codes = self._codes(condition.variable)
        return np.asarray(among[self._place_axes(core, codes, scope)])

    @staticmethod
    def _place_axes(core: tuple[int, ...], codes: NDArray[np.uint16], scope: tuple[int, ...]) -> NDArray[np.uint16]:
        """Return a table over some variables with an axis of one for each other variable of a scope."""
        sizes = iter(codes.shape)
        return codes.reshape([next(sizes) if variable in core else 1 for variable in scope])


def least_and_largest(variable: Variable, code: int) -> tuple[float, float]:
    """Return the least and the largest number of one category; NaN: it has none."""
    first, last = _first_numbers(variable), _last_numbers(variable)
    return float(_with_words(variable, first)[code]), float(_with_words(variable, last)[code])


def _with_words(variable: Variable, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers of a variable's valued categories with NaN for its others."""
    return np.append(numbers, np.full(variable.n_states - variable.n_valued, np.nan))


def _first_numbers(variable: Variable) -> NDArray[np.float64]:
    """Return the least number of each bin, and the points."""
    edges = np.array((variable.bins or ())[:-1], dtype=np.float64)
    return np.append(np.ceil(edges) if variable.integer else edges, variable.points)


def _last_numbers(variable: Variable) -> NDArray[np.float64]:
    """Return the largest number of each bin, of real numbers the one just below its upper edge; and the points."""
    edges = np.array((variable.bins or ())[1:], dtype=np.float64)
    return np.append(np.ceil(edges) - 1 if variable.integer else np.nextafter(edges, -np.inf), variable.points)
