"""Texts of values that have a type, wherever they come from.

Strings stay as they are; whole numbers are in decimal (``7``), also when the column is floating point; other numbers in their
shortest form, decimal ones with all the places that the column has; booleans ``True`` and ``False``; dates and times in ISO form,
fractions of seconds without zeros at the end and instants in UTC (``2020-01-02 01:04:05Z``); null and NaN are empty.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from verticil.party.dataset.sources.source_table import TextColumn
from verticil.shared.documents.foreign_files.limits import VALUE_BYTES

_BETWEEN: Final = "\x1f"  # between texts that are joined: no letter of usual ones


def text_column(column: pa.Array) -> TextColumn:
    """Return a column of Arrow, of a type that `verticil.party.dataset.sources.files.is_textual` allows, as texts."""
    if pa.types.is_null(column.type):
        return TextColumn(distinct=("",), index=np.zeros(len(column), dtype=np.int32))
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.string() if pa.types.is_string_view(kind) else pa.float32())
    elif pa.types.is_decimal(kind) and kind.bit_width < 128:
        column = column.cast(pa.decimal128(kind.precision, kind.scale))
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif len(column.dictionary) > len(column):
        column = _without_unused(column)
    distinct = _texts(column.dictionary)
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(pa.scalar(len(distinct), type=indices.type))
        distinct.append("")
    index: NDArray[np.int32] = np.from_dlpack(indices.cast(pa.int32())).view(np.int32)  # to_numpy would import pandas
    return TextColumn(distinct=tuple(distinct), index=index)


def byte_lengths(column: pa.Array) -> NDArray[np.int64] | None:
    """Return the bytes of each text of a column, or of its dictionary; None: it has no texts."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    kind = column.type
    if pa.types.is_string_view(kind):
        views = column.buffers()[1]  # 16 bytes each, which begin with the length
        lengths = np.frombuffer(views or b"", dtype=np.int32).reshape(-1, 4)
        return lengths[column.offset : column.offset + len(column), 0].astype(np.int64)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    ends = np.frombuffer(column.buffers()[1], dtype=np.int32 if pa.types.is_string(kind) else np.int64)
    return np.diff(ends[column.offset : column.offset + len(column) + 1]).astype(np.int64)


def first_long(column: pa.Array, lengths: NDArray[np.int64] | None) -> int | None:
    """Return the first row with a text above `VALUE_BYTES`; None: there is none."""
    if lengths is None or not (long := lengths > VALUE_BYTES).any():
        return None
    rows = np.flatnonzero(long)
    if pa.types.is_dictionary(column.type):
        indices = column.indices.cast(pa.int64()).fill_null(len(long))
        rows = np.flatnonzero(np.append(long, False)[np.from_dlpack(indices).view(np.int64)])
    return int(rows[0]) if len(rows) else None


def _without_unused(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Leave out of a dictionary what no row has: a Parquet file keeps one for many more rows than a part has."""
    indices = column.indices.drop_null().cast(pa.int64())
    is_used = np.zeros(len(column.dictionary), dtype=np.bool_)
    is_used[np.from_dlpack(indices).view(np.int64)] = True
    if is_used.all():
        return column
    places = pa.array(np.cumsum(is_used) - 1).take(column.indices)
    return pa.DictionaryArray.from_arrays(
        places.cast(pa.int32()), column.dictionary.take(pa.array(np.flatnonzero(is_used)))
    )


def _texts(values: pa.Array) -> list[str]:
    kind = values.type
    if pa.types.is_floating(kind):
        scalar: Callable[[float], object] = np.float32 if pa.types.is_float32(kind) else float
        return ["" if value is None else _number_text(value, scalar) for value in values.to_pylist()]
    if pa.types.is_decimal(kind):
        return ["" if text is None else _plain(text) for text in values.cast(pa.string()).to_pylist()]
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        mark = "Z" if pa.types.is_timestamp(kind) and kind.tz is not None else ""
        values = values.cast(pa.timestamp(kind.unit)) if mark else values  # the instant in UTC
        return ["" if text is None else whole_seconds(text) + mark for text in values.cast(pa.string()).to_pylist()]
    if pa.types.is_fixed_size_binary(kind):  # of Arrow's type for them
        return ["" if value is None else str(UUID(bytes=value)) for value in values.to_pylist()]
    if pa.types.is_temporal(kind):
        values = values.cast(pa.string())
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return _ascii_texts(values) or _decode_texts(values)
    return ["" if value is None else str(value) for value in values.to_pylist()]


def _decode_texts(values: pa.Array) -> list[str]:
    text_bytes = values.cast(pa.binary() if pa.types.is_string(values.type) else pa.large_binary())
    return ["" if value is None else value.decode("utf-8", "surrogateescape") for value in text_bytes.to_pylist()]


def _ascii_texts(values: pa.Array) -> list[str] | None:
    """Return the texts of a column of strings at a fraction of the cost; None: one of them is not ASCII, or null."""
    if values.null_count or not len(values):
        return None
    one_list = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values.cast(pa.large_string()))
    between = pa.scalar(_BETWEEN, pa.large_string())
    joined = pc.call_function("binary_join", [one_list, between]).cast(pa.large_binary())[0].as_py()
    if not joined.isascii():
        return None
    texts = joined.decode("ascii").split(_BETWEEN)
    return texts if len(texts) == len(values) else None  # a text has the letter that stands between them


def _number_text(value: float, scalar: Callable[[float], object]) -> str:
    if value != value:  # noqa: PLR0124  NaN
        return ""
    return str(int(value)) if value.is_integer() else str(scalar(value))


def _plain(text: str) -> str:
    """Write a decimal number without an exponent, with all its places."""
    return format(Decimal(text), "f") if "E" in text else text


def whole_seconds(text: str) -> str:
    """Write a time without the zeros at the end of its fraction.

    >>> whole_seconds("10:20:30.500000"), whole_seconds("10:20:30.000"), whole_seconds("10:20:30")
    ('10:20:30.5', '10:20:30', '10:20:30')
    """
    return text.rstrip("0").rstrip(".") if "." in text else text


def text_of(value: object) -> str:  # noqa: PLR0911  a line for each type
    """Return the text of one value that a database without Arrow gave, as `text_column` has it. No value is refused.

    >>> import datetime as dt
    >>> text_of(True), text_of(7.0), text_of(Decimal("1.50")), text_of(dt.datetime(2020, 1, 2, 3, 4, 5)), text_of(None)
    ('True', '7', '1.50', '2020-01-02 03:04:05', '')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float):
        return _number_text(value, float)
    if isinstance(value, Decimal):
        return "" if value.is_nan() else format(value, "f") if value.is_finite() else str(float(value))
    if isinstance(value, dt.datetime):
        at = value if value.tzinfo is None else value.replace(tzinfo=None) - (value.utcoffset() or dt.timedelta())
        return whole_seconds(at.isoformat(" ")) + ("" if value.tzinfo is None else "Z")
    if isinstance(value, dt.time):
        return whole_seconds(value.isoformat())
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "surrogateescape")
    return str(value)
