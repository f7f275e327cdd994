"""How probable released counts are given a graph, by annealing; graphs drawn by it; and going on from a checkpoint."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support.released_posterior import by_augmentation, by_importance, graphs
from verticil.shared.core.arrays import Floats
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.posterior.annealed import AnnealedGraphs, AnnealedState, Estimate, can_be_annealed
from verticil.shared.numerics.posterior.annealing import AnnealedFamily, anneal, log_density
from verticil.shared.numerics.posterior.local_scores import dirichlet_score
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.released import Released, ReleasedSample, released_counts

GRAPHS = {"apart": (0, 0, 0), "chain": (0, 1, 2), "collider": (0, 5, 0), "full": (0, 1, 3)}
SHAPE = (3, 3, 3)
CHANNEL = quantize(symmetric(3, flip=0.15))


def counted(n: int = 600, seed: int = 1) -> Floats:
    """v0 -> v1 -> v2, randomized."""
    rng = np.random.default_rng(seed)
    v0 = rng.integers(0, 3, n)
    v1 = np.where(rng.random(n) < 0.4, rng.integers(0, 3, n), v0)
    v2 = np.where(rng.random(n) < 0.4, rng.integers(0, 3, n), v1)
    counts = np.zeros(SHAPE)
    ends = np.cumsum(CHANNEL.probabilities, axis=1)[:, :-1]
    np.add.at(counts, tuple((rng.random(n)[:, None] >= ends[v]).sum(axis=1) for v in (v0, v1, v2)), 1)
    return counts


def families(graph: tuple[int, ...], surrogate: Floats, pseudo: float | None) -> list[AnnealedFamily]:
    """`pseudo` None: BDeu's."""
    made = []
    for v, mask in enumerate(graph):
        own = [u for u in range(surrogate.ndim) if mask >> u & 1]
        out = tuple(u for u in range(surrogate.ndim) if u not in (*own, v))
        table = surrogate.sum(axis=out, keepdims=True)
        made.append(AnnealedFamily(child=v, parents=tuple(own), pseudo=pseudo or 1 / table.size, surrogate=table))
    return made


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("pseudo", [None, 1.0], ids=["bdeu", "dirichlet"])
def test_without_randomization_the_evidence_is_the_score(graph: str, pseudo: float | None) -> None:
    """Annealed from a fifth of the counts. The seed is fixed."""
    counts = np.array([30, 10, 20, 5, 4, 16, 0, 12]).reshape(2, 2, 2).astype(np.float64)
    made = anneal(
        counts,
        [np.eye(2)] * 3,
        families(GRAPHS[graph], counts / 5, pseudo),
        chains=4,
        particles=50,
        sweeps=2,
        rng=np.random.default_rng(2),
    )
    exact = 0.0
    for family in families(GRAPHS[graph], counts, pseudo):
        rows = np.moveaxis(family.surrogate, family.child, -1).reshape(-1, 2)
        exact += dirichlet_score(rows, pseudo=family.pseudo)
    assert made.evidence.std() < 0.5
    assert np.log(np.exp(made.evidence - exact).mean()) == pytest.approx(0.0, abs=0.3)
    mean = (made.weight[..., None] * made.shares.reshape(4, 50, -1)).sum(axis=(0, 1)) / 4
    if graph == "full" and pseudo is None:
        assert np.abs(mean - (counts.ravel() + 1 / 8) / (counts.sum() + 1)).max() < 0.02


def sets_of(shape: tuple[int, ...], constraints: Constraints | None = None) -> ParentSets:
    return parent_sets(
        lambda _child, _parents: 0.0,
        shape,
        max_parents=2,
        max_family_cells=10**6,
        prior=StructurePrior(),
        constraints=constraints,
    )


def problem(counts: Floats, score: str = "bdeu") -> Released:
    of = "bdeu" if score == "bdeu" else "dirichlet"
    return released_counts(counts, as_design([CHANNEL] * counts.ndim), sets_of(counts.shape), of)


QUICK = AnnealedGraphs(steps=500, levels=((10, 1), (20, 1)))


def run(how: AnnealedGraphs, state: AnnealedState) -> tuple[ReleasedSample, AnnealedState]:
    while how.progress(state) < 1:
        state = how.step(state)
    return how.result(state), state


def two(n: int = 60) -> Floats:
    """Of v0 and v1 alone, of few people: the link is not sure."""
    return counted(n).sum(axis=2)


