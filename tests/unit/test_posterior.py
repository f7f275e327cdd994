"""Posteriors of graphs: exact ones against numbers worked out apart, what sets of parents may be, chains and their samples."""

from __future__ import annotations

import numpy as np
import pytest

from support.posterior import FOUR, MIXED, THREE, sample_graphs, sets_of
from support.tuning import tune
from verticil.shared.core.arrays import Counts
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.constraints import Constraints
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.posterior import chains
from verticil.shared.numerics.posterior.chains import Chains
from verticil.shared.numerics.posterior.diagnostics import Diagnostics, bulk_size, rank_r_hat, tail_size, worth_of
from verticil.shared.numerics.posterior.exact import exact_posterior
from verticil.shared.numerics.posterior.local_scores import bdeu_score, dirichlet_score
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.sample import GraphSample, dag_of

Edge = tuple[int, int]
D4_ROWS = [
    [0, 0.212098, 0.111810, 0.155732],
    [0.436637, 0, 0.226874, 0.439414],
    [0.106030, 0.127954, 0, 0.294671],
    [0.321605, 0.560568, 0.639467, 0],
]
D4_GAMMA_1 = [
    [0, 0.168818, 0.057453, 0.117049],
    [0.383745, 0, 0.135561, 0.427692],
    [0.058264, 0.073726, 0, 0.277247],
    [0.247432, 0.572287, 0.624793, 0],
]
D4_ALPHA_2 = [
    [0, 0.138648, 0.021857, 0.081844],
    [0.382942, 0, 0.070851, 0.420158],
    [0.034131, 0.029599, 0, 0.242769],
    [0.221248, 0.579820, 0.641845, 0],
]
MIXED_ROWS = [[0, 0.115434, 0.493776], [0.116005, 0, 0.388182], [0.292262, 0.199434, 0]]
D3_0 = [[0, 0.172086, 0.520273], [0.109540, 0, 0.104361], [0.479727, 0.154148, 0]]
D3_1 = [[0, 0.082523, 0.518968], [0.053370, 0, 0.050135], [0.481031, 0.073219, 0]]
D3_BDEU = [[0, 0.056552, 0.501535], [0.030078, 0, 0.026623], [0.498464, 0.050026, 0]]
ONES, BDEU = dirichlet_score, bdeu_score


@pytest.mark.parametrize(
    ("counts", "score", "gamma", "alpha", "log_normalizer", "graphs", "edges"),
    [
        (THREE, ONES, 0, 1, -191.408150, {(0, 0, 1): 0.263616, (4, 0, 0): 0.245436, (0, 1, 1): 0.072775}, D3_0),
        (THREE, ONES, 1, 1, -192.796427, {(0, 0, 1): 0.388686, (4, 0, 0): 0.361880}, D3_1),
        (THREE, BDEU, 0, 1, -194.009632, {(0, 0, 1): 0.418655, (4, 0, 0): 0.418655}, D3_BDEU),
        (FOUR, ONES, 0, 1, -342.318844, {(0, 1, 8, 2): 0.053993, (2, 8, 8, 0): 0.053993}, D4_ROWS),
        (FOUR, ONES, 1, 1, -345.697265, {(2, 8, 8, 0): 0.078828}, D4_GAMMA_1),
        (FOUR, ONES, 1, 2, -346.020287, {}, D4_ALPHA_2),
        (MIXED, ONES, 1, 1, -202.963699, {(0, 0, 3): 0.287391, (0, 0, 0): 0.110291}, MIXED_ROWS),
        (MIXED, BDEU, 1, 1, -207.030786, {(0, 0, 0): 0.643371}, None),
    ],
)
def test_exact_posteriors(
    counts: Counts,
    score: object,
    gamma: float,
    alpha: float,
    log_normalizer: float,
    graphs: dict[tuple[int, ...], float],
    edges: list[list[float]] | None,
) -> None:
    """25 and 543 graphs: the numbers are of another program, given to six places."""
    exact = exact_posterior(sets_of(counts, score, gamma=gamma, alpha=alpha))  # type: ignore[arg-type]
    assert exact.log_normalizer == pytest.approx(log_normalizer, abs=1e-6)
    assert len(exact.parents) == {3: 25, 4: 543}[counts.ndim]
    for graph, probability in graphs.items():
        assert exact.of(*graph) == pytest.approx(probability, abs=1e-6)
    if edges is not None:
        assert exact.edge_probability == pytest.approx(np.array(edges), abs=1e-6)


