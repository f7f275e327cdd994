"""What a daemon writes down beside its work: whom it refused, and which certificate it shows and how long that lasts."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final

from verticil.shared.audit.refusals import Refusals, RefusedLine
from verticil.shared.errors import VerticilError
from verticil.shared.identity.pki import Credentials
from verticil.shared.membership.current import expiry_warning, expiry_words

_LOOK_SECONDS: Final = 15.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryNotice:
    """A warning that a certificate ends.

    Attributes:
        sha256: another one for each certificate and each warning (30, 7, 1 days before; expired), so that each is told once.
        detail: for people.
    """

    sha256: bytes
    detail: str


def expiry_notice(credentials: Credentials, at: dt.datetime) -> ExpiryNotice | None:
    """The warning that is due for a node's certificate; None while there is time."""
    due = expiry_warning(credentials.not_after, at)
    if due is None:
        return None
    ends = f"{credentials.certificate.name} {expiry_words(credentials.not_after, at)}"
    return ExpiryNotice(
        sha256=hashlib.sha256(credentials.chain_pem + f"\n{due}".encode()).digest(),
        detail=f"{ends} ({credentials.not_after:%Y-%m-%d %H:%M} UTC): verticil pki renew {credentials.certificate.name}",
    )


@contextlib.asynccontextmanager
async def kept(
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
    finally:  # told, not cancelled: a worker thread that writes must not outlive the log's files
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
            async with asyncio.timeout(_LOOK_SECONDS):
                await over.wait()
