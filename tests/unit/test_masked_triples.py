"""Three-way tables from three shares against counts; a dealer that deals a wrong product, or a party that lies, is caught."""

from __future__ import annotations

import doctest
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from support import masked_reference as plain
from verticil.shared.core.arrays import Ints
from verticil.shared.masked.arithmetic import field, products, streams, triples
from verticil.shared.masked.arithmetic.field import P, Words
from verticil.shared.masked.arithmetic.triples import Three


def test_doctests():
    assert doctest.testmod(triples).failed == 0


def drawn(name: str, *shape: int) -> Words:
    return streams.words(streams.key_of(bytes(32), name), shape)


@dataclass
class Dealt:
    """One set: masks, products, and each party's shares of them."""

    masks: Three
    shares: list[Three]
    of_all: list[Words]

    @classmethod
    def of(cls, n: int, sizes: tuple[int, ...], name: str) -> Dealt:
        r, s, t = (drawn(f"{name} mask {place}", n, size) for place, size in enumerate(sizes))
        whole = triples.products_of((r, s, t))
        first, second = (
            [drawn(f"{name} {place} {product}", *some.shape) for product, some in enumerate(whole)] for place in (0, 1)
        )
        third = [triples.third_share(*some) for some in zip(whole, first, second, strict=True)]
        rst = [drawn(f"{name} rst {place}", *sizes) for place in (0, 1)]
        return cls(
            (r, s, t),
            [tuple(some) for some in (first, second, third)],  # type: ignore[misc]
            [*rst, triples.third_share(triples.table_of(r, s, t), *rst)],
        )


def codes_of(n: int, sizes: tuple[int, ...]) -> list[np.ndarray[Any, np.dtype[np.uint16]]]:
    generator = np.random.default_rng(n)
    common = generator.random(n)
    return [((common + generator.random(n) / 2) % 1 * size).astype(np.uint16)[:, None] for size in sizes]


def masked_rows(dealt: Dealt, sizes: tuple[int, ...], codes: list[Any]) -> Three:
    found = [mask.copy() for mask in dealt.masks]
    for rows, of, size in zip(found, codes, sizes, strict=True):
        products.add_one_hot(rows, of, [size])
    return tuple(found)  # type: ignore[return-value]


def opened(n: int, sizes: tuple[int, ...], dealt: Dealt, codes: list[Any], block: int = 4000) -> Ints:
    """From the three shares, block of rows by block of rows."""
    masked, table = masked_rows(dealt, sizes, codes), np.zeros(sizes, np.uint32)
    for place in range(3):
        for rows in streams.row_blocks(n, block):
            u, v, w = (of[rows] for of in masked)
            st, rt, rs = (of[rows] for of in dealt.shares[place])
            table = field.add(table, triples.share(place, (u, v, w), dealt.masks[place][rows], (st, rt, rs)))
        table = field.subtract(table, dealt.of_all[place])
    return field.signed(table)


def counted(sizes: tuple[int, ...], codes: list[Any]) -> Ints:
    cells = np.ravel_multi_index([of[:, 0].astype(int) for of in codes], sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))).reshape(sizes)


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (1, (2, 2, 2)),
        (500, (2, 3, 4)),
        (500, (4, 2, 3)),
        (700, (64, 2, 5)),
        (300, (2, 5, 64)),
        (10_000, (2, 3, 2)),
        (2000, (3 * 4, 2, 2 * 5)),  # compounds of two columns
    ],
    ids=str,
)
def test_three_shares_are_the_table(n, sizes):
    codes = codes_of(n, sizes)
    assert np.array_equal(opened(n, sizes, Dealt.of(n, sizes, "set 0"), codes), counted(sizes, codes))


def test_products_are_those_of_whole_numbers():
    sizes = (2, 3, 4)
    generator = np.random.default_rng(1)
    masks = [generator.integers(0, P, (5, size), dtype=np.uint32) for size in sizes]
    masks[0][0], masks[1][0], masks[2][0] = P - 1, P - 1, P - 1
    r, s, t = masks
    for found, (one, other) in zip(triples.products_of((r, s, t)), triples.PRODUCTS, strict=True):
        pairs = zip(masks[one].tolist(), masks[other].tolist(), strict=True)
        assert found.tolist() == [[[x * y % P for y in b] for x in a] for a, b in pairs]
    table = triples.table_of(r, s, t)
    for i, j, k in itertools.product(*map(range, sizes)):
        assert table[i, j, k] == sum(int(r[row, i]) * int(s[row, j]) * int(t[row, k]) for row in range(5)) % P


# ---- the dealer is checked


N, SIZES = 60, (2, 3, 4)


