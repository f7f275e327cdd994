"""The genetic algorithm under constraints: kernels equal the plain procedures, which keep every constraint at every moment."""

import numpy as np
import pytest

from support.genetic_operators import Individual
from support.restricted_operators import (
    EMPTY,
    Limits,
    initial_individual,
    limits_of,
    next_generation,
    order_flip,
    swap,
)
from verticil.miner.learning.search.draws import Draws, stream_state
from verticil.miner.learning.search.genetic import GeneticSearch, Population, decode
from verticil.miner.learning.search.protocol import SearchProblem, fitting_parents, run_search, total_weight, violations
from verticil.shared.numerics.model.constraints import declared_constraints

DECLARATIONS = [
    {"required": [("v0", "v1"), ("v2", "v1"), ("v1", "v6")]},
    {"tiers": [["v4", "v1"], ["v0", "v5"], ["v2", "v3"]]},
    {"tiers": [["v4"], ["v0"]], "required": [("v3", "v0")], "forbidden": [("v4", "v0"), ("v5", "v6")]},
    {"target": "v2", "sensitive": ["v0"]},
    {"target": "v2", "sensitive": ["v0", "v3", "v6"]},
    {"target": "v2", "sensitive": ["v0"], "hide_from": ["v1", "v4"], "required": [("v0", "v5")]},
]


def problem_of(declarations, *, d: int = 7, k: int = 3, cells: int = 500, seed: int = 0) -> SearchProblem:
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.random((d, d)) * (generator.random((d, d)) >= 0.3), 1)
    n_states = tuple(int(s) for s in generator.integers(2, 5, d))
    constraints = declared_constraints(
        [f"v{i}" for i in range(d)], n_states, max_parents=k, max_family_cells=cells, **declarations
    )
    return SearchProblem(
        weights=upper + upper.T, n_states=n_states, max_parents=k, max_family_cells=cells, constraints=constraints
    )


def individuals(state: Population) -> list[Individual]:
    return [
        Individual(order=tuple(order), families=tuple(map(tuple, families)))
        for order, families in zip(state.orders.tolist(), state.families.tolist(), strict=True)
    ]


def plain_fitness(problem: SearchProblem, individual: Individual) -> float:
    place = {f: p for p, f in enumerate(individual.order)}
    return sum(
        problem.weights[parent, child]
        for child, family in enumerate(individual.families)
        for parent in fitting_parents(problem, child, [p for p in family if p != EMPTY and place[p] < place[child]])
    )


def valid(individual: Individual, limits: Limits, k: int) -> bool:
    """Every member allowed and distinct, the required ones first, and nobody before a predecessor."""
    return all(
        limits.before[j] <= set(individual.order[: individual.order.index(j)])
        and family[: len(limits.required[j])] == limits.required[j]
        and len(family) == k
        and set(rest := [f for f in family[len(limits.required[j]) :] if f != EMPTY]) <= limits.allowed[j]
        and len(set(rest)) == len(rest)
        for j, family in enumerate(individual.families)
    )


@pytest.mark.parametrize("declarations", DECLARATIONS)
@pytest.mark.parametrize("rate", [None, 0.0, 0.5, 1.0])
def test_kernels_make_the_populations_of_the_plain_procedures(declarations, rate):
    problem = problem_of(declarations)
    limits = limits_of(problem)
    search = GeneticSearch(population=17, selected=4, generations=5, mutation_rate=rate)
    state = search.start(problem, seed=3)
    draws = Draws(stream_state(3))
    expected = [initial_individual(3, limits, draws) for _ in range(17)]
    for generation in range(6):
        assert individuals(state) == expected, generation
        assert int(state.stream[0]) == draws.state
        assert all(valid(individual, limits, 3) for individual in expected)
        fitness = [plain_fitness(problem, individual) for individual in expected]
        assert state.fitness.tolist() == fitness  # exactly: weights are multiples of 2^-40
        elite = [expected[i] for i in sorted(range(17), key=lambda i: (-fitness[i], i))[:4]]
        expected = list(next_generation(elite, 17, 1 / 7 if rate is None else rate, limits, draws))
        state = search.step(state)


