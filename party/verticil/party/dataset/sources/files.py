"""Tables in files: one, those of a folder (also one that is partitioned by ``key=value`` folders), or those of a pattern.

Promises: files are read in the order of their names, a CSV file as `verticil.party.dataset.sources.csv_files` does; columns are
found by name, wherever they stand; a folder ``key=value`` is a column ``key``. Only the columns that are asked for are read, and
memory is bounded by a part. When a file comes, goes or changes while the table is read, reading fails: what was read is no state
that the table ever had. No message names a folder of a partition, whose name is a value.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from verticil.party.dataset.sources import statistics_files, workbooks
from verticil.party.dataset.sources.csv_files import csv_names, csv_parts
from verticil.party.dataset.sources.source_table import (
    ENDINGS,
    PART_ROWS,
    STATISTICS,
    WORKBOOKS,
    DatasetRule,
    TablePart,
    TextColumn,
    attempt,
    check_file,
    unreadable,
)
from verticil.party.dataset.sources.stream import ARROW_ERRORS, merge_batches, parts_of_batches, translate_errors
from verticil.shared.core.errors import DataFault, VerticilError
from verticil.shared.documents.foreign_files.arrow_batches import LargeBatchError, check_batches
from verticil.shared.documents.foreign_files.parquet_pages import (
    LargePagesError,
    PageSizes,
    check_footer,
    footer_problem,
    page_sizes,
)

_OF_CSV: Final = frozenset({".csv", ".tsv", ".txt"})
_PATTERN: Final = "*?["
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


def is_many(path: Path) -> bool:
    """Return whether a path means several files."""
    return path.is_dir() or (not path.is_file() and any(sign in str(path) for sign in _PATTERN))


def header(rule: DatasetRule) -> tuple[str, ...]:
    """Return the names of the columns that all files have, in the order of the first; raises as `open_source.header`."""
    headers = [(*_names(replace(rule, path=file)), *_keys(rule, file)) for file in _files(rule)]
    others = [set(names) for names in headers[1:]]
    return tuple(name for name in headers[0] if all(name in names for names in others))


def types_without_text(rule: DatasetRule) -> dict[str, str]:
    """Return the columns of a Parquet or Arrow file that cannot be read, with their types, such as durations and lists."""
    if rule.format not in {"parquet", "arrow"} or not rule.path.is_file():
        return {}
    return {field.name: str(field.type) for field in _Opened(rule).schema if not is_textual(field.type)}


def parts(rule: DatasetRule, column_names: Sequence[str]) -> Iterator[TablePart]:
    """Yield the rows of all files; raises as `table.read_parts`."""
    files = _files(rule)
    before = _states(files)
    kinds: dict[str, str] = {}
    for number, file in enumerate(files, 1):
        one = replace(rule, path=file)
        keys = _keys(rule, file)
        inside = [name for name in column_names if name not in keys]
        if not set(inside) <= set(_names(one)):
            raise _make_changed_fault(rule)
        if rule.format == "csv":
            file_parts = csv_parts(one, inside)
        elif rule.format in WORKBOOKS:
            file_parts = workbooks.parts(one, inside)
        elif rule.format in STATISTICS:
            file_parts = statistics_files.parts(one, inside)
        else:
            table_file = _Opened(one)
            _check_kinds(
                rule, table_file, inside, kinds, where=f" in file {number} of {len(files)}" if files[1:] else ""
            )
            file_parts = table_file.parts(inside)
        for part in file_parts:
            columns = {name: _one_value(text, part.n_rows) for name, text in keys.items() if name in column_names}
            yield replace(part, columns={**part.columns, **columns}) if columns else part
    if _states(files) != before or (is_many(rule.path) and _files(rule) != files):
        raise _make_changed_fault(rule)


def _make_changed_fault(rule: DatasetRule) -> DataFault:
    hint = "write a new table under another name and rename it when it is whole"
    return DataFault("DATA_INTERRUPTED", f"{rule.name}: changed while it was read", hint=hint)


def _one_value(text: str, n_rows: int) -> TextColumn:
    return TextColumn(distinct=(text,), index=np.zeros(n_rows, dtype=np.int32))


# ---- which files


def _files(rule: DatasetRule) -> list[Path]:
    """List the files of the table by name; the path alone where it is one file."""
    path = rule.path
    if not is_many(path):
        return [path]
    hint = "see path and format in [dataset.NAME] of party.toml"
    if not path.is_dir():
        files = sorted(file for name in glob.glob(str(path), recursive=True) if (file := Path(name)).is_file())
    else:
        below = [entry.relative_to(path) for entry in path.rglob("*")]
        if any(entry.name == "_delta_log" for entry in below):
            hint = "which of its files count stands in its log: read it through DuckDB, or write it out as Parquet"
            raise unreadable(rule, "this is a Delta table, expected plain files", hint=hint)
        below = [entry for entry in below if not any(name.startswith((".", "_")) for name in entry.parts)]
        endings = (
            _OF_CSV if rule.format == "csv" else {ending for ending, kind in ENDINGS.items() if kind == rule.format}
        )
        names = sorted(entry for entry in below if entry.suffix.lower() in endings and (path / entry).is_file())
        files = [path / entry for entry in names]
        with_files = {folder for entry in names for folder in entry.parents}
        partitions = [entry for entry in below if "=" in entry.name and (path / entry).is_dir()]
        if empty := sum(entry not in with_files for entry in partitions):
            problem = f"{rule.name}: {empty} of its {len(partitions)} partitions have no {rule.format} file"
            raise DataFault(
                "DATA_FILE_MISSING", problem, hint="is it still being copied? Remove a folder that has none"
            )
    if not files:
        raise DataFault("DATA_FILE_MISSING", f"{rule.name}: no {rule.format} file", hint=hint)
    if len({tuple(_keys(rule, file)) for file in files}) > 1:
        problem = "some of its files are in folders that others are not in"
        raise unreadable(rule, problem, hint="expected the same key=value folders around every file")
    return files


def _keys(rule: DatasetRule, file: Path) -> dict[str, str]:
    """Return the columns that a file's folders state; none where `path` is one file."""
    if file == rule.path:
        return {}
    parts = list(rule.path.parts)
    n_fixed = next((i for i, part in enumerate(parts) if any(sign in part for sign in _PATTERN)), len(parts))
    folders = file.parts[n_fixed if not rule.path.is_dir() else len(parts) : -1]
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return {unquote(key): "" if value == _NO_VALUE else unquote(value) for key, _, value in pairs}


