"""``verticil evaluate``: any synthetic table held against the real one, by whoever holds that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.named_files import RelatedOption, named_files
from verticil.cli.output import Format, FormatOption, emit, errors_console, plain_table, progress, put, say
from verticil.cli.party_site import ConfigOption, site_of
from verticil.pki.files import free_folder
from verticil.shared.core.errors import GateFailed, Misuse, printable

if TYPE_CHECKING:
    from verticil.evaluate import Evaluation
    from verticil.evaluate.evaluation import Progress

OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="A metric, or a family of them; may be repeated. Default: all."),
]
FullOption = Annotated[bool, typer.Option("--full", help="All records, without limits; may take long.")]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Folder to make for the page and the document; default: verticil-evaluation, or a free number."),
]
FailOverOption = Annotated[
    Path | None,
    typer.Option("--fail-over", metavar="FILE", help="TOML: limits of headline figures. Exit 6 where one is passed."),
]


def evaluate_command(
    real: Annotated[Path, typer.Option(help="CSV or Parquet: the records that the synthetic ones were made from.")],
    synthetic: Annotated[
        list[Path],
        typer.Option(
            help="A release's folder or a synthetic table; several, to compare them: repeat it, or list them behind it."
        ),
    ],
    further: Annotated[list[Path] | None, typer.Argument(metavar="MORE_TABLES", help="More synthetic tables.")] = None,
    holdout: Annotated[
        Path | None,
        typer.Option(help="Real records that no synthetic one was made from; attacks need them for comparison."),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            help="study.toml: its codebook and rules. Default: those of the releases, else the real table's values."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column to predict; default: the one that the others tell best."),
    ] = None,
    related: RelatedOption = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Names the person in the real tables; with --table.")
    ] = None,
    only: OnlyOption = None,
    full: FullOption = False,
    seed: Annotated[int, typer.Option(min=0, help="First of five seeds; the same one gives the same bytes.")] = 0,
    fail_over: FailOverOption = None,
    out: OutOption = None,
    form: FormatOption = Format.text,
) -> None:
    """Compare synthetic tables, made by any program, with the real one: fidelity, utility, disclosure, stated knowledge.

    Each figure is shown between two references, chance alone and the worst case; the worst figures come first. There are no pass
    marks. The command reads real data: what it writes is for those who hold them.
    """
    from verticil.evaluate import evaluate

    tables = _by_name([*synthetic, *(further or ())])
    for name in (name for name, path in tables.items() if path.is_dir()):
        remark = f"the signature of {name} is not checked here: verticil release verify does that"
        errors_console().print(printable(remark), markup=False, style="dim")

    def run(report: Progress) -> Evaluation:
        return evaluate(
            real,
            tables,
            holdout=holdout,
            study=study,
            only=only or (),
            full=full,
            seed=seed,
            target=target,
            related=named_files(related),
            id_column=id_column,
            progress=report,
        )

    answer(run, fail_over=fail_over, out=out, form=form)


def evaluate_own_command(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="The release folder; it is verified first.")],
    holdout: Annotated[
        Path | None,
        typer.Option(help="A table like the site's own, of people who are not in the study; attacks need it."),
    ] = None,
    only: OnlyOption = None,
    full: FullOption = False,
    seed: Annotated[int, typer.Option(min=0, help="First of five seeds; the same one gives the same bytes.")] = 0,
    fail_over: FailOverOption = None,
    out: OutOption = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Hold a release's columns of this site against its own table. Nothing leaves; what is written is for this site's people.

    What goes together across organisations nobody can hold against real records. The page says so, and gives what stands in: the
    release's joint tables with their intervals.
    """
    from verticil.evaluate.party import evaluate_own

    site = site_of(config)

    def run(report: Progress) -> Evaluation:
        return evaluate_own(site, release, holdout=holdout, only=only or (), full=full, seed=seed, progress=report)

    answer(run, fail_over=fail_over, out=out, form=form)


def answer(run: Callable[[Progress], Evaluation], *, fail_over: Path | None, out: Path | None, form: Format) -> None:
    """Run an evaluation, write it, print it, and hold it against limits."""
    from verticil.evaluate.evaluation import free_place
    from verticil.evaluate.limits import find_exceeded, limits_of

    free_place(out or free_folder("verticil-evaluation"))
    limits = {} if fail_over is None else limits_of(fail_over)
    console = errors_console()
    with progress(console) as tell:
        evaluation = run(lambda what, part: tell(f"{what}: {part:.0%}" if console.is_terminal else what))
    folder = evaluation.write(out or free_folder("verticil-evaluation"))
    over = find_exceeded(evaluation.figures, limits)
    document = {**evaluation.to_dict(), "out": str(folder), "exceeded": [item.words for item in over]}
    if emit(document, form=form):
        if over:
            raise typer.Exit(6)
        return
    _print(evaluation, folder)
    if over:
        raise GateFailed(
            "LIMIT_EXCEEDED",
            "; ".join(item.words for item in over),
            hint=f"the limits stand in {fail_over}, the whole evaluation in {folder}",
        )


def _by_name(paths: list[Path]) -> dict[str, Path]:
    """Name each table by its file, without the ending where that tells them apart, else with its folder."""
    for names in ([path.stem for path in paths], [path.name for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(paths):
            return dict(zip(names, paths, strict=True))
    raise Misuse("USAGE", "--synthetic: a file is given twice, expected each once")


def _print(evaluation: Evaluation, folder: Path) -> None:
    from verticil.evaluate.figures import worst_first
    from verticil.evaluate.page import number, verdict_words, with_deviation
    from verticil.evaluate.suite import METRICS

    for note in evaluation.notes:
        say(f"note: {note}", style="yellow")
    by_codebook = evaluation.facts["judged_by"] == "codebook"
    values = ("value", "floor", "baseline", *(("by value",) if by_codebook else ()))
    table = plain_table("figure", "table", right=values, no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for definition, row in worst_first(evaluation.figures):
        for item in row:
            table.add_row(
                definition.key,
                item.candidate,
                with_deviation(item.value, item.deviation),
                number(item.floor),
                number(item.baseline),
                *((number(item.by_value),) if by_codebook else ()),
                verdict_words(item),
            )
    put(table)
    if evaluation.related:
        rows = plain_table("rows of", "figure", "table", right=("value", "floor", "baseline"))
        for figure in evaluation.related:
            numbers = map(figure.words, (figure.value, figure.floor, figure.baseline))
            rows.add_row(figure.table, figure.title, figure.candidate, *numbers)
        put(rows)
    if by_codebook:
        say(
            "verdicts are about the study's codebook; by value: the real table's values, whatever the study takes together"
        )
    for name, lines in evaluation.differences.items():
        for line in lines:
            say(f"{name}: {line}")
    if isinstance(share := evaluation.facts["target_told"], float):
        say(
            f"{evaluation.facts['target']} is predicted: the other columns tell {share:.0%} of its variation, the most of all"
        )
    for one in evaluation.summaries:
        flags = f": {', '.join(one.flags)}" if one.flags else ""
        say(f"{one.candidate}{flags}: {one.words}")
    families = {metric.name: metric.family for metric in METRICS}
    for family, reason in dict.fromkeys((families[name], own) for name, own in evaluation.left_out.items()):
        names = [name for name, own in evaluation.left_out.items() if (families[name], own) == (family, reason)]
        say(f"not computed of {family}: {', '.join(names)}: each {reason}", style="yellow")
    if evaluation.across is not None:
        say(f"{evaluation.across['says']} The page has the joint tables of the release.")
    say(f"{folder}: evaluation.html and evaluation.json, from real data: internal")
