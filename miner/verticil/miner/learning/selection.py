"""The structure of randomized columns: the study's method, or the best of some candidates (``auto``).

``auto`` learns every candidate from four fifths of the released records, and chooses by what the study prefers:

- ``synthesis``: pairs in the synthetic records are to come out right. A candidate is worth the likelihood of a record's pairs
  in the held-out fifth (`held_out`), less the information of the strong links that it leaves out (`pair_check`), both in nats:
  of a link that noise hides well the likelihood tells little. Where simpler ones are worth less by no more than the standard
  error of the likelihood's difference, the simplest is taken: within the error nothing speaks for more parameters, each of
  which is estimated from noise;
- ``structure``: hill climbing with the penalty on noise, which has the most right edges; where the noise leaves so little that
  it does not (`TUNING.least_contrast`), the tree (scores.md section 2).

Of more than `TUNING.all_pairs_variables` variables the candidates are the searches on scores of pairs, order and tree, and for
the structure the tree: hill climbing takes five times as long there, and finds no more right edges.

The chosen way then searches anew in all records. Held out are the last records: their order is that of pseudonyms, which has
nothing to do with people (with linkage order-commitment it is that of the tables, so the records are shuffled first). Every
candidate's likelihood is in the result, whatever was preferred.

A checkpoint of ``auto`` is that of the search that is running, with the candidates that are done beside it.

As many parents as the records are worth: `max_parents` is the most that a study allows, not what every table can bear.

A family of c cells keeps its parents where

    n prod lambda^2 >= LEAST c,

n the records, lambda the contrast factor of a randomized column of the family (`unit_axis.contrast_factor`; 1 without
randomization), so that the left side is what the records are worth. Else the parent with the least information about the child
goes, again and again, until that holds. Required parents stay, and so does the last one: a test has shown that it tells
something. Estimates of a larger table follow the noise, and what is sampled from them is further from the truth than with fewer
parents; without noise leaning on smaller tables (`parent_smoothing`) is enough, unless cells are many times the records.

The constant was chosen on networks whose truth is known: ``tests/bench/prior.py`` has the figures.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.miner.learning.held_out import HeldOut, check_pairs, quick_network, sample_network
from verticil.miner.learning.posterior.graphs import Sampled, sampled_graphs
from verticil.miner.learning.posterior.incomplete import Completed, completed_graphs
from verticil.miner.learning.posterior.scores import PosteriorScores, local_score
from verticil.miner.learning.scoring.count_tables import FamilyTables
from verticil.miner.learning.scoring.scores import FamilyScores, PairScores, pair_scores
from verticil.miner.learning.search.protocol import (
    UNINTERRUPTED,
    Checkpoint,
    ForeignCheckpoint,
    Interruption,
    LearningCancelled,
    SearchProblem,
    SearchResult,
)
from verticil.miner.learning.structure import Search, run_method, search_problem
from verticil.miner.learning.tuning import TUNING
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design
from verticil.shared.numerics.estimation.unit_axis import contrast_factor
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.document import Study
from verticil.shared.study.posterior import drawn_categories
from verticil.shared.study.vocabulary import METHODS

CANDIDATES: Final = (
    Search(method="hill-climb", score="bic"),
    Search(method="hill-climb", score="bic-noise"),
    Search(method="order", score="mutual-information"),
    Search(method="tree", score="mutual-information"),
)


_KEPT: Final = ("candidate_edges", "candidate_parameters", "candidate_blocks", "candidate_missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate of ``auto``.

    Attributes:
        search: the way.
        edges: how many edges it found in four fifths of the records.
        parameters: how many free probabilities that network has.
        blocks: mean log-likelihood of one held-out record's pair in each block of records, nats.
        missing: information of the strong links that the network leaves out, nats.
    """

    search: Search
    edges: int
    parameters: int
    blocks: tuple[float, ...]
    missing: float

    @property
    def held_out(self) -> float:
        """Mean log-likelihood of one held-out record's pair, nats."""
        return statistics.fmean(self.blocks)

    def behind(self, best: Candidate) -> tuple[float, float]:
        """Return by how much `best` has the larger `held_out`, and the standard error of that: 0 where there is one block."""
        differences = [better - own for better, own in zip(best.blocks, self.blocks, strict=True)]
        error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
        return statistics.fmean(differences), error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelectedStructure:
    """A structure and how it was found.

    Attributes:
        result: of the search in all records.
        search: the way; with ``auto`` the one that was chosen.
        candidates: of ``auto``; else none.
        pairs: the scores of all pairs.
        tables: the released counts of the families that were looked at.
        sampled: the graphs, where the study samples them; then `result` is their consensus.
        completed: the records, where their missing values were drawn with the graphs; `tables` is of one completed table.
        more: those of other completed tables.
    """

    result: SearchResult
    search: Search
    candidates: tuple[Candidate, ...]
    pairs: PairScores
    tables: FamilyTables
    sampled: Sampled | None = None
    completed: Completed | None = None
    more: tuple[FamilyTables, ...] = ()

    @property
    def each(self) -> tuple[FamilyTables, ...]:
        """`tables`, and the tables of `more`."""
        return (self.tables, *self.more)


