"""Designs against brute force on a small joint: every true combination, every released one, the whole inverse, dense.

Four variables a (2), b (3), c (2) and d (2), randomized in the ways of the paper's cases (a) to (d).
"""

import itertools
import math

import numpy as np
import pytest

from verticil.experiments.accuracy import family_covariance_blocks
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation.contingency import family_counts
from verticil.shared.numerics.estimation.estimators import ESTIMATORS, em_projection
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters, marginal_parameters

N_STATES = (2, 3, 2, 2)
A, B, C, D = range(4)


def channel(n_states, seed):
    """Nothing regular: any error of order or orientation shows."""
    generator = np.random.default_rng(seed)
    return quantize(0.7 * np.eye(n_states) + 0.3 * generator.dirichlet(np.ones(n_states), n_states))


def single(variable, seed=None):
    k = N_STATES[variable]
    return ColumnUnit(
        variables=(variable,), domain=None, channel=quantize(identity(k)) if seed is None else channel(k, seed)
    )


def compound(*variables, seed=None, impossible=(), of=None):
    domain = tuple(c for c in itertools.product(*(range(N_STATES[v]) for v in variables)) if c not in impossible)
    return ColumnUnit(variables=variables, domain=domain, channel=channel(len(domain), seed) if of is None else of)


def product_channel(*parts):
    """Independent draws written as one: the marginal channel of each part depends on nothing else."""
    matrix = np.ones((1, 1))
    for part in parts:
        matrix = np.kron(matrix, part)
    return quantize(matrix)


LUMPABLE = product_channel(binary(0.125, 0.25), symmetric(3, keep=0.75))  # of (a, b)
CASES = {
    "a: all independent": ([single(A, 1), single(B, 2), single(C), single(D, 3)], (A, B, C, D)),
    "a: the child is not the last unit": ([single(A, 1), single(B, 2), single(C, 4), single(D, 3)], (B, C, A)),
    "b: parents in one compound": ([compound(A, C, seed=5), single(B, 2), single(D, 3)], (A, B, C, D)),
    "c: child and parent in one compound": ([compound(B, D, seed=6), single(A, 1), single(C, 4)], (A, B, C, D)),
    "c: the child stands first in it": ([compound(A, B, C, seed=7), single(D, 3)], (B, C, D, A)),
    "c: everything in one compound": ([compound(A, B, C, D, seed=8)], (A, B, C, D)),
    "d: a parent's companion is outside": ([compound(B, D, seed=6), single(A, 1), single(C, 4)], (A, B, C)),
    "d: the child's companion is outside": ([compound(B, D, seed=6), single(A, 1), single(C, 4)], (A, C, D)),
    "d: one inside as parent, one outside": ([compound(A, B, C, seed=7), single(D, 3)], (A, D, C)),
    "d: marginal channel, parent": ([compound(A, B, of=LUMPABLE), single(C, 4), single(D, 3)], (B, C, D)),
    "d: marginal channel, child": ([compound(A, B, of=LUMPABLE), single(C, 4), single(D, 3)], (C, D, B)),
    "impossible combinations": (
        [compound(A, B, seed=9, impossible=((0, 2), (1, 0))), single(C, 4), single(D, 3)], (A, C, B)),
    "impossible ones outside too": (
        [compound(A, B, D, seed=10, impossible=((0, 2, 0), (0, 2, 1), (1, 0, 0))), single(C, 4)], (A, C, B)),
    "an exact compound": (
        [compound(A, B, of=quantize(identity(5)), impossible=((1, 1),)), single(C, 4), single(D, 3)], (B, D, A)),
}  # fmt: skip
every_case = pytest.mark.parametrize(("units", "axes"), CASES.values(), ids=CASES.keys())


def true_counts(units, seed=0, largest=90):
    """Of all four variables; impossible combinations do not occur."""
    counts = np.random.default_rng(seed).integers(1, largest, N_STATES).astype(float)
    for record in itertools.product(*map(range, N_STATES)):
        for unit in units:
            if unit.domain is not None and tuple(record[v] for v in unit.variables) not in unit.domain:
                counts[record] = 0
    return counts


def state_of(unit, record):
    combination = tuple(record[v] for v in unit.variables)
    return combination[0] if unit.domain is None else unit.domain.index(combination)


def released_tables(units, counts):
    """Expected counts of all units' released codes, by enumeration: no axis, no order but that of the units."""
    shape = tuple(unit.channel.n_states for unit in units)
    released = np.zeros(shape)
    for record in itertools.product(*map(range, N_STATES)):
        rows = [unit.channel.probabilities[state_of(unit, record)] for unit in units] if counts[record] else None
        if rows is not None:
            for codes in itertools.product(*map(range, shape)):
                released[codes] += counts[record] * math.prod(row[code] for row, code in zip(rows, codes, strict=True))
    return released


