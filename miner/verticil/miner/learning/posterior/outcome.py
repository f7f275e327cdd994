"""What is said with the structure's uncertainty: networks, pairs and statistics over sampled graphs and probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np

from verticil.miner.learning.posterior.draws import Drawing, pair_bands
from verticil.miner.learning.posterior.graphs import Sampled
from verticil.miner.learning.posterior.tuning import TUNING
from verticil.shared.core.arrays import AnyCodes, Codes
from verticil.shared.numerics.knowledge.columns import Columns
from verticil.shared.numerics.knowledge.columns import columns as columns_of
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.rounding import round_network
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.numerics.posterior.predictive import Predictive, draw_records_along_edges, predictive
from verticil.shared.numerics.posterior.result import Source, StructurePosterior
from verticil.shared.numerics.posterior.statistics import (
    ChiSquare,
    Coefficient,
    Mean,
    Overlap,
    Records,
    Share,
    Statistic,
)
from verticil.shared.study.document import Study
from verticil.shared.synthesis.synthesis import numbers_of, sample_codes
from verticil.shared.synthesis.within_bins import tilts_of


def posterior_of(
    graph_sample: Sampled,
    draw: Drawing,
    study: Study,
    *,
    source: Source,
    pairs: Sequence[tuple[int, int]],
    exact: frozenset[int],
    n_records: int,
    columns: Sequence[AnyCodes] | None,
    progress: Callable[[int], None],
    missing: tuple[tuple[int, int], ...] | None = None,
    constant: tuple[int, ...] = (),
) -> StructurePosterior:
    """Draw networks, and sum them up.

    Args:
        graph_sample: the graphs.
        draw: networks from the posterior.
        study: names how many networks, which statistics, the level and the seed.
        source: what the graphs were scored by.
        pairs: of variables, whose shares are wanted.
        exact: the variables whose columns are not randomized.
        n_records: of a set that a statistic is predicted for, where the study leaves it open.
        columns: the records, where they are as they are: for statistics that compare with them.
        progress: is told the per cent.
        missing, constant: see `StructurePosterior`.
    """
    schema, rule, support = study.schema, study.posterior, study.support()
    n_networks = TUNING.draws + (TUNING.predicted_networks if rule.statistics else 0) + rule.data_sets
    n_done = 0

    def draw_networks(m: int, label: int) -> list[Network]:
        nonlocal n_done
        generator = np.random.Generator(np.random.Philox(key=[study.structure.seed, label], counter=[0, 0, 0, 2]))
        networks: list[Network] = []
        for network in draw(m, generator):
            networks.append(network)
            n_done += 1
            progress(100 * n_done // n_networks)
        return networks

    published_networks = tuple(map(round_network, draw_networks(rule.data_sets, 0)))
    bands = pair_bands(
        draw_networks(TUNING.draws, 1), pairs, level=study.parameters.interval_level, exact=exact, support=support
    )
    whole = schema if study.knowledge is None else Schema(variables=(*schema.variables, *study.knowledge.variables))
    table = columns_of(study.knowledge, schema)
    original = None if columns is None else _add_following(columns, table, whole)
    statistics = [statistic(words, whole, original) for words in rule.statistics]
    predictions: tuple[Predictive, ...] = ()
    if statistics:
        n = study.release.synthetic_records or n_records
        generator = np.random.Generator(np.random.Philox(key=[study.structure.seed, 3], counter=[0, 0, 0, 2]))
        records = partial(_by_rules, support=support) if support.restricts else draw_records_along_edges
        if len(whole) > len(schema):
            records = partial(_with_following, draw=records, table=table, whole=whole)
        numbers = {each.variable for each in statistics if isinstance(each, Mean)}
        if numbers:
            records = partial(_with_numbers, draw=records, variables=sorted(numbers), study=study, whole=whole)
        predictions = predictive(
            draw_networks(TUNING.predicted_networks, 2), statistics, n, generator, records, chains=rule.chains
        )
    return StructurePosterior(
        sample=graph_sample.sample,
        source=source,
        consensus=graph_sample.result.dag,
        networks=published_networks,
        pairs=bands,
        predictive=predictions,
        missing=missing,
        moved=graph_sample.moved,
        constant=constant,
    )


def _by_rules(network: Network, n: int, generator: np.random.Generator, *, support: Support) -> Records:
    codes = sample_codes(network, n, generator=generator, method="independent", support=rake(network, support))
    return Records(columns=codes, n_states=network.schema.n_states)


def _with_following(
    network: Network,
    n: int,
    generator: np.random.Generator,
    *,
    draw: Callable[[Network, int, np.random.Generator], Records],
    table: Columns,
    whole: Schema,
) -> Records:
    """Return records with the columns that follow from others behind the others."""
    return Records(columns=_add_following(draw(network, n, generator).columns, table, whole), n_states=whole.n_states)


def _add_following(columns: Sequence[AnyCodes], table: Columns, whole: Schema) -> Sequence[AnyCodes]:
    columns_by_name = dict(
        zip(table.published.names, table.compute_columns(cast("Sequence[Codes]", columns)), strict=True)
    )
    return [columns_by_name[name] for name in whole.names]


def _with_numbers(
    network: Network,
    n: int,
    generator: np.random.Generator,
    *,
    draw: Callable[[Network, int, np.random.Generator], Records],
    variables: Sequence[int],
    study: Study,
    whole: Schema,
) -> Records:
    """Return records with the numbers of some variables inside their bins, as the network's set would have them."""
    records, tilts = draw(network, n, generator), tilts_of((network,), study)
    numbers = {v: numbers_of(whole[v], records.columns[v], generator, tilts.get(v)) for v in variables}
    return dataclasses.replace(records, numbers=numbers)


def statistic(words: Sequence[str], schema: Schema, columns: Sequence[AnyCodes] | None) -> Statistic:
    """Return a statistic as a study names it (`vocabulary.STATISTICS`): a name, then variables and categories.

    Of a regression it is the coefficient of the first predictor, in the codes of the categories.

    Raises:
        ValueError: there is none of this name, or it compares with records that are not there.
    """
    name, *rest = words
    if name in {"mle", "mean", "overlap"}:
        if name == "mean":
            rest.insert(1, schema[schema.index(rest[0])].labels[0])  # of the variable itself none is asked for
        variables = [schema.index(variable) for variable in rest[::2]]
        codes = [schema[v].labels.index(label) for v, label in zip(variables, rest[1::2], strict=True)]
        condition = dict(zip(variables[1:], codes[1:], strict=True))
        if name == "mean":
            return Mean(variable=variables[0], given=condition)
        share = Share(variable=variables[0], code=codes[0], given=condition)
        if name == "mle":
            return share
        if columns is None:
            raise ValueError("an overlap with the records, and they are not there")
        return Overlap.with_original(share, Records(columns=columns, n_states=schema.n_states))
    if name == "chi-square":
        first, second = map(schema.index, rest)
        return ChiSquare(first=first, second=second)
    if name in {"linear", "logistic"}:
        response = schema.index(rest[0])
        event = schema[response].labels.index(rest[1]) if name == "logistic" else None
        predictors = tuple(map(schema.index, rest[1 if event is None else 2 :]))
        return Coefficient(response=response, predictors=predictors, of=predictors[0], event=event)
    raise ValueError(f"no statistic is called '{name}'")
