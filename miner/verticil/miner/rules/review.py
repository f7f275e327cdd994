"""The publication gate at the miner: who has to countersign a release, and what a countersignature must be.

Rules of `session`, and as those they read durable facts and add at most one; both functions block.
"""

from __future__ import annotations

from verticil.miner.rules.session import Session
from verticil.miner.storage.records import StoredSignature, StudyRecord
from verticil.shared.errors import PeerFault
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.release.countersignature import read_countersignature
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2


def countersign(session: Session, digest: bytes, party: str, signed: common_pb2.Signed) -> None:
    """Record that a party has looked at the release and has nothing against it.

    Raises:
        PeerFault: IDENTITY_REFUSED, CERTIFICATE_INVALID or MESSAGE_INVALID, the party did not sign it; STUDY_MISMATCH, it is
            of another release; NOT_READY, none waits.
    """
    record = session.record(digest)
    session.position(record, party)
    statement = read_countersignature(signed.body)
    if record.published_at is not None and party in record.countersignatures:
        return
    session.require(record, State.REVIEW)
    for at in (session.clock(), statement.signed_at):  # now, and as everybody who verifies the release will check it
        verify_signed(
            signed, session.authority, role=Role.PARTY, name=party, at=at, revoked=session.revocations.since()
        )
    told = (statement.study_digest, statement.manifest_sha256, statement.party)
    if told != (record.digest, record.review_manifest, party):
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{record.study_id}': the countersignature of '{party}' is of another release than the one that waits",
            hint="fetch the release that waits and look at it",
        )
    session.catalogue.reviews.add(
        digest,
        party,
        record.review_manifest,
        StoredSignature(body=signed.body, signature=signed.signature, certificate=signed.certificate),
    )


def awaited(session: Session, record: StudyRecord) -> tuple[str, ...]:
    """The parties that may still countersign a release that waits; nobody, when there are enough or none is asked for."""
    study = session.current(record)
    if len(record.countersignatures) >= study.countersignatures_needed:
        return ()
    return tuple(party for party in study.parties if party not in record.countersignatures)
