"""Learning: from released columns and a study to a network."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from support import studies
from support.tuning import tune
from verticil.miner.learning import learn as learning
from verticil.miner.learning.learn import learn
from verticil.miner.learning.search.protocol import Interruption, LearningCancelled, SearchProblem, SearchResult
from verticil.miner.learning.search_facts import search_facts
from verticil.miner.learning.selection import cut_parents
from verticil.miner.learning.tuning import TUNING
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.wording import remarks
from verticil.shared.study.document import GeneticRule, ParameterRule, PosteriorRule, Study
from verticil.shared.study.unit import Unit
from verticil.shared.synthesis.synthesis import sample_codes

N_STATES = (3, 2, 4, 2)  # 0 -> 1 -> 2, and 3 alone


def study_of(epsilon: float | None = None, **structure: object) -> Study:
    return studies.study_of(
        studies.numbered(N_STATES), epsilon=epsilon, structure={"genetic": GeneticRule(generations=20), **structure}
    )


def chain(n: int, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    v0 = generator.choice(3, n, p=[0.5, 0.3, 0.2])
    v1 = (generator.random(n) < np.array([0.1, 0.5, 0.9])[v0]).astype(int)
    v2 = np.where(generator.random(n) < 0.6, v1, generator.integers(0, 4, n))
    v3 = generator.integers(0, 2, n)
    return [column.astype(np.uint8) for column in (v0, v1, v2, v3)]


def released(columns: list[np.ndarray], study: Study, seed: int = 1) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    out = []
    for column, unit in zip(columns, study.units, strict=True):
        cumulative = np.cumsum(unit.transition.probabilities, axis=1)[:, :-1]
        out.append((generator.random(len(column))[:, None] >= cumulative[column]).sum(axis=1).astype(np.uint8))
    return out


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_links_parameters_and_marginals_of_a_chain(epsilon):
    study = study_of(epsilon)
    true = chain(40_000)
    result = learn(released(true, study), study)
    links = {frozenset(edge) for edge in result.network.dag.edges()}
    assert {frozenset((0, 1)), frozenset((1, 2))} <= links <= {frozenset(p) for p in ((0, 1), (1, 2), (0, 2))}
    assert not result.significant[3].any()
    assert not result.pair_information[3].any()
    assert result.n_records == 40_000
    assert result.marginals_exact
    for variable, marginal in enumerate(result.marginals):
        share = np.bincount(true[variable], minlength=N_STATES[variable]) / 40_000
        assert (np.abs(marginal.estimate - share) < 5 * marginal.standard_error + 1e-9).all()
        np.testing.assert_allclose(marginal.model, marginal.estimate, atol=0.02)


def test_same_columns_and_study_same_result_and_the_seed_is_in_it():
    study = study_of(2.0)
    columns = released(chain(5000), study)
    one, two = learn(columns, study), learn(columns, study)
    assert one.search == two.search
    assert one.search.seed == 7
    for first, second in zip(one.network.families, two.network.families, strict=True):
        np.testing.assert_array_equal(first.probability, second.probability)


def test_the_studys_estimator_makes_the_probabilities_and_nothing_else():
    study = study_of(1.0)
    columns = released(chain(4000), study)
    results = [
        learn(columns, dataclasses.replace(study, parameters=dataclasses.replace(study.parameters, estimator=name)))
        for name in ("em", "clip", "simplex")
    ]
    for number, other in enumerate(results):
        for first, second in zip(results[number - 1].network.families, other.network.families, strict=True):
            np.testing.assert_array_equal(first.estimate, second.estimate)
            np.testing.assert_array_equal(first.interval_low, second.interval_low)
            assert second.projection is not None
        widest, same = results[number - 1].network.families[0], other.network.families[0]
        assert widest.projection is not None
        assert widest.projection.negative_cells == 6
        assert np.abs(widest.probability - same.probability).max() > 1e-3


def test_a_forbidden_edge_is_not_in_the_network_and_its_reverse_may_be():
    forbidden = (("v0", "v1"), ("v1", "v2"), ("v2", "v1"))
    study = study_of(forbidden=forbidden)
    edges = learn(chain(20_000), study).network.dag.edges()
    assert (1, 0) in edges
    assert not {(0, 1), (1, 2), (2, 1)} & set(edges)


def test_a_study_without_parents_is_learned():
    study = study_of(max_parents=0)
    assert learn(chain(500), study).network.dag.edges() == ()


def test_the_limit_on_family_cells_holds():
    assert learn(chain(20_000), study_of(max_family_cells=7)).network.dag.edges() in {((0, 1),), ((1, 0),)}


def test_stages_are_reported_in_order():
    told: list[tuple[str, int]] = []
    learn(chain(1000), study_of(), progress=lambda stage, percent: told.append((stage, percent)))
    stages = [stage for stage, _ in told]
    assert list(dict.fromkeys(stages)) == ["counting", "searching", "parameters"]
    assert stages == sorted(stages, key=["counting", "searching", "parameters"].index)
    assert all(0 <= percent <= 100 for _, percent in told)
    assert told[-1] == ("parameters", 100)


@pytest.mark.parametrize("calls", [0, 3, 15, 28])
def test_learning_can_be_stopped_at_every_stage(calls):
    asked = iter(range(calls))
    with pytest.raises(LearningCancelled):
        learn(chain(1000), study_of(), interruption=Interruption(cancelled=lambda: next(asked, None) is None))


def test_what_cannot_be_learned_is_an_error_with_a_code():
    with pytest.raises(DataFault, match=r"LEARNING_FAILED.*no common record"):
        learn([column[:0] for column in chain(5)], study_of())
    with pytest.raises(Misuse, match=r"STUDY_INVALID.*required edge 'v0' -> 'v1': structure.forbidden has it"):
        learn(chain(5), study_of(required=(("v0", "v1"),), forbidden=(("v0", "v1"),)))
    with pytest.raises(ValueError, match="3 columns for 4 units"):
        learn(chain(5)[:3], study_of())


def test_too_many_categories_are_an_error_before_they_are_counted(monkeypatch):
    tune(monkeypatch, learning, "SCORING", most_pair_cells=40)  # 3*2 + 3*4 + 3*2 + 2*4 + 2*2 + 4*2 = 44 cells
    with pytest.raises(DataFault, match=r"44 cells, expected at most 40"):
        learn(chain(5), study_of())


def test_model_shares_come_from_a_sample_where_elimination_is_too_large(monkeypatch):
    columns, study = chain(5000), study_of()
    exact = learn(columns, study)
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 1)
    sampled = learn(columns, study)
    assert (exact.marginals_exact, sampled.marginals_exact) == (True, False)
    for one, two in zip(exact.marginals, sampled.marginals, strict=True):
        np.testing.assert_allclose(one.model, two.model, atol=1e-4)


def test_a_single_record_is_learned_from_without_a_warning():
    result = learn([column[:1] for column in chain(5)], study_of(1.0))
    assert result.network.dag.edges() == ()


def mixed_study() -> Study:
    """The chain's variables 0 and 2 in one compound, 1 alone, 3 with twelve categories as subsets."""
    study = study_of(3.0)
    variables = (*study.schema.variables[:3], Variable(name="v3", owner="a", labels=tuple(map(str, range(12)))))
    units = (
        Unit(variables=("v0", "v2"), owner="a", scheme="symmetric", transition=quantize(symmetric(12, epsilon=5.0))),
        study.units[1],
        Unit(variables=("v3",), owner="a", scheme="subset", transition=subset_selection(12, epsilon=1.0)),
    )
    return dataclasses.replace(study, schema=Schema(variables=variables), units=units)


