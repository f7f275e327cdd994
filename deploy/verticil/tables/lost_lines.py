"""Lines of a CSV file that became no row, or a row though they are none: open quotation marks, too few fields, comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from verticil.party.dataset.sources.opening import lines_of
from verticil.party.dataset.sources.source_table import DatasetRule, unreadable

_LOST: Final = 1e-3  # of the lines may become no row
_NOTABLE: Final = 0.01  # of the rows are left out, and their share is said
_FEW: Final = 0.01  # of the rows may begin with #, or it is part of the values
_TOTAL: Final = re.compile("(?i)(grand )?total:?|sum:?|summe:?|gesamt:?|totale:?|somme:?|suma:?|итого:?")
_COMMENT: Final = re.compile(r"#(?!N/A|VALUE!|REF!|DIV/0!|NAME\?|NUM!|NULL!)")


def check_lines(rule: DatasetRule, n_rows: int, n_ragged: int, first_ragged: int) -> tuple[str, ...]:
    """Say which lines of a CSV file became no row, behind an open quotation mark.

    Args:
        rule: how the file is read.
        n_rows, n_ragged: rows, and records that were left out for their number of fields.
        first_ragged: the first of these, 0: there is none.

    Returns:
        Sentences; none: each line is a row, or part of a text with line breaks.

    Raises:
        DataFault: DATA_UNREADABLE, more than one line in a thousand is lost behind open marks, or most lines are no row.
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
    if n_ragged > n_rows:
        others = f"only {n_rows:,} have" if n_rows else "none has"
        raise unreadable(
            rule,
            f"{n_ragged:,} lines have too many or too few fields, the first is row {first_ragged}, and {others} as many as the "
            "header",
            hint="which line is the header, and what is the delimiter? In [dataset.NAME]: skip, delimiter; a value with a "
            'delimiter inside stands between quotation marks (")',
        )
    return tuple(
        f"line {line}: a quotation mark is opened and not closed in its line: {size} lines become no row"
        for line, size in marks
    )


def ragged_notes(rule: DatasetRule, n_rows: int, n_ragged: int, first_ragged: int) -> tuple[str, ...]:
    """Say how many rows were left out because they have too many or too few fields; arguments as of `check_lines`."""
    if not n_ragged:
        return ()
    with closing(lines_of(rule)) as lines:
        n_comments = sum(_COMMENT.match(line) is not None for line in lines)
    rows = "1 row has" if n_ragged == 1 else f"{n_ragged:,} rows have"
    share = f" ({n_ragged / (n_rows + n_ragged):.0%} of all)" if n_ragged >= _NOTABLE * (n_rows + n_ragged) else ""
    lines_begin = "1 line begins" if n_comments == 1 else f"{n_comments:,} lines begin"
    comments = f"; {lines_begin} with #, as comments do" if n_comments else ""
    return (
        f"{rows} too many or too few fields and {'is' if n_ragged == 1 else 'are'} left out{share}, the first is row "
        f"{first_ragged} (the header is row 1){comments}",
    )


def comment_notes(texts: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    """Say that some rows of a table begin as comments do, by the distinct texts of its first column and their rows."""
    n_comments = sum(count for text, count in zip(texts, counts, strict=True) if _COMMENT.match(text))
    if not 0 < n_comments <= _FEW * sum(counts):
        return ()
    rows = "1 row begins" if n_comments == 1 else f"{n_comments:,} rows begin"
    return (f"{rows} with #, as comments do, and became part of the table: take such lines out of the file",)


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
            yield from _if_rows(begun, inside, n_fields, rule.delimiter, closing=line)
            begun, inside = (number if _is_open(line, rule.delimiter, quoted=True) else 0), []
    if begun:
        yield from _if_rows(begun, inside, n_fields, rule.delimiter)


def _if_rows(
    begun: int, inside: Sequence[str], n_fields: int, delimiter: str, closing: str = ""
) -> Iterator[tuple[int, int]]:
    behind = closing[closing.find('"') + 1 :]
    if closing and not behind.startswith((delimiter, '"', "\r", "\n")) and behind:
        # The mark that closes the value opens one of its own line: that one became no row either.
        inside = [*inside, closing]
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


def total_notes(last: str) -> tuple[str, ...]:
    """Say that a table's last row, which begins with a text, seems to sum the others."""
    if _TOTAL.fullmatch(last.strip()) is None:
        return ()
    return (f"the last row begins with '{last.strip()}': take it out of the file if it sums the others",)
