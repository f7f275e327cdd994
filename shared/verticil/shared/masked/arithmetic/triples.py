"""Tables of three units of three parties i < j < k, of which nobody sees a row; the dealer is checked before anything is masked.

x, y, z are the one-hot rows, r, s, t their masks, of this table alone, and u = x + r, v = y + s, w = z + t what everybody gets.
The dealer has the masks. It gives each party a share of st, rt and rs of every record, and of the sum of rst over records: those
of i and j are streams of their own seeds, k's is what is left. With (x) over cells and sums over records,

    x y z = u v w - u v t - u s w - r v w + u (s t) + v (r t) + w (r s) - (r s t)

so each party computes one product of three by itself and the rest with its shares (`share`): C_i + C_j + C_k is the table.

A wrong product of one record would add a multiple of that record's u, and the dealer knows r. So it deals a second set of masks
r', s', t', which is sacrificed: of a tossed e the parties tell alpha_r = e r - r' and so on (`alpha`), and of coefficients c that
are tossed after that the sums (`sum_sacrifice`) of

    i: c (e^2 <rs>_i - <r's'>_i - r' alpha_s)    j: c (e^2 <rs>_j - <r's'>_j - e alpha_r s)    k: c (e^2 <rs>_k - <r's'>_k)

and likewise for st and rt. As e^2 rs - r's' = e alpha_r s + r' alpha_s, they add up to the sum of c (e^2 E - E'), E and E' what
is wrong with the two sets: 0 with a chance of 2/p + 1/p^2 at most where one is not 0, with two lists of coefficients
(model-three.md section 8, and in which order all this is told; the idea: I. Damgard, V. Pastro, N. Smart, S. Zakarias,
"Multiparty computation from somewhat homomorphic encryption", CRYPTO 2012).

Everything is done block of rows by block of rows; tables and sums of the blocks are added up modulo p. Three things of one kind
stand in the order of the parties, three products in that of `PRODUCTS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.shared.masked.arithmetic.check import total
from verticil.shared.masked.arithmetic.field import P, Words, add, multiply, negate, reduce_words, subtract
from verticil.shared.masked.arithmetic.products import of_words

PRODUCTS: Final = ((1, 2), (0, 2), (0, 1))
"""st, rt, rs: the places of the parties whose masks are multiplied."""

Three = tuple[Words, Words, Words]


def row_width(sizes: Sequence[int]) -> int:
    """Words of a record that are dealt to one party: K_j K_k + K_i K_k + K_i K_j; blocks of rows follow from it, and bytes.

    >>> row_width((2, 3, 4))
    26
    """
    return sum(sizes[one] * sizes[other] for one, other in PRODUCTS)


def products_of(masks: Three) -> Three:
    """st, rt, rs of each record.

    Args:
        masks: r, s, t: (n, K_i), (n, K_j), (n, K_k).

    Returns:
        (n, K_j, K_k), (n, K_i, K_k), (n, K_i, K_j).
    """
    st, rt, rs = (_by_record(masks[one], masks[other]) for one, other in PRODUCTS)
    return st, rt, rs


def table_of(one: Words, other: Words, third: Words) -> Words:
    """Sum one (x) other (x) third over records: of masks it is the sum of rst.

    Args:
        one, other, third: (n, A), (n, B), (n, C), n at most `verticil.shared.masked.arithmetic.products.MAX_ROWS`.

    Returns:
        (A, B, C).
    """
    return of_words(_flat(_by_record(one, other)), third).reshape(one.shape[1], other.shape[1], third.shape[1])


def third_share(whole: Words, first: Words, second: Words) -> Words:
    """Return the third share of something, of any shape."""
    return subtract(whole, add(first, second))


def share(place: int, masked: Three, mask: Words, shares: Three) -> Words:
    """Return a party's part of the table of a block of rows. Its share of the sum of rst is taken off once, from the
    sum of all blocks.

    Args:
        place: 0, 1, 2 for i, j, k.
        masked: u, v, w: (n, K_i), (n, K_j), (n, K_k).
        mask: its own: r, s or t.
        shares: its shares of st, rt, rs, as from `products_of`.

    Returns:
        (K_i, K_j, K_k).
    """
    u, v, w = masked
    factors = list(masked)
    factors[place] = subtract(u, mask) if place == 0 else negate(mask)  # u v w - r v w = (u - r) v w
    table = table_of(*factors)
    st, rt, rs = map(_flat, shares)
    table = add(table, of_words(u, st).reshape(table.shape))
    table = add(table, of_words(v, rt).reshape(v.shape[1], u.shape[1], w.shape[1]).transpose(1, 0, 2))
    return add(table, of_words(rs, w).reshape(table.shape))


def alpha(e: int, mask: Words, second: Words) -> Words:
    """e r - r', of any shape: what the owner of a mask tells the two others.

    Args:
        e: tossed, a word.
        mask, second: r and r'.
    """
    return subtract(_times(e, mask), second)


def sum_sacrifice(
    place: int,
    e: int,
    masks: tuple[Words, Words],
    shares: tuple[Three, Three],
    *,
    alphas: Three,
    coefficients: Three,
) -> list[list[int]]:
    """Return a party's sums of a block of rows: of each product, and of each of its lists of coefficients, one word.

    Args:
        place: 0, 1, 2 for i, j, k.
        e: tossed, a word.
        masks: its own of both sets: r and r', s and s', or t and t'.
        shares: its shares of the products of both sets, as from `products_of`.
        alphas: alpha_r, alpha_s, alpha_t, as they were told; the own one, too.
        coefficients: of each product c, (lists, n, K, K), tossed after the alphas.

    Returns:
        In the order of `PRODUCTS`; the three parties' are 0 modulo p together.
    """
    sums: list[list[int]] = []
    for product, (one, other) in enumerate(PRODUCTS):
        rest = subtract(_times(e * e, shares[0][product]), shares[1][product])
        if place == one:
            rest = subtract(rest, _by_record(masks[1], alphas[other]))
        elif place == other:
            rest = subtract(rest, _by_record(_times(e, alphas[one]), masks[0]))
        sums.append([total(multiply(some, rest)) for some in coefficients[product]])
    return sums


def _by_record(one: Words, other: Words) -> Words:
    """(n, A), (n, B) -> (n, A, B): all products of each record."""
    return reduce_words(one.astype(np.uint64)[:, :, None] * other[:, None, :])


def _flat(products: Words) -> Words:
    """(n, A, B) -> (n, A B)."""
    return products.reshape(len(products), -1)


def _times(number: int, words: Words) -> Words:
    return reduce_words(words * np.uint64(number % P))
