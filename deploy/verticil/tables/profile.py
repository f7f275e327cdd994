"""What each column of a table is, decided in one place, with the reason of each decision.

A draft of a study, ``verticil table`` and whoever simulates or synthesizes take what is decided here. Every decision that a
reader could doubt, and everything that is lost, has a reason: a sentence that names the column.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from verticil.party.dataset.sources.files import types_without_text
from verticil.party.dataset.sources.open_source import header
from verticil.shared.core.arrays import Bools, Floats, Ints
from verticil.shared.core.name_lists import shortened
from verticil.shared.documents.written_values.dates import DAY, ISO_DATE, DatePattern
from verticil.shared.documents.written_values.numbers import OLD_STYLES, NumberStyle
from verticil.shared.documents.written_values.reading import MOMENTS, Kind, read_texts
from verticil.shared.study.endings import ENDED_KINDS, Endings
from verticil.tables.categories import has_leading_zero, is_readable, of_categories
from verticil.tables.columns import (
    MANY_VALUES,
    MOST_DECIMALS,
    PLURALS,
    Choice,
    ColumnProfile,
    TableProfile,
    leave_out,
    rows_in_words,
    with_changes,
)
from verticil.tables.endings import find_endings
from verticil.tables.hints import unreadable_words
from verticil.tables.missing import MissingTexts, missing_texts, words_among_numbers, words_of
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
from verticil.tables.source_types import SourceType, source_types
from verticil.tables.texts import TextColumn, TextCounts, texts_of
from verticil.tables.whole_units import find_whole_format
from verticil.tables.writing import Writing, guess_dates, guess_numbers, is_midnight, sample

NOUNS: Final[Mapping[Kind, str]] = {
    "integer": "number", "number": "number", "date": "date", "datetime": "date with a time", "time": "time of day",
    "category": "text", "ordered": "text", "boolean": "truth value",
}  # fmt: skip
"""What a value of a type is called."""
CODES: Final = 5
"""So many texts, or one for ten distinct numbers, may stand among numbers."""
ID_NAMES: Final = ("id", "record_id", "person_id", "identifier", "key")
"""Names of columns that name the record."""
_MOST_CODES: Final = 100  # distinct whole numbers that can be codes
_ROWS_OF_A_CODE: Final = 10
_MOST_STEPS: Final = 30  # of a scale
_SPARSE: Final = 0.5  # of the whole numbers between the least and the largest code occur
_VERY_SPARSE: Final = 0.2  # where they have fewer than three digits, or not all the same number of them
_TAIL: Final = 0.1
_NEARLY_UNIQUE: Final = 0.95
_MANY_ROWS: Final = 300  # of fewer, measures can by chance be as many whole numbers that follow each other
_OWNERS_BINS: Final = 20
_SHARED_BINS: Final = 6
_SMALLEST: Final = 1e-9  # least range of numbers that bins and decimals can be written for
_LARGEST: Final = 1e15
_DECIMALS_OF_CODES: Final = 3
_DIGITS: Final = 15  # of a number of the machine
_OF_SMALL: Final = 3  # digits of small numbers beside large ones
_POWER: Final = re.compile(r"(?<=[0-9.])[eE]([+-]?[0-9]+)")
_DATES_AS_NUMBERS: Final = {"YYYYMMDD", "YYYYMM", "epoch s", "epoch ms", "epoch us", "epoch ns"}
"""How dates are written in columns of numbers, as a program makes them of digits that it read."""
_RUN_OF_DIGITS: Final = re.compile("(?!YYYYMMDD$)[YMDhms]+( until [0-9]+)?|epoch .*")
_WORD_OF_A_NUMBER: Final = re.compile(
    r"(?i)(^|[^a-z])(id|nr|no|num|number|account|acct|phone|tel|telephone|fax|mobile|konto|record|patient|case|key|pid|ssn|iban)($|[^a-z])"
)
_NAMES_A_DATE: Final = re.compile(r"(?i)(^|[^a-z])(dates?|datum|fecha|data|dob|birthday|dt)($|[^a-z])")
_SERIAL: Final = (20_000, 60_000)  # days since 1899-12-30: 1954 to 2064
_ID_NAME: Final = re.compile(
    r"(?:^|[ _.\-])(?i:id)$|[a-z](?:ID|Id)$|"
    r"(?i:person|patient|subject|participant|respondent|user|member|client|customer|case|record|household|student|worker)(?i:id)$"
)
_FEW_IDS: Final = 50  # distinct values; a column with fewer has categories
_RARE_ID: Final = 0.02  # distinct values in a row


def profile_table(party: str, path: Path, choice: Choice | None = None) -> TableProfile:
    """Read a table and decide what each column is.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY; DATA_COLUMN_MISSING, it lacks a column that was asked for.
    """
    choice = choice or Choice()
    reading = guess_reading(path, sheet=choice.sheet)
    unread = types_without_text(reading.rule)
    names = header(reading.rule)
    if names.count("") > 1:  # before the first delimiter and behind the last one, in a frame of lines
        names = tuple(filter(None, names))
    only = [name for name in choice.columns or names if name not in unread]
    table = texts_of(party, path, rule=reading.rule, only=only)
    types = source_types(reading.rule)
    words = {name: words_of(column.texts) for name, column in table.columns.items()}
    writings = {
        name: _writing(column, words[name], types.get(name), reading.rule.delimiter)
        for name, column in table.columns.items()
    }
    missing_words = words_among_numbers(words[name] for name, writing in writings.items() if writing is not None)
    first_of = {name.strip(): name for name in reversed(names)}
    columns = tuple(
        _of_unread_type(name, unread[name], table.n_rows)
        if name in unread
        else _of_second_name(table.columns[name])
        if first_of[name.strip()] != name and name.strip()
        else _profile(
            table.columns[name],
            writings[name],
            types.get(name),
            choice,
            missing=_missing(table.columns[name], words[name], writings[name], missing_words),
        )
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


def _writing(column: TextColumn, words: Sequence[str], source: SourceType | None, delimiter: str) -> _Written | None:
    """Return how a column writes numbers or moments; None: it does neither."""
    values = _without(column.texts, words)
    if not values or (source is not None and source.kind in {"boolean", "category", "ordered"}):
        return None
    dates = guess_dates(values)
    is_typed = source is not None and source.kind in {"integer", "number"}
    if dates is not None and is_typed and dates.written not in _DATES_AS_NUMBERS:
        dates = None
    if dates is not None and _RUN_OF_DIGITS.fullmatch(dates.written) and _names_a_number(column.source):
        dates = None  # a telephone's number has ten digits, too
    if dates is not None:
        pattern = DatePattern.of(dates.written)
        kind: Kind = "time" if not pattern.has_date else "datetime" if pattern.has_time else "date"
        if kind == "datetime" and source is None and _are_days(pattern, values):
            kind = "date"
        return _Written(kind=kind, writing=dates)
    numbers = guess_numbers(values, delimiter=delimiter)
    if not numbers.n_read or has_leading_zero(values):
        return None
    n_texts = round(len(values) * (1 - numbers.share))
    n_numbers = len(values) - n_texts
    if n_texts > (max(CODES, n_numbers // 10) if n_numbers > MANY_VALUES else 0):
        return None
    return _Written(kind="number", writing=numbers)


def _without(texts: Sequence[str], words: Sequence[str]) -> Sequence[str]:
    """Return the texts that are none of a few words."""
    if not words:
        return texts
    left_out = set(words)
    return [text for text in texts if text not in left_out]


def _are_days(pattern: DatePattern, texts: Sequence[str]) -> bool:
    if "epoch" in pattern.text:
        return False
    moments = [moment for text in texts if (moment := pattern.read(text)) is not None]
    return all(is_midnight(moment) for moment in moments)


# ---- one column


def _of_unread_type(name: str, type_name: str, n_rows: int) -> ColumnProfile:
    """Return the profile of a column whose type no study has."""
    reason = f"its type is {type_name}, expected text, numbers, booleans or dates"
    hint = ": write it as a number of days or seconds" if type_name.startswith("duration") else ""
    return ColumnProfile(
        source=name, name=name.strip(), kind="category", n_rows=n_rows, n_distinct=0, left_out=reason + hint
    )


def _of_second_name(column: TextColumn) -> ColumnProfile:
    """Return the profile of a column whose name differs from another one's in blanks alone."""
    reason = "another column has this name, too, but for blanks around it: give each a name of its own"
    return ColumnProfile(
        source=column.source, name=column.source.strip(), kind="category", n_rows=len(column.index),
        n_distinct=len(column.texts), left_out=reason,
    )  # fmt: skip


