"""Subset selection, by enumeration of all sets: unbiased, and with the variances that are said of it."""

import itertools

import numpy as np
import pytest

from verticil.shared.mechanisms.subset import Subset, best_size, subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation import contingency
from verticil.shared.numerics.estimation.contingency import family_counts, family_table
from verticil.shared.numerics.estimation.estimators import ESTIMATORS
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters

SMALL = subset_selection(6, epsilon=0.9, size=2)  # smaller than a study may declare: the sets can be listed
LARGER = subset_selection(6, epsilon=0.7, size=3)
both = pytest.mark.parametrize("channel", [SMALL, LARGER, subset_selection(5, epsilon=1.0, size=1)])


def sets_of(channel: Subset):
    return np.array(list(itertools.combinations(range(channel.n_states), channel.size)))


def chances(channel: Subset):
    """(K, sets): every set with the true category alike, every set without it alike."""
    sets = sets_of(channel)
    holds = (sets[:, :, None] == np.arange(channel.n_states)).any(axis=1).T
    with_it = holds.sum(axis=1)[:, None]
    return np.where(holds, channel.keep / with_it, (1 - channel.keep) / (len(sets) - with_it))


def shares(channel: Subset):
    """(sets, K): 1/w of a record for each member."""
    return (sets_of(channel)[:, :, None] == np.arange(channel.n_states)).any(axis=1) / channel.size


@both
def test_the_chances_are_a_distribution_with_gamma_between_its_sets(channel):
    matrix = chances(channel)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose((matrix.max(axis=0) / matrix.min(axis=0)).max(), float(channel.gamma), rtol=1e-12)


@both
def test_single_entries_are_unbiased(channel):
    np.testing.assert_allclose(chances(channel) @ shares(channel), channel.probabilities, rtol=1e-12)
    z = shares(channel) @ channel.inverse
    np.testing.assert_allclose(chances(channel) @ z, np.eye(channel.n_states), atol=1e-12)
    np.testing.assert_allclose(z.sum(axis=1), 1, rtol=1e-12)


@both
def test_squares_are_exact_for_every_single_set(channel):
    z = shares(channel) @ channel.inverse
    np.testing.assert_allclose(shares(channel) @ channel.inverse_square, z**2, rtol=1e-9, atol=1e-12)


@both
def test_products_of_sums_are_exact_in_expectation(channel):
    generator = np.random.default_rng(1)
    first, second = generator.normal(size=(2, channel.n_states, 7))
    z = shares(channel) @ channel.inverse
    expected = chances(channel) @ ((z @ first) * (z @ second))
    found = channel.probabilities @ channel.products(first, second)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    matrix = quantize(symmetric(4, epsilon=1.0))
    first, second = first[:4], second[:4]
    np.testing.assert_array_equal(matrix.products(first, second), (matrix.inverse @ first) * (matrix.inverse @ second))


@both
def test_joint_shares(channel):
    true = np.random.default_rng(2).dirichlet(np.ones(channel.n_states))
    u = shares(channel)
    np.testing.assert_allclose(channel.joint_shares(true), u.T @ ((true @ chances(channel))[:, None] * u), atol=1e-14)


@both
def test_variances_of_counts(channel):
    counts = np.array([500.0, 20, 0, 300, 80, 100][: channel.n_states])
    z = shares(channel) @ channel.inverse
    # Records are independent: sum over them of the variance of what each adds.
    exact = counts @ (chances(channel) @ z**2) - counts
    expected = counts @ channel.probabilities
    np.testing.assert_allclose(as_design([channel]).estimate(expected), counts, atol=1e-9)
    np.testing.assert_allclose(as_design([channel]).variance_pram(expected), exact, rtol=1e-9)
    sampling = counts - counts**2 / counts.sum()
    np.testing.assert_allclose(as_design([channel]).variance_total(expected), exact + sampling, rtol=1e-9)