def search_columns(
    columns: Sequence[Codes],
    study: Study,
    *,
    progress: Callable[[str, int], None],
    interruption: Interruption = UNINTERRUPTED,
) -> SelectedStructure:
    """Search the structure of a study that does not give it.

    Args:
        columns: released codes of every unit, see `learn.learn`.
        study: the effective study.
        progress: is told the stage (``counting``, ``searching``) and its per cent.
        interruption: how it is stopped, and gone on with; its checkpoint is of a search in the same columns for the same study.

    Raises:
        LearningCancelled: `interruption` said so; it brings the checkpoint when it was searching.
        ForeignCheckpoint: the checkpoint is of another search.
        DataFault: LEARNING_FAILED, a released table is larger than can be counted.
        Misuse: STUDY_INVALID, the study contradicts itself.
    """
    units = [study.column_unit(index) for index in range(len(study.units))]

    def report(share: float) -> None:
        progress("searching", int(100 * share))

    rule, n = study.structure, len(columns[0]) // units[0].channel.codes_per_record
    auto = rule.method == "auto"
    n_training = n - n // TUNING.held_out if auto else n
    if auto and study.linkage.mode == "order-commitment":
        columns = _shuffle(columns, units, n, seed=study.structure.seed)
    progress("counting", 0)
    part = _Part(_first(columns, units, n_training), study, units, interruption.check)
    progress("counting", 100)
    if not auto:
        search = Search(method=rule.method, score=rule.score)
        if drawn_categories(study):
            return _complete_records(part, columns, search, report, interruption)
        if study.samples_graphs:
            scores = PosteriorScores(part.tables, local_score(rule.score))
            graph_sample = sampled_graphs(
                scores, part.problem, part.pairs, study, progress=report, interruption=interruption
            )
            return SelectedStructure(
                result=graph_sample.result,
                search=search,
                candidates=(),
                pairs=part.pairs,
                tables=part.tables,
                sampled=graph_sample,
            )
        result = part.run(search, report, interruption)
        return SelectedStructure(result=result, search=search, candidates=(), pairs=part.pairs, tables=part.tables)
    trail = _Trail(part, interruption)
    try:
        _compare(columns, part, trail, lambda done: report(done / 2))
        search = choose_search(trail.candidates, study, units).search
        part = _Part(columns, study, units, interruption.check)
        result = trail.run(part, search, lambda done: report((1 + done) / 2))
    except LearningCancelled as stop:
        raise LearningCancelled(trail.join_checkpoint(stop.checkpoint)) from None
    candidates = tuple(trail.candidates)
    return SelectedStructure(result=result, search=search, candidates=candidates, pairs=part.pairs, tables=part.tables)


def _complete_records(
    part: _Part, columns: Sequence[Codes], search: Search, progress: Callable[[float], None], interruption: Interruption
) -> SelectedStructure:
    """Return graphs with the missing values of records as unknowns."""
    study = part.study
    graph_sample, completion = completed_graphs(
        columns, part.problem, part.pairs, study, progress=progress, interruption=interruption
    )
    completed_tables, n_states, check = list(completion.tables()), study.schema.n_states, interruption.check
    first, *more = (
        FamilyTables(each, completion.units, n_states, study.schema.names, check=check) for each in completed_tables
    )
    return SelectedStructure(
        result=graph_sample.result,
        search=search,
        candidates=(),
        pairs=pair_scores(completed_tables[0], completion.units, n_states, check=check),
        tables=first,
        sampled=graph_sample,
        completed=completion,
        more=tuple(more),
    )


