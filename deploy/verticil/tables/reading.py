"""How a file is read, guessed for who holds the table: encoding, delimiter, lines above the header, sheet. A node guesses none.

The delimiter is the one that clevercsv proposes, where with it nearly all records have one number of fields below a header of
distinct names; else the one of a few usual ones for which that holds best. The header is the record that differs most in kind
from what stands below it. tests/bench/dialects.py compares that with clevercsv and with DuckDB's sniffer alone. The encoding is
UTF-8 where nearly all of the file is, else what charset-normalizer finds.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from verticil.party.dataset.sources import workbooks
from verticil.party.dataset.sources.csv_files import DELIMITERS, undecodable
from verticil.party.dataset.sources.opening import is_compressed, lines_of, open_bytes
from verticil.party.dataset.sources.optional_packages import require_package
from verticil.party.dataset.sources.source_table import DATABASES, ENDINGS, WORKBOOKS, DatasetRule, unreadable
from verticil.shared.core.errors import DataFault

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_PACKINGS: Final = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip"})
_SAMPLE_LINES: Final = 2_000
_SAMPLE_BYTES: Final = 1 << 20
_MOST_ABOVE: Final = 50  # lines above a header
_BAD_BYTES: Final = 0.01  # of the letters that are no ASCII may be damaged, or the file is in another encoding
_STEADY: Final = 0.9  # of the records have one number of fields
_LOST: Final = 1e-3  # of the lines may become no row
_SEP: Final = re.compile(r"sep=(.)\s*", re.IGNORECASE)
_MOST_CANDIDATES: Final = 10  # records that can be the header
_TYPED: Final = re.compile(
    r"[^A-Za-z]{0,3}[0-9][0-9.,:/ T+\-%]*[^0-9]{0,3}|[0-9]{1,2}[ .\-][A-Za-z]{3,9}[ .\-][0-9]{2,4}|"
)
"""A number, a date or nothing."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*%?")
_CODE_PAGES: Final = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1257", "koi8_r", "mac_roman", "cp437", "cp850", "iso8859_1", "iso8859_2",
    "iso8859_5", "iso8859_7", "iso8859_15", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file is read.

    Attributes:
        rule: without an id.
        remarks: what is not the usual, or could be taken otherwise, in sentences.
    """

    rule: DatasetRule
    remarks: tuple[str, ...] = ()


def check_is_file(path: Path) -> None:
    """Refuse a table that is no file.

    Raises:
        DataFault: DATA_FILE_MISSING.
    """
    if not path.is_file():
        problem = "is a folder, expected a file" if path.is_dir() else "no such file"
        raise DataFault("DATA_FILE_MISSING", f"{path}: {problem}", hint="check the path that was given for the table")


def guess_reading(path: Path, *, sheet: str = "") -> Reading:
    """Guess how a file is read. One that is not there, or no table, is for the reader to refuse.

    Args:
        path: the file.
        sheet: of a workbook; empty: the first one with rows.

    Raises:
        DataFault: DATA_UNREADABLE, most of its lines become no row.
        Misuse: CONFIG_INVALID, its kind needs a package that is not installed.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    ending = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in _PACKINGS else suffixes[-1] if suffixes else ""
    kind = ENDINGS.get(ending, "csv")
    rule = DatasetRule(path=path, format=kind if kind not in DATABASES else "csv", id="", sheet=sheet)
    if not path.is_file() or not path.stat().st_size:
        return Reading(rule=rule)
    if kind in WORKBOOKS:
        return _of_workbook(rule)
    if rule.format != "csv":
        return Reading(rule=rule)
    return _of_csv(rule)


def _of_workbook(rule: DatasetRule) -> Reading:
    require_package(rule)
    if rule.sheet:
        return Reading(rule=rule)
    names = workbooks.sheets_of(rule)
    others = ", ".join(f"'{name}'" for name in names[1:])
    remark = (
        f"the workbook has several sheets with rows: '{names[0]}' is read, not {others}; --sheet names one"
        if others
        else ""
    )
    return Reading(rule=rule, remarks=(remark,) * bool(remark))