def mixed_columns(n: int) -> list[np.ndarray]:
    v0, v1, v2, _ = (column.astype(int) for column in chain(n))
    generator = np.random.default_rng(3)
    v3 = np.where(generator.random(n) < 0.8, 5 * v1, generator.integers(0, 12, n))
    study = mixed_study()
    first, second, sets = (unit.transition for unit in study.units)
    order = generator.random((n, 12))
    order[np.arange(n), v3] = np.where(generator.random(n) < sets.keep, -1.0, 2.0)
    columns = [4 * v0 + v2, v1]
    released_codes = [
        (generator.random(n)[:, None] >= channel.probabilities.cumsum(axis=1)[:, :-1][column]).sum(axis=1)
        for channel, column in zip((first, second), columns, strict=True)
    ]
    members = np.sort(np.argsort(order, axis=1)[:, : sets.size], axis=1).ravel()
    return [column.astype(np.uint8) for column in (*released_codes, members)]


def test_compounds_and_subsets_are_learned_from():
    study = mixed_study()
    result = learn(mixed_columns(40_000), study)
    assert result.n_records == 40_000
    links = {frozenset(edge) for edge in result.network.dag.edges()}
    assert {frozenset((0, 1)), frozenset((1, 2)), frozenset((1, 3))} <= links
    v0, _, v2, _ = chain(40_000)
    for variable, true in ((0, v0), (2, v2)):
        marginal = result.marginals[variable]
        share = np.bincount(true, minlength=len(marginal.estimate)) / 40_000
        assert (np.abs(marginal.estimate - share) < 5 * marginal.standard_error).all()
    assert result.marginals[3].estimate[5] == pytest.approx(0.8 * result.marginals[1].estimate[1] + 0.2 / 12, abs=0.03)


