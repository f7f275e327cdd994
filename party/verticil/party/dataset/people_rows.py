"""One row a person, of a table with several (`DatasetRule.one_row`), and columns that sum up rows of a related table.

Everything that reads a table of people reads it here: a table with one row a person and no summaries is handed through. What a
database can do the database does (`sources.row_queries`). Rows of files, and what comes from several places, are put together by
DuckDB, in memory up to `MEMORY` and then in a folder of its own; nothing of that stays. Over files ids are compared after the
study's steps (`DatasetRule.normalise`).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pyarrow as pa

from verticil.party.dataset.pseudonyms import packed_ids
from verticil.party.dataset.sources import open_source
from verticil.party.dataset.sources.column_rules import columns_of_summary
from verticil.party.dataset.sources.conditions import columns_in, holds, read_condition
from verticil.party.dataset.sources.duckdb import MEMORY
from verticil.party.dataset.sources.optional_packages import require_duckdb
from verticil.party.dataset.sources.row_queries import (
    PERSON,
    PLACE,
    RANK,
    TOTAL,
    VALUE,
    first_ranked,
    ranked,
    summarised,
)
from verticil.party.dataset.sources.source_table import DATABASES, DatasetRule, Summary, TablePart, TextColumn
from verticil.party.dataset.sources.stream import translate_errors
from verticil.shared.core.arrays import Bools
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.written_values.dates import is_pattern
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.mechanisms.gaussian import derived_key

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
_LOTS: Final = b"verticil/party/one-row/v1"
_ROWS_AT_ONCE: Final = 65_536


def for_study(rule: DatasetRule, dataset: str, normalise: Sequence[str], *, site_secret: bytes) -> DatasetRule:
    """Return the rule by which a study's people are read: with the steps for ids, and the secret that chooses ``any`` row.

    Args:
        rule: of the data set.
        dataset: its name.
        normalise: steps of the study.
        site_secret: of this site.
    """
    return replace(rule, normalise=tuple(normalise), lots=derived_key(site_secret, _LOTS, dataset.encode()))


def header(rule: DatasetRule) -> tuple[str, ...]:
    """Return the names of the columns of people, those of summaries last; raises as `open_source.header`.

    Databases are asked whether they understand what they are going to be asked.
    """
    names = open_source.header(rule)
    if rule.one_row:
        _require_columns(rule, names, rule.order)
        if rule.format in DATABASES:
            open_source.header(ranked(rule, names))
        else:
            require_duckdb("one row a person")
    for summary in _summaries(rule):
        require_duckdb("a summary of rows")
        related = rule.tables[summary.table]
        own = open_source.header(related)
        _require_columns(related, own, [related.id, *related.order, *columns_of_summary(summary)])
        if related.format in DATABASES:
            open_source.header(summarised(related, own, summary))
    return (*names, *dict.fromkeys(summary.source for summary in _summaries(rule)))


def read_parts(rule: DatasetRule, sources: Sequence[str]) -> Iterator[TablePart]:
    """Read the rows of people, part by part; arguments and errors as `open_source.read_parts`."""
    summaries = {summary.source: summary for summary in _summaries(rule) if summary.source in sources}
    if not (rule.one_row or summaries):
        return open_source.read_parts(rule, sources)
    own = [name for name in dict.fromkeys([rule.id, *sources]) if name not in summaries]
    parts = _one_row(rule, own) if rule.one_row else open_source.read_parts(rule, own)
    return _with_summaries(rule, parts, summaries) if summaries else parts


def _summaries(rule: DatasetRule) -> tuple[Summary, ...]:
    return tuple(column.summary for column in rule.columns.values() if column.summary is not None)


def _require_columns(rule: DatasetRule, names: Sequence[str], column_names: Sequence[str]) -> None:
    if (fault := open_source.missing_columns(rule, names, column_names)) is not None:
        raise fault


# ---- one row a person


def _one_row(rule: DatasetRule, names: Sequence[str]) -> Iterator[TablePart]:
    if rule.format not in DATABASES:
        yield from _one_row_of_files(rule, names)
        return
    everything = open_source.header(rule)
    if rule.one_row != "any":
        yield from open_source.read_parts(first_ranked(rule, everything, last=rule.one_row == "last"), names)
        return
    for part in open_source.read_parts(ranked(rule, everything), [*names, RANK, TOTAL]):
        if part.n_rows:
            ids = part.columns[rule.id]
            people = packed_ids(ids.distinct, rule.normalise).texts()
            rank, total = (_whole_numbers(part.columns[name]) for name in (RANK, TOTAL))
            yield _kept(part, names, _is_lot(rule, [people[k] for k in ids.index.tolist()], rank, total))


def _is_lot(rule: DatasetRule, people: Sequence[bytes], rank: Sequence[int], total: Sequence[int]) -> Bools:
    """Return which rows are those that lots choose: of each person the one whose number a secret and the id give."""

    @cache
    def lot_of(person: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(person, key=rule.lots, digest_size=8).digest(), "big")

    return np.array(
        [number == 1 + lot_of(person) % rows for person, number, rows in zip(people, rank, total, strict=True)],
        np.bool_,
    )


def _whole_numbers(column: TextColumn) -> list[int]:
    numbers = [int(float(text)) for text in column.distinct]
    return [numbers[place] for place in column.index.tolist()]


def _kept(part: TablePart, names: Sequence[str], is_kept: Bools) -> TablePart:
    columns = {
        name: TextColumn(distinct=part.columns[name].distinct, index=part.columns[name].index[is_kept])
        for name in names
    }
    return replace(part, n_rows=int(is_kept.sum()), columns=columns)


def _one_row_of_files(rule: DatasetRule, names: Sequence[str]) -> Iterator[TablePart]:
    """Choose among the rows of files; those with too many or too few fields are counted and left out, as of any table."""
    wanted = list(dict.fromkeys([*names, *rule.order]))
    orders = [(f"p{k}", f"c{wanted.index(name)}") for k, name in enumerate(rule.order)]
    columns = [f"c{k} BLOB" for k in range(len(wanted))] + [f"{place} DOUBLE" for place, _ in orders]
    with _Together(rule) as together:
        together.run(f"CREATE TABLE rows (person BLOB, n BIGINT, {', '.join(columns)})")
        n_before = 0
        for part in open_source.read_parts(rule, wanted):
            if part.n_ragged:
                yield replace(part, n_rows=0, columns={})
            if not part.n_rows:
                continue
            ids = part.columns[rule.id]
            table = {
                "person": _spread(packed_ids(ids.distinct, rule.normalise).texts(), ids),
                "n": pa.array(np.arange(n_before, n_before + part.n_rows)),
                **{f"c{k}": _spread(_bytes(part.columns[name]), part.columns[name]) for k, name in enumerate(wanted)},
                **{
                    place: _spread(_places(rule, name, part.columns[name]), part.columns[name])
                    for (place, _), name in zip(orders, rule.order, strict=True)
                },
            }
            n_before += part.n_rows
            together.add("rows", table)
        way = " DESC" if rule.one_row == "last" else ""
        keys = [
            key for place, text in orders for key in (f"{text} = ''::BLOB", f"{place}{way} NULLS LAST", f"{text}{way}")
        ]
        window = f"PARTITION BY person ORDER BY {', '.join([*keys, f'n{way}'])}"
        chosen = ", ".join(f"c{wanted.index(name)}" for name in names)
        # Who has no id is nobody: each such row stays, to be counted where rows of people are read.
        statement = (
            f"SELECT person, r, t, {chosen} FROM (SELECT *, CASE WHEN person = ''::BLOB THEN 1 ELSE row_number() OVER ({window}) "
            "END AS r, CASE WHEN person = ''::BLOB THEN 1 ELSE count(*) OVER (PARTITION BY person) END AS t FROM rows)"
        )
        statement += "" if rule.one_row == "any" else " WHERE r = 1"
        for batch in together.ask(f"{statement} ORDER BY n"):
            part = TablePart(
                n_rows=batch.num_rows,
                columns={name: _text_column(batch.column(3 + k)) for k, name in enumerate(names)},
            )
            if rule.one_row == "any":
                people, rank, total = (batch.column(k).to_pylist() for k in range(3))
                part = _kept(part, names, _is_lot(rule, people, rank, total))
            if part.n_rows:
                yield part


# ---- summaries


_FOLDS: Final = {
    "count": "CAST(sum(number) AS BIGINT)",
    "any": "sum(number) > 0",
    "sum": "sum(number)",
    "min": "coalesce(arg_min(value, struct_pack(a := number, b := value)) FILTER (number IS NOT NULL), "
    "min(value) FILTER (value <> ''::BLOB))",
    "max": "coalesce(arg_max(value, struct_pack(a := number, b := value)) FILTER (number IS NOT NULL), "
    "max(value) FILTER (value <> ''::BLOB))",
    "first": "arg_min(value, struct_pack(a := word = ''::BLOB, b := place IS NULL, c := coalesce(place, 0), d := word, "
    "e := n))",
    "last": "arg_max(value, struct_pack(a := word <> ''::BLOB, b := place IS NOT NULL, c := coalesce(place, 0), d := word, "
    "e := n))",
}
"""Summary -> what DuckDB makes of a person's rows, or of what a database made of some of them."""
_WITHOUT_ROWS: Final = {"count": "0", "any": "no", "sum": "0"}
"""Summary -> its text where no row counts; of the others it is empty."""


