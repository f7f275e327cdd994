"""The estimators of counts behind one protocol: closed forms, each against the others, and what they leave alone.

Expected numbers are those of the design's section on estimation (worked by hand from the inverse matrices), and for the
projection onto the simplex a slow program of its own: bisection for the amount by which all cells are lowered.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import (
    ESTIMATORS,
    clip,
    clip_projection,
    em_projection,
    inverse_estimate,
    simplex,
    simplex_projection,
)
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.numerics.estimation.parameters import family_parameters

QUARTER = quantize(binary(0.25, 0.25))
FLIP = quantize(binary(0.1, 0.25))
TERNARY = quantize(symmetric(3, flip=0.15))
PROJECTIONS = {name: way.estimate for name, way in ESTIMATORS.items() if name != "inverse"}
every_estimator = pytest.mark.parametrize(
    "estimator", [way.estimate for way in ESTIMATORS.values()], ids=ESTIMATORS.keys()
)
every_projection = pytest.mark.parametrize("estimator", PROJECTIONS.values(), ids=PROJECTIONS.keys())


def test_a_study_may_name_each_of_them_and_no_other():
    assert set(ESTIMATORS) == {"em", "inverse", "clip", "simplex"}


@every_estimator
@pytest.mark.parametrize(
    ("released", "transitions", "true"),
    [
        ([400, 600], [QUARTER], [300, 700]),
        ([64, 36], [FLIP], [60, 40]),
        ([42.5, 31.5, 26], [TERNARY], [50, 30, 20]),
        # [child][parent] = [[30, 10], [20, 40]] of the paper's layout; here the parent is the first axis
        ([[28.75, 21.25], [22.25, 27.75]], [QUARTER, FLIP], [[30, 20], [10, 40]]),
    ],
)
def test_closed_forms_inside_the_simplex(estimator, released, transitions, true):
    np.testing.assert_allclose(estimator(np.array(released), transitions), true, rtol=2e-4)


def test_closed_forms_outside_it():
    observed = np.array([100, 900])
    np.testing.assert_allclose(inverse_estimate(observed, [QUARTER]), [-300, 1300], rtol=1e-12)
    for projection in PROJECTIONS.values():
        np.testing.assert_allclose(projection(observed, [QUARTER]), [0, 1000], atol=1e-3)


def test_clip_rescales_and_simplex_lowers():
    # Unbiased counts: -3, 4, 9 of ten people. Clipped: 10/13 of 4 and 9. Nearest: both lowered by 1.5.
    unbiased = np.array([-3.0, 4.0, 9.0])
    observed = unbiased @ TERNARY.probabilities
    np.testing.assert_allclose(clip_projection(observed, [TERNARY]), [0, 40 / 13, 90 / 13], atol=1e-9)
    np.testing.assert_allclose(simplex_projection(observed, [TERNARY]), [0, 2.5, 7.5], atol=1e-9)


def test_a_prior_adds_its_mass_and_keeps_the_sum():
    observed = np.array([100, 900])
    for projection in (clip_projection, simplex_projection):
        expected = np.array([0.5, 1000.5]) * 1000 / 1001
        np.testing.assert_allclose(projection(observed, [QUARTER], prior_count=0.5), expected, rtol=1e-9)
    expected = np.array([-299.5, 1300.5]) * 1000 / 1001
    np.testing.assert_allclose(inverse_estimate(observed, [QUARTER], prior_count=0.5), expected, rtol=1e-9)


@every_estimator
def test_what_was_not_randomized_stays(estimator):
    observed = np.array([[3, 0], [10, 7]])
    np.testing.assert_array_equal(estimator(observed, [quantize(identity(2))] * 2), observed)


@every_estimator
def test_no_record_is_refused(estimator):
    with pytest.raises(ValueError, match="no record"):
        estimator(np.zeros(2), [QUARTER])


def test_the_simplex_needs_a_positive_sum():
    with pytest.raises(ValueError, match="sum to -1, expected more than 0"):
        simplex(np.array([-3.0, 2.0]))


tables = arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(2, 4)), elements=st.integers(0, 300)).filter(
    lambda table: table.sum() > 0
)
epsilons = st.floats(0.5, 4.0)


def _channels(table, epsilon):
    return [quantize(identity(k) if k == 1 else symmetric(k, epsilon=epsilon)) for k in table.shape]


@settings(max_examples=25, deadline=None)
@given(table=tables, epsilon=st.floats(1.5, 4.0))
def test_inside_the_simplex_all_are_the_inverse(table, epsilon):
    true = table + 20.0
    channels = _channels(table, epsilon)
    observed = apply_axes(true, [axis.forward for axis in as_design(channels).axes])
    for estimator in (inverse_estimate, clip_projection, simplex_projection):
        np.testing.assert_allclose(estimator(observed, channels), true, rtol=1e-9)
    em = em_projection(observed, channels, iterations=3000, tolerance=1e-12)  # more than the default: to its end
    np.testing.assert_allclose(em, true, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(table=tables, epsilon=epsilons, prior_count=st.sampled_from([0.0, 0.5]))
def test_projected_counts_are_a_distribution(table, epsilon, prior_count):
    for estimator in PROJECTIONS.values():
        counts = estimator(table, _channels(table, epsilon), prior_count=prior_count)
        assert counts.shape == table.shape
        assert (counts >= 0).all()
        assert counts.sum() == pytest.approx(table.sum(), rel=1e-9)


def slow_simplex(counts):
    """The amount by which all cells are lowered, by bisection."""
    total = counts.sum()
    low, high = counts.min() - total, counts.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(counts - middle, 0).sum() > total:
            low = middle
        else:
            high = middle
    return np.maximum(counts - high, 0)


@given(counts=arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e4, 1e4)), lift=st.floats(0.1, 1e4))
def test_the_sorted_projection_is_the_bisected_one(counts, lift):
    counts = counts + max(0.0, (lift - counts.sum()) / counts.size)  # the sum is to be positive
    scale = np.abs(counts).max() + counts.sum()
    found = simplex(counts)
    np.testing.assert_allclose(found, slow_simplex(counts), atol=1e-9 * scale)
    assert found.sum() == pytest.approx(counts.sum(), rel=1e-9, abs=1e-9 * scale)


@settings(max_examples=40, deadline=None)
@given(table=tables, epsilon=epsilons)
def test_nothing_is_nearer_than_the_projection_onto_the_simplex(table, epsilon):
    channels = _channels(table, epsilon)
    unbiased = as_design(channels).estimate(table)

    def distance(counts):
        return float(np.linalg.norm(counts - unbiased))

    nearest = distance(simplex_projection(table, channels))
    assert nearest <= min(distance(clip(unbiased)), distance(em_projection(table, channels))) + 1e-6


@settings(max_examples=25, deadline=None)
@given(table=tables, epsilon=epsilons)
def test_estimates_and_intervals_come_from_the_inverse_with_any_estimator(table, epsilon):
    channels = _channels(table, epsilon)
    families = [
        family_parameters(table, channels, 1, (0,), prior_count=0.5, level=0.95, estimator=estimator)
        for estimator in PROJECTIONS.values()
    ]
    for name in ("estimate", "standard_error", "interval_low", "interval_high", "unstable"):
        for family in families[1:]:
            np.testing.assert_array_equal(getattr(family, name), getattr(families[0], name))
    counts = as_design(channels).estimate(table)
    for family in families:
        np.testing.assert_allclose(family.probability.sum(axis=1), 1, rtol=1e-12)
        assert family.projection is not None
        assert family.projection.negative_cells == (counts < -1e-9 * table.sum()).sum()
        assert family.projection.mass_moved >= -counts[counts < 0].sum() / table.sum() - 1e-9


@every_projection
def test_the_mass_that_was_moved(estimator):
    # Unbiased -300 and 1300 of 1000; to be 0 and 1000, three tenths of the people change their cell.
    family = family_parameters(np.array([100, 900]), [QUARTER], 0, (), prior_count=0.0, level=0.95, estimator=estimator)
    assert family.projection is not None
    assert family.projection.mass_moved == pytest.approx(0.3, abs=1e-6)
    assert family.projection.negative_cells == 1
    np.testing.assert_allclose(family.estimate, [[-0.3, 1.3]], rtol=1e-12)
    np.testing.assert_allclose(family.probability, [[0, 1]], atol=1e-6)


def test_nothing_moves_inside_the_simplex():
    family = family_parameters(
        np.array([400, 600]), [QUARTER], 0, (), prior_count=0.0, level=0.95, estimator=simplex_projection
    )
    assert family.projection is not None
    assert (family.projection.mass_moved, family.projection.negative_cells) == (pytest.approx(0, abs=1e-12), 0)


def test_the_inverse_is_no_model():
    with pytest.raises(ValueError, match="does not sum to 1"):
        family_parameters(
            np.array([[10, 90], [40, 60]]), [quantize(identity(2)), QUARTER], 1, (0,),
            prior_count=0.5, level=0.95, estimator=inverse_estimate,
        )  # fmt: skip
