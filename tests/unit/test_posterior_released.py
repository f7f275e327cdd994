"""Chains over graphs and true counts together: their random variables, their step, and going on from a checkpoint."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from support.released_posterior import by_augmentation, by_importance, graphs
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, as_design, family_design
from verticil.shared.numerics.posterior.local_scores import bdeu_score
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.released import Released, ReleasedChains, can_be_unblinded, released_counts
from verticil.shared.numerics.posterior.unblinding import (
    binomial_variate,
    log_gamma_variate,
    log_likelihood,
    move_near,
    share_out,
)

CHANNEL = quantize(symmetric(2, flip=0.1))
COUNTS = np.array([300, 90, 110, 40, 60, 120, 30, 250]).reshape(2, 2, 2)


def sets_of(shape: tuple[int, ...]) -> ParentSets:
    return parent_sets(
        lambda _child, _parents: 0.0, shape, max_parents=2, max_family_cells=10**6, prior=StructurePrior()
    )


def problem(counts: np.ndarray = COUNTS) -> Released:
    return released_counts(counts, as_design([CHANNEL] * 3), sets_of((2, 2, 2)), "bdeu")


@pytest.mark.parametrize(("n", "p"), [(7, 0.3), (40, 0.9), (300, 0.2), (50_000, 0.37)])
def test_binomial_variables_have_their_distribution(n: int, p: float) -> None:
    """Chi-square over up to twenty classes at the level 1e-4; the seed is fixed."""
    stream = np.array([3], dtype=np.uint64)
    drawn = np.array([binomial_variate(n, p, stream) for _ in range(3000)])
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 21)[1:-1], n, p))
    expected = np.diff([0.0, *stats.binom.cdf(edges, n, p), 1.0])
    counted = np.bincount(np.searchsorted(edges, drawn), minlength=len(expected))
    assert stats.chisquare(counted, 3000 * expected).pvalue > 1e-4


@pytest.mark.parametrize("shape", [0.02, 0.5, 3.0, 900.0])
def test_gamma_variables_have_their_distribution(shape: float) -> None:
    """Kolmogorov and Smirnov's test at the level 1e-4; the seed is fixed."""
    stream = np.array([4], dtype=np.uint64)
    drawn = np.exp([log_gamma_variate(shape, stream) for _ in range(3000)])
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > 1e-4


def test_released_records_are_shared_out_as_the_true_ones_are_probable() -> None:
    """Of two columns, one of them as it is: the mean of 2,000 draws of each cell within five of its standard errors."""
    shares = np.array([0.4, 0.1, 0.2, 0.3])
    channel = np.array([[0.8, 0.2], [0.3, 0.7]])
    channels = np.stack([channel, np.eye(2)])
    released = np.array([500, 300, 400, 800])
    weight = shares[None, :] * np.kron(channel, np.eye(2)).T  # released, true
    weight /= weight.sum(axis=1, keepdims=True)
    mean, variance = released @ weight, released @ (weight * (1 - weight))
    stream, true, total = np.array([5], dtype=np.uint64), np.zeros(4, dtype=np.int64), np.zeros(4)
    for _ in range(2000):
        share_out(released, shares, np.array([2, 2]), channels, stream, true)
        assert true.sum() == released.sum()
        total += true
    assert (np.abs(total / 2000 - mean) <= 5 * np.sqrt(variance / 2000)).all()


def test_moves_near_the_probabilities_alone_leave_graphs_as_they_are_probable() -> None:
    """Two weakly dependent columns: which of three graphs, and with which probabilities, in 30,000 moves of each column."""
    counts = np.array([[210, 160], [150, 180]])
    made = released_counts(counts, as_design([CHANNEL] * 2), sets_of((2, 2)), "bdeu")
    layout, places = made.layout, made.layout.places
    worth = np.array([made.surrogate[a:b].sum() for a, b in itertools.pairwise(places)])
    stream, at = np.array([6], dtype=np.uint64), np.array([int(start) for start in layout.sets.starts[:-1]])
    parents, children = np.zeros(2, dtype=np.uint64), np.zeros(2, dtype=np.uint64)
    theta, log_shares = np.full((2, places[-1]), np.log(0.5)), np.full(4, np.log(0.25))
    cells = [np.empty(places[-1]), np.empty(places[-1]), np.empty(4), np.empty(4), np.empty(4)]
    problem = layout.n_states, made.index, places, made.channels, made.released
    likelihood = log_likelihood(log_shares, made.released, layout.n_states, made.channels, cells[3], cells[4])
    seen: list[tuple[int, ...]] = []
    for turn in range(60_000):
        likelihood = move_near(
            turn % 2, likelihood, layout.sets.starts, layout.sets.masks, layout.sets.log_weight, layout.whole, layout.pseudo,
            made.steps_in, *problem, worth, stream, at, parents, children, theta, log_shares, *cells,
        )  # fmt: skip
        if turn % 2:
            seen.append(tuple(parents.tolist()))
    exact, apart = by_importance(counts.astype(float), [CHANNEL.probabilities] * 2, "bdeu", draws=40_000, seed=1)
    ours = np.array([seen.count(graph) for graph in graphs(2)]) / len(seen)
    assert 0.1 < exact[0] < 0.9
    assert 0.5 * np.abs(ours - exact).sum() <= 0.03 + apart
    assert np.exp(log_shares).sum() == pytest.approx(1, abs=1e-9)


