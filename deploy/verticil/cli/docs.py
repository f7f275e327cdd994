"""``verticil docs``: the documentation, as the site that the wheel has, or as the pages of a checkout."""

from __future__ import annotations

import webbrowser
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer

from verticil.cli.output import Format, FormatOption, emit, say
from verticil.shared.core.errors import Misuse

SITE: Final = Path(__file__).resolve().parent / "site"
"""Where `nox -s docs` builds the site, and where the wheel has it."""
PAGES: Final = Path(__file__).resolve().parents[2] / "docs"
"""The pages of a checkout."""


def docs_command(
    page: Annotated[str, typer.Argument(metavar="[PAGE]", help="A page's name, such as runbook.")] = "index",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open it in a browser, or say where it is.")
    ] = True,
    form: FormatOption = Format.text,
) -> None:
    """Open the documentation, or say where it is."""
    path = find_page(page, SITE, PAGES)
    if emit({"page": path.stem, "path": str(path)}, form=form):
        return
    if not (browser and path.suffix == ".html" and webbrowser.open(path.as_uri())):
        say(f"the page is at {path}")


def find_page(name: str, site: Path, pages: Path) -> Path:
    """Return the file of a page: of the built site, else of the checkout.

    Args:
        name: the page's name without an ending, or with its folder: ``runbook``, ``officer/index``.
        site: folder of the built site, which may not be there.
        pages: folder of the Markdown pages, which may not be there.

    Raises:
        Misuse: FILE_MISSING, no pages are installed; USAGE, none has this name.
    """
    folder, ending = (site, ".html") if (site / "index.html").is_file() else (pages, ".md")
    names = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob(f"*{ending}"))}
    if "index" not in names:
        hint = "open deploy/docs/index.md in a checkout of the project, or build the site there: nox -f .ci/noxfile.py -s docs"
        raise Misuse("FILE_MISSING", "the documentation is not in this installation", hint=hint)
    names = {
        full.rpartition("/")[2]: path for full, path in names.items() if full.rpartition("/")[2] != "index"
    } | names
    if name in names:
        return names[name]
    near = get_close_matches(name, names, 3) or ["index", "glossary", "errors"]
    raise Misuse("USAGE", f"no page is called '{name}'", hint=f"pages near to it: {', '.join(near)}")
