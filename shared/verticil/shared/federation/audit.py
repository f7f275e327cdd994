"""The audit log of both sides: lines of canonical JSON, each of which holds the hash of the one before.

Promises
- A line of the file is canonical JSON (RFC 8785), readable with any tool. It holds its number, the SHA-256 of the line before
  (``previous``) and its own (``hash``: SHA-256 of the line without that key). So a changed byte breaks the line that it is in,
  and a removed, repeated or inserted line the one after it.
- The number and hash of the last line, and the size of the file, are kept elsewhere besides (`Anchor`), so that a log that was
  cut off at its end, or written anew from the first line, is found too.
- A line is on the disk (fsync) when `ChainedLog.append` returns.
- One line at a time: lines are written inside the anchor's transaction. A process that is killed while it writes leaves a torn
  last line; the next one cuts it off and says so in a line of its own. A log that was cut off before its anchor is continued,
  with a line that says what was missing; `ChainedLog.verify` never forgives that.

What it cannot do: the chain has no secret. A program that writes both the file and the anchor can write another history. The file
is never rotated; who writes to it bounds what is written (`verticil.shared.federation.refusals`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

import rfc8785

from verticil.shared.core.errors import GateFailed, VerticilError
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.view_models import inlined
from verticil.shared.storage.durable import sync_directory, sync_file

DAEMON: Final = "daemon"
"""Who acts when no person does."""
TORN_LINE: Final = "torn-line"
LOG_BROKEN: Final = "log-broken"
"""What the log says of itself."""

_START: Final = bytes(32)
_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last whole line.

    Attributes:
        hash: its SHA-256.
        number: counted from 1; 0 where there is no line.
        size: where it ends in the file.
    """

    hash: bytes = _START
    number: int = 0
    size: int = 0


class Anchor(Protocol):
    """Where the head is kept, outside of the log. Safe in several threads."""

    def transaction(self) -> AbstractContextManager[None]:
        """Open the only write transaction; what is set inside is on the disk when it ends without an error."""
        ...

    def head(self) -> Head:
        """Return the last line that is known to be on the disk."""
        ...

    def set_head(self, head: Head) -> None:
        """Store the last line."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A log that holds.

    Attributes:
        n_lines: how many there are.
        head: SHA-256 of the last line.
        torn: numbers of the lines that tell of a torn line before them.
        unfinished_bytes: of a torn line at the end, which the next event will cut off.
    """

    n_lines: int
    head: bytes
    torn: tuple[int, ...]
    unfinished_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """A line of an audit log as it stands. Of one that was tampered with nothing can be relied on: all is read as text."""

    said: Mapping[str, Json] = inlined()

    def text(self, key: str) -> str:
        """Return the text under `key`; empty: none."""
        return str(self.said.get(key, ""))

    @property
    def columns(self) -> str:
        """The names of the columns."""
        names = self.said.get("columns")
        return ", ".join(map(str, names)) if isinstance(names, list) else ""

    def number(self, key: str) -> float | None:
        """Return the number under `key`; None: there is none."""
        value = self.said.get(key)
        return value if isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLines:
    """Lines of an audit log, oldest first."""

    entries: tuple[AuditLine, ...]


