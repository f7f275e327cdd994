"""Searches over orders and trees: equal to trying everything where that can be done."""

import itertools

import numpy as np
import pytest

from support.searches import completed, order_weight
from verticil.miner.learning.search.compiled import order_kernels
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.order import (
    ExactSearch,
    OrderSearch,
    best_network,
    tables_of,
)
from verticil.miner.learning.search.protocol import SearchProblem, run_search, total_weight, violations
from verticil.miner.learning.search.tree import TreeSearch, maximum_branching
from verticil.shared.numerics.model.constraints import declared_constraints


def weights_of(d: int, seed: int, *, symmetric: bool = True, heavy: bool = False, zeros: float = 0.0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    draw = generator.exponential(size=(d, d)) ** 3 if heavy else generator.random((d, d))
    draw *= generator.random((d, d)) >= zeros
    if symmetric:
        return np.triu(draw, 1) + np.triu(draw, 1).T
    np.fill_diagonal(draw, 0)
    return draw


def problem_of(weights: np.ndarray, k: int, *, cells: int = 10**9, seed: int = 0, **declarations) -> SearchProblem:
    d = len(weights)
    n_states = tuple(int(s) for s in np.random.default_rng(seed).integers(2, 7, d))
    constraints = None
    if declarations:
        names = [f"v{i}" for i in range(d)]
        constraints = declared_constraints(names, n_states, max_parents=k, max_family_cells=cells, **declarations)
    return SearchProblem(
        weights=weights, n_states=n_states, max_parents=k, max_family_cells=cells, constraints=constraints
    )


def keeps(problem: SearchProblem, order: tuple[int, ...]) -> bool:
    return all(problem.must_precede(v) <= set(order[:place]) for place, v in enumerate(order))


def best_of_all_orders(problem: SearchProblem) -> float:
    """Only required edges must be kept; that the blocks of the constraints may be is what is tested."""
    d = len(problem.n_states)
    needed = [set(problem.required_parents(v)) for v in range(d)]
    return max(
        order_weight(problem, order)
        for order in itertools.permutations(range(d))
        if all(needed[v] <= set(order[:place]) for place, v in enumerate(order))
    )


DECLARATIONS = [
    {},
    {"required": [("v0", "v1"), ("v2", "v1")]},
    {"forbidden": [("v0", "v1"), ("v3", "v2")]},
    {"tiers": [["v4", "v1"], ["v0"], ["v2", "v3"]]},
    {"tiers": [["v4"], ["v0"]], "required": [("v3", "v0")]},
    {"target": "v2", "sensitive": ["v0", "v3"]},
    {"target": "v2", "sensitive": ["v0"], "hide_from": ["v1"]},
]


@pytest.mark.parametrize("declarations", DECLARATIONS)
@pytest.mark.parametrize("cells", [10**9, 130])
def test_exact_is_the_best_of_all_orders_and_sets(declarations, cells):
    for seed, symmetric in ((0, True), (1, False)):
        weights = weights_of(5, seed, symmetric=symmetric, zeros=0.2)
        problem = problem_of(weights, 3, cells=cells, seed=seed, **declarations)
        result = run_search(ExactSearch(), problem, seed=0)
        assert result.fitness == best_of_all_orders(problem)
        assert result.fitness == total_weight(problem, result.dag)
        assert violations(problem, result.dag) == ()


@pytest.mark.parametrize("seed", range(3))
def test_exact_is_the_best_of_all_orders_of_six(seed):
    problem = problem_of(weights_of(6, seed), 2)
    assert run_search(ExactSearch(), problem, seed=0).fitness == best_of_all_orders(problem)


def test_exact_takes_blocks_one_by_one_and_refuses_a_wide_one():
    tiers = [[f"v{i}" for i in range(start, start + 6)] for start in range(0, 24, 6)]
    problem = problem_of(weights_of(24, 3), 2, tiers=tiers)
    exact = run_search(ExactSearch(), problem, seed=0)
    assert violations(problem, exact.dag) == ()
    assert exact.fitness >= run_search(OrderSearch(), problem, seed=0).fitness
    with pytest.raises(ValueError, match="16 variables may stand in any order"):
        ExactSearch().start(problem_of(weights_of(16, 0), 2), 0)


@pytest.mark.parametrize(
    ("seed", "k", "heavy"), [(0, 2, True), (1, 3, False), (2, 3, False), (3, 2, True), (4, 3, True)]
)
def test_order_reaches_the_optimum_of_fifteen_variables(seed, k, heavy):
    problem = problem_of(weights_of(15, seed, heavy=heavy), k)
    assert run_search(OrderSearch(), problem, seed=1).fitness == run_search(ExactSearch(), problem, seed=0).fitness


def test_order_is_better_than_the_genetic_algorithm_on_more_variables():
    problem = problem_of(weights_of(40, 0), 3)
    genetic = run_search(GeneticSearch(generations=100), problem, seed=0)
    assert run_search(OrderSearch(), problem, seed=0).fitness > 1.02 * genetic.fitness


@pytest.mark.parametrize("cells", [10**9, 400, 60, 12, 1])
@pytest.mark.parametrize("declarations", [{}, {"required": [("v0", "v1")]}])
def test_the_best_parents_in_an_order_are_the_best_of_all_sets(cells, declarations):
    if declarations and cells < 60:
        return  # the required family alone does not fit
    problem = problem_of(weights_of(8, 4, zeros=0.2), 4, cells=cells, seed=2, **declarations)
    tables = tables_of(problem)
    generator = np.random.default_rng(5)
    orders_seen = [tuple(generator.permutation(8).tolist()) for _ in range(60)]
    for order in [order for order in orders_seen if keeps(problem, order)]:
        dag = best_network(problem, tables, order)
        assert total_weight(problem, dag) == order_weight(problem, order)
        assert violations(problem, dag) == ()


def test_a_constant_variable_does_not_hide_that_a_family_is_too_large():
    weights = np.zeros((4, 4))
    weights[:3, 3] = [0.9, 0.8, 0.7]
    problem = SearchProblem(weights=weights, n_states=(4, 2, 1, 2), max_parents=3, max_family_cells=8)
    dag = best_network(problem, tables_of(problem), (0, 1, 2, 3))
    assert dag.parents[3] == (0, 2)


def test_where_sets_are_not_all_looked_at_the_best_seen_is_taken():
    problem = problem_of(weights_of(14, 1), 5, cells=400, seed=3)
    order = tuple(range(14))
    few = total_weight(problem, best_network(problem, tables_of(problem), order, budget=1))
    assert 0 < few <= order_weight(problem, order)
    assert total_weight(problem, best_network(problem, tables_of(problem), order)) == order_weight(problem, order)


def test_descending_never_loses_and_ends_where_no_variable_can_be_put_better():
    problem = problem_of(weights_of(9, 2, symmetric=False), 2, tiers=[["v3"], ["v1", "v0"]])
    tables = tables_of(problem)
    generator = np.random.default_rng(1)
    seen = 0
    while seen < 5:
        start = tuple(generator.permutation(9).tolist())
        if not keeps(problem, start):
            continue
        seen += 1
        order = np.array(start, dtype=np.int32)
        found = order_kernels.descend(order, tables.before, tables.candidates, tables.heavy, tables.limits, 10**6)
        assert found == order_weight(problem, order.tolist()) >= order_weight(problem, start)
        for v, place in itertools.product(range(9), repeat=2):
            moved = [u for u in order.tolist() if u != v]
            moved.insert(place, v)
            assert not keeps(problem, tuple(moved)) or order_weight(problem, moved) <= found


def test_completing_a_network_in_its_order_never_lowers_the_fitness():
    problem = problem_of(weights_of(10, 7, zeros=0.3), 3, cells=200, required=[("v1", "v5")])
    for seed in range(10):
        result = run_search(GeneticSearch(population=20, selected=4, generations=3), problem, seed=seed)
        better = completed(problem, result.dag)
        assert total_weight(problem, better) >= result.fitness
        assert violations(problem, better) == ()


# ---- trees


def best_forest(weights: np.ndarray) -> float:
    """The best of all ways to give every variable one parent of positive weight or none, without a cycle."""
    d = len(weights)
    best = 0.0
    for parents in itertools.product(range(-1, d), repeat=d):
        if any(p >= 0 and not weights[p, c] > 0 for c, p in enumerate(parents)):
            continue
        place = list(range(d))
        for _ in range(d):
            place = [parents[v] if v >= 0 else -1 for v in place]
        if all(v < 0 for v in place):
            best = max(best, sum(float(weights[p, c]) for c, p in enumerate(parents) if p >= 0))
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_tree_is_the_best_of_all_trees(seed, symmetric):
    d = 6 if seed == 0 else 5
    problem = problem_of(weights_of(d, seed, symmetric=symmetric, zeros=0.1 * seed), 2)
    result = run_search(TreeSearch(), problem, seed=0)
    assert max(map(len, result.dag.parents)) <= 1
    assert result.fitness == best_forest(problem.weights)


@pytest.mark.parametrize("seed", range(20))
def test_the_branching_of_a_random_digraph_is_the_largest(seed):
    """Few whole weights, so that cycles within contracted cycles and ties are frequent."""
    weights = np.random.default_rng(seed).integers(0, 5, (5, 5)).astype(float)
    np.fill_diagonal(weights, 0)
    parent = maximum_branching(weights)
    assert sum(weights[p, c] for c, p in enumerate(parent) if p >= 0) == best_forest(weights)


@pytest.mark.parametrize("declarations", DECLARATIONS[2:])
def test_a_tree_is_the_best_one_that_the_constraints_admit(declarations):
    problem = problem_of(weights_of(5, 11), 2, **declarations)
    dag = run_search(TreeSearch(), problem, seed=0).dag
    assert violations(problem, dag) == ()
    usable = problem.weights.copy()
    for child in range(5):
        if needed := problem.required_parents(child):
            usable[:, child] = 0
            usable[needed[0], child] = 100.0  # more than all others
    extra = 100.0 - problem.weights[3, 0] if "required" in declarations else 0.0
    assert total_weight(problem, dag) + extra == pytest.approx(best_forest(usable), abs=1e-9)


def test_an_insignificant_or_too_large_pair_is_no_edge_and_components_have_their_smallest_variable_as_root():
    weights = np.zeros((5, 5))
    for a, b, w in ((3, 4, 1.0), (1, 2, 0.5), (0, 2, 0.4)):
        weights[a, b] = weights[b, a] = w
    problem = SearchProblem(weights=weights, n_states=(9, 2, 2, 2, 2), max_parents=1, max_family_cells=17)
    assert run_search(TreeSearch(), problem, seed=0).dag.parents == ((), (), (1,), (), (3,))
    wider = SearchProblem(weights=weights, n_states=(9, 2, 2, 2, 2), max_parents=1, max_family_cells=18)
    assert run_search(TreeSearch(), wider, seed=0).dag.parents == ((), (2,), (0,), (), (3,))


def test_a_tree_with_two_required_parents_is_refused():
    problem = problem_of(weights_of(5, 0), 2, required=[("v0", "v1"), ("v2", "v1")])
    with pytest.raises(ValueError, match="a tree admits one"):
        TreeSearch().start(problem, 0)


@pytest.mark.parametrize("search", [TreeSearch(), OrderSearch(), ExactSearch()])
@pytest.mark.parametrize(("d", "k"), [(1, 2), (2, 0), (3, 9)])
def test_the_smallest_problems(search, d, k):
    result = run_search(search, problem_of(weights_of(d, 0), k), seed=0)
    assert len(result.dag.edges()) == (0 if k == 0 else {1: 0, 2: 1, 3: 2 if search == TreeSearch() else 3}[d])


@pytest.mark.parametrize(
    "arguments", [{"chains": 0}, {"moves": -1}, {"rounds": -1}, {"hot": 0.1, "cold": 0.2}, {"cold": 0.0}]
)
def test_impossible_settings_are_refused(arguments):
    with pytest.raises(ValueError, match="expected"):
        OrderSearch(**arguments)
