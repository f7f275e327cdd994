"""From noisy tables to a network and a joint model, each with its uncertainty.

What the tables say is all that may be looked at, so one joint model is estimated from all of them
(`verticil.shared.numerics.joint`), a structure is searched in it, and the network's probabilities are its shares. Two kinds of
intervals are told apart:

- of a family whose own table was measured (a variable, or one with one parent, or three columns that the study names): from the
  unbiased estimate by that table, with the exact variance of people, randomization and noise;
- of any other, which the model implies: by a parametric bootstrap. People are drawn from the model, randomized and counted as
  they were, noise is drawn anew, and a model is estimated again, `TUNING.replicates` times; the error is the root of the mean
  square by which these differ from the model they came from, `TUNING.error_factor` times. The family is marked
  (`Family.implied`). Of wide tables and larger sizes each replicate's fit stops after as many steps as the estimate's
  (`joint.estimate.refitted`).

An edge's strength is the share of replicates in which its family has a better BIC with the parent than without. Everything is a
function of the tables, the number of people and the study.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np

from verticil.miner.learning.learn import LearnResult, Progress, check_network, shown_pairs, without_weak
from verticil.miner.learning.model_tables import ModelScores, ModelTables, noisy_pair_scores, observed_of
from verticil.miner.learning.posterior.draws import drawing, match_errors
from verticil.miner.learning.posterior.graphs import Sampled, mixed_graphs
from verticil.miner.learning.posterior.outcome import posterior_of
from verticil.miner.learning.posterior.scores import PosteriorScores, local_score
from verticil.miner.learning.scoring.edge_confidence import EdgeStrength
from verticil.miner.learning.scoring.scores import PairScores
from verticil.miner.learning.search.protocol import UNINTERRUPTED, Interruption, SearchResult, Stages
from verticil.miner.learning.structure import Search, run_method, search_problem
from verticil.miner.learning.tuning import TUNING
from verticil.miner.learning.worth import can_state_worth, estimate_worth, moved_by_noise
from verticil.shared.core.arrays import Bools, Floats
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.estimation import parameters
from verticil.shared.numerics.joint.classes import Division
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate, refitted, share_of_noisy
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.replicates import recounted, with_noise_of
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Family, Marginal, Network, PairEstimate
from verticil.shared.numerics.model.rounding import round_network
from verticil.shared.numerics.privbayes.measuring import automatic_tau
from verticil.shared.numerics.privbayes.scores import scores_of_tables
from verticil.shared.numerics.privbayes.structure import learn_structure
from verticil.shared.related.structure import divisions
from verticil.shared.study.document import Study
from verticil.shared.study.related_tables import Possible
from verticil.shared.study.vocabulary import METHODS, MIXED_REPLICATES
from verticil.shared.synthesis.marginals import model_shares


def learn_from_tables(
    tables: NoisyTables,
    study: Study,
    *,
    progress: Progress | None = None,
    interruption: Interruption = UNINTERRUPTED,
) -> LearnResult:
    """Learn the joint model and the network of an effective study from its noisy tables.

    Args:
        tables: of the study's units, in unit order: every pair of units, every compound, and the three columns that it names.
        study: the effective study.
        progress: is told the stage (``estimating``, ``searching``, ``parameters``, ``drawing``) and its per cent.
        interruption: how it is stopped, and gone on with; its checkpoint is of the same tables and study.

    Raises:
        LearningCancelled: `interruption` said so; it brings the checkpoint where there is one.
        ForeignCheckpoint: the checkpoint is of another search.
        DataFault: LEARNING_FAILED, there are too few people to tell anything.
        Misuse: STUDY_INVALID, the study contradicts itself.
        ValueError: the tables do not fit the study.
    """
    units = tuple(study.column_unit(index) for index in range(len(study.units)))
    if tables.n_states != study.schema.n_states or [u.variables for u in tables.units] != [u.variables for u in units]:
        raise ValueError("the tables are not of the study's units")
    if tables.people < TUNING.least_people:
        raise DataFault(
            "LEARNING_FAILED",
            f"study '{study.id}': by its noisy tables there are fewer than {TUNING.least_people} people, "
            "expected at least so many",
            hint="noise on tables leaves nothing of so few people",
        )

    def report(stage: str) -> Callable[[float], None]:
        return lambda share: None if progress is None else progress(stage, int(100 * share))

    check = interruption.check
    seed, stated = study.structure.seed, study.support()
    support, own_divisions = Possible(study, stated), divisions(study.related, study.schema)
    tables = tables.without(support.zeros) if support.restricts else tables
    possible = stated.holds if stated.restricts else None

    def step(piece: str, n_done: int, most: int) -> None:
        report("estimating")(share_of_noisy(piece, n_done, most))

    stages = Stages(interruption)
    with stages.stage("joint") as own:
        joint = estimate(
            tables,
            seed=seed,
            allowed=possible,
            zeros=support.zeros,
            progress=step,
            check=check,
            keep=own.keep,
            checkpoint=own.checkpoint,
            divisions=own_divisions,
        )
    model, measured, tables = joint.model, tables, tables.combined()
    check()
    of_model = ModelTables(model, tables.people, study.schema.names)
    pairs = noisy_pair_scores(tables, check=check)
    graph_sample: Sampled | None = None
    way: Search | None
    if study.samples_graphs:
        models, moved = _replicates(
            joint, measured, support, own_divisions, seed=seed, check=check, progress=report("parameters")
        )
        graph_sample = _sample_graphs(models, pairs, study, tables.people, progress=report("searching"), stages=stages)
        result, way = graph_sample.result, Search(method=study.structure.method, score=study.structure.score)
    else:
        with stages.stage("search") as own:
            result, way = _structure(tables, of_model, pairs, study, progress=report("searching"), interruption=own)
        models, moved = _replicates(
            joint, measured, support, own_divisions, seed=seed, check=check, progress=report("parameters")
        )
    again = [ModelTables(other, tables.people, study.schema.names) for other in models]
    strengths = _strengths(result.dag, of_model, again, tables)
    result, weak = without_weak(result, strengths, study)
    families = tuple(
        _family(tables, of_model, again, child, parents, level=study.parameters.interval_level, support=support)
        for child, parents in enumerate(result.dag.parents)
    )
    network = round_network(Network(schema=study.schema, dag=result.dag, families=families))
    shares, exact = model_shares(network, stated)
    posterior = None
    if graph_sample is not None:
        of = match_errors(
            lambda child, parents: _family(tables, of_model, again, child, parents, level=0.95, support=support)
        )
        posterior = posterior_of(
            graph_sample,
            drawing(graph_sample.sample, of, study, check),
            study,
            source="noisy-tables",
            pairs=shown_pairs(result.dag, study),
            exact=frozenset(),
            n_records=round(tables.people),
            columns=None,
            progress=lambda percent: report("drawing")(percent / 100),
        )
    return LearnResult(
        network=network,
        marginals=tuple(_marginals(tables, shares, level=study.parameters.interval_level)),
        marginals_exact=exact,
        pair_information=pairs.information,
        significant=pairs.significant,
        search=result,
        way=way,
        candidates=(),
        pair_check=check_network(network, pairs, study),
        pairs=tuple(_pairs(tables, result.dag, study)),
        edge_strength={edge: strengths[edge] for edge in result.dag.edges()},
        weak_edges=weak,
        n_records=round(tables.people),
        joint=joint,
        posterior=posterior,
        worth=estimate_worth(measured, model, moved, study.schema.names),
    )


def _structure(
    tables: NoisyTables,
    of_model: ModelTables,
    pairs: PairScores,
    study: Study,
    *,
    progress: Callable[[float], None],
    interruption: Interruption,
) -> tuple[SearchResult, Search | None]:
    """Return the study's own structure, or one that its method finds; ``auto`` is hill climbing: no records can be held out."""
    rule = study.structure
    if study.given_dag is not None:
        result = SearchResult(dag=study.given_dag, fitness=0.0, generations=0, dropped_edges=(), seed=rule.seed)
        return result, None
    auto = Search(method="hill-climb", score="bic" if rule.prefer == "synthesis" else "bic-noise")
    way = auto if rule.method == "auto" else Search(method=rule.method, score=rule.score)
    if METHODS[way.method].whole_table:
        return (
            SearchResult(
                dag=_by_privbayes(tables, of_model, pairs, study),
                fitness=0.0,
                generations=0,
                dropped_edges=(),
                seed=rule.seed,
            ),
            way,
        )
    problem = search_problem(pairs.information, study)
    scores = ModelScores(of_model, tables)
    outcome = run_method(way, problem, study, scores=scores, pairs=pairs, progress=progress, interruption=interruption)
    return outcome, way


