"""Options that name files, as ``--table visits=visits.csv``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verticil.shared.core.errors import Misuse

RelatedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="NAME=FILE", help="A related table of the study, with several rows a person; once for each."
    ),
]


def named_files(items: list[str] | None) -> dict[str, Path]:
    """Return the file of each name, of texts as ``visits=visits.csv``.

    Raises:
        Misuse: USAGE, a text has another form, or names a table twice.
    """
    files: dict[str, Path] = {}
    for item in items or ():
        name, equals, path = item.partition("=")
        if not (name and equals and path):
            raise Misuse("USAGE", f"--table: got '{item}', expected NAME=FILE", hint="as in --table visits=visits.csv")
        if name in files:
            raise Misuse("USAGE", f"--table: '{name}' is given twice, expected once")
        files[name] = Path(path)
    return files