def _with_summaries(
    rule: DatasetRule, parts: Iterable[TablePart], summaries: dict[str, Summary]
) -> Iterator[TablePart]:
    """Yield the parts with the columns of some summaries."""
    with _Together(rule) as together:
        for k, summary in enumerate(summaries.values()):
            related = replace(rule.tables[summary.table], normalise=rule.normalise)
            together.run(
                "CREATE TABLE rows (person BLOB, n BIGINT, value BLOB, number DOUBLE, place DOUBLE, word BLOB)"
            )
            n_before = 0
            for table, n_rows in _partial(related, summary):
                n = pa.array(np.arange(n_before, n_before + n_rows))
                together.add("rows", {"person": table["person"], "n": n, **table})
                n_before += n_rows
            fold = f"SELECT person, {_FOLDS[summary.kind]} AS v FROM rows WHERE person <> ''::BLOB GROUP BY person"
            together.run(f"CREATE TABLE s{k} AS {fold}")
            together.run("DROP TABLE rows")
        chosen = ", ".join(f"s{k}.v" for k in range(len(summaries)))
        joins = " ".join(f"LEFT JOIN s{k} ON s{k}.person = part.person" for k in range(len(summaries)))
        for part in parts:
            if not part.n_rows:
                yield part
                continue
            ids = part.columns[rule.id]
            people = pa.table(
                {
                    "person": _spread(packed_ids(ids.distinct, rule.normalise).texts(), ids),
                    "n": pa.array(np.arange(part.n_rows)),
                }
            )
            together.show("part", people)
            summed = pa.Table.from_batches(list(together.ask(f"SELECT {chosen} FROM part {joins} ORDER BY part.n")))
            columns = {
                source: _texts_of(summary, summed.column(k).to_pylist())
                for k, (source, summary) in enumerate(summaries.items())
            }
            yield replace(part, columns={**part.columns, **columns})


