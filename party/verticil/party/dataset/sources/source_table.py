"""How a party's table is read, and what its rows are: columns of texts, part by part.

Promises: every value is text, as with pandas' ``dtype=str, keep_default_na=False`` (``007`` stays ``007``; ``NA`` and ``None``
are texts like any other; contract, section 4); memory is bounded by the part, not by the table. No message carries a value: it
names the file, columns, positions and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.sources.server import Server
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.foreign_files.limits import VALUE_BYTES
from verticil.shared.numerics.knowledge.rules import Knowledge

T = TypeVar("T")
PART_ROWS: Final = 65_536
"""Most rows of a part that comes from anything else."""
Format = Literal[
    "csv", "parquet", "arrow", "duckdb", "sqlite", "server", "xlsx", "xls", "ods", "sav", "dta", "sas7bdat"
]
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
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".xls": "xls",
    ".ods": "ods",
    ".sav": "sav",
    ".zsav": "sav",
    ".dta": "dta",
    ".sas7bdat": "sas7bdat",
}
"""What a file is by the ending of its name, where nothing else says it; else it is CSV."""
WORKBOOKS: Final = frozenset({"xlsx", "xls", "ods"})
STATISTICS: Final = frozenset({"sav", "dta", "sas7bdat"})
_PACKED: Final = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd"}
"""Of Parquet, Arrow and databases; a CSV file may be compressed, and workbooks are zip files."""
_SIGNATURES: Final = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"SQLite": "SQLite",
    b"\xd0\xcf\x11\xe0": "old Excel",
}


SummaryKind = Literal["count", "any", "sum", "min", "max", "first", "last"]
"""What a summary says of a person's rows. The first two are of the rows, the others of a column of theirs."""
OneRow = Literal["", "first", "last", "any"]
"""Which row of a person is read where a table has several; empty: none, as nothing says which is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A column of people that is made of their rows in a related table.

    Attributes:
        table: the related table.
        kind: see `SummaryKind`.
        column: the local column that it is of; empty: of the rows.
        where: which rows count (`conditions`); empty: all.
        written: how the numbers and dates of that column are written.
    """

    table: str
    kind: SummaryKind
    column: str = ""
    where: str = ""
    written: str = "plain"

    @property
    def source(self) -> str:
        """What it is called among the columns of people; another summary has another name."""
        of = f"{self.table}.{self.column}" if self.column else self.table
        return f"{self.kind} of {of}" + (f" where {' '.join(self.where.split())}" if self.where else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """Where a variable comes from.

    Attributes:
        source: the local column.
        recode: local spelling -> declared spelling.
        written: how numbers are written; see `written_values.reading.value_reader`.
        summary: what the column is made of; None: it is a column of the table itself.
    """

    source: str
    recode: Mapping[str, str] = field(default_factory=dict)
    written: str = "plain"
    summary: Summary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRule:
    """How to read one local table: ``[dataset.NAME]`` of party.toml.

    Attributes:
        path: the file, the folder, or a pattern with ``*``; of a server nothing.
        format: what the files are, or ``server``.
        id: the column that names the person.
        delimiter, encoding: of a CSV file.
        skip: physical lines above the header of a CSV file or a sheet, which are left out.
        quote: whether quotation marks enclose values of a CSV file; else they are letters like others.
        sheet: of a workbook; empty: the first one with rows.
        columns: variable -> rule, only where the local table differs from the study.
        has_ids: whether `id` is a column; else each row is a person, as in a table that is never linked.
        server: the database on a server; None: it is a file.
        table, query: of a database: one of the two.
        tables: related tables of the same people, with several rows each, by the name that studies have for them.
        one_row: which row of a person is read where several have the id.
        order: local columns that order a person's rows, for `one_row` and for summaries.
        normalise: steps applied to ids before rows of one person are put together.
        lots: secret of the site by which ``any`` chooses a row; without one it chooses by the id alone.
        place: what a study calls the place where it says how the table is read; empty: party.toml says it.

    Raises:
        Misuse: CONFIG_INVALID, the delimiter is not one ASCII character or the encoding is unknown.
    """

    path: Path = Path()
    format: Format
    id: str
    delimiter: str = ","
    encoding: str = "utf-8"
    skip: int = 0
    quote: bool = True
    sheet: str = ""
    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    has_ids: bool = True
    server: Server | None = None
    table: str = ""
    query: str = ""
    tables: Mapping[str, DatasetRule] = field(default_factory=dict)
    one_row: OneRow = ""
    order: tuple[str, ...] = ()
    normalise: tuple[str, ...] = ()
    lots: bytes = field(default=b"", repr=False)
    place: str = ""

    @property
    def name(self) -> str:
        """What messages call it. They go to the miner too, so nothing of where it is."""
        if self.server is None:
            return self.path.name
        return f"table '{self.table}'" if self.table else "query"

    @property
    def files(self) -> tuple[Path, ...]:
        """What of this machine is read: the table, or what the way to a server needs, and so of related tables."""
        own = (self.path,) if self.server is None else self.server.files
        return (*own, *(file for rule in self.tables.values() for file in rule.files))

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
        """Return the rule of a variable; without one, the local column has the variable's name."""
        return self.columns[variable] if variable in self.columns else ColumnRule(source=variable)

    def written(self, source: str) -> str:
        """Return how a local column is written, by the rule of a variable that is read from it."""
        return next((column.written for column in self.columns.values() if column.source == source), "plain")

    def meaning_of(self, column: ColumnRule) -> str:
        """Return how a column is written and, of people with several rows, which rows it is of: part of what a code means."""
        row = self.one_row and f"{self.one_row} row by {', '.join(self.order) or 'the order of the table'}"
        summary = column.summary
        by = self.tables[summary.table].order if summary is not None and summary.kind in ("first", "last") else ()
        return ", ".join(part for part in (column.written, row, f"by {', '.join(by)}" if by else "") if part)


def with_properties(rule: DatasetRule, knowledge: Knowledge | None, names: Collection[str]) -> DatasetRule:
    """Return the rule to read a table for a study that knows finer values of some columns: their property replaces each.

    As by a recode, which the study states; a recode of the site's own comes first. So it is part of what a code means
    (`perturb.codebook_digest`), and another assignment of values is another release.

    Args:
        rule: of the site.
        knowledge: what the study states.
        names: variables that the table has.
    """
    if knowledge is None:
        return rule
    columns = dict(rule.columns)
    for name in names:
        if property_of := knowledge.properties(name):
            column = rule.column(name)
            own = {text: property_of.get(target, target) for text, target in column.recode.items()}
            columns[name] = replace(column, recode={**property_of, **own})
    return replace(rule, columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """A part of a column: `distinct` texts, and for every row the position of its text there, int32."""

    distinct: tuple[str, ...] = field(repr=False)
    index: NDArray[np.int32] = field(repr=False)

    def texts(self) -> list[str]:
        """Return the text of every row."""
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


def attempt(work: Callable[[], T], *errors: type[Exception]) -> T | None:
    """Return the result of `work`; None when it fails with one of `errors`, so that no exception that quotes data is
    chained.
    """
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
    packed = {} if rule.format in {"csv", *WORKBOOKS, *STATISTICS} else _PACKED
    kind = next((kind for signature, kind in {**_SIGNATURES, **packed}.items() if start.startswith(signature)), "")
    if kind and kind.lower() != rule.format and not (kind == "old Excel" and rule.format == "xls"):
        hint = f'set format = "{"xls" if kind == "old Excel" else kind.lower()}"'
        hint = "unpack the file first" if kind in packed.values() else hint
        raise unreadable(
            rule, f"this is {'an' if kind[0] in 'Ao' else 'a'} {kind} file, expected {rule.format}", hint=hint
        )


def value_too_long(rule: DatasetRule, column: str, row: int) -> DataFault:
    """Return the fault of a table with a value above `VALUE_BYTES`; `row` counts from 1, in a CSV file with the header."""
    return unreadable(
        rule,
        f"column '{column}': the value in row {row} has more than {VALUE_BYTES >> 20} MiB, expected a category or a number",
        hint="leave the column out, or shorten it; in a CSV file: is there a quotation mark that is never closed?",
    )


def unreadable(rule: DatasetRule, problem: str, *, hint: str = "") -> DataFault:
    """Return the fault of a table that is there and cannot be read."""
    return DataFault("DATA_UNREADABLE", f"{rule.name}: {problem}", hint=hint)


def next_of(items: Iterator[T]) -> list[T]:
    """Return the next item in a list; the list is empty at the end, so that None can say that reading failed."""
    for item in items:
        return [item]
    return []
