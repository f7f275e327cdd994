"""Find figures on a page that were measured and name no bench, so that a reader can repeat every one.

A line has a measured figure if it states CPU time, or compares by a number: ``12 % nearer``, ``3 times faster``. Its section,
from one heading to the next, then names in backquotes what prints the figure: a file below ``tests/``, a line of ``python`` or
``pytest``, or ``verticil demo``, ``evaluate`` or ``reproduce``. Limits and levels (``4 MiB``, ``95 % intervals``) are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

_COMPARED: Final = (
    "nearer|farther|faster|slower|more|less|fewer|larger|smaller|higher|lower|longer|shorter|better|worse|quicker"
)
_FIGURE: Final = re.compile(rf"\bCPU (?:m?s|seconds?|minutes?|hours?)\b|\d (?:%|times) (?:{_COMPARED})\b")
_CODE: Final = re.compile(r"`([^`]*)`")
_BENCH: Final = re.compile(r"\btests/|\bpython |\bpytest\b|\bverticil (?:demo|evaluate|reproduce)\b")
_HEADING: Final = re.compile(r"^#+ ", re.MULTILINE)
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def figures_without_bench(page: str) -> Iterator[tuple[int, str]]:
    """Iterate over the lines of a page with a measured figure whose section names no bench: (number, text)."""
    prose = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), page)
    for start, end in pairwise([0, *(heading.start() for heading in _HEADING.finditer(prose)), len(prose)]):
        section = prose[start:end]
        if not any(map(_BENCH.search, _CODE.findall(section))):
            first = prose.count("\n", 0, start) + 1
            yield from (
                (number, line) for number, line in enumerate(section.split("\n"), first) if _FIGURE.search(line)
            )
