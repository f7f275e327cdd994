"""Addresses that only this machine reaches. Pages without TLS are served on these and on no other.

Names are refused, ``localhost`` too: what a name means is decided elsewhere, and may change.
"""

from __future__ import annotations

import ipaddress

from verticil.shared.config import Table
from verticil.shared.errors import Misuse


def loopback_address(listen: str, *, where: str, hint: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:8899`` or ``[::1]:8899``.

    Args:
        listen: what somebody wrote.
        where: key or option, for the message.
        hint: what to do instead of listening elsewhere.

    Raises:
        Misuse: CONFIG_INVALID, not host:port, or not a loopback address.

    >>> loopback_address("[::1]:0", where="--listen", hint="")
    ('::1', 0)
    """
    host, separator, port = listen.rpartition(":")
    if not (separator and host and port.isdecimal() and port.isascii() and int(port) <= 65_535):
        problem = f"{where}: got '{listen[:100]}', expected host:port"
        raise Misuse("CONFIG_INVALID", problem, hint="for example 127.0.0.1:9464")
    bare = host.removeprefix("[").removesuffix("]")
    if not _is_loopback(bare):
        problem = f"{where}: got '{listen[:100]}', expected a loopback address: the page has no TLS"
        raise Misuse("CONFIG_INVALID", problem, hint=hint)
    return bare, int(port)


def listen_address(table: Table, *, hint: str) -> tuple[str, int] | None:
    """The ``listen`` of a table that says nothing else; None where it is absent.

    Raises:
        Misuse: CONFIG_INVALID, as `loopback_address`.
    """
    if not table.has("listen"):
        table.finish()
        return None
    where = f"{table.source}: {table.path('listen')}"
    address = loopback_address(table.value(str, "listen"), where=where, hint=hint)
    table.finish()
    return address


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
