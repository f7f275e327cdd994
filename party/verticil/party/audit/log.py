"""The audit log: who did what with which data at this site, in lines that cannot be changed unnoticed.

Promises
- ``state/audit.jsonl`` is a hash-chained log (`verticil.shared.federation.audit`) whose head is in the database besides. Lines
  are written inside a write transaction of the database, one at a time across threads and processes.
- A line whose transaction is rolled back is taken back; only a process that dies leaves one without it.
- Whoever does something that leaves the site records it first; so the log may speak of a transfer that was then not begun,
  because the process died between the two, and is never silent about one that was.
- It holds names, counts, digests and codes: no value of a table, no record id, no key.
- What another node says is a line of its own only when it was verified; a study that is seen is marked as told. What does not
  hold is written once a day for each kind (node and code), with the number of those that followed: nobody fills the disk.
  Nor does whoever has the same bytes sent again and again.

Note the head that ``verticil party audit verify`` prints, outside this machine: whoever may write both the file and the database
of this site could write another history. The file is never rotated: an event takes some 400 bytes, a study some ten or twenty
events, and refused calls are bounded by their own rule (`verticil.shared.federation.refusals`).
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final, cast

from verticil.party.storage.database import Database
from verticil.shared.core import logs
from verticil.shared.documents.json_document import Json
from verticil.shared.federation.audit import DAEMON, ChainedLog, Head, Verified
from verticil.shared.storage.database import disk_fault

FILE_NAME: Final = "audit.jsonl"


class What(StrEnum):
    """The kinds of events."""

    STUDY_SEEN = "study-seen"
    CHECK = "check"
    RULE_REVIEW = "rule-review"
    VOTE = "vote"
    APPROVAL = "approval"
    APPROVAL_VOID = "approval-void"
    DENIAL = "denial"
    COUNTERSIGNATURE = "countersignature"
    SUB_MODEL = "sub-model"
    ALIGNMENT = "alignment"
    SIMILAR_PEOPLE = "similar-people"
    COMMON_SETS_FULL = "common-sets-full"
    SAME_PEOPLE = "same-people"
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
    CERTIFICATE_ENDS = "certificate-ends"
    CONFIGURATION = "configuration"
    RESTORED = "restored"
    LEDGER_MENDED = "ledger-mended"
    PURGED = "purged"
    CARRIED_OUT = "carried-out"
    CARRIED_IN = "carried-in"
    FORGOTTEN = "forgotten"


_STEPS: Final = frozenset(
    {
        *(What.APPROVAL, What.DENIAL, What.COUNTERSIGNATURE, What.ALIGNMENT, What.RANDOMIZED, What.SEND, What.SHARED),
        *(What.RECEIPT, What.REVOCATION, What.DELETION),
    }
)
"""Of a study, and told in the daemon's log besides."""

_log = logging.getLogger(__name__)


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
        ledger: what else the ledger's row says of it (`verticil.party.policy.ledger_recovery.entry`).
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
    ledger: Mapping[str, object] | None = None
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        """Return what the log says of the event; leave out what is empty."""
        fields: dict[str, object] = {
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
            "ledger": self.ledger,
            "detail": self.detail,
        }
        return {key: value for key, value in fields.items() if value not in (None, "", [])}

    def __str__(self) -> str:
        """Return what the daemon's log says of the event.

        >>> str(Event(what=What.SEND, who=DAEMON, columns=("age", "sex"), recipient="miner", size=1200))
        'send: age, sex; to miner; 1,200 bytes'
        """
        parts = [", ".join(self.columns), f"by {self.who}" if self.who != DAEMON else ""]
        parts += [f"to {self.recipient}" if self.recipient else "", "" if self.size is None else f"{self.size:,} bytes"]
        return f"{self.what}: {'; '.join(part for part in parts if part) or 'done'}"


def _finite(value: float | None) -> float | str | None:
    return "infinite" if value is not None and math.isinf(value) else value


