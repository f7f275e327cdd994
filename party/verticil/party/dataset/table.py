"""A local CSV or Parquet file as columns of texts, part by part.

Promises: every value is text, as with pandas' ``dtype=str, keep_default_na=False`` (``007`` stays ``007``; ``NA`` and ``None``
are texts like any other; contract, section 4); memory is bounded by the part, not by the file; a row with too many or too few
fields is counted and left out, never shifted or filled; bytes that are no UTF-8 become lone surrogates, which no declared text
has, so that one value cannot keep a column from being read (a file in another encoding is decoded as a whole, whatever is read of
it). No message carries a value: it names the file, columns, positions and counts. Header names are quoted only when some expected
column shows that the first row is a header, and exceptions of the libraries, which quote rows, are never chained.

How Parquet values become text: strings as they are; whole numbers in decimal (``7``), also when the column is floating point;
other numbers in their shortest form; booleans ``True`` and ``False``; dates and times in ISO form; null and NaN empty.
"""

from __future__ import annotations

import codecs
import csv
import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from verticil.shared.errors import DataFault, Misuse

T = TypeVar("T")

_BLOCK_BYTES: Final = 4 << 20  # a CSV part; also the longest row
_PARQUET_ROWS: Final = 65_536
DELIMITERS: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_SIGNATURES: Final = {b"PAR1": "Parquet", b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """Where a variable comes from.

    Attributes:
        source: the local column.
        recode: local spelling -> declared spelling.
        written: how numbers are written; see `encoding.WRITTEN`.
    """

    source: str
    recode: Mapping[str, str] = field(default_factory=dict)
    written: str = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRule:
    """How to read one local table: ``[dataset.NAME]`` of party.toml.

    Attributes:
        path: the file.
        format: csv or parquet.
        id: the column that names the person.
        delimiter, encoding: of a CSV file.
        columns: variable -> rule, only where the local table differs from the study.
        has_ids: whether `id` is a column; else each row is a person, as in a table that is never linked.

    Raises:
        Misuse: CONFIG_INVALID, the delimiter is not one ASCII character or the encoding is unknown.
    """

    path: Path
    format: Literal["csv", "parquet"]
    id: str
    delimiter: str = ","
    encoding: str = "utf-8"
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    has_ids: bool = True

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise Misuse("CONFIG_INVALID", f"{self.path.name}: delimiter is not one ASCII character that can separate")
        if _attempt(lambda: "".encode(self.encoding), LookupError) is None:
            raise Misuse(
                "CONFIG_INVALID",
                f"{self.path.name}: unknown encoding '{self.encoding}'",
                hint="for instance utf-8, latin-1, cp1252, utf-16",
            )

    def column(self, variable: str) -> ColumnRule:
        """The rule of a variable; without one, the local column has the variable's name."""
        return self.columns[variable] if variable in self.columns else ColumnRule(source=variable)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """A part of a column: `distinct` texts, and for every row the position of its text there, int32."""

    distinct: tuple[str, ...] = field(repr=False)
    index: NDArray[np.int32] = field(repr=False)

    def texts(self) -> list[str]:
        """The text of every row."""
        return [self.distinct[position] for position in self.index.tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """Some rows of the table, in file order.

    Attributes:
        n_rows: number of rows.
        columns: by name of the local column.
        n_ragged: rows with too many or too few fields, left out here.
        first_ragged: number of the first of them (the header is row 1); None when there is none.
    """

    n_rows: int
    columns: Mapping[str, TextColumn]
    n_ragged: int = 0
    first_ragged: int | None = None


def header(rule: DatasetRule) -> tuple[str, ...]:
    """The names of the table's columns, in order.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE or DATA_EMPTY.
    """
    _check_file(rule)
    if rule.format == "parquet":
        return tuple(_open_parquet(rule).schema_arrow.names)
    names = _csv_header(rule, rule.delimiter)
    if not names:
        raise DataFault("DATA_EMPTY", f"{rule.path.name}: no row, expected a header and one row for each person")
    return names


def missing_columns(rule: DatasetRule, names: Sequence[str], wanted: Sequence[str]) -> DataFault | None:
    """The fault of a table with columns `names` in which some of the `wanted` ones are absent; None when all are there.

    Raises:
        DataFault: DATA_UNREADABLE, another delimiter is in use, or a wanted column occurs twice.
    """
    file = rule.path.name
    seen = Counter(names)
    for name in wanted:
        if seen[name] > 1:
            raise DataFault("DATA_UNREADABLE", f"{file}: column '{name}' occurs {seen[name]} times, expected once")
    absent = [name for name in wanted if name not in seen]
    if not absent:
        return None
    if len(absent) == len(set(wanted)) and rule.format == "csv":
        _check_delimiter(rule, wanted)
    near: list[str] = []
    if len(absent) < len(set(wanted)):  # else the first row may well be data, and is not quoted
        free = {name.casefold(): name for name in names if name not in wanted}
        for name in absent:
            near += [f"'{free[match]}' for '{name}'?" for match in difflib.get_close_matches(name.casefold(), free, 1)]
        hint = " ".join(near) or "name the local column with source in [dataset.NAME.columns.VARIABLE]"
    else:
        hint = "is the first row a header, and is the delimiter right?"
    listed = ", ".join(f"'{name}'" for name in absent)
    return DataFault(
        "DATA_COLUMN_MISSING", f"{file}: no column {listed}; the table has {len(names)} columns", hint=hint
    )


def read_parts(rule: DatasetRule, sources: Sequence[str]) -> Iterator[TablePart]:
    """The table's rows, part by part.

    Args:
        rule: the table.
        sources: the columns to read; all are there (see `missing_columns`).

    Raises:
        DataFault: DATA_UNREADABLE (also DATA_FILE_MISSING).
    """
    wanted = list(dict.fromkeys(sources))
    return _parquet_parts(rule, wanted) if rule.format == "parquet" else _csv_parts(rule, wanted)


def _attempt(work: Callable[[], T], *errors: type[Exception]) -> T | None:
    """The result of `work`; None when it fails with one of `errors`, so that nobody chains an exception that quotes data."""
    try:
        return work()
    except errors:
        return None


def _check_file(rule: DatasetRule) -> None:
    try:
        with rule.path.open("rb") as file:
            start = file.read(4)
    except FileNotFoundError:
        # By its name only: the message goes to the miner too, and where a site keeps its files is not the miner's concern.
        hint = "see path in [dataset.NAME] of party.toml; a relative one begins at the folder of party.toml"
        raise DataFault("DATA_FILE_MISSING", f"{rule.path.name}: no such file", hint=hint) from None
    except OSError as error:
        hint = "path in [dataset.NAME] of party.toml must name a file that this user may read"
        raise _unreadable(rule, f"cannot be read ({error.strerror})", hint=hint) from None
    if not start:
        raise DataFault("DATA_EMPTY", f"{rule.path.name}: the file is empty")
    kind = next((kind for signature, kind in _SIGNATURES.items() if start.startswith(signature)), "")
    if kind and kind.lower() != rule.format:
        hint = 'set format = "parquet"' if kind == "Parquet" else "unpack the file first"
        raise _unreadable(rule, f"this is a {kind} file, expected {rule.format}", hint=hint)


def _unreadable(rule: DatasetRule, problem: str, *, hint: str = "") -> DataFault:
    return DataFault("DATA_UNREADABLE", f"{rule.path.name}: {problem}", hint=hint)


# ---- CSV


def _csv_header(rule: DatasetRule, delimiter: str) -> tuple[str, ...]:
    rows = _attempt(lambda: _first_rows(rule, delimiter, 1), csv.Error, OSError, UnicodeError)
    if rows is None:
        hint = "is it a CSV file in the encoding that party.toml names?"
        raise _unreadable(rule, "the header cannot be read", hint=hint)
    return tuple(rows[0]) if rows else ()


def _first_rows(rule: DatasetRule, delimiter: str, n_rows: int) -> list[list[str]]:
    # Undecodable bytes are replaced here: what is wrong with a row is for the reader of all rows to say.
    encoding = "utf-8-sig" if codecs.lookup(rule.encoding).name == "utf-8" else rule.encoding
    with rule.path.open(encoding=encoding, errors="replace", newline="") as file:
        return list(islice(filter(None, csv.reader(file, delimiter=delimiter)), n_rows))


def _check_delimiter(rule: DatasetRule, wanted: Sequence[str]) -> None:
    for delimiter, spoken in DELIMITERS.items():
        found = len(set(wanted) & set(_csv_header(rule, delimiter)))
        if found and delimiter != rule.delimiter:
            written = '"\\t"' if delimiter == "\t" else f'"{delimiter}"'
            got = DELIMITERS.get(rule.delimiter, f"'{rule.delimiter}'")
            raise _unreadable(
                rule,
                f"wrong delimiter: with {got} none of {len(set(wanted))} expected columns is found, with {spoken} {found}",
                hint=f"set delimiter = {written} in [dataset.NAME] of party.toml, or write the table with {got}",
            )


def _csv_parts(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]:
    ragged: list[int] = []

    def leave_out(row: arrow_csv.InvalidRow) -> str:
        ragged.append(row.number)
        return "skip"

    def open_reader() -> arrow_csv.CSVStreamingReader:
        return arrow_csv.open_csv(
            rule.path,
            # One thread: rows are then numbered, and a party's machine has other work.
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, encoding=rule.encoding),
            parse_options=arrow_csv.ParseOptions(
                delimiter=rule.delimiter, newlines_in_values=True, invalid_row_handler=leave_out
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.dictionary(pa.int32(), pa.string())),
                null_values=[],
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )

    errors = (pa.ArrowException, ValueError, OSError)
    if len(_attempt(lambda: _first_rows(rule, rule.delimiter, 2), csv.Error, OSError, UnicodeError) or "??") < 2:
        return  # the reader takes a header without a line end for a damaged file
    reader = _attempt(open_reader, *errors)
    while reader is not None:
        batch = _attempt(partial(_next_of, reader), *errors)
        if batch is None:
            break
        columns = {
            name: _text_column(column) for part in batch for name, column in zip(wanted, part.columns, strict=True)
        }
        n_rows = batch[0].num_rows if batch else 0
        yield TablePart(
            n_rows=n_rows, columns=columns, n_ragged=len(ragged), first_ragged=ragged[0] if ragged else None
        )
        ragged.clear()
        if not batch:
            return
    raise _why_unreadable(rule)


def _next_of(items: Iterator[T]) -> list[T]:
    """The next item; empty at the end, so that None can say that reading failed."""
    for item in items:
        return [item]
    return []


def _why_unreadable(rule: DatasetRule) -> DataFault:
    position = undecodable(rule)
    if position is not None:
        return _unreadable(
            rule,
            f"not {rule.encoding} at byte {position}",
            hint='set encoding in [dataset.NAME], for instance "latin-1" or "cp1252", or convert the file',
        )
    return _unreadable(
        rule,
        f"not readable as CSV: a row is longer than {_BLOCK_BYTES >> 20} MiB or cut off",
        hint="is there a quotation mark that is never closed?",
    )


def undecodable(rule: DatasetRule) -> int | None:
    """Position of the first byte that is not in the declared encoding."""
    decoder = codecs.getincrementaldecoder(rule.encoding)()
    consumed = 0
    try:
        with rule.path.open("rb") as file:
            while True:
                chunk = file.read(1 << 20)
                pending = len(decoder.getstate()[0])
                try:
                    decoder.decode(chunk, final=not chunk)
                except UnicodeDecodeError as error:
                    return consumed - pending + error.start
                if not chunk:
                    return None
                consumed += len(chunk)
    except OSError:
        return None


# ---- Parquet


def _open_parquet(rule: DatasetRule) -> parquet.ParquetFile:
    file = _attempt(lambda: parquet.ParquetFile(rule.path), pa.ArrowException, ValueError, OSError)
    if file is None:
        raise _unreadable(rule, "not a Parquet file, or damaged", hint='for a CSV file set format = "csv"')
    return file


def _parquet_parts(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]:
    file = _open_parquet(rule)
    for name in wanted:
        kind = file.schema_arrow.field(name).type
        if not _is_textual(kind):
            raise _unreadable(rule, f"column '{name}' has type {kind}, expected text, numbers, booleans or dates")
    errors = (pa.ArrowException, ValueError, OSError)
    batches = file.iter_batches(batch_size=_PARQUET_ROWS, columns=list(wanted))

    def next_part() -> list[TablePart]:
        return [
            TablePart(
                n_rows=batch.num_rows,
                columns={name: _text_column(batch.column(batch.schema.get_field_index(name))) for name in wanted},
            )
            for batch in _next_of(batches)
        ]

    while True:
        part = _attempt(next_part, *errors)
        if part is None:
            raise _unreadable(rule, "damaged Parquet file, or a value that cannot be written as text")
        if not part:
            return
        yield part[0]


def _is_textual(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _is_textual(kind.value_type) and not types.is_dictionary(kind.value_type)
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_temporal, types.is_decimal, types.is_null)
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return any(test(kind) for test in (*texts, *tests)) and not types.is_duration(kind) and not types.is_interval(kind)


# ---- Arrow columns to texts


def _text_column(column: pa.Array) -> TextColumn:
    if pa.types.is_null(column.type):
        return TextColumn(distinct=("",), index=np.zeros(len(column), dtype=np.int32))
    if pa.types.is_string_view(column.type) or pa.types.is_float16(column.type):
        column = column.cast(pa.string() if pa.types.is_string_view(column.type) else pa.float32())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    distinct = _texts(column.dictionary)
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(pa.scalar(len(distinct), type=indices.type))
        distinct.append("")
    index: NDArray[np.int32] = np.from_dlpack(indices.cast(pa.int32())).view(np.int32)  # to_numpy would import pandas
    return TextColumn(distinct=tuple(distinct), index=index)


def _texts(values: pa.Array) -> list[str]:
    kind = values.type
    if pa.types.is_floating(kind):
        scalar: Callable[[float], object] = np.float32 if pa.types.is_float32(kind) else float
        return ["" if value is None else _number_text(value, scalar) for value in values.to_pylist()]
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        encoded = values.cast(pa.binary() if pa.types.is_string(values.type) else pa.large_binary())
        return ["" if value is None else value.decode("utf-8", "surrogateescape") for value in encoded.to_pylist()]
    return ["" if value is None else str(value) for value in values.to_pylist()]


def _number_text(value: float, scalar: Callable[[float], object]) -> str:
    if value != value:  # noqa: PLR0124  NaN
        return ""
    return str(int(value)) if value.is_integer() else str(scalar(value))