def observed_of(design, units, released):
    """The design's table from that of all units: others summed out, codes counted as the design's entries."""
    table = np.zeros(design.released_shape)
    for codes in itertools.product(*map(range, released.shape)):
        cell = tuple(codes[axis.unit] if axis.merged is None else axis.merged[codes[axis.unit]] for axis in design.axes)
        table[cell] += released[codes]
    return table


def weights_by_brute_force(units, axes):
    """(codes of all units, cells of the family): what a released record adds, from the dense inverses of whole units."""
    states = [tuple(range(unit.channel.n_states)) for unit in units]
    shape = tuple(N_STATES[v] for v in axes)
    weights = np.zeros((*map(len, states), *shape))
    for combination in itertools.product(*states):
        values = {}
        for unit, state in zip(units, combination, strict=True):
            codes = (state,) if unit.domain is None else unit.domain[state]
            values.update(zip(unit.variables, codes, strict=True))
        weight = np.ones(())
        for unit, state in zip(units, combination, strict=True):
            weight = np.multiply.outer(weight, np.linalg.inv(unit.channel.probabilities)[:, state])
        weights[(..., *(values[v] for v in axes))] += weight
    return weights.reshape(-1, math.prod(shape))


@every_case
def test_expected_releases_give_the_true_counts(units, axes):
    counts = true_counts(units)
    design = family_design(units, N_STATES, axes)
    observed = observed_of(design, units, released_tables(units, counts))
    expected = np.einsum(counts, range(4), axes)
    np.testing.assert_allclose(design.estimate(observed), expected, rtol=1e-9, atol=1e-9)
    assert observed.shape == design.released_shape
    assert design.shape == expected.shape


@every_case
def test_variances_and_covariances_are_those_of_single_records(units, axes):
    counts = true_counts(units, seed=1)
    design = family_design(units, N_STATES, axes)
    released = np.round(released_tables(units, counts))
    observed = observed_of(design, units, released)
    n, shape = released.sum(), design.shape
    z = weights_by_brute_force(units, axes)
    estimate = released.ravel() @ z
    total = z.T @ (released.ravel()[:, None] * z) - np.outer(estimate, estimate) / n
    pram = z.T @ (released.ravel()[:, None] * z) - np.diag(estimate)
    scale = {"rtol": 1e-8, "atol": 1e-8 * n}
    np.testing.assert_allclose(design.estimate(observed).ravel(), estimate, **scale)
    np.testing.assert_allclose(as_design(design).variance_total(observed).ravel(), total.diagonal(), **scale)
    np.testing.assert_allclose(
        as_design(design).variance_pram(observed).ravel(), np.maximum(pram.diagonal(), 0), **scale
    )
    k = shape[-1]
    for sampling, dense in ((True, total), (False, pram)):
        blocks = family_covariance_blocks(observed, design, sampling=sampling)
        for j, block in enumerate(blocks):
            np.testing.assert_allclose(block, dense[j * k : j * k + k, j * k : j * k + k], **scale)


@every_case
@pytest.mark.parametrize("noise_variance", [0.0, 30.0])
def test_standard_errors_are_the_delta_method_record_by_record(units, axes, noise_variance):
    # Var(theta_jk) = sum over records (Z_jk - theta_jk Z_j)^2 / N_j^2; noise on a cell weighs like as many more records.
    counts = true_counts(units, seed=2, largest=900)
    design = family_design(units, N_STATES, axes)
    released = np.round(released_tables(units, counts))
    observed = observed_of(design, units, released)
    family = family_parameters(
        observed, design, axes[-1], axes[:-1], prior_count=0.5, level=0.95, noise_variance=noise_variance
    )
    k = design.shape[-1]
    z = weights_by_brute_force(units, axes).reshape(released.size, -1, k)
    entries = np.zeros(released.shape, dtype=int)
    for codes in itertools.product(*map(range, released.shape)):
        cell = tuple(codes[a.unit] if a.merged is None else a.merged[codes[a.unit]] for a in design.axes)
        entries[codes] = np.ravel_multi_index(cell, design.released_shape)
    first = np.unique(entries.ravel(), return_index=True)[1]  # records of one entry have one weight
    records = observed.ravel() + noise_variance
    weight = z[first]
    of_row = weight.sum(axis=2)
    estimate = np.einsum("y,yjk->jk", observed.ravel(), weight)
    rows = estimate.sum(axis=1)
    for j in np.flatnonzero(rows > 1):
        theta = estimate[j] / rows[j]
        np.testing.assert_allclose(family.estimate[j], theta, rtol=1e-9, atol=1e-9)
        variance = (records[:, None] * (weight[:, j] - theta * of_row[:, j, None]) ** 2).sum(axis=0) / rows[j] ** 2
        np.testing.assert_allclose(family.standard_error[j], np.sqrt(variance), rtol=1e-6, atol=1e-7)
        deviation = math.sqrt(
            max(records @ of_row[:, j] ** 2 - rows[j] ** 2 / observed.sum(), 0.0) if len(axes) > 1 else 0.0
        )
        if len(axes) > 1:
            assert family.unstable[j].all() == (rows[j] < 3 * deviation)


