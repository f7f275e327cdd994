"""``verticil linkage``: the key that the parties share, and the miner must never have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, put, say

app = typer.Typer(no_args_is_help=True)


@app.command("new-key", epilog="Example: verticil linkage new-key secrets/linkage.key")
def new_key(
    out: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    form: FormatOption = Format.text,
) -> None:
    """Make a linkage key (32 random bytes, readable by its owner only). One party makes it and hands it to the other parties."""

    from verticil.party.dataset.keyfile import check_key, write_key

    out.parent.mkdir(parents=True, exist_ok=True)
    write_key(out)
    word = check_key(out)
    if emit({"key": str(out), "check": word}, form=form):
        return
    put(f"linkage key written to {out}; check word [bold]{word}[/]")
    say("hand it to the other parties over a safe channel, never to the miner; all parties' check words must be equal")


@app.command("check", epilog="Example: verticil linkage check secrets/linkage.key")
def check(
    key: Annotated[Path, typer.Argument(help="The key file.")],
    form: FormatOption = Format.text,
) -> None:
    """Check a linkage key's file and print its check word, to compare with the other parties'."""
    from verticil.party.dataset.keyfile import check_key

    word = check_key(key)
    if not emit({"key": str(key), "check": word}, form=form):
        put(f"{key}: 32 bytes, readable by its owner only; check word [bold]{word}[/]")
