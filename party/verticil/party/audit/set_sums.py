"""How many people are left when sets of people are added and subtracted.

Exact counts of several sets can be added and subtracted as the sets themselves: what is left are the counts of those people whose
number in the sum is not zero. Of two sets X and Z that is X - Z, the people who are in one of them only. Of three, each taken
once with either sign, few are left only where one set is nearly the two others laid side by side: X + Y - Z.

A set is an ascending array of keys. A key may occur several times, for people whom it does not tell apart; it then counts as few
people as the sum allows, so that what is near is never missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import give_back

Keys = NDArray[np.uint64]

_FIRST_KEYS: Final = 1 << 10
_KEYS_AT_ONCE: Final = 1 << 16


def count_left(added_keys: Sequence[Keys], subtracted_keys: Sequence[Keys], *, enough: int) -> int:
    """Count the people who are left of a sum of sets.

    Args:
        added_keys, subtracted_keys: ascending keys of each set; those of one of the two lists are taken with the other sign.
        enough: where as many people are left, the count ends; keys are keyed hashes, so that different sets show it at once.

    Returns:
        The number of people, or some number from `enough` on.

    >>> one, two = np.array([1, 2, 5], np.uint64), np.array([2, 5, 9, 11], np.uint64)
    >>> count_left([one], [two], enough=100), count_left([one, two], [np.array([1, 2, 5, 9], np.uint64)], enough=100)
    (3, 3)
    """
    sets = [*added_keys, *subtracted_keys]
    signs = [1] * len(added_keys) + [-1] * len(subtracted_keys)
    most = max(len(added_keys), len(subtracted_keys))  # a person's number in the sum is at most this
    n_done, n_left, at_once = [0] * len(sets), 0, _FIRST_KEYS
    while n_left < enough and any(start < len(keys) for start, keys in zip(n_done, sets, strict=True)):
        parts = _next_parts(sets, n_done, at_once)
        n_done = [start + len(part) for start, part in zip(n_done, parts, strict=True)]
        _, places = np.unique(np.concatenate(parts), return_inverse=True)
        numbers = np.bincount(places, weights=np.repeat(signs, [len(part) for part in parts]))
        n_left += int(np.ceil(np.abs(numbers) / most).sum())
        for part in parts:
            give_back(part)
        at_once = min(2 * at_once, _KEYS_AT_ONCE)
    return n_left


def _next_parts(sets: Sequence[Keys], n_done: Sequence[int], at_once: int) -> list[Keys]:
    """Return the next keys of each set, up to the same key in all."""
    last_keys = [
        keys[start + at_once - 1] for start, keys in zip(n_done, sets, strict=True) if start + at_once < len(keys)
    ]
    rest = [keys[start:] for start, keys in zip(n_done, sets, strict=True)]
    if not last_keys:
        return rest
    return [keys[: np.searchsorted(keys, min(last_keys), side="right")] for keys in rest]
