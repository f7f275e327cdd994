"""The scores of all pairs of variables, from randomized columns.

What a score is stands in `verticil.shared.estimation.information`, which test of independence is valid for which randomization in
`independence` beside it. Here all pairs are scored together: level `alpha` over all d(d-1)/2 pairs (Bonferroni). Pairs of columns
that were randomized one by one come from the tables of all pairs, which are counted in one pass; each other pair is counted on
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.counting import Codes, PairTables, all_pair_tables, family_counts
from verticil.shared.channels.channel import Channel
from verticil.shared.estimation.design import ColumnUnit, UnitAxis, as_design, family_design
from verticil.shared.estimation.independence import dependence_p_value, independence_p_value
from verticil.shared.estimation.information import category_noise, pair_bias, plug_in_information

__all__ = ["PairScores", "alone", "pair_scores", "unit_pair_scores"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairScores:
    """Scores of all pairs; every array is (d, d), symmetric, read-only.

    Attributes:
        information: nats, float64, >= 0; 0 on the diagonal and for pairs without significant information.
        p_value: of the test of independence, float64; 1 on the diagonal.
        significant: bool; p_value is below the level of one pair.
        level: level of one pair, alpha / (d(d-1)/2).
    """

    information: Floats
    p_value: Floats
    significant: NDArray[np.bool_]
    level: float


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
    scored: dict[tuple[int, int], tuple[float, float]] = {}
    if len(single) > 1 or d == 1:
        tables = all_pair_tables([columns[i] for i in single], [n_states[v] for v in variables], cancelled=cancelled)
        for (a, b), score in _scored_tables(tables, [units[index].channel for index in single], level).items():
            scored[variables[a], variables[b]] = score
    by_index: Mapping[int, Codes] = dict(enumerate(columns))
    for a in range(d):
        for b in range(a + 1, d):
            if (a, b) in scored:
                continue
            if cancelled is not None:
                cancelled()
            design = family_design(units, n_states, (a, b))
            observed = family_counts(by_index, design)
            p_value = dependence_p_value(observed, design)
            information = 0.0
            if p_value < level:
                information = max(plug_in_information(design.estimate(observed)) - pair_bias(observed, design), 0.0)
            scored[a, b] = p_value, information
    return _collected(scored, d, level)


def pair_scores(tables: PairTables, channels: Sequence[Channel], *, alpha: float = 0.05) -> PairScores:
    """Score all pairs of columns that were randomized one by one.

    Args:
        tables: counts of the released columns.
        channels: of each column; one code a record.
        alpha: false-alarm rate over all pairs together.
    """
    d = len(tables.n_states)
    level = alpha / max(d * (d - 1) // 2, 1)
    return _collected(_scored_tables(tables, channels, level), d, level)


def _scored_tables(
    tables: PairTables, channels: Sequence[Channel], level: float
) -> dict[tuple[int, int], tuple[float, float]]:
    """P-value and information of each pair (a, b), a < b."""
    axes = as_design(channels).axes
    ratings = _ratings(tables, axes)
    scored: dict[tuple[int, int], tuple[float, float]] = {}
    for a, b in tables.pairs():
        observed = tables.table(a, b)
        p_value, information = independence_p_value(observed), 0.0
        if p_value < level:
            n = max(tables.n_records, 1)
            bias = float(ratings[a] @ (observed / n) @ ratings[b]) / (2 * n)
            corrected = as_design([channels[a], channels[b]]).estimate(observed)
            information = max(plug_in_information(corrected) - bias, 0.0)
        scored[a, b] = p_value, information
    return scored


def _ratings(tables: PairTables, axes: Sequence[UnitAxis]) -> list[Floats]:
    """`category_noise` of each column, once for all its pairs."""
    d = len(tables.n_states)
    if d < 2:
        return []
    counts = [tables.table(a, (a + 1) % d).sum(axis=1) for a in range(d)]
    return [category_noise(count, axis) for count, axis in zip(counts, axes, strict=True)]


def _collected(scored: Mapping[tuple[int, int], tuple[float, float]], d: int, level: float) -> PairScores:
    information, p_value = np.zeros((d, d)), np.ones((d, d))
    for (a, b), (p, nats) in scored.items():
        p_value[a, b] = p_value[b, a] = p
        information[a, b] = information[b, a] = nats
    significant = p_value < level
    for array in (information, p_value, significant):
        array.setflags(write=False)
    return PairScores(information=information, p_value=p_value, significant=significant, level=level)
