"""The constrained EM: worked values, and optimality by the Karush-Kuhn-Tucker conditions (no other optimizer is trusted)."""

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import clip, em_projection, marginal_estimate
from verticil.shared.numerics.estimation.inverse_estimation import as_design

QUARTER = quantize(binary(0.25, 0.25))
ASYMMETRIC = quantize(np.array([[0.6, 0.3, 0.1], [0.05, 0.9, 0.05], [0.2, 0.2, 0.6]]))


def test_inside_the_simplex_the_em_is_the_inverse():
    np.testing.assert_allclose(em_projection(np.array([400, 600]), [QUARTER]), [300, 700], atol=1e-3)


def test_outside_it_ends_on_the_boundary():
    assert as_design([QUARTER]).estimate(np.array([100, 900])) == pytest.approx([-300, 1300], rel=1e-12)
    np.testing.assert_allclose(em_projection(np.array([100, 900]), [QUARTER]), [0, 1000], atol=1e-3)


def likelihood_gradient(pi, observed, transitions):
    """d/d pi of the log likelihood per record: sum_y P[x, y] f_y / (P^T pi)_y; its mean under pi is 1."""
    forward = [t.probabilities for t in transitions]
    expected = apply_axes(pi, forward)
    return apply_axes(observed / observed.sum() / expected, [matrix.T for matrix in forward])


@pytest.mark.parametrize("seed", range(4))
def test_the_em_ends_at_the_most_likely_distribution(seed):
    generator = np.random.default_rng(seed)
    transitions = [ASYMMETRIC, QUARTER]
    observed = generator.integers(0, 60, (3, 2)) + 1
    pi = em_projection(observed, transitions, iterations=200_000, tolerance=1e-15) / observed.sum()
    gradient = likelihood_gradient(pi, observed, transitions)
    # KKT for a concave function on the simplex: 1 where pi > 0, at most 1 elsewhere.
    assert gradient.max() < 1 + 1e-5
    np.testing.assert_allclose(gradient[pi > 1e-4], 1, atol=1e-5)


def test_the_map_em_ends_at_the_posterior_mode():
    transitions = [ASYMMETRIC, QUARTER]
    observed = np.array([[1, 40], [3, 3], [30, 2]])
    n = observed.sum()
    pi = em_projection(observed, transitions, iterations=100_000, tolerance=1e-15, prior_count=0.5) / n
    # Dirichlet(1.5) prior: n gradient + .5 / pi is the same in every cell, n + .5 cells.
    stationary = n * likelihood_gradient(pi, observed, transitions) + 0.5 / pi
    np.testing.assert_allclose(stationary, n + 0.5 * pi.size, rtol=1e-6)


def test_an_unrandomized_table_stays_as_it_is():
    observed = np.array([[3, 0], [10, 7]])
    transitions = [quantize(identity(2))] * 2
    np.testing.assert_array_equal(em_projection(observed, transitions), observed)
    np.testing.assert_allclose(
        em_projection(observed, transitions, prior_count=0.5), (observed + 0.5) * 20 / 22, rtol=1e-14
    )


def test_an_unrandomized_axis_keeps_its_marginal():
    observed = np.array([[30, 0], [10, 70], [0, 0]])
    projected = em_projection(observed, [quantize(identity(3)), QUARTER])
    np.testing.assert_allclose(projected.sum(axis=1), observed.sum(axis=1), rtol=1e-12)
    assert (projected[2] == 0).all()


def test_a_category_that_the_start_clips_can_return():
    # P^-1 has entries of both signs off the diagonal: the clipped one-way estimate is (1, 0, 0), the optimum is not.
    transition = quantize(np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]))
    observed = np.array([80, 15, 5])
    assert clip(as_design([transition]).estimate(observed))[2] == 0
    projected = em_projection(observed, [transition], iterations=100_000, tolerance=1e-15)
    gradient = likelihood_gradient(projected / 100, observed, [transition])
    assert gradient.max() < 1 + 1e-5
    assert projected.sum() == pytest.approx(100)


def test_clip():
    np.testing.assert_allclose(clip(np.array([-30.0, 130.0])), [0, 100])
    np.testing.assert_allclose(clip(np.array([[1.0, 3.0]])), [[1, 3]])
    np.testing.assert_allclose(clip(np.array([-1.0, -1.0])), [0, 0])
    np.testing.assert_allclose(clip(np.array([0.0, 0.0, 0.0, 0.0])), 0)


def test_one_way_shares():
    # Released (64, 36) of 100; Cov_pram 30.532544, and 60 * 40 / 100 for sampling.
    share, error = marginal_estimate(np.array([64, 36]), quantize(binary(0.1, 0.25)))
    np.testing.assert_allclose(share, [0.6, 0.4], rtol=1e-12)
    np.testing.assert_allclose(error, np.sqrt(30.532544 + 24) / 100, rtol=1e-7)


def test_no_record_is_refused():
    for work in (lambda: em_projection(np.zeros(2), [QUARTER]), lambda: marginal_estimate(np.zeros(2), QUARTER)):
        with pytest.raises(ValueError, match="no record"):
            work()
    with pytest.raises(ValueError, match="1 transitions for a table of 2 axes"):
        em_projection(np.ones((2, 2)), [QUARTER])


def test_map_em_beats_clipping_where_noise_is_strong():
    # The design's simulation of Ma & Sivakumar's node E at n = 20,000 and epsilon .5 for every column has a mean conditional
    # KL of 1.70 clipped and .044 by MAP-EM. 60 runs give the latter to about 7 % (one standard error).
    generator = np.random.default_rng(20)
    share_t, share_l = np.array([0.34, 0.66]), np.array([0.5, 0.275, 0.225])
    theta = np.array([[0.25, 0.80], [0.15, 0.50], [0.30, 0.40]])  # P(E=0 | L, T), L slow
    family = (share_l[:, None] * share_t)[:, :, None] * np.stack([theta, 1 - theta], axis=-1)
    transitions = [quantize(symmetric(k, epsilon=0.5)) for k in family.shape]
    released = apply_axes(family, [t.probabilities for t in transitions])
    losses = {"clip": [], "map": []}
    for _ in range(60):
        observed = generator.multinomial(20_000, released.ravel()).reshape(family.shape)
        answers = {
            "clip": clip(as_design(transitions).estimate(observed)),
            "map": em_projection(observed, transitions, prior_count=0.5),
        }
        for name, answer in answers.items():
            fitted = np.maximum(answer, 1e-6)
            fitted = np.maximum(fitted / fitted.sum(axis=-1, keepdims=True), 1e-6)
            truth = family / family.sum(axis=-1, keepdims=True)
            losses[name].append(float((family * np.log(truth / fitted)).sum()))
    means = {name: float(np.mean(values)) for name, values in losses.items()}
    assert means["map"] == pytest.approx(0.044, rel=0.35)
    assert means["clip"] > 10 * means["map"]


def test_noise_on_released_counts_is_multiplied_as_the_inverse_multiplies_it():
    transition = quantize(binary(0.1, 0.25))
    observed = np.array([640.0, 360.0])
    _, plain = marginal_estimate(observed, transition)
    _, noisy = marginal_estimate(observed, transition, noise_variance=50.0)
    gain = (transition.inverse**2).sum(axis=0)
    np.testing.assert_allclose((1000 * noisy) ** 2 - (1000 * plain) ** 2, 50 * gain)
    assert gain.min() > 1.2
