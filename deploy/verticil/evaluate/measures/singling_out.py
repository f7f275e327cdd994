"""Singling out: conditions that published records suggest, and which hold for exactly one person.

Somebody looks for conditions that one published record alone meets, and bets that they hold for one person alone, too (Cohen &
Nissim 2020; Giomi, Boenisch, Wehmeyer & Tasnadi 2023). One column: its least and largest number, and values that it
has once. Several: a random record's values in random columns, of a number "at least" above the median and "at most" else.

A condition on a column is an interval of numbers or codes, a missing number the interval that nothing else is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.evaluate.measures.coded import CodedTable, number_records
from verticil.shared.core.arrays import Floats, Ints

COLUMNS: Final = 3
"""In a condition on several."""
ATTEMPTS: Final = 40
"""Random conditions on several columns are tried for each that is wanted."""
_SCREENS: Final = (50, 500)  # records that conditions are first tried on: most hold for several of them
_CELLS: Final = 100_000  # comparisons at a time: they stay in the processor's cache
_MISSING: Final = np.inf
_LARGEST: Final = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conditions:
    """Conditions that hold together, each on as many columns.

    Attributes:
        columns: (q, c), positions.
        low, high: (q, c), numbers or codes of the interval's ends, which belong to it.
    """

    columns: Ints
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.columns)

    def some(self, positions: Ints) -> Conditions:
        """Return some of them, in this order."""
        return Conditions(columns=self.columns[positions], low=self.low[positions], high=self.high[positions])

    def holding(self, table: CodedTable) -> Ints:
        """Return (q,), for how many records each holds."""
        return _holding(self, _numbers(table))


def _holding(conditions: Conditions, numbers: Floats) -> Ints:
    n_holding = np.empty(len(conditions), dtype=np.int64)
    step = max(1, _CELLS // max(numbers.shape[1], 1))
    for start in range(0, len(conditions), step):
        part = slice(start, start + step)
        holds = np.ones((len(conditions.columns[part]), numbers.shape[1]), dtype=np.bool_)
        for place in range(conditions.columns.shape[1]):
            values = numbers[conditions.columns[part, place]]
            holds &= (values >= conditions.low[part, place, None]) & (values <= conditions.high[part, place, None])
        n_holding[part] = holds.sum(axis=1)
    return n_holding


def _numbers(table: CodedTable) -> Floats:
    """Return (columns, records), numbers, or codes where there are none."""
    return np.array(
        [
            codes.astype(np.float64) if values is None else np.where(np.isnan(values), _MISSING, values)
            for codes, values in zip(table.codes, table.values, strict=True)
        ]
    )


def of_one_column(synthetic: CodedTable, most: int, *, generator: np.random.Generator) -> Conditions:
    """Return conditions on one column that hold for one distinct published record; at most so many, drawn."""
    numbers = _numbers(_distinct(synthetic))
    columns: list[int] = []
    low: list[float] = []
    high: list[float] = []
    for column, values in enumerate(numbers):
        each, counts = np.unique(values, return_counts=True)
        once = each[counts == 1].tolist()
        ends = [(value, value) for value in once]
        present = each[each < _MISSING]
        if synthetic.values[column] is not None and len(present):
            ends += [(-_LARGEST, float(present[0])), (float(present[-1]), _LARGEST)]
        columns += [column] * len(ends)
        low += [first for first, _ in ends]
        high += [last for _, last in ends]
    conditions = Conditions(
        columns=np.array(columns, dtype=np.int64)[:, None], low=np.array(low)[:, None], high=np.array(high)[:, None]
    )
    single = _single(conditions, numbers)
    return single.some(generator.permutation(len(single))[:most])


def of_several(synthetic: CodedTable, most: int, *, generator: np.random.Generator) -> Conditions:
    """Conditions on `COLUMNS` columns (or all, if there are fewer) that hold for one distinct published record; at most so many.

    Fewer where random ones seldom hold for one record alone: `ATTEMPTS` are tried for each.
    """
    distinct = _distinct(synthetic)
    numbers = _numbers(distinct)
    d, n = numbers.shape
    n_trials = most * ATTEMPTS
    columns = generator.permuted(np.tile(np.arange(d), (n_trials, 1)), axis=1)[:, : min(COLUMNS, d)]
    columns.sort(axis=1)
    values = numbers[columns, generator.integers(0, n, n_trials)[:, None]]
    numeric = np.array([column is not None for column in distinct.values])
    present = [row[row < _MISSING] for row in numbers]
    medians = np.array([np.median(row) if len(row) else 0.0 for row in present])
    open_ended = numeric[columns] & (values < _MISSING)
    above = values > medians[columns]
    conditions = Conditions(
        columns=columns,
        low=np.where(open_ended & ~above, -_LARGEST, values),
        high=np.where(open_ended & above, _LARGEST, values),
    )
    keys = np.concatenate([conditions.columns.astype(np.float64), conditions.low, conditions.high], axis=1)
    once = {row.tobytes(): place for place, row in reversed(list(enumerate(keys)))}
    return _single(conditions.some(np.array(sorted(once.values()), dtype=np.int64)), numbers, most)


def _single(conditions: Conditions, numbers: Floats, most: int | None = None) -> Conditions:
    """Keep the conditions that hold for one record; the first so many."""
    for screen in _SCREENS:
        conditions = conditions.some(np.flatnonzero(_holding(conditions, numbers[:, :screen]) <= 1))
    single_parts: list[Ints] = []
    count = 0
    step = max(1, len(conditions) if most is None else most)
    for start in range(0, len(conditions), step):
        part = np.arange(start, min(start + step, len(conditions)))
        single = part[_holding(conditions.some(part), numbers) == 1]
        single_parts.append(single)
        count += len(single)
        if most is not None and count >= most:
            break
    positions = np.concatenate(single_parts) if single_parts else np.arange(0)
    return conditions.some(positions[:most])


def _distinct(table: CodedTable) -> CodedTable:
    """Return each record once, the first of equals."""
    (numbers,) = number_records(table)
    return table.rows(np.sort(np.unique(numbers, return_index=True)[1]))
