"""What a site does with the authority's answer: verify it against its own keys and the fingerprint, then put it in place.

The answer came over a channel that is not trusted, so everything is verified: the authority's certificate has the SHA-256
that the operator heard (by telephone) and that federation.toml says; it signed both certificates; they are the node's,
of its two private keys, which lie here and were not sent anywhere.

Putting the certificate file in its place is the one step that counts, and it is atomic: before it the old certificate and
keys are in use, after it the new ones (`verticil.shared.federation.identity.pki` finds the key that fits). New keys are then
moved to their names, and the old ones kept aside with the day; if the process dies in between, the same command finishes it.
Running daemons take it up by themselves.

A site's sealing key is a file too: make it where a site has none, show its public half, renew it.

``NAME.seal`` lies beside the node's other keys, mode 0600. A new one is made as ``NAME.next.seal`` and the one in use stays; the
daemon takes the one that federation.toml pins (`verticil.shared.federation.transport.sealing`). When the next renewal is made,
what was the new key gets the name, and the one before it is kept aside: no key is overwritten.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.shared.core.errors import DataFault, Misuse, PeerFault
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import chain_pem, new_sealing_pem
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.identity.pki import (
    SIGNING_PURPOSE,
    certificate_sha256,
    check_issued,
    check_validity,
    identity_of,
    key_files,
    load_private_key,
    read_certificates,
    utc_now,
)
from verticil.shared.storage.disk import create_file, replace_file, write_fault
from verticil.shared.storage.durable import rename, sync_directory

_HEX_DIGITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """What is in place now.

    Attributes:
        identity: who the node is.
        certificate: the node's certificate file.
        not_after: when it ends (UTC).
        authority: where the authority's certificate is.
        new_keys: keys that had waited are in use now.
    """

    identity: Identity
    certificate: Path
    not_after: dt.datetime
    authority: Path
    new_keys: bool


def read_fingerprint(text: str) -> str:
    """Parse a SHA-256 as people write it, as 64 lower-case hexadecimal digits.

    >>> read_fingerprint("AB:cd " + "00" * 30)[:8]
    'abcd0000'

    Raises:
        Misuse: USAGE.
    """
    digits = text.replace(":", "").replace(" ", "").lower()
    if len(digits) != _HEX_DIGITS or set(digits) - set("0123456789abcdef"):
        raise Misuse("USAGE", f"--fingerprint: got {len(digits)} characters, expected 64 hexadecimal digits")
    return digits


def install(
    answer: Path, directory: Path, *, fingerprint: str, federation: Federation, at: dt.datetime | None = None
) -> Installed:
    """Verify the authority's answer and put it in place. May be repeated.

    Args:
        answer: the file that `verticil pki sign` made.
        directory: where the node's keys lie.
        fingerprint: SHA-256 of the authority's certificate, from another channel than the answer.
        federation: federation.toml; the authority's certificate is put where it says, if it is not there.
        at: now.

    Raises:
        Misuse: USAGE for a malformed fingerprint, FILE_MISSING.
        DataFault: SECRET_MISSING, the keys of this certificate are not here; DISK_FULL, nothing has changed.
        PeerFault: CERTIFICATE_INVALID, the answer is not the authority's, or not valid now; IDENTITY_REFUSED, it is another
            federation's.
    """
    now = utc_now() if at is None else at
    tls, signing, authority = _verify_reply(answer, read_fingerprint(fingerprint), federation, now)
    identity = identity_of(tls)
    target = directory / f"{identity.name}.crt"
    tls_key = _key_of(tls, target.with_suffix(".key"), what="private key")
    signing_key = _key_of(signing, target.with_suffix(".sign"), what="signing key")
    try:
        if not federation.ca_certificate.exists():
            federation.ca_certificate.parent.mkdir(parents=True, exist_ok=True)
            create_file(
                federation.ca_certificate, authority.public_bytes(Encoding.PEM), mode=0o644, exists_hint="run it again"
            )
        replace_file(target, chain_pem((tls, signing)), part=target.with_name(f".{target.name}.part"))
        target.chmod(0o644)
        for key in (tls_key, signing_key):
            move_in(key, at=now)
        sync_directory(directory)
    except OSError as error:
        raise write_fault(error, target) from None
    return Installed(
        identity=identity,
        certificate=target,
        not_after=tls.not_valid_after_utc,
        authority=federation.ca_certificate,
        new_keys=".next." in tls_key.name,
    )


def _verify_reply(
    answer: Path, fingerprint: str, federation: Federation, now: dt.datetime
) -> tuple[x509.Certificate, x509.Certificate, x509.Certificate]:
    certificates = read_certificates(answer)
    if len(certificates) != 3:
        raise PeerFault(
            "CERTIFICATE_INVALID",
            f"{answer}: got {len(certificates)} certificates, expected three: TLS, signing, authority",
            hint="use the file that verticil pki sign made",
        )
    tls, signing, authority = certificates
    for target, whence in ((fingerprint, "--fingerprint"), (federation.ca_sha256, "ca_sha256 in federation.toml")):
        if (sha256 := certificate_sha256(authority)) != target:
            raise PeerFault(
                "CERTIFICATE_INVALID",
                f"{answer}: the authority's SHA-256 is {sha256}, expected {target} ({whence})",
                hint="do not install it; ask the coordinator, by telephone, for the fingerprint that verticil pki init showed",
            )
    check_validity(authority, at=now, what=f"{answer}: authority")
    for certificate, what in ((tls, "TLS certificate"), (signing, "signing certificate")):
        check_issued(certificate, authority, what=f"{answer}: {what}")
        check_validity(certificate, at=now, what=f"{answer}: {what}")
    identity = identity_of(tls)
    if identity != identity_of(signing) or identity.federation != federation.name:
        raise PeerFault(
            "IDENTITY_REFUSED", f"{answer}: for {identity}, expected one node of federation '{federation.name}'"
        )
    purposes = signing.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if SIGNING_PURPOSE not in purposes:
        raise PeerFault("CERTIFICATE_INVALID", f"{answer}: the second certificate is not one for signing")
    return tls, signing, authority


def _key_of(certificate: x509.Certificate, path: Path, *, what: str) -> Path:
    """Return where the private key of a certificate lies."""
    for place in key_files(path):
        if place.exists():
            key = load_private_key(place, what=what)
            kinds = (ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)
            if isinstance(key, kinds) and key.public_key() == certificate.public_key():
                return place
    raise DataFault(
        "SECRET_MISSING",
        f"{path}: missing, or not the {what} of this certificate",
        hint="the answer is to another request than the one that was made here last",
    )


def move_in(key: Path, *, at: dt.datetime | None = None) -> None:
    """Give a key that had waited its name; the one before it is kept aside: a key is never overwritten."""
    if ".next." not in key.name:
        return
    target = key.with_name(key.name.replace(".next.", "."))
    if target.exists():
        set_aside(target, at=at)
    rename(key, target)


def set_aside(key: Path, *, at: dt.datetime | None = None) -> Path:
    """Give a key that is used no more a name with the day, ``NAME.retired-2026-11-21.key``; never that of another file."""
    name = key.name.removesuffix(key.suffix).removesuffix(".next")
    day = f"{utc_now() if at is None else at:%Y-%m-%d}"
    old_key, number = key.with_name(f"{name}.retired-{day}{key.suffix}"), 1
    while old_key.exists():
        number += 1
        old_key = key.with_name(f"{name}.retired-{day}-{number}{key.suffix}")
    rename(key, old_key)
    return old_key


def make_sealing_key(path: Path, *, new: bool = False) -> tuple[Path, bool]:
    """See that there is a sealing key.

    Args:
        path: ``NAME.seal``; its folder exists.
        new: make another one although there is one.

    Returns:
        The file of the key that belongs into federation.toml now, and whether it was made now.

    Raises:
        Misuse: FILE_MISSING, nothing can be written there.
        DataFault: DISK_FULL; nothing has changed then.
    """
    waiting = key_files(path)[1]
    if not new:
        for place in (waiting, path):
            if place.exists():
                return place, False
    target = path
    if path.exists():
        target = waiting
        if waiting.exists():
            try:
                move_in(waiting)
            except OSError as error:
                raise write_fault(error, waiting) from None
    create_file(target, new_sealing_pem(), mode=0o600, exists_hint="run it again")
    return target, True


def public_sealing_key(path: Path) -> str:
    """Return the public half, as it stands in federation.toml.

    Raises:
        DataFault: SECRET_MISSING.
        PeerFault: CERTIFICATE_INVALID, it is no sealing key.
    """
    key = load_private_key(path, what="sealing key")
    if not isinstance(key, X25519PrivateKey):
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: not an X25519 key")
    return key.public_key().public_bytes_raw().hex()
