"""How commands answer: text for people, or with ``--format json`` exactly one JSON object on standard output.

Logs, progress and text errors go to standard error; with ``--format json`` an error is the one object on standard output:
``{"error": {"code", "message", "hint"}}``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, cast

import typer
from rich.console import Console

from verticil.shared.errors import VerticilError


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


def epsilon_text(value: object) -> str:
    """An epsilon in two decimals, rounded up (a privacy statement never errs downwards); ∞ without a bound.

    >>> epsilon_text(36.8904), epsilon_text(3.0), epsilon_text(float("inf")), epsilon_text(None)
    ('36.90', '3.00', '∞', '∞')
    """
    if not isinstance(value, int | float) or math.isinf(value):
        return "∞"
    return f"{math.ceil(value * 100 - 1e-6) / 100:.2f}"


def jsonable(value: object) -> object:
    """The value in JSON's terms; an infinite number becomes the string "infinite" (JSON has none), NaN becomes null.

    >>> jsonable({"epsilon": float("inf"), "n": (1, 2.5)})
    {'epsilon': 'infinite', 'n': [1, 2.5]}
    """
    if isinstance(value, float):
        return "infinite" if math.isinf(value) else None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [jsonable(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, bool | int | str) or value is None:
        return value
    return str(value)


def emit(payload: Mapping[str, object], *, form: Format) -> bool:
    """With ``--format json`` print the payload and answer True; otherwise answer False, and the caller prints its text."""
    if form is not Format.json:
        return False
    sys.stdout.write(json.dumps(jsonable(payload), ensure_ascii=False) + "\n")
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
