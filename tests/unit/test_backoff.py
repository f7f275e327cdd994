"""What rests on too few people is replaced: by hand, and as invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters, marginal_parameters
from verticil.shared.numerics.estimation.suppression import pooled_rows, pooled_shares

EXACT = [quantize(identity(2)), quantize(identity(4))]


def test_small_cells_are_pooled_with_the_next_smallest():
    shares = np.array([0.03, 0.50, 0.07, 0.40])
    pooled, replaced = pooled_shares(shares, 100 * shares, None, 5, base=np.array([0.2, 0.3, 0.2, 0.3]))
    np.testing.assert_allclose(pooled, [0.05, 0.5, 0.05, 0.4])  # 3 and 7 people, divided evenly as the base does
    assert replaced.tolist() == [True, False, True, False]


def test_cells_that_reach_the_minimum_together_need_no_other():
    shares = np.array([0.04, 0.02, 0.44, 0.5])
    pooled, replaced = pooled_shares(shares, 100 * shares, None, 5)
    np.testing.assert_allclose(pooled, [0.03, 0.03, 0.44, 0.5])
    assert replaced.tolist() == [True, True, False, False]


def test_who_reaches_the_minimum_exactly_is_not_too_few():
    """`minimum_count` people are enough: for a cell, for a pool of one distribution, for a row, and for a pool of a row."""
    marginal = np.array([10.0, 90.0])
    pooled, replaced = pooled_shares(marginal / 100, marginal, None, 10)
    assert (pooled.tolist(), replaced.tolist()) == ([0.1, 0.9], [False, False])
    assert pooled_shares(marginal / 100, marginal, None, 11)[1].tolist() == [True, True]
    counts = np.array([4.0, 6.0, 30.0, 60.0])
    assert pooled_shares(counts / 100, counts, None, 10)[1].tolist() == [True, True, False, False]
    assert pooled_shares(counts / 100, counts, None, 11)[1].tolist() == [True, True, True, False]

    def rows(*counted: list[float], minimum: int) -> tuple[list[list[float]], list[list[bool]]]:
        table = np.array(counted)
        shares = table / table.sum(axis=1, keepdims=True)
        made, replaced, _ = pooled_rows(shares, table, np.array([1.0, 1.0, 2.0]), None, minimum)
        return made.round(12).tolist(), replaced.tolist()

    # The row has exactly ten people, the cells are no less: nothing of it is replaced. With eleven asked for, all is.
    assert rows([0.0, 0.0, 10.0], [40.0, 40.0, 40.0], minimum=10)[1][0] == [True, True, False]
    assert rows([0.0, 0.0, 10.0], [40.0, 40.0, 40.0], minimum=11)[1][0] == [True, True, True]
    # A pool of exactly ten keeps its own probability, also beside one of four; one of nine gets half the minimum's.
    assert rows([4.0, 6.0, 90.0], [1.0, 3.0, 196.0], minimum=10)[0] == [[0.05, 0.05, 0.9], [0.0125, 0.0125, 0.975]]
    assert rows([4.0, 5.0, 91.0], [40.0, 40.0, 40.0], minimum=10)[0][0] == [0.025, 0.025, 0.95]
    # Two pools of five and five are ten together: one rate for both.
    assert (
        rows([2.0, 3.0, 95.0], [1.0, 4.0, 195.0], minimum=10)[0]
        == [[round(10 / 600, 12)] * 2 + [round(1 - 10 / 300, 12)]] * 2
    )


def test_nothing_is_replaced_where_all_are_large():
    shares = np.array([0.3, 0.7])
    pooled, replaced = pooled_shares(shares, 100 * shares, None, 30)
    assert pooled is shares
    assert not replaced.any()


def test_impossible_cells_are_neither_pooled_nor_filled():
    shares = np.array([0.0, 0.02, 0.98])
    pooled, replaced = pooled_shares(shares, 100 * shares, np.array([False, True, True]), 5)
    np.testing.assert_allclose(pooled, [0.0, 0.5, 0.5])
    assert replaced.tolist() == [False, True, True]


def test_a_row_below_the_minimum_gets_the_marginal():
    observed = np.array([[1, 0, 1, 1], [400, 300, 200, 97]])
    family = family_parameters(observed, EXACT, 1, (0,), prior_count=0.0, level=0.95, minimum_count=10)
    np.testing.assert_allclose(family.probability[0], observed.sum(axis=0) / 1000)
    np.testing.assert_allclose(family.probability[1], observed[1] / 997)
    assert family.replaced is not None
    assert family.replaced.tolist() == [[True] * 4, [False] * 4]
    for array in (family.estimate, family.standard_error, family.interval_low, family.interval_high):
        assert np.isnan(array[0]).all()
        assert np.isfinite(array[1]).all()
    assert family.unstable.tolist() == [[True] * 4, [False] * 4]


def test_pools_are_divided_by_the_childs_marginal():
    observed = np.array([[2, 5, 100, 93], [198, 195, 200, 207]])
    family = family_parameters(observed, EXACT, 1, (0,), prior_count=0.0, level=0.95, minimum_count=6)
    # The marginal is even in the first two: 200 and 200. The pool has 2 + 5 of 200 people.
    np.testing.assert_allclose(family.probability[0], [0.0175, 0.0175, 0.5, 0.465])
    assert family.replaced is not None
    assert family.replaced.sum() == 2


def test_a_roots_small_cells_are_divided_evenly():
    # The marginal itself is treated first: otherwise the pool would be divided as it was.
    family = family_parameters(
        np.array([1, 3, 500, 496]), EXACT[1:], 0, (), prior_count=0.0, level=0.95, minimum_count=4
    )
    np.testing.assert_allclose(family.probability, [[0.002, 0.002, 0.5, 0.496]])


def test_a_marginals_small_cells_have_no_estimate():
    share = marginal_parameters(
        np.array([1, 3, 500, 496]), EXACT[1], variable=0, model=np.full(4, 0.25), level=0.95, minimum_count=4
    )
    assert np.isnan(share.estimate).tolist() == [True, True, False, False]
    assert np.isnan(share.interval_high).tolist() == [True, True, False, False]
    np.testing.assert_allclose(share.estimate[2:], [0.5, 0.496])


def test_without_a_minimum_there_is_no_word_of_it():
    family = family_parameters(np.array([[1, 2, 3, 4], [0, 9, 9, 9]]), EXACT, 1, (0,), prior_count=0.5, level=0.95)
    assert family.replaced is None


def test_impossible_cells_of_a_design_stay_empty():
    domain = tuple((a, b) for a in range(2) for b in range(3) if (a, b) != (0, 2))
    unit = ColumnUnit(variables=(0, 1), domain=domain, channel=quantize(identity(5)))
    design = family_design([unit], (2, 3), (0, 1))
    family = family_parameters(
        np.array([2, 1, 40, 50, 60]), design, 1, (0,), prior_count=0.5, level=0.95, minimum_count=20
    )
    assert family.replaced is not None
    assert family.replaced.tolist() == [[True, True, False], [False, False, False]]
    assert family.probability[0, 2] == 0
    assert family.probability[0].sum() == pytest.approx(1)


def test_pools_that_are_too_small_share_one_rate():
    # Pools of 1 and 3 of 100 and 200 people: 4 of 300 together, and the rest keeps its ratios.
    observed = np.array([[1, 49, 50, 0], [3, 97, 100, 0], [50, 50, 50, 50]])
    three = [quantize(identity(3)), quantize(identity(4))]
    family = family_parameters(observed, three, 1, (0,), prior_count=0.0, level=0.95, minimum_count=4)
    assert family.replaced is not None
    assert family.replaced.tolist() == [[True, False, False, True], [True, False, False, True], [False] * 4]
    np.testing.assert_allclose(family.probability[:2, [0, 3]].sum(axis=1), 4 / 300)
    # The child's marginal divides a pool: 54 and 50 people.
    np.testing.assert_allclose(family.probability[:2, 0] / family.probability[:2, 3], 54 / 50)
    np.testing.assert_allclose(family.probability[0, 1] / family.probability[0, 2], 49 / 50)
    # What stays is published so that it does not tell the pool: as shares of the row without it.
    np.testing.assert_allclose(family.estimate[0, 1:3], [49 / 99 * (1 - 4 / 300), 50 / 99 * (1 - 4 / 300)])
    np.testing.assert_allclose(family.estimate[2], 0.25)


def test_a_single_small_cell_tells_only_that_it_is_small():
    families = [
        family_parameters(
            np.array([[small, 600], [200, 200]]),
            [quantize(identity(2)), quantize(identity(2))],
            1,
            (0,),
            prior_count=0.0,
            level=0.95,
            minimum_count=10,
        )
        for small in (0, 4, 9)
    ]
    for family in families:
        # Half the minimum in place of the count, whatever it was; only the row's total shows.
        np.testing.assert_allclose(family.probability[0, 0], 5 / 600, rtol=0.02)
        np.testing.assert_allclose(family.estimate[0, 1], 1 - 5 / 600, rtol=0.001)


@settings(max_examples=60, deadline=None)
@given(
    counts=arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 6)), elements=st.floats(-20, 200)),
    minimum=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_whatever_is_small_is_replaced_and_the_rest_keeps_its_ratios(counts, minimum, seed):
    generator = np.random.default_rng(seed)
    probability = generator.dirichlet(np.ones(counts.shape[1]), counts.shape[0])
    rows, replaced, factor = pooled_rows(probability, counts, probability.mean(axis=0), None, minimum)
    np.testing.assert_allclose(rows.sum(axis=1), 1)
    assert (rows >= 0).all()
    assert (factor > 0).all()
    assert replaced[counts < minimum].all()
    for row in range(len(rows)):
        if counts[row].sum() < minimum:
            assert replaced[row].all()
            continue
        np.testing.assert_array_equal(replaced[row], counts[row] < minimum)
        stays = ~replaced[row]
        if stays.any():
            np.testing.assert_allclose(
                rows[row, stays] * probability[row, stays].sum(), probability[row, stays] * rows[row, stays].sum()
            )
        if counts[row, ~stays].sum() >= minimum:
            np.testing.assert_allclose(rows[row, ~stays].sum(), probability[row, ~stays].sum())


def test_noise_widens_the_intervals_and_never_stops_the_estimate():
    observed = np.array([[30.0, -12.0, 5.0, 80.0], [-3.0, 40.0, -60.0, 20.0]])
    plain = family_parameters(np.abs(observed), EXACT, 1, (0,), prior_count=0.5, level=0.95)
    noisy = family_parameters(observed, EXACT, 1, (0,), prior_count=0.5, level=0.95, noise_variance=400.0)
    assert (noisy.probability > 0).all()
    assert noisy.standard_error[0].min() > plain.standard_error[0].max()
    nothing = family_parameters(-np.abs(observed), EXACT, 1, (0,), prior_count=0.5, level=0.95, noise_variance=400.0)
    np.testing.assert_allclose(nothing.probability, 0.25)
    assert nothing.unstable.all()
    share = marginal_parameters(
        np.array([300.0, -10.0, 500.0, 210.0]),
        EXACT[1],
        variable=0,
        model=np.full(4, 0.25),
        level=0.95,
        noise_variance=400.0,
    )
    # Of a count: sampling N (1 - N / n) and the noise.
    np.testing.assert_allclose(share.standard_error[0], np.sqrt(300 * 0.7 + 400) / 1000, rtol=1e-12)
