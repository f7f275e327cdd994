"""Pair scores on randomized columns. Seeds are fixed; false-alarm rates are at most 1e-6 for each assertion."""

import numpy as np
from scipy.stats import binom, norm

from verticil.shared.channels.transition import quantize, symmetric
from verticil.shared.estimation import information, kronecker
from verticil.shared.estimation.independence import independence_p_value
from verticil.shared.estimation.information import pair_bias, plug_in_information

REPLICATES = 2000


def released_pairs(joint: np.ndarray, n: int, seed: int, transitions: list) -> np.ndarray:
    """(REPLICATES, K_a, K_b): pairs drawn from `joint`, then randomized; a multinomial of the released distribution."""
    shares = kronecker.apply_axes(joint, [t.probabilities for t in transitions]).ravel()
    draws = np.random.default_rng(seed).multinomial(n, shares / shares.sum(), size=REPLICATES)
    return draws.reshape(REPLICATES, *joint.shape)


def test_the_test_of_independence_keeps_its_level_with_rare_categories():
    """Null: independent variables, one category of share 0.0005, n = 3000, level 0.01, 2,000 replicates.

    The number of rejections is Binomial(2000, 0.01) if the level is exact; the bound allows 1e-6 above 0.012 (the chi-square
    approximation). Planted fault: without merging, chi-square on the same kind of table rejects too often.
    """
    transitions = [quantize(symmetric(4, epsilon=30.0))] * 2  # almost no noise: rare categories stay rare
    p = np.array([0.6, 0.3, 0.0995, 0.0005])
    tables = released_pairs(np.outer(p, p), 3000, 1, transitions)
    limit = binom.isf(1e-6, REPLICATES, 0.012)
    assert sum(independence_p_value(table) < 0.01 for table in tables) <= limit

    def unmerged(table: np.ndarray) -> bool:
        expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
        statistic = np.divide((table - expected) ** 2, expected, out=np.zeros(table.shape), where=expected > 0).sum()
        return bool(statistic > 21.666)  # 99 % point of chi-square with 9 degrees of freedom

    rare = released_pairs(np.outer([0.97, 0.01, 0.01, 0.01], [0.97, 0.01, 0.01, 0.01]), 3000, 2, transitions)
    assert sum(independence_p_value(table) < 0.01 for table in rare) <= limit
    assert sum(unmerged(table) for table in rare) > limit


def test_independent_randomization_keeps_the_level():
    """Null: independent variables, epsilon = 1; as above, exact level, planted fault: dependent variables."""
    transitions = [quantize(symmetric(5, epsilon=1.0)), quantize(symmetric(3, epsilon=1.0))]
    a, b = np.array([0.5, 0.2, 0.15, 0.1, 0.05]), np.array([0.7, 0.2, 0.1])
    limit = binom.isf(1e-6, REPLICATES, 0.012)
    tables = released_pairs(np.outer(a, b), 5000, 3, transitions)
    assert sum(independence_p_value(table) < 0.01 for table in tables) <= limit
    joint = 0.7 * np.outer(a, b)
    joint[:3, :3] += 0.1 * np.eye(3)
    dependent = released_pairs(joint, 5000, 4, transitions)
    assert sum(independence_p_value(table) < 0.01 for table in dependent) > limit


def test_debiased_information_is_centred_and_plug_in_is_not():
    """Mean of plug-in minus bias over 2,000 replicates within 5 standard errors plus 10 per cent of the bias of the truth.

    (z = 5 is a false-alarm rate of 6e-7; the 10 per cent are what the second-order formula leaves.) The plug-in estimate, the
    planted fault, is off by more. Interior joint distribution, so that clipping is rare.
    """
    transitions = [quantize(symmetric(3, epsilon=1.2)), quantize(symmetric(3, epsilon=1.2))]
    joint = np.full((3, 3), 0.08) + np.diag([0.1, 0.08, 0.1])
    truth = plug_in_information(joint)
    plug_in, debiased, bias = [], [], []
    for table in released_pairs(joint, 20_000, 5, transitions):
        value = plug_in_information(kronecker.estimate_counts(table, transitions))
        plug_in.append(value)
        bias.append(pair_bias(table, transitions))
        debiased.append(value - bias[-1])
    allowed = norm.isf(3e-7) * np.std(plug_in) / np.sqrt(REPLICATES) + 0.1 * np.mean(bias)
    assert abs(np.mean(debiased) - truth) < allowed
    assert abs(np.mean(plug_in) - truth) > allowed


def test_the_floor_under_small_shares_is_what_the_text_says():
    assert information.FLOOR_DEVIATIONS == 3.0
