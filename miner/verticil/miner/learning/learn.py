"""From randomized columns and an effective study to a network with its uncertainty.

Count all pairs and score them (`scores`), search a structure (`selection`), unless the study gives it; count each family,
estimate its parameters (`shared.numerics.estimation.parameters`) and the strength of its edges (`strength`). A pure function of
the columns and the study: no files, no clock, no global random state; it reports progress and can be stopped between short steps.
It never sees a raw value, and does not know who sent a column.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.held_out import PairCheck, check_pairs, sample_network
from verticil.miner.learning.joint import asks_for_joint, joint_of_columns
from verticil.miner.learning.posterior.draws import concentrations, drawing, drawing_with_counts
from verticil.miner.learning.posterior.incomplete import (
    pooled_family,
    pooled_marginal,
    pooled_pair,
    pooled_strengths,
)
from verticil.miner.learning.posterior.outcome import posterior_of
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.edge_confidence import EdgeStrength, edge_strengths
from verticil.miner.learning.scoring.scores import FamilyScores, PairScores
from verticil.miner.learning.scoring.tuning import TUNING as SCORING
from verticil.miner.learning.search.protocol import UNINTERRUPTED, Interruption, SearchResult, Stages
from verticil.miner.learning.selection import Candidate, SelectedStructure, search_columns
from verticil.miner.learning.structure import Search
from verticil.shared.core.arrays import Codes, Counts
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.estimation import parameters
from verticil.shared.numerics.estimation.inverse_estimation import FamilyDesign
from verticil.shared.numerics.joint.estimate import JointEstimate
from verticil.shared.numerics.joint.worth import Worth
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import CONFIRMED, Family, Marginal, Network, PairEstimate
from verticil.shared.numerics.model.rounding import round_network
from verticil.shared.numerics.posterior.result import StructurePosterior
from verticil.shared.study.document import Study
from verticil.shared.study.prior import estimator_of, negative_counts
from verticil.shared.synthesis.marginals import model_shares

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
        way: the method and score that found it; with the method auto the chosen ones, of a given structure None.
        candidates: what the method auto compared; else nothing.
        pair_check: the network against the tables of the pairs; None with a given structure.
        pairs: what is known of each edge's pair and of those that the study names.
        edge_strength: (parent, child) -> see `strength`.
        weak_edges: those that were found and taken out, because the study asks for a minimum strength.
        n_records: number of common people; by noisy tables where it is not public.
        joint: the joint model of all tables; None where the study does not ask for one and has no noise on tables.
        posterior: the structure's uncertainty, where the study samples graphs; then `network` is their consensus. Else None.
        worth: what records of the joint model are worth, by the noise and the estimates; None: it is not estimated.
    """

    network: Network
    marginals: tuple[Marginal, ...]
    marginals_exact: bool
    pair_information: NDArray[np.float64]
    significant: NDArray[np.bool_]
    search: SearchResult
    way: Search | None
    candidates: tuple[Candidate, ...]
    pair_check: PairCheck | None
    pairs: tuple[PairEstimate, ...]
    edge_strength: Mapping[tuple[int, int], EdgeStrength]
    weak_edges: Mapping[tuple[int, int], EdgeStrength]
    n_records: int
    joint: JointEstimate | None = None
    posterior: StructurePosterior | None = None
    worth: Worth | None = None


