"""Properties of quantization and of axis-wise estimation, for any table up to 512 cells."""

import itertools
import math
from fractions import Fraction
from functools import reduce

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.experiments.accuracy import family_covariance_blocks
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import SCALE, Transition, identity, quantize
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters

MAX_CELLS = 512


@st.composite
def shapes(draw):
    shape = []
    while len(shape) < 6 and math.prod(shape) * 2 <= MAX_CELLS and (not shape or draw(st.booleans())):
        shape.append(draw(st.integers(2, min(9, MAX_CELLS // math.prod(shape)))))
    return tuple(shape)


@st.composite
def transitions_for(draw, n_states):
    """Row-stochastic with a dominant diagonal, or the identity: condition numbers stay moderate."""
    if draw(st.integers(0, 3)) == 0:
        return quantize(identity(n_states))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    keep = draw(st.floats(0.55, 0.99))
    return quantize(keep * np.eye(n_states) + (1 - keep) * generator.dirichlet(np.ones(n_states), n_states))


@st.composite
def tables(draw):
    shape = draw(shapes())
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    observed = generator.integers(0, draw(st.sampled_from([2, 30, 10_000])), shape)
    observed.flat[0] += 1
    return observed, [draw(transitions_for(k)) for k in shape]


def dense_inverse(transitions):
    return np.linalg.inv(reduce(np.kron, [t.probabilities for t in transitions]))


@given(tables())
@settings(max_examples=60, deadline=None)
def test_axis_by_axis_is_the_dense_kronecker_product(case):
    observed, transitions = case
    inverse = dense_inverse(transitions)
    flat, n = observed.ravel(), observed.sum()
    scale = np.abs(inverse).max() * n
    estimate = flat @ inverse
    np.testing.assert_allclose(as_design(transitions).estimate(observed).ravel(), estimate, rtol=0, atol=1e-10 * scale)
    moment = flat @ inverse**2
    tolerance = 1e-10 * np.abs(inverse).max() * scale
    np.testing.assert_allclose(
        as_design(transitions).variance_total(observed).ravel(),
        np.maximum(moment - estimate**2 / n, 0),
        rtol=0,
        atol=tolerance,
    )
    np.testing.assert_allclose(
        as_design(transitions).variance_pram(observed).ravel(), np.maximum(moment - estimate, 0), rtol=0, atol=tolerance
    )


@given(tables())
@settings(max_examples=40, deadline=None)
def test_covariance_blocks_are_those_of_the_dense_covariance(case):
    observed, transitions = case
    inverse = dense_inverse(transitions)
    estimate = observed.ravel() @ inverse
    dense = inverse.T @ (observed.ravel()[:, None] * inverse) - np.outer(estimate, estimate) / observed.sum()
    k = observed.shape[-1]
    tolerance = 1e-10 * np.abs(inverse).max() ** 2 * observed.sum()
    for j, block in enumerate(family_covariance_blocks(observed, transitions)):
        np.testing.assert_allclose(block, dense[j * k : j * k + k, j * k : j * k + k], rtol=0, atol=tolerance)


@given(tables())
@settings(max_examples=60, deadline=None)
def test_the_sum_is_kept_and_marginals_agree(case):
    observed, transitions = case
    estimate = as_design(transitions).estimate(observed)
    n = observed.sum()
    assert abs(estimate.sum() - n) <= 1e-9 * n
    for axis in range(observed.ndim if observed.ndim > 1 else 0):
        smaller = as_design(transitions[:axis] + transitions[axis + 1 :]).estimate(observed.sum(axis=axis))
        np.testing.assert_allclose(estimate.sum(axis=axis), smaller, rtol=0, atol=1e-9 * n)


@given(tables())
@settings(max_examples=60, deadline=None)
def test_estimates_of_expected_releases_are_the_true_counts(case):
    counts, transitions = case
    released = apply_axes(counts, [t.probabilities for t in transitions])
    np.testing.assert_allclose(as_design(transitions).estimate(released), counts, rtol=0, atol=1e-8 * counts.sum())


@given(tables(), st.sampled_from([0.0, 0.5]))
@settings(max_examples=40, deadline=None)
def test_the_projection_is_a_distribution_of_the_same_size(case, prior_count):
    observed, transitions = case
    projected = em_projection(observed, transitions, iterations=30, prior_count=prior_count)
    assert projected.shape == observed.shape
    assert projected.min() >= (0 if prior_count == 0 else 1e-9)
    assert abs(projected.sum() - observed.sum()) <= 1e-9 * observed.sum()


@given(tables())
@settings(max_examples=40, deadline=None)
def test_the_projection_never_lowers_the_likelihood(case):
    observed, transitions = case
    forward = [t.probabilities for t in transitions]

    def log_likelihood(pi):
        expected = apply_axes(pi, forward)
        return float((observed * np.log(np.where(observed > 0, expected / observed.sum(), 1.0))).sum())

    steps = [log_likelihood(em_projection(observed, transitions, iterations=i)) for i in (1, 2, 5, 20)]
    assert all(later >= earlier - 1e-9 * abs(earlier) for earlier, later in itertools.pairwise(steps))


@given(tables())
@settings(max_examples=40, deadline=None)
def test_a_family_is_always_well_formed(case):
    observed, transitions = case
    family = family_parameters(
        observed, transitions, observed.ndim - 1, range(observed.ndim - 1), prior_count=0.5, level=0.95
    )
    assert (family.probability > 0).all()
    np.testing.assert_array_equal(np.isnan(family.estimate), np.isnan(family.standard_error))
    np.testing.assert_array_equal(np.isnan(family.interval_low), family.unstable)
    stable = ~family.unstable
    assert (family.interval_low[stable] >= 0).all()
    assert (family.interval_low[stable] <= family.interval_high[stable]).all()
    assert (family.interval_high[stable] <= 1).all()
    present = ~np.isnan(family.estimate[:, 0])
    np.testing.assert_allclose(family.estimate[present].sum(axis=1), 1, rtol=0, atol=1e-6)


@st.composite
def designs(draw):
    """A family whose variables are spread over single columns, compounds with some members outside, and subsets."""
    shape = draw(shapes().filter(lambda states: math.prod(states) <= 96))
    n_states = (*shape, 2, 2)  # two variables that may be companions outside the family
    left, units = list(range(len(n_states))), []
    while left:
        size = draw(st.integers(1, min(3, len(left))))
        variables = tuple(draw(st.permutations(left))[:size])
        left = [variable for variable in left if variable not in variables]
        combinations = list(itertools.product(*(range(n_states[v]) for v in variables)))
        if len(combinations) > 48:
            units += [
                ColumnUnit(variables=(v,), domain=None, channel=draw(transitions_for(n_states[v]))) for v in variables
            ]
            continue
        if size > 1 and draw(st.booleans()):
            del combinations[draw(st.integers(0, len(combinations) - 1))]
        if len(combinations) >= 4 and draw(st.integers(0, 3)) == 0:
            channel = subset_selection(len(combinations), epsilon=1.0)
        else:
            channel = draw(transitions_for(len(combinations)))
        units.append(
            ColumnUnit(variables=variables, domain=None if size == 1 else tuple(combinations), channel=channel)
        )
    axes = draw(st.permutations(range(len(shape))))
    return family_design(units, n_states, axes), units, n_states, tuple(axes)


def released_of(design, draw_seed):
    generator = np.random.default_rng(draw_seed)
    return generator.integers(0, 400, design.released_shape).astype(float) + 1


@given(designs(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_designs_keep_the_sum_and_their_marginals_agree(case, seed):
    design, units, n_states, axes = case
    observed = released_of(design, seed)
    estimate = design.estimate(observed)
    n = observed.sum()
    assert estimate.shape == tuple(n_states[v] for v in axes)
    assert abs(estimate.sum() - n) <= 1e-8 * n
    if design.possible is not None:
        assert (estimate[~design.possible] == 0).all()
    # Marginal consistency: the smaller design reads the same released columns, so its table is a sum of this one. Where a unit
    # is read by merged codes in the smaller design only, its table is merged too.
    for gone in range(len(axes) if len(axes) > 1 else 0):
        kept = axes[:gone] + axes[gone + 1 :]
        smaller = family_design(units, n_states, kept)
        table = observed
        for place in reversed(range(len(design.axes))):
            if design.axes[place].unit not in smaller.units:
                table = table.sum(axis=place)
        order = [unit for unit in design.units if unit in smaller.units]
        table = np.moveaxis(table, range(len(order)), [smaller.units.index(unit) for unit in order])
        for place, axis in enumerate(smaller.axes):
            before = next(other for other in design.axes if other.unit == axis.unit)
            if axis.merged is not None:
                classes = (
                    axis.merged
                    if before.merged is None
                    else axis.merged[np.unique(before.merged, return_index=True)[1]]
                )
                merge = np.eye(axis.n_entries)[classes]
                table = np.moveaxis(np.moveaxis(table, place, -1) @ merge, -1, place)
        np.testing.assert_allclose(smaller.estimate(table), estimate.sum(axis=gone), rtol=0, atol=1e-7 * n)


@given(designs(), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_any_design_gives_a_family(case, seed):
    design, _, _, axes = case
    observed = released_of(design, seed)
    family = family_parameters(observed, design, axes[-1], axes[:-1], prior_count=0.5, level=0.95)
    np.testing.assert_allclose(family.probability.sum(axis=1), 1)
    stable = ~family.unstable
    assert (family.standard_error[stable] >= 0).all()
    if design.possible is not None:
        possible = design.possible.reshape(family.probability.shape)
        alive = possible.any(axis=1)
        assert (family.probability[alive][~possible[alive]] == 0).all()


@given(designs(), st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_inside_the_simplex_the_em_of_any_design_is_the_inverse(case, seed):
    design, *_ = case
    generator = np.random.default_rng(seed)
    shape = tuple(axis.n_entries if axis.forward is None else axis.forward.shape[0] for axis in design.axes)
    true = generator.integers(400, 900, shape).astype(float)
    observed = apply_axes(true, [axis.forward for axis in design.axes])
    fitted = em_projection(observed, design, iterations=2000, tolerance=1e-10)
    expected = design.estimate(observed)
    np.testing.assert_allclose(
        design.arrange(apply_axes(true, [axis.spread for axis in design.axes])), expected, rtol=1e-6, atol=1e-6
    )
    # The error shrinks by the square of the smallest singular value in each step: slow where the matrices are nearly singular.
    weakest = math.prod(
        np.linalg.svd(axis.forward, compute_uv=False).min() for axis in design.axes if axis.forward is not None
    )
    if 2000 * weakest**2 > 10:
        assert np.abs(fitted - expected).sum() / expected.sum() < 0.05


@st.composite
def rows(draw):
    k = draw(st.integers(1, 6))
    entries = st.one_of(st.just(0.0), st.floats(1e-300, 1.0), st.floats(1e-3, 1.0))
    row = draw(st.lists(entries, min_size=k, max_size=k).filter(lambda items: sum(items) > 0.01))
    return np.array([row] * k) / math.fsum(row)


@given(rows())
@settings(max_examples=150, deadline=None)
def test_quantization_moves_no_probability_by_a_unit(matrix):
    exact = [Fraction(float(p)) for p in matrix[0]]
    total = sum(exact)
    weights = quantize(matrix).weights[0]
    assert sum(weights) == SCALE
    for weight, p in zip(weights, exact, strict=True):
        assert abs(weight - p / total * SCALE) < 1
        if p == 0:
            assert weight == 0


@st.composite
def raw_transitions(draw):
    """Any weights at all, with zeros and ties."""
    k = draw(st.integers(1, 5))
    cut = st.one_of(st.sampled_from([0, 1, 2**63, SCALE - 1, SCALE]), st.integers(0, SCALE))
    weights = []
    for _ in range(k):
        cuts = [0, *sorted(draw(st.lists(cut, min_size=k - 1, max_size=k - 1))), SCALE]
        weights.append(tuple(high - low for low, high in itertools.pairwise(cuts)))
    return Transition(weights=tuple(weights))


@given(raw_transitions(), st.integers(0, SCALE - 1))
@settings(max_examples=150, deadline=None)
def test_thresholds_are_the_definition(transition, anywhere):
    limits, lead = transition.thresholds()
    for true, row in enumerate(transition.weights):
        edges = [sum(row[: j + 1]) for j in range(len(row) - 1)]
        for u in {anywhere, *(e for e in edges if e < SCALE), *(e - 1 for e in edges if e)}:
            expected = sum(u >= edge for edge in edges)
            assert int(lead[true]) + int((np.uint64(u) > limits[true]).sum()) == expected
