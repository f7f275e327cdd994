"""Strict reading of what people write of knowledge: the ``[[knowledge.rule]]`` tables of a study, as canonical rules.

Each table has a `kind` of `KINDS`. Categories are said by one label or a list of them; of a binned variable also by a range
between edges of its bins, ``{ from = 3, below = 15 }``; where categories are addresses, by networks and ranges,
``{ network = "192.0.2.0/24" }``; and ``{ not = .. }`` is all the others. In a condition on several
variables (a table) all hold; a list of such tables says that one of them does. So an implication may become several rules, one
for each clause of its conjunctive form; its `flag` names a column that says where its `if` holds. What a rule is called is made
from its words where nothing is said. Rules of one kind come in the order of their names, so that neither the order of a file nor
the way of writing changes the digest.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from verticil.shared.documents.toml_table import Table, kind_of, near_hint
from verticil.shared.documents.written_values.on_scale import read_moment, value_text
from verticil.shared.documents.written_values.reading import NUMBERS
from verticil.shared.numerics.knowledge.addresses import MAX_ADDRESSES, AddressRange, read_range
from verticil.shared.numerics.knowledge.row_rules import (
    RowTable,
    in_slot,
    last_row,
    orders_of_rows,
    table_of,
    where_there_is_a_row,
)
from verticil.shared.numerics.knowledge.rules import (
    MAX_RULES,
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
from verticil.shared.numerics.knowledge.words import quote, usual_name
from verticil.shared.numerics.model.schema import Variable

KINDS: Final = {
    "implication": ("if", "then", "flag"),
    "forbidden": ("all",),
    "function": ("column", "of", "values", "otherwise"),
    "order": ("lower", "upper", "strict"),
    "groups": ("column", "groups"),
    "property": ("column", "type", "values"),
    "soft": ("if", "then", "probability", "flag"),
    "last-row": ("if",),
}
"""The keys of each kind, besides `kind` and `name`."""
_T = TypeVar("_T", bound=Item)
_RANGE: Final = ("from", "below")
_SEQUENCE: Final = "sequence"
"""A kind that knowledge will have once a study relates records to each other (decisions.md); until then it is refused."""


def read_knowledge(tables: Sequence[Table], variables: Sequence[Variable], rows: Sequence[RowTable] = ()) -> Knowledge:
    """Read rules.

    Args:
        tables: one for each rule.
        variables: all that are declared, those that follow from others among them, in their order.
        rows: related tables, whose columns rules name for every row.

    Returns:
        The rules; what concerns several of them is for `checking.check_knowledge`.

    Raises:
        Misuse: the tables' code, with the key's path, what was expected and what is there.
    """
    reader = _Reader(variables, rows)
    items = [item for table in tables for item in reader.items(table)]
    reader.check_functions(tables, items)
    if len(items) > MAX_RULES:
        tables[-1].fail("kind", f"{len(items)} rules with those before it, expected at most {MAX_RULES}")

    def of(kind: type[_T]) -> tuple[_T, ...]:
        return tuple(item for item in sorted(items, key=lambda item: item.name) if isinstance(item, kind))

    return Knowledge(
        rules=of(Rule),
        orders=of(Order),
        functions=tuple(sorted(of(Function), key=lambda function: function.position)),
        groups=of(Groups),
        refinements=of(Refinement),
        soft=of(SoftRule),
        flags=of(Flag),
    )


class _Reader:
    def __init__(self, variables: Sequence[Variable], rows: Sequence[RowTable]) -> None:
        self._rows = rows
        self._variables = {variable.name: variable for variable in variables}
        self._place = {variable.name: place for place, variable in enumerate(variables)}
        self._stated: dict[Item, str] = {}
        self._names: dict[str, str] = {}
        self._columns: dict[str, str] = {}
        self._flags: dict[str, str] = {}

    def items(self, table: Table) -> list[Item]:
        if table.raw("kind") == _SEQUENCE:
            table.fail(
                "kind",
                "a sequence says what a record is followed by, and records of a study have no order",
                hint="state what holds inside one record: kind = 'implication', or 'order' of two of its columns",
            )
        kind = table.choice("kind", KINDS)
        table.only("kind", "name", *KINDS[kind])
        name = table.value(str, "name") if table.has("name") else ""
        if first := self._names.get(name):
            table.fail("name", f"'{name}' is the name of {first} already, expected one of its own")
        rows = table_of(table, self._rows)
        if kind == "last-row" and rows is None:
            table.fail("if", "names no column of a related table, expected TABLE.COLUMN")
        items: list[Item] = list(getattr(self, f"_{kind}")(table) if rows is None else self._of_rows(kind, table, rows))
        for item in items:
            if first := self._stated.get(item):
                table.fail("kind", f"it states what {first} states already, expected it once")
            self._stated[item] = table.where
        column = f"{name}, as a column" if name else ""
        return [self._give_name(item, column if isinstance(item, Flag) else name, table) for item in items]

    def _of_rows(self, kind: str, table: Table, rows: RowTable) -> Iterator[Rule | Order]:
        """Yield the rules of every slot that a rule over rows makes."""
        if kind == "order":
            for order in orders_of_rows(table, rows, self._variables):
                for key, name in (("lower", order.lower), ("upper", order.upper)):
                    if not self._variables[name].n_valued:
                        table.fail(key, f"'{name}' has categories, expected a variable with bins")
                yield order
            return
        if kind not in ("implication", "forbidden", "last-row"):
            table.fail("kind", f"'{kind}' names columns of the related table '{rows.name}', expected columns of people")
        if table.has("flag"):
            table.fail("flag", "goes with columns of people, and the rule is over rows")
        made = last_row if kind == "last-row" else where_there_is_a_row
        for number in range(1, rows.most + 1 - (kind == "last-row")):
            own = in_slot(table, rows, number)
            clauses = (
                [Rule(name="", when=tuple(when)) for when in self._alternatives(own, "if")]
                if kind == "last-row"
                else self._implication(own)
                if kind == "implication"
                else self._forbidden(own)
            )
            for rule in clauses:
                assert isinstance(rule, Rule)  # there is no flag
                whole = made(rule, rows, number)
                yield dataclasses.replace(
                    whole, when=tuple(self._in_order(whole.when)), then=tuple(self._in_order(whole.then))
                )

    def _give_name(self, item: Item, name: str, table: Table) -> Item:
        base = name or usual_name(item, self._variables)
        alternatives = (f"{base} ({number})" for number in itertools.count(2))
        final = next(each for each in itertools.chain([base], alternatives) if each not in self._names)
        self._names[final] = table.where
        return dataclasses.replace(item, name=final)

    def check_functions(self, tables: Sequence[Table], items: Iterable[Item]) -> None:
        """Check that what follows from another that follows stands after it: so none follows from itself by detours."""
        where = {table.where: table for table in tables}
        for function in (item for item in items if isinstance(item, Function)):
            own = function.variable.name
            for name in function.of:
                if name in self._columns and self._place[name] > function.position:
                    where[self._columns[own]].fail(
                        "of",
                        f"'{own}' follows from '{name}', which follows from others and is declared after it",
                        hint=f"declare [[variable]] '{own}' after '{name}'",
                    )

    def _implication(self, table: Table) -> Iterable[Rule | Flag]:
        clauses: list[Rule | Flag] = [
            Rule(name="", when=tuple(when), then=then)
            for when in self._alternatives(table, "if")
            for then in self._clauses(table, self._alternatives(table, "then"))
        ]
        return dict.fromkeys([*clauses, *self._flag(table)])

    def _flag(self, table: Table) -> Iterable[Flag]:
        if not table.has("flag"):
            return []
        variable, when = self._variable(table, "flag"), self._alternatives(table, "if")
        if len(when) > 1:
            table.fail(
                "flag", "'if' has alternatives, expected one table of conditions", hint="write a rule for each of them"
            )
        if first := self._flags.get(variable.name):
            table.fail("flag", f"'{variable.name}' is the flag of {first} already, expected a column of its own")
        self._flags[variable.name] = table.where
        for condition in when[0]:
            own = self._variables[condition.variable]
            if own.owner != variable.owner:
                table.fail(
                    "flag",
                    f"'{variable.name}' is a column of '{variable.owner}', and '{own.name}' is one of '{own.owner}': nobody "
                    "could write it",
                    hint="a flag is about columns of one party; the rule itself holds without one",
                )
        return [Flag(name="", variable=variable.name, when=tuple(when[0]))]

    def _forbidden(self, table: Table) -> Iterable[Rule]:
        return [Rule(name="", when=tuple(when)) for when in self._alternatives(table, "all")]

    def _soft(self, table: Table) -> Iterable[SoftRule | Flag]:
        then = self._clauses(table, self._alternatives(table, "then"))
        when = self._alternatives(table, "if")
        if len(then) > 1 or len(when) > 1:
            table.fail(
                "then", "several rules in one, expected one probability for each", hint="write a table for each of them"
            )
        probability = table.value(float, "probability")
        if not 0 < probability < 1:
            table.fail(
                "probability",
                f"got {probability:g}, expected more than 0 and less than 1",
                hint='what always holds is an implication: kind = "implication"',
            )
        return [SoftRule(name="", when=tuple(when[0]), then=then[0], probability=probability), *self._flag(table)]

    def _function(self, table: Table) -> Iterable[Function]:
        own, names = self._variable(table, "column"), table.strings("of")
        if first := self._columns.get(own.name):
            table.fail("column", f"'{own.name}' follows from others by {first} already, expected one function for it")
        self._columns[own.name] = table.where
        of = [self._named_variable(table, "of", name) for name in names]
        if not of or len(set(names)) < len(names):
            table.fail("of", "expected at least one variable that it follows from, each once")
        if own.name in names:
            table.fail("of", f"'{own.name}' follows from itself, expected other variables")
        rows: dict[tuple[str, ...], str] = {}
        for number, row in enumerate(table.rows("values", []), 1):
            key = f"values[{number}]"
            texts = table.strings_in(list(row), key)
            if len(texts) != len(of) + 1:
                table.fail(key, f"{len(texts)} texts, expected a category of {quote(names)} and one of '{own.name}'")
            for variable, label in zip((*of, own), texts, strict=True):
                _check_label(table, key, variable, label)
            if rows.setdefault(texts[:-1], texts[-1]) != texts[-1]:
                at = ", ".join(f"{name} = {label}" for name, label in zip(names, texts, strict=False))
                table.fail(
                    key,
                    f"'{own.name}' is '{texts[-1]}' and '{rows[texts[:-1]]}' where {at}, expected one value",
                    hint="a column that is not the same for all of them does not follow",
                )
        otherwise = table.value(str, "otherwise") if table.has("otherwise") else None
        if otherwise is not None:
            _check_label(table, "otherwise", own, otherwise)
        elif len(rows) < (cells := math.prod(variable.n_states for variable in of)):
            every = itertools.product(*(variable.labels for variable in of))
            missing = next(labels for labels in every if labels not in rows)
            at = ", ".join(f"{name} = {label}" for name, label in zip(names, missing, strict=True))
            table.fail(
                "values",
                f"{len(rows)} of {cells} combinations have a value; '{own.name}' has none where {at}",
                hint="name them all, or say what it is in all other cases: otherwise = ..",
            )
        places = [{label: code for code, label in enumerate(variable.labels)} for variable in of]
        table_rows = sorted(
            rows.items(), key=lambda item: [place[label] for place, label in zip(places, item[0], strict=True)]
        )
        values = tuple((*labels, value) for labels, value in table_rows)
        return [
            Function(
                name="", variable=own, position=self._place[own.name], of=names, values=values, otherwise=otherwise
            )
        ]

    def _order(self, table: Table) -> Iterable[Order]:
        lower, upper = self._variable(table, "lower"), self._variable(table, "upper")
        for key, variable in (("lower", lower), ("upper", upper)):
            if not variable.n_valued:
                table.fail(key, f"'{variable.name}' has categories, expected a variable with bins")
        return [Order(name="", lower=lower.name, upper=upper.name, strict=table.value(bool, "strict", False))]

    def _groups(self, table: Table) -> Iterable[Groups]:
        variable, inner = self._variable(table, "column"), table.table("groups")
        groups = [(name, self._labels(inner, name, variable)) for name in inner.names()]
        owners: dict[str, str] = {}
        for name, labels in groups:
            for label in labels:
                if (first := owners.setdefault(label, name)) != name:
                    inner.fail(name, f"'{label}' is in the group '{first}' already, expected each category in one")
        if rest := [label for label in variable.labels if label not in owners]:
            table.fail("groups", f"'{rest[0]}' is in no group, expected every category of '{variable.name}' in one")
        groups.sort(key=lambda group: variable.labels.index(group[1][0]))
        return [Groups(name="", variable=variable.name, groups=tuple(groups))]

    def _property(self, table: Table) -> Iterable[Refinement]:
        variable = self._variable(table, "column")
        addresses = table.choice("type", ("text", "address"), "text") == "address"
        rows: dict[str, tuple[str, str, float]] = {}
        for number, row in enumerate(table.rows("values"), 1):
            key = f"values[{number}]"
            if len(row) not in (2, 3):
                table.fail(key, f"a row of {len(row)}, expected a category, a finer value, and its weight or nothing")
            label, value = table.strings_in(list(row[:2]), key)
            _check_label(table, key, variable, label)
            weight = table.typed(float, row[2], key) if len(row) == 3 else 1.0
            if not 0 < weight < math.inf:
                table.fail(key, f"got the weight {weight:g}, expected a finite number above 0")
            texts = _addresses(table, key, value) if addresses else (value,)
            for text in texts:
                if text in rows and addresses:
                    table.fail(key, "it has an address that stands in a row before, expected each address once")
                if text in rows:
                    table.fail(key, f"'{text}' stands there twice, expected each finer value once")
                rows[text] = (label, text, weight / len(texts))
        place = {label: code for code, label in enumerate(variable.labels)}
        values = sorted(rows.values(), key=lambda item: (place[item[0]], item[1]))
        return [Refinement(name="", variable=variable.name, values=tuple(values))]

    # ---- conditions

    def _alternatives(self, table: Table, key: str) -> list[list[Condition]]:
        """Sets of conditions that hold together, of which one is met: a table, or a list of them."""
        inner = table.tables(key) if isinstance(table.raw(key), list) else (table.table(key),)
        if not inner:
            table.fail(key, "the list is empty, expected at least one table of conditions")
        return [self._conditions(item, table, key) for item in inner]

    def _conditions(self, inner: Table, table: Table, key: str) -> list[Condition]:
        if not inner.names():
            table.fail(key, "the table is empty, expected a condition such as sex = 'Male'")
        conditions: list[Condition] = []
        for name in inner.names():
            variable = self._named_variable(inner, name, name)
            conditions.append(Condition(variable=name, values=self._labels(inner, name, variable)))
        return self._in_order(conditions)

    def _clauses(self, table: Table, alternatives: Sequence[Sequence[Condition]]) -> list[tuple[Condition, ...]]:
        """Return the conjunctive form of alternatives: of each clause one condition must hold."""
        if math.prod(map(len, alternatives)) > MAX_RULES:
            table.fail("then", f"its alternatives make more than {MAX_RULES} rules, expected fewer")
        clauses: list[tuple[Condition, ...]] = []
        for choice in itertools.product(*alternatives):
            values: dict[str, set[str]] = {}
            for condition in choice:
                values.setdefault(condition.variable, set()).update(condition.values)
            conditions = [
                Condition(variable=name, values=_sort_labels(self._variables[name], labels))
                for name, labels in values.items()
            ]
            clauses.append(tuple(self._in_order(conditions)))
        return clauses

    def _in_order(self, conditions: Iterable[Condition]) -> list[Condition]:
        return sorted(conditions, key=lambda condition: self._place[condition.variable])

    def _variable(self, table: Table, key: str) -> Variable:
        return self._named_variable(table, key, table.value(str, key))

    def _named_variable(self, table: Table, key: str, name: str) -> Variable:
        if name not in self._variables:
            table.fail(key, f"'{name}' is not a variable of the study", hint=near_hint(name, self._variables))
        return self._variables[name]

    def _labels(self, table: Table, key: str, variable: Variable) -> tuple[str, ...]:
        """Read the categories that a value says, in the variable's order."""
        raw = table.raw(key)
        if isinstance(raw, dict):
            inner = table.table(key)
            if inner.has("not"):
                labels = self._others(inner, variable)
            else:
                labels = _of_networks(inner, variable) if inner.has("network") else _bins(inner, variable)
        elif isinstance(raw, str):
            labels = [raw]
        elif isinstance(raw, list):
            labels = list(table.strings(key))
        else:
            table.fail(
                key, f"got {kind_of(raw)}, expected a category of '{variable.name}' as a string, or a list of them"
            )
        for label in labels:
            _check_label(table, key, variable, label)
        if len(set(labels)) < len(labels):
            table.fail(key, "a category stands there twice, expected once")
        if not labels:
            table.fail(key, f"no category of '{variable.name}' is left, expected at least one")
        return _sort_labels(variable, labels)

    def _others(self, inner: Table, variable: Variable) -> list[str]:
        inner.only("not")
        labels = self._labels(inner, "not", variable)
        return [label for label in variable.labels if label not in labels]