def sums(
    first: Dealt, second: Dealt, *, e: int = 123_456_789, alphas: list[Words] | None = None, block: int = 25
) -> list[list[int]]:
    """What the three parties' sums add up to: of each product two words."""
    told = alphas or honest_alphas(first, second, e)
    found = np.zeros((3, 2), np.int64)
    for number, rows in enumerate(streams.row_blocks(N, block)):
        coefficients = [
            drawn(f"c {product} {number}", 2, rows.stop - rows.start, SIZES[one], SIZES[other])
            for product, (one, other) in enumerate(triples.PRODUCTS)
        ]
        for place in range(3):
            found += triples.sum_sacrifice(
                place,
                e,
                (first.masks[place][rows], second.masks[place][rows]),
                tuple(tuple(of[rows] for of in dealt.shares[place]) for dealt in (first, second)),  # type: ignore[arg-type]
                alphas=tuple(of[rows] for of in told),  # type: ignore[arg-type]
                coefficients=tuple(coefficients),  # type: ignore[arg-type]
            )
    return (found % P).tolist()


def honest_alphas(first: Dealt, second: Dealt, e: int) -> list[Words]:
    return [triples.alpha(e, *masks) for masks in zip(first.masks, second.masks, strict=True)]


@pytest.fixture
def sets() -> tuple[Dealt, Dealt]:
    return Dealt.of(N, SIZES, "set 0"), Dealt.of(N, SIZES, "set 1")


@pytest.mark.parametrize("e", [0, 1, 2**16, P - 1, 123_456_789])
def test_what_is_dealt_rightly_passes(sets, e):
    assert sums(*sets, e=e) == sums(*sets, e=e, block=N) == [[0, 0]] * 3


@pytest.mark.parametrize("product", range(3))
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("error", [1, 2**20, P - 1])
def test_a_wrong_product_of_one_record_is_caught(sets, product, which, error):
    """In either set, of either product: with a chance of 2/p + 1/p^2 to be missed."""
    wrong = sets[which].shares[2][product]
    wrong[17, 1, 2] = (int(wrong[17, 1, 2]) + error) % P
    found = sums(*sets)
    assert all(found[product])
    assert all(found[other] == [0, 0] for other in range(3) if other != product)


def test_what_a_wrong_product_would_have_told(sets):
    """E in st of one record adds E u to the table: with E = 2^20 and r known, that record's x is read through any noise."""
    dealt = sets[0]
    codes, wrong = codes_of(N, SIZES), dealt.shares[2][0]
    wrong[17, 1, 2] = (int(wrong[17, 1, 2]) + 2**20) % P
    more = opened(N, SIZES, dealt, codes) - counted(SIZES, codes)
    read = [(int(more[i, 1, 2]) - 2**20 * int(dealt.masks[0][17, i])) % P for i in range(2)]
    assert read == [2**20 * int(codes[0][17, 0] == i) for i in range(2)]
    assert any(sums(*sets)[0])


def test_a_dealer_that_knew_e_would_pass(sets):
    """E' = e^2 E: so e is tossed when all words are there."""
    e = 123_456_789
    for dealt, error in zip(sets, (2**20, e * e * 2**20), strict=True):
        wrong = dealt.shares[2][0]
        wrong[17, 1, 2] = (int(wrong[17, 1, 2]) + error) % P
    assert sums(*sets, e=e) == [[0, 0]] * 3
    assert all(sums(*sets, e=e + 1)[0])


@pytest.mark.parametrize("who", range(3))
def test_a_party_that_tells_another_alpha_is_caught(sets, who):
    """Both products with its mask are off: by a linear combination of the partners' masks, of a record of its choice."""
    alphas = honest_alphas(*sets, 123_456_789)
    alphas[who][3, 1] = (int(alphas[who][3, 1]) + 5) % P
    found = sums(*sets, alphas=alphas)
    assert [any(some) for some in found] == [who in places for places in triples.PRODUCTS]


@pytest.mark.parametrize("p", [5, 7, 11])
def test_at_small_primes_a_wrong_product_passes_as_seldom_as_is_said(p):
    """One cell, all E, E', e and both c: 2/p + (1 - 2/p)/p^2 at worst, below 2/p + 1/p^2; with E = E' = 0 always."""

    def share(one: int, other: int) -> float:
        passed = 0
        for e in range(p):
            zeros = sum(plain.sacrificed(e, [(one, other)], [c], p) == 0 for c in range(p))
            passed += zeros**2
        return passed / p**3

    shares = {errors: share(*errors) for errors in itertools.product(range(p), repeat=2)}
    assert shares.pop((0, 0)) == 1
    assert max(shares.values()) == pytest.approx(2 / p + (1 - 2 / p) / p**2)
