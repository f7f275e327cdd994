"""Below a connection: the client's channel and the server's certificate, which follow renewals, and why a connection fails.

gRPC reads certificates once, when a channel is made, and does not tell a client whose certificate the server showed. So:

- Before a call the node's credentials and deny-list are looked at. When either is another than the channel was made with, the
  next call goes over a new channel; calls under way end on the old one, which is then closed.
- As soon as the deny-list names anybody, the server's certificate is fetched and verified first, its serial is looked up, and
  the channel trusts that one certificate instead of the authority (a leaf may be a root: gRPC verifies with partial chains, as
  the tests show). What was checked is then what is spoken to. When the server gets a new certificate, such a channel cannot
  connect again; `forget` makes the next call look anew. Calls to a server that was revoked meanwhile are cut off.

Calls are made with a `ReloadingChannel` in place of a channel: it only remembers their methods until they are called. A server
shows a renewed certificate from the next handshake on (`CertificateChoice`).

Why a connection failed: not there, or refused, by them or by us.

gRPC reports a refused certificate, either side's, as the same UNAVAILABLE as a machine that is switched off (seen with
grpcio 1.85: "Socket closed"). `diagnose` repeats the handshake with Python's own TLS and says what it meets. Under TLS 1.3
a client learns that its certificate is refused only after the handshake, and gRPC servers then close without an alert, so
a peer that closes at once, three times in a row, has refused us. Where one certain node is expected and another one of the
federation answers, a further handshake tells which. It opens at most four connections and sends no payload; it blocks, so call it
in a thread.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    Credentials,
    CredentialSource,
    certificate_sha256,
    identity_of,
    utc_now,
)
from verticil.shared.federation.transport.authorization import Revocations
from verticil.shared.federation.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION

_METADATA: Final = ((PROTOCOL_KEY, str(PROTOCOL_VERSION)),)


class _Call(Protocol):
    """What is used of a call of any kind."""

    def add_done_callback(self, callback: Callable[[object], None]) -> None: ...


class _Callable(Protocol):
    """What is used of a channel's method of any kind."""

    def __call__(self, *arguments: object, **options: object) -> _Call: ...


class _Channel:
    """One gRPC channel, what it was made with, and its calls under way."""

    def __init__(self, channel: grpc.aio.Channel, *, credentials: Credentials, number: int, is_pinned: bool) -> None:
        self.channel = channel
        self.credentials = credentials
        self.number = number
        self.pinned = is_pinned
        self._calls = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._closing is not None and self._closing.done()

    def add_call(self, call: _Call) -> None:
        self._calls += 1
        call.add_done_callback(self._end_call)

    def _end_call(self, _call: object) -> None:
        self._calls -= 1
        self._close_if_idle()

    def retire(self) -> None:
        """Close it when its last call has ended."""
        self._retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and self._calls == 0 and self._closing is None:
            self._closing = asyncio.ensure_future(self.channel.close())

    async def close(self) -> None:
        await self.channel.close()
        if self._closing is not None:
            await self._closing


class _Method:
    """A method of a service; its call goes over the channel that is in use by then."""

    def __init__(self, line: ReloadingChannel, kind: str, path: str, options: dict[str, object]) -> None:
        self._line = line
        self._kind = kind
        self._path = path
        self._options = options

    def __call__(self, *arguments: object, metadata: tuple[tuple[str, str], ...] = (), **options: object) -> _Call:
        channel = self._line.present()
        make = cast("Callable[..., _Callable]", getattr(channel.channel, self._kind))
        call = make(self._path, **self._options)(*arguments, metadata=(*_METADATA, *metadata), **options)
        channel.add_call(call)
        return call


