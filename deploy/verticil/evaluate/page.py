"""The page: one file of HTML that needs nothing else, in the look of a release's report.

All arithmetic is here; the template only places it, and escapes everything that it is given. There is no script, and the page
forbids scripts and outside addresses to itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from verticil.evaluate.figures import Asked, Family, Figure, worst_first
from verticil.evaluate.metrics import Row
from verticil.evaluate.plots import PARTS, XMLNS, Part
from verticil.evaluate.suite import METRICS
from verticil.shared.release.protocol import own_template, templates

if TYPE_CHECKING:
    from markupsafe import Markup

    from verticil.evaluate.evaluation import Evaluation

_WIDTH: Final = 200.0
_SHOWN: Final = (-0.15, 1.15)  # positions at the ends of a strip
_MOST_ROWS: Final = 40

VERDICTS: Final[Mapping[Family, Mapping[str, str]]] = {
    "fidelity": {
        "floor": "as another sample",
        "between": "between",
        "baseline": "no better than useless",
    },
    "utility": {
        "floor": "as real records",
        "between": "between",
        "baseline": "no better than useless",
    },
    "disclosure": {
        "floor": "nothing beyond chance",
        "between": "tells of members",
        "baseline": "as a copy",
    },
    "knowledge": {
        "floor": "as real records",
        "between": "between",
        "baseline": "no better than useless",
    },
}
_NO_VERDICT: Final = {"not computed": "not computed", "unclear": "cannot tell"}
FAMILY_TITLES: Final[Mapping[Family, str]] = {
    "fidelity": "Fidelity: do tables of the columns look alike?",
    "utility": "Utility: can be learned from it?",
    "disclosure": "Disclosure: does it tell more of the people in it than of others?",
    "knowledge": "Knowledge: do records keep the stated rules?",
}

PART_TITLES: Final[Mapping[Part, str]] = {
    "columns": "Each column",
    "pairs": "Distances of pairs",
    "correlations": "Correlations",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One candidate's figure, in words, and where it lies on a strip of `_WIDTH` units."""

    candidate: str
    value: str
    floor: str
    baseline: str
    by_value: str
    verdict: str
    state: str
    at: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A figure, with a cell of each candidate."""

    asked: Asked
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """A table of a metric: headings, then rows of texts, the first `n_words` of which are words."""

    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_words: int
    hidden: int = 0


def number(value: float, digits: int = 4) -> str:
    """Write a number for people to read.

    >>> number(0.0521234), number(12345.6), number(0.00000123), number(float("nan")), number(1.0)
    ('0.0521', '12,346', '1.23e-06', '–', '1')
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value and abs(value) < 10.0**-digits:
        return f"{value:.3g}"
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def verdict_words(item: Figure) -> str:
    """Say in words where a figure lies."""
    return _NO_VERDICT.get(item.verdict) or VERDICTS[item.asked.family][item.verdict]


def with_deviation(mean: float, deviation: float) -> str:
    """Write a mean with the standard deviation over the seeds.

    >>> with_deviation(0.1234, 0.002), with_deviation(0.5, float("nan"))
    ('0.1234 ± 0.002', '0.5')
    """
    return number(mean) + (f" ± {deviation:.1g}" if math.isfinite(deviation) and deviation > 0 else "")


