"""One coding for all tables that are compared: the same categories and the same bins for the real, the synthetic and the holdout.

Categories and bins are the study's where there is one that names the column, else the real table's. Numbers are numbers: a column
of them is coded in bins and keeps its numbers beside, however each file writes them. Missing is a category like any other. The
same value of different types is the same value: ``1``, ``1.0`` and ``True`` beside a real ``1``; a decimal comma beside a point.
What a real column has too many categories of is one further category. What the other tables have and the real one has not is a
category, too.

Everything that was left out or merged is said in `Coding.notes`.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from verticil.evaluate.following_columns import UNDECLARED, with_derived
from verticil.evaluate.measures.coded import CodedTable, number_records
from verticil.party.dataset.encoding import Codebook, Outcome, style_of
from verticil.shared.core.arrays import Codes, Floats
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.written_values.reading import number_of, read_texts
from verticil.shared.numerics.knowledge.columns import narrow_knowledge
from verticil.shared.numerics.knowledge.support import MAX_SCOPE_CELLS, Support, function_codes, support
from verticil.shared.numerics.model.elimination import Factor
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release import wording
from verticil.shared.study.document import Study
from verticil.tables.categories import IDENTIFYING
from verticil.tables.columns import MANY_VALUES
from verticil.tables.missing import is_word
from verticil.tables.profile import CODES, ID_NAMES
from verticil.tables.settings import kind_and_writing, numbers_of, way_of
from verticil.tables.texts import TextColumn, TextTable

MOST_CATEGORIES: Final = 100
"""Of one column; the rarer ones of the real table are one."""
N_BINS: Final = 10
_LEAST_BINS: Final = 3  # of what is left when values that many records have got bins of their own
_OVERLAP_ERRORS: Final = (
    4.0  # standard errors: a holdout that does not overlap is named in one of some ten thousand cases
)
_BOOLEANS: Final = {"true": 1.0, "false": 0.0}
_WORDS: Final = ("unknown", "missing")  # of a missing value, where the real table has no such category
_UNSEEN: Final = "not in the real table"
_MISSING: Final = "missing"
_REST: Final = "all others"
_NO_NUMBER: Final = "no number"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coding:
    """The tables in one coding.

    Attributes:
        real: the real table.
        holdout: further real records; None: none were given.
        synthetic: name -> table.
        labels: of each column, the label of each code.
        notes: what was left out, merged or looks wrong; counts and names of columns, no values.
        support: what the study's rules leave possible, over the first columns; None: there are none, or they cannot be used.
        functions: of each column that follows from others in the study, see `metrics.Setting`.
        binned: positions of the columns whose codes are bins of numbers.
        by_codebook: the same tables with the study's codes alone, no numbers beside; None: no study is given.
        by_value: the same columns coded by what the real table holds, whatever the study declares; None: no study is given.
        reasons: of a column, why it may be nearer by the codebook than by value, in words.
        outside: of a column the share of real values that the study's bins and categories have no place for.
    """

    real: CodedTable
    holdout: CodedTable | None
    synthetic: Mapping[str, CodedTable]
    labels: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    support: Support | None
    functions: Mapping[str, Factor]
    binned: tuple[int, ...] = ()
    by_codebook: Coding | None = None
    by_value: Coding | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Column:
    """One column of all tables: labels, and for each table codes and, of numbers, values."""

    labels: tuple[str, ...]
    codes: Sequence[NDArray[np.int64]]
    values: Sequence[Floats | None]


def coding(
    real: TextTable, synthetic: Mapping[str, TextTable], holdout: TextTable | None = None, *, study: Study | None = None
) -> Coding:
    """Code all tables alike.

    Raises:
        DataFault: DATA_COLUMN_MISSING, fewer than two columns are in all tables; DATA_CATEGORY_UNSEEN, a column has no value in
            common with the real one; DATA_EMPTY, no two columns are left that tell anything.
    """
    tables = {"the real table": real, **({} if holdout is None else {"the holdout": holdout}), **synthetic}
    derivation_notes: list[str] = []
    if study is not None:
        tables, derivation_notes = with_derived(
            {name: _use_study_names(table, study) for name, table in tables.items()}, study
        )
    names, notes = _common(tables)
    notes += derivation_notes
    notes += [f"{name}: {note}" for name, table in tables.items() for note in table.notes]
    variables = _study_variables(study, names, notes)
    order = [*(name for name in variables if name in names), *(name for name in names if name not in variables)]
    coded_columns: dict[str, _Column] = {}
    reasons: dict[str, str] = {}
    outside: dict[str, float] = {}
    for name in order:
        columns: Sequence[TextColumn] = [table.columns[name] for table in tables.values()]
        variable = variables.get(name)
        if variable is None:
            columns = _as_plain_numbers(columns, None)
        if variable is None and (reason := _reason_to_leave_out(columns)):
            notes.append(f"column '{name}' is left out: {reason}")
            continue
        if variable is not None:
            properties = {} if study is None or study.knowledge is None else study.knowledge.properties(name)
            is_linked = study is not None and study.release.within_bins == "linked"
            study_column = _StudyColumn(variable, properties, columns[0], is_linked=is_linked)
            coded_column = study_column.code(columns, notes)
            reasons[name] = study_column.reason()
            if share := study_column.outside_share():
                outside[name] = share
        else:
            coded_column = _by_real(columns, notes)
        coded_columns[name] = coded_column
    if len(coded_columns) < 2:
        raise DataFault(
            "DATA_EMPTY",
            f"{wording.count(len(coded_columns), 'column')} left to compare, expected at least 2",
            hint="; ".join(notes),
        )
    study_names = [name for name in coded_columns if name in variables]
    functions = {} if study is None else _functions(study, study_names, coded_columns, notes)
    result = _assemble(coded_columns, holdout is not None, list(synthetic))
    by_value = by_codebook = None
    if study is not None:
        of_values = {
            name: _by_real(
                _as_plain_numbers([table.columns[name] for table in tables.values()], variables.get(name)),
                [],
                strict=False,
            )
            for name in coded_columns
        }
        by_value = _assemble(of_values, holdout is not None, list(synthetic))
        plain = {
            name: dataclasses.replace(column, values=[None] * len(tables)) if name in variables else column
            for name, column in coded_columns.items()
        }
        by_codebook = _assemble(plain, holdout is not None, list(synthetic))
    return dataclasses.replace(
        result,
        notes=(*notes, *(() if result.holdout is None else _overlap(result.real, result.holdout))),
        support=None if study is None else _support(study, study_names, coded_columns),
        functions=functions,
        binned=tuple(
            place
            for place, (name, column) in enumerate(coded_columns.items())
            if column.values[0] is not None and not (name in variables and variables[name].bins is None)
        ),
        by_codebook=by_codebook,
        by_value=by_value,
        reasons=reasons,
        outside=outside,
    )


def _assemble(columns: Mapping[str, _Column], has_holdout: bool, names: Sequence[str]) -> Coding:
    """Return the tables of coded columns: the real one, the holdout if there is one, and the synthetic ones by name."""
    n_tables = 1 + has_holdout + len(names)
    coded_tables = [_table(columns, place) for place in range(n_tables)]
    return Coding(
        real=coded_tables[0],
        holdout=coded_tables[1] if has_holdout else None,
        synthetic=dict(zip(names, coded_tables[1 + has_holdout :], strict=True)),
        labels=tuple(column.labels for column in columns.values()),
        notes=(),
        support=None,
        functions={},
    )


def _table(columns: Mapping[str, _Column], place: int) -> CodedTable:
    return CodedTable(
        names=tuple(columns),
        codes=tuple(_narrow(column.codes[place], len(column.labels)) for column in columns.values()),
        n_states=tuple(len(column.labels) for column in columns.values()),
        values=tuple(column.values[place] for column in columns.values()),
    )


def _narrow(codes: NDArray[np.int64], n_states: int) -> Codes:
    return codes.astype(np.uint8) if n_states <= 256 else codes.astype(np.uint16)


# ---- which columns


def _study_variables(study: Study | None, names: Sequence[str], notes: list[str]) -> dict[str, Variable]:
    """Return the study's variables, then those that follow from them; leave out those of too many categories."""
    if study is None:
        return {}
    functions = () if study.knowledge is None else study.knowledge.functions
    variables = {
        variable.name: variable for variable in (*study.schema.variables, *(item.variable for item in functions))
    }
    for name, variable in variables.items():
        if variable.n_states > MOST_CATEGORIES and name in names:
            notes.append(f"column '{name}': the study has {variable.n_states:,} categories; the real table's are taken")
    return {name: variable for name, variable in variables.items() if variable.n_states <= MOST_CATEGORIES}


