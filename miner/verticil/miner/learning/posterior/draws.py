"""Networks from the posterior: a graph of the sample, and of each family probabilities drawn given what was released.

With a the prior's count of a cell, that of the score (1 / cells with BDeu, else 1), a row of a family's table is Dirichlet(a
+ N) with

    records         N the counts;
    few randomized  N the true counts that the graph was drawn with (`verticil.shared.numerics.posterior.released`): families hang
                    together as the records have it;
    randomized      N drawn by data augmentation (`verticil.shared.numerics.posterior.randomized`); where that is not
                    possible, or too much work, f N^, the EM's counts times what is left of each record;
    noisy tables    N such that means and variances are those of the family's estimate by the joint model (`matched_counts`).

A variable that the graph leaves without parents keeps the uncertainty of its own table; but for few randomized columns, families
are drawn independently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.posterior.scores import PosteriorScores
from verticil.miner.learning.posterior.tuning import TUNING
from verticil.shared.core.arrays import Floats, Ints
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.elimination import TooWideError, network_pair
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network, PairEstimate
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.numerics.posterior.predictive import chosen_graphs, drawn_family
from verticil.shared.numerics.posterior.randomized import can_be_augmented, drawn_counts, matched_counts
from verticil.shared.numerics.posterior.released import ReleasedSample
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.study.document import Study
from verticil.shared.synthesis.synthesis import sample_codes

Concentrations = Callable[[int, tuple[int, ...], int], Sequence[Floats]]
"""(child, parents ascending, m) -> m times (J, K): of the Dirichlet distribution of each row, for one draw; 0 where a cell cannot
be."""

Drawing = Callable[[int, np.random.Generator], Iterator[Network]]
"""(m, generator, which is advanced) -> m networks from the posterior of graph and probabilities, without standard errors."""


def concentrations(scores: PosteriorScores, generator: np.random.Generator) -> Concentrations:
    """Return the concentrations of records, or of randomized columns: see the module.

    Args:
        scores: has the counts.
        generator: of the augmentation; advanced.
    """

    def of(child: int, parents: tuple[int, ...], m: int) -> Sequence[Floats]:
        axes = (*parents, child)
        released_counts, design = scores.tables.count_family(axes)
        counts, factor = scores.temper_counts(axes)
        pseudo = scores.pseudo(counts.size)
        prior = pseudo * np.ones(counts.shape) if design.possible is None else pseudo * design.possible
        if can_be_augmented(design, factor):
            samples = drawn_counts(
                released_counts, design, counts, m, factor=factor, pseudo=pseudo, generator=generator
            )
        else:
            samples = np.broadcast_to(factor * counts, (m, *counts.shape))
        return [(prior + each).reshape(-1, counts.shape[-1]) for each in samples]

    return of


def match_errors(family: Callable[[int, tuple[int, ...]], Family]) -> Concentrations:
    """Return concentrations that match a family's estimate and its standard errors, wherever they are from."""

    def of(child: int, parents: tuple[int, ...], m: int) -> Sequence[Floats]:
        estimate = family(child, parents)
        return [matched_counts(estimate.probability, estimate.standard_error)] * m

    return of


def within(concentration: Floats, possible: NDArray[np.bool_]) -> Floats:
    """Set the cells that rules make impossible to 0: Dirichlet rows given these zeros. A row of such cells alone stays."""
    return np.where(possible | ~possible.any(axis=1, keepdims=True), concentration, 0.0)


def networks(
    graphs: Sequence[Dag], of: Concentrations, schema: Schema, *, generator: np.random.Generator
) -> Iterator[Network]:
    """Yield a network of each graph: its probabilities drawn, without standard errors.

    A family's draws are made together.
    """
    uses = Counter((child, parents) for graph in graphs for child, parents in enumerate(graph.parents))
    waiting: dict[tuple[int, tuple[int, ...]], Iterator[Floats]] = {}
    for graph in graphs:
        families: list[Family] = []
        for child, parents in enumerate(graph.parents):
            key = (child, parents)
            if key not in waiting:
                waiting[key] = iter(of(child, parents, uses[key]))
            families.append(drawn_family(child, parents, next(waiting[key]), generator))
        yield Network(schema=schema, dag=graph, families=tuple(families))


def drawing(sample: GraphSample, of: Concentrations, study: Study, check: Callable[[], None]) -> Drawing:
    """Return networks with graphs of a sample.

    Args:
        sample: the graphs.
        of: the distribution of a family's probabilities.
        study: its variables, and what it states of all records.
        check: called before the probabilities of each family are drawn; may raise.
    """

    support = study.support()

    def check_and_draw(child: int, parents: tuple[int, ...], m: int) -> Sequence[Floats]:
        check()
        possible = support.zeros((*parents, child))
        samples = of(child, parents, m)
        return samples if possible is None else [within(each, possible.reshape(each.shape)) for each in samples]

    return lambda m, generator: networks(chosen_graphs(sample, m), check_and_draw, study.schema, generator=generator)


