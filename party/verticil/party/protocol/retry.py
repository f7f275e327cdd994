"""When something is tried again, and after how long: what an error's code says about that; and how often a party polls.

A long poll is answered when something has changed, so replies come as fast as studies move on. A burst of them is taken as it
comes; in the long run there are not more than `RATE` in a second, whatever they bring. A reply that comes early and brings
nothing new is followed by a wait that grows (`Pace`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Set
from typing import Final

from verticil.shared.core.errors import VerticilError

_FIRST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 20.0
"""With the ten seconds that a greeting may take, a party is back within half a minute of the network's return."""

ENDS_THE_DAEMON: Final = frozenset(
    {"CONFIG_INVALID", "LEDGER_OLDER", "STATE_CORRUPT", "STATE_READ_ONLY", "SECRET_MISSING"}
)
"""Of this machine: no retry mends these; a person here must. The party's own certificate that has expired is the other one."""
OTHERS_MEND: Final = frozenset(
    {"CERTIFICATE_INVALID", "CERTIFICATE_REVOKED", "IDENTITY_REFUSED", "TLS_REFUSED", "VERSION_UNSUPPORTED"}
)
"""Who answers, or stands between, is not who should, or does not accept us: people there, or the authority, mend that."""
TRIED_AGAIN: Final = frozenset(
    {
        "UNREACHABLE",
        "DEADLINE",
        "RESOURCE_EXHAUSTED",
        "CHUNK_CORRUPT",
        "OFFSET_MISMATCH",
        "DATA_INTERRUPTED",
        "DISK_FULL",
        "FILES_EXHAUSTED",
        "STATE_LOCKED",
        "INTERNAL",
    }
)
"""A study's step that ended so is tried again."""
TOWARDS_THE_MINER: Final = TRIED_AGAIN | OTHERS_MEND
"""The same for a step on a connection to the miner: the connection, too, may be at fault."""


def ends_the_daemon(error: VerticilError) -> bool:
    """Return whether only a person at this machine can mend the error. An error of another node never ends the daemon.

    >>> from verticil.shared.core.errors import DataFault
    >>> own = DataFault("STATE_CORRUPT", "party.sqlite")
    >>> ends_the_daemon(own)
    True
    >>> own.teller = "the miner"
    >>> ends_the_daemon(own)
    False
    """
    return not error.teller and error.code in ENDS_THE_DAEMON


def is_waited_out(error: VerticilError, codes: Set[str] = TOWARDS_THE_MINER) -> bool:
    """Return whether a step is tried again. With anything else the study has failed at this party.

    A miner that sends a code which only this machine could mean says nothing of the study: that is waited out, too.

    Args:
        error: with which the step ended.
        codes: that end no study.
    """
    return error.code in codes or (bool(error.teller) and error.code in ENDS_THE_DAEMON)


class Backoff:
    """Waiting times between attempts: exponential with full jitter.

    Args:
        uniform: draws from [0, 1); the operating system's randomness when absent.
        first_seconds: the first wait is not longer.
        growth: each wait may be so many times as long as the one before.
        longest_seconds: no wait is longer.
    """

    def __init__(
        self,
        uniform: Callable[[], float] | None = None,
        *,
        first_seconds: float = _FIRST_SECONDS,
        growth: float = 2.0,
        longest_seconds: float = _LONGEST_SECONDS,
    ) -> None:
        self._uniform = uniform if uniform is not None else secrets.SystemRandom().random
        self._first = first_seconds
        self._growth = growth
        self._longest = longest_seconds
        self._attempts = 0

    def next_seconds(self) -> float:
        """Return the seconds to wait before the next attempt: uniform in [0, min(longest, first * growth^attempts)]."""
        longest = min(self._longest, self._first * self._growth ** min(self._attempts, 64))
        self._attempts += 1
        return self._uniform() * longest

    def reset(self) -> None:
        """Reset the pause after a success."""
        self._attempts = 0


FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0
WAIT_GROWTH: Final = 1.3
"""The longest wait is reached after some ten seconds of asking in vain."""


def between_looks() -> Backoff:
    """Return the waits between looks at a study that waits for peers, or at a peer that has not answered."""
    return Backoff(first_seconds=FIRST_WAIT_SECONDS, growth=WAIT_GROWTH, longest_seconds=LONGEST_WAIT_SECONDS)


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
        backoff: the waits after replies that brought nothing.

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
            news: the reply brought something.
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
