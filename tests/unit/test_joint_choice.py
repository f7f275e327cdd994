"""Whether records come from the joint model or from the network is decided by tables that neither has seen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from verticil.shared.channels.transition import identity, quantize, symmetric
from verticil.shared.estimation.design import ColumnUnit
from verticil.shared.joint.choice import beta, is_joint_nearer, nearness, released_shares
from verticil.shared.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.model.joint import WeightedRecords

STATES = (2, 3, 2)
UNITS = (
    ColumnUnit(variables=(0, 2), domain=((0, 0), (0, 1), (1, 1)), channel=quantize(symmetric(3, epsilon=1.5))),
    ColumnUnit(variables=(1,), domain=None, channel=quantize(identity(3))),
)


def records(seed: int, rows: int = 400) -> WeightedRecords:
    """Records whose first and last column are in the domain of the compound."""
    generator = np.random.default_rng(seed)
    pairs = np.array(UNITS[0].domain)[generator.choice(3, rows, p=generator.dirichlet(np.ones(3)))]
    codes = np.column_stack([pairs[:, 0], generator.integers(0, 3, rows), pairs[:, 1]])
    return WeightedRecords(n_states=STATES, codes=codes.astype(np.uint16), weights=np.full(rows, 1 / rows))


def measured(shares: np.ndarray, *, n: int = 1000, sigma: float = 0.0) -> NoisyTables:
    return NoisyTables(
        n_states=STATES, units=UNITS, tables=(MeasuredTable(units=(0, 1), counts=n * shares, sigma=sigma),), n_records=n
    )


def test_what_a_model_expects_is_its_records_released_one_by_one() -> None:
    model, tables = records(1), measured(np.full((3, 3), 1 / 9))
    expected = np.zeros((3, 3))
    for (first, middle, last), weight in zip(model.codes.tolist(), model.weights, strict=True):
        row = UNITS[0].channel.probabilities[UNITS[0].domain.index((first, last))]
        expected[:, middle] += weight * row
    np.testing.assert_allclose(released_shares(model, tables, tables.tables[0]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sigma", [0.0, 5.0])
def test_beta_says_where_between_the_two_the_rest_lies_and_half_way_is_where_they_are_equally_near(
    sigma: float,
) -> None:
    joint, network, empty = records(1), records(2), measured(np.full((3, 3), 1 / 9))
    ours, theirs = (released_shares(model, empty, empty.tables[0]) for model in (joint, network))
    for share in (-0.5, 0.0, 0.49, 0.51, 1.0):
        rest = measured(theirs + share * (ours - theirs), sigma=sigma)
        sums = [nearness(joint, network, rest)]
        assert beta(sums) == pytest.approx(share, abs=1e-9)
        assert is_joint_nearer(sums) == (share > 0.5)
    rest = measured(np.random.default_rng(3).dirichlet(np.ones(9)).reshape(3, 3), sigma=sigma)
    weight = 1.0 if sigma else np.outer(ours.sum(axis=1), ours.sum(axis=0)) ** -0.5
    shares = rest.tables[0].counts / 1000
    misses = [(weight * (shares - model) ** 2).sum() for model in (ours, theirs)]
    assert is_joint_nearer([nearness(joint, network, rest)]) == (misses[0] <= misses[1])


def test_parts_are_added_up_and_equal_models_leave_it_to_the_joint_one() -> None:
    model = records(1)
    rest = measured(np.full((3, 3), 1 / 9))
    assert is_joint_nearer([nearness(model, model, rest)] * 2)
    assert beta([(0.2, 1.0), (2.0, 3.0)]) == pytest.approx(0.55)
    assert all(not is_joint_nearer(sums) for sums in itertools.permutations([(0.2, 1.0), (1.2, 2.0)]))
