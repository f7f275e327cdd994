"""What the papers' experiments share on the command line: a folder, its files, the look of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from verticil.shared.disk import create_files
from verticil.shared.errors import Misuse
from verticil.shared.view import jsonable


def free_folder(name: str) -> Path:
    """`name` in this folder, with a number where it is taken."""
    number, path = 1, Path(name)
    while path.exists():
        number += 1
        path = Path(f"{name}-{number}")
    return path


@contextmanager
def progress(console: Console) -> Generator[Callable[[str], None]]:
    """What is being done: one line that is renewed where somebody watches, a line for each step in a file."""
    if not console.is_terminal:
        yield lambda text: console.print(text, markup=False, style="dim")
        return
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("")
        yield lambda text: shown.update(task, description=text)


def require(module: str, package: str, what: str) -> None:
    """Check that an optional package is there.

    Raises:
        Misuse: USAGE, it is not.
    """
    if find_spec(module) is None:
        raise Misuse(
            "USAGE", f"{what} needs {package}", hint="in a checkout of verticil: pip install ./deploy/experiments"
        )


def write_results(folder: Path, payload: Mapping[str, object], images: Mapping[str, bytes]) -> list[Path]:
    """Write numbers.json and the images, all or nothing.

    Raises:
        Misuse: FILE_EXISTS.
        DataFault: DISK_FULL.
    """
    numbers = json.dumps(jsonable(payload), ensure_ascii=False, indent=1) + "\n"
    contents = {folder / "numbers.json": numbers.encode("utf-8")}
    contents.update({folder / name: image for name, image in images.items()})
    create_files(
        {path: (content, 0o644) for path, content in contents.items()}, exists_hint="name another folder with --out"
    )
    return list(contents)


def results_table(title: str, *headings: str, left: int = 1) -> Table:
    """A plain table; the first `left` columns are text."""
    shown = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for position, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if position < left else "right", no_wrap=True)
    return shown