def _missing(
    column: TextColumn, words: Sequence[str], written: _Written | None, missing_words: Collection[str]
) -> MissingTexts:
    return missing_texts(column.text_counts, words, has_numbers=written is not None, elsewhere=missing_words)


def _profile(
    column: TextColumn,
    written: _Written | None,
    source: SourceType | None,
    choice: Choice,
    *,
    missing: MissingTexts,
) -> ColumnProfile:
    counts = column.text_counts
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
    values = counts.without(set(missing.texts))
    if (repeated := _repeated_id(base, len(values))) != "":
        return leave_out(base, repeated)
    if not base.name:
        has_index = _is_index(list(values))
        return leave_out(
            base,
            "it has no name, and its numbers count the rows, as an index of pandas or R does"
            if has_index
            else "it has no name: give it one in the header",
        )
    if not is_readable(base.name):
        return leave_out(base, f"its name {unreadable_words([base.name])}")
    if not _has_two_values(values):
        n_values = len({text.strip() for text in values})
        is_mark = n_values == 1 and 0 < base.n_missing < base.n_rows
        hint = (
            f"; the other {base.missing_share:.0%} of the rows have none: if that says no, write no there"
            if is_mark
            else ""
        )
        return leave_out(base, f"it has {n_values} distinct value{'s' * (n_values != 1)}, expected at least 2{hint}")
    if written is not None:
        profile = _of_values(base, values, written, source, choice)
        if profile is not None:
            return profile
    return of_categories(base, values, source, choice, is_code=written is not None)


