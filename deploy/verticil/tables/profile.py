"""What each column of a table is, decided in one place, with the reason of each decision.

A draft of a study, ``verticil table`` and whoever simulates or synthesizes take what is decided here. Every decision that a
reader could doubt, and everything that is lost, has a reason: a sentence that names the column.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from verticil.party.dataset.sources.files import types_without_text
from verticil.party.dataset.sources.open_source import header
from verticil.shared.core.arrays import Bools, Floats, Ints
from verticil.shared.documents.written_values.dates import ISO_DATE, DatePattern
from verticil.shared.documents.written_values.numbers import OLD_STYLES, NumberStyle
from verticil.shared.documents.written_values.reading import MOMENTS, Kind, value_reader
from verticil.shared.study.vocabulary import MAX_TEXT, starts_a_formula
from verticil.tables.missing import is_word, missing_texts, words_among_numbers
from verticil.tables.ranges import (
    FEWEST_ROWS,
    Points,
    date_edges,
    find_points,
    moment_edges,
    number_edges,
    without_point_bins,
)
from verticil.tables.reading import guess_reading
from verticil.tables.texts import TextColumn, TextTable, texts_of
from verticil.tables.types import SourceType, source_types
from verticil.tables.writing import Writing, guess_dates, guess_numbers, is_midnight, sample

MANY_VALUES: Final = 12
"""A number with more distinct values than this is cut into bins."""
IDENTIFYING: Final = 0.5
"""Texts with more distinct values than this part of the rows are left out."""
MOST_CATEGORIES: Final = 100
CODES: Final = 5
"""So many texts, or one for ten distinct numbers, may stand among numbers."""
ID_NAMES: Final = ("id", "record_id", "person_id", "identifier", "key")
"""Names of columns that name the record."""
_MOST_CODES: Final = 100  # distinct whole numbers that can be codes
_ROWS_OF_A_CODE: Final = 10
_SPARSE: Final = 0.5  # of the whole numbers between the least and the largest code occur
_VERY_SPARSE: Final = 0.2  # where they have fewer than three digits, or not all the same number of them
_TAIL: Final = 0.1
_LONG: Final = 40  # letters of a free text
_FREE: Final = 0.2  # of the rows hold free text, or the column holds categories
_NEARLY_UNIQUE: Final = 0.95
_MANY_ROWS: Final = 300  # of fewer, measures can by chance be as many whole numbers that follow each other
_OWNERS_BINS: Final = 20
_SHARED_BINS: Final = 6
_WORTH: Final = 10.0  # records that a category of a randomized column should be worth
_LEADING_ZERO: Final = re.compile(r"[^0-9]*0[0-9]")
_SUM: Final = re.compile(r"[0-9]+")
_FINE: Final = re.compile(r"[.,][0-9]{13}|e-")
_SMALLEST: Final = 1e-9  # least range of numbers that bins and decimals can be written for
_LARGEST: Final = 1e15
_MOST_DECIMALS: Final = 12
_WORD_OF_A_NUMBER: Final = re.compile(
    r"(?i)(^|[^a-z])(id|nr|no|num|number|account|acct|phone|tel|telephone|fax|mobile|konto|record|patient|case|key|pid|ssn|iban)($|[^a-z])"
)
_ID_NAME: Final = re.compile(
    r"(?:^|[ _.\-])(?i:id)$|[a-z](?:ID|Id)$|"
    r"(?i:person|patient|subject|participant|respondent|user|member|client|customer|case|record|household|student|worker)(?i:id)$"
)
_MANY_IN_OTHER: Final = 0.2  # of the people, from where on groups of codes are proposed
_MOST_PEOPLE: Final = 0.95  # of the people that the groups must hold
_FEW_IDS: Final = 50  # distinct values; a column with fewer has categories
_RARE_ID: Final = 0.02  # distinct values in a row
_BOOLEANS: Final = frozenset({"true", "false"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProfile:
    """What one column is, and what a study would make of it.

    Attributes:
        source: the column's name in the table.
        name: without blanks at its ends.
        kind: its type; of a column that is left out what it seems to be.
        left_out: why it is left out; empty: it is not.
        written: how numbers or dates are written; empty: as is usual.
        unit: of numbers.
        decimals: of numbers; None: of another type.
        n_rows, n_distinct: rows, and distinct texts.
        missing: texts of missing values.
        n_missing: rows that have one.
        recode: text of the table -> category, where blanks stand around it.
        categories: in order; of a number those that are its points alone.
        timezone: of moments; empty: none.
        bins, points: on the scale of the type (`written_values.reading.value_reader`).
        far: points far from all other numbers.
        n_other: rows whose value is none of the categories.
        n_other_values: distinct values of these.
        n_strange: rows of a column of numbers whose text is none, and not missing.
        means: mean of each bin, of few rows its middle.
        reasons: why it was decided so, in sentences.
    """

    source: str
    name: str
    kind: Kind
    n_rows: int
    n_distinct: int
    left_out: str = ""
    written: str = ""
    unit: str = ""
    decimals: int | None = None
    missing: tuple[str, ...] = ()
    n_missing: int = 0
    recode: Mapping[str, str] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    bins: tuple[float, ...] = ()
    points: tuple[float, ...] = ()
    timezone: str = ""
    far: tuple[float, ...] = ()
    n_other: int = 0
    n_other_values: int = 0
    n_strange: int = 0
    strange: tuple[str, ...] = ()
    numbers: tuple[Floats, Ints] | None = field(default=None, repr=False)
    reasons: tuple[str, ...] = ()

    @property
    def missing_share(self) -> float:
        """The part of the rows without a value."""
        return self.n_missing / self.n_rows

    @property
    def other_share(self) -> float:
        """The part of the rows that no category is for."""
        return self.n_other / self.n_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProfile:
    """What a table is.

    Attributes:
        party: whose it is.
        texts: the table.
        columns: in its order.
        notes: on the file.
    """

    party: str
    texts: TextTable
    columns: tuple[ColumnProfile, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a profile is made for.

    Attributes:
        epsilon: of each randomized column; None: one owner's tables are measured with noise, and categories are cheap.
        columns: names of the columns to look at; empty: all.
        sheet: of a workbook.
    """

    epsilon: float | None = None
    columns: tuple[str, ...] = ()
    sheet: str = ""


