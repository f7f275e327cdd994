"""Joint estimates of extreme tables: two categories, a thousand, 50 people, noise beyond all counts, a checkpoint of before.

Seeds are fixed. Bounds that noise could miss are at least four standard errors away, a false alarm in 15,000 seeds or fewer.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support.noisy_tables import PEOPLE, empty, redrawn, study, truth
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import LearnResult
from verticil.miner.learning.search.protocol import Checkpoint, Interruption
from verticil.miner.storage.checkpoint import CheckpointFile, resume
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import estimate as joint_estimate
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate
from verticil.shared.numerics.joint.noise import noised
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.prediction import predict
from verticil.shared.numerics.joint.tuning import TUNING
from verticil.shared.synthesis.joint_records import joint_codes

Columns = list[NDArray[np.uint16]]


def copies(n_states: tuple[int, ...], n: int) -> Columns:
    """Columns that rise together: a common number, and half as much of their own."""
    rng = np.random.default_rng(3)
    common = rng.random(n)
    return [(k * (common + rng.random(n) / 2) / 1.5).astype(np.uint16) for k in n_states]


def counted(columns: Columns, n_states: tuple[int, ...], epsilon: float | None = None) -> NoisyTables:
    """The tables of all pairs, of the columns or of randomized ones."""
    channels = [quantize(identity(k) if epsilon is None else symmetric(k, epsilon=epsilon)) for k in n_states]
    units = [ColumnUnit(variables=(place,), domain=None, channel=channel) for place, channel in enumerate(channels)]
    rng = np.random.default_rng(4)
    if epsilon is not None:
        ends = [channel.probabilities.cumsum(axis=1)[:, :-1] for channel in channels]
        columns = [
            (rng.random(len(column))[:, None] >= end[column]).sum(axis=1).astype(np.uint16)
            for column, end in zip(columns, ends, strict=True)
        ]
    return from_columns(columns, units, n_states)


def checked(found: JointEstimate, n: int) -> Columns:
    """Records of an estimate, whose numbers are shares."""
    assert 0 <= found.alpha <= 1
    for pair in itertools.combinations(range(len(found.model.n_states)), 2):
        shares = found.model.shares(pair)
        assert np.isfinite(shares).all()
        assert shares.min() >= 0
        assert shares.sum() == pytest.approx(1)
    records = joint_codes(found.model, n, generator=np.random.default_rng(5))
    assert all(len(column) == n for column in records)
    assert all(int(column.max()) < k for column, k in zip(records, found.model.n_states, strict=True))
    return [column.astype(np.uint16) for column in records]


def distance(records: Columns, columns: Columns, n_states: tuple[int, ...]) -> float:
    """The total variation distance of the table of the first two columns."""
    ours, theirs = (
        np.bincount(own[0].astype(int) * n_states[1] + own[1], minlength=n_states[0] * n_states[1]) / len(own[0])
        for own in (records, columns)
    )
    return float(np.abs(ours - theirs).sum() / 2)


@pytest.mark.parametrize("epsilon", [14.0, 30.0])
def test_columns_that_are_moved_next_to_never_keep_what_goes_together(epsilon: float) -> None:
    """At 30 single precision had their variance below zero, and the fit stopped before its first step, independent."""
    n_states, n = (2, 3, 2), 2_000
    columns = copies(n_states, n)
    found = estimate(counted(columns, n_states, epsilon), seed=1)
    assert found.discrepancy > 0
    assert distance(checked(found, n), columns, n_states) < 0.05


@pytest.mark.parametrize("epsilon", [None, 2.0])
@pytest.mark.parametrize("sigma", [0.0, 20.0])
def test_two_columns_of_two_categories(epsilon: float | None, sigma: float) -> None:
    """One table of four cells. At epsilon 2 a cell's standard error is below .007, noise adds .003."""
    columns = copies((2, 2), 5_000)
    tables = counted(columns, (2, 2), epsilon)
    found = estimate(noised(tables, sigma, bytes(32)) if sigma else tables, seed=1)
    assert distance(checked(found, 5_000), columns, (2, 2)) < 0.06


