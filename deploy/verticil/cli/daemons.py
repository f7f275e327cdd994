"""How a daemon runs in the foreground: signals, the parent that may vanish, and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from verticil.cli.output import Format
from verticil.shared.core import logs
from verticil.shared.core.health import Vitals, living

_HANGUP: Final = (
    "SIGHUP changes nothing: the node reads new certificates, deny-lists and approvers by itself; SIGTERM stops it"
)

_log = logging.getLogger(__name__)


class LogLevel(StrEnum):
    """How much a daemon tells."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="Amount of logging.")]
LogJsonOption = Annotated[bool, typer.Option("--log-json", help="Logs as JSON lines.")]
WithParentOption = Annotated[bool, typer.Option("--with-parent", hidden=True)]
SeedDerivedOption = Annotated[bool, typer.Option("--seed-derived", hidden=True)]


def log_to_standard_error(level: LogLevel, *, log_json: bool, form: Format) -> None:
    """Begin to log: JSON lines where these were asked for, or answers in JSON."""
    logs.configure(as_json=log_json or form is Format.json, level=logging.getLevelNamesMapping()[level.value.upper()])


def require_private_keys(key: Path, signing_key: Path) -> None:
    """Refuse to start with private keys that others on this machine may use.

    Raises:
        Misuse: CONFIG_INVALID.
    """
    from verticil.shared.federation.identity.pki import require_private

    require_private({"private key": key, "signing key": signing_key})


def run_until_stopped(
    serve: Callable[[asyncio.Event, Vitals], Awaitable[None]], *, state: Path, with_parent: bool
) -> None:
    """Run `serve(stop, vitals)` in an event loop of its own; SIGTERM and SIGINT set `stop`, and `serve` ends by itself.

    SIGHUP is logged and changes nothing: a node that was started with ``&`` outlives its terminal.

    Args:
        serve: the daemon.
        state: its state folder, where it says how it is.
        with_parent: stop, too, when standard input ends, that is when the process that started us is gone.
    """

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, _log.info, _HANGUP)
        if with_parent:
            _watch_standard_input(loop, stop)
        async with living(state, stop) as vitals:
            await serve(stop, vitals)

    asyncio.run(main())


def _watch_standard_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    def watch() -> None:
        # A raw read: the buffered reader's lock would be held by this thread while the interpreter shuts down.
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
