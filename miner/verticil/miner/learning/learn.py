"""From randomized columns and an effective study to a network with its uncertainty.

Count all pairs; score them (`scores`); search a structure (`search`); count each family; estimate its parameters
(`verticil.shared.model.parameters`). A pure function of the columns and the study: no files, no clock, no global random state;
it reports progress and can be stopped between short steps. It never sees a raw value, and does not know who sent a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning import counting, scores
from verticil.miner.learning.counting import Codes
from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.protocol import LearningCancelled, SearchProblem, SearchResult, run_search
from verticil.shared.errors import DataFault, Misuse
from verticil.shared.model import estimation, parameters
from verticil.shared.model.network import Family, Marginal, Network
from verticil.shared.model.rounding import round_network
from verticil.shared.model.transition import Transition
from verticil.shared.release.synthesis import sample_codes
from verticil.shared.study.document import Study

__all__ = ["LearnResult", "LearningCancelled", "learn"]

Progress = Callable[[str, int], None]

_MODEL_SAMPLE = 1_000_000
"""Records that the model's marginals are read from where exact elimination is too large."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnResult:
    """What was learned.

    Attributes:
        network: structure and parameters.
        marginals: one-way shares of every variable, estimated and as the network has them.
        marginals_exact: the network's shares are computed exactly; else they are read from a sample of a million records.
        pair_information: (d, d), nats: the estimated mutual information of all pairs; 0 where not significant.
        significant: (d, d), bool: the pair's test of independence rejects.
        search: how the structure was found.
        n_records: number of common people.
    """

    network: Network
    marginals: tuple[Marginal, ...]
    marginals_exact: bool
    pair_information: NDArray[np.float64]
    significant: NDArray[np.bool_]
    search: SearchResult
    n_records: int


def learn(
    columns: Sequence[Codes],
    study: Study,
    *,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> LearnResult:
    """Learn the network of an effective study.

    Args:
        columns: released codes of every variable, in schema order, all in the common order of records.
        study: the effective study (the parties' own matrices in it).
        progress: is told the stage (``counting``, ``searching``, ``parameters``) and its per cent, often.
        cancelled: is asked often.

    Raises:
        LearningCancelled: `cancelled` said so.
        DataFault: LEARNING_FAILED, no record or a number of categories that cannot be counted in memory.
        Misuse: STUDY_UNSUPPORTED, a structure method other than ``genetic``, or required edges.
        ValueError: the columns do not fit the study.
    """
    schema, rule = study.schema, study.structure
    if rule.method != "genetic" or rule.required:
        raise Misuse(
            "STUDY_UNSUPPORTED", f"study '{study.id}': structure.method '{rule.method}' with {len(rule.required)} required edges",
            hint="this version learns with method 'genetic' and without required edges",
        )  # fmt: skip
    if len(columns) != len(schema):
        raise ValueError(f"{len(columns)} columns for {len(schema)} variables")
    n = len(columns[0])
    if n == 0:
        raise DataFault("LEARNING_FAILED", f"study '{study.id}': no common record, expected at least one")
    transitions = [study.units[study.unit_of(name)].transition for name in schema.names]

    def report(stage: str, percent: int) -> None:
        if progress is not None:
            progress(stage, percent)

    def check() -> None:
        if cancelled is not None and cancelled():
            raise LearningCancelled

    report("counting", 0)
    cells = (sum(schema.n_states) ** 2 - sum(k * k for k in schema.n_states)) // 2
    if cells > counting.MAX_PAIR_CELLS:
        raise DataFault(
            "LEARNING_FAILED",
            f"study '{study.id}': the tables of all pairs have {cells} cells, expected at most {counting.MAX_PAIR_CELLS}",
            hint="declare fewer categories or bins for the largest variables",
        )
    tables = counting.all_pair_tables(columns, schema.n_states, cancelled=check)
    pairs = scores.pair_scores(tables, transitions)
    report("counting", 100)

    searcher = GeneticSearch(
        population=rule.genetic.population,
        selected=rule.genetic.selected,
        generations=rule.genetic.generations,
        mutation_rate=rule.genetic.mutation_rate,
    )
    result = run_search(
        searcher,
        _problem(pairs, study),
        seed=rule.seed,
        progress=lambda share: report("searching", int(100 * share)),
        cancelled=cancelled,
    )

    families: list[Family] = []
    for child, parents in enumerate(result.dag.parents):
        check()
        report("parameters", 100 * child // len(schema))
        families.append(_family(columns, study, transitions, child, parents))
    network = round_network(Network(schema=schema, dag=result.dag, families=tuple(families)))
    models, exact = _model_marginals(network)
    marginals = tuple(
        parameters.marginal_parameters(
            np.bincount(column, minlength=k).astype(np.int64, copy=False),
            transition,
            variable=variable,
            model=model,
            level=study.parameters.interval_level,
        )
        for variable, (column, k, transition, model) in enumerate(
            zip(columns, schema.n_states, transitions, models, strict=True)
        )
    )
    report("parameters", 100)
    return LearnResult(
        network=network,
        marginals=marginals,
        marginals_exact=exact,
        pair_information=pairs.information,
        significant=pairs.significant,
        search=result,
        n_records=n,
    )


def _problem(pairs: scores.PairScores, study: Study) -> SearchProblem:
    weights = pairs.information.copy()
    for parent, child in study.structure.forbidden:
        weights[study.schema.index(parent), study.schema.index(child)] = 0.0
    return SearchProblem(
        weights=weights,
        n_states=study.schema.n_states,
        max_parents=study.structure.max_parents,
        max_family_cells=study.structure.max_family_cells,
    )


def _family(
    columns: Sequence[Codes], study: Study, transitions: Sequence[Transition], child: int, parents: tuple[int, ...]
) -> Family:
    axes = (*parents, child)
    observed = counting.family_table([columns[v] for v in axes], [study.schema.n_states[v] for v in axes])
    return parameters.family_parameters(
        observed,
        [transitions[v] for v in axes],
        child,
        parents,
        prior_count=study.parameters.prior_count,
        level=study.parameters.interval_level,
        estimator=estimation.ESTIMATORS[study.parameters.estimator],
    )


def _model_marginals(network: Network) -> tuple[list[NDArray[np.float64]], bool]:
    try:
        return parameters.network_marginals(network), True
    except ValueError:
        codes = sample_codes(network, _MODEL_SAMPLE, generator=np.random.default_rng(0))
        counts = [np.bincount(column, minlength=k) for column, k in zip(codes, network.schema.n_states, strict=True)]
        return [count / _MODEL_SAMPLE for count in counts], False
