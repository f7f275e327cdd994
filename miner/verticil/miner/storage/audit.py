"""The miner's audit log: whom it refused, and which certificate it showed, in lines that cannot be changed unnoticed.

``audit.jsonl`` in the state directory is the same hash-chained log as a party's (`verticil.shared.evidence.chain`); its head is
kept in ``audit.anchor`` beside it. What happens in studies is not told twice: it is in the catalogue, in signed receipts and in
the parties' own logs. The state directory's lock makes the daemon the only writer; whoever reads needs no lock, because a line
is on the disk before the anchor knows of it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from verticil.shared.disk import is_disk_full, replace_file
from verticil.shared.errors import DataFault
from verticil.shared.evidence.chain import DAEMON, ChainedLog, Head, Verified

__all__ = ["ANCHOR_NAME", "LOG_NAME", "MinerAudit"]

LOG_NAME: Final = "audit.jsonl"
ANCHOR_NAME: Final = "audit.anchor"


class MinerAudit:
    """The log of one miner.

    Args:
        directory: the state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._log = ChainedLog(directory / LOG_NAME, _FileAnchor(directory / ANCHOR_NAME), fault=_fault)
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

    def verify(self) -> Verified:
        """Check the whole log; raises as `ChainedLog.verify`."""
        return self._log.verify()

    def entries(self) -> Iterator[Mapping[str, object]]:
        """All whole lines, oldest first, unverified."""
        return self._log.entries()


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
            raise _fault(error, self._path) from None
        try:
            said = cast("Mapping[str, object]", json.loads(raw))
            number, size = said["number"], said["size"]
            if isinstance(number, int) and isinstance(size, int):
                return Head(number=number, hash=bytes.fromhex(str(said["hash"])), size=size)
        except (ValueError, KeyError, TypeError):
            pass
        raise DataFault(
            "STATE_CORRUPT",
            f"{self._path}: not the head of an audit log",
            hint="keep it and audit.jsonl for whoever looks into it, and restore both from a backup",
        )

    def set_head(self, head: Head) -> None:
        said = {"hash": head.hash.hex(), "number": head.number, "size": head.size}
        try:
            replace_file(
                self._path, json.dumps(said).encode() + b"\n", part=self._path.with_name(f".{self._path.name}.part")
            )
        except OSError as error:
            raise _fault(error, self._path) from None


def _fault(error: OSError, path: Path) -> DataFault:
    if is_disk_full(error):
        return DataFault("DISK_FULL", f"{path}: no space left on the miner's disk", hint="make room there")
    problem = f"{path}: cannot be used ({error.strerror})"
    return DataFault("STATE_CORRUPT", problem, hint="check the folder's owner and permissions")
