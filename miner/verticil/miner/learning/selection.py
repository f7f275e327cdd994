"""The structure of randomized columns: the study's method, or the best of some candidates (``auto``).

``auto`` learns every candidate from four fifths of the released records, and chooses by what the study prefers:

- ``synthesis``: the candidate that fits the held-out fifth best (`held_out`), so pairs in the synthetic records come out right;
- ``structure``: hill climbing with the penalty on noise, which has the most right edges; where the noise leaves so little that
  it does not (`LEAST_CONTRAST`), the tree (methods.md section 2).

The chosen way then searches anew in all records. Held out are the last records: their order is that of pseudonyms, which has
nothing to do with people (with linkage order-commitment it is that of the tables, so the records are shuffled first). Every
candidate's likelihood is in the result, whatever was preferred.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.miner.learning.counting import Codes
from verticil.miner.learning.family_scores import FamilyScores, contrast_factor
from verticil.miner.learning.held_out import HeldOut, quick_network
from verticil.miner.learning.scores import PairScores, unit_pair_scores
from verticil.miner.learning.search.protocol import LearningCancelled, SearchResult
from verticil.miner.learning.structure import Search, run_method, search_problem
from verticil.miner.learning.tables import FamilyTables
from verticil.shared.estimation.design import ColumnUnit, family_design
from verticil.shared.study.document import Study

__all__ = ["CANDIDATES", "HELD_OUT", "LEAST_CONTRAST", "Candidate", "Found", "search_columns"]

CANDIDATES: Final = (
    Search(method="hill-climb", score="bic"),
    Search(method="hill-climb", score="bic-noise"),
    Search(method="order", score="mutual-information"),
    Search(method="tree", score="mutual-information"),
)
HELD_OUT: Final = 5
"""One record in so many."""
LEAST_CONTRAST: Final = 0.25
"""Median over the pairs of the product of their contrast factors, from which on hill climbing finds the best structure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate of ``auto``.

    Attributes:
        search: the way.
        edges: how many edges it found in four fifths of the records.
        held_out: mean log-likelihood of one held-out record's pair, nats.
    """

    search: Search
    edges: int
    held_out: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """A structure and how it was found.

    Attributes:
        result: of the search in all records.
        search: the way; with ``auto`` the one that was chosen.
        candidates: of ``auto``; else none.
        pairs: the scores of all pairs.
        tables: the released counts of the families that were looked at.
    """

    result: SearchResult
    search: Search
    candidates: tuple[Candidate, ...]
    pairs: PairScores
    tables: FamilyTables


def search_columns(
    columns: Sequence[Codes],
    study: Study,
    *,
    progress: Callable[[str, int], None],
    cancelled: Callable[[], bool] | None = None,
) -> Found:
    """Search the structure of a study that does not give it.

    Args:
        columns: released codes of every unit, see `learn.learn`.
        study: the effective study.
        progress: is told the stage (``counting``, ``searching``) and its per cent.
        cancelled: is asked often.

    Raises:
        LearningCancelled: `cancelled` said so.
        DataFault: LEARNING_FAILED, a released table is larger than can be counted.
        Misuse: STUDY_INVALID, the study contradicts itself.
    """
    units = [study.column_unit(index) for index in range(len(study.units))]

    def check() -> None:
        if cancelled is not None and cancelled():
            raise LearningCancelled

    def told(done: float) -> None:
        progress("searching", int(100 * done))

    rule, n = study.structure, len(columns[0]) // units[0].channel.codes_per_record
    auto = rule.method == "auto"
    kept = n - n // HELD_OUT if auto else n
    if auto and study.linkage.mode == "order-commitment":
        columns = _shuffled(columns, units, n, seed=study.structure.seed)
    progress("counting", 0)
    part = _Part(_first(columns, units, kept), study, units, check)
    progress("counting", 100)
    candidates: tuple[Candidate, ...] = ()
    search = Search(method=rule.method, score=rule.score)
    if auto:
        candidates = _compared(columns, part, lambda done: told(done / 2), cancelled)
        search = _chosen(candidates, study, units).search
        part = _Part(columns, study, units, check)
    result = part.run(search, lambda done: told((1 + done) / 2 if auto else done), cancelled)
    return Found(result=result, search=search, candidates=candidates, pairs=part.pairs, tables=part.tables)


def _shuffled(columns: Sequence[Codes], units: Sequence[ColumnUnit], n: int, *, seed: int) -> list[Codes]:
    """The records in an order drawn from the study's seed. Counts stay what they are; which records are held out does not."""
    order = np.random.default_rng(seed).permutation(n)
    return [
        column.reshape(n, unit.channel.codes_per_record)[order].reshape(-1)
        for column, unit in zip(columns, units, strict=True)
    ]