def _of_csv(rule: DatasetRule) -> Reading:
    encoding, remarks = _encoding(rule)
    rule = replace(rule, encoding=encoding)
    if is_compressed(rule):
        remarks = [*remarks, "the file is compressed: it is inflated while it is read"]
    lines = _sample(rule)
    form = _form_of(lines)
    rule = replace(rule, delimiter=form.delimiter, skip=form.skip)
    is_open = form.n_fields == 1 or (form.delimiter == " " and not all(form.header))
    if is_open and (n_columns := _columns_in_runs(lines[form.skip :])) > 1:
        raise unreadable(
            rule,
            f"runs of blanks seem to separate {n_columns} columns, expected one delimiter, such as a comma",
            hint="write it as CSV; pandas reads it with read_csv(FILE, sep=r'\\s+')",
        )
    if typed := sum(map(bool, map(_TYPED.fullmatch, form.header))):
        remarks.append(
            f"{typed} of the {len(form.header)} names in the header are numbers or dates: is the first row one of the table, and "
            "the header missing?"
        )
    if form.delimiter not in {",", ";", "\t"}:
        remarks.append(f"{DELIMITERS[form.delimiter]} is the delimiter")
    if form.skip:
        remarks.append(f"the header is in line {form.skip + 1}: {form.skip} lines above it are left out")
    return Reading(rule=rule, remarks=tuple(remarks))


def _sample(rule: DatasetRule) -> list[str]:
    """Return the first lines of a file, none cut off unless it is the only one."""
    lines, size = list[str](), 0
    with closing(lines_of(rule)) as all_lines:
        for line in islice(all_lines, _SAMPLE_LINES):
            size += len(line)
            if size > _SAMPLE_BYTES and lines:
                break
            lines.append(line)
    return lines


# ---- delimiter and header


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How lines are cut.

    Attributes:
        delimiter: between fields.
        skip: lines above the header.
        n_fields: of the header.
        header: its fields.
        score: the part of the records that have as many fields, less where the header is none; 0 to 1.
    """

    delimiter: str
    skip: int
    n_fields: int
    score: float
    header: tuple[str, ...] = ()


def _form_of(lines: Sequence[str]) -> _Form:
    usual = _Form(delimiter=",", skip=0, n_fields=1, score=0.0)
    if not lines:
        return usual
    if (named := _SEP.fullmatch(lines[0])) is not None and named[1] in DELIMITERS:
        form = _cut(lines, named[1], 1)
        return replace(form, delimiter=named[1], skip=max(form.skip, 1))
    first = next((place for place, line in enumerate(lines) if not line.startswith("#")), 0)
    forms = {mark: _cut(lines, mark, first) for mark in DELIMITERS}
    best = max(forms.values(), key=lambda form: (round(form.score, 2), form.n_fields))
    proposed = _proposal("".join(lines[first:]))
    if proposed in forms and forms[proposed].score >= _STEADY * best.score and forms[proposed].n_fields > 1:
        best = forms[proposed]
    return (
        best
        if best.n_fields > 1 and best.score >= _STEADY / 2
        else replace(usual, skip=first if first < len(lines) else 0)
    )


def _columns_in_runs(lines: Sequence[str]) -> int:
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


def _cut(lines: Sequence[str], delimiter: str, first: int) -> _Form:
    """Cut lines at a delimiter: the header is the first record from which on nearly all have as many fields."""
    records = list(_records(lines, delimiter, first))
    counts = Counter(len(record) for _, record in records if any(record))
    counts.pop(1, None)
    if not counts:
        return _Form(delimiter=delimiter, skip=first, n_fields=1, score=0.0)
    n_fields = max(counts, key=lambda size: (counts[size], size))
    place = _header_of([record for _, record in records], n_fields)
    line, header = records[place]
    below = [record for _, record in records[place:] if any(record)]
    steady = sum(len(record) == n_fields for record in below) / len(below)
    names = [name.strip() for name in header]
    is_header = len(set(names)) == len(names) and all(names) and not any(map(_NUMBER.fullmatch, names))
    too_deep = line - first > _MOST_ABOVE
    score = 0.0 if too_deep else steady * (1.0 if is_header else 0.6) * (0.8 if line > first else 1.0)
    return _Form(delimiter=delimiter, skip=line, n_fields=n_fields, score=score, header=tuple(names))


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
            best, most = places[number], contrast
    return best


def _are_names(record: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether fields can be the names of columns: distinct, and none is a value of its own column."""
    values = [set(column) for column in zip(*below, strict=True)]
    return len(set(record)) == len(record) and not any(name in own for name, own in zip(record, values, strict=True))


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


