"""Assembly of the `verticil` command, and the one place where failures become exit codes.

Exit codes: 0 ok, 1 data and the unexpected, 2 command line and documents, 3 policy and budget, 4 approval,
5 network and identity, 6 a verification or gate failed, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.exceptions import Abort, TyperException

from verticil.cli.commands import Commands
from verticil.cli.output import Format, discard_unwritten, open_missing_streams, report, write_plainly
from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.core.installation import install_command
from verticil.shared.core.permissions import not_permitted
from verticil.shared.storage.disk import is_disk_full, write_fault

_NOT_OURS: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_WRONG_PATH: Final[dict[int | None, str]] = {
    errno.EEXIST: "a file stands where a folder is wanted",
    errno.ENOTDIR: "a file stands where a folder is wanted",
    errno.EISDIR: "is a folder, expected a file",
    errno.ENAMETOOLONG: "no file can have a name of this length",
    errno.ELOOP: "links that lead to each other",
}
_LONGEST_NAME: Final = 200  # characters of a path in a message
_OPTIONAL: Final = {
    "pandas": "analyst",
    "scipy": "peer",
    "numba": "miner",
    "sklearn": "evaluate",
}
"""Package that only some commands need -> the extra that has it."""

app = typer.Typer(
    name="verticil",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog="Example: verticil demo",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"verticil {version('verticil')}\n")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn one Bayesian network from columns held by different organisations, and publish synthetic data.

    No raw row leaves its owner. The owner's node randomizes every value before it leaves, as the owner's officers approved.
    """


def main(arguments: Sequence[str]) -> int:
    """Run one command and answer its exit code."""
    wants_json = "--format=json" in arguments or any(
        option == "--format" and value == "json" for option, value in pairwise(arguments)
    )
    tell = partial(report, form=Format.json if wants_json else Format.text, log_json="--log-json" in arguments)
    try:
        result: object = typer.main.get_command(app).main(
            args=list(arguments), prog_name="verticil", standalone_mode=False
        )
        sys.stdout.flush()  # what cannot be written is reported here, and not by the interpreter at its end
    except VerticilError as error:
        return _report_error(error, tell)
    except TyperException as error:
        message = error.format_message().replace(": Value error, ", ": ")  # which pydantic adds
        return tell("USAGE", message, _hint_of(error), 2)
    except (KeyboardInterrupt, Abort):
        result = 130
    except BrokenPipeError:
        return 1  # the reader of our output has gone, as `head` does
    except Exception as error:  # noqa: BLE001 - the last resort
        return _last_resort(error, tell)
    if result == 130:  # what Typer makes of Ctrl-C; no command ends so by itself
        return tell("INTERRUPTED", "interrupted", "", 130)
    return result if isinstance(result, int) else 0


def _hint_of(error: TyperException) -> str:
    """Return what the parameter is that is missing or wrong, and which command says more."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    command = "verticil" if context is None else context.command_path
    meaning = (getattr(parameter, "help", None) or "").replace("\\[", "[")  # help texts are markup, and hints are none
    return f"{meaning} {command} --help says what can be given, with an example".lstrip()


def _report_error(error: VerticilError, tell: Callable[[str, str, str, int], int]) -> int:
    return tell(error.code, error.message, error.hint, error.exit_code)


def _last_resort(error: Exception, tell: Callable[[str, str, str, int], int]) -> int:
    """Report a disk that is full or read-only, a file of another user, a path that can be none, or a fault of ours: a stable
    code, and no text that could carry a value.
    """
    if isinstance(error, ModuleNotFoundError) and (package := (error.name or "").partition(".")[0]) in _OPTIONAL:
        hint = install_command(_OPTIONAL[package])
        return _report_error(Misuse("USAGE", f"this command needs {package}, which is not installed", hint=hint), tell)
    if isinstance(error, OSError) and (is_disk_full(error) or error.errno in _NOT_OURS):
        where = error.filename if isinstance(error.filename, str) else "a file that was being written"
        fault = write_fault(error, Path(where), hint="make room there and run it again")
        return _report_error(not_permitted(error, Path(where)) or fault, tell)
    if isinstance(error, OSError) and error.errno in _WRONG_PATH and isinstance(name := error.filename, str):
        name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}.."
        return _report_error(
            Misuse("FILE_MISSING", f"{name}: {_WRONG_PATH[error.errno]}", hint="give another path"), tell
        )
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} at {frame.name}, line {frame.lineno} of {frame.filename.rsplit('/', 1)[-1]}"
    return tell("INTERNAL", f"unexpected error: {place}", "this is a fault of verticil: please report it", 1)


def run() -> None:
    """Entry point of the `verticil` command."""
    # One thread for products of matrices: threads that share busy cores spin, which took 8 times the CPU seconds of one thread.
    # numpy reads it when it is imported, which no module has done yet.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    open_missing_streams()
    write_plainly(sys.stdout, sys.stderr)
    try:
        code = main(sys.argv[1:])
    finally:
        has_written = discard_unwritten()
    sys.exit(code or (0 if has_written else 1))
