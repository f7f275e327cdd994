"""``verticil attack``: what the product promises, put to the test by whoever likes."""

from __future__ import annotations

import json
import math
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.output import (
    Format,
    FormatOption,
    emit,
    epsilon_text,
    errors_console,
    plain_table,
    progress,
    put,
    say,
)
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.documents.view_models import document
from verticil.shared.storage.disk import replace_file, write_fault

if TYPE_CHECKING:
    from verticil.attack.run import AttackResults

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def attack() -> None:
    """Attacks on what the mechanisms promise."""


@app.command(
    "epsilon", epilog="Example: verticil attack epsilon --mechanism symmetric-5 --draws 100000 --json found.json"
)
def attack_epsilon(
    mechanism: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this mechanism; may be repeated. Default: all.")
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=1_000, max=1_000_000_000, help="Under each input, twice; where a draw is slow, a part of it."),
    ] = 300_000,
    confidence: Annotated[
        float, typer.Option(help="Confidence that every lower bound of the whole run is below the true epsilon.")
    ] = 0.999,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of all draws, to repeat a run; default: a new one, which is printed."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all that was found to this new file.")
    ] = None,
    form: FormatOption = Format.text,
) -> None:
    """Attack every epsilon that is claimed: lower bounds from fresh draws of the code that parties run, beside the claims.

    Two neighbouring inputs, the event that tells them apart best, and how often it happens under each, by exact
    (Clopper-Pearson) bounds. A lower bound above its claim breaks it: exit code 6. The default takes about a minute.
    """
    from verticil.attack import run

    if not 0.5 <= confidence <= 1 - 1e-12:
        raise Misuse("USAGE", f"--confidence {confidence:g}, expected at least 0.5 and below 1")
    if file is not None:
        _check_free(file)
    run_seed = secrets.randbits(53) if seed is None else seed
    attack_list = run.attacks(mechanism or ())
    console = errors_console()
    with progress(console) as tell:
        last_text = ""

        def report(what: str, part: float) -> None:
            nonlocal last_text
            text = f"{what}: {part:.0%}" if console.is_terminal else what
            if text != last_text:
                last_text = text
                tell(text)

        result = run.attack_epsilon(attack_list, draws=draws, confidence=confidence, seed=run_seed, progress=report)
    if file is not None:
        content = json.dumps(document(result), ensure_ascii=False, indent=1) + "\n"
        try:
            replace_file(file, content.encode("utf-8"), part=file.with_name(f".{file.name}.part"))
        except OSError as error:
            raise write_fault(error, file) from None
    if emit(result, form=form):
        if result.broken:
            raise typer.Exit(6)
        return
    _print(result)
    if result.broken:
        raise GateFailed(
            "CLAIM_BROKEN",
            f"a lower bound of epsilon is above what is claimed: {', '.join(result.broken)}",
            hint=f"repeat it with more --draws and another --seed; chance does it in at most {1 - result.confidence:.2g} of runs",
        )


def _print(result: AttackResults) -> None:
    table = plain_table(
        "mechanism", "draws over", "verdict", right=("claim", "delta", "at least", "draws"), no_wrap=True
    )
    table.add_column("at the event")
    for claim in result.claims:
        table.add_row(
            claim.mechanism,
            claim.over,
            "holds" if claim.holds else "BROKEN",
            epsilon_text(claim.epsilon),
            f"{claim.delta:.2g}",
            f"{math.floor(claim.at_least * 100) / 100:.2f}",
            f"{claim.draws:,}",
            claim.event,
        )
    put(table)
    say(f"\n{len(result.claims)} claims by {result.tests} tests, seed {result.seed}")
    say(f"with a confidence of {result.confidence:g} no lower bound of this run is above the true epsilon")


def _check_free(file: Path) -> None:
    if file.exists():
        raise Misuse(
            "FILE_EXISTS", f"{file}: exists already and is not overwritten", hint="name another file with --json"
        )
    if not file.parent.is_dir():
        raise Misuse("FILE_MISSING", f"{file.parent}: no such folder", hint="name a file in a folder that exists")
