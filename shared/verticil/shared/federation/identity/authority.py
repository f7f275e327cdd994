"""The authority of a federation: its own key and certificate, and the certificates that it makes for others' keys.

`issue` makes a node's keys, too, so its operator sees every private key: that is for trials and the demonstration. In a real
federation each site makes its own keys and has them signed (`verticil.shared.federation.membership`). Files: ``ca.crt``,
``ca.key``, and ``issued/`` with every certificate that was made; for a node ``NAME.crt`` (TLS certificate, then signing
certificate), ``NAME.key`` (TLS, ECDSA P-256), ``NAME.sign`` (Ed25519) and, of a party, ``NAME.seal`` (X25519, in no certificate).
Private files are made with mode 0600 and never overwritten.
Profiles follow RFC 5280; every certificate of a node carries its identity as its only URI, TLS certificates of servers also DNS
and IP names, and `peer_host`, by which a caller makes sure that it speaks to that node and to no other.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.toml_table import is_name
from verticil.shared.federation.identity.identity import PEER_DOMAIN, Identity, Role, peer_host
from verticil.shared.federation.identity.pki import (
    DEMO_LIFETIME,
    DEMO_MARKER,
    SIGNING_PURPOSE,
    certificate_sha256,
    check_validity,
    identity_of,
    load_private_key,
    read_certificates,
    utc_now,
)
from verticil.shared.storage.disk import create_files

ISSUED: Final = "issued"
"""Folder beside ``ca.crt``: one file for each issuance, public."""

_NEVER: Final = "keys are never overwritten; move the old files away"
_SKEW: Final = dt.timedelta(minutes=5)  # sites' clocks differ; a certificate begins a little before it is made


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedFiles:
    """Where a node's new files are.

    Attributes:
        certificate: TLS certificate, then signing certificate.
        key: private key of the TLS certificate.
        signing_key: private key of the signing certificate.
        not_after: when both certificates end (UTC).
        sealing_key: a party's private key for what passes through the miner between peers; other nodes have none.
    """

    certificate: Path
    key: Path
    signing_key: Path
    not_after: dt.datetime
    sealing_key: Path | None = None


def create_authority(
    directory: Path, federation: str, *, demo: bool = False, days: int = 365, at: dt.datetime | None = None
) -> str:
    """Make ``ca.crt`` and ``ca.key`` in `directory`.

    Args:
        directory: made when absent.
        federation: name of the federation.
        demo: put the demo marker in and let it end within 24 hours, whatever `days` says.
        days: how long it is valid.
        at: the time that counts as now.

    Returns:
        SHA-256 of the certificate, for federation.toml and for the telephone.

    Raises:
        Misuse: FILE_EXISTS, or CONFIG_INVALID for a bad name or lifetime.
        DataFault: DISK_FULL; there are no files then.
    """
    if not is_name(federation):
        raise Misuse("CONFIG_INVALID", f"federation: got '{federation[:80]}', expected 1 to 63 of A-Z a-z 0-9 _ -")
    starts, ends = _lifetime(days, at)
    if demo:
        ends = starts + DEMO_LIFETIME
    files = (directory / "ca.key", directory / "ca.crt")
    _refuse_existing(files)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "verticil authority"),
            x509.NameAttribute(NameOID.COMMON_NAME, federation),
        ]
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(name, name, key.public_key(), starts, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    if demo:
        builder = builder.add_extension(
            x509.UnrecognizedExtension(DEMO_MARKER, b"\x05\x00"), critical=False
        )  # DER NULL
    certificate = builder.sign(key, hashes.SHA256())
    directory.mkdir(parents=True, exist_ok=True)
    create_files(
        {files[0]: (private_pem(key), 0o600), files[1]: (certificate.public_bytes(Encoding.PEM), 0o644)},
        exists_hint=_NEVER,
    )
    return certificate_sha256(certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """An authority that can sign: its folder, its certificate and, with it, its private key.

    Attributes:
        directory: the folder of `create_authority`.
        certificate: ``ca.crt``.
        key: ``ca.key``.
        federation: the federation's name.
    """

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    federation: str


def open_authority(directory: Path, *, at: dt.datetime | None = None) -> Authority:
    """Read an authority's certificate and key, and check that they can be used now.

    Raises:
        Misuse: FILE_MISSING without an authority.
        DataFault: SECRET_MISSING without its key.
        PeerFault: CERTIFICATE_INVALID when it has expired or the files do not belong together.
    """
    certificate = read_certificates(directory / "ca.crt")[0]
    key = _authority_key(directory / "ca.key", certificate)
    check_validity(certificate, at=utc_now() if at is None else at, what=str(directory / "ca.crt"))
    federation = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    return Authority(directory=directory, certificate=certificate, key=key, federation=federation)


def issue(
    authority: Path,
    name: str,
    role: Role,
    out: Path,
    *,
    hosts: Sequence[str] = (),
    days: int = 90,
    at: dt.datetime | None = None,
    key_bytes: Callable[[str], bytes] | None = None,
) -> IssuedFiles:
    """Make a node's keys and certificates in `out`, all on this machine: for trials.

    Args:
        authority: the folder of `create_authority`.
        name: the node's name.
        role: what it may do.
        out: made when absent.
        hosts: DNS names and IP addresses under which the node is reached; makes its TLS certificate one for servers, too (a
            party that serves its peers needs one).
        days: how long they are valid, at most as long as the authority is.
        at: the time that counts as now.
        key_bytes: in a trial, the 32 bytes that the key with this suffix (``sign``, ``seal``) is; None: random.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING without an authority; CONFIG_INVALID for a bad name, lifetime or host, or a miner
            without hosts.
        DataFault: SECRET_MISSING without the authority's key; DISK_FULL, there are no files then.
        PeerFault: CERTIFICATE_INVALID when the authority has expired or its files do not belong together.
    """
    issuer = open_authority(authority, at=at)
    try:
        identity = Identity(federation=issuer.federation, role=role, name=name)
    except ValueError as error:
        raise Misuse("CONFIG_INVALID", str(error)) from None
    tls_key = ec.generate_private_key(ec.SECP256R1())
    signing_key = ed25519.Ed25519PrivateKey.from_private_bytes(
        token_bytes(32) if key_bytes is None else key_bytes("sign")
    )
    certificate = certify(
        issuer, identity, tls_key.public_key(), signing_key.public_key(), hosts=hosts, days=days, at=at
    )
    files = IssuedFiles(
        certificate=out / f"{name}.crt",
        key=out / f"{name}.key",
        signing_key=out / f"{name}.sign",
        sealing_key=out / f"{name}.seal" if role is Role.PARTY else None,
        not_after=certificate[0].not_valid_after_utc,
    )
    sealing = (
        {}
        if files.sealing_key is None
        else {files.sealing_key: (new_sealing_pem(None if key_bytes is None else key_bytes("seal")), 0o600)}
    )
    _refuse_existing((files.key, files.signing_key, files.certificate, *sealing))
    out.mkdir(parents=True, exist_ok=True)
    create_files(
        {
            files.key: (private_pem(tls_key), 0o600),
            files.signing_key: (private_pem(signing_key), 0o600),
            **sealing,
            files.certificate: (chain_pem(certificate), 0o644),
            **record(issuer, certificate),
        },
        exists_hint=_NEVER,
    )
    return files


def certify(
    authority: Authority,
    identity: Identity,
    tls_key: ec.EllipticCurvePublicKey,
    signing_key: ed25519.Ed25519PublicKey,
    *,
    hosts: Sequence[str] = (),
    days: int = 90,
    at: dt.datetime | None = None,
) -> tuple[x509.Certificate, x509.Certificate]:
    """Make a node's two certificates for its two public keys; nothing is written.

    Args:
        authority: who signs.
        identity: whose certificates; of the authority's federation.
        tls_key: for connections.
        signing_key: for statements.
        hosts: as for `issue`.
        days: how long they are valid, at most as long as the authority is.
        at: the time that counts as now.

    Returns:
        The TLS certificate and the signing certificate.

    Raises:
        Misuse: CONFIG_INVALID for a bad lifetime or host, a miner without hosts, or an identity of another federation.
    """
    starts, ends = _lifetime(days, at)
    ends = min(ends, authority.certificate.not_valid_after_utc)
    if identity.federation != authority.federation:
        raise Misuse(
            "CONFIG_INVALID",
            f"federation: got '{identity.federation}', expected '{authority.federation}'",
            hint="this authority signs for its own federation only",
        )
    if identity.role is Role.MINER and not hosts:
        raise Misuse(
            "CONFIG_INVALID",
            f"miner '{identity.name}': no host, expected at least one",
            hint="name the host that parties dial: --host HOST",
        )
    uri = x509.UniformResourceIdentifier(identity.uri)
    own = [x509.DNSName(peer_host(identity))] if hosts else []
    tls_names, signing_names = [uri, *own, *map(host_name, hosts)], [uri]
    tls_purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]

    def signed(
        public: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey,
        names: Sequence[x509.GeneralName],
        purposes: Sequence[x509.ObjectIdentifier],
    ) -> x509.Certificate:
        return (
            _builder(subject_of(identity), authority.certificate.subject, public, starts, ends)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
            )
            .sign(authority.key, hashes.SHA256())
        )

    return signed(tls_key, tls_names, tls_purposes), signed(signing_key, signing_names, [SIGNING_PURPOSE])


def subject_of(identity: Identity) -> x509.Name:
    """Return the subject name of an identity's certificates: for people; nothing is decided by it."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.federation),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, identity.role.value),
            x509.NameAttribute(NameOID.COMMON_NAME, identity.name),
        ]
    )


