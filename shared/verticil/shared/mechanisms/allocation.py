"""How a total epsilon of one person is divided among columns: so that every column keeps its contrasts equally well.

The K-ary symmetric response of epsilon keeps differences between two distributions up to the factor
lambda = (e^epsilon - 1) / (e^epsilon + K - 1). At equal epsilon a column of many categories keeps far less than one of two. The
rule gives every column the same lambda, epsilon_K = ln((1 + lambda (K - 1)) / (1 - lambda)), with the lambda at which the
epsilons sum to the total. A capped column gets at most its cap, and the rest is divided among the others.

The rule looks at numbers of categories only, never at data. That equal contrasts are the best use of a total is not proved here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_STEP: Final = 10**6
"""Epsilons are rounded down to this part of 1: they can be read, and their sum does not exceed the total by rounding."""


def equal_contrast(n_states: Sequence[int], total: float, caps: Sequence[float | None]) -> tuple[float, ...]:
    """Divide `total` by the equal-lambda rule.

    Args:
        n_states: K of each column, >= 2.
        total: what the epsilons may sum to, > 0.
        caps: the most that a column may get; None: no cap.

    Returns:
        An epsilon for each column; a column at its cap has exactly the cap, the others multiples of 1e-6, 0 when the total is
        smaller than that. The sum is at most the total; it is less than that by more than rounding only when every column is
        at its cap.

    Raises:
        ValueError: no column, not a cap for each, or a number is out of range.

    >>> equal_contrast([2, 4], math.log(3) + math.log(5), [None, None])  # lambda = 1/2
    (1.098612, 1.609437)
    >>> equal_contrast([2, 4, 4], math.log(15) + 1, [None, 1.0, None])
    (1.098612, 1.0, 1.609437)
    """
    if not n_states or len(caps) != len(n_states) or min(n_states) < 2:
        raise ValueError(
            f"{len(n_states)} columns with {len(caps)} caps: expected one for each, and 2 categories or more"
        )
    limits = [math.inf if cap is None else cap for cap in caps]
    if not 0 < total < math.inf or not min(limits) > 0:
        raise ValueError(f"total {total:g}: expected a finite number and caps > 0")

    def epsilons(exponent: float) -> list[float]:
        return [min(limit, _epsilon(k, exponent)) for k, limit in zip(n_states, limits, strict=True)]

    if math.fsum(limits) <= total:
        return tuple(limits)
    # Every epsilon without a cap is at least the exponent, so the sum reaches the total before the exponent does.
    low, high = 0.0, total + max((limit for limit in limits if limit < math.inf), default=0.0)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if math.fsum(epsilons(middle)) <= total else (low, middle)
    return tuple(
        level if level == limit else math.floor(level * _STEP) / _STEP
        for level, limit in zip(epsilons(low), limits, strict=True)
    )


def _epsilon(n_states: int, exponent: float) -> float:
    """epsilon of the lambda with 1 - lambda = e^-exponent; no cancellation at either end."""
    return exponent + math.log1p((n_states - 1) * -math.expm1(-exponent))