def _use_study_names(table: TextTable, study: Study) -> TextTable:
    """Give a table's columns the study's names.

    A draft calls a column that two parties have by party and name; a party's own table has it by its name.
    """
    columns = dict(table.columns)
    for variable in study.schema.variables:
        plain = variable.name.removeprefix(f"{variable.owner} ")
        if variable.name not in columns and plain in columns and plain not in study.schema:
            columns[variable.name] = columns.pop(plain)
    return TextTable(columns=columns, n_rows=table.n_rows, notes=table.notes)


def _common(tables: Mapping[str, TextTable]) -> tuple[list[str], list[str]]:
    """Return names of columns that all tables have, in the real table's order, and notes about the others."""
    (_, real), *others = tables.items()
    names, notes = list(real.columns), list[str]()
    for name, table in others:
        if missing_columns := [column for column in names if column not in table.columns]:
            column_list = ", ".join(f"'{column}'" for column in missing_columns)
            if len(names) - len(missing_columns) < 2:
                hint = f"it has {len(table.columns)} columns; is its first row a header?"
                problem = f"{name}: no column {column_list} of the real table; fewer than two are in both"
                if shared := [column for column in names if column in table.columns]:
                    problem = (
                        f"{name}: only column '{shared[0]}' is in both tables, expected at least two; no {column_list}"
                    )
                    hint = "metrics compare how columns go together: give tables with more columns in common"
                raise DataFault(
                    "DATA_COLUMN_MISSING",
                    problem,
                    hint=_other_spelling(missing_columns, table, real) or hint,
                )
            spelling = _other_spelling(missing_columns, table, real)
            notes.append(f"left out, because {name} does not have them: {column_list}{spelling and f' ({spelling})'}")
            names = [column for column in names if column not in missing_columns]
        if further := [column for column in table.columns if column not in real.columns]:
            column_list = ", ".join(f"'{column}'" for column in further)
            notes.append(f"left out, because only {name} has them: {column_list}")
    return names, notes


