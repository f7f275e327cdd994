"""Wide tables, with fewer records that can be published than cells: the mixture is published, as much of it as can be.

What a mixture can be is made small here (`small`), so that a few columns are wide.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import estimate
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.checkpoints import Work
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noise import noised
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.tuning import TUNING
from verticil.shared.numerics.model.joint import JointModel, Mixture
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.formats import joint as published

D, K, N = 16, 4, 20_000
PAIRS = tuple(itertools.combinations(range(D), 2))


def _columns() -> list[NDArray[np.uint8]]:
    """Each a copy of one of the three before it with probability .8."""
    generator = np.random.default_rng(5)
    columns = [generator.integers(0, K, N)]
    for place in range(1, D):
        before = columns[generator.integers(max(place - 3, 0), place)]
        columns.append(np.where(generator.random(N) < 0.8, before, generator.integers(0, K, N)))
    return [column.astype(np.uint8) for column in columns]


COLUMNS = _columns()


def _tables() -> NoisyTables:
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(K))) for v in range(D)]
    return from_columns(COLUMNS, units, (K,) * D)


def _of_no_use(n: int, generator: np.random.Generator) -> list[NDArray[np.uint8]]:
    """Records of a network without an edge."""
    return [generator.integers(0, K, n).astype(np.uint8) for _ in range(D)]


def _distance(model: JointModel, tables: NoisyTables) -> float:
    """The mean total variation distance of all pairs."""
    by_units = {table.units: table.counts / N for table in tables.tables}
    return float(np.mean([0.5 * np.abs(model.shares(pair) - by_units[pair]).sum() for pair in PAIRS]))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atoms, "CELLS", 500 * (D * K + 26))
    monkeypatch.setattr(estimate, "_COMPONENT_CELLS", 400 * (D * K + 26))


@pytest.mark.usefixtures("small")
def test_fewer_records_than_cells_are_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = _tables()
    assert (
        sum(table.counts.size for table in tables.tables) == len(PAIRS) * K * K > atoms.n_atoms(tables.n_states) == 500
    )

    def weigh(*_: object) -> None:
        raise AssertionError("too few records are weighed")

    monkeypatch.setattr(estimate._Estimate, "_weigh", weigh)
    mixture = estimate.estimate(tables, seed=1, records=_of_no_use)
    assert mixture.kind == "mixture"
    assert mixture.size in {TUNING.sizes[0], dataclasses.replace(TUNING.sizes[2], fits=2, components=200, steps=600)}
    assert mixture.size != TUNING.sizes[0] or mixture.reached


@pytest.mark.usefixtures("small")
def test_a_mixture_that_is_nearer_than_weighed_records_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = _tables()
    monkeypatch.setattr(NoisyTables, "n_cells", 500)
    chosen = estimate.estimate(tables, seed=1, records=_of_no_use)
    monkeypatch.setattr(estimate._Estimate, "_sizes", lambda _self: ())
    weighed = estimate.estimate(tables, seed=1, records=_of_no_use)
    assert (chosen.kind, weighed.kind) == ("mixture", "records")
    assert _distance(chosen.model, tables) < 0.8 * _distance(weighed.model, tables)


@pytest.mark.usefixtures("small")
def test_no_more_components_are_fitted_than_can_be_published() -> None:
    """400: two fits of 200, of the eight and four that would be fitted otherwise."""
    sizes = {
        estimate._Estimate(_tables(), 1, None, allowed=None, zeros=None, work=Work())._can_publish(size)
        for size in TUNING.sizes
    }
    assert {(size.fits, size.components) for size in sizes} == {(8, 25), (8, 50), (2, 200)}


def test_with_noise_no_larger_sizes_are_tried_of_wide_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one would be farther in triples."""
    sizes = tuple(dataclasses.replace(size, fits=1, steps=2) for size in TUNING.sizes)
    tuning = dataclasses.replace(TUNING, sizes=sizes)
    monkeypatch.setattr(estimate, "TUNING", tuning)
    tables = noised(_tables(), 20.0, bytes(32))
    assert estimate.estimate(tables, seed=1).size.components == 200
    monkeypatch.setattr(estimate, "TUNING", dataclasses.replace(tuning, large=D * K - 1))
    assert estimate.estimate(tables, seed=1).size.components <= 50


def test_replicates_of_wide_tables_and_larger_sizes_stop_where_the_estimate_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others find their own stop, whatever the estimate's was."""
    tables = noised(_tables(), 20.0, bytes(32))
    product = Mixture(weights=np.ones(1), probability=(np.full((1, K), 1 / K),) * D)

    def again(steps: int, components: int) -> float:
        found = estimate.JointEstimate(
            model=product, kind="mixture", steps=steps, discrepancy=1.0, reached=True, alpha=1.0, guarded=True, start=(),
            size=dataclasses.replace(TUNING.sizes[0], components=components, steps=40),
        )  # fmt: skip
        made = estimate.refitted(tables, found, seed=2, fits=1)
        assert len(made.weights) == components
        return _distance(made, tables)

    assert again(2, 10) == again(30, 10)
    assert again(30, 60) < 0.9 * again(2, 60)
    monkeypatch.setattr(estimate, "TUNING", dataclasses.replace(TUNING, large=0))
    assert again(30, 10) < 0.9 * again(2, 10)


@pytest.mark.parametrize("n_states", [(2,) * 300, (4,) * 300, (3, 9) * 100, (10,) * 100, (20,) * 88])
def test_the_largest_mixture_can_be_published(n_states: tuple[int, ...]) -> None:
    """With the product of margins beside it, and labels of forty letters."""
    schema = Schema(variables=tuple(
        Variable(name=f"variable {v}", owner="hospital", labels=tuple(f"{code:040}" for code in range(k)))
        for v, k in enumerate(n_states)
    ))  # fmt: skip
    most = estimate.most_components(n_states)
    assert most >= 200
    assert most + 1 <= published.most_components(schema)
