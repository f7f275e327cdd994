"""What records are drawn by given rules, against tables that are multiplied out whole. Seeds are fixed.

Oracle: the joint distribution as one array, raked by its margins one after the other (Deming & Stephan 1940). Nothing is random
but the networks that are tried; so there is no false alarm.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from support.knowing import CHILDREN, content_that_knows, study_that_knows
from support.releases import random_network
from verticil.shared.numerics.knowledge import raking
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.elimination import TooWideError, condition, family_shares, network_marginals
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.synthesis.marginals import model_shares
from verticil.shared.synthesis.record_checks import FALSE_ALARMS, unlikely_family
from verticil.shared.synthesis.synthesis import sample_codes

STATES = (2, 3, 3, 2, 4)
TREE = ((), (0,), (0,), (1,), (3,))
DENSE = ((), (0,), (0, 1), (2,), (1, 3))
ABOVE = ((1, 2), (), (1,), (2,), (3,))  # the first variable is below others
FACTORS = (
    ((0, 3), np.array([[1.0, 0.0], [1.0, 1.0]])),
    ((1, 4), np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])),
)


def network_of(parents: tuple[tuple[int, ...], ...], seed: int) -> tuple[Network, Support]:
    variables = tuple(Variable(name=f"v{v}", owner="a", labels=tuple(map(str, range(k)))) for v, k in enumerate(STATES))
    network = random_network(variables, parents, seed=seed)
    return network, Support(network.schema, FACTORS, ("one", "other"))


def whole(network: Network) -> np.ndarray:
    """The joint distribution of all variables."""
    table = np.ones(STATES)
    for cell in itertools.product(*map(range, STATES)):
        for child, family in enumerate(network.families):
            row = 0
            for parent in family.parents:
                row = row * STATES[parent] + cell[parent]
            table[cell] *= family.probability[row, cell[child]]
    return table


def times(table: np.ndarray, factors) -> np.ndarray:
    """The table given the factors, normalised."""
    found = table.copy()
    for cell in itertools.product(*map(range, STATES)):
        found[cell] *= math.prod(rule[tuple(cell[v] for v in scope)] for scope, rule in factors)
    return found / found.sum()


def sums(table: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    found = table.sum(axis=tuple(v for v in range(len(STATES)) if v not in members))
    return found.transpose([sorted(members).index(v) for v in members])


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The farthest that two distributions' shares of categories are from each other."""
    return max(float(np.abs(sums(one, (v,)) - sums(other, (v,))).max()) for v in range(len(STATES)))


