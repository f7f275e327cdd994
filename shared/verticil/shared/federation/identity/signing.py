"""Signed statements: receipts, approvals, release manifests.

A statement is a body (canonical JSON that says what kind of statement it is), the Ed25519 signature (RFC 8032) over the
body's bytes and the signer's certificate. Signing keys are not TLS keys: the signing certificate carries a purpose of its
own that TLS refuses, and a TLS certificate is refused here. A statement is trusted through the federation's authority
only; the certificate that comes with it proves nothing by itself.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    SIGNING_PURPOSE,
    UNREADABLE,
    check_issued,
    check_validity,
    identity_of,
    key_files,
    load_private_key,
    read_certificates,
)
from verticil.shared.storage.disk import FollowedFiles
from verticil.wire.v1 import common_pb2

_CERTIFICATE_LIMIT: Final = 16_384
_PUBLIC_BYTES: Final = 32

_log = logging.getLogger(__name__)


class SigningKey:
    """A node's signing key with its certificate.

    One that was loaded from files follows them: a renewed certificate is used from the next statement on, as far as it is whole
    and names the same identity. A daemon so signs with a certificate that is valid.

    Attributes:
        identity: who signs.
    """

    def __init__(self, key: Ed25519PrivateKey, certificate: x509.Certificate) -> None:
        self.identity = identity_of(certificate)
        self._key = key
        self._certificate = certificate.public_bytes(Encoding.DER)
        self._files: FollowedFiles | None = None
        self._paths = (Path(), Path())

    @property
    def certificate(self) -> bytes:
        """DER of the signing certificate."""
        return self._certificate

    @classmethod
    def load(cls, path: Path, certificate: Path) -> SigningKey:
        """Read the key, and its certificate from the node's certificate file.

        Raises:
            Misuse: FILE_MISSING without the certificate file.
            DataFault: SECRET_MISSING without the key.
            PeerFault: CERTIFICATE_INVALID when the file holds no signing certificate of this key.
        """
        files = FollowedFiles((certificate, *key_files(path)))  # looked at before they are read
        candidates = [candidate for candidate in read_certificates(certificate) if _may_sign(candidate)]
        for place in [place for place in key_files(path) if place.exists()] or [path]:
            key = load_private_key(place, what="signing key")
            for candidate in candidates:
                if isinstance(key, Ed25519PrivateKey) and candidate.public_key() == key.public_key():
                    signing_key = cls(key, candidate)
                    signing_key._files, signing_key._paths = files, (path, certificate)
                    return signing_key
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: not the Ed25519 key of a signing certificate in {certificate}")

    def sign(self, body: bytes) -> common_pb2.Signed:
        """Sign a statement. The same body gives the same bytes (Ed25519 is deterministic) while the certificate is the same."""
        self._follow()
        return common_pb2.Signed(body=body, signature=self._key.sign(body), certificate=self._certificate)

    def _follow(self) -> None:
        if self._files is None or not self._files.changed():
            return
        try:
            now = SigningKey.load(*self._paths)
        except VerticilError as error:
            _log.warning("the signing certificate cannot be read again; the one read before stays in use: %s", error)
            return
        if now.identity == self.identity:
            self._key, self._certificate = now._key, now._certificate


def verify_signed(
    signed: common_pb2.Signed,
    authority: bytes,
    *,
    role: Role,
    name: str | None = None,
    at: dt.datetime | None = None,
    deny_list: Mapping[int, dt.datetime] | None = None,
) -> Identity:
    """Check who signed a statement.

    Args:
        signed: the statement.
        authority: certificate of the federation's authority, PEM or DER, from a trusted place.
        role: the role that the signer must have.
        name: whose statement it must be; anybody's of that role when absent.
        at: when the certificates must have been valid; not checked when absent (a release outlives its signer's certificate).
        deny_list: the deny-list, serial number -> since when. A certificate that was on it at `at` is refused; without `at` one
            that is on it at all, because nothing then shows that the statement is older.

    Returns:
        The signer, of the authority's federation.

    Raises:
        PeerFault: CERTIFICATE_INVALID when the certificate is not a signing certificate of the authority, valid then;
            CERTIFICATE_REVOKED when it was revoked before; IDENTITY_REFUSED when the signer is another than asked for;
            MESSAGE_INVALID when the signature is not one of this body.
    """
    issuer, certificate = _certificate(authority, "authority"), _certificate(signed.certificate, "signer's certificate")
    check_issued(certificate, issuer, what="signer's certificate")
    public_key = certificate.public_key()
    if not _may_sign(certificate) or not isinstance(public_key, Ed25519PublicKey):
        raise PeerFault("CERTIFICATE_INVALID", "signer's certificate: not one for signing with Ed25519")
    if at is not None:
        check_validity(issuer, at=at, what="authority")
        check_validity(certificate, at=at, what="signer's certificate")
    identity = identity_of(certificate)
    federation = str(issuer.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    for what, actual, target in (
        ("federation", identity.federation, federation),
        ("role", identity.role, role),
        ("name", identity.name, name),
    ):
        if target is not None and actual != target:
            raise PeerFault("IDENTITY_REFUSED", f"signer's certificate: {what} is '{actual}', expected '{target}'")
    since = None if deny_list is None else deny_list.get(certificate.serial_number)
    if since is not None and (at is None or since <= at):
        raise PeerFault(
            "CERTIFICATE_REVOKED",
            f"the signing certificate of {identity} with serial {certificate.serial_number:x} was revoked at "
            f"{since:%Y-%m-%d %H:%M} UTC",
            hint="the holder asks for a certificate with new keys (verticil pki request NAME --role ROLE --new-keys), and then "
            "signs this again",
        )
    try:
        public_key.verify(signed.signature, signed.body)
    except InvalidSignature:
        raise PeerFault("MESSAGE_INVALID", f"the signature is not one of {identity} over this statement") from None
    return identity


def serial_of(signed: common_pb2.Signed) -> int:
    """Serial number of the certificate that a statement was signed with, as the deny-list has it. Of one that was verified."""
    return _certificate(signed.certificate, "signer's certificate").serial_number


def _certificate(data: bytes, what: str) -> x509.Certificate:
    if len(data) <= _CERTIFICATE_LIMIT:
        try:
            if data.lstrip().startswith(b"-----BEGIN"):
                return x509.load_pem_x509_certificate(data)
            return x509.load_der_x509_certificate(data)
        except UNREADABLE:
            pass
    raise PeerFault("CERTIFICATE_INVALID", f"{what}: expected an X.509 certificate")


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return SIGNING_PURPOSE in certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False


def public_key_text(public: bytes) -> str:
    """Write a public key as a configuration names it.

    >>> public_key_text(bytes(32))
    'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
    """
    return base64.b64encode(public).decode("ascii")


def public_key_from(text: str) -> bytes | None:
    """Read the public key in `text`; None when it is none.

    >>> public_key_from(public_key_text(bytes(32))) == bytes(32), public_key_from("AAAA")
    (True, None)
    """
    try:
        public = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return public if len(public) == _PUBLIC_BYTES else None