def render(evaluation: Evaluation) -> str:
    """Render the evaluation as a page.

    Returns:
        HTML with its style and its drawings inside.
    """
    names = [item.candidate for item in evaluation.summaries]
    lines = [
        Line(asked=definition, cells=tuple(_cell(item) for name in names for item in row if item.candidate == name))
        for definition, row in worst_first(evaluation.figures)
    ]
    metrics = [metric for metric in METRICS if metric.name in evaluation.measured]
    return (
        templates(_read)
        .get_template("evaluation.html.j2")
        .render(
            style=_read("report.css"),
            own_style=_read("evaluation.css"),
            found=evaluation,
            facts=evaluation.facts,
            by_codebook=evaluation.facts["judged_by"] == "codebook",
            plots=[
                (name, _plots(evaluation, name), evaluation.shapes[name]) for name in names if name in evaluation.shapes
            ],
            lines=lines,
            several=len(names) > 1,
            names=names,
            width=_WIDTH,
            floor_at=_at(0.0),
            baseline_at=_at(1.0),
            families=[
                (
                    FAMILY_TITLES[family],
                    [
                        (metric, [_values(evaluation, metric.name, names), *_details(evaluation, metric.name)])
                        for metric in metrics
                        if metric.family == family
                    ],
                )
                for family in FAMILY_TITLES
                if any(metric.family == family for metric in metrics)
            ],
            titles={metric.name: metric.title for metric in METRICS},
        )
    )


def _cell(item: Figure) -> Cell:
    return Cell(
        candidate=item.candidate,
        value=with_deviation(item.value, item.deviation),
        floor=with_deviation(item.floor, item.floor_deviation),
        baseline=number(item.baseline),
        by_value=number(item.by_value),
        verdict=verdict_words(item),
        state={"floor": "good", "between": "wait", "baseline": "alert"}.get(item.verdict, "none"),
        at=None if math.isnan(item.position) else _at(item.position),
        reason=item.reason,
    )


def _at(position: float) -> float:
    low, high = _SHOWN
    return _WIDTH * (min(max(position, low), high) - low) / (high - low)


def _plots(evaluation: Evaluation, name: str) -> list[tuple[str, Markup]]:
    """Return a heading and a drawing of each part; the drawings are escaped."""
    from markupsafe import Markup

    return [(PART_TITLES[part], Markup(evaluation.plot(part, candidate=name).svg.replace(XMLNS, ""))) for part in PARTS]  # noqa: S704


def _values(evaluation: Evaluation, name: str, names: Sequence[str]) -> MetricTable:
    """Return means over the seeds: a row for each number, a column for each table."""
    rows = evaluation.measured[name]
    keys = [key for key in rows[0] if key not in {"table", "seed"}]
    keys += [key for row in rows for key in row if key not in {*keys, "table", "seed"}]
    keys = list(dict.fromkeys(keys))
    tables = [*names, "floor", "baseline"]
    table_rows = tuple((key.replace("_", " "), *(_mean(rows, table, key) for table in tables)) for key in keys)
    return MetricTable(title="", caption="means over the seeds", headings=("", *tables), rows=table_rows, n_words=1)


def _mean(rows: Sequence[Row], table: str, key: str) -> str:
    values = [value for row in rows if row["table"] == table and isinstance(value := row.get(key), int | float)]
    numbers = [value for value in values if math.isfinite(value)]
    return number(math.fsum(numbers) / len(numbers)) if numbers else "–"


def _details(evaluation: Evaluation, name: str) -> list[MetricTable]:
    rows = evaluation.details.get(name, ())
    if not rows:
        return []
    several = len({row["table"] for row in rows}) > 1
    keys = [key for key in rows[0] if several or key != "table"]
    words = [key for key in keys if isinstance(rows[0][key], str)]
    order = [*words, *(key for key in keys if key not in words)]
    table_rows = tuple(tuple(_text(row.get(key, math.nan)) for key in order) for row in rows[:_MOST_ROWS])
    return [
        MetricTable(
            title="",
            caption="of the first seed",
            headings=tuple(key.replace("_", " ") for key in order),
            rows=table_rows,
            n_words=len(words),
            hidden=len(rows) - len(table_rows),
        )
    ]


def _text(value: float | int | str) -> str:
    return value if isinstance(value, str) else number(float(value))


def _read(name: str) -> str:
    """Read a template of this page, or one of the report's."""
    own = files("verticil.evaluate") / "templates" / name
    return own.read_text("utf-8") if own.is_file() else own_template(name)
