"""What the generator makes of rules and of its condition, without torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from verticil.gan.conditions import Term, body_probability, head_probability, parts_of, terms
from verticil.shared.numerics.knowledge.rules import Condition, Function, Groups, Knowledge, Order, Rule, SoftRule
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.numerics.model.schema import Schema, Variable


def variable(name: str, *labels: str, bins: tuple[float, ...] | None = None) -> Variable:
    return Variable(name=name, owner="a", labels=labels, bins=bins)


SCHEMA = Schema(
    variables=(
        variable("port", "53", "80", "443"),
        variable("protocol", "TCP", "UDP"),
        variable("sent", "low", "mid", "high", "?", bins=(0.0, 10.0, 20.0, 30.0)),
        variable("got", "few", "many", bins=(0.0, 10.0, 30.0)),
    )
)
SERVICE = Function(
    name="service of port",
    variable=variable("service", "dns", "web"),
    position=4,
    of=("port",),
    values=(("53", "dns"),),
    otherwise="web",
)
WEB = Condition(variable="service", values=("web",))
TCP = Condition(variable="protocol", values=("TCP",))
KNOWN = Knowledge(
    rules=(
        Rule(name="web is TCP", when=(WEB,), then=(TCP,)),
        Rule(name="no short dns by TCP", when=(TCP, Condition(variable="port", values=("53",)))),
        Rule(
            name="one of two",
            when=(Condition(variable="got", values=("few",)),),
            then=(TCP, Condition(variable="sent", values=("low", "?"))),
        ),
    ),
    orders=(Order(name="sent before got", lower="sent", upper="got"),),
    functions=(SERVICE,),
    groups=(Groups(name="kinds", variable="port", groups=(("names", ("53",)), ("pages", ("80", "443")))),),
    soft=(
        SoftRule(name="mostly many", when=(WEB,), then=(Condition(variable="got", values=("many",)),), probability=0.9),
    ),
)
EVERY = [np.array(column) for column in zip(*itertools.product(*map(range, SCHEMA.n_states)), strict=True)]


def one_hot(codes: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.eye(size)[column] for size, column in zip(SCHEMA.n_states, codes, strict=True)]


def hard(made: Sequence[Term]) -> list[Term]:
    return [term for term in made if term.probability == 1]


def test_rules_of_the_loss_are_met_by_the_very_records_that_meet_all_rules():
    """Each of the 48 records there can be."""
    broken = np.any([term.violated(EVERY) for term in hard(terms(KNOWN, SCHEMA))], axis=0)
    assert 0 < broken.sum() < len(broken)
    np.testing.assert_array_equal(~broken, support(KNOWN, SCHEMA).holds(EVERY))


def test_probabilities_of_certain_records_are_whether_bodies_and_heads_hold():
    for term in terms(KNOWN, SCHEMA):
        body, head = body_probability(one_hot(EVERY), term), head_probability(one_hot(EVERY), term)
        np.testing.assert_array_equal(body > 0.5, term.triggered(EVERY))
        np.testing.assert_array_equal((body > 0.5) & (head < 0.5), term.violated(EVERY))


def test_probabilities_of_independent_columns_are_sums_over_records():
    parts = [np.random.default_rng(3).dirichlet(np.ones(size), 1) for size in SCHEMA.n_states]
    weights = np.prod([part[0][column] for part, column in zip(parts, EVERY, strict=True)], axis=0)
    for term in terms(KNOWN, SCHEMA):
        assert body_probability(parts, term)[0] == pytest.approx(weights[term.triggered(EVERY)].sum())
        one = np.any([literal.holds(EVERY) for literal in term.head], axis=0)
        assert head_probability(parts, term)[0] == pytest.approx(weights[one].sum())


def test_a_function_whose_column_is_generated_is_a_rule_for_each_of_its_combinations():
    schema = Schema(variables=(*SCHEMA.variables, SERVICE.variable))
    made = terms(Knowledge(functions=(SERVICE,)), schema)
    port, service = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 1, 0])
    codes = [port, *(np.zeros(5, dtype=np.int64) for _ in range(3)), service]
    assert len(made) == 3
    assert np.any([term.violated(codes) for term in made], axis=0).tolist() == [False, True, False, False, True]
    assert terms(Knowledge(functions=(SERVICE,)), SCHEMA) == ()


def test_a_rows_condition_is_one_of_its_own_entries():
    made = terms(KNOWN, SCHEMA)
    parts = parts_of(KNOWN, SCHEMA, made)
    columns = sum(SCHEMA.n_states)
    assert (parts.n_items, parts.size) == (4 + 1 + 4, columns + 2 + 4)
    words = np.random.default_rng(4).random((len(EVERY[0]) * 200, 2))
    codes = [np.tile(column, 200) for column in EVERY]
    found = parts.entries(codes, words)
    own = np.concatenate(
        [
            np.concatenate(one_hot(codes), axis=1),
            np.eye(2)[np.array([0, 1, 1])[codes[0]]],
            np.stack([term.triggered(codes) for term in made if term.flagged], axis=1),
        ],
        axis=1,
    )
    assert (own[np.arange(len(found)), found] == 1).all()
    assert set(found.tolist()) == set(range(parts.size))
    # One item in nine, but for flags that a row does not set: then a column.
    assert np.mean((found >= columns) & (found < columns + 2)) == pytest.approx(1 / 9, abs=0.02)


def test_without_knowledge_there_are_columns_alone():
    parts = parts_of(None, SCHEMA, terms(None, SCHEMA))
    assert (parts.n_items, parts.size) == (4, sum(SCHEMA.n_states))
