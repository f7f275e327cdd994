"""The data sets of Hittmeir, Mayer & Ekelhart's experiments, in codes for networks and in numbers for classifiers.

A data set has two codebooks. `fine` is for data that are not randomized: at most 20 ranges for a number, as many as
DataSynthesizer makes, but declared ones that keep apart the values that people heap at (40 hours, no capital gain). `coarse` is
for randomized data, where every category costs accuracy.

For classifiers a category is its place in alphabetical order (what label encoding gives) and a number is itself; of synthetic
records it is a number drawn within the range.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from verticil.evaluate.measures.utility import Labelled
from verticil.party.dataset.encoding import Codebook
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.synthesis.synthesis import decode

Texts = Mapping[str, NDArray[np.object_]]
"""A table as it is read: an array of texts for each column."""

_PACKAGE: Final = "verticil.experiments.hittmeir"
_UNKNOWN: Final = Missing(category="unknown", spellings=("?", ""))

CARD_COLUMNS: Final = ("Time", *(f"V{number}" for number in range(1, 29)), "Amount", "Class")
"""Of the credit-card data set."""

_BY_RANGES_FROM: Final = 1_000  # distinct texts

_CARD_ROWS: Final = 284_807
_CARD_FRAUDS: Final = 492

ADULT_SHORT: Final = ("age", "wcl", "edu", "mst", "occ", "rel", "rac", "sex", "cga", "clo", "hpw", "nat", "inc")
"""The labels of Figure 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataSet:
    """A table with its codebooks.

    Attributes:
        name: for people.
        fine, coarse: codebooks; the same variables in the same order.
        target: what classifiers predict.
        train: the records; where there is no published split, all of them.
        test: the published test part; None without one.
        simulated: the records were made up.
    """

    name: str
    fine: Schema
    coarse: Schema
    target: str
    train: Texts
    test: Texts | None = None
    simulated: bool = False

    @property
    def n_records(self) -> int:
        """Number of records of `train`."""
        return len(self.train[self.target])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """Some records, as networks and as classifiers see them.

    Attributes:
        schema: the codebook.
        codes: (n,) for each variable.
        values: (n, d), float64: the place of a category, a number itself.
    """

    schema: Schema
    codes: list[Codes]
    values: Floats

    def column(self, name: str) -> Floats:
        """The values of one variable."""
        return self.values[:, self.schema.index(name)]

    def labelled(self, target: str, *, without: Sequence[str] = ()) -> Labelled:
        """All other variables as features, `target` as what is predicted; `without` leaves features out."""
        position = self.schema.index(target)
        kept = [v for v, name in enumerate(self.schema.names) if v != position and name not in without]
        return Labelled(features=self.values[:, kept], target=self.codes[position].astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """A training and a test part."""

    train: View
    test: View


def view(schema: Schema, table: Texts, rows: NDArray[np.intp] | None = None) -> View:
    """Encode some rows of a table, by the same codebook as at a party.

    Raises:
        DataFault: DATA_CATEGORY_UNSEEN, a column has values that its codebook does not declare.
    """
    taken = table if rows is None else {name: column[rows] for name, column in table.items()}
    return _view(schema, encoded(schema, taken), taken)


def encoded(schema: Schema, table: Texts) -> list[Codes]:
    """The codes alone. Errors as of `view`."""
    return [_encoded(table[variable.name], variable) for variable in schema.variables]


def drawn(schema: Schema, codes: list[Codes], *, seed: int) -> View:
    """Synthetic records: numbers are drawn within their ranges."""
    return _view(schema, codes, decode(schema, codes, np.random.default_rng([seed, 0xF])))


def _view(schema: Schema, codes: list[Codes], table: Texts | pd.DataFrame) -> View:
    """`table` has the numbers."""
    values = [
        column.astype(np.float64) if variable.bins is None else np.asarray(table[variable.name], dtype=np.float64)
        for variable, column in zip(schema.variables, codes, strict=True)
    ]
    return View(schema=schema, codes=codes, values=np.column_stack(values))


def splits(data: DataSet, schema: Schema, *, number: int, seed: int, rows: int | None = None) -> Iterator[Split]:
    """Training and test parts: the published split, as often as it is asked for, or random ones of 80 and 20 per cent.

    Args:
        data: the records.
        schema: one of its codebooks.
        number: how many splits.
        seed: of the random ones.
        rows: at most so many records in both parts together; None: all.
    """
    for split in range(number):
        generator = np.random.default_rng([seed, split])
        n = len(data.train[data.target])
        if data.test is None:
            order = generator.permutation(n)[:rows]
            cut = round(0.8 * len(order))
            yield Split(train=view(schema, data.train, order[:cut]), test=view(schema, data.train, order[cut:]))
        elif rows is None:
            yield Split(train=view(schema, data.train), test=view(schema, data.test))
        else:
            kept, asked = generator.permutation(n)[: 4 * rows // 5], generator.permutation(len(data.test[data.target]))
            yield Split(train=view(schema, data.train, kept), test=view(schema, data.test, asked[: rows - len(kept)]))


def _encoded(texts: NDArray[np.object_], variable: Variable) -> Codes:
    places, distinct = pd.factorize(texts)
    if variable.bins is not None and len(distinct) > _BY_RANGES_FROM:  # the rule of `Codebook`, all numbers at once
        codes = np.searchsorted(variable.bins, distinct.astype(np.float64), side="right").astype(np.int32) - 1
        codes[codes >= variable.n_bins] = -1
    else:
        codes, _ = Codebook(variable, {}, where=f"column '{variable.name}'").encode([str(text) for text in distinct])
    if (codes < 0).any():
        raise DataFault(
            "DATA_CATEGORY_UNSEEN",
            f"column '{variable.name}': {int((codes < 0).sum())} of {len(codes)} distinct values are not declared",
        )
    return codes.astype(variable.code_dtype)[places]


def adult() -> DataSet:
    """UCI Adult with its published split: 12 predictors and the income."""
    train, test = (_shipped(f"adult_{part}") for part in ("train", "test"))
    places = {name: _labels(train, name) for name in train if name not in _ADULT_NUMBERS}
    kept = {"native-country": ("Mexico", "United-States")}
    fine, coarse = (
        tuple(
            _number(name, _ADULT_NUMBERS[name][book])
            if name in _ADULT_NUMBERS
            else _category(name, places[name], kept.get(name) if book else None)
            for name in train
        )
        for book in (0, 1)
    )
    return DataSet(
        name="Adult Census",
        fine=Schema(variables=fine),
        coarse=Schema(variables=coarse),
        target="income",
        train=train,
        test=test,
    )


def cmc() -> DataSet:
    """UCI Contraceptive Method Choice: 9 predictors and the method."""
    table = _shipped("cmc")
    numbers = {
        "wife_age": (tuple(range(16, 51, 2)), (16, 22, 26, 30, 34, 38, 42, 50)),
        "children_ever_born": (tuple(range(18)), (0, 1, 2, 3, 4, 5, 7, 17)),
    }
    fine, coarse = (
        tuple(
            _number(name, numbers[name][book]) if name in numbers else _category(name, _labels(table, name))
            for name in table
        )
        for book in (0, 1)
    )
    return DataSet(
        name="Contraceptive Method Choice",
        fine=Schema(variables=fine),
        coarse=Schema(variables=coarse),
        target="contraceptive_method",
        train=table,
    )


def card(table: Texts, *, simulated: bool = False) -> DataSet:
    """The credit-card data set from a table with its columns; each number in 20 ranges of the same width.

    Raises:
        DataFault: DATA_COLUMN_MISSING, a column is missing; DATA_CATEGORY_UNSEEN, a value is no number, or a class not 0 or 1.
    """
    if absent := [name for name in CARD_COLUMNS if name not in table]:
        raise DataFault("DATA_COLUMN_MISSING", f"the credit-card table has no column {', '.join(map(repr, absent))}")
    variables: list[Variable] = []
    for name in CARD_COLUMNS[:-1]:
        try:
            numbers = table[name].astype(np.float64)
        except ValueError:
            raise DataFault(
                "DATA_CATEGORY_UNSEEN", f"column '{name}' of the credit-card table is not a number everywhere"
            ) from None
        low, high = float(numbers.min()), float(numbers.max())
        edges = np.linspace(low, high if high > low else low + 1, 21)
        edges[-1] = np.nextafter(edges[-1], np.inf)
        variables.append(_number(name, edges.tolist(), integer=False))
    variables.append(_category("Class", ("0", "1")))
    schema = Schema(variables=tuple(variables))
    return DataSet(
        name="Credit Card Fraud",
        fine=schema,
        coarse=schema,
        target="Class",
        train={name: table[name] for name in CARD_COLUMNS},
        simulated=simulated,
    )


def simulated_card(*, rows: int = _CARD_ROWS, frauds: int | None = None, seed: int = 1) -> DataSet:
    """A made-up table of the credit-card data set's shape: 30 numbers and a class; without `frauds` as rare as there.

    Every number depends on the class and on up to two numbers before it, so that there is something to find. What a search or a
    classifier reaches on it says nothing about frauds. Without `frauds` there are at least 20.
    """
    generator = np.random.default_rng([seed, 284_807])
    fraud = np.zeros(rows, dtype=np.int64)
    number = max(20, round(rows * _CARD_FRAUDS / _CARD_ROWS)) if frauds is None else frauds
    fraud[generator.choice(rows, number, replace=False)] = 1
    table: dict[str, NDArray[np.object_]] = {}
    made: list[Floats] = []
    for number, name in enumerate(CARD_COLUMNS[:-1]):
        column = generator.normal(size=rows) + fraud * generator.normal(scale=1.5)
        for place in generator.choice(number, min(number, 2), replace=False) if number else ():
            column += 0.6 * made[int(place)]
        made.append(column / column.std())
        distinct, places = np.unique(made[-1].round(2), return_inverse=True)
        table[name] = distinct.astype(str).astype(object)[places]
    table["Class"] = fraud.astype(str).astype(object)
    return card(table, simulated=True)


_ADULT_NUMBERS: Final[Mapping[str, tuple[Sequence[float], Sequence[float]]]] = {
    "age": (
        (17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 40, 43, 46, 49, 52, 56, 60, 65, 70, 91),
        (17, 25, 30, 35, 40, 45, 50, 60, 91),
    ),
    "education-num": (tuple(range(1, 18)), (1, 5, 8, 9, 10, 11, 13, 14, 17)),
    "capital-gain": (
        (0, 1, 1500, 2500, 3000, 3500, 4000, 4500, 5000, 5500, 6500, 7000, 7500, 8000, 10000, 14000, 15000, 16000, 20000,
         99999, 100000),
        (0, 1, 5000, 10000, 100000),
    ),
    "capital-loss": (
        (0, 1, 1000, 1400, 1500, 1600, 1700, 1800, 1850, 1900, 1950, 2000, 2100, 2200, 2300, 2400, 2500, 3000, 5000),
        (0, 1, 1800, 2000, 5000),
    ),
    "hours-per-week": (
        (1, 10, 16, 20, 21, 25, 30, 31, 35, 36, 40, 41, 45, 46, 50, 51, 55, 60, 61, 70, 100),
        (1, 20, 35, 40, 41, 50, 60, 100),
    ),
}  # fmt: skip
"""Edges of the ranges, fine and coarse; the coarse ones are those of the demonstration's study."""


def _shipped(name: str) -> dict[str, NDArray[np.object_]]:
    text = gzip.decompress((files(_PACKAGE) / "data" / f"{name}.csv.gz").read_bytes()).decode("utf-8")
    header, *rows = csv.reader(io.StringIO(text))
    # One object for equal texts, as pandas reads them: a quarter of the memory, and quicker to encode.
    columns = (np.array([sys.intern(text) for text in column], dtype=object) for column in zip(*rows, strict=True))
    return dict(zip(header, columns, strict=True))


def _labels(table: Texts, name: str) -> tuple[str, ...]:
    return tuple(sorted(str(label) for label in set(table[name].tolist())))


def _category(name: str, labels: Sequence[str], kept: Sequence[str] | None = None) -> Variable:
    """A variable of categories; ``?`` becomes the last one, and what is not `kept` one called elsewhere."""
    unknown = "?" in labels
    named = sorted(kept) if kept is not None else [label for label in labels if label != "?"]
    other = "elsewhere" if kept is not None else None
    return Variable(
        name=name,
        owner="paper",
        labels=(*named, *((other,) if other else ()), *((_UNKNOWN.category,) if unknown else ())),
        other=other,
        missing=_UNKNOWN if unknown else None,
    )


def _number(name: str, edges: Sequence[float], *, integer: bool = True) -> Variable:
    bins = tuple(float(edge) for edge in edges)
    labels = (f"[{low:g},{high:g})" if integer else f"range {n}" for n, (low, high) in enumerate(pairwise(bins), 1))
    return Variable(
        name=name,
        owner="paper",
        labels=tuple(labels),
        bins=bins,
        integer=integer,
    )
