"""What a daemon says of its own health: every few seconds in ``health`` in its state folder, and to systemd where that asks.

Promises
- The file is written at the pace of the event loop, by a worker thread: when loop, threads or disk hang, it grows old.
- It is overwritten in place and never grows, so that a full disk does not keep a daemon from saying that the disk is full.
- Who looks needs no Python: ``verticil-probe STATE`` (deploy/verticil-probe) reads it with a shell's own words. `judge` is the
  same rule, for ``verticil healthcheck``.
- A daemon that ends with an error leaves that as its last word. A second daemon, which the state's lock refuses, writes nothing.
- To systemd (``NOTIFY_SOCKET``) it says READY=1 when it serves, WATCHDOG=1 after each writing, and STOPPING=1. A full disk or an
  expired certificate is no reason to be started again, and keeps no WATCHDOG=1 back.

The file holds codes, paths, counts and times; never a value of a table. Its lines are: a mark, the format, the machine's boot,
the process, the machine's seconds since that boot (``-``: it has ended), exit code and code (0 and OK: it serves); a sentence;
a hint; blanks. Of the machine's boot and seconds, and not of the time of day, because clocks are set.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import CODES, DataFault, InternalFault, PeerFault, VerticilError, from_code, printable
from verticil.shared.core.permissions import not_permitted

FILE_NAME: Final = "health"
STALE_SECONDS: Final = 30
"""A daemon whose process lives and that has said nothing for longer hangs. As in deploy/verticil-probe."""

_BEAT_SECONDS: Final = 5.0
_MARK: Final = "verticil-health"
_FORMAT: Final = "1"
_BYTES: Final = 1024
_LEAST_ROOM: Final = 1 << 20
_LEAST_INODES: Final = 16
_MAKE_ROOM: Final = "make room there; the daemon goes on by itself"
_START: Final = "start it: verticil party run, or verticil miner run"

_log = logging.getLogger(__name__)


def require_room(directory: Path, *, reserve_bytes: int = 0) -> None:
    """Check that a state folder's disk has room for work to go on.

    Raises:
        DataFault: DISK_FULL, less than `reserve_bytes` or 1 MiB, whichever is more, is left; and as `require_inodes`.
    """
    require_inodes(directory)
    least, free = max(reserve_bytes, _LEAST_ROOM), shutil.disk_usage(directory).free
    if free < least:
        problem = f"{directory}: {free:,} bytes are left on the disk, expected at least {least:,}: work waits"
        raise DataFault("DISK_FULL", problem, hint=_MAKE_ROOM)


def require_inodes(directory: Path) -> None:
    """Check that new files can be made in a folder, which a file system without free inodes refuses.

    Raises:
        DataFault: DISK_FULL, fewer than 16 inodes are free, though bytes may be.
    """
    room = os.statvfs(directory)
    if room.f_files and room.f_favail < _LEAST_INODES:  # a file system that counts no inodes says 0 of 0
        free = f"{room.f_favail:,} of {room.f_files:,} inodes are free, expected at least {_LEAST_INODES}"
        problem = (
            f"{directory}: {free}: new files cannot be made, though {room.f_bavail * room.f_frsize:,} bytes are free"
        )
        raise DataFault("DISK_FULL", problem, hint="move files of other programs away from this disk")


class Waiting:
    """What of a daemon's work waits for room on its disk. Safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: dict[object, VerticilError] = {}

    def note(self, what: object, error: VerticilError | None) -> None:
        """Say how a piece of work went.

        Args:
            what: which piece.
            error: it failed with this; None: it went on. Only a full disk of this machine is waited for here.
        """
        with self._lock:
            if error is not None and error.code == "DISK_FULL" and not error.teller:
                self._errors[what] = error
            else:
                self._errors.pop(what, None)

    def check(self) -> None:
        """Raise what is waited for, if anything is."""
        with self._lock:
            error = next(iter(self._errors.values()), None)
        if error is not None:
            raise DataFault(error.code, f"work waits: {error.message}", hint=_MAKE_ROOM)


