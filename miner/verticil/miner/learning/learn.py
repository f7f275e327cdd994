"""From randomized columns and an effective study to a network with its uncertainty.

Count all pairs; score them (`scores`); search a structure (`search`), unless the study gives it; count each family; estimate
its parameters (`verticil.shared.model.parameters`). A pure function of the columns and the study: no files, no clock, no global
random state; it reports progress and can be stopped between short steps. It never sees a raw value, and does not know who sent
a column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning import counting, scores
from verticil.miner.learning.counting import Codes
from verticil.miner.learning.search.protocol import LearningCancelled, SearchResult
from verticil.miner.learning.structure import check_method, find_structure
from verticil.miner.learning.tables import FamilyTables
from verticil.shared.errors import DataFault
from verticil.shared.model import estimation, parameters
from verticil.shared.model.design import FamilyDesign
from verticil.shared.model.network import Family, Marginal, Network
from verticil.shared.model.rounding import round_network
from verticil.shared.release.shares import model_shares
from verticil.shared.study.document import Study
from verticil.shared.study.readers import given_dag

__all__ = ["LearnResult", "LearningCancelled", "learn"]

Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnResult:
    """What was learned.

    Attributes:
        network: structure and parameters.
        marginals: one-way shares of every variable, estimated and as the network has them.
        marginals_exact: the network's shares are computed exactly; else they are read from a sample of a million records.
        pair_information: (d, d), nats: the estimated mutual information of all pairs; 0 where not significant.
        significant: (d, d), bool: the pair's test of independence rejects. With a given structure no pair is scored: zeros.
        search: how the structure was found; of a given one, no generation and no fitness.
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
        columns: released codes of every unit, in unit order, all in the common order of records: (n,), of a subset unit
            (n w,), the members of a record one after the other.
        study: the effective study (the parties' own matrices in it).
        progress: is told the stage (``counting``, ``searching``, ``parameters``) and its per cent, often.
        cancelled: is asked often.

    Raises:
        LearningCancelled: `cancelled` said so.
        DataFault: LEARNING_FAILED, no record or a number of categories that cannot be counted in memory.
        Misuse: STUDY_UNSUPPORTED, a structure method other than ``genetic`` and ``given``, or required edges.
        ValueError: the columns do not fit the study.
    """
    schema = study.schema
    dag = given_dag(study)
    if dag is None:
        check_method(study)
    if len(columns) != len(study.units):
        raise ValueError(f"{len(columns)} columns for {len(study.units)} units")
    n = len(columns[0]) // study.units[0].transition.codes_per_record
    if n == 0:
        raise DataFault("LEARNING_FAILED", f"study '{study.id}': no common record, expected at least one")

    def report(stage: str, percent: int) -> None:
        if progress is not None:
            progress(stage, percent)

    def check() -> None:
        if cancelled is not None and cancelled():
            raise LearningCancelled

    pairs: scores.PairScores | None = None
    if dag is None:
        report("counting", 0)
        pairs = _scored(columns, study, check)
        report("counting", 100)
        result = find_structure(
            pairs.information,
            study,
            progress=lambda share: report("searching", int(100 * share)),
            cancelled=cancelled,
        )
    else:
        result = SearchResult(dag=dag, fitness=0.0, generations=0, dropped_edges=(), seed=study.structure.seed)

    units = [study.column_unit(index) for index in range(len(study.units))]
    tables = FamilyTables(dict(enumerate(columns)), units, schema.n_states)
    check()
    tables.count_ahead(((*parents, child) for child, parents in enumerate(result.dag.parents)), cancelled=check)

    def counted(axes: Sequence[int]) -> tuple[NDArray[np.int64] | NDArray[np.float64], FamilyDesign]:
        _check_size(study, tables.n_cells(axes), "a family's released table has")
        family = tables.family(axes)
        return family.observed, family.design

    families: list[Family] = []
    for child, parents in enumerate(result.dag.parents):
        check()
        report("parameters", 100 * child // len(schema))
        observed, design = counted((*parents, child))
        families.append(
            parameters.family_parameters(
                observed,
                design,
                child,
                parents,
                prior_count=study.parameters.prior_count,
                level=study.parameters.interval_level,
                estimator=estimation.ESTIMATORS[study.parameters.estimator],
            )
        )
    network = round_network(Network(schema=schema, dag=result.dag, families=tuple(families)))
    models, exact = model_shares(network)
    marginals: list[Marginal] = []
    for variable, model in enumerate(models):
        observed, design = counted((variable,))
        level = study.parameters.interval_level
        marginals.append(parameters.marginal_parameters(observed, design, variable=variable, model=model, level=level))
    report("parameters", 100)
    nothing = np.zeros((len(schema), len(schema)))
    return LearnResult(
        network=network,
        marginals=tuple(marginals),
        marginals_exact=exact,
        pair_information=nothing if pairs is None else pairs.information,
        significant=nothing.astype(np.bool_) if pairs is None else pairs.significant,
        search=result,
        n_records=n,
    )


def _check_size(study: Study, cells: int, what: str) -> None:
    if cells > counting.MAX_PAIR_CELLS:
        raise DataFault(
            "LEARNING_FAILED",
            f"study '{study.id}': {what} {cells} cells, expected at most {counting.MAX_PAIR_CELLS}",
            hint="declare fewer categories or bins for the largest variables",
        )


def _scored(columns: Sequence[Codes], study: Study, check: Callable[[], None]) -> scores.PairScores:
    units = [study.column_unit(index) for index in range(len(study.units))]
    n_states = study.schema.n_states
    _check_size(study, (sum(n_states) ** 2 - sum(k * k for k in n_states)) // 2, "the tables of all pairs have")
    sizes = sorted(unit.channel.n_states for unit in units)
    _check_size(study, math.prod(sizes[-2:]), "the released table of a pair has")
    return scores.unit_pair_scores(columns, units, n_states, cancelled=check)
