"""The delimiter and the header of a text, guessed for who holds the table.

The delimiter is the one of a few usual ones with which most records have one number of fields below a header of distinct names.
Where that holds nearly as well for several, it is the one of them that clevercsv proposes. The header is the record that differs
most in kind from what stands below it. tests/bench/dialects.py compares that with clevercsv and with DuckDB's sniffer alone.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from verticil.party.dataset.sources.csv_files import DELIMITERS

_MOST_ABOVE: Final = 50  # lines above a header
_STEADY: Final = 0.9  # of the records have one number of fields
_SEP: Final = re.compile(r"sep=(.)\s*", re.IGNORECASE)
_MOST_CANDIDATES: Final = 10  # records that can be the header
_LONGEST_UNIT: Final = 12  # letters
_IN_BRACKETS: Final = re.compile(r"[(\[].*[)\]]")
_TYPED: Final = re.compile(
    r"[^A-Za-z]{0,3}[0-9][0-9.,:/ T+\-%]*[^0-9]{0,3}|[0-9]{1,2}[ .\-][A-Za-z]{3,9}[ .\-][0-9]{2,4}|"
)
"""A number, a date or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How lines are cut.

    Attributes:
        delimiter: between fields.
        skip: lines above the header.
        n_fields: of the header.
        header: its fields.
        is_named: whether these can be the names of the columns below.
        lacks: whether nearly all rows have one field more than it has names.
        score: the part of the records that have as many fields, less where the header is none; 0 to 1.
    """

    delimiter: str
    skip: int
    n_fields: int
    score: float
    header: tuple[str, ...] = ()
    is_named: bool = False
    lacks: bool = False


def find_form(lines: Sequence[str]) -> Form:
    """Return how lines are cut: the first ones of a file, whole.

    Columns of a single one, for which no delimiter fits, are cut at commas.
    """
    usual = Form(delimiter=",", skip=0, n_fields=1, score=0.0)
    if not lines:
        return usual
    if (named := _SEP.fullmatch(lines[0])) is not None and named[1] in DELIMITERS:
        form = _cut(lines, named[1], 1)
        return replace(form, delimiter=named[1], skip=max(form.skip, 1))
    first = next((place for place, line in enumerate(lines) if not line.startswith("#")), 0)
    forms = {mark: _cut(lines, mark, first) for mark in DELIMITERS}
    best = max(forms.values(), key=lambda form: (round(form.score, 2), form.n_fields))
    in_doubt = [mark for mark, form in forms.items() if form.score >= _STEADY * best.score and form.n_fields > 1]
    if len(in_doubt) > 1 and (proposed := _proposal("".join(lines[first:]))) in in_doubt:
        best = forms[proposed]
    if best.skip > first and not best.is_named and _is_one_name(lines[best.skip - 1]):
        whole = "".join(lines)
        return replace(usual, delimiter=next(mark for mark in (*";\t|", ",") if mark not in whole), skip=best.skip - 1)
    return (
        best
        if best.n_fields > 1 and best.score >= _STEADY / 2
        else replace(usual, skip=first if first < len(lines) else 0)
    )


def count_typed(header: Sequence[str]) -> int:
    """Return how many names of a header are numbers or dates."""
    return sum(bool(name and _TYPED.fullmatch(name)) for name in header)


def _is_one_name(line: str) -> bool:
    """Return whether a line is the name of the only column of a table, whose values have delimiters inside."""
    name = line.strip()
    return bool(name) and not any(mark in name for mark in DELIMITERS if mark != " ") and not _TYPED.fullmatch(name)


def has_units_below(form: Form, lines: Sequence[str]) -> bool:
    """Return whether the line below the header holds the units of its columns, and no value that any other row has."""
    records = [record for _, record in _records(lines, form.delimiter, form.skip) if len(record) == form.n_fields]
    if len(records) < 3 or not _are_units([name.strip() for name in records[0]], [unit.strip() for unit in records[1]]):
        return False
    values = [set(column) for column in zip(*records[2:], strict=True)]
    return any(records[1]) and not any(unit and unit in own for unit, own in zip(records[1], values, strict=True))


def columns_in_runs(lines: Sequence[str]) -> int:
    """Return in how many columns runs of blanks divide nearly all lines; 1: in none."""
    counts = Counter(len(line.split()) for line in lines if line.strip())
    n_columns, n_lines = counts.most_common(1)[0] if counts else (1, 0)
    has_runs = sum("  " in line.strip() for line in lines)
    return n_columns if n_lines >= _STEADY * sum(counts.values()) and has_runs > len(lines) / 2 else 1


def _proposal(text: str) -> str:
    """Return the delimiter that clevercsv finds; empty: none."""
    try:
        import clevercsv
    except ImportError:
        return ""
    try:
        dialect = clevercsv.Sniffer().sniff(text[:50_000], delimiters="".join(DELIMITERS))
    except clevercsv.exceptions.Error:
        return ""
    return "" if dialect is None else str(dialect.delimiter)


def _cut(lines: Sequence[str], delimiter: str, first: int) -> Form:
    """Cut lines at a delimiter: the header is the first record from which on nearly all have as many fields."""
    records = list(_records(lines, delimiter, first))
    counts = Counter(len(record) for _, record in records if any(record))
    counts.pop(1, None)
    if not counts:
        return Form(delimiter=delimiter, skip=first, n_fields=1, score=0.0)
    n_fields = max(counts, key=lambda size: (counts[size], size))
    place = _header_of([record for _, record in records], n_fields)
    line, header = records[place]
    below = [record for _, record in records[place:] if any(record)]
    steady = sum(len(record) == n_fields for record in below) / len(below)
    names = [name.strip() for name in header]
    inner = slice(1, -1) if n_fields > 3 and not names[0] and not names[-1] else slice(None)  # | a frame of lines |
    own = names[inner]
    is_header = _are_words([name for name in own if name]) and own.count("") <= 1  # an index has no name
    is_header &= _are_names(own, [record[inner] for record in below[1:] if len(record) == n_fields])
    too_deep = line - first > _MOST_ABOVE
    above = [name.strip() for name in records[place - 1][1]] if place else []
    if not is_header and len(above) == n_fields - 1 > 1 and _are_words(above):
        return Form(
            delimiter=delimiter,
            skip=records[place - 1][0],
            n_fields=n_fields,
            score=steady * 0.9,
            header=tuple(above),
            lacks=True,
        )
    score = 0.0 if too_deep else steady * (1.0 if is_header else 0.6) * (0.8 if line > first else 1.0)
    return Form(delimiter=delimiter, skip=line, n_fields=n_fields, score=score, header=tuple(names), is_named=is_header)


def _are_words(names: Sequence[str]) -> bool:
    """Return whether texts are distinct, and none is a number, a date or empty."""
    return len(set(names)) == len(names) and not any(map(_TYPED.fullmatch, names))


def _header_of(records: Sequence[Sequence[str]], n_fields: int) -> int:
    """Return the place of the header: among the first records with so many fields the one that differs most from those below.

    A column speaks for a record whose field in it is a word, where the next one and nearly all below are numbers or dates.
    """
    places = [place for place, record in enumerate(records) if len(record) == n_fields]
    fields = [[field.strip() for field in records[place]] for place in places]
    typed = np.array([[_TYPED.fullmatch(field) is not None for field in row] for row in fields])
    present = np.array([[bool(field) for field in row] for row in fields])
    best, most = places[0], 0
    for number in range(min(len(places) - 1, _MOST_CANDIDATES)):
        n_below = np.maximum(present[number + 1 :].sum(axis=0), 1)
        is_typed_below = typed[number + 1 :].sum(axis=0) >= _STEADY * n_below
        contrast = int((~typed[number] & typed[number + 1] & is_typed_below).sum())
        if contrast > most and _are_names(fields[number], fields[number + 1 :]):
            is_below_names = (
                number and places[number - 1] == places[number] - 1 and _are_units(*fields[number - 1 : number + 1])
            )
            best, most = places[number - is_below_names], contrast
    return best


def _are_units(names: Sequence[str], fields: Sequence[str]) -> bool:
    """Return whether fields are the units of the names in the line above: units are short, absent or repeated."""
    are_names = all(names) and _are_words(names)
    given = [field for field in fields if field.strip("-()[]")]
    is_unlike_names = len(set(given)) < len(fields) or all(map(_IN_BRACKETS.fullmatch, fields))
    return are_names and is_unlike_names and all(len(field) <= _LONGEST_UNIT for field in given)


def _are_names(record: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether fields can be the names of columns: distinct, and none is a value of its own column."""
    values = [set(column) for column in zip(*below, strict=True)] if below else [set()] * len(record)
    return len(set(record)) == len(record) and not any(
        name and name in own for name, own in zip(record, values, strict=True)
    )


def _records(lines: Sequence[str], delimiter: str, first: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the line at which each record begins, and its fields; a quotation mark that is never closed ends them."""
    reader = csv.reader(iter(lines[first:]), delimiter=delimiter)
    line = first
    while True:
        try:
            record = next(reader, None)
        except csv.Error:
            return
        if record is None:
            return
        yield line, record
        line = first + reader.line_num