def _other_spelling(names: Sequence[str], table: TextTable, real: TextTable) -> str:
    """Ask whether a table has some of the real columns under another name; empty: no name is alike."""
    folded = {name.strip().casefold(): name for name in table.columns if name not in real.columns}
    for name in names:
        near = difflib.get_close_matches(name.strip().casefold(), folded, 1)
        if near:
            return f"'{folded[near[0]]}' for '{name}'?"
    return ""


def _reason_to_leave_out(columns: Sequence[TextColumn]) -> str:
    real = columns[0]
    values = [text for text in real.texts if not _is_missing(text)]
    if real.is_unique and real.source.lower() in ID_NAMES:
        return "it names the record"
    if len(values) > max(IDENTIFYING * len(real.index), MANY_VALUES) and not _edges(real, values)[0]:
        return f"{len(values):,} distinct texts in {len(real.index):,} records look identifying"
    if len(real.texts) < 2 and all(set(column.texts) == set(real.texts) for column in columns):
        return "it has one and the same value everywhere"
    return ""


# ---- codes of one column


def _is_missing(text: str) -> bool:
    return is_word(text)


class _StudyColumn:
    """A column that is coded by the study's codebook, with what the real table's values are there."""

    def __init__(
        self, variable: Variable, properties: Mapping[str, str], real: TextColumn, *, is_linked: bool = False
    ) -> None:
        self._variable = variable
        self._is_linked = is_linked
        self._properties = properties
        self._real_codes, self._outcomes = self._encode(real)

    def _encode(self, column: TextColumn) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the code and the outcome of each record; -1 of what the study does not declare."""
        variable = self._variable
        number_format = way_of(variable, column.texts)
        codebook = Codebook(variable, self._properties, style=number_format, where=f"column '{variable.name}'")
        codes, outcomes = codebook.encode(column.texts, closely=True)
        return codes.astype(np.int64)[column.index], outcomes[column.index]

    def code(self, columns: Sequence[TextColumn], notes: list[str]) -> _Column:
        """Code the column of all tables, the real one first; what the study does not declare is a further category."""
        variable, name = self._variable, self._variable.name
        codes: list[NDArray[np.int64]] = []
        values: list[Floats | None] = []
        undeclared: list[str] = []
        for column in columns:
            own, outcomes = (self._real_codes, self._outcomes) if column is columns[0] else self._encode(column)
            near = [
                f"{count:,} of them differ from a declared one {how}"
                for outcome, how in _NEAR.items()
                if (count := int(np.count_nonzero(outcomes == outcome)))
            ]
            is_undeclared = own < 0
            if is_undeclared.all():
                expected = (
                    f"numbers in the study's {variable.n_bins} bins"
                    if variable.n_bins
                    else f"some of the study's {variable.n_states} categories"
                )
                _refuse(column, name, expected, "; ".join(near))
            if is_undeclared.any():
                share = _share(float(is_undeclared.mean()))
                undeclared.append(", ".join([f"{share} of the rows of {column.party}", *near]))
            codes.append(np.where(is_undeclared, variable.n_states, own))
            way = way_of(variable, column.texts)
            values.append(_values_of(variable, column, way) if variable.n_valued else None)
        if undeclared:
            notes.append(
                f"column '{name}': values that the study does not declare are one category: {'; '.join(undeclared)}"
            )
        if share_outside := float((self._outcomes == Outcome.CLAMPED).mean()):
            notes.append(
                f"column '{name}': {_share(share_outside)} of the real values lie outside the study's bins; they are "
                "counted in the nearest bin, and the release cannot have them"
            )
        labels = (*variable.labels, *([UNDECLARED] if undeclared else []))
        return _Column(labels=labels, codes=codes, values=values)

    def _shape(self) -> str:
        variable = self._variable
        if variable.representatives is not None:
            return "are one and the same number"
        if variable.means is not None:
            return "are spread around the study's mean"
        if variable.profile:
            return "follow the column's noisy profile"
        return "follow the shares of the bins beside" if self._is_linked else "are spread evenly"

    def outside_share(self) -> float:
        """Return the share of real values outside the study's bins, or of no category."""
        return float(((self._outcomes == Outcome.CLAMPED) | (self._real_codes < 0)).mean())

    def reason(self) -> str:
        """Return why the real values may be further from a release than their codes are, in words; empty: they are its codes."""
        variable, reasons = self._variable, list[str]()
        if variable.other is not None:
            share = float((self._outcomes == Outcome.OTHER).mean())
            reasons += [f"`{variable.other}` holds {wording.percent(share, 0)} of people"] * (share > 0)
        if variable.groups or variable.group_by is not None:
            reasons.append("a category stands for several values of the table")
        if variable.n_bins:
            reasons.append(f"values within a bin {self._shape()}")
        if share := self.outside_share():
            reasons.append(f"{_share(share)} of the real values lie outside the study's bins or categories")
        return "; ".join(reasons)


