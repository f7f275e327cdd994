"""The tables, in codes: UCI Adult, and NIST's excerpt of the American Community Survey in place of the paper's Colorado census,
which a user can bring (`colorado`).

A number is put in 20 ranges of equal width between the least and the largest (which a curator would have to declare: here they
are read off the records, as in what we compare with); everything else is a category for each distinct text, a code for missing or
not applicable (``N``, ``?``) included. Of the survey, columns with more than 20 distinct numbers are numbers, and the income,
whose score needs it, is in declared ranges.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.experiments.hittmeir import datasets
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.model.schema import Schema, Variable

RANGES: Final = 20
"""Of a number."""

CITY: Final = "PUMA"
SEX: Final = "SEX"
INCOME: Final = "PINCP"
COLORADO: Final = ("CITY", "SEX", "INCWAGE")
"""City, sex and income in the Colorado census of NIST's challenge (IPUMS, 1940)."""
NO_INCOME: Final = frozenset({"", "N", "999998", "999999"})
"""Of `COLORADO`'s income: missing, or not applicable."""
MOST_CATEGORIES: Final = 1000
"""Of a column of an own table that is no number."""
LEAST_RECORDS: Final = 100
"""Of an own table."""
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
        regression: city, sex and income by name, which the regression's score is about.
    """

    name: str
    schema: Schema
    columns: tuple[Codes, ...]
    numbers: tuple[int, ...]
    middles: Mapping[int, Floats]
    regression: tuple[str, str, str] = (CITY, SEX, INCOME)

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


def colorado(texts: Texts) -> Table:
    """Return an own table: the Colorado census, or another with columns of its names for city, sex and income (`COLORADO`).

    A column with more than `RANGES` distinct numbers, and nothing else in it but blanks, is a number in `RANGES` equal ranges;
    every other one, the city and the sex are categories.

    Args:
        texts: (n,) of each column.

    Raises:
        DataFault: DATA_COLUMN_MISSING, a column is not there; DATA_CATEGORY_UNSEEN, the file has too few records, the sex has
            not two values, there is one city, the income has no numbers, or a column has too many categories.
    """
    city, sex, income = COLORADO
    if absent := [name for name in COLORADO if name not in texts]:
        raise DataFault(
            "DATA_COLUMN_MISSING",
            f"the Colorado table has no column {', '.join(map(repr, absent))}, expected city, sex and income as "
            f"{', '.join(map(repr, COLORADO))}",
            hint="rename the columns of your file",
        )
    if (n := len(texts[city])) < LEAST_RECORDS:
        raise DataFault("DATA_CATEGORY_UNSEEN", f"the Colorado table has {n} records, expected {LEAST_RECORDS} or more")
    for name, least, most in ((city, 2, MOST_CATEGORIES), (sex, 2, 2)):
        if not least <= (many := len(set(texts[name].tolist()))) <= most:
            raise DataFault(
                "DATA_CATEGORY_UNSEEN",
                f"column '{name}' of the Colorado table has {many} distinct values, expected {least}"
                + ("" if least == most else f" to {most:,}"),
            )
    numbers: list[str] = []
    cleaned: dict[str, NDArray[np.object_]] = {}
    for name, column in texts.items():
        missing = np.isin(column.astype(str), list(NO_INCOME if name == income else {"", _MISSING}))
        distinct = set(column[~missing].tolist())
        number = name not in {city, sex} and (name == income or len(distinct) > RANGES) and _are_numbers(distinct)
        if name == income and (not number or len(distinct) < 2):
            raise DataFault(
                "DATA_CATEGORY_UNSEEN",
                f"column '{income}' of the Colorado table is not a number everywhere, or has one value, expected numbers",
            )
        if not number and len(distinct) > MOST_CATEGORIES:
            raise DataFault(
                "DATA_CATEGORY_UNSEEN",
                f"column '{name}' of the Colorado table has {len(distinct):,} categories, expected at most {MOST_CATEGORIES:,}",
                hint="take the column out, or group its values",
            )
        numbers += [name] * number
        cleaned[name] = np.where(missing, _MISSING, column) if number else column
    made = binned("Colorado", cleaned, numbers=numbers)
    return dataclasses.replace(made, regression=COLORADO)


def _are_numbers(texts: Collection[str]) -> bool:
    """Return whether every text is a finite number."""
    try:
        return all(math.isfinite(float(text)) for text in texts)
    except ValueError:
        return False


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
    return dataclasses.replace(table, columns=tuple(column[rows] for column in table.columns))
