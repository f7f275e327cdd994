"""d-separation against its definition: every path is blocked (Pearl 1988; Koller and Friedman 2009, definition 3.6)."""

import itertools

import numpy as np
import pytest

from verticil.shared.numerics.model.graph import Dag, is_separated


def descendants(dag: Dag, variable: int) -> set[int]:
    found = {variable}
    while new := {c for p, c in dag.edges() if p in found} - found:
        found |= new
    return found


def simple_paths(dag: Dag, start: int, stop: int) -> list[list[int]]:
    neighbours = {v: {b for a, b in dag.edges() if a == v} | set(dag.parents[v]) for v in range(dag.n_variables)}

    def grow(path: list[int]) -> list[list[int]]:
        if path[-1] == stop:
            return [path]
        return [found for v in sorted(neighbours[path[-1]] - set(path)) for found in grow([*path, v])]

    return grow([start])


def blocked(dag: Dag, path: list[int], given: set[int]) -> bool:
    for a, v, b in zip(path, path[1:], path[2:], strict=False):
        if a in dag.parents[v] and b in dag.parents[v]:
            if not descendants(dag, v) & given:
                return True
        elif v in given:
            return True
    return False


def separated(dag: Dag, x: int, y: int, given: set[int]) -> bool:
    return all(blocked(dag, path, given) for path in simple_paths(dag, x, y))


def random_dag(d: int, seed: int, density: float) -> Dag:
    generator = np.random.default_rng(seed)
    order = generator.permutation(d).tolist()
    draw = generator.random((d, d)) < density
    return Dag(parents=tuple(tuple(sorted(p for p in order[: order.index(c)] if draw[p, c])) for c in range(d)))


@pytest.mark.parametrize("seed", range(12))
def test_every_pair_and_every_condition_of_a_random_graph(seed):
    dag = random_dag(6, seed, 0.25 + 0.05 * (seed % 6))
    answers = set()
    for x, y in itertools.combinations(range(6), 2):
        rest = [v for v in range(6) if v not in (x, y)]
        for size in range(len(rest) + 1):
            for given in itertools.combinations(rest, size):
                expected = separated(dag, x, y, set(given))
                assert is_separated(dag, [x], [y], given) == is_separated(dag, [y], [x], given) == expected
                answers.add(expected)
    assert answers == {True, False}


def test_sets_are_separated_when_all_their_pairs_are():
    for seed in range(30):
        dag = random_dag(7, seed, 0.3)
        pairs = all(separated(dag, x, y, {6}) for x in (0, 1) for y in (2, 3))
        assert is_separated(dag, (0, 1), (2, 3), (6,)) == pairs


def test_nothing_is_separated_from_everything():
    assert is_separated(Dag(parents=((), (0,))), (), (1,))


@pytest.mark.parametrize("sets", [([0], [0], []), ([0], [1], [1]), ([0], [3], []), ([-1], [1], [])])
def test_sets_that_overlap_or_do_not_exist_are_refused(sets):
    with pytest.raises(ValueError, match="disjoint"):
        is_separated(Dag(parents=((), (), ())), *sets)