class Vitals:
    """The health of one daemon; made by `living`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._descriptor: int | None = None
        self._look: Callable[[], str] | None = None
        self._roused = asyncio.Event()
        self._trouble = ""
        self._writing = threading.Lock()
        self._ended = False

    def serving(self, look: Callable[[], str]) -> None:
        """Record that the daemon serves.

        Args:
            look: how it is, in words, whenever it is called in a worker thread; it raises the VerticilError that keeps the daemon
                from its work and that somebody must mend.
        """
        if self._look is None:
            self._look = look
            _notify("READY=1")
        self._roused.set()

    async def beat(self) -> None:
        """Say how the daemon is, again and again."""
        pace = min(_BEAT_SECONDS, int(os.environ.get("WATCHDOG_USEC") or 60_000_000) / 3e6)
        while True:
            self._roused.clear()
            await asyncio.to_thread(self._say)
            if self._look is not None:
                _notify("WATCHDOG=1")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pace):
                    await self._roused.wait()

    def _say(self) -> None:
        if self._look is None:
            self._write(PeerFault("NOT_READY", "the daemon is starting", hint="ask again in a moment"), ended=False)
            return
        try:
            report: VerticilError | str = self._look()
        except VerticilError as error:
            report = error
        except Exception as error:  # noqa: BLE001 (a daemon must not be taken for dead because of it)
            report = InternalFault("INTERNAL", f"the health of the daemon cannot be determined: {type(error).__name__}")
        trouble = report.code if isinstance(report, VerticilError) else ""
        if trouble != self._trouble:
            if isinstance(report, VerticilError):
                _log.warning("%s", report)
            else:
                _log.info("%s is over", self._trouble)
            self._trouble = trouble
            _notify(
                f"STATUS={report.code}: {report.message}" if isinstance(report, VerticilError) else f"STATUS={report}"
            )
        self._write(report, ended=False)

    def end(self, error: VerticilError | None) -> None:
        """Write the last word: why the daemon ended; None: it was stopped."""
        end_fault = PeerFault("NOT_READY", "the daemon was stopped", hint=_START)
        self._write(end_fault if error is None else error, ended=True)
        with self._writing:
            self._ended = True  # a worker thread may still be about to say otherwise
            if self._descriptor is not None:
                os.close(self._descriptor)

    def _write(self, said: VerticilError | str, *, ended: bool) -> None:
        code, exit_code, words, hint = (
            (said.code, said.exit_code, said.message, said.hint)
            if isinstance(said, VerticilError)
            else ("OK", 0, said, "")
        )
        at = "-" if ended else str(_seconds_since_boot())
        facts = f"{_MARK} {_FORMAT} {_boot()} {os.getpid()} {at} {exit_code} {code}"
        text = "".join(f"{_one_line(line, limit)}\n" for line, limit in ((facts, 200), (words, 400), (hint, 300)))
        with self._writing, contextlib.suppress(OSError):  # then the file grows old, and that is seen
            if not self._ended and (descriptor := self._opened()) is not None:
                os.pwrite(descriptor, text.encode().ljust(_BYTES - 1) + b"\n", 0)

    def _opened(self) -> int | None:
        """Return the file, held as long as the daemon lives; None: another daemon holds it, or this one never served and
        there is none.

        It is made by a daemon that serves: in a folder without a state it would look like the remains of one.
        """
        if self._descriptor is None:
            make = os.O_CREAT if self._look is not None else 0
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | make, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return None
            self._descriptor = descriptor
        return self._descriptor


@contextlib.asynccontextmanager
async def living(directory: Path, stop: asyncio.Event) -> AsyncGenerator[Vitals]:
    """Say while the block lasts how the daemon is, and at its end why.

    Args:
        directory: the state folder.
        stop: ends the daemon in good order.
    """
    vitals = Vitals(directory)

    async def stopping() -> None:
        await stop.wait()
        _notify("STOPPING=1")

    tasks = (asyncio.create_task(vitals.beat()), asyncio.create_task(stopping()))
    error: VerticilError | None = None
    try:
        yield vitals
    except VerticilError as caught:
        error = caught
        raise
    except Exception as caught:
        error = InternalFault("INTERNAL", f"the daemon ended with {type(caught).__name__}", hint="see its log")
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(vitals.end, error)


def judge(directory: Path) -> str:
    """Return what the daemon of a state folder says of itself.

    Args:
        directory: the state folder, on this machine.

    Returns:
        A line for people.

    Raises:
        VerticilError: what keeps the daemon from its work, or ended it; NOT_READY, it is dead, hangs or never served here.
    """
    path = directory / FILE_NAME
    try:
        facts, words, hint, *_ = path.read_text(encoding="utf-8").split("\n")
        mark, version, boot, process, at, _, code = facts.split()
        age = 0 if at == "-" else _seconds_since_boot() - int(at)
    except (OSError, ValueError) as error:
        denied = not_permitted(error, path) if isinstance(error, OSError) else None
        raise denied or PeerFault("NOT_READY", f"{path}: no daemon has served here", hint=_START) from None
    if (mark, version) != (_MARK, _FORMAT) or (code != "OK" and code not in CODES):
        raise PeerFault("NOT_READY", f"{path}: another version of verticil wrote it", hint="use that version's program")
    if at != "-" and _is_gone(path, boot, process):
        raise PeerFault("NOT_READY", "the daemon is dead: its process is gone", hint=_START)
    if at != "-" and not 0 <= age <= STALE_SECONDS:
        hint = "look at its log; where that says nothing, start it again"
        raise PeerFault("NOT_READY", f"the daemon hangs: no sign of life for {age} s", hint=hint)
    if code == "OK":
        return words
    raise from_code(code, words, hint=hint)


def has_ended(directory: Path) -> bool:
    """Return whether the daemon that served a state folder has ended; False, too, where its health file says nothing of that."""
    path = directory / FILE_NAME
    try:
        boot, process, at = path.read_text(encoding="utf-8").split()[2:5]
        return at == "-" or _is_gone(path, boot, process)
    except (OSError, ValueError):
        return False


def _is_gone(path: Path, boot: str, process: str) -> bool:
    """Return whether a daemon's process is not on this machine and does not hold its health file.

    In another container the same process has another number: there only the lock tells.
    """
    if boot != _boot():
        return True
    if Path("/proc", process).is_dir():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _notify(words: str) -> None:
    """Tell systemd, if it has started this process and wants to know (sd_notify)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in {"/", "@"}:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)
        line.sendto(words.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def _one_line(text: str, limit: int) -> str:
    """Return the text printable, of at most so many bytes of UTF-8."""
    return printable(text).encode()[:limit].decode(errors="ignore")


def _boot() -> str:
    """Return a name of the time since the machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "none"


def _seconds_since_boot() -> int:
    """Return the seconds since the machine was started, as everybody on this machine counts them."""
    try:
        return int(Path("/proc/uptime").read_text(encoding="ascii").split(".")[0])
    except OSError:
        return int(time.monotonic())
