"""Estimates from compounds and sets, as a party releases them, are unbiased, and their variance is what the channels say.

Every run releases one fixed set of 600 records with another unit key, by the party's own code: compound codes, sticky draws,
sets. Null: the mean of every estimated cell over the runs is its true count, and its variance that of the randomization alone,
which is worked out here by brute force over everything that can be released of one record. 400 runs; the false-alarm rate of
each test is at most 1e-6 (Bonferroni over its cells). Each rejects a planted fault on the same runs.
"""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from verticil.party.dataset.compound_codes import Compound
from verticil.party.dataset.perturb import perturb_numpy, record_tags
from verticil.party.dataset.subsets import select
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.contingency import family_counts
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design

FALSE_ALARM = 1e-6
RUNS = 400
N = 600
STATES = (2, 3, 8)  # state, ship, ward; state and ship are one compound, ward is released as a set
IMPOSSIBLE = ((1, 0), (1, 2))
DOMAIN = tuple(c for c in itertools.product(range(2), range(3)) if c not in IMPOSSIBLE)
MATRIX = quantize(symmetric(len(DOMAIN), epsilon=1.5))
# Released more often as one's neighbour than as others, so that the marginal channel of one column depends on the other.
SKEWED = quantize(
    np.array([[0.6, 0.3, 0.05, 0.05], [0.1, 0.7, 0.1, 0.1], [0.3, 0.1, 0.5, 0.1], [0.05, 0.2, 0.15, 0.6]])
)
SUBSET = subset_selection(8, epsilon=1.0)
FAMILIES = {"whole": (0, 1, 2), "ship and ward": (1, 2), "ward and state": (2, 0), "ship": (1,), "state, ship": (0, 1)}
CHANNELS = {"symmetric": MATRIX, "skewed": SKEWED}


@pytest.fixture(scope="module")
def columns():
    """True codes: the columns hang together."""
    generator = np.random.default_rng(4)
    pairs = np.array(DOMAIN)[generator.choice(4, N, p=[0.1, 0.35, 0.2, 0.35])]
    ward = (pairs.sum(axis=1) + generator.choice(8, N, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.03, 0.02])) % 8
    return [column.astype(np.uint8) for column in (pairs[:, 0], pairs[:, 1], ward)]


@pytest.fixture(scope="module", params=CHANNELS)
def released(request, columns):
    """The channel, and RUNS releases of both units."""
    channel = CHANNELS[request.param]
    compound = Compound(variables=("state", "ship"), n_states=STATES[:2], impossible=IMPOSSIBLE)
    codes = compound.codes({"state": columns[0], "ship": columns[1]})
    tags = record_tags(bytes(32), [f"p{i}" for i in range(N)])
    generator = np.random.default_rng(9)
    keys = [(generator.bytes(32), generator.bytes(32)) for _ in range(RUNS)]
    return channel, [
        {0: perturb_numpy(one, tags, codes, channel), 1: select(two, tags, columns[2], SUBSET)} for one, two in keys
    ]


def design_of(channel, axes):
    units = [
        ColumnUnit(variables=(0, 1), domain=DOMAIN, channel=channel),
        ColumnUnit(variables=(2,), domain=None, channel=SUBSET),
    ]
    return family_design(units, STATES, axes)


def moments_of_compound(channel, inside):
    """Of the weight that one record gives to each cell of the axes `inside`, by its true combination: mean and mean square."""
    inverse = np.linalg.inv(channel.probabilities)
    cells = np.zeros((len(DOMAIN), *(STATES[axis] for axis in inside)))
    for position, combination in enumerate(DOMAIN):
        cells[(position, *(combination[axis] for axis in inside))] = 1
    weights = np.tensordot(inverse, cells, axes=(1, 0))  # released code, cell
    return (np.tensordot(channel.probabilities, power, axes=(1, 0)) for power in (weights, weights**2))


def moments_of_subset():
    """The same of the set column, over all sets, from the definition: z_x = (1[x in S] - q) / (p - q)."""
    k, w, keep = 8, SUBSET.size, SUBSET.weight / 2**64
    q = (w - keep) / (k - 1)
    first, second = np.zeros((k, k)), np.zeros((k, k))
    for true in range(k):
        for members in itertools.combinations(range(k), w):
            share = keep / math.comb(k - 1, w - 1) if true in members else (1 - keep) / math.comb(k - 1, w)
            z = (np.isin(np.arange(k), members) - q) / (keep - q)
            first[true] += share * z
            second[true] += share * z**2
    return first, second


