"""What one column of a table is: the decision, with its reasons, and what it is made for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.documents.written_values.reading import MOMENTS, Kind
from verticil.shared.study.endings import Endings
from verticil.shared.study.typed_variables import USUAL_FORMATS
from verticil.tables.texts import TextTable

MANY_VALUES: Final = 12
"""A number with more distinct values than this is cut into bins."""
MOST_DECIMALS: Final = 12
"""Most decimals of a number that a study holds exactly."""

PLURALS: Final[Mapping[Kind, str]] = {
    "integer": "numbers", "number": "numbers", "date": "dates", "datetime": "dates with a time", "time": "times of day",
    "category": "texts", "ordered": "texts", "boolean": "truth values",
}  # fmt: skip
"""What values of a type are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProfile:
    """What one column is, and what a study would make of it.

    Attributes:
        source: the column's name in the table.
        name: without blanks at its ends.
        kind: its type; of a column that is left out what it seems to be.
        left_out: why it is left out; empty: it is not.
        written: how numbers or dates are written; empty: as is usual.
        unit: of numbers.
        decimals: of numbers; None: of another type.
        n_rows, n_distinct: rows, and distinct texts.
        missing: texts of missing values.
        n_missing: rows that have one.
        recode: text of the table -> category, where blanks stand around it.
        categories: in order; of a number those that are its points alone.
        timezone: of moments; empty: none.
        whole_format: of moments that are all at midnight, or on the first of a month; empty: they are not.
        endings: digits that most values end in, with their shares; empty: none.
        bins, points: on the scale of the type (`written_values.reading.value_reader`).
        far: points far from all other numbers.
        n_other: rows whose value is none of the categories.
        n_other_values: distinct values of these.
        n_strange: rows of a column of numbers whose text is none, and not missing.
        means: mean of each bin, of few rows its middle.
        reasons: why it was decided so, in sentences.
    """

    source: str
    name: str
    kind: Kind
    n_rows: int
    n_distinct: int
    left_out: str = ""
    written: str = ""
    unit: str = ""
    decimals: int | None = None
    missing: tuple[str, ...] = ()
    n_missing: int = 0
    recode: Mapping[str, str] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    bins: tuple[float, ...] = ()
    points: tuple[float, ...] = ()
    timezone: str = ""
    whole_format: str = ""
    endings: Endings = ()
    far: tuple[float, ...] = ()
    n_other: int = 0
    n_other_values: int = 0
    n_strange: int = 0
    strange: tuple[str, ...] = ()
    numbers: tuple[Floats, Ints] | None = field(default=None, repr=False)
    reasons: tuple[str, ...] = ()

    @property
    def format(self) -> str:
        """The pattern of moments that a study states, because it is another than the usual one; empty: it states none."""
        if self.whole_format:
            return self.whole_format
        return self.written.split(" | ")[0] if self.kind in MOMENTS and not self.timezone else ""

    @property
    def pattern(self) -> str:
        """The pattern that records write moments in."""
        return self.format or USUAL_FORMATS[self.kind]

    @property
    def binned_numbers(self) -> tuple[Floats, Ints]:
        """The distinct numbers or moments that are no points, ascending, and the rows of each."""
        assert self.numbers is not None
        values, weights = self.numbers
        rest = ~np.isin(values, self.points)
        return values[rest], weights[rest]

    @property
    def missing_share(self) -> float:
        """The part of the rows without a value."""
        return self.n_missing / self.n_rows

    @property
    def other_share(self) -> float:
        """The part of the rows that no category is for."""
        return self.n_other / self.n_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProfile:
    """What a table is.

    Attributes:
        party: whose it is.
        texts: the table.
        columns: in its order.
        notes: on the file.
    """

    party: str
    texts: TextTable
    columns: tuple[ColumnProfile, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a profile is made for.

    Attributes:
        epsilon: of each randomized column; None: one owner's tables are measured with noise, and categories are cheap.
        columns: names of the columns to look at; empty: all.
        sheet: of a workbook.
    """

    epsilon: float | None = None
    columns: tuple[str, ...] = ()
    sheet: str = ""


def leave_out(profile: ColumnProfile, reason: str) -> ColumnProfile:
    """Return a profile that says why its column is left out."""
    return with_changes(profile, left_out=reason)


def with_changes(profile: ColumnProfile, *reasons: str, **changes: object) -> ColumnProfile:
    """Return a profile with further reasons, empty ones left out, and other attributes."""
    return dataclasses.replace(profile, reasons=(*profile.reasons, *filter(None, reasons)), **changes)  # type: ignore[arg-type]


def rows_in_words(n: int, of: int) -> str:
    """Return how many rows of so many, with their share."""
    return f"{n:,} row{'s' * (n != 1)} ({n / of:.1%})"
