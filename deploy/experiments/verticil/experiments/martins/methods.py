"""The three ways to synthetic records that the paper compares: each gives a number, and two of them an interval, for a statistic.

S1 is the posterior predictive distribution of the statistic, its mean and 98 % interval of highest density. S2 draws five sets of
the single most probable network with maximum-likelihood parameters, and combines them by equations 10 and 11. S3 is one set of a
model of all two-way tables, fitted by iterative proportional fitting: ours, the paper takes the R package synthpop's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np

from verticil.experiments.martins.datasets import binary_schema, certain_family
from verticil.experiments.martins.drawing import Prior, parameters_drawn
from verticil.experiments.martins.paper import LEVEL, SETS
from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.posterior.combining import of_spread
from verticil.shared.numerics.posterior.local_scores import bdeu_score, dirichlet_score
from verticil.shared.numerics.posterior.predictive import draw_records_along_edges, predictive
from verticil.shared.numerics.posterior.statistics import Records, Statistic

_ROUNDS: Final = 1000
_FITTED: Final = 1e-10  # largest change of a cell's share in a round

SCORES: Final = {"bdeu": Prior(equivalent=1.0), "dirichlet": Prior(equivalent=None, pseudo=1.0)}
"""Of the parameters; Dirichlet(1, 1) is the text's U(0, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodAnswer:
    """Of a method to a statistic.

    Attributes:
        value: the mean, or the one set's.
        low, high: of the interval; None: the method has none.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def holds(self, truth: float) -> bool:
        """Whether a number is in the interval."""
        return self.low is not None and self.high is not None and self.low <= truth <= self.high


def family_value(records: Records, score: str) -> Callable[[int, tuple[int, ...]], float]:
    """The local score of each family, in nats; `score` is one of `SCORES`."""

    @cache
    def value(child: int, parents: tuple[int, ...]) -> float:
        table = records.counts(*parents, child).reshape(-1, records.n_states[child])
        return bdeu_score(table) if score == "bdeu" else dirichlet_score(table)

    return value


def s1(
    records: Records,
    graphs: Sequence[Dag],
    statistics: Sequence[Statistic],
    generator: np.random.Generator,
    *,
    score: str = "bdeu",
) -> list[MethodAnswer]:
    """By the posterior predictive distribution; a set of records for each graph of the posterior."""
    networks = parameters_drawn(
        graphs,
        lambda members: records.counts(*members).astype(np.float64),
        binary_schema(len(records.n_states)),
        generator=generator,
        prior=SCORES[score],
    )
    found = predictive(networks, statistics, len(records.columns[0]), generator)
    return [MethodAnswer(value=each.mean, low=each.low, high=each.high) for each in found]


def s2(
    records: Records, graph: Dag, statistics: Sequence[Statistic], generator: np.random.Generator, *, sets: int = SETS
) -> list[MethodAnswer]:
    """By some sets of one network, five in the paper."""
    families = []
    for child, parents in enumerate(graph.parents):
        table = records.counts(*parents, child).reshape(-1, records.n_states[child]).astype(np.float64)
        table[table.sum(axis=1) == 0] = 1.0  # nobody has these parents: nobody will
        families.append(certain_family(child, parents, table / table.sum(axis=1, keepdims=True)))
    network = Network(schema=binary_schema(len(families)), dag=graph, families=tuple(families))
    made = [draw_records_along_edges(network, len(records.columns[0]), generator) for _ in range(sets)]
    answers: list[MethodAnswer] = []
    for statistic in statistics:
        combined = of_spread([statistic(one) for one in made], level=LEVEL)
        answers.append(MethodAnswer(value=combined.estimate, low=combined.low, high=combined.high))
    return answers


def s3(records: Records, statistics: Sequence[Statistic], generator: np.random.Generator) -> list[MethodAnswer]:
    """By one set of the two-way tables' model."""
    shares = fitted(records)
    cells = np.repeat(np.arange(shares.size), generator.multinomial(len(records.columns[0]), shares.ravel()))
    columns = [codes.astype(np.uint8) for codes in np.unravel_index(cells, shares.shape)]
    made = Records(columns=columns, n_states=records.n_states)
    return [MethodAnswer(value=statistic(made)) for statistic in statistics]


def fitted(records: Records) -> Floats:
    """The shares of all cells, of largest entropy among those with the records' two-way tables: (K_1, .., K_d)."""
    d, n = len(records.n_states), len(records.columns[0])
    targets = {pair: records.counts(*pair) / n for pair in combinations(range(d), 2)}
    shares = np.full(records.n_states, 1 / np.prod(records.n_states))
    for _ in range(_ROUNDS):
        before = shares.copy()
        for pair, target in targets.items():
            others = tuple(v for v in range(d) if v not in pair)
            now = shares.sum(axis=others, keepdims=True)
            wanted = np.expand_dims(target, others)
            shares *= np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
        if float(np.abs(shares - before).max()) < _FITTED:
            break
    return np.asarray(shares / shares.sum(), dtype=np.float64)
