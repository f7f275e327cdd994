"""Bins and points for the numbers and moments of a column: near the quantiles, rounded, none with few rows.

Numbers are on the scale of the column's type: of a date the days since 1970-01-01, of a moment the seconds since then, of a time
of day the seconds since midnight.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Bools, Floats, Ints
from verticil.shared.documents.written_values.dates import DAY

FEWEST_ROWS: Final = 10
"""Of a category, bin or point: what fewer people have could name one of them."""
POINT: Final = 0.05
"""A value that so large a part of the rows has is a point of its own."""
_ZERO_POINT: Final = 0.02
_STANDS_OUT: Final = 4.0  # times as many rows as an even spread gives a value
_FAR: Final = 0.5  # of the range of the others lies between a code and the nearest of them
_GAP: Final = 4.0  # times the largest gap beside
_BESIDE: Final = 20  # numbers
_FAMILY: Final = 4  # codes at one end: refused, unknown, ..
_TAILS: Final = (0.01, 0.025, 0.975, 0.99)
_CODES: Final = re.compile(r"-?(?:9{2,}(?:\.9+)?|8{2,}(?:\.8+)?|7{2,}(?:\.7+)?)|-[1-9]|-(?:9|8|7){1,5}")
_CODE_OF_FAMILY: Final = re.compile("[6-9]|9+[6-9]|8+|7+")
_MONTHS: Final = 60  # days; dates over so many end with months
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Values with a category of their own.

    Attributes:
        values: ascending.
        far: those of them that lie far from all other numbers, as codes for unknown do.
    """

    values: tuple[float, ...] = ()
    far: tuple[float, ...] = ()

    def only(self, allowed: Callable[[Floats], Bools]) -> Points:
        """Return those of the values that are allowed."""
        kept = tuple(np.array(self.values)[allowed(np.array(self.values))].tolist())
        return Points(values=kept, far=tuple(value for value in self.far if value in kept))


def find_points(values: Floats, weights: Ints, *, are_moments: bool = False) -> Points:
    """Return the values that deserve a category of their own.

    Args:
        values: (v,) distinct, ascending.
        weights: (v,) rows of each.
        are_moments: they are dates or moments, whose codes (9999-12-31) are no digits of nines.
    """
    total = int(weights.sum())
    far = _far_values(values, weights, are_moments=are_moments)
    rest = ~np.isin(values, far)
    even = weights[rest].sum() / max(int(rest.sum()), 1)
    least = max(POINT * total, _STANDS_OUT * even)
    spikes = values[rest & (weights >= max(least, FEWEST_ROWS))]
    zero = values[(values == 0) & (weights >= max(_ZERO_POINT * total, FEWEST_ROWS)) & (weights > 2 * even)]
    if are_moments:
        zero = zero[:0]
    return Points(values=tuple(sorted({*far, *spikes.tolist(), *zero.tolist()})), far=tuple(far))


def _far_values(values: Floats, weights: Ints, *, are_moments: bool) -> list[float]:
    low, n_high = (0, 0) if are_moments else _families(values, weights)
    high = len(values) - 1 - n_high
    far = [*values[:low].tolist(), *values[high + 1 :].tolist()]
    while high - low >= 3:
        rest_range = values[high - 1] - values[low]
        if (
            weights[high] >= FEWEST_ROWS
            and (values[high] - values[high - 1] > _FAR * rest_range or _stands_apart(values, weights, low, high, high))
            and (are_moments or _is_code(values[high]))
        ):
            far.append(float(values[high]))
            high -= 1
            continue
        rest_range = values[high] - values[low + 1]
        alone = values[low] < 0 <= values[low + 1]
        is_far = values[low + 1] - values[low] > _FAR * rest_range or (alone and not are_moments)
        is_far = is_far or _stands_apart(values, weights, low, high, low)
        if weights[low] >= FEWEST_ROWS and is_far and (are_moments or values[low] == 0 or _is_code(values[low])):
            far.append(float(values[low]))
            low += 1
            continue
        break
    return sorted(far)