def spread(n: int, m: int) -> list[int]:
    """Return m of n, evenly; with fewer than m some stand there more than once."""
    return [(2 * i + 1) * n // (2 * m) for i in range(m)]


def drawing_with_counts(
    released_sample: ReleasedSample, scores: PosteriorScores, study: Study, check: Callable[[], None]
) -> Drawing:
    """Return networks with graphs of a sample, and with the true counts that each was drawn with.

    Args:
        released_sample: graphs and true counts.
        scores: say the prior's count of a cell.
        study: its variables, and what it states of all records.
        check: called before each network is drawn; may raise.
    """
    support, schema = study.support(), study.schema

    def family(child: int, parents: tuple[int, ...], true: Ints, generator: np.random.Generator) -> Family:
        axes = (*parents, child)
        table = true.sum(axis=tuple(v for v in range(len(schema)) if v not in axes))
        order = sorted(axes)
        counts = table.transpose([order.index(v) for v in axes]).reshape(-1, schema[child].n_states)
        concentration = counts + scores.pseudo(counts.size)
        if (possible := support.zeros(axes)) is not None:
            concentration = within(concentration, possible.reshape(counts.shape))
        return drawn_family(child, parents, concentration, generator)

    def draw(m: int, generator: np.random.Generator) -> Iterator[Network]:
        for place in spread(len(released_sample.draws), m):
            check()
            graph, true = (
                released_sample.sample.dag(int(released_sample.draws[place])),
                released_sample.true[place].astype(np.int64),
            )
            families = tuple(family(child, parents, true, generator) for child, parents in enumerate(graph.parents))
            yield Network(schema=schema, dag=graph, families=families)

    return draw


def pair_bands(
    network_draws: Iterable[Network],
    pairs: Sequence[tuple[int, int]],
    *,
    level: float,
    exact: frozenset[int],
    support: Support | None = None,
) -> tuple[PairEstimate, ...]:
    """Return the shares of pairs: means over networks, and bands that hold a whole table with a level.

    The band of a table is mean +- c standard deviations, c the quantile of the largest standardized difference of a draw
    (Besag, Green, Higdon & Mengersen, 1995, section 6.3, with standard deviations in the place of ranks).

    Args:
        network_draws: networks from the posterior.
        pairs: of variables.
        level: of a band.
        exact: the variables whose columns are not randomized.
        support: what every record meets; None: nothing.
    """
    tables: list[list[Floats]] = [[] for _ in pairs]
    for number, network in enumerate(network_draws):
        for table, shares in zip(tables, _shares(network, pairs, number, support), strict=True):
            table.append(shares)
    bands: list[PairEstimate] = []
    for (first, second), table in zip(pairs, tables, strict=True):
        draws = np.stack(table)
        low, mean, high = band(draws, level)
        both = exact.issuperset((first, second))
        bands.append(PairEstimate(first=first, second=second, estimate=mean, low=low, high=high, exact=both))
    return tuple(bands)


def band(draws: Floats, level: float) -> tuple[Floats, Floats, Floats]:
    """Return lower ends, means and upper ends of (m, ..) draws of shares, all of which hold together with a level."""
    mean, deviation = draws.mean(axis=0), draws.std(axis=0)
    away = np.abs(draws - mean) / np.where(deviation > 0, deviation, 1.0)
    critical = float(np.quantile(away.reshape(len(draws), -1).max(axis=1), level))
    half = critical * deviation
    return np.clip(mean - half, 0.0, 1.0), mean, np.clip(mean + half, 0.0, 1.0)


def _shares(network: Network, pairs: Sequence[tuple[int, int]], number: int, support: Support | None) -> list[Floats]:
    support = rake(network, support)
    try:
        rules = () if support is None else support.limits
        return [network_pair(network, first, second, rules) for first, second in pairs]
    except TooWideError:
        codes = sample_codes(network, TUNING.sampled_records, generator=np.random.default_rng(number), support=support)
        n_states = network.schema.n_states
        shares: list[Floats] = []
        for first, second in pairs:
            cells = codes[first].astype(np.int64) * n_states[second] + codes[second]
            counts = np.bincount(cells, minlength=n_states[first] * n_states[second])
            shares.append(counts.reshape(n_states[first], n_states[second]) / TUNING.sampled_records)
        return shares
