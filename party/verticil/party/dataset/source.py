"""Reading a local table: one row a person, into ids and codes of the declared variables.

Promises: no value of a table keeps it from being used. Rows whose id is empty (or not text), or equal to another's after
normalisation, are left out, all of them, and so are rows with too many or too few fields; of the others every value has a code,
or stands in `Records.undeclared` for a category to be drawn (`substitutes`). Everything that was left out or put in another's
place is counted; the counts are for the site's people, and decide nothing. A table may fail as a file, and for a column that is
not there. What is kept is one id and one code per value; no message carries a value or an id.

`read_records` reads; `read_batches` hands out, batch by batch, what a large table has; `check_records` counts, and returns with
remarks what a person may want to mend, for ``verticil party check``. See `table` for how files are read and `encoding` for what a
text becomes.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.compound_codes import Compound
from verticil.party.dataset.encoding import Codebook, Outcome
from verticil.party.dataset.gathered_records import MEMORY_ROWS, single
from verticil.party.dataset.macs import Macs
from verticil.party.dataset.people_rows import header, read_parts
from verticil.party.dataset.perturb import TAG_BYTES
from verticil.party.dataset.pseudonyms import normalise_ids, packed_ids
from verticil.party.dataset.sources.open_source import missing_columns
from verticil.party.dataset.sources.source_table import ColumnRule, DatasetRule, TablePart, TextColumn
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.columns import columns as columns_of
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.sorting import Sorter

_Read: TypeAlias = tuple[Codes, NDArray[np.uint8]]
"""Of some rows of a column the codes and the outcomes."""
_Against: TypeAlias = Callable[[Mapping[str, Codes], Mapping[str, NDArray[np.bool_]]], Mapping[str, NDArray[np.bool_]]]
"""Looks at codes, and at which of them are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """What became of the values of one column; counts of rows that are used.

    Attributes:
        variable, source: the study's name and the local column.
        missing: written as missing.
        other: unseen, and became the declared `other`.
        clamped: outside the bins, and put into the nearest one.
        unseen: without a declared category: empty ones became the declared `missing`, for the others one is drawn.
        absent: declared categories that no row has.
        near_misses: of the unseen ones, how many are empty, or would be declared ones without blanks around them, in other
            letter case, or without a decimal point behind a whole number.
    """

    variable: str
    source: str
    missing: int
    other: int
    clamped: int
    unseen: int
    absent: int
    near_misses: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a person may want to mend; `code` is the name of its kind. Counts and columns, no value."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The rows of a table that are used.

    Attributes:
        ids: normalised, distinct, not empty; in file order; none where the table has no ids.
        codes: variable -> (n,), uint8 or uint16, read-only, in the same order; 0 where undeclared.
        undeclared: variable without `other` -> (n,), bool: the records that get a category drawn for them.
        n_rows: rows of the file, with those that were left out.
    """

    ids: tuple[str, ...] = field(repr=False)
    codes: Mapping[str, Codes] = field(repr=False)
    undeclared: Mapping[str, NDArray[np.bool_]] = field(repr=False)
    n_rows: int

    @property
    def n_records(self) -> int:
        """Number of rows that are used."""
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What there is to say about a table without quoting it.

    Attributes:
        n_rows: rows of the file.
        n_records: rows that are used.
        n_ragged: rows left out, with too many or too few fields.
        n_empty_ids, n_repeated_ids: rows left out, whose id is empty, or equal to that of another row.
        counts: one for each variable whose column is there.
        faults: a column that is not there.
        remarks: what became of values that the study does not declare, and of rows that cannot be used.
    """

    n_rows: int
    n_records: int
    n_ragged: int
    n_empty_ids: int
    n_repeated_ids: int
    counts: tuple[ColumnCounts, ...]
    faults: tuple[DataFault, ...]
    remarks: tuple[Remark, ...]


