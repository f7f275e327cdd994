"""The declared codebook: which code a text of the local table gets, and what is counted about it.

Promises: categories are those that the study declares, never discovered from data; every text has exactly one `Outcome`, and none
is a fault: whether a table has certain texts decides nothing. A text that is none of the declared ones becomes the declared
`other`; without one, the declared `missing` if it is empty; else it is undeclared, and its record gets a category that is drawn
(`substitutes`). Nothing that leaves this module but the codes themselves carries a text of the table.

Does not: read files, trim, change case or guess. What would have matched after such a repair is only counted, for the hint.

How a text becomes a code, in this order: the column's `recode`; the spellings of missing values; the categories (with bins:
a value that `value_reader` reads is put into its bin, or into the nearest one, whatever the study says of `outside`; categories
behind the bins are accepted as written); `other`; an empty text as `missing`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.written_values.numbers import OLD_STYLES
from verticil.shared.documents.written_values.reading import MOMENTS, usual_pattern, value_reader
from verticil.shared.numerics.model.schema import Variable

_WHOLE: Final = re.compile(r"[+-]?[0-9]+\.0*")


class Outcome(IntEnum):
    """What became of a text. From `EMPTY` on it is none of the declared ones; an empty one is `missing` where that is declared.
    The last three say what an undeclared text nearly is, where that was asked."""

    CATEGORY = 0
    MISSING = 1
    OTHER = 2
    CLAMPED = 3
    EMPTY = 4
    UNDECLARED = 5
    BLANKS = 6
    LETTER_CASE = 7
    DECIMAL_POINT = 8


def style_of(variable: Variable, style: str) -> str:
    """Return how a column is written: as the site says; where it says nothing, moments as the study's records, or by ISO 8601."""
    if variable.kind not in MOMENTS or style not in {"", *OLD_STYLES}:
        return style
    usual = usual_pattern(str(variable.kind))
    return f"{variable.format} | {usual}" if variable.format is not None else usual


class Codebook:
    """Texts of one column to codes of one variable.

    Args:
        variable: the declared categories or bins.
        recode: local spelling -> declared spelling, of the column rule.
        style: how the column is written; see `written_values.reading.value_reader`.
        where: what messages start with, as in ``people.csv: column 'sex'``.

    Raises:
        Misuse: CONFIG_INVALID, a recode leads to a text that is no category of a variable without `other`.
    """

    __slots__ = (
        "_categories", "_edges", "_first_letters", "_folded", "_group", "_missing", "_points", "_read", "_recode", "variable",
    )  # fmt: skip

    def __init__(self, variable: Variable, recode: Mapping[str, str], *, style: str = "plain", where: str) -> None:
        self.variable = variable
        self._read = value_reader(variable.kind, style_of(variable, style))
        self._recode = dict(recode)
        n_bins = variable.n_bins
        # The bins' own labels are names for people; a table holds numbers.
        n_valued = variable.n_valued
        self._categories = {label: n_valued + code for code, label in enumerate(variable.labels[n_valued:])}
        self._edges = np.asarray(variable.bins if variable.bins is not None else (), dtype=np.float64)
        self._points = {point: n_bins + place for place, point in enumerate(variable.points)}
        self._group = {value: category for category, values in variable.groups for value in values}
        self._first_letters = int(variable.group_by.partition(":")[2]) if variable.group_by is not None else 0
        missing = variable.missing
        code = self._categories[missing.category] if missing is not None else -1
        self._missing = dict.fromkeys(missing.spellings, code) if missing is not None else {}
        if variable.kind is not None and missing is not None:
            self._missing.setdefault("", code)  # as records write it
        if variable.kind == "boolean":
            truths = {label.casefold(): code for label, code in self._categories.items()}
            for word in ("true", "false"):  # of a Parquet file, a frame, a spreadsheet
                self._categories |= dict.fromkeys((word, word.title(), word.upper()), truths[word])
        self._folded = {label.strip().casefold() for label in self._categories}
        n_unknown = sum(self._locate(target)[1] >= Outcome.EMPTY for target in self._recode.values())
        if n_unknown:
            raise Misuse(
                "CONFIG_INVALID",
                f"{where}: {n_unknown} of {len(self._recode)} recode targets are no category of variable '{variable.name}'",
                hint="the right-hand side of recode is a category, or a missing spelling, that the study declares",
            )

    def encode(self, texts: Sequence[str], *, closely: bool = False) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Code and outcome of each text.

        Args:
            texts: the distinct texts of a part of the column.
            closely: look for near misses among the undeclared ones, for hints; this takes a time that depends on them.

        Returns:
            codes: (len(texts),), int32, -1 where a category must be drawn; outcomes: (len(texts),), uint8, values of `Outcome`.
        """
        pairs = [self._locate(self._recode.get(text, text)) for text in texts]
        if closely:
            pairs = [
                (code, self._near_miss(self._recode.get(text, text)) if outcome is Outcome.UNDECLARED else outcome)
                for text, (code, outcome) in zip(texts, pairs, strict=True)
            ]
        codes = np.fromiter((code for code, _ in pairs), dtype=np.int32, count=len(pairs))
        return codes, np.fromiter((outcome for _, outcome in pairs), dtype=np.uint8, count=len(pairs))

    def _locate(self, text: str) -> tuple[int, Outcome]:
        if text in self._missing:
            return self._missing[text], Outcome.MISSING
        if text in self._categories:
            return self._categories[text], Outcome.CATEGORY
        if (code := self._locate_value(text)) is not None:
            return code
        if self.variable.other is not None:
            return self._categories[self.variable.other], Outcome.OTHER
        if not text.strip():
            missing = self.variable.missing
            return -1 if missing is None else self._categories[missing.category], Outcome.EMPTY
        return -1, Outcome.UNDECLARED

    def _locate_value(self, text: str) -> tuple[int, Outcome] | None:
        """Locate a number, a moment, or a value that a group stands for; None: the text is none."""
        if (self._edges.size or self._points) and (number := self._read(text)) is not None:
            if number in self._points:
                return self._points[number], Outcome.CATEGORY
            if self._edges.size:
                return self._bin(number)
        group = self._group.get(text) or text[: self._first_letters]
        return (self._categories[group], Outcome.CATEGORY) if group in self._categories else None

    def _bin(self, value: float) -> tuple[int, Outcome]:
        # Bin b is [edge_b, edge_b+1): the number of edges at or below the value, less one.
        position = int(np.searchsorted(self._edges, value, side="right")) - 1
        nearest = min(max(position, 0), self._edges.size - 2)
        return nearest, Outcome.CATEGORY if nearest == position else Outcome.CLAMPED

    def _near_miss(self, text: str) -> Outcome:
        bare_text = text.strip()
        if bare_text in self._categories or bare_text in self._missing:
            return Outcome.BLANKS
        if bare_text.casefold() in self._folded:
            return Outcome.LETTER_CASE
        if _WHOLE.fullmatch(bare_text) and bare_text[: bare_text.index(".")] in self._categories:
            return Outcome.DECIMAL_POINT
        return Outcome.UNDECLARED
