"""The drawings of an evaluation: columns as bars, distances of pairs and associations as heat maps. SVG, no package needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final, Literal

import numpy as np

from verticil.evaluate.shapes import ColumnShape, Shapes
from verticil.shared.core.arrays import Floats

Part = Literal["columns", "pairs", "correlations"]
PARTS: Final[tuple[Part, ...]] = ("columns", "pairs", "correlations")

XMLNS: Final = "xmlns='http://www.w3.org/2000/svg'"
"""Of a file of its own; a page needs none, and names no address."""

_REAL, _SYNTHETIC, _INK, _SOFT, _LINE = "#8a949e", "#0067a8", "#1c2126", "#5b6570", "#d5dae0"
_WIDTH: Final = 960.0
_ACROSS: Final = 4  # charts of columns in a row
_CHART: Final = (218.0, 118.0)
_GAP: Final = 22.0
_TOP, _BOTTOM = 24.0, 18.0  # of a chart, for its title and its labels
_MOST_TITLED: Final = 40  # columns of a heat map whose cells name themselves
_SHADES: Final = 12
_LETTER: Final = 5.6  # width of one at size 10
_CAPITAL: Final = 7.4
_FONT: Final = "font-family='system-ui, sans-serif'"


def draw(shapes: Shapes, part: Part) -> tuple[str, float]:
    """Draw one part; return the elements of SVG, `_WIDTH` units wide, and their height."""
    return _DRAWINGS[part](shapes)


def document(shapes: Shapes, parts: Sequence[Part], title: str) -> str:
    """Return a document of SVG with some parts below each other.

    Args:
        shapes: what is drawn.
        parts: which parts.
        title: for those who cannot see it.
    """
    groups, height = list[str](), 0.0
    for part in parts:
        body, own = draw(shapes, part)
        groups.append(f"<g transform='translate(0 {height:.1f})'>{body}</g>")
        height += own + _GAP
    return (
        f"<svg {XMLNS} role='img' aria-label='{_escape(title)}' width='{_WIDTH:.0f}' "
        f"height='{height:.0f}' viewBox='0 0 {_WIDTH:.0f} {height:.0f}' style='max-width:100%;height:auto;background:#fff'>"
        f"{''.join(groups)}</svg>"
    )


def _text(x: float, y: float, text: str, *, size: float = 10, colour: str = _SOFT, style: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='{size:g}' fill='{colour}'{style}>{_escape(text)}</text>"


def _escape(text: str) -> str:
    """Write a text that XML can carry."""
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in text), quote=True)


def _short(text: str, width: float) -> str:
    letters = max(int(width / _LETTER), 2)
    return text if len(text) <= letters else text[: letters - 1] + "…"


# ---- columns


def _columns(shapes: Shapes) -> tuple[str, float]:
    """Draw a chart of each column: the share of each category, real beside synthetic."""
    width, height = _CHART
    charts = [
        f"<rect x='0' y='4' width='10' height='10' fill='{_REAL}'/>",
        _text(14, 13, "real"),
        f"<rect x='50' y='4' width='10' height='10' fill='{_SYNTHETIC}'/>",
        _text(64, 13, "synthetic"),
    ]
    for place, column in enumerate(shapes.columns):
        x, y = place % _ACROSS * (width + _GAP), 28 + place // _ACROSS * (height + _GAP)
        charts.append(f"<g transform='translate({x:.1f} {y:.1f})'>{_chart(column)}</g>")
    rows = -(-len(shapes.columns) // _ACROSS)
    return "".join(charts), 28 + rows * (height + _GAP)


def _chart(column: ColumnShape) -> str:
    width, height = _CHART
    floor, tall = height - _BOTTOM, height - _BOTTOM - _TOP
    most = max(*column.real, *column.synthetic, 1e-9)
    step = width / len(column.labels)
    distance = f"distance {column.distance:.3f}"
    lines = [
        _text(0, 11, _short(column.name, width - 80), size=11, colour=_INK, style=" font-weight='600'"),
        _text(width, 11, distance, size=9.5, style=" text-anchor='end'"),
        f"<line x1='0' x2='{width:.0f}' y1='{floor:.1f}' y2='{floor:.1f}' stroke='{_LINE}'/>",
    ]
    for place, (label, mine, theirs) in enumerate(zip(column.labels, column.real, column.synthetic, strict=True)):
        left, bar = place * step + step * 0.1, step * 0.4
        bars = "".join(
            f"<rect x='{left + side * bar:.2f}' y='{floor - tall * share / most:.2f}' width='{bar:.2f}' "
            f"height='{tall * share / most:.2f}' fill='{colour}'/>"
            for side, (share, colour) in enumerate(((mine, _REAL), (theirs, _SYNTHETIC)))
        )
        lines.append(f"<g><title>{_escape(label)}: real {mine:.1%}, synthetic {theirs:.1%}</title>{bars}</g>")
    if (
        step >= min(max(map(len, column.labels)) + 1, 7) * _LETTER
    ):  # there is room for each, shortened to six letters at least
        lines += [
            _text((place + 0.5) * step, floor + 12, _short(label, step), size=9, style=" text-anchor='middle'")
            for place, label in enumerate(column.labels)
        ]
    else:
        room = width / 2 - 6
        lines.append(_text(0, floor + 12, _short(column.labels[0], room), size=9))
        last = _short(column.labels[-1], room)
        lines.append(_text(width, floor + 12, last, size=9, style=" text-anchor='end'"))
    return "".join(lines)


# ---- heat maps


def _pairs(shapes: Shapes) -> tuple[str, float]:
    """Draw the distance of each pair of columns."""
    most = float(shapes.distances.max()) or 1.0
    return _heat_map(
        shapes,
        shapes.distances / most,
        lambda a, b: f"distance {shapes.distances[a, b]:.3f}",
        (f"distance 0 (white) to {most:.3f} (dark); on the diagonal the column alone",),
    )


def _correlations(shapes: Shapes) -> tuple[str, float]:
    """Draw Cramér's V of each pair: of the real table above the diagonal, of the synthetic one below it."""
    both = np.triu(shapes.real, 1) + np.tril(shapes.synthetic, -1)
    return _heat_map(
        shapes,
        both,
        lambda a, b: f"Cramér's V real {shapes.real[a, b]:.2f}, synthetic {shapes.synthetic[a, b]:.2f}",
        ("Cramér's V, 0 (white) to 1 (dark): above the diagonal the real table,", "below it the synthetic one"),
    )


