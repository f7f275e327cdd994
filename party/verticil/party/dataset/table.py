"""A local table as columns of texts, part by part: a CSV file is read here, everything else by `verticil.party.dataset.sources`.

Promises: every value is text, as with pandas' ``dtype=str, keep_default_na=False`` (``007`` stays ``007``; ``NA`` and ``None``
are texts like any other; contract, section 4); memory is bounded by the part, not by the file; a row with too many or too few
fields is counted and left out, never shifted or filled; bytes that are no UTF-8 become lone surrogates, which no declared text
has, so that one value cannot keep a column from being read (a file in another encoding is decoded as a whole, whatever is read of
it). No message carries a value: it names the file, columns, positions and counts. Header names are quoted only when some expected
column shows that the first row is a header, and exceptions of the libraries, which quote rows, are never chained.

How values that have a type become text, wherever they come from (`text_column`): strings as they are; whole numbers in decimal
(``7``), also when the column is floating point; other numbers in their shortest form, decimal ones with all the places that the
column has; booleans ``True`` and ``False``; dates and times in ISO form, fractions of seconds without zeros at the end and
instants in UTC (``2020-01-02 01:04:05Z``); null and NaN empty.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, Literal, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from verticil.party.dataset.sources.server import Server
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.foreign_files.limits import VALUE_BYTES
from verticil.shared.numerics.knowledge.rules import Knowledge

T = TypeVar("T")

_BLOCK_BYTES: Final = 1 << 19  # a CSV part, of which Arrow reads 32 ahead
_LONGEST_ROW: Final = 4 << 20  # the part where a row is longer than that
_LEAST_ROWS: Final = 4096  # of a part that more is to follow
PART_ROWS: Final = 65_536
"""Most rows of a part that comes from anything else."""
Format = Literal["csv", "parquet", "arrow", "duckdb", "sqlite", "server"]
DATABASES: Final = frozenset({"duckdb", "sqlite", "server"})
ENDINGS: Final[Mapping[str, Format]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".duckdb": "duckdb",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
}
"""What a file is by the ending of its name, where nothing else says it; else it is CSV."""
DELIMITERS: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_SIGNATURES: Final = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"SQLite": "SQLite",
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
}


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
        path: the file, the folder, or a pattern with ``*``; of a server nothing.
        format: what the files are, or ``server``.
        id: the column that names the person.
        delimiter, encoding: of a CSV file.
        columns: variable -> rule, only where the local table differs from the study.
        has_ids: whether `id` is a column; else each row is a person, as in a table that is never linked.
        server: the database on a server; None: it is a file.
        table, query: of a database: one of the two.

    Raises:
        Misuse: CONFIG_INVALID, the delimiter is not one ASCII character or the encoding is unknown.
    """

    path: Path = Path()
    format: Format
    id: str
    delimiter: str = ","
    encoding: str = "utf-8"
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    has_ids: bool = True
    server: Server | None = None
    table: str = ""
    query: str = ""

    @property
    def name(self) -> str:
        """What messages call it. They go to the miner too, so nothing of where it is."""
        if self.server is None:
            return self.path.name
        return f"table '{self.table}'" if self.table else "query"

    @property
    def files(self) -> tuple[Path, ...]:
        """What of this machine is read: the table, or what the way to a server needs."""
        return (self.path,) if self.server is None else self.server.files

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise Misuse("CONFIG_INVALID", f"{self.name}: delimiter is not one ASCII character that can separate")
        if attempt(lambda: "".encode(self.encoding), LookupError) is None:
            raise Misuse(
                "CONFIG_INVALID",
                f"{self.name}: unknown encoding '{self.encoding}'",
                hint="for instance utf-8, latin-1, cp1252, utf-16",
            )

    def column(self, variable: str) -> ColumnRule:
        """The rule of a variable; without one, the local column has the variable's name."""
        return self.columns[variable] if variable in self.columns else ColumnRule(source=variable)


