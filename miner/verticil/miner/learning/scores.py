"""The scores of all pairs of variables, from randomized columns.

What a score is stands in `verticil.shared.estimation.information`, which test of independence is valid for which randomization in
`independence` beside it. Here all pairs are scored together: level `alpha` over all d(d-1)/2 pairs (Bonferroni). Pairs of columns
that were randomized one by one come from the tables of all pairs, which are counted in one pass; each other pair is counted on
its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.counting import PairTables, all_pair_tables, family_counts
from verticil.shared.arrays import Codes, Counts, Floats
from verticil.shared.channels.channel import Channel
from verticil.shared.estimation.design import ColumnUnit, FamilyDesign, as_design, family_design
from verticil.shared.estimation.independence import dependence_p_value, independence_p_value
from verticil.shared.estimation.information import Link, links


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairScores:
    """Scores of all pairs; every array but those of `links` is (d, d), symmetric, read-only.

    Attributes:
        information: nats, float64, >= 0; 0 on the diagonal and for pairs without significant information.
        p_value: of the test of independence, float64; 1 on the diagonal.
        significant: bool; p_value is below the level of one pair.
        level: level of one pair, alpha / (d(d-1)/2).
        links: what was found of each significant pair (a, b), a < b.
    """

    information: Floats
    p_value: Floats
    significant: NDArray[np.bool_]
    level: float
    links: Mapping[tuple[int, int], Link]


def alone(units: Sequence[ColumnUnit]) -> list[int]:
    """The units of one variable each whose records have one code: those that the tables of all pairs are made of."""
    return [index for index, unit in enumerate(units) if unit.domain is None and unit.channel.codes_per_record == 1]


def unit_pair_scores(
    columns: Sequence[Codes],
    units: Sequence[ColumnUnit],
    n_states: Sequence[int],
    *,
    alpha: float = 0.05,
    cancelled: Callable[[], None] | None = None,
) -> PairScores:
    """Count and score all pairs of the variables of some units.

    Args:
        columns: released codes of each unit; of a subset unit all codes of all records.
        units: how they were randomized.
        n_states: number of categories of each variable; every variable is in one unit.
        alpha: false-alarm rate over all pairs together.
        cancelled: called between short pieces of work; may raise.

    Raises:
        ValueError: a column does not fit its unit.
    """
    d = len(n_states)
    level = alpha / max(d * (d - 1) // 2, 1)
    single = sorted(alone(units), key=lambda index: units[index].variables)
    variables = [units[index].variables[0] for index in single]
    p_values: dict[tuple[int, int], float] = {}
    linked: dict[tuple[int, int], tuple[Counts, FamilyDesign]] = {}
    if len(single) > 1 or d == 1:
        tables = all_pair_tables([columns[i] for i in single], [n_states[v] for v in variables], cancelled=cancelled)
        for a, b in tables.pairs():
            pair, observed = (variables[a], variables[b]), tables.table(a, b)
            p_values[pair] = independence_p_value(observed)
            if p_values[pair] < level:
                linked[pair] = observed, as_design([units[single[a]].channel, units[single[b]].channel])
    by_index: Mapping[int, Codes] = dict(enumerate(columns))
    for pair in itertools.combinations(range(d), 2):
        if pair in p_values:
            continue
        if cancelled is not None:
            cancelled()
        design = family_design(units, n_states, pair)
        counted = family_counts(by_index, design)
        p_values[pair] = dependence_p_value(counted, design)
        if p_values[pair] < level:
            linked[pair] = counted, design
    return _collected(p_values, linked, d, level, cancelled)


def pair_scores(tables: PairTables, channels: Sequence[Channel], *, alpha: float = 0.05) -> PairScores:
    """Score all pairs of columns that were randomized one by one.

    Args:
        tables: counts of the released columns.
        channels: of each column; one code a record.
        alpha: false-alarm rate over all pairs together.
    """
    d = len(tables.n_states)
    level = alpha / max(d * (d - 1) // 2, 1)
    p_values = {pair: independence_p_value(tables.table(*pair)) for pair in tables.pairs()}
    linked = {
        (a, b): (tables.table(a, b), as_design([channels[a], channels[b]]))
        for (a, b), p_value in p_values.items()
        if p_value < level
    }
    return _collected(p_values, linked, d, level, None)


def _collected(
    p_values: Mapping[tuple[int, int], float],
    linked: Mapping[tuple[int, int], tuple[Counts, FamilyDesign]],
    d: int,
    level: float,
    cancelled: Callable[[], None] | None,
) -> PairScores:
    information, p_value = np.zeros((d, d)), np.ones((d, d))
    for (a, b), p in p_values.items():
        p_value[a, b] = p_value[b, a] = p
    found = dict(zip(linked, links(list(linked.values()), cancelled=cancelled), strict=True))
    for (a, b), link in found.items():
        information[a, b] = information[b, a] = link.information
    significant = p_value < level
    for array in (information, p_value, significant):
        array.setflags(write=False)
    return PairScores(information=information, p_value=p_value, significant=significant, level=level, links=found)
