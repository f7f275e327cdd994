"""Certificates as they are read and checked: a node's own credentials, and who a certificate names.

A federation has one authority. A node has one certificate file, the TLS certificate (ECDSA P-256) first and the signing
certificate (Ed25519, see `signing`) after it, both of the same identity and issued by the authority directly; two private
keys; and the authority's certificate, which federation.toml names together with its SHA-256. TLS checks a peer's chain and
host name; what a certificate says of identity is read here and nowhere else. `authority` makes all of these.

A renewal with new keys lies beside the old ones as ``NAME.next.key`` and ``NAME.next.sign`` until the certificate is there, and
putting the certificate in its place is what makes it count: a reader of a private key takes the one that fits the certificate.
Messages name files, identities and times, never key material.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from verticil.shared.core.errors import DataFault, Misuse, PeerFault
from verticil.shared.core.permissions import not_permitted
from verticil.shared.documents.config import Federation
from verticil.shared.documents.foreign_files.limits import CERTIFICATE_BYTES
from verticil.shared.documents.foreign_files.reading import read_at_most
from verticil.shared.federation.identity.identity import Identity, Role, peer_host

DEMO_MARKER: Final = x509.ObjectIdentifier("1.3.6.1.4.1.59999.1.1")
"""Extension of an authority that exists for one demonstration; the only one under which approval may be automatic."""
DEMO_LIFETIME: Final = dt.timedelta(hours=24)
"""A marked authority that is valid for longer is not a demo authority."""
SIGNING_PURPOSE: Final = x509.ObjectIdentifier("1.3.6.1.4.1.59999.1.2")
"""Extended key usage of a signing certificate; without client or server authentication beside it, TLS refuses it."""
UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, InternalError, x509.InvalidVersion)
"""What `cryptography` raises for a key or a certificate that is none, or one that it does not know; `InternalError` for a key
of a length that its own algorithm does not have."""

_KEY_BYTES: Final = 65_536
"""Of a private key's file no more is read."""


def utc_now() -> dt.datetime:
    """Return the time of the clock that is used where none is injected."""
    return dt.datetime.now(dt.UTC)


