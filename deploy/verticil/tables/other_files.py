"""Files that are no table of text, or one that cannot be cut into columns: what each seems to be, in an error that names it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from verticil.party.dataset.sources.opening import open_bytes
from verticil.party.dataset.sources.source_table import DatasetRule, unreadable
from verticil.tables.delimiters import Form

_START: Final = 8192
_MARKS: Final = {
    b"%PDF": "a PDF document",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook or another document of Office",
    b"$FL2": "a file of SPSS",
    b"$FL3": "a file of SPSS",
    b"<stata_dta>": "a file of Stata",
    b"SQLite format 3": "a SQLite file",
    b"{\\rtf": "a document of a word processor",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
}
_MARKUP: Final = re.compile(rb"\s*<(?:!doctype|html|\?xml|table|head|body)\b", re.IGNORECASE)
_JSON: Final = re.compile(rb'\s*(?:\[\s*[\[{]|\{\s*")')
_NO_LETTERS: Final = frozenset({"Cc", "Cn", "Co"})
_USUAL: Final = frozenset("\t\n\r\f\x1a\x1e\x1f")
_MANY: Final = 0.02  # of the letters are none, and the file is no text


def check_is_text(rule: DatasetRule) -> None:
    """Refuse a file that is no CSV: of another program, a page, JSON, or bytes that are no letters of its encoding.

    Raises:
        DataFault: DATA_UNREADABLE.
    """
    with open_bytes(rule) as file:
        start = file.read(_START)
    letters = start.decode(rule.encoding, "replace")
    n_strange = sum(unicodedata.category(letter) in _NO_LETTERS and letter not in _USUAL for letter in letters)
    kind = next((name for mark, name in _MARKS.items() if start.startswith(mark)), "")
    kind = kind or ("a page of the web, or XML" if _MARKUP.match(start) else "JSON" if _JSON.match(start) else "")
    if not kind and n_strange > _MANY * len(letters):
        kind = "no text: many of its bytes are no letters"
    if kind:
        raise unreadable(
            rule,
            f"this is {kind}, expected CSV",
            hint="write the table as CSV, or call the file by what it is (.parquet, .xlsx, .sav, ..)",
        )


def check_form(rule: DatasetRule, lines: Sequence[str], form: Form) -> None:
    """Refuse lines whose header and rows do not fit, and say why they seem not to.

    Raises:
        DataFault: DATA_UNREADABLE.
    """
    mark, rows = form.delimiter, [line.rstrip("\r\n") for line in lines[form.skip + 1 :] if line.strip()]
    is_doubled = form.n_fields > 2 and not any(form.header[1::2]) and all(form.header[::2])
    if is_doubled and all(row.count(mark) == 2 * row.count(mark * 2) for row in rows):
        raise unreadable(
            rule,
            f"'{mark * 2}' stands between the columns, expected a delimiter of one letter",
            hint="write the table with commas or semicolons",
        )
    if not form.lacks:
        return
    if sum(row.endswith(form.delimiter) for row in rows) > len(rows) / 2:
        hint = "each row ends with a delimiter that the header lacks: take it out, or add one to the header"
    elif sum(row.count("'") > 1 for row in rows) > len(rows) / 2:
        hint = "values stand between apostrophes, expected quotation marks around a value with a delimiter inside"
    else:
        hint = (
            "does the first column lack a name (in R: write.csv(.., row.names = FALSE)), or does a delimiter stand inside of "
            "values without quotation marks around them?"
        )
    raise unreadable(
        rule,
        f"the header in line {form.skip + 1} has {form.n_fields - 1} names, and nearly all rows have {form.n_fields} fields",
        hint=hint,
    )
