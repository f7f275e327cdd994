"""The declared codebook: which code a text of the local table gets, and what is counted about it.

Promises: categories are those that the study declares, never discovered from data; every text has exactly one `Outcome`, and none
is a fault: whether a table has certain texts decides nothing. A text that is none of the declared ones becomes the declared
`other`; without one, the declared `missing` if it is empty; else it is undeclared, and its record gets a category that is drawn
(`substitutes`). Nothing that leaves this module but the codes themselves carries a text of the table.

Does not: read files, trim, change case or guess. What would have matched after such a repair is only counted, for the hint.

How a text becomes a code, in this order: the column's `recode`; the spellings of missing values; the categories (with bins:
a plain decimal number is put into its bin, or into the nearest one, whatever the study says of `outside`; the categories behind
the bins are accepted as written); `other`; an empty text as `missing`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.errors import Misuse
from verticil.shared.model.schema import Variable

__all__ = ["Codebook", "Outcome"]

_NUMBER: Final = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
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


class Codebook:
    """Texts of one column to codes of one variable.

    Args:
        variable: the declared categories or bins.
        recode: local spelling -> declared spelling, of the column rule.
        where: what messages start with, as in ``people.csv: column 'sex'``.

    Raises:
        Misuse: CONFIG_INVALID, a recode leads to a text that is no category of a variable without `other`.
    """

    __slots__ = ("_categories", "_edges", "_folded", "_missing", "_recode", "variable")

    def __init__(self, variable: Variable, recode: Mapping[str, str], *, where: str) -> None:
        self.variable = variable
        self._recode = dict(recode)
        n_bins = variable.n_bins
        # The bins' own labels are names for people; a table holds numbers.
        self._categories = {label: n_bins + code for code, label in enumerate(variable.labels[n_bins:])}
        self._edges = np.asarray(variable.bins if variable.bins is not None else (), dtype=np.float64)
        missing = variable.missing
        code = self._categories[missing.category] if missing is not None else -1
        self._missing = dict.fromkeys(missing.spellings, code) if missing is not None else {}
        self._folded = {label.strip().casefold() for label in self._categories}
        lost = sum(self._locate(target)[1] >= Outcome.EMPTY for target in self._recode.values())
        if lost:
            raise Misuse(
                "CONFIG_INVALID",
                f"{where}: {lost} of {len(self._recode)} recode targets are no category of variable '{variable.name}'",
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
        found = [self._locate(self._recode.get(text, text)) for text in texts]
        if closely:
            found = [
                (code, self._near_miss(self._recode.get(text, text)) if outcome is Outcome.UNDECLARED else outcome)
                for text, (code, outcome) in zip(texts, found, strict=True)
            ]
        codes = np.fromiter((code for code, _ in found), dtype=np.int32, count=len(found))
        return codes, np.fromiter((outcome for _, outcome in found), dtype=np.uint8, count=len(found))

    def _locate(self, text: str) -> tuple[int, Outcome]:
        if text in self._missing:
            return self._missing[text], Outcome.MISSING
        if text in self._categories:
            return self._categories[text], Outcome.CATEGORY
        if self._edges.size and _NUMBER.fullmatch(text):
            return self._bin(float(text))
        if self.variable.other is not None:
            return self._categories[self.variable.other], Outcome.OTHER
        if not text.strip():
            missing = self.variable.missing
            return -1 if missing is None else self._categories[missing.category], Outcome.EMPTY
        return -1, Outcome.UNDECLARED

    def _bin(self, value: float) -> tuple[int, Outcome]:
        # Bin b is [edge_b, edge_b+1): the number of edges at or below the value, less one.
        position = int(np.searchsorted(self._edges, value, side="right")) - 1
        nearest = min(max(position, 0), self._edges.size - 2)
        return nearest, Outcome.CATEGORY if nearest == position else Outcome.CLAMPED

    def _near_miss(self, text: str) -> Outcome:
        stripped = text.strip()
        if stripped in self._categories or stripped in self._missing:
            return Outcome.BLANKS
        if stripped.casefold() in self._folded:
            return Outcome.LETTER_CASE
        if _WHOLE.fullmatch(stripped) and stripped[: stripped.index(".")] in self._categories:
            return Outcome.DECIMAL_POINT
        return Outcome.UNDECLARED