def truth_and_variance(columns, channel, axes):
    """Exact: sums over the records of mean and variance of the weights that one record gives to each cell of the family."""
    inside = [axis for axis in (0, 1) if axis in axes]
    pair = [DOMAIN.index(c) for c in zip(columns[0].tolist(), columns[1].tolist(), strict=True)]
    ones = np.ones((8, 1)), np.ones((8, 1))
    wards = moments_of_subset() if 2 in axes else ones
    means, squares = (
        np.einsum("ri,rj->rij", one[pair].reshape(N, -1), other[columns[2]])
        for one, other in zip(moments_of_compound(channel, inside), wards, strict=True)
    )
    order = [*inside, *([2] if 2 in axes else [])]
    shape = [STATES[axis] for axis in order]
    back = [order.index(axis) for axis in axes]
    return tuple(
        table.sum(axis=0).reshape(shape).transpose(back) for table in (means, np.maximum(squares - means**2, 0))
    )


def estimates_of(design, runs):
    return np.array([design.estimate(family_counts(run, design)) for run in runs])


def counted(columns, axes):
    table = np.zeros([STATES[axis] for axis in axes])
    np.add.at(table, tuple(columns[axis] for axis in axes), 1)
    return table


def largest_z(estimates, truth, variance):
    """Normal by the central limit theorem: a mean over 400 runs of 600 records. A cell without variance must be exact."""
    certain = variance < 1e-9
    assert np.abs(estimates[:, certain] - truth[certain]).max(initial=0) < 1e-6
    z = (estimates.mean(axis=0) - truth)[~certain] / np.sqrt(variance[~certain] / RUNS)
    return float(np.abs(z).max())


def spread_fits(estimates, variance):
    """(RUNS - 1) s^2 / variance is chi-square: an estimate is a sum over 600 records, all of them of bounded weight."""
    uncertain = variance > 1e-9
    statistic = (RUNS - 1) * estimates.var(axis=0, ddof=1)[uncertain] / variance[uncertain]
    tail = FALSE_ALARM / 2 / statistic.size
    low, high = stats.chi2.ppf(tail, RUNS - 1), stats.chi2.isf(tail, RUNS - 1)
    return bool(((low < statistic) & (statistic < high)).all())


@pytest.mark.parametrize("axes", FAMILIES.values(), ids=FAMILIES)
def test_estimates_are_unbiased_with_the_variance_of_the_channels(columns, released, axes):
    channel, runs = released
    truth, variance = truth_and_variance(columns, channel, axes)
    assert truth == pytest.approx(counted(columns, axes), abs=1e-9)
    estimates = estimates_of(design_of(channel, axes), runs)
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / truth.size)
    assert largest_z(estimates, truth, variance) < limit
    assert spread_fits(estimates, variance)
    assert not spread_fits(estimates, variance * 0.6)
    assert not spread_fits(estimates, variance * 1.7)


def test_impossible_cells_are_exactly_zero(released):
    channel, runs = released
    estimates = estimates_of(design_of(channel, (0, 1, 2)), runs[:20])
    for combination in IMPOSSIBLE:
        assert (estimates[(slice(None), *combination)] == 0).all()


def test_another_channel_is_rejected(columns, released):
    channel, runs = released
    truth, variance = truth_and_variance(columns, channel, (1, 2))
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / truth.size)
    other = CHANNELS["skewed" if channel == MATRIX else "symmetric"]
    assert largest_z(estimates_of(design_of(other, (1, 2)), runs), truth, variance) > limit


def test_a_domain_in_another_order_is_rejected(columns, released):
    """The planted fault: party and miner number the combinations differently."""
    channel, runs = released
    truth, variance = truth_and_variance(columns, channel, (1, 2))
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / truth.size)
    units = [
        ColumnUnit(variables=(0, 1), domain=DOMAIN[::-1], channel=channel),
        ColumnUnit(variables=(2,), domain=None, channel=SUBSET),
    ]
    estimates = estimates_of(family_design(units, STATES, (1, 2)), runs)
    assert np.abs((estimates.mean(axis=0) - truth) / np.sqrt(variance / RUNS)).max() > limit
