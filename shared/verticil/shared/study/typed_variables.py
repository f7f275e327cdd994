"""Typed columns of a study: what goes with each type, how bins and points of dates are read, and their labels.

A type says how records write the column, and gives values that stand for themselves (points) a category of their own. A study
without types has the digests and the records of version 1.0.0.
"""

from __future__ import annotations

import itertools
import math
import re
import zoneinfo
from collections.abc import Iterator, Sequence
from typing import Final, cast

from verticil.shared.documents.toml_table import Table
from verticil.shared.documents.written_values.dates import DAY, ISO_DATE, DatePattern
from verticil.shared.documents.written_values.on_scale import MOMENTS_IN_WORDS, moment_of, value_text
from verticil.shared.documents.written_values.reading import KINDS, MOMENTS, NUMBERS
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.endings import ENDED_KINDS, Endings, problems_of_endings

MOST_DECIMALS: Final = 12
PRIVATE: Final = "private"
"""Bins of a study that are measured with noise."""
EVEN_BINS: Final = 16
_LONGEST_UNITS: Final = (1, 60, 3600, DAY, 31 * DAY, 366 * DAY)  # seconds
_GROUP_BY: Final = re.compile(r"prefix:([1-9][0-9]?)")
_TRUTHS: Final = {"true", "false"}
USUAL_FORMATS: Final = {"date": ISO_DATE, "datetime": "YYYY-MM-DDThh:mm:ss", "time": "hh:mm:ss"}
"""How records write moments of a column that names no format."""
_KEYS: Final = {
    "unit": NUMBERS,
    "decimals": frozenset({"number"}),
    "format": MOMENTS,
    "timezone": frozenset({"datetime"}),
    "endings": ENDED_KINDS,
    "bins": NUMBERS | MOMENTS,
    "points": NUMBERS | MOMENTS,
    "representatives": NUMBERS,
    "means": NUMBERS,
    "groups": frozenset({"category", "ordered"}),
    "group_by": frozenset({"category", "ordered"}),
    "categories": frozenset({"category", "ordered", "boolean"}),
    "bounds": NUMBERS | MOMENTS,
    "ordered": NUMBERS | MOMENTS | {"ordered"},
}
"""Which keys go with which types."""
TYPED_KEYS: Final = ("type", "points", "unit", "decimals", "format", "timezone", "endings", "groups", "group_by")


def has_values(kind: str | None) -> bool:
    """Return whether columns of a type hold values on a scale: numbers, dates, moments, times of day."""
    return kind in NUMBERS or kind in MOMENTS


def check_keys(table: Table, kind: str, name: str) -> None:
    """Refuse keys that do not go with a type.

    Raises:
        Misuse: the table's code.
    """
    for key, kinds in _KEYS.items():
        if table.has(key) and kind not in kinds:
            table.fail(key, f"'{name}' has the type '{kind}'; this key goes with {', '.join(sorted(kinds))}")
    if table.has("integer"):
        table.fail("integer", f"'{name}' has a type, which says it", hint='write type = "integer" and remove this key')


def read_values(table: Table, key: str, kind: str) -> tuple[float, ...]:
    """Read bins or points on the scale of a type: numbers; TOML dates, date-times or times; times also as "hh:mm".

    Raises:
        Misuse: the table's code, one has another form.
    """
    if kind in NUMBERS:
        return tuple(number + 0.0 for number in table.numbers(key))
    raw = table.raw(key)
    if not isinstance(raw, list):
        table.fail(key, f"expected a list of {MOMENTS_IN_WORDS[kind]}")
    return tuple(moment_of(table, key, kind, item) for item in cast("list[object]", raw))


def read_bounds(table: Table, kind: str | None) -> tuple[float, float] | None:
    """Read ``bins = "private"`` with its ``bounds = [LOWEST, HIGHEST]``; None: the bins are declared, or there are none.

    Raises:
        Misuse: the table's code, the two do not stand together, or are no bounds.
    """
    if table.raw("bins") != PRIVATE:
        if table.has("bounds"):
            table.fail("bounds", f'goes with bins = "{PRIVATE}"', hint="remove it, or have the bins measured")
        return None
    if not has_values(kind):
        table.fail("bins", f"'{PRIVATE}' goes with a type whose values are on a scale", hint='add type = "number"')
    for key in ("representatives", "means"):
        if table.has(key):
            table.fail(key, "goes with declared bins, and these are measured")
    if not table.has("bounds"):
        table.fail(
            "bounds",
            f'missing beside bins = "{PRIVATE}"',
            hint="state the lowest and the highest value that can be, by public knowledge",
        )
    values = read_values(table, "bounds", str(kind))
    if len(values) != 2 or not (math.isfinite(values[1] - values[0]) and values[0] < values[1]):
        words = " to ".join(value_text(kind, value) if math.isfinite(value) else str(value) for value in values[:3])
        table.fail(
            "bounds",
            f"expected two finite values, the lowest first, got {words or 'none'}",
            hint="state the lowest and the highest value that can be, by public knowledge",
        )
    return values[0] + 0.0, values[1] + 0.0