class ReloadingChannel:
    """Stands in for a channel; see the module. It belongs to one event loop.

    Args:
        source: our credentials.
        revocations: the deny-list.
        make: makes a channel with credentials that trusts the given certificates (PEM).
        server_certificate: fetches and verifies the certificate of the node that answers; blocks.
    """

    def __init__(
        self,
        source: CredentialSource,
        revocations: Revocations,
        *,
        make: Callable[[Credentials, bytes], grpc.aio.Channel],
        server_certificate: Callable[[Credentials], x509.Certificate],
    ) -> None:
        self._source = source
        self._revocations = revocations
        self._make = make
        self._server_certificate = server_certificate
        self._present: _Channel | None = None
        self._former: list[_Channel] = []
        self._lock = asyncio.Lock()
        self._closed = False

    def unary_unary(self, path: str, **options: object) -> _Method:
        """Make a unary call as a channel does."""
        return _Method(self, "unary_unary", path, options)

    def unary_stream(self, path: str, **options: object) -> _Method:
        """Make a unary-stream call as a channel does."""
        return _Method(self, "unary_stream", path, options)

    def stream_unary(self, path: str, **options: object) -> _Method:
        """Make a stream-unary call as a channel does."""
        return _Method(self, "stream_unary", path, options)

    def as_channel(self) -> grpc.aio.Channel:
        """Return itself for callers whose types want a channel; they use nothing else of it."""
        return cast("grpc.aio.Channel", self)

    def present(self) -> _Channel:
        """Return the channel in use.

        Raises:
            grpc.aio.UsageError: the line is closed.
        """
        if self._closed:
            raise grpc.aio.UsageError("closed")
        if self._present is None:
            self._use(self._source.current(), number=self._revocations.number(), certificate=None)
        assert self._present is not None
        return self._present

    async def refresh(self) -> None:
        """Have a channel for what credentials and deny-list are now.

        Raises:
            PeerFault: CERTIFICATE_REVOKED, the server's certificate counts no more; TLS_REFUSED or UNREACHABLE, it cannot be
                seen.
        """
        async with self._lock:
            credentials, number = self._source.current(), self._revocations.number()
            present, denied_serials = self._present, self._revocations.serials()
            is_current = present is not None and (present.pinned or not denied_serials)
            if is_current and present is not None and present.credentials is credentials and present.number == number:
                return
            if self._closed:
                return
            certificate = None
            if denied_serials:
                certificate = await asyncio.to_thread(self._server_certificate, credentials)
                if certificate.serial_number in denied_serials:
                    await self._cut()
                    raise PeerFault(
                        "CERTIFICATE_REVOKED",
                        f"the certificate that the server shows, serial {certificate.serial_number:x}, "
                        "was revoked by the authority",
                        hint="tell its operator: verticil pki request NAME --role ROLE --new-keys, and have it signed",
                    )
            if not self._closed:
                self._use(credentials, number=number, certificate=certificate)

    def forget(self) -> None:
        """Let the next call make a new channel."""
        if self._present is not None:
            self._former = [channel for channel in self._former if not channel.is_closed]
            self._former.append(self._present)
            self._present.retire()
            self._present = None

    def forget_pinned(self) -> None:
        """Forget the channel where it trusts one certificate that the server may not have any more."""
        if self._present is not None and self._present.pinned:
            self.forget()

    async def _cut(self) -> None:
        self.forget()
        former, self._former = self._former, []
        for channel in former:
            await channel.close()

    def _use(self, credentials: Credentials, *, number: int, certificate: x509.Certificate | None) -> None:
        self.forget()
        trusted_pem = credentials.ca_pem if certificate is None else certificate.public_bytes(Encoding.PEM)
        channel = self._make(credentials, trusted_pem)
        self._present = _Channel(channel, credentials=credentials, number=number, is_pinned=certificate is not None)

    async def close(self) -> None:
        """Close all channels; calls under way end with an error. Repeatable."""
        self._closed = True
        await self._cut()


