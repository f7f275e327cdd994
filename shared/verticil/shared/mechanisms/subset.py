"""Subset selection: a record is released as a set of w of the K categories (Ye & Barg, IEEE Trans. Inf. Theory 64, 2018).

Every set that holds the true category has the same probability, every other set another, e^epsilon times smaller: the true
category is in the set with probability p = w e^epsilon / (w e^epsilon + K - w), any single other one with probability
q = (w - p) / (K - 1). For many categories and small epsilon its estimates have less variance than any matrix with K columns
(randomization.md 1.1). p is quantized to a multiple of 2^-64, so gamma = p (K - w) / ((1 - p) w) is a ratio of integers.

With z_x = (1[x in S] - q) / (p - q) of a released set S, sum_x z_x = 1 and E[z_x] = 1[x is true]: unbiased. Counting each of the
w members as 1/w of a record turns this into the inverse of the K x K symmetric matrix with p/w on its diagonal, which is what
`probabilities` and `inverse` are; only the variance differs, because the members of a set are not independent draws.

What two members tell together cannot be read from single members, but its expectation can: given the true category d, a set of
w holds the categories x and y both with a probability that depends on x = y, x = d and y = d only. `products` uses that.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Floats

_SCALE: Final = 2**64
LEAST_STATES: Final = 8
LARGEST_EPSILON: Final = 1.0
"""Where subset selection is offered: at least so many categories, at most this epsilon. Else the symmetric matrix is as good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """Subset selection, quantized.

    Attributes:
        n_states: K, at least 3.
        size: w, the number of categories in a released set, 1 <= w < K.
        weight: probability that the true category is in the set, in units of 2^-64; more than chance, w/K.

    Raises:
        ValueError: a number is out of its range.
    """

    n_states: int
    size: int
    weight: int
    _cache: dict[str, Floats] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.n_states < 3 or not 1 <= self.size < self.n_states:
            raise ValueError(
                f"sets of {self.size} out of {self.n_states} categories, expected 1 to K - 1 out of K >= 3"
            )
        if not self.weight < _SCALE or self.weight * self.n_states <= self.size * _SCALE:
            raise ValueError("the true category must be in the set more often than by chance, and not always")

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.n_states, self.size, self.weight)

    @property
    def keep(self) -> float:
        """p: probability that the true category is in the set."""
        return self.weight / _SCALE

    @property
    def other(self) -> float:
        """q: probability that any single other category is in the set."""
        return float(Fraction(self.size * _SCALE - self.weight, (self.n_states - 1) * _SCALE))

    @property
    def gamma(self) -> Fraction:
        """The largest ratio of the probabilities of one released set under two true categories."""
        return Fraction(self.weight * (self.n_states - self.size), (_SCALE - self.weight) * self.size)

    @property
    def is_identity(self) -> bool:
        """Never the identity: always False."""
        return False

    @property
    def codes_per_record(self) -> int:
        """Number of codes of a record, w."""
        return self.size

    @property
    def probabilities(self) -> Floats:
        """(K, K): p/w on the diagonal, q/w elsewhere; read-only."""
        return self._build_matrix("probabilities", self.other / self.size, (self.keep - self.other) / self.size)

    @property
    def inverse(self) -> Floats:
        """(K, K): the inverse of `probabilities`; read-only."""
        scale = self.size / (self.keep - self.other)
        return self._build_matrix("inverse", -self.other * scale / self.size, scale)

    @property
    def inverse_square(self) -> Floats:
        """(K, K): w times (1[y = x] (1 - 2 q) + q^2 / w) / (p - q)^2, because an indicator is its own square; read-only."""
        scale = self.size / (self.keep - self.other) ** 2
        return self._build_matrix("inverse_square", self.other**2 * scale / self.size, (1 - 2 * self.other) * scale)

    def products(self, first: Floats, second: Floats) -> Floats:
        """Second moments of sums of weights: see `channel`. Exact in expectation, not for every single set.

        With P(x, y in S | d) = t for three different categories, s where one of x and y is d, q where x = y, p where all are one,

            E[c_f c_g | d] = t F G + (q - t) f.g + (s - t) (f_d G + F g_d) + (p - q - 2 (s - t)) f_d g_d,

        c_f = sum_x f_x 1[x in S], F = sum_x f_x; and z_x = (1[x in S] - q) / (p - q).
        """
        p, q = self.keep, self.other
        s, t = self._pair_probabilities()
        sum_f, sum_g = first.sum(axis=0), second.sum(axis=0)
        both = t * sum_f * sum_g + (q - t) * (first * second).sum(axis=0)
        both = both + (s - t) * (first * sum_g + sum_f * second) + (p - q - 2 * (s - t)) * first * second
        mean_f, mean_g = q * sum_f + (p - q) * first, q * sum_g + (p - q) * second
        moments = (both - q * (sum_f * mean_g + mean_f * sum_g) + q * q * sum_f * sum_g) / (p - q) ** 2
        products: Floats = self.inverse @ moments
        return products

    def joint_shares(self, shares: Floats) -> Floats:
        """(K, K): 1/w^2 times the probability that two categories are both in the set; on the diagonal that one is."""
        p, q = self.keep, self.other
        s, t = self._pair_probabilities()
        both: Floats = t + (s - t) * (shares[:, None] + shares)
        np.fill_diagonal(both, q + (p - q) * shares)
        return both / self.size**2

    def lumps(self, classes: Sequence[int]) -> bool:
        """Always: categories other than the true one are all alike."""
        return len(classes) == self.n_states

    def digest(self) -> bytes:
        """SHA-256 of the three integers in decimal: 32 bytes."""
        return hashlib.sha256(f"subset {self.n_states} {self.size} {self.weight}".encode("ascii")).digest()

    def _pair_probabilities(self) -> tuple[float, float]:
        """s and t of `products`: that the true and a certain other category are in the set; that two certain other ones are."""
        k, w, p = self.n_states, self.size, self.keep
        s = p * (w - 1) / (k - 1)
        return s, (p * (w - 1) * (w - 2) + (1 - p) * w * (w - 1)) / ((k - 1) * (k - 2))

    def _build_matrix(self, name: str, everywhere: float, diagonal: float) -> Floats:
        if name not in self._cache:
            matrix = np.full((self.n_states, self.n_states), everywhere) + diagonal * np.eye(self.n_states)
            matrix.setflags(write=False)
            self._cache[name] = matrix
        return self._cache[name]


