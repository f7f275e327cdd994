"""Strict reading of TOML documents: every key is declared, every wrong key or value is an error that says where.

`read_toml` opens a file; `Table` hands out typed values and remembers which keys were asked for; `Table.finish` refuses the
rest, naming file, key and the nearest known key. `Federation` is the one document that parties and miner share.
"""

from __future__ import annotations

import difflib
import errno
import ipaddress
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.core.permissions import not_permitted
from verticil.shared.documents.foreign_files.limits import CERTIFICATE_BYTES, TOML_BYTES
from verticil.shared.documents.foreign_files.reading import TooLargeError, read_at_most
from verticil.shared.documents.toml_table import Table, is_name

RELAY: Final = "relay"
"""In place of host:port in [peers]: that party cannot be dialled, what is for it goes through the miner, sealed."""


def read_toml(path: Path, *, code: str = "CONFIG_INVALID") -> Table:
    """Read a TOML file.

    Raises:
        Misuse: FILE_MISSING when there is no such file, `code` when it is not UTF-8 TOML of schema 1.
    """
    return toml_table(toml_text(path, code=code), source=path.name, path=str(path), code=code)


def toml_text(path: Path, *, code: str = "CONFIG_INVALID") -> str:
    """Return the text of a file, which may be no TOML.

    Raises:
        Misuse: FILE_MISSING when there is no such file, `code` when it is not UTF-8.
        DataFault: STATE_READ_ONLY, another user's.
    """
    try:
        with path.open("rb") as file:
            content = file.read(TOML_BYTES + 1)
        if len(content) > TOML_BYTES:
            raise Misuse(code, f"{path}: more than {TOML_BYTES} bytes, expected a file that a person wrote")
        return content.decode("utf-8")
    except FileNotFoundError:
        raise Misuse("FILE_MISSING", f"{path}: no such file", hint="give the path of an existing TOML file") from None
    except OSError as error:  # a folder, not permitted, a name that is too long
        fault = Misuse("FILE_MISSING", f"{path}: cannot be read ({error.strerror})")
        raise not_permitted(error, path) or fault from None
    except UnicodeDecodeError as error:
        raise Misuse(code, f"{path}: not UTF-8 at byte {error.start}") from None