def value_step(variable: Variable) -> float:
    """Return the step between the values of a variable on a scale."""
    return 1.0 if variable.integer else step_of(variable.decimals)


def step_of(decimals: int | None) -> float:
    """Return the step between numbers of so many decimals; None: whole ones."""
    return 10.0 ** -(decimals or 0)


def next_written(value: float, kind: str | None, written: str) -> float:
    """Return a moment, or the next one that a format can write: the next minute, hour, day, month or year."""
    pattern, scale = DatePattern.of(written), float(DAY) if kind == "date" else 1.0

    def floor(seconds: float) -> float:
        if kind == "time" and seconds >= DAY:
            return float(DAY)
        read_back = pattern.read(pattern.write(seconds))
        return seconds if read_back is None else read_back

    before = floor(value * scale)
    if before == value * scale:
        return value
    return next(after for unit in _LONGEST_UNITS if (after := floor(before + unit)) > before) / scale


def even_bins(
    bounds: tuple[float, float], step: float, kind: str | None = None, written: str | None = None
) -> tuple[float, ...]:
    """Return bins of equal width between bounds, in whole steps that a format can write: they stand for bins until these are
    measured.
    """
    low, high = bounds
    n = max(min(EVEN_BINS, math.floor((high - low) / step)), 1)
    edges = [low + round((high - low) * place / n / step) * step for place in range(n)]
    if written is not None:
        edges = [low, *(edge for edge in (next_written(edge, kind, written) for edge in edges[1:]) if edge < high)]
    return tuple(dict.fromkeys(round(edge, MOST_DECIMALS) + 0.0 for edge in (*edges, high)))


def read_groups(table: Table) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read ``groups = { CATEGORY = ["VALUE", ..] }``.

    Raises:
        Misuse: the table's code, it has another form.
    """
    if not table.has("groups"):
        return ()
    groups = table.table("groups")
    return tuple((name, groups.strings(name)) for name in groups.names())


def read_endings(table: Table) -> Endings:
    """Read ``endings = { "DIGITS" = SHARE, .. }``.

    Raises:
        Misuse: the table's code, it has another form.
    """
    if not table.has("endings"):
        return ()
    endings = table.table("endings")
    return tuple((text, float(endings.value(float, text))) for text in endings.names())


# ---- labels


def bin_labels(edges: Sequence[float], kind: str | None = None) -> tuple[str, ...]:
    """Labels of bins, the values as short as they can be.

    >>> bin_labels([17, 25.5, 30]), bin_labels([0, 31], "date")
    (('[17,25.5)', '[25.5,30)'), ('[1970-01-01,1970-02-01)',))
    """
    return tuple(f"[{value_text(kind, low)},{value_text(kind, high)})" for low, high in itertools.pairwise(edges))


def value_labels(variable: Variable) -> tuple[str, ...]:
    """Labels of a variable's bins and points."""
    points = tuple(value_text(variable.kind, point) for point in variable.points)
    return (*bin_labels(variable.bins or (), variable.kind), *points)


# ---- what goes together


def problem_of(variable: Variable) -> str:
    """Say what of a variable does not go with its type; empty: all does."""
    kind = variable.kind
    if kind not in KINDS:
        return f"got the type '{str(kind)[:40]}', expected one of {', '.join(KINDS)}"
    present = {
        "unit": variable.unit is not None,
        "decimals": variable.decimals is not None,
        "format": variable.format is not None,
        "timezone": variable.timezone is not None,
        "bins": variable.bins is not None,
        "points": bool(variable.points),
        "representatives": variable.representatives is not None,
        "means": variable.means is not None,
        "endings": bool(variable.endings),
        "groups": bool(variable.groups),
        "group_by": variable.group_by is not None,
    }
    for key, is_there in present.items():
        if is_there and kind not in _KEYS[key]:
            return f"{key} goes with the types {', '.join(sorted(_KEYS[key]))}, and its type is '{kind}'"
    problems = _problems_of_values(variable) if has_values(kind) else _problems_of_categories(variable)
    return next(problems, "")


