"""The keys of the people who approve, and the votes that they sign.

Each person named in party.toml as ``[[approver]]`` has an Ed25519 key. The private half is a file of that person (PEM, no
password, 0600), which needs to lie on the party's machine only while the command runs; the public half stands in party.toml. A
vote is a statement over the digest of everything that is approved (`verticil.party.policy.approval.content_of`), so it counts
for that content at that party and for nothing else. Votes are checked when they are given, when they are counted, and again
before every step that sends something: a row that somebody writes into the database is not a vote.

These keys are neither TLS keys nor the party's signing key, and no certificate goes with them: party.toml is the list. The
approval that leaves the site is signed by the party and names who voted.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from verticil.shared.disk import create_file
from verticil.shared.errors import DataFault, Misuse
from verticil.shared.identity.pki import UNREADABLE
from verticil.shared.record import canonical_json

_FORM: Final = "verticil/vote/v1"
_PUBLIC_BYTES: Final = 32
_LARGEST: Final = 4096
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, eq=False)
class ApproverKey:
    """The private key of one approver."""

    _key: Ed25519PrivateKey

    @classmethod
    def create(cls, path: Path) -> ApproverKey:
        """Make a key and its file, mode 0600.

        Raises:
            Misuse: FILE_EXISTS, FILE_MISSING.
            DataFault: DISK_FULL.
        """
        key = Ed25519PrivateKey.generate()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        create_file(path, text, mode=0o600, exists_hint="a key is never overwritten: use it, or name another file")
        return cls(key)

    @classmethod
    def load(cls, path: Path) -> ApproverKey:
        """Read a key.

        Raises:
            DataFault: SECRET_MISSING, there is no such file or it cannot be read.
            Misuse: CONFIG_INVALID, others than the owner may use the file, or it holds something else.
        """
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                data = file.read(_LARGEST)
        except OSError as error:
            hint = "the approver's own file: --key FILE; a new one is made by: verticil party approver keygen"
            raise DataFault(
                "SECRET_MISSING", f"approver's key {path}: cannot be read ({error.strerror})", hint=hint
            ) from None
        if mode & 0o077:
            message = f"approver's key {path}: mode {mode:04o}, expected 0600 (the owner only)"
            raise Misuse("CONFIG_INVALID", message, hint=f"chmod 600 {path}")
        try:
            key = load_pem_private_key(data, password=None)
        except UNREADABLE:
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            message = f"approver's key {path}: expected an Ed25519 key in PEM form without a password"
            raise Misuse("CONFIG_INVALID", message, hint="make one: verticil party approver keygen --key FILE")
        return cls(key)

    @property
    def public(self) -> bytes:
        """The public half, 32 bytes."""
        return self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def sign(self, body: bytes) -> bytes:
        """Ed25519 over `body`."""
        return self._key.sign(body)


def public_key_text(public: bytes) -> str:
    """A public key as it stands in party.toml.

    >>> public_key_text(bytes(32))
    'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
    """
    return base64.b64encode(public).decode("ascii")


def public_key_from(text: str) -> bytes | None:
    """The public key in `text`; None when it is none.

    >>> public_key_from(public_key_text(bytes(32))) == bytes(32), public_key_from("AAAA")
    (True, None)
    """
    try:
        public = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return public if len(public) == _PUBLIC_BYTES else None


def vote_body(*, party: str, study_id: str, content: bytes, approver: str, at: datetime) -> bytes:
    """What an approver signs.

    Args:
        party: at which party.
        study_id: for people who read the statement.
        content: digest of everything that is approved.
        approver: who.
        at: when; to the second.
    """
    return canonical_json(
        {
            "form": _FORM,
            "party": party,
            "study": study_id,
            "content_sha256": content.hex(),
            "approver": approver,
            "voted_at": at.strftime(_TIME),
        }
    )


def check_vote(body: bytes, signature: bytes, public: bytes) -> bool:
    """Whether `signature` is one of the key `public` over `body`.

    Raises:
        DataFault: STATE_CORRUPT, `public` is no key.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
    except ValueError:
        raise DataFault("STATE_CORRUPT", "an approver's public key is not an Ed25519 key") from None
    try:
        key.verify(signature, body)
    except InvalidSignature:
        return False
    return True
