"""Calls that were refused for who made them are written down without letting the callers fill the disk.

Promises
- The first refusal of a kind (a caller's certificate and an error's code) is written as soon as the listener's task runs. Further
  ones are counted, and written as one line with their number when the period is over.
- A period is ten minutes and names at most `MOST_KINDS` kinds; what goes beyond is counted together, for all callers. So a period
  takes at most 2 `MOST_KINDS` + 1 lines, whatever is done: four megabytes a day from a whole federation of attackers, some
  hundred kilobytes from one certificate, until it is revoked.
- What was counted is written when the node stops orderly; a node that is killed loses the count of its last period, never the
  first refusal.

Only what happens after the TLS handshake can be seen here: a certificate of another authority, or one that had expired before the
connection was made, is turned away by TLS itself, and the caller's own log says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final

from verticil.shared.core.errors import VerticilError
from verticil.shared.federation.identity.pki import Credentials
from verticil.shared.federation.membership.current import expiry_warning, expiry_words
from verticil.shared.federation.transport.authorization import RefusedCall

PERIOD_SECONDS: Final = 600.0
MOST_KINDS: Final = 32

_LOOK_SECONDS: Final = 30.0
_MESSAGE_LIMIT: Final = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLine:
    """What is to be written.

    Attributes:
        who: the identity in the caller's certificate; ``unknown caller`` without one, ``several callers`` for a common count.
        detail: code, method, serial number and reason, or how many more there were.
    """

    who: str
    detail: str


@dataclass(slots=True, kw_only=True)
class _Kind:
    who: str
    words: str
    more: int = 0


class Tally:
    """What was refused, put into a bounded number of lines. Knows no clock and no file.

    >>> tally = Tally()
    >>> call = RefusedCall(caller="verticil://fed/consumer/eve", serial="1f", method="/v1.Control/SubmitStudy",
    ...                    code="IDENTITY_REFUSED", message="expected role analyst")
    >>> for _ in range(1000):
    ...     tally.add(call)
    >>> [line.detail for line in tally.due()]
    ['IDENTITY_REFUSED Control/SubmitStudy, serial 1f: expected role analyst']
    >>> [line.detail for line in tally.close()]
    ['IDENTITY_REFUSED, serial 1f: 999 more calls']
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], _Kind] = {}
        self._others = 0
        self._due: list[RefusedLine] = []

    def add(self, call: RefusedCall) -> None:
        """Count a refused call."""
        key = (call.caller, call.serial, call.code)
        if (kind := self._kinds.get(key)) is not None:
            kind.more += 1
        elif len(self._kinds) == MOST_KINDS:
            self._others += 1
        else:
            serial = f", serial {call.serial}" if call.serial else ""
            who = call.caller or "unknown caller"
            self._kinds[key] = _Kind(who=who, words=f"{call.code}{serial}")
            method = "/".join(part.rpartition(".")[2] for part in call.method.strip("/").split("/"))
            detail = f"{call.code} {method}{serial}: {call.message[:_MESSAGE_LIMIT]}"
            self._due.append(RefusedLine(who=who, detail=detail))

    def due(self) -> list[RefusedLine]:
        """Return the first refusals of each kind since the last call."""
        due, self._due = self._due, []
        return due

    def close(self) -> list[RefusedLine]:
        """End the period: what is due, and the counts. The next refusal of each kind is a first one again."""
        lines = self.due()
        for kind in self._kinds.values():
            if kind.more:
                lines.append(RefusedLine(who=kind.who, detail=f"{kind.words}: {kind.more} more calls"))
        if self._others:
            detail = f"{self._others} calls refused of more than {MOST_KINDS} kinds; the log of this node names them"
            lines.append(RefusedLine(who="several callers", detail=detail))
        self._kinds.clear()
        self._others = 0
        return lines


class Refusals:
    """Listens to a server and writes what it refuses. Belongs to one event loop.

    Args:
        monotonic: seconds.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._tally = Tally()
        self._heard = asyncio.Event()
        self._stopped = False

    def __call__(self, call: RefusedCall) -> None:
        """Count a refusal; see `RpcServer`'s ``on_refusal``."""
        self._tally.add(call)
        self._heard.set()

    async def run(self, write: Callable[[RefusedLine, dt.datetime], None], clock: Callable[[], dt.datetime]) -> None:
        """Write until `stop`; then what was counted, too.

        A line that cannot be written (a full disk) is a warning: refusing must go on.

        Args:
            write: puts a line into the node's audit log; blocks, and is called in a worker thread.
            clock: UTC now.
        """
        ends = self._monotonic() + PERIOD_SECONDS
        while not self._stopped:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._heard.wait()
            self._heard.clear()
            lines = self._tally.due()
            if self._monotonic() >= ends:
                ends = self._monotonic() + PERIOD_SECONDS
                lines += self._tally.close()
            await asyncio.to_thread(_write, lines, write, clock)
        await asyncio.to_thread(_write, self._tally.close(), write, clock)

    def stop(self) -> None:
        """Have `run` write what is left, and return."""
        self._stopped = True
        self._heard.set()


def _write(
    lines: list[RefusedLine], write: Callable[[RefusedLine, dt.datetime], None], clock: Callable[[], dt.datetime]
) -> None:
    for line in lines:
        try:
            write(line, clock())
        except VerticilError as error:
            _log.warning("a refused call could not be written into the audit log: %s", error)


_CERTIFICATE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryNotice:
    """A warning that a certificate ends.

    Attributes:
        sha256: another one for each certificate and each warning (30, 7, 1 days before; expired), so that each is written once.
        detail: for people.
    """

    sha256: bytes
    detail: str


def expiry_notice(credentials: Credentials, at: dt.datetime) -> ExpiryNotice | None:
    """Return the warning that is due for a node's certificate; None while there is time."""
    due = expiry_warning(credentials.not_after, at)
    if due is None:
        return None
    ends = f"{credentials.certificate.name} {expiry_words(credentials.not_after, at)}"
    return ExpiryNotice(
        sha256=hashlib.sha256(credentials.chain_pem + f"\n{due}".encode()).digest(),
        detail=f"{ends} ({credentials.not_after:%Y-%m-%d %H:%M} UTC): verticil pki renew {credentials.certificate.name}",
    )


@contextlib.asynccontextmanager
async def audit_writer(
    refusals: Refusals,
    *,
    write: Callable[[RefusedLine, dt.datetime], None],
    look: Callable[[], None],
    clock: Callable[[], dt.datetime],
) -> AsyncGenerator[None]:
    """Write while the block lasts.

    Args:
        refusals: hear of refused calls.
        write: puts one into the audit log; called in a worker thread.
        look: notes the certificate as it is now, if that is news; called in a worker thread.
        clock: UTC now.
    """
    over = asyncio.Event()
    tasks = (asyncio.create_task(refusals.run(write, clock)), asyncio.create_task(_looking(look, over)))
    try:
        yield
    finally:  # asked to end, not cancelled: a worker thread that writes must not outlive the log's files
        refusals.stop()
        over.set()
        await asyncio.gather(*tasks)


async def _looking(look: Callable[[], None], over: asyncio.Event) -> None:
    while not over.is_set():
        try:
            await asyncio.to_thread(look)
        except VerticilError as error:
            _log.warning("the certificate could not be noted in the audit log: %s", error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CERTIFICATE_SECONDS):
                await over.wait()
