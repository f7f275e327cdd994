"""Every method from randomized columns, the choice of ``auto``, and custom networks that keep their promise."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support import studies
from support.tuning import tune
from verticil.miner.learning import selection, structure
from verticil.miner.learning.held_out import HeldOut, check_pairs, quick_network, sample_network
from verticil.miner.learning.learn import learn
from verticil.miner.learning.scoring import column_groups as groups
from verticil.miner.learning.scoring import counting
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.search.protocol import (
    UNINTERRUPTED,
    Checkpoint,
    ForeignCheckpoint,
    Interruption,
    LearningCancelled,
)
from verticil.miner.learning.selection import CANDIDATES, Candidate, SelectedStructure, choose_search, search_columns
from verticil.miner.learning.structure import Search, find_structure
from verticil.miner.learning.tuning import TUNING
from verticil.miner.storage.checkpoint import CheckpointFile, resume
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import CustomRule, GeneticRule, OrderRule, Study
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import METHODS

N_STATES = (2, 3, 2, 2, 3, 2)
SEARCHED = [
    (method, score)
    for method, known in METHODS.items()
    if method != "given" and not known.whole_table
    for score in known.scores
]


def study_of(epsilon: float | None = 2.0, **structure: object) -> Study:
    genetic, order = GeneticRule(population=40, selected=5, generations=40), OrderRule(chains=1, moves=2000, rounds=5)
    rule = {"method": "auto", "score": "auto", "seed": 3, "genetic": genetic, "order": order, **structure}
    return studies.study_of(studies.numbered(N_STATES), epsilon=epsilon, structure=rule)


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


def found_by(study: Study, columns: list[np.ndarray], interruption: Interruption = UNINTERRUPTED) -> SelectedStructure:
    return search_columns(columns, study, progress=lambda _stage, _percent: None, interruption=interruption)


def answer(found: SelectedStructure) -> tuple[object, ...]:
    return found.result, found.search, found.candidates


def likelihood(held: HeldOut, network: Network) -> float:
    return float(held.likelihoods(sample_network(network, seed=1)).mean())


def skeleton(dag: Dag) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in dag.edges()}


def test_of_many_variables_hill_climbing_looks_at_candidates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pair of a parity shows it, so what finds it has looked at every pair."""
    study = study_of(None, method="hill-climb", score="bic")
    generator = np.random.default_rng(4)
    columns = [generator.integers(0, k, 2000).astype(np.uint8) for k in N_STATES]
    columns[3] = columns[0] ^ columns[2]
    told = search_columns(columns, study, progress=lambda _stage, _percent: None)
    assert {(parent, child) for parent, child in told.result.dag.edges()} <= {
        (a, b) for a in (0, 2, 3) for b in (0, 2, 3)
    }
    assert len(told.result.dag.edges()) >= 2
    tune(monkeypatch, structure, all_pairs_variables=len(N_STATES) - 1)
    assert not search_columns(columns, study, progress=lambda _stage, _percent: None).result.dag.edges()


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


@pytest.mark.parametrize("sensitive", [("v1",), ("v1", "v2", "v4")])
def test_the_exact_search_over_orders_keeps_the_promise_and_its_mask_is_what_keeps_it(sensitive):
    custom = CustomRule(target="v3", sensitive=sensitive)
    columns = columns_of(study_of(2.0), 4000)
    rule = {"method": "order", "score": "mutual-information", "order": OrderRule(exact=True)}
    study = study_of(2.0, custom=custom, **rule)
    network = study.custom_network()
    assert network is not None
    kept = found_by(study, columns).result.dag
    assert network.leaks(kept) == ()
    assert kept.edges()
    free = found_by(
        study_of(2.0, **rule), columns
    ).result.dag  # without the mask the same columns give a network that leaks
    assert network.leaks(free)
    assert any("is not separated from" in text for text in study.constraints().violations(free))


@pytest.mark.parametrize("method", ["genetic", "greedy", "auto"])
def test_the_network_is_the_same_on_one_and_on_two_threads(method, monkeypatch):
    """Small blocks and no threshold, so that the compiled kernel counts everything and has something to share out."""
    tune(monkeypatch, counting, kernel_increments=0)
    tune(monkeypatch, groups, threaded_increments=0, block_records=4096)
    study = study_of(2.0, method=method, score="auto" if method == "auto" else "mutual-information")
    columns = columns_of(study)
    pools: list[int] = []
    made = groups.ThreadPoolExecutor

    def count_pool(threads: int, **names: str) -> ThreadPoolExecutor:
        pools.append(threads)
        return made(threads, **names)

    monkeypatch.setattr("verticil.miner.learning.scoring.column_groups.ThreadPoolExecutor", count_pool)
    answers = []
    for processors in (1, 2):
        monkeypatch.setattr(
            "verticil.miner.learning.scoring.column_groups.processors", lambda processors=processors: processors
        )
        answers.append(answer(found_by(study, columns)))
        assert bool(pools) == (processors == 2)
    assert answers[0] == answers[1]