def _share(share: float) -> str:
    return wording.percent(share) if share >= 0.0005 else "less than 0.1%"


_NEAR: Final = {
    Outcome.BLANKS: "by blanks at an end",
    Outcome.LETTER_CASE: "by upper or lower case",
    Outcome.DECIMAL_POINT: "by a decimal point",
}
"""Spellings that are none of the study's, but nearly."""


def _refuse(column: TextColumn, name: str, expected: str, near: str = "") -> NoReturn:
    """Refuse a column without a value in the common coding: it is another column, or coded otherwise."""
    raise DataFault(
        "DATA_CATEGORY_UNSEEN",
        f"{column.party}: column '{name}': expected {expected}; none of its {wording.count(len(column.texts), 'value')} in "
        f"{len(column.index):,} rows is one",
        hint=near or "are categories spelled alike, and numbers not written as words? Or leave the column out",
    )


def _as_plain_numbers(columns: Sequence[TextColumn], variable: Variable | None) -> Sequence[TextColumn]:
    """Return columns whose numbers and moments are plain numbers, however each table writes them.

    A column that a study gives no type, and whose texts version 1.0.0 reads, stays as it is.

    Args:
        columns: of all tables, the real one first.
        variable: of the study; None: it does not have the column.
    """
    values = [text for text in columns[0].texts if not _is_missing(text)]
    if variable is not None:
        if variable.kind is None or not variable.n_valued:
            return columns
        return [
            _rewrite(column, variable.kind, style_of(variable, way_of(variable, column.texts))) for column in columns
        ]
    if len(values) <= MANY_VALUES or 2 * len(numbers_of(values)[1]) > len(values):
        return columns
    guesses = [kind_and_writing(column.texts) for column in columns]
    if guesses[0] is None:
        return columns
    return [
        column if guess is None else _rewrite(column, *guess) for column, guess in zip(columns, guesses, strict=True)
    ]


