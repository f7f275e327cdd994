"""The tests of independence of compounds, subsets and noisy counts reject as often as they say.

Null: the two variables are independent and the p-value is uniform. Over 800 draws the number of p-values below .05 is
binomial(800, .05): more than 75 has the probability 2e-7, a fifth of 1e-6 for each of five cases; below .001 more than 10 has
1e-8. What is left in the margins is the error of the chi-square and F approximations. Planted fault: Pearson's test on the same
tables, where it is not valid, is rejected by the same counts.
"""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import binary, quantize, symmetric
from verticil.shared.numerics.estimation.contingency import family_counts
from verticil.shared.numerics.estimation.independence import dependence_p_value, independence_p_value
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design

RUNS, N = 800, 3000
TERNARY = quantize(symmetric(3, epsilon=1.0))
LIMIT = int(binom.isf(2e-7, RUNS, 0.05))
RARE = int(binom.isf(1e-8, RUNS, 0.001))


def single(variable, channel):
    return ColumnUnit(variables=(variable,), domain=None, channel=channel)


def compound(channel):
    return ColumnUnit(variables=(0, 1), domain=tuple(itertools.product(range(2), range(3))), channel=channel)


def companion_channel():
    """How well the second is released depends on the first."""
    rows = np.zeros((6, 6))
    for a, b, a_out, b_out in itertools.product(range(2), range(3), range(2), range(3)):
        sharp = np.array([[0.9, 0.05, 0.05], [0.3, 0.6, 0.1], [0.3, 0.1, 0.6]])
        blunt = 0.2 + 0.4 * np.eye(3)
        rows[3 * a + b, 3 * a_out + b_out] = (0.8 if a == a_out else 0.2) * (blunt if a else sharp)[b, b_out]
    return quantize(rows)


def drawn_sets(channel, states, generator):
    order = generator.random((len(states), channel.n_states))
    order[np.arange(len(states)), states] = np.where(generator.random(len(states)) < channel.keep, -1.0, 2.0)
    return np.sort(np.argsort(order, axis=1)[:, : channel.size], axis=1).astype(np.uint8).ravel()


def rejected(p_values):
    p_values = np.array(p_values)
    return int((p_values < 0.05).sum()) > LIMIT or int((p_values < 0.001).sum()) > RARE


def tables(design, shares, generator):
    for counts in generator.multinomial(N, (shares / shares.sum()).ravel(), size=RUNS):
        yield counts.reshape(design.released_shape)


def test_the_limits_are_what_is_said():
    assert (LIMIT, RARE) == (75, 10)


def test_two_variables_of_one_compound():
    channel = companion_channel()
    design = family_design([compound(channel)], (2, 3), (0, 1))
    truth = np.outer([0.3, 0.7], [0.5, 0.3, 0.2]).ravel()
    observed = list(tables(design, truth @ channel.probabilities, np.random.default_rng(1)))
    assert not rejected([dependence_p_value(table, design) for table in observed])
    assert rejected([independence_p_value(table.reshape(2, 3)) for table in observed])


def test_a_companion_that_depends_on_the_other_side():
    channel = companion_channel()
    units = [compound(channel), single(2, quantize(binary(0.1, 0.2)))]
    design = family_design(units, (2, 3, 2), (1, 2))
    joint = np.einsum("ac,b->abc", [[0.4, 0.1], [0.1, 0.4]], [0.5, 0.3, 0.2]).reshape(6, 2)
    released = channel.probabilities.T @ joint @ units[1].channel.probabilities
    observed = list(tables(design, released, np.random.default_rng(2)))
    assert not rejected([dependence_p_value(table, design) for table in observed])
    assert rejected([independence_p_value(table.reshape(2, 3, 2).sum(axis=0)) for table in observed])


@pytest.mark.whole
@pytest.mark.parametrize("both", [False, True])
def test_subsets(both):
    generator = np.random.default_rng(3)
    sets = subset_selection(8, epsilon=0.8)
    units = [single(0, sets), single(1, sets if both else TERNARY)]
    states = (8, 8 if both else 3)
    design = family_design(units, states, (0, 1))
    shares = generator.dirichlet(np.ones(8))
    p_values = []
    for _ in range(RUNS):
        columns = {0: drawn_sets(sets, generator.choice(8, N, p=shares), generator)}
        if both:
            columns[1] = drawn_sets(sets, generator.integers(0, 8, N), generator)
        else:
            columns[1] = generator.choice(3, N, p=[0.5, 0.3, 0.2]).astype(np.uint8)
        p_values.append(dependence_p_value(family_counts(columns, design), design))
    assert not rejected(p_values)
    assert np.mean(np.array(p_values) < 0.5) > 0.4  # and is not conservative either


def test_noisy_counts():
    generator = np.random.default_rng(4)
    variance = 25.0**2
    design = family_design([single(0, TERNARY), single(1, TERNARY)], (3, 3), (0, 1))
    released = np.outer([0.5, 0.3, 0.2], [0.2, 0.2, 0.6])
    observed = [table + generator.normal(0, 25, (3, 3)) for table in tables(design, released, generator)]
    assert not rejected([dependence_p_value(table, design, noise_variance=variance) for table in observed])
    assert rejected([independence_p_value(table) for table in observed])
