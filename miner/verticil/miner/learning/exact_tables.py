"""The tables that a study with noise on tables is learned from: counted here, exactly; the noise is added by who has the key.

Only this function of such a study sees records; what it returns leaves the miner with noise on it, or not at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, Counts
from verticil.shared.numerics.joint.coarse import runs_by
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noisy_tables import CoarseTables, MeasuredTable, NoisyTables
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import coarse_deviations, opens_tables
from verticil.shared.study.tables import coarse_pairs, public_runs, tables_of


def tables_with(
    study: Study, counts: Iterable[Counts], n_records: int, *, deviations: Sequence[float] | None = None
) -> NoisyTables:
    """Return the value of a study's tables.

    Args:
        study: the effective study.
        counts: of each of `tables_of`, in its order.
        n_records: how many people there are.
        deviations: standard deviation of the noise on each count of each table (`table_deviations`); None: there is none.

    Raises:
        ValueError: a table is missing, or of another shape.
    """
    table_units = tables_of(study)
    return NoisyTables(
        n_states=study.schema.n_states,
        units=tuple(map(study.column_unit, range(len(study.units)))),
        tables=tuple(
            MeasuredTable(units=units, counts=np.asarray(table_counts, dtype=np.float64), sigma=deviation)
            for units, table_counts, deviation in zip(
                table_units, counts, deviations or (0.0,) * len(table_units), strict=True
            )
        ),
        n_records=n_records,
        orders=orders_of(study),
    )


def coarse_runs(study: Study, tables: NoisyTables) -> tuple[NDArray[np.intp], ...]:
    """Return the run of each entry of each unit, for the tables of the second resolution.

    Args:
        study: the effective study.
        tables: of it, with noise.
    """
    return public_runs(study) if opens_tables(study) else runs_by(tables)


def with_coarse(study: Study, tables: NoisyTables, counts: Iterable[Counts]) -> NoisyTables:
    """Return a study's noisy tables with those of its second resolution.

    Args:
        study: the effective study.
        tables: of it, with noise.
        counts: of each of `coarse_pairs`, in its order, an axis for the runs of each unit; with noise.
    """
    measured = tuple(
        MeasuredTable(units=units, counts=np.asarray(own, np.float64), sigma=deviation)
        for units, own, deviation in zip(coarse_pairs(study), counts, coarse_deviations(study), strict=True)
    )
    return dataclasses.replace(tables, coarse=CoarseTables(runs=coarse_runs(study, tables), tables=measured))


def orders_of(study: Study) -> tuple[tuple[int, ...], ...]:
    """Return the codes of each variable's ordered categories."""
    return tuple(variable.order for variable in study.schema.variables)


def counted_tables(columns: Sequence[Codes], study: Study, *, check: Callable[[], None] | None = None) -> NoisyTables:
    """Count the tables that a study measures (`tables_of`).

    Args:
        columns: released codes of every unit, in unit order, (n,) each; none is of sets.
        study: the effective study.
        check: called between blocks; may raise.

    Returns:
        Without noise.

    Raises:
        ValueError: the columns do not fit the study.
    """
    units = [study.column_unit(index) for index in range(len(study.units))]
    measured = tables_of(study)
    three_way = [(a, b, c) for a, b, c in (members for members in measured if len(members) == 3)]
    pairs = [(a, b) for a, b in (members for members in measured if len(members) == 2)]
    tables = from_columns(
        columns,
        units,
        study.schema.n_states,
        three_way=three_way,
        pairs=pairs,
        alone=[members[0] for members in measured if len(members) == 1],
        parts=1,
        check=check or (lambda: None),
    )
    return dataclasses.replace(tables, orders=orders_of(study))
