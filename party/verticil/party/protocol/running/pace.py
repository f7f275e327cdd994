"""How often a party polls: at once where something goes on, ever more slowly where a miner only keeps it busy.

A long poll is answered when something has changed, so replies come as fast as studies move on. A burst of them is taken as it
comes; in the long run there are not more than `RATE` in a second, whatever they tell. A reply that comes early and tells
nothing new is followed by a wait that grows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from verticil.party.protocol.retry import Backoff

RATE: Final = 5.0
"""Replies in a second that are taken for as long as one likes."""
BURST: Final = 100.0
"""Replies that may come at once."""
EARLY_SECONDS: Final = 1.0
"""An empty reply that comes sooner was not waited for."""


class Pace:
    """The pace of one connection's polls.

    Args:
        sleep: waits so many seconds.
        monotonic: clock in seconds that never jumps.
        backoff: the waits after replies that told nothing.

    Attributes:
        replies: there were so many.
    """

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self.replies = 0
        self._sleep = sleep
        self._monotonic = monotonic
        self._backoff = backoff if backoff is not None else Backoff()
        self._room, self._at = BURST, monotonic()

    async def wait(self, *, news: bool, seconds: float) -> None:
        """Wait until the next poll is due.

        Args:
            news: the reply told something.
            seconds: it took so long.
        """
        self.replies += 1
        if not news and seconds < EARLY_SECONDS:
            await self._sleep(self._backoff.next_seconds())
        else:
            self._backoff.reset()
        now = self._monotonic()
        self._room, self._at = min(BURST, self._room + (now - self._at) * RATE) - 1, now
        if self._room < 0:
            await self._sleep(-self._room / RATE)