def _has_two_values(texts: Collection[str]) -> bool:
    """Return whether two texts differ in more than blanks around them."""
    first = next(iter(texts), "").strip()
    return any(text.strip() != first for text in texts)


def _is_index(texts: Sequence[str]) -> bool:
    """Return whether texts are the numbers from 0 or 1 on, in their order."""
    first = texts[0] if texts else ""
    return first in {"0", "1"} and list(texts) == [str(number) for number in range(int(first), int(first) + len(texts))]


ONE_ROW: Final = (
    'at a node take one row a person, one_row = "first" (or "last", "any") and order = COLUMN in [dataset.NAME], or a summary, '
    'summary = "count" (or "any", "sum", "min", "max", "first", "last") and table = TABLE in [dataset.NAME.columns.VARIABLE]'
)
"""What party.toml can say where people have several rows and a study has one."""


def _repeated_id(base: ColumnProfile, n_values: int) -> str:
    """Return that a column which by its name names the person repeats; empty: it does not."""
    by_name = base.name.lower() in ID_NAMES or _ID_NAME.search(base.name) is not None
    n_rows = base.n_rows - base.n_missing
    if not by_name or n_values < max(_FEW_IDS, _RARE_ID * n_rows) or n_values == n_rows:
        return ""
    return (
        f"by its name it names a person, and it repeats in {n_rows - n_values:,} of {base.n_rows:,} rows: draft "
        f"its rows as a related table beside a table of the people (PARTY=PEOPLE PARTY.TABLE=ROWS); {ONE_ROW}"
    )