def read_records(rule: DatasetRule, variables: Sequence[Variable], normalise: Sequence[str]) -> Records:
    """Read the table and encode the columns of `variables`.

    Args:
        rule: the table.
        variables: what to encode, each once.
        normalise: steps applied to ids; see `linkage.normalise_ids`.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY (not even a header) or DATA_COLUMN_MISSING.
        Misuse: CONFIG_INVALID, a recode leads to no declared category.
    """
    scan = _Scan(rule, variables)
    if scan.absent is not None:
        raise scan.absent
    scan.rows(normalise)
    return Records(
        ids=tuple(scan.ids),
        codes={column.variable.name: column.codes(scan.kept) for column in scan.columns},
        undeclared={
            column.variable.name: column.find_undeclared(scan.kept)
            for column in scan.columns
            if column.variable.other is None
        },
        n_rows=scan.n_rows,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some rows of a table, whoever they name.

    Attributes:
        ids: distinct texts of the id column, as they stand there; index: (n,), int32, the place of each row's there.
        texts: local column -> its texts, of every column that is read.
        codes, undeclared: as in `Records`.
        n_rows: rows of the file, with those of too many or too few fields.
    """

    ids: tuple[str, ...] = field(repr=False)
    index: NDArray[np.int32] = field(repr=False)
    texts: Mapping[str, TextColumn] = field(repr=False)
    codes: Mapping[str, Codes] = field(repr=False)
    undeclared: Mapping[str, NDArray[np.bool_]] = field(repr=False)
    n_rows: int


def read_batches(rule: DatasetRule, variables: Sequence[Variable]) -> Iterator[Batch]:
    """Read the table batch by batch, in file order, for a reader that looks at each once. Arguments and errors as
    `read_records`.
    """
    scan = _Scan(rule, variables)
    if scan.absent is not None:
        raise scan.absent
    for part in read_parts(rule, [rule.id, *(column.source for column in scan.columns)]):
        names = part.columns[rule.id] if part.n_rows else None
        parts = {column.variable: column.part(part.columns[column.source]) for column in scan.columns if part.n_rows}
        yield Batch(
            ids=() if names is None else names.distinct,
            index=np.empty(0, dtype=np.int32) if names is None else names.index,
            texts={column.source: part.columns[column.source] for column in scan.columns if part.n_rows},
            codes={variable.name: codes for variable, (codes, _) in parts.items()},
            undeclared={
                variable.name: is_undeclared(variable, outcomes)
                for variable, (_, outcomes) in parts.items()
                if variable.other is None
            },
            n_rows=part.n_rows + part.n_ragged,
        )


def is_undeclared(variable: Variable, outcomes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which rows get a random category, by what became of their texts."""
    return outcomes > Outcome.EMPTY if variable.missing is not None else outcomes >= Outcome.EMPTY


def check_records(
    rule: DatasetRule,
    variables: Sequence[Variable],
    normalise: Sequence[str],
    compounds: Sequence[Compound] = (),
    knowledge: Knowledge | None = None,
    *,
    folder: Path | None = None,
) -> TableReport:
    """Read the table and report counts; nothing is kept. Rows wait outside memory above `people.MEMORY_ROWS`.

    Args:
        rule, variables, normalise: as for `read_records`.
        compounds: of these variables: combinations that the study declares impossible are counted.
        knowledge: what the study states of these variables and no others: rows that are otherwise are counted. A column that
            follows from others is read where the table has it, and nowhere else.
        folder: where rows wait; None: where the system has its temporary files.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE or DATA_EMPTY, when there is nothing to count; DISK_FULL.
        Misuse: CONFIG_INVALID, a recode leads to no declared category.
    """
    there = header(rule)
    functions = () if knowledge is None else knowledge.functions
    follow = [item.variable for item in functions if rule.column(item.variable.name).source in there]
    scan = _Scan(rule, [*variables, *follow])
    counting = _Counting(scan.columns, compounds, _against(knowledge, variables, scan.columns))
    place = Path(tempfile.gettempdir()) if folder is None else folder
    for number, read in scan.people(normalise, place):
        counting.take(number, read)
    counts = tuple(counting.counts(column) for column in scan.columns if column.variable not in follow)
    file, n = rule.name, counting.n
    remarks = [
        *_row_remarks(file, scan),
        *_value_remarks(file, n, counts),
        *_combination_remarks(file, counting.impossible, n),
        *_stated_remarks(file, counting.against, n),
    ]
    return TableReport(
        n_rows=scan.n_rows,
        n_records=n,
        n_ragged=scan.n_ragged,
        n_empty_ids=scan.n_empty,
        n_repeated_ids=scan.n_repeated,
        counts=counts,
        faults=() if scan.absent is None else (scan.absent,),
        remarks=tuple(remarks),
    )


class _Scan:
    """One pass over a table."""

    def __init__(self, rule: DatasetRule, variables: Sequence[Variable]) -> None:
        names = header(rule)
        sources = {variable.name: rule.column(variable.name).source for variable in variables}
        self.absent = missing_columns(rule, names, list(dict.fromkeys([*[rule.id] * rule.has_ids, *sources.values()])))
        self.columns = [
            _Column(variable, rule.column(variable.name), file=rule.name)
            for variable in variables
            if sources[variable.name] in names
        ]
        self.id, self.has_ids = rule.id, rule.has_ids and rule.id in names
        self.ids: list[str] = []
        self.kept: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.n_rows = self.n_ragged = self.n_empty = self.n_repeated = 0
        self.first_ragged: int | None = None
        self._rule = rule

    def _parts(self) -> Iterator[TablePart]:
        """Yield the parts of the table, and count their rows."""
        names = [*[self.id] * self.has_ids, *(column.source for column in self.columns)]
        for part in read_parts(self._rule, names) if names else ():
            self.n_rows += part.n_rows + part.n_ragged
            self.n_ragged += part.n_ragged
            self.first_ragged = self.first_ragged if self.first_ragged is not None else part.first_ragged
            if part.n_rows:
                yield part

    def people(self, normalise: Sequence[str], folder: Path) -> Iterator[tuple[int, Mapping[str, _Read]]]:
        """Number, codes and outcomes of the rows that are used, some at a time and in any order.

        What is counted of the others is known at the end.

        Raises:
            DataFault: DISK_FULL, in the folder; and those of the table.
        """
        kinds: list[np.dtype[Any]] = []
        for column in self.columns:
            kinds += [np.dtype(column.variable.code_dtype), np.dtype(np.uint8)]
        ends = np.cumsum([TAG_BYTES, *(kind.itemsize for kind in kinds)]).tolist()
        sorter = Sorter(folder, width=ends[-1], key_bytes=TAG_BYTES, memory_rows=MEMORY_ROWS)
        tags = Macs(secrets.token_bytes(32), size=TAG_BYTES)
        for part in self._parts():
            read = [column.part(part.columns[column.source], closely=True) for column in self.columns]
            if not self.has_ids:
                yield part.n_rows, {column.variable.name: own for column, own in zip(self.columns, read, strict=True)}
                continue
            names = part.columns[self.id]
            ids = packed_ids(names.distinct, normalise)
            usable = ~ids.empty[names.index]
            self.n_empty += part.n_rows - int(np.count_nonzero(usable))
            cells = [tags.of(ids)[names.index], *(cell for own in read for cell in own)]
            rows = [
                np.ascontiguousarray(cell[usable]).view(np.uint8).reshape(-1, width)
                for cell, width in zip(cells, np.diff([0, *ends]), strict=True)
            ]
            with disk_faults(folder):
                sorter.add(np.concatenate(rows, axis=1))
        n_used = 0
        with disk_faults(folder):
            for block in single(sorter.blocks(), TAG_BYTES):
                n_used += len(block)
                arrays = [
                    np.frombuffer(block[:, start:end].tobytes(), dtype=kind)
                    for kind, (start, end) in zip(kinds, pairwise(ends), strict=True)
                ]
                pairs = zip(arrays[::2], arrays[1::2], strict=True)
                yield len(block), {column.variable.name: own for column, own in zip(self.columns, pairs, strict=True)}
        self.n_repeated = sorter.n_rows - n_used

    def rows(self, normalise: Sequence[str]) -> None:
        """Read all rows, and keep those that are used."""
        ids: list[str] = []
        n_whole = 0
        for part in self._parts():
            n_whole += part.n_rows
            if self.has_ids:
                texts = normalise_ids(part.columns[self.id].texts(), normalise)
                ids += texts if "".join(texts).isascii() else map(_text_or_empty, texts)
            for column in self.columns:
                column.take(part.columns[column.source])
        if not self.has_ids:
            self.kept = np.ones(n_whole, dtype=np.bool_)
            return
        if all(ids) and _distinct(ids):
            self.kept, self.ids = np.ones(n_whole, dtype=np.bool_), ids
            return
        times = Counter(ids)
        times.pop("", 0)
        self.kept = np.fromiter((times[record_id] == 1 for record_id in ids), dtype=np.bool_, count=len(ids))
        self.ids = list(compress(ids, self.kept.tolist()))


def _distinct(ids: Sequence[str]) -> bool:
    """Return whether no two are equal; seldom False of distinct ones, when their hashes collide."""
    hashes = np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))
    hashes.sort()
    return not np.any(hashes[1:] == hashes[:-1])


