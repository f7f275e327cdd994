"""The released values of a true category follow the quantized row of the matrix, and distinct records are independent.

Null: counts of released categories are multinomial with the row's probabilities. n = 200,000 records per true category, Pearson
chi-square with K-1 degrees of freedom, critical value at 1e-8 per test; fewer than 40 tests are made, so the false-alarm rate
of the file is below 1e-6 for a random secret. The secret is fixed: a run never changes its answer. Each test also rejects a
planted fault on the same data.
"""

import numpy as np
import pytest
from scipy.stats import chi2

from verticil.party.dataset.perturb import perturb, perturb_numpy, record_tags, unit_key
from verticil.shared.mechanisms.transition import Transition, quantize, symmetric

N = 200_000
ALPHA = 1e-8
SECRET = bytes(range(32))

SKEWED = quantize(
    np.array(
        [
            [0.7, 0.2, 0.1, 0.0],
            [0.0, 0.9, 0.05, 0.05],
            [0.3, 0.0, 0.4, 0.3],
            [0.01, 0.01, 0.01, 0.97],
        ]
    )
)
MATRICES = {
    "skewed": SKEWED,
    "symmetric": quantize(symmetric(5, epsilon=1.0)),
    "wide": quantize(symmetric(40, epsilon=2.0)),
}


@pytest.fixture(scope="module")
def tags():
    return record_tags(SECRET, [f"{i:08d}" for i in range(N)])


def key_for(column, transition):
    return unit_key(
        SECRET, dataset="d", source_columns=[column], codebook_digest=bytes(32), transition_digest=transition.digest()
    )


def excess(observed, probabilities):
    """Pearson's statistic over its critical value: above 1 rejects. A count where none may be is infinitely much."""
    possible = probabilities > 0
    if observed[~possible].any():
        return np.inf
    expected = observed.sum() * probabilities[possible]
    statistic = float(((observed[possible] - expected) ** 2 / expected).sum())
    return statistic / chi2.isf(ALPHA, possible.sum() - 1)


@pytest.mark.parametrize("path", [perturb, perturb_numpy])
@pytest.mark.parametrize("name", MATRICES)
def test_released_values_follow_the_row(tags, path, name):
    transition = MATRICES[name]
    key = key_for(name, transition)
    for true in range(min(transition.n_states, 5)):
        released = path(key, tags, np.full(N, true, dtype=np.uint8), transition)
        counts = np.bincount(released, minlength=transition.n_states)
        assert excess(counts, transition.probabilities[true]) < 1


def test_a_transposed_matrix_is_rejected(tags):
    """The planted fault: columns taken for rows."""
    wrong = SKEWED.probabilities.T / SKEWED.probabilities.T.sum(axis=1, keepdims=True)
    key = key_for("skewed", SKEWED)
    for true in range(4):
        counts = np.bincount(perturb(key, tags, np.full(N, true, dtype=np.uint8), SKEWED), minlength=4)
        assert excess(counts, wrong[true]) > 1


def test_a_share_that_is_wrong_by_one_percent_is_rejected(tags):
    """The planted fault: 0.01 of the mass moved. Power at n = 200,000: the statistic is about n .01^2 (1/.2 + 1/.1) = 300."""
    planted = SKEWED.probabilities[0] + np.array([0, 0.01, -0.01, 0])
    counts = np.bincount(perturb(key_for("x", SKEWED), tags, np.zeros(N, dtype=np.uint8), SKEWED), minlength=4)
    assert excess(counts, SKEWED.probabilities[0]) < 1 < excess(counts, planted)


def cross_table(one, two, n_states):
    return np.bincount(one.astype(np.int64) * n_states + two, minlength=n_states**2)


def test_columns_are_independent_and_a_shared_key_is_rejected(tags):
    """Null: two columns of one person with the same true value are released independently: the product of the two rows."""
    transition = MATRICES["symmetric"]
    codes = np.full(N, 2, dtype=np.uint8)
    one, two = (perturb(key_for(column, transition), tags, codes, transition) for column in ("a", "b"))
    product = np.outer(transition.probabilities[2], transition.probabilities[2]).reshape(-1)
    assert excess(cross_table(one, two, 5), product) < 1
    assert excess(cross_table(one, one, 5), product) > 1  # planted: one key for both columns


def test_neighbouring_records_and_values_of_one_record_are_independent(tags):
    transition = MATRICES["symmetric"]
    key = key_for("a", transition)
    zeros, ones = (perturb(key, tags, np.full(N, code, dtype=np.uint8), transition) for code in (0, 1))
    rows = transition.probabilities
    product = np.outer(rows[0], rows[0]).reshape(-1)
    assert excess(cross_table(zeros[0::2], zeros[1::2], 5), product) < 1
    assert excess(cross_table(zeros, ones, 5), np.outer(rows[0], rows[1]).reshape(-1)) < 1
    # Planted: the true code left out of the block, so that one u serves both values of a record.
    pushed = Transition(weights=(transition.weights[0],) * 5)
    shared = perturb(key, tags, np.zeros(N, dtype=np.uint8), pushed)
    assert excess(cross_table(shared, shared, 5), product) > 1