# ---- encoding


def _encoding(rule: DatasetRule) -> tuple[str, list[str]]:
    """Return the encoding of a file, and what is to be said of it."""
    with open_bytes(rule) as file:
        start = file.read(4)
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name, []
    if b"\0" in start:
        return ("utf-16-be" if start.startswith(b"\0") else "utf-16-le"), []
    place = undecodable(replace(rule, encoding="utf-8"))
    if place is None:
        return "utf-8", []
    with open_bytes(rule) as file:
        sample = file.read(max(_SAMPLE_BYTES, min(place + 4096, 64 * _SAMPLE_BYTES)))
    n_bad, n_good = _count_bad(sample)
    if n_good and n_bad <= max(1, _BAD_BYTES * n_good):
        line = sample[:place].count(b"\n") + 1
        return "utf-8", [
            f"the file is not utf-8 at byte {place} (line {line}), one of {n_bad} damaged places: a value there is none of its "
            "column's"
        ]
    encoding = _code_page(rule, sample)
    return encoding, [
        f"the file is not UTF-8: its encoding was taken for {encoding}; if letters look wrong, write it as UTF-8"
    ]


def _count_bad(sample: bytes) -> tuple[int, int]:
    """Return how many bytes are no UTF-8, and how many letters beyond ASCII are."""
    text = sample.decode("utf-8", "surrogateescape")
    n_bad = sum("\udc80" <= letter <= "\udcff" for letter in text)
    return n_bad, sum(letter > "\x7f" for letter in text) - n_bad


def _code_page(rule: DatasetRule, sample: bytes) -> str:
    """Return the code page of a file, by the words that its letters make; cp1252 or latin-1 where nothing is found."""
    found = ""
    try:
        import charset_normalizer
    except ImportError:
        pass
    else:
        letters = b"\n".join(line for line in set(sample.splitlines()) if not line.isascii())[: 1 << 16]
        matches = charset_normalizer.from_bytes(letters, cp_isolation=list(_CODE_PAGES), threshold=0.5)
        scores = {
            name: float(match.chaos) + _oddness(str(match))
            for match in matches
            for name in {str(match.encoding), *map(str, match.could_be_from_charset)} & set(_CODE_PAGES)
        }
        found = min(scores, key=lambda name: (round(scores[name], 3), _CODE_PAGES.index(name)), default="")
    for name in filter(None, (found, "cp1252", "latin-1")):
        if undecodable(replace(rule, encoding=name)) is None:
            return name
    return "latin-1"


def _oddness(text: str) -> float:
    """Return the part of the words beyond ASCII that are no words: of two scripts, with a sign or a capital inside, or capitals.

    The same bytes are letters of one script in one code page and a mixture in another; charset-normalizer alone cannot tell them
    apart in words as short as those of tables.
    """
    words = [word for word in re.split(r"[\s,;|\"']+", text) if not word.isascii()]
    return sum(map(_word_oddness, words)) / max(len(words), 1)


