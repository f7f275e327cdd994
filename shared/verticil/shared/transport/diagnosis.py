"""Why a connection failed: not there, or refused, by them or by us.

gRPC reports a refused certificate, either side's, as the same UNAVAILABLE as a machine that is switched off (seen with
grpcio 1.85: "Socket closed"). `diagnose` repeats the handshake with Python's own TLS and says what it meets. Under TLS 1.3
a client learns that its certificate is refused only after the handshake, and gRPC servers then close without an alert, so
a peer that closes at once, three times in a row, has refused us. It opens at most three connections and sends no
payload; it blocks, so call it in a thread.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import ssl
import time
from typing import Final

from cryptography import x509

from verticil.shared.errors import PeerFault
from verticil.shared.transport.pki import Credentials, certificate_sha256, utc_now

__all__ = ["diagnose", "split_endpoint"]

_HTTP2_PREFACE: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)  # RFC 9113 section 3.4
_ATTEMPTS: Final = 3
_OTHER_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})  # X509_V_ERR_*: no path to our authority
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset({62, 64})
_CONNECTING: Final[tuple[tuple[type[OSError], str, str], ...]] = (
    (ssl.SSLEOFError, "closes the connection during the handshake", "is the service behind that port running?"),
    (ConnectionResetError, "closes the connection during the handshake", "is the service behind that port running?"),
    (socket.gaierror, "no such host name", "check [miner] endpoint in federation.toml and the name service"),
    (ConnectionRefusedError, "connection refused", "is the miner running, and is the port right?"),
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
    timeout_seconds: float = 5.0,
    at: dt.datetime | None = None,
) -> PeerFault:
    """Find out why `endpoint` could not be called.

    Args:
        endpoint: host:port.
        credentials: ours.
        server_name: name that the server's certificate must carry; the endpoint's host when absent.
        timeout_seconds: for each step.
        at: when our certificate must be valid; now when absent.

    Returns:
        TLS_REFUSED when trying again cannot help, else UNREACHABLE.
    """
    if (utc_now() if at is None else at) > credentials.not_after:
        return _refused(
            endpoint,
            f"our certificate {credentials.certificate.name} expired at {credentials.not_after:%Y-%m-%dT%H:%M:%SZ}",
            "have the authority issue a new certificate",
        )
    try:
        host, port = split_endpoint(endpoint)
        context = _context(credentials)
        for attempt in range(_ATTEMPTS):
            time.sleep(0.1 * attempt)  # a peer that is being stopped also closes at once, but is gone the next time
            if _stays_open(host, port, context, server_name or host, timeout_seconds):
                return _unreachable(endpoint, "the connection was lost; it answers again", "try again")
    except PeerFault as fault:
        return fault
    except OSError as error:  # ssl.SSLError is one
        return _explained(endpoint, error)
    authority = certificate_sha256(x509.load_pem_x509_certificate(credentials.ca_pem))
    return _refused(
        endpoint,
        f"it does not accept our certificate ({credentials.identity}, valid until {credentials.not_after:%Y-%m-%d})",
        f"both sides need certificates of one authority (ours: SHA-256 {authority[:16]}…) and clocks that agree",
    )


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


def _explained(endpoint: str, error: OSError) -> PeerFault:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _refused(
            endpoint, f"its certificate does not hold: {error.verify_message}", _verify_hint(error.verify_code)
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        reason = str(error.reason or "unknown reason").replace("_", " ").lower()
        return _refused(
            endpoint, f"the TLS handshake failed: {reason}", "is this the miner's port, without a proxy between?"
        )
    for kind, problem, hint in _CONNECTING:
        if isinstance(error, kind):
            return _unreachable(endpoint, problem, hint)
    return _unreachable(endpoint, f"cannot connect ({error.strerror or type(error).__name__})", "check the network")


def _verify_hint(code: int) -> str:
    if code == _EXPIRED:
        return "the peer needs a new certificate; check this machine's clock too"
    if code == _NOT_YET_VALID:
        return "check the clocks of both machines"
    if code in _OTHER_NAME:
        return "the endpoint's host must be a subject alternative name of the peer's certificate"
    if code in _OTHER_AUTHORITY:
        return "it was issued by another authority: wrong endpoint, wrong ca_certificate, or a proxy that opens TLS"
    return "check the peer's certificate"


def _refused(endpoint: str, problem: str, hint: str) -> PeerFault:
    return PeerFault("TLS_REFUSED", f"{endpoint}: {problem}", hint=hint)


def _unreachable(endpoint: str, problem: str, hint: str) -> PeerFault:
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        hint += " (a proxy is set in the environment; this check did not use it)"
    return PeerFault("UNREACHABLE", f"{endpoint}: {problem}", hint=hint)