def test_graphs_are_sampled_of_compounds_and_subsets():
    study = mixed_study()
    structure = dataclasses.replace(study.structure, method="posterior", score="bdeu")
    study = dataclasses.replace(study, structure=structure, posterior=PosteriorRule(steps=2000, data_sets=2))
    found = learn(mixed_columns(20_000), study).posterior
    assert found is not None
    assert found.source == "randomized"
    for pair in ((0, 1), (1, 2), (1, 3)):
        assert found.sample.skeleton_probability[pair] > 0.9
    assert not any(pair.exact for pair in found.pairs)
    assert len(found.networks) == 2


def test_a_given_structure_is_not_searched_for():
    study = mixed_study()
    parents = (("v0", ()), ("v1", ("v0", "v2")), ("v2", ("v0",)), ("v3", ("v1",)))
    study = dataclasses.replace(study, structure=dataclasses.replace(study.structure, method="given", parents=parents))
    stages: list[str] = []
    result = learn(mixed_columns(5000), study, progress=lambda stage, _: stages.append(stage))
    assert result.network.dag.parents == ((), (0, 2), (0,), (1,))
    assert set(stages) == {"parameters"}
    assert (result.search.generations, result.search.dropped_edges) == (0, ())
    assert not result.significant.any()
    assert result.network.families[1].probability.shape == (12, 2)


def interaction(n: int) -> tuple[list[np.ndarray], Study]:
    """Five columns of six categories, each a noisy copy of the first; four parents are asked for."""
    generator = np.random.default_rng(5)
    first = generator.integers(0, 6, n)
    columns = [first, *(np.where(generator.random(n) < 0.5, first, generator.integers(0, 6, n)) for _ in range(4))]
    study = study_of(method="order", max_parents=4)
    variables = tuple(Variable(name=f"v{i}", owner="a", labels=tuple("abcdef")) for i in range(5))
    units = tuple(
        Unit(variables=(v.name,), owner="a", scheme="none", transition=quantize(identity(6))) for v in variables
    )
    study = dataclasses.replace(
        study,
        schema=Schema(variables=variables),
        units=units,
        parameters=dataclasses.replace(study.parameters, prior_count=None),
    )
    return [column.astype(np.uint8) for column in columns], study


def pair_distance(columns: list[np.ndarray], network: Network) -> float:
    """Mean total variation distance of the two-way tables, of many synthetic records to many real ones."""
    made = sample_codes(network, 100_000, generator=np.random.default_rng(1))

    def table(of: list[np.ndarray], a: int, b: int) -> np.ndarray:
        return np.bincount(of[a].astype(int) * 6 + of[b], minlength=36) / len(of[a])

    pairs = list(itertools.combinations(range(len(columns)), 2))
    return float(np.mean([np.abs(table(columns, a, b) - table(made, a, b)).sum() / 2 for a, b in pairs]))


def test_more_parents_than_the_records_bear_make_no_pair_worse():
    """With half a record in every cell four parents gave pairs that were 1.5 times as far from the truth as two."""
    columns, study = interaction(2_000)
    truth, _ = interaction(200_000)
    distances = {}
    for most in (2, 4):
        rule = dataclasses.replace(study.structure, max_parents=most)
        distances[most] = pair_distance(truth, learn(columns, dataclasses.replace(study, structure=rule)).network)
    assert distances[4] < 1.1 * distances[2]


