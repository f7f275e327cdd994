"""``verticil simulate``: what a study would yield, from tables that one person holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from verticil.cli.files import new_folder
from verticil.cli.output import Format, FormatOption, emit, epsilon_text, text_console
from verticil.cli.study import split_pairs
from verticil.shared.errors import Misuse


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
    form: FormatOption = Format.text,
) -> None:
    """Run a study in one process with the code of the real nodes, from randomization to the signed release.

    Whoever runs this holds all the tables, so it protects nobody: it shows what a study would yield before anybody is asked.
    """
    from verticil.simulation import simulate
    from verticil.simulation.provision import study_seed

    if (table is None) == (not data):
        raise Misuse("USAGE", "expected either --table FILE or --data PARTY=FILE for each party")
    tables = table if table is not None else split_pairs(data or [], option="--data")
    seed = seed if seed is not None else study_seed(study)
    folder = new_folder(out)
    try:
        result = simulate(
            study, tables, out=folder / "release", id_column=id_column, seed=seed, compare=compare, step=_tell
        )
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    names = result.network.schema.names
    payload: dict[str, object] = {
        "release": str(folder / "release"),
        "ca_certificate": str(folder / "ca.crt"),
        "common_records": result.n_common,
        "synthetic_records": len(result.synthetic),
        "edges": [[names[parent], names[child]] for parent, child in result.network.dag.edges()],
        "epsilon_per_person": result.epsilon_per_person,
        **({"parameters": result.parameters} if result.parameters else {}),
        **({"pairs": result.pairs} if result.pairs else {}),
        "seed": seed,
    }
    if result.comparison is not None:
        payload["distance"] = {
            yardstick: {
                f"{found.ways}-way": {
                    "mean": found.mean,
                    "worst": found.worst,
                    "worst_table": [names[member] for member in found.worst_table],
                    "tables": found.n_tables,
                }
                for found in getattr(result.comparison, yardstick)
            }
            for yardstick in ("synthetic", "bootstrap", "independent")
        }
    if emit(payload, form=form):
        return
    console = text_console()
    console.print(
        f"[green]release[/] in {folder / 'release'}: {len(names)} variables, {len(result.network.dag.edges())} edges"
    )
    console.print(f"{result.n_common:,} common records; epsilon per person {epsilon_text(result.epsilon_per_person)}")
    if result.parameters:
        console.print(
            f"the epsilon is that of randomized columns; of the parameters: {result.parameters}", markup=False
        )
    if result.pairs:
        console.print(result.pairs, markup=False)
    if result.comparison is None:
        return
    shown = Table(
        box=None, pad_edge=False, title="total variation distance to the real joint data", title_justify="left"
    )
    for heading in ("tables", "synthetic mean", "worst", "bootstrap (floor)", "independent columns", "worst table"):
        shown.add_column(heading)
    for found, floor, margins in zip(
        result.comparison.synthetic, result.comparison.bootstrap, result.comparison.independent, strict=True
    ):
        shown.add_row(
            f"{found.ways}-way ({found.n_tables})",
            *(f"{distance:.4f}" for distance in (found.mean, found.worst, floor.mean, margins.mean)),
            " x ".join(names[member] for member in found.worst_table),
        )
    console.print(shown)
