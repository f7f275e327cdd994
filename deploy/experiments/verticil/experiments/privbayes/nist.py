"""The scores of NIST's 2018 challenge, as far as the paper's summary defines them, and the k-marginal score of NIST's later ones.

Every score is 10^6 for records that are the same, and lower for others (the k-marginal score: 1,000):

- clustering: 100 times three columns at random; 1 minus half the absolute difference of their tables' shares; the mean.
- classification: 300 times a third of the columns at random, of each number a random interval, of each category a random set of
  values; the share of the records that have all of them, its natural logarithm; 1 minus the root mean square difference of the
  logarithms over ln 1000.
- regression, cities: the Gini coefficient of the income in each city, by sex; 1 minus the root mean square difference. Ranks: the
  cities by how much more men have than women, on average; 1 minus the root mean square difference of the ranks over that of the
  reversed order. The score is the mean of both.
- k-marginal: two columns, all pairs; 1 minus half the absolute difference, the mean.

What is ours, because the summary does not say it: a share of no record counts as half a record's in a logarithm; the set of a
category has each value with probability 1/2 and at least one, an interval goes from one random range to another; Gini
coefficients are of men and of women in each city (the joint distribution of sex and income), of the middles of the ranges
(negative incomes are none, missing ones are left out); what the root mean squares are divided by in the regression; no score is
below 0.
The same random columns and events are asked of every synthesizer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from verticil.evaluate.measures.fidelity import distances
from verticil.experiments.privbayes.datasets import Table
from verticil.shared.core.arrays import Bools, Codes, Floats

CLUSTERINGS: Final = 100
CLASSIFICATIONS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of some records against the real ones.

    Attributes:
        clustering, classification, regression: 0 to 10^6.
        k_marginal: 0 to 1,000.
        two_way: mean total variation distance of all tables of two columns.
        three_way: the same of the clustering's tables of three.
    """

    clustering: float
    classification: float
    regression: float
    k_marginal: float
    two_way: float
    three_way: float


def scores(table: Table, made: Sequence[Codes], *, seed: int) -> Scores:
    """Score synthetic records of the survey.

    Args:
        table: the real ones.
        made: (m,) codes of each column.
        seed: of the columns and events that are asked.
    """
    three_way = clustering_distance(table, made, seed=seed)
    two_way = distances(table.columns, made, table.schema.n_states, ways=2).mean
    return Scores(
        clustering=1e6 * (1 - three_way),
        classification=1e6 * max(0.0, 1 - log_difference(table, made, seed=seed) / math.log(1000)),
        regression=1e6 * regression(table, made),
        k_marginal=1e3 * (1 - two_way),
        two_way=two_way,
        three_way=three_way,
    )


def clustering_distance(table: Table, made: Sequence[Codes], *, seed: int) -> float:
    """Mean total variation distance of `CLUSTERINGS` tables of three columns at random."""
    generator = np.random.default_rng([seed, 1])
    n_states = table.schema.n_states
    found: list[float] = []
    for _ in range(CLUSTERINGS):
        chosen = np.sort(generator.choice(len(n_states), 3, replace=False)).tolist()
        real, other = ([columns[v] for v in chosen] for columns in (table.columns, made))
        found.append(distances(real, other, [n_states[v] for v in chosen], ways=3).mean)
    return float(np.mean(found))


def log_difference(table: Table, made: Sequence[Codes], *, seed: int) -> float:
    """Root mean square difference of the logarithms of the shares of `CLASSIFICATIONS` random events."""
    generator = np.random.default_rng([seed, 2])
    n_states = table.schema.n_states
    differences: list[float] = []
    for _ in range(CLASSIFICATIONS):
        chosen = generator.choice(len(n_states), len(n_states) // 3, replace=False).tolist()
        events = {v: _event(generator, n_states[v], interval=v in table.numbers) for v in chosen}
        logarithms: list[float] = []
        for columns in (table.columns, made):
            inside = np.ones(len(columns[0]), dtype=np.bool_)
            for v, event in events.items():
                inside &= event[columns[v]]
            logarithms.append(math.log(max(float(inside.mean()), 0.5 / table.n_records)))
        differences.append(logarithms[0] - logarithms[1])
    return float(np.sqrt(np.mean(np.square(differences))))


def _event(generator: np.random.Generator, n_states: int, *, interval: bool) -> Bools:
    """Which codes are in it."""
    if interval:
        low, high = np.sort(generator.integers(0, n_states, 2))
        codes = np.arange(n_states)
        return np.asarray((codes >= low) & (codes <= high))
    event = generator.random(n_states) < 0.5
    event[generator.integers(n_states)] = True
    return event


def regression(table: Table, made: Sequence[Codes]) -> float:
    """The mean of both parts, 0 to 1."""
    names = table.schema.names
    city, sex, income = (names.index(name) for name in table.regression)
    groups = list(itertools.product(range(table.schema.n_states[city]), range(table.schema.n_states[sex])))
    inequality: list[list[float]] = []
    ranks: list[Floats] = []
    for columns in (table.columns, made):
        values = np.maximum(table.middles[income], 0.0)[columns[income]]
        known = ~np.isnan(values)
        of = [values[known & (columns[city] == c) & (columns[sex] == s)] for c, s in groups]
        inequality.append([gini(each) for each in of])
        means = np.array([each.mean() if len(each) else 0.0 for each in of]).reshape(-1, 2)
        ranks.append(np.argsort(np.argsort(means[:, 0] - means[:, 1], kind="stable"), kind="stable").astype(np.float64))
    n = len(ranks[0])
    apart = np.sqrt(np.mean((np.array(inequality[0]) - inequality[1]) ** 2))
    turned = np.sqrt(np.mean((ranks[0] - ranks[1]) ** 2) / ((n**2 - 1) / 3))
    return float(max(0.0, (1 - apart + 1 - turned) / 2))


def gini(values: Floats) -> float:
    """The Gini coefficient of numbers that are not negative: mean absolute difference over twice the mean; 0 of nothing.

    >>> gini(np.array([1.0, 1.0])), gini(np.array([0.0, 0.0, 0.0, 4.0]))
    (0.0, 0.75)
    """
    n, total = len(values), float(values.sum())
    if n == 0 or total == 0:
        return 0.0
    weights = 2 * np.arange(1, n + 1) - n - 1
    return float((weights * np.sort(values)).sum() / (n * total))