def _partial(related: DatasetRule, summary: Summary) -> Iterator[tuple[dict[str, pa.Array], int]]:
    """Yield rows of a related table with what the summary needs of each: value, number, place and its text.

    Of a database a row is what the database made of all rows with one id.
    """
    if related.format in DATABASES:
        has_place = summary.kind in ("first", "last")
        asked = summarised(related, open_source.header(related), summary)
        for part in open_source.read_parts(asked, [PERSON, VALUE, *[PLACE] * has_place]):
            if part.n_rows:
                yield _values(related, summary, part, (PERSON, VALUE, PLACE if has_place else "")), part.n_rows
        return
    condition = read_condition(summary.where) if summary.where else None
    order = related.order[0] if summary.kind in ("first", "last") else ""
    names = [related.id, *filter(None, (summary.column, order)), *(columns_in(condition) if condition else ())]

    @cache
    def number_of(column: str, text: str) -> float | None:
        return _reader(related.written(column))(text)

    @cache
    def moment_of(column: str, text: str) -> float | None:
        return _reader("plain")(text) if is_pattern(related.written(column)) else None

    for part in open_source.read_parts(related, names):
        if part.n_rows and condition is not None:
            is_counted = holds(condition, part.columns, number_of, moment_of, part.n_rows)
            counted = _kept(part, list(dict.fromkeys(names)), is_counted)
            yield _values(related, summary, counted, (related.id, summary.column, order)), counted.n_rows
        elif part.n_rows:
            yield _values(related, summary, part, (related.id, summary.column, order)), part.n_rows


def _values(
    related: DatasetRule, summary: Summary, part: TablePart, names: tuple[str, str, str]
) -> dict[str, pa.Array]:
    """Return rows as DuckDB folds them; `names` are those of the person, the value and the place, empty: the rows have none."""
    person, value, place = names
    ids = part.columns[person]
    nothing = pa.nulls(part.n_rows, pa.float64())
    if not value:
        numbers = pa.array(np.ones(part.n_rows))
    elif summary.kind in ("first", "last"):
        numbers = nothing
    else:
        read = _reader("plain" if related.format in DATABASES else summary.written)
        numbers = _spread([read(text) for text in part.columns[value].distinct], part.columns[value])
    return {
        "person": _spread(packed_ids(ids.distinct, related.normalise).texts(), ids),
        "value": _spread(_bytes(part.columns[value]), part.columns[value])
        if value
        else pa.nulls(part.n_rows, pa.binary()),
        "number": numbers.cast(pa.float64()),
        "place": _spread(_places(related, place, part.columns[place]), part.columns[place]).cast(pa.float64())
        if place
        else nothing,
        "word": _spread(_bytes(part.columns[place]), part.columns[place])
        if place
        else pa.nulls(part.n_rows, pa.binary()),
    }


