"""Checks of this machine: certificate, private files, disk, proxy variables. They read no private value and write nothing."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from verticil.shared.core.errors import DataFault, Misuse, PeerFault, VerticilError
from verticil.shared.core.health import require_inodes
from verticil.shared.core.permissions import not_permitted
from verticil.shared.documents.config import is_loopback
from verticil.shared.federation.identity.pki import Credentials, exposed_file
from verticil.shared.federation.membership.current import expiry_warning, expiry_words
from verticil.shared.federation.transport.channel import split_endpoint
from verticil.shared.storage.disk import read_only_fault

if TYPE_CHECKING:
    pass
from verticil.cli.doctor_findings import Finding, fail, ok, warn

_LOW_BYTES: Final = 1 << 30
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS: Final = ("no_grpc_proxy", "no_proxy")


def check_certificate(load: Callable[[], Credentials], *, at: dt.datetime) -> tuple[Finding, Credentials | None]:
    """Check the node's own certificate: chain, role, name, key, end.

    Args:
        load: reads and checks it (`verticil.shared.federation.identity.pki.load_credentials`).
        at: now.

    Returns:
        The finding, and the credentials if they can be used.
    """
    try:
        credentials = load()
    except VerticilError as error:
        return fail("certificate", error), None
    return expiry("certificate", str(credentials.identity), credentials.not_after, at=at), credentials


def expiry(check: str, whose: str, not_after: dt.datetime, *, at: dt.datetime) -> Finding:
    """Say how soon a certificate ends; a warning from 30 days before."""
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
            path.open("rb").close()
        except OSError as error:
            fault = DataFault(
                "SECRET_MISSING",
                f"{what} {path}: cannot be read ({error.strerror})",
                hint="is the path in the configuration right?",
            )
            yield fail("private files", not_permitted(error, path, what=what) or fault)
            continue
        if mode & 0o077:
            yield fail("private files", exposed_file(path, mode, what=what))
        else:
            yield ok("private files", f"{what}: mode {mode:04o}")


def check_disk(directory: Path, *, reserve_bytes: int) -> Finding:
    """There is room in the state directory, for bytes and for files, and it can be written to.

    Args:
        directory: the state directory.
        reserve_bytes: what must stay free.
    """
    if not directory.is_dir():
        problem, hint = f"state directory {directory}: missing", "check state_directory in the configuration"
        return fail("disk", Misuse("FILE_MISSING", problem, hint=hint))
    if not os.access(directory, os.W_OK | os.X_OK):
        return fail("disk", read_only_fault(directory))
    try:
        require_inodes(directory)
    except DataFault as without_inodes:
        return fail("disk", without_inodes)
    free = shutil.disk_usage(directory).free
    text = f"{free / 2**30:.1f} GiB free in {directory}"
    if free < reserve_bytes:
        fault = DataFault("DISK_FULL", f"{text}, expected at least {reserve_bytes / 2**30:.2g} GiB", hint="make room")
        return fail("disk", fault)
    return ok("disk", text) if free >= max(_LOW_BYTES, 2 * reserve_bytes) else warn("disk", text, "make room soon")


def check_proxy(endpoint: str, environment: Mapping[str, str]) -> Finding:
    """Return whether calls to an endpoint would go through a proxy, which must not open TLS.

    Args:
        endpoint: host:port.
        environment: the environment variables.
    """
    variables = {name.lower(): value for name, value in environment.items()}
    proxy = next((name for name in _PROXIES if variables.get(name)), None)
    if proxy is None:
        return ok("proxy", "none in the environment")
    try:
        host = split_endpoint(endpoint)[0].lower()
    except PeerFault as fault:
        return fail("proxy", fault)
    exceptions = next((variables[name] for name in _EXCEPTIONS if variables.get(name)), "")
    if host == "localhost" or is_loopback(host):
        return ok("proxy", f"{proxy} is set, {host} is this machine")
    host_entries = [entry.strip().lower().lstrip("*").lstrip(".") for entry in exceptions.split(",") if entry.strip()]
    if any(host == entry or host.endswith(f".{entry}") for entry in host_entries):
        return ok("proxy", f"{proxy} is set, {host} is excepted")
    return warn(
        "proxy",
        f"{proxy} is set, and calls to {host} go through it",
        f"a proxy that opens TLS cannot work here: have it pass {host} on, or add {host} to no_proxy",
    )