def test_max_parents_follows_the_effective_records_and_the_release_says_so():
    columns, study = interaction(500)
    result = learn(columns, study)
    assert (
        max(len(parents) for parents in result.network.dag.parents) == 3
    )  # with 4: 7,776 cells, more than ten times 500
    cut = search_facts(study, result.search)["cut_edges"]
    assert len(cut) == len(result.search.cut_edges) == 1
    said = remarks(study, result.network, result.marginals, 500, {"cut_edges": cut})
    parent, child = cut[0]
    assert said[-1].startswith(f"'{parent}' tells about '{child}' and is not among its parents")
    told = dataclasses.replace(study, parameters=dataclasses.replace(study.parameters, prior_count=0.5))
    assert max(len(parents) for parents in learn(columns, told).network.dag.parents) == 4  # as it was approved


def test_required_parents_are_not_cut():
    columns, study = interaction(500)
    rule = dataclasses.replace(study.structure, required=tuple((f"v{i}", "v4") for i in range(4)))
    assert learn(columns, dataclasses.replace(study, structure=rule)).network.dag.parents[4] == (0, 1, 2, 3)


def test_noise_cuts_parents_that_records_as_they_are_would_bear():
    weights = np.zeros((3, 3))
    weights[0, 2], weights[1, 2] = 0.2, 0.1
    problem = SearchProblem(weights=weights, n_states=(4, 4, 4), max_parents=2, max_family_cells=64)
    found = SearchResult(dag=Dag(parents=((), (), (0, 1))), fitness=3.0, generations=1, dropped_edges=(), seed=1)

    def parents(n: int, left: float) -> tuple[int, ...]:
        cut = cut_parents(found, problem, n_records=n, noise=lambda members: left ** -len(members))
        return cut.dag.parents[2]

    assert parents(math.ceil(TUNING.least_effective_records * 64), 1.0) == (0, 1)
    assert parents(math.ceil(TUNING.least_effective_records * 64) - 1, 1.0) == (0,)
    assert parents(math.ceil(TUNING.least_effective_records * 64 / 0.5**6), 0.5) == (0, 1)
    assert parents(math.ceil(TUNING.least_effective_records * 64 / 0.5**6) - 1, 0.5) == (0,)
    assert parents(1, 0.5) == (0,)  # that it tells something has been tested


def dirichlet(epsilon: float, **prior: object) -> Study:
    """The chain 0 -> 1 -> 2 and 3 alone, given; the paper's estimator."""
    given = (("v0", ()), ("v1", ("v0",)), ("v2", ("v1",)), ("v3", ()))
    study = study_of(epsilon, method="given", score="given", parents=given)
    rule = ParameterRule(estimator="inverse", prior_count=1.5, interval_level=0.95, prior="dirichlet", **prior)  # type: ignore[arg-type]
    return dataclasses.replace(study, parameters=rule)


@pytest.mark.parametrize("rows", [None, ((2.0, 7.0),), ((2.0, 7.0), (1.0, 1.0), (0.5, 3.0))])
def test_with_a_dirichlet_prior_the_probabilities_are_ma_and_sivakumar_s(rows):
    """(alpha_ijk + N^_ijk) / (alpha_ij + N^_ij), with N^ from the Kronecker product of the inverses."""
    study = dirichlet(3.0, prior_tables=() if rows is None else (("v1", rows),))
    columns = released(chain(20_000), study)
    family = learn(columns, study).network.families[1]
    observed = np.bincount(columns[0] * 2 + columns[1], minlength=6)
    inverses = [np.linalg.inv(study.units[v].transition.probabilities) for v in (0, 1)]
    counts = (observed @ np.kron(*inverses)).reshape(3, 2)
    alpha = np.broadcast_to(1.5 if rows is None else np.array(rows), (3, 2))
    expected = (alpha + counts) / (alpha + counts).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(family.probability, expected, atol=1e-7)  # rounded, as all that is published


def test_with_a_dirichlet_prior_negative_counts_end_the_study_by_name():
    study = dirichlet(0.5)
    with pytest.raises(DataFault, match=r"study 'test': variable 'v\d': an estimated count is negative") as caught:
        learn(released(chain(60), study), study)
    assert (caught.value.code, "'em'" in caught.value.hint) == ("LEARNING_FAILED", True)