class CertificateChoice:
    """What gRPC asks before each handshake, in a thread of its own: a new certificate to show, or None for the one before."""

    def __init__(self, source: CredentialSource) -> None:
        self._source = source
        self._last = source.current()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate if it is another than before."""
        now = self._source.current()
        if now is self._last:
            return None
        self._last = now
        return configure_server(now)


def configure_server(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    """Credentials as gRPC shows them."""
    return grpc.ssl_server_certificate_configuration([(credentials.key_pem, credentials.chain_pem)], credentials.ca_pem)


_HTTP2_PREFACE: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)  # RFC 9113 section 3.4
_ATTEMPTS: Final = 3
_OTHER_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})  # X509_V_ERR_*: no path to our authority
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset({62, 64})
_OTHER_PURPOSE: Final = 26
_CONNECTING: Final[tuple[tuple[type[OSError], str, str], ...]] = (
    (ssl.SSLEOFError, "closes the connection during the handshake", "is the service behind that port running?"),
    (ConnectionResetError, "closes the connection during the handshake", "is the service behind that port running?"),
    (socket.gaierror, "no such host name", "check {key} in federation.toml and the name service"),
    (ConnectionRefusedError, "connection refused", "is {node} running, and is the port right?"),
    (TimeoutError, "no answer", "a firewall may drop the connection; the port must be open outwards"),
)


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 address stands in brackets.

    >>> split_endpoint("[::1]:8443")
    ('::1', 8443)

    Raises:
        PeerFault: UNREACHABLE when it is not of that form.
    """
    host, _, port = endpoint.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise PeerFault("UNREACHABLE", f"endpoint: got '{endpoint[:200]}', expected host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def diagnose(
    endpoint: str,
    credentials: Credentials,
    *,
    server_name: str | None = None,
    target: Identity | None = None,
    timeout_seconds: float = 5.0,
    at: dt.datetime | None = None,
) -> PeerFault:
    """Find out why `endpoint` could not be called.

    Args:
        endpoint: host:port.
        credentials: ours.
        server_name: name that the server's certificate must carry; the endpoint's host when absent.
        target: the node that `server_name` stands for; absent: the miner of federation.toml.
        timeout_seconds: for each step.
        at: when our certificate must be valid; now when absent.

    Returns:
        TLS_REFUSED when trying again cannot help, else UNREACHABLE.
    """
    where = _Place(endpoint=endpoint, expected=target)
    if (moment := utc_now() if at is None else at) > credentials.not_after:
        return where.make_refusal(
            f"by this machine's clock ({moment:%Y-%m-%dT%H:%M:%SZ}) our certificate {credentials.certificate.name} expired at "
            f"{credentials.not_after:%Y-%m-%dT%H:%M:%SZ}",
            f"if that is not the time, set the clock; else have it renewed: verticil pki renew {credentials.certificate}",
        )
    try:
        host, port = split_endpoint(endpoint)
        context = _context(credentials)
        for attempt in range(_ATTEMPTS):
            time.sleep(0.1 * attempt)  # a peer that is being stopped also closes at once, but is gone the next time
            if _stays_open(host, port, context, server_name or host, timeout_seconds):
                return where.unreachable("the connection was lost; it answers again", "try again")
    except PeerFault as fault:
        return fault
    except OSError as error:  # ssl.SSLError is one
        if target is not None and isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _OTHER_NAME:
            return where.somebody_else(_who_answers(endpoint, credentials, timeout_seconds))
        return where.explain(error)
    authority = certificate_sha256(x509.load_pem_x509_certificate(credentials.ca_pem))
    return where.make_refusal(
        f"it does not accept our certificate ({credentials.identity}, valid until {credentials.not_after:%Y-%m-%d})",
        f"both sides need certificates of one authority (ours: SHA-256 {authority[:16]}…) and clocks that agree",
    )


def served_certificate(
    endpoint: str,
    credentials: Credentials,
    *,
    server_name: str | None = None,
    target: Identity | None = None,
    timeout_seconds: float = 5.0,
) -> x509.Certificate:
    """Return the certificate that a server shows, verified as for a call: by our authority, and for the name. Blocks.

    Args:
        endpoint: host:port.
        credentials: ours.
        server_name, target, timeout_seconds: as for `diagnose`.

    Raises:
        PeerFault: as `diagnose` answers.
    """
    host, port = split_endpoint(endpoint)
    try:
        with (
            socket.create_connection((host, port), timeout_seconds) as plain,
            _context(credentials).wrap_socket(plain, server_hostname=server_name or host) as secure,
        ):
            certificate_der = secure.getpeercert(binary_form=True)
    except OSError:
        raise diagnose(
            endpoint, credentials, server_name=server_name, target=target, timeout_seconds=timeout_seconds
        ) from None
    assert certificate_der  # a verified handshake has one
    return x509.load_der_x509_certificate(certificate_der)


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=credentials.ca_pem.decode("ascii"))
    context.load_cert_chain(credentials.certificate, credentials.key)
    context.set_alpn_protocols(["h2"])
    return context


