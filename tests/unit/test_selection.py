"""Every method from randomized columns, the choice of ``auto``, and custom networks that keep their promise."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import math

import numpy as np
import pytest

from verticil.miner.learning.held_out import HeldOut, quick_network
from verticil.miner.learning.learn import learn
from verticil.miner.learning.search.protocol import LearningCancelled
from verticil.miner.learning.selection import CANDIDATES, Found, search_columns
from verticil.miner.learning.structure import find_structure
from verticil.miner.learning.tables import FamilyTables
from verticil.shared.channels.transition import identity, quantize, symmetric
from verticil.shared.estimation.design import ColumnUnit
from verticil.shared.model.graph import Dag
from verticil.shared.model.schema import Schema, Variable
from verticil.shared.study.document import (
    CustomRule,
    GeneticRule,
    LinkageRule,
    OrderRule,
    ParameterRule,
    ReleaseRule,
    StructureRule,
    Study,
    Unit,
)
from verticil.shared.study.vocabulary import METHOD_SCORES

N_STATES = (2, 3, 2, 2, 3, 2)
SEARCHED = [(method, score) for method, scores in METHOD_SCORES.items() if method != "given" for score in scores]


def study_of(epsilon: float | None = 2.0, **structure: object) -> Study:
    variables = tuple(
        Variable(name=f"v{i}", owner="a", labels=tuple(map(str, range(k)))) for i, k in enumerate(N_STATES)
    )
    channels = [quantize(identity(k) if epsilon is None else symmetric(k, epsilon=epsilon)) for k in N_STATES]
    rule = StructureRule(
        method="auto", score="auto", max_parents=2, max_family_cells=20_000, seed=3, required=(), forbidden=(),
        genetic=GeneticRule(population=40, selected=5, generations=40), order=OrderRule(chains=1, moves=2000, rounds=5),
    )  # fmt: skip
    return Study(
        id="test", title="", purpose="", model="central", expires=dt.date(2099, 1, 1), parties=("a",),
        linkage=LinkageRule(mode="keyed-hash", normalise=(), minimum_common_records=1),
        schema=Schema(variables=variables),
        units=tuple(
            Unit(variables=(v.name,), owner="a", scheme="symmetric", transition=channel)
            for v, channel in zip(variables, channels, strict=True)
        ),
        structure=dataclasses.replace(rule, **structure),  # type: ignore[arg-type]  # fields of the rule
        parameters=ParameterRule(estimator="em", prior_count=0.5, interval_level=0.95),
        release=ReleaseRule(synthetic_records=None, seed=7),
    )  # fmt: skip


TRUE = Dag(parents=((), (0,), (0,), (1, 2), (3,), ()))


def columns_of(study: Study, n: int = 20_000, seed: int = 1) -> list[np.ndarray]:
    """Records of `TRUE`, randomized as the study says."""
    generator = np.random.default_rng(seed)
    true: list[np.ndarray] = []
    for child, parents in enumerate(TRUE.parents):
        k = N_STATES[child]
        pull = sum((true[p] for p in parents), np.zeros(n, dtype=int)) % k
        keep = generator.random(n) < (0.7 if parents else 0.0)
        true.append(np.where(keep, pull, generator.integers(0, k, n)))
    released = []
    for column, unit in zip(true, study.units, strict=True):
        cumulative = np.cumsum(unit.transition.probabilities, axis=1)[:, :-1]
        released.append((generator.random(n)[:, None] >= cumulative[column]).sum(axis=1).astype(np.uint8))
    return released


def found_by(study: Study, columns: list[np.ndarray]) -> Found:
    return search_columns(columns, study, progress=lambda _stage, _percent: None)


def skeleton(dag: Dag) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in dag.edges()}


@pytest.mark.parametrize(("method", "score"), SEARCHED)
def test_every_method_and_score_finds_a_network_within_every_constraint(method, score):
    epsilon = None if score == "bdeu" else 2.0
    study = study_of(
        epsilon,
        method=method,
        score=score,
        tiers=(("v0",), ("v3",)),
        required=(("v2", "v3"),),
        forbidden=(("v0", "v2"),),
    )
    found = found_by(study, columns_of(study, 5000))
    dag = found.result.dag
    assert study.constraints().violations(dag) == ()
    assert max(map(len, dag.parents)) <= (1 if found.search.method == "tree" else 2)
    assert frozenset((0, 1)) in skeleton(dag)
    again = found_by(study, columns_of(study, 5000))
    assert (again.result, again.candidates) == (found.result, found.candidates)


@pytest.mark.parametrize(("method", "score"), SEARCHED)
@pytest.mark.parametrize(
    "custom",
    [
        CustomRule(target="v3", sensitive=("v4",)),
        CustomRule(target="v0", sensitive=("v1", "v3", "v4")),
        CustomRule(target="v3", sensitive=("v4",), hide_from=("v1", "v2")),
    ],
)
def test_a_custom_network_keeps_its_promise_in_every_method(method, score, custom):
    study = study_of(None if score == "bdeu" else 2.0, method=method, score=score, custom=custom)
    dag = found_by(study, columns_of(study, 4000)).result.dag
    network = study.custom_network()
    assert network is not None
    assert network.leaks(dag) == ()
    assert dag.edges()


def test_auto_compares_the_candidates_and_takes_what_fits_held_out_records_best():
    study = study_of(3.0)
    found = found_by(study, columns_of(study))
    assert tuple(candidate.search for candidate in found.candidates) == CANDIDATES
    best = max(found.candidates, key=lambda candidate: candidate.held_out)
    assert found.search == best.search
    tree = next(candidate for candidate in found.candidates if candidate.search.method == "tree")
    assert tree.held_out < best.held_out  # variable 3 has two parents
    assert skeleton(TRUE) <= skeleton(found.result.dag)


def test_records_that_come_in_the_order_of_a_sorted_table_are_held_out_at_random():
    """With linkage order-commitment the rows are the tables', which may be sorted by what is in them."""
    by_pseudonym = study_of(3.0)
    by_table = dataclasses.replace(
        by_pseudonym, linkage=dataclasses.replace(by_pseudonym.linkage, mode="order-commitment")
    )
    columns = columns_of(by_pseudonym, n=4000)
    order = np.lexsort(columns)
    in_order = [column[order] for column in columns]

    def likelihoods(study: Study, released: list[np.ndarray]) -> np.ndarray:
        return np.array([candidate.held_out for candidate in found_by(study, released).candidates])

    expected = likelihoods(by_pseudonym, columns)
    assert np.abs(likelihoods(by_table, in_order) - expected).max() < 0.05
    assert np.abs(likelihoods(by_pseudonym, in_order) - expected).max() > 0.2  # what happens without that


