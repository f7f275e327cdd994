"""Drawings of columns of numbers: a histogram of the people's estimate with the records over it, and maps of pairs.

Positions are in the units of a drawing's view box, y downwards. A bar's area is its bin's share; where the widest bin is more
than `_MOST_WIDTHS` times as wide as the narrowest, bins are drawn equally wide, and a bar's height is the share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, cast

import numpy as np

from verticil.shared.numerics.model.schema import Variable
from verticil.shared.release.content import ReleaseContent

WIDTH: Final = 320.0
HEIGHT: Final = 96.0
SIDE: Final = 180.0
"""Of a map of a pair."""
_MOST_WIDTHS: Final = 20.0
_MOST_MAPS: Final = 6
_MARGIN: Final = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramBar:
    """One bin: where it lies, the people's estimate with its interval, and the records; None: there is no estimate."""

    x: float
    width: float
    estimate: float | None
    low: float
    high: float
    records: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A numeric column.

    Attributes:
        bars: its bins; heights are positions from above.
        equal: bins are drawn equally wide.
        first, last: the outer edges, as people write them.
    """

    bars: tuple[HistogramBar, ...]
    equal: bool
    first: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a map: its place, and how dark it is, 0 to 1."""

    x: float
    y: float
    width: float
    height: float
    shade: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMap:
    """How the records of two numeric columns lie, darker where there are more; both axes bin by bin."""

    across: str
    up: str
    cells: tuple[Cell, ...]


def histogram(
    variable: Variable, estimate: Sequence[float], low: Sequence[float], high: Sequence[float], records: Sequence[float]
) -> Histogram | None:
    """Return the drawing of a column's bins; None: it has none.

    Args:
        variable: the column.
        estimate, low, high: estimated share of each category with its interval, (K,); nan: not known.
        records: share of each category among the records, (K,).
    """
    edges = variable.bins
    if edges is None or len(edges) < 3:
        return None
    widths = [after - before for before, after in pairwise(edges)]
    equal = max(widths) > _MOST_WIDTHS * min(widths)
    relative = [1.0 for _ in widths] if equal else [width / (edges[-1] - edges[0]) for width in widths]
    heights = [
        [max(values[k], 0.0) / relative[k] for k in range(len(widths))] for values in (estimate, low, high, records)
    ]
    top = _MARGIN * max([value for row in heights for value in row if not math.isnan(value)] or [1.0]) or 1.0
    total, x = sum(relative), 0.0
    bars: list[HistogramBar] = []
    for k, part in enumerate(relative):
        width = WIDTH * part / total
        people, least, most, drawn = (HEIGHT * (1 - row[k] / top) for row in heights)
        bars.append(
            HistogramBar(
                x=x,
                width=width,
                estimate=None if math.isnan(people) else people,
                low=HEIGHT if math.isnan(least) else least,
                high=HEIGHT if math.isnan(most) else most,
                records=drawn,
            )
        )
        x += width
    first, last = variable.labels[0], variable.labels[len(widths) - 1]
    return Histogram(bars=tuple(bars), equal=equal, first=first, last=last)


def pair_maps(content: ReleaseContent) -> tuple[PairMap, ...]:
    """Return a map of each arrow between two numeric columns, and of each such pair that the study names; the first few."""
    schema = content.study.schema
    names = [
        *((parent, child) for child, parents in enumerate(content.network.dag.parents) for parent in parents),
        *((schema.index(one), schema.index(other)) for one, other in content.study.release.pairs),
    ]
    numeric = [pair for pair in dict.fromkeys(names) if all(_n_bins(schema.variables[place]) > 1 for place in pair)]
    return tuple(_map(content, *pair) for pair in numeric[:_MOST_MAPS])


def _map(content: ReleaseContent, across: int, up: int) -> PairMap:
    one, other = (content.study.schema.variables[place] for place in (across, up))
    columns, rows = _n_bins(one), _n_bins(other)
    table = np.zeros((columns, rows))
    codes, others = (np.asarray(content.codes[place]) for place in (across, up))
    inside = (codes < columns) & (others < rows)
    np.add.at(table, (codes[inside], others[inside]), 1)
    shades = np.sqrt(table / max(float(table.max()), 1.0))  # so that few records are seen, too
    cells = [
        Cell(
            x=SIDE * i / columns,
            y=SIDE * (1 - (j + 1) / rows),
            width=SIDE / columns,
            height=SIDE / rows,
            shade=cast("float", shades[i, j].item()),
        )
        for i in range(columns)
        for j in range(rows)
        if table[i, j]
    ]
    return PairMap(across=one.name, up=other.name, cells=tuple(cells))


def _n_bins(variable: Variable) -> int:
    return 0 if variable.bins is None else len(variable.bins) - 1
