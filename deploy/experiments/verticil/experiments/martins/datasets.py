"""The records: simulated ones of Table 2's networks, and five binary columns of a survey in place of the paper's PNAD, which a
user can bring (`pnad`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.experiments.martins.paper import TRUE_GRAPHS, TRUE_SHARES
from verticil.experiments.privbayes.datasets import survey_texts
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.model.network import Family, Network
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.numerics.posterior.predictive import draw_records_along_edges
from verticil.shared.numerics.posterior.statistics import Records

AGE_LIMIT: Final = 50
EARNERS_FROM: Final = 15
"""Years; younger people have no income in the survey."""
MINIMUM_WAGE: Final = 1320.0
"""R$ a month, Brazil 2023."""
PNAD: Final = ("V1022", "V2007", "V2009", "V2010", "VD4019")
"""PNADcIBGE's names of the house's location, sex, age, race and usual monthly income of all work. The paper does not say which of
the survey's incomes it takes."""
LEAST_RECORDS: Final = 100
"""Of an own table."""
_CODES: Final[Mapping[str, Mapping[str, int]]] = {
    "V1022": {"1": 0, "urbana": 0, "2": 1, "rural": 1},
    "V2007": {"1": 1, "homem": 1, "2": 0, "mulher": 0},
    "V2010": {"1": 0, "branca": 0, "2": 1, "preta": 1, "4": 1, "parda": 1},
}
"""By IBGE's codes and labels; people of other races are left out, as the paper has two."""
_OTHERS: Final = frozenset({"3", "amarela", "5", "indígena", "9", "ignorado"})


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
    return draw_records_along_edges(true_network(d), n, np.random.default_rng([seed, d, n, replicate]))


def pnad(texts: Mapping[str, NDArray[np.object_]]) -> Records:
    """Return PNAD's records as the columns of `paper.TABLES_4_5`, without those that lack a value or have another race.

    Args:
        texts: (n,) of each column, `PNAD` among them.

    Raises:
        DataFault: DATA_COLUMN_MISSING; DATA_CATEGORY_UNSEEN, a value is none of the survey's, too few records are left, or a
            column has one value.
    """
    if absent := [name for name in PNAD if name not in texts]:
        raise DataFault(
            "DATA_COLUMN_MISSING",
            f"the PNAD table has no column {', '.join(map(repr, absent))}, expected {', '.join(map(repr, PNAD))}",
            hint="name the columns as the R package PNADcIBGE does",
        )
    place, sex, age, race, income = ([str(text).strip().casefold() for text in texts[name]] for name in PNAD)
    filled = [
        number
        for number, row in enumerate(zip(place, sex, age, race, income, strict=True))
        if not {"", "na"} & set(row) and race[number] not in _OTHERS
    ]
    if len(filled) < LEAST_RECORDS:
        raise DataFault(
            "DATA_CATEGORY_UNSEEN",
            f"{len(filled)} records of the PNAD table have all of {', '.join(PNAD)}, expected {LEAST_RECORDS} or more",
        )
    columns: tuple[list[int], ...] = (
        [_code("V1022", place[number]) for number in filled],
        [_code("V2007", sex[number]) for number in filled],
        [int(_number("V2009", age[number]) <= AGE_LIMIT) for number in filled],
        [_code("V2010", race[number]) for number in filled],
        [int(_number("VD4019", income[number]) <= MINIMUM_WAGE) for number in filled],
    )
    for name, column in zip(PNAD, columns, strict=True):
        if len(set(column)) < 2:
            raise DataFault(
                "DATA_CATEGORY_UNSEEN",
                f"column '{name}' of the PNAD table has one of its two categories, expected both",
            )
    return Records(columns=[np.array(column, dtype=np.uint8) for column in columns], n_states=(2,) * 5)


def _code(name: str, text: str) -> int:
    """Return a category's code."""
    if (code := _CODES[name].get(text)) is None:
        raise DataFault(
            "DATA_CATEGORY_UNSEEN",
            f"column '{name}' of the PNAD table has a value that is none of IBGE's codes or labels, expected one of "
            f"{', '.join(_CODES[name])}",
        )
    return code


def _number(name: str, text: str) -> float:
    """Return a number of the survey."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataFault("DATA_CATEGORY_UNSEEN", f"column '{name}' of the PNAD table is not a number everywhere")
    return value


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