def test_what_auto_chose_is_what_that_method_finds_in_all_records():
    study = study_of(3.0)
    columns = columns_of(study)
    chosen = found_by(study, columns)
    alone = found_by(study_of(3.0, method=chosen.search.method, score=chosen.search.score), columns)
    assert alone.result == chosen.result


def test_who_prefers_structure_gets_the_penalty_on_noise_or_a_tree_where_little_is_left():
    columns = columns_of(study_of(2.0))
    moderate = found_by(study_of(2.0, prefer="structure"), columns)
    assert (moderate.search.method, moderate.search.score) == ("hill-climb", "bic-noise")
    assert skeleton(TRUE) <= skeleton(moderate.result.dag)
    assert len(moderate.candidates) == len(CANDIDATES)
    heavy = study_of(0.5, prefer="structure")
    assert found_by(heavy, columns_of(heavy)).search.method == "tree"


def test_auto_has_no_tree_where_two_parents_are_required():
    study = study_of(2.0, required=(("v1", "v3"), ("v2", "v3")), prefer="structure")
    found = found_by(study, columns_of(study, 4000))
    assert [candidate.search.method for candidate in found.candidates] == ["hill-climb", "hill-climb", "order"]
    assert found.result.dag.parents[3] == (1, 2)


def test_the_held_out_likelihood_of_the_true_pairs_is_their_entropy():
    """Without randomization and with the right model, the mean over pairs of minus the entropy of a pair."""
    study = study_of(None)
    columns = columns_of(study, 100_000)
    units = [study.column_unit(index) for index in range(6)]
    held = HeldOut(columns, units, N_STATES)
    tables = FamilyTables(columns, units, N_STATES, study.schema.names)
    entropies = []
    for a, b in itertools.combinations(range(6), 2):
        share = np.bincount(columns[a].astype(int) * 3 + columns[b]) / 100_000
        entropies.append(float((share[share > 0] * np.log(share[share > 0])).sum()))
    right = quick_network(study.schema, TRUE, tables, prior_count=0.5)
    assert held.likelihood(right, seed=1) == pytest.approx(math.fsum(entropies) / 15, abs=2e-4)
    none = quick_network(study.schema, Dag(parents=((),) * 6), tables, prior_count=0.5)
    assert held.likelihood(none, seed=1) < held.likelihood(right, seed=1) - 0.01


