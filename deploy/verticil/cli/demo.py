"""``verticil demo``: the whole way, on shipped data, with real processes."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.files import new_folder
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, errors_console, text_console
from verticil.shared.errors import Misuse
from verticil.shared.view import document

if TYPE_CHECKING:
    from verticil.simulation.chaos.drill import DrillResult
    from verticil.simulation.processes import DemoResult
    from verticil.simulation.summary import ReleaseSummary


class Model(StrEnum):
    """How the organisations work together."""

    central = "central"
    peer = "peer"


def _free_folder() -> Path:
    number, path = 1, Path("verticil-demo")
    while path.exists():
        number += 1
        path = Path(f"verticil-demo-{number}")
    return path


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; default: verticil-demo, or the next free number.")
    ] = None,
    model: Annotated[
        Model, typer.Option(help="central: a miner in the middle (Model II); peer: the parties alone (Model I).")
    ] = Model.central,
    relay: Annotated[
        bool, typer.Option("--relay", help="With --model peer: no party listens; a miner passes on what is sealed.")
    ] = False,
    rows: Annotated[
        int | None, typer.Option(min=500, max=30_647, help="How many common people; default: all 30,647.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Derive the sites' secrets from it, for a repeatable run.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the nodes' folders: configurations, keys, state, logs.")
    ] = False,
    chaos: Annotated[
        bool,
        typer.Option(
            "--chaos",
            help="Run it twice, the second time with a line cut and processes killed, and compare what was published.",
        ),
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Run a whole federation on this machine: three organisations, mutual TLS, a published and verified release.

    The data are 30,647 people of the public UCI Adult extract, split by column between a census bureau, an employer and a
    tax office.
    """
    from verticil.shared.study.protocols import PROTOCOLS
    from verticil.simulation.chaos.drill import run_drill
    from verticil.simulation.processes import run_demo
    from verticil.simulation.summary import release_summary

    coordinated = PROTOCOLS.named(model).coordinated
    if relay and (chaos or coordinated):
        raise Misuse(
            "USAGE", "--relay: only between peers, and without --chaos", hint="verticil demo --model peer --relay"
        )
    folder = new_folder(out or _free_folder())
    progress = errors_console()
    count = 0

    def step(text: str) -> None:
        nonlocal count
        count += 1
        progress.print(f"[dim]{count:>3}[/] ", end="")
        progress.print(text, markup=False)

    drill = None
    try:
        if chaos:
            drill = run_drill(folder, model=model.value, rows=rows, seed=seed, keep=keep, step=step)
            result = drill.demo
        else:
            result = run_demo(folder, model=model.value, relay=relay, rows=rows, seed=seed, keep=keep, step=step)
    except BaseException:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    release = next(iter(result.releases.values()))
    summary = release_summary(release)
    payload = {
        "model": model.value,
        **({"relay": True} if relay else {}),
        "release": str(release),
        "releases": {name: str(path) for name, path in result.releases.items()},
        "ca_certificate": str(folder / "ca.crt"),
        "federation": str(result.federation) if result.federation else None,
        "verified": True,
        "synthetic_records": result.verified.synthetic_records,
        "common_records": result.n_common,
        "wall_seconds": round(result.wall_seconds, 2),
        "peak_memory_mib": {name: round(peak, 1) for name, peak in result.peak_memory_mib.items()},
        **document(summary),
    }
    if drill:
        payload["chaos"] = {
            "same_release": True,  # else there was an error
            "events": [asdict(event) for event in drill.events],
            "digests": drill.digests,
            "epsilon_charged": drill.epsilon_charged,
        }
    if not emit(payload, form=form):
        _print_result(result, folder, summary, coordinated=coordinated, relay=relay, drill=drill)


def _print_result(
    result: DemoResult,
    folder: Path,
    summary: ReleaseSummary,
    *,
    coordinated: bool,
    relay: bool,
    drill: DrillResult | None,
) -> None:
    """What came of it, for people."""
    release, console = next(iter(result.releases.values())), text_console()
    console.print(f"\n[bold green]published and verified[/] in {result.wall_seconds:.1f} s: {release}")
    if drill:
        kills = sum(event.what == "kill" for event in drill.events)
        cuts = sum(event.what == "cut" for event in drill.events)
        console.print(
            f"  after {kills} kills, {cuts} cut line      the same release as undisturbed ({len(drill.digests)} digests)"
        )
        console.print("  ledgers, audit logs            charged as undisturbed; every chain verified")
    if not coordinated:
        console.print("  the same release               at every party, signed by all of them")
        if relay:
            console.print(
                "  between the parties            through the miner, sealed for each of them; nobody else listens"
            )
    console.print(f"  people at all three parties    {result.n_common:,}")
    console.print(f"  network                        {summary.variables} variables, {summary.edges} edges")
    if summary.epsilon_range is not None:
        low, high = summary.epsilon_range
        console.print(f"  epsilon per column             {low:g} to {high:g}")
    console.print(
        f"  epsilon per person             {epsilon_text(summary.epsilon_per_person)} (the sum over the columns)"
    )
    if summary.parameters:
        console.print(f"  parameters                     {summary.parameters}")
    console.print(f"  synthetic records              {result.verified.synthetic_records:,}")
    console.print(f"\n  read      {release / 'report.html'}")
    console.print(f"  use       {release / 'synthetic.csv'}, {release / 'network.bifxml'}")
    console.print(f"  verify    {Path(sys.argv[0]).name} release verify {release} --ca {folder / 'ca.crt'}")
    if result.federation:
        console.print(f"  federation's folders (kept)    {result.federation}")
