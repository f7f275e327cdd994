"""How commands answer: text for people, or with ``--format json`` exactly one JSON object on standard output.

Logs, progress and text errors go to standard error; with ``--format json`` an error is the one object on standard output:
``{"error": {"code", "message", "hint"}}``.

Files that commands write: secrets (never overwritten, readable by their owner only) and TOML documents.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verticil.shared.disk import create_file, write_fault
from verticil.shared.errors import Misuse, VerticilError
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


def epsilon_text(value: object) -> str:
    """An epsilon in two decimals, rounded up (a privacy statement never errs downwards); ∞ without a bound.

    >>> epsilon_text(36.8904), epsilon_text(3.0), epsilon_text(float("inf")), epsilon_text(None)
    ('36.90', '3.00', '∞', '∞')
    """
    if not isinstance(value, int | float) or math.isinf(value):
        return "∞"
    return f"{math.ceil(value * 100 - 1e-6) / 100:.2f}"


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


def quoted(text: str) -> str:
    """`text` as a TOML basic string.

    >>> quoted('a"b')
    '"a\\\\"b"'
    """
    return json.dumps(text, ensure_ascii=False)


def _write(path: Path, text: str, mode: int) -> Path:
    _make_folder(path.parent)
    create_file(path, text.encode("utf-8"), mode=mode, exists_hint="name another file, or remove this one first")
    return path


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_fault(error, path) from None


def write_secret(path: Path, text: str) -> Path:
    """Write a new file of mode 0600.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING.
        DataFault: DISK_FULL; there is no file then.
    """
    return _write(path, text, 0o600)


def write_new(path: Path, text: str) -> Path:
    """Write a new document.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING.
        DataFault: DISK_FULL; there is no file then.
    """
    return _write(path, text, 0o644)


def write_federation(
    path: Path,
    *,
    name: str,
    ca_certificate: str,
    ca_sha256: str,
    endpoint: str | None,
    peers: Mapping[str, str] | None = None,
    sealing: Mapping[str, str] | None = None,
) -> Path:
    """Write federation.toml, the public document that is the same at every site.

    Args:
        path: the new file.
        name: of the federation.
        ca_certificate: path of the authority's certificate, relative to the file.
        ca_sha256: SHA-256 of that certificate.
        endpoint: host:port of the miner; None: there is none.
        peers: host:port of each party that serves its peers; "relay" for one that is reached through the miner.
        sealing: public sealing key of each party that has one, hexadecimal.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING.
        DataFault: DISK_FULL; there is no file then.
    """
    text = f"schema = 1\nname = {quoted(name)}\nca_certificate = {quoted(ca_certificate)}\nca_sha256 = {quoted(ca_sha256)}\n\n"
    if endpoint is not None:
        text += f"[miner]\nendpoint = {quoted(endpoint)}   # must be a SAN of the miner's certificate\n\n"
    if peers:
        text += "[peers]   # where each party serves the others\n"
        text += "".join(f"{party} = {quoted(address)}\n" for party, address in peers.items()) + "\n"
    if sealing:
        text += (
            "[sealing]   # public keys for what passes through the miner between parties; compare them by telephone\n"
        )
        text += "".join(f"{party} = {quoted(digits)}\n" for party, digits in sealing.items()) + "\n"
    return write_new(path, text + "[transport]\nidle_timeout_seconds = 120\nchunk_bytes = 524288\n")


def new_folder(path: Path) -> Path:
    """Make a folder for results; an empty one is taken as it is.

    Raises:
        Misuse: FILE_EXISTS when there is something in it.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise Misuse("FILE_EXISTS", f"{path}: exists already and is not empty", hint="name another folder with --out")
    _make_folder(path)
    return path
