"""How commands answer: text for people, or with ``--format json`` exactly one JSON object on standard output.

Logs, progress and text errors go to standard error; with ``--format json`` an error is the one object on standard output:
``{"error": {"code", "message", "hint"}}``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from verticil.shared.errors import VerticilError
from verticil.shared.privacy.rounded_up import hundredths
from verticil.shared.progress import Progress, Tell
from verticil.shared.view import document


class Format(StrEnum):
    """Form of a command's answer."""

    text = "text"
    json = "json"


FormatOption = Annotated[
    Format, typer.Option("--format", help="text for people; json: one JSON object on standard output.")
]


def text_console() -> Console:
    """Where answers for people go. Rich honours NO_COLOR and drops colour where output is not a terminal."""
    return _console(sys.stdout.isatty(), stderr=False)


def errors_console() -> Console:
    """Where progress and errors for people go."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(terminal: bool, *, stderr: bool) -> Console:
    # What goes into a file or a pipe is not wrapped to a terminal that is not there.
    return Console(stderr=stderr, highlight=False, soft_wrap=not terminal, width=None if terminal else 200)


def say(text: str, *, style: str | None = None) -> None:
    """Print words for people as they are: what looks like markup in them is none."""
    text_console().print(text, markup=False, style=style)


def put(shown: object, *, style: str | None = None, end: str = "\n") -> None:
    """Print a table, or words with Rich's markup, for people."""
    text_console().print(shown, style=style, end=end)


def plain_table(*headings: str, right: Sequence[str] = (), title: str | None = None, no_wrap: bool = False) -> Table:
    """A table without lines: columns of text under `headings`, then those of numbers."""
    shown = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for position, heading in enumerate((*headings, *right)):
        shown.add_column(heading, justify="left" if position < len(headings) else "right", no_wrap=no_wrap)
    return shown


def epsilon_text(value: object) -> str:
    """An epsilon in two decimals, rounded up (a privacy statement never errs downwards); ∞ without a bound.

    >>> epsilon_text(36.8904), epsilon_text(3.0), epsilon_text(float("inf")), epsilon_text(None)
    ('36.90', '3.00', '∞', '∞')
    """
    if not isinstance(value, int | float) or math.isinf(value):
        return "∞"
    return hundredths(value)


def rounded_up(value: float) -> str:
    """A small number that is an upper bound, with three digits.

    >>> rounded_up(3 * 1e-9), rounded_up(2.5151e-7), rounded_up(1.0)
    ('3e-09', '2.52e-07', '1')
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / unit - 1e-6) * unit:.3g}"


@contextmanager
def telling(form: Format) -> Generator[Tell]:
    """How far a step is, on standard error: a sentence for people, with ``--format json`` an event in a line of its own."""
    if form is Format.json:

        def tell(told: Progress) -> None:
            sys.stderr.write(json.dumps(told.document()) + "\n")
            sys.stderr.flush()

        yield tell
        return
    from verticil.cli.reproduce import progress

    with progress(errors_console()) as show:
        yield lambda told: show(told.text)


def emit(answer: object, *, form: Format) -> bool:
    """With ``--format json`` print a view model or a mapping and return True; otherwise False, and the caller prints its text."""
    if form is not Format.json:
        return False
    sys.stdout.write(json.dumps(document(answer), ensure_ascii=False) + "\n")
    sys.stdout.flush()
    return True


def report_error(error: VerticilError, *, form: Format) -> int:
    """Print an error in the asked form and answer the exit code."""
    return report(error.code, error.message, error.hint, error.exit_code, form=form)


def report(code: str, message: str, hint: str, exit_code: int, *, form: Format) -> int:
    """Print code, message and hint of a failure and answer its exit code."""
    if not emit({"error": {"code": code, "message": message, "hint": hint}}, form=form):
        console = errors_console()
        console.print(f"[bold red]error[/] [bold]{code}[/]: ", end="")
        console.print(message, markup=False)
        if hint:
            console.print("hint: ", style="cyan", end="")
            console.print(hint, markup=False)
    return exit_code
