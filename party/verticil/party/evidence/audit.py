"""The audit log: who did what with which data at this site, in lines that cannot be changed unnoticed.

Promises
- ``state/audit.jsonl`` has one line of canonical JSON (RFC 8785) for each event, readable with any tool. A line holds its
  number, the SHA-256 of the line before (``previous``) and its own (``hash``: SHA-256 of the line without that key). So a
  changed byte breaks the line that it is in, and a removed, repeated or inserted line the one after it.
- The number and hash of the last line, and the size of the file, are in the database besides (the anchor), so that a log that
  was cut off at its end, or written anew from the first line, is found too.
- A line is on the disk (fsync) when `AuditLog.record` returns. Whoever does something that leaves the site records it first; so
  the log may speak of a transfer that was then not begun, because the process died between the two, and is never silent about
  one that was.
- One line at a time, across threads and processes: lines are written inside a write transaction of the database. A process that
  is killed while it writes leaves a torn last line; the next one cuts it off and says so in a line of its own. A log that was
  cut off before its anchor is continued, with a line that says what was missing; `verify` never forgives that.
- It holds names, counts, digests and codes: no value of a table, no record id, no key.

What it cannot do: the chain has no secret. Whoever may write both the file and the database of this site can write another
history. Note the head that ``verticil party audit verify`` prints, outside this machine, to be safe from that too. The file is
never rotated: an event takes some 400 bytes, a study some ten or twenty events.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import math
import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, cast

import rfc8785

from verticil.party.control.database import Database, disk_fault
from verticil.shared.durable import sync_directory, sync_file
from verticil.shared.errors import GateFailed

__all__ = ["DAEMON", "FILE_NAME", "Audit", "AuditLog", "Event", "Verified", "What", "entries", "verify"]

FILE_NAME: Final = "audit.jsonl"
DAEMON: Final = "daemon"
"""Who acts when no person does."""

_START: Final = bytes(32)
_BLOCK: Final = 1 << 16


class What(StrEnum):
    """The kinds of events."""

    STUDY_SEEN = "study-seen"
    CHECK = "check"
    VOTE = "vote"
    APPROVAL = "approval"
    DENIAL = "denial"
    COUNTERSIGNATURE = "countersignature"
    SUB_MODEL = "sub-model"
    ALIGNMENT = "alignment"
    SIMILAR_PEOPLE = "similar-people"
    RANDOMIZED = "randomized"
    SEND = "send"
    SHARED = "shared"
    RECEIPT = "receipt"
    FAILURE = "failure"
    REVOCATION = "revocation"
    TRANSFER_STOPPED = "transfer-stopped"
    DELETION = "deletion"
    REFUSED = "refused"
    CERTIFICATE = "certificate"
    CONFIGURATION = "configuration"
    RESTORED = "restored"
    LEDGER_MENDED = "ledger-mended"
    PURGED = "purged"
    TORN_LINE = "torn-line"
    LOG_BROKEN = "log-broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened.

    Attributes:
        what: of which kind.
        who: a person, a node, or `DAEMON`.
        study: digest of the proposal; empty: it is about no study.
        study_id: for people.
        columns: the study's names of what it is about.
        epsilon, charged: of the columns, and what the ledger charged; may be infinite.
        size, sha256: of the bytes that it is about.
        recipient: who gets them.
        peer_event: SHA-256 of what the other side signed about the same event.
        detail: a code, a count or what a person wrote; never a value of a table.
    """

    what: What
    who: str
    study: bytes = b""
    study_id: str = ""
    columns: tuple[str, ...] = ()
    epsilon: float | None = None
    charged: float | None = None
    size: int | None = None
    sha256: bytes = b""
    recipient: str = ""
    peer_event: bytes = b""
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        """What the log says of it; what is empty is left out."""
        said: dict[str, object] = {
            "event": str(self.what),
            "who": self.who,
            "study": self.study.hex(),
            "study_id": self.study_id,
            "columns": list(self.columns),
            "epsilon": _finite(self.epsilon),
            "charged": _finite(self.charged),
            "bytes": self.size,
            "sha256": self.sha256.hex(),
            "recipient": self.recipient,
            "peer_event": self.peer_event.hex(),
            "detail": self.detail,
        }
        return {key: value for key, value in said.items() if value not in (None, "", [])}