def _rewrite(column: TextColumn, kind: str, written: str) -> TextColumn:
    """Return a column with plain numbers in place of the texts that a way of writing reads; the others stay."""
    numbers = read_texts(column.texts, kind, written)
    texts = [
        text if math.isnan(number) else f"{number:.15g}" for text, number in zip(column.texts, numbers, strict=True)
    ]
    places: dict[str, int] = {}
    index = np.array([places.setdefault(text, len(places)) for text in texts])[column.index]
    counts = np.bincount(index, minlength=len(places)).tolist()
    return dataclasses.replace(column, texts=list(places), counts=counts, index=index)


def _by_real(columns: Sequence[TextColumn], notes: list[str], *, strict: bool = True) -> _Column:
    """Code a column by the real table's values; where that is strict, a table that has none of them is refused."""
    real = columns[0]
    edges, number_format = _edges(real, [text for text in real.texts if not _is_missing(text)])
    coded_column = _bin_columns(columns, edges, number_format) if edges else _categories(columns, notes)
    alien = coded_column.labels.index(_UNSEEN) if _UNSEEN in coded_column.labels else -1
    for column, codes, values in zip(columns[1:], coded_column.codes[1:], coded_column.values[1:], strict=True):
        if strict and values is not None and np.isnan(values).all():
            _refuse(column, real.source, "numbers, as the real table has")
        if strict and (codes == alien).all():
            _refuse(column, real.source, f"some of the real table's {len(real.texts)} values")
    return coded_column


