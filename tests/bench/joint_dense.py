"""Rows of `joint.py` on dense tables: ``python tests/bench/joint.py --only dense letter "central 5"``.

Tables: Adult, ma2019, cmc, diabetes (parts of a survey, `tests/data`), KEEL's letter and magic; `joint_data` cuts them. No public
package ships covertype. Each table has ten rows, and a row of learners for two of them:

``local none``, ``local 3``, ``2``, ``1``: columns that are randomized on their own with that epsilon, and the network beside.
``central .2``, ``1``, ``5``: one owner's noise on all tables of pairs, add/remove.
``masked .2``, ``1``, ``5``: three parties, by turns a column each; the noise of masked tables on top of columns that were
randomized with epsilon 6 each (`masked_accuracy`).
``learners``: three of scikit-learn's are trained on records of the joint model of three quarters of the people, and tested on the
other quarter; on Adult on its own test records. Every fourth person is kept for the test, in the order of the file.

At a total of 5 records have to be nearer in pairs than their own tables, of which negative counts are 0. Predictions are those of
`study check`.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import joint_data
import masked_accuracy
import numpy as np
from joint import (
    PREDICTED,
    Line,
    Points,
    Run,
    channels_of,
    curator,
    drawn,
    error,
    estimated,
    local,
    mean_error,
    noised,
    said,
    sigma_for,
    units_of,
)
from joint_data import Data
from numpy.typing import NDArray

from verticil.evaluate.measures.utility import Labelled, utility
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noisy_tables import NoisyTables

TABLES: dict[str, tuple[Callable[[], Data], str]] = {
    "adult": (joint_data.adult, "income"),
    "letter": (joint_data.letter, "column 17"),
    "magic": (joint_data.magic, "column 11"),
    "ma2019": (joint_data.ma2019, "OWN_RENT"),
    "cmc": (joint_data.cmc, "contraceptive_method"),
    "diabetes": (joint_data.diabetes, "Diabetes_binary"),
}
"""Of each its people, and the column that learners predict."""
TOTALS = (0.2, 1.0, 5.0)
LEARNERS = ("RF", "LR", "KN")
"""Random forest, logistic regression, nearest neighbours."""
FITTED = "diabetes"
"""The table to which `prediction` was fitted."""
SMALL = 5.0
"""From this total on records have to be nearer than their tables."""


def rows() -> Iterator[tuple[str, Run]]:
    """Every row: its title, and what makes its lines."""
    for name, (make, target) in TABLES.items():
        made = cache(make)
        for level in (None, 3.0, 2.0, 1.0):
            yield of_level(f"dense {name}, {said(level)}", made, level)
        for total in TOTALS:
            yield of_total(f"dense {name}, central {total:g}", made, total)
        for total in TOTALS:
            yield of_total(f"dense {name}, masked {total:g}", made, total, masked=True)
        for total in (1.0, 5.0):
            yield of_learners(f"dense {name}, learners, central {total:g}", made, total, target)


def of_level(title: str, made: Callable[[], Data], level: float | None) -> tuple[str, Run]:
    """A row of columns that are randomized on their own."""
    return title, lambda seeds: local(title, made(), level, {}, seeds)


def of_total(title: str, made: Callable[[], Data], total: float, *, masked: bool = False) -> tuple[str, Run]:
    """A row of noise on tables."""
    nearer = 1.0 if total >= SMALL else None

    def run(seeds: Sequence[int]) -> Iterator[Line]:
        data = made()
        if not masked:
            return curator(title, data, total, {}, seeds, of_tables=nearer)
        owners = [place % masked_accuracy.COUNTED for place in range(len(data.columns))]

        def opened(tables: NoisyTables, sigma: float, seed: int) -> NoisyTables:
            return masked_accuracy.masked(tables, owners, sigma, seed)

        floor = masked_accuracy.FLOOR
        return curator(title, data, total, {}, seeds, relation="replace", local=floor, of_tables=nearer, opened=opened)

    return title, run


def of_learners(title: str, made: Callable[[], Data], total: float, target: str) -> tuple[str, Run]:
    """A row of learners."""
    return title, lambda seeds: learners(title, apart(made()), total, target, seeds)


def apart(data: Data) -> Data:
    """The people in two parts, every fourth one for the test, where there is no test part."""
    if data.test:
        return data
    kept = np.arange(data.n) % 4 == 3
    columns, test = ([column[chosen] for column in data.columns] for chosen in (~kept, kept))
    return dataclasses.replace(data, columns=columns, test=test)


def learners(title: str, data: Data, total: float, target: str, seeds: Sequence[int]) -> Iterator[Points]:
    """Three learners, trained on the people or on records of a joint model of them, tested on others."""
    n_states, place = data.schema.n_states, data.schema.index(target)
    sigma = sigma_for(total, math.comb(len(n_states), 2), "add-remove")

    def labelled(columns: Sequence[NDArray[np.unsignedinteger]]) -> Labelled:
        rest = [column for position, column in enumerate(columns) if position != place]
        return Labelled(features=np.column_stack(rest).astype(np.float64), target=columns[place].astype(np.int64))

    def accuracies(columns: Sequence[NDArray[np.unsignedinteger]], seed: int) -> dict[str, float]:
        (one,) = utility(labelled(columns), [labelled(data.test)], seed=seed, classifiers=LEARNERS)
        return {name: 100 * share for name, share in one.accuracy.items()}

    points = Points(row=title, bound=None, original=accuracies(data.columns, 1))
    exact = from_columns(data.columns, units_of(channels_of(n_states, None)), n_states)
    for seed in seeds:
        found = estimated(noised(exact, sigma, "add-remove", seed), seed)
        points.made.append(accuracies(drawn(found.model, data.n, seed), seed))
    yield points


def markdown(stored: Iterable[Mapping[str, Any]]) -> str:
    """The stored dense rows as two tables: distances, and accuracies of learners; then the error of the predicted ratio."""
    distances = [
        "| row | records, pairs | triples | own tables, pairs | independent, pairs | predicted / measured | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    order = {title: place for place, (title, _) in enumerate(rows())}
    points = ["| row | learner | trained on people | on records |", "|---|---|---|---|"]
    misses: dict[str, list[float]] = {}
    for row in sorted((row for row in stored if row["title"] in order), key=lambda row: order[row["title"]]):
        title = row["title"].removeprefix("dense ").replace(", learners", "")
        by_method = {line["method"]: line for line in row["lines"] if "method" in line and line["of"] is None}
        if by_method:
            records, independent = by_method["sampled"], by_method["independent"]
            own = ["-"] if max(by_method["tables"]["two"]) == 0 else [mean_error(by_method["tables"]["two"])]
            if records["predicted"] is not None:
                own += [mean_error(independent["two"])]
                known, two = records["predicted"], statistics.fmean(records["two"])
                own += [f"{known['two_way'] / two:.2f}"]
                ratio = two / statistics.fmean(independent["two"])
                if ratio >= PREDICTED[0] and not title.startswith(FITTED):
                    miss = math.log(known["two_way"] / known["independent"] / ratio)
                    misses.setdefault(title.partition(",")[0], []).append(miss)
            parts = [
                mean_error(records["two"]),
                mean_error(records["three"]),
                *own,
                f"{statistics.fmean(records['seconds']):.1f}",
            ]
            distances.append(f"| {title} | {' | '.join(parts)} |")
            continue
        (line,) = row["lines"]
        for name, original in line["original"].items():
            made = [one[name] for one in line["made"]]
            points.append(f"| {title} | {name} | {original:.1f} | {statistics.fmean(made):.1f} ± {error(made):.1f} |")
    squares = [statistics.fmean(miss**2 for miss in of_table) for of_table in misses.values()]
    error_of_ratio = math.sqrt(statistics.fmean(squares or [math.nan]))
    last = f"records / independent, predicted / measured, from {PREDICTED[0]:g} on: standard error {error_of_ratio:.3f}"
    return "\n".join(
        [*distances, "", *points, "", f"{last}, {sum(map(len, misses.values()))} rows of {len(misses)} tables"]
    )
