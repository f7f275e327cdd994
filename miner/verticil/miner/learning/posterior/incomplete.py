"""Records whose missing values are unknowns, drawn with the graphs (``[posterior] missing = "augment"``).

The category of missing values is none of the variable's: a column loses it and has a category less, whose codes are the unit's,
as if the study had declared it impossible. Networks, sets and records then never have it, and no prior gives it anything.

Networks are drawn from the graph, the completed records that were drawn with it, and probabilities given both. Whatever else is
learned (the consensus's probabilities, shares, strengths) is learned from each of `TUNING.completed_tables` completed tables,
spread over the chains, and put together by Rubin's rules (1987, section 3.1): the mean; and with W the mean of the squared errors
and B the variance between the tables, the error is the root of W + (1 + 1 / m) B, by which intervals are wider than within a
table. The tests of pairs, and the check of the network against them, are those of one completed table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import cast

import numpy as np

from verticil.miner.learning.posterior.draws import Drawing, spread
from verticil.miner.learning.posterior.graphs import Sampled, consensus, run_chains, sets_of
from verticil.miner.learning.posterior.scores import local_score
from verticil.miner.learning.posterior.tuning import TUNING
from verticil.miner.learning.scoring.edge_confidence import EdgeStrength
from verticil.miner.learning.scoring.scores import PairScores
from verticil.miner.learning.search.protocol import Interruption, SearchProblem
from verticil.shared.core.arrays import Codes, Floats, Ints
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.model.network import Family, Marginal, Network, PairEstimate, sure_family
from verticil.shared.numerics.posterior.incomplete import CompletedSample, CompletingChains, Incomplete, incomplete
from verticil.shared.numerics.posterior.predictive import drawn_family
from verticil.shared.study.document import Study
from verticil.shared.study.posterior import drawn_categories


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completed:
    """A sample of graphs and missing values.

    Attributes:
        units: the columns without the category of missing values.
        columns: (n,) codes of the units; anything where the value is missing.
        problem: the same, laid out for the chains.
        found: graphs, and values drawn with them.
        kept: of each variable the codes of its categories that records can have.
    """

    units: tuple[ColumnUnit, ...]
    columns: tuple[Codes, ...]
    problem: Incomplete
    found: CompletedSample
    kept: tuple[Ints, ...]

    def tables(self) -> Iterator[list[Codes]]:
        """Yield some completed tables, a column for each unit."""
        for draw in spread(len(self.found.draws), TUNING.completed_tables):
            codes = self.problem.completed(self.found.cells[draw])
            columns = [column.copy() for column in self.columns]
            for v, column in enumerate(columns):
                column[self.problem.order] = codes[:, v]
            yield columns

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Return how many records lack each of the variables whose values can be missing."""
        n = np.bincount(self.problem.variables, minlength=len(self.units))
        return tuple((v, int(n[v])) for v, unit in enumerate(self.units) if unit.domain is not None)

    def drawing(self, study: Study, check: Callable[[], None]) -> Drawing:
        """Return networks from the posterior; `check` is called before each and may raise."""
        schema, p = study.schema, self.problem

        def family(child: int, parents: tuple[int, ...], codes: np.ndarray, generator: np.random.Generator) -> Family:
            members = tuple(sorted((*parents, child)))
            table = np.moveaxis(p.table(codes, members), members.index(child), -1)
            counts = table.reshape(-1, table.shape[-1]).astype(np.float64)
            pseudo = 1 / counts.size if p.score == "bdeu" else 1.0
            probability = drawn_family(child, parents, counts + pseudo, generator).probability
            # A missing value is nobody's parent either: its rows are never asked, and say nothing.
            theta = np.zeros((*(schema[v].n_states for v in parents), schema[child].n_states))
            theta[..., self.kept[child]] = 1 / len(self.kept[child])
            theta[np.ix_(*(self.kept[v] for v in (*parents, child)))] = probability.reshape(table.shape)
            return sure_family(child, parents, theta.reshape(-1, theta.shape[-1]))

        def draw(m: int, generator: np.random.Generator) -> Iterator[Network]:
            for place in spread(len(self.found.draws), m):
                check()
                graph = self.found.sample.dag(int(self.found.draws[place]))
                codes = p.completed(self.found.cells[place])
                families = tuple(
                    family(child, parents, codes, generator) for child, parents in enumerate(graph.parents)
                )
                yield Network(schema=schema, dag=graph, families=families)

        return draw


