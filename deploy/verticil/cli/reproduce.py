"""``verticil reproduce``: a paper's experiments, theirs beside ours.

What the papers' experiments share on the command line: a folder, its files, the look of a table.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from verticil.cli.demo import Model
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, errors_console, plain_table, put, say
from verticil.pki.files import free_folder, new_folder, removed_if_empty
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.view import jsonable
from verticil.shared.storage.disk import create_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from verticil.experiments.claims import Claim
    from verticil.experiments.ma_sivakumar import Point, Randomized, Table2

_MODULES: Final = {"scikit-learn": "sklearn"}
_EXTRAS: Final = {"torch": "pip install 'verticil[gan]'"}
DEFAULT_RUNS = {"table 2": 5, "figure 4": 10, "figure 5": 1_000}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the asked experiments gave."""

    table_2: Table2 | None
    points: Mapping[str, tuple[Point, ...]]


class Paper(StrEnum):
    """Whose experiments."""

    ma_sivakumar = "ma-sivakumar"
    hittmeir = "hittmeir"
    privbayes = "privbayes"
    martins = "martins"
    kipps = "kipps"


def reproduce(
    paper: Annotated[
        Paper, typer.Argument(metavar="PAPER", help="ma-sivakumar, hittmeir, privbayes, martins or kipps.")
    ],
    table: Annotated[
        int | None,
        typer.Option(
            "--table", help="Only this table: ma-sivakumar 2; hittmeir 2 to 7 and 9 to 12; martins 1 to 6; kipps 1."
        ),
    ] = None,
    figure: Annotated[
        int | None,
        typer.Option(
            "--figure", help="Only this figure: ma-sivakumar 4, 5; hittmeir 1; martins 1 to 14; kipps 2 to 4."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=1_000_000,
            help="ma-sivakumar: randomizations; default: 5 for table 2 and 10 for figure 4, as in the paper, 1,000 draws for "
            "figure 5.",
        ),
    ] = None,
    model: Annotated[
        Model | None,
        typer.Option(help="ma-sivakumar: central (the default) is Model II, peer Model I; peer has table 2 only."),
    ] = None,
    credit_card: Annotated[
        Path | None,
        typer.Option(
            "--credit-card",
            help="hittmeir: the Credit Card Fraud table as CSV for tables 4 and 7; without it one of its shape is made up.",
        ),
    ] = None,
    unsw: Annotated[
        Path | None,
        typer.Option("--unsw", help="kipps: UNSW-NB15's training or testing set as CSV, which is run besides."),
    ] = None,
    colorado: Annotated[
        Path | None,
        typer.Option(
            "--colorado",
            help="privbayes: Colorado's census (NIST's challenge) as CSV, with CITY, SEX and INCWAGE; else a stand-in.",
        ),
    ] = None,
    pnad: Annotated[
        Path | None,
        typer.Option(
            "--pnad",
            help="martins: people of PNAD 2023 as CSV, by PNADcIBGE's names (V1022, V2007, V2009, V2010, VD4019); else a "
            "stand-in.",
        ),
    ] = None,
    burn_in: Annotated[
        int | None,
        typer.Option(min=0, help="martins: steps of each chain before its first graph; default: a fifth of the steps."),
    ] = None,
    thinning: Annotated[
        int | None,
        typer.Option(
            min=1, help="martins: steps from one graph to the next; default: such that at most 4,000 are kept."
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="martins: M, sets of records that S1 draws; default 1,000, with --quick 500; the paper: at least 500.",
        ),
    ] = None,
    sets: Annotated[
        int | None, typer.Option(min=2, help="martins: sets of records that S2 combines; default 5, as in the paper.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="All but ma-sivakumar: few records and runs, to see that it runs.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="hittmeir: how often classifiers are trained in tables 5 to 7, 11 and 12; default: as in the paper, 10 random "
            "splits of Contraceptive Method Choice, and once on the others; privbayes: seeds of noise, default 5; martins: data "
            "sets of each scenario, default 10.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the data sets, the keys and the searches.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for numbers.json and the figures; default: where there are figures, a new one here."),
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Run a paper's experiments through this program's own methods, and print theirs beside ours.

    ma-sivakumar: data drawn from the paper's networks; nobody's records are involved. hittmeir: two public data sets, and a third
    where you have it; whole, it takes a quarter of an hour of CPU time. privbayes: PrivBayes beside other ways to synthetic
    records, on a public survey, by the scores of NIST's challenge. martins: networks sampled from their posterior, and how sure
    synthetic records can be of a statistic. kipps: a private generator that knows rules, its comparators and networks, by
    likeness, classifiers and attacks; needs torch (extra gan), and takes a quarter of an hour of CPU time whole.
    """
    require("verticil.experiments", "verticil-experiments", "reproducing a paper")
    if unsw is not None and paper is not Paper.kipps:
        raise Misuse("USAGE", "--unsw is of kipps")
    _check_whose(
        paper,
        {
            "--colorado": (Paper.privbayes, colorado),
            "--pnad": (Paper.martins, pnad),
            "--burn-in": (Paper.martins, burn_in),
            "--thinning": (Paper.martins, thinning),
            "--draws": (Paper.martins, draws),
            "--sets": (Paper.martins, sets),
        },
    )
    if paper is Paper.kipps:
        if (runs, model, credit_card, repeats) != (None,) * 4:
            raise Misuse("USAGE", "kipps: --runs, --model, --credit-card and --repeats are of other papers")
        _require_all(paper, "matplotlib", "numba", "scikit-learn", "torch")
        from verticil.cli.reproduce_kipps import run_kipps

        run_kipps(table=table, figure=figure, unsw=unsw, quick=quick, seed=seed, out=out, form=form)
        return
    if paper is Paper.martins:
        if (runs, model, credit_card) != (None,) * 3:
            raise Misuse("USAGE", "martins: --runs, --model and --credit-card are of other papers")
        _require_all(paper, "matplotlib", "numba")
        from verticil.cli.reproduce_martins import Overrides, run_martins

        run_martins(
            table=table,
            figure=figure,
            own=pnad,
            chains=Overrides(burn_in=burn_in, thinning=thinning, draws=draws, sets=sets),
            quick=quick,
            repeats=repeats,
            seed=seed,
            out=out,
            form=form,
        )
        return
    if paper is Paper.privbayes:
        if (table, figure, runs, model, credit_card) != (None,) * 5:
            raise Misuse(
                "USAGE", "privbayes: no options but --colorado, --quick, --repeats, --seed, --out and --format"
            )
        _require_all(paper, "matplotlib", "numba")
        from verticil.cli.reproduce_privbayes import run_privbayes

        run_privbayes(own=colorado, quick=quick, repeats=repeats, seed=seed, out=out, form=form)
        return
    if paper is Paper.hittmeir:
        if runs is not None or model is not None:
            raise Misuse("USAGE", "--runs and --model are of ma-sivakumar, not of hittmeir")
        _require_all(paper, "scikit-learn", "numba", "matplotlib")
        from verticil.cli.reproduce_hittmeir import run_hittmeir

        run_hittmeir(
            table=table,
            figure=figure,
            credit_card=credit_card,
            quick=quick,
            repeats=repeats,
            seed=seed,
            out=out,
            form=form,
        )
        return
    if credit_card is not None or quick or repeats is not None:
        raise Misuse("USAGE", "--credit-card, --quick and --repeats are of other papers, not of ma-sivakumar")
    _reproduce_ma_sivakumar(
        table=table, figure=figure, runs=runs, model=model or Model.central, seed=seed, out=out, form=form
    )


def _check_whose(paper: Paper, options: Mapping[str, tuple[Paper, object]]) -> None:
    """Refuse an option of another paper.

    Args:
        paper: that is asked for.
        options: name -> whose it is, and what was given; None: nothing.

    Raises:
        Misuse: USAGE.
    """
    for name, (whose, given) in options.items():
        if given is not None and whose is not paper:
            raise Misuse("USAGE", f"{name} is of {whose.value}, got {paper.value}", hint="leave it out")


def _reproduce_ma_sivakumar(
    *,
    table: int | None,
    figure: int | None,
    runs: int | None,
    model: Model,
    seed: int,
    out: Path | None,
    form: Format,
) -> None:
    paper = Paper.ma_sivakumar
    wanted = _wanted(table, figure, model)
    draws = any(name.startswith("figure") for name in wanted)
    if draws:
        require("matplotlib", "matplotlib", "drawing figures")
    folder = new_folder(out or free_folder(paper.value)) if out or draws else None
    with removed_if_empty(folder):
        found = _run(wanted, runs=runs, model=model, seed=seed)
        payload: dict[str, object] = {"paper": paper.value, "seed": seed, "model": model.value, **_payload(found)}
        files = _write(folder, payload, found) if folder else []
    payload["files"] = [str(path) for path in files]
    if emit(payload, form=form):
        return
    _print_results(found)
    if files:
        say(f"\nwritten: {', '.join(map(str, files))}")


def _run(wanted: Sequence[str], *, runs: int | None, model: Model, seed: int) -> Found:
    from verticil.experiments import ma_sivakumar, randomization

    progress = errors_console()

    def step(text: str) -> None:
        progress.print(text, markup=False, style="dim")

    number = {name: runs or DEFAULT_RUNS[name] for name in wanted}
    table_2: Table2 | None = None
    points: dict[str, tuple[Point, ...]] = {}
    if "table 2" in wanted:
        table_2 = ma_sivakumar.table_2(
            runs=number["table 2"], seed=seed, model=randomization.Model(model.value), progress=step
        )
    if "figure 4" in wanted:
        points["figure 4"] = ma_sivakumar.figure_4(runs=number["figure 4"], seed=seed, progress=step)
    if "figure 5" in wanted:
        points["figure 5"] = ma_sivakumar.figure_5(runs=number["figure 5"], seed=seed, progress=step)
    return Found(table_2=table_2, points=points)


def _payload(found: Found) -> dict[str, object]:
    from verticil.experiments import ma_sivakumar, ma_sivakumar_claims, published
    from verticil.experiments.accuracy import CLIP

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


def _inferred(found: Found) -> list[str]:
    from verticil.experiments.published import FIGURE_2, FIGURE_3

    return [*(FIGURE_2.inferred if found.table_2 else ()), *(FIGURE_3.inferred if found.points else ())]


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


def _write(folder: Path, payload: Mapping[str, object], found: Found) -> list[Path]:
    images: dict[str, bytes] = {}
    if found.points:
        from verticil.experiments.figures import draw_figure_4, draw_figure_5

        draw = {"figure 4": draw_figure_4, "figure 5": draw_figure_5}
        for name, points in found.points.items():
            stem = name.replace(" ", "-")
            images[f"{stem}.svg"] = draw[name](points, "svg")
            images[f"{stem}.png"] = draw[name](points, "png")
    return write_results(folder, payload, images)


def _table(title: str, *headings: str) -> Table:
    return results_table(title, *headings, left=2 if headings[1:2] == ("scheme",) else 1)


def _print_results(found: Found) -> None:
    from verticil.experiments import ma_sivakumar, ma_sivakumar_claims, published
    from verticil.experiments.accuracy import CLIP

    if found.table_2:
        _print_table_1(ma_sivakumar.table_1())
        _print_table_2(found.table_2)
    if "figure 4" in found.points:
        _print_figure_4(found.points["figure 4"], clip=CLIP)
    if "figure 5" in found.points:
        _print_figure_5(found.points["figure 5"], clip=CLIP)
    print_claims(ma_sivakumar_claims.claims(found.table_2, found.points))
    put("\n[bold]Inferred, not read in the paper[/] (its drawings are not in its text)")
    for sentence in _inferred(found):
        say(f"  {sentence}")
    put("\n[bold]Errata of the paper[/]")
    for erratum in published.ERRATA:
        say(f"  {erratum.where}: printed: {erratum.printed}. Right: {erratum.corrected}.")


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
    from verticil.experiments.ma_sivakumar import slopes

    sizes = sorted({point.records for point in points})
    shown = _table(
        f"\nFigure 5: mean conditional KL distance in nats by the number of records; inverse estimates, clipped at {clip:g}; "
        "slope of its logarithm over the upper half",
        *("node", "p", "means of", *(f"{size:,}" for size in sizes), "slope"),
    )
    slope = slopes(tuple(points))
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


@contextmanager
def progress(console: Console) -> Generator[Callable[[str], None]]:
    """What is being done: one line that is renewed where somebody watches, a line for each step in a file."""
    if not console.is_terminal:
        yield lambda text: console.print(text, markup=False, style="dim")
        return
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("")
        yield lambda text: shown.update(task, description=text)


def _require_all(paper: Paper, *packages: str) -> None:
    for package in packages:
        require(_MODULES.get(package, package), package, f"reproduce {paper.value}")


def require(module: str, package: str, what: str) -> None:
    """Check that an optional package is there.

    Raises:
        Misuse: USAGE, it is not.
    """
    if find_spec(module) is None:
        hint = "in a checkout of verticil: pip install ./deploy/experiments"
        raise Misuse("USAGE", f"{what} needs {package}", hint=_EXTRAS.get(package, hint))


def read_texts(path: Path) -> pd.DataFrame:
    """A CSV file that the user has, as texts.

    Raises:
        DataFault: DATA_FILE_MISSING, DATA_UNREADABLE.
    """
    import pandas as pd

    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise DataFault("DATA_FILE_MISSING", f"'{path}': no such file") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise DataFault("DATA_UNREADABLE", f"'{path}': cannot be read as CSV: {type(error).__name__}") from None


def read_columns(path: Path) -> dict[str, NDArray[np.object_]]:
    """Return the columns of a CSV file that the user has, as texts: (n,) of each; raises as `read_texts`."""
    table = read_texts(path)
    return {str(name): table[name].to_numpy(dtype=object) for name in table.columns}


def print_claims(claims: Sequence[Claim]) -> None:
    """Print what a paper says of its results, what stands here, and whether it was found."""
    put("\n[bold]What the paper says of its results, and what this run gave[/]")
    for claim in claims:
        for line in claim.lines():
            say(f"  {line}")
    counts = {
        verdict: sum(claim.verdict == verdict for claim in claims) for verdict in ("found", "not found", "not asked")
    }
    say(f"  {', '.join(f'{number} {verdict}' for verdict, number in counts.items() if number)}")


def write_results(folder: Path, payload: Mapping[str, object], images: Mapping[str, bytes]) -> list[Path]:
    """Write numbers.json and the images, all or nothing.

    Raises:
        Misuse: FILE_EXISTS.
        DataFault: DISK_FULL.
    """
    numbers = json.dumps(jsonable(payload), ensure_ascii=False, indent=1) + "\n"
    contents = {"numbers.json": numbers.encode("utf-8"), **images}
    files = {folder / name: (content, 0o644) for name, content in contents.items()}
    create_files(files, exists_hint="name another folder with --out")
    return list(files)


def results_table(title: str, *headings: str, left: int = 1) -> Table:
    """A plain table; the first `left` columns are text."""
    return plain_table(*headings[:left], right=headings[left:], title=title, no_wrap=True)
