"""How a party tells a new request from one that the relay repeats. No clocks: hospital clocks differ.

Each sender has a challenge, random and unknown to the relay (it travels sealed). A request carries the challenge that its sender
was told last, and names itself by a random call. It is answered if the challenge is the present one and the call is new to it.
A request with another challenge, such as the first of a sender or one that was recorded before this party was started, is not
answered: its sender is told the present challenge and asks again. After `CALLS` calls a sender gets a new challenge, so that
the calls to remember are bounded.

Nothing here is stored: a new process draws new challenges.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

CALLS: Final = 4096
"""Calls of one sender under one challenge."""
CALL_BYTES: Final = 16
"""Length of a call's name, and of a challenge."""


class Verdict(enum.Enum):
    """What a request is."""

    NEW = "new"
    """Answer it."""
    REPEATED = "repeated"
    """It came before; nobody waits for an answer."""
    STALE = "stale"
    """It does not carry the present challenge: tell its sender which it is."""


@dataclass(slots=True, kw_only=True)
class _Sender:
    challenge: bytes
    calls: set[bytes] = field(default_factory=set)


class Freshness:
    """Which requests were answered already.

    Args:
        draw: random bytes, so many as asked for; the operating system's unless given.
    """

    def __init__(self, draw: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._draw = draw
        self._senders: dict[str, _Sender] = {}

    def challenge(self, sender: str) -> bytes:
        """What the sender's requests must carry now."""
        return self._of(sender).challenge

    def judge(self, sender: str, call: bytes, challenge: bytes) -> Verdict:
        """Whether to answer a request; one that is new is not new any more afterwards."""
        known = self._of(sender)
        if challenge != known.challenge:
            return Verdict.STALE
        if call in known.calls:
            return Verdict.REPEATED
        known.calls.add(call)
        return Verdict.NEW

    def _of(self, sender: str) -> _Sender:
        known = self._senders.get(sender)
        if known is None or len(known.calls) >= CALLS:
            known = self._senders[sender] = _Sender(challenge=self._draw(CALL_BYTES))
        return known
