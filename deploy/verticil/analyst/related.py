"""What related tables of a study cost and can reach: how many columns and tables their slots are, and what noise does to them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from verticil.shared.mechanisms.privacy import contrast_factor
from verticil.shared.privacy.figures import column_epsilon, total_epsilon
from verticil.shared.related.tables import RelatedTable, is_structural
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Finding
from verticil.shared.study.protocols import protocol_of, table_deviations
from verticil.shared.study.tables import tables_of

_MEAN_ABSOLUTE: Final = math.sqrt(2 / math.pi)
_ROWS: Final = (1.0, 2.0, 4.0)
"""Means of the number of rows that a plan states errors for: nobody knows the people's before they are counted."""
_PART: Final = 0.1
"""Of the people, who have a value in a slot: for these the error of what comes next is told."""
_HOPELESS: Final = 0.25
"""Error of a share of what comes next above which transitions are lost."""


def related_findings(study: Study, n: int) -> Iterator[Finding]:
    """Yield what to know of each related table: columns, tables, the error of transitions, and the cost of a person's rows.

    Args:
        study: as it would be carried out.
        n: people.
    """
    for table in study.related:
        where = f"table '{table.name}'"
        size = f"{table.max_rows} slots of {len(table.columns)} columns are {len(table.names)} columns of each person"
        if study.tables is not None:
            everything = math.comb(len(study.units), 2)
            measured = sum(len(members) == 2 for members in tables_of(study))
            size += f"; of {everything:,} pairs of columns {measured:,} are measured"
            if measured < everything:
                size += ' (pairs = "all" measures the rest, with more noise on each)'
        yield Finding(severity="note", code="rows-in-slots", where=where, message=size, hint="")
        if table.max_rows > 1 and (error := _error_of_next(study, table.slot(1)[-1], n)) > _HOPELESS:
            yield Finding(
                severity="warning",
                code="rows-drown",
                where=where,
                message=f"which value follows which is lost in the noise: of a value that a tenth of {n:,} people have in a row, "
                f"the share of each next value is off by about {100 * error:.2g} points in a pair of slots",
                hint=_hint(study),
            )
        if table.max_rows > 1:
            yield Finding(severity="note", code="rows-error", where=where, message=_words(study, table, n), hint="")
        if (words := _cost(study, table.names)) is not None:
            yield Finding(severity="warning", code="rows-cost", where=where, message=words, hint=_hint(study))


def _error_of_next(study: Study, column: str, n: int) -> float:
    """Return the standard error of the share of a next value, by the table of one pair of neighbouring slots."""
    people = max(_PART * n, 1.0)
    return _noise_of_pair(study, column, _deviation(study), people)[1] / people


def _deviation(study: Study) -> float:
    """Return the largest deviation of the noise on a count of the study's tables, in people."""
    return max(table_deviations(study)) if study.tables is not None else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowErrors:
    """How far rows of records are expected to be from the people's.

    Attributes:
        transitions: mean absolute error of the share of a next value, over all values and all columns that do not order the rows.
        gaps: total variation distance of the times between rows; None: the table has no order.
    """

    transitions: float
    gaps: float | None


def row_errors(study: Study, table: RelatedTable, n: int, rows: float) -> RowErrors:
    """Predict the errors of what comes next, of tables of neighbouring slots that are added up.

    Numbers of rows are as of a Poisson distribution, values alike; noise is that of the study's tables, or of its randomization.

    Args:
        study: as it would be carried out.
        table: with two slots at least.
        n: people.
        rows: mean of the people's numbers of rows.
    """
    steps = (rows / k for k in range(1, table.max_rows))
    chances = list(itertools.accumulate(steps, operator.mul, initial=math.exp(-rows)))
    laid = sum(k * chance for k, chance in enumerate(chances)) + table.max_rows * (1 - sum(chances))
    with_next = max(n * (laid - (1 - chances[0])), 1.0)  # rows that have a next one
    deviation, slots = _deviation(study), table.max_rows - 1
    cells = errors = 0.0
    for name in table.columns:
        if name == table.order:
            continue
        size, per_table = _noise_of_pair(study, table.slots_of(name)[0], deviation, with_next / slots)
        error = _MEAN_ABSOLUTE * per_table * math.sqrt(slots * (size - 1) / size) * size / with_next
        cells, errors = cells + size**2, errors + size**2 * min(error, 1.0)
    return RowErrors(
        transitions=errors / max(cells, 1.0),
        gaps=_gap_error(study, table, deviation, with_next) if table.order else None,
    )


def _noise_of_pair(study: Study, column: str, deviation: float, people: float) -> tuple[int, float]:
    """Return a column's values, and the deviation of a cell of two slots' table, in people."""
    channel, variable = study.units[study.unit_of(column)].transition, study.schema[study.schema.index(column)]
    blurred = contrast_factor(channel) ** 2  # of both slots
    scatter = math.sqrt(people / channel.n_states) if blurred < 1 else 0.0
    return channel.n_states - is_structural(variable), math.hypot(scatter, deviation) / max(blurred, 1e-9)


def _gap_error(study: Study, table: RelatedTable, deviation: float, with_next: float) -> float:
    """Return the distance of the times between rows: a column's noise is averaged over all tables that it is in."""
    names = table.slots_of(str(table.order))[1:]
    unit, slots = study.unit_of(names[len(names) // 2]), len(names)
    size, per_table = _noise_of_pair(study, names[0], deviation, with_next / slots)
    sizes = [each.transition.n_states for each in study.units]
    others = [
        math.prod(sizes[each] for each in members if each != unit) for members in tables_of(study) if unit in members
    ]
    of_column = (
        per_table / math.sqrt(sum(1 / each for each in others)) if study.tables is not None and others else per_table
    )
    return min(_MEAN_ABSOLUTE / 2 * size * of_column * math.sqrt(slots) / with_next, 1.0)


def _words(study: Study, table: RelatedTable, n: int) -> str:
    """Say how far transitions and times are expected to be off, for some means of the number of rows."""
    means = [rows for rows in _ROWS if rows < table.max_rows] or [table.max_rows / 2]
    errors = [row_errors(study, table, n, rows) for rows in means]
    shares = ", ".join(f"{100 * each.transitions:.2g}" for each in errors)
    gaps = ", ".join(f"{100 * each.gaps:.2g}" for each in errors if each.gaps is not None)
    times = f", and the times between rows by {gaps} points" if gaps else ""
    of_rows = " / ".join(f"{rows:g}" for rows in means)
    return (
        f"if people have {of_rows} rows in the mean, the share of each next value is off by about {shares} points in the mean"
        f"{times}"
    )


def _cost(study: Study, names: tuple[str, ...]) -> str | None:
    """Say what the columns of a table cost a person where each is sent randomized; None: none is read by others."""
    readable = protocol_of(study).readable(study)
    epsilons = [
        column_epsilon(unit.transition)
        for index, unit in enumerate(study.units)
        if index in readable and unit.variables[0] in names and not protocol_of(study).opens_tables
    ]
    if not epsilons:
        return None
    total = total_epsilon(epsilons)
    text = f"epsilon {total:.3g}" if math.isfinite(total) else "more than any epsilon bounds"
    return f"each slot is randomized on its own: the rows of a person cost {text} in all, for who reads the columns"


def _hint(study: Study) -> str:
    """Return what to do instead."""
    protocol = protocol_of(study)
    if protocol.coordinated and not protocol.opens_tables:
        return 'fewer slots, a larger epsilon, a summary of the rows as one column, or model = "masked" with [tables]'
    return "fewer slots or categories, a larger epsilon, or a summary of the rows as one column"