def _bins(inner: Table, variable: Variable) -> list[str]:
    """Read the bins of a range; only numbers are in it, and no category beside the bins."""
    inner.only("not", *_RANGE)
    if not inner.names():
        inner.fail("below", "the table is empty, expected from, below or not")
    edges = variable.bins
    if edges is None:
        inner.fail(inner.names()[0], f"'{variable.name}' has categories, expected some of them and no range")
    ends = {"from": -math.inf, "below": math.inf}
    for key in inner.names():
        number = (
            inner.value(float, key) if variable.kind in {None, *NUMBERS} else read_moment(inner, key, variable.kind)
        )
        if number not in edges:
            near = min(edges, key=lambda edge: abs(edge - number)) if math.isfinite(number) else edges[0]
            inner.fail(
                key,
                f"{_edge(variable, number)} is no edge of the bins of '{variable.name}': a rule cannot say what a bin does not",
                hint=f"the nearest edge is {_edge(variable, near)}; or cut the bins there",
            )
        ends[key] = number
    lows = (*edges[:-1], *variable.points)
    return [variable.labels[code] for code, low in enumerate(lows) if ends["from"] <= low < ends["below"]]


def _edge(variable: Variable, number: float) -> str:
    return f"{number:.15g}" if variable.kind in {None, *NUMBERS} else value_text(variable.kind, number)


