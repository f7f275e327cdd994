"""Graphs sampled from records, from randomized columns and from noisy tables, to networks drawn with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from support import studies
from support.noisy_tables import empty, redrawn, truth
from support.noisy_tables import study as noisy_study
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.learn import learn
from verticil.miner.learning.posterior.draws import band
from verticil.miner.learning.posterior.graphs import candidate_parents, consensus, mixed_graphs
from verticil.miner.learning.posterior.outcome import statistic
from verticil.miner.learning.posterior.scores import PosteriorScores
from verticil.miner.learning.posterior.tuning import TUNING
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.scores import PairScores, pair_scores
from verticil.miner.learning.search.protocol import (
    UNINTERRUPTED,
    Checkpoint,
    ForeignCheckpoint,
    Interruption,
    LearningCancelled,
    SearchProblem,
    Stages,
)
from verticil.miner.learning.structure import search_problem
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import as_design
from verticil.shared.numerics.knowledge.rules import Function, Knowledge
from verticil.shared.numerics.model.constraints import declared_constraints
from verticil.shared.numerics.model.elimination import network_pair
from verticil.shared.numerics.model.rounding import round_network
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.numerics.posterior.local_scores import bdeu_score, dirichlet_score
from verticil.shared.numerics.posterior.predictive import chosen_graphs
from verticil.shared.numerics.posterior.randomized import (
    can_be_augmented,
    drawn_counts,
    exact_scores,
    family_scores,
    matched_counts,
)
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.study import rules
from verticil.shared.study.document import PosteriorRule, Study

N_STATES = (3, 2, 4, 2)  # 1 -> 0, 1 -> 2, and 3 alone
RULE = PosteriorRule(steps=4000, data_sets=3)


def study_of(epsilon: float | None = None, rule: PosteriorRule = RULE, **structure: object) -> Study:
    structure = {"method": "posterior", "score": "bdeu", **structure}
    return studies.study_of(studies.numbered(N_STATES), epsilon=epsilon, structure=structure, posterior=rule)


def released(study: Study, n: int = 5000, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    v1 = (rng.random(n) < 0.4).astype(int)
    v0 = np.where(rng.random(n) < 0.7, 2 * v1, rng.integers(0, 3, n))
    v2 = np.where(rng.random(n) < 0.6, v1, rng.integers(0, 4, n))
    out = []
    for column, unit in zip((v0, v1, v2, rng.integers(0, 2, n)), study.units, strict=True):
        cumulative = np.cumsum(unit.transition.probabilities, axis=1)[:, :-1]
        out.append((rng.random(n)[:, None] >= cumulative[column]).sum(axis=1).astype(np.uint8))
    return out


@pytest.mark.parametrize(("epsilon", "source"), [(None, "records"), (3.0, "randomized")])
def test_networks_and_bands_of_a_sample(epsilon, source) -> None:
    study = study_of(epsilon)
    result = learn(released(study), study)
    found = result.posterior
    assert found is not None
    assert found.source == source
    assert found.consensus == result.network.dag == result.search.dag
    linked = {frozenset(edge) for edge in found.consensus.edges()}
    assert linked == {frozenset((0, 1)), frozenset((1, 2))}
    assert found.sample.diagnostics.agree
    assert found.sample.skeleton_probability[3].max() < 0.2
    assert len(found.networks) == 3
    graphs = {dag for dag, _ in found.sample.distinct()}
    for network in found.networks:
        assert network.dag in graphs
        rounded = round_network(network).families
        assert all(np.array_equal(a.probability, b.probability) for a, b in zip(network.families, rounded, strict=True))
    assert [(pair.first, pair.second) for pair in found.pairs] == list(found.consensus.edges())
    for pair in found.pairs:
        assert pair.exact == (epsilon is None)
        assert (pair.low <= pair.estimate).all()
        assert (pair.estimate <= pair.high).all()
        assert pair.estimate == pytest.approx(network_pair(result.network, pair.first, pair.second), abs=0.05)


def test_the_same_study_gives_the_same_posterior_whole_or_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of chains over graphs and true counts, also where the whole has two processors, and what goes on one."""
    monkeypatch.setattr("verticil.miner.learning.posterior.graphs.processors", lambda: 2)
    monkeypatch.setattr("verticil.miner.learning.posterior.graphs.can_be_annealed", lambda *_: False)
    rule = dataclasses.replace(RULE, steps=12_000)
    study = study_of(2.0, rule)
    columns = released(study)
    kept: list[Checkpoint] = []
    whole = learn(columns, study, interruption=Interruption(keep=lambda make: kept.append(make()))).posterior
    middle = next(made for made in kept if 0 < made["search:done"] < rule.steps)
    monkeypatch.setattr("verticil.miner.learning.posterior.graphs.processors", lambda: 1)
    resumed = learn(columns, study, interruption=Interruption(checkpoint=middle)).posterior
    assert whole is not None
    assert resumed is not None
    assert np.array_equal(whole.sample.parents, resumed.sample.parents)
    for one, other in zip(whole.networks, resumed.networks, strict=True):
        assert all(
            np.array_equal(a.probability, b.probability) for a, b in zip(one.families, other.families, strict=True)
        )
    longer = study_of(2.0, dataclasses.replace(rule, steps=13_000))
    with pytest.raises(ForeignCheckpoint):
        learn(columns, longer, interruption=Interruption(checkpoint=middle))
    with pytest.raises(LearningCancelled):
        learn(columns, study, interruption=Interruption(cancelled=lambda: True))