def test_graphs_have_their_probability_and_a_run_that_goes_on_leaves_the_same() -> None:
    made, chains = problem(), ReleasedChains(steps=2000)
    state = chains.start(made, 1)
    middle = chains.step(state)
    while chains.progress(state) < 1:
        state = chains.step(state)
    again = ReleasedChains(steps=2000, threads=2)
    other = again.resume(made, chains.checkpoint(middle))
    while again.progress(other) < 1:
        other = again.step(other)
    drawn, repeated = chains.result(state), again.result(other)
    assert np.array_equal(drawn.true, repeated.true)
    assert len(drawn.draws) == len(drawn.true) > 500
    assert (drawn.true.sum(axis=(1, 2, 3)) == COUNTS.sum()).all()
    sample = drawn.sample
    assert np.array_equal(sample.parents, repeated.sample.parents)
    exact, apart = by_augmentation(COUNTS.astype(float), [CHANNEL.probabilities] * 3, "bdeu", sweeps=1000, seed=1)
    ours = [(sample.parents == np.array(graph, dtype=np.uint64)).all(axis=1).mean() for graph in graphs()]
    assert 0.5 * np.abs(np.array(ours) - exact).sum() <= 0.03 + apart
    with pytest.raises(ValueError, match="other settings or other counts"):
        chains.resume(problem(COUNTS + np.eye(2, dtype=int)), chains.checkpoint(middle))
    with pytest.raises(ValueError, match="the checkpoint lacks true"):
        chains.resume(made, {name: each for name, each in chains.checkpoint(middle).items() if name != "true"})


def test_the_true_counts_are_those_that_their_graph_was_drawn_with() -> None:
    """The weight of a graph is the score of its families in the true counts, so counts of another draw have another one."""
    chains = ReleasedChains(steps=400)
    state = chains.start(problem(), 1)
    while chains.progress(state) < 1:
        state = chains.step(state)
    drawn = chains.result(state)
    weights = drawn.sample.log_weight[drawn.draws]
    for place, weight, true in zip(drawn.draws, weights, drawn.true, strict=True):
        score = 0.0
        for v, mask in enumerate(drawn.sample.parents[place].tolist()):
            members = [u for u in range(3) if mask >> u & 1 or u == v]
            family = true.sum(axis=tuple(u for u in range(3) if u not in members))
            score += bdeu_score(np.moveaxis(family, members.index(v), -1).reshape(-1, 2).astype(np.float64))
        assert weight == pytest.approx(score, rel=1e-12)
    assert len(set(weights.tolist())) > 100


def test_which_columns_are_sampled_with_their_true_counts() -> None:
    assert can_be_unblinded(as_design([CHANNEL] * 5))
    assert not can_be_unblinded(as_design([CHANNEL] * 6))
    assert not can_be_unblinded(as_design([quantize(symmetric(11, flip=0.05))] * 3))
    jointly = ColumnUnit(variables=(0, 1), domain=((0, 0), (0, 1), (1, 1)), channel=quantize(symmetric(3, flip=0.1)))
    alone = ColumnUnit(variables=(2,), domain=None, channel=CHANNEL)
    assert not can_be_unblinded(family_design([jointly, alone], (2, 2, 2), (0, 1, 2)))
    backwards = ColumnUnit(variables=(0,), domain=((1,), (0,)), channel=CHANNEL)  # its categories are in another order
    assert not can_be_unblinded(family_design([backwards, alone], (2, 2, 2), (0, 2)))
