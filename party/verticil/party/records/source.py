"""Reading a local table: one row a person, into ids and codes of the declared variables.

Promises: all faults of a table are found in one pass, with counts for every column; what is kept is one id and one code per
value; no message carries a value or an id. Unseen values are a fault unless the study declares `other`; repeated ids are a
fault with a count, also when they are equal only after normalisation; and so are combinations of values that the study declares
impossible.

`read_records` raises the first fault; `check_records` returns them all, with the counts, for ``verticil party check``. See
`table` for how files are read and `encoding` for what a text becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticil.party.records.compounds import Compound
from verticil.party.records.encoding import Codebook, Outcome
from verticil.party.records.linkage import normalise_ids
from verticil.party.records.table import ColumnRule, DatasetRule, header, missing_columns, read_parts
from verticil.shared.errors import DataFault
from verticil.shared.model.schema import Variable

__all__ = [
    "ColumnCounts",
    "ColumnRule",
    "DatasetRule",
    "Records",
    "TableReport",
    "check_records",
    "header",
    "read_records",
]

Codes = NDArray[np.uint8] | NDArray[np.uint16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """What became of the values of one column; counts of rows.

    Attributes:
        variable, source: the study's name and the local column.
        missing: written as missing.
        other: unseen, and became the declared `other`.
        clamped: outside the bins, and put into the nearest one.
        unseen: without a declared category: a fault.
        outside: outside the bins: a fault.
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
    outside: int
    absent: int
    near_misses: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A table that is in order.

    Attributes:
        ids: normalised, distinct, not empty; in file order.
        codes: variable -> (n,), uint8 or uint16, read-only, in the same order.
        counts: one for each variable, in the order they were asked for.
    """

    ids: tuple[str, ...] = field(repr=False)
    codes: Mapping[str, Codes] = field(repr=False)
    counts: tuple[ColumnCounts, ...]

    @property
    def n_records(self) -> int:
        """Number of rows."""
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What there is to say about a table without quoting it.

    Attributes:
        n_records: rows read, ragged ones left out.
        n_ragged: rows with too many or too few fields.
        n_empty_ids, n_repeated_ids: rows whose id is empty, or has been seen in an earlier row.
        counts: one for each variable whose column is there.
        faults: everything that keeps the table from being used; empty when it is in order.
    """

    n_records: int
    n_ragged: int
    n_empty_ids: int
    n_repeated_ids: int
    counts: tuple[ColumnCounts, ...]
    faults: tuple[DataFault, ...]


def read_records(
    rule: DatasetRule, variables: Sequence[Variable], normalise: Sequence[str], compounds: Sequence[Compound] = ()
) -> Records:
    """Read the table and encode the columns of `variables`.

    Args:
        rule: the table.
        variables: what to encode, each once.
        normalise: steps applied to ids; see `linkage.normalise_ids`.
        compounds: of these variables: which combinations no record may have.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY, DATA_COLUMN_MISSING, DATA_ID_MISSING, DATA_ID_DUPLICATE,
            DATA_CATEGORY_UNSEEN (also of a combination) or DATA_VALUE_OUTSIDE; the last two name every column concerned, with
            counts.
        Misuse: CONFIG_INVALID, a recode leads to no declared category.
    """
    report, ids, codes = _scan(rule, variables, normalise, compounds)
    if report.faults:
        raise report.faults[0]
    return Records(ids=tuple(ids), codes=codes, counts=report.counts)


def check_records(
    rule: DatasetRule, variables: Sequence[Variable], normalise: Sequence[str], compounds: Sequence[Compound] = ()
) -> TableReport:
    """Read the table and report counts and faults; nothing is kept. Arguments as for `read_records`.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE or DATA_EMPTY, when there is nothing to count.
        Misuse: CONFIG_INVALID, a recode leads to no declared category.
    """
    return _scan(rule, variables, normalise, compounds)[0]


def _scan(
    rule: DatasetRule, variables: Sequence[Variable], normalise: Sequence[str], compounds: Sequence[Compound]
) -> tuple[TableReport, list[str], dict[str, Codes]]:
    file = rule.path.name
    names = header(rule)
    sources = {variable.name: rule.column(variable.name).source for variable in variables}
    absent = missing_columns(rule, names, list(dict.fromkeys([rule.id, *sources.values()])))
    columns = [
        _Column(variable, rule.column(variable.name), file=file)
        for variable in variables
        if sources[variable.name] in names
    ]
    wanted = [name for name in (rule.id, *(column.source for column in columns)) if name in names]
    ids: list[str] = []
    n_records = n_ragged = 0
    first_ragged: int | None = None
    for part in read_parts(rule, wanted) if wanted else ():
        n_records += part.n_rows
        n_ragged += part.n_ragged
        first_ragged = first_ragged if first_ragged is not None else part.first_ragged
        if part.n_rows == 0:
            continue
        if rule.id in part.columns:
            ids += normalise_ids(part.columns[rule.id].texts(), normalise)
        for column in columns:
            text = part.columns[column.source]
            column.take(text.distinct, text.index)
    n_empty = ids.count("")
    n_repeated = len(ids) - n_empty - len(set(ids) - {""})
    counts = tuple(column.counts() for column in columns)
    codes = {column.variable.name: column.codes() for column in columns}
    # Where a value has no code, a combination of it has none either: the columns' own faults come first.
    whole = {count.variable for count in counts if not count.unseen and not count.outside}
    found = [
        absent,
        *_row_faults(file, n_records, n_ragged, first_ragged),
        *_id_faults(file, rule.id, n_records, n_empty, n_repeated),
        _value_fault(file, n_records, counts),
        *(
            _combination_fault(file, compound, [sources[name] for name in compound.variables], codes)
            for compound in compounds
            if whole.issuperset(compound.variables)
        ),
    ]
    report = TableReport(
        n_records=n_records,
        n_ragged=n_ragged,
        n_empty_ids=n_empty,
        n_repeated_ids=n_repeated,
        counts=counts,
        faults=tuple(fault for fault in found if fault is not None),
    )
    return report, ids, codes


