"""Which event tells two neighbouring inputs apart best.

A mechanism is drawn from under several inputs, and each draw ends in one of M outcomes, so that draws are a table of counts,
H x M. For a pair of inputs the best events are those of the outcomes whose privacy loss is above a threshold (Neyman,
Pearson); which pair, in which order, and which threshold is decided by the lower bound of epsilon that as many draws would give.

The shares come from draws that are then thrown away, or from the distribution as it is documented: the draws that are counted
afterwards have no part in the choice, so one test is made for each event however many were compared.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from verticil.attack.bounds import wilson
from verticil.shared.core.arrays import Floats

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Event:
    """A set of outcomes that is more frequent under one input than under another.

    Attributes:
        first, second: the two inputs, P and Q, as rows of the counts.
        outcomes: (M,), whether each is in the set.
    """

    first: int
    second: int
    outcomes: NDArray[np.bool_]

    def count(self, counts: Counts) -> tuple[int, int]:
        """Count how often it happened under P and under Q; `counts` (H, M)."""
        return int(counts[self.first][self.outcomes].sum()), int(counts[self.second][self.outcomes].sum())


def best_event(shares: Floats, draws: int, *, delta: float, error: float) -> Event | None:
    """Return the event for which a lower bound of epsilon is the largest that can be expected.

    Args:
        shares: (H, M), of each outcome under each input.
        draws: under each input, that the event is to be counted in.
        delta: of the claim.
        error: of the statement.

    Returns:
        None: no event would give a bound above 0.
    """
    deviations = -NormalDist().inv_cdf(error / 2)
    smallest = 0.5 / draws
    best, largest = None, 0.0
    for first, second in itertools.permutations(range(len(shares)), 2):
        p, q = shares[first], shares[second]
        order = np.argsort((q + smallest) / (p + smallest), kind="stable")
        low = wilson(np.minimum(np.cumsum(p[order]), 1), draws, deviations)[0] - delta
        high = wilson(np.minimum(np.cumsum(q[order]), 1), draws, deviations)[1]
        ratios = np.maximum(low, 0) / high
        at = int(np.argmax(ratios))
        if ratios[at] > max(1.0, largest):
            largest = float(ratios[at])
            outcomes = np.zeros(shares.shape[1], dtype=np.bool_)
            outcomes[order[: at + 1]] = True
            best = Event(first=first, second=second, outcomes=outcomes)
    return best
