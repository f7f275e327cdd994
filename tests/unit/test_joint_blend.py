"""Where a study leaves it open, records come from as much of the joint model and of the network as is nearest to the truth."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from support.noisy_tables import N_STATES, empty, study, truth
from verticil.miner.learning import source_mixture as blend
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import LearnResult, learn
from verticil.miner.learning.publication import published_joint
from verticil.miner.learning.search.protocol import Checkpoint, Interruption
from verticil.miner.learning.source_mixture import blend_models
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.design import ColumnUnit
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.replicates import people, redrawn
from verticil.shared.numerics.model.elimination import network_pair
from verticil.shared.numerics.model.joint import JointModel, WeightedRecords
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


def test_a_network_that_says_all_gets_most() -> None:
    """With the true arrows D is chance: of 60 draws a share was .24 in the mean, its standard deviation .26, so the mean of four
    is above .75 less than once in 10,000 tests. Of randomized columns, whose joint model is then of the network's own tables by
    whole rows, it is as near as the network (of 30 draws at epsilon 2 .0231 and .0232 from the chain in pairs), and the share may
    be any.
    """
    shares = []
    for seed in range(4):
        found = learned(of_chain(4000, seed), given(None)).joint
        assert found is not None
        shares.append(found.share)
    assert np.mean(shares) < 0.75


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


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_a_network_that_leaves_much_out_gets_nothing(epsilon) -> None:
    found = learned(of_chain(4000, 1), given(epsilon, NO_ARROWS)).joint
    assert found is not None
    assert found.share == 1.0


def test_a_blend_has_the_tables_between_both_and_the_same_input_gives_the_same() -> None:
    """Of a network without arrows, from which the joint model is far."""
    made = dataclasses.replace(given(2.0, NO_ARROWS), release=ReleaseRule(sample_from="joint"))
    result = learned(of_chain(2000, 5), made)
    tables = from_columns(of_chain(2000, 5), [made.column_unit(i) for i in range(5)], N_STATES)
    assert result.joint is not None
    assert isinstance(result.joint.model, WeightedRecords)
    for joint in (result.joint, dataclasses.replace(result.joint, drawn=None)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("verticil.miner.learning.source_mixture.share_of_joint", lambda above, below: 0.4)
            first = blend_models(joint, result.network, tables, seed=3)
            again = blend_models(joint, result.network, tables, seed=3) if joint is result.joint else first
        assert isinstance(first.model, WeightedRecords)
        assert isinstance(again.model, WeightedRecords)
        assert np.array_equal(first.model.codes, again.model.codes)
        assert np.array_equal(first.model.weights, again.model.weights)
        assert first.share == 0.4
        for pair in itertools.combinations(range(5), 2):
            between = 0.4 * result.joint.model.shares(pair) + 0.6 * network_pair(result.network, *pair)
            assert np.abs(first.model.shares(pair) - between).sum() < 0.01
    far = result.joint.model.shares((0, 1)) - network_pair(result.network, 0, 1)
    assert np.abs(far).sum() > 0.1


@pytest.mark.whole
def test_of_noisy_tables_it_is_a_function_of_them_and_the_network_stays() -> None:
    asked = dataclasses.replace(study(), tables=TablesRule(epsilon=1.0, delta=1e-9))
    measured = redrawn(empty(study()), truth(), np.random.default_rng(8))
    whole = learn_from_tables(measured, asked)
    opened = learn_from_tables(measured, dataclasses.replace(asked, release=OPEN))
    assert whole.joint is not None
    assert opened.joint is not None
    assert whole.joint.share == 1.0
    for one, other in zip(whole.network.families, opened.network.families, strict=True):
        assert np.array_equal(one.probability, other.probability)


def test_what_is_published_and_said() -> None:
    made = dataclasses.replace(given(None), release=ReleaseRule(sample_from="joint"))
    found = learned(of_chain(500, 2), made).joint
    assert found is not None
    assert "sampled_from" not in published_joint(found, made)[1]
    opened = given(None)
    for share in (0.0, 0.4, 1.0):
        model, facts = published_joint(dataclasses.replace(found, share=share), opened)
        assert facts["sampled_from"] == {"joint": share, "network": pytest.approx(1 - share)}
        assert (model is None) == (share == 0)
    large = dataclasses.replace(found, share=0.4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("verticil.miner.learning.publication.fits", lambda model, schema: False)
        assert published_joint(large, opened) == (None, {"sampled_from": {"joint": 0.0, "network": 1.0}})


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


def test_people_who_are_drawn_again_are_released_as_the_study_says() -> None:
    """Shares of 40,000 people are within 5 standard deviations of what the channels say: of 12 cells once in 100,000 tests."""
    channels: list[Any] = [quantize(symmetric(3, epsilon=1.0)), subset_selection(9, epsilon=1.0)]
    units = tuple(ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(channels))
    codes = np.array([[0, 0], [1, 4], [2, 8]], dtype=np.uint16)
    model = WeightedRecords(n_states=(3, 9), codes=codes, weights=np.array([0.2, 0.3, 0.5]))
    columns = [np.zeros(4, np.uint8), np.zeros((4, channels[1].codes_per_record), np.uint16)]
    shape: NoisyTables = from_columns(columns, units, (3, 9))
    drawn = people(shape, model, 40_000, np.random.default_rng(4))
    assert [column.shape for column in drawn] == [(40_000,), (40_000, channels[1].size)]
    assert all(len(set(record)) == channels[1].size for record in drawn[1][:100].tolist())
    for column, unit in zip(drawn, units, strict=True):
        share = np.bincount(column.ravel(), minlength=unit.channel.n_states) / column.size
        expected = model.shares(unit.variables) @ unit.channel.probabilities
        assert (np.abs(share - expected) < 5 * np.sqrt(expected / 40_000)).all()


def test_the_tables_of_a_wide_network_are_read_from_a_sample(monkeypatch) -> None:
    """Within 5 standard deviations: of 100 cells once in 20,000 samples."""
    network = learned(
        of_chain(500, 2), dataclasses.replace(given(None), release=ReleaseRule(sample_from="network"))
    ).network
    exact = blend._network_shares(network, None, lambda: None)
    monkeypatch.setattr(blend, "_EXACT_PAIRS", 0)
    sampled = blend._network_shares(network, None, lambda: None)
    for one, other in zip(exact, sampled, strict=True):
        assert not np.array_equal(one, other)
        assert (np.abs(one - other) <= 5 * np.sqrt(one * (1 - one) / 1e6)).all()


@pytest.mark.parametrize(("b", "share"), [(0.4, 0.0), (0.6, 1.0)])
def test_of_wide_tables_the_nearer_model_is_taken_alone(b: float, share: float, monkeypatch) -> None:
    """There are too few weighted records for a blend."""
    columns = of_chain(500, 2)
    found = learned(columns, dataclasses.replace(given(None), release=ReleaseRule(sample_from="joint")))
    assert found.joint is not None
    units = [given(None).column_unit(index) for index in range(len(columns))]
    monkeypatch.setattr(blend, "WORLDS", 1)
    monkeypatch.setattr(blend, "share_of_joint", lambda _above, _below: b)
    tables = from_columns(columns, units, N_STATES)
    blended_so = blend_models(found.joint, found.network, tables, seed=1)
    assert (blended_so.share, blended_so.model is found.joint.model) == (b, False)
    monkeypatch.setattr(blend, "too_few_records", lambda _: True)
    alone = blend_models(found.joint, found.network, tables, seed=1)
    assert (alone.share, alone.model is found.joint.model) == (share, True)