def test_the_marginal_channel_is_used_only_where_it_exists():
    units = CASES["d: marginal channel, parent"][0]
    assert family_design(units, N_STATES, (B, C, D)).released_shape == (3, 2, 2)
    assert family_design(units, N_STATES, (A, B, D)).released_shape == (6, 2)
    irregular = CASES["d: a parent's companion is outside"][0]
    assert family_design(irregular, N_STATES, (A, B, C)).released_shape == (2, 6, 2)


def test_the_marginal_channel_gives_the_same_as_the_whole_domain():
    units, axes = CASES["d: marginal channel, child"]
    counts = true_counts(units)
    released = np.round(released_tables(units, counts))
    design = family_design(units, N_STATES, axes)
    z = weights_by_brute_force(units, axes)
    observed = observed_of(design, units, released)
    np.testing.assert_allclose(design.estimate(observed).ravel(), released.ravel() @ z, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(design.second_moment(observed).ravel(), released.ravel() @ z**2, rtol=1e-9, atol=1e-8)


def test_a_symmetric_compound_has_marginal_channels_whatever_the_rounding_of_its_weights():
    # Quantizing gives some off-diagonal weights one unit of 2^-64 more than others.
    unit = compound(A, B, of=quantize(symmetric(6, epsilon=1.2)))
    assert len(set(unit.channel.weights[0])) > 2
    assert family_design([unit, single(C, 4), single(D, 3)], N_STATES, (B, C)).released_shape == (3, 2)


def test_the_naive_marginal_of_case_d_is_wrong_and_ours_is_right():
    # b is released well where d = 0 and badly where d = 1. The paper's marginal matrix has to average over d; with an even
    # average, and d not independent of b, its estimate is far off.
    rows = np.zeros((6, 6))
    for b, d in itertools.product(range(3), range(2)):
        keep = 0.9 if d == 0 else 0.45
        for b_out, d_out in itertools.product(range(3), range(2)):
            rows[2 * b + d, 2 * b_out + d_out] = (keep if b_out == b else (1 - keep) / 2) * (0.8 if d_out == d else 0.2)
    unit = compound(B, D, of=quantize(rows))
    units = [unit, single(A), single(C)]
    counts = np.zeros(N_STATES)
    counts[0, :, 0, :] = [[900, 100], [300, 300], [50, 1350]]
    released = released_tables(units, counts)
    design = family_design(units, N_STATES, (B,))
    np.testing.assert_allclose(design.estimate(released.sum(axis=(1, 2))), [1000, 600, 1400], rtol=1e-9)

    inside = np.array([b for b, _ in unit.domain])
    select = np.eye(3)[inside]
    naive = (select.T / 2) @ unit.channel.probabilities @ select  # the marginal matrix, d taken as even
    wrong = select.T @ released.sum(axis=(1, 2)) @ np.linalg.inv(naive)
    assert np.abs(wrong - [1000, 600, 1400]).max() > 150


@every_case
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_on_every_design(units, axes, name):
    counts = true_counts(units, seed=3, largest=500) + 100
    for record in np.argwhere(true_counts(units) == 0):
        counts[tuple(record)] = 0
    design = family_design(units, N_STATES, axes)
    expected = np.einsum(counts, range(4), axes)
    observed = observed_of(design, units, released_tables(units, counts))
    # Expected releases: all are the inverse inside the simplex.
    if name == "em":
        fitted = em_projection(observed, design, iterations=20_000, tolerance=1e-13)
    else:
        fitted = ESTIMATORS[name].estimate(observed, design)
    np.testing.assert_allclose(fitted, expected, rtol=1e-4, atol=1e-6 * expected.sum())
    # Few records: a distribution, impossible cells empty, the sum kept, with and without a prior.
    few = np.random.default_rng(4).multinomial(40, observed.ravel() / observed.sum()).reshape(observed.shape)
    impossible = expected == 0
    for prior_count in (0.0, 0.5):
        answer = ESTIMATORS[name].estimate(few, design, prior_count=prior_count)
        assert answer.shape == design.shape
        assert answer.sum() == pytest.approx(40, rel=1e-9)
        assert (answer[impossible] == 0).all()
        if name != "inverse":
            assert answer.min() >= 0
            if prior_count:
                assert answer[~impossible].min() > 0
    if name == "em":
        mode = em_projection(few, design, prior_count=0.5)
        assert (mode[impossible] == 0).all()
        assert mode.sum() == pytest.approx(40, rel=1e-9)


def test_structural_zeros_stay_zero_in_the_family():
    units, axes = CASES["impossible combinations"]
    design = family_design(units, N_STATES, axes)
    observed = np.random.default_rng(5).integers(0, 9, design.released_shape)
    family = family_parameters(observed, design, B, (A, C), prior_count=0.5, level=0.95)
    probability = family.probability.reshape(2, 2, 3)
    assert (probability[0, :, 2] == 0).all()
    assert (probability[1, :, 0] == 0).all()
    assert np.count_nonzero(probability == 0) == 4
    # Without records and prior a configuration gets the child's marginal, but never an impossible category.
    empty = np.zeros(design.released_shape)
    empty[0] = 10  # all have c = 0, up to the randomization of c
    rows = family_parameters(
        empty, family_design([units[0], single(C), units[2]], N_STATES, axes), B, (A, C), prior_count=0.0, level=0.95
    ).probability.reshape(2, 2, 3)
    assert (rows[0, :, 2] == 0).all()
    assert (rows[1, :, 0] == 0).all()
    np.testing.assert_allclose(rows.sum(axis=-1), 1)


def test_a_design_of_single_columns_is_their_channels():
    units, axes = CASES["a: all independent"]
    design, channels = family_design(units, N_STATES, axes), [units[v].channel for v in axes]
    observed = np.random.default_rng(6).integers(0, 50, N_STATES)
    np.testing.assert_array_equal(design.estimate(observed), as_design(channels).estimate(observed))
    np.testing.assert_array_equal(
        as_design(design).variance_total(observed), as_design(channels).variance_total(observed)
    )
    assert as_design(design) is design
    one = marginal_parameters(
        observed.sum(axis=(0, 2, 3)), units[B].channel, variable=B, model=np.ones(3) / 3, level=0.9
    )
    other = marginal_parameters(
        observed.sum(axis=(0, 2, 3)), family_design(units, N_STATES, (B,)), variable=B, model=np.ones(3) / 3, level=0.9
    )
    np.testing.assert_array_equal(one.standard_error, other.standard_error)


def test_counting_merges_released_codes():
    units, axes = CASES["d: marginal channel, child"]
    generator = np.random.default_rng(7)
    columns = {i: generator.integers(0, unit.channel.n_states, 500).astype(np.uint8) for i, unit in enumerate(units)}
    design = family_design(units, N_STATES, axes)
    whole = np.zeros(tuple(unit.channel.n_states for unit in units))
    np.add.at(whole, tuple(columns[i] for i in range(len(units))), 1)
    np.testing.assert_array_equal(family_counts(columns, design), observed_of(design, units, whole))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: family_design([single(A, 1)], N_STATES, (A, B)), "not in exactly one unit"),
        (lambda: family_design([single(A, 1), single(A, 1)], N_STATES, (A,)), "not in exactly one unit"),
        (lambda: family_design([single(A, 1)], N_STATES, (A, A)), "not all different"),
        (lambda: family_design([single(A, 1)], N_STATES, ()), "not all different"),
        (lambda: family_design([single(A, 1)], (5, 3, 2, 2), (A,)), "a channel of 2 categories for a variable of 5"),
        (lambda: family_design([compound(A, B, seed=1)], (2, 2, 2, 2), (A, B)), "a code that is not below 2"),
        (lambda: ColumnUnit(variables=(A, B), domain=None, channel=channel(6, 1)), "needs its domain"),
        (lambda: ColumnUnit(variables=(A, B), domain=((0, 0),), channel=channel(6, 1)), "domain of 1 combinations"),
        (lambda: family_design([single(A, 1)], N_STATES, (A,)).estimate(np.ones(3)), "has shape"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_subset_always_has_a_marginal_channel():
    unit = compound(A, B, D, of=subset_selection(12, epsilon=1.0))
    design = family_design([unit, single(C, 4)], N_STATES, (B, C))
    assert design.released_shape == (3, 2)
