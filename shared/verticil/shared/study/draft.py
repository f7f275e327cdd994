"""A first draft of a study document from tables at hand: variables with proposed categories and bins, to be reviewed.

The draft saves typing and decides nothing. Categories must be public knowledge: what it proposes was seen in the data, so
every proposal is marked for review, and the draft is not for sharing before that. It runs where the tables are; it sends
nothing, and its errors name files, columns and counts only. pandas is imported when it is used.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from verticil.shared.errors import DataFault, Misuse
from verticil.shared.study.rules import MAX_TEXT, is_party_name
from verticil.shared.study.vocabulary import starts_a_formula

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["REVIEW", "draft"]

REVIEW: Final = "# review: categories must be public knowledge"

_MISSING: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_MANY_VALUES: Final = 12  # a number with more distinct values than this is binned
_MOST_CATEGORIES: Final = 16
_IDENTIFYING: Final = 0.5  # texts with more distinct values than this part of the rows are left out
_SPIKE: Final = 0.2  # a whole number that so many rows have gets its own bin
_N_BINS: Final = 6
_EPSILON: Final = 3.0
_EPSILON_OF_A_PARTY: Final = 20.0
"""Of one column, and of all columns of one party: the limits that ``verticil party init`` writes."""
_DELIMITERS: Final = (",", ";", "\t", "|")
_ID_NAMES: Final = ("id", "record_id", "person_id", "identifier", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One column of one party, as text."""

    party: str
    source: str
    values: Sequence[str]


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
    frames = {party: _read(path) for party, path in tables.items()}
    id_column = _id_column(frames, tables)
    taken = Counter(str(name) for frame in frames.values() for name in frame.columns if name != id_column)
    blocks, most = list[str](), 0
    for party, frame in frames.items():
        blocks.append(f"# ---- {party}: {tables[party].name}" + (f", id column '{id_column}'" if id_column else ""))
        n_before = len(blocks)
        for name in map(str, frame.columns):
            if name != id_column:
                column = _Column(party=party, source=name, values=frame[name].tolist())
                blocks.append(_variable(column, f"{party} {name}" if taken[name] > 1 else name))
        n_columns = sum(block.startswith("[[variable]]") for block in blocks[n_before:])
        most = max(most, n_columns)
        if not n_columns:
            raise DataFault("DATA_EMPTY", f"{tables[party]}: no column can be proposed as a variable")
    today = today or dt.datetime.now(dt.UTC).date()
    n_rows = min(len(frame) for frame in frames.values())
    return (
        _head(tables, today, n_rows)
        + "\n\n".join(blocks)
        + _tail(sum(block.startswith("[[variable]]") for block in blocks), most)
    )