def _of_values(
    base: ColumnProfile, counts: TextCounts, written: _Written, source: SourceType | None, choice: Choice
) -> ColumnProfile | None:
    """Profile a column of numbers or moments; None: its numbers are codes."""
    kind, writing = written.kind, written.writing
    values, weights, strange = _numbers(counts, kind, writing.written)
    if len(values) < 2:
        return leave_out(base, f"it has {len(values)} distinct value{'s' * (len(values) != 1)}, expected at least 2")
    whole = kind == "number" and bool((values == np.floor(values)).all())
    if kind == "number":
        kind = "integer" if whole and (source is None or source.kind != "number") else "number"
    n_strange = sum(counts[text] for text in strange)
    base = with_changes(
        base,
        writing.doubt,
        _limits(counts, writing.written) if kind in {"integer", "number"} else "",
        _serial_days(base.name, values) if kind in {"integer", "number"} else "",
        f"{rows_in_words(n_strange, base.n_rows)} hold{'s' * (n_strange == 1)} no {NOUNS[kind]}: "
        + ("it becomes missing" if n_strange == 1 else "they become missing")
        if strange
        else "",
        kind=kind,
        written=""
        if writing.written in {"plain", ISO_DATE} or (source is not None and source.kind in MOMENTS)
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
        return leave_out(base, reason)
    if kind in {"integer", "number"} and not writing.unit and _are_codes(values, weights):
        return None
    are_few = len(values) <= MANY_VALUES or (len(values) <= _MOST_STEPS and weights.min() >= FEWEST_ROWS)
    if are_few and not _can_be_written(values).all():
        return None
    return _of_numbers(base, counts, values, weights, choice)


def _limits(counts: Mapping[str, int], written: str) -> str:
    """Return in how many rows a number stands for all beyond it, as in ``< 0.6``; empty: in none."""
    if written in {"plain", *OLD_STYLES}:
        return ""
    is_limit = NumberStyle.of(written).is_limit
    texts = [text for text in counts if is_limit(text)]
    n_rows = sum(counts[text] for text in texts)
    if not texts:
        return ""
    example = max(texts, key=lambda text: (counts[text], text)).strip()
    return (
        f"{n_rows:,} of {sum(counts.values()):,} rows hold a number beyond a limit, such as '{example}': each is taken for "
        "the limit itself"
    )


def _serial_days(name: str, values: Floats) -> str:
    """Return that numbers of a column that by its name holds dates may be days of a spreadsheet; empty: they are none."""
    has_the_name = _NAMES_A_DATE.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None
    if not has_the_name or not _SERIAL[0] <= values[0] < values[-1] < _SERIAL[1]:
        return ""
    first = dt.date(1899, 12, 30) + dt.timedelta(days=int(values[0]))
    return (
        f"by its name it holds dates, and its numbers may be days of a spreadsheet, {int(values[0])} for {first}: they stay "
        "numbers; write dates into the file, and records have dates"
    )


def _timezone(kind: Kind, written: str) -> str:
    """Return the zone of moments whose texts say one: they are read as UTC; empty: they say none."""
    has_zone = kind == "datetime" and "epoch" not in written and DatePattern.of(written).has_zone
    return "UTC" if has_zone else ""


def _numbers(counts: TextCounts, kind: Kind, written: str) -> tuple[Floats, Ints, list[str]]:
    """Return the distinct numbers of a column, ascending, the rows of each, and the texts that are none."""
    numbers = read_texts(counts.texts, kind, written)
    is_number = np.isfinite(numbers)
    strange = [] if is_number.all() else list(itertools.compress(counts.texts, (~is_number).tolist()))
    order = np.argsort(np.where(is_number, numbers, np.nan))[: int(is_number.sum())]  # NaN is the last
    ascending, rows = numbers[order], np.array(counts.rows, dtype=np.int64)[order]
    first = np.flatnonzero(np.diff(ascending, prepend=np.nan) != 0)  # of each value
    return ascending[first] + 0.0, np.add.reduceat(rows, first) if first.size else rows, strange


def _names_a_number(name: str) -> bool:
    """Return whether a column by its name holds numbers of records, accounts or telephones."""
    return bool(_WORD_OF_A_NUMBER.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)))


