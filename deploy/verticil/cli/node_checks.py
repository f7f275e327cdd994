"""Checks of the way to another node, each building on the one before: name, TCP, TLS, whether it accepts us, version, clock.

What is asked of the node is its health, so nothing is reported to it and nobody counts as online by this.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Identity, Role, peer_host
from verticil.shared.federation.identity.pki import Credentials, identity_of
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations, check_revoked
from verticil.shared.federation.transport.channel import diagnose, served_certificate, split_endpoint
from verticil.shared.federation.transport.client import Connection
from verticil.shared.federation.transport.health import check_health
from verticil.shared.federation.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION, SKEW, TIME_KEY, agree

if TYPE_CHECKING:
    pass
from verticil.cli.doctor_findings import Finding, fail, ok, warn
from verticil.cli.machine_checks import expiry

_SECONDS: Final = 5.0
"""For each step on the way to another node."""


async def check_node(
    endpoint: str,
    credentials: Credentials,
    *,
    clock: Callable[[], dt.datetime],
    peer_identity: Identity | None = None,
    server_name: str | None = None,
    revocations: Revocations = EMPTY_DENY_LIST,
) -> AsyncIterator[Finding]:
    """Go as far as one gets on the way to a node; the first failure is the last finding.

    Args:
        endpoint: host:port.
        credentials: ours.
        clock: UTC now.
        peer_identity: the node that must be there; None: the federation's miner.
        server_name: name that the server's certificate must carry; the node's own, or the endpoint's host, when absent.
        revocations: the deny-list.
    """
    name = server_name or (None if peer_identity is None else peer_host(peer_identity))
    where = "" if peer_identity is None else f" ({peer_identity.role} '{peer_identity.name}')"

    def of(check: str) -> str:
        return f"{check}{where}"

    try:
        host, port = split_endpoint(endpoint)
        infos = await asyncio.wait_for(
            asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM), _SECONDS
        )
        addresses = sorted({str(entry[4][0]) for entry in infos})
        yield ok(of("name resolution"), f"{host}: {', '.join(addresses[:4])}")
    except (OSError, PeerFault, TimeoutError) as error:
        fault = error if isinstance(error, PeerFault) else _name_fault(endpoint)
        yield fail(of("name resolution"), fault)
        return

    def why() -> PeerFault:
        return diagnose(
            endpoint, credentials, server_name=name, target=peer_identity, timeout_seconds=_SECONDS, at=clock()
        )

    def connect() -> None:
        socket.create_connection((host, port), _SECONDS).close()

    try:
        await asyncio.to_thread(connect)
        yield ok(of("TCP"), f"{endpoint} answers")
    except OSError:
        yield fail(of("TCP"), await asyncio.to_thread(why))
        return
    try:
        certificate = await asyncio.to_thread(
            served_certificate,
            endpoint,
            credentials,
            server_name=name,
            target=peer_identity,
            timeout_seconds=_SECONDS,
        )
        identity = identity_of(certificate)
        check_revoked(certificate.serial_number, identity, revocations)
        if peer_identity is None and identity.role is not Role.MINER:
            raise PeerFault(
                "IDENTITY_REFUSED",
                f"{endpoint}: got {identity}, expected the miner",
                hint="check [miner] endpoint in federation.toml: another node answers there",
            )
        yield expiry(of("TLS"), f"chain and name hold: {identity}", certificate.not_valid_after_utc, at=clock())
    except VerticilError as error:
        yield fail(of("TLS"), error)
        return
    line = Connection(endpoint, credentials, server_name=name, target=peer_identity, revocations=revocations)
    async for finding in _check_acceptance(line, str(credentials.identity), clock=clock):
        yield dataclasses.replace(finding, check=of(finding.check))


async def _check_acceptance(line: Connection, us: str, *, clock: Callable[[], dt.datetime]) -> AsyncIterator[Finding]:
    """Check that the node takes our calls, and what it tells of itself. Closes the connection."""
    try:
        health = await check_health(line, timeout_seconds=_SECONDS)
    except VerticilError as error:
        check = "protocol version" if error.code == "VERSION_UNSUPPORTED" else "accepted"
        if error.code == "NOT_READY":
            yield warn(check, error.message, error.hint)
        else:
            yield fail(check, error)
        return
    finally:
        await line.close()
    yield ok("accepted", f"as {us}")
    try:
        theirs = int(health.get(PROTOCOL_KEY, ""))
        version = agree(theirs, here="this node", there="the other node")
        yield ok("protocol version", f"{version} (this node speaks {PROTOCOL_VERSION}, the other {theirs})")
    except VerticilError as error:
        yield fail("protocol version", error)
    except ValueError:
        yield fail("protocol version", PeerFault("VERSION_UNSUPPORTED", "the other node does not say its version"))
    if (stamp := health.get(TIME_KEY, "")).isdigit():
        yield _skew(float(stamp) / 1000 - clock().timestamp())


def _skew(ahead: float) -> Finding:
    text = f"{abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} the other node's"
    if abs(ahead) <= SKEW.total_seconds():
        return ok("clock", text)
    return warn("clock", text, "have both machines set their clocks over the network (NTP): certificates go by time")


def _name_fault(endpoint: str) -> PeerFault:
    return PeerFault(
        "UNREACHABLE",
        f"{endpoint.rpartition(':')[0]}: no such host name",
        hint="check the endpoint in federation.toml and this machine's name service",
    )
