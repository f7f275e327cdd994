"""When something is tried again, and after how long: what an error's code says about that."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

__all__ = ["DIALLED_AGAIN", "ENDS_THE_DAEMON", "TRIED_AGAIN", "Backoff"]

_FIRST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 20.0
"""With the ten seconds that a greeting may take, a party is back within half a minute of the network's return."""

ENDS_THE_DAEMON: Final = frozenset(
    {
        "CONFIG_INVALID",
        "CERTIFICATE_INVALID",
        "CERTIFICATE_REVOKED",
        "IDENTITY_REFUSED",
        "TLS_REFUSED",
        "VERSION_UNSUPPORTED",
        "STATE_CORRUPT",
        "SECRET_MISSING",
    }
)
"""Of this machine, or of the miner: no retry mends these; a person must."""
TRIED_AGAIN: Final = frozenset(
    {
        "UNREACHABLE",
        "DEADLINE",
        "RESOURCE_EXHAUSTED",
        "CHUNK_CORRUPT",
        "OFFSET_MISMATCH",
        "DISK_FULL",
        "FILES_EXHAUSTED",
        "STATE_LOCKED",
        "INTERNAL",
    }
)
"""A study's step that ended so is tried again; with any other code the study has failed at this party."""
DIALLED_AGAIN: Final = TRIED_AGAIN | {"SESSION_REPLACED", "NOT_READY"}
"""A connection that ended so is made anew; with any other code the daemon ends: trying again would only fill logs."""


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
        """How long to wait before the next attempt: uniform in [0, min(longest, first * growth^attempts)]."""
        longest = min(self._longest, self._first * self._growth ** min(self._attempts, 64))
        self._attempts += 1
        return self._uniform() * longest

    def reset(self) -> None:
        """It worked."""
        self._attempts = 0
