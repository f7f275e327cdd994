"""A joint model of people who meet rules is made of records that meet them, and so is everything that is drawn from it."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from support.noisy_tables import N_STATES, empty, redrawn, study, truth
from verticil.curator.learning import records_of
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import LearnResult, learn
from verticil.miner.learning.publication import published_joint
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.model.joint import WeightedRecords
from verticil.shared.numerics.model.rounding import round_joint
from verticil.shared.release.content import joint_fault
from verticil.shared.study.document import ReleaseRule, Study, TablesRule
from verticil.shared.study.vocabulary import SAMPLING
from verticil.shared.synthesis.joint_records import joint_codes
from verticil.shared.synthesis.synthesis import sample_codes


def at(variable: int, *labels: int) -> Condition:
    return Condition(variable=f"v{variable}", values=tuple(map(str, labels)))


KNOWN = Knowledge(
    rules=(
        Rule(name="far", when=(at(0, 0),), then=(at(3, 0, 1),)),
        Rule(name="of three", when=(at(1, 2), at(2, 1)), then=(at(4, 0, 2),)),
        Rule(name="never", when=(at(2, 0), at(3, 3))),
    )
)


def known_study(**fields: object) -> Study:
    return dataclasses.replace(study(), knowledge=KNOWN, **fields)  # type: ignore[arg-type]


def people(n: int, seed: int) -> list[np.ndarray]:
    """From `support.noisy_tables.truth`, those that meet the rules."""
    codes = joint_codes(truth(), 3 * n, generator=np.random.default_rng(seed), method="independent")
    kept = known_study().support().holds(codes)
    return [column[kept][:n].astype(np.uint8) for column in codes]


def learned(epsilon: float | None, **fields: object) -> tuple[LearnResult, Study]:
    made = known_study(**fields)
    channel = [quantize(identity(k) if epsilon is None else symmetric(k, epsilon=epsilon)) for k in N_STATES]
    units = tuple(dataclasses.replace(unit, transition=c) for unit, c in zip(made.units, channel, strict=True))
    made = dataclasses.replace(made, units=units)
    generator = np.random.default_rng(1)
    released = [
        (generator.random(len(c))[:, None] >= unit.transition.probabilities.cumsum(axis=1)[c][:, :-1]).sum(axis=1)
        for c, unit in zip(people(3000, 4), made.units, strict=True)
    ]
    return learn([column.astype(np.uint8) for column in released], made), made


def of_noisy_tables(**fields: object) -> tuple[LearnResult, Study]:
    made = known_study(tables=TablesRule(epsilon=1.0, delta=1e-9), **fields)
    records = np.stack(people(4000, 5), axis=1).astype(np.uint16)
    exact = WeightedRecords(n_states=N_STATES, codes=records, weights=np.full(len(records), 1 / len(records)))
    return learn_from_tables(redrawn(empty(made), exact, np.random.default_rng(6)), made), made


def check(found: LearnResult, made: Study) -> None:
    """The model is made of possible records, and so are all that are drawn from it."""
    support = made.support()
    assert found.joint is not None
    assert joint_fault(made, round_joint(found.joint.model)) == ""
    assert isinstance(found.joint.model, WeightedRecords)
    assert support.holds(list(found.joint.model.codes.T)).all()
    model = round_joint(found.joint.model)
    for method, given in itertools.product(SAMPLING, ({}, {0: 0}, {1: 2, 2: 1})):
        codes = sample_codes(
            model, 2000, generator=np.random.default_rng(2), method=method, evidence=given, support=support
        )
        assert support.holds(codes).all()
    for family in found.network.families:
        allowed = support.zeros((*family.parents, family.child))
        if allowed is not None:
            allowed = allowed.reshape(family.probability.shape)
            some = allowed.any(axis=1, keepdims=True)
            for table in (family.probability, family.standard_error, family.interval_high):
                assert (np.nan_to_num(table)[some & ~allowed] == 0).all()
    records, _ = records_of(found, made)
    assert support.holds(records).all()


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_of_columns(epsilon) -> None:
    found, made = learned(epsilon, release=ReleaseRule(seed=1))
    check(found, made)
    for pair in found.pairs:
        allowed = made.support().zeros((pair.first, pair.second))
        assert allowed is None or (pair.high[~allowed] == 0).all()


@pytest.mark.whole
def test_of_noisy_tables() -> None:
    check(*of_noisy_tables(release=ReleaseRule(seed=1)))


@pytest.mark.whole
def test_privbayes_in_noisy_tables() -> None:
    rule = dataclasses.replace(study().structure, method="privbayes", score="total-variation")
    found, made = of_noisy_tables(structure=rule)
    assert found.network.dag.edges()
    check(found, made)


def test_a_joint_model_that_does_not_keep_the_rules_is_no_model_of_the_study() -> None:
    made = known_study()
    assert joint_fault(made, truth()) != ""
    codes = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 3, 0]], dtype=np.uint16)
    planted = WeightedRecords(n_states=N_STATES, codes=codes, weights=np.array([1 - 1e-9, 1e-9]))
    assert joint_fault(made, planted) == "a record does not meet the rule 'far'"
    assert joint_fault(made, dataclasses.replace(planted, weights=np.array([1.0, 0.0]))) == ""
    found, made = of_noisy_tables()
    assert found.joint is not None
    model, facts = published_joint(dataclasses.replace(found.joint, model=planted), made)
    assert model is None
    assert "kind" not in facts


def test_noise_where_nothing_can_be_is_taken_off_tables() -> None:
    support = known_study().support()
    tables = redrawn(empty(known_study()), truth(), np.random.default_rng(3))
    for before, after in zip(tables.tables, tables.without(support.zeros).tables, strict=True):
        allowed = support.zeros(before.units)
        np.testing.assert_array_equal(after.counts, before.counts if allowed is None else before.counts * allowed)
    found = tables.without(support.zeros).table((0, 3))
    assert found is not None
    assert (found.counts[0, 2:] == 0).all()
    randomized = dataclasses.replace(tables.units[3], channel=quantize(symmetric(4, epsilon=1.0)))
    units = (*tables.units[:3], randomized, tables.units[4])
    kept = dataclasses.replace(tables, units=units).without(support.zeros).table((0, 3))
    before = tables.table((0, 3))
    assert kept is not None
    assert before is not None
    np.testing.assert_array_equal(kept.counts, before.counts)


def test_noise_is_taken_off_the_combinations_of_a_compound() -> None:
    made = known_study()
    whole = empty(made)
    domain = tuple((a, b) for a in range(4) for b in range(2) if (a, b) != (1, 1))  # of v3 and v2, in this order
    pair = dataclasses.replace(whole.units[3], variables=(3, 2), domain=domain, channel=quantize(identity(7)))
    tables = NoisyTables(
        n_states=N_STATES,
        units=(whole.units[0], whole.units[1], pair, whole.units[4]),
        tables=(
            MeasuredTable(units=(0, 2), counts=np.ones((2, 7)), sigma=1.0, parts=(np.ones((2, 7)),)),
            MeasuredTable(units=(1, 3), counts=np.ones((3, 3)), sigma=1.0),
        ),
        n_records=None,
    )
    found = tables.without(made.support().zeros).tables[0]
    expected = [[not ((v0 == 0 and v3 > 1) or (v2 == 0 and v3 == 3)) for v3, v2 in domain] for v0 in range(2)]
    np.testing.assert_array_equal(found.counts, np.array(expected, dtype=float))
    np.testing.assert_array_equal(found.parts[0], found.counts)