@pytest.mark.whole
@pytest.mark.parametrize("sigma", [0.0, 20.0])
def test_a_column_of_a_thousand_categories(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside two small ones, 5 people a category: the small ones' table is near, and the wide one's shares are of the people."""
    sizes = tuple(dataclasses.replace(size, fits=2, steps=60) for size in TUNING.sizes[:2])
    monkeypatch.setattr(joint_estimate, "TUNING", dataclasses.replace(TUNING, sizes=sizes))
    n_states = (3, 2, 1_000)
    columns = copies(n_states, 5_000)
    tables = counted(columns, n_states)
    found = estimate(noised(tables, sigma, bytes(32)) if sigma else tables, seed=1)
    assert distance(checked(found, 5_000), columns, n_states) < 0.03
    wide = found.model.shares((2,)).ravel()
    third = np.add.reduceat(wide, [0, 333, 666])
    real = np.add.reduceat(np.bincount(columns[2], minlength=1_000) / 5_000, [0, 333, 666])
    assert np.abs(third - real).max() < 0.05


@pytest.mark.parametrize(("epsilon", "sigma"), [(None, 0.0), (1.0, 0.0), (None, 15.0)])
def test_fifty_people(epsilon: float | None, sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares and records come out, and the prediction says of what is drowned that it is no nearer."""
    monkeypatch.setattr(atoms, "ATOMS", 2_000)
    n_states = (2, 3, 4, 5)
    columns = copies(n_states, 50)
    tables = counted(columns, n_states, epsilon)
    network = None if sigma else (lambda n, rng: [rng.integers(0, k, n).astype(np.uint16) for k in n_states])
    found = estimate(noised(tables, sigma, bytes(32)) if sigma else tables, seed=1, records=network)
    checked(found, 50)
    predicted = predict([unit.channel for unit in tables.units], 50, sigma=sigma)
    assert predicted is not None
    assert predicted.no_nearer == (epsilon is not None or sigma > 0)


@pytest.mark.parametrize("public", [True, False])
def test_noise_of_a_thousand_times_the_counts(public: bool) -> None:
    """The fit stops before it shows the noise as dependence: no pair is farther than .05 from independent columns.

    The number of people may have to be estimated, too, and then comes out as far below 0 as above. The guard's alpha, which is a
    quotient of two sums of noise, is by chance any number here.
    """
    n_states = (2, 3, 4)
    exact = counted(copies(n_states, 96), n_states)  # 16, 12 and 8 people a cell
    tables = noised(dataclasses.replace(exact, n_records=96 if public else None), 16_000.0, bytes(32))
    found = estimate(tables, seed=1)
    checked(found, 100)
    for pair in ((0, 1), (0, 2), (1, 2)):
        shares = found.model.shares(pair)
        alone = np.outer(shares.sum(axis=1), shares.sum(axis=0))
        assert np.abs(shares - alone).sum() / 2 < 0.05


@pytest.mark.whole
def test_a_checkpoint_of_the_estimator_before_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A site that is updated in the middle of an estimate has the file of the old estimator: other pieces by other names."""
    tables, given = redrawn(empty(study()), truth(), np.random.default_rng(8)), study()

    def learned(interruption: Interruption) -> LearnResult:
        return learn_from_tables(tables, given, interruption=interruption)

    kept: list[Checkpoint] = []
    whole = learned(Interruption(keep=lambda make: kept.append(make()) if len(kept) < 3 else None))
    with monkeypatch.context() as before:
        before.setattr(
            joint_estimate, "TUNING", dataclasses.replace(TUNING, sizes=TUNING.sizes[:2])
        )  # the identity has the sizes in it
        foreign = joint_estimate._identity(tables, given.structure.seed)
    old = {key.replace("tables as they are", "mixture"): array for key, array in kept[-1].items()}
    assert old.keys() != kept[-1].keys()
    old["joint:work"] = np.frombuffer(foreign, np.uint8)
    path = tmp_path / "checkpoint"
    CheckpointFile(path, bytes(32), what="study").write(old)
    with caplog.at_level(logging.WARNING):
        again = resume(learned, path, bytes(32), is_cancelled=lambda: False, what="study")
    assert "begins anew" in caplog.text
    assert whole.joint is not None
    assert again.joint is not None
    assert np.array_equal(whole.joint.model.shares((0, 1, 2)), again.joint.model.shares((0, 1, 2)))
    assert tables.n_records == PEOPLE