class _Column:
    """One variable while its column is being read."""

    def __init__(self, variable: Variable, rule: ColumnRule, *, file: str) -> None:
        self.variable = variable
        self.source = rule.source
        self._codebook = Codebook(variable, rule.recode, where=f"{file}: column '{rule.source}'")
        self._parts: list[Codes] = []
        self._outcomes = np.zeros(len(Outcome), dtype=np.int64)
        self._had = np.zeros(variable.n_states, dtype=bool)

    def take(self, distinct: Sequence[str], index: NDArray[np.int32]) -> None:
        codes, outcomes = self._codebook.encode(distinct)
        self._had[codes[(codes >= 0) & (codes < self.variable.n_states)]] = True
        # Where there is no code, it wraps around: such a table is refused as a whole.
        self._parts.append(codes.astype(self.variable.code_dtype)[index])
        self._outcomes += np.bincount(outcomes[index], minlength=len(Outcome))

    def codes(self) -> Codes:
        codes: Codes = np.concatenate([np.zeros(0, dtype=self.variable.code_dtype), *self._parts])
        codes.setflags(write=False)
        return codes

    def counts(self) -> ColumnCounts:
        number = {outcome: int(self._outcomes[outcome]) for outcome in Outcome}
        return ColumnCounts(
            variable=self.variable.name,
            source=self.source,
            missing=number[Outcome.MISSING],
            other=number[Outcome.OTHER],
            clamped=number[Outcome.CLAMPED],
            unseen=sum(number[outcome] for outcome in Outcome if outcome.is_fault and outcome is not Outcome.OUTSIDE),
            outside=number[Outcome.OUTSIDE],
            absent=int(np.count_nonzero(~self._had)),
            near_misses={
                outcome.name.lower(): number[outcome]
                for outcome in (Outcome.EMPTY, Outcome.BLANKS, Outcome.LETTER_CASE, Outcome.DECIMAL_POINT)
                if number[outcome]
            },
        )


def _row_faults(file: str, n_records: int, n_ragged: int, first_ragged: int | None) -> Iterable[DataFault]:
    if n_ragged:
        yield DataFault(
            "DATA_UNREADABLE",
            f"{file}: {n_ragged} rows have too many or too few fields, the first is row {first_ragged} (the header is row 1)",
            hint="quote fields that contain the delimiter",
        )
    elif n_records == 0:
        yield DataFault("DATA_EMPTY", f"{file}: a header and no rows, expected one row for each person")


def _id_faults(file: str, id_column: str, n_records: int, n_empty: int, n_repeated: int) -> Iterable[DataFault]:
    if n_empty:
        yield DataFault(
            "DATA_ID_MISSING",
            f"{file}: column '{id_column}': {n_empty} of {n_records} ids are empty after normalisation",
            hint="remove these rows, or check linkage.normalise of the study",
        )
    if n_repeated:
        yield DataFault(
            "DATA_ID_DUPLICATE",
            f"{file}: column '{id_column}': {n_repeated} of {n_records} rows repeat an id, expected one row for each person",
            hint="keep one row for each person; ids are compared after linkage.normalise of the study",
        )


_REPAIRS = {
    "empty": '{n} are empty (declare `missing` with the spelling "" in the study)',
    "blanks": "{n} differ only in blanks around them (clean the table or add a recode)",
    "letter_case": "{n} differ only in letter case (add a recode)",
    "decimal_point": "{n} are whole numbers with a decimal point (write the column as whole numbers)",
}


def _value_fault(file: str, n_records: int, counts: Sequence[ColumnCounts]) -> DataFault | None:
    unseen = [f"column '{c.source}' {c.unseen}" for c in counts if c.unseen]
    outside = [f"column '{c.source}' {c.outside}" for c in counts if c.outside]
    if not unseen and not outside:
        return None
    problems = [f"values without a declared category: {', '.join(unseen)}"] if unseen else []
    problems += [f"values outside the bins: {', '.join(outside)}"] if outside else []
    hints: list[str] = []
    if unseen:
        for kind, repair in _REPAIRS.items():
            if n_here := sum(c.near_misses.get(kind, 0) for c in counts):
                hints.append(repair.format(n=n_here))
        hints = hints or ["declare the category or `other` in the study, or add a recode in party.toml"]
    if outside:
        hints.append('widen the bins, or set outside = "clamp" in the study')
    code = "DATA_CATEGORY_UNSEEN" if unseen else "DATA_VALUE_OUTSIDE"
    return DataFault(code, f"{file}: of {n_records} rows, {'; '.join(problems)}", hint="; ".join(hints))


def _combination_fault(
    file: str, compound: Compound, sources: Sequence[str], codes: Mapping[str, Codes]
) -> DataFault | None:
    n_impossible = compound.n_impossible(codes)
    if not n_impossible:
        return None
    named = ", ".join(f"'{source}'" for source in sources)
    return DataFault(
        "DATA_CATEGORY_UNSEEN",
        f"{file}: columns {named}: {n_impossible} of {len(codes[compound.variables[0]])} rows have a combination of values that"
        " the study declares impossible, expected none",
        hint="correct these rows, or take the combinations that do occur out of `impossible` in the study",
    )
