"""A network as a drawing that a notebook shows: SVG, no package needed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from verticil.shared.release.plot import Plot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verticil.shared.numerics.model.network import Network

_COLOURS: Final = ("#0067a8", "#b9480a", "#00785a", "#a5437f", "#7a5b00", "#3f6d8c", "#5a5a5a", "#7d2020")
_DASHES: Final = ("none", "8 4", "2 3", "12 3 2 3", "16 5", "5 5", "3 2 9 2", "1 2")
"""Of the parties: by colour and by pattern, as in the report."""
_LETTER: Final = 8.4
_LONGEST: Final = 24
_FONT: Final = "font-family='system-ui, sans-serif' text-anchor='middle'"


def draw_network(network: Network, strength: Mapping[tuple[str, str], float]) -> Plot:
    """Draw a network: arrows down, the parties by colour and pattern, as thick as they are sure, dashed below one half.

    Args:
        network: the model.
        strength: of edges by names; those without one are drawn in the middle thickness.
    """
    from verticil.shared.numerics.model.network import CONFIRMED
    from verticil.shared.release.report.layout import arrange

    variables = network.schema.variables
    owners = list(dict.fromkeys(variable.owner for variable in variables))
    short_names = [_short(variable.name) for variable in variables]
    widths = [
        max(72.0, 22 + _LETTER * max(len(name), 0.85 * len(_short(variable.owner))))
        for name, variable in zip(short_names, variables, strict=True)
    ]
    drawing = arrange(network.dag, widths)
    lines: list[str] = []
    for curve in drawing.curves:
        names = variables[curve.parent].name, variables[curve.child].name
        weight = strength.get(names)
        dash_style = " stroke-dasharray='5 4'" if weight is not None and weight < CONFIRMED else ""
        strength_text = "" if weight is None else f", strength {100 * weight:.0f} %"
        lines.append(
            f"<path d='{curve.path}' fill='none' stroke='#555' stroke-width='{1.4 if weight is None else 0.8 + 2 * weight:.2f}'"
            f"{dash_style} marker-end='url(#tip)'><title>{escape(' → '.join(names) + strength_text)}</title></path>"
        )
    for box, variable, name in zip(drawing.boxes, variables, short_names, strict=True):
        place = owners.index(variable.owner) % len(_COLOURS)
        lines.append(
            f"<g><title>{escape(f'{variable.name} ({variable.owner})')}</title>"
            f"<rect x='{box.x - box.width / 2:.1f}' y='{box.y - box.height / 2:.1f}' width='{box.width:.1f}' "
            f"height='{box.height:.1f}' rx='8' fill='#fff' stroke='{_COLOURS[place]}' stroke-width='2.6' "
            f"stroke-dasharray='{_DASHES[place]}'/>"
            f"<text x='{box.x:.1f}' y='{box.y - 2:.1f}' {_FONT} font-size='13' font-weight='600' fill='#111'>"
            f"{escape(name)}</text>"
            f"<text x='{box.x:.1f}' y='{box.y + 13:.1f}' {_FONT} font-size='10.5' fill='#555'>"
            f"{escape(_short(variable.owner))}</text></g>"
        )
    size = f"width='{drawing.width:.0f}' height='{drawing.height:.0f}' viewBox='0 0 {drawing.width:.0f} {drawing.height:.0f}'"
    tip = (
        "<defs><marker id='tip' viewBox='0 0 10 10' refX='9' refY='5' markerUnits='userSpaceOnUse' markerWidth='10' "
        "markerHeight='10' orient='auto'><path d='M0 1 L10 5 L0 9 z' fill='#555'/></marker></defs>"
    )
    label = f"a network of {len(variables)} variables and {len(drawing.curves)} edges"
    body = "\n".join(lines)
    return Plot(
        svg=f"<svg xmlns='http://www.w3.org/2000/svg' role='img' aria-label='{label}' {size} "
        f"style='max-width:100%;height:auto;background:#fff'>{tip}\n{body}\n</svg>"
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
