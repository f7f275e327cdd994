"""What one draw randomizes: a column, or the combinations of several columns of one party (a compound).

    [[randomization]]
    jointly = ["marital-status", "relationship"]
    impossible = [["Never-married", "Husband"], ["Never-married", "Wife"]]

The domain of a compound is the product of its categories in the order of `jointly`, the first slowest, without the impossible
combinations (methods.md 1.1). Its size D is what a matrix has rows of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from verticil.shared.config import Table
from verticil.shared.model.schema import Schema, Variable
from verticil.shared.study.vocabulary import MAX_COMBINATIONS, near_hint


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
        removed = f" combinations less {len(self.impossible)} impossible" if self.impossible else " combinations"
        return f"one for each of the {product}{removed} of {self.text}, the first slowest"

    def position(self, label: object) -> int | None:
        """The category that a document calls `label`: a string, or a list of strings for a compound."""
        wanted = label if self.is_compound else [label]
        if not isinstance(wanted, list):
            return None
        key = tuple(cast("list[object]", wanted))
        return self.labels.index(cast("tuple[str, ...]", key)) if key in self.labels else None


def single(variable: Variable) -> Domain:
    """The domain of one column."""
    return Domain(variables=(variable,), impossible=(), labels=tuple((label,) for label in variable.labels))


def compound(table: Table, names: Sequence[str], schema: Schema) -> Domain:
    """The domain of the compound that a ``[[randomization]]`` table names.

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
    """The domain of a compound, given what is removed from it (ascending)."""
    removed = set(impossible)
    codes = itertools.product(*(range(variable.n_states) for variable in variables))
    return Domain(
        variables=tuple(variables),
        impossible=impossible,
        labels=tuple(
            tuple(variable.labels[code] for variable, code in zip(variables, combination, strict=True))
            for combination in codes
            if combination not in removed
        ),
    )


def _impossible(table: Table, variables: Sequence[Variable]) -> tuple[tuple[int, ...], ...]:
    found: set[tuple[int, ...]] = set()
    named = ", ".join(f"'{variable.name}'" for variable in variables)
    for number, row in enumerate(table.rows("impossible", []), 1):
        if len(row) != len(variables):
            table.fail(
                "impossible",
                f"combination {number} has {len(row)} labels, expected {len(variables)}, one of each of {named}",
            )
        for label, variable in zip(row, variables, strict=True):
            if label not in variable.labels:
                swapped = any(label in other.labels for other in variables)
                table.fail(
                    "impossible",
                    f"combination {number}: '{label}' is not a category of '{variable.name}'",
                    hint=f"the labels stand in the order of jointly: {named}"
                    if swapped
                    else near_hint(str(label), variable.labels),
                )
        combination = tuple(v.labels.index(cast("str", label)) for label, v in zip(row, variables, strict=True))
        if combination in found:
            table.fail(
                "impossible", f"combination {number} ({', '.join(map(str, row))}) stands there twice, expected once"
            )
        found.add(combination)
    return tuple(sorted(found))
