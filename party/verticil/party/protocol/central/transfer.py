"""A transfer that can be broken off from outside: a revocation or a denial must not wait for a slow line.

Stopping is for good, as a revocation and a denial are: a transfer that was about to begin does not. The work runs in a task of
its own, so that breaking it off ends the call that it waits in, and with it the stream: over gRPC the other side sees a
cancelled call. What was acknowledged by then is what the other side has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StoppedError(Exception):
    """The transfer was broken off. Plan again."""


class Stoppable:
    """Holds the transfer that runs, if one does; all of one study go through one of these."""

    def __init__(self) -> None:
        self._running: asyncio.Task[object] | None = None
        self._stopped = asyncio.Event()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:  # Any: what is sent into a coroutine is asyncio's affair
        """Wait for `work`.

        Raises:
            StoppedError: it was broken off by `stop`, or `stop` came before.
        """
        if self._stopped.is_set():
            work.close()
            raise StoppedError
        task = asyncio.ensure_future(work)
        self._running = task
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopped.is_set() and task.cancelled():
                raise StoppedError from None
            task.cancel()
            raise
        finally:
            self._running = None

    def stop(self) -> None:
        """Break the transfer off, if one runs, and let none begin any more."""
        self._stopped.set()
        if self._running is not None:
            self._running.cancel()