def _identifier_reason(base: ColumnProfile, counts: Mapping[str, int], values: Floats, weights: Ints) -> str:
    """Return why whole numbers seem to name the row; empty: they do not."""
    n = int(weights.sum())
    if len(values) < _NEARLY_UNIQUE * n or n <= MANY_VALUES:
        return ""
    texts = list(map(str.strip, counts))
    if not all(map(str.isdigit, texts)):
        return ""
    widths = set(map(len, texts))
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
    """Return whether numbers of at most three decimals are codes: few, with many rows each, and gaps that no measure has."""
    scale = next((10.0**n for n in range(_DECIMALS_OF_CODES + 1) if _is_whole(values * 10.0**n)), 0.0)
    if not scale or not MANY_VALUES < len(values) <= 2 * _MOST_CODES:
        return False
    values = np.round(values * scale)
    points = find_points(values, weights)
    rest = ~np.isin(values, points.far)
    some, rows = values[rest], weights[rest]
    if not MANY_VALUES < len(some) <= _MOST_CODES or rows.sum() < _ROWS_OF_A_CODE * len(some):
        return False
    if some[0] >= 0 and _is_whole(np.sqrt(some)):  # squares, which tables for regressions have
        return False
    below = np.cumsum(rows) / rows.sum()
    inner = some[(below >= _TAIL) & (below - rows / rows.sum() <= 1 - _TAIL)]  # the tails of a measure have gaps, too
    if len(inner) < 3:
        return False
    lattice = (inner[-1] - inner[0]) / int(np.gcd.reduce(np.diff(inner).astype(np.int64))) + 1
    widths = {len(str(int(value))) for value in some} if scale == 1 else set[int]()
    return bool(len(inner) / lattice < (_SPARSE if len(widths) == 1 and min(widths) >= 3 else _VERY_SPARSE))


def _is_short_scale(values: Floats, weights: Ints, resolution: float) -> bool:
    """Return whether numbers are a scale of few steps of several units, such as scores by fives, between which bins would lie."""
    if len(values) > _MOST_STEPS or weights.min() < FEWEST_ROWS:
        return False
    return int(np.gcd.reduce(np.diff(np.round(values / resolution)).astype(np.int64))) > 1


def _is_whole(values: Floats) -> bool:
    return bool((np.abs(values - np.round(values)) < 1e-6).all())