def _stays_open(host: str, port: int, context: ssl.SSLContext, name: str, timeout_seconds: float) -> bool:
    """Return whether the server goes on talking after the handshake."""
    with (
        socket.create_connection((host, port), timeout_seconds) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        try:
            secure.sendall(_HTTP2_PREFACE)
            return bool(secure.recv(1))
        except TimeoutError:
            return True
        except OSError:  # a reset, or an alert about our certificate
            return False


def _who_answers(endpoint: str, credentials: Credentials, timeout_seconds: float) -> str:
    """Return the identity in the certificate of the node that answers, which our authority issued; empty when it cannot be
    read.
    """
    host, port = split_endpoint(endpoint)
    context = _context(credentials)
    context.check_hostname = False  # only to tell who it is: nothing is sent, and the chain is still verified
    try:
        with (
            socket.create_connection((host, port), timeout_seconds) as plain,
            context.wrap_socket(plain) as secure,
        ):
            certificate = secure.getpeercert(binary_form=True)
        return str(identity_of(x509.load_der_x509_certificate(certificate))) if certificate else ""
    except (OSError, ValueError, PeerFault):
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Whom we wanted to reach and where, in words."""

    endpoint: str
    expected: Identity | None

    @property
    def node(self) -> str:
        return "the miner" if self.expected is None else f"{self.expected.role} '{self.expected.name}'"

    @property
    def key(self) -> str:
        if self.expected is None or self.expected.role is Role.MINER:
            return "[miner] endpoint"
        return f"[peers] {self.expected.name}"

    def explain(self, error: OSError) -> PeerFault:
        if isinstance(error, ssl.SSLCertVerificationError):
            return self.make_refusal(f"its certificate does not hold: {error.verify_message}", self._verify_hint(error))
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            reason = str(error.reason or "unknown reason").replace("_", " ").lower()
            return self.make_refusal(
                f"the TLS handshake failed: {reason}", f"is this {self.node}'s port, without a proxy between?"
            )
        for kind, problem, hint in _CONNECTING:
            if isinstance(error, kind):
                return self.unreachable(problem, hint.format(key=self.key, node=self.node))
        return self.unreachable(f"cannot connect ({error.strerror or type(error).__name__})", "check the network")

    def _verify_hint(self, error: ssl.SSLCertVerificationError) -> str:
        code = error.verify_code
        if code == _EXPIRED:
            return "the peer needs a new certificate; check this machine's clock too"
        if code == _NOT_YET_VALID:
            return "check the clocks of both machines"
        if code in _OTHER_NAME:
            return "the endpoint's host must be a subject alternative name of the peer's certificate"
        if code in _OTHER_AUTHORITY:
            return "it was issued by another authority: wrong endpoint, wrong ca_certificate, or a proxy that opens TLS"
        if code == _OTHER_PURPOSE:
            return "it is not one for servers; it must be issued with the host under which that node is reached"
        return "check the peer's certificate"

    def somebody_else(self, identity: str) -> PeerFault:
        if identity == str(self.expected):
            return self.make_refusal(
                "its certificate is that node's, but lacks the name that peers ask for",
                "it must be issued anew by this version, with the host under which that node is reached",
            )
        return self.make_refusal(
            f"got {identity or 'another certificate of this federation'}, expected {self.expected}",
            f"check {self.key} in federation.toml: another node answers there",
        )

    def make_refusal(self, problem: str, hint: str) -> PeerFault:
        return PeerFault("TLS_REFUSED", f"{self}: {problem}", hint=hint)

    def unreachable(self, problem: str, hint: str) -> PeerFault:
        if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
            hint += " (a proxy is set in the environment; this check did not use it)"
        return PeerFault("UNREACHABLE", f"{self}: {problem}", hint=hint)

    def __str__(self) -> str:
        return self.endpoint if self.expected is None else f"{self.node} at {self.endpoint}"
