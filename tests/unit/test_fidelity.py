"""Total variation distances against values worked out by hand."""

import numpy as np
import pytest

from verticil.evaluate.measures.fidelity import compare, distances


def columns(*values: list[int]) -> list[np.ndarray]:
    return [np.array(column, dtype=np.uint8) for column in values]


def test_one_way_distances_by_hand() -> None:
    real = columns([0, 0, 0, 1], [0, 1, 1, 1])
    other = columns([0, 0, 1, 1], [0, 1, 1, 1])
    found = distances(real, other, (2, 2), ways=1)
    assert found.mean == pytest.approx(0.125)  # .25 for the first, 0 for the second
    assert found.worst == pytest.approx(0.25)
    assert found.worst_table == (0,)


def test_two_way_distance_by_hand() -> None:
    real = columns([0, 0, 1, 1], [0, 0, 1, 1])
    crossed = columns([0, 0, 1, 1], [0, 1, 0, 1])
    assert distances(real, crossed, (2, 2), ways=2).worst == pytest.approx(0.5)
    assert distances(real, crossed, (2, 2), ways=1).worst == pytest.approx(0.0)


def test_other_may_have_another_length() -> None:
    real = columns([0, 1])
    assert distances(real, columns([0, 1, 0, 1, 0, 1]), (2,), ways=1).worst == pytest.approx(0.0)


def test_compare_puts_the_floor_and_the_margins_beside_it() -> None:
    generator = np.random.default_rng(5)
    a = generator.integers(0, 3, 4000)
    real = columns(list(a), list((a + (generator.random(4000) < 0.2)) % 3), list(generator.integers(0, 2, 4000)))
    same = compare(real, real, (3, 3, 2), generator=np.random.default_rng(1))
    assert [found.mean for found in same.synthetic] == [0.0, 0.0, 0.0]
    assert 0 < same.bootstrap[1].mean < same.independent[1].mean
    assert same.independent[0].worst == pytest.approx(0.0)
    assert same.independent[1].worst_table == (0, 1)
    assert [found.n_tables for found in same.bootstrap] == [3, 3, 1]