@pytest.mark.parametrize(
    ("n_states", "epsilon", "size", "variance"),
    [(4, 0.5, 2, 9.31), (4, 1.0, 1, 1.60), (8, 0.5, None, 11.8), (8, 1.0, None, 2.57), (16, 0.5, None, 13.7),
     (16, 1.0, None, 3.11), (64, 1.0, None, 3.54), (64, 2.0, None, 0.67)],
)  # fmt: skip
def test_the_designs_table_of_variances(n_states, epsilon, size, variance):
    # randomization.md 1.1, column SS: variance times n of a rare category's share, q (1 - q) / (p - q)^2.
    channel = subset_selection(n_states, epsilon=epsilon, size=size)
    observed = channel.probabilities[0] * 1e6  # all records in category 0: the others are as rare as can be
    np.testing.assert_allclose(as_design([channel]).variance_total(observed)[1] / 1e6, variance, rtol=6e-3)


def test_the_table_is_the_best_of_both_roundings():
    assert best_size(4, 0.5) == 1  # 8.67, less than the 9.31 of two


SUBSET_COMPOUND = ColumnUnit(
    variables=(0, 1),
    domain=tuple(itertools.product(range(2), range(3))),
    channel=subset_selection(6, epsilon=0.9, size=2),
)
N_STATES = (2, 3, 4)


@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (0, 1, 2), (2, 0, 1), (0, 1), (1, 0)])
def test_second_moments_of_a_compound_are_exact_in_expectation(axes):
    """Members outside the family, and child and parent in one subset: against every set of every true record."""
    other = ColumnUnit(variables=(2,), domain=None, channel=quantize(symmetric(4, epsilon=1.5)))
    design = family_design([SUBSET_COMPOUND, other], N_STATES, axes)
    counts = np.random.default_rng(3).integers(200, 900, N_STATES).astype(float)
    channel = SUBSET_COMPOUND.channel
    z_compound = (shares(channel) @ channel.inverse).reshape(-1, 2, 3)
    moment = np.zeros(design.shape)
    ratio = np.zeros(design.shape)
    expected = np.einsum(counts, range(3), axes)
    theta = expected / expected.sum(axis=-1, keepdims=True)
    observed = np.zeros(design.released_shape)
    for record in itertools.product(*map(range, N_STATES)):
        chance_sets = chances(channel)[3 * record[0] + record[1]]
        for (number, one), (code, two) in itertools.product(
            enumerate(chance_sets), enumerate(other.channel.probabilities[record[2]])
        ):
            weight = np.multiply.outer(z_compound[number], other.channel.inverse[code])
            z = np.einsum(weight, range(3), axes)
            mass = counts[record] * one * two
            moment += mass * z**2
            ratio += mass * (z - theta * z.sum(axis=-1, keepdims=True)) ** 2
            for member in sets_of(channel)[number]:
                place = [
                    code if axis.unit == 1 else member if axis.merged is None else axis.merged[member]
                    for axis in design.axes
                ]
                observed[tuple(place)] += mass / channel.size
    np.testing.assert_allclose(design.estimate(observed), expected, rtol=1e-9)
    np.testing.assert_allclose(design.second_moment(observed), moment, rtol=1e-9)
    family = family_parameters(observed, design, axes[-1], axes[:-1], prior_count=0.5, level=0.95)
    error = np.sqrt(ratio) / expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(family.standard_error, error.reshape(family.estimate.shape), rtol=1e-8)
    for estimator in [way.estimate for way in ESTIMATORS.values()]:
        fitted = estimator(observed, design, prior_count=0.5)
        assert fitted.shape == expected.shape
        assert fitted.sum() == pytest.approx(expected.sum(), rel=1e-9)


