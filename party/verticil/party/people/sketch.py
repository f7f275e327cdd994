"""A sketch of a table's people, and the share of people that two sketches have in common.

A sketch holds the key of everybody whom a table names, 8 bytes each (`verticil.party.dataset.local_person_keys`), so the share is
exact: the people of the smaller table who are in the other one, divided by the size of the smaller. It is taken of the exact
keys, and of the loose ones where no two people of either table share one; the larger of the two counts, so a table whose ids
changed their spelling is recognised.

Which errors are possible. Keys are pseudo-random, so two different people have the same one with probability 2^-64.

- Tables of different people are taken for the same if more than a third of the smaller one's m people have the key of one of
  the n others: at most C(m, k) (n / 2^64)^k with k = floor(m / 3) + 1 (`false_alarm`), and twice that for both kinds of key.
- Tables with 90 % of the smaller one's people in the larger are missed only if keys of people of the smaller coincide: each
  coincidence takes at most one from the people in common, and .9 m - m / 3 of them are needed. k coincidences form a forest of k
  pairs, so their probability is at most C(m (m - 1) / 2, k) / 2^(64 k) (`miss`).

Both are below 1e-9 for any two tables of up to four billion people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np

from verticil.party.dataset.local_person_keys import Keys, PeopleOfTable
from verticil.shared.core.arrays import give_back

LIMIT: Final = Fraction(1, 3)
"""The share of people in common above which two data sets are taken for the same people."""
_KEYS: Final = 2.0**64
_AT_ONCE: Final = 1 << 18
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
"""An odd number: keys are pseudo-random, so two that differ by a multiple of it are as rare as two that are equal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sketch:
    """The keys of the people of a data set. Secret.

    Attributes:
        exact: uint64, ascending, each key once.
        loose: the same for ids whose spelling may have changed; None: two people of one table share a loose key.
    """

    exact: Keys = field(repr=False)
    loose: Keys | None = field(repr=False)

    @classmethod
    def of(cls, people: PeopleOfTable) -> Sketch:
        """Return the sketch of a table; loose keys count where no two people share one."""
        return cls(exact=people.exact, loose=people.loose if len(people.loose) == len(people.exact) else None)

    def with_more(self, other: Sketch) -> Sketch:
        """Return the sketch of the people of both."""
        is_same = self.loose is self.exact and other.loose is other.exact
        exact = np.union1d(self.exact, other.exact)
        if self.loose is None or other.loose is None:
            return Sketch(exact=exact, loose=None)
        return Sketch(exact=exact, loose=exact if is_same else np.union1d(self.loose, other.loose))


def share(one: Sketch, other: Sketch) -> Fraction:
    """Return the share of the smaller data set's people who are in the other one, from 0 to 1."""
    n_shared = _share(one.exact, other.exact)
    if one.loose is None or other.loose is None:
        return n_shared
    return max(n_shared, _share(one.loose, other.loose))


def _share(one: Keys, other: Keys) -> Fraction:
    smaller = min(len(one), len(other))
    if not smaller:
        return Fraction(0)
    return Fraction(n_common(one, other), smaller)


def n_common(one: Keys, other: Keys) -> int:
    """Count the keys that two sets have in common, both ascending, each key once; a block of either is in memory.

    >>> n_common(np.array([1, 2, 5], np.uint64), np.array([2, 5, 9, 11], np.uint64))
    2
    """
    n_shared = at = there = 0
    while at < len(one) and there < len(other):
        some, others = one[at : at + _AT_ONCE], other[there : there + _AT_ONCE]
        largest = min(some[-1], others[-1])
        some, others = (keys[: np.searchsorted(keys, largest, side="right")] for keys in (some, others))
        both = np.sort(
            np.concatenate([some, others]), kind="stable"
        )  # which merges what is ascending: a tenth of intersect1d
        n_shared += int(np.count_nonzero(both[1:] == both[:-1]))
        at, there = at + len(some), there + len(others)
        give_back(some)
        give_back(others)
    return n_shared


def number_keys(keys: Keys) -> Keys:
    """Return keys of rows that name nobody, ascending: the second of equal rows has another key than the first, and so on.

    Args:
        keys: (n,), uint64, one of each row.
    """
    ascending = np.sort(keys)
    starts = np.flatnonzero(np.concatenate([np.ones(len(keys[:1]), dtype=bool), np.diff(ascending) > 0]))
    first = np.repeat(starts, np.diff(np.append(starts, len(keys))))  # the place of each key's first row
    occurrence = (np.arange(len(keys)) - first).astype(np.uint64)
    return np.unique(ascending + occurrence * _STEP)


def false_alarm(smaller: int, larger: int) -> float:
    """Return a bound of the probability that tables of different people are taken for the same.

    Args:
        smaller, larger: people in the two tables.
    """
    if not smaller:
        return 0.0
    n_needed = smaller // 3 + 1
    return 2 * math.exp(min(0.0, _log_choose(smaller, n_needed) + n_needed * math.log(larger / _KEYS)))


def miss(smaller: int, *, in_both: float = 0.9) -> float:
    """Return a bound of the probability that a table most of whose people are in another one is not recognised.

    Args:
        smaller: people in the smaller table.
        in_both: the share of them who are in the larger one.
    """
    n_needed = math.ceil(math.ceil(in_both * smaller) - smaller / 3)
    pairs = smaller * (smaller - 1) // 2
    if n_needed > max(smaller - 1, 0) or n_needed > pairs:
        return 0.0
    return math.exp(min(0.0, _log_choose(pairs, n_needed) - n_needed * math.log(_KEYS)))


def _log_choose(n: int, k: int) -> float:
    """Return the logarithm of the binomial coefficient; of a large k its bound (e n / k)^k."""
    return math.log(math.comb(n, k)) if k <= 64 else k * (1 + math.log(n / k))
