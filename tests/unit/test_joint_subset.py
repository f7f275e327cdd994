"""The joint estimate of columns whose records are released as sets of w categories: its variance, and what it finds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verticil.shared.mechanisms.subset import Subset, subset_selection
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import mixture
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.checkpoints import Work
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import estimate
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.one_way import one_way_shares
from verticil.shared.numerics.joint.stopping import Discrepancy
from verticil.shared.numerics.joint.targets import targets

STATES = (10, 8, 3)
RUNS = 40


def unit(variable: int, channel: object) -> ColumnUnit:
    return ColumnUnit(variables=(variable,), domain=None, channel=channel)  # type: ignore[arg-type]


UNITS = (
    unit(0, subset_selection(10, epsilon=1.0)),  # sets of 2
    unit(1, subset_selection(8, epsilon=1.0)),  # sets of 2
    unit(2, quantize(symmetric(3, epsilon=1.0))),
)


def people(n: int, seed: int, *, dependent: float) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 10, n)
    second = np.where(rng.random(n) < dependent, first % 8, rng.integers(0, 8, n))
    third = np.where(rng.random(n) < dependent, second % 3, rng.integers(0, 3, n))
    return [first, second, third]


def released(columns: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Each column through its channel: sets as (n, w)."""
    found = []
    for column, of in zip(columns, UNITS, strict=True):
        channel = of.channel
        if isinstance(channel, Subset):  # the true category comes first or last, the others in random order
            order = rng.random((len(column), channel.n_states))
            order[np.arange(len(column)), column] = np.where(rng.random(len(column)) < channel.keep, -1, 2)
            found.append(np.sort(np.argsort(order, axis=1)[:, : channel.size], axis=1).astype(np.uint8))
        else:
            below = np.cumsum(channel.probabilities, axis=1)[column]
            found.append((rng.random(len(column))[:, None] > below).sum(axis=1).astype(np.uint8))
    return found


def undivided(tables: NoisyTables) -> NoisyTables:
    """The planted fault: the same channels and counts, with a variance of e instead of e / w."""
    units = tuple(dataclasses.replace(of, channel=quantize(of.channel.probabilities)) for of in tables.units)
    assert all(of.channel.codes_per_record == 1 for of in units)
    return dataclasses.replace(tables, units=units)


def of_fit(tables: NoisyTables, columns: list[np.ndarray]) -> float:
    """The discrepancy of the true people by the mixture's measure: each is a component."""
    aims = targets(tables, one_way_shares(tables))
    rows = np.concatenate([np.eye(k, dtype=np.float32)[c] for k, c in zip(STATES, columns, strict=True)], axis=1)
    stop = Discrepancy([aims])
    mixture.residual_gradient([aims], rows[None], stop, Work())
    return stop.discrepancy


def of_raking(tables: NoisyTables, columns: list[np.ndarray]) -> float:
    codes, counts = np.unique(np.stack(columns, axis=1).astype(np.uint16), axis=0, return_counts=True)
    return atoms.rake(tables, codes, counts / counts.sum(), sweeps=0).discrepancy


def at_the_goal(found: list[float]) -> bool:
    """The mean of the runs lies within 4 standard errors of 1, and .05 for the part of the variance that margins leave, which is
    known to a few per cent (of 300 runs each the means were 1.01 to 1.04): falsely rejected with a chance of 6e-5 at most.
    """
    return bool(abs(np.mean(found) - 1) < 4 * np.std(found) / RUNS**0.5 + 0.05)


@pytest.mark.parametrize("measure", [of_fit, of_raking])
def test_true_people_are_at_the_goal_and_with_the_variance_of_whole_records_far_below(measure) -> None:
    rng, columns = np.random.default_rng(6), people(2000, 5, dependent=0.5)
    right, wrong = [], []
    for _ in range(RUNS):
        tables = from_columns(released(columns, rng), UNITS, STATES, parts=1)
        right.append(measure(tables, columns))
        wrong.append(measure(undivided(tables), columns))

    assert at_the_goal(right)
    assert not at_the_goal(wrong)


def test_with_noise_on_the_tables_independent_people_are_at_the_goal_too() -> None:
    """Noise nearly as large as the scatter of the randomization."""
    rng = np.random.default_rng(8)
    right, wrong = [], []
    for seed in range(RUNS):
        columns = people(2000, seed, dependent=0.0)
        tables = from_columns(released(columns, rng), UNITS, STATES, parts=1)
        noisy = tuple(
            dataclasses.replace(t, counts=t.counts + rng.normal(0, 2.0, t.counts.shape), sigma=2.0)
            for t in tables.tables
        )
        tables = dataclasses.replace(tables, tables=noisy)
        right.append(of_fit(tables, columns))
        wrong.append(of_fit(undivided(tables), columns))
    assert at_the_goal(right)
    assert not at_the_goal(wrong)


def test_an_estimate_from_sets_is_nearer_than_independent_columns() -> None:
    columns = people(20_000, 2, dependent=0.7)
    found = estimate(from_columns(released(columns, np.random.default_rng(3)), UNITS, STATES), seed=3)
    assert found.reached
    for a, c in ((0, 1), (0, 2), (1, 2)):
        real = np.bincount(columns[a] * STATES[c] + columns[c], minlength=STATES[a] * STATES[c]) / 20_000
        real = real.reshape(STATES[a], STATES[c])
        product = np.outer(real.sum(axis=1), real.sum(axis=0))
        ours, independent = (np.abs(table - real).sum() / 2 for table in (found.model.shares((a, c)), product))
        assert ours < 0.8 * independent
