"""A table as every metric takes it: columns of codes, and the numbers of numeric columns beside.

Categories and bins are common to all tables that are compared (real, synthetic, holdout): the same code is the same category in
each. Missing is a category of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, Floats, combination_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodedTable:
    """Records in codes.

    Attributes:
        names: of the columns.
        codes: (n,) of each column, unsigned, below its number of categories.
        n_states: number of categories of each column.
        values: (n,) of a numeric column, which is coded in bins: its numbers, NaN where there is none; None of another column.

    >>> table = CodedTable(names=("a",), codes=(np.array([0, 2, 1], dtype=np.uint8),), n_states=(3,), values=(None,))
    >>> table.n, table.column("a"), table.rows(np.array([1, 1])).codes[0].tolist()
    (3, 0, [2, 2])
    """

    names: tuple[str, ...]
    codes: tuple[Codes, ...]
    n_states: tuple[int, ...]
    values: tuple[Floats | None, ...]

    def __post_init__(self) -> None:
        sizes = {len(self.names), len(self.codes), len(self.n_states), len(self.values)}
        if len(sizes) > 1 or not self.names:
            raise ValueError(
                f"{sorted(sizes)} names, columns, sizes and values, expected as many of each, at least one"
            )
        for name, codes, states, values in zip(self.names, self.codes, self.n_states, self.values, strict=True):
            if codes.shape != (self.n,) or (values is not None and values.shape != (self.n,)):
                raise ValueError(f"column '{name}' has another number of records than the first")
            if self.n and int(codes.max()) >= states:
                raise ValueError(f"column '{name}': code {int(codes.max())}, expected below {states}")

    @property
    def n(self) -> int:
        """Number of records of the table."""
        return len(self.codes[0])

    def rows(self, index: NDArray[np.integer] | Sequence[int]) -> CodedTable:
        """Return some records, in this order."""
        return CodedTable(
            names=self.names,
            codes=tuple(column[index] for column in self.codes),
            n_states=self.n_states,
            values=tuple(None if column is None else column[index] for column in self.values),
        )

    def features(self, *without: int) -> Floats:
        """Return what classifiers learn from: (n, f), all columns but some.

        A missing number is the mean, a category its place.
        """
        return np.column_stack(
            [
                codes.astype(np.float64) if values is None else _fill_missing(values)
                for place, (codes, values) in enumerate(zip(self.codes, self.values, strict=True))
                if place not in without
            ]
        )

    def column(self, name: str) -> int:
        """Return the position of a column.

        Raises:
            KeyError: there is none of this name.
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise KeyError(name) from None


def _fill_missing(values: Floats) -> Floats:
    numbers = values[~np.isnan(values)]
    return np.where(np.isnan(values), numbers.mean() if len(numbers) else 0.0, values)


def number_records(*tables: CodedTable) -> list[NDArray[np.int64]]:
    """Number each distinct record of all tables: (n,) of each table.

    Numbers count, not the bins they lie in.

    >>> codes = np.array([1, 1, 1, 1, 0], dtype=np.uint8)
    >>> table = CodedTable(names=("a",), codes=(codes,), n_states=(2,), values=(np.array([2.0, 3, 2, 3, np.nan]),))
    >>> a, b = table.rows([0, 1, 2]), table.rows([3, 4])
    >>> [numbers.tolist() for numbers in number_records(a, b)]
    [[1, 2, 1], [2, 0]]
    """
    columns: list[NDArray[np.integer]] = []
    for place in range(len(tables[0].names)):
        columns.append(np.concatenate([table.codes[place] for table in tables]))
        values = [table.values[place] for table in tables]
        if all(column is not None for column in values):
            all_values = np.concatenate([column for column in values if column is not None])
            columns.append(np.unique(all_values, return_inverse=True)[1].reshape(-1))
    groups = np.unique(combination_numbers(columns), return_inverse=True)[1].reshape(-1)
    return np.split(groups, np.cumsum([table.n for table in tables])[:-1])