def _text_or_empty(record_id: str) -> str:
    """Return an id as text; bytes that are no text name nobody and become empty."""
    try:
        record_id.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    return record_id


class _Column:
    """One variable while its column is being read."""

    def __init__(self, variable: Variable, rule: ColumnRule, *, file: str) -> None:
        self.variable = variable
        self.source = rule.source
        self._codebook = Codebook(variable, rule.recode, style=rule.written, where=f"{file}: column '{rule.source}'")
        self._codes: list[Codes] = []
        self._outcomes: list[NDArray[np.uint8]] = []

    def take(self, text: TextColumn) -> None:
        codes, outcomes = self.part(text)
        self._codes.append(codes)
        self._outcomes.append(outcomes)

    def part(self, text: TextColumn, *, closely: bool = False) -> tuple[Codes, NDArray[np.uint8]]:
        codes, outcomes = self._codebook.encode(text.distinct, closely=closely)
        return np.maximum(codes, 0).astype(self.variable.code_dtype)[text.index], outcomes[text.index]

    def codes(self, usable: NDArray[np.bool_]) -> Codes:
        codes: Codes = np.concatenate([np.zeros(0, dtype=self.variable.code_dtype), *self._codes])[usable]
        codes.setflags(write=False)
        return codes

    def find_undeclared(self, usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return is_undeclared(self.variable, self._kept_outcomes(usable))

    def _kept_outcomes(self, usable: NDArray[np.bool_]) -> NDArray[np.uint8]:
        return np.concatenate([np.zeros(0, dtype=np.uint8), *self._outcomes])[usable]


class _Counting:
    """What becomes of rows, some at a time.

    Args:
        columns: that are read.
        compounds: whose impossible combinations are counted, where all their columns are read.
        against: rule -> which of some rows are not as it states.

    Attributes:
        n: rows.
        against: rule -> how many are not as it states.
    """

    def __init__(self, columns: Sequence[_Column], compounds: Sequence[Compound], against: _Against) -> None:
        self.n, self.against = 0, Counter[str]()
        self._columns = {column.variable.name: column for column in columns}
        self._compounds = [one for one in compounds if set(one.variables) <= self._columns.keys()]
        self._impossible = [0 for _ in self._compounds]
        self._outcomes = {name: np.zeros(len(Outcome), dtype=np.int64) for name in self._columns}
        self._had = {column.variable.name: np.zeros(column.variable.n_states, dtype=np.int64) for column in columns}
        self._broken = against

    @property
    def impossible(self) -> list[tuple[list[_Column], int]]:
        """Of each compound its columns, and how many rows have a combination that is declared impossible."""
        return [
            ([self._columns[name] for name in one.variables], number)
            for one, number in zip(self._compounds, self._impossible, strict=True)
        ]

    def take(self, n: int, read: Mapping[str, _Read]) -> None:
        """Count n rows of the table."""
        self.n += n
        codes = {name: own for name, (own, _) in read.items()}
        is_declared = {
            name: ~is_undeclared(self._columns[name].variable, outcomes) for name, (_, outcomes) in read.items()
        }
        for name, (own, outcomes) in read.items():
            self._outcomes[name] += np.bincount(outcomes, minlength=len(Outcome))
            self._had[name] += np.bincount(own[is_declared[name]], minlength=len(self._had[name]))
        for number, compound in enumerate(self._compounds):
            impossible = compound.encode({name: codes[name] for name in compound.variables}) < 0
            declared_masks = [is_declared[name] for name in compound.variables]
            self._impossible[number] += int(np.count_nonzero(np.logical_and.reduce([impossible, *declared_masks])))
        for name, violations in self._broken(codes, is_declared).items():
            self.against[name] += int(np.count_nonzero(violations))

    def counts(self, column: _Column) -> ColumnCounts:
        """Return what the table has of a column."""
        number = self._outcomes[column.variable.name].tolist()
        return ColumnCounts(
            variable=column.variable.name,
            source=column.source,
            missing=number[Outcome.MISSING],
            other=number[Outcome.OTHER],
            clamped=number[Outcome.CLAMPED],
            unseen=sum(number[Outcome.EMPTY :]),
            absent=int(np.count_nonzero(self._had[column.variable.name] == 0)),
            near_misses={
                outcome.name.lower(): number[outcome]
                for outcome in (Outcome.EMPTY, Outcome.BLANKS, Outcome.LETTER_CASE, Outcome.DECIMAL_POINT)
                if number[outcome]
            },
        )


def _against(knowledge: Knowledge | None, variables: Sequence[Variable], columns: Sequence[_Column]) -> _Against:
    """Return a function that finds, rule by rule, the rows against the study's knowledge; it finds none where a column is
    absent.
    """
    there = {column.variable.name for column in columns}
    if knowledge is None or not there >= {variable.name for variable in variables}:
        return lambda codes, known: {}
    schema = Schema(variables=tuple(variables))
    rules, whole = support(knowledge, schema), columns_of(knowledge, schema)

    def find_violations(
        codes: Mapping[str, Codes], is_declared: Mapping[str, NDArray[np.bool_]]
    ) -> dict[str, NDArray[np.bool_]]:
        violations: dict[str, NDArray[np.bool_]] = {}
        for name, (scope, table) in zip(rules.names, rules.factors, strict=True):
            if name not in knowledge.names:
                continue  # what several orders say together
            here = table[tuple(codes[schema.names[variable]] for variable in scope)] == 0
            certain = [is_declared[schema.names[variable]] for variable in scope]
            violations[name] = np.logical_and.reduce([here, *certain])
        own = [codes[name] for name in schema.names]
        follows = dict(zip(whole.published.names, whole.compute_columns(own), strict=True))
        for function in knowledge.functions:
            if (name := function.variable.name) in codes:
                read = [is_declared[column] for column in (name, *function.of) if column in is_declared]
                violations[function.name] = np.logical_and.reduce([codes[name] != follows[name], *read])
        return violations

    return find_violations


def _row_remarks(file: str, scan: _Scan) -> Iterable[Remark]:
    where = f"{file}: column '{scan.id}'"
    if scan.n_ragged:
        yield Remark(
            code="DATA_UNREADABLE",
            message=f"{file}: {scan.n_ragged} rows have too many or too few fields and are left out, the first is row"
            f" {scan.first_ragged} (the header is row 1)",
            hint="quote fields that contain the delimiter",
        )
    if scan.n_empty:
        yield Remark(
            code="DATA_ID_MISSING",
            message=f"{where}: {scan.n_empty} of {scan.n_rows} rows are left out: their ids are empty after normalisation",
            hint="mend these rows, or check linkage.normalise of the study",
        )
    if scan.n_repeated:
        yield Remark(
            code="DATA_ID_DUPLICATE",
            message=f"{where}: {scan.n_repeated} of {scan.n_rows} rows are left out: each has the id of another one, expected one"
            " row for each person",
            hint='keep one row for each person, by one_row = "first" and order in [dataset.NAME] of party.toml, or make a '
            "related table of the rows; ids are compared after linkage.normalise of the study",
        )


_REPAIRS = {
    "empty": '{n} are empty (declare `missing` with the spelling "" in the study)',
    "blanks": "{n} differ only in blanks around them (clean the table or add a recode)",
    "letter_case": "{n} differ only in letter case (add a recode)",
    "decimal_point": "{n} are whole numbers with a decimal point (write the column as whole numbers)",
}


def _value_remarks(file: str, n_records: int, counts: Sequence[ColumnCounts]) -> Iterable[Remark]:
    if unseen := [f"column '{c.source}' {c.unseen}" for c in counts if c.unseen]:
        hints: list[str] = []
        for kind, repair in _REPAIRS.items():
            if n_here := sum(c.near_misses.get(kind, 0) for c in counts):
                hints.append(repair.format(n=n_here))
        yield Remark(
            code="DATA_CATEGORY_UNSEEN",
            message=f"{file}: {n_records} rows, of which some have no declared category: {', '.join(unseen)}; the node draws one"
            " for each (an empty value becomes `missing` where the study declares it)",
            hint="; ".join(hints) or "declare the category or `other` in the study, or add a recode in party.toml",
        )
    if clamped_columns := [f"column '{c.source}' {c.clamped}" for c in counts if c.clamped]:
        yield Remark(
            code="DATA_VALUE_OUTSIDE",
            message=f"{file}: of {n_records} rows, values outside the bins, put into the nearest one: "
            f"{', '.join(clamped_columns)}",
            hint="is the unit right? The study can have wider bins",
        )


def _stated_remarks(file: str, against: Mapping[str, int], n: int) -> Iterable[Remark]:
    """Count the rows that contradict the study's knowledge, rule by rule."""
    for name, count in against.items():
        if count:
            yield Remark(
                code="DATA_CATEGORY_UNSEEN",
                message=f"{file}: {count} of {n} rows are not as the rule '{name}' of the study states",
                hint="correct these rows, or object to the study: rules are known of everybody, and the data are not repaired",
            )


def _combination_remarks(file: str, impossible: Iterable[tuple[Sequence[_Column], int]], n: int) -> Iterable[Remark]:
    for columns, count in impossible:
        if count:
            column_names = ", ".join(f"'{column.source}'" for column in columns)
            yield Remark(
                code="DATA_CATEGORY_UNSEEN",
                message=f"{file}: columns {column_names}: {count} of {n} rows have a combination of values that the study"
                " declares impossible, in place of which a possible one is drawn",
                hint="correct these rows, or take the combinations that do occur out of `impossible` in the study",
            )
