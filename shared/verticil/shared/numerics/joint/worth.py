"""What records are worth, in one sentence: their estimated distances to the people, and what the noise took.

The figures come from the noise and from what was estimated (`verticil.miner.learning.worth`); nobody looks at a raw table for
them. A release has them in model.json under ``worth``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from verticil.shared.core.name_lists import shortened
from verticil.shared.documents.json_document import Json

KEY: Final = "worth"
"""Of model.json."""
NO_NEARER: Final = 0.95
"""Records farther than this part of the distance of independent columns are of no use for relations."""
_SOURCES: Final = {
    "measured": "the distances are measured on the table, for your eyes only",
    "predicted": "this is predicted from the study and the number of people",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What records are worth.

    Attributes:
        two_way: mean total variation distance of the tables of two columns to the people's.
        independent: the same of columns that are each like the people's and have nothing to do with each other.
        one_way: of single columns.
        drowned: columns whose relations are no nearer than those of independent columns.
        weakened: columns whose relations keep less than four fifths of their strength.
        source: where the distances come from: the noise and the estimates, the table itself, which only its owner may look at,
            or the study alone.
    """

    two_way: float
    independent: float
    one_way: float
    drowned: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    source: Literal["estimated", "measured", "predicted"] = "estimated"

    @property
    def nearer(self) -> float:
        """By which part records are nearer to the people than independent columns; negative: they are farther."""
        return 1 - self.two_way / self.independent if self.independent > 0 else -1.0

    @property
    def is_useless(self) -> bool:
        """Whether records are no nearer to the people than independent columns."""
        return self.two_way >= NO_NEARER * self.independent

    def document(self) -> dict[str, Json]:
        """Return the JSON of model.json; distances are rounded to four decimals."""
        return {
            "two_way": round(self.two_way, 4),
            "independent": round(self.independent, 4),
            "one_way": round(self.one_way, 4),
            "drowned": list(self.drowned),
            "weakened": list(self.weakened),
        }


def read_worth(document: Mapping[str, Json]) -> Worth | None:
    """Return what a release's model.json says; None: it says nothing, or not in this form."""
    own = document.get(KEY)
    if not isinstance(own, dict):
        return None
    numbers = [own.get(key) for key in ("two_way", "independent", "one_way")]
    names = [own.get(key) for key in ("drowned", "weakened")]
    if not all(isinstance(number, int | float) for number in numbers) or not all(
        isinstance(each, list) for each in names
    ):
        return None
    two_way, independent, one_way = (float(number) for number in numbers if isinstance(number, int | float))
    drowned, weakened = (tuple(map(str, each)) for each in names if isinstance(each, list))
    return Worth(two_way=two_way, independent=independent, one_way=one_way, drowned=drowned, weakened=weakened)


def measured(one_way: float, two_way: float, independent: float, estimated: Worth | None = None) -> Worth:
    """Return what records are worth by distances that were measured on the table.

    Args:
        one_way, two_way, independent: see `Worth`.
        estimated: says which columns drown, and which are weakened; None: nobody knows.
    """
    return Worth(
        one_way=one_way,
        two_way=two_way,
        independent=independent,
        drowned=() if estimated is None else estimated.drowned,
        weakened=() if estimated is None else estimated.weakened,
        source="measured",
    )


def sentence(worth: Worth) -> str:
    """Write what records are good for, and what for not.

    >>> sentence(Worth(two_way=0.02, independent=0.05, one_way=0.004)).split("; ")[0]
    'records are nearer to the people than independent columns by 60 %'
    """
    parts = []
    if worth.is_useless:
        parts.append("do not use the records for relations: they are no nearer to the people than independent columns")
    else:
        parts.append(f"records are nearer to the people than independent columns by {100 * worth.nearer:.0f} %")
    parts.append(f"shares of single columns are {100 * worth.one_way:.2g} points off in the mean")
    if not worth.is_useless:
        if worth.drowned:
            parts.append(f"relations of {_these(worth.drowned)} drown in the noise: {shortened(worth.drowned)}")
        weakened = [name for name in worth.weakened if name not in worth.drowned]
        if weakened:
            parts.append(f"not for regression coefficients of {shortened(weakened)}, whose relations are weakened")
    if worth.source != "estimated":
        parts.append(_SOURCES[worth.source])
    return "; ".join(parts)


def _these(names: Sequence[str]) -> str:
    return "this column" if len(names) == 1 else f"these {len(names)} columns"
