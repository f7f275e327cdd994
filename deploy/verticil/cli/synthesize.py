"""``verticil synthesize``: synthetic records of a whole table that one organisation holds.

Further methods, with their options, are the generators of installed packages (`verticil.curator.generators`).
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from verticil.cli.budget_text import cost_text
from verticil.cli.named_files import RelatedOption, named_files
from verticil.cli.output import Format, FormatOption, emit, errors_console, plain_table, progress, put, say
from verticil.cli.worth_text import fail_if_useless, print_worth
from verticil.curator.generators import GROUP, Generator, GeneratorResult, Request, generators
from verticil.curator.study import Method
from verticil.pki.files import free_folder
from verticil.shared.core import plugins
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_experiments
from verticil.shared.privacy.accounts import Cost
from verticil.shared.release.worth import worth_document

if TYPE_CHECKING:
    from verticil.curator import Synthesized
    from verticil.curator.spending import Spending


_METHODS: Final[tuple[Method, ...]] = get_args(Method)


def synthesize_command(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV or Parquet: one row for each person.")],
    study: Annotated[
        Path,
        typer.Option(
            help="study.toml: columns with their categories and bins, which are public knowledge; "
            "`verticil study draft people=TABLE` proposes one."
        ),
    ],
    epsilon: Annotated[
        float | None,
        typer.Option(help="Epsilon of everything that is published, for each person; default: the study's, else 1."),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta that belongs to --epsilon; default: the study's, else 1e-9.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="Draw from the joint model of all noisy tables, from the network, by PrivBayes, or from a posterior of graphs. "
            "A posterior with --epsilon inf reads the records as they are: no bound of privacy holds."
        ),
    ] = "joint",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Seed of the noise; another one draws new noise, which is charged again; default: the study's."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to make for the signed release, or a .csv or .parquet file for the records alone; default: "
            "verticil-synthetic, or the next free number."
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Names the person: no two rows may have the same.")
    ] = None,
    tables: RelatedOption = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name by which epsilon is added up; default: the file's, without its ending.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder of secret, ledger and keys; default: verticil-curator beside TABLE.")
    ] = None,
    budget: Annotated[
        float, typer.Option(min=0.0, help="Most epsilon that all releases of the data set may cost together.")
    ] = math.inf,
    compare: Annotated[
        bool, typer.Option("--compare", help="Distances of each method to the table itself, for your eyes only.")
    ] = False,
    accept_noise: Annotated[
        bool,
        typer.Option("--accept-noise", help="Go on although the noise hides the shares of single columns."),
    ] = False,
    fail_useless: Annotated[
        bool,
        typer.Option(
            "--fail-useless", help="Exit 6 where records are no nearer to the people than independent columns."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 6 where graphs were sampled and the chains do not agree.")
    ] = False,
    form: FormatOption = Format.text,
    **options: object,
) -> None:
    """Make what one owner of the whole table would publish: synthetic records, with one bound for everything together.

    Noise is drawn once, on tables of the columns; all else follows from the noisy tables. The same table, study and seed
    again give the same release and cost nothing, also with another method.
    """
    from verticil.curator import synthesize

    generator = _generator_of(method, options)
    if generator is not None and (compare or strict):
        raise Misuse(
            "USAGE",
            f"--{'compare' if compare else 'strict'} does not go with --method {method}",
            hint="leave it out: there is neither a network to compare nor a chain",
        )
    if method == "posterior" and epsilon is None and not _states_tables(study):
        raise Misuse(
            "USAGE",
            "--method posterior without --epsilon: graphs would be sampled from the records as they are, and no bound would hold",
            hint="--epsilon inf says that this is meant; --epsilon 1 samples from noisy tables",
        )
    if fail_useless and method != "joint":
        raise Misuse(
            "USAGE",
            f"--fail-useless does not go with --method {method}: what its records are worth is not estimated",
            hint="leave it out, or use --method joint",
        )
    console = errors_console()
    related = named_files(tables)
    if generator is not None and related:
        raise Misuse(
            "USAGE",
            f"--table does not go with --method {method}",
            hint="a generator reads one table: use --method joint",
        )
    if generator is not None:
        request = Request(
            table=table,
            study=study,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            out=out or free_folder("verticil-synthetic"),
            state=state,
            dataset=dataset,
            id_column=id_column,
            budget=Cost(epsilon=budget, delta=math.inf),
            step=lambda line: console.print(line, markup=False),
        )
        own = {name: value for name, value in options.items() if value is not None}
        _show_generated(generator.generate(request, **own), method=method, form=form)
        return
    with progress(console) as step:
        result = synthesize(
            table,
            study,
            tables=related,
            epsilon=epsilon,
            delta=delta,
            method=next(name for name in _METHODS if name == method),
            seed=seed,
            out=out or free_folder("verticil-synthetic"),
            state=state,
            dataset=dataset,
            id_column=id_column,
            budget=Cost(epsilon=budget, delta=math.inf),
            compare=compare,
            accept_noise=accept_noise,
            step=step,
            show=step if console.is_terminal else None,
        )
    if not emit(_document(result), form=form):
        _print(result)
    if strict and result.chains_agree is False:
        raise typer.Exit(6)
    if fail_useless:
        fail_if_useless(result.worth, form)


def _add_options(command: Callable[..., None]) -> None:
    """Give a command the options of the generators that are installed, before ``--format``, and their words on the method."""
    own = inspect.signature(command, eval_str=True).parameters
    parameters = {name: item for name, item in own.items() if item.kind is not inspect.Parameter.VAR_KEYWORD}
    last = parameters.popitem()
    kind, option = get_args(parameters["method"].annotation)
    option.metavar = f"<{'|'.join((*_METHODS, *_GENERATORS))}>"
    option.help = " ".join((option.help, *(item.help for item in _GENERATORS.values())))
    parameters["method"] = parameters["method"].replace(annotation=Annotated[kind, option])
    for generator in _GENERATORS.values():
        parameters |= {
            item.name: item.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for item in _options_of(generator)
        }
    parameters[last[0]] = last[1]
    vars(command)["__signature__"] = inspect.Signature(list(parameters.values()), return_annotation=None)
    command.__annotations__ = {name: item.annotation for name, item in parameters.items()}


def _options_of(generator: Generator) -> list[inspect.Parameter]:
    parameters = inspect.signature(generator.generate, eval_str=True).parameters.values()
    return [item for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY]


def _generator_of(method: str, options: Mapping[str, object]) -> Generator | None:
    """Return the generator that a method is; None: it is a method of this program's own.

    Args:
        method: as it was asked for.
        options: of all generators, by name; None: not given.

    Raises:
        Misuse: USAGE, there is no such method, its package is of another version, or an option is another method's.
    """
    if method not in _METHODS and method not in _GENERATORS:
        plugins.load(GROUP, method)  # of another version: refused by name
        raise Misuse(
            "USAGE",
            f"--method: got '{method}', expected one of {', '.join((*_METHODS, *_GENERATORS))}",
            hint=f"generators are in a package of their own: {install_experiments()}",
        )
    for name, generator in _GENERATORS.items():
        for item in _options_of(generator):
            if options.get(item.name) is not None and name != method:
                option = f"--{item.name.replace('_', '-')}"
                raise Misuse(
                    "USAGE",
                    f"{option} goes with --method {name}, and the method is {method}",
                    hint=f"leave {option} out, or add --method {name}",
                )
    return _GENERATORS.get(method)


def _states_tables(study: Path) -> bool:
    """Return whether the study itself says what noise its tables get."""
    from verticil.shared.study.reading import read_study

    return read_study(study, by_owner=True).tables is not None


def _show_generated(result: GeneratorResult, *, method: str, form: Format) -> None:
    """Show what a generator made."""
    answer = {
        "out": str(result.out),
        "records": result.records,
        "people": result.people,
        "method": method,
        "cost": _cost(result.spending.cost),
        "charged": not result.spending.again,
        "charged_at": f"{result.spending.at:%Y-%m-%dT%H:%M:%SZ}",
        "in_all": _cost(result.spending.total),
        "earlier": list(result.spending.others),
        "warnings": list(result.warnings),
        **result.facts,
    }
    if emit(answer, form=form):
        return
    for warning in result.warnings:
        say(f"warning: {warning}", style="yellow")
    put(f"{result.records} synthetic records of {result.people} people in ", end="")
    say(str(result.out))
    _print_cost(result.spending)
    for line in result.lines:
        say(line)


def _print_cost(spending: Spending) -> None:
    cost, total = (cost_text(item.epsilon, item.delta) for item in (spending.cost, spending.total))
    when = f"charged before, on {spending.at:%Y-%m-%d}: nothing was spent again" if spending.again else "charged now"
    say(f"each person, for everything in it together: {cost} ({when}); this data set in all: {total}")


def _document(result: Synthesized) -> dict[str, object]:
    from verticil.analyst.prediction import predict_study

    spending, prediction = result.spending, predict_study(result.study, result.n_records)
    return {
        "out": str(result.out),
        "records": len(result.records),
        "people": result.n_records,
        "study": {
            "structure": {"method": result.study.structure.method},
            "release": {"sample_from": result.study.records_from},
        },
        "changes": list(result.changes),
        "cost": _cost(spending.cost),
        "charged": not spending.again,
        "charged_at": f"{spending.at:%Y-%m-%dT%H:%M:%SZ}",
        "in_all": _cost(spending.total),
        "earlier": list(spending.others),
        "warnings": list(result.warnings),
        "chains_agree": result.chains_agree,
        "predicted_distance": None if prediction is None else dataclasses.asdict(prediction),
        "worth": None if result.worth is None else worth_document(result.worth),
        **(
            {}
            if result.comparison is None
            else {
                "comparison_without_noise": [
                    {
                        "method": row.method,
                        "distances": [
                            {"ways": item.ways, "mean": item.mean, "worst": item.worst} for item in row.distances
                        ],
                    }
                    for row in result.comparison
                ]
            }
        ),
    }


def _cost(cost: Cost) -> dict[str, float | None]:
    """Return a cost for a document: null where there is no bound."""
    return {"epsilon": cost.epsilon if math.isfinite(cost.epsilon) else None, "delta": cost.delta}


def _print(result: Synthesized) -> None:
    from verticil.analyst.prediction import predict_study, prediction_text

    for warning in result.warnings:
        say(f"warning: {warning}", style="yellow")
    put("the study that was carried out:")
    for line in result.changes:
        say(f"  {line}")
    put(f"{len(result.records)} synthetic records of {result.n_records} people in ", end="")
    say(str(result.out))
    _print_cost(result.spending)
    if result.worth is None and (prediction := predict_study(result.study, result.n_records)) is not None:
        say(f"distance that was predicted before anything was read: {prediction_text(prediction)}")
    if result.comparison is not None:
        ways = [f"{item.ways}-way" for item in result.comparison[0].distances]
        table = plain_table("drawn from", right=[heading for way in ways for heading in (way, "worst")])
        for row in result.comparison:
            table.add_row(row.method, *(f"{n:.4f}" for item in row.distances for n in (item.mean, item.worst)))
        put("total variation distance to the table itself, which no noise covers: for your eyes only")
        put(table)
    if result.worth is not None:
        print_worth(result.worth)
    elif result.study.tables is not None:
        say("what these records are worth is not estimated; --method joint estimates it")
    if result.out is not None and result.out.is_dir():
        say(f"next: verticil release verify {result.out / 'release'} --ca {result.out / 'ca.crt'}")


_GENERATORS: Final = generators()
_add_options(synthesize_command)
