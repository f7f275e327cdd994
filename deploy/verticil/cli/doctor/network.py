"""Checks of the way to another node, each building on the one before: name, TCP, TLS, whether it accepts us, version, clock.

What is asked of the node is its health, so nothing is reported to it and nobody counts as online by this.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import socket
from collections.abc import AsyncIterator, Callable
from typing import Final

from verticil.cli.doctor.findings import Finding, failed, ok, warn
from verticil.cli.doctor.machine import expiry
from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.identity.identity import Identity, Role, peer_host
from verticil.shared.identity.pki import Credentials, identity_of
from verticil.shared.transport.authorization import EMPTY_DENY_LIST, Revocations, check_revoked
from verticil.shared.transport.channel import diagnose, served_certificate, split_endpoint
from verticil.shared.transport.client import Connection
from verticil.shared.transport.health import check_health
from verticil.shared.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION, SKEW, TIME_KEY, agree

_SECONDS: Final = 5.0


async def check_node(
    endpoint: str,
    credentials: Credentials,
    *,
    clock: Callable[[], dt.datetime],
    expected: Identity | None = None,
    server_name: str | None = None,
    revocations: Revocations = EMPTY_DENY_LIST,
    timeout_seconds: float = _SECONDS,
) -> AsyncIterator[Finding]:
    """Go as far as one gets on the way to a node; the first failure is the last finding.

    Args:
        endpoint: host:port.
        credentials: ours.
        clock: UTC now.
        expected: the node that must be there; None: the federation's miner.
        server_name: name that the server's certificate must carry; the node's own, or the endpoint's host, when absent.
        revocations: the deny-list.
        timeout_seconds: for each step.
    """
    name = server_name or (None if expected is None else peer_host(expected))
    where = "" if expected is None else f" ({expected.role} '{expected.name}')"

    def of(check: str) -> str:
        return f"{check}{where}"

    try:
        host, port = split_endpoint(endpoint)
        found = await asyncio.wait_for(
            asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM), timeout_seconds
        )
        addresses = sorted({str(entry[4][0]) for entry in found})
        yield ok(of("name resolution"), f"{host}: {', '.join(addresses[:4])}")
    except (OSError, PeerFault, TimeoutError) as error:
        fault = error if isinstance(error, PeerFault) else _unresolved(endpoint)
        yield failed(of("name resolution"), fault)
        return

    def why() -> PeerFault:
        return diagnose(
            endpoint, credentials, server_name=name, expected=expected, timeout_seconds=timeout_seconds, at=clock()
        )

    def connect() -> None:
        socket.create_connection((host, port), timeout_seconds).close()

    try:
        await asyncio.to_thread(connect)
        yield ok(of("TCP"), f"{endpoint} answers")
    except OSError:
        yield failed(of("TCP"), await asyncio.to_thread(why))
        return
    try:
        certificate = await asyncio.to_thread(
            served_certificate,
            endpoint,
            credentials,
            server_name=name,
            expected=expected,
            timeout_seconds=timeout_seconds,
        )
        identity = identity_of(certificate)
        check_revoked(certificate.serial_number, identity, revocations)
        if expected is None and identity.role is not Role.MINER:
            raise PeerFault(
                "IDENTITY_REFUSED",
                f"{endpoint}: got {identity}, expected the miner",
                hint="check [miner] endpoint in federation.toml: another node answers there",
            )
        yield expiry(of("TLS"), f"chain and name hold: {identity}", certificate.not_valid_after_utc, at=clock())
    except VerticilError as error:
        yield failed(of("TLS"), error)
        return
    line = Connection(endpoint, credentials, server_name=name, expected=expected, revocations=revocations)
    async for finding in _accepted(line, str(credentials.identity), clock=clock, timeout_seconds=timeout_seconds):
        yield dataclasses.replace(finding, check=of(finding.check))


async def _accepted(
    line: Connection, us: str, *, clock: Callable[[], dt.datetime], timeout_seconds: float
) -> AsyncIterator[Finding]:
    """Whether the node takes our calls, and what it tells of itself. Closes the connection."""
    try:
        told = await check_health(line, timeout_seconds=timeout_seconds)
    except VerticilError as error:
        check = "protocol version" if error.code == "VERSION_UNSUPPORTED" else "accepted"
        if error.code == "NOT_READY":
            yield warn(check, error.message, error.hint)
        else:
            yield failed(check, error)
        return
    finally:
        await line.close()
    yield ok("accepted", f"as {us}")
    try:
        theirs = int(told.get(PROTOCOL_KEY, "1"))
        agreed = agree(theirs, here="this node", there="the other node")
        yield ok("protocol version", f"{agreed} (this node speaks {PROTOCOL_VERSION}, the other {theirs})")
    except VerticilError as error:
        yield failed("protocol version", error)
    except ValueError:
        yield failed("protocol version", PeerFault("VERSION_UNSUPPORTED", "the other node tells no version"))
    if (stamp := told.get(TIME_KEY, "")).isdigit():
        yield _skew(float(stamp) / 1000 - clock().timestamp())


def _skew(ahead: float) -> Finding:
    text = f"{abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} the other node's"
    if abs(ahead) <= SKEW.total_seconds():
        return ok("clock", text)
    return warn("clock", text, "have both machines set their clocks over the network (NTP): certificates go by time")


def _unresolved(endpoint: str) -> PeerFault:
    return PeerFault(
        "UNREACHABLE",
        f"{endpoint.rpartition(':')[0]}: no such host name",
        hint="check the endpoint in federation.toml and this machine's name service",
    )