def _edges(real: TextColumn, texts: Sequence[str]) -> tuple[list[float], str]:
    """Edges of bins from the real table, near the quantiles, a value that many have in a bin of its own; none: no numbers."""
    number_format, numbers = numbers_of(texts)
    numbers = {text: number for text, number in numbers.items() if math.isfinite(number)}
    if len(set(numbers.values())) <= MANY_VALUES or len(texts) - len(numbers) > max(CODES, len(numbers) // 10):
        return [], number_format
    counts = dict(zip(real.texts, real.counts, strict=True))
    values = np.repeat(list(numbers.values()), [counts[text] for text in numbers])
    each, times = np.unique(values, return_counts=True)
    spikes = each[times * N_BINS >= len(values)]
    rest = values[~np.isin(values, spikes)]
    n_bins = max(_LEAST_BINS, N_BINS - len(spikes))
    cuts = np.quantile(rest, np.arange(1, n_bins) / n_bins, method="higher") if len(rest) else []
    above = spikes + 1 if (values == np.floor(values)).all() else np.nextafter(spikes, np.inf)
    inner = np.unique([*cuts, *spikes, *above])
    return [float(edge) for edge in inner if values.min() < edge <= values.max()], number_format


def _bin_columns(columns: Sequence[TextColumn], edges: Sequence[float], number_format: str) -> _Column:
    """Return bins below, between and above the edges; then missing, texts that are no numbers, and what only others have."""
    codes: list[NDArray[np.int64]] = []
    values: list[Floats | None] = []
    n_bins = len(edges) + 1
    bounds = ["", *(f"{edge:.15g}" for edge in edges), ""]
    labels = [f"{low} to below {high}" for low, high in itertools.pairwise(bounds)]
    labels[0], labels[-1] = f"below {bounds[1]}", f"from {bounds[-2]}"
    for column in columns:
        way = number_format if column is columns[0] else numbers_of(column.texts)[0]
        numbers = _numbers(column, way)
        missing = np.array([_is_missing(text) for text in column.texts])
        own = np.searchsorted(edges, np.nan_to_num(numbers), side="right")
        own = np.where(np.isnan(numbers), np.where(missing, n_bins, n_bins + 1), own)
        codes.append(own[column.index])
        values.append(numbers[column.index])
    n_codes = max(int(own.max()) for own in codes) + 1
    return _Column(labels=(*labels, *(_MISSING, _NO_NUMBER)[: max(0, n_codes - n_bins)]), codes=codes, values=values)


def _numbers(column: TextColumn, number_format: str) -> Floats:
    """Return (texts,), NaN where a text is no number."""
    own = (number_of(text, number_format) for text in column.texts)
    return np.array([math.nan if number is None or math.isinf(number) else number for number in own])


def _values_of(variable: Variable, column: TextColumn, number_format: str) -> Floats:
    """Return (n,) the numbers of a column on the scale of its type, NaN where it has none."""
    if variable.kind is None:
        return _numbers(column, number_format)[column.index]
    own = read_texts(column.texts, variable.kind, style_of(variable, number_format))
    return np.where(np.isfinite(own), own, math.nan)[column.index]


def _categories(columns: Sequence[TextColumn], notes: list[str]) -> _Column:
    """Code by the real table's categories, numbers first; then the rest, missing, and what only others have."""
    real = columns[0]
    counts: dict[str, int] = {}
    for text, count in zip(real.texts, real.counts, strict=True):
        if not _is_missing(text):
            counts[text.strip()] = counts.get(text.strip(), 0) + count
    categories = sorted(counts, key=lambda text: (-counts[text], text))
    if len(categories) > MOST_CATEGORIES:
        notes.append(
            f"column '{real.source}': {len(categories):,} categories; all but the {MOST_CATEGORIES - 1} most frequent are one"
        )
        categories = categories[: MOST_CATEGORIES - 1]
    categories.sort(key=lambda text: (number if (number := number_of(text)) is not None else math.inf, text))
    rest = [_REST] * (len(categories) < len(counts))
    base = [*categories, *rest]
    place = {text: len(categories) for text in counts} | {text: code for code, text in enumerate(categories)}
    alike = _alike(place)
    missing, unseen = len(base), len(base) + 1
    codes = [
        np.array([_code(text, place, alike, missing=missing, unseen=unseen) for text in column.texts], dtype=np.int64)[
            column.index
        ]
        for column in columns
    ]
    codes_in_use = np.unique(np.concatenate([np.unique(own) for own in codes]))
    labels = [*base]
    if unseen in codes_in_use and missing not in codes_in_use:
        codes, unseen = [np.where(own == unseen, missing, own) for own in codes], missing
        labels.append(_UNSEEN)
    else:
        labels += [_MISSING] * (missing in codes_in_use) + [_UNSEEN] * (unseen in codes_in_use)
    return _Column(labels=tuple(labels), codes=codes, values=[None] * len(columns))


def _alike(place: Mapping[str, int]) -> dict[object, int]:
    """Return other spellings that lead to one category: the same number, the same word in other letters, the same truth value."""
    codes_of: dict[object, set[int]] = {}
    for text, code in place.items():
        for key in _keys(text):
            codes_of.setdefault(key, set()).add(code)
    return {key: min(codes) for key, codes in codes_of.items() if len(codes) == 1}


def _keys(text: str) -> list[object]:
    lower_case = text.casefold()
    number = number_of(text)
    number = number if number is not None else number_of(text, "decimal-comma")
    return [
        lower_case,
        *([] if number is None else [number]),
        *([_BOOLEANS[lower_case]] if lower_case in _BOOLEANS else []),
    ]


def _code(text: str, place: Mapping[str, int], alike: Mapping[object, int], *, missing: int, unseen: int) -> int:
    trimmed_text = text.strip()
    if trimmed_text in place:
        return place[trimmed_text]
    if _is_missing(text):
        return missing
    for key in _keys(trimmed_text):
        if key in alike:
            return alike[key]
    return missing if trimmed_text.casefold() in _WORDS else unseen


# ---- all columns together


def _overlap(real: CodedTable, holdout: CodedTable) -> list[str]:
    """Return a note if the holdout overlaps the real table.

    A holdout of other people equals real records as often as a real record equals another one; more is overlap.
    """
    mine, theirs = number_records(real, holdout)
    counts = np.bincount(mine, minlength=int(theirs.max()) + 1)
    equal, chance_share = float((counts[theirs] > 0).mean()), float((counts[mine] > 1).mean())
    error = math.sqrt(max(chance_share * (1 - chance_share), 1 / real.n) * (1 / real.n + 1 / holdout.n))
    if equal <= chance_share + _OVERLAP_ERRORS * error:
        return []
    shared = round(holdout.n * (equal - chance_share) / (1 - chance_share))
    return [
        f"the holdout overlaps the real table: about {shared:,} of its {holdout.n:,} records are in both, so that members look "
        "less different from others than they are"
    ]


def _support(study: Study, names: Sequence[str], columns: Mapping[str, _Column]) -> Support | None:
    """Return what the rules leave possible over the columns at hand; what is not declared is not forbidden."""
    schema = Schema(variables=tuple(variable for variable in study.schema.variables if variable.name in names))
    knowledge = None if study.knowledge is None else narrow_knowledge(study.knowledge, study.schema, schema.names)
    if knowledge is None:
        return None
    full_support = support(knowledge, schema)
    further = [len(columns[variable.name].labels) - variable.n_states for variable in schema.variables]
    wider = tuple(
        dataclasses.replace(variable, labels=columns[variable.name].labels, means=None, representatives=None)
        for variable in schema.variables
    )
    factors = tuple(
        (scope, np.pad(table, [(0, further[variable]) for variable in scope], constant_values=1.0))
        for scope, table in full_support.factors
    )
    return Support(Schema(variables=wider), factors, full_support.names)


def _functions(
    study: Study, names: Sequence[str], columns: Mapping[str, _Column], notes: list[str]
) -> dict[str, Factor]:
    """Return the factors of columns that follow from others, where all of these are there.

    What is not declared follows from nothing.
    """
    if study.knowledge is None:
        return {}
    variables, place = _study_variables(study, names, []), {name: at for at, name in enumerate(columns)}
    factors: dict[str, Factor] = {}
    for function in study.knowledge.functions:
        scope = (*function.of, function.variable.name)
        if not set(scope) <= set(names):
            continue
        if math.prod(variables[name].n_states for name in scope) > MAX_SCOPE_CELLS:
            notes.append(f"rule '{function.name}' is not counted: it is about too many combinations of categories")
        else:
            codes = function_codes(function, [variables[name] for name in function.of])
            table = codes[..., None] == np.arange(function.variable.n_states)
            further = [len(columns[name].labels) - variables[name].n_states for name in scope]
            table = np.pad(table, [*((0, 0) for _ in function.of), (0, further[-1])], constant_values=False)
            table = np.pad(table, [*((0, more) for more in further[:-1]), (0, 0)], constant_values=True)
            factors[function.name] = (tuple(place[name] for name in scope), table.astype(np.float64))
    return factors
