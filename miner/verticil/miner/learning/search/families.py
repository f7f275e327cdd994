"""Values of families that a search asks for: each is asked for once, and rounded so that equal values are equal.

What is remembered is bounded; the oldest go first. It changes what a search costs, never what it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST_REMEMBERED: Final = 2**18
"""Families; some 100 MiB. A search that looks at more asks again for those that it has not met for long."""

FamilyValue = Callable[[int, tuple[int, ...]], float]
"""(child, parents ascending) -> nats. A pure function of the data."""


def remember(known: dict[K, V], key: K, value: V, *, most: int = MOST_REMEMBERED) -> None:
    """Keep a value; where there are `most`, the one that was kept first goes.

    >>> known = {"a": 1, "b": 2}
    >>> remember(known, "c", 3, most=2)
    >>> known
    {'b': 2, 'c': 3}
    """
    if len(known) >= most:
        del known[next(iter(known))]
    known[key] = value


class Remembered:
    """A family value with a memory.

    Args:
        value: what to ask.
        unit: values are rounded to multiples of it, a power of two, so that sums are exact and ties are ties.

    >>> asked = []
    >>> value = Remembered(lambda child, parents: asked.append(child) or 0.3, unit=0.25)
    >>> value(1, (0,)), value(1, (0,)), asked
    (0.25, 0.25, [1])
    """

    def __init__(self, value: FamilyValue, *, unit: float) -> None:
        self._value, self._unit = value, unit
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}

    def __call__(self, child: int, parents: tuple[int, ...]) -> float:
        """The value of a family.

        Raises:
            ValueError: it is not a finite number.
        """
        key = (child, parents)
        if key not in self._known:
            value = float(self._value(child, parents))
            if not math.isfinite(value):
                raise ValueError(
                    f"variable {child} with the parents {parents}: the value is {value}, expected a finite number"
                )
            remember(self._known, key, round(value / self._unit) * self._unit)
        return self._known[key]
