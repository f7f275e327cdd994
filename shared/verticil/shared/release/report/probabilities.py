"""Every conditional probability of the network as the report shows it: with its estimate, standard error and interval.

A page of hundreds of thousands of rows opens in no browser, so the tables are shown in the columns' order as long as the rows
stay below a limit; `model.json` has all of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.numerics.model.network import Family, PairAccuracy
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.release import wording
from verticil.shared.release.content import ReleaseContent
from verticil.shared.study.document import Study
from verticil.shared.synthesis.marginals import DIFFERS, FEW

MAX_ROWS: Final = 20_000
"""Probabilities that the page shows at most: about 3 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One probability, in words."""

    category: str
    probability: str
    estimate: str
    error: str
    interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The probabilities of a column's categories given one category of each parent."""

    given: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTable:
    """One column's probabilities; no configuration where the table is not shown."""

    name: str
    parents: tuple[str, ...]
    n_cells: str
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Combinations of parent categories, of all columns together.

    Attributes:
        possible: those that the study does not declare impossible.
        unstable: the possible ones that are too rare to be distinguished from the noise.
        impossible: the others.
    """

    possible: int
    unstable: int
    impossible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """One pair, and the combination in which the network, or the joint model, is farthest from what is known; in people."""

    names: tuple[str, str]
    categories: tuple[str, str]
    estimate: str
    interval: str
    network: str
    joint: str | None
    synthetic: str
    verdict: str
    differs: bool


def pair_rows(content: ReleaseContent) -> tuple[PairRow, ...]:
    """Return the pairs of all edges and those that the study names; those that differ come first."""
    schema, n = content.study.schema, content.n_common

    def row(pair: PairAccuracy) -> PairRow:
        at = pair.worst
        few, variables = math.isnan(float(pair.estimate[at])), (schema[pair.first], schema[pair.second])

        def people(shares: NDArray[np.float64]) -> str:
            return f"{round(float(shares[at]) * n):,}".replace("-", "−")

        return PairRow(
            names=(variables[0].name, variables[1].name),
            categories=(variables[0].labels[at[0]], variables[1].labels[at[1]]),
            estimate=f"fewer than {FEW}" if few else people(pair.estimate),
            interval="not shown" if few else f"{people(pair.low)}–{people(pair.high)}",
            network=people(pair.network),
            joint=None if pair.joint is None else people(pair.joint),
            synthetic=people(pair.synthetic),
            verdict=pair.verdict,
            differs=pair.verdict == DIFFERS,
        )

    return tuple(sorted(map(row, content.accuracy), key=lambda row: not row.differs))


def count_rows(content: ReleaseContent) -> RowCounts:
    """Count the rows of all tables."""
    n_rows = n_possible = n_unstable = 0
    for family in content.network.families:
        possible = _possible_rows(family, content.study)
        n_rows += possible.size
        n_possible += int(possible.sum())
        n_unstable += int((family.unstable.any(axis=1) & possible).sum())
    return RowCounts(possible=n_possible, unstable=n_unstable, impossible=n_rows - n_possible)


def _possible_rows(family: Family, study: Study) -> NDArray[np.bool_]:
    """(J,): which combinations of parent categories no compound declares impossible."""
    schema = study.schema
    possible = np.ones([schema[parent].n_states for parent in family.parents], dtype=np.bool_)
    for index, unit in enumerate(study.units):
        inside = [parent for parent in family.parents if schema[parent].name in unit.variables]
        if not unit.impossible or not inside:
            continue
        columns = [unit.variables.index(schema[parent].name) for parent in inside]
        combinations = np.array(study.domain_of(index))[:, columns]
        here = np.zeros([schema[parent].n_states for parent in inside], dtype=np.bool_)
        here[tuple(combinations.T)] = True
        possible &= here.reshape([schema[parent].n_states if parent in inside else 1 for parent in family.parents])
    return possible.reshape(-1)


def family_tables(content: ReleaseContent) -> tuple[FamilyTable, ...]:
    """Return the tables of all columns, in their order."""
    schema = content.study.schema
    tables: list[FamilyTable] = []
    n_left = MAX_ROWS
    for family in content.network.families:
        is_shown = family.probability.size <= n_left
        n_left -= family.probability.size if is_shown else 0
        tables.append(
            FamilyTable(
                name=schema[family.child].name,
                parents=tuple(schema[parent].name for parent in family.parents),
                n_cells=wording.count(family.probability.size, "probability", "probabilities"),
                configurations=_configurations(family, schema) if is_shown else (),
            )
        )
    return tuple(tables)


def _configurations(family: Family, schema: Schema) -> tuple[Configuration, ...]:
    conditions = itertools.product(*(schema[parent].labels for parent in family.parents))
    arrays = (family.probability, family.estimate, family.standard_error, family.interval_low, family.interval_high)
    rows = zip(*(cast("list[list[float]]", array.tolist()) for array in arrays), strict=True)
    return tuple(
        Configuration(
            given=labels,
            cells=tuple(
                Cell(
                    category=category,
                    probability=wording.share(probability),
                    estimate=wording.share(estimate),
                    error=_error(error),
                    interval=wording.interval(low, high),
                )
                for category, probability, estimate, error, low, high in zip(
                    schema[family.child].labels, *row, strict=True
                )
            ),
        )
        for labels, row in zip(conditions, rows, strict=True)
    )


def _error(value: float) -> str:
    """Write a standard error; above 1000 % there is nothing to tell."""
    return wording.share(value) if math.isnan(value) or value <= 10 else "over 1000%"