def _finite(value: float | None) -> float | str | None:
    return "infinite" if value is not None and math.isinf(value) else value


class Audit(Protocol):
    """Where events are written down."""

    def record(self, event: Event, at: dt.datetime) -> None:
        """Write an event; it is on the disk when this returns.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT, STATE_LOCKED; then what it speaks of must not happen.
        """
        ...

    def note(self, what: What, sha256: bytes, at: dt.datetime, *, who: str = DAEMON) -> None:
        """Write an event if `what` (the certificate, the configuration) is another than was last told."""
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
class _Head:
    """The last whole line: its number and hash, and where it ends."""

    number: int = 0
    hash: bytes = _START
    size: int = 0


class AuditLog:
    """The log of one site; see `Audit` and the module's promises.

    Args:
        database: the site's; it holds the anchor, and its write lock makes this the only writer.
        directory: the state directory.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self.path = directory / FILE_NAME

    def record(self, event: Event, at: dt.datetime) -> None:
        """See `Audit.record`."""
        with self._database.transaction(), self._opened() as descriptor:
            head, found = self._head(descriptor)
            lines = bytearray()
            for item in (*found, event):
                line, sha256 = _line(item.to_json(), head, at)
                lines += line
                head = _Head(number=head.number + 1, hash=sha256, size=head.size + len(line))
            _append(descriptor, self.path, bytes(lines), end=head.size - len(lines))
            self._database.write(
                "INSERT OR REPLACE INTO audit_anchor VALUES (1, ?, ?, ?)", (head.number, head.hash, head.size)
            )

    def note(self, what: What, sha256: bytes, at: dt.datetime, *, who: str = DAEMON) -> None:
        """See `Audit.note`."""
        if self._database.rows("SELECT 1 FROM in_force WHERE name = ? AND sha256 = ?", (str(what), sha256)):
            return
        with self._database.transaction():
            known = self._database.rows("SELECT sha256 FROM in_force WHERE name = ?", (str(what),))
            detail = f"took the place of {cast('bytes', known[0][0]).hex()}" if known else "first seen"
            self.record(Event(what=what, who=who, sha256=sha256, detail=detail), at)
            self._database.write("INSERT OR REPLACE INTO in_force VALUES (?, ?)", (str(what), sha256))

    def verify(self) -> Verified:
        """Check the whole log against itself and against the anchor.

        Raises:
            GateFailed: AUDIT_BROKEN, naming the line.
            DataFault: STATE_CORRUPT, it cannot be read.
        """
        with self._database.transaction():  # nobody writes meanwhile
            anchor = self._anchor()
            try:
                data = self.path.read_bytes() if anchor.number or self.path.exists() else b""
            except FileNotFoundError:
                data = b""
            except OSError as error:
                raise disk_fault(error, self.path) from None
        return verify(data, anchor_number=anchor.number, anchor_hash=anchor.hash, name=FILE_NAME)

    def entries(self) -> Iterator[Mapping[str, object]]:
        """All whole lines, oldest first, unverified."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return iter(())
        except OSError as error:
            raise disk_fault(error, self.path) from None
        return entries(data)

    # ---- pieces

    def _anchor(self) -> _Head:
        rows = self._database.rows("SELECT number, hash, size FROM audit_anchor")
        if not rows:
            return _Head()
        number, sha256, size = rows[0]
        return _Head(number=cast("int", number), hash=cast("bytes", sha256), size=cast("int", size))

    @contextlib.contextmanager
    def _opened(self) -> Generator[int]:
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
            raise disk_fault(error, self.path) from None

    def _head(self, descriptor: int) -> tuple[_Head, list[Event]]:
        """Where the next line goes, and what has to be said about the state in which the file was found."""
        anchor = self._anchor()
        size = os.fstat(descriptor).st_size
        if size == anchor.size:
            return anchor, []
        if size > anchor.size:
            # A process was killed between writing a line and writing the anchor, or in the middle of the line.
            rest = _read(descriptor, anchor.size)
            head = _follow(rest, anchor)
            if head is not None:
                return head, _torn(rest[head.size - anchor.size :])
        data = _read(descriptor, 0)
        whole = data[: data.rfind(b"\n") + 1]
        n_lines = whole.count(b"\n")
        broken = Event(
            what=What.LOG_BROKEN,
            who=DAEMON,
            sha256=anchor.hash,
            detail=f"{n_lines} lines found; line {anchor.number} had been written, with this hash",
        )
        return _Head(number=n_lines, hash=_last_hash(whole), size=len(whole)), [*_torn(data[len(whole) :]), broken]