def record(authority: Authority, certificates: Sequence[x509.Certificate]) -> dict[Path, tuple[bytes, int]]:
    """Return the file by which the authority remembers what it issued, for `create_files` together with other files."""
    folder = authority.directory / ISSUED
    folder.mkdir(parents=True, exist_ok=True)
    identity = identity_of(certificates[0])
    path = folder / f"{identity.role}-{identity.name}-{certificates[0].serial_number:x}.crt"
    return {path: (chain_pem(certificates), 0o644)}


def chain_pem(certificates: Sequence[x509.Certificate]) -> bytes:
    """Certificates as one PEM file."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _lifetime(days: int, at: dt.datetime | None) -> tuple[dt.datetime, dt.datetime]:
    if not 1 <= days <= 3650:
        raise Misuse("CONFIG_INVALID", f"days: got {days}, expected 1 to 3650")
    starts = (utc_now() if at is None else at) - _SKEW
    return starts, starts + dt.timedelta(days=days) + _SKEW


def _authority_key(path: Path, issuer: x509.Certificate) -> ec.EllipticCurvePrivateKey:
    key = load_private_key(path, what="authority's key")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != issuer.public_key():
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: not the private key of ca.crt beside it")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey,
    starts: dt.datetime,
    ends: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def host_name(text: str) -> x509.GeneralName:
    """Return a host as an alternative name of a certificate.

    Raises:
        Misuse: CONFIG_INVALID, neither a DNS name nor an IP address.
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not text.isascii() or not text or ":" in text or "/" in text or any(c.isspace() for c in text):
        raise Misuse(
            "CONFIG_INVALID", f"host: got '{text[:80]}', expected a DNS name or an IP address", hint="without a port"
        )
    if text.lower().endswith(PEER_DOMAIN):
        raise Misuse(
            "CONFIG_INVALID",
            f"host: got '{text[:80]}', expected a name that does not end with {PEER_DOMAIN}",
            hint="such names stand for identities; the node's own is put in by itself",
        )
    return x509.DNSName(text)


def private_pem(
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | x25519.X25519PrivateKey,
) -> bytes:
    """Return a private key as it stands in its file."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_sealing_pem(key_bytes: bytes | None = None) -> bytes:
    """Make a new sealing key (`verticil.shared.federation.transport.sealing`) as it stands in its file; in a trial of
    these 32 bytes.
    """
    key = x25519.X25519PrivateKey
    return private_pem(key.generate() if key_bytes is None else key.from_private_bytes(key_bytes))


def _refuse_existing(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.exists():
            raise Misuse(
                "FILE_EXISTS",
                f"{path}: exists already",
                hint=_NEVER,
            )
