"""Finding the common people in the study's mode of linkage, when every party has done its part.

- ``keyed-hash``: every party's list of pseudonyms is there; they are intersected (`alignment`).
- ``order-commitment``: every party's tree is there; all are equal, or the study ends with ALIGNMENT_MISMATCH, which names the
  first block of rows that differs.
- ``dh-psi``: every list has been blinded by every party; the last hops are intersected.

Repeatable; a fact is recorded only when there are enough common people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from verticil.miner.storage.alignment import align, intersect_tokens, read_list
from verticil.miner.storage.blinded import TOKEN_BYTES
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.records import StudyRecord
from verticil.miner.storage.store import StudyFiles, write_durably
from verticil.shared.alignment.merkle import common_tree
from verticil.shared.alignment.statements import sender
from verticil.shared.study.document import Study


def linked_parties(record: StudyRecord, study: Study) -> frozenset[str]:
    """The parties of the study that have done all that others wait for before the common people can be found."""
    parties = frozenset(study.parties)  # a list of one that was left out may still have come
    if study.linkage.mode == "order-commitment":
        return parties & record.commitments.keys()
    if study.linkage.mode == "dh-psi":
        missing = {
            sender(study.parties, owner, hop)
            for owner in range(len(study.parties))
            for hop in range(len(study.parties))
            if not ((held := record.blinded.get((owner, hop))) and held.complete)
        }
        return parties - missing
    return frozenset(party for party, held in record.lists.items() if held.complete and party in parties)


def find_common(
    files: StudyFiles,
    catalogue: Catalogue,
    record: StudyRecord,
    study: Study,
    *,
    positions: Mapping[str, int],
    minimum: int,
) -> int:
    """Find the common people and, when there are enough, record them.

    Args:
        files: of the study.
        catalogue: where the fact goes, after the files.
        record: facts of the study; all parties are linked.
        study: as it is carried out.
        positions: of its parties in the proposal: files of lists and bitmaps are named by them.
        minimum: with fewer common people nothing is written or recorded.

    Returns:
        The common count.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, the tables are not in the same order.
    """
    if study.linkage.mode == "order-commitment":
        return _compare(catalogue, record, study, minimum)
    if study.linkage.mode == "dh-psi":
        return _intersect(files, catalogue, record, {party: positions[party] for party in study.parties}, minimum)
    return align(files, catalogue, record.digest, {party: positions[party] for party in study.parties}, minimum=minimum)


def _compare(catalogue: Catalogue, record: StudyRecord, study: Study, minimum: int) -> int:
    stored = catalogue.linkage.trees(record.digest)
    trees = {party: stored[party] for party in study.parties}
    tree = common_tree(record.study_id, trees)
    if tree.n_records >= minimum:
        catalogue.align(record.digest, n_common=tree.n_records, common_sha256=tree.root, bitmaps={})
    return tree.n_records


def _intersect(
    files: StudyFiles, catalogue: Catalogue, record: StudyRecord, positions: Mapping[str, int], minimum: int
) -> int:
    last = len(positions) - 1
    paths = [files.blinded(owner, last, complete=True) for owner in range(len(positions))]
    alignment = intersect_tokens([read_list(path, item_bytes=TOKEN_BYTES) for path in paths])
    if alignment.n_common < minimum:
        return alignment.n_common
    bitmaps: dict[str, tuple[int, bytes]] = {}
    for (party, position), bitmap in zip(positions.items(), alignment.bitmaps, strict=True):
        write_durably(files.bitmap(position), bitmap)
        bitmaps[party] = (len(bitmap), hashlib.sha256(bitmap).digest())
    catalogue.align(record.digest, n_common=alignment.n_common, common_sha256=alignment.common_sha256, bitmaps=bitmaps)
    return alignment.n_common