def test_auto_takes_the_simplest_candidate_within_the_error_of_the_best():
    study = study_of(3.0)
    found = found_by(study, columns_of(study))
    assert tuple(candidate.search for candidate in found.candidates) == CANDIDATES
    assert all(len(candidate.blocks) == TUNING.blocks and candidate.missing == 0 for candidate in found.candidates)
    best = max(found.candidates, key=lambda candidate: candidate.held_out)
    tree = next(candidate for candidate in found.candidates if candidate.search.method == "tree")
    behind, error = tree.behind(best)
    assert behind > 2 * error > 0  # variable 3 has two parents: no accident, so the simpler tree is not taken
    near = [candidate for candidate in found.candidates if operator.le(*candidate.behind(best))]
    assert found.search == min(near, key=lambda candidate: candidate.parameters).search
    assert skeleton(TRUE) <= skeleton(found.result.dag)


def candidate(search: Search, *, parameters: int, blocks: tuple[float, ...], missing: float = 0.0) -> Candidate:
    return Candidate(search=search, edges=5, parameters=parameters, blocks=blocks, missing=missing)


def test_a_difference_within_its_error_does_not_decide_and_a_strong_link_left_out_does():
    study = study_of(2.0)
    units = [study.column_unit(index) for index in range(6)]
    climb, noise, order, tree = CANDIDATES
    candidates = [
        candidate(climb, parameters=90, blocks=(-1.0, -1.2, -1.1)),  # 0.0001 ahead of the tree, with an error of .0001
        candidate(noise, parameters=20, blocks=(-1.1, -1.3, -1.2)),  # the simplest, and worse without any doubt
        candidate(order, parameters=70, blocks=(-1.01, -1.21, -1.11)),
        candidate(tree, parameters=40, blocks=(-1.0001, -1.2003, -1.0999)),
    ]
    assert choose_search(candidates, study, units).search == tree
    candidates[0] = dataclasses.replace(candidates[0], missing=0.7)  # nats of one record, as 15 pairs at .01 are
    candidates[3] = dataclasses.replace(candidates[3], missing=0.7)
    assert choose_search(candidates, study, units).search == order


def with_a_function(generator: np.random.Generator, n: int) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """Ten columns: districts and their densities, which are a function of each other, and eight of a chain."""
    n_states = (16, 16, *(2, 3) * 4)
    district = generator.integers(0, 16, n)
    columns = [district, (district * 5 + 3) % 16]
    for k in n_states[2:]:
        columns.append(np.where(generator.random(n) < 0.7, columns[-1] % k, generator.integers(0, k, n)))
    return n_states, columns


@pytest.mark.whole
def test_a_function_among_other_columns_comes_through_auto_and_the_check_says_so():
    """Epsilon 2, 8,000 records. Hill climbing leaves the pair out: its table has 240 probabilities, each at a penalty."""
    generator = np.random.default_rng(6)
    n_states, true = with_a_function(generator, 8000)
    names = [f"v{i}" for i in range(len(n_states))]
    variables = tuple(
        Variable(name=name, owner="a", labels=tuple(map(str, range(k))))
        for name, k in zip(names, n_states, strict=True)
    )
    channels = [quantize(symmetric(k, epsilon=2.0)) for k in n_states]
    plain = study_of(2.0)
    study = dataclasses.replace(
        plain,
        schema=Schema(variables=variables),
        units=tuple(
            Unit(variables=(name,), owner="a", scheme="symmetric", transition=channel)
            for name, channel in zip(names, channels, strict=True)
        ),
    )
    released = [
        (generator.random(len(column))[:, None] >= np.cumsum(channel.probabilities, axis=1)[column][:, :-1])
        .sum(axis=1)
        .astype(np.uint8)
        for column, channel in zip(true, channels, strict=True)
    ]
    learned = learn(released, study)
    by_search = {candidate.search: candidate for candidate in learned.candidates}
    assert by_search[CANDIDATES[1]].missing > 0.5
    assert learned.way is not None
    assert by_search[learned.way].missing == 0
    sample = sample_network(learned.network, seed=1)
    of_network = np.histogram2d(sample[0], sample[1], bins=16)[0] / len(sample[0])
    real = np.histogram2d(true[0], true[1], bins=16)[0] / 8000
    assert np.abs(of_network - real).sum() < 0.5 * np.abs(np.outer(real.sum(axis=1), real.sum(axis=0)) - real).sum()
    check = learned.pair_check
    assert check is not None
    assert (0, 1) not in [(a, b) for a, b, _ in check.missing]
    climb = found_by(
        dataclasses.replace(
            study, structure=dataclasses.replace(study.structure, method="hill-climb", score="bic-noise")
        ),
        released,
    )
    loose = quick_network(study.schema, climb.result.dag, climb.tables, prior_count=0.5)
    said = check_pairs(sample_network(loose, seed=1), n_states, climb.pairs)
    assert said.worst == said.missing[0][:2] == (0, 1)
    assert said.distance > said.noise + 0.3
    assert said.strong >= said.missing[0][2] > 0.5


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