def _line(said: Mapping[str, object], head: _Head, at: dt.datetime) -> tuple[bytes, bytes]:
    body = {**said, "n": head.number + 1, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "previous": head.hash.hex()}
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
    found = bytearray()
    while block := os.read(descriptor, _BLOCK):
        found += block
    return bytes(found)


def _torn(tail: bytes) -> list[Event]:
    if not tail:
        return []
    sha256 = hashlib.sha256(tail).digest()
    detail = "an unfinished last line was cut off; what it spoke of was not begun"
    return [Event(what=What.TORN_LINE, who=DAEMON, size=len(tail), sha256=sha256, detail=detail)]


def _follow(rest: bytes, head: _Head) -> _Head | None:
    """The last whole line of `rest`, whose lines follow `head`; None: they do not."""
    for line in rest.split(b"\n")[:-1]:
        if _problem(line, head):
            return None
        head = _Head(number=head.number + 1, hash=_hash_of(line), size=head.size + len(line) + 1)
    return head


def _hash_of(line: bytes) -> bytes:
    try:
        return bytes.fromhex(str(json.loads(line)["hash"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return hashlib.sha256(line).digest()  # of a line that is none: the chain goes on from what it is


def _last_hash(whole: bytes) -> bytes:
    return _hash_of(whole.split(b"\n")[-2]) if whole else _START


def _problem(line: bytes, head: _Head) -> str:
    """What is wrong with the line that follows `head`; empty: nothing."""
    try:
        said = cast("dict[str, object]", dict(json.loads(line)))
        sha256 = hashlib.sha256(_canonical({key: value for key, value in said.items() if key != "hash"})).hexdigest()
        canonical = _canonical(said)
    except (ValueError, TypeError, RecursionError):  # rfc8785's errors are ValueErrors
        return "it is not the JSON object of an event"
    number, previous = str(said.get("n"))[:20], head.hash.hex()
    problems = (
        (said.get("hash") == sha256, "it was changed: its hash is not that of its content"),
        (canonical == line, "it was changed: it is not the canonical JSON of its content"),
        (number == str(head.number + 1), f"its number is {number}: lines are missing, repeated or inserted before it"),
        (said.get("previous") == previous, "it does not follow the line before it, which was removed or replaced"),
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
    head, torn = _Head(), list[int]()
    end = data.rfind(b"\n") + 1
    for line in data[:end].split(b"\n")[:-1]:
        number = head.number + 1
        problem = _problem(line, head)
        entry = cast("dict[str, object]", {} if problem else json.loads(line))
        if not problem and number == anchor_number and bytes.fromhex(str(entry["hash"])) != anchor_hash:
            problem = "another line had been written here: the log was written anew up to it"
        if not problem and entry["event"] == What.LOG_BROKEN:
            problem = f"it says that the log was found broken: {entry['detail']}"
        if problem:
            raise _broken(name, number, problem)
        if entry["event"] == What.TORN_LINE:
            torn.append(number)
        head = _Head(number=number, hash=bytes.fromhex(str(entry["hash"])), size=head.size + len(line) + 1)
    if head.number < anchor_number:
        problem = "it is missing" if end == len(data) else "it is not ended"
        raise _broken(name, head.number + 1, f"{problem}; {anchor_number} lines had been written")
    return Verified(n_lines=head.number, head=head.hash, torn=tuple(torn), unfinished_bytes=len(data) - end)


def _broken(name: str, line: int, problem: str) -> GateFailed:
    return GateFailed(
        "AUDIT_BROKEN",
        f"{name}: line {line}: {problem}",
        hint="keep the file as it is, and compare it with your backup and with the heads that you noted",
    )


def entries(data: bytes) -> Iterator[Mapping[str, object]]:
    """The whole lines of a log that are JSON objects."""
    for line in data.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError, RecursionError):
            entry = cast("object", json.loads(line))
            if isinstance(entry, dict):
                yield cast("dict[str, object]", entry)
