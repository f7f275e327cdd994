"""From scores to a structure: the search that a study asks for, with its limits and constraints.

`find_structure` has the scores of pairs only, which is all that a miner gets from peers (Model I): methods on pair weights. With
randomized columns at hand (Model II) `search_columns` does every method, and `auto`, which is in `selection`.

Pure functions of the numbers and the study: whoever has the same gets the same network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.scoring.scores import FamilyScores, PairScores
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.greedy import GreedySearch
from verticil.miner.learning.search.hill_climb import HillClimbSearch
from verticil.miner.learning.search.order import ExactSearch, OrderSearch
from verticil.miner.learning.search.protocol import (
    UNINTERRUPTED,
    Interruption,
    Searcher,
    SearchProblem,
    SearchResult,
    run_search,
)
from verticil.miner.learning.search.tree import TreeSearch
from verticil.miner.learning.tuning import TUNING
from verticil.shared.core.errors import Misuse
from verticil.shared.study.document import StructureRule, Study
from verticil.shared.study.vocabulary import METHODS, pair_methods

State = TypeVar("State")

Progress = Callable[[float], None]


_BETWEEN_PEERS: Final = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One way to search.

    Attributes:
        method: genetic, order, tree, greedy or hill-climb.
        score: what it makes large.
    """

    method: str
    score: str

    @property
    def text(self) -> str:
        """Name for people to read."""
        return f"{self.method} with {self.score}"


def check_method(study: Study) -> None:
    """Check that the study's structure can be searched from the scores of pairs, before any work is done for it.

    Raises:
        Misuse: STUDY_UNSUPPORTED, the method needs tables of whole families.
    """
    rule = study.structure
    if rule.method not in pair_methods():
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"study '{study.id}': structure.method '{rule.method}' needs tables of whole families, got scores of pairs only",
            hint=f"use one of: {', '.join(pair_methods())}",
        )


def find_structure(
    information: NDArray[np.float64],
    study: Study,
    *,
    progress: Progress | None = None,
    interruption: Interruption = UNINTERRUPTED,
) -> SearchResult:
    """Search the structure from the information of all pairs. ``auto`` is the search over orders: nothing can be held out.

    Args:
        information: (d, d), float64, nats, symmetric, zero on the diagonal; 0 where a pair is not dependent.
        study: names method, seed and limits.
        progress: is told the share that is done.
        interruption: how it is stopped, and gone on with.

    Raises:
        LearningCancelled: `interruption` said so; it brings the checkpoint.
        ForeignCheckpoint: the checkpoint is of another search.
        Misuse: STUDY_UNSUPPORTED, the method needs tables of whole families; STUDY_INVALID, the study contradicts itself.
    """
    check_method(study)
    problem = search_problem(information, study)
    return run_method(way_on_pairs(study), problem, study, progress=progress, interruption=interruption)


def way_on_pairs(study: Study) -> Search:
    """Return how `find_structure` searches."""
    method = study.structure.method
    return Search(method=_BETWEEN_PEERS if method == "auto" else method, score="mutual-information")


def search_problem(information: NDArray[np.float64], study: Study) -> SearchProblem:
    """Return what is searched: weights, limits and constraints.

    Raises:
        Misuse: STUDY_INVALID, the study contradicts itself.
    """
    rule = study.structure
    has_constraints = rule.required or rule.forbidden or rule.tiers or rule.custom is not None
    return SearchProblem(
        weights=information,
        n_states=study.schema.n_states,
        max_parents=rule.max_parents,
        max_family_cells=rule.max_family_cells,
        constraints=study.constraints() if has_constraints else None,
    )