@pytest.mark.parametrize("declarations", DECLARATIONS)
def test_every_individual_of_every_generation_is_a_network_that_meets_the_constraints(declarations):
    problem = problem_of(declarations)
    search = GeneticSearch(population=30, selected=5, generations=8)
    state = search.start(problem, seed=1)
    for _ in range(8):
        for order, families, fitness in zip(state.orders, state.families, state.fitness, strict=True):
            dag, _ = decode(problem, order, families)
            assert violations(problem, dag) == ()
            assert total_weight(problem, dag) == fitness
        state = search.step(state)


def test_the_custom_order_of_the_paper_is_fixed():
    """Section IV: the target is the first and the sensitive attribute the second component of the ordering chromosome."""
    state = GeneticSearch().start(problem_of({"target": "v2", "sensitive": ["v0"]}), 0)
    assert (state.orders[:, 0] == 2).all()
    assert (state.orders[:, 1] == 0).all()
    last = run_search(GeneticSearch(generations=30), state.problem, seed=0)
    assert last.dag.parents[2] == ()
    assert last.dag.parents[0] in ((), (2,))


def test_order_flip_changes_what_may_change_and_nothing_else():
    limits = limits_of(problem_of({"tiers": [["v0", "v1"], ["v2", "v3", "v4", "v5", "v6"]]}))
    draws = Draws(7)
    seen = set()
    for _ in range(200):
        individual = initial_individual(3, limits, draws)
        flipped = order_flip(individual, 0.5, limits, draws)
        assert set(flipped.order[:2]) == {0, 1}
        assert flipped.families == individual.families
        seen.add(flipped.order[:2])
    assert seen == {(0, 1), (1, 0)}


def test_swap_fills_an_empty_slot_as_soon_as_somebody_precedes():
    limits = limits_of(problem_of({"tiers": [["v0"]], "required": [("v3", "v1")], "forbidden": [("v0", "v1")]}, d=4))
    empty = Individual(order=(0, 2, 3, 1), families=((EMPTY,) * 3, (3, EMPTY, EMPTY), (EMPTY,) * 3, (EMPTY,) * 3))
    repaired = swap(empty, 0.0, limits, Draws(1))
    assert repaired.families[1] == (3, 2, EMPTY)
    assert repaired.families[2] == (0, EMPTY, EMPTY)
    assert set(repaired.families[3]) == {0, 2, EMPTY}
    assert repaired.families[0] == (EMPTY,) * 3


def test_forbidden_edges_alone_run_the_procedures_of_the_paper():
    """The network of a study with forbidden edges and nothing else stays what it was: weights of 0."""
    constrained = problem_of({"forbidden": [("v0", "v1"), ("v3", "v2")]})
    weights = constrained.weights.copy()
    plain = SearchProblem(weights=weights, n_states=constrained.n_states, max_parents=3, max_family_cells=500)
    search = GeneticSearch(population=20, selected=4, generations=10)
    assert weights[0, 1] == weights[3, 2] == 0
    assert run_search(search, constrained, seed=5) == run_search(search, plain, seed=5)


def test_a_required_edge_of_weight_zero_stays_where_cells_are_short():
    weights = np.zeros((3, 3))
    weights[0, 2] = weights[2, 0] = 5.0
    n_states = (4, 4, 4)
    constraints = declared_constraints("abc", n_states, max_parents=2, max_family_cells=16, required=[("b", "c")])
    problem = SearchProblem(
        weights=weights, n_states=n_states, max_parents=2, max_family_cells=16, constraints=constraints
    )
    assert fitting_parents(problem, 2, (0, 1)) == (1,)
    result = run_search(GeneticSearch(population=20, selected=3, generations=20), problem, seed=0)
    assert result.dag.parents == ((2,), (), (1,))
    assert result.fitness == 5.0


def test_a_problem_whose_tiers_say_the_same_edges_is_another_problem():
    """Tiers also put whole variables in order: a checkpoint of the one search is not one of the other."""
    d = 7
    later = [[f"v{p}", f"v{c}"] for p in range(3, d) for c in range(3)]
    tiers = problem_of({"tiers": [["v0", "v1", "v2"], ["v3", "v4", "v5", "v6"]]}, d=d)
    forbidden = problem_of({"forbidden": later}, d=d)
    assert tiers.constraints is not None
    assert forbidden.constraints is not None
    np.testing.assert_array_equal(tiers.constraints.allowed, forbidden.constraints.allowed)
    np.testing.assert_array_equal(tiers.weights, forbidden.weights)
    assert tiers.digest() != forbidden.digest()