def completed_graphs(
    columns: Sequence[Codes],
    problem: SearchProblem,
    pairs: PairScores,
    study: Study,
    *,
    progress: Callable[[float], None],
    interruption: Interruption,
) -> tuple[Sampled, Completed]:
    """Sample graphs and missing values together, and find the consensus.

    Args:
        columns: codes of each unit as they were sent: single columns that nothing randomized.
        problem, pairs, study, progress, interruption: see `graphs.sampled_graphs`.

    Raises:
        LearningCancelled, ForeignCheckpoint, Misuse: see `graphs.sampled_graphs`.
        DataFault: LEARNING_FAILED, too many records with missing values.
    """
    missing_codes, n_states, rule = drawn_categories(study), study.schema.n_states, study.posterior
    present_codes = tuple(
        np.array([k for k in range(n) if k != missing_codes.get(v)], dtype=np.int64) for v, n in enumerate(n_states)
    )
    unknown = [column == missing_codes[v] if v in missing_codes else None for v, column in enumerate(columns)]
    own = tuple(
        cast("Codes", (column - (column > missing_codes[v])).astype(column.dtype)) if v in missing_codes else column
        for v, column in enumerate(columns)
    )
    units = tuple(
        dataclasses.replace(
            unit,
            domain=tuple((k,) for k in present_codes[v].tolist()),
            channel=quantize(identity(len(present_codes[v]))),
        )
        if v in missing_codes
        else unit
        for v, unit in enumerate(study.column_unit(v) for v in range(len(n_states)))
    )
    laid_out = incomplete(
        own,
        unknown,
        [len(each) for each in present_codes],
        sets_of(None, problem, pairs, study, interruption),
        local_score(study.structure.score),
    )
    chains = CompletingChains(chains=rule.chains, steps=rule.steps)
    completion = run_chains(chains, laid_out, study.structure.seed, progress, interruption)
    result = consensus(completion.sample, problem, seed=study.structure.seed)
    return (
        Sampled(sample=completion.sample, result=result, scores=None),
        Completed(units=units, columns=own, problem=laid_out, found=completion, kept=present_codes),
    )


def _pool(
    estimates: Sequence[Floats], errors: Sequence[Floats], lows: Sequence[Floats], highs: Sequence[Floats]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Estimate, error and interval of several completed tables, see the module; NaN where any of them has none."""
    m, estimate = len(estimates), np.mean(estimates, axis=0)
    within, between = np.mean(np.square(errors), axis=0), np.var(estimates, axis=0, ddof=1)
    error: Floats = np.sqrt(within + (1 + 1 / m) * between)
    with np.errstate(divide="ignore", invalid="ignore"):
        wider = np.where(within > 0, error / np.sqrt(within), 1.0)
    low = estimate - wider * (estimate - np.mean(lows, axis=0))
    high = estimate + wider * (np.mean(highs, axis=0) - estimate)
    return estimate, error, np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def pooled_family(families: Sequence[Family]) -> Family:
    """Pool the families of several completed tables; of one table return its own."""
    if len(families) == 1:
        return families[0]
    estimate, error, low, high = _pool(
        [each.estimate for each in families],
        [each.standard_error for each in families],
        [each.interval_low for each in families],
        [each.interval_high for each in families],
    )
    return dataclasses.replace(
        families[0],
        probability=np.mean([each.probability for each in families], axis=0),
        estimate=estimate,
        standard_error=error,
        interval_low=low,
        interval_high=high,
        unstable=np.any([each.unstable for each in families], axis=0),
    )


def pooled_marginal(marginals: Sequence[Marginal]) -> Marginal:
    """Pool the shares of a variable in the same way."""
    if len(marginals) == 1:
        return marginals[0]
    estimate, error, low, high = _pool(
        [each.estimate for each in marginals],
        [each.standard_error for each in marginals],
        [each.interval_low for each in marginals],
        [each.interval_high for each in marginals],
    )
    return dataclasses.replace(
        marginals[0], estimate=estimate, standard_error=error, interval_low=low, interval_high=high
    )


def pooled_pair(pairs: Sequence[PairEstimate], *, level: float) -> PairEstimate:
    """Pool the shares of two variables in the same way; their intervals hold together with the level."""
    if len(pairs) == 1:
        return pairs[0]
    quantile = NormalDist().inv_cdf(1 - (1 - level) / (2 * pairs[0].estimate.size))
    estimate, _, low, high = _pool(
        [each.estimate for each in pairs],
        [(each.high - each.low) / (2 * quantile) for each in pairs],
        [each.low for each in pairs],
        [each.high for each in pairs],
    )
    return dataclasses.replace(pairs[0], estimate=estimate, low=low, high=high)


def pooled_strengths(
    strength_maps: Sequence[Mapping[tuple[int, int], EdgeStrength]],
) -> Mapping[tuple[int, int], EdgeStrength]:
    """Return the means of the strengths and informations."""
    return {
        edge: EdgeStrength(
            *(float(np.mean(each)) for each in zip(*(strengths[edge] for strengths in strength_maps), strict=True))
        )
        for edge in strength_maps[0]
    }