def _heat_map(
    shapes: Shapes, depth: Floats, words: Callable[[int, int], str], legend: Sequence[str]
) -> tuple[str, float]:
    """Draw a square of cells, the darker the nearer `depth` is to 1, with names beside and above."""
    names, d = [column.name for column in shapes.columns], len(shapes.columns)
    edge = min(max(560 / d, 8.0), 26.0)
    room = min(max(len(name) for name in names), 18) * _CAPITAL + 10
    top = 14.0 * len(legend) + 6 + room
    size = min(edge * 0.8, 10.0)
    lines = [_text(0, 12 + 14 * place, text) for place, text in enumerate(legend)]
    for place, name in enumerate(names):
        middle = (place + 0.5) * edge
        short = _short(name, 18 * _LETTER)
        lines.append(_text(room - 5, top + middle + size / 3, short, size=size, style=" text-anchor='end'"))
        x, y = room + middle + size / 3, top - 5
        lines.append(_text(x, y, short, size=size, style=f" transform='rotate(-90 {x:.1f} {y:.1f})'"))
    shades = np.clip(np.rint(depth * _SHADES), 0, _SHADES).astype(int)
    for shade in range(_SHADES + 1):
        cells = np.argwhere(shades == shade).tolist()
        if d > _MOST_TITLED:
            path = "".join(
                f"M{room + b * edge:.1f} {top + a * edge:.1f}h{edge:.1f}v{edge:.1f}h-{edge:.1f}z" for a, b in cells
            )
            lines += [f"<path d='{path}' fill='{_colour(shade)}'/>"] * bool(cells)
        else:
            lines += [
                f"<rect x='{room + b * edge:.1f}' y='{top + a * edge:.1f}' width='{edge:.1f}' height='{edge:.1f}' "
                f"fill='{_colour(shade)}'><title>{_escape(f'{names[a]} and {names[b]}: {words(a, b)}')}</title></rect>"
                for a, b in cells
            ]
    lines.append(
        f"<rect x='{room:.1f}' y='{top:.1f}' width='{d * edge:.1f}' height='{d * edge:.1f}' fill='none' stroke='{_LINE}'/>"
    )
    return "".join(lines), top + d * edge + 4


def _colour(shade: int) -> str:
    """Return the colour of a shade: from white through blue to nearly black."""
    part = shade / _SHADES
    ends = ((255, 255, 255), (0, 103, 168)) if part <= 0.7 else ((0, 103, 168), (8, 29, 58))
    within = part / 0.7 if part <= 0.7 else (part - 0.7) / 0.3
    return "#" + "".join(f"{round(a + (b - a) * within):02x}" for a, b in zip(*ends, strict=True))


_DRAWINGS: Final[dict[Part, Callable[[Shapes], tuple[str, float]]]] = {
    "columns": _columns,
    "pairs": _pairs,
    "correlations": _correlations,
}
