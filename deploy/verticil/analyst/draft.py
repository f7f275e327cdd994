"""A first draft of a study document from tables at hand: variables with proposed categories and bins, to be reviewed.

The draft saves typing and decides nothing. Categories must be public knowledge: what it proposes was seen in the data, so
every proposal is marked for review, and the draft is not for sharing before that. It runs where the tables are; it sends
nothing, and its errors name files, columns and counts only. Tables are read by the node's own reader, and what party.toml must
say for that stands in the draft. What is left out, or is not as it seems, has a line that starts with `NOTE`.

How a table at hand would have to be declared in party.toml, guessed from it: delimiter, encoding, how numbers are written.

For drafts and simulations, whose author holds the tables; a node guesses nothing. The node's own reader then reads the file.
"""

from __future__ import annotations

import codecs
import datetime as dt
import itertools
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.encoding import WRITTEN, number_of
from verticil.party.dataset.table import (
    DATABASES,
    DELIMITERS,
    ENDINGS,
    ColumnRule,
    DatasetRule,
    header,
    missing_columns,
    read_parts,
    rows_in_footer,
    undecodable,
)
from verticil.shared.errors import DataFault, Misuse
from verticil.shared.model.schema import Variable
from verticil.shared.study.codebook import bin_labels
from verticil.shared.study.document import Study
from verticil.shared.study.rules import is_party_name
from verticil.shared.study.vocabulary import MAX_TEXT, starts_a_formula

NOTE: Final = "# note: "
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
_EPSILON: Final = 3.0
_EPSILON_OF_A_PARTY: Final = 20.0
"""Of one column, and of all columns of one party: the limits that ``verticil party init`` writes."""
CODES: Final = 5  # so many texts, or one for ten distinct numbers, may stand among numbers
_FEW: Final = 20  # the mean of a bin with fewer rows is not told
_A_CODE: Final = 5  # nor a text among numbers that fewer rows have
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


def draft(tables: Mapping[str, Path], *, today: dt.date | None = None) -> str:
    """Write a draft study.

    Args:
        tables: party -> its table, CSV or Parquet (by the file's ending).
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
    read = {party: texts_of(party, path) for party, path in tables.items()}
    id_column = _id_column(read, tables)
    taken = Counter(name for table in read.values() for name in table.columns if name != id_column)
    blocks, most = list[str](), 0
    for party, table in read.items():
        settings = "; ".join([f"id column '{id_column}'"] * bool(id_column) + [*table.settings] * bool(table.settings))
        blocks.append(
            "\n".join([f"# ---- {party}: {tables[party].name}" + (f", {settings}" if settings else ""), *table.notes])
        )
        n_before = len(blocks)
        used = [column for name, column in table.columns.items() if name != id_column]
        for column in used:
            name = column.source
            blocks.append(_variable(column, f"{party} {name}" if taken[name] > 1 else name))
        n_columns = sum(block.startswith("[[variable]]") for block in blocks[n_before:])
        most = max(most, n_columns)
        if not n_columns:
            raise DataFault("DATA_EMPTY", f"{tables[party]}: no column can be proposed as a variable")
        proposed = [c for c, block in zip(used, blocks[n_before:], strict=True) if block.startswith("[[variable]]")]
        blocks += ["\n".join(_functions(proposed))] * bool(list(_functions(proposed)))
    today = today or dt.datetime.now(dt.UTC).date()
    n_rows = min(table.n_rows for table in read.values())
    return (
        _head(tables, today, n_rows)
        + "\n\n".join(blocks)
        + _tail(sum(block.startswith("[[variable]]") for block in blocks), most)
    )


def _head(tables: Mapping[str, Path], today: dt.date, n_rows: int) -> str:
    parties = "\n".join(f"[[party]]\nname = {_quoted(party)}" for party in tables)
    return f"""\