def run_method(
    search: Search,
    problem: SearchProblem,
    study: Study,
    *,
    scores: FamilyScores | None = None,
    pairs: PairScores | None = None,
    progress: Progress | None = None,
    interruption: Interruption = UNINTERRUPTED,
) -> SearchResult:
    """Search in one way.

    Args:
        search: the way.
        problem: what is searched.
        study: names the seed and the methods' parameters.
        scores: of families; for greedy and hill-climb.
        pairs: for hill-climb: which parents are looked at.
        progress: is told the share that is done.
        interruption: how it is stopped, and gone on with.

    Raises:
        LearningCancelled: `interruption` said so; it brings the checkpoint.
        ForeignCheckpoint: the checkpoint is of another search.
        ValueError: there is no such method, or it needs scores that are not there.
    """
    if (method := SEARCHES.get(search.method)) is None:
        raise ValueError(f"there is no method '{search.method}'")
    if not METHODS[search.method].on_pairs and (scores is None or pairs is None):
        raise ValueError(f"the method '{search.method}' needs scores of families")

    def run(searcher: Searcher[State], within: SearchProblem = problem) -> SearchResult:
        return run_search(searcher, within, seed=study.structure.seed, progress=progress, interruption=interruption)

    return method(Task(score=search.score, problem=problem, study=study, scores=scores, pairs=pairs), run)


class Run(Protocol):
    """Runs a searcher, with the progress, the stop and the checkpoints that were asked for."""

    def __call__(self, searcher: Searcher[State], within: SearchProblem = ...) -> SearchResult:
        """Search, in the task's problem or within another one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """What a registered search is made for; `scores` and `pairs` are there unless the method needs scores of pairs only."""

    score: str
    problem: SearchProblem
    study: Study
    scores: FamilyScores | None
    pairs: PairScores | None

    @property
    def rule(self) -> StructureRule:
        """What the study says of its structure."""
        return self.study.structure


def _genetic(task: Task, run: Run) -> SearchResult:
    rule = task.rule.genetic
    return run(
        GeneticSearch(
            population=rule.population,
            selected=rule.selected,
            generations=rule.generations,
            mutation_rate=rule.mutation_rate,
        )
    )


def _order(task: Task, run: Run) -> SearchResult:
    rule = task.rule.order
    if rule.exact:
        return run(ExactSearch())
    return run(OrderSearch(chains=rule.chains, moves=rule.moves, rounds=rule.rounds))


def _greedy(task: Task, run: Run) -> SearchResult:
    assert task.scores is not None
    return run(GreedySearch(information=task.scores.information))


def _hill_climb(task: Task, run: Run) -> SearchResult:
    scores, rule = task.scores, task.rule.hill_climb
    assert scores is not None
    assert task.pairs is not None
    near, within = _restrict(task.problem, task.study, task.pairs, scores.unrandomized)
    # Under noise another local optimum of the score is no better a network, and its families cost the most.
    plain = len(scores.unrandomized) == len(task.problem.n_states)
    climb = HillClimbSearch(
        score=scores.score_by_name(task.score),
        tabu_length=rule.tabu_length,
        patience=rule.patience,
        rounds=None if plain else 0,
        near=near if scores.unrandomized else None,
        ahead=scores.count_ahead,
    )
    return run(climb, within)


SEARCHES: Final[dict[str, Callable[[Task, Run], SearchResult]]] = {
    "genetic": _genetic,
    "order": _order,
    "tree": lambda task, run: run(TreeSearch()),
    "greedy": _greedy,
    "hill-climb": _hill_climb,
}
"""By the names that a study has for them; what a study must know of each stands in `verticil.shared.study.vocabulary.METHODS`."""


def _restrict(
    problem: SearchProblem, study: Study, pairs: PairScores, plain_variables: frozenset[int]
) -> tuple[NDArray[np.bool_], SearchProblem]:
    """Return the pairs of each variable with its `TUNING.candidate_parents`, and the problem with them.

    The problem also has the required pairs, and of up to `TUNING.all_pairs_variables` variables the unrandomized ones.
    """
    constraints = study.constraints() if problem.constraints is None else problem.constraints
    weights = np.where(pairs.significant, np.maximum(pairs.information, np.finfo(np.float64).tiny), 0.0)
    weights[~(constraints.allowed | constraints.allowed.T)] = 0.0
    near = np.zeros(weights.shape, dtype=np.bool_)
    for child, column in enumerate(weights.T):
        ranking = np.argsort(-column, kind="stable")[: TUNING.candidate_parents]
        near[ranking[column[ranking] > 0], child] = True
    near |= near.T
    plain = np.isin(np.arange(len(near)), list(plain_variables) if len(near) <= TUNING.all_pairs_variables else [])
    possible_edges = constraints.allowed & (near | constraints.required | np.outer(plain, plain))
    return near, dataclasses.replace(problem, constraints=dataclasses.replace(constraints, allowed=possible_edges))
