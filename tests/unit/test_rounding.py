"""Published probabilities: multiples of 2^-24, exact in single precision."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from verticil.shared.numerics.model import rounding
from verticil.shared.numerics.model.rounding import RESOLUTION, round_rows


def test_rare_categories_stay_possible_and_impossible_ones_impossible():
    row = np.array([[1 - 3e-9, 1e-9, 0.0, 2e-9]])
    np.testing.assert_array_equal(round_rows(row) * RESOLUTION, [[RESOLUTION - 2, 1, 0, 1]])


def test_units_are_taken_where_it_hurts_least():
    """Ten raised categories take ten units; of two equal large ones the lower keeps its place in a tie."""
    row = np.full((1, 12), 1e-10)
    row[0, :2] = (1 - 10e-10) / 2
    units = round_rows(row) * RESOLUTION
    np.testing.assert_array_equal(units[0, 2:], 1)
    assert sorted(units[0, :2]) == [RESOLUTION / 2 - 5, RESOLUTION / 2 - 5]


def test_all_categories_of_the_largest_variable():
    row = np.full((1, 65_536), 1e-12)
    row[0, 7] = 1 - 65_535e-12
    rounded = round_rows(row)
    assert rounded.sum() == 1
    assert (rounded > 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_are_settled_together_are_those_settled_one_by_one(seed):
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet(np.full(12, 10.0 ** generator.uniform(-2, 1)), size=400)
    rows[generator.random(rows.shape) < 0.3] = 0
    rows[:, 3] += 1e-12
    rows = np.maximum(rows, (0, 1e-12, 1e-9)[seed % 3]) if seed < 4 else np.round(rows, 3)
    rows /= rows.sum(axis=1, keepdims=True)
    units = np.floor(rows * RESOLUTION)
    remainder = rows * RESOLUTION - units
    raised = (units == 0) & (rows > 0)
    units[raised], remainder[raised] = 1, remainder[raised] - 1
    for row in range(len(rows)):
        rounding._settle(units[row], remainder[row], int(RESOLUTION - units[row].sum()), positive=rows[row] > 0)
    np.testing.assert_array_equal(round_rows(rows) * RESOLUTION, units)


@pytest.mark.parametrize(
    "rows",
    [[[0.5, 0.4]], [[1.5, -0.5]], [[np.nan, 1.0]], [0.5, 0.5]],
    ids=["sum", "negative", "not finite", "one axis"],
)
def test_what_is_no_table_is_refused(rows):
    with pytest.raises(ValueError, match="probabilities"):
        round_rows(np.array(rows))


def test_examples_in_the_docstrings():
    assert doctest.testmod(rounding).failed == 0
