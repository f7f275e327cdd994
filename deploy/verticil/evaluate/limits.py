"""Limits on headline figures, for who wants a table to pass before it goes on: ``[limits]`` of a TOML file.

A limit is the largest value of a figure that is better lower, the least value of one that is better higher. A figure that could
not be computed keeps no limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verticil.evaluate.figures import Figure
from verticil.evaluate.suite import headline
from verticil.shared.documents.config import read_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceeded:
    """A limit that a candidate does not keep.

    Attributes:
        figure: its key.
        candidate: whose.
        value: what it is; NaN: it was not computed.
        limit: what it may be.
    """

    figure: str
    candidate: str
    value: float
    limit: float

    @property
    def words(self) -> str:
        """Say for people which limit is not kept."""
        value = "not computed" if math.isnan(self.value) else f"{self.value:.4g}"
        return f"{self.candidate}: {self.figure} {value}, limit {self.limit:g}"


def limits_of(path: Path) -> dict[str, float]:
    """Read limits.

    Raises:
        Misuse: FILE_MISSING, CONFIG_INVALID: no TOML of schema 1, an unknown figure, no number.
    """
    document = read_toml(path)
    table = document.table("limits")
    keys = [definition.key for definition in headline()]
    table.only(*keys)
    document.finish()
    return {key: float(table.value(float, key)) for key in keys if table.has(key)}


def find_exceeded(figures: tuple[Figure, ...], limits: Mapping[str, float]) -> list[Exceeded]:
    """Return the limits that are not kept, of each candidate."""
    candidates = list(dict.fromkeys(item.candidate for item in figures))
    by = {(item.asked.key, item.candidate): item for item in figures}
    excesses: list[Exceeded] = []
    for key, limit in limits.items():
        for name in candidates:
            item = by.get((key, name))
            value = math.nan if item is None else item.value
            lower = item is None or item.asked.better == "lower"
            if not (value <= limit if lower else value >= limit):
                excesses.append(Exceeded(figure=key, candidate=name, value=value, limit=limit))
    return excesses
