"""The field GF(p), p = 2^32 - 5, the largest prime below 2^32: its elements are *words*, uint32 from 0 to p - 1.

A number in hiding is a word with a uniform word added, or one of several words whose sum it is. Either tells nothing of it,
because a uniform word plus any word is uniform in a group. Counts and their noise are whole numbers of either sign, so a sum
that is opened is read as the number between -p/2 and p/2 that it is congruent to (`signed`); `check_capacity` says when that is
the sum itself. A field, not whole numbers modulo 2^32: there a difference that is even can vanish when it is multiplied by
random words, here only 0 does with a chance above 1/p.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.arrays import Ints
from verticil.shared.core.errors import Misuse, PeerFault

P: Final = 2**32 - 5
SIGMAS: Final = 32
"""Standard deviations of noise that an opened sum has room for: more has a chance below 2 e^(-32^2 / 2), or 10^-222."""

Words = NDArray[np.uint32]
"""Of any shape, each below `P`."""


def reduce_words(numbers: NDArray[np.uint64]) -> Words:
    """Return the words that whole numbers from 0 on are congruent to; by quotients, for numpy is slow with remainders."""
    return (numbers - numbers // P * P).astype(np.uint32)


def add(one: Words, other: Words) -> Words:
    """Add words modulo p.

    >>> add(np.array([1, P - 1], np.uint32), np.array([2, P - 1], np.uint32)).tolist() == [3, P - 2]
    True
    """
    return reduce_words(one.astype(np.uint64) + other)


def subtract(one: Words, other: Words) -> Words:
    """Subtract words modulo p.

    >>> subtract(np.array([3, 0], np.uint32), np.array([2, 1], np.uint32)).tolist() == [1, P - 1]
    True
    """
    return reduce_words(one.astype(np.uint64) + P - other)


def multiply(one: Words, other: Words) -> Words:
    """Multiply words modulo p.

    >>> multiply(np.array([3, P - 1], np.uint32), np.array([2, P - 1], np.uint32)).tolist() == [6, 1]
    True
    """
    return reduce_words(one.astype(np.uint64) * other)


def negate(words: Words) -> Words:
    """Return the words that give 0 with these.

    >>> negate(np.array([0, 1], np.uint32)).tolist() == [0, P - 1]
    True
    """
    return subtract(np.zeros_like(words), words)


def from_numbers(numbers: Ints) -> Words:
    """Return the words that whole numbers of either sign are congruent to."""
    return np.mod(numbers, P).astype(np.uint32)


def signed(words: Words) -> Ints:
    """Return the numbers between -p/2 and p/2 that the words are congruent to.

    >>> signed(np.array([0, 7, P // 2, P // 2 + 1, P - 1], np.uint32)).tolist()
    [0, 7, 2147483645, -2147483645, -1]
    """
    numbers = words.astype(np.int64)
    return np.where(numbers > P // 2, numbers - P, numbers)


def check_capacity(n_people: int, sigma_total: float) -> None:
    """See that n + 32 sigma is below p/2, so that a count with its noise is read as what it is.

    Args:
        n_people: n, the largest count that a cell can have, at least 1.
        sigma_total: standard deviation of all contributors' noise on a cell together, in people.

    Raises:
        Misuse: `STUDY_UNSUPPORTED`; it is not.
    """
    if n_people < 1 or not 0 <= sigma_total < math.inf or not n_people + SIGMAS * sigma_total < P / 2:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"counts of {n_people} people with noise of standard deviation {sigma_total:g}: expected at least 1 person and "
            f"people + {SIGMAS} standard deviations below {P / 2:.0f}, got {n_people + SIGMAS * sigma_total:.0f}",
            hint="fewer people, or less noise",
        )


def check_words(words: Words, what: str) -> None:
    """See that words that came from elsewhere are words.

    Args:
        words: any shape.
        what: names them in the error.

    Raises:
        PeerFault: `MESSAGE_INVALID`; some are p or more.
    """
    if beyond := int(np.count_nonzero(words >= P)):
        raise PeerFault(
            "MESSAGE_INVALID",
            f"{what}: {beyond} of {words.size} words are 2^32 - 5 or more, expected none",
            hint="the sender does not draw words as this version does",
        )
