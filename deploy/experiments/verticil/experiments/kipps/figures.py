"""The pictures (matplotlib): a panel for each table of people, in it a line for each way to records; bytes by form.

Everything is a share from 0 to 1, so a panel is a ruler: symbols on it are what was measured, lines across it what it is held
against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from verticil.experiments.figures import Form, Style, images, style
from verticil.experiments.kipps.experiment import (
    DELTA,
    EPSILON,
    OTHERS,
    REAL,
    Row,
    of_attribute,
    of_fidelity,
    of_learned,
    of_membership,
)
from verticil.experiments.kipps.measures import CLASSIFIERS, Fidelity, most_accurate

# Okabe & Ito (2008): told apart by colour-blind readers, and in grey together with the markers.
_BLUE, _RED, _GREEN, _PURPLE, _ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
_DASHED: Final[Style] = (0, (4, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is drawn of each row.

    Attributes:
        label: of the legend.
        of: the value, and half the width of its bar; None: there is none.
        colour, marker, filled, size: of the symbol.
    """

    label: str
    of: Callable[[Row], tuple[float, float] | None]
    colour: str
    marker: str = "o"
    filled: bool = True
    size: float = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """A line across a panel: its label, where it is in a panel, and its look."""

    label: str
    at: Callable[[Sequence[Row]], float | None]
    colour: str = "0.35"
    dashes: Style = _DASHED


def draw(part: str, rows: Sequence[Row], title: str) -> Mapping[Form, bytes]:
    """The picture of a part of the experiment."""
    marks, lines, what = _PARTS[part]
    shown = [row for row in rows if any(mark.of(row) is not None for mark in marks)]
    names = list(dict.fromkeys(row.data for row in shown))
    ways = list(dict.fromkeys(row.way for row in shown))
    with style():
        figure = Figure(figsize=(1.6 + 2.8 * len(names), 1.5 + 0.27 * len(ways)), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(names), sharey=True, squeeze=False).flat)
        for axes, name in zip(panels, names, strict=True):
            of = [row for row in shown if row.data == name]
            _panel(axes, of, ways, marks, lines)
            axes.set_title(name, loc="left", fontsize=9)
            axes.set_xlabel(what)
        panels[0].set_yticks(range(len(ways)), ways)
        panels[0].invert_yaxis()
        handles = [
            *(
                Line2D(
                    [],
                    [],
                    color=mark.colour,
                    marker=mark.marker,
                    markersize=mark.size,
                    markerfacecolor=mark.colour if mark.filled else "white",
                    linestyle="none",
                    label=mark.label,
                )
                for mark in marks
            ),
            *(
                Line2D([], [], color=line.colour, linestyle=line.dashes, linewidth=1, label=line.label)
                for line in lines
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return images(figure)


def _panel(
    axes: Axes, rows: Sequence[Row], ways: Sequence[str], marks: Sequence[Mark], lines: Sequence[Across]
) -> None:
    for line in lines:
        if (at := line.at(rows)) is not None:
            axes.axvline(at, color=line.colour, linestyle=line.dashes, linewidth=1, zorder=1)
    for mark in marks:
        for row in rows:
            if (found := mark.of(row)) is not None:
                axes.errorbar(
                    [found[0]], [ways.index(row.way)], xerr=[found[1]] if found[1] else None, color=mark.colour,
                    marker=mark.marker, markersize=mark.size, markerfacecolor=mark.colour if mark.filled else "white",
                    elinewidth=0.9, linestyle="none", zorder=3,
                )  # fmt: skip
    axes.grid(axis="y", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)


def _value(of: Callable[[Row], float | None]) -> Callable[[Row], tuple[float, float] | None]:
    def found(row: Row) -> tuple[float, float] | None:
        value = of(row)
        return None if value is None else (value, 0.0)

    return found


def _first(of: Callable[[Row], float | None], way: str = "") -> Callable[[Sequence[Row]], float | None]:
    """Of the way, or of any."""
    return lambda rows: next((value for row in rows if way in {"", row.way} and (value := of(row)) is not None), None)


def _disagreement(found: Fidelity) -> float | None:
    return None if found.overlap is None else 1 - found.overlap


def _accuracy(name: str) -> Callable[[Row], float | None]:
    return of_learned(lambda found: found.accuracy[name])


_TOLD: Final = of_fidelity(lambda found: found.pmse / found.most)

_PARTS: Final[Mapping[str, tuple[tuple[Mark, ...], tuple[Across, ...], str]]] = {
    "table 1": (
        (
            Mark(label="pMSE, as a share of its maximum", colour=_BLUE, of=_value(_TOLD)),
            Mark(
                label="distance of two columns",
                colour=_RED,
                marker="s",
                of=_value(of_fidelity(lambda found: found.distance)),
            ),
            Mark(label="1 − overlap of intervals", colour=_GREEN, marker="^", of=_value(of_fidelity(_disagreement))),
            Mark(
                label="records that break a rule",
                colour=_PURPLE,
                marker="D",
                filled=False,
                of=_value(of_fidelity(lambda found: found.violations)),
            ),
        ),
        (Across(label="pMSE of other real records", at=_first(_TOLD, OTHERS.name), colour=_BLUE),),
        "share; smaller is better",
    ),
    "figure 2": (
        (
            *(
                Mark(label=words, colour=colour, marker=marker, filled=False, size=4, of=_value(_accuracy(name)))
                for (name, words), colour, marker in zip(
                    CLASSIFIERS.items(), (_BLUE, _RED, _GREEN, _PURPLE, _ORANGE), "s^Dvo", strict=True
                )
            ),
            Mark(label="mean", colour="black", marker="|", size=11, of=_value(of_learned(lambda found: found.mean))),
        ),
        (
            Across(label="most common class", at=_first(of_learned(lambda found: found.majority))),
            Across(
                label="mean of real records",
                at=_first(of_learned(lambda found: found.mean), REAL.name),
                dashes=":",
            ),
        ),
        "accuracy on other people",
    ),
    "figure 3": (
        (
            Mark(
                label="by a classifier's answers (the paper's), ± 2 standard errors",
                colour=_BLUE,
                of=of_membership(lambda found: (found.outputs.accuracy, 2 * found.error)),
            ),
            Mark(
                label="and by the nearest records",
                colour=_RED,
                marker="s",
                filled=False,
                of=of_membership(lambda found: (found.records.accuracy, 2 * found.error)),
            ),
        ),
        (
            Across(label="a coin", at=lambda _rows: 0.5),
            Across(
                label=f"most that ε = {EPSILON:g} leaves to anybody",
                at=lambda _rows: most_accurate(EPSILON, DELTA),
                dashes=":",
            ),
        ),
        "accuracy of the attacker",
    ),
    "figure 4": (
        (
            Mark(
                label="people whose records were used, ± 2 standard errors of the difference",
                colour=_BLUE,
                of=of_attribute(lambda found: (found.members, 2 * found.error)),
            ),
            Mark(
                label="others",
                colour=_RED,
                marker="s",
                filled=False,
                of=_value(of_attribute(lambda found: found.others)),
            ),
        ),
        (
            Across(
                label="rules and the most common real value",
                at=_first(of_attribute(lambda found: found.rules_alone), REAL.name),
            ),
        ),
        "accuracy of the attacker",
    ),
}
