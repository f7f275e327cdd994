"""Typed columns of records: the values that a frame and Parquet hold, their texts in a CSV file, and the codes behind both.

A record without a value is null, and an empty field in CSV. A number is written with the decimals of its column, a moment in its
format, a truth as the study spells it. Numbers inside bins are never equal to a point, so that a written value has one code.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import AnyCodes, Floats, Ints
from verticil.shared.documents.written_values.dates import DAY, DatePattern
from verticil.shared.documents.written_values.numbers import read_plain
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.typed_variables import has_values, value_step, written_format
from verticil.shared.synthesis.endings import ends_so

if TYPE_CHECKING:
    import pandas as pd

_EPOCH: Final = dt.date(1970, 1, 1)
_HAIR: Final = 1e-6  # of a step: numbers of floating point that are whole steps lie so near to one
_MICROSECONDS: Final = 1_000_000


def number_of_writing(variable: Variable, numbers: Floats | Ints) -> Floats | Ints:
    """Return numbers as records write them: rounded down to their decimals, or to what a format says (its minute, its month)."""
    if variable.kind == "number":
        size = 10.0 ** (variable.decimals or 0)
        return np.round(np.floor(np.asarray(numbers, dtype=np.float64) * size + _HAIR) / size, variable.decimals or 0)
    if variable.format is None or variable.kind not in {"date", "datetime", "time"}:
        return numbers
    pattern, scale = DatePattern.of(written_format(variable)), float(DAY) if variable.kind == "date" else 1.0
    distinct, places = np.unique(numbers, return_inverse=True)
    written = [_read_back(pattern, float(value) * scale) / scale for value in distinct.tolist()]
    result = np.asarray(written, dtype=np.float64)[places]
    return result.astype(np.int64) if variable.integer else result


def _read_back(pattern: DatePattern, seconds: float) -> float:
    moment = pattern.read(pattern.write(seconds))
    if moment is None:
        raise ValueError(f"the pattern '{pattern.text}' does not read what it writes")
    return moment


def place_points(variable: Variable, codes: AnyCodes, numbers: Floats | Ints, *, first: int = 0) -> Floats | Ints:
    """Return the numbers of records with those of points at their codes, and no other number equal to a point.

    Args:
        variable: with bins.
        codes: (n,).
        numbers: (n,) one in each record's bin.
        first: number of the first record: which free value takes the place of one that is a point depends on it alone.
    """
    numbers = number_of_writing(variable, numbers)
    if not variable.points:
        return numbers
    points = np.asarray(variable.points, dtype=numbers.dtype)
    in_bin = codes < variable.n_bins
    for row in np.flatnonzero(in_bin & np.isin(numbers, points)).tolist():
        free = _free_values(variable, int(codes[row]))
        numbers[row] = free[(first + row) % len(free)]
    place = codes.astype(np.intp) - variable.n_bins
    is_point = (place >= 0) & (place < len(points))
    return np.where(is_point, points[np.clip(place, 0, len(points) - 1)], numbers)


@functools.lru_cache(maxsize=4096)
def _free_values(variable: Variable, code: int) -> tuple[float, ...]:
    """Return values of a bin that are no points: all of few whole ones, else some near its lower edge."""
    low, high = (variable.bins or ())[code], (variable.bins or ())[code + 1]
    step = value_step(variable)
    decimals = 0 if variable.integer else variable.decimals or 0
    size = min(round((high - low) / step), 1000)
    values = [round(low + place * step, decimals) for place in range(size)]
    values = [float(value) for value in number_of_writing(variable, np.asarray(values, dtype=np.float64))]
    free = tuple(value for value in dict.fromkeys(values) if value not in variable.points and low <= value < high)
    if variable.endings and free:
        free = tuple(itertools.compress(free, ends_so(variable, np.asarray(free)).tolist())) or free
    return free or (low,)


# ---- values


def series_of(variable: Variable, codes: AnyCodes, numbers: Floats | Ints | None) -> pd.Series:
    """Return a typed column of records, with the type that a frame has of it; null where a record has no value."""
    import pandas as pd

    kind = variable.kind
    if not has_values(kind):
        return _category_series(variable, codes)
    n = variable.n_valued
    if numbers is None:
        values = np.asarray((*variable.points, np.nan), dtype=np.float64)[np.minimum(codes, n)]
    else:
        values = np.asarray(numbers, dtype=np.float64)
    present = np.asarray(codes) < n
    if kind == "integer":
        whole = np.where(present, values, 0).astype(np.int64)
        return pd.Series(pd.arrays.IntegerArray(whole, ~present))
    if kind == "number":
        return pd.Series(pd.arrays.FloatingArray(np.where(present, values, 0.0), ~present))
    return pd.Series(_moment_array(variable, np.where(present, values, 0.0), ~present))


def _category_series(variable: Variable, codes: AnyCodes) -> pd.Series:
    import pandas as pd

    word = None if variable.missing is None else variable.missing.category
    if variable.kind == "boolean":
        truths = np.array([label.casefold() == "true" for label in variable.labels])[codes]
        if word is None and variable.other is None:
            return pd.Series(truths)
        is_word = np.array([label in {word, variable.other} for label in variable.labels])[codes]
        return pd.Series(pd.arrays.BooleanArray(truths & ~is_word, is_word))
    labels = np.array([None if label == word else label for label in variable.labels], dtype=object)
    if variable.kind == "ordered":
        kept = [label for label in variable.labels if label != word]
        return pd.Series(pd.Categorical(labels[codes], categories=pd.Index(kept, dtype="str"), ordered=True))
    return pd.Series(labels[codes], dtype="string")


def _moment_array(variable: Variable, values: Floats, is_null: NDArray[np.bool_]) -> Any:
    import pandas as pd
    import pyarrow as pa

    if variable.kind == "date":
        days = pa.array(values.astype(np.int32), mask=is_null, type=pa.int32()).cast(pa.date32())
        return pd.array(days, dtype=pd.ArrowDtype(pa.date32()))
    micro = np.round(values * _MICROSECONDS).astype(np.int64)
    if variable.kind == "time":
        times = pa.array(np.minimum(micro, DAY * _MICROSECONDS - 1), mask=is_null, type=pa.int64()).cast(
            pa.time64("us")
        )
        return pd.array(times, dtype=pd.ArrowDtype(pa.time64("us")))
    stamps = micro.view("datetime64[us]").copy()
    stamps[is_null] = np.datetime64("NaT")
    series = cast("pd.Series[pd.Timestamp]", pd.Series(stamps))
    return series if variable.timezone is None else series.dt.tz_localize("UTC").dt.tz_convert(variable.timezone)


# ---- texts


def csv_frame(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return a frame with the texts of its typed columns, for a CSV file; other columns stay as they are."""
    import pandas as pd

    typed = {variable.name: variable for variable in schema.variables if variable.kind is not None}
    return pd.DataFrame(
        {
            name: pd.Series(_texts(typed[name], frame[name]), dtype="str") if name in typed else frame[name]
            for name in frame.columns
        },
        copy=False,
    )