def _first(columns: Sequence[Codes], units: Sequence[ColumnUnit], n: int) -> list[Codes]:
    """The first n records: views, nothing is copied."""
    return [column[: n * unit.channel.codes_per_record] for column, unit in zip(columns, units, strict=True)]


class _Part:
    """Some records with their scores."""

    def __init__(
        self, columns: Sequence[Codes], study: Study, units: Sequence[ColumnUnit], check: Callable[[], None]
    ) -> None:
        schema = study.schema
        self.study = study
        self.pairs = unit_pair_scores(columns, units, schema.n_states, cancelled=check)
        self.tables = FamilyTables(columns, units, schema.n_states, schema.names, cancelled=check)
        self.scores = FamilyScores(self.tables, level=self.pairs.level)
        self.problem = search_problem(self.pairs.information, study)

    def run(
        self, search: Search, progress: Callable[[float], None], cancelled: Callable[[], bool] | None
    ) -> SearchResult:
        return run_method(
            search,
            self.problem,
            self.study,
            scores=self.scores,
            pairs=self.pairs,
            progress=progress,
            cancelled=cancelled,
        )


def _compared(
    columns: Sequence[Codes], part: _Part, progress: Callable[[float], None], cancelled: Callable[[], bool] | None
) -> tuple[Candidate, ...]:
    """Search in every way in `part`, and compare on the rest of the records."""
    study, units = part.study, part.tables.units
    rest = HeldOut(
        [
            column[part.tables.n_records * unit.channel.codes_per_record :]
            for column, unit in zip(columns, units, strict=True)
        ],
        units,
        study.schema.n_states,
    )
    possible = [search for search in CANDIDATES if _can(search, part)]
    found: list[Candidate] = []

    def told(share: float) -> None:
        progress((len(found) + share) / len(possible))

    for search in possible:
        result = part.run(search, told, cancelled)
        network = quick_network(study.schema, result.dag, part.tables, prior_count=study.parameters.prior_count)
        likelihood = rest.likelihood(network, seed=study.structure.seed)
        found.append(Candidate(search=search, edges=len(result.dag.edges()), held_out=likelihood))
    return tuple(found)


def _can(search: Search, part: _Part) -> bool:
    """No tree where a variable has two required parents."""
    needed = [part.problem.required_parents(child) for child in range(len(part.problem.n_states))]
    return search.method != "tree" or all(len(parents) <= 1 for parents in needed)


def _chosen(candidates: Sequence[Candidate], study: Study, units: Sequence[ColumnUnit]) -> Candidate:
    if study.structure.prefer == "synthesis":
        return max(candidates, key=lambda candidate: candidate.held_out)
    by_search = {candidate.search: candidate for candidate in candidates}
    climbing, tree = CANDIDATES[1], CANDIDATES[3]
    d = len(study.schema)
    if d < 2 or tree not in by_search:
        return by_search[climbing]
    factors = [
        contrast_factor(axis) for v in range(d) for axis in family_design(units, study.schema.n_states, (v,)).axes
    ]
    contrast = statistics.median(a * b for a, b in itertools.combinations(factors, 2))
    return by_search[climbing if contrast >= LEAST_CONTRAST else tree]
