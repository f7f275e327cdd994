"""What is believed of a graph before any data."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StructurePrior:
    """A graph's prior is proportional to the product over its variables of exp(-gamma |parents|^alpha) (Martins, Gonçalves &
    Galletti, equations 4 and 5); with gamma = 0 every graph within the limits is as probable as any other.

    Attributes:
        gamma: nats for the first parent, >= 0.
        alpha: how the penalty grows with the number of parents, > 0.

    Raises:
        ValueError: a number is out of its range.

    >>> StructurePrior(gamma=1.0, alpha=2.0).log(3)
    -9.0
    """

    gamma: float = 0.0
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gamma) and self.gamma >= 0 and math.isfinite(self.alpha) and self.alpha > 0):
            raise ValueError(f"gamma {self.gamma} and alpha {self.alpha}, expected gamma >= 0 and alpha > 0")

    def log(self, n_parents: int) -> float:
        """Return the logarithm of one variable's factor, nats."""
        return -self.gamma * n_parents**self.alpha if n_parents else 0.0
