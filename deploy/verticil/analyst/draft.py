"""A first draft of a study document from tables at hand: variables with proposed categories and bins, to be reviewed.

The draft saves typing and decides nothing. Categories must be public knowledge: what it proposes was seen in the data, so
every proposal is marked for review (``from = "table"``), and the study is refused wherever it would be acted on until its author
says that it was reviewed (`verticil.shared.study.review`). Tables that are declared public need no review. No category and no
bin has fewer than `FEWEST_ROWS` rows, and outer ends of bins are rounded outward. It runs where the tables are; it sends
nothing, and its errors name files, columns and counts only. Tables are read by the node's own reader, and what party.toml must
say for that stands in the draft. What is left out, or is not as it seems, has a line that starts with `NOTE`.

How a table at hand would have to be declared in party.toml, guessed from it: delimiter, encoding, how numbers are written.

For drafts and simulations, whose author holds the tables; a node guesses nothing. The node's own reader then reads the file.
"""

from __future__ import annotations

import calendar
import codecs
import datetime as dt
import itertools
import json
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.sources.csv_files import DELIMITERS, undecodable
from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts, rows_in_footer
from verticil.party.dataset.sources.source_table import DATABASES, ENDINGS, ColumnRule, DatasetRule
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.foreign_files.limits import TEXTS_BYTES
from verticil.shared.documents.written_values.reading import OLD_WAYS, number_of
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.codebook import bin_labels
from verticil.shared.study.document import Study
from verticil.shared.study.rules import is_party_name
from verticil.shared.study.vocabulary import MAX_TEXT, PLACEHOLDERS, PUBLIC, TABLE, starts_a_formula

NOTE: Final = "# note: "
_UNREVIEWED: Final = "reviewed = false                         # review: true, when you have gone through every column"
REVIEW: Final = "# review: categories must be public knowledge"
MAX_ROWS: Final = 20_000_000
"""Most rows of a table that is held in memory as texts."""
MAX_CELLS: Final = 150_000_000
"""Most cells of such a table: some 24 bytes each while it is read."""
_MEANS: Final = "# review: of the numbers in each bin, which tells something about these rows; left out: spread evenly"

