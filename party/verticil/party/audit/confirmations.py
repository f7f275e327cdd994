"""After a revocation between peers (Model I): who has signed that it deleted what it had, and who has not yet.

Both sides are kept here. A party that is asked signs what `verticil.shared.formats.peer_deletion` says, once: the first body
stays, whatever is asked again. The party that revoked takes each peer's statement in when it holds: signed by that peer with a
certificate that counts now, about this study and this party, and naming no column that was not sent to that peer. A peer that
has not signed is shown as such until it has; one that is away is asked again when it is back.

A statement is a promise, not a proof, and a peer that has published keeps the release: that cannot be recalled.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from verticil.party.audit.log import Audit, Event, What
from verticil.party.policy.approval import parsed
from verticil.party.storage.database import Database
from verticil.shared.errors import PeerFault, VerticilError
from verticil.shared.formats.peer_deletion import PeerDeletion, parse_peer_deletion
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.record import encode
from verticil.shared.study.protocols import protocol_of
from verticil.wire.v1 import common_pb2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A study whose approval was taken back here.

    Attributes:
        digest, study_id: of the study.
        peers: the other parties, in the study's order; none before all parties had approved: nothing but an approval had left.
        confirmed: peer -> what it signed.
    """

    digest: bytes
    study_id: str
    peers: tuple[str, ...]
    confirmed: Mapping[str, PeerDeletion]

    @property
    def missing(self) -> tuple[str, ...]:
        """Peers that have not confirmed yet."""
        return tuple(name for name in self.peers if name not in self.confirmed)


class Confirmations:
    """The statements of one site, given and taken.

    Args:
        database: the site's.
        audit: told of each.
        party: this party's name.
    """

    def __init__(self, database: Database, audit: Audit, *, party: str) -> None:
        self._database = database
        self._audit = audit
        self._party = party

    # ---- given: this party deleted

    def given(self, digest: bytes, party: str) -> bytes | None:
        """The body that this party signs for another one; None: it was never asked."""
        rows = self._database.rows(
            "SELECT body FROM peer_deletion WHERE digest = ? AND signer = ? AND party = ?", (digest, self._party, party)
        )
        return cast("bytes", rows[0][0]) if rows else None

    def give(self, said: PeerDeletion, at: dt.datetime) -> bytes:
        """Write down what this party says to have deleted; on the disk when it returns. The first one stays.

        Returns:
            The body to sign.
        """
        with self._database.transaction():
            if (known := self.given(said.study_digest, said.party)) is not None:
                return known
            body = encode(said)
            self._write(said, body, common_pb2.Signed())
            event = Event(
                what=What.DELETION,
                who=self._party,
                study=said.study_digest,
                study_id=said.study_id,
                recipient=said.party,
                sha256=hashlib.sha256(body).digest(),
                detail=f"{len(said.columns)} columns of '{said.party}' deleted: {said.ended}",
            )
            self._audit.record(event, at)
        return body

    def _write(self, said: PeerDeletion, body: bytes, signed: common_pb2.Signed) -> None:
        self._database.write(
            "INSERT INTO peer_deletion VALUES (?, ?, ?, ?, ?, ?)",
            (said.study_digest, said.peer, said.party, body, signed.signature, signed.certificate),
        )

    # ---- taken: this party revoked

    def awaited(self) -> tuple[Awaited, ...]:
        """The studies between peers whose approval was taken back here, oldest first."""
        rows = self._database.rows(
            "SELECT r.digest, s.study_id, s.proposal, s.effective_digest FROM revocation r JOIN study s ON s.digest = r.digest"
            " ORDER BY r.revoked_at"
        )
        found: list[Awaited] = []
        for digest, study_id, proposal, effective_digest in rows:
            study = parsed(cast("bytes", proposal))
            if not protocol_of(study).coordinated:
                others = tuple(name for name in study.parties if name != self._party)
                item = Awaited(
                    digest=cast("bytes", digest),
                    study_id=cast("str", study_id),
                    peers=others if effective_digest else (),
                    confirmed=self._taken(cast("bytes", digest)),
                )
                found.append(item)
        return tuple(found)

    def of(self, digest: bytes) -> Awaited | None:
        """The same for one study; None: it was not revoked here, or has a miner."""
        return next((item for item in self.awaited() if item.digest == digest), None)

    def _taken(self, digest: bytes) -> Mapping[str, PeerDeletion]:
        rows = self._database.rows(
            "SELECT signer, body FROM peer_deletion WHERE digest = ? AND party = ? AND signer <> ?",
            (digest, self._party, self._party),
        )
        return {cast("str", signer): parse_peer_deletion(cast("bytes", body)) for signer, body in rows}

    def take(
        self,
        awaited: Awaited,
        peer: str,
        signed: common_pb2.Signed,
        *,
        authority: bytes,
        at: dt.datetime,
        revoked: Mapping[int, dt.datetime] | None = None,
    ) -> bool:
        """Check a peer's statement, keep it and write it down; one that does not hold is refused.

        Args:
            awaited: the study.
            peer: whom it came from.
            signed: the statement.
            authority: certificate of the federation's authority, PEM.
            at: now.
            revoked: the deny-list.

        Returns:
            Whether it was kept.
        """
        sha256 = hashlib.sha256(signed.SerializeToString(deterministic=True)).digest()
        about = Event(what=What.DELETION, who=peer, study=awaited.digest, study_id=awaited.study_id, peer_event=sha256)
        try:
            verify_signed(signed, authority, role=Role.PARTY, name=peer, at=at, revoked=revoked)
            said = parse_peer_deletion(signed.body)
            self._check(said, awaited.digest, peer)
        except VerticilError as error:
            if self._audit.refuse(replace(about, detail=f"deletion: {error.code}"), at):
                _log.warning("the statement of a deletion by '%s' is not accepted: %s", peer, error)
            return False
        kept = " (it keeps the published release)" if said.ended == "published" else ""
        with self._database.transaction():
            self._write(said, signed.body, signed)
            self._audit.record(replace(about, detail=f"{len(said.columns)} columns deleted: {said.ended}{kept}"), at)
        return True

    def _check(self, said: PeerDeletion, digest: bytes, peer: str) -> None:
        """It is about this study and party, and names what was sent to that peer."""
        if (said.study_digest, said.party, said.peer) != (digest, self._party, peer):
            raise PeerFault("STUDY_MISMATCH", "statement of a deletion: of another study, party or peer")
        sent = set(
            self._database.rows(
                "SELECT unit, artifact_sha256 FROM ledger WHERE study_digest = ? AND recipient = ?", (digest, peer)
            )
        )
        strange = [unit for unit, item in said.columns.items() if (unit, item.sha256) not in sent]
        if strange:
            raise PeerFault("STUDY_MISMATCH", f"statement of a deletion: units {strange} were not sent so to '{peer}'")
