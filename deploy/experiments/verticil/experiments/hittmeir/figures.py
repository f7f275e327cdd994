"""Drawings (matplotlib): the heat maps of Figure 1 and the bars under the tables; bytes by form, no display and no file.

The same numbers give the same SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from verticil.experiments.figures import Form, images, style
from verticil.experiments.hittmeir.measures import Attack, Correlations, Score
from verticil.experiments.hittmeir.scale import Runtime
from verticil.experiments.hittmeir.synthesizer import Method

# Okabe & Ito (2008); the light shade is the description, the dark one the generation, as in the paper.
_COLOURS: Final = {Method.greedy: ("#7FC4EA", "#0072B2"), Method.genetic: ("#F2B27F", "#D55E00")}
_THEIRS: Final = "0.55"


def draw_correlations(found: Correlations, short: Sequence[str]) -> Mapping[Form, bytes]:
    """Figure 1: three heat maps beside each other; the sensitive column is framed."""
    with style():
        figure = Figure(figsize=(12.6, 4.6), layout="constrained")
        panels = figure.subplots(1, 3)
        place = found.names.index(found.sensitive)
        titles = (
            f"original ({found.with_sensitive(found.original):.3f})",
            f"ordinary network ({found.with_sensitive(found.ordinary):.3f})",
            f"custom network ({found.with_sensitive(found.custom):.3f})",
        )
        for axes, matrix, title in zip(panels, (found.original, found.ordinary, found.custom), titles, strict=True):
            axes.imshow(np.array(matrix), cmap="RdBu_r", vmin=-1, vmax=1)
            axes.set_xticks(range(len(short)), short, rotation=90)
            axes.set_yticks(range(len(short)), short)
            axes.tick_params(length=0)
            for low, width, height in (
                ((-0.5, place - 0.5), len(short), 1),
                ((place - 0.5, -0.5), 1, len(short)),
            ):
                axes.add_patch(
                    Rectangle(low, width, height, fill=False, edgecolor="black", linewidth=1.2, clip_on=False)
                )
            axes.set_title(title, loc="left", fontsize=9)
        figure.colorbar(panels[0].images[0], ax=panels, shrink=0.85, label="Pearson correlation")
        figure.suptitle(
            f"Figure 1: Adult; sensitive {found.sensitive}, target {found.target}; in brackets the mean absolute "
            f"correlation of {found.sensitive} with all but the target",
            x=0.01,
            ha="left",
            fontsize=9,
        )
        return images(figure, laid_out_once=True)


def draw_runtimes(rows: Sequence[Runtime], title: str) -> Mapping[Form, bytes]:
    """Bars of description (light) and generation (dark) on top of each other, for every k and search."""
    with style():
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        axes: Axes = figure.subplots()
        degrees = sorted({row.k for row in rows})
        for offset, method in ((-0.2, Method.greedy), (0.2, Method.genetic)):
            light, dark = _COLOURS[method]
            for row in rows:
                if row.method is method:
                    at = degrees.index(row.k) + offset
                    axes.bar(at, row.describe, 0.36, color=light)
                    axes.bar(at, row.generate, 0.36, bottom=row.describe, color=dark)
                    total = row.describe + row.generate
                    axes.annotate(f"{total:.2g}", (at, total), ha="center", va="bottom", fontsize=8)
        axes.set_xticks(range(len(degrees)), [f"k = {k}" for k in degrees])
        axes.set_ylabel("CPU seconds")
        axes.margins(y=0.12)
        axes.set_title(f"{title}, {rows[0].records:,} records", loc="left", fontsize=9)
        axes.legend(
            handles=[
                Patch(color=shade, label=f"{method.value}: {what}")
                for method, shades in _COLOURS.items()
                for shade, what in zip(shades, ("description", "generation"), strict=True)
            ],
            frameon=False,
            fontsize=8,
        )
        return images(figure, laid_out_once=True)


def draw_scores(rows: Sequence[Score], theirs: Sequence[float | None], title: str, what: str) -> Mapping[Form, bytes]:
    """Average scores, ours beside theirs; the axis does not begin at zero."""
    names = [_score_name(row) + "\nall predictors" * (row.without != rows[0].without) for row in rows]
    ours = [row.average for row in rows]
    with style():
        figure = Figure(figsize=(0.72 * len(names) + 2.4, 3.9), layout="constrained")
        axes: Axes = figure.subplots()
        known = [value for value in (*ours, *theirs) if value is not None]
        low = max(0.0, 5 * np.floor((min(known) - 1) / 5))
        _bars(axes, names, ours, theirs, low=low)
        axes.set_ylabel(f"{what} (per cent, axis from {low:g})")
        axes.margins(y=0.1)
        axes.set_ylim(bottom=low)
        axes.set_title(title, loc="left", fontsize=9)
        figure.legend(
            handles=[Patch(color=_COLOURS[Method.genetic][1], label="ours"), Patch(color=_THEIRS, label="theirs")],
            loc="outside lower center",
            ncols=2,
            frameon=False,
            fontsize=8,
        )
        return images(figure, laid_out_once=True)


def draw_attacks(rows: Sequence[Attack], theirs: Sequence[float | None], title: str) -> Mapping[Form, bytes]:
    """Average accuracy of the attacks on each kind of records, with the baseline B as a line."""
    with style():
        figure = Figure(figsize=(6.4, 3.9), layout="constrained")
        axes: Axes = figure.subplots()
        names = [_attack_name(row) for row in rows]
        _bars(axes, names, [row.average for row in rows], theirs)
        axes.axhline(rows[0].baseline, color="black", linewidth=1, linestyle="--")
        axes.set_ylabel("mean accuracy of the attacks (per cent)")
        axes.margins(y=0.1)
        axes.set_title(title, loc="left", fontsize=9)
        figure.legend(
            handles=[
                Patch(color=_COLOURS[Method.genetic][1], label="ours"),
                Patch(color=_THEIRS, label="theirs"),
                Line2D([], [], color="black", linestyle="--", label=f"B, the most common: {rows[0].baseline:.1f}"),
            ],
            loc="outside lower center",
            ncols=3,
            frameon=False,
            fontsize=8,
        )
        return images(figure, laid_out_once=True)


def _bars(
    axes: Axes, names: Sequence[str], ours: Sequence[float], theirs: Sequence[float | None], *, low: float = 0.0
) -> None:
    """Each of ours with its name, and theirs beside it where there is one; bars begin at `low`."""
    for place, (value, other) in enumerate(zip(ours, theirs, strict=True)):
        at = place if other is None else place - 0.2
        axes.bar(at, value - low, 0.36, bottom=low, color=_COLOURS[Method.genetic][1])
        _number(axes, at, value)
        if other is not None:
            axes.bar(place + 0.2, other - low, 0.36, bottom=low, color=_THEIRS)
            _number(axes, place + 0.2, other)
    axes.set_xticks(range(len(names)), names, fontsize=8)


def _number(axes: Axes, at: float, value: float) -> None:
    """The value above its bar, readable where a line crosses it."""
    shown = axes.annotate(f"{value:.1f}", (at, value), (0, 1), textcoords="offset points", ha="center", va="bottom")
    shown.set(fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})


def _score_name(row: Score) -> str:
    """A row's name under its bar."""
    if row.trained_on == "original":
        return "original"
    if row.epsilon is not None:
        return f"ε = {row.epsilon:g}"
    if row.trained_on == "custom":
        return f"custom\nk = {row.k}"
    return f"{row.method.value if row.method else ''}\nk = {row.k}"


def _attack_name(row: Attack) -> str:
    return row.published if row.epsilon is None else f"{row.published}\nε = {row.epsilon:g}"