MISSING: Final = ("", "?", "-", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
MANY_VALUES: Final = 12  # a number with more distinct values than this is binned
_MOST_CATEGORIES: Final = 16
IDENTIFYING: Final = 0.5  # texts with more distinct values than this part of the rows are left out
_SPIKE: Final = 0.2  # a whole number that so many rows have gets its own bin
_N_BINS: Final = 6
FEWEST_ROWS: Final = 10  # of a category or bin: what fewer people have could name one of them
_EPSILON: Final = 3.0
_EPSILON_OF_A_PARTY: Final = 20.0
"""Of one column, and of all columns of one party: the limits that ``verticil party init`` writes."""
CODES: Final = 5  # so many texts, or one for ten distinct numbers, may stand among numbers
_FEW: Final = 20  # the mean of a bin with fewer rows is not told
_YEARS: Final = 6  # dates over more years become whole years
_PER_VALUE: Final = 3  # rows; with fewer for each value, that one column is a function of another says nothing
ID_NAMES: Final = ("id", "record_id", "person_id", "identifier", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """One column of one party: distinct texts, how many rows have each, and for every row the position of its text."""

    party: str
    source: str
    texts: Sequence[str] = field(repr=False)
    counts: Sequence[int] = field(repr=False)
    index: NDArray[np.int64] = field(repr=False)

    @property
    def is_unique(self) -> bool:
        """Whether no two rows have the same text."""
        return len(self.texts) == len(self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """The table of one party, and what party.toml must say so that its node reads it."""

    columns: Mapping[str, TextColumn]
    n_rows: int
    notes: Sequence[str]
    settings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """What the author of a draft says of it at once.

    Attributes:
        title, purpose: of the study; what stands there is refused until it is replaced.
        public: the tables are public: categories need no review.
        means: the exact means of the numbers in each bin stand in the draft, too.
    """

    title: str = PLACEHOLDERS["title"]
    purpose: str = PLACEHOLDERS["purpose"]
    public: bool = False
    means: bool = False

    @property
    def origin(self) -> str:
        """The line that says where a column's categories come from."""
        return f"from = {_quote(PUBLIC if self.public else TABLE)}"


def draft(tables: Mapping[str, Path], *, wording: Wording | None = None, today: dt.date | None = None) -> str:
    """Write a draft study.

    Args:
        tables: party -> its table, CSV or Parquet (by the file's ending).
        wording: what its author says of it; None: nothing yet.
        today: the day (UTC) that the expiry is counted from, a year ahead; default: now.

    Returns:
        TOML text that `read_study` accepts.

    Raises:
        Misuse: USAGE, no table, or a party's name cannot stand in a certificate.
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY; DATA_ID_MISSING, no column is in all tables and unique
            in each.
    """
    if not tables:
        raise Misuse(
            "USAGE", "no table given, expected PARTY=FILE", hint="verticil study draft hospital=people.csv ..."
        )
    for party in tables:
        if not is_party_name(party):
            raise Misuse(
                "USAGE", f"got the party name '{party}', expected 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit first"
            )
    wording = wording or Wording()
    read = {party: texts_of(party, path) for party, path in tables.items()}
    id_column = _id_column(read, tables)
    name_counts = Counter(name for table in read.values() for name in table.columns if name != id_column)
    blocks, most = list[str](), 0
    for party, table in read.items():
        settings = "; ".join([f"id column '{id_column}'"] * bool(id_column) + [*table.settings] * bool(table.settings))
        blocks.append(
            "\n".join([f"# ---- {party}: {tables[party].name}" + (f", {settings}" if settings else ""), *table.notes])
        )
        n_before = len(blocks)
        columns = [column for name, column in table.columns.items() if name != id_column]
        for column in columns:
            name = column.source
            blocks.append(_variable(column, f"{party} {name}" if name_counts[name] > 1 else name, wording))
        n_columns = sum(block.startswith("[[variable]]") for block in blocks[n_before:])
        most = max(most, n_columns)
        if not n_columns:
            raise DataFault("DATA_EMPTY", f"{tables[party]}: no column can be proposed as a variable")
        variables = [c for c, block in zip(columns, blocks[n_before:], strict=True) if block.startswith("[[variable]]")]
        blocks += ["\n".join(_functions(variables))] * bool(list(_functions(variables)))
    today = today or dt.datetime.now(dt.UTC).date()
    n_rows = min(table.n_rows for table in read.values())
    return (
        _head(tables, today, n_rows, wording)
        + "\n\n".join(blocks)
        + _tail(sum(block.startswith("[[variable]]") for block in blocks), most)
    )


_OF_DATA: Final = """\
# Draft of a study, proposed from tables. Everything marked "review" was seen in the data: replace it by what is public
# knowledge before you show this file to anyone. Bins tell something about the rows they were drafted from: draft from public
# data or last year's where there are some. Each column says where its categories come from: "table", or "public" once you have
# replaced them. Nothing but "study check" and "simulate --unreviewed" takes the study before you have set reviewed = true."""
_OF_PUBLIC: Final = """\
# Draft of a study, proposed from tables that were declared public (--public): categories and bins need no review."""


def _head(tables: Mapping[str, Path], today: dt.date, n_rows: int, wording: Wording) -> str:
    parties = "\n".join(f"[[party]]\nname = {_quote(party)}" for party in tables)
    title, purpose = (
        f"{key} = {_quote(text)}".ljust(40) + f" {review}" if text == PLACEHOLDERS[key] else f"{key} = {_quote(text)}"
        for key, text, review in (
            ("title", wording.title, "# review"),
            ("purpose", wording.purpose, "# review: what the parties read before they approve"),
        )
    )
    return f"""\
{_OF_PUBLIC if wording.public else _OF_DATA}
schema = 1
id = "draft"                             # review: a-z 0-9 -
{title}
{purpose}
expires = {(today + dt.timedelta(days=365)).isoformat()}

[draft]
{"reviewed = true                          # its tables are public" if wording.public else _UNREVIEWED}

{parties}

[linkage]
minimum_common_records = {min(1000, max(1, n_rows // 2))}

"""


def _tail(n_variables: int, most: int) -> str:
    """Return the text that follows the variables, of which a party has `most`."""
    epsilon = min(_EPSILON, math.floor(100 * _EPSILON_OF_A_PARTY / most) / 100)
    return f"""

[randomization_default]                  # review: check what it means with: verticil study check FILE --n RECORDS
scheme = "symmetric"
epsilon = {epsilon:<30}# at most {_EPSILON:g} a column and {_EPSILON_OF_A_PARTY:g} a party, the limits that sites begin with

[structure]
method = "auto"                         # the best of some on records held out; or greedy, order, genetic, tree, hill-climb
max_parents = {min(2, n_variables - 1)}
seed = 1

[release]
synthetic_records = "common"
seed = 1
"""


def texts_of(
    party: str, path: Path, *, rule: DatasetRule | None = None, only: Collection[str] | None = None
) -> TextTable:
    """Read a table as the party's node reads it, with every value as text.

    Args:
        party: what to call it.
        path: the file.
        rule: how it is read; None: this is guessed.
        only: columns to read; None: all.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE, DATA_EMPTY; DATA_COLUMN_MISSING, one of `only` is not there.
    """
    rule = rule or dataset_rule(path, "")
    names = header(rule)
    if only is not None and (absent := missing_columns(rule, names, list(only))) is not None:
        raise absent
    names = tuple(name for name in names if only is None or name in only)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataFault(
            "DATA_UNREADABLE",
            f"{rule.name}: column '{twice[0]}' occurs {names.count(twice[0])} times, expected once",
            hint="give each column a name of its own",
        )
    check_size(rule, rows_in_footer(rule), len(names))
    texts: dict[str, dict[str, int]] = {name: {} for name in names}
    rows: dict[str, list[NDArray[np.int64]]] = {name: [] for name in names}
    n_rows = n_ragged = first_ragged = n_bytes = 0
    for part in read_parts(rule, names):
        n_rows += part.n_rows
        check_size(rule, n_rows, len(names))
        first_ragged = first_ragged or part.first_ragged or 0
        n_ragged += part.n_ragged
        for name, column in part.columns.items():
            place_of_text = texts[name]
            n_bytes += sum(sys.getsizeof(text) for text in column.distinct if text not in place_of_text)
            places = np.array(
                [place_of_text.setdefault(text, len(place_of_text)) for text in column.distinct], dtype=np.int64
            )
            rows[name].append(places[column.index])
        if n_bytes > TEXTS_BYTES:
            problem = f"its distinct texts have more than {TEXTS_BYTES >> 20} MiB together"
            raise DataFault("DATA_UNREADABLE", f"{rule.name}: {problem}", hint="leave out columns of free text")
    if n_rows == 0:
        raise DataFault("DATA_EMPTY", f"{rule.name}: the table has no rows")
    notes: list[str] = []
    if n_ragged:
        notes.append(
            f"{NOTE}{n_ragged} rows have too many or too few fields and are left out, the first is row {first_ragged} "
            "(the header is row 1)"
        )
    columns: dict[str, TextColumn] = {}
    for name in names:
        index = np.concatenate(rows[name])
        counts = np.bincount(index, minlength=len(texts[name]))
        present = [text for text, count in zip(texts[name], counts.tolist(), strict=True) if count]
        # A part can name a text that none of its whole rows has.
        place = np.cumsum(counts > 0) - 1
        columns[name] = TextColumn(
            party=party, source=name, texts=present, counts=counts[counts > 0].tolist(), index=place[index]
        )
    return TextTable(columns=columns, n_rows=n_rows, notes=notes, settings=_settings(rule))


def check_size(rule: DatasetRule, n_rows: int, n_columns: int) -> None:
    """Check that a table can be held in memory as texts.

    Raises:
        DataFault: DATA_UNREADABLE, it has more than `MAX_ROWS` rows, or more than `MAX_CELLS` cells.
    """
    if n_rows > MAX_ROWS or n_rows * n_columns > MAX_CELLS:
        raise DataFault(
            "DATA_UNREADABLE",
            f"{rule.name}: {n_rows:,} rows and more of {n_columns} columns, expected at most {MAX_ROWS:,} rows and "
            f"{MAX_CELLS:,} cells",
            hint="give a random part of its rows, or fewer columns",
        )


def _settings(rule: DatasetRule) -> list[str]:
    """Return what party.toml must say of the file, where that is not the usual."""
    settings = [f'format = "{rule.format}"'] * (rule.format != "csv")
    settings += [f"delimiter = {_quote(rule.delimiter)}"] * (rule.delimiter != ",")
    settings += [f'encoding = "{rule.encoding}"'] * (rule.encoding != "utf-8")
    return [f"party.toml: {', '.join(settings)}"] if settings else []


def _id_column(read: Mapping[str, TextTable], tables: Mapping[str, Path]) -> str | None:
    """Return the column that is in every table and unique in each; a single table may have none."""
    first = next(iter(read.values()))
    common = [name for name in first.columns if all(name in table.columns for table in read.values())]
    unique = [name for name in common if all(table.columns[name].is_unique for table in read.values())]
    with_id_name = [name for name in unique if name.lower() in ID_NAMES]
    if with_id_name or (unique and len(read) > 1):
        return (with_id_name or unique)[0]
    if len(read) == 1:
        return None
    raise DataFault(
        "DATA_ID_MISSING",
        f"{', '.join(path.name for path in tables.values())}: no column is in all tables and unique in each",
        hint=f"columns in all tables: {', '.join(common) or 'none'}; give the id column one name everywhere",
    )


def _functions(columns: Sequence[TextColumn]) -> Iterator[str]:
    """Yield a line for every column that is known where another one of the party is known."""
    pairs = [
        pair for pair in itertools.permutations(columns, 2) if _PER_VALUE * len(pair[0].texts) <= len(pair[0].index)
    ]
    functions = [
        (one.source, other.source)
        for one, other in pairs
        if len(other.texts) <= len(one.texts)
        and len(np.unique(one.index * len(other.texts) + other.index)) == len(one.texts)
    ]
    for one, other in functions:
        yield (
            f"{NOTE}{_quote(other)} is a function of {_quote(one)} in all rows: randomize them jointly, or leave one out, "
            "so that nothing is paid for twice"
        )


def _variable(column: TextColumn, name: str, wording: Wording) -> str:
    counts = dict(zip(column.texts, column.counts, strict=True))
    missing = [value for value in counts if value.strip() in MISSING]
    values = [value for value in counts if value.strip() not in MISSING]
    number_format, numbers = numbers_of(values)
    numbers = {text: number for text, number in numbers.items() if math.isfinite(number)}
    is_numeric = len(set(numbers.values())) > MANY_VALUES and len(values) - len(numbers) <= max(
        CODES, len(numbers) // 10
    )
    left_out = "" if is_numeric else _reason_to_leave_out(values, len(column.index))
    if left_out or not _readable(name):
        return _left_out(column, left_out or "its name is no plain text")
    lines = ["[[variable]]", f"party = {_quote(column.party)}", f"name = {_quote(name)}"]
    if name != column.source:
        lines[-1] += f"  # another party has the name too; in party.toml: source = {_quote(column.source)}"
    if is_numeric:
        return "\n".join(_bin_lines(column, lines, number_format, numbers, wording))
    labels, notes = _labels(column, values, counts, missing)
    if len(labels) < 2:
        return _left_out(column, f"fewer than 2 categories have {FEWEST_ROWS} rows")
    categories = f"categories = [{', '.join(map(_quote, labels))}]{'' if wording.public else f'  {REVIEW}'}"
    return "\n".join([*lines, categories, wording.origin, *notes])


def _left_out(column: TextColumn, reason: str) -> str:
    return f"{NOTE}{_quote(column.source)} of {column.party} is left out: {reason}"


def _note_drawn_rows(column: TextColumn, n_rows: int) -> str:
    """Return the note of rows that no category of the draft is for."""
    return (
        f"{NOTE}{_quote(column.source)} of {column.party}: {n_rows} rows have values that fewer than {FEWEST_ROWS} rows have: "
        "such a row gets a category that is drawn"
    )


def _missing_line(category: str, spellings: Sequence[str]) -> str:
    spelling_list = ", ".join(_quote(value) for value in sorted(spellings))
    return f"missing = {{ category = {_quote(category)}, spellings = [{spelling_list}] }}"


def _bin_lines(
    column: TextColumn, head: Sequence[str], number_format: str, numbers: Mapping[str, float], wording: Wording
) -> Iterator[str]:
    """Yield the lines of a column of numbers.

    Texts among them are missing values: codes that many rows have are spelled.
    """
    counts = dict(zip(column.texts, column.counts, strict=True))
    missing = [text for text in counts if text.strip() in MISSING]
    values, weights = np.array(list(numbers.values())), np.array([counts[text] for text in numbers])
    is_date = number_format not in {"plain", "decimal-comma"}
    if is_date and values.max() - values.min() > _YEARS:
        values = np.floor(values)
    whole = bool((values == np.floor(values)).all())
    edges = _merge_small_bins(_edges(values, weights, whole=whole, is_date=is_date), values, weights)
    if len(edges) < 3:
        yield _left_out(column, f"fewer than 2 bins have {FEWEST_ROWS} rows")
        return
    yield from head
    yield f"bins = [{', '.join(map(_write_number, edges))}]{'' if wording.public else f'  {REVIEW}'}"
    yield wording.origin
    if whole:
        yield "integer = true"
    if wording.means:
        means = ", ".join(map(_write_number, _means(edges, values, weights, whole=whole)))
        yield f"means = [{means}]{'' if wording.public else f'  {_MEANS}'}"
    rest = {text: n for text, n in counts.items() if text not in numbers and text not in missing}
    n_unknown = sum(rest.values()) + sum(counts[text] for text in missing)
    if n_unknown >= FEWEST_ROWS:
        # Whatever else is no number belongs there, too.
        yield 'other = "unknown"'
        if spellings := [*missing, *(text for text, n in rest.items() if n >= FEWEST_ROWS and _readable(text))]:
            yield _missing_line("unknown", spellings)
        if rest:
            yield (
                f"{NOTE}{_quote(column.source)} of {column.party}: {sum(rest.values())} rows hold no number ({len(rest)} "
                "different texts), and become 'unknown'"
            )
    elif n_unknown:
        yield _note_drawn_rows(column, n_unknown)
    if number_format != "plain":
        kind = "dates, counted in years" if is_date else "numbers with a decimal comma"
        where = f"[dataset.NAME.columns.{_quote(column.source)}]"
        yield f'{NOTE}{_quote(column.source)} of {column.party} holds {kind}; in party.toml, {where}: written = "{number_format}"'
    if edges[0] == values.min() or edges[-1] - whole == values.max() or edges[-1] == values.max():
        yield f"{NOTE}{_quote(column.source)} of {column.party}: an outer end is that of the table, one person's number"
    labels = bin_labels(edges)
    shape = Variable(name="x", owner="x", labels=(*labels, "unknown"), bins=tuple(edges))
    if wide := [labels[place] for place in shape.wide_bins]:
        yield (
            f"{NOTE}{_quote(column.source)} of {column.party}: {', '.join(wide)} is much wider than the bins beside: divide it, "
            "or declare `means`, without which numbers are spread evenly over it"
        )


def _reason_to_leave_out(values: Sequence[str], n_rows: int) -> str:
    if len(values) < 2:
        return f"{len(values)} distinct value{'s' if len(values) != 1 else ''}, expected at least 2"
    if len(numbers_of(values)[1]) < len(values) and len(values) > max(IDENTIFYING * n_rows, MANY_VALUES):
        return f"{len(values)} distinct texts in {n_rows} rows look identifying"
    if sum(map(_readable, values)) < 2:
        return "its values are no plain texts of at most 200 letters"
    return ""


def _labels(
    column: TextColumn, values: Sequence[str], counts: Mapping[str, int], missing: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the proposed categories, numbers first and by size, and the lines that follow them.

    Each has `FEWEST_ROWS` rows; values of fewer stand together, and where all of these are as few, they are no category.
    """
    categories = [value for value in values if _readable(value) and counts[value] >= FEWEST_ROWS]
    if len(categories) > _MOST_CATEGORIES:
        categories = sorted(categories, key=lambda value: (-counts[value], value))[: _MOST_CATEGORIES - 1]
    _, numbers = numbers_of(categories)
    labels, lines = sorted(categories, key=lambda value: (numbers.get(value, math.inf), value)), list[str]()
    rest = [value for value in values if value not in set(categories)]
    n_rest, n_missing = (sum(counts[value] for value in some) for some in (rest, missing))
    if n_missing < FEWEST_ROWS:
        n_rest += n_missing
    if n_rest >= FEWEST_ROWS:
        labels.append(other := _free("other", values))
        lines.append(f"other = {_quote(other)}  # review: stands for {len(rest)} further values")
    elif n_rest:
        lines.append(_note_drawn_rows(column, n_rest))
    if n_missing >= FEWEST_ROWS:
        labels.append(unknown := _free("unknown", values))
        lines.append(_missing_line(unknown, missing))
    return labels, lines


def _free(word: str, values: Sequence[str]) -> str:
    """Return the word, or the first numbered one, that is no value itself."""
    return next(
        label for label in itertools.chain([word], (f"{word} {i}" for i in itertools.count(2))) if label not in values
    )


def _readable(text: str) -> bool:
    return (
        bool(text)
        and not starts_a_formula(text)
        and text == text.strip()
        and len(text) <= MAX_TEXT
        and not any(unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for letter in text)
    )


def _edges(values: NDArray[np.float64], weights: NDArray[np.int64], *, whole: bool, is_date: bool) -> list[float]:
    """Round edges near the quantiles between the outer ends; a whole number that many rows have gets its own bin."""
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(weights[order])
    total, low, high = int(below[-1]), float(values[0]), float(values[-1])
    quantiles = [float(values[np.searchsorted(below, total * part / _N_BINS)]) for part in range(1, _N_BINS)]
    step = _round_step((quantiles[-1] - quantiles[0] or high - low) / (2 * _N_BINS), whole=whole)
    bottom, top = _months(low, high) if is_date and not whole else outer_ends(low, high, whole=whole)
    edges = {round(quantile / step) * step for quantile in quantiles}
    if whole:
        spikes = {
            float(number) for number, weight in zip(values, weights[order], strict=True) if weight >= _SPIKE * total
        }
        edges |= spikes | {number + 1 for number in spikes}
    inner = sorted({round(edge, 12) + 0.0 for edge in edges})
    return [bottom, *(edge for edge in inner if bottom < edge < top), top]


def outer_ends(low: float, high: float, *, whole: bool) -> tuple[float, float]:
    """Round the ends of numbers outward to two significant digits of their range.

    Args:
        low, high: the least and the largest number, which differ.
        whole: the numbers are whole; the upper end is then above the largest, because a bin does not hold its upper edge.

    >>> outer_ends(309.04, 310.98, whole=False), outer_ends(1234.0, 98765.0, whole=True), outer_ends(18, 90, whole=True)
    ((309.0, 311.0), (1000.0, 99000.0), (18.0, 91.0))
    """
    step = Decimal(1).scaleb(math.floor(math.log10(high - low)) - 1)
    if whole:
        step, high = max(step, Decimal(1)), high + 1
    steps = (
        (Decimal(repr(end)) / step).to_integral_value(rounding)
        for end, rounding in ((low, ROUND_FLOOR), (high, ROUND_CEILING))
    )
    bottom, top = (float(number * step) + 0.0 for number in steps)
    return bottom, top


def _months(low: float, high: float) -> tuple[float, float]:
    """Return the beginnings of the month of the first date and of the month after the last, dates counted in years."""
    first, last = (
        dt.date(int(date), 1, 1) + dt.timedelta(days=round((date % 1) * (366 if calendar.isleap(int(date)) else 365)))
        for date in (low, high)
    )
    return _month_start(first.year, first.month), _month_start(last.year, last.month + 1)


def _month_start(year: int, month: int) -> float:
    """Return the first day of a month as a number of years; the thirteenth month is the next year's first."""
    start = number_of(f"{year:04d}-{month:02d}-01", "YYYY-MM-DD")
    return float(year + 1) if start is None else start


def _merge_small_bins(edges: Sequence[float], values: NDArray[np.float64], weights: NDArray[np.int64]) -> list[float]:
    """Return the edges without those that would leave a bin with fewer than `FEWEST_ROWS` rows; one edge: all have fewer."""
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    remaining, n_rows = [edges[0]], 0
    for edge, rows in zip(edges[1:], np.bincount(places, weights=weights, minlength=len(edges) - 1), strict=True):
        n_rows += int(rows)
        if n_rows >= FEWEST_ROWS:
            remaining.append(edge)
            n_rows = 0
    return [*remaining[:-1], edges[-1]]  # what is left at the end joins the last bin


def _round_step(size: float, *, whole: bool) -> float:
    """Return the largest of .., 0.5, 1, 2, 5, 10, .. that is at most `size`; of whole numbers at least 1."""
    power = 10.0 ** math.floor(math.log10(size))
    step = power * max(factor for factor in (1, 2, 5) if factor * power <= size * (1 + 1e-9))
    return max(step, 1.0) if whole else step


def _means(
    edges: Sequence[float], values: NDArray[np.float64], weights: NDArray[np.int64], *, whole: bool
) -> Iterator[float]:
    """Yield the mean of the numbers in each bin, to two digits of its distance from the lower edge; of few rows the middle."""
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        last = high - 1 if whole else high
        here = places == place
        mean = (low + last) / 2
        if (rows := int(weights[here].sum())) >= _FEW:
            distance = float((values[here] * weights[here]).sum()) / rows - low
            mean = low + float(f"{distance:.2g}")
        middle = (low + last) / 2
        yield round(mean, 12) if low <= mean <= last and mean < high else middle


def _write_number(edge: float) -> str:
    return str(int(edge)) if edge.is_integer() and abs(edge) < 1e15 else repr(edge)


def _quote(text: str) -> str:
    """Write a TOML basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ONLY_CP1252 = re.compile(rb"[\x80-\x9f]")


def check_is_file(path: Path) -> None:
    """Refuse a table that is no file.

    Raises:
        DataFault: DATA_FILE_MISSING.
    """
    if not path.is_file():
        problem = "is a folder, expected a file" if path.is_dir() else "no such file"
        raise DataFault("DATA_FILE_MISSING", f"{path}: {problem}", hint="check the path that was given for the table")


def dataset_rule(path: Path, id_column: str) -> DatasetRule:
    """Return how to read a file; one that is not there, or no table, is for the reader to refuse."""
    kind = ENDINGS.get(path.suffix.lower(), "csv")
    if kind != "csv" and kind not in DATABASES:
        return DatasetRule(path=path, format=kind, id=id_column)
    encoding = _encoding(path) if path.is_file() else "utf-8"
    delimiter = ","
    if path.is_file():
        with path.open(encoding=encoding, errors="replace", newline="") as file:
            first = file.readline(1 << 16)
        delimiter = max(DELIMITERS, key=first.count)
    return DatasetRule(path=path, format="csv", id=id_column, delimiter=delimiter, encoding=encoding)


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(4)
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    if b"\0" in start:
        return "utf-16-be" if start.startswith(b"\0") else "utf-16-le"
    if undecodable(DatasetRule(path=path, format="csv", id="")) is None:
        return "utf-8"
    with path.open("rb") as file:
        windows = any(_ONLY_CP1252.search(chunk) for chunk in iter(lambda: file.read(1 << 20), b""))
    is_cp1252 = windows and undecodable(DatasetRule(path=path, format="csv", id="", encoding="cp1252")) is None
    return "cp1252" if is_cp1252 else "latin-1"


def numbers_of(texts: Iterable[str]) -> tuple[str, Mapping[str, float]]:
    """Return the way of writing in which most of the texts are numbers, and these numbers; of two alike the first of `OLD_WAYS`.

    >>> numbers_of(["3", "1,5", "N"])
    ('decimal-comma', {'3': 3.0, '1,5': 1.5})
    """
    texts = list(texts)
    ways = {way: {text: number for text in texts if (number := number_of(text, way)) is not None} for way in OLD_WAYS}
    best = max(ways, key=lambda written: len(ways[written]))
    return best, ways[best]


def column_rules(study: Study, party: str, rule: DatasetRule) -> dict[str, ColumnRule]:
    """Columns that the table has under the name that a draft gives to a column of two parties, or whose numbers need a way of
    writing. Columns that are not there are for the party to name."""
    names = set(header(rule))
    own = [study.schema[position] for position in study.schema.owned_by(party)]
    sources = {v.name: v.name if v.name in names else v.name.removeprefix(f"{party} ") for v in own}
    numbers = [v.name for v in own if v.bins is not None and sources[v.name] in names]
    texts: dict[str, set[str]] = {sources[name]: set() for name in numbers}
    for part in read_parts(rule, list(texts)) if texts else ():
        for source, column in part.columns.items():
            texts[source].update(column.distinct)
    rules = {
        name: ColumnRule(source=source, written=numbers_of(texts[source])[0] if name in numbers else "plain")
        for name, source in sources.items()
        if source in names
    }
    return {name: rule for name, rule in rules.items() if rule != ColumnRule(source=name)}
