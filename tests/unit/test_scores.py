"""Scores of pairs: against scikit-learn and scipy, closed forms, and the limits of the formulas."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from verticil.miner.learning.scoring.counting import PairTables, all_pair_tables
from verticil.miner.learning.scoring.scores import PairScores, pair_scores
from verticil.shared.mechanisms.transition import Transition, binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation import axes
from verticil.shared.numerics.estimation.independence import independence_p_value
from verticil.shared.numerics.estimation.information import pair_information, plug_in_information
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit


def exact(*n_states: int) -> list[Transition]:
    return [quantize(identity(k)) for k in n_states]


def scores_of(*columns: np.ndarray, channels: list[Transition]) -> PairScores:
    units = [ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(channels)]
    return pair_scores([column.astype(np.uint8) for column in columns], units, [c.n_states for c in channels])


def tables_of(*columns: np.ndarray, n_states: tuple[int, ...]) -> PairTables:
    return all_pair_tables([column.astype(np.uint8) for column in columns], n_states)


@pytest.mark.parametrize("shape", [(2, 2), (3, 7), (16, 15)])
def test_plug_in_information_is_that_of_scikit_learn(shape):
    from sklearn.metrics import mutual_info_score

    counts = np.random.default_rng(shape).poisson(3, shape)
    np.testing.assert_allclose(
        plug_in_information(counts), mutual_info_score(None, None, contingency=counts), rtol=1e-12
    )


def test_plug_in_information_of_odd_tables():
    assert plug_in_information(np.zeros((2, 2))) == 0.0
    assert plug_in_information(np.array([[-5.0, 0.0], [-1.0, -2.0]])) == 0.0
    np.testing.assert_allclose(plug_in_information(np.array([[50.0, -3.0], [0.0, 50.0]])), np.log(2))


def test_without_randomization_the_familiar_bias_is_taken_off():
    counts = np.array([[30, 10, 0], [20, 40, 0]])  # the third category does not occur
    expected = plug_in_information(counts) - 1 / (2 * 100)
    assert pair_information(counts, exact(2, 3), level=1.0) == pytest.approx(expected, rel=1e-12)
    assert pair_information(np.full((2, 3), 50), exact(2, 3), level=2.0) == 0.0


def test_a_rare_category_does_not_remove_the_edges_of_its_column():
    """Its share is uncertain beyond its size; without the floor its part of the bias would exceed any information."""
    generator = np.random.default_rng(4)
    n, k = 30_000, 8
    true = np.where(generator.random(n) < 0.0002, 7, generator.integers(0, 7, n))
    other = np.where(generator.random(n) < 0.3, true, generator.integers(0, k, n))
    transition = quantize(symmetric(k, epsilon=2.0))
    released = [
        (generator.random(n)[:, None] >= np.cumsum(transition.probabilities, 1)[x][:, :-1]).sum(1)
        for x in (true, other)
    ]
    scored = scores_of(*released, channels=[transition] * 2)
    assert scored.significant[0, 1]
    truth = plug_in_information(np.histogram2d(true, other, bins=k)[0])
    assert 0.3 * truth < scored.information[0, 1] < 1.5 * truth


def test_p_value_is_pearsons_where_nothing_is_merged():
    counts = np.array([[120, 90, 70], [60, 100, 130]])
    expected = chi2_contingency(counts, correction=False).pvalue
    np.testing.assert_allclose(independence_p_value(counts), expected, rtol=1e-9)
    assert independence_p_value(counts.T) == pytest.approx(expected, rel=1e-9)


def test_rare_categories_are_merged_until_no_expected_count_is_below_one():
    counts = np.array([[400, 390], [1, 0], [2, 5], [100, 90], [0, 0]])  # n = 988, sqrt(n) = 31.4
    merged = np.array([[400, 390], [103, 95]])  # 1 + 7 + 0 records are too few, so the next rarest joins them
    np.testing.assert_allclose(
        independence_p_value(counts), chi2_contingency(merged, correction=False).pvalue, rtol=1e-9
    )


@pytest.mark.parametrize("counts", [np.zeros((2, 3), int), np.array([[5, 5], [0, 0]]), np.array([[1, 0], [0, 1]])])
def test_tables_that_cannot_be_tested_are_not_significant(counts):
    assert independence_p_value(counts) > 0.01


def test_pair_scores_of_three_columns():
    generator = np.random.default_rng(0)
    a = generator.integers(0, 3, 5000)
    b = np.where(generator.random(5000) < 0.5, a, generator.integers(0, 3, 5000))
    c = generator.integers(0, 4, 5000)
    tables = tables_of(a, b, c, n_states=(3, 3, 4))
    scored = scores_of(a, b, c, channels=exact(3, 3, 4))
    assert scored.level == pytest.approx(0.05 / 3)
    assert scored.significant.tolist() == [[False, True, False], [True, False, False], [False] * 3]
    expected = plug_in_information(tables.table(0, 1)) - 2 * 2 / (2 * 5000)
    assert scored.information[0, 1] == scored.information[1, 0] == pytest.approx(expected)
    assert np.count_nonzero(scored.information) == 2
    for array in (scored.information, scored.p_value, scored.significant):
        assert not array.flags.writeable


def test_one_variable_has_no_pairs():
    scored = scores_of(np.zeros(9), channels=exact(2))
    assert scored.information.tolist() == [[0.0]]


def test_information_comes_from_the_corrected_table():
    """The expected released counts of a known joint distribution give back its information (no noise, huge n)."""
    joint = np.array([[0.35, 0.05], [0.15, 0.45]])
    transitions = [quantize(binary(0.1, 0.25)), quantize(binary(0.2, 0.3))]
    released = axes.apply_axes(joint, [t.probabilities for t in transitions])
    counts = np.round(released * 1e12).astype(np.int64)
    found = pair_information(counts, transitions, level=0.05)
    np.testing.assert_allclose(found, plug_in_information(joint), rtol=1e-4)