def _shuffle(columns: Sequence[Codes], units: Sequence[ColumnUnit], n: int, *, seed: int) -> list[Codes]:
    """Put the records in an order drawn from the study's seed.

    Counts stay what they are; which records are held out does not.
    """
    order = np.random.default_rng(seed).permutation(n)
    return [
        column.reshape(n, unit.channel.codes_per_record)[order].reshape(-1)
        for column, unit in zip(columns, units, strict=True)
    ]


def _first(columns: Sequence[Codes], units: Sequence[ColumnUnit], n: int) -> list[Codes]:
    """Return the first n records: views, nothing is copied."""
    return [column[: n * unit.channel.codes_per_record] for column, unit in zip(columns, units, strict=True)]


class _Part:
    """Some records with their scores."""

    def __init__(
        self, columns: Sequence[Codes], study: Study, units: Sequence[ColumnUnit], check: Callable[[], None]
    ) -> None:
        schema = study.schema
        self.study = study
        self.pairs = pair_scores(columns, units, schema.n_states, check=check)
        self.tables = FamilyTables(columns, units, schema.n_states, schema.names, check=check)
        self.scores = FamilyScores(self.tables, level=self.pairs.level)
        self.problem = search_problem(self.pairs.information, study)

    def run(self, search: Search, progress: Callable[[float], None], interruption: Interruption) -> SearchResult:
        result = run_method(
            search,
            self.problem,
            self.study,
            scores=self.scores,
            pairs=self.pairs,
            progress=progress,
            interruption=interruption,
        )
        if self.study.parameters.prior_count is not None:
            return result
        return cut_parents(result, self.problem, n_records=self.tables.n_records, noise=self.scores.noise)


class _Trail:
    """How far ``auto`` came: the candidates that are done, and the search that runs.

    Args:
        part: what the candidates search in.
        interruption: of all the searches together; it is offered the joined checkpoints.
    """

    def __init__(self, part: _Part, interruption: Interruption) -> None:
        self.possible = [search for search in CANDIDATES if _can(search, part)]
        self.candidates: list[Candidate] = []
        self._mark = hashlib.sha256(repr(self.possible).encode() + part.problem.digest()).digest()
        self._interruption = interruption
        self._resumed: Checkpoint | None = None
        self._latest: Callable[[], Checkpoint] | None = None
        if (checkpoint := interruption.checkpoint) is None:
            return
        names = ("auto", *_KEPT)
        if any(name not in checkpoint for name in names) or checkpoint["auto"].tobytes() != self._mark:
            raise ForeignCheckpoint("the checkpoint is of another selection")
        stored_rows = zip(*(checkpoint[name].tolist() for name in _KEPT), strict=True)
        self.candidates += [
            Candidate(search=search, edges=edges, parameters=parameters, blocks=tuple(blocks), missing=missing)
            for search, (edges, parameters, blocks, missing) in zip(self.possible, stored_rows, strict=False)
        ]
        self._resumed = {name: array for name, array in checkpoint.items() if name not in names} or None

    def run(self, part: _Part, search: Search, progress: Callable[[float], None]) -> SearchResult:
        """Run the next search; the first one goes on where the checkpoint stopped."""
        checkpoint, self._resumed = self._resumed, None
        own = dataclasses.replace(self._interruption, checkpoint=checkpoint, keep=self._offer_checkpoint)
        return part.run(search, progress, own)

    def add(self, candidate: Candidate) -> None:
        """Add a candidate that is done; what runs next has no checkpoint yet."""
        self.candidates.append(candidate)
        self._latest = None

    def join_checkpoint(self, running: Checkpoint | None) -> Checkpoint:
        """Return the checkpoint of the running search, or its latest one, or none, with the candidates that are done."""
        if running is None:
            running = self._resumed if self._latest is None else self._latest()
        return {
            "auto": np.frombuffer(self._mark, dtype=np.uint8),
            "candidate_edges": np.array([candidate.edges for candidate in self.candidates], dtype=np.int64),
            "candidate_parameters": np.array([candidate.parameters for candidate in self.candidates], dtype=np.int64),
            "candidate_blocks": np.array([candidate.blocks for candidate in self.candidates], dtype=np.float64),
            "candidate_missing": np.array([candidate.missing for candidate in self.candidates], dtype=np.float64),
            **(running or {}),
        }

    def _offer_checkpoint(self, make: Callable[[], Checkpoint]) -> None:
        self._latest = make
        self._interruption.keep(functools.partial(self.join_checkpoint, None))


