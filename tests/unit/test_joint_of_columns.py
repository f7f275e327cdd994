"""The joint model of columns: which studies have one, what it has beside the network, and what a release says of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support.noisy_tables import N_STATES, study
from verticil.miner.learning.learn import LearnResult, learn
from verticil.miner.learning.publication import published_joint
from verticil.miner.learning.search.protocol import Checkpoint, Interruption
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.study.document import ParameterRule, ReleaseRule, Study, TablesRule

CHAIN = tuple((f"v{i}", () if i == 0 else (f"v{i - 1}",)) for i in range(5))
NO_ARROWS = tuple((name, ()) for name, _ in CHAIN)
OPEN = ReleaseRule()


def of_chain(n: int, seed: int) -> list[np.ndarray]:
    """Five columns, each a noisy copy of the one before: what a chain says, and no more."""
    generator = np.random.default_rng(seed)
    columns = [generator.integers(0, N_STATES[0], n)]
    for k in N_STATES[1:]:
        columns.append(np.where(generator.random(n) < 0.5, columns[-1] % k, generator.integers(0, k, n)))
    return [column.astype(np.uint8) for column in columns]


def given(epsilon: float | None, parents=CHAIN) -> Study:
    made = study(method="given", parents=parents, minimum_strength=None)
    channel = [identity(k) if epsilon is None else symmetric(k, epsilon=epsilon) for k in N_STATES]
    units = tuple(
        dataclasses.replace(unit, transition=quantize(c)) for unit, c in zip(made.units, channel, strict=True)
    )
    return dataclasses.replace(made, units=units, release=OPEN)


def learned(columns: list[np.ndarray], made: Study) -> LearnResult:
    """The columns randomized, and learned from."""
    generator = np.random.default_rng(1)
    released = [
        (generator.random(len(c))[:, None] >= unit.transition.probabilities.cumsum(axis=1)[c][:, :-1]).sum(axis=1)
        for c, unit in zip(columns, made.units, strict=True)
    ]
    return learn([column.astype(np.uint8) for column in released], made)


def test_an_estimate_of_columns_goes_on_where_it_was_stopped() -> None:
    made = dataclasses.replace(given(2.0), release=ReleaseRule(sample_from="joint", seed=1))
    kept: list[Checkpoint] = []
    steps: list[list[int]] = []

    def estimated(interruption: Interruption) -> JointModel:
        percents: list[int] = []
        steps.append(percents)
        found = learn(
            of_chain(500, 0),
            made,
            progress=lambda stage, percent: percents.append(percent) if stage == "estimating" else None,
            interruption=interruption,
        ).joint
        assert found is not None
        return found.model

    whole = estimated(Interruption(keep=lambda make: kept.append(make())))
    again = estimated(Interruption(checkpoint=kept[-1]))
    assert len(steps[1]) < len(steps[0])
    assert np.array_equal(again.weights, whole.weights)


def test_records_have_the_dependence_that_the_network_leaves_out() -> None:
    """Of a network without arrows; as they are the columns' tables are met, and the study need not ask for it."""
    made = given(None, NO_ARROWS)
    columns = of_chain(4000, 1)
    found = learned(columns, made).joint
    assert found is not None
    assert found.kind == "records"
    tables = from_columns(columns, [made.column_unit(i) for i in range(5)], N_STATES)
    for table in tables.tables:
        assert np.abs(found.model.shares(table.units) - table.counts / 4000).sum() < 0.01


def test_what_is_published_and_said() -> None:
    made = given(None)
    found = learned(of_chain(500, 2), made).joint
    assert found is not None
    model, facts = published_joint(found, made)
    assert model is not None
    assert set(facts) == {"kind", "steps", "discrepancy", "reached", "share_of_the_model"}
    far = dataclasses.replace(found, reached=False, tables_nearer=1.5)
    assert published_joint(far, made)[1]["tables_nearer"] == 1.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("verticil.miner.learning.publication.fits", lambda model, schema: False)
        assert published_joint(found, made) == (None, {})
    network = dataclasses.replace(made, release=ReleaseRule(sample_from="network"))
    assert published_joint(found, network) == (None, {})


def test_which_studies_leave_it_open() -> None:
    opened = given(None)
    assert opened.leaves_source_open
    for rule in ("joint", "network"):
        assert not dataclasses.replace(opened, release=ReleaseRule(sample_from=rule)).leaves_source_open
    before = dataclasses.replace(opened, parameters=ParameterRule(prior_count=0.5))
    assert not before.leaves_source_open
    assert dataclasses.replace(before, tables=TablesRule(epsilon=1.0, delta=1e-9)).leaves_source_open
    apart = dataclasses.replace(opened.structure, forbidden=(("v0", "v1"),))
    assert not dataclasses.replace(opened, structure=apart).leaves_source_open
