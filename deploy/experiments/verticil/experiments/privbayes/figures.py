"""The picture (matplotlib): the four scores by epsilon, a curve for each way, the yardsticks as lines; bytes by form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from verticil.experiments.figures import Form, images, style
from verticil.experiments.privbayes.experiment import Row
from verticil.experiments.privbayes.lines import Line

SCORES: Final = {
    "clustering": "clustering (tables of three columns)",
    "classification": "classification (shares of events)",
    "regression": "regression (pay by city and sex)",
    "k_marginal": "k-marginal (tables of two columns)",
}
"""Attributes of `Scores` and what they are called."""

# Okabe & Ito (2008): told apart by colour-blind readers, and in grey together with the markers.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P")
_DASHES: Final = ("--", ":")


def draw_scores(rows: Sequence[Row], lines: Sequence[Line], title: str) -> Mapping[Form, bytes]:
    """Draw four panels; the higher the better. Bars are one standard deviation between seeds; of one seed there are none."""
    with style():
        figure = Figure(figsize=(9.6, 7.4), layout="constrained")
        panels: Sequence[Axes] = figure.subplots(2, 2).flat
        for axes, (score, what) in zip(panels, SCORES.items(), strict=True):
            _panel(axes, rows, lines, score)
            axes.set_title(what, loc="left", fontsize=9)
            axes.set_xlabel("total ε of a person")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return images(figure)


def _panel(axes: Axes, rows: Sequence[Row], lines: Sequence[Line], score: str) -> None:
    curves = [line for line in lines if line.private and line.shown]
    for line, colour, marker in zip(curves, _COLOURS, _MARKERS, strict=False):
        points = [row for row in rows if row.line == line.name and row.epsilon is not None]
        x = [row.epsilon or 0.0 for row in points]
        y = [getattr(row.mean, score) for row in points]
        bars = [getattr(row.deviation, score) for row in points if row.deviation is not None] or None
        axes.errorbar(
            x, y, bars, color=colour, marker=marker, markersize=4, linewidth=1.4, elinewidth=0.8, label=line.words
        )
    yardsticks = [line for line in lines if not line.private]
    for line, dashes in zip(yardsticks, _DASHES, strict=True):
        for row in rows:
            if row.line == line.name:
                axes.axhline(getattr(row.mean, score), color="0.3", linestyle=dashes, linewidth=1, label=line.words)
    axes.set_xscale("log")
    epsilons = sorted({row.epsilon for row in rows if row.epsilon is not None})
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