def _families(values: Floats, weights: Ints) -> tuple[int, int]:
    """Return how many of the least and of the largest values are codes of one family, such as -9 and -8, or 97, 98 and 99.

    A code alone hides the gap that another one stands behind.
    """
    ends = [0, 0]
    for place, sign in enumerate((-1, 1)):
        own, rows = (sign * values)[::sign], weights[::sign]
        for n_codes in range(2, min(_FAMILY, len(own) - 4) + 1):
            rest, codes = own[:-n_codes], own[-n_codes:]
            are_codes = all(_CODE_OF_FAMILY.fullmatch(np.format_float_positional(code, trim="-")) for code in codes)
            if not are_codes or rows[-n_codes:].min() < FEWEST_ROWS:
                break
            is_negative = sign < 0 and codes[0] > 0 >= rest[-1]
            if is_negative or codes[0] - rest[-1] > _FAR * (rest[-1] - rest[0]):
                ends[place] = n_codes
                break
    return ends[0], ends[1]


def _stands_apart(values: Floats, weights: Ints, low: int, high: int, place: int) -> bool:
    """Return whether an end of numbers lies behind a gap that those beside have nothing like, with more rows than they have."""
    beside = slice(low + 1, low + 1 + _BESIDE) if place == low else slice(max(high - _BESIDE, low), high)
    own = values[low + 1] - values[low] if place == low else values[high] - values[high - 1]
    gaps = np.diff(values[beside])
    return len(gaps) > 2 and bool(own >= _GAP * gaps.max() and weights[place] >= 2 * weights[beside].mean())


def _is_code(value: float) -> bool:
    return _CODES.fullmatch(str(int(value)) if float(value).is_integer() else repr(float(value))) is not None


def without_point_bins(edges: Sequence[float], points: Sequence[float], resolution: float) -> list[float]:
    """Return the edges without those between which there is nothing but points."""
    kept = [edges[0]] if edges else []
    for edge in edges[1:]:
        inside = sum(kept[-1] <= point < edge for point in points)
        if round((edge - kept[-1]) / resolution) > inside:
            kept.append(edge)
    return [*kept[:-1], edges[-1]] if len(kept) > 1 else list(edges[:1])


def number_edges(values: Floats, weights: Ints, *, resolution: float, n_bins: int) -> list[float]:
    """Return rounded edges near the quantiles of numbers; fewer than three: no two bins have `FEWEST_ROWS`.

    Args:
        values, weights: (v,) distinct, ascending; rows of each.
        resolution: the least step between two numbers, 1 of whole ones.
        n_bins: about so many; the tails of a skewed column are cut finer.
    """
    low, high = float(values[0]), float(values[-1])
    if not low < high:
        return []
    whole = resolution == 1.0
    keeps_high = ends_a_scale(values, weights)
    bottom, top = outer_ends(low, high, whole=whole, resolution=resolution, keeps_high=keeps_high)
    cuts = _cuts(values, weights, n_bins)
    edges = list[float]()
    around = [low, *cuts, high]
    for place, cut in enumerate(cuts, 1):
        gap = min(cut - around[place - 1], around[place + 1] - cut)
        edges.append(_rounded(cut, max(gap, resolution), resolution))
    inner = [edge for edge in sorted(set(edges)) if bottom < edge < top]
    return merge_small_bins([bottom, *inner, top], values, weights)


def _cuts(values: Floats, weights: Ints, n_bins: int) -> list[float]:
    """Return distinct quantiles, the tails' only where they lie far out."""
    below = np.cumsum(weights)
    total = int(below[-1])

    def quantile(part: float) -> float:
        return float(values[min(int(np.searchsorted(below, total * part)), len(values) - 1)])

    cuts = [quantile(part / n_bins) for part in range(1, n_bins)]
    typical = float(np.median(np.diff([float(values[0]), *cuts, float(values[-1])])))
    for part in _TAILS:
        outer = float(values[0] if part < 0.5 else values[-1])
        cut = quantile(part)
        if total * min(part, 1 - part) >= FEWEST_ROWS and abs(outer - cut) > 2 * typical:
            cuts.append(cut)
    return sorted(set(cuts))


def _rounded(value: float, gap: float, resolution: float) -> float:
    """Round to the largest of .., 0.5, 1, 2, 5, .. times the resolution that is at most a quarter of the gap."""
    step = max(_nice(gap / 4), resolution)
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) + 1
    return round(round(value / step) * step, digits) + 0.0


