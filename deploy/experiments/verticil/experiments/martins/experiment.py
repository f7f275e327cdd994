"""The experiments: calibration of the prior, estimation of the network, and the three ways' answers, for each replication.

P1 is the prior exp(-gamma |pa|), P2 the uniform one. Gamma is calibrated on the replications' mean, with the U(0, 1) parameters
of the paper's text: with BDeu(1) the uniform prior alone reaches what is asked of it, and P1 would be P2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from verticil.experiments.martins import exact
from verticil.experiments.martins.datasets import simulated, stand_in
from verticil.experiments.martins.methods import SCORES, MethodAnswer, family_value, s1, s2, s3
from verticil.experiments.martins.paper import (
    FIGURES,
    PNAD_FIGURES,
    REACHED,
    SETS,
    SIZES,
    TABLES_4_5,
    TRUE_GRAPHS,
    PaperFigure,
)
from verticil.miner.learning.posterior.graphs import run_chains
from verticil.miner.learning.search.protocol import UNINTERRUPTED
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.posterior.chains import Chains
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.predictive import chosen_graphs
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.numerics.posterior.statistics import ChiSquare, Overlap, Records, Share, Statistic

Step = Callable[[str], None]
"""Called with what is being done, in words."""

MAX_PARENTS: Final = 3
"""The default of the R package of the paper's sampler; the paper names none."""
GAMMAS: Final = tuple(step / 4 for step in range(17))
PRIORS: Final = ("P1", "P2")
TABLES: Final = (1, 2, 3, 4, 5, 6)
LEAST_KEPT: Final = 20
"""Graphs of a chain."""
PNAD_LIKE: Final = (4, 5000)
"""Whose gamma the survey's P1 has: the simulated scenario next to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is run.

    Attributes:
        replicates: data sets of each scenario.
        draws: sets of S1, M.
        steps: of each of four chains.
        burn_in: steps of each before its first graph; None: a fifth.
        thinning: steps from one graph to the next; None: such that at most 4,000 of each chain are kept.
        sets: of S2.

    Raises:
        ValueError: `draws` or `sets` are fewer than two, or the chains keep too few graphs.
    """

    replicates: int
    draws: int
    steps: int
    burn_in: int | None = None
    thinning: int | None = None
    sets: int = SETS

    def __post_init__(self) -> None:
        if min(self.draws, self.sets) < 2:
            raise ValueError(f"{self.draws} draws of S1 and {self.sets} sets of S2, expected at least 2 of each")
        if self.chains.n_graphs < LEAST_KEPT:
            raise ValueError(
                f"{self.steps} steps with a burn-in of {self.chains.burn_in} and every graph {self.chains.every} steps after the "
                f"last leave {max(self.chains.n_graphs, 0)} graphs of a chain, expected at least {LEAST_KEPT}"
            )

    @property
    def chains(self) -> Chains:
        """How graphs are sampled."""
        return Chains(steps=self.steps, discarded=self.burn_in, thinning=self.thinning)