def test_constraints_hold_in_every_graph() -> None:
    study = study_of(required=(("v3", "v0"),), forbidden=(("v1", "v2"), ("v2", "v1")), max_parents=1)
    found = learn(released(study), study).posterior
    assert found is not None
    assert found.sample.edge_probability[3, 0] == 1
    assert found.sample.skeleton_probability[1, 2] == 0
    assert (3, 0) in found.consensus.edges()
    assert all(max(map(len, network.dag.parents)) <= 1 for network in found.networks)


@pytest.mark.whole
def test_noisy_tables_have_a_posterior_that_goes_on() -> None:
    """Graphs by replicates of the joint model, mixed; a run that goes on within the third leaves the same."""
    study = dataclasses.replace(noisy_study(method="posterior", score="bdeu", minimum_strength=None), posterior=RULE)
    tables = redrawn(empty(study), truth(), np.random.default_rng(8))
    kept: dict[str, Checkpoint] = {}

    def keep(make: Callable[[], Checkpoint]) -> None:
        made = make()
        kept.setdefault("third" if "graphs 3:done" in made else "before", made)

    learned = learn_from_tables(tables, study, interruption=Interruption(keep=keep))
    found = learned.posterior
    assert found is not None
    assert found.source == "noisy-tables"
    assert found.consensus == learned.network.dag
    assert len(found.networks) == 3
    for pair in found.pairs:
        assert pair.estimate == pytest.approx(network_pair(learned.network, pair.first, pair.second), abs=0.05)
    again = learn_from_tables(tables, study, interruption=Interruption(checkpoint=kept["third"])).posterior
    assert again is not None
    assert np.array_equal(found.sample.parents, again.sample.parents)


def test_scores_are_those_of_records_and_of_their_tempered_counts() -> None:
    table = np.random.default_rng(1).integers(0, 20, (2, 3, 4)).astype(float)
    for name, score in (("bdeu", bdeu_score), ("dirichlet", dirichlet_score)):
        exact = exact_scores(table, name)
        assert exact[2] == pytest.approx(score(table.reshape(6, 4)) - score(table.sum(axis=(0, 1))[None]))
        told = family_scores(table, 0.3, name)
        gain = score(0.3 * table.reshape(6, 4)) - score(0.3 * table.sum(axis=0))
        assert told[2, (0, 1)] - told[2, (1,)] == pytest.approx(gain)
        assert told[2, ()] == 0
        assert family_scores(table, 1.0, name)[2, (0, 1)] == pytest.approx(exact[2])