def profile_table(party: str, path: Path, choice: Choice | None = None) -> TableProfile:
    """Read a table and decide what each column is.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY; DATA_COLUMN_MISSING, it lacks a column that was asked for.
    """
    choice = choice or Choice()
    reading = guess_reading(path, sheet=choice.sheet)
    unread = types_without_text(reading.rule)
    names = header(reading.rule)
    only = [name for name in choice.columns or names if name not in unread]
    table = texts_of(party, path, rule=reading.rule, only=only)
    types = source_types(reading.rule)
    writings = {
        name: _writing(column, types.get(name), reading.rule.delimiter) for name, column in table.columns.items()
    }
    words = words_among_numbers(
        [table.columns[name].texts for name, writing in writings.items() if writing is not None]
    )
    columns = tuple(
        _of_unread_type(name, unread[name], table.n_rows)
        if name in unread
        else _profile(table.columns[name], writings[name], types.get(name), words, choice)
        for name in names
        if not choice.columns or name in choice.columns
    )
    return TableProfile(party=party, texts=table, columns=columns, notes=(*reading.remarks, *table.notes))


# ---- numbers, dates, or texts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """How a column of numbers or moments is written."""

    kind: Kind
    writing: Writing


def _writing(column: TextColumn, source: SourceType | None, delimiter: str) -> _Written | None:
    """Return how a column writes numbers or moments; None: it does neither."""
    values = [text for text in column.texts if not is_word(text)]
    if not values or (source is not None and source.kind in {"boolean", "category", "ordered"}):
        return None
    dates = None if source is not None and source.kind in {"integer", "number"} else guess_dates(values)
    if dates is not None and "epoch" in dates.written and _names_a_number(column.source):
        dates = None  # a telephone's number has ten digits, too
    if dates is not None:
        pattern = DatePattern.of(dates.written)
        kind: Kind = "time" if not pattern.has_date else "datetime" if pattern.has_time else "date"
        if kind == "datetime" and source is None and _are_days(pattern, values):
            kind = "date"
        return _Written(kind=kind, writing=dates)
    numbers = guess_numbers(values, delimiter=delimiter)
    if not numbers.n_read or _has_leading_zero(values):
        return None
    n_texts = round(len(values) * (1 - numbers.share))
    n_numbers = len(values) - n_texts
    if n_texts > (max(CODES, n_numbers // 10) if n_numbers > MANY_VALUES else 0):
        return None
    return _Written(kind="number", writing=numbers)


def _are_days(pattern: DatePattern, texts: Sequence[str]) -> bool:
    if "epoch" in pattern.text:
        return False
    moments = [moment for text in texts if (moment := pattern.read(text)) is not None]
    return all(is_midnight(moment) for moment in moments)


def _has_leading_zero(texts: Sequence[str]) -> bool:
    """Return whether whole numbers, perhaps behind a letter, have leading zeros, which only codes have."""
    if not any(map(_LEADING_ZERO.match, texts)):
        return False
    bare_texts = [re.sub(r"^[^0-9]*|[^0-9]*$", "", text) for text in texts]
    codes = [text for text in bare_texts if len(text) > 1 and text[0] == "0" and _SUM.fullmatch(text)]
    return bool(codes) and all(_SUM.fullmatch(text) for text in bare_texts)


# ---- one column


def _of_unread_type(name: str, type_name: str, n_rows: int) -> ColumnProfile:
    """Return the profile of a column whose type no study has."""
    reason = f"its type is {type_name}, expected text, numbers, booleans or dates"
    hint = ": write it as a number of days or seconds" if type_name.startswith("duration") else ""
    return ColumnProfile(
        source=name, name=name.strip(), kind="category", n_rows=n_rows, n_distinct=0, left_out=reason + hint
    )


def _profile(
    column: TextColumn, written: _Written | None, source: SourceType | None, words: Collection[str], choice: Choice
) -> ColumnProfile:
    counts = dict(zip(column.texts, column.counts, strict=True))
    missing = missing_texts(counts, has_numbers=written is not None, elsewhere=words)
    base = ColumnProfile(
        source=column.source,
        name=column.source.strip(),
        kind="category",
        n_rows=len(column.index),
        n_distinct=len(counts),
        missing=missing.texts,
        n_missing=sum(counts[text] for text in missing.texts),
        reasons=missing.reasons,
    )
    values = {text: count for text, count in counts.items() if text not in set(missing.texts)}
    if (repeated := _repeated_id(base, len(values))) != "":
        return _leave_out(base, repeated)
    if not is_readable(base.name):
        return _leave_out(
            base, "its name is no plain text" if base.name else "it has no name: give it one in the header"
        )
    if len({text.strip() for text in values}) < 2:
        return _leave_out(base, f"it has {len(values)} distinct value{'s' * (len(values) != 1)}, expected at least 2")
    if written is not None:
        profile = _of_values(base, values, written, source, choice)
        if profile is not None:
            return profile
    return _of_categories(base, values, source, choice, is_code=written is not None)


def _repeated_id(base: ColumnProfile, n_values: int) -> str:
    """Return that a column which by its name names the person repeats; empty: it does not."""
    by_name = base.name.lower() in ID_NAMES or _ID_NAME.search(base.name) is not None
    n_rows = base.n_rows - base.n_missing
    if not by_name or n_values < max(_FEW_IDS, _RARE_ID * n_rows) or n_values == n_rows:
        return ""
    return (
        f"by its name it names a person, and it repeats in {n_rows - n_values:,} of {base.n_rows:,} rows: bring each "
        "person's rows into one (a count, the first or the last value) before, or draft them as a related table beside a table "
        "of the people (PARTY=PEOPLE PARTY.TABLE=ROWS)"
    )


def _leave_out(profile: ColumnProfile, reason: str) -> ColumnProfile:
    return _with(profile, left_out=reason)


def _with(profile: ColumnProfile, *reasons: str, **changes: object) -> ColumnProfile:
    import dataclasses

    return dataclasses.replace(profile, reasons=(*profile.reasons, *filter(None, reasons)), **changes)  # type: ignore[arg-type]


def _of_values(
    base: ColumnProfile, counts: Mapping[str, int], written: _Written, source: SourceType | None, choice: Choice
) -> ColumnProfile | None:
    """Profile a column of numbers or moments; None: its numbers are codes."""
    kind, writing = written.kind, written.writing
    values, weights, strange = _numbers(counts, kind, writing.written)
    if len(values) < 2:
        return _leave_out(base, f"it has {len(values)} distinct value{'s' * (len(values) != 1)}, expected at least 2")
    whole = kind == "number" and bool((values == np.floor(values)).all())
    if kind == "number":
        kind = "integer" if whole and (source is None or source.kind != "number") else "number"
    n_strange = sum(counts[text] for text in strange)
    base = _with(
        base,
        writing.doubt,
        f"{n_strange:,} rows ({n_strange / base.n_rows:.1%}) hold no {'number' if kind in {'integer', 'number'} else 'date'}: "
        "they become missing"
        if strange
        else "",
        kind=kind,
        written=""
        if writing.written in {"plain", ISO_DATE} or (source is not None and kind in MOMENTS)
        else writing.written,
        unit=writing.unit,
        timezone=_timezone(kind, writing.written) if source is None else source.timezone,
        n_strange=n_strange,
        strange=tuple(text for text in strange if counts[text] >= FEWEST_ROWS and is_readable(text)),
        n_missing=base.n_missing + n_strange,
        numbers=(values, weights),
    )
    if kind in {"date", "datetime", "time"}:
        return _of_moments(base, values, weights, choice)
    if whole and (reason := _identifier_reason(base, counts, values, weights)):
        return _leave_out(base, reason)
    if whole and _are_codes(values, weights):
        return None
    if len(values) <= MANY_VALUES and not _can_be_written(values).all():
        return None
    return _of_numbers(base, counts, values, weights, choice)


def _timezone(kind: Kind, written: str) -> str:
    """Return the zone of moments whose texts say one: they are read as UTC; empty: they say none."""
    has_zone = kind == "datetime" and "epoch" not in written and DatePattern.of(written).has_zone
    return "UTC" if has_zone else ""


def _numbers(counts: Mapping[str, int], kind: Kind, written: str) -> tuple[Floats, Ints, list[str]]:
    """Return the distinct numbers of a column, ascending, the rows of each, and the texts that are none."""
    read = value_reader(kind, written)
    numbers = np.array([math.nan if (number := read(text)) is None else number for text in counts], dtype=np.float64)
    is_number = np.isfinite(numbers)
    strange = [text for text, known in zip(counts, is_number.tolist(), strict=True) if not known]
    rows = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))[is_number]
    all_values = numbers[is_number]
    values, places = np.unique(all_values, return_inverse=True)
    weights = np.bincount(places, weights=rows, minlength=len(values)).astype(np.int64)
    return values, weights, strange


