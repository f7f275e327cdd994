"""The miner's audit log: whom it refused, which certificate it showed, how much it knew, in lines whose change is noticed.

``audit.jsonl`` in the state directory is the same hash-chained log as a party's (`verticil.shared.federation.audit`); its head is
kept in ``audit.anchor`` beside it. It does not repeat what happens in studies: that is in the catalogue, in signed receipts and
in the parties' own logs. The state directory's lock makes the daemon the only writer; a reader needs no lock, because a line
is on the disk before the anchor knows of it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.record import parse, read, write
from verticil.shared.federation.audit import DAEMON, AuditLine, ChainedLog, Head, Verified
from verticil.shared.storage.database import disk_fault
from verticil.shared.storage.disk import replace_file

LOG_NAME: Final = "audit.jsonl"
ANCHOR_NAME: Final = "audit.anchor"
_KNOWN: Final = "catalogue"
_ACCEPTED: Final = "catalogue-older-accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueSize:
    """How much a catalogue knows; both numbers only grow.

    Attributes:
        studies: how many.
        versions: of all studies, summed.
    """

    studies: int = 0
    versions: int = 0

    @property
    def words(self) -> str:
        """Say for people how much is known."""
        studies = "1 study" if self.studies == 1 else f"{self.studies} studies"
        return f"{studies} with {self.versions} change{'' if self.versions == 1 else 's'}"


class MinerAudit:
    """The log of one miner.

    Args:
        directory: the state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._log = ChainedLog(directory / LOG_NAME, _FileAnchor(directory / ANCHOR_NAME), fault=disk_fault)
        self._noted: dict[str, str] | None = None

    def record(self, event: str, at: dt.datetime, *, who: str, detail: str) -> None:
        """Write an event; it is on the disk when this returns.

        Args:
            event: of which kind.
            at: now, UTC.
            who: the caller's identity, or ``daemon``.
            detail: codes, names and counts; never a value of a table.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        self._log.append({"event": event, "who": who, "detail": detail}, at)

    def note(self, event: str, sha256: bytes, at: dt.datetime, *, detail: str) -> None:
        """Write an event of the daemon's if it is about something else than the last one of its kind, also over a restart."""
        if self._noted is None:
            self._noted = {str(e["event"]): str(e["sha256"]) for e in self._log.entries() if "sha256" in e}
        if self._noted.get(event) != sha256.hex():
            self._log.append({"event": event, "who": DAEMON, "sha256": sha256.hex(), "detail": detail}, at)
            self._noted[event] = sha256.hex()

    def anchor(self, counts: CatalogueSize, at: dt.datetime) -> None:
        """Write how much the catalogue knows if that is news; never more than what is on the disk."""
        if counts != self.last_anchor():
            self._append_known(_KNOWN, counts, at, detail=counts.words)

    def accept(self, counts: CatalogueSize, at: dt.datetime, *, loss: str, ended_studies: Sequence[bytes]) -> None:
        """Write that the operator goes on from an older catalogue, and which studies that ended."""
        digests = ", ".join(digest.hex() for digest in ended_studies)
        self._append_known(_ACCEPTED, counts, at, detail=f"{loss}; ended: {digests or 'none that is known'}")

    def _append_known(self, event: str, record: CatalogueSize, at: dt.datetime, *, detail: str) -> None:
        counts = {"studies": record.studies, "versions": record.versions}
        self._log.append({"event": event, "who": DAEMON, "detail": detail, **counts}, at)

    def last_anchor(self) -> CatalogueSize:
        """Return how much the catalogue knew when that was written last; nothing where it never was."""
        last = CatalogueSize()
        for entry in self._log.entries():
            studies, versions = entry.get("studies"), entry.get("versions")
            if entry.get("event") in {_KNOWN, _ACCEPTED} and isinstance(studies, int) and isinstance(versions, int):
                last = CatalogueSize(studies=studies, versions=versions)
        return last

    @property
    def is_used(self) -> bool:
        """Whether there is a log: a miner writes the first line after it has made its catalogue."""
        return self._log.path.exists()

    def verify(self) -> Verified:
        """Check the whole log; raises as `ChainedLog.verify`."""
        return self._log.verify()

    def entries(self) -> Iterator[AuditLine]:
        """Return all whole lines, oldest first, unverified."""
        return (AuditLine(said=entry) for entry in self._log.entries())


class _FileAnchor:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def transaction(self) -> Generator[None]:
        with self._lock:
            yield

    def head(self) -> Head:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return Head()
        except OSError as error:
            raise disk_fault(error, self._path) from None
        try:
            return read(Head, parse(raw, source=str(self._path)))
        except Misuse:
            raise DataFault(
                "STATE_CORRUPT",
                f"{self._path}: not the head of an audit log",
                hint="keep it and audit.jsonl for an investigation, and restore both from a backup",
            ) from None

    def set_head(self, head: Head) -> None:
        part = self._path.with_name(f".{self._path.name}.part")
        try:
            replace_file(self._path, json.dumps(write(head)).encode() + b"\n", part=part)
        except OSError as error:
            raise disk_fault(error, self._path) from None