def released_columns(n: int):
    """Columns of two subsets and one matrix, drawn anyhow."""
    generator = np.random.default_rng(4)
    wide = subset_selection(12, epsilon=1.0)
    units = [
        ColumnUnit(variables=(0,), domain=None, channel=wide),
        ColumnUnit(variables=(1,), domain=None, channel=quantize(symmetric(3, epsilon=1.0))),
        ColumnUnit(variables=(2,), domain=None, channel=SMALL),
    ]
    columns = {}
    for index, unit in enumerate(units):
        size = unit.channel.codes_per_record
        drawn = [np.sort(generator.choice(unit.channel.n_states, size, replace=False)) for _ in range(n)]
        columns[index] = np.concatenate(drawn).astype(np.uint8)
    return units, columns


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0), (1, 0), (0,)])
@pytest.mark.parametrize("n", [1, 300, 5000])
def test_counting_sets_by_hand(axes, n):
    units, columns = released_columns(n)
    states = (12, 3, 6)
    design = family_design(units, states, axes)
    table = family_counts(columns, design)
    expected = np.zeros([states[v] for v in axes])
    grouped = [columns[v].reshape(n, -1) for v in axes]
    for record in range(n):
        members = list(itertools.product(*(codes[record] for codes in grouped)))
        for cell in members:
            expected[cell] += 1 / len(members)
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    assert table.sum() == pytest.approx(n, rel=1e-12)


def test_both_ways_of_counting_sets_agree(monkeypatch):
    units, columns = released_columns(9000)
    design = family_design(units, (12, 3, 6), (0, 1, 2))
    answers = []
    for cost in (0.0, 1e9):
        monkeypatch.setattr(contingency, "_PRODUCT_COST", cost)
        answers.append(family_counts(columns, design))
    np.testing.assert_array_equal(*answers)


def test_columns_that_do_not_fit_are_refused():
    units, columns = released_columns(10)
    design = family_design(units, (12, 3, 6), (0, 1, 2))
    for broken, message in (
        (columns | {0: columns[0][:-1]}, "unit 0: .* codes, expected 3 for each record"),
        (columns | {1: columns[1][:-1]}, "expected as many in each"),
        (columns | {2: columns[2] + np.uint8(3)}, "unit 2: code out of range, expected below 6"),
    ):
        with pytest.raises(ValueError, match=message):
            family_counts(broken, design)


def test_a_family_of_subsets_record_by_record():
    """Estimate and variances against the weights of every released record."""
    units, columns = released_columns(400)
    design = family_design(units, (12, 3, 6), (0, 1, 2))
    observed = family_counts(columns, design)
    weights = []
    for index, unit in enumerate(units):
        indicator = np.eye(unit.channel.n_states)[columns[index].reshape(400, -1)].mean(axis=1)
        weights.append(indicator @ unit.channel.inverse)
    z = np.einsum("ra,rb,rc->rabc", *weights)
    np.testing.assert_allclose(design.estimate(observed), z.sum(axis=0), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(design.second_moment(observed), (z**2).sum(axis=0), rtol=1e-9)
    family = family_parameters(observed, design, 2, (0, 1), prior_count=0.5, level=0.95)
    rows = z.sum(axis=0).sum(axis=-1)
    for a, b in np.argwhere(rows > 1):
        theta = z[:, a, b].sum(axis=0) / rows[a, b]
        variance = ((z[:, a, b] - theta * z[:, a, b].sum(axis=-1, keepdims=True)) ** 2).sum(axis=0) / rows[a, b] ** 2
        np.testing.assert_allclose(family.standard_error[3 * a + b], np.sqrt(variance), rtol=1e-7)


def test_tables_of_plain_columns_are_whole_numbers():
    columns = {0: np.array([0, 1, 1], np.uint8), 1: np.array([2, 0, 0], np.uint8)}
    units = [
        ColumnUnit(variables=(v,), domain=None, channel=quantize(symmetric(k, epsilon=1))) for v, k in ((0, 2), (1, 3))
    ]
    table = family_counts(columns, family_design(units, (2, 3), (0, 1)))
    np.testing.assert_array_equal(table, family_table([columns[0], columns[1]], (2, 3)))