def certificate_sha256(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate's DER, lower-case hex: what people compare over the telephone."""
    return hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


def is_demo_authority(authority: x509.Certificate) -> bool:
    """Return whether this authority certificate carries the demo marker and lives for at most 24 hours."""
    try:
        authority.extensions.get_extension_for_oid(DEMO_MARKER)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False
    return authority.not_valid_after_utc - authority.not_valid_before_utc <= DEMO_LIFETIME


def identity_of(certificate: x509.Certificate) -> Identity:
    """Return the identity in a certificate's subject alternative names.

    Raises:
        PeerFault: IDENTITY_REFUSED unless there is exactly one URI and it is a verticil identity.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        uris = []
    if len(uris) != 1:
        raise PeerFault(
            "IDENTITY_REFUSED", f"certificate: got {len(uris)} URIs as alternative names, expected one identity"
        )
    try:
        return Identity.parse(uris[0])
    except ValueError as error:
        raise PeerFault("IDENTITY_REFUSED", f"certificate: {error}") from None


def check_validity(certificate: x509.Certificate, *, at: dt.datetime, what: str) -> None:
    """Check that a certificate is valid at a time.

    Raises:
        PeerFault: CERTIFICATE_INVALID when it is not valid yet or not any more.
    """
    starts, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if at < starts:
        raise PeerFault(
            "CERTIFICATE_INVALID",
            f"{what}: is valid from {_stamp(starts)}; this machine's clock says {_stamp(at)}",
            hint="set the clock, or wait",
        )
    if at > ends:
        raise PeerFault(
            "CERTIFICATE_INVALID",
            f"{what}: by this machine's clock ({_stamp(at)}) it expired at {_stamp(ends)}",
            hint="if that is not the time, set the clock; else a federation ends with its authority: the coordinator makes a "
            "new one, and all nodes join it"
            if certificate.subject == certificate.issuer
            else "if that is not the time, set the clock; else its node asks for a new one: verticil pki renew NAME.crt",
        )


def check_issued(certificate: x509.Certificate, authority: x509.Certificate, *, what: str) -> None:
    """Check that `authority` itself signed `certificate`.

    Raises:
        PeerFault: CERTIFICATE_INVALID.
    """
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise PeerFault(
            "CERTIFICATE_INVALID",
            f"{what}: not issued by the federation's authority (SHA-256 {certificate_sha256(authority)})",
            hint="use the certificate and the ca_certificate of the same federation",
        ) from None


def check_serves(credentials: Credentials) -> None:
    """Check that a node's certificate lets its peers find it: it is one for servers and carries the node's `peer_host`.

    Raises:
        PeerFault: CERTIFICATE_INVALID.
    """
    leaf = x509.load_pem_x509_certificate(credentials.chain_pem)
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        purposes = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        serves = False
    else:
        hosts = names.get_values_for_type(x509.DNSName)
        serves = ExtendedKeyUsageOID.SERVER_AUTH in purposes and peer_host(credentials.identity) in hosts
    if not serves:
        raise PeerFault(
            "CERTIFICATE_INVALID",
            f"{credentials.certificate}: not a certificate with which {credentials.identity} can serve its peers",
            hint="have it issued with the host under which they reach this node: verticil pki issue ... --host HOST",
        )


def read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM file, in order; at least one.

    Raises:
        Misuse: FILE_MISSING.
        PeerFault: CERTIFICATE_INVALID when the file holds anything but certificates in PEM.
    """
    try:
        return tuple(x509.load_pem_x509_certificates(read_at_most(path, CERTIFICATE_BYTES)))
    except OSError as error:
        raise not_permitted(error, path) or Misuse(
            "FILE_MISSING", f"{path}: cannot be read ({error.strerror})", hint="give the path of a certificate"
        ) from None
    except UNREADABLE:
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: expected certificates in PEM form") from None


def read_private_file(path: Path, *, what: str) -> bytes:
    """Return the bytes of a private key's file.

    Raises:
        DataFault: SECRET_MISSING when it cannot be read; STATE_READ_ONLY, another user's.
    """
    try:
        with path.open("rb") as file:
            return file.read(_KEY_BYTES)
    except OSError as error:
        raise not_permitted(error, path, what=what) or DataFault(
            "SECRET_MISSING",
            f"{path}: the {what} cannot be read ({error.strerror})",
            hint="it is made together with the certificate and never leaves this machine",
        ) from None


def require_private(files: Mapping[str, Path]) -> None:
    """Refuse private files that others on this machine may use. One that is not there is for who reads it.

    Args:
        files: what it is -> where it lies.

    Raises:
        Misuse: CONFIG_INVALID.
    """
    for what, path in files.items():
        with contextlib.suppress(OSError):
            if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
                raise exposed_file(path, mode, what=what)


def exposed_file(path: Path, mode: int, *, what: str) -> Misuse:
    """Return the error for a private file that others on this machine may use."""
    return Misuse(
        "CONFIG_INVALID",
        f"{what} {path}: mode {mode:04o}, expected 0600: others on this machine may use it",
        hint=f"chmod 600 {path}; if others have an account here, have it replaced",
    )


def load_private_key(path: Path, *, what: str) -> PrivateKeyTypes:
    """Load a private key from its file.

    Raises:
        DataFault: SECRET_MISSING when it cannot be read.
        PeerFault: CERTIFICATE_INVALID when it is not a private key in PEM form without a password.
    """
    try:
        return load_pem_private_key(read_private_file(path, what=what), password=None)
    except UNREADABLE:
        raise PeerFault(
            "CERTIFICATE_INVALID", f"{path}: expected a private key in PEM form without a password"
        ) from None


def load_authority_certificate(federation: Federation) -> x509.Certificate:
    """Load the certificate of the federation's authority, checked against ``ca_sha256``.

    Raises:
        Misuse: FILE_MISSING.
        PeerFault: CERTIFICATE_INVALID when the file is another certificate than federation.toml says.
    """
    authority = read_certificates(federation.ca_certificate)[0]
    if (sha256 := certificate_sha256(authority)) != federation.ca_sha256:
        raise PeerFault(
            "CERTIFICATE_INVALID",
            f"{federation.ca_certificate}: SHA-256 is {sha256}, expected {federation.ca_sha256} (ca_sha256)",
            hint="ask the coordinator for federation.toml and ca.crt again and compare the fingerprint by telephone",
        )
    return authority


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a node shows to its peers and checks them by.

    Attributes:
        identity: who the node is.
        ca_pem: the authority's certificate.
        chain_pem: the node's certificate file.
        key_pem: the private key of the TLS certificate.
        not_after: when the TLS certificate ends (UTC).
        is_demo: the authority carries the demo marker.
        certificate: file of `chain_pem`.
        key: file of `key_pem`.
    """

    identity: Identity
    ca_pem: bytes
    chain_pem: bytes
    key_pem: bytes = field(repr=False)
    not_after: dt.datetime
    is_demo: bool
    certificate: Path
    key: Path

    def current(self) -> Credentials:
        """Themselves: these were read once (`verticil.shared.federation.membership.current` reads them anew)."""
        return self


class CredentialSource(Protocol):
    """Where servers and connections get the credentials for their next handshake."""

    def current(self) -> Credentials:
        """Return the credentials as they are now. Fast, and from any thread."""
        ...


def load_credentials(
    certificate: Path,
    key: Path,
    federation: Federation,
    *,
    role: Role | None = None,
    name: str | None = None,
    at: dt.datetime | None = None,
) -> Credentials:
    """Read a node's credentials and check all that can be checked before the first call.

    Args:
        certificate: the node's certificate file (TLS certificate first).
        key: the TLS certificate's private key.
        federation: names the authority.
        role: what the certificate must be for; any when absent.
        name: whose it must be; anybody's when absent.
        at: when the certificates must be valid; now when absent.

    Raises:
        Misuse: FILE_MISSING.
        DataFault: SECRET_MISSING when the key cannot be read.
        PeerFault: CERTIFICATE_INVALID when certificate, key and authority do not belong together or are not valid now,
            IDENTITY_REFUSED when the certificate names somebody else.
    """
    authority = load_authority_certificate(federation)
    chain = read_certificates(certificate)
    leaf = chain[0]
    moment = utc_now() if at is None else at
    check_validity(authority, at=moment, what=str(federation.ca_certificate))
    check_issued(leaf, authority, what=str(certificate))
    check_validity(leaf, at=moment, what=str(certificate))
    identity = identity_of(leaf)
    for what, actual, target in (
        ("federation", identity.federation, federation.name),
        ("role", identity.role, role),
        ("name", identity.name, name),
    ):
        if target is not None and actual != target:
            raise PeerFault(
                "IDENTITY_REFUSED",
                f"{certificate}: {what} is '{actual}', expected '{target}'",
                hint="use the certificate that was issued to this node",
            )
    key, key_pem = _private_key_of(leaf, key, certificate=certificate)
    return Credentials(
        identity=identity,
        ca_pem=authority.public_bytes(Encoding.PEM),
        chain_pem=b"".join(one.public_bytes(Encoding.PEM) for one in chain),
        key_pem=key_pem,
        not_after=leaf.not_valid_after_utc,
        is_demo=is_demo_authority(authority),
        certificate=certificate,
        key=key,
    )


def key_files(key: Path) -> tuple[Path, ...]:
    """Return where a certificate's private key may lie: `key`, and beside it while a renewal is being installed.

    >>> [str(path) for path in key_files(Path("pki/clinic.key"))]
    ['pki/clinic.key', 'pki/clinic.next.key']
    """
    return (key, key.with_name(f"{key.stem}.next{key.suffix}"))


def _private_key_of(leaf: x509.Certificate, key: Path, *, certificate: Path) -> tuple[Path, bytes]:
    present = [path for path in key_files(key) if path.exists()]
    for path in present or [key]:
        private = load_private_key(path, what="private key")
        if isinstance(private, ec.EllipticCurvePrivateKey) and private.public_key() == leaf.public_key():
            return path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    raise PeerFault("CERTIFICATE_INVALID", f"{key}: not the private key of {certificate}")


def _stamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
