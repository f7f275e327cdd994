"""The manifest of a release, and the signatures of it.

`sign_release` adds `manifest.sig` to a folder that is written; in Model I, where every party signs, `write_signatures` does. What
is signed is the manifest's bytes, so they are written for people (indented) and never rewritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.json_document import Json, to_text
from verticil.shared.federation.identity.pki import identity_of
from verticil.shared.release.content import SignedStatement
from verticil.shared.release.formats.table_files import write_atomically
from verticil.shared.release.signatures import base64_text, signed_document
from verticil.shared.storage.durable import rename, sync_directory

if TYPE_CHECKING:
    pass
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.sig"
MANIFEST_FORMAT: Final = "verticil-release"
SIGNATURE_FORMAT: Final = "verticil-signature"
SIGNATURE_VERSION: Final = 1
SIGNATURE_ALGORITHM: Final = "Ed25519"


class Signer(Protocol):
    """What signs a release: the publisher's signing key."""

    def sign(self, body: bytes) -> SignedStatement:
        """Sign a body of bytes."""
        ...


def sign_release(
    directory: Path, signer: Signer, *, ca_certificate: bytes, countersigned: Sequence[SignedStatement] = ()
) -> None:
    """Sign the manifest of a written release.

    Args:
        directory: the release.
        signer: the publisher's signing key.
        ca_certificate: the federation's CA certificate (PEM or DER); it goes beside the signature, so that a reader who only
            knows its fingerprint can check the chain. It proves nothing by itself.
        countersigned: see `write_signatures`; signing again with them adds them to what was signed before.

    Raises:
        Misuse: FILE_MISSING when there is no manifest.
        DataFault: DISK_FULL.
    """
    manifest = _read_manifest(directory)
    write_signatures(directory, [signer.sign(manifest)], ca_certificate=ca_certificate, countersigned=countersigned)


def write_signatures(
    directory: Path,
    signed: Sequence[SignedStatement],
    *,
    ca_certificate: bytes,
    countersigned: Sequence[SignedStatement] = (),
) -> None:
    """Write `manifest.sig`: one signature of the manifest, or in Model I one of each party.

    The order does not matter: the same signatures give the same file.

    Args:
        directory: the release.
        signed: their bodies are the manifest's bytes; whether the signatures hold is not checked here.
        ca_certificate: see `sign_release`.
        countersigned: statements of parties that have looked at the release (`countersignature`).

    Raises:
        PeerFault: STUDY_MISMATCH, somebody signed another manifest: both digests are shown.
        Misuse: FILE_MISSING when there is no manifest.
        DataFault: DISK_FULL.
    """
    manifest = _read_manifest(directory)
    for item in signed:
        if item.body != manifest:
            raise PeerFault(
                "STUDY_MISMATCH",
                f"{MANIFEST}: {_signer_name(item.certificate)} signed one with the SHA-256 "
                f"{hashlib.sha256(item.body).hexdigest()}, this one has {hashlib.sha256(manifest).hexdigest()}",
                hint="the parties did not assemble the same release: compare versions of verticil, numpy, pandas and pyarrow",
            )
    entries = sorted(signed, key=lambda item: (_signer_name(item.certificate), item.certificate))
    document: dict[str, Json] = {
        "format": SIGNATURE_FORMAT,
        "version": SIGNATURE_VERSION,
        "file": MANIFEST,
        "algorithm": SIGNATURE_ALGORITHM,
        "signatures": [
            {"signature": base64_text(item.signature), "certificate": base64_text(item.certificate)} for item in entries
        ],
        "authority": base64_text(to_der(ca_certificate)),
    }
    if countersigned:
        by_name = sorted(countersigned, key=lambda item: _signer_name(item.certificate))
        document["countersignatures"] = [signed_document(item) for item in by_name]
    # Made beside the folder, not in it: a crash must not leave an unlisted file in a release.
    staging = directory.with_name(f".{directory.name}.{SIGNATURE}")
    write_bytes(staging, to_text(document))
    rename(staging, directory / SIGNATURE)
    sync_directory(directory)


def _read_manifest(directory: Path) -> bytes:
    try:
        return (directory / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise Misuse("FILE_MISSING", f"{directory / MANIFEST}: no such file", hint="write the release first") from None


def _signer_name(certificate: bytes) -> str:
    """Return the identity in a signer's certificate, for an order and a message."""
    return identity_of(x509.load_der_x509_certificate(certificate)).uri


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file of a release, whole and flushed to the disk, or not at all."""

    def write(file: BinaryIO) -> None:
        file.write(data)

    write_atomically(path, write)


def to_der(certificate: bytes) -> bytes:
    """Return a certificate in DER, from PEM or DER.

    Raises:
        ValueError: it is neither.
    """
    if certificate.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)
    return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.DER)