def _problems_of_categories(variable: Variable) -> Iterator[str]:
    if variable.kind == "boolean":
        words = {variable.other, None if variable.missing is None else variable.missing.category}
        truths = [label for label in variable.labels if label not in words]
        if len(truths) != 2 or {label.casefold() for label in truths} != _TRUTHS:
            yield "the categories of a boolean are true and false (in any letters), and one for missing values"
    if variable.groups and variable.group_by is not None:
        yield "groups and group_by stand side by side, expected one of them"
    if variable.group_by is not None and _GROUP_BY.fullmatch(variable.group_by) is None:
        yield f"group_by is '{variable.group_by[:40]}', expected prefix:N, the number of letters that make the category"
    values = [value for _, values in variable.groups for value in values]
    if len(set(values)) < len(values):
        yield "a value stands in two groups, expected each in one"
    for name, _ in variable.groups:
        if name not in variable.labels:
            yield f"the group '{name[:40]}' is not among the categories"


def _problems_of_values(variable: Variable) -> Iterator[str]:
    kind, bins, points = str(variable.kind), variable.bins, variable.points
    if variable.integer != (kind != "number"):
        yield "integer does not say what the type says"
    if bins is None and len(points) < 2:
        yield "it has neither bins nor two points, expected bins, points, or both"
    if any(not math.isfinite(point) for point in points) or any(
        one >= other for one, other in itertools.pairwise(points)
    ):
        yield "points are not finite and ascending"
    if kind == "time" and not all(0 <= value <= DAY for value in (*(bins or ()), *points)):
        yield "a time of day is not between 00:00 and 24:00"
    missing = None if variable.missing is None else variable.missing.category
    if variable.other is not None and missing is not None and variable.other != missing:
        yield "other and missing have two categories, expected one: records without a value are empty"
    yield from _problems_of_writing(variable)
    if variable.endings:
        if variable.representatives is not None or bins is None:
            yield "endings go with bins without representatives, whose records have one number each"
        yield from problems_of_endings(variable.endings, kind, written_format(variable) if kind in MOMENTS else "")
    for low, high in itertools.pairwise(bins or ()):
        step = value_step(variable)
        room = round((high - low) / step)
        if room < 1 or room <= sum(low <= point < high for point in points):
            yield f"the bin [{value_text(kind, low)},{value_text(kind, high)}) holds no value besides its points"


def _problems_of_writing(variable: Variable) -> Iterator[str]:
    """Yield what of a column's edges, points and format records cannot write."""
    kind, values = str(variable.kind), (*(variable.bins or ()), *variable.points)
    if kind == "number":
        decimals = variable.decimals
        if decimals is None or not 0 <= decimals <= MOST_DECIMALS:
            yield f"decimals is {decimals}, expected 0 to {MOST_DECIMALS}: how many decimals records have"
            return
        for value in values:
            # The machine has not all large numbers of many decimals; a multiple of a step is near to one that it has.
            room = max(1e-9 * max(1.0, abs(value)) * 10**-decimals, 4 * math.ulp(value))
            if abs(round(value, decimals) - value) > room:
                yield f"{value_text(kind, value)} has more than {decimals} decimals"
    elif kind == "integer":
        for point in variable.points:
            if not point.is_integer():
                yield f"the point {value_text(kind, point)} is no whole number"
    else:
        yield from _problems_of_format(variable, values)


def _problems_of_format(variable: Variable, values: Sequence[float]) -> Iterator[str]:
    kind = str(variable.kind)
    if variable.timezone is not None and variable.timezone not in zoneinfo.available_timezones():
        yield f"the time zone '{variable.timezone[:40]}' is not known, expected a name such as Europe/Berlin"
    try:
        pattern = DatePattern.of(written_format(variable))
    except ValueError as error:
        yield f"format: {error}"
        return
    if variable.timezone is not None and not pattern.has_zone:
        yield "the format does not say the zone (Z), and the column has a time zone"
    if not (pattern.has_time if kind == "time" else pattern.has_date):
        yield f"the format does not say {'the time of day' if kind == 'time' else 'the day'}"
    scale = float(DAY) if kind == "date" else 1.0
    for value in values:
        if kind == "time" and value == DAY:
            continue
        # No record has the upper end of the last bin: the moment before it can be the last one that two digits of a year say.
        moments = (
            [value * scale, (value - 1) * scale] if variable.bins and value == variable.bins[-1] else [value * scale]
        )
        problems = [_problem_of_moment(pattern, kind, moment, scale) for moment in moments]
        if all(problems):
            yield problems[0]


def _problem_of_moment(pattern: DatePattern, kind: str, moment: float, scale: float) -> str:
    try:
        text = pattern.write(moment)
    except ValueError as error:
        return str(error)
    if pattern.read(text) != moment:
        return f"the format cannot write {value_text(kind, moment / scale)}: it reads it back as another moment"
    return ""


def written_format(variable: Variable) -> str:
    """Return the pattern that records of a variable are written in; with a time zone moments are written in UTC, and say so."""
    return variable.format or USUAL_FORMATS[str(variable.kind)] + ("Z" if variable.timezone else "")
