"""Taking an approval back, and the statements that what had been sent was deleted.

A revocation is for good. Once it is in the database nothing more is sent for the study but the news of it: a transfer under way
is broken off (by the daemon, within a second, also when another process revokes), the spool is cleared, the other side gets it.

With a miner the study ends WITHDRAWN there, all its randomized columns are deleted, and each party that had sent some gets a
signed statement of that (`verticil.shared.release.formats.deletion`). Between peers (Model I) each peer hears of it at its next
question, ends the study, drops what it had and signs that. This module keeps both sides:

- A party that is asked signs once: the first body stays, whatever is asked again.
- The party that revoked takes a peer's statement in when it holds: signed by that peer with a certificate that counts now, about
  this study and this party, and naming no column that was not sent to that peer. A peer that has not signed is shown as such
  until it has; one that is away is asked again when it is back.

A statement is a promise, not a proof. A release that is published stays published: a revocation after that is sent, too, the
columns at the miner are deleted, and the study is shown as revoked; copies of the release cannot be recalled.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from verticil.party.audit.log import AuditLog, Event, What
from verticil.party.storage.database import Database
from verticil.party.storage.studies import StudyRecord, stamp
from verticil.shared.core.errors import Misuse, PeerFault, Refusal, VerticilError
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.release.formats.deletion import Deletion, PeerDeletion, parse_deletion, parse_peer_deletion
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2

_LONGEST_REASON: Final = 500
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """An approval that was taken back.

    Attributes:
        who, reason, revoked_at: as the person said.
        published: the release was out by then, as far as this party knew.
        sent: the miner knows; between peers: every peer has confirmed that it deleted what it had.
        deletion: what the miner signed that it deleted; None before, and between peers.
    """

    who: str
    reason: str
    revoked_at: str
    published: bool
    sent: bool
    deletion: Deletion | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A study whose approval was taken back here.

    Attributes:
        digest, study_id: of the study.
        peers: the other parties, in the study's order; none before all parties had approved: nothing but an approval had left.
        confirmed: peer -> what it signed.
        has_miner: a miner carries the study out, and signs what it deleted by itself.
    """

    digest: bytes
    study_id: str
    peers: tuple[str, ...]
    confirmed: Mapping[str, PeerDeletion]
    has_miner: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Peers that have not confirmed yet."""
        return tuple(name for name in self.peers if name not in self.confirmed)


def checked_reason(reason: str, *, of: str) -> str:
    """Return a reason without the blanks around it.

    Raises:
        Misuse: USAGE, there is none, or it is too long to be sent.
    """
    reason = reason.strip()
    if not reason or not reason.isprintable() or len(reason) > _LONGEST_REASON:
        raise Misuse(
            "USAGE",
            f"the reason of {of}: expected 1 to {_LONGEST_REASON} printable letters",
            hint="the analyst, or every other party, reads it",
        )
    return reason


class _Revoked(NamedTuple):
    digest: bytes
    study_id: str
    proposal: bytes
    effective_digest: bytes


class Revocations:
    """The revocations of one site, and the statements of what was deleted after one: given and taken.

    Args:
        database: the site's.
        audit: has a line of each.
        party: this party's name.
    """

    def __init__(self, database: Database, audit: AuditLog, *, party: str) -> None:
        self._database = database
        self._audit = audit
        self._party = party

    def revoke(self, record: StudyRecord, who: str, reason: str, at: dt.datetime) -> Revocation:
        """Take the approval back; on the disk when it returns. Again, nothing changes: the first reason stays.

        Raises:
            Misuse: USAGE, without a reason.
            Refusal: NOT_APPROVED, nothing was approved that could be taken back.
        """
        reason = checked_reason(reason, of="a revocation")
        if record.approval is None:
            raise Refusal(
                "NOT_APPROVED",
                f"study '{record.study_id}': this party has not approved it, so there is nothing to take back",
                hint="to say no for good: verticil party deny",
            )
        is_published = State(record.task.state) is State.PUBLISHED
        with self._database.transaction():
            if (earlier := self.get(record.digest)) is not None:
                return earlier
            self._database.write(
                "INSERT INTO revocation (digest, who, reason, revoked_at, published) VALUES (?, ?, ?, ?, ?)",
                (record.digest, who, reason, stamp(at), is_published),
            )
            detail = reason + (" (after the publication)" if is_published else "")
            event = Event(what=What.REVOCATION, who=who, study=record.digest, study_id=record.study_id, detail=detail)
            self._audit.record(event, at)
        return self._read_revocation(record.digest)

    def get(self, digest: bytes) -> Revocation | None:
        """Return the revocation of a study; None: it was not revoked."""
        query = "SELECT who, reason, revoked_at, published, sent FROM revocation WHERE digest = ?"
        return self._database.first(Revocation, query, (digest,), deletion=self.deletion(digest))

    def _read_revocation(self, digest: bytes) -> Revocation:
        revocation = self.get(digest)
        if revocation is None:
            raise AssertionError("a revocation that was written is there")
        return revocation

    def list_stopped(self) -> frozenset[bytes]:
        """Digests of the studies for which nothing may be under way: revoked or denied."""
        return frozenset(self._database.read(bytes, "SELECT digest FROM revocation UNION SELECT digest FROM denial"))

    def mark_reported(self, digest: bytes) -> None:
        """Record that the miner knows of the revocation."""
        self._database.write("UPDATE revocation SET sent = 1 WHERE digest = ?", (digest,))

    def tell_again(self, digest: bytes) -> None:
        """Record that the miner does not know of the revocation any more."""
        self._database.write("UPDATE revocation SET sent = 0 WHERE digest = ?", (digest,))

    # ---- the miner's statement

    def deletion(self, digest: bytes) -> Deletion | None:
        """Return the statement in which the miner signed that it deleted a study."""
        body = self._database.first(bytes, "SELECT body FROM deletion WHERE digest = ?", (digest,))
        return None if body is None else parse_deletion(body)

    def take_deletion(
        self,
        digest: bytes,
        study_id: str,
        signed: common_pb2.Signed,
        *,
        authority: bytes,
        at: dt.datetime,
        deny_list: Mapping[int, dt.datetime] | None = None,
    ) -> None:
        """Check the miner's statement, keep it and write it down; one that does not hold is refused.

        Args:
            digest: of the study that it came with.
            study_id: for people.
            signed: the statement.
            authority: certificate of the federation's authority, PEM.
            at: now.
            deny_list: the deny-list.
        """
        if self._database.has("SELECT 1 FROM deletion WHERE digest = ? AND body = ?", (digest, signed.body)):
            return
        sha256 = hashlib.sha256(signed.body).digest()
        about = Event(what=What.DELETION, who="miner", study=digest, study_id=study_id, peer_event=sha256)
        try:
            miner = verify_signed(signed, authority, role=Role.MINER, at=at, deny_list=deny_list)
            deletion = parse_deletion(signed.body)
            self._check_deletion(deletion, digest, miner.name)
        except VerticilError as error:
            if self._audit.refuse(replace(about, detail=f"deletion: {error.code}"), at):
                _log.warning("the miner's statement of a deletion is not accepted: %s", error)
            return
        with self._database.transaction():
            self._database.write(
                "INSERT OR REPLACE INTO deletion VALUES (?, ?, ?, ?)",
                (digest, signed.body, signed.signature, signed.certificate),
            )
            detail = f"{len(deletion.artifacts)} columns deleted: {deletion.why}"
            self._audit.record(replace(about, who=miner.name, detail=detail), at)

    def _check_deletion(self, deletion: Deletion, digest: bytes, miner: str) -> None:
        """Check that it is about this study and party, and about every column that the miner had receipted."""
        query = "SELECT unit, sha256 FROM artifact WHERE digest = ? AND receipt IS NOT NULL"
        receipts = self._database.by(int, bytes, query, (digest,))
        missing = [unit for unit, sha256 in receipts.items() if deletion.artifacts.get(unit) != sha256]
        if (deletion.study_digest, deletion.party, deletion.miner) != (digest, self._party, miner):
            raise PeerFault("STUDY_MISMATCH", "statement of a deletion: of another study, party or miner")
        if missing:
            raise PeerFault("STUDY_MISMATCH", f"statement of a deletion: units {missing} are not in it")

    # ---- between peers, given: this party deleted

    def get_signed_deletion(self, digest: bytes, party: str) -> bytes | None:
        """Return the body that this party signs for another one; None: it was never asked."""
        query = "SELECT body FROM peer_deletion WHERE digest = ? AND signer = ? AND party = ?"
        return self._database.first(bytes, query, (digest, self._party, party))

    def give(self, deletion: PeerDeletion, at: dt.datetime) -> bytes:
        """Write down what this party says to have deleted; on the disk when it returns. The first one stays.

        Returns:
            The body to sign.
        """
        with self._database.transaction():
            if (earlier_body := self.get_signed_deletion(deletion.study_digest, deletion.party)) is not None:
                return earlier_body
            body = encode(deletion)
            self._write(deletion, body, common_pb2.Signed())
            event = Event(
                what=What.DELETION,
                who=self._party,
                study=deletion.study_digest,
                study_id=deletion.study_id,
                recipient=deletion.party,
                sha256=hashlib.sha256(body).digest(),
                detail=f"{len(deletion.columns)} columns of '{deletion.party}' deleted: {deletion.ended}",
            )
            self._audit.record(event, at)
        return body

    def _write(self, deletion: PeerDeletion, body: bytes, signed: common_pb2.Signed) -> None:
        self._database.write(
            "INSERT INTO peer_deletion VALUES (?, ?, ?, ?, ?, ?)",
            (deletion.study_digest, deletion.peer, deletion.party, body, signed.signature, signed.certificate),
        )

    # ---- between peers, taken: this party revoked

    def list_awaited(self) -> tuple[Awaited, ...]:
        """Return the studies in which peers had something of this party's, and whose approval was taken back here, oldest
        first.
        """
        revocations = self._database.read(
            _Revoked,
            "SELECT r.digest, s.study_id, s.proposal, s.effective_digest FROM revocation r JOIN study s ON s.digest = r.digest"
            " ORDER BY r.revoked_at",
        )
        deletions: list[Awaited] = []
        for digest, study_id, proposal, effective_digest in revocations:
            study = parse_canonical(proposal)
            protocol = protocol_of(study)
            if not protocol.coordinated or protocol.opens_tables:
                peers = tuple(name for name in study.parties if name != self._party) if effective_digest else ()
                deletions.append(
                    Awaited(
                        digest=digest,
                        study_id=study_id,
                        peers=peers,
                        confirmed=self._read_confirmations(digest),
                        has_miner=protocol.coordinated,
                    )
                )
        return tuple(deletions)

    def awaited_of(self, digest: bytes) -> Awaited | None:
        """Return the same for one study; None: it was not revoked here, or has a miner."""
        return next((item for item in self.list_awaited() if item.digest == digest), None)

    def _read_confirmations(self, digest: bytes) -> Mapping[str, PeerDeletion]:
        query = "SELECT signer, body FROM peer_deletion WHERE digest = ? AND party = ? AND signer <> ?"
        bodies = self._database.by(str, bytes, query, (digest, self._party, self._party))
        return {signer: parse_peer_deletion(body) for signer, body in bodies.items()}

    def take_confirmation(
        self,
        deletion: Awaited,
        peer: str,
        signed: common_pb2.Signed,
        *,
        authority: bytes,
        at: dt.datetime,
        deny_list: Mapping[int, dt.datetime] | None = None,
    ) -> bool:
        """Check a peer's statement, keep it and write it down; one that does not hold is refused.

        Args:
            deletion: the study.
            peer: whom it came from.
            signed: the statement.
            authority: certificate of the federation's authority, PEM.
            at: now.
            deny_list: the deny-list.

        Returns:
            Whether it was kept.
        """
        sha256 = hashlib.sha256(signed.SerializeToString(deterministic=True)).digest()
        about = Event(
            what=What.DELETION, who=peer, study=deletion.digest, study_id=deletion.study_id, peer_event=sha256
        )
        try:
            verify_signed(signed, authority, role=Role.PARTY, name=peer, at=at, deny_list=deny_list)
            confirmation = parse_peer_deletion(signed.body)
            self._check(confirmation, deletion.digest, peer)
        except VerticilError as error:
            if self._audit.refuse(replace(about, detail=f"deletion: {error.code}"), at):
                _log.warning("the statement of a deletion by '%s' is not accepted: %s", peer, error)
            return False
        note = " (it keeps the published release)" if confirmation.ended == "published" else ""
        with self._database.transaction():
            self._write(confirmation, signed.body, signed)
            self._audit.record(
                replace(about, detail=f"{len(confirmation.columns)} columns deleted: {confirmation.ended}{note}"), at
            )
        return True

    def _check(self, confirmation: PeerDeletion, digest: bytes, peer: str) -> None:
        """Check that it is about this study and party, and names what was sent to that peer."""
        if (confirmation.study_digest, confirmation.party, confirmation.peer) != (digest, self._party, peer):
            raise PeerFault("STUDY_MISMATCH", "statement of a deletion: of another study, party or peer")
        sends = set(
            self._database.rows(
                "SELECT unit, artifact_sha256 FROM ledger WHERE study_digest = ? AND recipient = ?", (digest, peer)
            )
        )
        strange = [unit for unit, item in confirmation.columns.items() if (unit, item.sha256) not in sends]
        if strange:
            raise PeerFault("STUDY_MISMATCH", f"statement of a deletion: units {strange} were not sent so to '{peer}'")