def _of_numbers(
    base: ColumnProfile, counts: Mapping[str, int], values: Floats, weights: Ints, choice: Choice
) -> ColumnProfile:
    texts = sample(list(counts))
    decimals = 0 if base.kind == "integer" else _decimals(texts, base.written, values)
    resolution = 1.0 if base.kind == "integer" else 10.0**-decimals
    span = float(values[-1] - values[0])
    if span < _SMALLEST or max(abs(values[0]), abs(values[-1])) >= _LARGEST:
        size = "small" if span < 1 else "large"
        better = "smaller" if size == "small" else "larger"
        return leave_out(
            base,
            f"its numbers are too {size} to be written: use a {better} unit, so that they lie within 1e-9 and 1e15",
        )
    is_short = len(values) <= MANY_VALUES or (choice.epsilon is None and _is_short_scale(values, weights, resolution))
    if is_short:
        kept = weights >= FEWEST_ROWS
        if kept.sum() < 2:
            return leave_out(base, f"fewer than 2 numbers have {FEWEST_ROWS} rows")
        return with_changes(
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
    # The digits of powers of ten begin, and do not end, at one place.
    has_powers = any(map(_POWER.search, texts))
    endings = () if has_powers else find_endings(values[rest], weights[rest], kind=base.kind, decimals=decimals)
    base = with_changes(base, _endings_reason(endings, "numbers"), decimals=decimals, endings=endings)
    return _with_ranges(base, edges, points, weights[rest], n_distinct=int(rest.sum()))


def _endings_reason(endings: Endings, noun: str) -> str:
    if not endings:
        return ""
    return f"its {noun} end in {shortened([f'{text} ({share:.0%})' for text, share in endings])}: records keep these endings"


def _can_be_written(values: Floats) -> Bools:
    """Return which numbers a study can hold exactly: those of at most `MOST_DECIMALS` decimals."""
    can: Bools = np.round(values, MOST_DECIMALS) == values
    return can


def _with_ranges(
    base: ColumnProfile, edges: Sequence[float], points: Points, rest: Ints, *, n_distinct: int
) -> ColumnProfile:
    if len(edges) < 2 or rest.sum() < FEWEST_ROWS:
        if len(points.values) < 2:
            return leave_out(base, f"fewer than 2 bins have {FEWEST_ROWS} rows")
        return with_changes(
            base, points=points.values, far=points.far, n_other=int(rest.sum()), n_other_values=n_distinct
        )
    if len(edges) + len(points.values) < 3:
        return leave_out(base, f"fewer than 2 bins have {FEWEST_ROWS} rows")
    return with_changes(base, bins=tuple(edges), points=points.values, far=points.far)


def _of_moments(base: ColumnProfile, values: Floats, weights: Ints, choice: Choice) -> ColumnProfile:
    unit = 1.0 if base.kind == "date" else float(DAY)  # of values, in a day
    if base.kind != "time":
        zone = "Z" if base.timezone and not base.format else ""
        whole, where = find_whole_format(base.pattern + zone, values * (DAY / unit))
        reason = f"all of its {PLURALS[base.kind]} are {where}: those of records are, too" if whole else ""
        base = with_changes(base, reason, whole_format=whole)
    if _are_few(values, weights, base, choice):
        return with_changes(base, points=tuple(values.tolist()))
    points = find_points(values, weights, are_moments=True)
    rest = ~np.isin(values, points.values)
    n_bins = _n_bins(base.n_rows, choice)
    if rest.sum() < 2:
        edges = list[float]()
    elif base.kind == "date" or base.whole_format:
        edges = [unit * day for day in date_edges(values[rest] / unit, weights[rest], n_bins=n_bins)]
    else:
        edges = moment_edges(values[rest], weights[rest], n_bins=n_bins)
    if base.kind in ENDED_KINDS and not base.whole_format:
        endings = find_endings(values[rest], weights[rest], kind=base.kind, pattern=base.pattern, zone=base.timezone)
        base = with_changes(base, _endings_reason(endings, PLURALS[base.kind]), endings=endings)
    return _with_ranges(base, edges, points, weights[rest], n_distinct=int(rest.sum()))


def _are_few(values: Floats, weights: Ints, base: ColumnProfile, choice: Choice) -> bool:
    """Return whether moments are few, as days of a survey's waves, with enough rows each and days between that nobody has."""
    if weights.min() < FEWEST_ROWS or len(values) < 2:
        return False
    step = 1.0 if base.kind == "date" else float(DAY if base.whole_format else 60)
    are_apart = choice.epsilon is None and len(values) <= _MOST_STEPS and np.diff(values).min() > step
    return len(values) <= MANY_VALUES or bool(are_apart)


def _n_bins(n_rows: int, choice: Choice) -> int:
    if choice.epsilon is not None:
        return _SHARED_BINS
    return max(4, min(_OWNERS_BINS, n_rows // (2 * FEWEST_ROWS)))


def _decimals(texts: Sequence[str], written: str, values: Floats) -> int:
    """Return the decimals that nearly all numbers are written with at most, without those that only the machine knows.

    A number of the machine has 15 digits. Where large ones leave few for decimals, small ones still have three of their own.
    """
    mark = "," if written == "decimal-comma" else "."
    if written and written not in OLD_STYLES:
        mark = NumberStyle.of(written).decimal
    pattern = re.compile(rf"{re.escape(mark)}([0-9]*)(?:[eE]([+-]?[0-9]+))?")
    widths = list[int]()
    for text in texts:
        match = pattern.search(text)
        if match is not None:
            widths.append(max(0, len(match[1]) - int(match[2] or 0)))
        elif (exponent := _POWER.search(text)) is not None:
            widths.append(max(0, -int(exponent[1])))
        else:
            widths.append(0)
    sizes = np.abs(values[values != 0])
    if not len(sizes):
        return 0
    before, least = math.ceil(math.log10(sizes.max())), math.floor(math.log10(np.quantile(sizes, 0.05)))
    most = max(_DIGITS - max(before, 0), _OF_SMALL - 1 - least, 0)
    return min(int(np.quantile(widths, 0.999, method="higher")), most, MOST_DECIMALS)
