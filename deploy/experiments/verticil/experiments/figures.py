"""Drawings of figures 4 and 5 (matplotlib): images as bytes; no display and no file is touched.

As in the paper, solid lines are means over the runs and dotted ones the mean plus one standard deviation. Both axes of a
figure's distances are logarithmic, since they span five decades; the paper's are not told by its text. The same points give
the same SVG.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal, TypeAlias

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from verticil.experiments.accuracy import CLIP
from verticil.experiments.ma_sivakumar import Point

# Okabe & Ito (2008): told apart by colour-blind readers, and in grey together with the markers.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS: Final = ("o", "s", "^", "D")
_YLABEL: Final = "conditional KL distance (nats)"

Form = Literal["svg", "png"]
FORMS: Final[tuple[Form, ...]] = ("svg", "png")
"""Each picture is drawn in each."""
Style: TypeAlias = Literal[":", "-."] | tuple[int, tuple[int, int]]


def draw_figure_4(points: Sequence[Point], form: Form) -> bytes:
    """Distance against the randomization level p, one curve for each node."""
    with style():
        figure = Figure(figsize=(6.4, 4.6), layout="constrained")
        axes: Axes = figure.subplots()
        for node, colour, marker in zip(_names(points), _COLOURS, _MARKERS, strict=False):
            curve = [point for point in points if point.node == node]
            levels = [point.p for point in curve]
            _mean_and_deviation(axes, levels, curve, colour, marker)
            axes.plot(levels, [point.theory for point in curve], color=colour, linestyle=(0, (6, 3)), linewidth=0.8)
            fitted = [(point.p, point.em_mean) for point in curve if point.em_mean is not None]
            if fitted:
                axes.plot(*zip(*fitted, strict=True), color=colour, linestyle="-.", linewidth=0.8, alpha=0.8)
        axes.set_yscale("log")
        axes.set_xlabel("randomization level p")
        axes.set_ylabel(_YLABEL)
        lines: list[tuple[str, Style]] = [
            ("mean + 1 standard deviation", ":"),
            ("theory, second order", (0, (6, 3))),
        ]
        if points[0].em_runs:
            lines.append((f"MAP-EM, {points[0].em_runs} runs", "-."))
        _legend(axes, _names(points), mean=f"mean of {points[0].runs:,} runs", others=lines)
        axes.set_title(
            f"Figure 4: {points[0].records:,} records, inverse estimates, clipped at {CLIP:g}", loc="left", fontsize=9
        )
        return image(figure, form)


def draw_figure_5(points: Sequence[Point], form: Form) -> bytes:
    """Distance against the number of records, one panel for each node, one curve for each p."""
    with style():
        names, levels = _names(points), list(dict.fromkeys(point.p for point in points))
        figure = Figure(figsize=(3.3 * len(names), 4.2), layout="constrained")
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)
        for axes, node in zip(panels.flat, names, strict=True):
            for p, colour, marker in zip(levels, _COLOURS, _MARKERS, strict=False):
                curve = [point for point in points if (point.node, point.p) == (node, p)]
                sizes = [float(point.records) for point in curve]
                _mean_and_deviation(axes, sizes, curve, colour, None)
                axes.plot(sizes, [point.theory for point in curve], color=colour, linestyle=(0, (6, 3)), linewidth=0.8)
                beside = [(point.records, point.row_level_mean) for point in curve if point.row_level_mean is not None]
                if beside:
                    axes.plot(*zip(*beside, strict=True), color=colour, marker=marker, markersize=4, linestyle="none")
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("number of records N")
            axes.set_title(f"node {node}", loc="left", fontsize=9)
        panels.flat[0].set_ylabel(_YLABEL)
        handles = [
            *(
                Line2D([], [], color=colour, marker=marker, markersize=4, label=f"p = {p:g}")
                for p, colour, marker in zip(levels, _COLOURS, _MARKERS, strict=False)
            ),
            Line2D([], [], color="0.3", label=f"mean of {points[0].runs:,} draws"),
            Line2D([], [], color="0.3", linestyle=":", label="mean + 1 standard deviation"),
            Line2D([], [], color="0.3", linestyle=(0, (6, 3)), linewidth=0.8, label="theory, slope -1"),
        ]
        if points[0].row_level_runs:
            label = f"record by record, {points[0].row_level_runs} runs"
            handles.append(Line2D([], [], color="0.3", marker="o", markersize=4, linestyle="none", label=label))
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        figure.suptitle(f"Figure 5: inverse estimates, clipped at {CLIP:g}", x=0.01, ha="left", fontsize=9)
        return image(figure, form)


def style() -> AbstractContextManager[None]:
    """How every figure looks, and what makes its SVG the same each time."""
    return mpl.rc_context(
        {"font.size": 9.0, "svg.hashsalt": "verticil", "axes.spines.top": False, "axes.spines.right": False}
    )


def _names(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.node for point in points))


def _mean_and_deviation(
    axes: Axes, x: Sequence[float], curve: Sequence[Point], colour: str, marker: str | None
) -> None:
    axes.plot(x, [point.mean for point in curve], color=colour, marker=marker, markersize=4, linewidth=1.4)
    axes.plot(x, [point.mean + point.deviation for point in curve], color=colour, linestyle=":", linewidth=1.1)


def _legend(
    axes: Axes,
    names: Sequence[str],
    *,
    mean: str,
    others: Sequence[tuple[str, Style]],
) -> None:
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4, label=f"node {name}")
        for name, colour, marker in zip(names, _COLOURS, _MARKERS, strict=False)
    ]
    handles.append(Line2D([], [], color="0.3", linewidth=1.4, label=mean))
    handles += [Line2D([], [], color="0.3", linestyle=style, linewidth=1, label=label) for label, style in others]
    axes.legend(handles=handles, frameon=False, fontsize=8)


def image(figure: Figure, form: Form) -> bytes:
    """A figure as bytes; the same figure gives the same SVG."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=160, metadata={"Date": None} if form == "svg" else None)
    return buffer.getvalue()


def images(figure: Figure, *, laid_out_once: bool = False) -> dict[Form, bytes]:
    """Return a figure in each form.

    Args:
        figure: what is drawn.
        laid_out_once: whether the second form keeps the places of the first, which else are computed anew.
    """
    made: dict[Form, bytes] = {}
    for form in FORMS:
        made[form] = image(figure, form)
        if laid_out_once:
            figure.set_layout_engine("none")
    return made