def _nice(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return power * max(factor for factor in (1, 2, 5) if factor * power <= size * (1 + 1e-9))


def outer_ends(
    low: float, high: float, *, whole: bool, resolution: float = 0.0, keeps_high: bool = False
) -> tuple[float, float]:
    """Round the ends of numbers outward to two significant digits of their range.

    Args:
        low, high: the least and the largest number, which differ.
        whole: the numbers are whole; the upper end is then above the largest, because a bin does not hold its upper edge.
        resolution: the least step between two numbers, of which the ends are multiples; 0: any.
        keeps_high: the upper end lies one step above the largest number, because a scale ends there.

    >>> outer_ends(309.04, 310.98, whole=False), outer_ends(1234.0, 98765.0, whole=True), outer_ends(18, 90, whole=True)
    ((309.0, 311.0), (1000.0, 99000.0), (18.0, 91.0))

    >>> outer_ends(0.0, 1.0, whole=False, resolution=0.01, keeps_high=True)
    (0.0, 1.01)
    """
    one_above = Decimal(repr(high)) + Decimal(repr(1.0 if whole else resolution))
    step = max(Decimal(1).scaleb(math.floor(math.log10(high - low)) - 1), Decimal(repr(resolution)))
    if whole:
        step, high = max(step, Decimal(1)), high + 1
    steps = (
        (Decimal(repr(end)) / step).to_integral_value(rounding)
        for end, rounding in ((low, ROUND_FLOOR), (high, ROUND_CEILING))
    )
    bottom, top = (number * step for number in steps)
    top += step if float(top) <= high and not whole else 0
    return float(bottom) + 0.0, float(one_above if keeps_high else top) + 0.0


def ends_a_scale(values: Floats, weights: Ints) -> bool:
    """Return whether the largest number is where a scale ends: a power of ten, or a multiple of that of the range that several
    people have.

    >>> values = np.array([[0.0, 1.0], [3.0, 100.0], [1.02, 4.0], [0.0, 87.0]])
    >>> [ends_a_scale(each, np.array([1, 10])) for each in values], ends_a_scale(values[2], np.array([1, 9]))
    ([True, True, True, False], False)
    """
    low, high = (Decimal(repr(float(end))) for end in (values[0], values[-1]))
    is_power = high > 0 and high == Decimal(1).scaleb(high.adjusted())
    is_multiple = high % Decimal(1).scaleb((high - low).adjusted()) == 0
    return is_multiple and (is_power or bool(weights[-1] >= FEWEST_ROWS))


def merge_small_bins(edges: Sequence[float], values: Floats, weights: Ints) -> list[float]:
    """Return the edges without those that would leave a bin with fewer than `FEWEST_ROWS` rows; one edge: all have fewer."""
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    remaining, n_rows = [edges[0]], 0
    for edge, rows in zip(edges[1:], np.bincount(places, weights=weights, minlength=len(edges) - 1), strict=True):
        n_rows += int(rows)
        if n_rows >= FEWEST_ROWS:
            remaining.append(edge)
            n_rows = 0
    return [*remaining[:-1], edges[-1]]  # what is left at the end joins the last bin


def rounded_bounds(edges: Sequence[float], kind: str, *, keeps_high: bool = False) -> tuple[float, float]:
    """Return bounds around the edges of bins that tell little of the table: of numbers multiples of a power of ten, the largest
    within their range; of dates and moments whole years, of times of day midnights.

    Args:
        edges: of the bins.
        kind: of the column.
        keeps_high: the last edge stays, because a scale ends there.

    >>> rounded_bounds([17.0, 40.0, 91.0], "integer"), rounded_bounds([0.5, 7.2], "number"), rounded_bounds([3e4, 7e4], "time")
    ((10.0, 100.0), (0.0, 8.0), (0.0, 86400.0))

    >>> rounded_bounds([3.0, 50.0, 101.0], "integer", keeps_high=True)
    (0.0, 101.0)
    """
    low, high = float(edges[0]), float(edges[-1])
    if kind == "time":
        return 0.0, float(DAY)
    if kind in {"date", "datetime"}:
        scale = 1.0 if kind == "date" else float(DAY)
        last = dt.date.fromordinal(min(math.ceil(high / scale) + _EPOCH, dt.date.max.toordinal()))
        end = dt.date(min(last.year + 1, dt.date.max.year), 1, 1).toordinal() - _EPOCH
        return _first_of(low / scale, years=1) * scale, max(end * scale, high)
    exponent = Decimal(high - low).adjusted()
    unit = Decimal(1).scaleb(exponent)
    first, last_multiple = Decimal(low) // unit, -(-Decimal(high) // unit)
    first -= first * unit > Decimal(low)
    if keeps_high:
        return float(first * unit), high
    return float(first * unit), float((last_multiple + (last_multiple * unit < Decimal(high))) * unit)


# ---- dates and moments


def date_edges(days: Floats, weights: Ints, *, n_bins: int) -> list[float]:
    """Return edges of dates, in days since 1970-01-01: first days of years, months or weeks, or days, by how many there are."""
    low, high = float(days[0]), float(days[-1])
    if not low < high:
        return []
    cuts = _cuts(days, weights, n_bins)
    gap = float(np.median(np.diff([low, *cuts, high])))
    floor = _floor_of(gap)
    outer = _floor_of(max(gap, float(_MONTHS))) if high - low >= _MONTHS else floor
    bottom, top = outer(low), min(_above(outer, high), float(dt.date.max.toordinal() - _EPOCH))
    inner = sorted({floor(cut) for cut in cuts})
    return merge_small_bins([bottom, *(edge for edge in inner if bottom < edge < top), top], days, weights)


def _floor_of(gap: float) -> Callable[[float], float]:
    """Return what rounds a day down to the largest usual unit of at most half a gap of days."""
    if gap >= 2 * 3653:
        return lambda day: _first_of(day, years=10)
    if gap >= 2 * 366:
        return lambda day: _first_of(day, years=1)
    if gap >= _MONTHS:
        return lambda day: _first_of(day, years=0)
    return math.floor


def _first_of(day: float, *, years: int) -> float:
    date = dt.date.fromordinal(math.floor(day) + _EPOCH)
    if not years:
        return float(dt.date(date.year, date.month, 1).toordinal() - _EPOCH)
    return float(dt.date(max(date.year // years * years, 1), 1, 1).toordinal() - _EPOCH)


def _above(floor: Callable[[float], float], high: float) -> float:
    """Return the beginning of the unit behind the one that holds a day; the day behind it where the calendar ends."""
    start, day = floor(high), high
    last = dt.date.max.toordinal() - _EPOCH
    while floor(day) == start:
        day += 1
        if day >= last:
            return high + 1
    return float(floor(day))


_UNITS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 6 * 3600.0)


def moment_edges(seconds: Floats, weights: Ints, *, n_bins: int) -> list[float]:
    """Return edges of moments or times of day, in seconds: of dates where they span months, else of the largest usual unit."""
    low, high = float(seconds[0]), float(seconds[-1])
    if not low < high:
        return []
    cuts = _cuts(seconds, weights, n_bins)
    gap = float(np.median(np.diff([low, *cuts, high])))
    if gap >= 4 * DAY:
        days, place = np.unique(np.floor(seconds / DAY), return_inverse=True)
        edges = date_edges(days, np.bincount(place, weights=weights).astype(np.int64), n_bins=n_bins)
        return [edge * DAY for edge in edges]
    unit = max((size for size in _UNITS if size <= max(gap / 2, 1.0)), default=1.0)
    inner = sorted({round(cut / unit) * unit for cut in cuts})
    bottom, top = math.floor(low / unit) * unit, (math.floor(high / unit) + 1) * unit
    return merge_small_bins([bottom, *(edge for edge in inner if bottom < edge < top), top], seconds, weights)


def means(edges: Sequence[float], values: Floats, weights: NDArray[np.int64], *, whole: bool, few: int) -> list[float]:
    """Return the mean of the numbers in each bin, to two digits of its distance from the lower edge; of few rows the middle."""
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    result = list[float]()
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        last = high - 1 if whole else high
        here = places == place
        mean = (low + last) / 2
        if (rows := int(weights[here].sum())) >= few:
            distance = float((values[here] * weights[here]).sum()) / rows - low
            mean = low + float(f"{distance:.2g}")
        middle = (low + last) / 2
        result.append(round(mean, 12) if low <= mean <= last and mean < high else middle)
    return result
