"""The records: simulated ones of Table 2's networks, and five binary columns of a survey in place of the paper's PNAD."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.experiments.martins.paper import TRUE_GRAPHS, TRUE_SHARES
from verticil.experiments.privbayes.datasets import survey_texts
from verticil.shared.model.network import Family, Network
from verticil.shared.model.schema import Schema, Variable
from verticil.shared.posterior.predictive import draw_records
from verticil.shared.posterior.statistics import Records

AGE_LIMIT: Final = 50
EARNERS_FROM: Final = 15
"""Years; younger people have no income in the survey."""


def binary_schema(d: int) -> Schema:
    """X1 to Xd, each 0 or 1."""
    return Schema(variables=tuple(Variable(name=f"X{v + 1}", owner="curator", labels=("0", "1")) for v in range(d)))


def true_network(d: int) -> Network:
    """Of a scenario of Table 2."""
    families: list[Family] = []
    for child, (parents, shares) in enumerate(zip(TRUE_GRAPHS[d].parents, TRUE_SHARES[d], strict=True)):
        ones = np.array(shares)
        families.append(certain_family(child, parents, np.column_stack([1 - ones, ones])))
    return Network(schema=binary_schema(d), dag=TRUE_GRAPHS[d], families=tuple(families))


def certain_family(child: int, parents: tuple[int, ...], probability: NDArray[np.float64]) -> Family:
    """A family of nothing but its probabilities, (J, K)."""
    nothing = np.zeros(probability.shape)
    return Family(
        child=child,
        parents=parents,
        probability=probability,
        estimate=probability,
        standard_error=nothing,
        interval_low=probability,
        interval_high=probability,
        unstable=nothing.astype(np.bool_),
    )


def simulated(d: int, n: int, *, seed: int, replicate: int) -> Records:
    """Records of Table 2's network of d variables; of another replication others."""
    return draw_records(true_network(d), n, np.random.default_rng([seed, d, n, replicate]))


def stand_in() -> Records:
    """Of NIST's excerpt (Massachusetts 2019) everybody from 15 years on: the columns of `paper.TABLES_4_5`."""
    texts = survey_texts()
    age = texts["AGEP"].astype(np.float64)
    earners = age >= EARNERS_FROM
    income = texts["PINCP"][earners].astype(np.float64)
    columns = (
        texts["HOUSING_TYPE"][earners] != "1",
        texts["SEX"][earners] == "1",
        age[earners] <= AGE_LIMIT,
        texts["RAC1P"][earners] != "1",
        income <= np.median(income),
    )
    return Records(columns=[np.asarray(column, dtype=np.uint8) for column in columns], n_states=(2,) * 5)
