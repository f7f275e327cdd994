"""What the people of a site decided, in the party's database: signed votes, what each was about, countersignatures.

As in `verticil.party.storage.studies` every method is one transaction that is on the disk when it returns, and can be repeated.
Whether a signature holds is not this module's matter.

The keys of the people who approve, and the votes that they sign.

Each person named in party.toml as ``[[approver]]`` has an Ed25519 key. The private half is a file of that person (PEM, no
password, 0600), which needs to lie on the party's machine only while the command runs; the public half stands in party.toml. A
vote is a statement over the digest of everything that is approved (`verticil.party.policy.approval.content_of`), so it counts
for that content at that party and for nothing else. Votes are checked when they are given, when they are counted, and again
before every step that sends something: a row that somebody writes into the database is not a vote.

These keys are neither TLS keys nor the party's signing key, and no certificate goes with them: party.toml is the list. The
approval that leaves the site is signed by the party and names who voted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from verticil.party.policy.comparison import Origins
from verticil.party.storage.database import Database
from verticil.shared.disk import create_file
from verticil.shared.errors import DataFault, Misuse
from verticil.shared.identity.pki import UNREADABLE
from verticil.shared.record import canonical_json

_FORM: Final = "verticil/vote/v1"
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


# ---- the store


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One yes.

    Attributes:
        approver: who.
        content: digest of what was approved.
        at: when, as it was signed.
        signature: of the approver's key; empty where party.toml names nobody.
    """

    approver: str
    content: bytes
    at: datetime
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A release that waits for countersignatures.

    Attributes:
        manifest_sha256: of its manifest, as the miner told.
        fetched: it lies in the state directory.
        countersignature: body, signature and certificate of this party's; None before.
        sent: the miner has it.
    """

    manifest_sha256: bytes
    fetched: bool
    countersignature: tuple[bytes, bytes, bytes] | None
    sent: bool


class DecisionStore:
    """The decisions in a party's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- votes

    def votes(self, digest: bytes) -> tuple[Vote, ...]:
        """All votes for a study, in order of time."""
        rows = self._database.rows(
            "SELECT approver, content, voted_at, signature FROM vote WHERE digest = ? ORDER BY rowid", (digest,)
        )
        return tuple(
            Vote(
                approver=cast("str", approver),
                content=cast("bytes", content),
                at=datetime.fromisoformat(cast("str", at)),
                signature=cast("bytes", signature),
            )
            for approver, content, at, signature in rows
        )

    def vote(self, digest: bytes, vote: Vote) -> tuple[str, ...]:
        """Record a yes; votes for any other content are void and removed.

        Returns:
            Whose votes were removed.
        """
        with self._database.transaction():
            void = tuple(held.approver for held in self.votes(digest) if held.content != vote.content)
            self._database.write("DELETE FROM vote WHERE digest = ? AND content <> ?", (digest, vote.content))
            self._database.write(
                "INSERT INTO vote (digest, approver, content, voted_at, signature) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (digest, approver) DO UPDATE SET voted_at = excluded.voted_at, signature = excluded.signature"
                " WHERE vote.signature <> excluded.signature AND excluded.signature <> x''",
                (digest, vote.approver, vote.content, f"{vote.at:{_TIME}}", vote.signature),
            )
        return void

    # ---- what a vote was about

    def note(self, digest: bytes, content: bytes, origins: Mapping[int, Origins], at: datetime) -> None:
        """Remember where the data of an approved content came from."""
        facts = json.dumps({str(index): dataclasses.asdict(item) for index, item in origins.items()})
        self._database.write(
            "INSERT INTO basis VALUES (?, ?, ?, ?) ON CONFLICT (digest, content) DO UPDATE SET noted_at = excluded.noted_at",
            (digest, content, facts, f"{at:{_TIME}}"),
        )

    def noted(self, digest: bytes, content: bytes | None = None) -> Mapping[int, Origins] | None:
        """What was noted about a content, or about the latest one; None: nothing (an earlier version approved it)."""
        rows = self._database.rows(
            "SELECT facts FROM basis WHERE digest = ? AND (? IS NULL OR content = ?) ORDER BY noted_at DESC, rowid DESC LIMIT 1",
            (digest, content, content),
        )
        if not rows:
            return None
        facts = cast("dict[str, dict[str, Any]]", json.loads(cast("str", rows[0][0])))
        for item in facts.values():
            item.update(variables=tuple(item["variables"]), sources=tuple(item["sources"]))
        return {int(index): Origins(**item) for index, item in facts.items()}

    # ---- countersignatures

    def ask_for_review(self, digest: bytes, manifest_sha256: bytes) -> None:
        """The miner tells of a release to countersign; another manifest than before is another release, not looked at yet."""
        self._database.write(
            "INSERT INTO review (digest, manifest_sha256) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET"
            " manifest_sha256 = excluded.manifest_sha256, fetched = 0, sent = 0,"
            " body = NULL, signature = NULL, certificate = NULL"
            " WHERE manifest_sha256 <> excluded.manifest_sha256",
            (digest, manifest_sha256),
        )

    def review(self, digest: bytes) -> Review | None:
        """What is known of a release that waits; None: nothing does."""
        rows = self._database.rows(
            "SELECT manifest_sha256, fetched, body, signature, certificate, sent FROM review WHERE digest = ?",
            (digest,),
        )
        if not rows:
            return None
        manifest, fetched, body, signature, certificate, sent = rows[0]
        signed = None
        if isinstance(body, bytes) and isinstance(signature, bytes) and isinstance(certificate, bytes):
            signed = (body, signature, certificate)
        return Review(
            manifest_sha256=cast("bytes", manifest), fetched=bool(fetched), countersignature=signed, sent=bool(sent)
        )

    def fetched(self, digest: bytes, *, here: bool = True) -> None:
        """The release is in the state directory, or is not there any more."""
        self._database.write("UPDATE review SET fetched = ? WHERE digest = ?", (here, digest))

    def countersign(self, digest: bytes, manifest_sha256: bytes, signed: tuple[bytes, bytes, bytes]) -> bool:
        """Record this party's countersignature; False when the miner has told another manifest since. The first one stays."""
        changed = self._database.write(
            "UPDATE review SET body = coalesce(body, ?), signature = coalesce(signature, ?),"
            " certificate = coalesce(certificate, ?) WHERE digest = ? AND manifest_sha256 = ?",
            (*signed, digest, manifest_sha256),
        )
        return changed > 0

    def forget_countersignature(self, digest: bytes) -> None:
        """The miner does not take it."""
        self._database.write(
            "UPDATE review SET body = NULL, signature = NULL, certificate = NULL, sent = 0 WHERE digest = ?", (digest,)
        )

    def countersignature_told(self, digest: bytes) -> None:
        """The miner has it."""
        self._database.write("UPDATE review SET sent = 1 WHERE digest = ?", (digest,))
