"""The value that every source of tables fills in, and the two kinds of joint model."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import binary, identity, quantize
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.model.joint import Mixture, WeightedRecords

UNITS = tuple(ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(k))) for v, k in enumerate((2, 3, 2)))


def tables(*measured, n_records=None):
    return NoisyTables(n_states=(2, 3, 2), units=UNITS, tables=measured, n_records=n_records)


def table(units, sigma=0.0, value=1.0):
    return MeasuredTable(units=units, counts=np.full([(2, 3, 2)[u] for u in units], value), sigma=sigma)


def test_people_and_one_way_tables_are_means_by_precision() -> None:
    measured = tables(table((0, 1), 2.0, 10.0), table((0, 2), 1.0, 12.0), table((0, 1, 2), 3.0, 5.0))
    precision = np.array([1 / (6 * 4), 1 / (4 * 1), 1 / (12 * 9)])
    assert measured.people == pytest.approx(precision @ [60, 48, 60] / precision.sum())
    counts, variance = measured.one_way(0)
    precision = np.array([1 / (3 * 4), 1 / (2 * 1), 1 / (6 * 9)])
    assert counts == pytest.approx(precision @ [30, 24, 30] / precision.sum())
    assert variance == pytest.approx(1 / precision.sum())
    assert tables(table((0, 1), 2.0), table((0, 2)), n_records=7).people == 7
    assert tables(table((0, 1), 2.0), table((0, 2))).one_way(0)[1] == 0


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: tables(table((0, 1))), "a unit is in no table"),
        (lambda: tables(table((0, 1)), table((0, 1)), table((0, 2))), "two tables of the same units"),
        (lambda: MeasuredTable(units=(1, 0), counts=np.ones((3, 2))), "of the units"),
        (lambda: MeasuredTable(units=(0, 1), counts=np.ones((2, 3)), sigma=-1.0), "standard deviation -1"),
        (lambda: MeasuredTable(units=(0,), counts=np.array([1.0, np.nan])), "not finite"),
        (lambda: tables(MeasuredTable(units=(0, 1, 2), counts=np.ones((2, 2, 2)))), "has shape"),
        (lambda: NoisyTables(n_states=(2,), units=UNITS, tables=(), n_records=1), "each of 1 once"),
    ],
)
def test_what_does_not_belong_together_is_refused(wrong, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        wrong()


def test_randomized_units_are_known() -> None:
    randomized = ColumnUnit(variables=(0,), domain=None, channel=quantize(binary(0.1, 0.25)))
    one = MeasuredTable(units=(0,), counts=np.ones(2))
    assert NoisyTables(n_states=(2,), units=(randomized,), tables=(one,), n_records=2).is_randomized
    assert not tables(table((0, 1, 2))).is_randomized


def test_a_mixture_and_its_records_have_the_same_shares() -> None:
    rng = np.random.default_rng(3)
    weights = rng.dirichlet(np.ones(4))
    mixture = Mixture(weights=weights, probability=tuple(rng.dirichlet(np.ones(k), size=4) for k in (2, 3, 2)))
    everything = mixture.shares((0, 1, 2))
    assert everything.sum() == pytest.approx(1)
    codes = np.array(list(np.ndindex(2, 3, 2)))
    records = WeightedRecords(n_states=(2, 3, 2), codes=codes, weights=everything.ravel())
    for variables in ((2, 0), (1,), (2, 1, 0)):
        assert records.shares(variables) == pytest.approx(mixture.shares(variables))
    conditional = everything[:, 1] / everything[:, 1].sum()
    for model in (mixture.condition_on({1: 1}), records.condition_on({1: 1})):
        assert model.shares((0, 2)) == pytest.approx(conditional)
        assert model.shares((1,)) == pytest.approx([0, 1, 0])
    with pytest.raises(ValueError, match="impossible"):
        records.condition_on({1: 1}).condition_on({1: 0})
