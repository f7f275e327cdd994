"""Networks drawn from the posterior, and what a statistic of their records would be.

Algorithm 1 of Martins, Gonçalves & Galletti (section 2.3): for each graph of the sample the parameters are drawn given it,
records from both, and of the records only the statistics are kept. Given a graph and the counts of the records, the parameters of
a family are Dirichlet(a + N) for each configuration of the parents, independently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Network, sure_family
from verticil.shared.numerics.posterior.diagnostics import Worth, worth_of
from verticil.shared.numerics.posterior.sample import GraphSample
from verticil.shared.numerics.posterior.statistics import Records, Statistic
from verticil.shared.numerics.posterior.tuning import TUNING


def hpd(draws: Floats, level: float = TUNING.predictive_level) -> tuple[float, float]:
    """Return the shortest interval that holds ceil(level M) of M draws; of several the lowest.

    Args:
        draws: (m,); those that are NaN, a statistic that is not defined on its records, do not count.
        level: 0 to 1, ends excluded.

    Returns:
        (low, high); NaN where no draw is defined.

    Raises:
        ValueError: the level is not a share.

    >>> hpd(np.array([5.0, 1.0, 1.5, 2.0, 9.0]), 0.6)
    (1.0, 2.0)
    """
    if not 0 < level < 1:
        raise ValueError(f"an interval of the level {level}, expected a share above 0 and below 1")
    values = np.sort(draws[~np.isnan(draws)])
    if not len(values):
        return math.nan, math.nan
    held = math.ceil(round(level * len(values), 9))  # .98 times 50 is a hair above 49
    widths = values[held - 1 :] - values[: len(values) - held + 1]
    start = int(np.argmin(widths))
    return float(values[start]), float(values[start + held - 1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictive:
    """What a statistic of synthetic records is, over the posterior.

    Attributes:
        draws: (m,), chain after chain; NaN where it was not defined.
        mean: of those that are defined; NaN where none is.
        low, high: ends of the interval of highest density.
        level: of the interval.
        worth: how many independent draws they are worth.
    """

    draws: Floats
    mean: float
    low: float
    high: float
    level: float
    worth: Worth

    @classmethod
    def of(cls, draws: Floats, *, chains: int = 1, level: float = TUNING.predictive_level) -> Predictive:
        """Sum up the draws of some chains, one chain after the other."""
        low, high = hpd(draws, level)
        values = draws[~np.isnan(draws)]
        mean = float(values.mean()) if len(values) else math.nan
        return cls(draws=draws, mean=mean, low=low, high=high, level=level, worth=worth_of(draws, chains))


def chosen_graphs(sample: GraphSample, m: int) -> tuple[Dag, ...]:
    """m of a sample's graphs, spread evenly over all chains; a sample of fewer is gone through more than once.

    Raises:
        ValueError: m is not positive.
    """
    if m < 1:
        raise ValueError(f"{m} graphs of a sample, expected at least one")
    n = len(sample.parents)
    return tuple(sample.dag((2 * i + 1) * n // (2 * m)) for i in range(m))


def drawn_family(child: int, parents: tuple[int, ...], concentration: Floats, generator: np.random.Generator) -> Family:
    """Draw a family whose rows are drawn from Dirichlet distributions, (J, K); it has no standard errors."""
    mass = generator.standard_gamma(concentration)
    total = mass.sum(axis=1, keepdims=True)
    # A row without records and with next to no prior mass can underflow: then all of it is in one category.
    is_zero = total[:, 0] <= 0
    mass[is_zero, generator.integers(0, mass.shape[1], int(is_zero.sum()))] = 1.0
    return sure_family(child, parents, mass / mass.sum(axis=1, keepdims=True))


def draw_records_along_edges(network: Network, n: int, generator: np.random.Generator) -> Records:
    """n records of a network, drawn one by one along the edges."""
    n_states = network.schema.n_states
    columns: list[np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]] = [np.zeros(n, np.uint8)] * len(n_states)
    for v in network.dag.topological_order():
        family = network.families[v]
        row = np.zeros(n, dtype=np.intp)
        for parent in family.parents:
            row = row * n_states[parent] + columns[parent]
        ends = np.cumsum(family.probability, axis=1)[:, :-1]
        uniform = generator.random(n)
        codes = np.zeros(n, dtype=network.schema[v].code_dtype)
        for end in ends.T:
            codes += uniform >= end[row]
        columns[v] = codes
    return Records(columns=columns, n_states=n_states)


def predictive(
    networks: Iterable[Network],
    statistics: Sequence[Statistic],
    n_records: int,
    generator: np.random.Generator,
    draw: Callable[[Network, int, np.random.Generator], Records] = draw_records_along_edges,
    *,
    chains: int = 1,
) -> tuple[Predictive, ...]:
    """Draw the posterior predictive distribution of some statistics: one set of records a network, kept no longer than
    needed.

    Args:
        networks: drawn from the posterior, chain after chain.
        statistics: functions of records.
        n_records: of a set.
        generator: of the records.
        draw: so many records of a network.
        chains: that the networks come from.
    """
    draws = [
        [statistic(records) for statistic in statistics]
        for records in (draw(network, n_records, generator) for network in networks)
    ]
    table = np.array(draws, dtype=np.float64).reshape(len(draws), len(statistics))
    return tuple(Predictive.of(column, chains=chains) for column in table.T)
