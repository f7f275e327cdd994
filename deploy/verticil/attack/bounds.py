"""Bounds of a probability from a number of draws: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934), one-sided and exact.

The binomial tail is summed from its largest term on, and whatever is left out of the sum is bounded and added: a computed tail is
never below the true one, so a bound is never on the wrong side. `wilson` is the approximation for choosing what to test.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats

_SLACK: Final = 1e-3
"""Part of the error probability that is kept for rounding: `math.lgamma` of 1e9 may be off by some 1e-5."""
_STEPS: Final = 100


def log_upper_tail(successes: int, draws: int, probability: float) -> float:
    """Return ln P(X >= k) of a binomial number X, rounded up.

    Args:
        successes: k, 1 to `draws`; at least the mean of X.
        draws: n.
        probability: p, 0 < p < 1.

    >>> round(math.exp(log_upper_tail(2, 3, 0.25)), 12) == 10 / 64
    True
    """
    n, k, p = draws, successes, probability
    odds = p / (1 - p)
    count = min(n - k, 64 + math.ceil(10 * math.sqrt(n * p * (1 - p))))
    j = np.arange(k, k + count, dtype=np.float64)
    terms = np.exp(np.cumsum(np.log((n - j) / (j + 1) * odds)))
    total = 1 + float(terms.sum())
    ratio = (n - k - count) / (k + count + 1) * odds
    if ratio > 0:  # the terms that are left fall at least as fast as a geometric series
        total += (float(terms[-1]) if count else 1.0) * ratio / (1 - ratio) if ratio < 1 else math.inf
    largest = (
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    )
    return largest + math.log(total)


def lower_bound(successes: int, draws: int, error: float) -> float:
    """Return a probability that the true one is below with a probability of `error` at most, whatever it is.

    Args:
        successes: among `draws` independent draws.
        draws: at least 1.
        error: 0 < error < 1.

    Raises:
        ValueError: a number is out of its range.

    >>> lower_bound(0, 10, 0.05), round(lower_bound(10, 10, 0.05), 3)
    (0.0, 0.741)
    """
    if not (0 <= successes <= draws and draws >= 1 and 0 < error < 1):
        raise ValueError(f"{successes} of {draws} draws at an error of {error:g}")
    if successes == 0:
        return 0.0
    log_error = math.log(error * (1 - _SLACK))
    low, high = 0.0, successes / draws
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if log_upper_tail(successes, draws, middle) <= log_error else (low, middle)
    return low


def upper_bound(successes: int, draws: int, error: float) -> float:
    """Return a probability that the true one is above with a probability of `error` at most; raises as `lower_bound`.

    >>> round(upper_bound(0, 10, 0.05), 3)
    0.259
    """
    return 1.0 - lower_bound(draws - successes, draws, error)


def epsilon_at_least(first: int, second: int, draws: int, *, delta: float, error: float) -> float:
    """Return an epsilon that is above the true one, at this delta, with a probability of `error` at most.

    If a mechanism is (epsilon, delta) private, P(S) <= e^epsilon Q(S) + delta for every event S that was chosen before the
    draws were made; so epsilon >= ln((p - delta) / q) for a lower bound p of P(S) and an upper bound q of Q(S), each
    with half of the error.

    Args:
        first, second: how often the event happened under P and under Q.
        draws: under each.
        delta: at least 0.
        error: of the statement.

    Returns:
        At least 0.

    >>> round(epsilon_at_least(7_311, 2_689, 10_000, delta=0.0, error=1e-6), 2)  # e / (1 + e) and 1 / (1 + e): epsilon 1
    0.89
    """
    p = lower_bound(first, draws, error / 2) - delta
    q = upper_bound(second, draws, error / 2)
    return max(math.log(p / q), 0.0) if p > 0 else 0.0


def wilson(shares: Floats, draws: int, deviations: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of probabilities, about `deviations` standard deviations away: E. B. Wilson, JASA 22 (1927).

    Args:
        shares: of successes, of any shape.
        draws: behind each share.
        deviations: > 0.

    Returns:
        Two arrays of that shape.
    """
    z2 = deviations**2 / draws
    middle = (shares + z2 / 2) / (1 + z2)
    half = np.sqrt(z2 * shares * (1 - shares) + z2**2 / 4) / (1 + z2)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)
