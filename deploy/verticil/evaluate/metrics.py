"""Every metric, in the form of `metric`.

What a metric is and how it is computed stands in `shared.evaluation`; here is what of a round it is given.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations
from typing import Final

import numpy as np

from verticil.evaluate.disclosure import DISCLOSURE
from verticil.evaluate.figures import Asked
from verticil.evaluate.metric import Measured, Metric, Row, Setting
from verticil.evaluate.rounds import Play, Round
from verticil.shared.evaluation.coded import CodedTable
from verticil.shared.evaluation.fidelity import distances
from verticil.shared.evaluation.utility import Labelled, utility

MOST_TABLES: Final = 500
"""Of each width; of more, as many are drawn, the same for every candidate."""
_FEW: Final = 20  # categories of a column that classifiers predict unless another one is named


def target_of(table: CodedTable) -> int:
    """The column that is predicted where nobody names one: the last of those with the fewest categories, numbers aside.

    >>> codes = tuple(np.zeros(1, dtype=np.uint8) for _ in range(3))
    >>> target_of(CodedTable(names=("a", "b", "c"), codes=codes, n_states=(2, 9, 30), values=(None,) * 3))
    1
    """
    few = [
        place
        for place, (states, values) in enumerate(zip(table.n_states, table.values, strict=True))
        if values is None and 2 <= states <= _FEW
    ]
    return few[-1] if few else len(table.names) - 1


# ---- fidelity


def _distances(given: Round, play: Play, setting: Setting) -> Measured:
    values: dict[str, float] = {}
    rows: list[Row] = []
    real, d = given.real, len(given.real.names)
    for ways in (1, 2, 3):
        if ways > d:
            continue
        tables = _chosen(d, ways, full=setting.full)
        other = _uniform(given) if ways == 1 and play.kind == "baseline" else play.table
        found = distances(real.codes, other.codes, real.n_states, ways=ways, tables=tables)
        values[f"distance_{ways}"], values[f"worst_{ways}"] = found.mean, found.worst
        rows.append(
            {
                "ways": ways,
                "tables": found.n_tables,
                "mean": found.mean,
                "worst": found.worst,
                "worst_table": " · ".join(real.names[place] for place in found.worst_table),
            }
        )
    return Measured(values=values, rows=rows)


def _chosen(n_columns: int, ways: int, *, full: bool) -> list[tuple[int, ...]]:
    """All tables of one width, or a draw of them that depends on nothing else."""
    if full or math.comb(n_columns, ways) <= MOST_TABLES:
        return list(combinations(range(n_columns), ways))
    generator = np.random.default_rng([n_columns, ways])
    found: set[tuple[int, ...]] = set()
    while len(found) < MOST_TABLES:
        found.add(tuple(sorted(generator.choice(n_columns, ways, replace=False).tolist())))
    return sorted(found)


def _uniform(given: Round) -> CodedTable:
    """Records in which every category is as frequent as any other."""
    generator, n = given.generator(11), given.real.n
    drawn = [generator.integers(0, states, n, dtype=np.uint16) for states in given.real.n_states]
    return dataclasses.replace(given.real, codes=tuple(drawn), values=(None,) * len(drawn))


# ---- utility


def _utility(given: Round, play: Play, setting: Setting) -> Measured:
    tested = _labelled(given.tested, setting.target)
    majority = float(np.bincount(tested.target).max() / len(tested.target))
    if play.kind == "baseline":
        return Measured(values={"accuracy": majority})
    training = _labelled(given.real if play.kind == "floor" else play.table, setting.target)
    (found,) = utility(training, [tested], seed=given.seed, n_classes=given.real.n_states[setting.target])
    rows: list[Row] = [
        {"classifier": name, "accuracy": accuracy, "majority": majority} for name, accuracy in found.accuracy.items()
    ]
    return Measured(
        values={"accuracy": found.mean, **{f"accuracy_{n}": a for n, a in found.accuracy.items()}}, rows=rows
    )


def _labelled(table: CodedTable, target: int) -> Labelled:
    return Labelled(features=table.features(target), target=table.codes[target].astype(np.int64))


_SAMPLE: Final = "another sample of the same people"
_INDEPENDENT: Final = "columns that have nothing to do with each other"

METRICS: Final = (
    Metric(
        name="distances",
        family="fidelity",
        title="Tables of one, two and three columns",
        measure=_distances,
        figures=tuple(
            Asked(
                key=f"distance_{ways}",
                title=f"Distance of {word} columns" if ways > 1 else "Distance of single columns",
                family="fidelity",
                better="lower",
                says=f"Share of the records that would have to be counted elsewhere, a mean over {what}.",
                floor=_SAMPLE,
                baseline="every category as frequent as any other" if ways == 1 else _INDEPENDENT,
            )
            for ways, word, what in (
                (1, "one", "the columns"),
                (2, "two", "the tables of two columns"),
                (3, "three", "the tables of three columns"),
            )
        ),
    ),
    Metric(
        name="utility",
        family="utility",
        title="Classifiers",
        measure=_utility,
        figures=(
            Asked(
                key="accuracy",
                title="Accuracy of classifiers",
                family="utility",
                better="higher",
                says="Share of real records whose class is predicted rightly by classifiers that learned from the table; a mean.",
                floor="classifiers that learned from real records",
                baseline="the most common class for everybody",
            ),
        ),
    ),
    *DISCLOSURE,
)