def _of_networks(inner: Table, variable: Variable) -> list[str]:
    """Return the categories that are addresses of some networks or ranges."""
    inner.only("network")
    texts = (inner.value(str, "network"),) if isinstance(inner.raw("network"), str) else inner.strings("network")
    ranges = [_range(inner, "network", text) for text in texts]
    labels = [label for label in variable.labels if any(some.holds(label) for some in ranges)]
    if not labels:
        inner.fail(
            "network",
            f"no category of '{variable.name}' is an address in it, expected at least one",
            hint=f"'{variable.name}' has properties in place of addresses? Then name the categories",
        )
    return labels


def _addresses(table: Table, key: str, text: str) -> tuple[str, ...]:
    """Return every address that a text of a property says."""
    addresses = _range(table, key, text)
    if addresses.size > MAX_ADDRESSES:
        table.fail(
            key,
            f"{addresses.size:,} addresses, expected at most {MAX_ADDRESSES:,}: each is a value of its own",
            hint="name a part of the network: synthetic records get addresses of that part",
        )
    return tuple(addresses.texts())


def _range(table: Table, key: str, text: str) -> AddressRange:
    try:
        return read_range(text)
    except ValueError as error:
        table.fail(key, str(error))


def _check_label(table: Table, key: str, variable: Variable, label: str) -> None:
    if label not in variable.labels:
        hint = near_hint(label, variable.labels)
        table.fail(key, f"'{label[:200]}' is not a category of '{variable.name}'", hint=hint)


def _sort_labels(variable: Variable, labels: Iterable[str]) -> tuple[str, ...]:
    among = set(labels)
    return tuple(label for label in variable.labels if label in among)