def _names_a_number(name: str) -> bool:
    """Return whether a column by its name holds numbers of records, accounts or telephones."""
    return bool(_WORD_OF_A_NUMBER.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)))


def _identifier_reason(base: ColumnProfile, counts: Mapping[str, int], values: Floats, weights: Ints) -> str:
    """Return why whole numbers seem to name the row; empty: they do not."""
    n = int(weights.sum())
    if len(values) < _NEARLY_UNIQUE * n or n <= MANY_VALUES or any(not text.strip().isdigit() for text in counts):
        return ""
    widths = {len(text.strip().lstrip("+-")) for text in counts}
    one_width = len(widths) == 1
    named = _names_a_number(base.name)
    counts_up = values[-1] - values[0] + 1 <= 1.5 * n
    if counts_up and (named or values[0] in {0.0, 1.0} or (one_width and n >= _MANY_ROWS)):
        return f"{len(values):,} distinct whole numbers in {n:,} rows count up, as numbers of records do"
    if one_width and min(widths) >= 7 and (named or len(values) >= 0.99 * n):
        return f"{len(values):,} distinct whole numbers of {min(widths)} digits in {n:,} rows look like numbers of accounts"
    if named and len(values) == n:
        return f"{len(values):,} distinct whole numbers in {n:,} rows look like the name of a record"
    return ""


