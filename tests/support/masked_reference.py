"""Tables over two parties made plainly: whole numbers of Python, one at a time."""

from __future__ import annotations

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
