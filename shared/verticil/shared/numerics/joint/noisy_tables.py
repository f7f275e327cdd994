"""What a study measured, as one value: tables of counts, how their columns were randomized, and the noise on their cells.

Every source fills it in: the counts of randomized columns (the miner of Model II, a party of Model I for what it has itself),
exact counts (a simulation), the noisy tables of a curator or of a miner, tables that were added up under masks. What estimates
from it does not ask where it comes from. With pi the shares of the true categories, C the channels of the units of a table (rows
true, columns released; the identity where a column is as it is) and n the people,

    counts = n C^T pi + what the randomization scattered + noise,

the second of variance n (C^T pi - (C o C)^T pi) in a cell given the people (o: elementwise), the third of variance sigma^2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Bools, Counts, Floats
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit

Relation = Literal["replace", "add-remove"]
"""Whom a table's noise protects: a person who is replaced by another (the number of people is public), or one who is added or
removed (it is not)."""
Zeros = Callable[[Sequence[int]], Bools | None]
"""Which combinations of some variables rules leave possible: an axis for each; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredTable:
    """The counts of the released entries of a few units.

    Attributes:
        units: their positions among the units, ascending; one, two or more.
        counts: (M_first, M_second, ..), float64, read-only, C order; with noise they can be negative. A unit whose records are
            sets of w entries counts each as 1/w of a record.
        sigma: standard deviation of the noise on each cell, people; 0: none.
        parts: the same counts for equal parts of the people, which sum to `counts`, where the people were counted in parts (to
            hold a model of some against the others); else none.
    """

    units: tuple[int, ...]
    counts: Floats
    sigma: float = 0.0
    parts: tuple[Floats, ...] = ()

    def __post_init__(self) -> None:
        if not self.units or tuple(sorted(set(self.units))) != self.units or self.counts.ndim != len(self.units):
            raise ValueError(f"a table of the units {self.units} has {self.counts.ndim} axes")
        if not (self.sigma >= 0 and math.isfinite(self.sigma)):
            raise ValueError(f"noise with the standard deviation {self.sigma}")
        counts = np.array(self.counts, dtype=np.float64, order="C")
        if not np.isfinite(counts).all() or any(part.shape != counts.shape for part in self.parts):
            raise ValueError(f"counts of the units {self.units} are not finite, or their parts have other shapes")
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoarseTables:
    """The same people, counted once more in runs of neighbouring categories, with noise of their own (`coarse`).

    Attributes:
        runs: for each unit (M,), the run of each of its entries, numbered from 0.
        tables: of two units each; their counts have an entry for each run.
    """

    runs: tuple[NDArray[np.intp], ...]
    tables: tuple[MeasuredTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyTables:
    """All that was measured.

    Attributes:
        n_states: number of categories of each variable.
        units: the columns as they were measured: each variable is in exactly one. A unit of several variables is a compound.
        tables: of different sets of units, in any order.
        n_records: how many people there are, where that is public; None: it follows from the tables, see `people`.
        relation: of the noise; without noise it says nothing.
        orders: for each variable the codes of its ordered categories, in their order; empty where it has none.
        coarse: the second resolution; None: there is none.

    Raises:
        ValueError: the parts do not belong together.
    """

    n_states: tuple[int, ...]
    units: tuple[ColumnUnit, ...]
    tables: tuple[MeasuredTable, ...]
    n_records: int | None
    relation: Relation = "replace"
    orders: tuple[tuple[int, ...], ...] = ()
    coarse: CoarseTables | None = None
    has_noise: bool = field(init=False)
    """Whether a table has noise on its cells."""
    _by_units: Mapping[tuple[int, ...], MeasuredTable] = field(init=False, repr=False)
    _of_unit: Mapping[int, tuple[MeasuredTable, ...]] = field(init=False, repr=False)
    _one_way: dict[int, tuple[Floats, float]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        variables = sorted(itertools.chain.from_iterable(unit.variables for unit in self.units))
        if variables != list(range(len(self.n_states))):
            raise ValueError(f"units of the variables {variables}, expected each of {len(self.n_states)} once")
        by_units = {table.units: table for table in self.tables}
        if len(by_units) != len(self.tables):
            raise ValueError("two tables of the same units")
        for table in self.tables:
            expected = tuple(self.units[unit].channel.n_states for unit in table.units)
            if table.counts.shape != expected:
                raise ValueError(
                    f"the table of the units {table.units} has shape {table.counts.shape}, expected {expected}"
                )
        of_unit: dict[int, list[MeasuredTable]] = {}
        for table in self.tables:
            for unit in table.units:
                of_unit.setdefault(unit, []).append(table)
        if set(of_unit) != set(range(len(self.units))):
            raise ValueError("a unit is in no table")
        if self.coarse is not None:
            sizes = [int(run.max()) + 1 for run in self.coarse.runs]
            for table in self.coarse.tables:
                if table.sigma <= 0 or table.counts.shape != tuple(sizes[unit] for unit in table.units):
                    raise ValueError(f"the coarse table of the units {table.units} has no noise, or another shape")
        object.__setattr__(self, "has_noise", any(table.sigma > 0 for table in self.tables))
        object.__setattr__(self, "_of_unit", {unit: tuple(own) for unit, own in of_unit.items()})
        object.__setattr__(self, "_by_units", by_units)

    @property
    def people(self) -> float:
        """How many people the tables count: `n_records`, or the mean of the tables' sums weighted by precision; at least 1.

        The sum of a table of M cells with noise of standard deviation sigma has the variance M sigma^2.
        """
        if self.n_records is not None:
            return float(self.n_records)
        exact = [table for table in self.tables if table.sigma == 0]
        if exact:
            return max(float(exact[0].counts.sum()), 1.0)
        weights = np.array([1 / (table.counts.size * table.sigma**2) for table in self.tables])
        sums = np.array([table.counts.sum() for table in self.tables])
        return max(float(weights @ sums / weights.sum()), 1.0)

    @property
    def is_randomized(self) -> bool:
        """Whether a column was randomized before it was counted."""
        return any(not unit.channel.is_identity for unit in self.units)

    @property
    def all_tables(self) -> tuple[MeasuredTable, ...]:
        """The tables, and behind them the coarse ones."""
        return self.tables if self.coarse is None else (*self.tables, *self.coarse.tables)

    @property
    def n_cells(self) -> int:
        """How many cells were measured, those of the coarse tables among them."""
        return sum(table.counts.size for table in self.all_tables)

    def combined(self) -> NoisyTables:
        """Return the fine tables with what the coarse ones say of them, and no coarse ones.

        Their noise is still called sigma: it is that or a little less, so what takes it for sigma is on the safe side.
        """
        if self.coarse is None:
            return self
        sums = {table.units: table for table in self.coarse.tables}
        tables = list[MeasuredTable]()
        for table in self.tables:
            if (own := sums.get(table.units)) is None:
                tables.append(table)
                continue
            runs = [self.coarse.runs[unit] for unit in table.units]
            counts, _ = spread_over(table.counts, table.sigma**2, runs, own.counts, own.sigma**2)
            tables.append(replace(table, counts=counts))
        found = replace(self, tables=tuple(tables), coarse=None)
        found._one_way.update({unit: self.one_way(unit) for unit in range(len(self.units))})
        return found

    def without(self, zeros: Zeros) -> NoisyTables:
        """Return the tables with 0 in every cell that rules leave empty: what stood there was noise.

        Of columns that were randomized before they were counted a cell says nothing of the same cell before; they stay.
        """
        tables = tuple(self._without(table, zeros) for table in self.tables)
        return replace(self, tables=tables, coarse=self._coarse_without(zeros))

    def _coarse_without(self, zeros: Zeros) -> CoarseTables | None:
        """Return the coarse tables with 0 where every combination in a pair of runs is impossible."""
        if self.coarse is None:
            return None
        runs, found = self.coarse.runs, list[MeasuredTable]()
        for table in self.coarse.tables:
            ones = np.ones([len(runs[unit]) for unit in table.units])
            kept = self._without(MeasuredTable(units=table.units, counts=ones), zeros).counts
            for axis, unit in enumerate(table.units):
                kept = sum_runs(kept, runs[unit], axis)
            found.append(replace(table, counts=np.where(kept > 0, table.counts, 0.0)))
        return replace(self.coarse, tables=tuple(found))

    def _without(self, table: MeasuredTable, zeros: Zeros) -> MeasuredTable:
        of = [self.units[unit] for unit in table.units]
        possible = None
        if all(unit.channel.is_identity for unit in of):
            possible = zeros([variable for unit in of for variable in unit.variables])
        if possible is None:
            return table
        shapes = [[self.n_states[variable] for variable in unit.variables] for unit in of]
        cells = [
            np.arange(shape[0])
            if unit.domain is None
            else np.ravel_multi_index(np.array(unit.domain).T.tolist(), shape)
            for unit, shape in zip(of, shapes, strict=True)
        ]
        kept = possible.reshape([math.prod(shape) for shape in shapes])[np.ix_(*cells)]
        counts, *parts = (np.where(kept, counts, 0.0) for counts in (table.counts, *table.parts))
        return replace(table, counts=counts, parts=tuple(parts))

    def table(self, units: Sequence[int]) -> MeasuredTable | None:
        """Return the table of these units, ascending; None: it was not measured."""
        return self._by_units.get(tuple(units))

    def one_way(self, unit: int) -> tuple[Floats, float]:
        """Return the counts of one unit's released entries, from every table that has it, and the variance of each of them by
        noise.

        A table whose other units have L entries gives them with the variance L sigma^2; tables are weighted by 1 over that. One
        without noise is exact. Coarse tables give the sums of runs: see `spread_over`.

        Returns:
            (M,) counts, and the variance of the noise on each; the scatter of the randomization is not in it.
        """
        if unit not in self._one_way:
            counts, variance = self._summed(unit)
            counts.setflags(write=False)
            self._one_way[unit] = counts, variance
        return self._one_way[unit]

    def _summed(self, unit: int) -> tuple[Floats, float]:
        total: Counts = np.zeros(self.units[unit].channel.n_states)
        weight = 0.0
        for table in self._of_unit[unit]:
            axis = table.units.index(unit)
            others = tuple(place for place in range(table.counts.ndim) if place != axis)
            counts = table.counts.sum(axis=others)
            if table.sigma == 0:
                return counts, 0.0
            precision = counts.size / (table.counts.size * table.sigma**2)
            total, weight = total + precision * counts, weight + precision
        return self._with_runs(unit, total / weight, 1 / weight)

    def _with_runs(self, unit: int, counts: Floats, variance: float) -> tuple[Floats, float]:
        """Return counts of a unit with what its coarse tables say of them, and their mean variance."""
        tables = () if self.coarse is None else [table for table in self.coarse.tables if unit in table.units]
        if self.coarse is None or not tables:
            return counts, variance
        runs = self.coarse.runs[unit]
        sums, weight = np.zeros(int(runs.max()) + 1), 0.0
        for table in tables:
            axis = table.units.index(unit)
            precision = len(sums) / (table.counts.size * table.sigma**2)
            sums, weight = sums + precision * table.counts.sum(axis=1 - axis), weight + precision
        found, left = spread_over(counts, variance, [runs], sums / weight, 1 / weight)
        return found, float(left.mean())


def spread_over(
    counts: Floats, variance: float, runs: Sequence[NDArray[np.intp]], sums: Floats, variance_of_sums: float
) -> tuple[Floats, Floats]:
    """Return fine counts with what sums over runs of them say, by generalised least squares.

    The m cells of a sum, each of variance v, get the same part of what is missing to it, v / (m v + V) with V the sum's variance.

    Args:
        counts: fine, with noise of the same variance on each.
        variance: of each.
        runs: for each axis the run of each entry.
        sums: of every combination of runs, as they were measured.
        variance_of_sums: of each.

    Returns:
        The counts, and the variance of each, of the same shape.
    """
    sizes, missing = np.ones((), np.float64), counts
    for axis, run in enumerate(runs):
        sizes = np.multiply.outer(sizes, np.bincount(run).astype(np.float64))
        missing = sum_runs(missing, run, axis)
    part = variance / (sizes * variance + variance_of_sums)
    share, change = part, (sums - missing) * part
    for axis, run in enumerate(runs):
        share, change = np.take(share, run, axis=axis), np.take(change, run, axis=axis)
    return counts + change, variance * (1 - share)


def sum_runs(counts: Floats, runs: NDArray[np.intp], axis: int) -> Floats:
    """Return counts whose entries on an axis are added up over runs."""
    moved = np.moveaxis(counts, axis, 0)
    found = np.zeros((int(runs.max()) + 1, *moved.shape[1:]))
    np.add.at(found, runs, moved)
    return np.moveaxis(found, 0, axis)