@pytest.mark.parametrize("parents", [TREE, DENSE, ABOVE])
def test_a_rule_about_the_last_variable_reaches_all_that_is_above_it(parents) -> None:
    network, _ = network_of(parents, 4)
    rule = [((4,), np.array([1.0, 0.0, 1.0, 0.0]))]
    expected, steps = times(whole(network), rule), condition(network, {}, rule)
    found = np.ones(STATES)
    for cell in itertools.product(*map(range, STATES)):
        for step in steps:
            row = 0
            for parent in step.parents:
                row = row * STATES[parent] + cell[parent]
            found[cell] *= step.probability[row, cell[step.child]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("parents", [TREE, DENSE, ABOVE])
def test_shares_of_families_are_those_of_the_whole_table(parents) -> None:
    network, _ = network_of(parents, 1)
    table = times(whole(network), FACTORS)
    shares, share = family_shares(network, FACTORS)
    assert share == pytest.approx((whole(network) * (table > 0)).sum(), rel=1e-12)
    assert sorted(shares) == ([0, 1, 3, 4] if parents == TREE else [0, 1, 2, 3, 4])
    for variable, found in shares.items():
        expected = sums(table, (*network.families[variable].parents, variable)).reshape(found.shape)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    alone, share = family_shares(network)
    assert share == pytest.approx(1.0, abs=1e-12)
    for variable in range(len(STATES)):
        expected = sums(whole(network), (*network.families[variable].parents, variable)).reshape(alone[variable].shape)
        np.testing.assert_allclose(alone[variable], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("parents", "seed"), [(TREE, 1), (DENSE, 1), (DENSE, 2)])
def test_records_by_rules_have_the_shares_of_the_network_and_are_the_nearest_to_it(parents, seed, monkeypatch) -> None:
    monkeypatch.setattr(raking, "GAIN", 1e-13)
    monkeypatch.setattr(raking, "ROUNDS", 2000)
    network, rules = network_of(parents, seed)
    own, plain = whole(network), times(whole(network), FACTORS)
    nearest = plain
    for _ in range(2000):
        for v in range(len(STATES)):
            ratio = sums(own, (v,)) / sums(nearest, (v,))
            nearest = nearest * ratio.reshape([-1 if axis == v else 1 for axis in range(len(STATES))])
    assert apart(nearest, own) < 1e-6  # these rules leave room for all shares
    by = rake(network, rules)
    assert by is not None
    found = times(own, by.limits)
    assert apart(found, own) < 2e-5 if parents == DENSE else apart(found, own) < 0.05
    if parents == DENSE:
        np.testing.assert_allclose(found, nearest, rtol=0, atol=2e-5)
    assert apart(plain, own) > 0.02  # as it was, it is refused
    assert np.array_equal(found > 0, plain > 0)
    steps = condition(network, {}, by.limits)
    drawn = np.ones(STATES)
    for cell in itertools.product(*map(range, STATES)):
        for step in steps:
            row = 0
            for parent in step.parents:
                row = row * STATES[parent] + cell[parent]
            drawn[cell] *= step.probability[row, cell[step.child]]
    np.testing.assert_allclose(drawn, found, rtol=0, atol=1e-9)


@pytest.mark.parametrize("columns", [2, 9])  # of nine, a whole step goes too far
def test_shares_that_cannot_be_together_are_met_between(columns) -> None:
    variables = tuple(Variable(name=f"v{v}", owner="a", labels=("0", "1")) for v in range(columns))
    network = random_network(variables, ((),) * columns, seed=3)
    pairs = tuple(((v, v + 1), np.eye(2)) for v in range(columns - 1))
    same = Support(network.schema, pairs, tuple(f"same {v}" for v in range(columns - 1)))
    by = rake(network, same)
    assert by is not None
    share = network_marginals(network, by.limits)[0][1]
    odds = [family.probability[0, 1] / family.probability[0, 0] for family in network.families]
    between = math.exp(np.mean(np.log(odds)))  # where the distance to all is least
    assert share == pytest.approx(between / (1 + between), abs=1e-4)
    assert abs(network_marginals(network, same.limits)[0][1] - share) > 0.005  # as it was, it is refused


def test_what_needs_no_weights_has_none(monkeypatch) -> None:
    network, rules = network_of(DENSE, 1)
    assert rake(network, None) is None
    for table in (np.ones((2, 3)), np.zeros((2, 3))):  # who draws says that there is no record
        same = Support(network.schema, (((0, 1), table),), ("rule",))
        assert rake(network, same) is same
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 3)
    with pytest.raises(TooWideError):
        family_shares(network, FACTORS)
    assert rake(network, rules) is rules


def test_a_release_draws_by_it_and_says_so() -> None:
    study = study_that_knows(rules=(CHILDREN,))
    study = dataclasses.replace(study, release=dataclasses.replace(study.release, synthetic_records=200_000))
    made, rules = content_that_knows(study), study.support()
    codes = list(made.codes)
    assert unlikely_family(made.network, codes, FALSE_ALARMS, rake(made.network, rules)) is None
    assert unlikely_family(made.network, codes, FALSE_ALARMS, rules) is not None
    planted = sample_codes(made.network, 200_000, generator=np.random.default_rng(1), support=rules)
    assert unlikely_family(made.network, planted, FALSE_ALARMS, rake(made.network, rules)) is not None
    shares, exact = model_shares(made.network, rules)
    assert exact
    alone = network_marginals(made.network)
    for column, share in zip(made.codes, shares, strict=True):
        np.testing.assert_allclose(np.bincount(column, minlength=len(share)) / len(column), share, atol=0.006)
    for place in (0, 1):  # what the rule is of
        np.testing.assert_allclose(shares[place], alone[place], atol=3e-4)