def _sample_graphs(
    models: Sequence[JointModel],
    pairs: PairScores,
    study: Study,
    people: float,
    *,
    progress: Callable[[float], None],
    stages: Stages,
) -> Sampled:
    """Return graphs by the first `MIXED_REPLICATES`, each taken for as many people as there are: see `posterior.scores`."""
    parts = [
        PosteriorScores(ModelTables(model, people, study.schema.names), local_score(study.structure.score), whole=True)
        for model in models[:MIXED_REPLICATES]
    ]
    problem = search_problem(pairs.information, study)
    return mixed_graphs(parts, problem, pairs, study, progress=progress, stages=stages)


def _by_privbayes(tables: NoisyTables, of_model: ModelTables, pairs: PairScores, study: Study) -> Dag:
    """Algorithms 2 and 3 of PrivBayes on scores that the model has, and none of a pair that differs by no more than noise."""
    d = len(study.schema)
    counts = {
        pair: np.asarray(of_model.count_family(pair)[0], np.float64) for pair in itertools.combinations(range(d), 2)
    }
    deviation = min(table.sigma for table in tables.tables if len(table.units) > 1)
    return learn_structure(
        scores_of_tables(counts, d) * pairs.significant,
        study.schema.n_states,
        tau=automatic_tau(tables.people, deviation),
        constraints=study.constraints(),
        most_attributes=study.structure.max_parents + 1,
    ).dag