FULL: Final = Scale(replicates=10, draws=1000, steps=20_000)
QUICK: Final = Scale(replicates=3, draws=500, steps=5_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Of gamma.

    Attributes:
        d, n: the scenario.
        score: of the parameters, one of `SCORES`.
        probability: of the true network for each of `GAMMAS`, mean over the replications.
        gamma: the smallest with more than `REACHED`; where none has, that with the most.
        reached: whether one has.
    """

    d: int
    n: int
    score: str
    probability: tuple[float, ...]
    gamma: float
    reached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A cell of Table 3, and how far the sampler was off.

    Attributes:
        d, n, prior: the cell.
        score: of the parameters.
        found: in how many replications the true network was the most probable one.
        mean: of its probability in those; None where there are none.
        others: the same in the other ones.
        sampling_error: largest difference of its share among the sampled graphs to its probability.
    """

    d: int
    n: int
    prior: str
    score: str
    found: int
    mean: float | None
    others: float | None
    sampling_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Of a figure.

    Attributes:
        figure: its number.
        shown: the statistic.
        d, n, prior: the scenario.
        truths: of the real records, one a replication; of an overlap 1.
        answers: of S1, S2 and S3, one a replication.
    """

    figure: int
    shown: PaperFigure
    d: int
    n: int
    prior: str
    truths: tuple[float, ...]
    answers: Mapping[str, tuple[MethodAnswer, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Of PNAD or what stands in for it.

    Attributes:
        stand_in: the records are not PNAD's.
        records: how many.
        shares: of the shown category of each of `TABLES_4_5`.
        gamma: of P1.
        networks: the two most probable ones by P1, each with its probability by P1 and P2.
    """

    stand_in: bool
    records: int
    shares: tuple[float, ...]
    gamma: float
    networks: tuple[tuple[Dag, Mapping[str, float]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What the asked parts gave; parts that were not asked for are empty.

    Attributes:
        replicates: data sets of each scenario.
    """

    replicates: int = 0
    calibrations: tuple[Calibration, ...] = ()
    estimated: tuple[Estimated, ...] = ()
    panels: tuple[Panel, ...] = ()
    survey: Survey | None = None


def run(
    tables: Collection[int],
    figures: Collection[int],
    scale: Scale,
    *,
    seed: int,
    tell: Step,
    pnad: Records | None = None,
) -> Results:
    """Run the parts that are asked for.

    Args:
        tables, figures: their numbers.
        scale: how much.
        seed: of everything.
        tell: is told what is being done.
        pnad: PNAD's records; None: what stands in for them.
    """
    on_survey = {number for number in figures if number in PNAD_FIGURES}
    needs_survey = bool(on_survey or {5, 6} & set(tables))
    every = 3 in tables or 1 in figures
    scenarios = {
        (d, n)
        for d, sizes in SIZES.items()
        for n in sizes
        if every or any((d, n) in FIGURES[number].scenarios for number in figures if number in FIGURES)
    } | ({PNAD_LIKE} if needs_survey else set())
    found = Results(replicates=scale.replicates)
    gammas: dict[tuple[int, int], float] = {}
    for d, n in sorted(scenarios):
        tell(f"{d} variables, {n:,} records")
        wanted = {number: FIGURES[number] for number in sorted(figures) if number in FIGURES}
        wanted = {number: shown for number, shown in wanted.items() if (d, n) in shown.scenarios}
        part = _scenario(d, n, wanted, scale, seed=seed, estimate=3 in tables)
        gammas[d, n] = next(each.gamma for each in part.calibrations if each.score == "dirichlet")
        found = replace(
            found,
            calibrations=(*found.calibrations, *(part.calibrations if every else ())),
            estimated=(*found.estimated, *part.estimated),
            panels=(*found.panels, *part.panels),
        )
    if needs_survey:
        tell("the survey in place of PNAD" if pnad is None else "PNAD")
        survey, panels = _survey(pnad, gammas[PNAD_LIKE], sorted(on_survey), scale, seed=seed)
        found = replace(found, survey=survey, panels=(*found.panels, *panels))
    return found


def graphs_of(d: int) -> int:
    """How many acyclic graphs d labelled nodes have (Robinson 1973).

    >>> [graphs_of(d) for d in range(6)]
    [1, 1, 3, 25, 543, 29281]
    """
    if d == 0:
        return 1
    return sum((1 if k % 2 else -1) * math.comb(d, k) * (1 << k * (d - k)) * graphs_of(d - k) for k in range(1, d + 1))


# ---- one posterior


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Posterior:
    """The sample, its distinct graphs with their shares, and the weights that it is of."""

    sample: GraphSample
    distinct: tuple[tuple[Dag, float], ...]
    table: Floats
    total: float

    def ranked(self) -> list[tuple[Dag, float]]:
        """Sampled graphs with their exact probabilities, each merged with its turned pairs, falling."""
        merged = {next(exact.turned_pairs(graph)) for graph, _ in self.distinct}
        probability = {graph: math.exp(exact.log_merged_weight(self.table, graph) - self.total) for graph in merged}
        return sorted(probability.items(), key=lambda item: (-item[1], item[0].parents))

    def top(self) -> Dag:
        """The most probable one of all sampled graphs."""
        return max(
            (graph for graph, _ in self.distinct),
            key=lambda graph: (exact.log_weight(self.table, graph), graph.parents),
        )

    def probability(self, graph: Dag) -> float:
        """Exact, merged with its turned pairs."""
        return math.exp(exact.log_merged_weight(self.table, graph) - self.total)

    def share(self, graph: Dag) -> float:
        """The same among the sampled graphs."""
        same = set(exact.turned_pairs(graph))
        return sum(share for other, share in self.distinct if other in same)


def sets_for(records: Records, score: str, gamma: float) -> ParentSets:
    """What a graph of the records may be made of, by a score of `SCORES` and the prior exp(-gamma |pa|)."""
    return parent_sets(
        family_value(records, score),
        records.n_states,
        max_parents=MAX_PARENTS,
        max_family_cells=2 ** (MAX_PARENTS + 1),
        prior=StructurePrior(gamma=gamma, alpha=1.0),
    )


def _posterior(sets: ParentSets, scale: Scale, seed: int) -> _Posterior:
    table = exact.weight_table(sets)
    sample = run_chains(scale.chains, sets, seed, None, UNINTERRUPTED)
    return _Posterior(sample=sample, distinct=sample.distinct(), table=table, total=exact.log_total(table))


# ---- simulated records


def _scenario(
    d: int, n: int, figures: Mapping[int, PaperFigure], scale: Scale, *, seed: int, estimate: bool
) -> Results:
    data = [simulated(d, n, seed=seed, replicate=replicate) for replicate in range(scale.replicates)]
    calibrations = {score: _calibration(d, n, score, data) for score in SCORES}
    gammas = {"P1": calibrations["dirichlet"].gamma, "P2": 0.0}
    estimated: list[Estimated] = []
    panels: list[Panel] = []
    for prior, gamma in gammas.items():
        for score in SCORES if estimate else ("bdeu",) if figures else ():
            found = [
                _posterior(sets_for(records, score, gamma), scale, seed + replicate)
                for replicate, records in enumerate(data)
            ]
            if estimate:
                estimated.append(_estimated(d, n, prior, score, found))
            if score == "bdeu" and figures:
                panels += _panels(figures, prior, data, found, scale, seed=seed, d=d)
    return Results(calibrations=tuple(calibrations.values()), estimated=tuple(estimated), panels=tuple(panels))


def _calibration(d: int, n: int, score: str, data: Sequence[Records]) -> Calibration:
    tables = [exact.weight_table(sets_for(records, score, 0.0)) for records in data]
    means: list[float] = []
    for gamma in GAMMAS:
        penalized = [exact.penalized(table, gamma) for table in tables]
        logs = [exact.log_merged_weight(table, TRUE_GRAPHS[d]) - exact.log_total(table) for table in penalized]
        means.append(float(np.mean(np.exp(logs))))
    enough = [gamma for gamma, mean in zip(GAMMAS, means, strict=True) if mean > REACHED]
    gamma = min(enough) if enough else GAMMAS[int(np.argmax(means))]
    return Calibration(d=d, n=n, score=score, probability=tuple(means), gamma=gamma, reached=bool(enough))


def _estimated(d: int, n: int, prior: str, score: str, found: Sequence[_Posterior]) -> Estimated:
    true = next(exact.turned_pairs(TRUE_GRAPHS[d]))
    hits: dict[bool, list[float]] = {True: [], False: []}
    for posterior in found:
        hits[posterior.ranked()[0][0] == true].append(posterior.probability(true))
    return Estimated(
        d=d,
        n=n,
        prior=prior,
        score=score,
        found=len(hits[True]),
        mean=float(np.mean(hits[True])) if hits[True] else None,
        others=float(np.mean(hits[False])) if hits[False] else None,
        sampling_error=max(abs(posterior.share(true) - posterior.probability(true)) for posterior in found),
    )


def statistic_of(shown: PaperFigure, records: Records) -> Statistic:
    """What a figure shows, with the real records' interval where it needs it."""
    if shown.what == "p-value":
        return ChiSquare(first=min(shown.given), second=shown.variable)
    share = Share(variable=shown.variable, code=1, given=shown.given)
    return Overlap.with_original(share, records) if shown.what == "overlap" else share


def _panels(
    figures: Mapping[int, PaperFigure],
    prior: str,
    data: Sequence[Records],
    found: Sequence[_Posterior],
    scale: Scale,
    *,
    seed: int,
    d: int,
) -> list[Panel]:
    """One for each figure; all statistics of a replication are of the same synthetic records."""
    n = len(data[0].columns[0])
    truths: list[list[float]] = []
    answers: dict[str, list[list[MethodAnswer]]] = {"S1": [], "S2": [], "S3": []}
    for replicate, (records, posterior) in enumerate(zip(data, found, strict=True)):
        statistics = [statistic_of(shown, records) for shown in figures.values()]
        generator = np.random.default_rng([seed, d, n, replicate, PRIORS.index(prior)])
        graphs = chosen_graphs(posterior.sample, scale.draws)
        truths.append([statistic(records) for statistic in statistics])
        answers["S1"].append(s1(records, graphs, statistics, generator))
        answers["S2"].append(s2(records, posterior.top(), statistics, generator, sets=scale.sets))
        answers["S3"].append(s3(records, statistics, generator))
    return [
        Panel(
            figure=figure,
            shown=shown,
            d=d,
            n=n,
            prior=prior,
            truths=tuple(row[place] for row in truths),
            answers={name: tuple(row[place] for row in rows) for name, rows in answers.items()},
        )
        for place, (figure, shown) in enumerate(figures.items())
    ]


# ---- the survey


def _survey(
    own: Records | None, gamma: float, figures: Sequence[int], scale: Scale, *, seed: int
) -> tuple[Survey, list[Panel]]:
    records = own or stand_in()
    posteriors = {
        prior: _posterior(sets_for(records, "bdeu", gamma if prior == "P1" else 0.0), scale, seed) for prior in PRIORS
    }
    networks = tuple(
        (graph, {prior: posterior.probability(graph) for prior, posterior in posteriors.items()})
        for graph, _ in posteriors["P1"].ranked()[:2]
    )
    shares = tuple(float((records.columns[v] == column.code).mean()) for v, column in enumerate(TABLES_4_5))
    panels: list[Panel] = []
    for number in figures:
        shown = {10 * number + place: each for place, each in enumerate(PNAD_FIGURES[number])}
        for prior, posterior in posteriors.items():
            drawn = _panels(shown, prior, [records], [posterior], scale, seed=seed, d=len(TABLES_4_5))
            panels += [replace(panel, figure=number) for panel in drawn]
    survey = Survey(
        stand_in=own is None, records=len(records.columns[0]), shares=shares, gamma=gamma, networks=networks
    )
    return survey, panels
