"""The check that every row of a partner's masked columns is one-hot, as two nodes make it of whom neither sees a row.

The rows are those of Y = U - R: the *verifier* has U, the *dealer* R. Of each row, the columns of one unit are a block, which
has to be 0 or a unit vector. The owner draws words a_j (the verifier's), a_D (the dealer's) and b_j for each row and unit and
deals b_D = (a_j + a_D)^2 - b_j (`square_share`). After that the two toss words r, one for each column, and rho, one for each
row and unit. With z = <r, y> and z* = <r^2, y>, sums over a block's columns (`combine`) that both make of what they have,
they tell each other w = z - a, a uniform word, and then two sums over all rows and units,

    f_j = sum rho (w^2 + 2 w a_j + b_j - z*_j)    f_D = sum rho (2 w a_D + b_D - z*_D)    f_j + f_D = sum rho (z^2 - z*)

z^2 - z* is a polynomial in r that is 0 throughout only where the block is 0 or a unit vector. Elsewhere it is 0 with a chance
of 2/p at most, and the sum with 3/p (model-three.md section 4 has the proof, and why this needs a field; the idea: H.
Corrigan-Gibbs, D. Boneh, "Prio", NSDI 2017, and D. Boneh et al., "Lightweight techniques for private heavy hitters", IEEE S&P
2021).

Everything is done block of rows by block of rows; the sums of the blocks are added up modulo p. Arrays of words are (n, u), a
row for each person of the block and a column for each unit, where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.shared.masked.arithmetic.field import P, Words, add, multiply, reduce_words, subtract

RUNS: Final = 2
"""Of the check, each with seeds and a toss of its own: what fails once with 3/p fails with 5e-19 (model-three.md, section 9)."""

_COLUMNS: Final = 32  # of a product of doubles: the more, the more of what is multiplied is 0


def square_share(a_verifier: Words, a_dealer: Words, b_verifier: Words) -> Words:
    """b_D = (a_j + a_D)^2 - b_j: the correction that the owner deals to the dealer."""
    a = add(a_verifier, a_dealer)
    return subtract(multiply(a, a), b_verifier)


def combine(words: Words, coefficients: Words, sizes: Sequence[int]) -> Words:
    """Sum for each row and unit its words, each times its column's coefficient.

    One pass for several lists of coefficients takes less time than one for each: r, r^2, of both runs where they are there.

    A product of doubles, exact: a word below 2^32 times b bits of a coefficient, summed over the K <= 2^(21 - b) columns of a
    unit, is a whole number below 2^53. Coefficients are cut into pieces of b bits; b = 16, two pieces, up to 32 categories.

    Args:
        words: (n, S), a column for each category of each unit.
        coefficients: (c, S).
        sizes: categories of each unit, their sum S, none above 2^16.

    Returns:
        (c, n, u).

    Raises:
        ValueError: the shapes do not fit, or a unit has too many categories.
    """
    if not words.shape[1] == coefficients.shape[1] == sum(sizes):
        raise ValueError(f"{words.shape[1]} columns and {coefficients.shape[1]} coefficients, expected {sum(sizes)}")
    totals = np.empty((len(coefficients), len(words), len(sizes)), np.uint32)
    if (most := max(sizes, default=1)) > 2**16:
        raise ValueError(f"a unit of {most} categories, expected at most {2**16}")
    ends = np.cumsum(sizes)
    bits = min(16, 21 - (most - 1).bit_length())
    pieces = -(-32 // bits)
    step = max(1, _COLUMNS // (pieces * len(coefficients)))  # units at a time
    for first in range(0, len(sizes), step):
        some = sizes[first : first + step]
        columns = slice(int(ends[first]) - some[0], int(ends[first]) - some[0] + sum(some))
        places = np.arange(sum(some)), np.repeat(np.arange(len(some)), some)
        parts = np.zeros((sum(some), pieces, len(coefficients), len(some)))
        for piece in range(pieces):
            cut = coefficients[:, columns] >> np.uint32(bits * piece) & np.uint32(2**bits - 1)
            parts[places[0], piece, :, places[1]] = cut.T
        sums = (words[:, columns].astype(np.float64) @ parts.reshape(sum(some), -1)).astype(np.uint64)
        sums = sums.reshape(len(words), pieces, len(coefficients), len(some))
        whole = reduce_words(sums[:, -1])
        for piece in reversed(range(pieces - 1)):
            whole = reduce_words((whole.astype(np.uint64) << np.uint64(bits)) + sums[:, piece])
        totals[:, :, first : first + step] = whole.transpose(1, 0, 2)
    return totals


def verifier_sum(w: Words, a_verifier: Words, b_verifier: Words, z_star: Words, rho: Words) -> int:
    """f_j of a block of rows, a word.

    Args:
        w: w_j + w_D.
        a_verifier: a_j.
        b_verifier: b_j.
        z_star: z*_j, `combine` of U by r^2.
        rho: of the toss.
    """
    linear = multiply(w, add(w, add(a_verifier, a_verifier)))
    return total(multiply(rho, subtract(add(linear, b_verifier), z_star)))


def dealer_sum(w: Words, a_dealer: Words, b_dealer: Words, z_star: Words, rho: Words) -> int:
    """f_D of a block of rows, a word.

    Args:
        w: w_j + w_D.
        a_dealer: a_D.
        b_dealer: b_D, as the owner dealt it.
        z_star: z*_D, `combine` of -R by r^2.
        rho: of the toss.
    """
    linear = multiply(w, add(a_dealer, a_dealer))
    return total(multiply(rho, subtract(add(linear, b_dealer), z_star)))


def squares(words: Words) -> Words:
    """Square numbers of any shape: r^2 from r."""
    return multiply(words, words)


def total(words: Words) -> int:
    """Sum words of any shape, fewer than 2^32, modulo p."""
    return int(words.sum(dtype=np.uint64)) % P