def _texts(variable: Variable, column: pd.Series) -> NDArray[np.object_]:
    import pandas as pd

    places, distinct = pd.factorize(column, use_na_sentinel=True)
    write = _writer(variable)
    texts = np.array([*(write(value) for value in distinct.tolist()), ""], dtype=object)
    return texts[places]


def _writer(variable: Variable) -> Callable[[Any], str]:
    kind = variable.kind
    if kind == "boolean":
        spelled = {
            label.casefold() == "true": label for label in variable.labels if label.casefold() in {"true", "false"}
        }
        return lambda value: spelled[bool(value)]
    if kind == "integer":
        return lambda value: str(int(value))
    if kind == "number":
        return lambda value: f"{value + 0.0:.{variable.decimals}f}"
    if kind in {"date", "datetime", "time"}:
        pattern = DatePattern.of(written_format(variable))
        return lambda value: pattern.write(_seconds(value))
    return str


def _seconds(value: object) -> float:
    """Return a moment of a frame or a Parquet file in seconds, see `written_values.dates`."""
    if isinstance(value, dt.datetime):
        bare = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        return (bare - dt.datetime(1970, 1, 1)) / dt.timedelta(seconds=1)
    if isinstance(value, dt.date):
        return float((value - _EPOCH).days * DAY)
    if isinstance(value, dt.time):
        return 3600.0 * value.hour + 60 * value.minute + value.second + value.microsecond / _MICROSECONDS
    raise ValueError(f"a {type(value).__name__} is no moment")


# ---- codes


def codes_of(variable: Variable, values: Sequence[object]) -> Ints:
    """Return the code of each of some written values, texts of a CSV file or values of a Parquet file; -1: it has none.

    The last value is that of a record without one.
    """
    return np.array([_code(variable, value) for value in values], dtype=np.int64)


def numbers_of_values(variable: Variable, values: Sequence[object]) -> list[float]:
    """Return the numbers, on the scale of the type, of some written values; NaN: it is none."""
    return [math.nan if value is None or value == "" else _or_nan(_number(variable, value)) for value in values]


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


def _code(variable: Variable, value: object) -> int:
    if value is None or value == "":
        word = variable.other if variable.missing is None else variable.missing.category
        is_null = word is not None and (
            has_values(variable.kind) or variable.missing is not None or variable.kind == "boolean"
        )
        return variable.labels.index(word) if is_null and word is not None else -1
    if not has_values(variable.kind):
        if variable.kind == "boolean" and isinstance(value, bool):
            value = next((label for label in variable.labels if label.casefold() == str(value).casefold()), "")
        is_word = variable.missing is not None and value == variable.missing.category
        return (
            variable.labels.index(value) if isinstance(value, str) and value in variable.labels and not is_word else -1
        )
    number = _number(variable, value)
    if number is None or not math.isfinite(number):
        return -1
    if number in variable.points:
        return variable.n_bins + variable.points.index(number)
    bins = variable.bins
    if bins is None or not bins[0] <= number < bins[-1]:
        return -1
    return int(np.searchsorted(np.asarray(bins), number, side="right")) - 1


def _number(variable: Variable, value: object) -> float | None:
    kind = variable.kind
    if kind in {"integer", "number"}:
        return read_plain(value) if isinstance(value, str) else float(value) if isinstance(value, int | float) else None
    scale = float(DAY) if kind == "date" else 1.0
    if isinstance(value, str):
        seconds = DatePattern.of(written_format(variable)).read(value)
        return None if seconds is None else seconds / scale
    return _seconds(value) / scale