def _restore(n_states: int, size: int, weight: int) -> Subset:
    return Subset(n_states=n_states, size=size, weight=weight)


def best_size(n_states: int, epsilon: float) -> int:
    """Return the set size w with the smallest variance of a rare category's count, q (1 - q) / (p - q)^2; the smaller
    of equals.

    >>> [best_size(8, 1.0), best_size(16, 0.5), best_size(64, 1.0)]
    [2, 6, 17]
    """

    def variance(size: int) -> float:
        p, q = _keep_and_other(n_states, epsilon, size)
        return q * (1 - q) / (p - q) ** 2 if p > q else math.inf  # p = q: epsilon is lost in rounding

    middle = n_states / (math.exp(epsilon) + 1)
    candidates = {min(max(size, 1), n_states - 1) for size in (math.floor(middle), math.ceil(middle))}
    return min(sorted(candidates), key=variance)


def subset_selection(n_states: int, *, epsilon: float, size: int | None = None) -> Subset:
    """Subset selection with at most this epsilon: p is rounded down.

    Args:
        n_states: K, at least 3.
        epsilon: finite, > 0.
        size: w; None: `best_size`.

    Raises:
        ValueError: a number is out of its range, or epsilon is too small to be told from none.
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon {epsilon:g}, expected a finite number > 0")
    set_size = best_size(n_states, epsilon) if size is None else size
    if not 1 <= set_size < n_states:
        raise ValueError(f"sets of {set_size} out of {n_states} categories, expected 1 to {n_states - 1}")
    odds = Fraction(math.exp(epsilon)) * set_size
    return Subset(n_states=n_states, size=set_size, weight=int(odds / (odds + n_states - set_size) * _SCALE))


def _keep_and_other(n_states: int, epsilon: float, size: int) -> tuple[float, float]:
    odds = math.exp(epsilon) * size
    keep = odds / (odds + n_states - size)
    return keep, (size - keep) / (n_states - 1)
