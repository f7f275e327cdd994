"""Rows of one CSV file as columns of texts, part by part.

Promises: a row with too many or too few fields is counted and left out, never shifted or filled; bytes that are no UTF-8 become
lone surrogates, which no declared text has, so that one value cannot keep a column from being read (a file in another encoding is
decoded as a whole, whatever is read of it). Header names are quoted only when some expected column shows that the first row is a
header, and exceptions of the libraries, which quote rows, are never chained.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final, Literal

import pyarrow as pa
from pyarrow import csv as arrow_csv

from verticil.party.dataset.sources.opening import is_compressed, lines_of, open_bytes, open_text
from verticil.party.dataset.sources.source_table import (
    DatasetRule,
    TablePart,
    attempt,
    next_of,
    unreadable,
    value_too_long,
)
from verticil.party.dataset.sources.texts import byte_lengths, first_long, text_column
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import VALUE_BYTES

_BLOCK_BYTES: Final = 1 << 19  # a CSV part, of which Arrow reads 32 ahead
LONGEST_ROW_BYTES: Final = 4 << 20
"""Most bytes of a row of a CSV file, its header included."""
_LEAST_ROWS: Final = 4096  # of a part that more is to follow
_PART_ROWS: Final = 65536  # of one with few columns: texts that parts have in common are looked up once a part
_PART_CELLS: Final = 2_000_000
DELIMITERS: Final = {
    ",": "a comma",
    ";": "a semicolon",
    "\t": "a tab",
    "|": "a bar",
    ":": "a colon",
    "^": "a caret",
    "~": "a tilde",
    " ": "a blank",
}


def csv_names(rule: DatasetRule) -> tuple[str, ...]:
    """Return the names in the first row of one CSV file; raises as `header`."""
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
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if rule.quote else csv.QUOTE_NONE
    with closing(lines_of(rule)) as lines:
        return list(islice(filter(None, csv.reader(lines, delimiter=delimiter, quoting=quoting)), n_rows))


def check_delimiter(rule: DatasetRule, column_names: Sequence[str]) -> None:
    """Refuse a file whose header has some of the `column_names` columns only if another delimiter separates them.

    Raises:
        DataFault: DATA_UNREADABLE.
    """
    for delimiter, delimiter_name in DELIMITERS.items():
        n_present = len(set(column_names) & set(_csv_header(rule, delimiter)))
        if n_present and delimiter != rule.delimiter:
            toml_value = '"\\t"' if delimiter == "\t" else f'"{delimiter}"'
            own_name = DELIMITERS.get(rule.delimiter, f"'{rule.delimiter}'")
            raise unreadable(
                rule,
                f"wrong delimiter: with {own_name} none of {len(set(column_names))} expected columns is found, "
                f"with {delimiter_name} {n_present}",
                hint=f"set delimiter = {toml_value} in [dataset.NAME] of party.toml, or write the table with {own_name}",
            )


def csv_parts(rule: DatasetRule, column_names: Sequence[str]) -> Iterator[TablePart]:
    """Yield the rows of one CSV file; raises as `read_parts`."""
    batches, ragged_rows = list[pa.RecordBatch](), list[int]()
    least_rows = max(_LEAST_ROWS, min(_PART_ROWS, _PART_CELLS // max(len(column_names), 1)))
    for rows, left_out in _csv_batches(rule, column_names):
        for batch in rows:
            is_large = batch.get_total_buffer_size() > VALUE_BYTES  # else no text of it can be too long
            if is_large and any(first_long(column, byte_lengths(column)) is not None for column in batch.columns):
                raise _why_unreadable(rule, column_names)
        batches += rows
        ragged_rows += left_out
        if sum(map(len, batches)) >= least_rows:
            yield _csv_part(column_names, batches, ragged_rows)
            batches, ragged_rows = [], []
    if batches or ragged_rows:
        yield _csv_part(column_names, batches, ragged_rows)


def _csv_part(column_names: Sequence[str], batches: Sequence[pa.RecordBatch], ragged_rows: Sequence[int]) -> TablePart:
    """Rows that were read one behind the other, and the numbers of those that were left out among them."""
    columns: list[pa.Array] = batches[0].columns if batches else []
    if len(batches) > 1:
        columns = [one.combine_chunks() for one in pa.Table.from_batches(batches).unify_dictionaries().columns]
    return TablePart(
        n_rows=sum(map(len, batches)),
        columns=dict(zip(column_names, map(text_column, columns), strict=bool(batches))),
        n_ragged=len(ragged_rows),
        first_ragged=ragged_rows[0] if ragged_rows else None,
    )


def _csv_batches(rule: DatasetRule, column_names: Sequence[str]) -> Iterator[tuple[list[pa.RecordBatch], list[int]]]:
    """Rows of a block, none at the end, and the numbers of rows that were left out meanwhile; raises as `read_parts`."""
    if len(attempt(lambda: _first_rows(rule, rule.delimiter, 2), csv.Error, OSError, UnicodeError) or "??") < 2:
        return  # the reader takes a header without a line end for a damaged file
    errors = (pa.ArrowException, ValueError, OSError)
    n_rows = last_ragged = 0  # that were handed out; the last row of them that was left out
    for block_bytes in (_BLOCK_BYTES, LONGEST_ROW_BYTES):
        ragged_rows: list[int] = []
        reader = attempt(partial(_csv_reader, rule, column_names, block_bytes, last_ragged, ragged_rows), *errors)
        again = n_rows
        while reader is not None and (batches := attempt(partial(next_of, reader), *errors)) is not None:
            rows = [part[again:] for part in batches]
            again = max(0, again - sum(map(len, batches)))
            n_rows, last_ragged = n_rows + sum(map(len, rows)), max([last_ragged, *ragged_rows])
            yield rows, [*ragged_rows]
            ragged_rows.clear()
            if not batches:
                return
    raise _why_unreadable(rule, column_names)


def _csv_reader(
    rule: DatasetRule, column_names: Sequence[str], block_bytes: int, last_ragged: int, ragged_rows: list[int]
) -> arrow_csv.CSVStreamingReader:
    """Read a file in blocks of so many bytes; add to `ragged_rows` the rows behind `last_ragged` that are left out."""

    def leave_out(row: arrow_csv.InvalidRow) -> str:
        if row.number > last_ragged:
            ragged_rows.append(row.number)
        return "skip"

    return arrow_csv.open_csv(
        open_bytes(rule) if is_compressed(rule) else rule.path,
        # One thread: rows are then numbered, and a party's machine has other work.
        read_options=arrow_csv.ReadOptions(
            use_threads=False, block_size=block_bytes, encoding=rule.encoding, skip_rows=rule.skip
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=rule.delimiter,
            quote_char='"' if rule.quote else False,
            newlines_in_values=rule.quote,
            invalid_row_handler=leave_out,
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=column_names,
            column_types=dict.fromkeys(column_names, pa.dictionary(pa.int32(), pa.string())),
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )


def _why_unreadable(rule: DatasetRule, column_names: Sequence[str]) -> DataFault:
    position = undecodable(rule)
    if position is not None:
        return unreadable(
            rule,
            f"not {rule.encoding} at byte {position}",
            hint='set encoding in [dataset.NAME], for instance "latin-1" or "cp1252", or convert the file',
        )
    if (place := _long_value(rule, column_names)) is not None:
        return value_too_long(rule, *place)
    return unreadable(
        rule,
        f"not readable as CSV: a row is longer than {LONGEST_ROW_BYTES >> 20} MiB or cut off",
        hint="is there a quotation mark that is never closed?",
    )


def _long_value(rule: DatasetRule, column_names: Sequence[str]) -> tuple[str, int] | None:
    """Return column and row of the first value above `VALUE_BYTES` in a CSV file, which is read a piece at a time."""
    names = csv_names(rule)
    marks = re.compile(f"[\r\n{chr(34) if rule.quote else ''}{re.escape(rule.delimiter)}]")
    column = size = 0
    row, is_quoted, is_empty = 1, False, True
    with open_text(rule, errors="surrogateescape") as file:
        for piece in iter(partial(file.read, 1 << 20), ""):
            start = 0
            for mark in [*marks.finditer(piece), None]:
                end = len(piece) if mark is None else mark.start()
                size += len(piece[start:end].encode("utf-8", "surrogatepass"))
                is_empty = is_empty and not size
                if size > VALUE_BYTES and column < len(names) and names[column] in column_names:
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
    n_consumed = 0
    try:
        with open_bytes(rule) as file:
            while True:
                chunk = file.read(1 << 20)
                pending = len(decoder.getstate()[0])
                try:
                    decoder.decode(chunk, final=not chunk)
                except UnicodeDecodeError as error:
                    return n_consumed - pending + error.start
                if not chunk:
                    return None
                n_consumed += len(chunk)
    except OSError:
        return None
