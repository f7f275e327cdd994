"""Networks from the posterior: a graph of the sample, and of each family probabilities drawn given what was released.

With a the prior's count of a cell, that of the score (1 / cells with BDeu, else 1), a row of a family's table is Dirichlet(a
+ N) with

    records         N the counts;
    randomized      N drawn by data augmentation (`verticil.shared.posterior.randomized`); where that is not possible, or too much
                    work, f N^, the EM's counts times what is left of each record;
    noisy tables    N such that means and variances are those of the family's estimate by the joint model (`matched_counts`).

A variable that the graph leaves without parents keeps the uncertainty of its own table; families are drawn independently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from verticil.miner.learning.posterior.scores import PosteriorScores
from verticil.shared.arrays import Floats
from verticil.shared.model.elimination import network_pair
from verticil.shared.model.graph import Dag
from verticil.shared.model.network import Family, Network, PairEstimate
from verticil.shared.model.schema import Schema
from verticil.shared.posterior.predictive import drawn_family
from verticil.shared.posterior.randomized import can_be_augmented, drawn_counts, matched_counts
from verticil.shared.release.synthesis import sample_codes

Concentrations = Callable[[int, tuple[int, ...]], Floats]
"""(child, parents ascending) -> (J, K): of the Dirichlet distribution of each row, for one draw; 0 where a cell cannot be."""

_RECORDS: Final = 100_000
"""Records that a pair's shares are read from, where they are too much to compute."""


def concentrations(scores: PosteriorScores, generator: np.random.Generator) -> Concentrations:
    """Of records, or of randomized columns: see the module.

    Args:
        scores: has the counts.
        generator: of the augmentation; advanced.
    """
    known: dict[tuple[int, tuple[int, ...]], Iterator[Floats]] = {}

    def of(child: int, parents: tuple[int, ...]) -> Floats:
        if (child, parents) not in known:
            known[child, parents] = _concentrations(scores, child, parents, generator)
        return next(known[child, parents])

    return of


def _concentrations(
    scores: PosteriorScores, child: int, parents: tuple[int, ...], generator: np.random.Generator
) -> Iterator[Floats]:
    axes = (*parents, child)
    observed, design = scores.tables.counted(axes)
    counts, factor = scores.tempered(axes)
    pseudo = scores.pseudo(counts.size)
    prior = pseudo * np.ones(counts.shape) if design.possible is None else pseudo * design.possible
    n_states = counts.shape[-1]
    if not can_be_augmented(design, factor):
        fixed = (prior + factor * counts).reshape(-1, n_states)
        while True:
            yield fixed
    for drawn in drawn_counts(observed, design, counts, factor=factor, pseudo=pseudo, generator=generator):
        yield (prior + drawn).reshape(-1, n_states)


def matched(family: Callable[[int, tuple[int, ...]], Family]) -> Concentrations:
    """Of a family's estimate with its standard errors, wherever they are from."""
    known: dict[tuple[int, tuple[int, ...]], Floats] = {}

    def of(child: int, parents: tuple[int, ...]) -> Floats:
        if (child, parents) not in known:
            found = family(child, parents)
            known[child, parents] = matched_counts(found.probability, found.standard_error)
        return known[child, parents]

    return of


def networks(
    graphs: Iterable[Dag], of: Concentrations, schema: Schema, *, generator: np.random.Generator
) -> Iterator[Network]:
    """Of each graph a network: its probabilities drawn, without standard errors."""
    for graph in graphs:
        families = (
            drawn_family(child, parents, of(child, parents), generator) for child, parents in enumerate(graph.parents)
        )
        yield Network(schema=schema, dag=graph, families=tuple(families))


def pair_bands(
    drawn: Iterable[Network], pairs: Sequence[tuple[int, int]], *, level: float, exact: frozenset[int]
) -> tuple[PairEstimate, ...]:
    """The shares of pairs: means over networks, and bands that hold a whole table with a level.

    The band of a table is mean +- c standard deviations, c the quantile of the largest standardized difference of a draw
    (Besag, Green, Higdon & Mengersen, 1995, section 6.3, with standard deviations in the place of ranks).

    Args:
        drawn: networks from the posterior.
        pairs: of variables.
        level: of a band.
        exact: the variables whose columns are not randomized.
    """
    tables: list[list[Floats]] = [[] for _ in pairs]
    for number, network in enumerate(drawn):
        for table, shares in zip(tables, _shares(network, pairs, number), strict=True):
            table.append(shares)
    found: list[PairEstimate] = []
    for (first, second), table in zip(pairs, tables, strict=True):
        draws = np.stack(table)
        low, mean, high = band(draws, level)
        both = exact.issuperset((first, second))
        found.append(PairEstimate(first=first, second=second, estimate=mean, low=low, high=high, exact=both))
    return tuple(found)


def band(draws: Floats, level: float) -> tuple[Floats, Floats, Floats]:
    """Lower ends, means and upper ends of (m, ..) draws of shares, all of which hold together with a level."""
    mean, deviation = draws.mean(axis=0), draws.std(axis=0)
    away = np.abs(draws - mean) / np.where(deviation > 0, deviation, 1.0)
    critical = float(np.quantile(away.reshape(len(draws), -1).max(axis=1), level))
    half = critical * deviation
    return np.clip(mean - half, 0.0, 1.0), mean, np.clip(mean + half, 0.0, 1.0)


def _shares(network: Network, pairs: Sequence[tuple[int, int]], number: int) -> list[Floats]:
    try:
        return [network_pair(network, first, second) for first, second in pairs]
    except ValueError:  # too large to compute
        codes = sample_codes(network, _RECORDS, generator=np.random.default_rng(number))
        n_states = network.schema.n_states
        found: list[Floats] = []
        for first, second in pairs:
            cells = codes[first].astype(np.int64) * n_states[second] + codes[second]
            counts = np.bincount(cells, minlength=n_states[first] * n_states[second])
            found.append(counts.reshape(n_states[first], n_states[second]) / _RECORDS)
        return found
