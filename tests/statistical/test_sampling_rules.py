"""Records that meet rules against the network's distribution given the rules, multiplied out whole. Seeds are fixed.

Null: n records come from that distribution. For records that are drawn on their own, chi-square over the cells with an
expectation of 10 at least, the rest merged: false-alarm rate 1e-6 a test. Records that are dealt out scatter less, so the same
limit holds for them. That the drawing tables multiply to the distribution is held to 1e-9, and no record may break a rule.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from support.releases import random_network
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.knowledge.support import Support, support
from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.elimination import condition_with_probability, network_marginals, network_pair
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.vocabulary import SAMPLING
from verticil.shared.synthesis import synthesis
from verticil.shared.synthesis.record_checks import FALSE_ALARMS, unlikely_family
from verticil.shared.synthesis.synthesis import CHUNK, RulesTooWideError, sample_chunks, sample_codes

FALSE_ALARM = 1e-6
PARENTS = ((), (0,), (0, 1), (2,), (1, 3), (4,), (3, 5))
STATES = (2, 3, 3, 2, 4, 3, 2)
N = 200_000


def at(variable: int, *labels: int) -> Condition:
    return Condition(variable=f"v{variable}", values=tuple(map(str, labels)))


RULES = (
    Rule(name="across", when=(at(0, 0),), then=(at(4, 1, 2), at(5, 0))),  # of variables that are far from each other
    Rule(name="never", when=(at(1, 2), at(3, 0), at(5, 1, 2))),
    Rule(name="within", when=(at(2, 1),), then=(at(0, 1),)),
    Rule(name="always", when=(at(6, 0),), then=(at(6, 0, 1),)),  # forbids nothing
)


def case(rules: tuple[Rule, ...] = RULES, *, seed: int = 1) -> tuple[Network, Support, np.ndarray]:
    """A network, what the rules leave possible, and the distribution given the rules."""
    variables = tuple(Variable(name=f"v{v}", owner="a", labels=tuple(map(str, range(k)))) for v, k in enumerate(STATES))
    network = random_network(variables, PARENTS, seed=seed)
    return network, support(Knowledge(rules=rules), network.schema), exact(network, rules)


def met(rule: Rule, cell: tuple[int, ...]) -> bool:
    held = [[str(cell[int(item.variable[1:])]) in item.values for item in side] for side in (rule.when, rule.then)]
    return not all(held[0]) or any(held[1])


def exact(network: Network, rules: tuple[Rule, ...]) -> np.ndarray:
    table = np.zeros(STATES)
    for cell in itertools.product(*map(range, STATES)):
        if all(met(rule, cell) for rule in rules):
            table[cell] = 1.0
            for child, family in enumerate(network.families):
                row = 0
                for parent in family.parents:
                    row = row * STATES[parent] + cell[parent]
                table[cell] *= family.probability[row, cell[child]]
    return table


def rejects(codes: list[np.ndarray], shares: np.ndarray) -> bool:
    n = len(codes[0])
    counts = np.bincount(np.ravel_multi_index([column.astype(int) for column in codes], STATES), minlength=shares.size)
    expected = n * shares.ravel() / shares.sum()
    if counts[expected == 0].any():
        return True
    many = expected >= 10
    pairs = [(counts[many], expected[many]), (counts[~many].sum(keepdims=True), expected[~many].sum(keepdims=True))]
    statistic = sum(float(((c - e) ** 2 / e)[e > 0].sum()) for c, e in pairs)
    return bool(chi2.sf(statistic, int(many.sum())) < FALSE_ALARM)


def masked_and_renormalised(network: Network, support_: Support, n: int, seed: int) -> list[np.ndarray]:
    """The planted fault: along the edges, each variable without what cannot be beside those drawn before it."""
    generator = np.random.default_rng(seed)
    codes: list[np.ndarray] = []
    for child, family in enumerate(network.families):
        row = np.zeros(n, dtype=int)
        for parent in family.parents:
            row = row * STATES[parent] + codes[parent]
        allowed = support_.table(tuple(range(child + 1)))[tuple(codes)]
        rows = family.probability[row] * allowed
        ends = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1)
        codes.append((generator.random(n)[:, None] >= ends[:, :-1]).sum(axis=1))
    return codes


@pytest.mark.parametrize("evidence", [{}, {5: 0}, {0: 0, 6: 1}])
def test_what_is_drawn_by_multiplies_to_the_distribution_given_the_rules(evidence: dict[int, int]) -> None:
    network, rules, table = case()
    kept = table[tuple(evidence.get(v, slice(None)) for v in range(7))]
    steps, probability = condition_with_probability(network, evidence, rules.limits)
    assert probability == pytest.approx(kept.sum(), rel=1e-12)
    made = np.zeros(STATES)
    for cell in itertools.product(*map(range, STATES)):
        if any(cell[v] != code for v, code in evidence.items()):
            continue
        made[cell] = 1.0
        for step in steps:
            row = 0
            for parent in step.parents:
                row = row * STATES[parent] + cell[parent]
            made[cell] *= step.probability[row, cell[step.child]]
    whole = np.zeros(STATES)
    place = tuple(evidence.get(v, slice(None)) for v in range(7))
    whole[place] = table[place] / kept.sum()
    np.testing.assert_allclose(made, whole, rtol=0, atol=1e-9)


def test_shares_given_the_rules() -> None:
    network, rules, table = case()
    table = table / table.sum()
    for variable, share in enumerate(network_marginals(network, rules.limits)):
        np.testing.assert_allclose(share, table.sum(axis=tuple(v for v in range(7) if v != variable)), atol=1e-12)
    np.testing.assert_allclose(network_pair(network, 4, 0, rules.limits), table.sum(axis=(1, 2, 3, 5, 6)).T, atol=1e-12)


@pytest.mark.parametrize("method", SAMPLING)
@pytest.mark.parametrize("evidence", [{}, {5: 0}])
def test_records_are_of_the_distribution_given_the_rules(method, evidence) -> None:
    network, rules, table = case()
    codes = sample_codes(
        network, N, generator=np.random.default_rng(2), method=method, evidence=evidence, support=rules, path="plain"
    )
    assert rules.holds(codes).all()
    given = np.zeros(STATES)
    place = tuple(evidence.get(v, slice(None)) for v in range(7))
    given[place] = table[place]
    assert not rejects(codes, given)


def with_weights(table: np.ndarray, by: Support) -> np.ndarray:
    """What a release's records are of: the distribution given the rules times a weight for each category (`raking`)."""
    for (variable,), weights in by.weights:
        table = table * weights.reshape([-1 if axis == variable else 1 for axis in range(len(STATES))])
    return table


