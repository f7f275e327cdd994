"""What Ma & Sivakumar say of their experiments, held against a run of ours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from verticil.experiments.claims import Claim, verdict_of
from verticil.experiments.ma_sivakumar import Point, Table2, slopes

NEAR_ONE: Final = 0.15
"""How far a slope may be from -1."""
ENOUGH: Final = 200
"""Draws of a point with which chance moves a slope by less than that; the paper has 10 runs, and prints no slope."""


def claims(table_2: Table2 | None, points: Mapping[str, tuple[Point, ...]]) -> tuple[Claim, ...]:
    """Return the paper's results that the parts of a run are about, beside what they gave.

    Args:
        table_2: None: it was not run.
        points: of the figures that were run, by name.
    """
    return (
        *(() if table_2 is None else _of_table(table_2)),
        *_of_levels(points.get("figure 4", ())),
        *_of_sizes(points.get("figure 5", ())),
    )


def _of_table(table: Table2) -> Iterator[Claim]:
    inside = sum(cell.within for cell in table.cells)
    verdict, reason = verdict_of(true=inside == len(table.cells), reason="a mean is further off")
    yield Claim(
        name="accurately-learned",
        theirs="parameters are learned accurately, even under moderate randomization (Table 2)",
        ours=f"{inside} of {len(table.cells)} means are where theory has them; largest deviation of a run "
        f"{max(cell.deviation for cell in table.cells):.3f}",
        verdict=verdict,
        reason=reason,
    )
    if table.cells[0].paper_mean is None:
        less = sum(cell.expected_deviation <= cell.central_deviation for cell in table.cells)
        verdict, reason = verdict_of(true=less == len(table.cells), reason="some parameters scatter more")
        yield Claim(
            name="model-1-better",
            theirs="Model I randomizes less, so its results are better than those of Model II",
            ours=f"{less} of {len(table.cells)} expected deviations are no larger than with Model II",
            verdict=verdict,
            reason=reason,
        )


def _of_levels(points: tuple[Point, ...]) -> Iterator[Claim]:
    if not points:
        return
    nodes = dict.fromkeys(point.node for point in points)
    curves = {node: sorted((point.p, point.mean) for point in points if point.node == node) for node in nodes}
    rising = all(low[1] < high[1] for curve in curves.values() for low, high in itertools.pairwise(curve))
    verdict, reason = verdict_of(true=rising, reason="a curve falls somewhere")
    yield Claim(
        name="trade-off",
        theirs="the more randomization, the less accuracy (Figure 4)",
        ours="mean distance by p: "
        + "; ".join(f"{node} {curve[0][1]:.1e} to {curve[-1][1]:.1e}" for node, curve in curves.items()),
        verdict=verdict,
        reason=reason,
    )
    at = {point.node: point.mean for point in points if abs(point.p - 0.3) < 1e-9}
    if at:
        yield Claim(
            name="good-at-a-third",
            theirs="with 10,000 records accuracy is still good at p = .3",
            ours="mean distance: " + ", ".join(f"{node} {mean:.1e}" for node, mean in at.items()),
            verdict="not asked",
            reason="the paper does not say what is good",
        )


def _of_sizes(points: tuple[Point, ...]) -> Iterator[Claim]:
    if not points:
        return
    found = {(node, p): slope for node, by_p in slopes(points).items() for p, slope in by_p.items()}
    off = {place: slope for place, slope in found.items() if abs(slope + 1) > NEAR_ONE}
    runs = min(point.runs for point in points)
    verdict, reason = verdict_of(
        true=not off,
        reason="further off: "
        + ", ".join(f"{node} at p = {p:g} ({slope:.2f})" for (node, p), slope in off.items())
        + "; estimates of so few people are clipped there, and the order is that of large samples",
        cannot=f"{runs} draws a point, fewer than {ENOUGH}, leave a slope to chance" if runs < ENOUGH else "",
    )
    yield Claim(
        name="one-over-n",
        theirs="the estimator's variance is of the order of 1/N, so the distance falls as 1/N",
        ours=f"slope of its logarithm over the upper half of the sizes: {min(found.values()):.2f} to {max(found.values()):.2f}",
        verdict=verdict,
        reason=reason,
    )
