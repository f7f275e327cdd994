"""Records from a joint model: every way of drawing, with evidence, with numba and without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.releases import random_mixture, random_records
from verticil.shared.numerics.model.joint import JointModel, WeightedRecords
from verticil.shared.synthesis import joint_records, synthesis
from verticil.shared.synthesis.joint_records import joint_codes
from verticil.shared.synthesis.synthesis import sample_chunks, sample_codes

N_STATES = (3, 2, 4, 2)
METHODS = ("systematic", "independent", "without-replacement")


MODELS: dict[str, JointModel] = {"mixture": random_mixture(N_STATES), "weighted": random_records(N_STATES)}


@pytest.fixture(params=list(MODELS))
def model(request) -> JointModel:
    return MODELS[request.param]


def counts(codes, a, b):
    return np.bincount(codes[a].astype(int) * N_STATES[b] + codes[b], minlength=N_STATES[a] * N_STATES[b]).reshape(
        N_STATES[a], N_STATES[b]
    )


def cost(model, codes) -> float:
    """The sum over all cells of all pairs, as the module states it."""
    n = len(codes[0])
    pairs = itertools.combinations(range(len(N_STATES)), 2)
    return sum(
        ((counts(codes, *pair) - n * model.shares(pair)) ** 2 / (n * model.shares(pair) + 1)).sum() for pair in pairs
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_same_records_with_numba_or_without(model, method):
    drawn = [
        joint_codes(model, 700, generator=np.random.default_rng(3), method=method, path=path)
        for path in ("plain", "compiled", "auto")
    ]
    for one, *others in zip(*drawn, strict=True):
        assert one.dtype == np.uint8
        assert one.shape == (700,)
        for other in others:
            np.testing.assert_array_equal(one, other)


def test_a_record_is_swapped_where_the_sum_over_the_cells_falls_and_nowhere_else(model, monkeypatch):
    """Every decision, from the sums computed afresh. A wrong sign, weight or cell gives another one."""
    n, seen = 60, []
    plain = joint_records._swap_plain

    def watched(records, at, proposed, *rest):
        before = records.copy()
        plain(records, at, proposed, *rest)
        seen.append((before, at, proposed, records.copy()))

    monkeypatch.setattr(joint_records, "_swap_plain", watched)
    joint_codes(model, n, generator=np.random.default_rng(8), path="plain")
    ((records, at, proposed, after),) = seen
    first = np.concatenate([[0], np.cumsum(N_STATES)[:-1]])  # places among the categories of all variables
    records, proposed, after = records - first, proposed - first, after - first
    assert len(at) == 30 * n
    now, swaps = cost(model, records.T), 0
    for i, new in zip(at, proposed, strict=True):
        tried = records.copy()
        tried[i] = new
        then = cost(model, tried.T)
        if then < now - 1e-7:
            records, now, swaps = tried, then, swaps + 1
    np.testing.assert_array_equal(records, after)
    assert 5 < swaps < 5 * n


def test_swapped_records_are_much_nearer_in_pairs(model):
    drawn = {method: joint_codes(model, 2000, generator=np.random.default_rng(4), method=method) for method in METHODS}
    assert 10 * cost(model, drawn["systematic"]) < cost(model, drawn["independent"])
    assert cost(model, drawn["without-replacement"]) < cost(model, drawn["independent"])


def test_dealt_records_are_the_cards_of_the_decks():
    """Each weighted record comes up n w times to the next whole number; so does each cell of a mixture's tables."""
    n, codes = 5000, np.unique(random_records(N_STATES, 20).codes, axis=0)
    cards = WeightedRecords(n_states=N_STATES, codes=codes, weights=np.full(len(codes), 1 / len(codes)))
    drawn = np.stack(joint_codes(cards, n, generator=np.random.default_rng(1), method="without-replacement"), axis=1)
    found, times = np.unique(drawn, axis=0, return_counts=True)
    np.testing.assert_array_equal(found, cards.codes)
    assert np.abs(times - n * cards.weights).max() < 1
    model = random_mixture(N_STATES, 2)
    codes = joint_codes(model, n, generator=np.random.default_rng(1), method="without-replacement")
    for variable, k in enumerate(N_STATES):
        off = np.bincount(codes[variable], minlength=k) - n * model.shares([variable])
        assert np.abs(off).max() <= 2 * 2  # each of two components' cells to the next whole number, and its deck's size


@pytest.mark.parametrize("method", METHODS)
def test_evidence_is_kept_and_what_is_impossible_stays_so(model, method):
    evidence = {1: 1, 2: 0}
    codes = sample_codes(model, 4000, generator=np.random.default_rng(2), method=method, evidence=evidence)
    assert (codes[1] == 1).all()
    assert (codes[2] == 0).all()
    expected = model.shares([0, 1, 2, 3])[:, 1, 0, :]
    found = counts(codes, 0, 3) / 4000
    assert not found[expected == 0].any()
    # five standard deviations of a share: of honest draws of these seeds' kind less than one in 10^5 fails
    assert np.abs(found - expected / expected.sum()).max() < 5 * np.sqrt(0.25 / 4000)


def test_evidence_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="impossible"):
        sample_codes(
            random_records(N_STATES, 3), 5, generator=np.random.default_rng(0), evidence={0: 0, 1: 0, 2: 0, 3: 0}
        )
    with pytest.raises(ValueError, match="-1 records"):
        joint_codes(random_mixture(N_STATES), -1, generator=np.random.default_rng(0))
    assert [len(column) for column in joint_codes(random_mixture(N_STATES), 0, generator=np.random.default_rng(0))] == [
        0
    ] * 4


def test_many_records_come_in_chunks(model, monkeypatch):
    monkeypatch.setattr(synthesis, "CHUNK", 300)
    pieces = list(sample_chunks(model, 700, generator=np.random.default_rng(5), evidence={0: 1}))
    assert [len(piece[0]) for piece in pieces] == [300, 300, 100]
    generator = np.random.default_rng(5)
    for piece in pieces:
        for one, other in zip(
            piece, sample_codes(model, len(piece[0]), generator=generator, evidence={0: 1}), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_more_records_than_codes_of_16_bits_can_be_weighted():
    size = 70_000
    codes = np.stack(np.unravel_index(np.arange(size), (300, 300)), axis=1).astype(np.uint16)
    model = WeightedRecords(n_states=(300, 300), codes=codes, weights=np.full(size, 1 / size))
    drawn = joint_codes(model, size, generator=np.random.default_rng(6), method="without-replacement")
    assert drawn[0].dtype == np.uint16
    np.testing.assert_array_equal(np.sort(drawn[0].astype(int) * 300 + drawn[1]), np.arange(size))


def test_swaps_are_fewer_in_wide_tables(monkeypatch):
    monkeypatch.setattr(joint_records, "_PAIR_LIMIT", 6 * 50)
    tried = []
    monkeypatch.setattr(joint_records, "_swap_plain", lambda records, at, *rest: tried.append(len(at)))
    joint_codes(random_mixture(N_STATES), 100, generator=np.random.default_rng(0), path="plain")
    assert tried == [50]