@pytest.mark.parametrize("method", SAMPLING)
def test_records_of_a_release_are_of_that_distribution_with_its_weights(method) -> None:
    network, rules, table = case()
    by = rake(network, rules)
    assert by is not None
    assert by.weights
    codes = sample_codes(network, N, generator=np.random.default_rng(2), method=method, support=by, path="plain")
    assert rules.holds(codes).all()
    assert not rejects(codes, with_weights(table, by))
    assert rejects(codes, table)  # they are not of the one without weights


def test_a_masked_and_renormalised_sampler_is_rejected() -> None:
    network, rules, table = case()
    planted = masked_and_renormalised(network, rules, N, 3)
    assert rules.holds(planted).all()  # what it draws is possible, and of another distribution
    assert rejects(planted, table)
    by = rake(network, rules)
    assert by is not None
    assert rejects(planted, with_weights(table, by))


def test_verification_holds_records_against_the_distribution_given_the_rules() -> None:
    network, rules, _ = case()
    drawn = sample_codes(network, N, generator=np.random.default_rng(4), support=rules)
    assert unlikely_family(network, drawn, FALSE_ALARMS, rules) is None
    assert unlikely_family(network, drawn, FALSE_ALARMS) is not None  # of the network alone they are not
    assert unlikely_family(network, masked_and_renormalised(network, rules, N, 3), FALSE_ALARMS, rules) is not None


@pytest.mark.parametrize("method", SAMPLING)
def test_rules_too_wide_to_draw_by_are_kept_by_throwing_records_away(monkeypatch, method) -> None:
    network, rules, table = case()
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 40)
    if method == "without-replacement":
        monkeypatch.setattr(synthesis, "configuration_shares", lambda steps, states: [
            np.full(len(step.probability), 1 / len(step.probability)) for step in steps
        ])  # fmt: skip
        codes = sample_codes(network, 3000, generator=np.random.default_rng(5), method=method, support=rules)
    else:
        codes = sample_codes(network, N, generator=np.random.default_rng(5), method=method, support=rules)
        assert not rejects(codes, table)
    assert rules.holds(codes).all()
    assert unlikely_family(network, codes, FALSE_ALARMS, rules) is None


def test_rules_too_wide_and_too_rare_are_named(monkeypatch) -> None:
    rare = (Rule(name="nearly none", when=(at(6, 0, 1),), then=(at(0, 0),)), *(
        Rule(name=f"only {v}", when=(at(0, 0, 1),), then=(at(v, 0),)) for v in range(1, 6)
    ))  # fmt: skip
    network, rules, _ = case(rare, seed=8)
    assert sample_codes(network, 100, generator=np.random.default_rng(1), support=rules)[4].max() == 0
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 3)
    with pytest.raises(
        RulesTooWideError, match=r"'nearly none', 'only 1'.*variables 'v0', 'v1'.*at most 3; and of .* 2%"
    ):
        sample_codes(network, 100, generator=np.random.default_rng(1), support=rules)


def test_rules_that_no_record_of_the_network_meets() -> None:
    network, _, _ = case()
    table = np.zeros((2, 3))
    with pytest.raises(ValueError, match="rules have probability 0"):
        condition_with_probability(network, {}, [((0, 1), table)])
    with pytest.raises(ValueError, match="evidence and rules have probability 0"):
        condition_with_probability(network, {0: 1}, [((0, 1), np.array([[1.0] * 3, [0.0] * 3]))])


def test_chunks_meet_the_rules(monkeypatch) -> None:
    network, rules, _ = case()
    pieces = list(sample_chunks(network, CHUNK + 1000, generator=np.random.default_rng(5), support=rules))
    assert [len(piece[0]) for piece in pieces] == [CHUNK, 1000]
    assert all(rules.holds(piece).all() for piece in pieces)