def test_held_out_records_of_compounds_with_impossible_combinations():
    generator = np.random.default_rng(2)
    domain = ((0, 0), (0, 1), (1, 1))
    units = [
        ColumnUnit(variables=(0, 1), domain=domain, channel=quantize(symmetric(3, epsilon=3.0))),
        ColumnUnit(variables=(2,), domain=None, channel=quantize(symmetric(2, epsilon=3.0))),
    ]
    columns = [generator.integers(0, 3, 5000).astype(np.uint8), generator.integers(0, 2, 5000).astype(np.uint8)]
    names = ("x", "y", "z")
    schema = Schema(variables=tuple(Variable(name=name, owner="a", labels=("0", "1")) for name in names))
    tables = FamilyTables(columns, units, (2, 2, 2), names)
    held = HeldOut(columns, units, (2, 2, 2))
    linked = quick_network(schema, Dag(parents=((), (0,), ())), tables, prior_count=0.5)
    loose = quick_network(schema, Dag(parents=((), (), ())), tables, prior_count=0.5)
    assert math.isfinite(held.likelihood(linked, seed=1))
    assert held.likelihood(linked, seed=1) > held.likelihood(loose, seed=1)


def test_auto_can_be_stopped_between_any_two_steps():
    study = study_of(2.0)
    columns = columns_of(study, 2000)
    for calls in (0, 20, 60):
        asked = iter(range(calls))
        with pytest.raises(LearningCancelled):
            search_columns(
                columns, study, progress=lambda _s, _p: None, cancelled=lambda asked=asked: next(asked, None) is None
            )


def test_progress_goes_up_and_stages_do_not_mix():
    study, told = study_of(2.0), []
    search_columns(columns_of(study, 2000), study, progress=lambda stage, percent: told.append((stage, percent)))
    stages = [stage for stage, _ in told]
    assert stages == sorted(stages)  # counting, then searching
    searching = [percent for stage, percent in told if stage == "searching"]
    assert searching == sorted(searching)
    assert 0 <= min(searching) <= max(searching) <= 100


def test_learning_records_the_choice_the_candidates_and_the_strengths():
    study = study_of(3.0)
    result = learn(columns_of(study), study)
    assert result.way == max(result.candidates, key=lambda candidate: candidate.held_out).search
    assert len(result.candidates) == 4
    assert set(result.edge_strength) == set(result.network.dag.edges())
    assert all(0 <= strength <= 1 for strength in result.edge_strength.values())


def test_between_peers_auto_is_the_search_over_orders():
    study = study_of(2.0)
    weights = np.triu(np.random.default_rng(1).random((6, 6)), 1)
    weights = weights + weights.T
    order = dataclasses.replace(study, structure=dataclasses.replace(study.structure, method="order"))
    assert find_structure(weights, study) == find_structure(weights, order)
    custom = dataclasses.replace(
        study, structure=dataclasses.replace(study.structure, custom=CustomRule(target="v0", sensitive=("v1",)))
    )
    network = custom.custom_network()
    assert network is not None
    assert network.leaks(find_structure(weights, custom).dag) == ()


@pytest.mark.parametrize("n", [1, 4, 40])
def test_auto_learns_from_very_few_records(n):
    study = study_of(2.0)
    result = learn(columns_of(study, n), study)
    assert len(result.candidates) == 4
    assert all(math.isfinite(candidate.held_out) for candidate in result.candidates)


def test_auto_with_one_variable_or_without_parents():
    single = study_of(2.0)
    single = dataclasses.replace(single, schema=Schema(variables=single.schema.variables[:1]), units=single.units[:1])
    assert found_by(single, columns_of(study_of(2.0), 500)[:1]).result.dag.parents == ((),)
    barren = study_of(2.0, max_parents=0)
    assert found_by(barren, columns_of(barren, 500)).result.dag.edges() == ()