def _states(files: Sequence[Path]) -> list[tuple[int, int, int] | None]:
    """Return a state of each file that changes with the file; None: the file is gone."""

    def state(file: Path) -> tuple[int, int, int]:
        status = file.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    return [attempt(partial(state, file), OSError) for file in files]


# ---- what is in them


def _names(rule: DatasetRule) -> tuple[str, ...]:
    check_file(rule)
    if rule.format in WORKBOOKS:
        return workbooks.header(rule)
    if rule.format in STATISTICS:
        return statistics_files.header(rule)
    return csv_names(rule) if rule.format == "csv" else tuple(_Opened(rule).schema.names)


def rows_in_footer(rule: DatasetRule) -> int:
    """Return how many rows a Parquet file says that it has; 0: it cannot be read."""

    def n_rows() -> int:
        check_footer(rule.path)
        return int(parquet.read_metadata(rule.path).num_rows)

    return attempt(n_rows, *ARROW_ERRORS) or 0


class _Opened:
    """A Parquet or Arrow file."""

    def __init__(self, rule: DatasetRule) -> None:
        self._rule = rule
        file = attempt(partial(_open, rule), *ARROW_ERRORS)
        if file is None:
            if rule.format == "parquet" and (problem := footer_problem(rule.path)):
                raise _too_large(rule, problem)
            kind = "a Parquet" if rule.format == "parquet" else "an Arrow"
            raise unreadable(rule, f"not {kind} file, or damaged", hint='for a CSV file set format = "csv"')
        self.schema: pa.Schema = file.schema_arrow if isinstance(file, parquet.ParquetFile) else file.schema

    def parts(self, column_names: Sequence[str]) -> Iterator[TablePart]:
        problem = f"damaged {self._rule.format.capitalize()} file"
        parts = parts_of_batches(self._rule, self._batches(column_names), column_names)

        def fault(error: Exception) -> VerticilError:
            return (
                _too_large(self._rule, str(error))
                if isinstance(error, LargePagesError | LargeBatchError)
                else unreadable(self._rule, problem)
            )

        return translate_errors(parts, ARROW_ERRORS, fault)

    def _batches(self, column_names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._rule.format == "arrow":
            check_batches(self._rule.path)
        file = _open(self._rule, [self.schema.get_field_index(name) for name in column_names])
        if isinstance(file, parquet.ParquetFile):
            yield from self._parquet_batches(file, column_names)
        elif isinstance(file, ipc.RecordBatchStreamReader):
            yield from file
        else:
            for number in range(file.num_record_batches):
                yield file.get_batch(number)

    def _parquet_batches(self, file: parquet.ParquetFile, column_names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read texts as dictionaries, as they are stored: a value of megabytes can stand in a million rows."""
        sizes: PageSizes = page_sizes(self._rule.path, column_names)
        kinds = {name: self.schema.field(name).type for name in column_names}
        types = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        texts = [name for name, kind in kinds.items() if any(is_text(kind) for is_text in types)]
        others = [name for name, kind in kinds.items() if isinstance(kind, pa.BaseExtensionType)]
        n_rows = sizes.batch_rows(PART_ROWS, others)
        groups = groupby(range(file.metadata.num_row_groups), key=lambda number: sizes.dense[number])
        for dense, numbers in groups:
            dictionary_columns = [name for name in texts if name not in dense]
            with parquet.ParquetFile(
                self._rule.path, metadata=file.metadata, read_dictionary=dictionary_columns
            ) as parquet_file:
                batches = parquet_file.iter_batches(
                    batch_size=n_rows, row_groups=list(numbers), columns=list(column_names)
                )
                yield from merge_batches(batches)


def _too_large(rule: DatasetRule, problem: str) -> DataFault:
    hint = "write the file anew, for instance with pandas or DuckDB, or split it"
    return unreadable(rule, f"inflates to more than is read at once: {problem}", hint=hint)


def _open(
    rule: DatasetRule, fields: Sequence[int] | None = None
) -> parquet.ParquetFile | ipc.RecordBatchFileReader | ipc.RecordBatchStreamReader:
    if rule.format == "parquet":
        check_footer(rule.path)
        return parquet.ParquetFile(rule.path)
    options = ipc.IpcReadOptions(included_fields=None if fields is None else list(fields))
    # Not mapped into memory: a file that is cut off while it is read would end the process.
    ipc_file = attempt(lambda: ipc.open_file(pa.OSFile(str(rule.path)), options=options), *ARROW_ERRORS)
    return ipc_file if ipc_file is not None else ipc.open_stream(pa.OSFile(str(rule.path)), options=options)


def _check_kinds(
    rule: DatasetRule, table_file: _Opened, column_names: Sequence[str], kinds: dict[str, str], *, where: str
) -> None:
    """Check that each column has a type that can be written as text, in the same way in every file."""
    for name in column_names:
        kind = table_file.schema.field(name).type
        if not is_textual(kind):
            problem = f"column '{name}' has type {kind}{where}, expected text, numbers, booleans or dates"
            raise unreadable(rule, problem, hint="write the column as text or as a number, or leave it out of the file")
        # Nothing but nulls has no type of its own, and a writer that sees a table in pieces makes numbers of either kind.
        if (style := _name_style(kind)) and kinds.setdefault(name, style) != style:
            problem = f"column '{name}' is {style}{where} and {kinds[name]} in an earlier one, expected one type"
            raise unreadable(rule, problem, hint="write the files anew with one schema")


def _name_style(kind: pa.DataType) -> str:
    """Return how a type is written, in one word; empty: a column of nulls only."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_decimal(kind):
        return f"decimal with {kind.scale} places"
    words = (
        (isinstance(kind, pa.BaseExtensionType), getattr(kind, "extension_name", "").removeprefix("arrow.")),
        (types.is_null(kind), ""),
        (types.is_integer(kind) or types.is_floating(kind), "a number"),
        (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind), "text"),
        (types.is_timestamp(kind), "a date and time" if getattr(kind, "tz", None) is None else "an instant"),
        (types.is_date(kind), "a date"),
        (types.is_time(kind), "a time"),
    )
    return next((word for applies, word in words if applies), "boolean")


def is_textual(kind: pa.DataType) -> bool:
    """Return whether every value of a type of Arrow can be written as text
    (`verticil.party.dataset.sources.texts.text_column`).
    """
    types = pa.types
    if types.is_dictionary(kind):
        return is_textual(kind.value_type) and not types.is_dictionary(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name in {"arrow.uuid", "arrow.json"}
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_temporal, types.is_decimal, types.is_null)
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return any(test(kind) for test in (*texts, *tests)) and not types.is_duration(kind) and not types.is_interval(kind)
