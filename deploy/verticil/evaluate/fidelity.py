"""Fidelity: do tables of the columns look alike, and would an analyst conclude the same?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np

from verticil.evaluate.figures import Asked
from verticil.evaluate.measures.coded import CodedTable
from verticil.evaluate.measures.fidelity import (
    Distance,
    conditional_kullback_leibler,
    distances,
    k_marginal,
    largest_difference,
)
from verticil.evaluate.measures.propensity import PERMUTATIONS, logistic_propensity, tree_propensity
from verticil.evaluate.measures.regression import LEAST_RECORDS, agreement, coefficients
from verticil.evaluate.measures.univariate import univariate
from verticil.evaluate.metrics import INDEPENDENT, SAMPLE, Measured, Metric, Row, Setting
from verticil.evaluate.resampling import Play, Round

MOST_TABLES: Final = 500
"""Of each width; of more, as many are drawn, the same for every candidate."""
TREE_RECORDS: Final = 5_000
"""Of each table, that a tree tells apart, once and in each permutation; of half as many a verdict on Adult was chance."""
LOGISTIC_RECORDS: Final = 2_500
"""Of each table, that a logistic regression tells apart; what chance does to so many is stated beside it."""
_WORST: Final = 6  # tables of each width that are listed
_UNIFORM, _TREE = 11, 12  # purposes of generators


def _distances(this_round: Round, play: Play, setting: Setting) -> Measured:
    values: dict[str, float] = {}
    rows: list[Row] = []
    real, d = this_round.real, len(this_round.real.names)
    for ways in (1, 2, 3):
        if ways > d:
            continue
        tables = _choose_tables(d, ways, full=setting.full)
        other = _uniform(this_round) if ways == 1 and play.kind == "baseline" else play.table
        distance = distances(real.codes, other.codes, real.n_states, ways=ways, tables=tables)
        values[f"distance_{ways}"], values[f"worst_{ways}"] = distance.mean, distance.worst
        values[f"k_marginal_{ways}"] = k_marginal(distance)
        if play.kind == "candidate":
            rows += [
                _describe_worst(distance, this_round.real, other, place, setting) for place in distance.order[:_WORST]
            ]
    return Measured(values=values, rows=rows)


def _describe_worst(distance: Distance, real: CodedTable, other: CodedTable, place: int, setting: Setting) -> Row:
    """Describe one of the worst tables, with the combination of categories that differs most."""
    members = distance.tables[place]
    cell, mine, theirs = largest_difference(real.codes, other.codes, real.n_states, members)
    return {
        "columns": " · ".join(real.names[member] for member in members),
        "where they differ most": " · ".join(
            setting.labels[member][code] for member, code in zip(members, cell, strict=True)
        ),
        "ways": distance.ways,
        "distance": distance.each[place],
        "real share": mine,
        "synthetic share": theirs,
    }


def _choose_tables(n_columns: int, ways: int, *, full: bool) -> list[tuple[int, ...]]:
    """Choose all tables of one width, or a draw of them that depends on nothing else."""
    if full or math.comb(n_columns, ways) <= MOST_TABLES:
        return list(combinations(range(n_columns), ways))
    generator = np.random.default_rng([n_columns, ways])
    subsets: set[tuple[int, ...]] = set()
    while len(subsets) < MOST_TABLES:
        subsets.add(tuple(sorted(generator.choice(n_columns, ways, replace=False).tolist())))
    return sorted(subsets)


def _uniform(this_round: Round) -> CodedTable:
    """Return records in which every category is as frequent as any other."""
    generator, n = this_round.generator(_UNIFORM), this_round.real.n
    columns = [generator.integers(0, states, n, dtype=np.uint16) for states in this_round.real.n_states]
    return dataclasses.replace(this_round.real, codes=tuple(columns), values=(None,) * len(columns))


def _columns(this_round: Round, play: Play, _setting: Setting) -> Measured:
    columns = univariate(this_round.real, play.table)
    of = {
        kind: [column.test.p_value for column in columns if column.kind == kind]
        for kind in ("kolmogorov-smirnov", "chi square")
    }
    rows: list[Row] = [
        {
            "column": column.name,
            "test": column.kind,
            "distance": column.distance,
            "statistic": column.test.statistic,
            "degrees of freedom": column.test.degrees_of_freedom or math.nan,
            "p": column.test.p_value,
        }
        for column in sorted(columns, key=lambda column: -column.distance)
    ]
    values = {
        "p_kolmogorov_smirnov": _mean(of["kolmogorov-smirnov"]),
        "p_chi_square": _mean(of["chi square"]),
        "distance": _mean([column.distance for column in columns]),
    }
    return Measured(values=values, rows=rows)


def _propensity(this_round: Round, play: Play, setting: Setting) -> Measured:
    generator = this_round.generator(_TREE)
    pairs = [
        [table.rows(np.arange(table.n)[: None if setting.full else most]) for table in (this_round.real, play.table)]
        for most in (LOGISTIC_RECORDS, TREE_RECORDS)
    ]
    logistic = logistic_propensity(*pairs[0])
    tree, chance = tree_propensity(*pairs[1], generator=generator)
    values = {
        "propensity": tree.ratio(chance),
        "pmse_tree": tree.value,
        "pmse_tree_by_chance": chance.mean,
        "standard_error_of_that": chance.error,
        "standardized_tree": tree.standardize(chance),
        "pmse_logistic": logistic.value,
        "parameters": float(logistic.rank),
        "ratio_conditional_null": logistic.ratio(logistic.conditional),
        "ratio_independent_null": logistic.ratio(logistic.independent),
        "standardized_conditional_null": logistic.standardize(logistic.conditional),
        "standardized_independent_null": logistic.standardize(logistic.independent),
        "largest_possible": logistic.maximum,
    }
    return Measured(values=values)


def _regression(this_round: Round, play: Play, setting: Setting) -> Measured:
    real, other = coefficients((this_round.real, play.table), setting.target, without=setting.telling)
    comparison = agreement(real, other)
    is_determined = ~np.isnan(real.values)
    rows: list[Row] = [
        {
            "column": name or "constant",
            "category": setting.labels[this_round.real.column(name)][code] if name else "",
            "real": float(real.values[place]),
            "synthetic": float(other.values[place]),
            "difference": float(comparison.difference[place]),
            "IO": float(comparison.overlap[place]),
            "O_IC": float(comparison.overlap_or_none[place]),
        }
        for place, (name, code) in enumerate(real.names)
        if is_determined[place]
    ]
    rows.sort(key=lambda row: -_sortable(row["difference"]))
    values = {
        "interval_overlap": _mean(comparison.overlap_or_none),
        "overlap_io": _mean(comparison.overlap),
        "standardized_difference": _mean(comparison.difference),
        "coefficients": float(np.count_nonzero(is_determined)),
        "not_determined": float(np.count_nonzero(is_determined & np.isnan(other.values))),
    }
    return Measured(values=values, rows=rows)


def _conditional(this_round: Round, play: Play, setting: Setting) -> Measured:
    real, target = this_round.real, setting.target
    rows: list[Row] = []
    for place, name in enumerate(real.names):
        if place != target:
            shape = real.n_states[place], real.n_states[target]
            counts = [
                np.bincount(
                    table.codes[place].astype(np.int64) * shape[1] + table.codes[target], minlength=shape[0] * shape[1]
                ).reshape(shape)
                for table in (real, play.table)
            ]
            rows.append({"column": name, "divergence": conditional_kullback_leibler(counts[0], counts[1])})
    divergences = [float(row["divergence"]) for row in rows]
    rows.sort(key=lambda row: -_sortable(row["divergence"]))
    return Measured(
        values={"conditional_divergence": _mean(divergences), "worst": max(divergences, default=math.nan)}, rows=rows
    )


def _mean(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the mean of those that could be computed; NaN where none could."""
    numbers = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def _sortable(value: float | int | str) -> float:
    """Return a key by which what could not be computed comes first: in the other table nothing determines it."""
    number = float(value)
    return math.inf if math.isnan(number) else number


