"""The strength of edges: the bootstrap over released tables against one over records, and against planted structures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from verticil.miner.learning import strength
from verticil.miner.learning.family_scores import FamilyScores
from verticil.miner.learning.strength import edge_strengths, without_member
from verticil.miner.learning.tables import FamilyTables
from verticil.shared.channels.subset import subset_selection
from verticil.shared.channels.transition import Transition, identity, quantize, symmetric
from verticil.shared.estimation.axes import apply_axes
from verticil.shared.estimation.design import ColumnUnit, as_design, family_design
from verticil.shared.model.graph import Dag


def randomized(column: np.ndarray, channel: Transition, generator: np.random.Generator) -> np.ndarray:
    cumulative = np.cumsum(channel.probabilities, axis=1)[:, :-1]
    return (generator.random(len(column))[:, None] >= cumulative[column]).sum(axis=1).astype(np.uint8)


def tables_of(columns: list[np.ndarray], channels: list[Transition]) -> FamilyTables:
    units = [ColumnUnit(variables=(v,), domain=None, channel=channel) for v, channel in enumerate(channels)]
    return FamilyTables(columns, units, [c.n_states for c in channels], [f"v{v}" for v in range(len(channels))])


def three(n: int, link: float, seed: int, channel: Transition) -> list[np.ndarray]:
    """0 -> 2 strongly, 1 -> 2 with probability `link`."""
    generator = np.random.default_rng(seed)
    first, second, noise = (generator.integers(0, 2, n) for _ in range(3))
    child = np.where(generator.random(n) < 0.4, first, np.where(generator.random(n) < link, second, noise))
    return [randomized(column, channel, generator) for column in (first, second, child)]


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_a_strong_edge_is_sure_and_a_planted_false_one_is_not(epsilon):
    channel = quantize(identity(2) if epsilon is None else symmetric(2, epsilon=epsilon))
    found = edge_strengths(
        Dag(parents=((), (), (0, 1))), tables_of(three(20_000, 0.0, 1, channel), [channel] * 3), seed=4
    )
    assert set(found) == {(0, 2), (1, 2)}
    assert found[0, 2] == 1.0
    assert found[1, 2] < 0.5


def test_the_same_seed_gives_the_same_strengths_whatever_else_is_in_the_network():
    channel = quantize(symmetric(2, epsilon=2.0))
    tables = tables_of(three(3000, 0.05, 2, channel), [channel] * 3)
    small = edge_strengths(Dag(parents=((), (), (1,))), tables, seed=4)
    large = edge_strengths(Dag(parents=((1,), (), (1,))), tables, seed=4)
    assert small[1, 2] == large[1, 2]
    assert small == edge_strengths(Dag(parents=((), (), (1,))), tables, seed=4)


def test_resampling_tables_is_resampling_records():
    """A borderline edge. Both are shares of 150 draws: they differ by less than 5 standard errors of the difference, .29.

    The null (equal chances) is rejected with a probability below 1e-6.
    """
    channel = quantize(symmetric(2, epsilon=2.0))
    columns = three(4000, 0.06, 7, channel)
    dag, samples = Dag(parents=((), (), (0, 1))), 150
    found = edge_strengths(dag, tables_of(columns, [channel] * 3), seed=1, samples=samples)[1, 2]

    def gain(rows: np.ndarray) -> float:
        scores = FamilyScores(tables_of([column[rows] for column in columns], [channel] * 3))
        return scores.bic_noise(2, (0, 1)) - scores.bic_noise(2, (0,))

    generator = np.random.default_rng(5)
    observed = gain(np.arange(4000))
    again = np.array([gain(generator.integers(0, 4000, 4000)) for _ in range(samples)])
    expected = float((again - again.mean() + observed > 0).mean())
    assert 0.05 < expected < 0.95
    assert abs(found - expected) < 5 * np.sqrt(2 * 0.25 / samples)


def test_a_compound_and_a_subset_have_strengths_too():
    generator = np.random.default_rng(8)
    n = 8000
    a, b, c = generator.integers(0, 2, n), generator.integers(0, 3, n), generator.integers(0, 8, n)
    child = np.where(generator.random(n) < 0.7, a, c % 2)
    pair, sets = quantize(symmetric(6, epsilon=4.0)), subset_selection(8, epsilon=1.0)
    order = generator.random((n, 8))
    order[np.arange(n), c] = np.where(generator.random(n) < sets.keep, -1.0, 2.0)
    members = np.sort(np.argsort(order, axis=1)[:, : sets.size], axis=1).ravel().astype(np.uint8)
    units = [
        ColumnUnit(variables=(0, 1), domain=tuple(itertools.product(range(2), range(3))), channel=pair),
        ColumnUnit(variables=(2,), domain=None, channel=sets),
        ColumnUnit(variables=(3,), domain=None, channel=quantize(identity(2))),
    ]
    columns = [randomized(3 * a + b, pair, generator), members, child.astype(np.uint8)]
    tables = FamilyTables(columns, units, [2, 3, 8, 2], ["a", "b", "c", "child"])
    found = edge_strengths(Dag(parents=((), (), (), (0, 1, 2))), tables, seed=1)
    assert found[0, 3] > 0.95
    assert found[1, 3] < 0.5


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_family_without_a_member_has_the_estimate_summed_over_it(place):
    """Against `FamilyDesign.estimate` of the whole family: marginal consistency (methods.md 1.2, fact ii)."""
    generator = np.random.default_rng(place)
    pair = quantize(symmetric(6, epsilon=2.0))
    units = [
        ColumnUnit(variables=(0, 1), domain=tuple(itertools.product(range(2), range(3))), channel=pair),
        ColumnUnit(variables=(2,), domain=None, channel=quantize(symmetric(4, epsilon=1.0))),
        ColumnUnit(variables=(3,), domain=None, channel=quantize(symmetric(2, epsilon=1.0))),
    ]
    design = family_design(units, (2, 3, 4, 2), (0, 1, 2, 3))
    observed = generator.integers(0, 50, design.released_shape)
    reduced, summed = without_member(design, place)
    table = observed if summed is None else observed.sum(axis=summed)
    assert (summed is None) == (place < 2)
    np.testing.assert_allclose(reduced.estimate(table), design.estimate(observed).sum(axis=place), rtol=1e-9, atol=1e-7)


def test_an_axis_in_front_is_carried_along():
    channels = [quantize(symmetric(3, epsilon=1.0)), quantize(symmetric(2, epsilon=2.0))]
    tables = np.random.default_rng(0).integers(0, 9, (4, 3, 2)).astype(float)
    forward = [axis.forward for axis in as_design(channels).axes]
    together = apply_axes(tables, [None, *forward])
    for one, result in zip(tables, together, strict=True):
        np.testing.assert_allclose(apply_axes(one, forward), result, rtol=1e-12)


@pytest.mark.parametrize("link", [0.0, 0.02, 0.04, 0.08, 0.3])
def test_what_is_known_without_samples_is_what_samples_give(link, monkeypatch):
    """Sure edges, planted false ones and those between, nothing randomized; of many cells false ones are sure too."""
    channel = quantize(identity(2))
    for columns, states in (
        (three(4000, link, 3, channel), 2),
        ([np.random.default_rng(v).integers(0, 9, 4000).astype(np.uint8) for v in range(3)], 9),
    ):
        tables, dag = tables_of(columns, [quantize(identity(states))] * 3), Dag(parents=((), (), (0, 1)))
        found = edge_strengths(dag, tables, seed=2)
        with monkeypatch.context() as patched:
            patched.setattr(strength, "_DECIDED", np.inf)
            assert edge_strengths(dag, tables, seed=2) == found


def test_sure_edges_need_no_samples(monkeypatch):
    channel = quantize(identity(2))
    tables = tables_of(three(4000, 0.5, 3, channel), [channel] * 3)
    monkeypatch.setattr(strength.np.random, "Philox", None)
    assert edge_strengths(Dag(parents=((), (), (0, 1))), tables, seed=2) == {(0, 2): 1.0, (1, 2): 1.0}
    tables = tables_of(three(4000, 0.03, 3, channel), [channel] * 3)
    with pytest.raises(TypeError):
        edge_strengths(Dag(parents=((), (), (0, 1))), tables, seed=2)
