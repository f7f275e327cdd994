"""The declared codebook: which code a text of the local table gets, and what is counted about it.

Promises: categories are those that the study declares, never discovered from data; every text has exactly one `Outcome`, and none
is a fault: whether a table has certain texts decides nothing. A text that is none of the declared ones becomes the declared
`other`; without one, the declared `missing` if it is empty; else it is undeclared, and its record gets a category that is drawn
(`substitutes`). Nothing that leaves this module but the codes themselves carries a text of the table.

Does not: read files, trim, change case or guess. What would have matched after such a repair is only counted, for the hint.

How a text becomes a code, in this order: the column's `recode`; the spellings of missing values; the categories (with bins:
a number, as `number_of` reads it, is put into its bin, or into the nearest one, whatever the study says of `outside`; categories
behind the bins are accepted as written); `other`; an empty text as `missing`.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.schema import Variable

_NUMBER: Final = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_COMMA: Final = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)[ \t]*")
_DATES: Final = {
    "YYYY-MM-DD": re.compile(r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})(?:[T ].*)?"),
    "DD.MM.YYYY": re.compile(r"(?P<d>[0-9]{1,2})\.(?P<m>[0-9]{1,2})\.(?P<y>[0-9]{4})"),
    "DD/MM/YYYY": re.compile(r"(?P<d>[0-9]{1,2})/(?P<m>[0-9]{1,2})/(?P<y>[0-9]{4})"),
    "MM/DD/YYYY": re.compile(r"(?P<m>[0-9]{1,2})/(?P<d>[0-9]{1,2})/(?P<y>[0-9]{4})"),
}
WRITTEN: Final = ("plain", "decimal-comma", *_DATES)
"""How a table can write the numbers of a column with bins. A date is its year and the part of that year that has gone by."""
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


def number_of(text: str, style: str = "plain") -> float | None:
    """Parse a text as a number, written in one of the styles of `WRITTEN`; None: the text is no number.

    >>> number_of("1.5e3"), number_of("1,5", "decimal-comma"), number_of("02.07.2019", "DD.MM.YYYY"), number_of("inf")
    (1500.0, 1.5, 2019.4986301369863, None)
    """
    if style in _DATES:
        if (date := _DATES[style].fullmatch(text.strip())) is None:
            return None
        try:
            day = dt.date(int(date["y"]), int(date["m"]), int(date["d"]))
        except ValueError:
            return None
        start = dt.date(day.year, 1, 1)
        return day.year + (day - start).days / (366 if calendar.isleap(day.year) else 365)
    if style == "decimal-comma":
        return float(text.replace(",", ".")) if _COMMA.fullmatch(text) else None
    return float(text) if _NUMBER.fullmatch(text) else None


class Codebook:
    """Texts of one column to codes of one variable.

    Args:
        variable: the declared categories or bins.
        recode: local spelling -> declared spelling, of the column rule.
        style: how the column's numbers are written, one of `WRITTEN`.
        where: what messages start with, as in ``people.csv: column 'sex'``.

    Raises:
        Misuse: CONFIG_INVALID, a recode leads to a text that is no category of a variable without `other`.
    """

    __slots__ = ("_categories", "_edges", "_folded", "_missing", "_recode", "_written", "variable")

    def __init__(self, variable: Variable, recode: Mapping[str, str], *, style: str = "plain", where: str) -> None:
        self.variable = variable
        self._written = style
        self._recode = dict(recode)
        n_bins = variable.n_bins
        # The bins' own labels are names for people; a table holds numbers.
        self._categories = {label: n_bins + code for code, label in enumerate(variable.labels[n_bins:])}
        self._edges = np.asarray(variable.bins if variable.bins is not None else (), dtype=np.float64)
        missing = variable.missing
        code = self._categories[missing.category] if missing is not None else -1
        self._missing = dict.fromkeys(missing.spellings, code) if missing is not None else {}
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
        if self._edges.size and (number := number_of(text, self._written)) is not None:
            return self._bin(number)
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
        bare_text = text.strip()
        if bare_text in self._categories or bare_text in self._missing:
            return Outcome.BLANKS
        if bare_text.casefold() in self._folded:
            return Outcome.LETTER_CASE
        if _WHOLE.fullmatch(bare_text) and bare_text[: bare_text.index(".")] in self._categories:
            return Outcome.DECIMAL_POINT
        return Outcome.UNDECLARED
