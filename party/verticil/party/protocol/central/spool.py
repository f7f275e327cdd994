"""Released bytes on the party's disk, named by their SHA-256.

What is in the spool was randomized and is on its way out; raw values never come here. A file appears whole or not at all: it is
written under a temporary name, flushed to the disk, renamed, and the folder is flushed. What a killed process left half
written is removed when the spool is opened.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from verticil.shared.disk import replace_file
from verticil.shared.durable import remove
from verticil.shared.errors import DataFault
from verticil.shared.storage.database import disk_fault

_PART = ".part"
_BLOCK = 1 << 20
_RESERVE = 1 << 20
"""Free space that is left to the ledger and the state: what is written there must never fail for lack of room."""


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


class Spool:
    """The folder of released bytes.

    Args:
        directory: made (0700) when absent.
        free_bytes: free space on the disk of a path; the operating system's answer unless given.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """

    def __init__(self, directory: Path, *, free_bytes: Callable[[Path], int] = _free_bytes) -> None:
        self.directory = directory
        self._free_bytes = free_bytes
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for leftover in directory.glob(f"*{_PART}"):
                leftover.unlink()
        except OSError as error:
            raise disk_fault(error, directory) from None

    def path(self, sha256: bytes) -> Path:
        """Where the bytes with this digest are, if they are."""
        return self.directory / sha256.hex()

    def ensure_room(self, needed: int) -> None:
        """Refuse up front what would not fit, before anything is drawn for it.

        Raises:
            DataFault: DISK_FULL, with the numbers.
        """
        free = self._free_bytes(self.directory)
        if free - needed < _RESERVE:
            raise DataFault(
                "DISK_FULL",
                f"{self.directory}: {needed} bytes are to be sent, the disk has {max(free - _RESERVE, 0)} above the"
                f" reserve of {_RESERVE}",
                hint="make room there; a running daemon then goes on by itself",
            )

    def put(self, data: bytes) -> bytes:
        """Store bytes; when it returns they are on the disk. Storing the same bytes twice is storing them once.

        Returns:
            Their SHA-256.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT; the spool is as it was.
        """
        sha256 = hashlib.sha256(data).digest()
        target = self.path(sha256)
        if self.holds(sha256):
            return sha256
        part = target.with_name(target.name + _PART)
        try:
            replace_file(target, data, part=part)
        except OSError as error:
            raise disk_fault(error, target) from None
        return sha256

    def holds(self, sha256: bytes) -> bool:
        """Whether the bytes with this digest are there and unharmed (they are read)."""
        digest = hashlib.sha256()
        try:
            with self.path(sha256).open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise DataFault("STATE_CORRUPT", f"{self.path(sha256)}: cannot be read ({error.strerror})") from None
        return digest.digest() == sha256

    def discard(self, sha256: bytes) -> None:
        """Remove bytes that nobody needs any more; the same values can always be made again."""
        remove(self.path(sha256))
