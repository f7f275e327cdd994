"""From the information of all pairs to a structure: the search that a study asks for, with its limits and forbidden edges.

A pure function of the weights and the study: whoever has the same numbers gets the same network. Where the weights come from is
not decided here: from randomized columns (Model II), or from the parties' scores (Model I).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.protocol import SearchProblem, SearchResult, run_search
from verticil.shared.errors import Misuse
from verticil.shared.study.document import Study

__all__ = ["check_method", "find_structure"]


def check_method(study: Study) -> None:
    """Check that the study's structure can be searched, before any work is done for it.

    Raises:
        Misuse: STUDY_UNSUPPORTED, a structure method other than ``genetic``, or required edges.
    """
    rule = study.structure
    if rule.method != "genetic" or rule.required:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"study '{study.id}': structure.method '{rule.method}' with {len(rule.required)} required edges",
            hint="this version learns with method 'genetic' and without required edges",
        )


def find_structure(
    information: NDArray[np.float64],
    study: Study,
    *,
    progress: Callable[[float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> SearchResult:
    """Search the structure.

    Args:
        information: (d, d), float64, nats, symmetric, zero on the diagonal; 0 where a pair is not dependent.
        study: names method, seed and limits.
        progress: is told the share that is done.
        cancelled: is asked often.

    Raises:
        LearningCancelled: `cancelled` said so.
        Misuse: STUDY_UNSUPPORTED, a structure method other than ``genetic``, or required edges.
    """
    check_method(study)
    rule = study.structure
    weights = information.copy()
    for parent, child in rule.forbidden:
        weights[study.schema.index(parent), study.schema.index(child)] = 0.0
    problem = SearchProblem(
        weights=weights,
        n_states=study.schema.n_states,
        max_parents=rule.max_parents,
        max_family_cells=rule.max_family_cells,
    )
    searcher = GeneticSearch(
        population=rule.genetic.population,
        selected=rule.genetic.selected,
        generations=rule.genetic.generations,
        mutation_rate=rule.genetic.mutation_rate,
    )
    return run_search(searcher, problem, seed=rule.seed, progress=progress, cancelled=cancelled)
