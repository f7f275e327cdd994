"""``verticil miner audit``: whom the miner refused, and which certificates it showed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, text_console

app = typer.Typer(no_args_is_help=True)

_ConfigOption = Annotated[Path, typer.Option(help="miner.toml.")]


@app.command("show", epilog="Example: verticil miner audit show --last 20 --config miner.toml")
def show(
    last: Annotated[int | None, typer.Option(min=1, help="Only so many of the newest.")] = None,
    config: _ConfigOption = Path("miner.toml"),
    form: FormatOption = Format.text,
) -> None:
    """The miner's audit log as it stands in state/audit.jsonl, oldest first."""
    from verticil.miner.config import load_miner
    from verticil.miner.storage.audit import MinerAudit

    found = list(MinerAudit(load_miner(config).state_directory).entries())[-(last or 0) :]
    if emit({"entries": found}, form=form):
        return
    console = text_console()
    for entry in found:
        words = [f"{entry['n']:>4}", str(entry["at"]), f"{entry['event']:<16}", str(entry["who"])]
        console.print("  ".join([*words, f"[{entry['detail']}]"]), markup=False)
    if not found:
        console.print("nothing is written there")


@app.command("verify", epilog="Example: verticil miner audit verify --config miner.toml")
def verify(config: _ConfigOption = Path("miner.toml"), form: FormatOption = Format.text) -> None:
    """Check every line of the miner's audit log, its order and its end. Exit 6 names the line that does not hold."""
    from verticil.miner.config import load_miner
    from verticil.miner.storage.audit import MinerAudit

    document = load_miner(config)
    found = MinerAudit(document.state_directory).verify()
    facts = {
        "miner": document.name,
        "lines": found.n_lines,
        "head": found.head.hex(),
        "torn_lines": list(found.torn),
        "unfinished_bytes": found.unfinished_bytes,
    }
    if emit(facts, form=form):
        return
    text_console().print(f"[green]holds[/]: {found.n_lines} lines, head {found.head.hex()}")
