"""What one step of a chain over graphs leaves, measured on the compiled step itself.

A step takes numbers in [0, 1). With all but one fixed, what it leaves changes at a few places, which bisection finds to 1e-11;
the lengths between them are probabilities. No second program says what the step should do: it is compared with the posterior.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from support.posterior import FOUR, MIXED, THREE, plain_redraw, sample_graphs, sets_of
from verticil.shared.core.arrays import Counts, Floats
from verticil.shared.numerics.posterior import kernels
from verticil.shared.numerics.posterior.chains import Chains, reversed_graph, scaled, shapes_of
from verticil.shared.numerics.posterior.exact import ExactPosterior, exact_posterior
from verticil.shared.numerics.posterior.local_scores import bdeu_score
from verticil.shared.numerics.posterior.parent_sets import ParentSets

Graph = tuple[int, ...]


class Step:
    """A step of given variables, as a function of its graph and its random numbers.

    Args:
        sets: what the chain is made of.
        wrong: what the weights are multiplied by where a set is not empty: a planted wrong ratio.
    """

    def __init__(self, sets: ParentSets, *, wrong: float = 1.0) -> None:
        self.sets = sets
        self.fraction, self.power = scaled(sets.log_weight)
        self.fraction = np.where(sets.masks > 0, self.fraction * wrong, self.fraction)
        self.places = [
            {mask: int(sets.starts[v]) + s for s, mask in enumerate(sets.of(v)[0].tolist())}
            for v in range(sets.n_variables)
        ]

    def __call__(self, graph: Graph, chosen: Sequence[int], uniform: Sequence[float]) -> Graph:
        sets, shapes = self.sets, shapes_of(len(chosen))
        parents = np.array(graph, dtype=np.uint64)
        places = np.array([known[mask] for known, mask in zip(self.places, graph, strict=True)], dtype=np.int64)
        kernels.redraw(
            np.array(chosen, dtype=np.int64), np.array(uniform, dtype=np.float64), shapes, sets.starts, sets.masks,
            self.fraction, self.power, sets.log_weight, parents, reversed_graph(parents), places, np.empty(len(shapes)),
        )  # fmt: skip
        assert (sets.masks[places] == parents).all()
        return tuple(parents.tolist())

    def outcomes(self, graph: Graph, chosen: Sequence[int]) -> dict[Graph, float]:
        """Every graph that the step may leave, with its probability."""
        found: dict[Graph, float] = {}
        zeros = [0.0] * len(chosen)
        for shape, share in pieces(lambda u: self(graph, chosen, [u, *zeros])):
            options: list[list[tuple[int, int, float]]] = []
            for i, v in enumerate(chosen):

                def drawn(u: float, i: int = i, v: int = v, shape: float = shape) -> int:
                    return self(graph, chosen, [shape, *zeros[:i], u, *zeros[i + 1 :]])[v]

                options.append([(v, drawn(u), length) for u, length in pieces(drawn)])
            for picked in itertools.product(*options):
                left = list(graph)
                probability = share
                for v, mask, p in picked:
                    left[v] = mask
                    probability *= p
                found[tuple(left)] = found.get(tuple(left), 0.0) + probability
        return found


def pieces(function: Callable[[float], object]) -> Iterator[tuple[float, float]]:
    """(a point within, length) of each interval of [0, 1) on which a function that never returns to a value is constant."""
    start, end = 0.0, 1 - 2.0**-53
    last = function(end)
    while (here := function(start)) != last:
        low, high = start, end
        while high - low > 1e-11:
            middle = (low + high) / 2
            low, high = (middle, high) if function(middle) == here else (low, middle)
        yield (start + low) / 2, high - start
        start = high
    yield (start + end) / 2, 1 - start


def conditional(sets: ParentSets, exact: ExactPosterior, graph: Graph, chosen: Sequence[int]) -> dict[Graph, float]:
    """The posterior given the parents of all variables that are not chosen."""
    rest = [v for v in range(len(graph)) if v not in chosen]
    alike = exact.parents[(exact.parents[:, rest] == np.array(graph, dtype=np.uint64)[rest]).all(axis=1)].tolist()
    known = [dict(zip(*(array.tolist() for array in sets.of(v)), strict=True)) for v in range(len(graph))]
    weight = np.array([sum(known[v][mask] for v, mask in enumerate(parents)) for parents in alike])
    share = np.exp(weight - weight.max())
    return {tuple(parents): float(p) for parents, p in zip(alike, share / share.sum(), strict=True)}


def left_by_a_round(sets: ParentSets, exact: ExactPosterior, step: Step, together: int) -> Floats:
    """The distribution of the graph after one step from the posterior: the posterior times the full transition matrix."""
    graphs = [tuple(parents) for parents in exact.parents.tolist()]
    number = {graph: index for index, graph in enumerate(graphs)}
    matrix = np.zeros((len(graphs), len(graphs)))
    choices = list(itertools.combinations(range(sets.n_variables), together))
    for graph, chosen in itertools.product(graphs, choices):
        for left, probability in step.outcomes(graph, chosen).items():
            matrix[number[graph], number[left]] += probability / len(choices)
    assert matrix.sum(axis=1) == pytest.approx(np.ones(len(graphs)), abs=1e-10)
    return exact.probability @ matrix


@pytest.mark.parametrize("together", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("counts", [THREE, MIXED])
def test_the_transition_matrix_keeps_the_posterior(counts: Counts, together: int) -> None:
    sets = sets_of(counts, bdeu_score, gamma=0.5)
    exact = exact_posterior(sets)
    assert left_by_a_round(sets, exact, Step(sets), together) == pytest.approx(exact.probability, abs=1e-9)
    wrong = left_by_a_round(sets, exact, Step(sets, wrong=1.01), together)
    assert np.abs(wrong - exact.probability).max() > 1e-4


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.whole), 60])
def test_a_step_draws_from_the_posterior_given_the_others(times: int) -> None:
    """Of four variables, any one to four of them; and where weights differ by thousands of nats, most of a table unread."""
    sets = sets_of(FOUR * times)
    exact, step = exact_posterior(sets), Step(sets)
    graphs = [tuple(parents) for parents in exact.parents[::271].tolist()]
    for graph in graphs:
        for size in (1, 2, 3):
            for chosen in itertools.combinations((3, 0, 2, 1), size):
                left, expected = step.outcomes(graph, chosen), conditional(sets, exact, graph, chosen)
                assert left == pytest.approx({key: p for key, p in expected.items() if key in left}, abs=1e-9)
                assert sum(p for key, p in expected.items() if key not in left) < 1e-9


def test_a_chain_that_changes_one_variable_at_a_time_cannot_turn_an_edge() -> None:
    """The documented negative example: a strong edge stays as the chain began, and the chains say that they disagree."""
    sets = sets_of(THREE, bdeu_score)
    sample = sample_graphs(sets, Chains(together=1, steps=4000), seed=1)
    error = np.abs(sample.edge_probability - exact_posterior(sets).edge_probability).max()
    assert error > 0.1
    assert not sample.diagnostics.agree


def test_the_plain_step_that_the_compiled_one_is_timed_against_draws_the_same() -> None:
    """3,000 redraws of each: every graph's share within 5 standard errors of the posterior given the others."""
    sets, graph, chosen = sets_of(FOUR), (0, 1, 8, 2), (3, 1)
    expected = conditional(sets, exact_posterior(sets), graph, chosen)
    generator, step = np.random.default_rng(1), Step(sets)
    for left in (
        Counter(tuple(plain_redraw(sets, graph, chosen, generator)) for _ in range(3000)),
        Counter(step(graph, chosen, generator.random(3).tolist()) for _ in range(3000)),
    ):
        assert set(left) <= set(expected)
        for key, p in expected.items():
            assert abs(left[key] / 3000 - p) < 5 * (p * (1 - p) / 3000) ** 0.5 + 2e-3
