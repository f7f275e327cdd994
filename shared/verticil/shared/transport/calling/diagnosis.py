"""Why a connection failed: not there, or refused, by them or by us.

gRPC reports a refused certificate, either side's, as the same UNAVAILABLE as a machine that is switched off (seen with
grpcio 1.85: "Socket closed"). `diagnose` repeats the handshake with Python's own TLS and says what it meets. Under TLS 1.3
a client learns that its certificate is refused only after the handshake, and gRPC servers then close without an alert, so
a peer that closes at once, three times in a row, has refused us. Where one certain node is expected and another one of the
federation answers, a further handshake tells which. It opens at most four connections and sends no payload; it blocks, so call it
in a thread.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from verticil.shared.errors import PeerFault
from verticil.shared.identity.identity import Identity, Role
from verticil.shared.identity.pki import Credentials, certificate_sha256, identity_of, utc_now

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
    expected: Identity | None = None,
    timeout_seconds: float = 5.0,
    at: dt.datetime | None = None,
) -> PeerFault:
    """Find out why `endpoint` could not be called.

    Args:
        endpoint: host:port.
        credentials: ours.
        server_name: name that the server's certificate must carry; the endpoint's host when absent.
        expected: the node that `server_name` stands for; absent: the miner of federation.toml.
        timeout_seconds: for each step.
        at: when our certificate must be valid; now when absent.

    Returns:
        TLS_REFUSED when trying again cannot help, else UNREACHABLE.
    """
    where = _Place(endpoint=endpoint, expected=expected)
    if (utc_now() if at is None else at) > credentials.not_after:
        return where.refused(
            f"our certificate {credentials.certificate.name} expired at {credentials.not_after:%Y-%m-%dT%H:%M:%SZ}",
            f"have it renewed: verticil pki renew {credentials.certificate}",
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
        if (
            expected is not None
            and isinstance(error, ssl.SSLCertVerificationError)
            and error.verify_code in _OTHER_NAME
        ):
            return where.somebody_else(_who_answers(endpoint, credentials, timeout_seconds))
        return where.explained(error)
    authority = certificate_sha256(x509.load_pem_x509_certificate(credentials.ca_pem))
    return where.refused(
        f"it does not accept our certificate ({credentials.identity}, valid until {credentials.not_after:%Y-%m-%d})",
        f"both sides need certificates of one authority (ours: SHA-256 {authority[:16]}…) and clocks that agree",
    )


def served_certificate(
    endpoint: str,
    credentials: Credentials,
    *,
    server_name: str | None = None,
    expected: Identity | None = None,
    timeout_seconds: float = 5.0,
) -> x509.Certificate:
    """The certificate that a server shows, verified as for a call: by our authority, and for the name. Blocks.

    Args:
        endpoint: host:port.
        credentials: ours.
        server_name, expected, timeout_seconds: as for `diagnose`.

    Raises:
        PeerFault: as `diagnose` answers.
    """
    host, port = split_endpoint(endpoint)
    try:
        with (
            socket.create_connection((host, port), timeout_seconds) as plain,
            _context(credentials).wrap_socket(plain, server_hostname=server_name or host) as secure,
        ):
            encoded = secure.getpeercert(binary_form=True)
    except OSError:
        raise diagnose(
            endpoint, credentials, server_name=server_name, expected=expected, timeout_seconds=timeout_seconds
        ) from None
    assert encoded  # a verified handshake has one
    return x509.load_der_x509_certificate(encoded)


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=credentials.ca_pem.decode("ascii"))
    context.load_cert_chain(credentials.certificate, credentials.key)
    context.set_alpn_protocols(["h2"])
    return context


def _stays_open(host: str, port: int, context: ssl.SSLContext, name: str, timeout_seconds: float) -> bool:
    """Whether the server goes on talking after the handshake."""
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
    """The identity in the certificate of whoever answers, which our authority issued; empty when it cannot be told."""
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

    def explained(self, error: OSError) -> PeerFault:
        if isinstance(error, ssl.SSLCertVerificationError):
            return self.refused(f"its certificate does not hold: {error.verify_message}", self._verify_hint(error))
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            reason = str(error.reason or "unknown reason").replace("_", " ").lower()
            return self.refused(
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
            return self.refused(
                "its certificate is that node's, but lacks the name that peers ask for",
                "it must be issued anew by this version, with the host under which that node is reached",
            )
        return self.refused(
            f"got {identity or 'another certificate of this federation'}, expected {self.expected}",
            f"check {self.key} in federation.toml: another node answers there",
        )

    def refused(self, problem: str, hint: str) -> PeerFault:
        return PeerFault("TLS_REFUSED", f"{self}: {problem}", hint=hint)

    def unreachable(self, problem: str, hint: str) -> PeerFault:
        if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
            hint += " (a proxy is set in the environment; this check did not use it)"
        return PeerFault("UNREACHABLE", f"{self}: {problem}", hint=hint)

    def __str__(self) -> str:
        return self.endpoint if self.expected is None else f"{self.node} at {self.endpoint}"