def _are_codes(values: Floats, weights: Ints) -> bool:
    """Return whether whole numbers are codes: few, with many rows each, and with gaps between that no measure has."""
    points = find_points(values, weights)
    rest = ~np.isin(values, points.far)
    some, rows = values[rest], weights[rest]
    if not MANY_VALUES < len(some) <= _MOST_CODES or rows.sum() < _ROWS_OF_A_CODE * len(some):
        return False
    below = np.cumsum(rows) / rows.sum()
    inner = some[(below >= _TAIL) & (below - rows / rows.sum() <= 1 - _TAIL)]  # the tails of a measure have gaps, too
    if len(inner) < 3:
        return False
    lattice = (inner[-1] - inner[0]) / int(np.gcd.reduce(np.diff(inner).astype(np.int64))) + 1
    widths = {len(str(int(value))) for value in some}
    return bool(len(inner) / lattice < (_SPARSE if len(widths) == 1 and min(widths) >= 3 else _VERY_SPARSE))


def _of_numbers(
    base: ColumnProfile, counts: Mapping[str, int], values: Floats, weights: Ints, choice: Choice
) -> ColumnProfile:
    decimals = 0 if base.kind == "integer" else _decimals(counts, base.written)
    resolution = 1.0 if base.kind == "integer" else 10.0**-decimals
    span = float(values[-1] - values[0])
    if span < _SMALLEST or max(abs(values[0]), abs(values[-1])) >= _LARGEST:
        size = "small" if span < 1 else "large"
        better = "smaller" if size == "small" else "larger"
        return _leave_out(
            base,
            f"its numbers are too {size} to be written: use a {better} unit, so that they lie within 1e-9 and 1e15",
        )
    if len(values) <= MANY_VALUES:
        kept = weights >= FEWEST_ROWS
        if kept.sum() < 2:
            return _leave_out(base, f"fewer than 2 numbers have {FEWEST_ROWS} rows")
        return _with(
            base,
            decimals=decimals,
            points=tuple(values[kept].tolist()),
            n_other=int(weights[~kept].sum()),
            n_other_values=int((~kept).sum()),
        )
    points = find_points(values, weights).only(_can_be_written)
    rest = ~np.isin(values, points.values)
    edges = number_edges(values[rest], weights[rest], resolution=resolution, n_bins=_n_bins(base.n_rows, choice))
    edges = without_point_bins(edges, points.values, resolution)
    return _with_ranges(_with(base, decimals=decimals), edges, points, weights[rest], n_distinct=int(rest.sum()))