def test_drawn_counts_have_the_posterior() -> None:
    """Against the posterior on a grid of the one free share.

    The mean and the deviation of the share of the first category, within 25 and 12 % of the deviation: false alarm below 1e-3
    with 1,500 independent draws.
    """
    channel = quantize(symmetric(2, flip=0.25))
    observed = np.array([430, 570])
    design = as_design([channel])
    grid = (np.arange(20_000) + 0.5) / 20_000
    released_share = grid * 0.75 + (1 - grid) * 0.25
    log = observed[0] * np.log(released_share) + observed[1] * np.log(1 - released_share)
    weight = np.exp(log - log.max())  # a uniform prior: a pseudo-count of 1 in each cell
    mean = (grid * weight).sum() / weight.sum()
    deviation = np.sqrt(((grid - mean) ** 2 * weight).sum() / weight.sum())
    rng = np.random.default_rng(3)
    drawn = drawn_counts(observed, design, np.array([360.0, 640.0]), 1500, factor=0.25, generator=rng, pseudo=1.0)
    shares = np.array([rng.dirichlet(1 + each)[0] for each in drawn])
    assert abs(shares.mean() - mean) < 0.25 * deviation
    assert shares.std() == pytest.approx(deviation, rel=0.12)
    naive = rng.dirichlet(1 + np.array([360.0, 640.0]), 1500)[:, 0]  # corrected counts as if they were people
    assert naive.std() != pytest.approx(deviation, rel=0.12)


def test_large_tables_are_not_augmented() -> None:
    channel = quantize(symmetric(10, flip=0.05))
    assert can_be_augmented(as_design([channel]), 0.1)
    assert not can_be_augmented(as_design([channel] * 4), 0.01)


def test_matched_counts_have_the_variance() -> None:
    counts = matched_counts(np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.04, 0.04], [np.nan, np.nan]]))
    draws = np.random.default_rng(1).dirichlet(counts[0], 20_000)[:, 0]
    assert draws.mean() == pytest.approx(0.2, abs=0.002)
    assert draws.std() == pytest.approx(0.04, rel=0.03)
    assert counts[1].sum() == 1


def test_a_band_holds_whole_tables() -> None:
    """The share of 400 normal tables within the band is .95 up to three standard errors; pointwise ends would hold .74."""
    rng = np.random.default_rng(5)
    draws = 0.5 + 0.01 * rng.standard_normal((2000, 6))
    low, _, high = band(draws, 0.95)
    others = 0.5 + 0.01 * rng.standard_normal((400, 6))
    inside = ((low <= others) & (others <= high)).all(axis=1).mean()
    assert abs(inside - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 400)


def test_a_few_mixed_graphs_taken_evenly_are_by_every_replicate() -> None:
    """By five of ten scores v0 and v1 are linked, by five they are not: of 200 networks about half are, of five sets some.

    The standard error of the share is .035; in a fixed order of the replicates every 640th graph was by the first one.
    """
    study = dataclasses.replace(study_of(), posterior=PosteriorRule(data_sets=5))
    units, parts = [study.column_unit(v) for v in range(4)], []
    for number in range(10):
        columns = released(study, seed=number)
        if number % 2:
            columns[0] = np.random.default_rng(number).permutation(columns[0])
        parts.append(PosteriorScores(FamilyTables(columns, units, N_STATES), "bdeu", whole=True))
    pairs = pair_scores(columns, units, N_STATES)
    sample = mixed_graphs(
        parts,
        search_problem(pairs.information, study),
        pairs,
        study,
        progress=lambda _: None,
        stages=Stages(UNINTERRUPTED),
    ).sample
    assert sample.skeleton_probability[0, 1] == pytest.approx(0.5, abs=0.01)
    linked = [frozenset((0, 1)) in map(frozenset, dag.edges()) for dag in chosen_graphs(sample, 200)]
    assert np.mean(linked) == pytest.approx(0.5, abs=0.14)
    assert 0 < sum(frozenset((0, 1)) in map(frozenset, dag.edges()) for dag in chosen_graphs(sample, 5)) < 5


