"""What the people of a site decided, in the party's database: signed votes and what each was about, approvals, denials,
countersignatures.

As in `verticil.party.storage.studies` every method is one transaction that is on the disk when it returns, and can be repeated.

Each person named in party.toml as ``[[approver]]`` has an Ed25519 key. The private half is a file of that person (PEM, 0600,
with a passphrase or without), which needs to lie on the party's machine only while the command runs; the public half stands in
party.toml. A vote is a statement over the digest of everything that is approved
(`verticil.party.policy.approval_checks.content_of`), so it counts for that content at that party and for nothing else. Votes are
checked when they are given, when they are counted, and again before every step that sends something: a row that somebody writes
into the database is not a vote.

These keys are neither TLS keys nor the party's signing key, and no certificate goes with them: party.toml is the list. The
approval that leaves the site is signed by the party and names who voted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from verticil.party.dataset.column_draws import Origins
from verticil.party.storage.database import Database
from verticil.party.storage.studies import StudyRecord, stamp
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.core.permissions import not_permitted
from verticil.shared.documents.record import canonical_json
from verticil.shared.federation.identity.pki import UNREADABLE
from verticil.shared.storage.disk import create_file

_FORM: Final = "verticil/vote/v1"
_LARGEST: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ApproverKey:
    """The private key of one approver."""

    _key: Ed25519PrivateKey

    @classmethod
    def create(cls, path: Path, *, passphrase: str = "") -> ApproverKey:
        """Make a key and its file, mode 0600; with a passphrase, the file is encrypted.

        Raises:
            Misuse: FILE_EXISTS, FILE_MISSING.
            DataFault: DISK_FULL.
        """
        key = Ed25519PrivateKey.generate()
        sealed = BestAvailableEncryption(passphrase.encode("utf-8")) if passphrase else NoEncryption()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed)
        create_file(path, text, mode=0o600, exists_hint="a key is never overwritten: use it, or name another file")
        return cls(key)

    @classmethod
    def load(cls, path: Path, *, passphrase: Callable[[Path], str] | None = None) -> ApproverKey:
        """Read a key.

        Args:
            path: its file.
            passphrase: asked, once, where the file is encrypted; None: nobody can be asked.

        Raises:
            DataFault: SECRET_MISSING, there is no such file or it cannot be read; STATE_READ_ONLY, another user's.
            Misuse: CONFIG_INVALID, others than the owner may use the file, it holds something else, or the passphrase is another.
        """
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                data = file.read(_LARGEST)
        except OSError as error:
            hint = "the approver's own file: --key FILE; a new one is made by: verticil party approver keygen"
            fault = DataFault("SECRET_MISSING", f"approver's key {path}: cannot be read ({error.strerror})", hint=hint)
            raise not_permitted(error, path, what="approver's key") or fault from None
        if mode & 0o077:
            message = f"approver's key {path}: mode {mode:04o}, expected 0600 (the owner only)"
            raise Misuse("CONFIG_INVALID", message, hint=f"chmod 600 {path}")
        password = None
        if b"ENCRYPTED" in data and passphrase is not None:
            password = passphrase(path).encode("utf-8")
        try:
            key = load_pem_private_key(data, password=password)
        except UNREADABLE:
            if password is not None:
                hint = "nothing was decided; give the command again"
                raise Misuse(
                    "CONFIG_INVALID", f"approver's key {path}: this is not its passphrase", hint=hint
                ) from None
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            more = "" if passphrase is not None else " without a passphrase"
            message = f"approver's key {path}: expected an Ed25519 key in PEM form{more}"
            raise Misuse("CONFIG_INVALID", message, hint="make one: verticil party approver keygen --key FILE")
        return cls(key)

    @property
    def public(self) -> bytes:
        """The public half, 32 bytes."""
        return self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def sign(self, body: bytes) -> bytes:
        """Sign `body` with Ed25519."""
        return self._key.sign(body)


def check_vote(body: bytes, signature: bytes, public: bytes) -> bool:
    """Return whether `signature` is one of the key `public` over `body`.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One yes.

    Attributes:
        approver: who.
        content: digest of what was approved.
        at: when, as it was signed.
        signature: of the approver's key; empty where party.toml names no approver.
    """

    approver: str
    content: bytes
    at: str
    signature: bytes

    def body(self, party: str, study_id: str) -> bytes:
        """Return what the approver signs: the vote at `party`. The study's id is for people who read the statement."""
        return canonical_json(
            {
                "form": _FORM,
                "party": party,
                "study": study_id,
                "content_sha256": self.content.hex(),
                "approver": self.approver,
                "voted_at": self.at,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvers:
    """Who may approve.

    Attributes:
        names: the approvers; empty where party.toml names none.
        keys: public key of each that has one.
        needed: how many different ones a study needs.
    """

    names: tuple[str, ...]
    keys: Mapping[str, bytes]
    needed: int

    def accept(self, vote: Vote, body: bytes) -> bool:
        """Return whether a vote counts: of named approvers, where its signature over `body` holds by the key in
        party.toml.
        """
        if not self.names:
            return True
        public = self.keys.get(vote.approver)
        return vote.approver in self.names and public is not None and check_vote(body, vote.signature, public)


# ---- the store


class Denial(NamedTuple):
    """Who denied, why, and when."""

    approver: str
    reason: str
    denied_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A release that waits for countersignatures.

    Attributes:
        manifest_sha256: of its manifest, as the miner sent it.
        fetched: it lies in the state directory.
        body, signature, certificate: of this party's countersignature; None before.
        sent: the miner has it.
    """

    manifest_sha256: bytes
    fetched: bool
    body: bytes | None
    signature: bytes | None
    certificate: bytes | None
    sent: bool

    @property
    def countersignature(self) -> tuple[bytes, bytes, bytes] | None:
        """Body, signature and certificate of this party's; None before."""
        if self.body is None or self.signature is None or self.certificate is None:
            return None
        return self.body, self.signature, self.certificate


class DecisionStore:
    """The decisions in a party's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- votes

    def votes(self, digest: bytes) -> tuple[Vote, ...]:
        """Return all votes for a study, in order of time."""
        query = "SELECT *, voted_at AS at FROM vote WHERE digest = ? ORDER BY rowid"
        return tuple(self._database.read(Vote, query, (digest,)))

    def voters(self, record: StudyRecord, content: bytes, approvers: Approvers, party: str) -> tuple[str, ...]:
        """Return who said yes to `content` in a study, at this `party`; of named approvers, see `Approvers.accept`."""
        return tuple(
            vote.approver
            for vote in self.votes(record.digest)
            if vote.content == content and approvers.accept(vote, vote.body(party, record.study_id))
        )

    def vote(self, digest: bytes, vote: Vote, origins: Mapping[int, Origins]) -> tuple[str, ...]:
        """Record a yes, and where the data that it is about came from.

        Votes for any other content are void and removed, and so is an approval that was recorded before.

        Returns:
            Whose votes were removed.
        """
        facts = json.dumps({str(index): dataclasses.asdict(item) for index, item in origins.items()})
        with self._database.transaction():
            void = tuple(
                earlier_vote.approver for earlier_vote in self.votes(digest) if earlier_vote.content != vote.content
            )
            self.disapprove(digest)
            self._database.write("DELETE FROM vote WHERE digest = ? AND content <> ?", (digest, vote.content))
            self._database.write(
                "INSERT INTO vote (digest, approver, content, voted_at, signature) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (digest, approver) DO UPDATE SET voted_at = excluded.voted_at, signature = excluded.signature"
                " WHERE vote.signature <> excluded.signature AND excluded.signature <> x''",
                (digest, vote.approver, vote.content, vote.at, vote.signature),
            )
            self._database.write(
                "INSERT INTO basis VALUES (?, ?, ?, ?) ON CONFLICT (digest, content) DO UPDATE SET noted_at = excluded.noted_at",
                (digest, vote.content, facts, vote.at),
            )
        return void

    def get_origins(self, digest: bytes, content: bytes | None = None) -> Mapping[int, Origins] | None:
        """Return the origins that were noted about a content, or about the latest one; None: nothing was noted."""
        text = self._database.first(
            str,
            "SELECT facts FROM basis WHERE digest = ? AND (? IS NULL OR content = ?) ORDER BY noted_at DESC, rowid DESC LIMIT 1",
            (digest, content, content),
        )
        if text is None:
            return None
        facts = cast("dict[str, dict[str, Any]]", json.loads(text))
        for item in facts.values():
            item.update(variables=tuple(item["variables"]), sources=tuple(item["sources"]))
        return {int(index): Origins(**item) for index, item in facts.items()}

    # ---- approvals and denials

    def approve(self, digest: bytes, body: bytes, at: datetime) -> None:
        """Record the approval; it takes the place of an earlier one."""
        self._database.write("INSERT OR REPLACE INTO approval VALUES (?, ?, ?)", (digest, body, stamp(at)))

    def disapprove(self, digest: bytes, *, votes: bool = False) -> None:
        """Forget an approval that nobody else has and that does not hold any more, and free the room that is kept for it.

        Args:
            digest: of the study.
            votes: forget those that made it, too.
        """
        with self._database.transaction():
            for table in ("approval", "vote") if votes else ("approval",):
                self._database.write(f"DELETE FROM {table} WHERE digest = ?", (digest,))  # noqa: S608 (constant names)
            self._database.write("DELETE FROM reserved WHERE study_digest = ? AND NOT drawn", (digest,))

    def approve_by_rule(self, digest: bytes, at: datetime) -> None:
        """Count an approval by rule, for the daily limit."""
        self._database.write("INSERT INTO rule_approval (digest, at) VALUES (?, ?)", (digest, stamp(at)))

    def approvals_by_rule(self, since: datetime) -> int:
        """Count the studies that rules have approved since then."""
        return self._database.only(int, "SELECT COUNT(*) FROM rule_approval WHERE at > ?", (stamp(since),))

    def deny(self, digest: bytes, approver: str, reason: str, at: datetime) -> None:
        """Record a denial; votes and approval are void from now on."""
        with self._database.transaction():
            self.disapprove(digest, votes=True)
            self._database.write(
                "INSERT INTO denial (digest, approver, reason, denied_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (digest, approver, reason, stamp(at)),
            )

    def denial_reason(self, digest: bytes) -> str:
        """Return the reason that the person who denied wrote."""
        return self._database.only(str, "SELECT reason FROM denial WHERE digest = ?", (digest,))

    def denial(self, digest: bytes) -> Denial | None:
        """Return the denial; None: there is none."""
        return self._database.first(Denial, "SELECT * FROM denial WHERE digest = ?", (digest,))

    def denial_told(self, digest: bytes) -> None:
        """Record that the miner knows of the denial."""
        self._database.write("UPDATE denial SET sent = 1 WHERE digest = ?", (digest,))

    # ---- countersignatures

    def ask_for_review(self, digest: bytes, manifest_sha256: bytes) -> None:
        """Record that the miner asks for a countersignature; a manifest other than before means another release, not
        reviewed yet.
        """
        self._database.write(
            "INSERT INTO review (digest, manifest_sha256) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET"
            " manifest_sha256 = excluded.manifest_sha256, fetched = 0, sent = 0,"
            " body = NULL, signature = NULL, certificate = NULL"
            " WHERE manifest_sha256 <> excluded.manifest_sha256",
            (digest, manifest_sha256),
        )

    def review(self, digest: bytes) -> Review | None:
        """Return what is known of a release that waits; None: nothing does."""
        return self._database.first(Review, "SELECT * FROM review WHERE digest = ?", (digest,))

    def mark_fetched(self, digest: bytes, *, here: bool = True) -> None:
        """Record whether the release is in the state directory."""
        self._database.write("UPDATE review SET fetched = ? WHERE digest = ?", (here, digest))

    def countersign(self, digest: bytes, manifest_sha256: bytes, signed: tuple[bytes, bytes, bytes]) -> bool:
        """Record this party's countersignature; False when the miner has sent another manifest since. The first one stays."""
        has_changed = self._database.write(
            "UPDATE review SET body = coalesce(body, ?), signature = coalesce(signature, ?),"
            " certificate = coalesce(certificate, ?) WHERE digest = ? AND manifest_sha256 = ?",
            (*signed, digest, manifest_sha256),
        )
        return has_changed > 0

    def forget_countersignature(self, digest: bytes) -> None:
        """Delete the countersignature, which the miner does not take."""
        self._database.write(
            "UPDATE review SET body = NULL, signature = NULL, certificate = NULL, sent = 0 WHERE digest = ?", (digest,)
        )

    def countersignature_told(self, digest: bytes) -> None:
        """Record that the miner has the countersignature."""
        self._database.write("UPDATE review SET sent = 1 WHERE digest = ?", (digest,))