def _replicates(
    joint: JointEstimate,
    tables: NoisyTables,
    support: Possible,
    own_divisions: Sequence[Division],
    *,
    seed: int,
    check: Callable[[], None],
    progress: Callable[[float], None],
) -> tuple[list[JointModel], list[Floats]]:
    """Return models of tables that were drawn from the estimated one, and how far noise moved some of them (`worth`).

    Each is a single fit, which scatters more than several.
    """
    models, moved = list[JointModel](), list[Floats]()
    n_moved = TUNING.worth_replicates if can_state_worth(tables) else 0
    for number in range(TUNING.replicates):
        check()
        progress(number / TUNING.replicates)
        generator = np.random.Generator(np.random.Philox(key=[seed, number], counter=[0, 0, 0, 1]))
        people = recounted(tables, joint.model, generator)
        replicate = with_noise_of(tables, people, generator)
        replicate = replicate.without(support.zeros) if support.restricts else replicate
        models.append(
            refitted(
                replicate,
                joint,
                seed=seed + 1 + number,
                fits=TUNING.replicate_fits,
                check=check,
                divisions=own_divisions,
            )
        )
        if number < n_moved:
            moved.append(moved_by_noise(models[-1], people))
    progress(1.0)
    return models, moved


def _strengths(
    dag: Dag, of_model: ModelTables, again: list[ModelTables], noisy_tables: NoisyTables
) -> dict[tuple[int, int], EdgeStrength]:
    scores = [ModelScores(tables, noisy_tables) for tables in (of_model, *again)]
    strengths: dict[tuple[int, int], EdgeStrength] = {}
    for child, parents in enumerate(dag.parents):
        for parent in parents:
            rest = tuple(p for p in parents if p != parent)
            gains = [score.bic(child, parents) - score.bic(child, rest) for score in scores]
            information = scores[0].likelihood(child, parents) - scores[0].likelihood(child, rest)
            better = sum(gain > 0 for gain in gains[1:]) / len(again)
            strengths[parent, child] = EdgeStrength(
                strength=better, information=max(information, 0.0) / of_model.n_records
            )
    return strengths


