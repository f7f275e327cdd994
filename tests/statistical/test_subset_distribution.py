"""Released sets have exactly the distribution of subset selection, and distinct records are independent.

Null: the true category is in the set with probability weight / 2^64; given that, all sets of the other members are equally
likely. n = 200,000 records per test; counts over all sets by Pearson's chi-square, counts of single categories by their normal
deviation, at 1e-8 per comparison, fewer than 60 comparisons: the false-alarm rate of the file is below 1e-6 for a random secret.
The secret is fixed: a run never changes its answer. Each test also rejects a planted fault on the same data.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2, norm

from verticil.party.dataset.perturb import record_tags
from verticil.party.dataset.subsets import select
from verticil.shared.mechanisms.subset import Subset, subset_selection

N = 200_000
ALPHA = 1e-8
SECRET = bytes(range(32))
KEY = bytes(range(32, 64))
TRUE = 3
SMALL = subset_selection(8, epsilon=1.0, size=3)
CHANNELS = {
    "best of 8": subset_selection(8, epsilon=1.0),
    "3 of 8": SMALL,
    "5 of 9": subset_selection(9, epsilon=0.3, size=5),
    "1 of 8": subset_selection(8, epsilon=1.0, size=1),
}


@pytest.fixture(scope="module")
def tags():
    return record_tags(SECRET, [f"{i:08d}" for i in range(N)])


def released(tags, subset, *, key=KEY, true=TRUE):
    return select(key, tags, np.full(len(tags), true, dtype=np.uint8), subset).reshape(-1, subset.size)


def sets_as_numbers(rows):
    return (1 << rows.astype(np.int64)).sum(axis=1)


def probabilities(subset, true=TRUE):
    """Probability of each set, by its number, from the definition in exact terms."""
    keep = subset.weight / 2**64
    with_it = math.comb(subset.n_states - 1, subset.size - 1)
    without = math.comb(subset.n_states - 1, subset.size)
    found = np.zeros(1 << subset.n_states)
    for members in itertools.combinations(range(subset.n_states), subset.size):
        number = sum(1 << x for x in members)
        found[number] = keep / with_it if true in members else (1 - keep) / without
    return found


def excess(observed, expected_shares):
    """Pearson's statistic over its critical value: above 1 rejects. A count where none may be is infinitely much."""
    possible = expected_shares > 0
    if observed[~possible].any():
        return np.inf
    expected = observed.sum() * expected_shares[possible]
    assert expected.min() > 5
    statistic = float(((observed[possible] - expected) ** 2 / expected).sum())
    return statistic / chi2.isf(ALPHA, possible.sum() - 1)


def counts(rows, n_states):
    return np.bincount(sets_as_numbers(rows), minlength=1 << n_states)


@pytest.mark.parametrize("name", CHANNELS)
def test_every_set_has_its_probability(tags, name):
    subset = CHANNELS[name]
    observed = counts(released(tags, subset), subset.n_states)
    assert excess(observed, probabilities(subset)) < 1
    # Planted: another epsilon (by 5 %), another true category.
    weight = subset.weight + (2**64 - subset.weight) // 20
    wrong = Subset(n_states=subset.n_states, size=subset.size, weight=weight)
    assert excess(observed, probabilities(wrong)) > 1
    assert excess(observed, probabilities(subset, true=TRUE + 1)) > 1


def test_sets_whose_members_hang_together_are_rejected(tags):
    """The planted fault has the right inclusion probabilities and the wrong sets: neighbours on a ring of the others."""
    others = np.array([x for x in range(8) if x != TRUE])
    generator = np.random.default_rng(5)
    inside = generator.random(N) < SMALL.keep
    start = generator.integers(0, 7, N)
    ring = others[(start[:, None] + np.arange(3)) % 7]
    ring[inside, 2] = TRUE
    share = np.bincount(ring.reshape(-1), minlength=8) / N
    assert share[TRUE] == pytest.approx(SMALL.keep, abs=0.01)
    assert share[others] == pytest.approx(SMALL.other, abs=0.01)
    assert excess(counts(ring, 8), probabilities(SMALL)) > 1


@pytest.mark.parametrize(("n_states", "epsilon"), [(16, 0.5), (64, 1.0)])
def test_single_categories_are_in_the_set_as_often_as_said(tags, n_states, epsilon):
    subset = subset_selection(n_states, epsilon=epsilon)
    included = np.bincount(released(tags, subset).reshape(-1), minlength=n_states)
    expected = np.where(np.arange(n_states) == TRUE, subset.keep, subset.other)

    def largest_z(shares):
        return float(np.abs((included / N - shares) / np.sqrt(shares * (1 - shares) / N)).max())

    limit = float(norm.isf(ALPHA / 2 / n_states))
    assert largest_z(expected) < limit
    assert largest_z(expected * 0.97) > limit
    assert largest_z(np.full(n_states, subset.size / n_states)) > limit


def crossed(one, two):
    return np.bincount(one.astype(np.int64) * 8 + two, minlength=64)


def test_neighbouring_records_and_values_of_one_record_are_independent(tags):
    """By sets of one, so that a cross table has few cells: neighbours, two true codes of one record, two units of one record."""
    one = CHANNELS["1 of 8"]
    shares = [probabilities(one, true)[1 << np.arange(8)] for true in (3, 4)]
    rows, others = released(tags, one)[:, 0], released(tags, one, true=4)[:, 0]
    elsewhere = released(tags, one, key=bytes(32))[:, 0]
    same = np.outer(shares[0], shares[0]).reshape(-1)
    assert excess(crossed(rows[0::2], rows[1::2]), same) < 1
    assert excess(crossed(rows, others), np.outer(shares[0], shares[1]).reshape(-1)) < 1
    assert excess(crossed(rows, elsewhere), same) < 1
    assert excess(crossed(rows, rows), same) > 1  # planted: one draw for both
