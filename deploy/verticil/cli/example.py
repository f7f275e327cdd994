"""``verticil example``: three small tables of people who do not exist, to try the other commands with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, plain_table, put, say
from verticil.pki.files import new_folder, removed_if_empty
from verticil.shared.storage.disk import create_files


def example_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make; it may be there if it is empty.")],
    form: FormatOption = Format.text,
) -> None:
    """Write three small tables about the same people, made up and as messy as real ones, to try the other commands with."""
    from verticil.simulation.federations.example import tables

    content = tables()
    files = {name: folder / f"{name}.csv" for name in content}
    with removed_if_empty(new_folder(folder)):
        create_files({files[name]: (data, 0o644) for name, data in content.items()}, exists_hint="name another folder")
    n_rows = {name: data.count(b"\n") - 1 for name, data in content.items()}
    answer = {"folder": str(folder), "tables": {name: str(path) for name, path in files.items()}, "rows": n_rows}
    if emit(answer, form=form):
        return
    table = plain_table("organisation", "table", right=("rows",))
    for name, path in files.items():
        table.add_row(name, str(path), f"{n_rows[name]:,}")
    put(table)
    say("nobody in these tables exists: a fixed seed made them up")
    parties = " ".join(f"{name}={path.name}" for name, path in files.items())
    say(f"next: cd {shlex.quote(str(folder))}, then verticil study draft {parties} --out study.toml")
