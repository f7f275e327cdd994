"""``verticil reproduce ma-sivakumar``: Ma & Sivakumar's tables 1 and 2 and figures 4 and 5, theirs beside ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from verticil.cli.output import epsilon_text, put, say
from verticil.experiments import ma_sivakumar, ma_sivakumar_claims, published
from verticil.experiments.accuracy import CLIP
from verticil.experiments.randomization import Model
from verticil.reproduce.experiment import (
    Experiment,
    Options,
    Workplace,
    image_files,
    print_claims,
    print_sentences,
    results_table,
)
from verticil.shared.core.errors import Misuse

if TYPE_CHECKING:
    from rich.table import Table

    from verticil.experiments.ma_sivakumar import Point, Randomized, Table2

DEFAULT_RUNS: Final = {"table 2": 5, "figure 4": 10, "figure 5": 1_000}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What the asked experiments gave."""

    table_2: Table2 | None
    points: Mapping[str, tuple[Point, ...]]


def experiment(options: Options) -> Experiment[Results]:
    """Choose the experiments.

    Raises:
        Misuse: USAGE, there is no such table or figure.
    """
    model = options.model or Model.central
    wanted = _wanted(options.table, options.figure, model)
    return Experiment(
        title="ma-sivakumar",
        run=partial(_run, wanted=wanted, runs=options.runs, model=model, seed=options.seed),
        tables=lambda found: {"model": model.value, **_payload(found)},
        figures=_images,
        printed=_print_results,
        draws=any(name.startswith("figure") for name in wanted),
        timed=False,
    )


def _run(place: Workplace, *, wanted: Sequence[str], runs: int | None, model: Model, seed: int) -> Results:
    number = {name: runs or DEFAULT_RUNS[name] for name in wanted}
    table_2: Table2 | None = None
    points: dict[str, tuple[Point, ...]] = {}
    if "table 2" in wanted:
        table_2 = ma_sivakumar.table_2(runs=number["table 2"], seed=seed, model=model, progress=place.tell)
    if "figure 4" in wanted:
        points["figure 4"] = ma_sivakumar.figure_4(runs=number["figure 4"], seed=seed, progress=place.tell)
    if "figure 5" in wanted:
        points["figure 5"] = ma_sivakumar.figure_5(runs=number["figure 5"], seed=seed, progress=place.tell)
    return Results(table_2=table_2, points=points)


def _payload(found: Results) -> dict[str, object]:
    payload: dict[str, object] = {}
    if found.table_2:
        payload["table_1"] = [dataclasses.asdict(row) for row in ma_sivakumar.table_1()]
        payload["table_2"] = dataclasses.asdict(found.table_2)
    for name, points in found.points.items():
        payload["clip"] = CLIP
        payload[name.replace(" ", "_")] = [dataclasses.asdict(point) for point in points]
    if "figure 5" in found.points:
        payload["figure_5_slopes"] = ma_sivakumar.slopes(found.points["figure 5"])
    results = ma_sivakumar_claims.claims(found.table_2, found.points)
    payload["claims"] = [claim.document() for claim in results]
    payload["inferred"] = _inferred(found)
    payload["errata"] = [dataclasses.asdict(erratum) for erratum in published.ERRATA]
    return payload


def _inferred(found: Results) -> list[str]:
    return [
        *(published.FIGURE_2.inferred if found.table_2 else ()),
        *(published.FIGURE_3.inferred if found.points else ()),
    ]


def _wanted(table: int | None, figure: int | None, model: Model) -> list[str]:
    if table not in {None, 2} or figure not in {None, 4, 5}:
        raise Misuse("USAGE", "ma-sivakumar: expected --table 2, --figure 4 or --figure 5")
    if model is Model.peer and figure is not None:
        raise Misuse(
            "USAGE",
            f"--figure {figure} --model peer: expected central",
            hint="the paper shows its figures for Model II, and does not say which site holds which variable of Fig. 3",
        )
    chosen = [f"table {table}"] * (table is not None) + [f"figure {figure}"] * (figure is not None)
    return chosen or (list(DEFAULT_RUNS) if model is Model.central else ["table 2"])


def _images(found: Results) -> dict[str, bytes]:
    if not found.points:
        return {}
    from verticil.experiments.figures import FORMS, draw_figure_4, draw_figure_5

    draw = {"figure 4": draw_figure_4, "figure 5": draw_figure_5}
    return image_files({name: {form: draw[name](of, form) for form in FORMS} for name, of in found.points.items()})


def _table(title: str, *headings: str) -> Table:
    return results_table(title, *headings, left=2 if headings[1:2] == ("scheme",) else 1)


def _print_results(found: Results) -> None:
    if found.table_2:
        _print_table_1(ma_sivakumar.table_1())
        _print_table_2(found.table_2)
    if "figure 4" in found.points:
        _print_figure_4(found.points["figure 4"], clip=CLIP)
    if "figure 5" in found.points:
        _print_figure_5(found.points["figure 5"], clip=CLIP)
    print_claims(ma_sivakumar_claims.claims(found.table_2, found.points))
    print_sentences("Inferred, not read in the paper", _inferred(found), aside=" (its drawings are not in its text)")
    errata = [f"{item.where}: printed: {item.printed}. Right: {item.corrected}." for item in published.ERRATA]
    print_sentences("Errata of the paper", errata)


