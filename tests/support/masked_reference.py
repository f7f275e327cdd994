"""Tables over two parties made plainly: whole numbers of Python, one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

P = 2**32 - 5

Matrix = Sequence[Sequence[int]]


def product(left: Matrix, right: Matrix) -> list[list[int]]:
    """left^T right modulo p; both have a row for each person."""
    pairs = list(zip(left, right, strict=True))
    return [[sum(a[i] * b[j] for a, b in pairs) % P for j in range(len(right[0]))] for i in range(len(left[0]))]


def one_hot(codes: Matrix, sizes: Sequence[int]) -> list[list[int]]:
    """A row for each person, a column for each category of each unit."""
    return [
        [int(code == category) for code, size in zip(row, sizes, strict=True) for category in range(size)]
        for row in codes
    ]


def combined(words: Matrix, coefficients: Matrix, sizes: Sequence[int], p: int = P) -> list[list[list[int]]]:
    """For each list of coefficients, row and unit: the sum over the unit's columns of word times coefficient."""
    starts = [sum(sizes[:unit]) for unit in range(len(sizes))]
    return [
        [
            [
                sum(row[k] * some[k] for k in range(start, start + size)) % p
                for start, size in zip(starts, sizes, strict=True)
            ]
            for row in words
        ]
        for some in coefficients
    ]


def verifier_sum(w: Matrix, a: Matrix, b: Matrix, z_star: Matrix, rho: Matrix, p: int = P) -> int:
    """f_j."""
    rows = zip(*(_flat(words) for words in (w, a, b, z_star, rho)), strict=True)
    return sum(o * (v * v + 2 * v * aj + bj - z) for v, aj, bj, z, o in rows) % p


def dealer_sum(w: Matrix, a: Matrix, b: Matrix, z_star: Matrix, rho: Matrix, p: int = P) -> int:
    """f_D."""
    rows = zip(*(_flat(words) for words in (w, a, b, z_star, rho)), strict=True)
    return sum(o * (2 * v * ad + bd - z) for v, ad, bd, z, o in rows) % p


def passing(y: Sequence[int], e: int, p: int) -> float:
    """The share of all r and rho for which one row of one unit passes the check: rho ((sum r y)^2 - sum r^2 y + e) = 0."""
    passed = 0
    for r in itertools.product(range(p), repeat=len(y)):
        h = sum(a * b for a, b in zip(r, y, strict=True)) ** 2 - sum(a * a * b for a, b in zip(r, y, strict=True)) + e
        passed += sum(rho * h % p == 0 for rho in range(p))
    return passed / p ** (len(y) + 1)


def _flat(words: Matrix) -> list[int]:
    return [word for row in words for word in row]


def sacrificed(e: int, errors: Sequence[tuple[int, int]], coefficients: Sequence[int], p: int) -> int:
    """What the sums of the sacrifice add up to: of each cell's E and E' the sum of c (e^2 E - E')."""
    return sum(c * (e * e * one - other) for (one, other), c in zip(errors, coefficients, strict=True)) % p
