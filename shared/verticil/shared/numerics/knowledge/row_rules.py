"""Rules over rows of a related table: one rule for each slot of a person, so that every row keeps it.

A column of a related table, ``visits.ward``, stands in a rule for that column of each row. What is made of it speaks of slot k
only where a person has k rows. An order of the column by which rows are ordered adds up: the first row's value and the gaps
after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from verticil.shared.documents.toml_table import Table
from verticil.shared.numerics.knowledge.rules import Condition, Order, Rule
from verticil.shared.numerics.model.schema import Variable

_CONDITIONS = ("if", "then", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """A related table, as rules name its columns.

    Attributes:
        name: of the table.
        count: the variable that says how many rows a person has, with a category for each number from 0 on.
        order: the column by which rows are ordered: of rows after the first its variable is the gap. None: there is none.
        columns: column -> its variable in each slot.
    """

    name: str
    count: str
    order: str | None
    columns: Mapping[str, tuple[str, ...]]

    @property
    def most(self) -> int:
        """How many slots a person has."""
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> str | None:
        """Return the column that a rule names as ``TABLE.COLUMN``; None: it names none of this table."""
        table, _, column = name.partition(".")
        return column if table == self.name and column in self.columns else None


def table_of(table: Table, rows: Sequence[RowTable]) -> RowTable | None:
    """Return the related table whose columns a rule names; None: it names none.

    Raises:
        Misuse: the table's code, it names columns of two.
    """
    names = list(_named(table))
    named = [each for each in rows if any(each.column(name) is not None for name in names)]
    if len(named) > 1:
        key = next(key for key in (*_CONDITIONS, "lower") if table.has(key))
        table.fail(
            key, f"names columns of {named[0].name} and of {named[1].name}, expected one related table in a rule"
        )
    return named[0] if named else None


def _named(table: Table) -> Iterator[str]:
    for key in _CONDITIONS:
        raw = table.raw(key)
        for item in raw if isinstance(raw, list) else [raw]:
            if isinstance(item, dict):
                yield from cast("dict[str, object]", item)
    for key in ("lower", "upper"):
        if isinstance(name := table.raw(key), str):
            yield name


def in_slot(table: Table, rows: RowTable, number: int) -> Table:
    """Return a rule's table with the names of one slot's variables, counted from 1.

    Raises:
        Misuse: the table's code, a condition is on the column that orders the rows, whose values later slots have as gaps.
    """
    renamed = table
    for key in _CONDITIONS:
        raw = table.raw(key)
        if raw is not None:
            items = [_renamed(item, rows, number, table, key) for item in (raw if isinstance(raw, list) else [raw])]
            renamed = renamed.with_value(key, items if isinstance(raw, list) else items[0])
    return renamed


def _renamed(item: object, rows: RowTable, number: int, table: Table, key: str) -> object:
    if not isinstance(item, dict):
        return item
    renamed: dict[str, object] = {}
    for name, value in cast("dict[str, object]", item).items():
        column = rows.column(name)
        if column is not None and column == rows.order:
            table.fail(
                key,
                f"'{name}' orders the rows, and only the first row has its value; expected another column",
                hint='compare it: kind = "order"',
            )
        renamed[name if column is None else rows.columns[column][number - 1]] = value
    return renamed


def where_there_is_a_row(rule: Rule, rows: RowTable, number: int) -> Rule:
    """Return a rule of a slot for people who have a row there."""
    has_row = Condition(variable=rows.count, values=tuple(str(count) for count in range(number, rows.most + 1)))
    return dataclasses.replace(rule, when=(has_row, *rule.when))


def last_row(rule: Rule, rows: RowTable, number: int) -> Rule:
    """Return the rule that the row of a slot, where it meets the conditions, is a person's last one."""
    of_count = Condition(variable=rows.count, values=(str(number),))
    return dataclasses.replace(where_there_is_a_row(rule, rows, number), then=(of_count,))


def orders_of_rows(table: Table, rows: RowTable, variables: Mapping[str, Variable]) -> Iterator[Order]:
    """Yield the orders that a rule ``kind = "order"`` states of each row, checked but for the variables' bins.

    Raises:
        Misuse: the table's code, both sides are columns of rows, or a side is not a variable of the study.
    """
    names = {key: table.value(str, key) for key in ("lower", "upper")}
    columns = {key: rows.column(name) for key, name in names.items()}
    strict = table.value(bool, "strict", False)
    if None not in columns.values():
        table.fail("upper", "both columns are of rows, expected a column of the person on one side")
    for key, column in columns.items():
        if column is None and names[key] not in variables:
            table.fail(key, f"'{names[key]}' is not a variable of the study")
    key = "upper" if columns["lower"] is None else "lower"
    slots = rows.columns[str(columns[key])]
    if columns[key] != rows.order:
        for slot in slots:
            lower, upper = (slot, names["upper"]) if key == "lower" else (names["lower"], slot)
            yield Order(name="", lower=lower, upper=upper, strict=strict)
    elif key == "upper":  # what the first row is not below no row is
        yield Order(name="", lower=names["lower"], upper=slots[0], strict=strict)
    else:
        for number in range(1, len(slots) + 1):
            yield Order(name="", lower=slots[0], upper=names["upper"], strict=strict, plus=slots[1:number])
