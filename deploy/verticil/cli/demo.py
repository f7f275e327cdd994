"""``verticil demo``: the whole way, on shipped data, with real processes.

``verticil simulate``: what a study would yield, from tables that one person holds.
"""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, epsilon_text, errors_console, plain_table, put, say
from verticil.cli.study import given_tables
from verticil.cli.worth_text import fail_if_useless, predicted_worth, print_worth
from verticil.pki.files import free_folder, new_folder, removed_if_empty
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.view_models import document
from verticil.shared.release.worth import worth_document

if TYPE_CHECKING:
    from verticil.shared.numerics.joint.worth import Worth
    from verticil.simulation.in_process import Simulated
    from verticil.simulation.processes import DemoResult
    from verticil.simulation.summary import ReleaseSummary


class Model(StrEnum):
    """How the organisations work together."""

    central = "central"
    peer = "peer"
    masked = "masked"


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; default: verticil-demo, or the next free number.")
    ] = None,
    model: Annotated[
        Model,
        typer.Option(
            help="central: a miner in the middle (Model II); peer: the parties alone (Model I); masked: noisy tables, and "
            "nobody sees a row (Model III)."
        ),
    ] = Model.central,
    relay: Annotated[
        bool,
        typer.Option(
            "--relay", help="With --model peer or masked: no party listens; a miner passes on what is sealed."
        ),
    ] = False,
    rows: Annotated[
        int | None, typer.Option(min=500, max=30_647, help="Number of common people; default: all 30,647.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Derive the sites' secrets from it, for a repeatable run.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the nodes' folders: configurations, keys, state, logs.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Run a whole federation on this machine: three organisations, mutual TLS, a published and verified release.

    The data are 30,647 people of the public UCI Adult extract, split by column between a census bureau, an employer and a
    tax office.
    """
    from verticil.shared.study.protocols import PROTOCOLS
    from verticil.simulation.processes import run_demo, run_to_end
    from verticil.simulation.summary import costs_text, parameters_text, release_summary

    protocol = PROTOCOLS.named(model)
    has_coordinator = protocol.coordinated
    if relay and has_coordinator and not protocol.opens_tables:
        raise Misuse(
            "USAGE",
            "--relay: only between parties that meet",
            hint="verticil demo --model peer --relay, or --model masked",
        )
    folder = new_folder(out or free_folder("verticil-demo"))
    progress = errors_console()
    count = 0

    def step(text: str) -> None:
        nonlocal count
        count += 1
        progress.print(f"[dim]{count:>3}[/] ", end="")
        progress.print(text, markup=False)

    try:
        result = run_to_end(
            run_demo(folder, model=model.value, relay=relay, rows=rows, seed=seed, keep=keep, step=step)
        )
    except BaseException:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    outcome = result.published
    release = next(iter(outcome.releases.values()))
    summary = release_summary(release, outcome.study)
    payload = {
        "model": model.value,
        **({"relay": True} if relay else {}),
        "release": str(release),
        "releases": {name: str(path) for name, path in outcome.releases.items()},
        "ca_certificate": str(folder / "ca.crt"),
        "federation": str(result.federation) if result.federation else None,
        "verified": True,
        "synthetic_records": outcome.verified.synthetic_records,
        "common_records": outcome.verified.common_records,
        "wall_seconds": round(result.wall_seconds, 2),
        "peak_memory_mib": {name: round(peak, 1) for name, peak in result.peak_memory_mib.items()},
        **document(summary),
    }
    if not emit(payload, form=form):
        parameters = parameters_text(release, outcome.study)
        costs = costs_text(release)
        _print_result(result, folder, summary, parameters, costs, has_coordinator=has_coordinator, relay=relay)


def _print_result(
    result: DemoResult,
    folder: Path,
    summary: ReleaseSummary,
    parameters: str,
    costs: tuple[str, ...],
    *,
    has_coordinator: bool,
    relay: bool,
) -> None:
    """Print what came of it, for people."""
    outcome = result.published
    release = next(iter(outcome.releases.values()))
    put(f"\n[bold green]published and verified[/] in {result.wall_seconds:.1f} s: {release}")
    if not has_coordinator:
        say("  the same release               at every party, signed by all of them")
    if relay:
        say("  between the parties            through the miner, sealed for each of them; nobody else listens")
    say(f"  people at all three parties    {outcome.verified.common_records:,}")
    put(f"  network                        {summary.variables} variables, {summary.edges} edges")
    if summary.epsilon_range is not None:
        low, high = summary.epsilon_range
        say(f"  epsilon per column             {low:g}{f' to {high:g}' if high > low else ''}")
    if costs:
        for cost in costs:
            say(f"  epsilon per person             {cost}")
    else:
        say(f"  epsilon per person             {epsilon_text(summary.epsilon_per_person)} (the sum over the columns)")
    if parameters:
        put(f"  parameters                     {parameters}")
    say(f"  synthetic records              {outcome.verified.synthetic_records:,}")
    put(f"\n  read      {release / 'report.html'}")
    put(f"  use       {release / 'synthetic.csv'}, {release / 'network.bifxml'}")
    put(f"  verify    {Path(sys.argv[0]).name} release verify {release} --ca {folder / 'ca.crt'}")
    if result.federation:
        put(f"  federation's folders (kept)    {result.federation}")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def simulate_command(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="study.toml.")],
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="PARTY=FILE", help="A party's table; once per party.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--table", help="One table with all columns instead; its id column is optional.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the release.")] = Path("simulation"),
    id_column: Annotated[str, typer.Option("--id", help="Name of the id column.")] = "id",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Derive the sites' secrets from it, for a repeatable run; default: \\[simulation] seed of the study.",
        ),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Report the distance to the real joint data.")] = False,
    fail_useless: Annotated[
        bool,
        typer.Option(
            "--fail-useless", help="Exit 6 where records are no nearer to the people than independent columns."
        ),
    ] = False,
    unreviewed: Annotated[
        bool, typer.Option("--unreviewed", help="Run a draft whose author has not set reviewed = true, too.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Show what a federation of these parties would publish: a study in one process, with the code of the real nodes.

    From randomization to the signed release. Whoever runs this holds all the tables, so it protects nobody: it shows what a
    study would yield before anybody is asked.
    """
    from verticil.simulation import simulate
    from verticil.simulation.provision import study_seed

    tables = given_tables(data or (), table)
    seed = seed if seed is not None else study_seed(study)
    folder = new_folder(out)
    with removed_if_empty(folder):
        result = simulate(
            study,
            tables,
            out=folder / "release",
            id_column=id_column,
            seed=seed,
            compare=compare,
            unreviewed=unreviewed,
            step=_tell,
        )
    names, worth = result.network.schema.names, result.worth or predicted_worth(study, result.n_common)
    payload: dict[str, object] = {
        "release": str(folder / "release"),
        "ca_certificate": str(folder / "ca.crt"),
        "common_records": result.n_common,
        "synthetic_records": len(result.synthetic),
        "edges": [[names[parent], names[child]] for parent, child in result.network.dag.edges()],
        "epsilon_per_person": result.epsilon_per_person,
        **({"parameters": result.parameters} if result.parameters else {}),
        **({"pairs": result.pairs} if result.pairs else {}),
        **({} if worth is None else {"worth": worth_document(worth)}),
        "seed": seed,
    }
    if result.comparison is not None:
        payload["distance"] = {
            yardstick: {
                f"{figures.ways}-way": {
                    "mean": figures.mean,
                    "worst": figures.worst,
                    "worst_table": [names[member] for member in figures.worst_table],
                    "tables": figures.n_tables,
                }
                for figures in getattr(result.comparison, yardstick)
            }
            for yardstick in ("synthetic", "bootstrap", "independent")
        }
    if not emit(payload, form=form):
        _print_simulated(result, folder, worth)
    if fail_useless:
        fail_if_useless(worth, form)


def _print_simulated(result: Simulated, folder: Path, worth: Worth | None) -> None:
    names = result.network.schema.names
    put(f"[green]release[/] in {folder / 'release'}: {len(names)} variables, {len(result.network.dag.edges())} edges")
    costs = result.costs or (epsilon_text(result.epsilon_per_person),)
    say(f"{result.n_common:,} common records; epsilon per person {'; '.join(costs)}")
    if result.parameters:
        say(f"the epsilon is that of randomized columns; of the parameters: {result.parameters}")
    for line in result.pairs.splitlines():
        say(line)
    if worth is not None:
        print_worth(worth)
    if result.comparison is None:
        return
    comparison_table = plain_table(
        *("tables", "synthetic mean", "worst", "bootstrap (floor)", "independent columns", "worst table"),
        title="total variation distance to the real joint data",
    )
    for figures, floor, margins in zip(
        result.comparison.synthetic, result.comparison.bootstrap, result.comparison.independent, strict=True
    ):
        comparison_table.add_row(
            f"{figures.ways}-way ({figures.n_tables})",
            *(f"{distance:.4f}" for distance in (figures.mean, figures.worst, floor.mean, margins.mean)),
            " x ".join(names[member] for member in figures.worst_table),
        )
    put(comparison_table)
