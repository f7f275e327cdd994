"""Counting columns into the tables of a joint model.

All pairs of columns with S categories in all are one product of n x S indicators with themselves, which for few categories is
quicker than a count of every pair. Columns may be memory maps: little more than a block of them is held at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Floats, give_back
from verticil.shared.numerics.estimation.contingency import family_table
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables

_COUNTING = 40.0  # multiplications in a matrix product that cost as much as one increment of a count
_BLOCK = 2**24  # indicators that are held at once


def from_columns(
    columns: Sequence[AnyCodes],
    units: Sequence[ColumnUnit],
    n_states: Sequence[int],
    *,
    three_way: Sequence[tuple[int, int, int]] = (),
    pairs: Sequence[tuple[int, int]] | None = None,
    alone: Sequence[int] = (),
    parts: int = 4,
    check: Callable[[], None] = lambda: None,
) -> NoisyTables:
    """Count columns as they were released: all pairs, and a few triples.

    Args:
        columns: the released codes of each unit, (n,) or, of sets of w entries, (n, w).
        units: how they were randomized.
        n_states: number of categories of each variable.
        three_way: the units of tables of three, each ascending.
        pairs: the units of tables of two, each ascending; None: all pairs.
        alone: the units of tables of one.
        parts: in how many parts of the people to count; 1: in one.
        check: is called between short steps, and raises to stop.

    Returns:
        Exact counts of the released columns; the number of people is public.

    Raises:
        ValueError: the columns do not fit the units, or there is none.
    """
    n = len(columns[0]) if len(columns) else 0
    widths = [unit.channel.n_states for unit in units]
    if n == 0 or len(columns) != len(units) or any(len(column) != n for column in columns):
        raise ValueError(f"{len(columns)} columns for {len(units)} units, expected one each, of one length above 0")
    shares = min(max(parts, 1), n)
    sets: list[tuple[int, ...]] = [
        *(itertools.combinations(range(len(units)), 2) if pairs is None else pairs),
        *three_way,
        *((unit,) for unit in alone),
    ]
    sets = sets or [(0,)]
    found: dict[tuple[int, ...], list[Floats]] = {chosen: [] for chosen in sets}
    for part in range(shares):
        own = [np.asarray(column)[part::shares] for column in columns]
        for chosen, counts in counted(own, widths, sets, check=check):
            found[chosen].append(counts)
    return NoisyTables(
        n_states=tuple(n_states),
        units=tuple(units),
        tables=tuple(
            MeasuredTable(units=chosen, counts=np.sum(own, axis=0), parts=tuple(own) if shares > 1 else ())
            for chosen, own in found.items()
        ),
        n_records=n,
    )


def counted(
    columns: Sequence[AnyCodes],
    widths: Sequence[int],
    sets: Sequence[tuple[int, ...]],
    *,
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[tuple[int, ...], Floats]]:
    """Count some sets of columns, the pairs among them all at once where that is quicker.

    Args:
        columns: see `from_columns`.
        widths: released entries of each column.
        sets: of columns, each ascending.
        check: is called between short steps, and raises to stop.

    Returns:
        Each set with its table, in their order.

    Raises:
        ValueError: a code is out of range.
    """
    pairs = _by_product(columns, widths, check) if _product_is_quicker(columns, widths) else {}
    for chosen in sets:
        check()
        yield chosen, pairs[chosen] if chosen in pairs else _count(columns, widths, chosen)


def _product_is_quicker(columns: Sequence[AnyCodes], widths: Sequence[int]) -> bool:
    if any(column.ndim > 1 for column in columns):
        return True
    size = sum(widths)
    return size * size < _COUNTING * len(columns) * (len(columns) - 1) / 2


def _by_product(
    columns: Sequence[AnyCodes], widths: Sequence[int], check: Callable[[], None]
) -> dict[tuple[int, ...], Floats]:
    size, n = sum(widths), len(columns[0])
    starts = np.concatenate([[0], np.cumsum(widths)])
    total = np.zeros((size, size))
    rows = max(1, min(_BLOCK // size, 2**24))  # whole numbers are exact in single precision up to 2^24
    for at in range(0, n, rows):
        check()
        indicators = np.zeros((min(rows, n - at), size), np.float32)
        for start, width, column in zip(starts.tolist(), widths, columns, strict=False):
            codes = column[at : at + rows]
            if int(codes.max()) >= width:
                raise ValueError(f"a code out of range, expected below {width}")
            for member in codes.T if codes.ndim > 1 else codes[None]:
                indicators[np.arange(len(codes)), start + member.astype(np.intp)] = 1
            give_back(codes)
        total += indicators.T @ indicators
    per_record = [column.shape[1] if column.ndim > 1 else 1 for column in columns]
    return {
        (a, c): total[starts[a] : starts[a + 1], starts[c] : starts[c + 1]] / (per_record[a] * per_record[c])
        for a, c in itertools.combinations(range(len(columns)), 2)
    }


def _count(columns: Sequence[AnyCodes], widths: Sequence[int], chosen: tuple[int, ...]) -> Floats:
    members = [columns[unit] if columns[unit].ndim > 1 else columns[unit][:, None] for unit in chosen]
    own = [widths[unit] for unit in chosen]
    total = np.zeros(own)
    for places in itertools.product(*(range(member.shape[1]) for member in members)):
        total += family_table([member[:, place] for member, place in zip(members, places, strict=True)], own)
    total /= math.prod(member.shape[1] for member in members)
    return total