def _texts_of(summary: Summary, values: Sequence[object]) -> TextColumn:
    texts = [_text_of(summary, value) for value in values]
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return TextColumn(distinct=tuple(places), index=np.array([places[text] for text in texts], np.int32))


def _text_of(summary: Summary, value: object) -> str:
    if value is None:
        return _WITHOUT_ROWS.get(summary.kind, "")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    number = float(str(value))
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else f"{number:.15g}"


# ---- values and places


@cache
def _reader(written: str) -> Callable[[str], float | None]:
    """Return what reads the number that orders a text: itself, or the seconds of a date or a moment; None: it has none."""
    if is_pattern(written):
        try:
            return value_reader("datetime", written)
        except ValueError:
            return value_reader("time", written)
    number = value_reader("number", written)
    moments = [value_reader(kind) for kind in ("datetime", "time")]

    def read(text: str) -> float | None:
        values = (read_value(text) for read_value in (number, *moments))
        return next((value for value in values if value is not None), None)

    return read


def _places(rule: DatasetRule, name: str, column: TextColumn) -> list[float | None]:
    read = _reader(rule.written(rule.order[0]) if name == PLACE else rule.written(name))
    return [read(text) for text in column.distinct]


def _bytes(column: TextColumn) -> list[bytes]:
    return [text.encode("utf-8", "surrogateescape") for text in column.distinct]


def _spread(values: Sequence[object], column: TextColumn) -> pa.Array:
    """Return the value of each row, of values of its distinct texts."""
    kind = pa.binary() if any(isinstance(value, bytes) for value in values) else pa.float64()
    return pa.array(values, kind).take(pa.array(column.index))


def _text_column(column: pa.Array) -> TextColumn:
    encoded = column.dictionary_encode()
    texts = tuple(value.decode("utf-8", "surrogateescape") for value in encoded.dictionary.to_pylist())
    return TextColumn(distinct=texts, index=encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32))


class _Together:
    """A DuckDB of its own in which rows are put together; its folder is private and goes with it."""

    def __init__(self, rule: DatasetRule) -> None:
        self._rule = rule
        self._folder = tempfile.TemporaryDirectory(prefix="verticil-rows-")

    def __enter__(self) -> _Together:
        import duckdb

        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "memory_limit": MEMORY,
            "autoinstall_known_extensions": False,
            "temp_directory": str(Path(self._folder.name)),
            "preserve_insertion_order": False,
        }
        self._connection: DuckDBPyConnection = duckdb.connect(":memory:", config=settings)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._folder.cleanup()

    def run(self, statement: str) -> None:
        """Carry out a statement that returns nothing; raises as `ask`."""

        def carry_out() -> Iterator[None]:
            self._connection.execute(statement)
            yield None

        for _ in self._translated(carry_out()):
            pass

    def add(self, table: str, columns: dict[str, pa.Array]) -> None:
        """Add rows to a table, whose columns they name in order."""
        self.show("more", pa.table(columns))
        self.run(f"INSERT INTO {table} SELECT * FROM more")

    def show(self, name: str, table: pa.Table) -> None:
        """Let statements read a table by a name."""
        self._connection.register(name, table)

    def ask(self, statement: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a statement returns.

        Raises:
            DataFault: DISK_FULL, there is no room for them.
        """

        def batches() -> Iterator[pa.RecordBatch]:
            with closing(self._connection.sql(statement).to_arrow_reader(_ROWS_AT_ONCE)) as reader:
                yield from reader

        yield from self._translated(batches())

    def _translated(self, items: Iterator[T]) -> Iterator[T]:
        import duckdb

        def fault(error: Exception) -> DataFault:
            is_full = isinstance(error, duckdb.OutOfMemoryException) or "No space" in str(error)
            return DataFault(
                "DISK_FULL" if is_full else "DATA_INTERRUPTED",
                f"{self._rule.name}: no room for putting a person's rows together beyond {MEMORY}"
                if is_full
                else f"{self._rule.name}: DuckDB could not put a person's rows together",
                hint="it is written where the system has its temporary files; see TMPDIR" if is_full else "",
            )

        return translate_errors(items, (duckdb.Error, pa.ArrowException, OSError), fault)
