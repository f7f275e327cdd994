"""Families, shares and model marginals against closed forms and brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from verticil.experiments.accuracy import family_covariance_blocks
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.estimators import em_projection
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.numerics.estimation.parameters import family_parameters, marginal_parameters
from verticil.shared.numerics.model.elimination import network_marginals
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable

ASYMMETRIC = quantize(np.array([[0.6, 0.3, 0.1], [0.05, 0.9, 0.05], [0.2, 0.2, 0.6]]))
BINARY = quantize(binary(0.1, 0.25))
Z95 = 1.959963984540054


def test_without_randomization_the_errors_are_the_binomial_ones():
    observed = np.array([[30, 70], [160, 40]])
    family = family_parameters(observed, [quantize(identity(2))] * 2, 1, (0,), prior_count=0.5, level=0.95)
    theta = observed / observed.sum(axis=1, keepdims=True)
    error = np.sqrt(theta * (1 - theta) / observed.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(family.estimate, theta, rtol=1e-14)
    np.testing.assert_allclose(family.standard_error, error, rtol=1e-12)
    # Wilson's ends are where a test of the true share just rejects.
    for end in (family.interval_low, family.interval_high):
        of_test = Z95 * np.sqrt(end * (1 - end) / observed.sum(axis=1, keepdims=True))
        np.testing.assert_allclose(np.abs(end - theta), of_test, rtol=1e-9)
    np.testing.assert_allclose(
        family.probability, (observed + 0.5) / (observed.sum(axis=1, keepdims=True) + 1), rtol=1e-14
    )
    assert not family.unstable.any()
    assert (family.child, family.parents) == (1, (0,))


def test_intervals_without_noise_cover_what_they_say_in_small_cells_too():
    """2,000 records and every expected count from 6 to 1,000: the exact coverage, from the binomial distribution, so no chance.

    Wald's intervals cover .63 at an expected count of 1 and .14 at .15. Wilson's do .93 to .97 from 6 on; their mean from 1 on.
    """
    n, exact = 2_000, quantize(identity(2))
    ends = np.empty((n + 1, 2))
    rows = np.empty((n + 1, 2))
    for count in range(n + 1):
        counts = np.array([count, n - count])
        share = marginal_parameters(counts, exact, variable=0, model=counts / n, level=0.95)
        ends[count] = share.interval_low[0], share.interval_high[0]
        table = np.array([counts, [50, 50]])
        family = family_parameters(table, [exact, exact], 1, (0,), prior_count=0.5, level=0.95)
        rows[count] = family.interval_low[0, 0], family.interval_high[0, 0]
    np.testing.assert_allclose(rows, ends, rtol=1e-12)
    assert ends[0, 0] == 0 < ends[0, 1]
    counted = np.arange(n + 1)
    expected = np.concatenate([np.arange(1, 30, 0.05), np.arange(30, 1_000, 5)])
    held = np.array([binom.pmf(counted, n, p)[(ends[:, 0] <= p) & (p <= ends[:, 1])].sum() for p in expected / n])
    assert 0.93 <= held[expected >= 6].min() <= held[expected >= 6].max() <= 0.97
    assert 0.94 <= held[expected < 6].mean() <= 0.96
    assert held.min() > 0.91


def test_standard_errors_are_the_delta_method_on_the_covariance_blocks():
    generator = np.random.default_rng(5)
    transitions = [BINARY, ASYMMETRIC, quantize(symmetric(4, epsilon=2))]
    counts = generator.integers(100, 900, (2, 3, 4)).astype(float)
    observed = np.rint(apply_axes(counts, [t.probabilities for t in transitions]))
    family = family_parameters(observed, transitions, 2, (0, 1), prior_count=0.5, level=0.95)
    estimate = as_design(transitions).estimate(observed).reshape(-1, 4)
    totals = estimate.sum(axis=1)
    np.testing.assert_allclose(family.estimate, estimate / totals[:, None], rtol=1e-12)
    gradient = (np.eye(4) - family.estimate[:, :, None]) / totals[:, None, None]
    blocks = family_covariance_blocks(observed, transitions)
    np.testing.assert_allclose(
        family.standard_error, np.sqrt(np.einsum("jkl,jlm,jkm->jk", gradient, blocks, gradient)), rtol=1e-8
    )


def test_the_worked_example_with_sampling_added():
    # theta = (.6 | .2) at counts 50 | 50: randomization alone has sd .15827 | .16400, sampling adds theta (1 - theta) / 50.
    parent = quantize(binary(0.25, 0.25))
    counts = np.array([[30.0, 20.0], [10.0, 40.0]])
    observed = apply_axes(counts, [parent.probabilities, BINARY.probabilities])
    family = family_parameters(observed, [parent, BINARY], 1, (0,), prior_count=0.5, level=0.95)
    np.testing.assert_allclose(family.estimate[:, 0], [0.6, 0.2], rtol=1e-10)
    expected = np.sqrt([0.15827**2 + 0.6 * 0.4 / 50, 0.16400**2 + 0.2 * 0.8 / 50])
    np.testing.assert_allclose(family.standard_error[:, 0], expected, atol=1e-5)


def test_what_is_sampled_from_is_map_by_the_em_counts():
    observed = np.array([[5, 95, 3], [40, 2, 60]])
    transitions = [BINARY, ASYMMETRIC]
    fitted = em_projection(observed, transitions) + 0.5
    family = family_parameters(observed, transitions, 1, (0,), prior_count=0.5, level=0.95)
    np.testing.assert_allclose(family.probability, fitted / fitted.sum(axis=1, keepdims=True), rtol=1e-12)
    assert (family.probability > 0).all()


def test_a_root_has_one_row():
    family = family_parameters(np.array([64, 36]), [BINARY], 3, (), prior_count=0.5, level=0.95)
    assert family.probability.shape == (1, 2)
    np.testing.assert_allclose(family.estimate, [[0.6, 0.4]], rtol=1e-12)
    np.testing.assert_allclose(family.standard_error, math.sqrt(30.532544 + 24) / 100, rtol=1e-7)
    assert not family.unstable.any()


def test_a_parent_configuration_without_records_has_no_estimate():
    observed = np.array([[0, 0], [30, 70]])
    family = family_parameters(observed, [quantize(identity(2)), BINARY], 1, (0,), prior_count=0.0, level=0.95)
    for array in (family.estimate, family.standard_error, family.interval_low, family.interval_high):
        assert np.isnan(array[0]).all()
        assert np.isfinite(array[1]).all()
    assert family.unstable.tolist() == [[True, True], [False, False]]
    # Backs off to the child's marginal, which is here the other row.
    np.testing.assert_allclose(family.probability[0], family.probability[1], rtol=1e-9)


def test_a_negative_parent_count_is_never_divided_by():
    observed = np.array([[3, 2], [45, 50]])  # the parent's estimate is (5 - 25) / .5 < 0
    family = family_parameters(observed, [quantize(binary(0.25, 0.25)), BINARY], 1, (0,), prior_count=0.5, level=0.95)
    assert np.isnan(family.estimate[0]).all()
    assert family.unstable[0].all()
    assert family.probability.min() > 0


def test_below_three_standard_deviations_there_is_no_interval():
    # Not randomized: sd of a count N is sqrt(N (1 - N / n)), so N = 8 is unstable and N = 10 is not.
    observed = np.array([[4, 4], [5, 5], [5000, 5000]])
    family = family_parameters(
        observed, [quantize(identity(3)), quantize(identity(2))], 1, (0,), prior_count=0.5, level=0.95
    )
    assert family.unstable[:, 0].tolist() == [True, False, False]
    np.testing.assert_allclose(family.estimate, 0.5)
    assert np.isnan(family.interval_low[0]).all()
    assert np.isfinite(family.standard_error).all()


def test_intervals_are_cut_last():
    observed = np.array([2, 98])
    share = marginal_parameters(observed, BINARY, variable=0, model=np.array([0.5, 0.5]), level=0.9)
    estimate = (np.array([0.02, 0.98]) - [0.25, 0.1]) / 0.65
    np.testing.assert_allclose(share.estimate, estimate, rtol=1e-12)  # below 0 and above 1, as it came out
    assert share.interval_low.tolist() == [0.0, 1.0]
    assert share.interval_high[0] == pytest.approx(max(0.0, estimate[0] + 1.6448536269514722 * share.standard_error[0]))
    assert share.interval_high[1] == 1.0
    assert share.variable == 0


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match="family of variable 4: 2 axes and 1 transitions, expected 1 for its 0 parents"
    ):
        family_parameters(np.ones((2, 2)), [BINARY], 4, (), prior_count=0.5, level=0.95)


def random_network(seed, n_states, parents):
    generator = np.random.default_rng(seed)
    families = []
    for child, family in enumerate(parents):
        rows = math.prod(n_states[p] for p in family)
        table = generator.dirichlet(np.ones(n_states[child]), rows)
        families.append(
            Family(
                child=child,
                parents=family,
                probability=table,
                estimate=table,
                standard_error=table,
                interval_low=table,
                interval_high=table,
                unstable=np.zeros(table.shape, dtype=bool),
            )
        )
    variables = tuple(
        Variable(name=f"v{i}", owner="a", labels=tuple(f"c{s}" for s in range(k))) for i, k in enumerate(n_states)
    )
    return Network(schema=Schema(variables=variables), dag=Dag(parents=parents), families=tuple(families))


@pytest.mark.parametrize("seed", range(3))
def test_model_marginals_are_those_of_the_joint_distribution(seed):
    n_states = (2, 3, 2, 4, 3, 2)
    network = random_network(seed, n_states, ((), (2, 5), (), (0, 1), (1, 3), ()))
    shares = [np.zeros(k) for k in n_states]
    for record in itertools.product(*map(range, n_states)):
        mass = 1.0
        for child, family in enumerate(network.families):
            row = 0
            for p in family.parents:
                row = row * n_states[p] + record[p]
            mass *= family.probability[row, record[child]]
        for variable, state in enumerate(record):
            shares[variable][state] += mass
    for ours, expected in zip(network_marginals(network), shares, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_a_long_chain_is_cheap():
    network = random_network(9, (4,) * 60, ((), *((i,) for i in range(59))))
    share = network.families[0].probability[0]
    for family in network.families[1:]:
        share = share @ family.probability
    np.testing.assert_allclose(network_marginals(network)[-1], share, rtol=1e-12)


def test_a_table_too_large_is_refused():
    # A bipartite tangle: 24 binary parents that stay connected through their 276 pairwise children.
    pairs = tuple(itertools.combinations(range(24), 2))
    parents = (*(() for _ in range(24)), *pairs)
    chained = list(parents)
    for position in range(25, len(parents)):
        chained[position] = (*parents[position], position - 1)
    network = random_network(3, (2,) * len(parents), tuple(chained))
    with pytest.raises(ValueError, match=r"needs a table of .* cells, expected at most 2000000"):
        network_marginals(network)
