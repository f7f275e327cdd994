"""The structure of a study between peers, as far as this party knows it."""

from __future__ import annotations

from verticil.party.protocol.peer.artifact_store import Kind, LostError, Shelf
from verticil.party.storage.studies import StudyRecord
from verticil.shared.study.document import Study
from verticil.shared.study.structure_document import Structure, given_structure, parse_structure
from verticil.wire.v1 import common_pb2


def known_structure(shelf: Shelf, record: StudyRecord, effective: Study) -> Structure | None:
    """The structure that the study gives, or the one that the miner signed; None before.

    Args:
        shelf: where the signed one is. It was verified before it was put there.
        record: a study that every party has approved.
        effective: the effective study.
    """
    given = given_structure(effective, record.task.effective_digest)
    if given is not None:
        return given
    try:
        signed = common_pb2.Signed.FromString(shelf.read(record.digest, Kind.STRUCTURE))
    except LostError:
        return None
    return parse_structure(signed.body, effective, record.task.effective_digest)
