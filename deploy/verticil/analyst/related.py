"""What related tables of a study cost and can reach: how many columns and tables their slots are, and what noise does to them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from verticil.shared.mechanisms.privacy import contrast_factor
from verticil.shared.privacy.figures import column_epsilon, total_epsilon
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Finding
from verticil.shared.study.protocols import protocol_of, table_deviations
from verticil.shared.study.tables import tables_of

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
        if (words := _cost(study, table.names)) is not None:
            yield Finding(severity="warning", code="rows-cost", where=where, message=words, hint=_hint(study))


def _error_of_next(study: Study, column: str, n: int) -> float:
    """Return the standard error of the share of a next value, by the table of one pair of neighbouring slots."""
    channel = study.units[study.unit_of(column)].transition
    blurred = contrast_factor(channel) ** 2  # of both slots
    people = max(_PART * n, 1.0)
    scatter = math.sqrt(people / channel.n_states) if blurred < 1 else 0.0
    deviation = max(table_deviations(study)) if study.tables is not None else 0.0
    return math.hypot(scatter, deviation) / max(blurred, 1e-9) / people


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
