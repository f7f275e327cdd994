"""What the miner knows only while it runs: who is there, what each party is busy with, and that something has changed.

Nothing here is a fact of a study; after a restart all of it comes back with the parties' next calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from verticil.shared.core.errors import CODES, PeerFault
from verticil.shared.federation.transport.errors_on_wire import shorten
from verticil.wire.v1 import coordinator_pb2

HEARTBEAT_SECONDS: Final = 45
LEASE_SECONDS: Final = 2 * HEARTBEAT_SECONDS
"""Longer than the longest poll (60 s), so that a waiting party stays online."""
_MOST_OBJECTIONS: Final = 32
_LONGEST_OBJECTION: Final = 300
_LARGEST_EPOCH: Final = 2**63 - 1
"""No miner ever gave a higher one; the next one after it must still go over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyProgress:
    """What a party says that it is doing for a study, in the words of the wire contract; nothing of it depends on data.

    Attributes:
        stage: approving, reading, linking, randomizing, uploading or masking; empty: nothing was said.
        percent: of the stage.
        approvers, approvers_needed: how many have said yes, and how many must; 0 and 0: not known.
        objections: what its policy says of the study, each as code and message; None: not reported.
    """

    stage: str = ""
    percent: int = 0
    approvers: int = 0
    approvers_needed: int = 0
    objections: tuple[tuple[str, str], ...] | None = None

    @classmethod
    def of(cls, message: coordinator_pb2.Progress) -> PartyProgress:
        """Read progress as it may be shown; an objection's code that this version does not know counts as a refusal by policy."""
        items = [
            (item.code if item.code in CODES else "POLICY_REFUSED", shorten(item.message, _LONGEST_OBJECTION))
            for item in message.objections.items[:_MOST_OBJECTIONS]
        ]
        return cls(
            stage=message.stage,
            percent=message.percent,
            approvers=message.approvers,
            approvers_needed=message.approvers_needed,
            objections=tuple(items) if message.HasField("objections") else None,
        )


_NOTHING: Final = PartyProgress()


class Changes:
    """Wakes those who wait for a change of any study. Belongs to one event loop.

    Read `generation`, then the facts, then `wait` with that generation: a change between is never missed.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.closed = False
        self.closing: list[Callable[[], None]] = []
        """Called by `close`: for those who wait for something else than changes."""
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake everyone who waits."""
        self.generation += 1
        event, self._event = self._event, asyncio.Event()
        event.set()

    def close(self) -> None:
        """Wake every caller and let none wait from now on: the miner is about to stop."""
        self.closed = True
        self.notify()
        for tell in self.closing:
            tell()

    async def wait(self, generation: int, timeout_seconds: float) -> None:
        """Return when there was a change since `generation`, or after the timeout."""
        if self.generation != generation or self.closed or timeout_seconds <= 0:
            return
        event = self._event
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await event.wait()


class Leases:
    """Leases and progress of the parties.

    A lease is begun anew whenever something arrives from the party, and by nothing else: how long the miner goes on serving a
    call says nothing about who is still at the other end. A party is online while its lease is younger than two heartbeats.

    Every connection greets with a session of its own and is given an epoch, higher than any before. From then on the party's
    earlier sessions count for nothing: what still arrives of them neither keeps the party online nor takes it offline.

    Args:
        monotonic: clock in seconds that never jumps.
        first_epoch: the epochs of this process are higher; seconds since 1970 make them higher than those of an earlier one.
    """

    def __init__(self, *, monotonic: Callable[[], float], first_epoch: int = 0) -> None:
        self._monotonic = monotonic
        self._epoch = first_epoch
        self._sessions: dict[str, tuple[int, int]] = {}  # the party's present session and its epoch
        self._heard: dict[str, float] = {}
        self._progress: dict[tuple[bytes, str], PartyProgress] = {}

    def greet(self, party: str, session: int) -> int:
        """Begin a connection; the same greeting again (a call that was repeated) has the same epoch.

        Returns:
            The epoch.
        """
        last_session, epoch = self._sessions.get(party, (0, 0))
        if not session or session != last_session:
            self._epoch += 1
            epoch = max(self._epoch, epoch + 1)  # what one party claims moves no other's epochs
            self._sessions[party] = (session, epoch)
        self._heard[party] = self._monotonic()
        return epoch

    def shown(self) -> object:
        """Return what is equal as long as every party is online or not as before, and as far as before."""
        return dict(self._progress), frozenset(party for party in self._heard if self.online(party))

    def hear(self, party: str, epoch: int = 0) -> None:
        """Note that something has arrived from the party.

        Args:
            party: from whom.
            epoch: of the session that it belongs to; 0: of none.

        When a later session of the party has begun, the lease stays as it is.
        """
        session, current_epoch = self._sessions.get(party, (0, 0))
        if 0 < epoch < current_epoch:
            return
        if (
            current_epoch < epoch <= _LARGEST_EPOCH
        ):  # given by this miner before it was started anew; the party has not noticed
            self._sessions[party] = (session, epoch)
        self._heard[party] = self._monotonic()

    @contextlib.contextmanager
    def call(self, party: str) -> Generator[None]:
        """Note a call of the party: its arrival begins the lease anew, its end does not: the answer may not have arrived."""
        self.hear(party)
        yield

    def check_session(self, party: str, epoch: int) -> None:
        """Refuse what belongs to an earlier session.

        Raises:
            PeerFault: SESSION_REPLACED.
        """
        if 0 < epoch < self._sessions.get(party, (0, 0))[1]:
            raise PeerFault(
                "SESSION_REPLACED",
                f"party '{party}' has connected anew since",
                hint="if that was not this daemon, another one runs with this party's certificate: stop one of them",
            )

    def age_seconds(self, party: str) -> float | None:
        """Return the age of the party's lease; None when it was not heard from since the miner started."""
        last_arrival = self._heard.get(party)
        return None if last_arrival is None else max(0.0, self._monotonic() - last_arrival)

    def online(self, party: str) -> bool:
        """Return whether the party's lease is younger than two heartbeats."""
        age = self.age_seconds(party)
        return age is not None and age < LEASE_SECONDS

    def set_progress(self, study: bytes, party: str, progress: PartyProgress) -> None:
        """Record what the party says that it is doing."""
        self._progress[study, party] = progress

    def progress(self, study: bytes, party: str) -> PartyProgress:
        """Return what the party last said; nothing at all before."""
        return self._progress.get((study, party), _NOTHING)

    def clear_progress(self, study: bytes, party: str) -> None:
        """Drop what the party last said of a study, when it is no longer so."""
        self._progress.pop((study, party), None)

    def forget(self, study: bytes) -> None:
        """Drop the progress of a study that ended."""
        for key in [key for key in self._progress if key[0] == study]:
            del self._progress[key]
