"""Every metric, held to one form: of one table in one round, the numbers that are compared over seeds, and rows with more detail.

What a metric is and how it is computed stands in `shared.evaluation`; here is what of a round it is given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from verticil.evaluate.figures import Asked, Family
from verticil.evaluate.rounds import Play, Round
from verticil.shared.evaluation.coded import CodedTable
from verticil.shared.evaluation.disclosure import Known, disclosure
from verticil.shared.evaluation.fidelity import distances
from verticil.shared.evaluation.utility import Labelled, utility
from verticil.shared.knowledge.support import Support

Row = dict[str, float | int | str]

MOST_TABLES: Final = 500
"""Of each width; of more, as many are drawn, the same for every candidate."""
_ATTACKED: Final = 1_000
_WORST: Final = 12
_FEW: Final = 20  # categories of a column that classifiers predict unless another one is named


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What metrics need besides the records.

    Attributes:
        labels: of each column, the label of each code.
        target: position of the column that is predicted and attacked.
        support: what the study's rules leave possible; None: there are none.
        full: without limits.
    """

    labels: tuple[tuple[str, ...], ...]
    target: int
    support: Support | None
    full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one table in one round.

    Attributes:
        values: numbers that are compared over the seeds.
        rows: details, for the first seed of a candidate.
    """

    values: Mapping[str, float]
    rows: Sequence[Row] = ()


Measure = Callable[[Round, Play, Setting], Measured]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric.

    Attributes:
        name: as in ``--only``.
        family: what it is about.
        title: for people.
        measure: computes it.
        figures: which of its values are headline figures.
        needs_holdout, needs_rules: what it cannot do without.
        costly: whether it is left out of a party's own evaluation of few columns.
    """

    name: str
    family: Family
    title: str
    measure: Measure
    figures: tuple[Asked, ...] = ()
    needs_holdout: bool = False
    needs_rules: bool = False

    @property
    def attacks(self) -> bool:
        """Whether its references are those of attacks."""
        return self.family == "disclosure"


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
    """Numbers as they are, without one the mean; a category as its place."""
    features = [
        codes.astype(np.float64) if values is None else _filled(values)
        for place, (codes, values) in enumerate(zip(table.codes, table.values, strict=True))
        if place != target
    ]
    return Labelled(features=np.column_stack(features), target=table.codes[target].astype(np.int64))


def _filled(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    known = values[~np.isnan(values)]
    return np.where(np.isnan(values), known.mean() if len(known) else 0.0, values)


# ---- disclosure


def _attribution(given: Round, play: Play, setting: Setting) -> Measured:
    assert given.others is not None
    most = None if setting.full else _ATTACKED
    members, others = (_known(table, setting.target, most) for table in (given.members, given.others))
    found = disclosure(members, others, _known(play.published, setting.target, None))
    values = {
        "gcap": found.gcap,
        "gcap_of_others": found.others_gcap,
        "attribution": found.beyond_others,
        "matched": found.matched,
        "most_common": found.baseline,
    }
    return Measured(values=values)


def _known(table: CodedTable, target: int, most: int | None) -> Known:
    keys = tuple(column[:most] for place, column in enumerate(table.codes) if place != target)
    return Known(keys=keys, sensitive=table.codes[target][:most])


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
    Metric(
        name="attribution",
        family="disclosure",
        title="Attribution of one column by the nearest records (GCAP)",
        measure=_attribution,
        figures=(
            Asked(
                key="attribution",
                title="Attribution beyond others (GCAP)",
                family="disclosure",
                better="lower",
                says="How much more of a column is attributed rightly to people whose records were used than to others.",
                floor="records of people who are not attacked",
                baseline="a copy of the attacked records",
            ),
        ),
        needs_holdout=True,
    ),
)
