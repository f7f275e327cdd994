"""Which versions of the protocol work together: a version and the one before it.

The version grows when nodes of different releases must know of each other's; the wire contract itself only adds fields. It
is sent in Hello, where both sides settle on the lower one, and with every call of any service in its metadata, so that
analysts and consumers are covered, too, who never say Hello. Programs before 1.0.0 spoke version 1, or told none: both are
refused.
"""

from __future__ import annotations

import datetime as dt
import functools
import logging
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Final

from verticil.shared.core.errors import PeerFault
from verticil.wire.v1 import common_pb2

FIRST_VERSION: Final = 2
"""Of 1.0.0."""
PROTOCOL_VERSION: Final = 2
PROTOCOL_KEY: Final = "verticil-protocol"
"""Metadata of every call and every answer: the version that its sender speaks."""
TIME_KEY: Final = "verticil-time-ms"
"""Metadata of every answer: the answering node's clock, milliseconds since 1970."""
SKEW: Final = dt.timedelta(seconds=60)
"""Clocks that differ by more are worth a warning; certificates begin five minutes before they are made."""

_log = logging.getLogger(__name__)


def agree(theirs: int, *, ours: int = PROTOCOL_VERSION, here: str = "this side", there: str = "the other side") -> int:
    """Return the version that two nodes use with each other: the lower one, if it is at most one below the higher.

    >>> agree(2, ours=3), agree(3, ours=3), agree(4, ours=3)
    (2, 3, 3)

    Raises:
        PeerFault: VERSION_UNSUPPORTED, with both versions and which side is to be upgraded.
    """
    if theirs < FIRST_VERSION or abs(theirs - ours) > 1:
        also = f" (and {ours - 1})" if ours > FIRST_VERSION else ""
        older = here if theirs > ours else there
        raise PeerFault(
            "VERSION_UNSUPPORTED",
            f"{there} speaks protocol version {theirs}, {here} version {ours}{also}",
            hint=f"upgrade verticil at {older}; a version works with itself and with the one before",
        )
    return min(theirs, ours)


@functools.cache
def _software_version() -> str:
    """Look up the version of this program once: each time would read and parse a file, and each connection says it."""
    return metadata.version("verticil")


def answer_hello(
    request: common_pb2.HelloRequest,
    *,
    federation: str,
    lease_seconds: int,
    at: dt.datetime,
    deny_list: bytes = b"",
    ours: int = PROTOCOL_VERSION,
) -> common_pb2.HelloReply:
    """Return the answer to Hello, of the miner and of parties alike.

    Args:
        request: the caller's.
        federation: the answering node's.
        lease_seconds: how long the caller counts as online.
        at: now.
        deny_list: newer than the caller's; empty when there is none.
        ours: the version that the answering node speaks.

    Raises:
        PeerFault: VERSION_UNSUPPORTED.
    """
    version = agree(request.protocol_version, ours=ours, here="the answering side", there="the calling side")
    return common_pb2.HelloReply(
        protocol_version=version,
        software_version=_software_version(),
        federation=federation,
        lease_seconds=lease_seconds,
        server_time_ms=round(at.timestamp() * 1000),
        deny_list=deny_list,
    )


async def greet(
    hello: Callable[[common_pb2.HelloRequest], Awaitable[common_pb2.HelloReply]],
    *,
    who: str,
    at: Callable[[], dt.datetime],
    deny_list_number: int = 0,
    session: int = 0,
    ours: int = PROTOCOL_VERSION,
) -> common_pb2.HelloReply:
    """Say Hello; warn when the clocks differ.

    Args:
        hello: the call.
        who: the other side, for messages: ``the miner``.
        at: UTC now.
        deny_list_number: of the list that we have.
        session: names this connection among ours; 0: it begins no lease.
        ours: the version that we speak.

    Raises:
        PeerFault: VERSION_UNSUPPORTED, and what the call raises.
    """
    reply = await hello(
        common_pb2.HelloRequest(
            protocol_version=ours,
            software_version=_software_version(),
            deny_list_number=deny_list_number,
            session=session,
        )
    )
    agree(reply.protocol_version, ours=ours, here="this side", there=who)
    if reply.server_time_ms:
        ahead = reply.server_time_ms / 1000 - at().timestamp()
        if abs(ahead) > SKEW.total_seconds():
            _log.warning("the clock of %s is %.0f s %s ours", who, abs(ahead), "ahead of" if ahead > 0 else "behind")
    return reply