def learn(
    columns: Sequence[Codes],
    study: Study,
    *,
    progress: Progress | None = None,
    interruption: Interruption = UNINTERRUPTED,
) -> LearnResult:
    """Learn the network of an effective study.

    Args:
        columns: released codes of every unit, in unit order, all in the common order of records: (n,), of a subset unit
            (n w,), the members of a record one after the other.
        study: the effective study (the parties' own matrices in it).
        progress: is told the stage (``counting``, ``searching``, ``parameters``, ``estimating``, ``drawing``) and its per
            cent, often.
        interruption: how it is stopped, and gone on with; its checkpoint is of a search in the same columns for the same study.

    Raises:
        LearningCancelled: `interruption` said so; it brings the checkpoint when it was searching.
        ForeignCheckpoint: the checkpoint is of another search.
        DataFault: LEARNING_FAILED, no record, a number of categories that cannot be counted in memory, or negative counts.
        Misuse: STUDY_INVALID, the study contradicts itself.
        ValueError: the columns do not fit the study.
    """
    schema = study.schema
    dag = study.given_dag
    if len(columns) != len(study.units):
        raise ValueError(f"{len(columns)} columns for {len(study.units)} units")
    n = len(columns[0]) // study.units[0].transition.codes_per_record
    if n == 0:
        raise DataFault("LEARNING_FAILED", f"study '{study.id}': no common record, expected at least one")

    def report(stage: str, percent: int) -> None:
        if progress is not None:
            progress(stage, percent)

    check, stages = interruption.check, Stages(interruption)
    outcome: SelectedStructure | None = None
    if dag is None:
        _check_pairs(study)
        with stages.stage("search") as own:
            outcome = search_columns(columns, study, progress=report, interruption=own)
        result, each = outcome.result, outcome.each
    else:
        result = SearchResult(dag=dag, fitness=0.0, generations=0, dropped_edges=(), seed=study.structure.seed)
        units = [study.column_unit(index) for index in range(len(study.units))]
        each = (FamilyTables(columns, units, schema.n_states, schema.names, check=check),)
    check()
    result, strengths, weak = _strong(result, each, study, check)
    for tables in each:
        tables.count_ahead(((*parents, child) for child, parents in enumerate(result.dag.parents)), check=check)

    families: list[Family] = []
    support = study.support()
    for child, parents in enumerate(result.dag.parents):
        check()
        report("parameters", 100 * child // len(schema))
        families.append(pooled_family([_family(tables, study, support, child, parents) for tables in each]))
    network = round_network(Network(schema=schema, dag=result.dag, families=tuple(families)))
    models, exact = model_shares(network, support)
    marginals: list[Marginal] = []
    for variable, model in enumerate(models):
        level, family_counts = study.parameters.interval_level, [tables.count_family((variable,)) for tables in each]
        shares = (
            parameters.marginal_parameters(*of, variable=variable, model=model, level=level) for of in family_counts
        )
        marginals.append(pooled_marginal(list(shares)))
    report("parameters", 100)
    joint = None
    if asks_for_joint(study):
        with stages.stage("joint") as own:
            joint = joint_of_columns(
                columns,
                study,
                network,
                progress=lambda share: report("estimating", int(100 * share)),
                interruption=own,
            )
    nothing = np.zeros((len(schema), len(schema)))
    return LearnResult(
        network=network,
        marginals=tuple(marginals),
        marginals_exact=exact,
        pair_information=nothing if outcome is None else outcome.pairs.information,
        significant=nothing.astype(np.bool_) if outcome is None else outcome.pairs.significant,
        search=result,
        way=None if outcome is None else outcome.search,
        candidates=() if outcome is None else outcome.candidates,
        pair_check=None if outcome is None else check_network(network, outcome.pairs, study),
        pairs=tuple(_pairs(each, result.dag, study)),
        edge_strength={edge: strengths[edge] for edge in result.dag.edges()},
        weak_edges=weak,
        n_records=n,
        joint=joint,
        posterior=_posterior(outcome, columns, study, check, lambda percent: report("drawing", percent)),
    )


def _posterior(
    outcome: SelectedStructure | None,
    columns: Sequence[Codes],
    study: Study,
    check: Callable[[], None],
    progress: Callable[[int], None],
) -> StructurePosterior | None:
    if outcome is None or outcome.sampled is None:
        return None
    graph_sample, tables = outcome.sampled, outcome.tables
    completion = outcome.completed
    as_they_are = FamilyScores(tables).unrandomized if completion is None else frozenset(range(len(study.schema)))
    plain = len(as_they_are) == len(study.schema)
    if completion is not None:
        draw = completion.drawing(study, check)
    elif graph_sample.drawn is not None and graph_sample.scores is not None:
        draw = drawing_with_counts(graph_sample.drawn, graph_sample.scores, study, check)
    elif graph_sample.scores is not None:
        generator = np.random.Generator(np.random.Philox(key=[study.structure.seed, 4], counter=[0, 0, 0, 2]))
        draw = drawing(graph_sample.sample, concentrations(graph_sample.scores, generator), study, check)
    else:
        raise ValueError("a sample of graphs without scores, and its records were not completed")
    return posterior_of(
        graph_sample,
        draw,
        study,
        source="records" if plain else "randomized",
        pairs=shown_pairs(graph_sample.result.dag, study),
        exact=as_they_are,
        n_records=tables.n_records,
        columns=columns if plain else None,
        progress=progress,
        missing=None if completion is None else completion.missing(),
        constant=tuple(v for v in range(len(study.schema)) if _is_constant(*tables.count_family((v,)))),
    )


def _is_constant(counts: Counts, design: FamilyDesign) -> bool:
    """Return whether all records have one released entry; of sets of entries it is not asked."""
    return all(axis.is_linear for axis in design.axes) and np.count_nonzero(counts) == 1


def _strong(
    result: SearchResult, each: Sequence[FamilyTables], study: Study, check: Callable[[], None]
) -> tuple[SearchResult, Mapping[tuple[int, int], EdgeStrength], Mapping[tuple[int, int], EdgeStrength]]:
    """Return the result without edges below the study's minimum, the strengths of all that were found, and of those left out."""
    minimum = study.structure.minimum_strength or 0.0
    least, seed = max(minimum, CONFIRMED), study.structure.seed
    strengths = pooled_strengths(
        [edge_strengths(result.dag, tables, seed=seed, least=least, check=check) for tables in each]
    )
    result, weak = without_weak(result, strengths, study)
    return result, strengths, weak


def without_weak(
    result: SearchResult, strengths: Mapping[tuple[int, int], EdgeStrength], study: Study
) -> tuple[SearchResult, Mapping[tuple[int, int], EdgeStrength]]:
    """Return the result without edges below the study's minimum, and those; required ones stay."""
    minimum = study.structure.minimum_strength or 0.0
    required_edges = {
        (study.schema.index(parent), study.schema.index(child)) for parent, child in study.structure.required
    }
    weak = {
        edge: estimate
        for edge, estimate in strengths.items()
        if estimate.strength < minimum and edge not in required_edges
    }
    if weak:
        remaining_parents = (
            tuple(p for p in of if (p, child) not in weak) for child, of in enumerate(result.dag.parents)
        )
        result = dataclasses.replace(result, dag=Dag(parents=tuple(remaining_parents)))
    return result, weak


def shown_pairs(dag: Dag, study: Study) -> tuple[tuple[int, int], ...]:
    """Return the pairs of variables that a release compares: of each edge, and those that the study names."""
    named_pairs = [(study.schema.index(first), study.schema.index(second)) for first, second in study.release.pairs]
    edges = {frozenset(edge) for edge in dag.edges()}
    return (*dag.edges(), *(pair for pair in named_pairs if frozenset(pair) not in edges))


def _family(tables: FamilyTables, study: Study, support: Support, child: int, parents: tuple[int, ...]) -> Family:
    counts, design = tables.count_family((*parents, child))
    design = design.under(support.zeros((*parents, child)))
    try:
        return parameters.family_parameters(
            counts,
            design,
            child,
            parents,
            prior_count=study.parameters.prior_count,
            level=study.parameters.interval_level,
            estimator=estimator_of(study.parameters, study.schema.names[child]),
        )
    except ValueError:
        if study.parameters.prior is None:
            raise
        raise negative_counts(study, study.schema.names[child]) from None


def _pairs(each: Sequence[FamilyTables], dag: Dag, study: Study) -> Iterator[PairEstimate]:
    pairs, level, support = shown_pairs(dag, study), study.parameters.interval_level, study.support()
    for tables in each:
        tables.count_ahead(pairs)
    for pair in pairs:
        yield pooled_pair([_pair(tables, support, pair, level) for tables in each], level=level)


def _pair(tables: FamilyTables, support: Support, pair: tuple[int, int], level: float) -> PairEstimate:
    counts, design = tables.count_family(pair)
    design = design.under(support.zeros(pair))
    share, low, high = parameters.joint_shares(counts, design, level=level)
    exact = all(axis.channel.is_identity for axis in design.axes)
    return PairEstimate(first=pair[0], second=pair[1], estimate=share, low=low, high=high, exact=exact)


def check_network(network: Network, pairs: PairScores, study: Study) -> PairCheck:
    """Compare the network with the tables of the pairs."""
    sample = sample_network(network, seed=study.structure.seed, support=study.support())
    return check_pairs(sample, study.schema.n_states, pairs)


def _check_pairs(study: Study) -> None:
    """Check that all pairs can be counted in memory."""
    n_states = study.schema.n_states
    sizes = sorted(unit.transition.n_states for unit in study.units)
    for cells, what in (
        ((sum(n_states) ** 2 - sum(k * k for k in n_states)) // 2, "the tables of all pairs have"),
        (math.prod(sizes[-2:]), "the released table of a pair has"),
    ):
        if cells > SCORING.most_pair_cells:
            raise DataFault(
                "LEARNING_FAILED",
                f"study '{study.id}': {what} {cells} cells, expected at most {SCORING.most_pair_cells}",
                hint="declare fewer categories or bins for the largest variables",
            )
