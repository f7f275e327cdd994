"""The page of the experiment: one file of HTML with its pictures inside, in the look of a release's report; no script."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files

from verticil.experiments.kipps import claims, paper
from verticil.experiments.kipps.experiment import DELTA, EPSILON, RecordSource, Row, Scale
from verticil.experiments.kipps.tables import TITLES, of_part, short


def render(
    rows: Sequence[Row],
    ways: Sequence[RecordSource],
    scale: Scale,
    *,
    simulated: Sequence[str],
    pictures: Mapping[str, bytes],
    quick: bool,
    seed: int,
    look: str,
) -> str:
    """The page.

    Args:
        rows: the results.
        ways: of the rows.
        scale: how much was run.
        simulated: names of tables that are no data.
        pictures: SVG of each part.
        quick: it was the quick form.
        seed: of everything.
        look: CSS of a release's report.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = (files("verticil.experiments.kipps") / "page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        look=look,
        epsilon=EPSILON,
        delta=DELTA,
        scale=scale,
        seed=seed,
        quick=quick,
        simulated=simulated,
        ways=[way for way in ways if any(row.way == way.name for row in rows)],
        names=list(dict.fromkeys(row.data for row in rows)),
        short=short(rows),
        parts=[
            (TITLES[part], base64.b64encode(picture).decode("ascii"), of_part(part, rows))
            for part, picture in pictures.items()
        ],
        claims=claims.shown(claims.verdicts(rows, list(pictures), quick=quick)),
        notes=paper.NOTES,
        errata=paper.ERRATA,
    )