def _compare(columns: Sequence[Codes], part: _Part, trail: _Trail, progress: Callable[[float], None]) -> None:
    """Search in every way in `part` that is not done, and compare on the rest of the records."""
    if len(trail.candidates) == len(trail.possible):
        return
    study, units, support = part.study, part.tables.units, part.study.support()
    rest = HeldOut(
        [
            column[part.tables.n_records * unit.channel.codes_per_record :]
            for column, unit in zip(columns, units, strict=True)
        ],
        units,
        study.schema.n_states,
    )

    def report(share: float) -> None:
        progress((len(trail.candidates) + share) / len(trail.possible))

    for search in trail.possible[len(trail.candidates) :]:
        result = trail.run(part, search, report)
        network = quick_network(
            study.schema, result.dag, part.tables, prior_count=study.parameters.prior_count, support=support
        )
        sample = sample_network(network, seed=study.structure.seed, support=support)
        trail.add(
            Candidate(
                search=search,
                edges=len(result.dag.edges()),
                parameters=sum(family.probability.size - len(family.probability) for family in network.families),
                blocks=tuple(rest.likelihoods(sample).tolist()),
                missing=check_pairs(sample, study.schema.n_states, part.pairs).strong,
            )
        )


def _can(search: Search, part: _Part) -> bool:
    """Return whether a search is possible.

    No tree is, where a variable has two required parents; of more than `TUNING.all_pairs_variables` variables searches on scores
    of pairs only.
    """
    if len(part.problem.n_states) > TUNING.all_pairs_variables and not METHODS[search.method].on_pairs:
        return False
    required_parents = [part.problem.required_parents(child) for child in range(len(part.problem.n_states))]
    return not METHODS[search.method].one_parent or all(len(parents) <= 1 for parents in required_parents)


def choose_search(candidates: Sequence[Candidate], study: Study, units: Sequence[ColumnUnit]) -> Candidate:
    """Choose what ``auto`` takes, see the module."""
    if study.structure.prefer == "synthesis":
        pairs = max(math.comb(len(units), 2), 1)

        def worth(candidate: Candidate) -> float:
            return pairs * candidate.held_out - candidate.missing

        best = max(candidates, key=worth)
        near = [c for c in candidates if worth(best) - worth(c) <= pairs * c.behind(best)[1]]
        return min(near, key=lambda candidate: candidate.parameters)
    by_search = {candidate.search: candidate for candidate in candidates}
    climbing, order, tree = CANDIDATES[1:]
    d = len(study.schema)
    if climbing not in by_search:
        return by_search.get(tree, by_search[order])
    if d < 2 or tree not in by_search:
        return by_search[climbing]
    factors = [
        contrast_factor(axis) for v in range(d) for axis in family_design(units, study.schema.n_states, (v,)).axes
    ]
    contrast = statistics.median(a * b for a, b in itertools.combinations(factors, 2))
    return by_search[climbing if contrast >= TUNING.least_contrast else tree]


def cut_parents(
    result: SearchResult, problem: SearchProblem, *, n_records: int, noise: Callable[[Sequence[int]], float]
) -> SearchResult:
    """Leave out the parents that the records do not bear.

    Args:
        result: what was found; its fitness stays that of the search.
        problem: what was searched.
        n_records: released records.
        noise: 1 over the product of the contrast factors of some variables (`FamilyScores.noise`).

    Returns:
        The result with its `cut_edges`.
    """
    cut: list[tuple[int, int]] = []
    new_parents = [
        _borne(problem, child, parents, n_records, noise) for child, parents in enumerate(result.dag.parents)
    ]
    for child, (before, after) in enumerate(zip(result.dag.parents, new_parents, strict=True)):
        cut += [(parent, child) for parent in before if parent not in after]
    return dataclasses.replace(result, dag=Dag(parents=tuple(new_parents)), cut_edges=tuple(cut)) if cut else result


def _borne(
    problem: SearchProblem,
    child: int,
    parents: Sequence[int],
    n_records: int,
    noise: Callable[[Sequence[int]], float],
) -> tuple[int, ...]:
    required_parents = problem.required_parents(child)
    # The last goes first; of equals the one with the larger number.
    remaining = sorted(parents, key=lambda p: (p not in required_parents, -problem.weights[p, child], p))
    while len(remaining) > 1 and remaining[-1] not in required_parents:
        members = (*remaining, child)
        if (
            TUNING.least_effective_records * math.prod(problem.n_states[v] for v in members) * noise(members) ** 2
            <= n_records
        ):
            break
        remaining.pop()
    return tuple(sorted(remaining))
