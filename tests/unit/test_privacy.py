"""Privacy measures against Ma & Sivakumar's Table 1 (with its one erratum) and the tables of the design."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from verticil.shared.mechanisms.privacy import (
    Breach,
    column_privacy,
    condition_number,
    contrast_factor,
    epsilon,
    gamma,
    half_width_of_share,
    k_measure,
    max_posterior,
    total_epsilon,
)
from verticil.shared.mechanisms.transition import Transition, binary, blocks, identity, quantize, symmetric

TABLE_1 = {
    "A,D": (quantize(binary(0.25, 0.25)), 3.0, 1.0986, 2.000, 2),
    "L,B": (quantize(symmetric(3, flip=0.15)), 14 / 3, 1.5404, 1.818, 3),
    "E,X": (quantize(binary(0.2, 0.2)), 4.0, 1.3863, 1.667, 2),
    # The paper prints 9 = .9/.1, a ratio within a row; its own definition, within a column, is .75/.1.
    "C,F": (quantize(binary(0.1, 0.25)), 7.5, 2.0149, 1.597, 2),
}


@dataclass(frozen=True)
class Unit:
    variables: tuple[str, ...]
    transition: Transition


@pytest.mark.parametrize("row", TABLE_1)
def test_table_1_of_ma_and_sivakumar(row):
    transition, ratio, level, condition, k = TABLE_1[row]
    assert float(gamma(transition)) == pytest.approx(ratio, rel=1e-12)
    assert epsilon(transition) == pytest.approx(level, abs=5e-5)
    assert epsilon(transition) == pytest.approx(math.log(ratio), rel=1e-14)
    assert condition_number(transition) == pytest.approx(condition, abs=5e-4)
    assert k_measure(transition) == k


def test_table_1_total_over_its_eight_randomized_columns():
    total = total_epsilon(2 * [epsilon(row[0]) for row in TABLE_1.values()])
    assert total == pytest.approx(2 * math.log(3 * 14 / 3 * 4 * 7.5), rel=1e-12)
    assert total == pytest.approx(12.080, abs=1e-3)


@pytest.mark.parametrize(
    ("prior", "posterior", "passing"),
    [(0.1, 0.5, {"A,D", "L,B", "E,X", "C,F"}), (0.1, 0.4, {"A,D", "L,B", "E,X"}), (0.3, 0.7, {"A,D", "L,B", "E,X"})],
)
def test_breaches_of_table_1(prior, posterior, passing):
    rule = Breach(prior=prior, posterior=posterior)
    assert {row for row, (transition, *_) in TABLE_1.items() if not rule.possible(gamma(transition))} == passing


def test_gamma_is_a_ratio_of_the_quantized_integers():
    transition = Transition(weights=((2**64 - 3, 3), (7, 2**64 - 7)))
    assert gamma(transition) == Fraction(2**64 - 7, 3)


def test_a_category_that_is_never_released_does_not_count():
    transition = quantize(np.array([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.4, 0.6, 0.0]]))
    assert float(gamma(transition)) == pytest.approx(2)
    assert k_measure(transition) == 3


@pytest.mark.parametrize(
    ("matrix", "k"), [(identity(3), 1), (blocks([(0, 1), (2, 3)], 4, keep=0.7), 2), (binary(0.0, 0.3), 1)]
)
def test_a_released_category_that_excludes_a_true_one_has_infinite_gamma(matrix, k):
    transition = quantize(matrix)
    assert gamma(transition) is None
    assert epsilon(transition) == math.inf
    assert k_measure(transition) == k
    assert Breach(prior=0.1, posterior=0.9).possible(gamma(transition))
    assert total_epsilon([1.0, epsilon(transition)]) == math.inf


@pytest.mark.parametrize("declared", [0.01, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("n_states", [2, 5, 16, 100])
def test_the_declared_epsilon_comes_back(n_states, declared):
    assert epsilon(quantize(symmetric(n_states, epsilon=declared))) == pytest.approx(declared, abs=1e-12)


def test_one_category_says_nothing():
    transition = quantize(identity(1))
    assert (gamma(transition), epsilon(transition), contrast_factor(transition)) == (1, 0.0, 1.0)


def test_posterior_by_bayes_rule():
    # The worst case is attained by binary(.25, .25): belief 15 % in "second", "second" released.
    assert max_posterior(0.15, gamma=3) == pytest.approx(0.15 * 0.75 / (0.15 * 0.75 + 0.85 * 0.25), rel=1e-14)
    # The statement of the design: x2.7 lifts 15 % to 32 %, x9 to 61 %.
    assert round(max_posterior(0.15, epsilon=1.0), 2) == 0.32
    assert round(max_posterior(0.15, gamma=Fraction(9)), 2) == 0.61
    assert max_posterior(0.15, epsilon=1e4) == max_posterior(0.15, gamma=math.inf) == 1.0
    assert max_posterior(0.0, gamma=math.inf) == 0.0


@pytest.mark.parametrize("arguments", [{}, {"gamma": 2, "epsilon": 1}, {"gamma": 0.5}, {"epsilon": -1.0}])
def test_posterior_wants_one_level(arguments):
    with pytest.raises(ValueError, match="gamma"):
        max_posterior(0.2, **arguments)


def test_beliefs_of_a_breach_are_in_order():
    with pytest.raises(ValueError, match="expected 0 < prior < posterior < 1"):
        Breach(prior=0.5, posterior=0.4)


def test_the_measures_of_a_column_together():
    row = column_privacy(Unit(variables=("smoker",), transition=TABLE_1["C,F"][0]))
    assert (row.variables, row.n_states, row.k_measure) == (("smoker",), 2, 2)
    assert (row.gamma, row.kept) == (pytest.approx(7.5), 0.75)
    assert row.max_posterior == pytest.approx(0.15 * 7.5 / (1 + 0.15 * 6.5))
    assert column_privacy(Unit(variables=("x",), transition=quantize(identity(2)))).max_posterior == 1.0


# n = 40,000, two like columns, epsilon 1 to 4
LINKS = {
    2: (1824, 13457, 26850, 34548),
    4: (326, 5721, 18686, 29993),
    8: (39, 1555, 9861, 22929),
    16: (4, 265, 3502, 14069),
}


@pytest.mark.parametrize("n_states", LINKS)
def test_effective_records_of_two_like_columns(n_states):
    like = [quantize(symmetric(n_states, epsilon=level)) for level in (1, 2, 3, 4)]
    assert tuple(round(40_000 * contrast_factor(t) ** 4) for t in like) == LINKS[n_states]


@pytest.mark.parametrize("n_states", [2, 3, 16])
def test_the_contrast_factor_of_a_symmetric_matrix_is_1_over_its_condition_number(n_states):
    transition = quantize(symmetric(n_states, epsilon=1.5))
    closed = (math.exp(1.5) - 1) / (math.exp(1.5) + n_states - 1)
    assert contrast_factor(transition) == pytest.approx(closed, rel=1e-12)
    assert contrast_factor(transition) == pytest.approx(1 / condition_number(transition), rel=1e-12)


def test_the_contrast_factor_of_binary_and_of_blocks():
    assert contrast_factor(quantize(binary(0.1, 0.25))) == pytest.approx(0.65, rel=1e-12)
    assert contrast_factor(quantize(binary(0.9, 0.9))) == pytest.approx(0.8, rel=1e-12)
    # Between the groups nothing is lost; the hardest contrast is within one: 2 keep - 1.
    assert contrast_factor(quantize(blocks([(0, 1), (2, 3)], 4, keep=0.8))) == pytest.approx(0.6, rel=1e-12)


@pytest.mark.parametrize(("n_states", "share"), [(2, None), (5, None), (5, 0.3), (16, 0.01)])
def test_half_width_of_a_share_in_closed_form(n_states, share):
    transition = quantize(symmetric(n_states, epsilon=2))
    pi = 1 / n_states if share is None else share
    p = 1 / (math.exp(2) + n_states - 1)
    a = 1 - n_states * p
    released = p + a * pi
    closed = 1.959963984540054 * math.sqrt(released * (1 - released) / 40_000) / a
    assert half_width_of_share(transition, 40_000, share) == pytest.approx(closed, rel=1e-9)


def test_half_width_without_randomization_is_the_binomial_one():
    closed = 1.959963984540054 * math.sqrt(0.3 * 0.7 / 500)
    assert half_width_of_share(quantize(identity(4)), 500, 0.3) == pytest.approx(closed, rel=1e-12)


def test_half_width_wants_a_record():
    with pytest.raises(ValueError, match="expected n >= 1"):
        half_width_of_share(quantize(identity(2)), 0)