class _Anchor:
    """The head of the log in the site's database, whose write lock makes a transaction of it the only writer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def head(self) -> Head:
        return self._database.first(Head, "SELECT number, hash, size FROM audit_anchor") or Head()

    def set_head(self, head: Head) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO audit_anchor VALUES (1, ?, ?, ?)", (head.number, head.hash, head.size)
        )


class AuditLog:
    """The log of one site; see the module's promises.

    Args:
        database: the site's; it holds the anchor.
        directory: the state directory.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._log = ChainedLog(directory / FILE_NAME, _Anchor(database), fault=disk_fault)
        self.path = self._log.path

    def record(self, event: Event, at: dt.datetime) -> None:
        """Write an event; it is on the disk when this returns.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT, STATE_LOCKED; then what it speaks of must not happen.
        """
        with self._database.transaction():
            begin = self._log.append(event.to_json(), at)
            self._database.undo_with(lambda: os.truncate(self.path, begin))
        if event.what in _STEPS:
            with logs.fields(study=event.study.hex()[:12]):
                _log.info("%s", event)

    def refuse(self, event: Event, at: dt.datetime) -> bool:
        """Count what another node said that does not hold; the first of its kind on a day is written.

        Args:
            event: who said it; its detail is one of few texts, and names the kind with `who`.
            at: now, UTC.

        Returns:
            Whether it is the first today.
        """
        return self._count(f"{event.who}: {event.detail}", replace(event, what=What.REFUSED), at)

    def again(self, event: Event, at: dt.datetime) -> None:
        """Count another send of what was sent before to the same recipient; the first one on a day is written."""
        kind = f"{event.study.hex()} {event.sha256.hex()} to {event.recipient}"
        self._count(kind, replace(event, detail="the same bytes again"), at)

    def _count(self, kind: str, event: Event, at: dt.datetime) -> bool:
        today = at.date().isoformat()
        with self._database.transaction():
            rows = self._database.rows("SELECT day, more FROM counted_event WHERE kind = ?", (kind,))
            day, more = cast("tuple[str, int]", rows[0]) if rows else ("", 0)
            if day == today:
                self._database.write("UPDATE counted_event SET more = more + 1 WHERE kind = ?", (kind,))
                return False
            detail = event.detail + (f" ({more} more of this kind on {day})" if more else "")
            self.record(replace(event, detail=detail), at)
            self._database.write("INSERT OR REPLACE INTO counted_event VALUES (?, ?, 0)", (kind, today))
        return True

    def note(self, what: What, sha256: bytes, at: dt.datetime, *, who: str = DAEMON, detail: str = "") -> None:
        """Write an event if `what` (the certificate, the configuration) is another than was last told.

        Args:
            what: of which kind.
            sha256: of what it is now.
            at: now, UTC.
            who: made it so.
            detail: for people; what it took the place of, unless given.
        """
        if self._database.has("SELECT 1 FROM in_force WHERE name = ? AND sha256 = ?", (str(what), sha256)):
            return
        with self._database.transaction():
            noted_sha256 = self._database.first(bytes, "SELECT sha256 FROM in_force WHERE name = ?", (str(what),))
            before = "first seen" if noted_sha256 is None else f"took the place of {noted_sha256.hex()}"
            self.record(Event(what=what, who=who, sha256=sha256, detail=detail or before), at)
            self._database.write("INSERT OR REPLACE INTO in_force VALUES (?, ?)", (str(what), sha256))

    def has_noted(self, what: What) -> bool:
        """Return whether `note` has ever written an event of this kind."""
        return self._database.has("SELECT 1 FROM in_force WHERE name = ?", (str(what),))

    def head(self) -> Head:
        """Return the last line that the database knows of."""
        return _Anchor(self._database).head()

    def agrees(self) -> bool:
        """Return whether the file ends with the last line that the database knows of, as far as its size tells."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            size = 0
        except OSError as error:
            raise disk_fault(error, self.path) from None
        return size == self.head().size

    def catch_up(self) -> None:
        """Read the lines that other processes wrote; see `ChainedLog.catch_up`."""
        self._log.catch_up()

    def verify(self) -> Verified:
        """Check the whole log against itself and against the anchor.

        Raises:
            GateFailed: AUDIT_BROKEN, naming the line.
            DataFault: STATE_CORRUPT, it cannot be read.
        """
        return self._log.verify()

    def entries(self) -> Iterator[Mapping[str, Json]]:
        """Yield all whole lines, oldest first, unverified."""
        return self._log.entries()


def note_configuration(audit: AuditLog, path: Path, at: dt.datetime, *, who: str = DAEMON) -> None:
    """Write down that party.toml is another than before, if it is."""
    with suppress(OSError):  # a configuration that was read a moment ago
        audit.note(What.CONFIGURATION, sha256(path.read_bytes()).digest(), at, who=who)
