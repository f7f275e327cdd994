"""Products of blocks of rows in GF(p), exactly, by the matrix product of doubles.

Y is the one-hot matrix of some units' codes: a row for each person, a column for each category of each unit, 1 where the
person's code is. The table of two units of two parties is a block of Y_i^T Y_j. With uniform words R_i and R_j of the same
shapes, which a dealer knows, and U = Y + R, which the partner gets, each party makes a share of it (D. Beaver, "Efficient
multiparty protocols using circuit randomization", CRYPTO 1991; a dealer that has no part in the rest: D. Beaver,
"Commodity-based cryptography", STOC 1997):

    Z_i + Z_j = R_i^T R_j,    C_i = Z_i - R_i^T U_j,    C_j = Z_j + U_i^T Y_j
    C_i + C_j = R_i^T R_j - R_i^T (Y_j + R_j) + (Y_i + R_i)^T Y_j = Y_i^T Y_j

Everything is a sum over people, so it is made block of rows by block of rows
(`verticil.shared.masked.arithmetic.streams.row_blocks`) and added up (`verticil.shared.masked.arithmetic.field.add`): memory
depends on the widths, not on the number of people.

**Why doubles are exact.** A word is a 2^16 + b with a, b < 2^16 (its *limbs*), and what is multiplied are the limbs, as doubles
(J.-G. Dumas, P. Giorgi, C. Pernet, "Dense linear algebra over word-size prime fields", ACM TOMS 35(3), 2008). A product of two
limbs is at most (2^16 - 1)^2 < 2^32, and a sum of n <= 2^21 of them, or of some of them, is a whole number below 2^53. Doubles
hold these exactly, so no product and no addition rounds, in whatever order and with whatever instructions the library goes.
With codes on one side the other side's words stay whole: a sum of n <= 2^21 words is below 2^53, too. The limbs' sums are put
together in uint64, with 2^32 = 5 modulo p: 5 (s_aa mod p) + 2^16 ((s_ab + s_ba) mod p) + s_bb < 2^35 + 2^48 + 2^53 < 2^64.

numpy alone, since a party's installation need not have numba; a compiled loop took longer for two matrices of words, and for
codes it would save a small part of the whole (``python tests/bench/masked_products.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.shared.core.arrays import AnyCodes, Floats, Ints
from verticil.shared.masked.arithmetic.field import P, Words, reduce_words

MAX_ROWS: Final = 2**21
"""Of a block."""
_CELLS: Final = 2**20  # of a product that are made at a time, each of four doubles


def of_words(first: Words, second: Words) -> Words:
    """left^T right.

    Args:
        first: (n, E_i), n at most `MAX_ROWS`.
        second: (n, E_j).

    Returns:
        (E_i, E_j).

    Raises:
        ValueError: the shapes do not fit.
    """
    _check_rows(len(first), len(second))
    product = np.empty((first.shape[1], second.shape[1]), np.uint32)
    step = max(1, _CELLS // max(1, second.shape[1]))
    limbs = _limbs(second)
    for start in range(0, first.shape[1], step):
        some = product[start : start + step]
        sums = (_limbs(first[:, start : start + step]).T @ limbs).astype(np.uint64).reshape(len(some), 2, -1, 2)
        low, middle, high = sums[:, 0, :, 0], sums[:, 0, :, 1] + sums[:, 1, :, 0], sums[:, 1, :, 1]
        some[:] = reduce_words(5 * (high % P) + 2**16 * (middle % P) + low)
    return product


def of_words_and_codes(rows: Words, codes: AnyCodes, sizes: Sequence[int]) -> Words:
    """left^T Y, Y the one-hot matrix of codes: for each category the sum of the rows of those people who have it.

    Args:
        rows: (n, E), n at most `MAX_ROWS`.
        codes: (n, units), a column for each unit, those of a compound numbered through.
        sizes: categories of each unit.

    Returns:
        (E, categories of all units).

    Raises:
        ValueError: the shapes do not fit, or a code is beyond its unit's categories.
    """
    _check_rows(len(rows), len(codes))
    one_hot = np.zeros((len(codes), sum(sizes)))
    np.put_along_axis(one_hot, _places(codes, sizes), 1.0, axis=1)
    return reduce_words((rows.astype(np.float64).T @ one_hot).astype(np.uint64))


def add_one_hot(words: Words, codes: AnyCodes, sizes: Sequence[int]) -> None:
    """Add Y to words, in place: with uniform words it makes U of R.

    Args:
        words: (n, categories of all units).
        codes, sizes: as in `of_words_and_codes`.

    Raises:
        ValueError: the shapes do not fit, or a code is beyond its unit's categories.
    """
    if words.shape != (len(codes), sum(sizes)):
        raise ValueError(f"words of shape {words.shape}, expected {(len(codes), sum(sizes))}")
    places = _places(codes, sizes)
    more = np.take_along_axis(words, places, axis=1) + np.uint32(1)
    np.put_along_axis(words, places, np.where(more == P, np.uint32(0), more), axis=1)


def _limbs(words: Words) -> Floats:
    """(n, E) -> (n, 2 E): of each word the lower 16 bits, then the upper."""
    return np.ascontiguousarray(words, "<u4").view("<u2").astype(np.float64)


def _places(codes: AnyCodes, sizes: Sequence[int]) -> Ints:
    """(n, units): the column of Y that each code stands for."""
    if codes.ndim != 2 or codes.shape[1] != len(sizes):
        raise ValueError(f"codes of shape {codes.shape} for {len(sizes)} units, expected one column for each")
    for unit, size in enumerate(sizes):
        if beyond := int(np.count_nonzero(codes[:, unit] >= size)):
            raise ValueError(f"unit {unit}: {beyond} codes are beyond its {size} categories, expected none")
    return codes + (np.cumsum(sizes, dtype=np.int64) - sizes)


def _check_rows(first: int, second: int) -> None:
    if first != second or first > MAX_ROWS:
        raise ValueError(f"blocks of {first} and {second} rows, expected equal numbers, at most {MAX_ROWS}")