def _family(
    tables: NoisyTables,
    of_model: ModelTables,
    again: list[ModelTables],
    child: int,
    parents: tuple[int, ...],
    *,
    level: float,
    support: Possible,
) -> Family:
    """Return a family with the joint model's probabilities; see the module for the estimate and its intervals."""
    axes = (*parents, child)
    zeros = support.zeros(axes)
    counts = np.asarray(of_model.count_family(axes)[0], dtype=np.float64)
    table = counts.reshape(-1, counts.shape[-1])
    # Parents that cannot be have a row as others do.
    possible = np.ones(table.shape, np.bool_) if zeros is None else zeros.reshape(table.shape)
    possible = possible | ~possible.any(axis=1, keepdims=True)
    probability = _rows(table, possible)
    measurement = observed_of(tables, axes)
    if measurement is not None:
        measured_table, noisy, design = measurement
        design = design.under(zeros)
        family = parameters.family_parameters(
            noisy, design, child, parents, prior_count=0.0, level=level, noise_variance=measured_table.sigma**2
        )
        return dataclasses.replace(family, probability=probability, projection=None)
    others = [np.asarray(each.count_family(axes)[0], dtype=np.float64).reshape(table.shape) for each in again]
    rows = np.stack([_rows(other, possible) for other in others])
    square = ((rows - probability) ** 2).mean(axis=0)
    spread = np.maximum(probability * (1 - probability), 1e-6)
    # A cell's error from so few replicates is uncertain: it is at least what the cells of its row have together.
    together = spread * (square.sum(axis=1) / spread.sum(axis=1))[:, None]
    error: Floats = TUNING.error_factor * np.sqrt(np.maximum(square, together))
    totals = table.sum(axis=1)
    scatter = np.sqrt(((np.stack([other.sum(axis=1) for other in others]) - totals) ** 2).mean(axis=0))
    unstable = np.repeat((totals < parameters.UNSTABLE_BELOW * scatter)[:, None], table.shape[1], axis=1)
    error = np.where(possible, error, 0.0)
    half = NormalDist().inv_cdf((1 + level) / 2) * error
    return Family(
        child=child,
        parents=parents,
        probability=probability,
        estimate=probability,
        standard_error=error,
        interval_low=np.where(unstable, np.nan, np.clip(probability - half, 0.0, 1.0)),
        interval_high=np.where(unstable, np.nan, np.clip(probability + half, 0.0, 1.0)),
        unstable=unstable,
        implied=True,
    )


def _rows(table: Floats, possible: Bools) -> Floats:
    """Return rows to sum 1 of what is possible; one without anybody is as the margin is, as far as it is possible there."""
    table = np.where(possible, table, 0.0)
    totals, margin = table.sum(axis=1, keepdims=True), np.where(possible, table.sum(axis=0), 0.0)
    margin = np.where(margin.sum(axis=1, keepdims=True) > 0, margin, possible)
    rows = np.where(totals > 0, table, margin)
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), dtype=np.float64)


def _marginals(tables: NoisyTables, shares: list[Floats], *, level: float) -> Iterator[Marginal]:
    for variable, model in enumerate(shares):
        measurement = observed_of(tables, (variable,))
        assert measurement is not None  # every unit is in a table
        measured_table, counts, design = measurement
        yield parameters.marginal_parameters(
            counts,
            design,
            variable=variable,
            model=model,
            level=level,
            noise_variance=measured_table.sigma**2,
            people=tables.people,
        )


def _pairs(tables: NoisyTables, dag: Dag, study: Study) -> Iterator[PairEstimate]:
    support = Possible(study, study.support())
    for first, second in shown_pairs(dag, study):
        measurement = observed_of(tables, (first, second))
        if measurement is None:  # a pair that the study names, of slots that are far apart
            continue
        measured_table, counts, design = measurement
        share, low, high = parameters.joint_shares(
            counts,
            design.under(support.zeros((first, second))),
            level=study.parameters.interval_level,
            noise_variance=measured_table.sigma**2,
            people=tables.people,
        )
        yield PairEstimate(first=first, second=second, estimate=share, low=low, high=high, exact=False)
