"""How commands answer: text for people, or with ``--format json`` exactly one JSON object on standard output.

Logs, progress and text errors go to standard error; with ``--format json`` an error is the one object on standard output:
``{"error": {"code", "message", "hint"}}``. With ``--log-json`` alone an error is the last JSON line on standard error.

No command prints in another way. A terminal shows what stands in a message, a hint or a field, and obeys none of it: letters that
do not print appear by their numbers, in JSON too. A stream that cannot write a letter (an ASCII terminal) gets its number.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from io import TextIOWrapper
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from verticil.shared.core import logs
from verticil.shared.core.errors import printable
from verticil.shared.documents.progress import StepProgress, Tell
from verticil.shared.documents.view_models import document
from verticil.shared.privacy.rounded_up import hundredths


class Format(StrEnum):
    """Form of a command's answer."""

    text = "text"
    json = "json"


FormatOption = Annotated[
    Format, typer.Option("--format", help="text for people; json: one JSON object on standard output.")
]


def text_console() -> Console:
    """Return the console where answers for people go.

    Rich honours NO_COLOR and drops colour where output is not a terminal.
    """
    return _console(sys.stdout.isatty(), stderr=False)


def errors_console() -> Console:
    """Return the console where progress and errors for people go."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(terminal: bool, *, stderr: bool) -> Console:
    # What goes into a file or a pipe is not wrapped to a terminal that is not there.
    console = Console(stderr=stderr, highlight=False, soft_wrap=not terminal, width=None if terminal else 200)
    console.push_render_hook(_PrintableHook())
    return console


class _Printable:
    """Something to be shown, without any letter that a terminal would obey; Rich's own control codes stay."""

    def __init__(self, content: RenderableType) -> None:
        self._shown = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._shown, options):
            yield segment if segment.control else Segment(printable(segment.text, also="\n"), segment.style)


class _PrintableHook(RenderHook):
    """Makes all that a console prints printable."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return the same things to show, each printable."""
        return [_Printable(item) for item in renderables]


class PlainTable(Table):
    """A table whose texts are no markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row as `Table` does; a text stands as it is, on one line."""
        texts = (Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*texts, **options)


def write_plainly(*streams: TextIO) -> None:
    """Let a stream write the number of a letter that its encoding has not, in place of failing."""
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def open_missing_streams() -> None:
    """Open the null device in place of each standard stream that the caller has closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process


def discard_unwritten() -> bool:
    """Write what the streams still hold; drop what cannot be written and return False, so that the interpreter's end is quiet."""
    has_written = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            has_written = False
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    return has_written


def say(text: str, *, style: str | None = None) -> None:
    """Print a line of words for people as they are; what looks like markup is none. Empty lines may stand before it.

    A line end within it is shown by its number: what somebody else wrote must not look like a line of ours.
    """
    line = text.lstrip("\n")
    text_console().print(text[: len(text) - len(line)] + printable(line), markup=False, style=style)


def put(content: object, *, style: str | None = None, end: str = "\n") -> None:
    """Print a table, or our own words with Rich's markup, for people."""
    text_console().print(content, style=style, end=end)


def plain_table(
    *headings: str, right: Sequence[str] = (), title: str | None = None, no_wrap: bool = False
) -> PlainTable:
    """Return a table without lines: columns of text under `headings`, then those of numbers."""
    table = PlainTable(box=None, pad_edge=False, title=title, title_justify="left")
    for position, heading in enumerate((*headings, *right)):
        table.add_column(heading, justify="left" if position < len(headings) else "right", no_wrap=no_wrap)
    return table


def epsilon_text(value: object) -> str:
    """Write an epsilon in two decimals, rounded up (a privacy statement never errs downwards); ∞ without a bound.

    >>> epsilon_text(36.8904), epsilon_text(3.0), epsilon_text(float("inf")), epsilon_text(None)
    ('36.90', '3.00', '∞', '∞')
    """
    if not isinstance(value, int | float) or math.isinf(value):
        return "∞"
    return hundredths(value)


def rounded_up(value: float) -> str:
    """Write a small number that is an upper bound, with three digits.

    >>> rounded_up(3 * 1e-9), rounded_up(2.5151e-7), rounded_up(1.0)
    ('3e-09', '2.52e-07', '1')
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / unit - 1e-6) * unit:.3g}"


@contextmanager
def progress(console: Console) -> Generator[Callable[[str], None]]:
    """Show what is being done: one line that is renewed where somebody watches, a line for each step in a file."""
    if not console.is_terminal:
        yield lambda text: console.print(text, markup=False, style="dim")
        return
    from rich import progress as bars

    columns = (bars.SpinnerColumn(), bars.TimeElapsedColumn(), bars.TextColumn("{task.description}", markup=False))
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda text: bar.update(task, description=text)


@contextmanager
def telling(form: Format) -> Generator[Tell]:
    """Tell how far a step is, on standard error: a sentence for people, with ``--format json`` an event in a line of its own."""
    if form is Format.json:

        def tell(message: StepProgress) -> None:
            sys.stderr.write(json.dumps(message.document()) + "\n")
            sys.stderr.flush()

        yield tell
        return
    with progress(errors_console()) as show:
        yield lambda told: show(told.text)


def emit(answer: object, *, form: Format) -> bool:
    """Print a view model or a mapping with ``--format json`` and return True; else return False: the caller prints its text."""
    if form is not Format.json:
        return False
    sys.stdout.write(_json_text(document(answer)) + "\n")
    sys.stdout.flush()
    return True


def _json_text(answer: object) -> str:
    """Return an answer as JSON that any stream and terminal takes: letters that do not print stand by their numbers."""
    text = json.dumps(answer, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8", "surrogatepass")
    except UnicodeEncodeError:
        return json.dumps(answer)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def report(code: str, message: str, hint: str, exit_code: int, *, form: Format, log_json: bool = False) -> int:
    """Print code, message and hint of a failure and answer its exit code.

    Args:
        code: the error's code.
        message: the error's message.
        hint: what the reader can do; may be empty.
        exit_code: is returned, also where no stream can be written.
        form: of the answer.
        log_json: the log on standard error is JSON, so its last line is, too.
    """
    try:
        is_shown = emit({"error": {"code": code, "message": message, "hint": hint}}, form=form)
    except BrokenPipeError:
        return exit_code
    except OSError:
        is_shown = False
    if not is_shown:
        with suppress(OSError, SystemExit):  # Rich raises the latter where a pipe is closed
            if log_json:
                sys.stderr.write(logs.failure_line(code, message, hint) + "\n")
            else:
                _report_as_text(code, message, hint)
    return exit_code


def _report_as_text(code: str, message: str, hint: str) -> None:
    console = errors_console()
    console.print(f"[bold red]error[/] [bold]{code}[/]: ", end="")
    console.print(printable(message), markup=False)
    if hint:
        console.print("hint: ", style="cyan", end="")
        console.print(printable(hint), markup=False)
