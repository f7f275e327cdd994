"""Numbers inside bins that keep a declared order: uniform in the bins of each record, given that every order holds.

Where two bins do not overlap nothing is to be done. Else the numbers of all variables that orders connect are drawn together and
drawn again for the records that break one: what is left has exactly the conditional distribution. Before, each range is cut to
what the others leave possible, so that of two variables every second draw is kept at least, of k at least about one of k!.

Numbers are compared as they are written: whole ones, and of others multiples of a step that is the same for all that orders
connect, at most a thousandth of the narrowest gap between their edges. Sorting two numbers in place of drawing anew would be
wrong: it keeps the order and changes both distributions where the bins differ.

Of numbers that are added up (the times between a person's rows) draws of all of them may seldom keep an order. What
`_ROUNDS_OF_SUMS` draws leave is drawn one variable after the other (`_walk`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, Floats, Ints
from verticil.shared.numerics.knowledge.rules import Order
from verticil.shared.numerics.knowledge.support import ordered_together
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.synthesis.typed_columns import number_of_writing

_ROUNDS_OF_SUMS: Final = 200
_SWEEPS: Final = 20
_MOST_SWEEPS: Final = 200
_ROUNDS: Final = 50_000
"""Of five variables in one bin a record fails so often in a row with a chance below e^-400."""
_DIGITS: Final = 15  # of a number that float64 holds exactly
_HAIR: Final = 1e-6  # of a step: an edge that is a multiple of it may lie just above it once multiplied

Numbers = NDArray[np.int64] | Floats


def ordered_numbers(
    schema: Schema, orders: Sequence[Order], codes: Sequence[Codes], generator: np.random.Generator
) -> dict[str, tuple[Numbers, int]]:
    """Draw the numbers of all variables that orders name, and return them with their decimals.

    Args:
        schema: the variables.
        orders: checked.
        codes: (n,) of each variable; every record meets the orders' rules about bins.
        generator: source of all randomness; advanced.

    Returns:
        Variable -> (n,) numbers, one of the last bin where a record has none; whole ones where the variable says so.

    Raises:
        ValueError: no numbers were found that keep the orders.
    """
    numbers: dict[str, tuple[Numbers, int]] = {}
    for names in ordered_together(orders):
        variables = {name: schema[schema.index(name)] for name in names}
        columns = {name: codes[schema.index(name)] for name in names}
        own = [order for order in orders if order.lower in variables]
        numbers |= _together(variables, columns, own, generator)
    return numbers


def broken_order(orders: Sequence[Order], numbers: Mapping[str, Floats], schema: Schema) -> Order | None:
    """Return the first order that written numbers do not keep; NaN stands where there is none. None: all are kept.

    A sum is compared as its row is written: what is added up is the first row's value and the times to later ones.
    """
    for order in orders:
        lower, upper = numbers[order.lower], numbers[order.upper]
        if order.plus:
            total = np.sum([lower, *(numbers[name] for name in order.plus)], axis=0)
            is_there = ~np.isnan(total)
            lower = np.full(len(total), np.nan)
            lower[is_there] = number_of_writing(schema[schema.index(order.lower)], total[is_there])
        with np.errstate(invalid="ignore"):
            if ((lower >= upper) if order.strict else (lower > upper)).any():
                return order
    return None


def _together(
    variables: Mapping[str, Variable],
    codes: Mapping[str, Codes],
    orders: Sequence[Order],
    generator: np.random.Generator,
) -> dict[str, tuple[Numbers, int]]:
    edges = {name: _edges(variable) for name, variable in variables.items()}
    decimals = 0 if all(variable.integer for variable in variables.values()) else _decimals(list(edges.values()))
    scale = 10.0**decimals
    low, high, there = dict[str, Floats](), dict[str, Floats](), dict[str, NDArray[np.bool_]]()
    for name, variable in variables.items():
        lows, highs = np.append(edges[name][:-1], variable.points), np.append(edges[name][1:], variable.points)
        places = np.minimum(codes[name], variable.n_valued - 1).astype(np.intp)
        low[name], high[name] = lows[places], highs[places]
        there[name] = codes[name] < variable.n_valued
    bounds = {
        name: (low[name], np.where(low[name] == high[name], high[name], np.nextafter(high[name], -np.inf)))
        for name in variables
    }
    stated = [_Stated.of(order, variables, there) for order in orders]
    n_passes = len(orders) if not any(order.plus for order in orders) else sum(not order.plus for order in orders) + 1
    for each in stated * n_passes:
        least = sum((low[name] for name in each.added), np.zeros(len(each.there))) + each.gap
        low[each.upper] = np.where(each.there, np.maximum(low[each.upper], least), low[each.upper])
        for name in each.added:
            most = high[each.upper] - (least - low[name])
            high[name] = np.where(each.there, np.minimum(high[name], most), high[name])
    numbers: dict[str, Floats] = {name: np.empty(len(column)) for name, column in codes.items()}
    rows: Ints = np.arange(len(low[orders[0].lower]))
    has_sums = any(order.plus for order in orders)
    for _ in range(_ROUNDS_OF_SUMS if has_sums else _ROUNDS):
        if not rows.size:
            break
        for name, variable in variables.items():
            unit = 1.0 if variable.integer else scale
            start, stop = (np.ceil(end[name][rows] * unit - _HAIR) for end in (low, high))
            draws = generator.integers(start.astype(np.int64), np.maximum(stop, start + 1).astype(np.int64)) / unit
            numbers[name][rows] = np.clip(draws, *(edge[rows] for edge in bounds[name]))
        is_broken = np.zeros(len(rows), dtype=np.bool_)
        for each in stated:
            one, other = sum(numbers[name][rows] for name in each.added), numbers[each.upper][rows]
            hair = _HAIR / scale if len(each.added) > 1 else 0.0
            holds = one < other if each.strict else one <= other + hair
            is_broken |= ~holds & each.there[rows]
        rows = rows[is_broken | _is_point(variables, codes, numbers, rows)]
    else:
        if has_sums:
            rows = _walk(
                variables, codes, stated, numbers, rows=rows, ranges=(low, high), generator=generator, scale=scale
            )
        if rows.size:
            names = ", ".join(f"'{order.name}'" for order in orders)
            raise ValueError(f"no numbers in the bins of {len(rows)} records keep {names}")
    return {
        name: (numbers[name].astype(np.int64), 0) if variable.integer else (numbers[name], decimals)
        for name, variable in variables.items()
    }


@dataclass(frozen=True, slots=True)
class _Stated:
    """An order of some records.

    Attributes:
        added: the variables whose numbers are added up.
        upper: the one that they are compared with.
        strict: whether the sum is less.
        gap: the least difference of whole numbers.
        there: (n,), the records that have all numbers.
    """

    added: tuple[str, ...]
    upper: str
    strict: bool
    gap: float
    there: NDArray[np.bool_]

    @classmethod
    def of(cls, order: Order, variables: Mapping[str, Variable], there: Mapping[str, NDArray[np.bool_]]) -> _Stated:
        return cls(
            added=(order.lower, *order.plus),
            upper=order.upper,
            strict=order.strict,
            gap=float(order.strict and all(variables[name].integer for name in order.variables)),
            there=np.logical_and.reduce([there[name] for name in order.variables]),
        )


def _is_point(
    variables: Mapping[str, Variable], codes: Mapping[str, Codes], numbers: Mapping[str, Floats], rows: Ints
) -> NDArray[np.bool_]:
    """Return which of some records have a number inside a bin that is a point."""
    is_point = np.zeros(len(rows), np.bool_)
    for name, variable in variables.items():
        if variable.points:
            in_bin = codes[name][rows] < variable.n_bins
            is_point |= in_bin & np.isin(number_of_writing(variable, numbers[name][rows]), variable.points)
    return is_point


def _walk(
    variables: Mapping[str, Variable],
    codes: Mapping[str, Codes],
    stated: Sequence[_Stated],
    numbers: dict[str, Floats],
    *,
    rows: Ints,
    ranges: tuple[Mapping[str, Floats], Mapping[str, Floats]],
    generator: np.random.Generator,
    scale: float,
) -> Ints:
    """Draw the numbers of records that many draws have not given numbers to: one variable after the other, given the others.

    From the least numbers, and the largest of what is only compared with, which keep every order; after some rounds (Gibbs
    sampling; Geman & Geman, 1984) they have nearly the distribution that drawing all anew would give, and always keep the orders.

    Returns:
        The records without such numbers: none, but where a point is in the way.
    """
    low, high = ({name: ends[name][rows] for name in variables} for ends in ranges)
    added = {name for each in stated for name in each.added}
    units = {name: 1.0 if variable.integer else scale for name, variable in variables.items()}
    own: dict[str, Ints] = {}
    first: dict[str, Ints] = {}
    last: dict[str, Ints] = {}
    for name, unit in units.items():
        first[name] = np.ceil(low[name] * unit - _HAIR).astype(np.int64)
        last[name] = np.maximum(np.ceil(high[name] * unit - _HAIR).astype(np.int64) - 1, first[name])
        own[name] = first[name].copy() if name in added else last[name].copy()
    step = max(units.values())
    size = {name: round(step / unit) for name, unit in units.items()}  # of a unit, in the finest one
    bad = np.ones(len(rows), np.bool_)
    for number in range(_MOST_SWEEPS):
        for name in variables:
            least, most = first[name] * size[name], last[name] * size[name]
            for each in stated:
                there, less = each.there[rows], int(each.gap * step) if each.gap else int(each.strict)
                total = sum((own[part] * size[part] for part in each.added), np.zeros(len(rows), np.int64))
                if name == each.upper:
                    least = np.where(there, np.maximum(least, total + less), least)
                if name in each.added:
                    rest = total - own[name] * size[name]
                    most = np.where(there, np.minimum(most, own[each.upper] * size[each.upper] - less - rest), most)
            start, stop = -(-least // size[name]), most // size[name]
            own[name] = generator.integers(start, np.maximum(stop, start) + 1)
        for name, unit in units.items():
            numbers[name][rows] = own[name] / unit
        bad = _is_point(variables, codes, numbers, rows)
        if number >= _SWEEPS and not bad.any():
            break
    return rows[bad]


def _edges(variable: Variable) -> Floats:
    edges = np.array(variable.bins or (), dtype=np.float64)
    return np.ceil(edges) if variable.integer else edges


def _decimals(edges: Sequence[Floats]) -> int:
    """Decimals of a step that all edges are multiples of (up to twelve), and of which each gap between them has a thousand."""
    all_edges = np.unique(np.concatenate(edges))
    places = next((d for d in range(12) if np.array_equal(np.round(all_edges, d), all_edges)), 12)
    gap = min(float(other - one) for one, other in itertools.pairwise(all_edges.tolist()))
    room = _DIGITS - math.ceil(math.log10(max(1.0, float(np.abs(all_edges).max()))))
    return max(0, min(max(places, math.ceil(3 - math.log10(gap))), room))
