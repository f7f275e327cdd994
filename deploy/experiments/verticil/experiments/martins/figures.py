"""The pictures (matplotlib): gamma against the true network's probability, and the three ways' answers beside the real records'.

As in the paper: S1 a black point with its interval, S2 a blue asterisk with its, S3 a red triangle, what the real records give
green. P-values of variables that depend on each other have a logarithmic axis; intervals that reach 0 end at its foot.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from verticil.experiments.figures import Form, Style, images, style
from verticil.experiments.martins.experiment import GAMMAS, PRIORS, Calibration, Panel
from verticil.experiments.martins.paper import PNAD_FIGURES, REACHED

# Okabe & Ito (2008): told apart by colour-blind readers.
_OF_SIZE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_TRUTH: Final = "#009E73"
_WAYS: Final = {"S1": ("black", "o", -0.22), "S2": ("#0072B2", "*", 0.0), "S3": ("#D55E00", "^", 0.22)}
_LINES: Final[dict[str, Style]] = {"dirichlet": (0, (1, 0)), "bdeu": (0, (4, 2))}
_NAMES: Final = {"dirichlet": "U(0, 1)", "bdeu": "BDeu(1)"}
_TINY: Final = 1e-3  # of p-values
_AXIS: Final = {"overlap": "overlap of intervals", "mle": "estimate", "p-value": "p-value"}


def draw_gammas(found: Sequence[Calibration], title: str) -> dict[Form, bytes]:
    """Figure 1: a panel for each number of variables, a colour for each number of records."""
    with style():
        variables = sorted({each.d for each in found})
        figure = Figure(figsize=(3.4 * len(variables), 3.8), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(variables), sharey=True, squeeze=False).flat)
        for axes, d in zip(panels, variables, strict=True):
            sizes = sorted({each.n for each in found if each.d == d})
            for each in found:
                if each.d == d:
                    axes.plot(
                        GAMMAS,
                        each.probability,
                        color=_OF_SIZE[sizes.index(each.n)],
                        linestyle=_LINES[each.score],
                        label=f"n = {each.n:,}, {_NAMES[each.score]}",
                    )
            axes.axhline(REACHED, color="0.6", linewidth=0.8)
            axes.set_xlabel("γ")
            axes.set_ylim(0, 1.02)
            axes.set_title(f"{d} variables", loc="left", fontsize=9)
            axes.legend(frameon=False, fontsize=7, loc="lower right")
        panels[0].set_ylabel("posterior probability of the true network")
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return images(figure)


def draw_answers(found: Sequence[Panel], title: str) -> dict[Form, bytes]:
    """A figure of simulated records: a row for each scenario, P1 left and P2 right, a place for each replication."""
    with style():
        scenarios = sorted({(each.d, each.n) for each in found})
        figure = Figure(figsize=(9.6, 0.6 + 2.5 * len(scenarios)), layout="constrained")
        grid = figure.subplots(len(scenarios), 2, sharey="row", sharex=True, squeeze=False)
        for row, (d, n) in zip(grid, scenarios, strict=True):
            for axes, prior in zip(row, PRIORS, strict=True):
                panel = next(each for each in found if (each.d, each.n, each.prior) == (d, n, prior))
                places = [float(place) for place in range(1, len(panel.truths) + 1)]
                _draw(axes, panel, places, labelled=True)
                axes.set_xticks(places, [f"{place:g}" for place in places])
                axes.set_title(f"{d} variables, n = {n:,}, {prior}", loc="left", fontsize=9)
            row[0].set_ylabel(_AXIS[found[0].shown.what])
        for axes in grid[-1]:
            axes.set_xlabel("replication")
        figure.legend(
            *grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return images(figure)


def draw_survey(found: Sequence[Panel], title: str) -> dict[Form, bytes]:
    """Figure 6 or 7: a panel for each of its three statistics, in it a place for each prior."""
    with style():
        shown = PNAD_FIGURES[found[0].figure]
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(shown), squeeze=False).flat)
        for axes, statistic in zip(panels, shown, strict=True):
            for place, prior in enumerate(PRIORS):
                panel = next(each for each in found if each.shown == statistic and each.prior == prior)
                _draw(axes, panel, [float(place)], labelled=place == 0)
            axes.set_xticks(range(len(PRIORS)), PRIORS)
            axes.set_xlim(-0.6, len(PRIORS) - 0.4)
            axes.set_title(statistic.words, loc="left", fontsize=7)
        figure.legend(
            *panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return images(figure)


def _draw(axes: Axes, panel: Panel, places: Sequence[float], *, labelled: bool) -> None:
    foot = -math.inf
    if panel.shown.what == "p-value" and max(panel.truths) < _TINY:
        values = [*panel.truths, *(answer.value for answers in panel.answers.values() for answer in answers)]
        foot = max(min(values), sys.float_info.min)
        axes.set_yscale("log")
    if panel.shown.what != "overlap":
        low, high = [place - 0.4 for place in places], [place + 0.4 for place in places]
        name = "real records" if labelled else ""  # no name, no line in the legend
        axes.hlines(panel.truths, low, high, color=_TRUTH, linewidth=1.6, label=name, zorder=3)
    for name, answers in panel.answers.items():
        colour, marker, shift = _WAYS[name]
        x = [place + shift for place in places]
        axes.plot(
            x,
            [answer.value for answer in answers],
            color=colour,
            marker=marker,
            markersize=6 if marker == "*" else 4,
            linestyle="none",
            label=name if labelled else None,
        )
        ends = [(answer.low, answer.high) for answer in answers if answer.low is not None and answer.high is not None]
        if ends:
            low, high = ([max(end, foot) for end in of_one] for of_one in zip(*ends, strict=True))
            axes.vlines(x, low, high, color=colour, linewidth=1)