@pytest.mark.parametrize("together", [2, 3, 4])
@pytest.mark.parametrize("counts", [THREE, FOUR, MIXED])
def test_chains_find_the_exact_posterior(counts: Counts, together: int) -> None:
    """20,000 steps of four chains; 16,000 graphs kept, so an error of .02 is 5 standard errors or more of any edge."""
    sets = sets_of(counts)
    sample = sample_graphs(sets, Chains(together=together), seed=1)
    assert np.abs(sample.edge_probability - exact_posterior(sets).edge_probability).max() < 0.02
    assert sample.diagnostics.agree


def drawn(sample: GraphSample) -> tuple[bytes, bytes]:
    return sample.parents.tobytes(), sample.log_weight.tobytes()


def in_short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some steps of the chains between two states, not all."""
    tune(monkeypatch, chains, block_sets=400_000)


def test_a_run_goes_on_from_any_checkpoint_to_the_same_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    in_short_steps(monkeypatch)
    sets, chains = sets_of(FOUR), Chains(chains=3, steps=300)
    states = [chains.start(sets, seed=5)]
    while chains.progress(states[-1]) < 1:
        states.append(chains.step(states[-1]))
    assert len(states) > 5
    whole = drawn(chains.result(states[-1]))
    for state in states:
        stored = chains.checkpoint(state)
        later = chains.resume(sets_of(FOUR), {name: array.copy() for name, array in stored.items()})
        while chains.progress(later) < 1:
            later = chains.step(later)
        assert drawn(chains.result(later)) == whole
    assert len(whole[0]) + len(whole[1]) == 3 * 240 * 5 * 8


def test_a_sample_does_not_depend_on_threads_but_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    in_short_steps(monkeypatch)
    sets = sets_of(FOUR)
    one, two = (sample_graphs(sets, Chains(steps=400, threads=threads), seed=5) for threads in (1, 2))
    assert drawn(one) == drawn(two) != drawn(sample_graphs(sets, Chains(steps=400), seed=6))


def test_a_checkpoint_of_another_run_is_refused() -> None:
    sets, chains = sets_of(THREE), Chains(steps=100)
    stored = chains.checkpoint(chains.start(sets, seed=1))
    for other, having in (
        (sets_of(THREE, gamma=1), chains),
        (sets, Chains(steps=101)),
        (sets, Chains(together=2, steps=100)),
    ):
        with pytest.raises(ValueError, match="of other settings or other parent sets"):
            having.resume(other, stored)
    with pytest.raises(ValueError, match="lacks places"):
        chains.resume(sets, {name: array for name, array in stored.items() if name != "places"})


def constraints(
    d: int, *, required: tuple[tuple[int, int], ...] = (), forbidden: tuple[tuple[int, int], ...] = ()
) -> Constraints:
    allowed, needed = ~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool)
    for edge in forbidden:
        allowed[edge] = False
    for edge in required:
        needed[edge] = True
    return Constraints(names=tuple("abcdefgh"[:d]), allowed=allowed, required=needed)


def test_every_graph_has_the_required_edges_and_none_of_the_forbidden() -> None:
    rules = constraints(4, required=((0, 1), (1, 3)), forbidden=((2, 3),))
    sets = sets_of(FOUR, constraints=rules)
    exact, free = exact_posterior(sets), exact_posterior(sets_of(FOUR))
    kept = np.array([not rules.violations(dag_of(parents)) for parents in free.parents])
    assert (exact.parents == free.parents[kept]).all()
    assert exact.probability == pytest.approx(free.probability[kept] / free.probability[kept].sum())
    sample = sample_graphs(sets, Chains(steps=4000), seed=1)
    assert all(not rules.violations(dag) for dag, _ in sample.distinct())
    assert np.abs(sample.edge_probability - exact.edge_probability).max() < 0.03


def test_candidates_leave_their_sets_and_those_with_one_more() -> None:
    everything = {frozenset(bits(mask)) for mask in sets_of(FOUR).of(0)[0].tolist()}
    some = [frozenset(bits(mask)) for mask in sets_of(FOUR, candidates=[(1,), (0,), (3,), (2,)]).of(0)[0].tolist()]
    assert len(some) == len(set(some))
    assert set(some) == {family for family in everything if len(family - {1}) <= 1}
    limited = {frozenset(bits(mask)) for mask in sets_of(FOUR, max_parents=2).of(0)[0].tolist()}
    assert limited == {family for family in everything if len(family) <= 2}


def bits(mask: int) -> list[int]:
    return [u for u in range(64) if mask >> u & 1]


def test_what_cannot_be_sampled_is_refused_by_name() -> None:
    def score(_child: int, _parents: tuple[int, ...]) -> float:
        return 0.0

    def sets(d: int, *, most_sets: int = 100, rules: Constraints | None = None, cells: int = 100) -> ParentSets:
        return parent_sets(
            score,
            [2] * d,
            max_parents=2,
            max_family_cells=cells,
            prior=StructurePrior(),
            constraints=rules,
            most_sets=most_sets,
        )

    with pytest.raises(Misuse, match="65 variables, expected at most 64"):
        sets(65)
    with pytest.raises(Misuse, match="more than 100 sets of parents of 9 variables with up to 2 parents") as refused:
        sets(9)
    assert "structure.max_parents" in refused.value.hint
    with pytest.raises(Misuse, match="variable 'b' has no possible set of parents") as refused:
        sets(3, rules=constraints(3, required=((0, 1), (2, 1))), cells=4)
    assert refused.value.code == "STUDY_INVALID"
    assert len(sets(3, cells=4).masks) == 9  # one parent at most
    for wrong in ({"chains": 0}, {"steps": 19}, {"together": 5}, {"together": 0}, {"threads": 0}):
        with pytest.raises(ValueError, match="expected at least 1, at least 20, 1 to 4, at least 1"):
            Chains(**wrong)
    for wrong_prior in ({"gamma": -1.0}, {"alpha": 0.0}, {"gamma": float("nan")}):
        with pytest.raises(ValueError, match="expected gamma >= 0 and alpha > 0"):
            StructurePrior(**wrong_prior)


def test_a_variable_alone() -> None:
    sample = sample_graphs(sets_of(np.array([3, 4])), Chains(steps=20), seed=1)
    assert sample.distinct() == ((Dag(parents=((),)), 1.0),)
    assert sample.diagnostics == Diagnostics(
        r_hat=1.0, edge_difference=0.0, effective_size=64.0, tail_size=64.0, agree=True
    )


# ---- diagnostics


def test_effective_size_and_r_hat_of_a_process_that_is_known() -> None:
    """An autoregressive chain with .8 has (1 - .8) / (1 + .8) of its length; within 20 %, which is four standard errors."""
    generator = np.random.default_rng(1)
    noise = generator.standard_normal((4, 20_000))
    traces = np.empty_like(noise)
    traces[:, 0] = noise[:, 0] / 0.6
    for t in range(1, noise.shape[1]):
        traces[:, t] = 0.8 * traces[:, t - 1] + noise[:, t]
    assert bulk_size(traces) == pytest.approx(80_000 / 9, rel=0.2)
    assert bulk_size(noise) == pytest.approx(80_000, rel=0.1)
    assert rank_r_hat(traces) < 1.01
    apart = traces + np.array([[0.0], [0.0], [0.0], [2.0]])
    assert rank_r_hat(apart) > 1.05
    assert bulk_size(apart) < 100
    moving = traces + np.linspace(0, 4, noise.shape[1])
    assert rank_r_hat(moving) > 1.05
    assert rank_r_hat(np.repeat([[0.0], [1.0]], 8, axis=1)) == float("inf")
    wider = noise * np.array([[1.0], [1.0], [1.0], [2.0]])
    assert rank_r_hat(wider) > 1.01  # the means are alike


ARVIZ = {
    "uniform": (0.999818, 2189.554, 1893.695),
    "autoregressive": (1.011119, 257.713, 425.984),
    "heavy": (0.999818, 2189.554, 1893.695),
    "binary": (1.009023, 360.564, 360.564),
    "apart": (1.044752, 211.161, 388.550),
}
"""Of `known_traces`, computed with arviz 0.22.0: rhat (method "rank"), ess (method "bulk"), ess (method "tail")."""


def known_traces() -> dict[str, np.ndarray]:
    """Traces from a generator that is the same everywhere: autoregressive, heavy-tailed, of 0 and 1, and chains apart."""
    state, found = 12345, []
    for _ in range(4 * 500):
        state = (1103515245 * state + 12345) % 2**31
        found.append((state + 0.5) / 2**31)
    uniform = np.array(found).reshape(4, 500)
    smooth = np.empty_like(uniform)
    smooth[:, 0] = uniform[:, 0]
    for t in range(1, 500):
        smooth[:, t] = 0.8 * smooth[:, t - 1] + uniform[:, t]
    return {
        "uniform": uniform,
        "autoregressive": smooth,
        "heavy": np.tan(np.pi * (uniform - 0.5)),
        "binary": (smooth > 2.5).astype(np.float64),
        "apart": smooth + np.array([[0.0], [0.0], [0.0], [0.3]]),
    }


@pytest.mark.parametrize("name", ["uniform", "autoregressive", "heavy", "binary", "apart"])
def test_r_hat_and_effective_sizes_are_those_of_arviz(name: str) -> None:
    """Within 1 %."""
    traces = known_traces()[name]
    assert (rank_r_hat(traces), bulk_size(traces), tail_size(traces)) == pytest.approx(ARVIZ[name], rel=0.01)


def test_the_error_of_an_edge_is_that_of_its_share() -> None:
    """Sixty runs with other seeds: the spread of each edge's share beside the error that the runs state, within a third."""
    sets = sets_of(THREE)
    samples = [sample_graphs(sets, Chains(steps=500), seed=seed) for seed in range(60)]
    spread = np.std([sample.edge_probability for sample in samples], axis=0)
    stated = np.mean([sample.edge_error for sample in samples], axis=0)
    off = ~np.eye(3, dtype=bool)
    assert stated[off] == pytest.approx(spread[off], rel=0.4)
    assert (stated[~off] == 0).all()