def _head(tables: Mapping[str, Path], today: dt.date, n_rows: int) -> str:
    parties = "\n".join(f"[[party]]\nname = {_quoted(party)}" for party in tables)
    return f"""\
# Draft of a study, proposed from tables. Everything marked "review" was seen in the data: replace it by what is public
# knowledge before you show this file to anyone.
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


def _read(path: Path) -> pd.DataFrame:
    """A table with every value as text, null as ''."""
    if not path.is_file():
        raise DataFault("DATA_FILE_MISSING", f"{path}: no such file")
    import pandas as pd

    try:
        if path.suffix.lower() in {".parquet", ".pq"}:
            frame = pd.read_parquet(path)
            frame = pd.DataFrame(
                {str(name): [_text(value) for value in frame[name].tolist()] for name in frame.columns}
            )
        else:
            with path.open(encoding="utf-8-sig", newline="") as stream:
                header = stream.readline()
            delimiter = max(_DELIMITERS, key=header.count)
            frame = pd.read_csv(path, sep=delimiter, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, ValueError, UnicodeError, ImportError) as error:  # the texts of parsers' errors can quote the data
        raise DataFault("DATA_UNREADABLE", f"{path}: cannot be read as a table ({type(error).__name__})") from None
    if frame.empty:
        raise DataFault("DATA_EMPTY", f"{path}: the table has no rows")
    return frame


def _text(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _id_column(frames: Mapping[str, pd.DataFrame], tables: Mapping[str, Path]) -> str | None:
    """The column that is in every table and unique in each; a single table may have none."""
    columns = [list(map(str, frame.columns)) for frame in frames.values()]
    common = [name for name in columns[0] if all(name in others for others in columns)]
    unique = [name for name in common if all(frame[name].is_unique for frame in frames.values())]
    named = [name for name in unique if name.lower() in _ID_NAMES]
    if named or (unique and len(frames) > 1):
        return (named or unique)[0]
    if len(frames) == 1:
        return None
    raise DataFault(
        "DATA_ID_MISSING",
        f"{', '.join(path.name for path in tables.values())}: no column is in all tables and unique in each",
        hint=f"columns in all tables: {', '.join(common) or 'none'}; give the id column one name everywhere",
    )


def _variable(column: _Column, name: str) -> str:
    counts = Counter(column.values)
    missing = [value for value in counts if value.strip() in _MISSING]
    values = [value for value in counts if value.strip() not in _MISSING]
    left_out = _reason_to_leave_out(values, len(column.values))
    if left_out or not _readable(name):
        return f"# {_quoted(column.source)} of {column.party} is left out: {left_out or 'its name is no plain text'}"
    numbers = _numbers(values)
    lines = ["[[variable]]", f"party = {_quoted(column.party)}", f"name = {_quoted(name)}"]
    if name != column.source:
        lines[-1] += f"  # another party has the name too; in party.toml: source = {_quoted(column.source)}"
    if numbers is not None and len(values) > _MANY_VALUES:
        whole = all(number.is_integer() for number in numbers)
        weights = [counts[value] for value in values]
        lines.append(f"bins = [{', '.join(_shown(edge) for edge in _edges(numbers, weights, whole=whole))}]  {REVIEW}")
        if whole:
            lines.append("integer = true")
        labels: list[str] = []
    else:
        labels, note = _labels(values, counts, numbers)
        lines += note
    if missing:
        category = _free("unknown", values)
        if labels:
            labels.append(category)
        spellings = ", ".join(_quoted(value) for value in sorted(missing))
        lines.append(f"missing = {{ category = {_quoted(category)}, spellings = [{spellings}] }}")
    if labels:
        lines.insert(3, f"categories = [{', '.join(map(_quoted, labels))}]  {REVIEW}")
    return "\n".join(lines)


def _reason_to_leave_out(values: Sequence[str], n_rows: int) -> str:
    if len(values) < 2:
        return f"{len(values)} distinct value{'s' if len(values) != 1 else ''}, expected at least 2"
    if _numbers(values) is None and len(values) > max(_IDENTIFYING * n_rows, _MANY_VALUES):
        return f"{len(values)} distinct texts in {n_rows} rows look identifying"
    if sum(map(_readable, values)) < 2:
        return "its values are no plain texts of at most 200 letters"
    return ""


def _labels(
    values: Sequence[str], counts: Counter[str], numbers: Sequence[float] | None
) -> tuple[list[str], list[str]]:
    """Proposed categories, and lines that follow them."""
    kept = [value for value in values if _readable(value)]
    if len(kept) > _MOST_CATEGORIES:
        kept = sorted(kept, key=lambda value: (-counts[value], value))[: _MOST_CATEGORIES - 1]
    ordered = sorted(kept) if numbers is None else sorted(kept, key=float)
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


def _numbers(values: Sequence[str]) -> list[float] | None:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _edges(numbers: Sequence[float], weights: Sequence[int], *, whole: bool) -> list[float]:
    """Round edges near the quantiles, outer ones rounded outwards; a whole number that many rows have gets its own bin."""
    pairs = sorted(zip(numbers, weights, strict=True))
    total = sum(weights)
    low, high = pairs[0][0], pairs[-1][0]
    width = (high - low) / (2 * _N_BINS)
    power = 10.0 ** math.floor(math.log10(width))
    step = power * max(factor for factor in (1, 2, 5) if factor * power <= width)
    step = max(step, 1.0) if whole else step
    bottom = math.floor(low / step) * step
    top = (math.floor(high / step) + 1) * step  # above the largest value: a bin does not hold its upper edge
    edges = {bottom, top}
    below, quantile = 0, 1
    for number, weight in pairs:
        below += weight
        while quantile < _N_BINS and below >= total * quantile / _N_BINS:
            edges.add(round(number / step) * step)
            quantile += 1
        if whole and weight >= _SPIKE * total:
            edges |= {number, number + 1}
    clean = sorted({round(edge, 12) + 0.0 for edge in edges})
    return [edge for edge in clean if bottom <= edge <= top]


def _shown(edge: float) -> str:
    return str(int(edge)) if edge.is_integer() and abs(edge) < 1e15 else repr(edge)


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
