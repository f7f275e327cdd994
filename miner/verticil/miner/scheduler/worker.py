"""The learning process: ``python -m verticil.miner.scheduler.worker MEMORY_BYTES``, started by `learning.SpawnedLearning`.

One line of JSON comes in (the job), lines of JSON go out: ``{"stage", "percent"}``, ``{"log", "level"}`` for the miner's log, and
at the end ``{"done": true, "result"}`` (a search's structure in hexadecimal; empty after learning) or ``{"code", "message",
"hint"}``. A second line that comes in asks to stop: a search stops at its next step and leaves a checkpoint, everything else ends
at once; both without a word. Standard input stays open as long as the miner lives: when it ends, this process ends at once; on
Linux the kernel sees to that, too, for the case that a library keeps all threads of Python waiting. An unexpected error is sent
as its type and place in our code, never its text, which could quote data.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import IO, Final

from verticil.shared.core.errors import VerticilError

_PR_SET_PDEATHSIG: Final = 1


def _listen_to_the_miner(stream: IO[bytes], stop: threading.Event, searching: Callable[[], bool]) -> None:
    def wait() -> None:
        while stream.readline() and searching():
            stop.set()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system: no limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


_NO_THREADS: Final = "the miner's operator can raise the limit on processes and threads of its user or container"
_NO_MEMORY: Final = ("cannot allocate memory", "failed to map segment")


def _in_words(error: Exception, memory_bytes: int) -> dict[str, str]:
    """Return the message and the hint of whatever ended the learning; no text of the error, which may hold anything."""
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(sign in text for sign in _NO_MEMORY):
        message = f"learning needs more than the {memory_bytes} bytes that a worker may use"
        return {"message": message, "hint": "the miner's operator can raise workers.memory_bytes"}
    if isinstance(error, RuntimeError | OSError) and ("start new thread" in text or "resource temporarily" in text):
        return {"message": "learning could start no thread", "hint": _NO_THREADS}
    message = f"learning ended with {type(error).__name__} at {_place(error)}"
    return {"message": message, "hint": "report it with the study document; it is a fault of verticil"}


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "verticil" in frame.filename]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "unknown place"


class _ForTheMiner(logging.Handler):
    """Hands log records to the miner, whose log has a form and a place."""

    def __init__(self, tell: Callable[[dict[str, str | int | bool]], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell({"log": record.getMessage(), "level": record.levelno})


def _do(line: bytes, report: Callable[[str, int], None], is_cancelled: Callable[[], bool]) -> str:
    """Do the job of this line; the bytes that it returns, hexadecimal."""
    from verticil.miner.scheduler.job import do_job, job_from

    return do_job(
        job_from(line), progress=report, is_cancelled=is_cancelled, clock=lambda: dt.datetime.now(dt.UTC)
    ).hex()


def main() -> int:
    """Read the job, do it, tell how it went."""
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints must not end among the messages
    lock = threading.Lock()

    def tell(message: dict[str, str | int | bool]) -> None:
        with lock:
            output.write(json.dumps(message).encode("ascii") + b"\n")
            output.flush()

    last_report: list[tuple[str, int]] = []

    def report(stage: str, percent: int) -> None:
        if last_report[-1:] != [(stage, percent)]:
            last_report[:] = [(stage, percent)]
            tell({"stage": stage, "percent": percent})

    memory_bytes = int(sys.argv[1])
    _limit_memory(memory_bytes)
    os.nice(5)  # the services answer first
    logger = logging.getLogger("verticil")
    logger.setLevel(logging.INFO)
    logger.addHandler(_ForTheMiner(tell))
    stop = threading.Event()
    line = sys.stdin.buffer.readline()
    try:
        _listen_to_the_miner(sys.stdin.buffer, stop, lambda: bool(last_report) and last_report[-1][0] == "searching")
    except RuntimeError:
        tell({"code": "LEARNING_FAILED", "message": "learning could start no thread", "hint": _NO_THREADS})
        return 0
    from verticil.miner.learning.search.protocol import LearningCancelled

    try:
        result = _do(line, report, stop.is_set)
    except LearningCancelled:
        pass
    except VerticilError as error:
        tell({"code": error.code, "message": error.message, "hint": error.hint})
    except Exception as error:  # noqa: BLE001 (the last place where it can be reported)
        tell({"code": "LEARNING_FAILED", **_in_words(error, memory_bytes)})
    else:
        tell({"done": True, "result": result})
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # the thread that waits for the miner's end would keep the interpreter from ending cleanly
