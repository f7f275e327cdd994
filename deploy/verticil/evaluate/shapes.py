"""What of two tables can be looked at: shares of each column, distances and associations of each pair, the worst pairs as tables.

All records of both tables are counted, in the coding that the verdicts are about. It is computed from real data, as everything
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from verticil.evaluate.measures.coded import CodedTable
from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.documents.json_document import Json

MOST_BARS: Final = 24
"""Categories of one column that are drawn; the rarer real ones together are one more."""
MOST_COLUMNS: Final = 60
"""Columns that are drawn: those with the largest distances."""
WORST: Final = 5
_MOST_CELLS: Final = 7  # categories of a column in a table of a pair, before all others together
REST: Final = "all others"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnShape:
    """A column: labels of its categories, the share of each in both tables, and the distance of these."""

    name: str
    labels: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTable:
    """A pair of columns: labels of rows and of columns, and the shares of all combinations in both tables."""

    names: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    real: tuple[tuple[float, ...], ...]
    synthetic: tuple[tuple[float, ...], ...]
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """What is drawn of one candidate.

    Attributes:
        columns: of each column the shares, in the tables' order.
        distances: (d, d), total variation distance of each pair; on the diagonal that of the column.
        real, synthetic: (d, d), Cramér's V of each pair, 0 to 1, in both tables; 1 on the diagonal.
        worst: the pairs with the largest distances.
        n_columns: how many columns the tables have; more than are drawn where these are more than `MOST_COLUMNS`.
    """

    columns: tuple[ColumnShape, ...]
    distances: Floats
    real: Floats
    synthetic: Floats
    worst: tuple[PairTable, ...]
    n_columns: int

    def to_dict(self) -> dict[str, Json]:
        """Return the numbers as a document."""
        return {
            "columns": [
                {
                    "name": item.name,
                    "labels": list(item.labels),
                    "real": _rounded(item.real),
                    "synthetic": _rounded(item.synthetic),
                    "distance": round(item.distance, 6),
                }
                for item in self.columns
            ],
            "pair_distances": [_rounded(row) for row in self.distances.tolist()],
            "association_real": [_rounded(row) for row in self.real.tolist()],
            "association_synthetic": [_rounded(row) for row in self.synthetic.tolist()],
        }


def _rounded(values: Sequence[float]) -> list[Json]:
    return [round(value, 6) for value in values]


def shapes_of(real: CodedTable, other: CodedTable, labels: Sequence[Sequence[str]]) -> Shapes:
    """Count both tables.

    Args:
        real, other: the tables, in one coding.
        labels: of each column, the label of each code.
    """
    all_columns = [
        _column(name, labels[place], *(_shares(table, (place,)) for table in (real, other)))
        for place, name in enumerate(real.names)
    ]
    worst_first = sorted(range(len(all_columns)), key=lambda place: -all_columns[place].distance)
    places = sorted(worst_first[:MOST_COLUMNS])
    d = len(places)
    distances, of_real, of_other = np.zeros((d, d)), np.eye(d), np.eye(d)
    for first in range(d):
        distances[first, first] = all_columns[places[first]].distance
    for first, second in combinations(range(d), 2):
        pair = places[first], places[second]
        mine, theirs = (_shares(table, pair) for table in (real, other))
        for matrix, value in (
            (distances, float(np.abs(mine - theirs).sum() / 2)),
            (of_real, cramers_v(mine)),
            (of_other, cramers_v(theirs)),
        ):
            matrix[first, second] = matrix[second, first] = value
    order = sorted(combinations(range(d), 2), key=lambda pair: -distances[pair])
    return Shapes(
        columns=tuple(all_columns[place] for place in places),
        distances=distances,
        real=of_real,
        synthetic=of_other,
        worst=tuple(
            _pair_table(real, other, labels, (places[first], places[second]), float(distances[first, second]))
            for first, second in order[:WORST]
        ),
        n_columns=len(all_columns),
    )


def cramers_v(shares: Floats) -> float:
    """Return Cramér's V of a table of shares: 0 of columns that have nothing to do with each other, 1 where one tells the other.

    >>> cramers_v(np.array([[0.5, 0.0], [0.0, 0.5]])), cramers_v(np.array([[0.25, 0.25], [0.25, 0.25]]))
    (1.0, 0.0)
    """
    table = shares[shares.sum(axis=1) > 0][:, shares.sum(axis=0) > 0]
    least = min(table.shape) - 1
    if least < 1:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    return float(np.sqrt(((table - expected) ** 2 / expected).sum() / least))


def _shares(table: CodedTable, places: Sequence[int]) -> Floats:
    """Return the share of each combination of categories, an axis for each column."""
    sizes = tuple(table.n_states[place] for place in places)
    flat = np.ravel_multi_index(tuple(table.codes[place] for place in places), sizes)
    shares: Floats = np.bincount(flat, minlength=int(np.prod(sizes))).reshape(sizes) / table.n
    return shares


def _column(name: str, labels: Sequence[str], mine: Floats, theirs: Floats) -> ColumnShape:
    largest = np.sort(mine.argsort(kind="stable")[::-1][:MOST_BARS])
    if more := len(mine) > MOST_BARS:
        labels = [*(labels[int(code)] for code in largest), REST]
    bars = [[*own[largest], own.sum() - own[largest].sum()] if more else own for own in (mine, theirs)]
    return ColumnShape(
        name=name,
        labels=tuple(labels),
        real=tuple(float(share) for share in bars[0]),
        synthetic=tuple(float(share) for share in bars[1]),
        distance=float(np.abs(mine - theirs).sum() / 2),
    )


def _pair_table(
    real: CodedTable, other: CodedTable, labels: Sequence[Sequence[str]], pair: tuple[int, int], distance: float
) -> PairTable:
    """Describe a pair by the categories that differ most, the others together."""
    mine, theirs = (_shares(table, pair) for table in (real, other))
    axes: list[list[Ints]] = []
    words: list[tuple[str, ...]] = []
    for axis, place in enumerate(pair):
        differences = np.abs(mine - theirs).sum(axis=1 - axis)
        codes = np.sort(differences.argsort(kind="stable")[::-1][:_MOST_CELLS])
        rest = np.setdiff1d(np.arange(len(differences)), codes)
        axes.append([*(np.array([code]) for code in codes), *([rest] if len(rest) else [])])
        words.append((*(labels[place][int(code)] for code in codes), *([REST] if len(rest) else [])))
    cells = [
        tuple(tuple(float(own[np.ix_(row, column)].sum()) for column in axes[1]) for row in axes[0])
        for own in (mine, theirs)
    ]
    return PairTable(
        names=(real.names[pair[0]], real.names[pair[1]]),
        rows=words[0],
        columns=words[1],
        real=cells[0],
        synthetic=cells[1],
        distance=distance,
    )
