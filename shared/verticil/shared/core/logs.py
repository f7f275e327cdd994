"""Log lines on stderr: one line an event, as text for people or as JSON for machines.

The loggers are those of the standard library (``logging.getLogger(__name__)``). `configure` is called once, by the program;
`fields` marks every line that is logged inside it with a study, a party or a request.

No line carries a data value or a record id. Our own messages follow that rule where they are written. Other people's do not:
an exception of pandas quotes the cell that it could not read, asyncio quotes exceptions. So of an exception that is not a
`VerticilError` only the type and the places in the code are shown, and of another library's message only the first line of its
template, without what was to be filled in.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import sys
import traceback
from collections.abc import Generator
from contextvars import ContextVar
from pathlib import Path
from typing import Final, TextIO

from verticil.shared.core.errors import VerticilError, printable

_FIELDS: Final[ContextVar[tuple[tuple[str, str], ...]]] = ContextVar("verticil_log_fields", default=())
_FRAMES: Final = 8
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@contextlib.contextmanager
def fields(*, study: str | None = None, party: str | None = None, request: str | None = None) -> Generator[None]:
    """Mark the lines logged inside, in this task and the tasks and threads that it starts.

    Args:
        study: the study's id or the start of its digest.
        party: a party's name.
        request: what tells one request from another.
    """
    new_fields = {"study": study, "party": party, "request": request}
    all_fields = dict(_FIELDS.get()) | {key: value for key, value in new_fields.items() if value is not None}
    token = _FIELDS.set(tuple(all_fields.items()))
    try:
        yield
    finally:
        _FIELDS.reset(token)


class Formatter(logging.Formatter):
    """One line for each record, without anything that may quote data.

    Args:
        as_json: one JSON object a line; else text.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Format the line of a record."""
        time = dt.datetime.fromtimestamp(record.created, dt.UTC).strftime(_TIME)
        entry = {"time": time, "level": record.levelname.lower(), "logger": record.name, **dict(_FIELDS.get())}
        entry["message"] = _message(record)
        if record.exc_info is not None and (error := record.exc_info[1]) is not None:
            entry["error"] = _described(error)
        if self._as_json:
            return json.dumps(entry, ensure_ascii=False)
        marks = "".join(f" {key}={value}" for key, value in _FIELDS.get())
        text = f"{time} {record.levelname:<7} {entry['message']}{marks}"
        return printable(f"{text}; {entry['error']}" if "error" in entry else text)


def _message(record: logging.LogRecord) -> str:
    if record.name == "verticil" or record.name.startswith("verticil."):
        return record.getMessage()
    template = str(record.msg).splitlines()
    return f"{record.name}: {template[0] if template else ''}"


def _described(error: BaseException) -> str:
    if isinstance(error, VerticilError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{type(error).__name__} at {places or 'an unknown place'}"


def failure_line(code: str, message: str, hint: str) -> str:
    """Write the JSON line with which a program ends that has failed: the last line of its log.

    Args:
        code: the error's code.
        message: the error's message.
        hint: what the reader can do; may be empty.
    """
    entry = {"time": dt.datetime.now(dt.UTC).strftime(_TIME), "level": "error", "logger": "verticil"}
    return json.dumps({**entry, "message": message, "code": code, "hint": hint})


def configure(*, as_json: bool = False, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send all log lines to stderr; replaces what was set up before.

    Call it before grpc is imported: grpc's core writes lines of its own to stderr unless its environment variable
    GRPC_VERBOSITY says otherwise when it is loaded.

    Args:
        as_json: one JSON object a line; else text.
        level: of our own loggers; of other libraries', at least WARNING.
        stream: where to; stderr when absent.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(Formatter(as_json=as_json))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("verticil").setLevel(level)
    logging.captureWarnings(capture=True)
