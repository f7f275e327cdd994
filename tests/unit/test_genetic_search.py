"""The genetic search: kernels equal the plain procedures; results are DAGs, reproducible, within limits, and good."""

import itertools

import numpy as np
import pytest

from support.genetic_operators import Individual, initial_individual, next_generation
from verticil.miner.learning.search.compiled import genetic_kernels as compiled
from verticil.miner.learning.search.draws import Draws, stream_state
from verticil.miner.learning.search.genetic import GeneticSearch, Population, decode
from verticil.miner.learning.search.protocol import (
    Interruption,
    LearningCancelled,
    SearchProblem,
    fitting_parents,
    run_search,
    total_weight,
)
from verticil.shared.study.document import GeneticRule


def problem_of(d: int, k: int, *, seed: int = 0, zeros: float = 0.0, cells: int = 10**6) -> SearchProblem:
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.random((d, d)) * (generator.random((d, d)) >= zeros), 1)
    n_states = tuple(int(s) for s in generator.integers(2, 6, d))
    return SearchProblem(weights=upper + upper.T, n_states=n_states, max_parents=k, max_family_cells=cells)


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
        for parent in fitting_parents(problem, child, [p for p in family if place[p] < place[child]])
    )


@pytest.mark.parametrize(("d", "k"), [(1, 3), (2, 1), (2, 3), (5, 2), (9, 4), (6, 5)])
@pytest.mark.parametrize("rate", [None, 0.0, 0.5, 1.0])
def test_kernels_make_the_populations_of_the_plain_procedures(d, k, rate):
    problem = problem_of(d, k, seed=d, zeros=0.3, cells=200)
    search = GeneticSearch(population=23, selected=4, generations=6, mutation_rate=rate)
    state = search.start(problem, seed=d + k)
    draws = Draws(stream_state(d + k))
    expected = [initial_individual(d, min(k, d - 1), draws) for _ in range(23)]
    for generation in range(7):
        assert individuals(state) == expected, generation
        assert int(state.stream[0]) == draws.state
        fitness = [plain_fitness(problem, individual) for individual in expected]
        assert state.fitness.tolist() == fitness  # exactly: weights are multiples of 2^-40
        elite = [expected[i] for i in sorted(range(23), key=lambda i: (-fitness[i], i))[:4]]
        expected = list(next_generation(elite, 23, 1 / d if rate is None else rate, draws))
        state = search.step(state)


def test_a_kernel_draws_the_numbers_of_the_plain_generator():
    stream = np.array([stream_state(1)], dtype=np.uint64)
    draws = Draws(stream_state(1))
    for bound in (1, 2, 7, 65_535):
        assert compiled.below(stream, bound) == draws.below(bound)
        assert compiled.unit(stream) == draws.unit()


