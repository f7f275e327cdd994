"""Certificate requests: made where the keys are, signed there, and the only thing that travels to the authority.

A request is one JSON document. It holds two PKCS #10 requests (RFC 2986), one for the TLS key (ECDSA P-256) and one for the
signing key (Ed25519); each is signed with its key, which proves possession, and carries the identity that is asked for as
its only URI, the TLS one also the hosts. Nothing outside these signed parts is believed. A renewal also carries the
certificate that it renews and that certificate's signature over both requests: whoever holds the old key asks for the new
certificate, and the authority's operator has nothing to decide anew.

Who starts anew where keys lie already (they were revoked, or one of them is lost) makes others: they wait beside the old ones as
in a renewal, and nothing is lost before the answer is installed.

A party's first request also tells the public half of its sealing key (X25519, `verticil.shared.federation.transport.sealing`),
signed with the signing key. It gets into no certificate; the authority's operator copies it into federation.toml.

Private keys are written with mode 0600 beside the request, are never overwritten or deleted and never leave that folder. What
people compare by telephone is `Request.key_hash`, over all public keys.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from verticil.shared.core.errors import DataFault, Misuse, PeerFault
from verticil.shared.federation.identity.authority import host_name, private_pem, subject_of
from verticil.shared.federation.identity.identity import Identity, Role, peer_host
from verticil.shared.federation.identity.pki import (
    SIGNING_PURPOSE,
    UNREADABLE,
    identity_of,
    key_files,
    load_private_key,
    read_certificates,
)
from verticil.shared.federation.membership.installation import move_in, set_aside
from verticil.shared.storage.disk import create_files, write_fault

_KIND: Final = "verticil certificate request"
REQUEST_BYTES: Final = 65_536
"""Most bytes of a request for a certificate."""
_KEYS: Final = {"schema", "kind", "tls", "signing", "renews", "sealing"}
_SEALING_BYTES: Final = 32
_NEVER: Final = (
    "keys are never overwritten; to renew their certificate: verticil pki renew {name}.crt; to start anew (the"
    " certificate was revoked, or a key is lost): verticil pki request {name} --role {role} --new-keys"
)

_TlsKey: TypeAlias = ec.EllipticCurvePrivateKey
_SigningKey: TypeAlias = ed25519.Ed25519PrivateKey
Key = TypeVar("Key", _TlsKey, _SigningKey)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that was read, with proof that its sender holds both private keys.

    Attributes:
        identity: what is asked for.
        hosts: DNS names and IP addresses under which the node is reached.
        tls_key: public key of the TLS certificate to be.
        signing_key: public key of the signing certificate to be.
        renews: the TLS certificate whose holder signed this request; None in a first request.
        sealing: public sealing key, 32 bytes; empty in a renewal, and for nodes that need none.
    """

    identity: Identity
    hosts: tuple[str, ...]
    tls_key: ec.EllipticCurvePublicKey
    signing_key: ed25519.Ed25519PublicKey
    renews: x509.Certificate | None = None
    sealing: bytes = b""

    @property
    def key_hash(self) -> str:
        """SHA-256 over the public keys (TLS and signing, DER; sealing, raw), lower-case hex: the same here and there."""
        digest = hashlib.sha256()
        for key in (self.tls_key, self.signing_key):
            digest.update(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        digest.update(self.sealing)
        return digest.hexdigest()


def create_request(
    directory: Path, identity: Identity, *, hosts: Sequence[str] = (), new_keys: bool = False
) -> tuple[Path, Request]:
    """Make a node's keys and its request: ``NAME.key``, ``NAME.sign``, a party's ``NAME.seal`` (all 0600) and ``NAME.req``.

    Args:
        directory: made when absent; nobody else's.
        identity: what is asked for.
        hosts: under which the node is reached; a miner needs one, and so does a party that serves its peers.
        new_keys: start anew although keys lie here: new ones wait as ``NAME.next.key`` and ``NAME.next.sign`` until the answer is
            installed; others that had waited are set aside. The sealing key, which is in no certificate, stays. Without `hosts`
            those of the certificate that lies here are asked for.

    Returns:
        The request's path, and the request.

    Raises:
        Misuse: FILE_EXISTS, CONFIG_INVALID for a bad host, FILE_MISSING where nothing can be written.
        DataFault: DISK_FULL; there are no new files then.
        PeerFault: CERTIFICATE_INVALID, what lies here is no certificate or no key.
    """
    tls, signing = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    key, sign, seal, path = (directory / f"{identity.name}.{suffix}" for suffix in ("key", "sign", "seal", "req"))
    certificate = directory / f"{identity.name}.crt"
    new_files: dict[Path, tuple[bytes, int]] = {}
    sealing = None
    if identity.role is Role.PARTY:
        sealing = _sealing_key(seal) if new_keys and seal.exists() else x25519.X25519PrivateKey.generate()
        if not (new_keys and seal.exists()):
            new_files[seal] = (private_pem(sealing), 0o600)
    if new_keys and not hosts and certificate.exists():
        hosts = _hosts_of(read_certificates(certificate)[0], identity)
    content = _write_request(identity, hosts, tls, signing, sealing=sealing)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if new_keys:
        _make_room((key, sign), certificate)
        path.unlink(missing_ok=True)  # a request is made anew at any time; only keys are not
        key, sign = (key_files(place)[1] if place.exists() else place for place in (key, sign))
    new_files |= {key: (private_pem(tls), 0o600), sign: (private_pem(signing), 0o600), path: (content, 0o644)}
    create_files(new_files, exists_hint=_NEVER.format(name=identity.name, role=identity.role))
    return path, parse_request(content, what=path.name)


def create_renewal(
    certificate: Path, *, new_keys: bool = False, hosts: Sequence[str] | None = None
) -> tuple[Path, Request]:
    """Make the request that renews a node's certificate, ``NAME.req``; new keys go to ``NAME.next.key`` and ``NAME.next.sign``.

    The node goes on with what it has until the answer is installed. Asking again with new keys uses those that wait already.

    Args:
        certificate: the node's ``NAME.crt``; its keys lie beside it.
        new_keys: ask for new keys instead of keeping those in use.
        hosts: under which the node is reached from now on; as before when absent.

    Returns:
        The request's path, and the request.

    Raises:
        Misuse: FILE_MISSING, CONFIG_INVALID for a bad host.
        DataFault: SECRET_MISSING without the keys; DISK_FULL.
        PeerFault: CERTIFICATE_INVALID when keys and certificate do not belong together.
    """
    present = read_certificates(certificate)
    identity = identity_of(present[0])
    old_tls, old_signing = _in_use(certificate, present)
    new_hosts = _hosts_of(present[0], identity) if hosts is None else tuple(hosts)
    path = certificate.with_name(f"{certificate.stem}.req")
    new_files: dict[Path, tuple[bytes, int]] = {}
    if new_keys:
        waiting = [key_files(certificate.with_suffix(suffix))[1] for suffix in (".key", ".sign")]
        tls = _waiting(waiting[0], ec.generate_private_key(ec.SECP256R1()), new_files, what="private key", kind="ECDSA")
        signing = _waiting(waiting[1], _SigningKey.generate(), new_files, what="signing key", kind="Ed25519")
    else:
        tls, signing = old_tls, old_signing
    content = _write_request(identity, new_hosts, tls, signing, renews=(present[0], old_tls))
    path.unlink(missing_ok=True)  # a request is made anew at any time; only keys are not
    create_files({**new_files, path: (content, 0o644)}, exists_hint="run it again")
    return path, parse_request(content, what=path.name)


def parse_request(content: bytes, *, what: str = "request") -> Request:
    """Read a request and verify everything in it that can be verified without the authority. Trusts nothing.

    Args:
        content: the document.
        what: its name, for messages.

    Raises:
        PeerFault: MESSAGE_INVALID, it is not a request; CERTIFICATE_INVALID, a signature in it does not hold, or its parts
            are not of one identity.
    """
    document = _document(content, what)
    tls, signing = (_signing_request(document[key], f"{what}: {key}") for key in ("tls", "signing"))
    identity, also = _identity_in(tls, f"{what}: tls"), _identity_in(signing, f"{what}: signing")
    if identity != also:
        raise PeerFault("CERTIFICATE_INVALID", f"{what}: asks for {identity} and for {also}, expected one identity")
    tls_key, signing_key = tls.public_key(), signing.public_key()
    if not isinstance(tls_key, ec.EllipticCurvePublicKey) or not isinstance(tls_key.curve, ec.SECP256R1):
        raise PeerFault("CERTIFICATE_INVALID", f"{what}: tls: not an ECDSA P-256 key")
    if not isinstance(signing_key, ed25519.Ed25519PublicKey):
        raise PeerFault("CERTIFICATE_INVALID", f"{what}: signing: not an Ed25519 key")
    return Request(
        identity=identity,
        hosts=_hosts_of(tls, identity),
        tls_key=tls_key,
        signing_key=signing_key,
        renews=_check_renewal(document["renews"], _renewal_claim(tls, signing), identity, what)
        if "renews" in document
        else None,
        sealing=_sealing_in(document["sealing"], signing_key, identity, what) if "sealing" in document else b"",
    )


def read_request(path: Path) -> Request:
    """Read a request's file; see `parse_request`.

    Raises:
        Misuse: FILE_MISSING.
        PeerFault: as `parse_request`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(REQUEST_BYTES + 1)
    except OSError as error:
        raise Misuse("FILE_MISSING", f"{path}: cannot be read ({error.strerror})") from None
    return parse_request(content, what=path.name)


# ---- writing


def _write_request(
    identity: Identity,
    hosts: Sequence[str],
    tls: _TlsKey,
    signing: _SigningKey,
    *,
    renews: tuple[x509.Certificate, _TlsKey] | None = None,
    sealing: x25519.X25519PrivateKey | None = None,
) -> bytes:
    uri = x509.UniformResourceIdentifier(identity.uri)
    tls_request = _builder(identity, [uri, *map(host_name, hosts)]).sign(tls, hashes.SHA256())
    signing_request = (
        _builder(identity, [uri])
        .add_extension(x509.ExtendedKeyUsage([SIGNING_PURPOSE]), critical=False)
        .sign(signing, None)
    )
    document: dict[str, object] = {
        "schema": 1,
        "kind": _KIND,
        "tls": tls_request.public_bytes(Encoding.PEM).decode("ascii"),
        "signing": signing_request.public_bytes(Encoding.PEM).decode("ascii"),
    }
    if renews is not None:
        certificate, key = renews
        signature = key.sign(_renewal_claim(tls_request, signing_request), ec.ECDSA(hashes.SHA256()))
        document["renews"] = {
            "certificate": certificate.public_bytes(Encoding.PEM).decode("ascii"),
            "signature": base64.b64encode(signature).decode("ascii"),
        }
    if sealing is not None:
        public = sealing.public_key().public_bytes_raw()
        document["sealing"] = {
            "key": public.hex(),
            "signature": base64.b64encode(signing.sign(_sealing_claim(identity, public))).decode("ascii"),
        }
    return (json.dumps(document, indent=1) + "\n").encode("ascii")


def _sealing_claim(identity: Identity, public: bytes) -> bytes:
    """Return what the signing key signs of a sealing key, under a name that no other signature has."""
    return b"verticil/sealing/v1\n" + identity.uri.encode("ascii") + b"\n" + public


def _builder(identity: Identity, names: Sequence[x509.GeneralName]) -> x509.CertificateSigningRequestBuilder:
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject_of(identity))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )


def _renewal_claim(tls: x509.CertificateSigningRequest, signing: x509.CertificateSigningRequest) -> bytes:
    """Return what the holder of the old key signs: both requests, under a name that no other signature has."""
    parts = (hashlib.sha256(request.public_bytes(Encoding.DER)).digest() for request in (tls, signing))
    return b"verticil/renewal/v1" + b"".join(parts)


def _make_room(keys: Sequence[Path], certificate: Path) -> None:
    """See that no key waits: one that belongs to the certificate (its installation was broken off) moves in, others go aside."""
    present = [item.public_key() for item in read_certificates(certificate)] if certificate.exists() else []
    for waiting in (key_files(key)[1] for key in keys):
        if not waiting.exists():
            continue
        key = load_private_key(waiting, what="private key")
        try:
            if isinstance(key, _TlsKey | _SigningKey) and key.public_key() in present:
                move_in(waiting)
            else:
                set_aside(waiting)
        except OSError as error:
            raise write_fault(error, waiting) from None


def _sealing_key(path: Path) -> x25519.X25519PrivateKey:
    key = load_private_key(path, what="sealing key")
    if not isinstance(key, x25519.X25519PrivateKey):
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: not an X25519 key")
    return key


def _waiting(path: Path, new: Key, new_files: dict[Path, tuple[bytes, int]], *, what: str, kind: str) -> Key:
    """Return the key that waits in a file already, of the kind of `new`; where there is none, `new`, put in `new_files`."""
    if path.exists():
        key = load_private_key(path, what=what)
        if isinstance(key, type(new)):
            return key
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: not an {kind} key")
    new_files[path] = (private_pem(new), 0o600)
    return new


def _find_keys(place: Path, certificates: Sequence[x509.Certificate], *, what: str) -> list[PrivateKeyTypes]:
    """Return the keys at a place, in use or waiting, that belong to one of the certificates; the waiting one first."""
    keys = [load_private_key(path, what=what) for path in key_files(place) if path.exists()]
    public_keys = [certificate.public_key() for certificate in certificates]
    return [key for key in reversed(keys) if key.public_key() in public_keys]


def _in_use(certificate: Path, present: Sequence[x509.Certificate]) -> tuple[_TlsKey, _SigningKey]:
    """Return the private keys of a node's certificates."""
    identity = identity_of(present[0])
    places = certificate.with_suffix(".key"), certificate.with_suffix(".sign")
    tls = next(
        (key for key in _find_keys(places[0], present[:1], what="private key") if isinstance(key, _TlsKey)), None
    )
    signing_keys = _find_keys(places[1], present, what="signing key")
    signing = next((key for key in signing_keys if isinstance(key, _SigningKey)), None)
    if tls is None or signing is None:
        missing = places[0 if tls is None else 1]
        raise DataFault(
            "SECRET_MISSING",
            f"{missing}: missing, or not the key of {certificate.name}",
            hint="a renewal is signed with the key in use; restore it from a backup, or start anew with new keys: "
            f"verticil pki request {identity.name} --role {identity.role} --new-keys",
        )
    return tls, signing


# ---- reading


def _document(content: bytes, what: str) -> Mapping[str, object]:
    if len(content) > REQUEST_BYTES:
        raise PeerFault("MESSAGE_INVALID", f"{what}: more than {REQUEST_BYTES} bytes")
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise PeerFault(
            "MESSAGE_INVALID",
            f"{what}: not a certificate request",
            hint="made by: verticil pki request",
        )
    fields = cast("dict[str, object]", document)
    if fields.get("kind") != _KIND or fields.get("schema") != 1 or not {"tls", "signing"} <= set(fields) <= _KEYS:
        raise PeerFault("MESSAGE_INVALID", f"{what}: not a certificate request of schema 1")
    return fields


def _signing_request(text: object, what: str) -> x509.CertificateSigningRequest:
    try:
        request = x509.load_pem_x509_csr(str(text).encode("ascii"))
        holds = request.is_signature_valid
    except UNREADABLE:
        raise PeerFault("MESSAGE_INVALID", f"{what}: expected a PKCS #10 request in PEM form") from None
    if not holds:
        raise PeerFault(
            "CERTIFICATE_INVALID", f"{what}: not signed with its own key", hint="have the site make the request again"
        )
    return request


def _identity_in(request: x509.CertificateSigningRequest, what: str) -> Identity:
    try:
        uris = _names(request).get_values_for_type(x509.UniformResourceIdentifier)
        (uri,) = uris
        return Identity.parse(uri)
    except ValueError:
        raise PeerFault("MESSAGE_INVALID", f"{what}: expected one identity as its only URI") from None


def _names(holder: x509.CertificateSigningRequest | x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        return holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise ValueError(str(error)) from None


def _hosts_of(holder: x509.CertificateSigningRequest | x509.Certificate, identity: Identity) -> tuple[str, ...]:
    names = _names(holder)
    hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    return tuple(host for host in hosts if host != peer_host(identity))


def _sealing_in(value: object, signing: ed25519.Ed25519PublicKey, identity: Identity, what: str) -> bytes:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    try:
        public = bytes.fromhex(str(fields.get("key")))
        signature = base64.b64decode(str(fields.get("signature")), validate=True)
    except UNREADABLE:
        public = signature = b""
    if len(public) != _SEALING_BYTES:
        raise PeerFault("MESSAGE_INVALID", f"{what}: sealing: expected a key of 32 bytes and a signature")
    try:
        signing.verify(signature, _sealing_claim(identity, public))
    except InvalidSignature:
        raise PeerFault("CERTIFICATE_INVALID", f"{what}: sealing: not signed with its own signing key") from None
    return public


def _check_renewal(value: object, claim: bytes, identity: Identity, what: str) -> x509.Certificate:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    try:
        certificate = x509.load_pem_x509_certificate(str(fields.get("certificate")).encode("ascii"))
        signature = base64.b64decode(str(fields.get("signature")), validate=True)
    except UNREADABLE:
        raise PeerFault("MESSAGE_INVALID", f"{what}: renews: expected a certificate and a signature") from None
    key = certificate.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(signature, claim, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise PeerFault(
            "CERTIFICATE_INVALID", f"{what}: renews: not signed with the key of the certificate that it renews"
        ) from None
    if identity_of(certificate) != identity:
        raise PeerFault("IDENTITY_REFUSED", f"{what}: renews {identity_of(certificate)}, asks for {identity}")
    return certificate
