"""Every method, over random problems: a DAG that meets everything; the same seed, the same network; resumed, the same result."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from support.searches import GivenSearch, completed
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.greedy import GreedySearch
from verticil.miner.learning.search.hill_climb import HillClimbSearch
from verticil.miner.learning.search.order import ExactSearch, OrderSearch
from verticil.miner.learning.search.protocol import (
    Checkpoint,
    Interruption,
    LearningCancelled,
    Searcher,
    SearchProblem,
    run_search,
    total_weight,
    violations,
)
from verticil.miner.learning.search.tree import TreeSearch
from verticil.miner.storage.checkpoint import CheckpointFile
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.constraints import declared_constraints
from verticil.shared.numerics.model.graph import Dag


def family_value(child: int, parents: tuple[int, ...]) -> float:
    """Any fixed function of a family."""
    seed = [child, *(parent + 1 for parent in parents)]
    return float(np.random.default_rng(seed).normal()) + 0.2 * len(parents)


METHODS: dict[str, Searcher] = {
    "genetic": GeneticSearch(population=12, selected=3, generations=5),
    "order": OrderSearch(chains=2, moves=6000, rounds=7),
    "exact": ExactSearch(),
    "tree": TreeSearch(),
    "greedy": GreedySearch(information=family_value),
    "hill-climb": HillClimbSearch(score=family_value, patience=5),
}


@st.composite
def problems(draw: st.DrawFn) -> SearchProblem:
    d = draw(st.integers(1, 7))
    k = draw(st.integers(0, 4))
    cells = draw(st.sampled_from([1, 8, 30, 200, 10**6]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = generator.random((d, d)) * (generator.random((d, d)) < draw(st.sampled_from([0.3, 1.0])))
    np.fill_diagonal(weights, 0)
    if draw(st.booleans()):
        weights = weights + weights.T
    n_states = tuple(int(s) for s in generator.integers(1, 5, d))
    names = [f"v{i}" for i in range(d)]
    pairs = [(a, b) for a in names for b in names if a != b]
    edges = st.lists(st.sampled_from(pairs), max_size=3, unique=True) if pairs else st.just([])
    tiers = draw(st.lists(st.integers(0, 3), min_size=d, max_size=d)) if draw(st.booleans()) else [3] * d
    custom = {}
    if d > 2 and draw(st.booleans()):
        target, *others = draw(st.permutations(names))
        custom = {"target": target, "sensitive": others[: draw(st.integers(1, d - 2))]}
        if draw(st.booleans()):
            rest = others[len(custom["sensitive"]) :]
            custom["hide_from"] = rest[: draw(st.integers(1, len(rest)))]
    try:
        constraints = declared_constraints(
            names,
            n_states,
            max_parents=k,
            max_family_cells=cells,
            required=draw(edges),
            forbidden=draw(edges),
            tiers=[[name for name, tier in zip(names, tiers, strict=True) if tier == t] for t in range(3)],
            **custom,
        )
    except Misuse:
        assume(False)
        raise
    return SearchProblem(
        weights=weights, n_states=n_states, max_parents=k, max_family_cells=cells, constraints=constraints
    )


def admits(name: str, problem: SearchProblem) -> bool:
    d = len(problem.n_states)
    return name != "tree" or all(len(problem.required_parents(child)) < 2 for child in range(d))


SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", METHODS)
@SETTINGS
@given(problem=problems(), seed=st.integers(0, 2**40))
def test_every_network_meets_every_constraint_and_a_seed_gives_one_network(name, problem, seed):
    assume(admits(name, problem))
    result = run_search(METHODS[name], problem, seed=seed)
    assert isinstance(result.dag, Dag)
    assert violations(problem, result.dag) == ()
    assert max(map(len, result.dag.parents)) <= problem.max_parents
    assert run_search(METHODS[name], problem, seed=seed) == result
    assert GivenSearch(dag=result.dag).result(GivenSearch(dag=result.dag).start(problem, seed)).dag == result.dag


@pytest.mark.parametrize("name", METHODS)
@SETTINGS
@given(problem=problems(), seed=st.integers(0, 2**40), data=st.data())
def test_resumed_from_any_checkpoint_the_result_is_the_same(name, problem, seed, data):
    assume(admits(name, problem))
    search = METHODS[name]
    told: list[float] = []
    result = run_search(search, problem, seed=seed, progress=told.append)
    assert told == sorted(told)
    assume(told)
    stop = data.draw(st.integers(0, len(told) - 1))
    steps = iter(range(len(told) + 1))
    with pytest.raises(LearningCancelled) as cancelled:
        run_search(search, problem, seed=seed, interruption=Interruption(cancelled=lambda: next(steps) == stop))
    checkpoint = cancelled.value.checkpoint
    assert checkpoint is not None
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in checkpoint.values())
    # What a half-done search would give meets everything too.
    assert violations(problem, search.result(search.resume(problem, checkpoint)).dag) == ()
    assert run_search(search, problem, seed=0, interruption=Interruption(checkpoint=checkpoint)) == result


@SETTINGS
@given(problem=problems(), seed=st.integers(0, 2**40))
def test_exact_is_never_below_another_method_and_completing_never_loses(problem, seed):
    exact = run_search(METHODS["exact"], problem, seed=0)
    for name, method in METHODS.items():
        if admits(name, problem):
            found = run_search(method, problem, seed=seed)
            better = completed(problem, found.dag)
            weight = total_weight(problem, found.dag)
            assert weight <= total_weight(problem, better) <= exact.fitness
            assert violations(problem, better) == ()
            if name in ("genetic", "order", "exact", "tree"):
                assert found.fitness == weight


def planted(d: int) -> SearchProblem:
    """Six variables in a limit on cells that binds, with an edge of every kind of constraint."""
    names = [f"v{i}" for i in range(d)]
    constraints = declared_constraints(
        names, (2, 3) * (d // 2), max_parents=2, max_family_cells=13, required=[("v0", "v1")],
        forbidden=[("v1", "v5")], tiers=[["v0"], ["v4", "v5"]], target="v4", sensitive=["v5"],
    )  # fmt: skip
    weights = np.random.default_rng(d).random((d, d))
    np.fill_diagonal(weights, 0)
    return SearchProblem(
        weights=weights, n_states=(2, 3) * (d // 2), max_parents=2, max_family_cells=13, constraints=constraints
    )


@pytest.mark.parametrize("name", [*METHODS, "given"])
def test_every_checkpoint_on_disk_leads_to_the_same_result(name, tmp_path):
    problem = planted(6)
    search: Searcher = METHODS.get(name) or GivenSearch(dag=run_search(METHODS["exact"], problem, seed=0).dag)
    kept: list[Checkpoint] = [search.checkpoint(search.start(problem, 11))]
    whole = run_search(search, problem, seed=11, interruption=Interruption(keep=lambda make: kept.append(make())))
    assert violations(problem, whole.dag) == ()
    assert len(kept) > (1 if name in ("tree", "exact") else 0 if name == "given" else 5)
    file = CheckpointFile(tmp_path / "checkpoint", bytes(32), what="test")
    for checkpoint in kept:
        file.write(checkpoint)
        assert run_search(search, problem, seed=0, interruption=Interruption(checkpoint=file.read())) == whole


@pytest.mark.parametrize("name", METHODS)
def test_searches_in_several_threads_at_once_find_what_one_finds_alone(name):
    problem = planted(8)
    alone = [run_search(METHODS[name], problem, seed=seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: run_search(METHODS[name], problem, seed=seed % 4), range(12)))
    assert together == alone * 3


@pytest.mark.parametrize("name", METHODS)
def test_a_checkpoint_of_another_search_is_refused(name):
    search = METHODS[name]
    weights = np.triu(np.ones((4, 4)), 1)

    def problem_of(k: int) -> SearchProblem:
        return SearchProblem(weights=weights, n_states=(2,) * 4, max_parents=k, max_family_cells=99)

    checkpoint: Checkpoint = search.checkpoint(search.start(problem_of(2), 0))
    with pytest.raises(ValueError, match="of another search"):
        search.resume(problem_of(3), checkpoint)
    with pytest.raises(ValueError, match="of another search"):
        METHODS["tree" if name != "tree" else "exact"].resume(problem_of(2), checkpoint)
    with pytest.raises(ValueError, match="lacks"):
        search.resume(problem_of(2), {"search": checkpoint["search"]})