def toml_table(text: str, *, source: str, path: str = "", code: str = "CONFIG_INVALID") -> Table:
    """Read a text of TOML, named `source` in messages, and by `path` where it is none.

    Raises:
        Misuse: `code` when it is not TOML of schema 1.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misuse(code, f"{path or source}: not TOML: {error}") from None
    except RecursionError:
        raise Misuse(code, f"{path or source}: not TOML that anybody wrote: nested too deep") from None
    table = Table(values, source=source, code=code, file=True)
    if "schema" not in values and (near := difflib.get_close_matches("schema", values, 1)):
        table.fail(near[0], "unknown key", hint="did you mean 'schema'?")
    if (version := table.value(int, "schema")) != 1:
        table.fail("schema", f"got {version}, expected 1", hint="this version of verticil reads schema 1")
    return table


def path_in(table: Table, key: str, base: Path, default: str | None = None) -> Path:
    """Return a path at a key, relative to `base` (the folder of the document); without a default the key must be there."""
    text = table.value(str, key) if default is None else table.value(str, key, default)
    if not text or "\0" in text:
        table.fail(key, f"got {text[:100]!r}, expected a path")
    return base / text


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """federation.toml: public, the same bytes at every site.

    Attributes:
        name: the federation's name, first part of every identity.
        ca_certificate: path of the CA certificate (PEM).
        ca_sha256: SHA-256 of the CA certificate (DER), lower-case hex.
        endpoint: host:port of the miner, a SAN of its certificate; None where the parties have no miner (Model I).
        idle_timeout_seconds: the only transfer timeout users ever see: no progress for this long.
        chunk_bytes: payload bytes in one chunk, at most 524,288.
        peers: host:port at which each party serves its peers (Model I), by the party's name; `RELAY` for one that is reached
            through the miner; empty where none does.
        sealing: public sealing key (X25519, 32 bytes) of each party that has one, see
        `verticil.shared.federation.transport.sealing`. miner_sealing: the miner's, for files that are carried to it
        (`verticil.shared.federation.airgap`); None: it has none.
    """

    name: str
    ca_certificate: Path
    ca_sha256: str
    endpoint: str | None
    idle_timeout_seconds: float
    chunk_bytes: int
    peers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sealing: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    miner_sealing: bytes | None = None

    def authority(self) -> bytes:
        """Read the certificate of the federation's authority, PEM.

        Raises:
            Misuse: FILE_MISSING; CONFIG_INVALID, the file is larger than a certificate is.
        """
        try:
            return read_at_most(self.ca_certificate, CERTIFICATE_BYTES)
        except TooLargeError as error:
            raise Misuse("CONFIG_INVALID", f"{self.ca_certificate}: {error}, expected a certificate") from None
        except OSError as error:
            raise Misuse("FILE_MISSING", f"{self.ca_certificate}: cannot be read ({error.strerror})") from None

    @property
    def relays(self) -> bool:
        """Whether some party is reached through the miner."""
        return RELAY in self.peers.values()

    @property
    def miner_endpoint(self) -> str:
        """`endpoint`, for callers that need the miner.

        Raises:
            Misuse: CONFIG_INVALID, this federation has none.
        """
        if self.endpoint is None:
            raise Misuse(
                "CONFIG_INVALID",
                f"federation.toml: [miner] is missing: federation '{self.name}' has no miner, and this needs one",
                hint="its parties work with each other: verticil party load STUDY.toml at each of them",
            )
        return self.endpoint


def load_federation(path: Path) -> Federation:
    """Read federation.toml.

    Raises:
        Misuse: CONFIG_INVALID or FILE_MISSING.
    """
    table = read_toml(path)
    base = path.parent
    peers = _peers(table)
    if not peers and not table.has("miner"):
        table.fail("miner", "missing", hint="name the miner in [miner] endpoint, or the parties of Model I in [peers]")
    miner = table.table("miner", optional=True)
    transport = table.table("transport", optional=True)
    federation = Federation(
        name=table.value(str, "name"),
        ca_certificate=path_in(table, "ca_certificate", base),
        ca_sha256=table.value(str, "ca_sha256").lower(),
        endpoint=miner.value(str, "endpoint") if table.has("miner") else None,
        idle_timeout_seconds=transport.value(float, "idle_timeout_seconds", 120.0),
        chunk_bytes=transport.value(int, "chunk_bytes", 524_288),
        peers=peers,
        sealing=_sealing(table),
        miner_sealing=_sealing_key(miner, "sealing_key") if miner.has("sealing_key") else None,
    )
    if federation.relays and federation.endpoint is None:
        table.fail("miner", "missing", hint='it passes on what is for the parties that are "relay" in [peers]')
    if len(federation.ca_sha256) != 64 or set(federation.ca_sha256) - set("0123456789abcdef"):
        table.fail("ca_sha256", "expected 64 hexadecimal digits")
    if not 1024 <= federation.chunk_bytes <= 524_288:
        transport.fail("chunk_bytes", f"got {federation.chunk_bytes}, expected 1024 to 524288")
    if not 1 <= federation.idle_timeout_seconds <= 86_400:
        transport.fail("idle_timeout_seconds", f"got {federation.idle_timeout_seconds}, expected 1 to 86400")
    if federation.endpoint is not None:
        _check_address(miner, "endpoint", federation.endpoint)
    for part in (transport, miner, table):
        part.finish()
    return federation


def _peers(table: Table) -> Mapping[str, str]:
    """Read the table ``[peers]``: NAME = "host:port", or "relay"."""
    section = table.table("peers", optional=True)
    peers: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name in section.names():
        if not is_name(name):
            section.fail(name[:80], "not a party's name, expected 1 to 63 of A-Z a-z 0-9 _ -")
        address = section.value(str, name)
        if address == RELAY:
            peers[name] = address
            continue
        _check_address(section, name, address)
        if (other := owners.setdefault(address.lower(), name)) != name:
            section.fail(name, f"'{address}' is the address of '{other}' already", hint="each party has its own")
        peers[name] = address
    return MappingProxyType(peers)


def _sealing(table: Table) -> Mapping[str, bytes]:
    """Read the table ``[sealing]``: NAME = "64 hexadecimal digits"."""
    section = table.table("sealing", optional=True)
    keys: dict[str, bytes] = {}
    owners: dict[bytes, str] = {}
    for name in section.names():
        if not is_name(name):
            section.fail(name[:80], "not a party's name, expected 1 to 63 of A-Z a-z 0-9 _ -")
        keys[name] = _sealing_key(section, name)
        if (other := owners.setdefault(keys[name], name)) != name:
            section.fail(name, f"is the key of '{other}' already", hint="each party makes its own")
    section.finish()
    return MappingProxyType(keys)


def _sealing_key(table: Table, key: str) -> bytes:
    digits = table.value(str, key)
    if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        table.fail(key, "expected 64 hexadecimal digits", hint="verticil pki seal shows them at that site")
    return bytes.fromhex(digits)


def _check_address(table: Table, key: str, address: str) -> None:
    check_address(table, key, address, example="miner.example.org:8443", least_port=1)


def check_address(table: Table, key: str, address: str, *, example: str, least_port: int = 0) -> None:
    """Check that a value is host:port, with an IPv6 address in brackets.

    Raises:
        Misuse: the table's code; the hint says what is usually meant.
    """
    if not _is_address(address, least_port):
        hint = _address_hint(address) or f'as in "{example}"'
        table.fail(key, f"got '{address[:200]}', expected {_expected(address, least_port)}", hint=hint)


def _is_address(address: str, least_port: int) -> bool:
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    has_form = bool(bare) and not any(c.isspace() or c in "/@[]*" for c in bare) and (":" not in bare or bare != host)
    return has_form and port.isascii() and port.isdigit() and least_port <= int(port) <= 65_535


def _expected(address: str, least_port: int) -> str:
    """Return what is expected in place of an address: where only the port is too high or too low, that is said."""
    host, _, port = address.rpartition(":")
    only_port = port.isascii() and port.isdigit() and _is_address(f"{host}:1", least_port)
    return f"host:port with a port from {least_port} to 65535" if only_port else "host:port"


def _address_hint(address: str) -> str:
    host, _, port = address.rpartition(":")
    if host == "*":
        return f'for every address: "0.0.0.0:{port[:5]}", or "[::]:{port[:5]}" with those of IPv6'
    if ":" in host and "[" not in host:
        return f'an IPv6 address stands in brackets: "[{host[:45]}]:{port[:5]}"'
    return ""


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
    host, port = socket_address(listen, where=where)
    if not is_loopback(host):
        problem = f"{where}: got '{listen[:100]}', expected a loopback address: the page has no TLS"
        raise Misuse("CONFIG_INVALID", problem, hint=hint)
    return host, port


def socket_address(listen: str, *, where: str) -> tuple[str, int]:
    """Host and port of any address, for what is served over TLS; raises as `loopback_address`."""
    if not _is_address(listen, 0):
        problem = f"{where}: got '{listen[:100]}', expected {_expected(listen, 0)}"
        raise Misuse("CONFIG_INVALID", problem, hint=_address_hint(listen) or "for example 127.0.0.1:9464")
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def cannot_listen(where: str, host: str, port: int, *, taken: str = "is another node running on this port?") -> Misuse:
    """Return the error of an address that could not be listened on, with the reason that the machine gives for it.

    Args:
        where: key or option, for the message.
        host: without the brackets of an IPv6 address.
        port: of the address.
        taken: the hint where another program has the port.
    """
    fault: OSError | None = None
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        fault = error
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if fault is None or fault.errno == errno.EADDRINUSE:
        return Misuse("CONFIG_INVALID", f"{where}: cannot listen on {place}", hint=taken)
    hint = "is it an address of this machine?" + ("" if is_loopback(host) else " 0.0.0.0 takes all")
    if fault.errno == errno.EACCES:
        hint = "is it a port below 1024? take a higher one"
    return Misuse("CONFIG_INVALID", f"{where}: cannot listen on {place} ({fault.strerror})", hint=hint)


def listen_address(table: Table, *, hint: str, has_tls: bool = False) -> tuple[str, int] | None:
    """Return the ``listen`` of a table that says nothing else; None where it is absent.

    Args:
        table: of the page.
        hint: what to do instead of listening elsewhere than on loopback.
        has_tls: it may listen anywhere.

    Raises:
        Misuse: CONFIG_INVALID, as `loopback_address`.
    """
    if not table.has("listen"):
        table.finish()
        return None
    where, listen = f"{table.source}: {table.path('listen')}", table.value(str, "listen")
    address = socket_address(listen, where=where) if has_tls else loopback_address(listen, where=where, hint=hint)
    table.finish()
    return address


def is_loopback(host: str) -> bool:
    """Return whether an address is one that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
