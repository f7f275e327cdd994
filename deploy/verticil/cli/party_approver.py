"""``verticil party approver``: the keys of the people who approve, and their names in party.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from verticil.cli.output import Format, FormatOption, emit, text_console
from verticil.cli.party import ConfigOption

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The approver, as in approve --as NAME.")]


@app.command("keygen", epilog="Example: verticil party approver keygen --key officer.key")
def keygen(
    key: Annotated[Path, typer.Option("--key", help="File to make, 0600: the approver's own, on their own machine.")],
    form: FormatOption = Format.text,
) -> None:
    """Make an approver's key pair. The file stays with the person; the public line goes into party.toml."""
    from verticil.party.operator.approvers import make_key

    facts = make_key(key)
    if not emit(facts, form=form):
        text_console().print(f"made {key}; public key {facts['public_key']}", markup=False)
        text_console().print(
            "the site's operator adds it: verticil party approver add NAME --public-key " + str(facts["public_key"])
        )


@app.command("add", epilog="Example: verticil party approver add officer@clinic --config party.toml")
def add(
    name: NameArgument,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The private key, made when absent; default: approvers/NAME.key beside party.toml."),
    ] = None,
    public_key: Annotated[str | None, typer.Option("--public-key", help="Of a key that was made elsewhere.")] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Name an approver in party.toml, with a key of their own; makes the key where there is none yet."""
    from verticil.party.operator.approvers import add_approver

    facts = add_approver(config, name, key=key, public_key=public_key)
    if emit(facts, form=form):
        return
    console = text_console()
    if facts["made"]:
        console.print(
            f"made {facts['key']}: it is {name}'s alone, and whoever has it can approve in their name", markup=False
        )
    approvers = ", ".join(cast("Sequence[str]", facts["approvers"]))
    console.print(f"{config}: approvers {approvers}; {facts['approvers_needed']} needed", markup=False)
    console.print("a running daemon knows them at once")


@app.command("remove", epilog="Example: verticil party approver remove officer@clinic --config party.toml")
def remove(name: NameArgument, config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Take an approver out of party.toml: their votes count no more, also for studies under way. Their key's file stays."""
    from verticil.party.operator.approvers import remove_approver

    facts = remove_approver(config, name)
    if emit(facts, form=form):
        return
    console = text_console()
    approvers = ", ".join(cast("Sequence[str]", facts["approvers"]))
    console.print(f"{config}: approvers {approvers}; {facts['approvers_needed']} needed", markup=False)
    if not facts["enough"]:
        console.print("these are too few: nothing can be approved until there are more", style="yellow")


@app.command("list", epilog="Example: verticil party approver list --config party.toml")
def list_approvers(config: ConfigOption = Path("party.toml"), form: FormatOption = Format.text) -> None:
    """Who may approve here, and with which key."""
    from verticil.party.config import load_party
    from verticil.party.operator.approvers import approvers

    facts = approvers(load_party(config))
    if emit(facts, form=form):
        return
    console = text_console()
    rows = cast("Sequence[Mapping[str, object]]", facts["approvers"])
    if not rows:
        console.print("nobody is named: whoever may run the command here approves for the site")
    for row in rows:
        console.print(f"{row['name']}  {row['public_key'] or 'no key: cannot approve'}", markup=False)
    console.print(f"{facts['approvers_needed']} needed")
