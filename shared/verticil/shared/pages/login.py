"""A client certificate of a browser in place of the token: pages over TLS, and who a certificate names.

TLS checks that whoever connects has the certificate's private key, and that it chains to `Login.trusted`. Whether it counts now,
and whose it is, is asked anew for every request (`Login.admit`), because a connection outlives a revocation.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from starlette.routing import BaseRoute

from verticil.shared.core.errors import Misuse, PeerFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """The server's own certificate and private key, as files; renewed ones may be others."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who may use pages by a client certificate.

    Attributes:
        server: returns the server's own files as they are now. Fast, and from any thread.
        trusted: what a client certificate chains to, PEM: an authority, or the very certificates.
        admit: returns the name of whoever has a certificate; raises VerticilError where it does not count now.
        routes_of: returns the pages of a name; None: all have the same.
        token_too: the address with the token opens pages as well, without a client certificate.
    """

    server: Callable[[], ServerFiles]
    trusted: str
    admit: Callable[[x509.Certificate], str]
    routes_of: Callable[[str], Sequence[BaseRoute]] | None = None
    token_too: bool = False

    def hosts(self) -> list[str]:
        """Return the names and addresses under which the server's certificate lets browsers ask.

        Raises:
            Misuse: CONFIG_INVALID, it is no certificate for a server.
        """
        path = self.server().certificate
        try:
            leaf = x509.load_pem_x509_certificate(path.read_bytes())
            names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            hosts = names.get_values_for_type(x509.DNSName)
            hosts += [str(address) for address in names.get_values_for_type(x509.IPAddress)]
            purposes = [use.value for use in leaf.extensions if isinstance(use.value, x509.ExtendedKeyUsage)]
        except (OSError, ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
            hosts, purposes = [], []
        if not hosts or any(ExtendedKeyUsageOID.SERVER_AUTH not in purpose for purpose in purposes):
            hint = "have one issued with the name that stands in the browser's address: --host 127.0.0.1"
            raise Misuse("CONFIG_INVALID", f"{path}: no browser takes it as the certificate of a server", hint=hint)
        return hosts

    def context(self) -> ssl.SSLContext:
        """Return what TLS goes by; a renewed certificate is shown from the next connection on.

        Raises:
            Misuse: CONFIG_INVALID, certificate and key do not fit together.
        """
        files = self.server()
        context = current = self._context(files)
        state = _state_of(files)

        def renew(line: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
            nonlocal current, state
            with contextlib.suppress(OSError, Misuse):  # half replaced: the one before is shown
                if (now := _state_of(self.server())) != state:
                    current, state = self._context(now[0]), now
            line.context = current

        context.sni_callback = renew
        return context

    def _context(self, files: ServerFiles) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_OPTIONAL if self.token_too else ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate may be its own anchor
        try:
            context.load_cert_chain(files.certificate, files.key)
            context.load_verify_locations(cadata=self.trusted)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            hint = "give a certificate and its private key, as PEM files NAME.crt and NAME.key"
            raise Misuse("CONFIG_INVALID", f"{files.certificate}: TLS cannot use it ({reason})", hint=hint) from None
        return context


def _state_of(files: ServerFiles) -> tuple[ServerFiles, int]:
    return files, files.certificate.stat().st_mtime_ns


def login_of(people: Sequence[x509.Certificate], server: ServerFiles) -> Login:
    """Return the login of browsers that show one of these certificates, and no other that one of them has signed."""
    fingerprints = {certificate.fingerprint(hashes.SHA256()) for certificate in people}

    def admit(certificate: x509.Certificate) -> str:
        now = dt.datetime.now(dt.UTC)
        if certificate.fingerprint(hashes.SHA256()) not in fingerprints or now > certificate.not_valid_after_utc:
            raise PeerFault("IDENTITY_REFUSED", "the browser's certificate is none of those that open this page")
        return ""

    trusted = "".join(certificate.public_bytes(Encoding.PEM).decode("ascii") for certificate in people)
    return Login(server=lambda: server, trusted=trusted, admit=admit)