@pytest.mark.parametrize("d", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_every_result_is_a_dag_with_at_most_k_parents_and_the_stated_fitness(d, k):
    problem = problem_of(d, k, seed=7, zeros=0.5)
    result = run_search(GeneticSearch(population=30, selected=5, generations=20), problem, seed=3)
    assert sorted(result.dag.topological_order()) == list(range(d))
    assert max(len(parents) for parents in result.dag.parents) <= k
    assert all(problem.weights[edge] > 0 for edge in result.dag.edges())
    assert all(problem.weights[edge] == 0 for edge in result.dropped_edges)
    assert result.fitness == total_weight(problem, result.dag)
    assert (result.seed, result.generations) == (3, 20)


def test_same_seed_same_network_and_another_seed_another_run():
    problem = problem_of(12, 2)
    search = GeneticSearch(generations=30)
    assert run_search(search, problem, seed=11) == run_search(search, problem, seed=11)
    assert not np.array_equal(search.start(problem, 11).orders, search.start(problem, 12).orders)


def test_the_network_of_a_seed_is_pinned():
    """Not from our own output: the plain Python procedures, which use no library, give the same network here."""
    problem = problem_of(5, 2, seed=4)
    draws = Draws(stream_state(5))
    population = [initial_individual(5, 2, draws) for _ in range(20)]
    for _ in range(10):
        fitness = [plain_fitness(problem, individual) for individual in population]
        ranked = sorted(range(20), key=lambda i: (-fitness[i], i))
        population = list(next_generation([population[i] for i in ranked[:3]], 20, 0.2, draws))
    best = max(population, key=lambda individual: plain_fitness(problem, individual))
    dag, _ = decode(problem, np.array(best.order), np.array(best.families))
    assert run_search(GeneticSearch(population=20, selected=3, generations=10), problem, seed=5).dag == dag


def test_elitism_the_best_fitness_never_falls_and_the_elite_is_kept():
    search = GeneticSearch(population=40, selected=6, generations=25, mutation_rate=0.5)
    state = search.start(problem_of(10, 2), 1)
    for _ in range(25):
        fittest = np.argsort(-state.fitness, kind="stable")[:6]
        following = search.step(state)
        np.testing.assert_array_equal(following.orders[:6], state.orders[fittest])
        np.testing.assert_array_equal(following.families[:6], state.families[fittest])
        assert following.fitness.max() >= state.fitness.max()
        assert (
            search.result(following).fitness == following.fitness.max()
        )  # also where it is a child of this generation
        state = following


def test_a_search_without_settings_makes_200_individuals_of_the_10_fittest():
    """The paper's P and S, in the searcher and in what a study means that names none."""
    rule = GeneticRule()
    for search in (GeneticSearch(), GeneticSearch(population=rule.population, selected=rule.selected)):
        state = search.start(problem_of(9, 2), 1)
        assert len(state.fitness) == 200
        fittest = np.argsort(-state.fitness, kind="stable")
        following = search.step(state)
        kept = (following.orders == state.orders[fittest]).all(axis=1)
        kept &= (following.families == state.families[fittest]).all(axis=(1, 2))
        assert kept[:10].all()
        assert not kept[10:].any()


@pytest.mark.parametrize("seed", range(4))
def test_small_problems_are_solved(seed):
    """Best total over all orders, each with the top k predecessors of every variable (exhaustive, d=5)."""
    problem = problem_of(5, 2, seed=seed)
    best = max(
        sum(
            sum(sorted((problem.weights[p, child] for p in order[:place]), reverse=True)[:2])
            for place, child in enumerate(order)
        )
        for order in itertools.permutations(range(5))
    )
    result = run_search(GeneticSearch(), problem, seed=seed)
    assert 0.95 * best <= result.fitness <= best + 1e-9


def test_a_family_that_is_too_large_loses_its_lightest_parents():
    weights = np.zeros((4, 4))
    weights[:3, 3] = [0.2, 0.5, 0.4]
    limits = {10_000: (0, 1, 2), 125: (1, 2), 124: (1,), 24: (), 1: ()}
    for cells, expected in limits.items():
        problem = SearchProblem(weights=weights, n_states=(5, 5, 5, 5), max_parents=3, max_family_cells=cells)
        assert fitting_parents(problem, 3, (0, 1, 2)) == expected
        result = run_search(GeneticSearch(population=60, generations=40), problem, seed=2)
        assert result.dag.parents[3] == expected
        assert result.fitness == total_weight(problem, result.dag)


def test_of_equally_light_parents_the_one_with_the_larger_number_goes():
    weights = np.zeros((3, 3))
    weights[:2, 2] = 0.5
    problem = SearchProblem(weights=weights, n_states=(5, 5, 5), max_parents=2, max_family_cells=30)
    assert fitting_parents(problem, 2, (0, 1)) == (0,)


def test_a_forbidden_direction_is_not_used_and_the_other_one_is():
    weights = np.array([[0.0, 1.0], [0.0, 0.0]])  # 1 -> 0 has weight 0
    problem = SearchProblem(weights=weights, n_states=(2, 2), max_parents=1, max_family_cells=100)
    result = run_search(GeneticSearch(population=20, selected=3, generations=20), problem, seed=0)
    assert result.dag.edges() == ((0, 1),)


def test_without_information_there_is_no_edge():
    problem = SearchProblem(weights=np.zeros((6, 6)), n_states=(2,) * 6, max_parents=2, max_family_cells=100)
    result = run_search(GeneticSearch(population=20, selected=3, generations=5), problem, seed=0)
    assert result.dag.edges() == ()
    assert result.fitness == 0
    assert len(result.dropped_edges) == 1 + 2 * 4  # one prior attribute, then two for each


def test_progress_is_told_and_cancelling_stops():
    told: list[float] = []
    problem = problem_of(5, 2)
    run_search(GeneticSearch(population=10, selected=2, generations=4), problem, seed=0, progress=told.append)
    assert len(told) == 4
    assert told == sorted(told)
    stopped = Interruption(cancelled=lambda: len(told) >= 7)
    with pytest.raises(LearningCancelled):
        run_search(GeneticSearch(), problem, seed=0, progress=told.append, interruption=stopped)
    assert len(told) == 7


@pytest.mark.parametrize("arguments", [{"selected": 0}, {"selected": 300}, {"generations": -1}, {"mutation_rate": 1.5}])
def test_impossible_parameters_are_refused(arguments):
    with pytest.raises(ValueError, match="expected"):
        GeneticSearch(**arguments)


@pytest.mark.parametrize(
    "weights", [np.ones((2, 2)), np.array([[0, -1.0], [0, 0]]), np.zeros((3, 3)), np.array([[0, np.inf], [0, 0]])]
)
def test_impossible_weights_are_refused(weights):
    with pytest.raises(ValueError, match="finite weights"):
        SearchProblem(weights=weights, n_states=(2, 2), max_parents=1, max_family_cells=10)


def test_without_parents_there_is_only_the_network_without_edges():
    """`max_parents = 0` is a study that the rules accept: independent columns."""
    weights = np.array([[0.0, 1.0], [1.0, 0.0]])
    problem = SearchProblem(weights=weights, n_states=(2, 2), max_parents=0, max_family_cells=100)
    result = run_search(GeneticSearch(population=4, selected=2, generations=3), problem, seed=1)
    assert (result.dag.parents, result.fitness, result.dropped_edges) == (((), ()), 0.0, ())
