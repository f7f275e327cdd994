"""The table that a release publishes, as it is written: columns of codes and numbers, turned into frames piece by piece.

`WrittenColumn` is what `synthesis.decode` has drawn of a column; everything behind it looks at one record at a time, so that a
table of many records can be kept as columns, outside memory (`records`), and handed to its writers in pieces
(`PiecewiseTable`). The pieces are as long as the row groups of a Parquet file that is written at once, so the files have the
same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Codes, Floats, Ints, give_back
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.synthesis.typed_columns import series_of

if TYPE_CHECKING:
    import pandas as pd

PIECE: Final = 1 << 20
"""Records of a piece: a row group of pyarrow's writer, where nothing else is asked for."""

Numbers = Ints | Floats


def cell_counts(codes: Sequence[AnyCodes], n_states: Sequence[int]) -> Ints:
    """Count how many records have each combination of some columns, the last one fastest.

    Args:
        codes: (n,) of each of the columns.
        n_states: categories of each.

    >>> cell_counts([np.array([0, 1, 1], dtype=np.uint8), np.array([2, 0, 0], dtype=np.uint8)], (2, 3)).tolist()
    [0, 0, 1, 2, 0, 0]
    """
    size = math.prod(n_states)
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(codes[0]), PIECE):
        parts = [column[start : start + PIECE] for column in codes]
        cells = parts[0].astype(np.int64)
        for part, states in zip(parts[1:], n_states[1:], strict=True):
            cells *= states
            cells += part
        counts += np.bincount(cells, minlength=size)
        for part in parts:
            give_back(part)
    return counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrittenColumn:
    """A column of synthetic records.

    Attributes:
        variable: what the column is; of `Columns.published`.
        codes: (n,).
        numbers: (n,) a number in each record's bin, int64 or float64; None: the variable has no bins.
        decimals: that the numbers are written with where the column is text.
    """

    variable: Variable
    codes: Codes
    numbers: Numbers | None = None
    decimals: int = 0

    def part(self, some: slice) -> WrittenColumn:
        """Some of its records."""
        numbers = None if self.numbers is None else self.numbers[some]
        return replace(self, codes=self.codes[some], numbers=numbers)


def frame(columns: Sequence[WrittenColumn], *, with_labels: bool) -> pd.DataFrame:
    """Columns as a table: see `synthesis.decode`."""
    import pandas as pd

    columns_of: dict[str, pd.Series | pd.Categorical] = {}
    for column in columns:
        variable, codes, numbers = column.variable, column.codes, column.numbers
        if variable.kind is not None:
            columns_of[variable.name] = series_of(variable, codes, numbers)
        elif numbers is None:
            columns_of[variable.name] = pd.Categorical.from_codes(
                codes.astype(np.int64), categories=pd.Index(variable.labels, dtype="str")
            )
        elif variable.n_states == variable.n_bins:
            columns_of[variable.name] = pd.Series(numbers)
        elif variable.n_states == variable.n_bins + 1 and not with_labels:
            whole = pd.Series(numbers, dtype="Int64" if variable.integer else "float64")
            columns_of[variable.name] = whole.mask(codes == variable.n_bins)
        else:
            columns_of[variable.name] = pd.Series(_texts(variable, codes, numbers, column.decimals), dtype="str")
    return pd.DataFrame(columns_of)


def _texts(variable: Variable, codes: Codes, numbers: Numbers, decimals: int) -> NDArray[np.object_]:
    number_texts = [f"{number:.{decimals}f}" for number in numbers.tolist()]
    texts = np.array(number_texts, dtype=object)
    for code in range(variable.n_bins, variable.n_states):
        texts[codes == code] = variable.labels[code]
    return texts


class PiecewiseTable:
    """A table of many records, of which one piece at a time is a frame.

    Args:
        columns: all of them.
        with_labels: see `synthesis.decode`.
    """

    def __init__(self, columns: Sequence[WrittenColumn], *, with_labels: bool) -> None:
        self._columns, self._labelled = tuple(columns), with_labels

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.variable.name for column in self._columns)

    def __len__(self) -> int:
        return len(self._columns[0].codes)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        for start in range(0, len(self), PIECE):
            parts = [column.part(slice(start, start + PIECE)) for column in self._columns]
            yield frame(parts, with_labels=self._labelled)
            for part in parts:
                give_back(part.codes)
                if part.numbers is not None:
                    give_back(part.numbers)
