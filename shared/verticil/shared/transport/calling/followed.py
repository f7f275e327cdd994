"""Whether files have changed since one last looked: what hot reload of certificates, keys and deny-lists rests on.

A file is known by inode, size and time of change, so that a replacement (`os.replace`) is seen even within one tick of the
clock. The disk is asked at most once in `every_seconds`: to follow files costs a running call nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

EVERY_SECONDS: Final = 5.0
"""How old what is known of a file may be. Twelve times shorter than what is promised for a revocation (a minute)."""


class FollowedFiles:
    """Some files that may be replaced, appear or vanish. Safe in several threads.

    Args:
        paths: the files.
        every_seconds: the disk is not asked more often.
        monotonic: clock in seconds that never jumps.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        every_seconds: float = EVERY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = tuple(paths)
        self._every = every_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known = self._look()
        self._looked = monotonic()

    def changed(self) -> bool:
        """Whether a file is another than at the last time that this was asked (or at construction)."""
        with self._lock:
            now = self._monotonic()
            if now - self._looked < self._every:
                return False
            self._looked = now
            known, self._known = self._known, self._look()
            return known != self._known

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
