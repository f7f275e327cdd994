"""What the miner knows only while it runs: who is there, what each party is busy with, and that something has changed.

Nothing here is a fact of a study; after a restart all of it comes back with the parties' next calls. Online means that the
party's lease runs, by the monotonic clock: a call begins a new one, and a late end of an old connection ends none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Final

__all__ = ["LEASE_SECONDS", "Changes", "Presence"]

LEASE_SECONDS: Final = 90
"""Longer than the longest poll (60 s), so that a waiting party stays online."""


class Changes:
    """Wakes those who wait for a change of any study. Belongs to one event loop.

    Read `generation`, then the facts, then `wait` with that generation: a change between is never missed.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.closed = False
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake everyone."""
        self.generation += 1
        event, self._event = self._event, asyncio.Event()
        event.set()

    def close(self) -> None:
        """Wake everyone and let nobody wait any more: the miner is about to stop."""
        self.closed = True
        self.notify()

    async def wait(self, generation: int, timeout_seconds: float) -> None:
        """Return when there was a change since `generation`, or after the timeout."""
        if self.generation != generation or self.closed or timeout_seconds <= 0:
            return
        event = self._event
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await event.wait()


class Presence:
    """Leases and progress of the parties.

    Args:
        monotonic: clock in seconds that never jumps.
        lease_seconds: how long a party counts as online after its last call.
    """

    def __init__(self, *, monotonic: Callable[[], float], lease_seconds: float = LEASE_SECONDS) -> None:
        self._monotonic = monotonic
        self._lease_seconds = lease_seconds
        self._seen: dict[str, float] = {}
        self._inside: dict[str, int] = {}
        self._progress: dict[tuple[bytes, str], tuple[str, int]] = {}

    @contextlib.contextmanager
    def call(self, party: str) -> Generator[None]:
        """A call of the party: its lease runs during it and anew from its end."""
        self._inside[party] = self._inside.get(party, 0) + 1
        try:
            yield
        finally:
            self._inside[party] -= 1
            self._seen[party] = self._monotonic()

    def online(self, party: str) -> bool:
        """Whether the party's lease runs."""
        if self._inside.get(party, 0) > 0:
            return True
        seen = self._seen.get(party)
        return seen is not None and self._monotonic() - seen < self._lease_seconds

    def set_progress(self, study: bytes, party: str, stage: str, percent: int) -> None:
        """What the party says that it is doing."""
        self._progress[study, party] = (stage, percent)

    def progress(self, study: bytes, party: str) -> tuple[str, int]:
        """Stage and percent as last reported; empty and 0 before."""
        return self._progress.get((study, party), ("", 0))

    def forget(self, study: bytes) -> None:
        """Drop the progress of a study that ended."""
        for key in [key for key in self._progress if key[0] == study]:
            del self._progress[key]