def with_properties(rule: DatasetRule, knowledge: Knowledge | None, names: Collection[str]) -> DatasetRule:
    """How to read a table for a study that knows finer values of some columns: their property is written in place of each.

    As by a recode, which the study states; a recode of the site's own comes first. So it is part of what a code means
    (`perturb.codebook_digest`), and another assignment of values is another release.

    Args:
        rule: of the site.
        knowledge: what the study states.
        names: variables that the table has.
    """
    if knowledge is None:
        return rule
    changed = dict(rule.columns)
    for name in names:
        if property_of := knowledge.properties(name):
            column = rule.column(name)
            own = {text: property_of.get(target, target) for text, target in column.recode.items()}
            changed[name] = replace(column, recode={**property_of, **own})
    return replace(rule, columns=changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """A part of a column: `distinct` texts, and for every row the position of its text there, int32."""

    distinct: tuple[str, ...] = field(repr=False)
    index: NDArray[np.int32] = field(repr=False)

    def texts(self) -> list[str]:
        """The text of every row."""
        if np.array_equal(self.index, np.arange(len(self.distinct))):  # as in a column of ids
            return list(self.distinct)
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
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY or DATA_INTERRUPTED.
        Misuse, DataFault: a server's credentials are not there (`verticil.party.dataset.sources.server`).
    """
    from verticil.party.dataset.sources import door

    return door.header(rule)


def missing_columns(rule: DatasetRule, names: Sequence[str], wanted: Sequence[str]) -> DataFault | None:
    """The fault of a table with columns `names` in which some of the `wanted` ones are absent; None when all are there.

    Raises:
        DataFault: DATA_UNREADABLE, another delimiter is in use, or a wanted column occurs twice.
    """
    file = rule.name
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


def rows_in_footer(rule: DatasetRule) -> int:
    """Return how many rows a Parquet file says that it has, before any is read; 0: another format, or no such file.

    A file that says too few is found out while it is read.
    """
    from verticil.party.dataset.sources import files

    return files.rows_in_footer(rule) if rule.format == "parquet" else 0


def read_parts(rule: DatasetRule, sources: Sequence[str]) -> Iterator[TablePart]:
    """The table's rows, part by part.

    Args:
        rule: the table.
        sources: the columns to read; all are there (see `missing_columns`).

    Raises:
        DataFault: DATA_UNREADABLE, DATA_INTERRUPTED (also DATA_FILE_MISSING).
        Misuse, DataFault: as `header`.
    """
    from verticil.party.dataset.sources import door

    return door.parts(rule, list(dict.fromkeys(sources)))


def attempt(work: Callable[[], T], *errors: type[Exception]) -> T | None:
    """The result of `work`; None when it fails with one of `errors`, so that nobody chains an exception that quotes data."""
    try:
        return work()
    except errors:
        return None


def check_file(rule: DatasetRule) -> None:
    """Look at the beginning of a file.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_EMPTY; DATA_UNREADABLE, it is of another format.
    """
    try:
        with rule.path.open("rb") as file:
            start = file.read(6)
    except FileNotFoundError:
        # By its name only: the message goes to the miner too, and where a site keeps its files is not the miner's concern.
        hint = "see path in [dataset.NAME] of party.toml; a relative one begins at the folder of party.toml"
        raise DataFault("DATA_FILE_MISSING", f"{rule.name}: no such file", hint=hint) from None
    except OSError as error:
        hint = "path in [dataset.NAME] of party.toml must name a file that this user may read"
        raise unreadable(rule, f"cannot be read ({error.strerror})", hint=hint) from None
    if not start:
        raise DataFault("DATA_EMPTY", f"{rule.name}: the file is empty")
    kind = next((kind for signature, kind in _SIGNATURES.items() if start.startswith(signature)), "")
    if kind and kind.lower() != rule.format:
        known = kind in {"Parquet", "Arrow", "SQLite"}
        hint = f'set format = "{kind.lower()}"' if known else "unpack the file first"
        raise unreadable(
            rule, f"this is {'an' if kind == 'Arrow' else 'a'} {kind} file, expected {rule.format}", hint=hint
        )


def value_too_long(rule: DatasetRule, column: str, row: int) -> DataFault:
    """The fault of a table with a value above `VALUE_BYTES`; `row` counts from 1, in a CSV file with the header."""
    return unreadable(
        rule,
        f"column '{column}': the value in row {row} has more than {VALUE_BYTES >> 20} MiB, expected a category or a number",
        hint="leave the column out, or shorten it; in a CSV file: is there a quotation mark that is never closed?",
    )


def unreadable(rule: DatasetRule, problem: str, *, hint: str = "") -> DataFault:
    """The fault of a table that is there and cannot be read."""
    return DataFault("DATA_UNREADABLE", f"{rule.name}: {problem}", hint=hint)


# ---- CSV


def csv_names(rule: DatasetRule) -> tuple[str, ...]:
    """The names in the first row of one CSV file; raises as `header`."""
    names = _csv_header(rule, rule.delimiter)
    if not names:
        raise DataFault("DATA_EMPTY", f"{rule.name}: no row, expected a header and one row for each person")
    return names


def _csv_header(rule: DatasetRule, delimiter: str) -> tuple[str, ...]:
    rows = attempt(lambda: _first_rows(rule, delimiter, 1), csv.Error, OSError, UnicodeError)
    if rows is None:
        hint = "is it a CSV file in the encoding that party.toml names?"
        raise unreadable(rule, "the header cannot be read", hint=hint)
    return tuple(rows[0]) if rows else ()


def _first_rows(rule: DatasetRule, delimiter: str, n_rows: int) -> list[list[str]]:
    # Undecodable bytes are replaced here: what is wrong with a row is for the reader of all rows to say.
    encoding = "utf-8-sig" if codecs.lookup(rule.encoding).name == "utf-8" else rule.encoding
    with rule.path.open(encoding=encoding, errors="replace", newline="") as file:
        lines = iter(partial(file.readline, _LONGEST_ROW), "")
        return list(islice(filter(None, csv.reader(lines, delimiter=delimiter)), n_rows))


def _check_delimiter(rule: DatasetRule, wanted: Sequence[str]) -> None:
    for delimiter, spoken in DELIMITERS.items():
        found = len(set(wanted) & set(_csv_header(rule, delimiter)))
        if found and delimiter != rule.delimiter:
            written = '"\\t"' if delimiter == "\t" else f'"{delimiter}"'
            got = DELIMITERS.get(rule.delimiter, f"'{rule.delimiter}'")
            raise unreadable(
                rule,
                f"wrong delimiter: with {got} none of {len(set(wanted))} expected columns is found, with {spoken} {found}",
                hint=f"set delimiter = {written} in [dataset.NAME] of party.toml, or write the table with {got}",
            )


def csv_parts(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[TablePart]:
    """The rows of one CSV file; raises as `read_parts`."""
    held, ragged = list[pa.RecordBatch](), list[int]()
    for rows, left_out in _csv_batches(rule, wanted):
        for batch in rows:
            if any(first_long(column, byte_lengths(column)) is not None for column in batch.columns):
                raise _why_unreadable(rule, wanted)
        held += rows
        ragged += left_out
        if sum(map(len, held)) >= _LEAST_ROWS:
            yield _csv_part(wanted, held, ragged)
            held, ragged = [], []
    if held or ragged:
        yield _csv_part(wanted, held, ragged)


def _csv_part(wanted: Sequence[str], held: Sequence[pa.RecordBatch], ragged: Sequence[int]) -> TablePart:
    """Rows that were read one behind the other, and the numbers of those that were left out among them."""
    columns: list[pa.Array] = held[0].columns if held else []
    if len(held) > 1:
        columns = [one.combine_chunks() for one in pa.Table.from_batches(held).unify_dictionaries().columns]
    return TablePart(
        n_rows=sum(map(len, held)),
        columns=dict(zip(wanted, map(text_column, columns), strict=bool(held))),
        n_ragged=len(ragged),
        first_ragged=ragged[0] if ragged else None,
    )


def _csv_batches(rule: DatasetRule, wanted: Sequence[str]) -> Iterator[tuple[list[pa.RecordBatch], list[int]]]:
    """Rows of a block, none at the end, and the numbers of rows that were left out meanwhile; raises as `read_parts`."""
    if len(attempt(lambda: _first_rows(rule, rule.delimiter, 2), csv.Error, OSError, UnicodeError) or "??") < 2:
        return  # the reader takes a header without a line end for a damaged file
    errors = (pa.ArrowException, ValueError, OSError)
    n_rows = told = 0  # that were handed out; the last row of them that was left out
    for block_bytes in (_BLOCK_BYTES, _LONGEST_ROW):
        ragged: list[int] = []
        reader = attempt(partial(_csv_reader, rule, wanted, block_bytes, told, ragged), *errors)
        again = n_rows
        while reader is not None and (found := attempt(partial(next_of, reader), *errors)) is not None:
            rows = [part[again:] for part in found]
            again = max(0, again - sum(map(len, found)))
            n_rows, told = n_rows + sum(map(len, rows)), max([told, *ragged])
            yield rows, [*ragged]
            ragged.clear()
            if not found:
                return
    raise _why_unreadable(rule, wanted)


def _csv_reader(
    rule: DatasetRule, wanted: Sequence[str], block_bytes: int, told: int, ragged: list[int]
) -> arrow_csv.CSVStreamingReader:
    """Reads a file in blocks of so many bytes; numbers of rows behind `told` that are left out are added to `ragged`."""

    def leave_out(row: arrow_csv.InvalidRow) -> str:
        if row.number > told:
            ragged.append(row.number)
        return "skip"

    return arrow_csv.open_csv(
        rule.path,
        # One thread: rows are then numbered, and a party's machine has other work.
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=block_bytes, encoding=rule.encoding),
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


def next_of(items: Iterator[T]) -> list[T]:
    """The next item; empty at the end, so that None can say that reading failed."""
    for item in items:
        return [item]
    return []


def _why_unreadable(rule: DatasetRule, wanted: Sequence[str]) -> DataFault:
    position = undecodable(rule)
    if position is not None:
        return unreadable(
            rule,
            f"not {rule.encoding} at byte {position}",
            hint='set encoding in [dataset.NAME], for instance "latin-1" or "cp1252", or convert the file',
        )
    if (place := _long_value(rule, wanted)) is not None:
        return value_too_long(rule, *place)
    return unreadable(
        rule,
        f"not readable as CSV: a row is longer than {_LONGEST_ROW >> 20} MiB or cut off",
        hint="is there a quotation mark that is never closed?",
    )


def _long_value(rule: DatasetRule, wanted: Sequence[str]) -> tuple[str, int] | None:
    """Return column and row of the first value above `VALUE_BYTES` in a CSV file, which is read a piece at a time."""
    names = csv_names(rule)
    marks = re.compile(f'[\r\n"{re.escape(rule.delimiter)}]')
    column = size = 0
    row, is_quoted, is_empty = 1, False, True
    with rule.path.open(encoding=rule.encoding, errors="surrogateescape", newline="") as file:
        for piece in iter(partial(file.read, 1 << 20), ""):
            start = 0
            for mark in [*marks.finditer(piece), None]:
                end = len(piece) if mark is None else mark.start()
                size += len(piece[start:end].encode("utf-8", "surrogatepass"))
                is_empty = is_empty and not size
                if size > VALUE_BYTES and column < len(names) and names[column] in wanted:
                    return names[column], row
                if mark is None:
                    break
                sign, start = mark.group(), mark.end()
                if sign == '"':
                    is_quoted = not is_quoted
                elif is_quoted:
                    size += 1
                elif sign == rule.delimiter:
                    column, size, is_empty = column + 1, 0, False
                else:
                    row += not is_empty
                    column, size, is_empty = 0, 0, True
    return None


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


# ---- Arrow columns to texts


def text_column(column: pa.Array) -> TextColumn:
    """A column of Arrow, of a type that `verticil.party.dataset.sources.files.is_textual` knows, as texts."""
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
    """The bytes of each text of a column, or of its dictionary; None: it has no texts."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    kind = column.type
    if pa.types.is_string_view(kind):
        views = column.buffers()[1]  # 16 bytes each, which begin with the length
        found = np.frombuffer(views or b"", dtype=np.int32).reshape(-1, 4)
        return found[column.offset : column.offset + len(column), 0].astype(np.int64)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    ends = np.frombuffer(column.buffers()[1], dtype=np.int32 if pa.types.is_string(kind) else np.int64)
    return np.diff(ends[column.offset : column.offset + len(column) + 1]).astype(np.int64)


def first_long(column: pa.Array, lengths: NDArray[np.int64] | None) -> int | None:
    """The first row with a text above `VALUE_BYTES`; None: there is none."""
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
    used = np.zeros(len(column.dictionary), dtype=np.bool_)
    used[np.from_dlpack(indices).view(np.int64)] = True
    if used.all():
        return column
    places = pa.array(np.cumsum(used) - 1).take(column.indices)
    return pa.DictionaryArray.from_arrays(
        places.cast(pa.int32()), column.dictionary.take(pa.array(np.flatnonzero(used)))
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
        return _ascii_texts(values) or _decoded(values)
    return ["" if value is None else str(value) for value in values.to_pylist()]


def _decoded(values: pa.Array) -> list[str]:
    encoded = values.cast(pa.binary() if pa.types.is_string(values.type) else pa.large_binary())
    return ["" if value is None else value.decode("utf-8", "surrogateescape") for value in encoded.to_pylist()]


def _ascii_texts(values: pa.Array) -> list[str] | None:
    """The texts of a column of strings at a fraction of the cost; None: one of them is not ASCII, or null."""
    if values.null_count or not len(values):
        return None
    _, places, data = values.buffers()
    ends = np.frombuffer(places, dtype=np.int32 if pa.types.is_string(values.type) else np.int64)
    ends = ends[values.offset : values.offset + len(values) + 1]
    first, last = int(ends[0]), int(ends[-1])
    whole = b"" if data is None else data[first:last].to_pybytes()
    if not whole.isascii():
        return None
    text = whole.decode("ascii")
    return [text[start:end] for start, end in pairwise((ends - first).tolist())]


def _number_text(value: float, scalar: Callable[[float], object]) -> str:
    if value != value:  # noqa: PLR0124  NaN
        return ""
    return str(int(value)) if value.is_integer() else str(scalar(value))


def _plain(text: str) -> str:
    """A decimal number without an exponent, with all its places."""
    return format(Decimal(text), "f") if "E" in text else text


def whole_seconds(text: str) -> str:
    """A time without the zeros at the end of its fraction.

    >>> whole_seconds("10:20:30.500000"), whole_seconds("10:20:30.000"), whole_seconds("10:20:30")
    ('10:20:30.5', '10:20:30', '10:20:30')
    """
    return text.rstrip("0").rstrip(".") if "." in text else text


def text_of(value: object) -> str:  # noqa: PLR0911  a line for each type
    """The text of one value that a database without Arrow gave, as `text_column` has it. No value is refused.

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
