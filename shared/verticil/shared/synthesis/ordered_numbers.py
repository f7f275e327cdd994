"""Numbers inside bins that keep a declared order: uniform in the bins of each record, given that every order holds.

Where two bins do not overlap nothing is to be done. Else the numbers of all variables that orders connect are drawn together and
drawn again for the records that break one: what is left has exactly the conditional distribution. Before, each range is cut to
what the others leave possible, so that of two variables every second draw is kept at least, of k at least about one of k!.

Numbers are compared as they are written: whole ones, and of others multiples of a step that is the same for all that orders
connect, at most a thousandth of the narrowest gap between their edges. Sorting two numbers in place of drawing anew would be
wrong: it keeps the order and changes both distributions where the bins differ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Codes, Floats, Ints
from verticil.shared.numerics.knowledge.rules import Order
from verticil.shared.numerics.knowledge.support import ordered_together
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.synthesis.typed_columns import number_of_writing

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


def broken_order(orders: Sequence[Order], numbers: Mapping[str, Floats]) -> Order | None:
    """Return the first order that written numbers do not keep; NaN stands where there is none. None: all are kept."""
    for order in orders:
        lower, upper = numbers[order.lower], numbers[order.upper]
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
    for order in list(orders) * len(orders):
        lower, upper = order.lower, order.upper
        both = there[lower] & there[upper]
        gap = float(order.strict and variables[lower].integer and variables[upper].integer)
        low[upper] = np.where(both, np.maximum(low[upper], low[lower] + gap), low[upper])
        high[lower] = np.where(both, np.minimum(high[lower], high[upper] - gap), high[lower])
    numbers: dict[str, Floats] = {name: np.empty(len(column)) for name, column in codes.items()}
    rows: Ints = np.arange(len(low[orders[0].lower]))
    for _ in range(_ROUNDS):
        if not rows.size:
            break
        for name, variable in variables.items():
            unit = 1.0 if variable.integer else scale
            start, stop = (np.ceil(end[name][rows] * unit - _HAIR) for end in (low, high))
            draws = generator.integers(start.astype(np.int64), np.maximum(stop, start + 1).astype(np.int64)) / unit
            numbers[name][rows] = np.clip(draws, *(edge[rows] for edge in bounds[name]))
        is_broken = np.zeros(len(rows), dtype=np.bool_)
        for order in orders:
            one, other = numbers[order.lower][rows], numbers[order.upper][rows]
            holds = one < other if order.strict else one <= other
            is_broken |= ~holds & there[order.lower][rows] & there[order.upper][rows]
        for name, variable in variables.items():
            if variable.points:
                in_bin = codes[name][rows] < variable.n_bins
                is_broken |= in_bin & np.isin(number_of_writing(variable, numbers[name][rows]), variable.points)
        rows = rows[is_broken]
    else:
        names = ", ".join(f"'{order.name}'" for order in orders)
        raise ValueError(f"no numbers in the bins of {len(rows)} records keep {names}")
    return {
        name: (numbers[name].astype(np.int64), 0) if variable.integer else (numbers[name], decimals)
        for name, variable in variables.items()
    }


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
