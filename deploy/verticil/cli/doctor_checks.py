"""What a check found: one line for people with what to do, one object for programs, one exit code for both.

Checks of this machine: certificate, private files, disk, proxy variables. They read no private value and write nothing.

Checks of the way to another node, each building on the one before: name, TCP, TLS, whether it accepts us, version, clock.

What is asked of the node is its health, so nothing is reported to it and nobody counts as online by this.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from verticil.shared.config import is_loopback
from verticil.shared.disk import read_only_fault
from verticil.shared.errors import CODES, DataFault, Misuse, PeerFault, VerticilError
from verticil.shared.identity.identity import Identity, Role, peer_host
from verticil.shared.identity.pki import Credentials, identity_of
from verticil.shared.membership.current import expiry_warning, expiry_words
from verticil.shared.transport.authorization import EMPTY_DENY_LIST, Revocations, check_revoked
from verticil.shared.transport.channel import diagnose, served_certificate, split_endpoint
from verticil.shared.transport.client import Connection
from verticil.shared.transport.health import check_health
from verticil.shared.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION, SKEW, TIME_KEY, agree


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check. It names files, hosts, counts and times, never a value of a table.

    Attributes:
        check: what was looked at: ``name resolution``.
        level: ``ok``, ``warn`` (it works, for now) or ``fail`` (it does not).
        detail: what was seen.
        hint: what to do about it; empty when it is ok.
        code: of the error that a daemon would end with; empty unless it failed.
    """

    check: str
    level: Literal["ok", "warn", "fail"]
    detail: str
    hint: str = ""
    code: str = ""


def ok(check: str, detail: str) -> Finding:
    """It works."""
    return Finding(check=check, level="ok", detail=detail)


def warn(check: str, detail: str, hint: str) -> Finding:
    """It works, for now."""
    return Finding(check=check, level="warn", detail=detail, hint=hint)


def failed(check: str, error: VerticilError) -> Finding:
    """It does not work."""
    return Finding(check=check, level="fail", detail=error.message, hint=error.hint, code=error.code)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when nothing failed, else that of the first failure: what is mended first, as the checks build on each other.

    >>> exit_code([ok("disk", ""), warn("proxy", "", "")])
    0
    """
    return next((CODES[finding.code][1] for finding in findings if finding.level == "fail"), 0)


_LOW_BYTES: Final = 1 << 30
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS: Final = ("no_grpc_proxy", "no_proxy")


def check_certificate(load: Callable[[], Credentials], *, at: dt.datetime) -> tuple[Finding, Credentials | None]:
    """The node's own certificate: chain, role, name, key, end.

    Args:
        load: reads and checks it (`verticil.shared.identity.pki.load_credentials`).
        at: now.

    Returns:
        The finding, and the credentials if they can be used.
    """
    try:
        credentials = load()
    except VerticilError as error:
        return failed("certificate", error), None
    return expiry("certificate", str(credentials.identity), credentials.not_after, at=at), credentials


def expiry(check: str, whose: str, not_after: dt.datetime, *, at: dt.datetime) -> Finding:
    """How soon a certificate ends; a warning from 30 days before."""
    text = f"{whose}, {expiry_words(not_after, at)} ({not_after:%Y-%m-%d %H:%M} UTC)"
    if expiry_warning(not_after, at) is None:
        return ok(check, text)
    return warn(check, text, "have it renewed now: verticil pki renew NAME.crt")


def check_private_files(files: Mapping[str, Path]) -> Iterator[Finding]:
    """Private files are there, and readable by their owner only.

    Args:
        files: what it is -> where it lies.
    """
    for what, path in files.items():
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            fault = DataFault(
                "SECRET_MISSING",
                f"{what} {path}: cannot be read ({error.strerror})",
                hint="is the path in the configuration right, and does this user own the file?",
            )
            yield failed("private files", fault)
            continue
        if mode & 0o077:
            exposed = Misuse(
                "CONFIG_INVALID",
                f"{what} {path}: mode {mode:04o}, expected 0600: others on this machine may use it",
                hint=f"chmod 600 {path}; if others have an account here, have it replaced",
            )
            yield failed("private files", exposed)
        elif not os.access(path, os.R_OK):
            unreadable = DataFault("SECRET_MISSING", f"{what} {path}: not readable by this user", hint="whose is it?")
            yield failed("private files", unreadable)
        else:
            yield ok("private files", f"{what}: mode {mode:04o}")


def check_disk(
    directory: Path,
    *,
    reserve_bytes: int,
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
) -> Finding:
    """There is room in the state directory, and it can be written to.

    Args:
        directory: the state directory.
        reserve_bytes: what must stay free.
        free_bytes: free space on the disk of a path.
    """
    if not directory.is_dir():
        problem, hint = f"state directory {directory}: missing", "check state_directory in the configuration"
        return failed("disk", Misuse("FILE_MISSING", problem, hint=hint))
    if not os.access(directory, os.W_OK | os.X_OK):
        return failed("disk", read_only_fault(directory))
    free = free_bytes(directory)
    text = f"{free / 2**30:.1f} GiB free in {directory}"
    if free < reserve_bytes:
        fault = DataFault("DISK_FULL", f"{text}, expected at least {reserve_bytes / 2**30:.2g} GiB", hint="make room")
        return failed("disk", fault)
    return ok("disk", text) if free >= max(_LOW_BYTES, 2 * reserve_bytes) else warn("disk", text, "make room soon")


def check_proxy(endpoint: str, environment: Mapping[str, str]) -> Finding:
    """Whether calls to an endpoint would go through a proxy, which must not open TLS.

    Args:
        endpoint: host:port.
        environment: the environment variables.
    """
    known = {name.lower(): value for name, value in environment.items()}
    proxy = next((name for name in _PROXIES if known.get(name)), None)
    if proxy is None:
        return ok("proxy", "none in the environment")
    try:
        host = split_endpoint(endpoint)[0].lower()
    except PeerFault as fault:
        return failed("proxy", fault)
    exceptions = next((known[name] for name in _EXCEPTIONS if known.get(name)), "")
    if host == "localhost" or is_loopback(host):
        return ok("proxy", f"{proxy} is set, {host} is this machine")
    listed = [entry.strip().lower().lstrip("*").lstrip(".") for entry in exceptions.split(",") if entry.strip()]
    if any(host == entry or host.endswith(f".{entry}") for entry in listed):
        return ok("proxy", f"{proxy} is set, {host} is excepted")
    return warn(
        "proxy",
        f"{proxy} is set, and calls to {host} go through it",
        f"a proxy that opens TLS cannot work here: have it pass {host} on, or add {host} to no_proxy",
    )


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