def test_a_run_that_goes_on_leaves_the_same_and_true_counts_are_of_the_graph() -> None:
    counts = two()
    made = problem(counts)
    middle = QUICK.step(QUICK.start(made, 3))
    drawn, state = run(QUICK, middle)
    again, _ = run(QUICK, QUICK.resume(made, QUICK.checkpoint(middle)))
    assert np.array_equal(drawn.true, again.true)
    assert np.array_equal(drawn.sample.parents, again.sample.parents)
    assert state.kinds.tolist() == [0, 1, 1]  # both directions say the same
    assert drawn.sample.n_draws == 4 * 400
    assert len(drawn.draws) == len(drawn.true) > 500
    assert (drawn.true.sum(axis=(1, 2)) == counts.sum()).all()
    linked = (drawn.sample.parents[drawn.draws] > 0).any(axis=1)
    assert 0 < linked.sum() < len(drawn.draws)
    shares = drawn.true / counts.sum()
    apart = shares - shares.sum(axis=1, keepdims=True) * shares.sum(axis=2, keepdims=True)
    dependence = np.abs(apart).sum(axis=(1, 2))
    assert dependence[linked].mean() > dependence[~linked].mean()
    with pytest.raises(ValueError, match="other settings or other counts"):
        QUICK.resume(problem(counts + np.eye(3)), QUICK.checkpoint(middle))
    with pytest.raises(ValueError, match="the checkpoint lacks drawn"):
        QUICK.resume(made, {name: each for name, each in QUICK.checkpoint(middle).items() if name != "drawn"})


def test_more_effort_that_changes_the_graphs_is_a_difference_of_chains() -> None:
    _, state = run(QUICK, QUICK.start(problem(two()), 3))
    first = dataclasses.replace(state, estimates=tuple(each for each in state.estimates if each.level == 0))
    assert QUICK.result(first).sample.diagnostics.edge_difference == 1.0
    assert not QUICK.result(first).sample.diagnostics.agree
    change = state.change(1)
    assert 0 < change < 1
    assert QUICK.result(state).sample.diagnostics.edge_difference >= change
    other = dataclasses.replace(state.estimates[-1], evidence=state.estimates[-1].evidence - 5.0)
    moved = dataclasses.replace(state, estimates=(*state.estimates[:-1], other))
    assert moved.change(1) > 0.05
    assert not QUICK.result(moved).sample.diagnostics.agree


def test_graphs_that_say_the_same_are_alike_under_bdeu_alone() -> None:
    counts = np.ones(SHAPE)
    assert QUICK.start(problem(counts), 1).alike.max() == 10
    assert QUICK.start(problem(counts, "dirichlet"), 1).alike.max() == 24


RARE = np.array([[300.0, 40, 20], [10, 2, 1], [4, 8, 15]])
FREQUENT = np.round(
    6000
    * CHANNEL.probabilities.T
    @ np.array([[0.30, 0.20, 0.20], [0.04, 0.07, 0.04], [0.04, 0.05, 0.06]])
    @ CHANNEL.probabilities
)


@pytest.mark.parametrize(("released", "is_alone"), [(RARE, True), (FREQUENT, False)], ids=["rare", "frequent"])
def test_each_graph_of_a_class_has_its_own_probability(released: Floats, is_alone: bool) -> None:
    """Two columns, one of them skewed, so that directions differ by their prior. Estimates of other seeds differ by .03, so one
    in a hundred fails by chance; the seed is fixed."""
    channels = [CHANNEL.probabilities] * 2
    _, state = run(AnnealedGraphs(levels=((10, 2), (25, 8))), QUICK.start(problem(released, "dirichlet"), 3))
    if is_alone:
        exact, apart = by_augmentation(released, channels, "dirichlet", sweeps=500, seed=1)
    else:
        exact, apart = by_importance(released, channels, "dirichlet", draws=8_000, seed=1, by_tails=True)
    order = [graphs(2).index(tuple(graph)) for graph in state.graphs.tolist()]
    assert apart < 0.05
    assert abs(exact[1] - exact[2]) > 0.1
    assert state.probabilities(1).mean(axis=0) == pytest.approx(exact[order], abs=0.08 + apart)
    forward, back = (
        int(np.flatnonzero((state.graphs == np.array(graph)).all(axis=1))[0]) for graph in ((0, 1), (2, 0))
    )
    assert state.kinds[forward] == state.kinds[back]
    assert np.isin(state.drawn(forward), state.drawn(back)).any() != is_alone
    assert not np.array_equal(state.drawn(forward), state.drawn(back))
    assert state.drawn(back).sum(axis=2) == pytest.approx(1.0)


SAME = {
    "chains": ((0, 1, 2), (2, 0, 2), (2, 4, 0)),
    "all edges": ((0, 1, 3), (6, 0, 2), (4, 5, 0)),
    "one edge": ((0, 1, 0), (2, 0, 0)),
}


