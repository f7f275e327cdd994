"""The tables, in codes: UCI Adult, and NIST's excerpt of the American Community Survey in place of the paper's Colorado census.

A number is put in 20 ranges of equal width between the least and the largest (which a curator would have to declare: here they
are read off the records, as in what we compare with); everything else is a category for each distinct text, a code for missing or
not applicable (``N``, ``?``) included. Of the survey, columns with more than 20 distinct numbers are numbers, and the income,
whose score needs it, is in declared ranges.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.experiments.hittmeir import datasets
from verticil.shared.arrays import Codes, Floats
from verticil.shared.model.schema import Schema, Variable

RANGES: Final = 20
"""Of a number."""

INCOME: Final = "PINCP"
INCOME_EDGES: Final = (
    -20_000, 0, 1, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000, 50_000, 60_000, 75_000, 100_000, 125_000, 150_000, 200_000,
    300_000, 500_000, 1_500_000,
)  # fmt: skip
"""Dollars a year; ours."""

_ADULT_NUMBERS: Final = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_SURVEY_NUMBERS: Final = ("AGEP", "INDP", INCOME, "POVPIP", "PWGTP", "WGTP")
_MISSING: Final = "N"

Texts = Mapping[str, NDArray[np.object_]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Records in codes.

    Attributes:
        name: for people.
        schema: the variables.
        columns: (n,) codes of each.
        numbers: positions of the numbers.
        middles: position of a number -> (K,) the middle of each range, NaN for what is missing.
    """

    name: str
    schema: Schema
    columns: tuple[Codes, ...]
    numbers: tuple[int, ...]
    middles: Mapping[int, Floats]

    @property
    def n_records(self) -> int:
        """How many there are."""
        return len(self.columns[0])


def adult() -> Table:
    """UCI Adult's training part: 32,561 records, 13 columns."""
    texts = datasets.adult().train
    return binned("Adult", texts, numbers=_ADULT_NUMBERS)


def survey() -> Table:
    """NIST's excerpt of the American Community Survey, Massachusetts 2019: 7,634 records, 24 columns."""
    return binned("ACS", survey_texts(), numbers=_SURVEY_NUMBERS, edges={INCOME: INCOME_EDGES})


def survey_texts() -> Texts:
    """Its columns as they are written; ``N`` is missing or not applicable."""
    text = gzip.decompress((files("verticil.experiments.privbayes") / "data" / "ma2019.csv.gz").read_bytes()).decode(
        "utf-8"
    )
    header, *rows = csv.reader(io.StringIO(text))
    return {name: np.array(column, dtype=object) for name, column in zip(header, zip(*rows, strict=True), strict=True)}


def binned(
    name: str, texts: Texts, *, numbers: Sequence[str], edges: Mapping[str, Sequence[float]] | None = None
) -> Table:
    """Codes of a table of texts; see the module.

    Args:
        name: for people.
        texts: (n,) of each column.
        numbers: columns that are put in ranges; ``N`` in them is a category behind the ranges.
        edges: declared ranges, in place of equal ones.

    Raises:
        ValueError: a number cannot be read, or lies outside of its declared ranges.
    """
    variables: list[Variable] = []
    columns: list[Codes] = []
    middles: dict[int, Floats] = {}
    for position, (column, found) in enumerate(texts.items()):
        if column in numbers:
            missing = found == _MISSING
            values = found[~missing].astype(np.float64)
            declared = (edges or {}).get(column)
            limits = np.array(
                declared if declared else np.linspace(values.min(), values.max(), RANGES + 1), dtype=np.float64
            )
            places = np.searchsorted(limits, values, side="right") - 1
            if not declared:
                places = np.minimum(places, RANGES - 1)  # the largest number belongs to the last range
            if places.min() < 0 or places.max() > len(limits) - 2:
                raise ValueError(f"column '{column}': a number outside of the declared ranges")
            codes = np.full(len(found), len(limits) - 1)
            codes[~missing] = places
            middle = [(low + high) / 2 for low, high in pairwise(limits.tolist())]
            labels = [f"range {number}" for number in range(1, len(limits))] + [_MISSING] * bool(missing.any())
            middles[position] = np.array(middle + [np.nan] * bool(missing.any()))
        else:
            distinct, codes = np.unique(found.astype(str), return_inverse=True)
            labels = [text or "(empty)" for text in distinct.tolist()]
        variables.append(Variable(name=column, owner="curator", labels=tuple(labels)))
        columns.append(codes.astype(variables[-1].code_dtype))
    return Table(
        name=name,
        schema=Schema(variables=tuple(variables)),
        columns=tuple(columns),
        numbers=tuple(middles),
        middles=middles,
    )


def first(table: Table, n: int) -> Table:
    """The table of n of its records, spread evenly."""
    rows = np.linspace(0, table.n_records - 1, min(n, table.n_records)).astype(np.intp)
    columns = tuple(column[rows] for column in table.columns)
    return Table(name=table.name, schema=table.schema, columns=columns, numbers=table.numbers, middles=table.middles)