def _can_be_written(values: Floats) -> Bools:
    """Return which numbers a study can hold exactly: those of at most `_MOST_DECIMALS` decimals."""
    can: Bools = np.round(values, _MOST_DECIMALS) == values
    return can


def _with_ranges(
    base: ColumnProfile, edges: Sequence[float], points: Points, rest: Ints, *, n_distinct: int
) -> ColumnProfile:
    if len(edges) < 2 or rest.sum() < FEWEST_ROWS:
        if len(points.values) < 2:
            return _leave_out(base, f"fewer than 2 bins have {FEWEST_ROWS} rows")
        return _with(base, points=points.values, far=points.far, n_other=int(rest.sum()), n_other_values=n_distinct)
    if len(edges) + len(points.values) < 3:
        return _leave_out(base, f"fewer than 2 bins have {FEWEST_ROWS} rows")
    return _with(base, bins=tuple(edges), points=points.values, far=points.far)


def _of_moments(base: ColumnProfile, values: Floats, weights: Ints, choice: Choice) -> ColumnProfile:
    points = find_points(values, weights, are_moments=True)
    rest = ~np.isin(values, points.values)
    make = date_edges if base.kind == "date" else moment_edges
    edges = make(values[rest], weights[rest], n_bins=_n_bins(base.n_rows, choice)) if rest.sum() > 1 else []
    return _with_ranges(base, edges, points, weights[rest], n_distinct=int(rest.sum()))


