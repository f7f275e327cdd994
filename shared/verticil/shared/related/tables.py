"""What a related table is: rows that belong to a person, such as visits or claims, and the columns that stand for them.

Up to `max_rows` rows of a person lie in slots, in order. The columns of a person that stand for a table ``visits`` of the columns
``admitted`` and ``ward``, ordered by ``admitted``, are

    visits.rows                                     how many slots are filled, 0 to max_rows
    visits[1].admitted, visits[1].ward              the first row
    visits[2].admitted.gap, visits[2].ward, ..      the second: the time since the row before, and the other columns

A slot beyond the count has the category `EMPTY` in all of its columns; a column that declares missing values has their category
there. Gaps are not negative, so rows that are built from records are in order whatever was drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from verticil.shared.documents.record import OPTIONAL, Within
from verticil.shared.documents.written_values.on_scale import value_text
from verticil.shared.numerics.model.schema import Missing, Schema, Variable

EMPTY: Final = "no row"
"""Category of a column in a slot without a row, where the column declares no missing values."""
MOST_ROWS: Final = 200
"""Largest `max_rows`."""
ORDERING: Final = ("date", "datetime", "integer", "number")
"""Types of columns that can order rows."""
_DAY: Final = 86_400
_DAYS: Final = (0, 1, 2, 8, 15, 31, 61, 91, 181, 366, 731, 1096, 1827, 3653, 7306, 14_611)
_SECONDS: Final = (0, 1, 60, 3600, 21_600, *(days * _DAY for days in _DAYS[1:]))
_GAPS_OF_NUMBERS: Final = 9

Keep = Literal["first", "last", "random"]
"""Which rows of a person with more than `max_rows` are laid: the first or the last ones in order, or some by a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedTable:
    """A related table of a study.

    Attributes:
        name: of the table; its slots' names begin with it.
        party: that holds it.
        max_rows: slots of a person.
        columns: names of its columns, in their order.
        order: the column that rows are ordered by; None: the order in which the source has them.
        keep: see `Keep`.
    """

    name: str
    party: str
    max_rows: Annotated[int, Within(1, MOST_ROWS)]
    columns: tuple[str, ...]
    order: Annotated[str | None, OPTIONAL] = None
    keep: Annotated[Keep, OPTIONAL] = "first"

    @property
    def count(self) -> str:
        """Name of the column that says how many slots are filled."""
        return f"{self.name}.rows"

    def slot(self, number: int) -> tuple[str, ...]:
        """Names of the columns of a slot, counted from 1, in the order of `columns`."""
        return tuple(
            f"{self.name}[{number}].{column}{'.gap' if number > 1 and column == self.order else ''}"
            for column in self.columns
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns that stand for the table: the count, then slot by slot."""
        return (self.count, *itertools.chain.from_iterable(self.slot(k) for k in range(1, self.max_rows + 1)))

    def slots_of(self, column: str) -> tuple[str, ...]:
        """Names of one column in all slots."""
        place = self.columns.index(column)
        return tuple(self.slot(number)[place] for number in range(1, self.max_rows + 1))


def empty_code(variable: Variable) -> int:
    """Return the code that a column of a slot has where there is no row.

    Raises:
        ValueError: the variable has none, so it is no column of a slot.
    """
    if variable.missing is None:
        raise ValueError(f"variable '{variable.name}' has no category for an empty slot")
    return variable.labels.index(variable.missing.category)


def is_structural(variable: Variable) -> bool:
    """Return whether the empty code of a slot's column says that there is no row, and cannot be a missing value of a row."""
    return variable.missing is not None and variable.missing.category == EMPTY


def slot_variables(table: RelatedTable, rows: Sequence[Variable], gaps: Sequence[float] = ()) -> Iterator[Variable]:
    """Yield the columns that stand for a table, in the order of `RelatedTable.names`.

    Args:
        table: the table.
        rows: its columns as a row has them, in its order.
        gaps: edges of the bins of the time between rows: days for dates, seconds for moments, else the column's own unit;
            empty: `usual_gaps`.

    Raises:
        ValueError: a column has a category that is called `EMPTY`, or the gaps are no bins; in words.
    """
    counts = tuple(map(float, range(table.max_rows + 1)))
    labels = tuple(f"{count:g}" for count in counts)
    # Whoever read the columns from a table read how many rows there are.
    origins = {variable.origin for variable in rows}
    origin = next(iter(origins)) if len(origins) == 1 else "table" if "table" in origins else None
    yield Variable(
        name=table.count, owner=table.party, labels=labels, integer=True, kind="integer", points=counts, origin=origin
    )
    for number in range(1, table.max_rows + 1):
        for variable, name in zip(rows, table.slot(number), strict=True):
            own = replace(variable, name=name)
            yield _with_empty(_gap_of(own, gaps) if number > 1 and variable.name == table.order else own)


def row_variables(table: RelatedTable, schema: Schema) -> tuple[Variable, ...]:
    """Return the columns of a table as a row has them, of a schema that has its slots."""
    return tuple(
        _without_empty(replace(schema[schema.index(name)], name=column))
        for name, column in zip(table.slot(1), table.columns, strict=True)
    )


def _with_empty(variable: Variable) -> Variable:
    """Return a column with a category for slots without a row."""
    if variable.missing is not None:
        return variable
    if EMPTY in variable.labels:
        raise ValueError(f"has the category '{EMPTY}', which a slot without a row has")
    if variable.other is not None and variable.kind is not None and variable.n_valued:
        return replace(variable, missing=Missing(category=variable.other, spellings=("",)))
    labels = (*variable.labels, EMPTY)
    return replace(variable, labels=labels, missing=Missing(category=EMPTY, spellings=("",)))


def _without_empty(variable: Variable) -> Variable:
    """Return the column that `_with_empty` was given."""
    if is_structural(variable):
        return replace(variable, labels=variable.labels[:-1], missing=None)
    if variable.missing == Missing(category=str(variable.other), spellings=("",)):
        return replace(variable, missing=None)
    return variable


def _gap_of(variable: Variable, gaps: Sequence[float]) -> Variable:
    """Return the column of the time since the row before."""
    edges = tuple(map(float, gaps)) or usual_gaps(variable)
    kind = "number" if variable.kind == "number" else "integer"
    words = tuple(dict.fromkeys(label for label in variable.labels[variable.n_valued :]))
    return replace(
        variable,
        labels=(
            *(f"[{value_text(kind, low)},{value_text(kind, high)})" for low, high in itertools.pairwise(edges)),
            *words,
        ),
        bins=edges,
        points=(),
        kind=kind,
        integer=kind == "integer",
        unit={"date": "days", "datetime": "seconds"}.get(str(variable.kind), variable.unit),
        outside="clamp",
        representatives=None,
        means=None,
        format=None,
        timezone=None,
    )


def usual_gaps(variable: Variable) -> tuple[float, ...]:
    """Return edges for the time between rows that follow from what a column declares, and from no data.

    >>> dates = Variable(name="seen", owner="a", labels=("x", "y"), kind="date", bins=(0.0, 20.0, 40.0))
    >>> usual_gaps(dates)
    (0.0, 1.0, 2.0, 8.0, 15.0, 31.0, 41.0)
    """
    values = (*(variable.bins or ()), *variable.points)
    span = max(values) - min(values)
    if variable.kind == "number":
        step = 10.0 ** -(variable.decimals or 0)
        parts = [round(span / 2**power, variable.decimals or 0) for power in range(_GAPS_OF_NUMBERS - 2, -1, -1)]
        edges = sorted({0.0, step, *(part for part in parts if part > step)})
        return (*edges[:-1], max(edges[-1], 2 * step))
    usual: Sequence[float] = {"date": _DAYS, "datetime": _SECONDS}.get(
        str(variable.kind), (0, 1, *(2**power + 1 for power in range(52)))
    )
    return (*(float(edge) for edge in usual if edge < max(span, 1)), math.ceil(span) + 1.0)