@pytest.mark.whole
def test_statistics_by_name() -> None:
    labels = study_of().schema[0].labels
    asked = (("mle", "v0", labels[2], "v1", labels[1]), ("chi-square", "v1", "v3"), ("linear", "v0", "v1"))
    study = study_of(rule=PosteriorRule(steps=1000, data_sets=1, statistics=asked))
    columns = released(study)
    found = learn(columns, study).posterior
    assert found is not None
    share = np.mean(columns[0][columns[1] == 1] == 2)
    mle, chi, slope = found.predictive
    assert mle.low < share < mle.high
    assert len(mle.draws) == 1000
    assert all(each.worth.r_hat <= 1.01 and min(each.worth.bulk, each.worth.tail) >= 500 for each in found.predictive)
    assert 0.001 < chi.mean < 1
    assert slope.low < np.polyfit(columns[1], columns[0], 1)[0] < slope.high
    with pytest.raises(ValueError, match="records"):
        statistic(("overlap", "v0", labels[0]), study.schema, None)
    with pytest.raises(ValueError, match="no statistic"):
        statistic(("median", "v0"), study.schema, None)


@pytest.mark.whole
def test_statistics_of_columns_that_follow() -> None:
    """Of the same records: what follows from v0 is there as often as v0 has it, and has numbers where it has bins."""
    follows = Function(
        name="f",
        variable=Variable(name="high", owner="a", labels=("[0,1)", "[1,2)"), bins=(0.0, 1.0, 2.0)),
        position=0,
        of=("v0",),
        values=(("0", "[0,1)"),),
        otherwise="[1,2)",
    )
    asked = (
        ("mle", "v0", "0", "v1", "1"),
        ("mle", "high", "[0,1)", "v1", "1"),
        ("mean", "high"),
        ("overlap", "high", "[0,1)"),
    )
    study = study_of(rule=PosteriorRule(steps=1000, data_sets=1, statistics=asked))
    study = dataclasses.replace(study, knowledge=Knowledge(functions=(follows,)))
    rules.check(study, source="study.toml")
    columns = released(study)
    found = learn(columns, study).posterior
    assert found is not None
    low, same, mean, overlap = found.predictive
    assert np.array_equal(low.draws, same.draws)
    assert mean.mean == pytest.approx(0.5 + np.mean(columns[0] > 0), abs=0.02)  # 5,000 people: five standard errors
    assert overlap.mean > 0.5


def test_many_variables_have_candidates_and_a_consensus_within_the_limits() -> None:
    """Of 30 variables the twelve that tell the most; the consensus of more than can be searched exactly keeps the constraints."""
    d = 30
    rng = np.random.default_rng(2)
    information = np.triu(rng.random((d, d)), 1)
    information += information.T
    ones = np.ones((d, d))
    pairs = PairScores(information=information, p_value=ones, significant=ones > 0, level=0.05, links={})
    names = tuple(f"v{v}" for v in range(d))
    rules = declared_constraints(
        names, (2,) * d, max_parents=3, max_family_cells=100, required=(("v1", "v0"),), forbidden=(("v2", "v3"),)
    )
    problem = SearchProblem(
        weights=np.zeros((d, d)), n_states=(2,) * d, max_parents=3, max_family_cells=100, constraints=rules
    )
    found = candidate_parents(problem, pairs)
    assert found is not None
    best = sorted((v for v in range(d) if v not in (2, 3)), key=lambda v: -information[v, 3])[:12]
    assert found[3] == tuple(sorted(best))
    assert candidate_parents(dataclasses.replace(problem, max_parents=2), pairs) is None
    assert candidate_parents(problem, pairs, most=TUNING.most_sets_of_all_plain) is None
    masks = np.zeros((8, d), dtype=np.uint64)
    masks[:, 0] |= 1 << 1  # required
    masks[:5, 5] |= 1 << 4
    masks[5:7, 4] |= 1 << 5  # 4 - 5 linked in seven of eight graphs
    masks[:3, 7] |= 1 << 6  # 6 - 7 in three
    sample = GraphSample(
        parents=masks,
        log_weight=np.zeros(8),
        chain=np.repeat(np.arange(2, dtype=np.int16), 4),
        steps=20,
        burn_in=4,
        every=4,
    )
    dag = consensus(sample, problem, seed=1).dag
    assert dag.edges() == ((1, 0), (4, 5))