@pytest.mark.parametrize("name", SAME)
def test_priors_of_graphs_that_say_the_same(name: str) -> None:
    """BDeu's are the same over joint probabilities; of others the mean of the ratio is that of the scores (seed fixed)."""
    shape, rng = (2, 3, 4), np.random.default_rng(4)
    counts = rng.poisson(6.0, shape) + 1.0
    first, *others = SAME[name]
    theta = [
        rng.dirichlet(np.full(k, 2.0), size=(20, *(shape[u] for u in range(3) if first[v] >> u & 1)))
        for v, k in enumerate(shape)
    ]
    shares = np.ones((20, *shape))
    for v, own in enumerate(theta):
        members = [u for u in range(3) if first[v] >> u & 1]
        table = np.moveaxis(own, -1, 1 + sum(u < v for u in members))
        shares = shares * table.reshape(20, *(k if u == v or u in members else 1 for u, k in enumerate(shape)))
    for other in others:
        alike = log_density(shares, families(other, counts, None)) - log_density(shares, families(first, counts, None))
        assert alike == pytest.approx(0.0, abs=1e-8)
        made = anneal(
            counts,
            [np.eye(k) for k in shape],
            families(first, counts, 1.0),
            chains=2,
            particles=1000,
            sweeps=1,
            rng=rng,
        )
        tilted = made.tilted(families(first, counts, 1.0), families(other, counts, 1.0))
        exact = 0.0
        for sign, graph in ((1, other), (-1, first)):
            for family in families(graph, counts, 1.0):
                rows = np.moveaxis(family.surrogate, family.child, -1).reshape(-1, shape[family.child])
                exact += sign * dirichlet_score(rows, pseudo=1.0)
        found = np.log(np.exp(tilted.evidence - made.evidence).mean())
        assert found == pytest.approx(exact, abs=0.15)


@pytest.mark.parametrize(("share", "is_done"), [([0.007] * 4, True), ([0.001, 0.001, 0.001, 0.025], False)])
def test_chains_that_would_disagree_go_on(share: list[float], is_done: bool) -> None:
    """No probability differs by .02 from that of all chains; but one chain draws the graph without a link 25 times as often."""
    how = AnnealedGraphs(levels=((10, 1), (20, 1), (40, 1)))
    start = how.start(problem(two()), 1)
    apart, linked = np.log(2 * np.array(share) / (1 - np.array(share)))[None], np.zeros((2, 4))
    estimates = tuple(
        Estimate(kind=kind, level=level, evidence=evidence, drawn=np.empty(0), work=1.0)
        for level in (0, 1)
        for kind, evidence in ((0, apart), (1, linked))
    )
    state = dataclasses.replace(start, estimates=estimates)
    assert state.probabilities(1)[:, 0] == pytest.approx(share)
    assert max(state.change(1), state.apart(1)) < 0.02
    assert (how.progress(state) == 1.0) == is_done


@pytest.mark.slow
def test_graphs_have_their_probability() -> None:
    """That of data augmentation. Importance sampling gives a class .39 or .26 by 40,000 draws, and .42 is right; it says so."""
    counts, channel = (
        np.array([300, 90, 110, 40, 60, 120, 30, 250.0]).reshape(2, 2, 2),
        quantize(symmetric(2, flip=0.1)),
    )
    made = released_counts(counts, as_design([channel] * 3), sets_of((2, 2, 2)), "bdeu")
    assert by_importance(counts, [channel.probabilities] * 3, "bdeu", draws=8_000, seed=1, by_tails=True)[1] == 1.0
    exact, apart = by_augmentation(counts, [channel.probabilities] * 3, "bdeu", sweeps=800, seed=1)
    how = AnnealedGraphs(levels=((25, 1), (100, 2)))
    sample = run(how, how.start(made, 1))[0].sample
    ours = [(sample.parents == np.array(graph, dtype=np.uint64)).all(axis=1).mean() for graph in graphs()]
    assert apart <= 0.02
    assert 0.5 * np.abs(np.array(ours) - exact).sum() <= 0.06 + apart


def test_which_graphs_are_annealed() -> None:
    assert can_be_annealed(sets_of((3, 3, 3)), 27, 500)
    assert can_be_annealed(sets_of((5, 5, 5)), 125, 2000)
    assert not can_be_annealed(sets_of((2, 2, 2)), 8, 20_000)
    assert not can_be_annealed(sets_of((6, 6, 6)), 216, 20_000)
    assert can_be_annealed(sets_of((3, 3, 3, 3)), 81, 20_000)
    assert not can_be_annealed(sets_of((3, 3, 3, 3)), 81, 10_000)
    assert not can_be_annealed(sets_of((2, 2, 2, 2, 2)), 32, 20_000)