class ChainedLog:
    """A log of one file; see the module's promises.

    Args:
        path: the file; made with the first line, mode 0600.
        anchor: where its head is kept.
        fault: the node's error for a file that cannot be read or written.
    """

    def __init__(self, path: Path, anchor: Anchor, *, fault: Callable[[OSError, Path], VerticilError]) -> None:
        self.path = path
        self._anchor = anchor
        self._fault = fault

    def append(self, fields: Mapping[str, object], at: dt.datetime) -> int:
        """Write a line; it is on the disk when this returns.

        Args:
            fields: what it says; JSON values. ``n``, ``at``, ``previous`` and ``hash`` are added.
            at: when, UTC.

        Returns:
            Where in the file it begins.

        Raises:
            DataFault: what the anchor and `fault` raise; then nothing was written.
        """
        with self._anchor.transaction(), self._open_log() as descriptor:
            head, notes = self._head(descriptor)
            lines = bytearray()
            for item in (*notes, fields):
                line, sha256 = _line(item, head, at)
                lines += line
                head = Head(number=head.number + 1, hash=sha256, size=head.size + len(line))
            _append(descriptor, self.path, bytes(lines), end=head.size - len(lines))
            self._anchor.set_head(head)
            return head.size - len(lines)

    def catch_up(self) -> None:
        """Take the whole lines that follow the anchor's for known: a process was killed before it could.

        Raises:
            DataFault: as `append`.
        """
        with self._anchor.transaction(), self._open_log() as descriptor:
            anchor = self._anchor.head()
            if os.fstat(descriptor).st_size > anchor.size:
                self._anchor.set_head(_follow(_read(descriptor, anchor.size), anchor) or anchor)

    def verify(self) -> Verified:
        """Check the whole log against itself and against the anchor.

        Raises:
            GateFailed: AUDIT_BROKEN, naming the line.
            DataFault: STATE_CORRUPT, it cannot be read.
        """
        with self._anchor.transaction():  # no line is written meanwhile
            anchor = self._anchor.head()
            try:
                data = self.path.read_bytes() if anchor.number or self.path.exists() else b""
            except FileNotFoundError:
                data = b""
            except OSError as error:
                raise self._fault(error, self.path) from None
        return verify(data, anchor_number=anchor.number, anchor_hash=anchor.hash, name=self.path.name)

    def entries(self) -> Iterator[Mapping[str, Json]]:
        """Yield all whole lines, oldest first, unverified."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return iter(())
        except OSError as error:
            raise self._fault(error, self.path) from None
        return entries(data)

    @contextlib.contextmanager
    def _open_log(self) -> Generator[int]:
        try:
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if is_new:
                    sync_directory(self.path.parent)
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._fault(error, self.path) from None

    def _head(self, descriptor: int) -> tuple[Head, list[Mapping[str, object]]]:
        """Return where the next line goes, and what has to be said about the state in which the file was found."""
        anchor = self._anchor.head()
        size = os.fstat(descriptor).st_size
        if size == anchor.size:
            return anchor, []
        if size > anchor.size:
            # A process was killed between writing a line and writing the anchor, or in the middle of the line.
            rest = _read(descriptor, anchor.size)
            head = _follow(rest, anchor)
            if head is not None:
                return head, _torn_fields(rest[head.size - anchor.size :])
        data = _read(descriptor, 0)
        whole = data[: data.rfind(b"\n") + 1]
        n_lines = whole.count(b"\n")
        damage = {
            "event": LOG_BROKEN,
            "who": DAEMON,
            "sha256": anchor.hash.hex(),
            "detail": f"{n_lines} lines found; line {anchor.number} had been written, with this hash",
        }
        return Head(number=n_lines, hash=_last_hash(whole), size=len(whole)), [
            *_torn_fields(data[len(whole) :]),
            damage,
        ]


def _line(fields: Mapping[str, object], head: Head, at: dt.datetime) -> tuple[bytes, bytes]:
    body = {**fields, "n": head.number + 1, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "previous": head.hash.hex()}
    sha256 = hashlib.sha256(_canonical(body)).digest()
    return _canonical({**body, "hash": sha256.hex()}) + b"\n", sha256


def _canonical(body: Mapping[str, object]) -> bytes:
    return rfc8785.dumps(dict(body))  # type: ignore[arg-type]  # values are JSON; dict is invariant


def _append(descriptor: int, path: Path, data: bytes, *, end: int) -> None:
    """Write whole lines at `end`, where the last whole line ended, and flush them; a failed write leaves nothing."""
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        sync_file(descriptor, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


def _read(descriptor: int, offset: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    data = bytearray()
    while block := os.read(descriptor, _BLOCK):
        data += block
    return bytes(data)


def _torn_fields(tail: bytes) -> list[Mapping[str, object]]:
    if not tail:
        return []
    sha256 = hashlib.sha256(tail).hexdigest()
    detail = "an unfinished last line was cut off; what it spoke of was not begun"
    return [{"event": TORN_LINE, "who": DAEMON, "bytes": len(tail), "sha256": sha256, "detail": detail}]


def _follow(rest: bytes, head: Head) -> Head | None:
    """Return the last whole line of `rest`, whose lines follow `head`; None: they do not."""
    for line in rest.split(b"\n")[:-1]:
        if _problem(line, head):
            return None
        head = Head(number=head.number + 1, hash=_hash_of(line), size=head.size + len(line) + 1)
    return head


def _hash_of(line: bytes) -> bytes:
    try:
        return bytes.fromhex(str(json.loads(line)["hash"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return hashlib.sha256(line).digest()  # of a line that is none: the chain goes on from what it is


def _last_hash(whole: bytes) -> bytes:
    return _hash_of(whole.split(b"\n")[-2]) if whole else _START


def _problem(line: bytes, head: Head) -> str:
    """Return what is wrong with the line that follows `head`; empty: nothing."""
    try:
        fields = cast("dict[str, object]", dict(json.loads(line)))
        sha256 = hashlib.sha256(_canonical({key: value for key, value in fields.items() if key != "hash"})).hexdigest()
        canonical = _canonical(fields)
    except (ValueError, TypeError, RecursionError):  # rfc8785's errors are ValueErrors
        return "it is not the JSON object of an event"
    number, previous = str(fields.get("n"))[:20], head.hash.hex()
    problems = (
        (fields.get("hash") == sha256, "it was changed: its hash is not that of its content"),
        (canonical == line, "it was changed: it is not the canonical JSON of its content"),
        (number == str(head.number + 1), f"its number is {number}: lines are missing, repeated or inserted before it"),
        (fields.get("previous") == previous, "it does not follow the line before it, which was removed or replaced"),
    )
    return next((problem for holds, problem in problems if not holds), "")


def verify(data: bytes, *, anchor_number: int, anchor_hash: bytes, name: str) -> Verified:
    """Check a log.

    Args:
        data: the file.
        anchor_number, anchor_hash: the last line that the site knows of; 0 and 32 zero bytes: none.
        name: of the file, for messages.

    Raises:
        GateFailed: AUDIT_BROKEN, naming the first line that does not hold.
    """
    head, torn_lines = Head(), list[int]()
    end = data.rfind(b"\n") + 1
    for line in data[:end].split(b"\n")[:-1]:
        number = head.number + 1
        problem = _problem(line, head)
        entry = cast("dict[str, object]", {} if problem else json.loads(line))
        if not problem and number == anchor_number and bytes.fromhex(str(entry["hash"])) != anchor_hash:
            problem = "another line had been written here: the log was written anew up to it"
        if not problem and entry["event"] == LOG_BROKEN:
            problem = f"it says that the log was found broken: {entry['detail']}"
        if problem:
            raise _make_broken_fault(name, number, problem)
        if entry["event"] == TORN_LINE:
            torn_lines.append(number)
        head = Head(number=number, hash=bytes.fromhex(str(entry["hash"])), size=head.size + len(line) + 1)
    if head.number < anchor_number:
        problem = "it is missing" if end == len(data) else "it is not ended"
        raise _make_broken_fault(name, head.number + 1, f"{problem}; {anchor_number} lines had been written")
    return Verified(n_lines=head.number, head=head.hash, torn=tuple(torn_lines), unfinished_bytes=len(data) - end)


def _make_broken_fault(name: str, line: int, problem: str) -> GateFailed:
    return GateFailed(
        "AUDIT_BROKEN",
        f"{name}: line {line}: {problem}",
        hint="keep the file as it is, and compare it with your backup and with the heads that you noted",
    )


def entries(data: bytes) -> Iterator[Mapping[str, Json]]:
    """Yield the whole lines of a log that are JSON objects."""
    for line in data.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError, RecursionError):
            entry = cast("object", json.loads(line))
            if isinstance(entry, dict):
                yield cast("dict[str, Json]", entry)