def _word_oddness(word: str) -> float:
    inner = word.strip("-.():/0123456789")
    scripts = {unicodedata.name(letter, "?").split()[0] for letter in inner if letter.isalpha()}
    has_sign = any(not letter.isalpha() and letter not in "-." for letter in inner[:-1])
    has_capital = any(one.islower() and other.isupper() for one, other in itertools.pairwise(inner))
    has_sign |= any(not letter.isalnum() for letter in inner[1:-1] if letter not in "-.'/")
    odd = len(scripts - {"CJK", "HIRAGANA", "KATAKANA"}) > 1 or has_sign or has_capital or "HALFWIDTH" in scripts
    return 1.0 if odd else 0.5 if len(inner) > 2 and inner.isupper() else 0.0


# ---- lines that become no row


def check_lines(rule: DatasetRule, n_rows: int, n_ragged: int, first_ragged: int) -> tuple[str, ...]:
    """Say which lines of a CSV file became no row, behind an open quotation mark.

    Args:
        rule: how the file is read.
        n_rows, n_ragged: rows, and records that were left out for their number of fields.
        first_ragged: the first of these, 0: there is none.

    Returns:
        Sentences; none: each line is a row, or part of a text with line breaks.

    Raises:
        DataFault: DATA_UNREADABLE, more than one line in a thousand is lost, or there are lines and no row.
    """
    marks = list(_open_marks(rule)) if rule.quote else []
    n_lost = sum(size for _, size in marks)
    if marks and n_lost > max(_LOST * (n_rows + n_lost), 1):
        raise unreadable(
            rule,
            f"line {marks[0][0]}: a quotation mark is opened and not closed in its line: {n_lost:,} lines behind it become no "
            "row",
            hint="mend the line; or, where quotation marks are letters of the texts, set quote = false in [dataset.NAME]",
        )
    if n_rows == 0 and n_ragged:
        raise unreadable(
            rule,
            f"{n_ragged:,} lines have too many or too few fields, the first is row {first_ragged}, and none has as many as the "
            "header",
            hint="which line is the header, and what is the delimiter? In [dataset.NAME]: skip, delimiter",
        )
    return tuple(
        f"line {line}: a quotation mark is opened and not closed in its line: {size} lines become no row"
        for line, size in marks
    )


def _open_marks(rule: DatasetRule) -> Iterator[tuple[int, int]]:
    """Yield each line in which a quoted value begins that holds whole lines of the table, and how many.

    A text with line breaks has lines inside that are no rows; behind a mark that was never closed each is one.
    """
    n_fields, begun, inside = 0, 0, list[str]()
    with closing(lines_of(rule)) as lines:
        for number, line in enumerate(lines, rule.skip + 1):
            if not n_fields:
                n_fields = line.count(rule.delimiter) + 1
            if not begun:
                begun = number if '"' in line and _is_open(line, rule.delimiter, quoted=False) else 0
                inside = []
                continue
            if '"' not in line.replace('""', ""):
                inside.append(line)
                continue
            yield from _if_rows(begun, inside, n_fields, rule.delimiter)
            begun, inside = (number if _is_open(line, rule.delimiter, quoted=True) else 0), []
    if begun:
        yield from _if_rows(begun, inside, n_fields, rule.delimiter)


def _if_rows(begun: int, inside: Sequence[str], n_fields: int, delimiter: str) -> Iterator[tuple[int, int]]:
    whole = sum(line.count(delimiter) + 1 == n_fields for line in inside)
    if n_fields > 1 and inside and whole > len(inside) / 2:
        yield begun, len(inside)


def _is_open(line: str, delimiter: str, *, quoted: bool) -> bool:
    """Return whether a line ends inside a quoted value, which began in it or (`quoted`) before it."""
    at, size = 0, len(line)
    while at < size:
        if quoted:
            end = line.find('"', at)
            if end < 0:
                return True
            at = end + 1
            if line.startswith('"', at):
                at += 1
                continue
            quoted = False
        if line.startswith('"', at) and (at == 0 or line[at - 1] == delimiter):
            quoted, at = True, at + 1
            continue
        following = line.find(delimiter, at)
        if following < 0:
            return False
        at = following + 1
    return quoted