def _print_table_1(rows: Sequence[Randomized]) -> None:
    shown = _table("Table 1: the randomization", "variables", "scheme", "gamma, theirs", "ours", "epsilon", "K")
    for row in rows:
        printed, ours = f"{row.printed_gamma:g}", f"{row.gamma:.3g}"
        mark = "" if abs(row.printed_gamma - row.gamma) < 0.005 else " (erratum)"
        shown.add_row(
            ", ".join(row.variables), row.scheme, printed, ours + mark, epsilon_text(row.epsilon), str(row.k_measure)
        )
    put(shown)


def _print_table_2(found: Table2) -> None:
    with_theirs = found.cells[0].paper_mean is not None
    put(
        f"\nrandomized columns that leave their site: {', '.join(found.released)}; epsilon of a record, their sum: "
        f"{epsilon_text(found.epsilon)}"
    )
    if not with_theirs:
        say("Model I: the parameters of local variables are exact functions of the records; no epsilon covers them")
    shown = _table(
        f"\nTable 2, Model {'II' if with_theirs else 'I'}: mean (standard deviation x 100) over {found.runs:,} randomizations "
        f"of {found.records:,} records" + ("; theirs over 5" if with_theirs else ""),
        "parameter",
        "theta",
        "theirs" if with_theirs else "Model II expected",
        "from the records",
        "ours",
        "expected",
    )
    for cell in found.cells:
        given = ", ".join(f"{parent} = {code}" for parent, code in cell.given.items())
        theirs = f"({100 * cell.central_deviation:.2f})"
        if cell.paper_mean is not None and cell.paper_deviation is not None:
            theirs = f"{cell.paper_mean:.3g} ({100 * cell.paper_deviation:.2f})"
        shown.add_row(
            f"P({cell.node} = {cell.state}{' | ' + given if given else ''})",
            f"{cell.theta:g}",
            theirs,
            f"{cell.target:.4f}",
            f"{cell.mean:.4f} ({100 * cell.deviation:.2f})" + ("" if cell.within else " !"),
            f"({100 * cell.expected_deviation:.2f})",
        )
    put(shown)
    inside = sum(cell.within for cell in found.cells)
    put(
        f"ours: {inside} of {len(found.cells)} means within 4 expected deviations / sqrt({found.runs}) + 0.003 of the "
        "records' own parameter"
    )
    if with_theirs:
        theirs_inside = sum(cell.paper_within is True for cell in found.cells)
        put(
            f"theirs: {theirs_inside} of {len(found.cells)} within 4 deviations of theta, for 5 runs and their own draw of the "
            "records, + 0.005"
        )
    if found.undefined:
        put(f"{found.undefined} runs had a parent configuration without a positive estimated count")


def _print_figure_4(points: Sequence[Point], *, clip: float) -> None:
    shown = _table(
        f"\nFigure 4: conditional KL distance in nats, {points[0].records:,} records, {points[0].runs:,} randomizations record "
        f"by record; inverse estimates, clipped at {clip:g}",
        *("node", "p", "mean", "sd", "median", "theory", "runs clipped", f"MAP-EM, {points[0].em_runs} runs"),
    )
    for point in points:
        shown.add_row(
            point.node,
            f"{point.p:g}",
            *(f"{value:.2e}" for value in (point.mean, point.deviation, point.median, point.theory)),
            f"{point.clipped:.1%}",
            "" if point.em_mean is None else f"{point.em_mean:.2e}",
        )
    put(shown)


def _print_figure_5(points: Sequence[Point], *, clip: float) -> None:
    sizes = sorted({point.records for point in points})
    shown = _table(
        f"\nFigure 5: mean conditional KL distance in nats by the number of records; inverse estimates, clipped at {clip:g}; "
        "slope of its logarithm over the upper half",
        *("node", "p", "means of", *(f"{size:,}" for size in sizes), "slope"),
    )
    slope = ma_sivakumar.slopes(tuple(points))
    for node, p in dict.fromkeys((point.node, point.p) for point in points):
        curve = [point for point in points if (point.node, point.p) == (node, p)]
        rows: dict[str, list[float] | list[float | None]] = {
            f"{curve[0].runs:,} draws": [point.mean for point in curve],
            f"{curve[0].row_level_runs} runs by record": [point.row_level_mean for point in curve],
            "theory": [point.theory for point in curve],
        }
        for number, (name, means) in enumerate(rows.items()):
            first = (node, f"{p:g}") if number == 0 else ("", "")
            numbers = ("" if mean is None else f"{mean:.2e}" for mean in means)
            shown.add_row(*first, name, *numbers, f"{slope[node][p]:.3f}" if number == 0 else "")
    put(shown)
    say("-1 is expected where no run is clipped; numbers.json has every point's deviation, median and clipped share")