def test_a_sample_says_what_its_graphs_have() -> None:
    parents = np.array([[0, 1], [0, 1], [0, 1], [0, 0], [2, 0], [2, 0], [0, 1], [0, 1]], dtype=np.uint64)
    sample = GraphSample(
        parents=parents,
        log_weight=np.arange(8.0),
        chain=np.repeat(np.arange(2, dtype=np.int16), 4),
        steps=4,
        burn_in=0,
        every=1,
    )
    assert sample.edge_probability.tolist() == [[0, 5 / 8], [2 / 8, 0]]
    assert sample.skeleton_probability.tolist() == [[0, 7 / 8], [7 / 8, 0]]
    assert sample.distinct() == (
        (Dag(parents=((), (0,))), 5 / 8),
        (Dag(parents=((1,), ())), 2 / 8),
        (Dag(parents=((), ())), 1 / 8),
    )
    assert sample.dag(4) == Dag(parents=((1,), ()))
    assert sample.diagnostics.edge_difference == 2 / 8
    assert not sample.diagnostics.agree
    with pytest.raises(ValueError, match="as many of each chain"):
        GraphSample(
            parents=parents,
            log_weight=np.arange(8.0),
            chain=np.array([0] * 3 + [1] * 5, dtype=np.int16),
            steps=4,
            burn_in=0,
            every=1,
        )


