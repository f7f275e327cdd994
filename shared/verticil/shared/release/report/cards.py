"""Tables on a telephone: each cell says what stands in it, so that a row can be shown as a card.

The heading of a column becomes the attribute ``data-label`` of its cells, which the style sheet shows where a table does not fit.
A table with cells over several rows stays a table that can be moved sideways, with a finger or with the keyboard.
"""

from __future__ import annotations

import re
from typing import Final

_TABLE: Final = re.compile(r"<table>(.*?)</table>", re.DOTALL)
_HEAD: Final = re.compile(r'<th scope="col"[^>]*>(.*?)</th>', re.DOTALL)
_ROW: Final = re.compile(r"<tr[^>]*>.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"<(td|th)\b([^>]*)>")
_SPAN: Final = re.compile(r'colspan="(\d+)"')
_TEXT: Final = re.compile(r">[^<]+<")
_LONG: Final = re.compile(r"\w{25,}")
"""A name that is wider than a card on a telephone: it may end a line behind an underscore, and nowhere else."""
_TAG: Final = re.compile(r"<[^>]+>")


def with_labels(html: str) -> str:
    """Return a page whose cells have their column's heading, and whose wide parts can be reached with the keyboard.

    >>> with_labels('<body><table><tr><th scope="col">A</th></tr><tr><td>1</td></tr></table>')
    '<body><table class="stack"><tr><th scope="col">A</th></tr><tr><td data-label="A">1</td></tr></table>'
    """
    head, body, rest = html.partition("<body>")
    broken = _TEXT.sub(lambda text: _LONG.sub(lambda name: name[0].replace("_", "_<wbr>"), text[0]), rest)
    return head + body + _TABLE.sub(_label, broken).replace('<div class="scroll">', '<div class="scroll" tabindex="0">')


def _label(table: re.Match[str]) -> str:
    if "rowspan=" in table[1]:
        return table[0]
    headings = [_TAG.sub("", heading) for heading in _HEAD.findall(table[1])]

    def row(match: re.Match[str]) -> str:
        place = 0

        def cell(part: re.Match[str]) -> str:
            nonlocal place
            kind, attributes = part[1], part[2]
            heading = headings[place] if place < len(headings) else ""
            span = _SPAN.search(attributes)
            place += int(span[1]) if span else 1
            return part[0] if kind == "th" or not heading else f'<td{attributes} data-label="{heading}">'

        return _CELL.sub(cell, match[0])

    return f'<table class="stack">{_ROW.sub(row, table[1])}</table>'
