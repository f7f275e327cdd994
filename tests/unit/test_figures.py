"""The door to privacy figures: each is the accountant's, or the exact formula's."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import peer_session
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.privacy import figures
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import RandomizedColumn
from verticil.shared.study.reading import read_study

MATRICES = [
    quantize(symmetric(4, epsilon=2.0)),
    quantize(binary(0.1, 0.25)),
    quantize(np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])),
    quantize(identity(3)),
]


@pytest.mark.parametrize("matrix", MATRICES)
def test_a_column_costs_the_logarithm_of_its_worst_ratio(matrix):
    ratio = figures.column_gamma(matrix)
    assert ratio == privacy.gamma(matrix)
    expected = math.inf if ratio is None else math.log(ratio)
    assert figures.column_epsilon(matrix) == pytest.approx(expected, rel=1e-12)
    assert figures.column_event(matrix) == RandomizedColumn(epsilon=figures.column_epsilon(matrix))


@pytest.mark.parametrize("matrix", MATRICES)
def test_the_worst_category_has_the_column_s_ratio(matrix):
    ratios = [figures.gamma_of_category(category, matrix.weights) for category in range(matrix.n_states)]
    if None in ratios:
        assert figures.column_gamma(matrix) is None
    else:
        assert max(ratios) == figures.column_gamma(matrix)


def test_a_category_that_is_never_reported_so_is_no_part_of_another_s_ratio():
    assert figures.gamma_of_category(0, ((2, 0), (1, 1))) == 2
    assert figures.gamma_of_category(1, ((2, 0), (1, 1))) is None


@given(st.integers(1, 99), st.fractions(1, 10**6))
def test_a_belief_grows_by_the_odds(percent, gamma):
    prior = Fraction(percent, 100)
    after = figures.belief(prior, gamma)
    assert after / (1 - after) == gamma * prior / (1 - prior)
    assert figures.posterior(float(prior), epsilon=math.log(gamma)) == pytest.approx(float(after), rel=1e-9)


def test_of_an_infinite_epsilon_nothing_is_left_to_believe():
    assert figures.posterior(0.15, epsilon=math.inf) == 1.0
    assert figures.gamma_of_epsilon(math.inf) is None
    assert figures.gamma_of_epsilon(800.0) == figures.gamma_of_epsilon(690.0)
    assert figures.gamma_of_epsilon(2.0) == Fraction(math.exp(2.0))
    assert figures.odds(math.inf) is None
    assert figures.odds(699.0) == math.exp(699.0)
    assert figures.odds_exceed(math.inf, 100)
    assert figures.odds_exceed(math.log(100) + 1e-9, 100)
    assert not figures.odds_exceed(math.log(100), 100)


def test_sums_are_the_accountant_s():
    assert figures.total_epsilon([0.1] * 10) == 1.0
    assert figures.total_epsilon([1.0, math.inf]) == math.inf
    assert figures.finite_epsilon([1.0, math.inf, 0.5]) == 1.5
    assert figures.total_epsilon([]) == figures.finite_epsilon([]) == 0.0


def test_a_limit_is_exceeded_by_more_than_the_rounding_of_doubles():
    assert not figures.epsilon_exceeds(0.1 + 0.2, 0.3)
    assert figures.epsilon_exceeds(3.00000001, 3.0)
    assert not figures.epsilon_exceeds(2.9, 3.0)
    assert not figures.epsilon_exceeds(math.inf, 3.0)
    assert figures.delta_exceeds(2e-6, 1e-6)
    assert not figures.delta_exceeds(1e-6, 1e-6)


def peers(tmp_path, share):
    (tmp_path / "study.toml").write_text(peer_session.STUDY.replace("[release]", f"{share}\n[release]"))
    return read_study(tmp_path / "study.toml")


def test_shared_statistics_cost_what_their_event_costs(tmp_path):
    noisy = figures.share_cost(peers(tmp_path, '[share]\nnoise = "discrete-gaussian"\nepsilon = 1.5\ndelta = 1e-7'))
    assert noisy == Cost(epsilon=1.5, delta=1e-7)
    exact = figures.share_cost(peers(tmp_path, "[share]\nminimum_count = 5"))
    assert exact == Cost(epsilon=math.inf)


def test_a_study_with_a_miner_shares_nothing(tmp_path):
    text = peer_session.STUDY.replace('model = "peer"', 'model = "central"')
    (tmp_path / "study.toml").write_text(text)
    assert figures.share_cost(read_study(tmp_path / "study.toml")) is None


def test_epsilons_of_a_party_are_of_the_columns_that_it_sends(tmp_path):
    study = peers(tmp_path, "")
    assert [len(figures.sent_epsilons(study, party)) for party in study.parties] == [1, 1, 0]
    assert figures.sent_epsilons(study, "north") == pytest.approx((2.0,))