def test_graphs_are_kept_only_where_the_weights_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a chain settles they are raised to powers that grow to 1."""
    raised: list[float] = []
    real = Chains.stage

    def noted(self: Chains, done: int) -> tuple[int, float]:
        ends, power = real(self, done)
        raised.append(power)
        assert done < ends <= (self.burn_in if done < self.burn_in else self.steps)
        assert power == 1.0 or ends <= self.burn_in
        return ends, power

    monkeypatch.setattr(Chains, "stage", noted)
    sample = sample_graphs(sets_of(THREE), Chains(chains=2, steps=1000), seed=1)
    assert raised == sorted(raised)
    assert raised[0] < 0.01
    assert raised[-1] == 1.0
    assert sample.n_draws == 2 * 800


def test_draws_of_a_statistic_are_worth_what_their_order_says() -> None:
    """Independent draws are worth their number; draws that hang together fewer, by a closed form; runs that differ show."""
    rng = np.random.default_rng(8)
    free = worth_of(rng.standard_normal(1000), 4)
    assert free.r_hat <= 1.01
    assert min(free.bulk, free.tail) > 600
    noise, slow = rng.standard_normal(1000), np.zeros(1000)
    for place in range(1, 1000):
        slow[place] = 0.9 * slow[place - 1] + noise[place]
    assert worth_of(slow, 4).bulk == pytest.approx(1000 * 0.1 / 1.9, rel=0.6)  # (1 - rho) / (1 + rho)
    assert worth_of(np.repeat([0.0, 3.0], 500) + noise, 2).r_hat > 1.5
    lacking = noise.copy()
    lacking[:100] = np.nan
    assert worth_of(lacking, 4).bulk < free.bulk
    assert np.isnan(worth_of(np.full(1000, np.nan), 4).bulk)