def _n_bins(n_rows: int, choice: Choice) -> int:
    if choice.epsilon is not None:
        return _SHARED_BINS
    return max(4, min(_OWNERS_BINS, n_rows // (2 * FEWEST_ROWS)))


def _decimals(counts: Mapping[str, int], written: str) -> int:
    """Return the decimals that nearly all numbers are written with at most."""
    mark = "," if written == "decimal-comma" else "."
    if written and written not in OLD_STYLES:
        mark = NumberStyle.of(written).decimal
    pattern = re.compile(rf"{re.escape(mark)}([0-9]*)(?:[eE]([+-]?[0-9]+))?")
    power = re.compile(r"[eE]([+-]?[0-9]+)")
    widths = list[int]()
    for text in sample(list(counts)):
        match = pattern.search(text)
        if match is not None:
            widths.append(max(0, len(match[1]) - int(match[2] or 0)))
        elif (exponent := power.search(text)) is not None:
            widths.append(max(0, -int(exponent[1])))
        else:
            widths.append(0)
    return min(int(np.quantile(widths, 0.999, method="higher")), _MOST_DECIMALS)


# ---- categories


def is_readable(text: str) -> bool:
    """Return whether a text can be a category: plain, at most 200 letters, and nothing that a spreadsheet computes."""
    return (
        bool(text)
        and not starts_a_formula(text)
        and text == text.strip()
        and len(text) <= MAX_TEXT
        and not any(unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for letter in text)
    )


def _of_categories(
    base: ColumnProfile, counts: Mapping[str, int], source: SourceType | None, choice: Choice, *, is_code: bool
) -> ColumnProfile:
    n = sum(counts.values())
    if len(counts) > max(IDENTIFYING * base.n_rows, MANY_VALUES):
        return _leave_out(base, f"{len(counts):,} distinct texts in {base.n_rows:,} rows look identifying")
    n_free = sum(count for text, count in counts.items() if len(text) > _LONG and " " in text.strip())
    if n_free > _FREE * n and source is None and len(counts) > MANY_VALUES:
        return _leave_out(base, f"it holds free text of more than {_LONG} letters in {n_free:,} rows")
    merged: dict[str, int] = {}
    recode: dict[str, str] = {}
    for text, count in counts.items():
        bare = text.strip()
        merged[bare] = merged.get(bare, 0) + count
        if bare != text:
            recode[text] = bare
    ranked = sorted(
        (text for text in merged if is_readable(text) and merged[text] >= FEWEST_ROWS),
        key=lambda text: (-merged[text], text),
    )
    if sum(map(is_readable, merged)) < 2:
        return _leave_out(base, "its values are no plain texts of at most 200 letters")
    categories = ranked[: _most_categories(n, choice)]
    if len(categories) == len(merged) - 1 and len(ranked) == len(merged):
        categories = ranked  # one value alone is no `other`
    kept = set(categories)
    n_other = sum(count for text, count in merged.items() if text not in kept)
    if len(categories) + (n_other >= FEWEST_ROWS) < 2:
        return _leave_out(base, f"fewer than 2 categories have {FEWEST_ROWS} rows")
    order = () if source is None else source.categories
    kind: Kind = "ordered" if order else "category"
    kind = "boolean" if {text.casefold() for text in merged} <= _BOOLEANS else kind
    reasons = list[str]()
    if is_code and any(_FINE.search(text) for text in merged):
        reasons.append(
            f"its {len(merged)} numbers have more than {_MOST_DECIMALS} decimals, so they are taken for categories"
        )
    elif is_code:
        reasons.append(
            f"its {len(merged)} whole numbers are taken for codes: few, with many rows each, and gaps between them"
        )
    if recode:
        n_blank = sum(counts[text] for text in recode)
        reasons.append(f"blanks stand around its values in {n_blank:,} rows; they are taken off")
    if n_other >= FEWEST_ROWS:
        reasons.append(
            f"{n_other / base.n_rows:.0%} of the people are in 'other', which is for {len(merged) - len(kept):,} values"
            + _prefix_hint(merged, n_other / n)
        )
    elif n_other:
        reasons.append(
            f"{n_other} row{'s' * (n_other != 1)} with a value that fewer than {FEWEST_ROWS} rows have: a category is drawn "
            "for each"
        )
    return _with(
        base,
        *reasons,
        kind=kind,
        categories=tuple(sorted(categories, key=order.index) if order else _in_order(categories)),
        recode={text: bare for text, bare in recode.items() if bare in kept},
        n_other=n_other,
        n_other_values=len(merged) - len(kept),
        written="",
        unit="",
        numbers=None,
    )


def _prefix_hint(counts: Mapping[str, int], other_share: float) -> str:
    """Return how first letters make fewer categories of codes of which many people are in `other`; empty: they do not."""
    total = sum(counts.values())
    if other_share < _MANY_IN_OTHER or any(" " in text for text in counts):
        return ""
    for n_letters in (3, 2, 1):
        groups: dict[str, int] = {}
        for text, count in counts.items():
            groups[text[:n_letters]] = groups.get(text[:n_letters], 0) + count
        large = [count for count in groups.values() if count >= FEWEST_ROWS]
        if 2 <= len(large) <= MOST_CATEGORIES and sum(large) >= _MOST_PEOPLE * total:
            letters = f"first {n_letters} letters make" if n_letters > 1 else "first letter makes"
            return f'; their {letters} {len(large)} categories of them: group_by = "prefix:{n_letters}"'
    return ""


def _in_order(categories: Sequence[str]) -> list[str]:
    read = value_reader("number", "plain")
    return sorted(categories, key=lambda text: (number if (number := read(text)) is not None else math.inf, text))


def _most_categories(n: int, choice: Choice) -> int:
    """Return how many categories so many people can have: all that have enough, or of a randomized column what its noise leaves.

    Of K categories at epsilon a column of n records is worth n a^2, a = (e^epsilon - 1) / (e^epsilon + K - 1).
    """
    if choice.epsilon is None:
        return MOST_CATEGORIES
    odds = math.exp(choice.epsilon)
    worth = [n * ((odds - 1) / (odds + k - 1)) ** 2 / k for k in range(1, MOST_CATEGORIES + 1)]
    return max(8, sum(share >= _WORTH for share in worth))
