"""Numbers inside bins that keep an order, against their exact conditional law. Fixed seeds; each test: false-alarm rate 1e-6."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from support.knowing import binned, order, ordered_schema
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.synthesis.ordered_numbers import ordered_numbers
from verticil.shared.synthesis.synthesis import decode

N = 60_000
FALSE_ALARM = 1e-6
EDGES = {"a": (0, 6, 12), "b": (4, 9, 20), "c": (2, 8, 30)}


def whole_numbers(codes: tuple[int, ...], strict: bool) -> list[np.ndarray]:
    """a <= b <= c in these bins, by the code under test."""
    schema = ordered_schema(*(binned(name, edges) for name, edges in EDGES.items()))
    orders = (order("a", "b", strict=strict), order("b", "c", strict=strict))
    columns = [np.full(N, code, dtype=np.uint8) for code in codes]
    found = ordered_numbers(schema, orders, columns, np.random.default_rng(11))
    return [found[name][0] for name in EDGES]


def possible(codes: tuple[int, ...], strict: bool) -> list[tuple[int, ...]]:
    """By counting: every combination of numbers in the bins that keeps both orders."""
    ranges = [range(edges[code], edges[code + 1]) for edges, code in zip(EDGES.values(), codes, strict=True)]
    return [
        numbers
        for numbers in itertools.product(*ranges)
        if all(one < other if strict else one <= other for one, other in itertools.pairwise(numbers))
    ]


def rejects(numbers: list[np.ndarray], cells: list[tuple[int, ...]]) -> bool:
    """Null: every possible combination is equally probable. Chi-square over all of them."""
    drawn, counts = np.unique(np.stack(numbers, axis=1), axis=0, return_counts=True)
    place = {cell: position for position, cell in enumerate(cells)}
    found = np.zeros(len(cells))
    for row, count in zip(drawn.tolist(), counts.tolist(), strict=True):
        if tuple(row) not in place:
            return True
        found[place[tuple(row)]] = count
    expected = N / len(cells)
    return bool(chi2.sf(((found - expected) ** 2 / expected).sum(), len(cells) - 1) < FALSE_ALARM)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("codes", [(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 0, 1)])
def test_whole_numbers_are_uniform_over_all_that_keep_the_orders(codes: tuple[int, ...], strict: bool) -> None:
    assert not rejects(whole_numbers(codes, strict), possible(codes, strict))


def test_sorted_numbers_and_numbers_pushed_to_the_bound_are_noticed() -> None:
    """Planted: draw without the orders, then sort each record's numbers where they are in its bins; or raise the upper one."""
    codes, generator = (0, 0, 0), np.random.default_rng(12)
    free = [generator.integers(edges[0], edges[1], N) for edges in EDGES.values()]
    ordered = [np.sort(np.stack(free), axis=0)[place] for place in range(3)]
    inside = [np.clip(column, edges[0], edges[1] - 1) for column, edges in zip(ordered, EDGES.values(), strict=True)]
    pushed = [free[0], np.maximum(free[0], free[1])]
    pushed.append(np.maximum(pushed[1], free[2]))
    for planted in (inside, pushed):
        assert rejects(planted, possible(codes, strict=False))


def test_real_numbers_follow_their_conditional_distribution() -> None:
    """a in [0, 2), b in [1, 3), a <= b: P(a <= x) = (2 x - max(0, x - 1)^2 / 2) / 3.5, for b by symmetry. Kolmogorov-Smirnov."""
    schema = ordered_schema(binned("a", (0, 2), "?", integer=False), binned("b", (1, 3), "?", integer=False))
    codes = [np.zeros(N, dtype=np.uint8)] * 2
    found = ordered_numbers(schema, (order("a", "b"),), codes, np.random.default_rng(13))
    a, b = found["a"][0], found["b"][0]
    assert (a <= b).all()

    def law(x: np.ndarray) -> np.ndarray:
        return (2 * x - np.maximum(0, x - 1) ** 2 / 2) / 3.5

    spread = np.random.default_rng(14).random((2, N)) * 10.0 ** -found["a"][1]  # the steps
    assert kstest(a + spread[0], law).pvalue > FALSE_ALARM
    assert kstest(3 - b - spread[1] + 10.0 ** -found["b"][1], law).pvalue > FALSE_ALARM
    free = np.random.default_rng(15).random((2, N)) * 2 + np.array([[0], [1]])
    planted = np.sort(free, axis=0)[0]
    assert kstest(planted, law).pvalue < FALSE_ALARM


def test_where_a_number_is_missing_nothing_is_said() -> None:
    """b is missing in every second record: there a and c are free, also of each other."""
    schema = ordered_schema(*(binned(name, edges, "?") for name, edges in EDGES.items()))
    knowledge = Knowledge(orders=(order("a", "b"), order("b", "c")))
    missing = np.arange(N) % 2 == 0
    codes = [np.full(N, 1), np.where(missing, 2, 1), np.where(missing, 0, 1)]
    table = decode(
        schema, [column.astype(np.uint8) for column in codes], np.random.default_rng(16), knowledge=knowledge
    )
    there = table[~missing]
    assert ((there["a"] <= there["b"]) & (there["b"] <= there["c"])).all()
    assert table["b"][missing].isna().all()
    for name, low in (("a", 6), ("c", 2)):
        counts = np.bincount(table[name][missing].to_numpy(dtype=np.int64) - low, minlength=6)
        assert chi2.sf(((counts - N / 12) ** 2 / (N / 12)).sum(), 5) > FALSE_ALARM / 2
    assert (table["a"][missing] > table["c"][missing]).any()