# Draft of a study, proposed from tables. Everything marked "review" was seen in the data: replace it by what is public
# knowledge before you show this file to anyone. Bins and means tell something about the rows they were drafted from: draft
# from public data or last year's where there are some.
schema = 1
id = "draft"                             # review: a-z 0-9 -
title = "Draft"                          # review
purpose = "To be written"                # review: what the parties read before they approve
expires = {(today + dt.timedelta(days=365)).isoformat()}

{parties}

[linkage]
minimum_common_records = {min(1000, max(1, n_rows // 2))}

"""


def _tail(n_variables: int, most: int) -> str:
    """What follows the variables, of which a party has `most`."""
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
    """A table as the party's node reads it, with every value as text.

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
    n_rows = n_ragged = first_ragged = 0
    for part in read_parts(rule, names):
        n_rows += part.n_rows
        check_size(rule, n_rows, len(names))
        first_ragged = first_ragged or part.first_ragged or 0
        n_ragged += part.n_ragged
        for name, column in part.columns.items():
            known = texts[name]
            places = np.array([known.setdefault(text, len(known)) for text in column.distinct], dtype=np.int64)
            rows[name].append(places[column.index])
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
        seen = [text for text, count in zip(texts[name], counts.tolist(), strict=True) if count]
        # A part can name a text that none of its whole rows has.
        place = np.cumsum(counts > 0) - 1
        columns[name] = TextColumn(
            party=party, source=name, texts=seen, counts=counts[counts > 0].tolist(), index=place[index]
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
    """What party.toml must say of the file, where that is not the usual."""
    said = [f'format = "{rule.format}"'] * (rule.format != "csv")
    said += [f"delimiter = {_quoted(rule.delimiter)}"] * (rule.delimiter != ",")
    said += [f'encoding = "{rule.encoding}"'] * (rule.encoding != "utf-8")
    return [f"party.toml: {', '.join(said)}"] if said else []


def _id_column(read: Mapping[str, TextTable], tables: Mapping[str, Path]) -> str | None:
    """The column that is in every table and unique in each; a single table may have none."""
    first = next(iter(read.values()))
    common = [name for name in first.columns if all(name in table.columns for table in read.values())]
    unique = [name for name in common if all(table.columns[name].is_unique for table in read.values())]
    named = [name for name in unique if name.lower() in ID_NAMES]
    if named or (unique and len(read) > 1):
        return (named or unique)[0]
    if len(read) == 1:
        return None
    raise DataFault(
        "DATA_ID_MISSING",
        f"{', '.join(path.name for path in tables.values())}: no column is in all tables and unique in each",
        hint=f"columns in all tables: {', '.join(common) or 'none'}; give the id column one name everywhere",
    )


def _functions(columns: Sequence[TextColumn]) -> Iterator[str]:
    """A line for every column that is known where another one of the party is known."""
    pairs = [
        pair for pair in itertools.permutations(columns, 2) if _PER_VALUE * len(pair[0].texts) <= len(pair[0].index)
    ]
    found = [
        (one.source, other.source)
        for one, other in pairs
        if len(other.texts) <= len(one.texts)
        and len(np.unique(one.index * len(other.texts) + other.index)) == len(one.texts)
    ]
    for one, other in found:
        yield (
            f"{NOTE}{_quoted(other)} is a function of {_quoted(one)} in all rows: randomize them jointly, or leave one out, "
            "so that nothing is paid for twice"
        )


def _variable(column: TextColumn, name: str) -> str:
    counts = dict(zip(column.texts, column.counts, strict=True))
    missing = [value for value in counts if value.strip() in MISSING]
    values = [value for value in counts if value.strip() not in MISSING]
    written, numbers = numbers_of(values)
    numbers = {text: number for text, number in numbers.items() if math.isfinite(number)}
    binned = len(set(numbers.values())) > MANY_VALUES and len(values) - len(numbers) <= max(CODES, len(numbers) // 10)
    left_out = "" if binned else _reason_to_leave_out(values, len(column.index))
    if left_out or not _readable(name):
        reason = left_out or "its name is no plain text"
        return f"{NOTE}{_quoted(column.source)} of {column.party} is left out: {reason}"
    lines = ["[[variable]]", f"party = {_quoted(column.party)}", f"name = {_quoted(name)}"]
    if name != column.source:
        lines[-1] += f"  # another party has the name too; in party.toml: source = {_quoted(column.source)}"
    if binned:
        return "\n".join([*lines, *_binned(column, counts, missing, written, numbers)])
    labels, note = _labels(values, counts)
    lines += note
    if missing:
        category = _free("unknown", values)
        labels.append(category)
        lines.append(_missing_line(category, missing))
    lines.insert(3, f"categories = [{', '.join(map(_quoted, labels))}]  {REVIEW}")
    return "\n".join(lines)


def _missing_line(category: str, spellings: Sequence[str]) -> str:
    listed = ", ".join(_quoted(value) for value in sorted(spellings))
    return f"missing = {{ category = {_quoted(category)}, spellings = [{listed}] }}"


def _binned(
    column: TextColumn, counts: Mapping[str, int], missing: Sequence[str], written: str, numbers: Mapping[str, float]
) -> Iterator[str]:
    """The lines of a column of numbers. Texts among them are missing values: codes that many rows have are spelled."""
    values, weights = np.array(list(numbers.values())), np.array([counts[text] for text in numbers])
    is_date = written not in {"plain", "decimal-comma"}
    if is_date and values.max() - values.min() > _YEARS:
        values = np.floor(values)
    whole = bool((values == np.floor(values)).all())
    edges = _edges(values, weights, whole=whole)
    means = _means(edges, values, weights, whole=whole)
    yield f"bins = [{', '.join(map(_shown, edges))}]  {REVIEW}"
    if whole:
        yield "integer = true"
    yield f"means = [{', '.join(map(_shown, means))}]  {_MEANS}"
    rest = {text: n for text, n in counts.items() if text not in numbers and text not in missing}
    if missing or rest:
        # Whatever else is no number belongs there, too.
        yield 'other = "unknown"'
        if spelled := [*missing, *(text for text, n in rest.items() if n >= _A_CODE and _readable(text))]:
            yield _missing_line("unknown", spelled)
    if rest:
        yield (
            f"{NOTE}{_quoted(column.source)} of {column.party}: {sum(rest.values())} rows hold no number ({len(rest)} different "
            "texts), and become 'unknown'"
        )
    if written != "plain":
        kind = "dates, counted in years" if is_date else "numbers with a decimal comma"
        where = f"[dataset.NAME.columns.{_quoted(column.source)}]"
        yield f'{NOTE}{_quoted(column.source)} of {column.party} holds {kind}; in party.toml, {where}: written = "{written}"'
    labels = bin_labels(edges)
    shape = Variable(name="x", owner="x", labels=(*labels, "unknown"), bins=tuple(edges))
    if wide := [labels[place] for place in shape.wide_bins]:
        yield (
            f"{NOTE}{_quoted(column.source)} of {column.party}: {', '.join(wide)} is much wider than the bins beside: divide it, "
            "or keep `means`, without which numbers are spread evenly over it"
        )


def _reason_to_leave_out(values: Sequence[str], n_rows: int) -> str:
    if len(values) < 2:
        return f"{len(values)} distinct value{'s' if len(values) != 1 else ''}, expected at least 2"
    if len(numbers_of(values)[1]) < len(values) and len(values) > max(IDENTIFYING * n_rows, MANY_VALUES):
        return f"{len(values)} distinct texts in {n_rows} rows look identifying"
    if sum(map(_readable, values)) < 2:
        return "its values are no plain texts of at most 200 letters"
    return ""


def _labels(values: Sequence[str], counts: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Proposed categories, numbers first and by size, and lines that follow them."""
    kept = [value for value in values if _readable(value)]
    if len(kept) > _MOST_CATEGORIES:
        kept = sorted(kept, key=lambda value: (-counts[value], value))[: _MOST_CATEGORIES - 1]
    _, numbers = numbers_of(kept)
    ordered = sorted(kept, key=lambda value: (numbers.get(value, math.inf), value))
    if len(kept) == len(values):
        return ordered, []
    other = _free("other", values)
    note = f"other = {_quoted(other)}  # review: stands for {len(values) - len(kept)} further values"
    return [*ordered, other], [note]


def _free(word: str, values: Sequence[str]) -> str:
    """The word, or the first numbered one, that is no value itself."""
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


def _edges(values: NDArray[np.float64], weights: NDArray[np.int64], *, whole: bool) -> list[float]:
    """Round edges near the quantiles, outer ones rounded outwards; a whole number that many rows have gets its own bin."""
    order = np.argsort(values, kind="stable")
    values, below = values[order], np.cumsum(weights[order])
    total, low, high = int(below[-1]), float(values[0]), float(values[-1])
    quantiles = [float(values[np.searchsorted(below, total * part / _N_BINS)]) for part in range(1, _N_BINS)]
    step = _round_step((quantiles[-1] - quantiles[0] or high - low) / (2 * _N_BINS), whole=whole)
    bottom_step, top_step = (
        max(step, min(_round_step(size, whole=whole) for size in ((high - low) / (2 * _N_BINS), abs(end) / 10) if size))
        for end in (low, high)
    )
    bottom = math.floor(low / bottom_step) * bottom_step
    top = (math.floor(high / top_step) + 1) * top_step  # above the largest value: a bin does not hold its upper edge
    edges = {bottom, top, *(round(quantile / step) * step for quantile in quantiles)}
    if whole:
        spikes = {
            float(number) for number, weight in zip(values, weights[order], strict=True) if weight >= _SPIKE * total
        }
        edges |= spikes | {number + 1 for number in spikes}
    clean = sorted({round(edge, 12) + 0.0 for edge in edges})
    return [edge for edge in clean if bottom <= edge <= top]


def _round_step(size: float, *, whole: bool) -> float:
    """The largest of .., 0.5, 1, 2, 5, 10, .. that is at most `size`; of whole numbers at least 1."""
    power = 10.0 ** math.floor(math.log10(size))
    step = power * max(factor for factor in (1, 2, 5) if factor * power <= size * (1 + 1e-9))
    return max(step, 1.0) if whole else step


def _means(
    edges: Sequence[float], values: NDArray[np.float64], weights: NDArray[np.int64], *, whole: bool
) -> Iterator[float]:
    """The mean of the numbers in each bin, to two digits of its distance from the lower edge; of few rows the middle."""
    places = np.searchsorted(edges, values, side="right") - 1
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        last = high - 1 if whole else high
        here = places == place
        mean = (low + last) / 2
        if (rows := int(weights[here].sum())) >= _FEW:
            distance = float((values[here] * weights[here]).sum()) / rows - low
            mean = low + float(f"{distance:.2g}")
        middle = (low + last) / 2
        yield round(mean, 12) if low <= mean <= last and mean < high else middle


def _shown(edge: float) -> str:
    return str(int(edge)) if edge.is_integer() and abs(edge) < 1e15 else repr(edge)


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ONLY_CP1252 = re.compile(rb"[\x80-\x9f]")


def dataset_rule(path: Path, id_column: str) -> DatasetRule:
    """How to read a file; one that is not there, or no table, is for the reader to refuse."""
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
    known = windows and undecodable(DatasetRule(path=path, format="csv", id="", encoding="cp1252")) is None
    return "cp1252" if known else "latin-1"


def numbers_of(texts: Iterable[str]) -> tuple[str, Mapping[str, float]]:
    """The way of writing in which most of the texts are numbers, and these numbers; of two alike the first of `WRITTEN`.

    >>> numbers_of(["3", "1,5", "N"])
    ('decimal-comma', {'3': 3.0, '1,5': 1.5})
    """
    texts = list(texts)
    ways = {
        written: {text: number for text in texts if (number := number_of(text, written)) is not None}
        for written in WRITTEN
    }
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
