"""Exact inference against the whole joint table of small networks, multiplied out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.elimination import condition, network_marginals
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable

PARENTS = ((), (0,), (0,), (1, 2), (3,), (2, 3))
STATES = (2, 3, 2, 3, 2, 4)


def network_of(
    parents: tuple[tuple[int, ...], ...] = PARENTS,
    states: tuple[int, ...] = STATES,
    *,
    seed: int = 3,
    zeros: bool = False,
) -> Network:
    generator = np.random.default_rng(seed)
    families = []
    for child, family in enumerate(parents):
        table = generator.dirichlet(np.ones(states[child]), int(np.prod([states[p] for p in family], dtype=int)))
        if zeros:
            table[:, 0] = 0.0
            table /= table.sum(axis=1, keepdims=True)
        families.append(
            Family(
                child=child,
                parents=family,
                probability=table,
                estimate=table,
                standard_error=table,
                interval_low=table,
                interval_high=table,
                unstable=np.zeros(table.shape, dtype=np.bool_),
            )
        )
    variables = tuple(Variable(name=f"v{i}", owner="a", labels=tuple(map(str, range(k)))) for i, k in enumerate(states))
    return Network(schema=Schema(variables=variables), dag=Dag(parents=parents), families=tuple(families))


def joint(network: Network) -> np.ndarray:
    states = network.schema.n_states
    table = np.ones(states)
    for cell in itertools.product(*map(range, states)):
        for child, family in enumerate(network.families):
            row = 0
            for parent in family.parents:
                row = row * states[parent] + cell[parent]
            table[cell] *= family.probability[row, cell[child]]
    return table


@pytest.mark.parametrize("seed", range(4))
def test_marginals_are_those_of_the_joint(seed: int) -> None:
    network = network_of(seed=seed)
    whole = joint(network)
    for variable, share in enumerate(network_marginals(network)):
        others = tuple(v for v in range(len(STATES)) if v != variable)
        np.testing.assert_allclose(share, whole.sum(axis=others), rtol=0, atol=1e-14)


def test_tables_of_any_variables_are_those_of_the_joint_in_the_order_asked_for() -> None:
    network = network_of()
    whole, factors = joint(network), []
    for child, parents in enumerate(PARENTS):
        shape = [STATES[v] for v in (*parents, child)]
        factors.append(((*parents, child), network.families[child].probability.reshape(shape)))
    for members in ((5, 1, 3), (2,), (4, 0)):
        others = tuple(v for v in range(len(STATES)) if v not in members)
        expected = whole.sum(axis=others).transpose(np.argsort(np.argsort(members)))
        np.testing.assert_allclose(elimination.sum_out(factors, STATES, members), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("evidence", [{}, {5: 2}, {3: 0, 4: 1}, {0: 1, 5: 3, 4: 0}, dict.fromkeys(range(6), 1)])
def test_the_steps_multiply_to_the_conditional_joint(evidence: dict[int, int]) -> None:
    network = network_of()
    whole = joint(network)
    kept = whole[tuple(evidence.get(v, slice(None)) for v in range(6))]
    steps = condition(network, evidence)
    assert sorted([*evidence, *(step.child for step in steps)]) == list(range(6))
    for cell in itertools.product(*map(range, STATES)):
        if any(cell[v] != code for v, code in evidence.items()):
            continue
        product, drawn = 1.0, set()
        for step in steps:
            assert set(step.parents) <= drawn, "a step needs what is not drawn yet"
            drawn.add(step.child)
            row = 0
            for parent in step.parents:
                row = row * STATES[parent] + cell[parent]
            product *= step.probability[row, cell[step.child]]
        assert product == pytest.approx(whole[cell] / kept.sum(), rel=1e-10)


def test_evidence_that_cannot_be() -> None:
    network = network_of(zeros=True)
    with pytest.raises(ValueError, match="probability 0"):
        condition(network, {1: 0})
    with pytest.raises(ValueError, match="out of range"):
        condition(network, {1: 3})
    with pytest.raises(ValueError, match="out of range"):
        condition(network, {9: 0})


def test_a_table_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 10)
    with pytest.raises(ValueError, match="cells, expected at most 10"):
        condition(network_of(), {})
