"""How records are weighed: as the formula says, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import Transition, identity, quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import kernels
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables

STATES = (4, 3, 2)
CHANNELS = (quantize(symmetric(4, epsilon=2.0)), quantize(identity(3)), quantize(symmetric(2, epsilon=1.0)))
UNITS = tuple(ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(CHANNELS))
N = 5000


def people(seed: int, *, dependent: float = 0.6) -> list[np.ndarray]:
    """The second and third column depend on the first."""
    rng = np.random.default_rng(seed)
    first = rng.choice(4, N, p=[0.5, 0.25, 0.15, 0.1])
    second = np.where(rng.random(N) < dependent, first % 3, rng.integers(0, 3, N))
    third = np.where(rng.random(N) < dependent, first % 2, rng.integers(0, 2, N))
    return [first, second, third]


def tables_of(columns: list[np.ndarray], seed: int) -> NoisyTables:
    rng = np.random.default_rng(seed)
    released = [
        (rng.random(N)[:, None] > np.cumsum(channel.probabilities, axis=1)[column]).sum(axis=1).astype(np.uint8)
        for column, channel in zip(columns, CHANNELS, strict=True)
    ]
    pairs = from_columns(released, UNITS, STATES)
    counts = np.zeros(STATES)
    np.add.at(counts, tuple(released), 1.0)
    three = MeasuredTable(units=(0, 1, 2), counts=counts)
    return NoisyTables(n_states=STATES, units=UNITS, tables=(*pairs.tables, three), n_records=N)


def every_record() -> tuple[np.ndarray, np.ndarray]:
    """All combinations, and weights that are none of the tables'."""
    codes = np.stack(np.meshgrid(*map(np.arange, STATES), indexing="ij"), axis=-1).reshape(-1, 3).astype(np.uint16)
    weights = np.random.default_rng(5).dirichlet(np.full(len(codes), 2.0))
    return codes, weights


def through(table: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
    """Each axis times its matrix, from the left."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(table, matrix, axes=(axis, 0)), -1, axis)
    return table


def compared(pi: np.ndarray, f: np.ndarray, own: list[Transition]) -> tuple[np.ndarray, float]:
    """A table's shares as they are released, and chi: how far they are from f, margins out where it is of a pair."""
    matrices = [channel.probabilities for channel in own]
    e = through(pi, matrices)
    margins = [e.sum(axis=tuple(other for other in range(e.ndim) if other != axis)) for axis in range(e.ndim)]
    m = np.ones(())
    for margin in margins:
        m = np.multiply.outer(m, margin)
    m = np.maximum(m, 0.5 / N)
    off, rest = e - f, 1.0
    if e.ndim == 2:
        off = off - np.outer(off.sum(axis=1), margins[1]) - np.outer(margins[0], off.sum(axis=0))
        rest = np.prod([len(margin) - 1 for margin in margins]) / (e.size - 1)
    variance = e - through(pi, [matrix**2 for matrix in matrices])
    return e, N * (off**2 / m).sum() / (variance / m).sum() / rest


def table_of(codes: np.ndarray, weights: np.ndarray, units: tuple[int, ...]) -> np.ndarray:
    """Of records with weights, in shares."""
    pi = np.zeros([CHANNELS[unit].n_states for unit in units])
    np.add.at(pi, tuple(codes[:, unit] for unit in units), weights)
    return pi / pi.sum()


def one_sweep(tables: NoisyTables, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The text of `atoms`, word for word."""
    weights = weights.copy()
    for table in tables.tables:
        own = [CHANNELS[unit] for unit in table.units]
        matrices = [channel.probabilities for channel in own]
        f = table.counts / N
        e, chi = compared(table_of(codes, weights, table.units), f, own)
        contrast = np.prod([(np.trace(matrix) - 1) / (len(matrix) - 1) for matrix in matrices])
        power = max(0.0, 1 - 0.8 / chi) * min(10.0, 0.5 / contrast)
        factor = np.clip(through(f / e, [matrix.T for matrix in matrices]), 1 / 20, 20) ** power
        weights *= factor[tuple(codes[:, unit] for unit in table.units)]
    return weights / weights.sum()


@pytest.mark.parametrize("n", [0, 3, 4, 13])
def test_weights_of_any_number_of_records_are_added_to_their_cells(n: int) -> None:
    rng = np.random.default_rng(n)
    cells, weights = rng.integers(0, 3, n).astype(np.int32), rng.random(n)
    sums = np.ones(3)
    kernels.add_weights(cells, weights, sums)
    np.testing.assert_allclose(sums, 1 + np.bincount(cells, weights, minlength=3), rtol=1e-12)


def test_a_sweep_is_what_the_formula_says():
    """Of pairs and a triple, exact columns among them. A wrong power, damping, channel or cell gives other weights."""
    tables = tables_of(people(1), 2)
    codes, weights = every_record()
    found = atoms.rake(tables, codes, weights, sweeps=1, goal=0.0)
    assert found.sweeps == 1
    np.testing.assert_allclose(found.model.weights, one_sweep(tables, codes, weights), rtol=1e-9)


def test_tables_that_show_no_more_than_noise_are_left_alone():
    """The tables are those of the weights themselves: nothing moves. With one of them off it does."""
    codes, weights = every_record()
    full = weights.reshape(STATES)
    met = []
    for pair in ((0, 2), (1, 2), (0, 1)):
        (other,) = {0, 1, 2} - set(pair)
        matrices = [CHANNELS[unit].probabilities for unit in pair]
        met.append(MeasuredTable(units=pair, counts=N * through(full.sum(axis=other), matrices)))
    randomized = NoisyTables(n_states=STATES, units=UNITS, tables=tuple(met[:2]), n_records=N)
    found = atoms.rake(randomized, codes, weights, goal=0.0)
    assert found.sweeps == 0
    np.testing.assert_allclose(found.model.weights, weights, rtol=1e-12)
    off = MeasuredTable(units=(0, 2), counts=met[0].counts[::-1].copy())
    moved = NoisyTables(n_states=STATES, units=UNITS, tables=(off, met[1]), n_records=N)
    assert atoms.rake(moved, codes, weights, goal=0.0).sweeps > 0