def test_of_many_variables_auto_compares_searches_on_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, selection, all_pairs_variables=len(N_STATES) - 1)
    columns = columns_of(study_of(2.0), 4000)
    found = found_by(study_of(2.0), columns)
    assert [candidate.search.method for candidate in found.candidates] == ["order", "tree"]
    assert found_by(study_of(2.0, prefer="structure"), columns).search.method == "tree"
    required = study_of(2.0, required=(("v1", "v3"), ("v2", "v3")), prefer="structure")
    assert found_by(required, columns).search.method == "order"


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
    assert likelihood(held, right) == pytest.approx(math.fsum(entropies) / 15, abs=2e-4)
    none = quick_network(study.schema, Dag(parents=((),) * 6), tables, prior_count=0.5)
    assert likelihood(held, none) < likelihood(held, right) - 0.01


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
    assert math.isfinite(likelihood(held, linked))
    assert likelihood(held, linked) > likelihood(held, loose)


def test_auto_can_be_stopped_between_any_two_steps():
    study = study_of(2.0)
    columns = columns_of(study, 2000)
    for calls in (0, 20, 60):
        asked = iter(range(calls))
        with pytest.raises(LearningCancelled):
            found_by(study, columns, Interruption(cancelled=lambda asked=asked: next(asked, None) is None))


def interrupted(study: Study, columns: list[np.ndarray], at: int) -> Checkpoint | None:
    """The checkpoint of a search that is stopped when it is asked for the `at`-th time; None where it was not searching."""
    asked = itertools.count()
    with pytest.raises(LearningCancelled) as stop:
        found_by(study, columns, Interruption(cancelled=lambda: next(asked) >= at))
    return stop.value.checkpoint


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_auto_goes_on_from_every_checkpoint_to_the_same_answer(tmp_path, every):
    """Through the file: in each candidate, between two of them, and in the last search."""
    study = study_of(2.0, order=OrderRule(chains=1, moves=500, rounds=2))
    columns = columns_of(study, 1500)
    kept: list[Checkpoint] = []
    whole = found_by(study, columns, Interruption(keep=lambda make: kept.append(make())))
    assert {len(checkpoint["candidate_edges"]) for checkpoint in kept} == set(range(len(CANDIDATES) + 1))
    file = CheckpointFile(tmp_path / "checkpoint", bytes(32), what="test")
    stages = itertools.groupby(kept, key=lambda checkpoint: len(checkpoint["candidate_edges"]))
    middle = [stage[len(stage) // 2] for stage in (list(group) for _, group in stages)]
    for checkpoint in kept if every else middle:
        file.write(checkpoint)
        told: list[int] = []
        again = search_columns(
            columns,
            study,
            progress=lambda _s, percent, told=told: told.append(percent),
            interruption=Interruption(checkpoint=file.read()),
        )
        assert answer(again) == answer(whole)
        done = len(checkpoint["candidate_edges"])
        assert min(told[2:], default=100) >= 50 * done // len(CANDIDATES) - 1  # nothing that was done is done again


def test_auto_stopped_again_and_again_comes_to_the_same_answer(tmp_path):
    study = study_of(2.0, order=OrderRule(chains=1, moves=500, rounds=2))
    columns = columns_of(study, 1500)
    whole = found_by(study, columns)
    path = tmp_path / "checkpoint"
    for stops in range(1000):  # the first look of a run is before anything is counted
        asked = itertools.count()
        try:
            found = resume(
                lambda interruption: found_by(study, columns, interruption),
                path,
                bytes(32),
                is_cancelled=lambda asked=asked: next(asked) >= 45,
                what="test",
                seconds=3600,
            )
        except LearningCancelled:
            continue
        assert answer(found) == answer(whole)
        assert stops > 2
        return
    raise AssertionError("the search never ends")


def test_a_checkpoint_of_other_columns_or_another_method_is_refused():
    study = study_of(2.0)
    columns = columns_of(study, 2000)
    checkpoint = next(found for at in range(30, 300) if (found := interrupted(study, columns, at)) is not None)
    with pytest.raises(ForeignCheckpoint, match="another selection"):
        search_columns(
            columns_of(study, 2000, seed=2),
            study,
            progress=lambda _s, _p: None,
            interruption=Interruption(checkpoint=checkpoint),
        )
    alone = study_of(2.0, method="hill-climb", score="bic-noise")
    with pytest.raises(ForeignCheckpoint, match="another search"):
        search_columns(
            columns,
            alone,
            progress=lambda _s, _p: None,
            interruption=Interruption(checkpoint={"search": np.zeros(32, np.uint8)}),
        )
    with pytest.raises(ForeignCheckpoint, match="another selection"):
        search_columns(
            columns,
            study,
            progress=lambda _s, _p: None,
            interruption=Interruption(checkpoint={"search": checkpoint["search"]}),
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
    assert result.way in {candidate.search for candidate in result.candidates}
    assert result.pair_check is not None
    assert result.pair_check.missing == ()
    assert result.pair_check.distance < 0.1
    assert len(result.candidates) == 4
    assert set(result.edge_strength) == set(result.network.dag.edges())
    assert all(0 <= told.strength <= 1 for told in result.edge_strength.values())


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