METRICS: Final = (
    Metric(
        name="distances",
        family="fidelity",
        title="Tables of one, two and three columns",
        measure=_distances,
        by_value=True,
        says="Total variation distance: half the sum of the absolute differences of all shares. The k-marginal score of "
        "SDNist is 1,000 less a thousand distances. The worst tables are listed with the combination that differs most.",
        figures=tuple(
            Asked(
                key=f"distance_{ways}",
                title=f"Distance of {word} columns" if ways > 1 else "Distance of single columns",
                family="fidelity",
                better="lower",
                says=f"Share of the records that would have to be counted elsewhere, a mean over {what}.",
                floor=SAMPLE,
                baseline="every category as frequent as any other" if ways == 1 else INDEPENDENT,
            )
            for ways, word, what in (
                (1, "one", "the columns"),
                (2, "two", "the tables of two columns"),
                (3, "three", "the tables of three columns"),
            )
        ),
    ),
    Metric(
        name="columns",
        family="fidelity",
        title="Tests of single columns",
        measure=_columns,
        says="Kolmogorov-Smirnov of numbers, chi square of categories. A p value falls with the number of records, however "
        "small a difference is, and is 1/2 on average where there is none: read the distance beside it.",
    ),
    Metric(
        name="propensity",
        family="fidelity",
        title="Can a model tell the records from real ones? (pMSE)",
        measure=_propensity,
        says="Mean squared error of the probabilities that a model gives for being synthetic. Of a logistic regression on the "
        f"categories, on at most {LOGISTIC_RECORDS:,} records of each table, chance has two expectations: Snoke's of 2018, "
        "which takes the real records as given, and twice that where both tables are samples of one population, as here. Of "
        f"a tree on at most {TREE_RECORDS:,} records of each table chance is what {PERMUTATIONS} permutations of real and "
        "synthetic show; its standard error stands below it.",
        figures=(
            Asked(
                key="propensity",
                title="Told from real records by a tree",
                family="fidelity",
                better="lower",
                says="How much better a tree tells the records from real ones than it tells permuted ones: 1 is chance.",
                floor=SAMPLE,
                baseline=INDEPENDENT,
            ),
        ),
    ),
    Metric(
        name="regression",
        family="fidelity",
        title="Conclusions of a regression",
        measure=_regression,
        says="Logistic regression: has the predicted column its most common category, or another one, given the categories of"
        f" all others? Categories of fewer than {LEAST_RECORDS} real records are taken together. Differences are in "
        "standard errors of the real coefficient. The overlap of 95 % intervals is given in two ways: O_IC, 0 where they "
        "are disjoint (Martins), and IO, below 0 the further they are apart (Karr, Snoke). A coefficient that the "
        "synthetic records do not determine has an interval without ends: its overlaps are 0 and 1/2.",
        figures=(
            Asked(
                key="interval_overlap",
                title="Overlap of regression intervals",
                family="fidelity",
                better="higher",
                says="How far the intervals of the coefficients of one regression overlap, a mean: 1 where they are equal, 0 "
                "where they are disjoint.",
                floor=SAMPLE,
                baseline=INDEPENDENT,
            ),
        ),
    ),
    Metric(
        name="conditional",
        family="fidelity",
        title="What the predicted column depends on",
        measure=_conditional,
        says="Kullback-Leibler divergence, in nats, of the predicted column given each other column; half a record is added "
        "to each combination of the synthetic table, so that one that it lacks costs no infinity.",
    ),
)
