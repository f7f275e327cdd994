"""Values of families that a search asks for: each is asked for once, and rounded so that equal values are equal."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["FamilyValue", "Remembered"]

FamilyValue = Callable[[int, tuple[int, ...]], float]
"""(child, parents ascending) -> nats. A pure function of the data."""


class Remembered:
    """A family value with a memory. The memory changes what a search costs, never what it finds.

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
            self._known[key] = round(value / self._unit) * self._unit
        return self._known[key]
