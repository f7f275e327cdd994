"""Finding the common people in the study's mode of linkage, when every party has done its part.

- ``keyed-hash``: every party's list of pseudonyms is there; they are intersected.
- ``order-commitment``: every party's tree is there; all are equal, or the study ends with ALIGNMENT_MISMATCH, which names the
  first block of rows that differs.
- ``dh-psi``: every list has been blinded by every party; the last hops are intersected.
- Masked tables, in every mode: the parties have linked among themselves, and each has signed how many people they found and a
  digest of their order; all are equal, or the study ends with ALIGNMENT_MISMATCH. Nobody's list comes here.

Contract, section 2. A pseudonym is 16 bytes and means nothing to the miner; a list is strictly ascending, which also means that
no pseudonym is there twice. The common list is ascending too, so every node computes the same order; its SHA-256 lets
each party check that. Only the number of common people is ever sent, with a bitmap for each party of those among its own. Lists
are read block by block, all together, and tokens are sorted outside memory: what is held of a record is one bit a list.
Repeatable; a fact is recorded, after its files, only when there are enough common people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.records import StudyRecord
from verticil.miner.storage.store import StudyFiles, full_disk_is_an_error, write_durably
from verticil.shared.core.arrays import give_back
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.alignment.merkle import common_tree
from verticil.shared.federation.alignment.statements import parse_common, sender
from verticil.shared.storage.sorting import Sorter, keys_of
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import opens_tables

PSEUDONYM_BYTES: Final = 16
TOKEN_BYTES: Final = 32
_BLOCK: Final = 1 << 16
_TOKENS_IN_MEMORY: Final = 1 << 20

# Fixed-width byte strings compare like unsigned bytes, from the left; trailing zero bytes are padding, which two strings of
# the same width share, so equality is exact too.
Pseudonyms = NDArray[np.bytes_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The common people of all lists.

    Attributes:
        n_common: how many there are.
        common_sha256: of the common pseudonyms (or tokens), ascending, one after the other.
        bitmaps: one for each list; bit i of byte j says whether record 8j+i is common, unused bits are 0.
    """

    n_common: int
    common_sha256: bytes
    bitmaps: tuple[bytes, ...]


def read_list(path: Path, *, item_bytes: int = PSEUDONYM_BYTES) -> Pseudonyms:
    """Return the pseudonyms (or tokens, 32 bytes each) in a file, as a read-only view of the file; shape (n,)."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype=f"S{item_bytes}")
    return np.memmap(path, dtype=f"S{item_bytes}", mode="r")


def first_disorder(pseudonyms: Pseudonyms) -> int | None:
    """Return the position of the first pseudonym that is not above the one before it; None when all ascend strictly."""
    for start in range(1, len(pseudonyms), _BLOCK):
        block = pseudonyms[start - 1 : start + _BLOCK]
        wrong = np.flatnonzero(block[1:] <= block[:-1])
        give_back(block)
        if len(wrong):
            return start + int(wrong[0])
    return None


def repeated_tokens(tokens: Pseudonyms, *, folder: Path) -> int:
    """Return how many tokens, in any order, are the same as one that came before.

    Args:
        tokens: (n,).
        folder: for what does not fit into memory while they are sorted.

    Raises:
        OSError: the disk.
    """
    n_repeated, last = 0, None
    for block, _ in _ascending(tokens, folder):
        n_repeated += int((block[1:] == block[:-1]).sum()) + int(last is not None and bool(block[0] == last))
        last = block[-1]
    return n_repeated


def intersect(lists: Sequence[Pseudonyms]) -> Alignment:
    """Intersect strictly ascending lists of pseudonyms.

    Raises:
        ValueError: no list, or one that is not strictly ascending.
    """
    streams = [
        _strictly(_as_they_stand(pseudonyms), f"list {number} is not strictly ascending")
        for number, pseudonyms in enumerate(lists)
    ]
    return _intersect(streams, [len(pseudonyms) for pseudonyms in lists])


def intersect_tokens(lists: Sequence[Pseudonyms], *, folder: Path) -> Alignment:
    """Intersect lists of distinct tokens that are in an order of their owners' own. The common list is ascending all the same.

    Args:
        lists: of tokens.
        folder: for what does not fit into memory while they are sorted.

    Raises:
        ValueError: no list, or one with a token twice.
        OSError: the disk.
    """
    streams = [
        _strictly(_ascending(tokens, folder), f"list {number} has a token twice") for number, tokens in enumerate(lists)
    ]
    return _intersect(streams, [len(tokens) for tokens in lists])


_Block = tuple[Pseudonyms, NDArray[np.int64]]
"""Some of a list's pseudonyms, ascending, and where each stands in it."""


def _as_they_stand(pseudonyms: Pseudonyms) -> Iterator[_Block]:
    for start in range(0, len(pseudonyms), _BLOCK):
        block = np.asarray(pseudonyms[start : start + _BLOCK])
        yield block, np.arange(start, start + len(block), dtype=np.int64)
        give_back(block)


def _ascending(tokens: Pseudonyms, folder: Path) -> Iterator[_Block]:
    size = tokens.dtype.itemsize
    sorter = Sorter(folder, width=size + 8, key_bytes=size, memory_rows=_TOKENS_IN_MEMORY)
    for block, places in _as_they_stand(tokens):
        rows = np.empty((len(block), size + 8), dtype=np.uint8)
        rows[:, :size] = np.ascontiguousarray(block).view(np.uint8).reshape(-1, size)
        rows[:, size:] = places.view(np.uint8).reshape(-1, 8)
        sorter.add(rows)
    for rows in sorter.blocks():
        yield keys_of(rows, size), np.ascontiguousarray(rows[:, size:]).view(np.int64).reshape(-1)


def _strictly(blocks: Iterator[_Block], problem: str) -> Iterator[_Block]:
    last: Pseudonyms | None = None
    for block, places in blocks:
        if bool((block[1:] <= block[:-1]).any()) or (last is not None and bool((block[:1] <= last).any())):
            raise ValueError(problem)
        last = block[-1:].copy()  # the block is given back meanwhile
        yield block, places


def _intersect(streams: Sequence[Iterator[_Block]], sizes: Sequence[int]) -> Alignment:
    """Go through all lists together, as far as the one whose block ends first."""
    if not streams:
        raise ValueError("no list to align")
    bitmaps = [np.zeros((size + 7) // 8, dtype=np.uint8) for size in sizes]
    digest, n_common = hashlib.sha256(), 0
    heads = [next(stream, None) for stream in streams]
    while all(head is not None for head in heads):
        here = [head for head in heads if head is not None]
        limit = min(keys[-1] for keys, _ in here)
        ends = [int(np.searchsorted(keys, limit, side="right")) for keys, _ in here]
        common = here[0][0][: ends[0]]
        for (keys, _), end in zip(here[1:], ends[1:], strict=True):
            common = common[_members(common, keys[:end])]
        digest.update(np.ascontiguousarray(common).view(np.uint8).data)
        n_common += len(common)
        for (keys, places), bits in zip(here, bitmaps, strict=True):
            positions = places[np.searchsorted(keys, common)] if len(common) else places[:0]
            np.bitwise_or.at(bits, positions >> 3, (1 << (positions & 7)).astype(np.uint8))
        heads = [
            (keys[end:], places[end:]) if end < len(keys) else next(stream, None)
            for (keys, places), end, stream in zip(here, ends, streams, strict=True)
        ]
    for stream in streams:  # what is behind the last common one has to be in order, too
        for _ in stream:
            pass
    return Alignment(
        n_common=n_common, common_sha256=digest.digest(), bitmaps=tuple(bits.tobytes() for bits in bitmaps)
    )


def _members(some: Pseudonyms, among: Pseudonyms) -> NDArray[np.bool_]:
    """Return which of `some` are in `among`; both strictly ascending."""
    if len(among) == 0:
        return np.zeros(len(some), dtype=np.bool_)
    place = np.minimum(np.searchsorted(among, some), len(among) - 1)
    return np.asarray(among[place] == some)


def linked_parties(record: StudyRecord, study: Study) -> frozenset[str]:
    """Return the parties of the study that have done all that others wait for before the common people can be found."""
    parties = frozenset(study.parties)  # a list of one that was left out may still have come
    if opens_tables(study) or study.linkage.mode == "order-commitment":
        return parties & record.commitments.keys()
    if study.linkage.mode == "dh-psi":
        missing = {
            sender(study.parties, owner, hop)
            for owner in range(len(study.parties))
            for hop in range(len(study.parties))
            if not ((entry := record.blinded.get((owner, hop))) and entry.complete)
        }
        return parties - missing
    return frozenset(party for party, entry in record.lists.items() if entry.complete and party in parties)


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
    if opens_tables(study):
        return _check_agreement(catalogue, record, study, minimum)
    if study.linkage.mode == "order-commitment":
        return _compare(catalogue, record, study, minimum)
    places = [positions[party] for party in study.parties]
    if study.linkage.mode == "dh-psi":
        last = len(places) - 1
        paths = [files.blinded(owner, last, complete=True) for owner in range(len(places))]
        lists = [read_list(path, item_bytes=TOKEN_BYTES) for path in paths]
        with full_disk_is_an_error("sorted tokens"):
            alignment = intersect_tokens(lists, folder=files.root)
    else:
        alignment = intersect([read_list(files.pseudonyms(place, complete=True)) for place in places])
    if alignment.n_common >= minimum:
        bitmaps: dict[str, tuple[int, bytes]] = {}
        for party, place, bitmap in zip(study.parties, places, alignment.bitmaps, strict=True):
            write_durably(files.bitmap(place), bitmap)
            bitmaps[party] = (len(bitmap), hashlib.sha256(bitmap).digest())
        catalogue.align(
            record.digest, n_common=alignment.n_common, common_sha256=alignment.common_sha256, bitmaps=bitmaps
        )
    return alignment.n_common


def _check_agreement(catalogue: Catalogue, record: StudyRecord, study: Study, minimum: int) -> int:
    """Check that all parties say the same of the people that they found among themselves."""
    statements = [(party, parse_common(record.commitments[party].body)) for party in study.parties]
    first, statement = statements[0]
    others = [
        party
        for party, it in statements
        if (it.n_common, it.common_sha256) != (statement.n_common, statement.common_sha256)
    ]
    if others:
        raise PeerFault(
            "ALIGNMENT_MISMATCH",
            f"study '{record.study_id}': party '{first}' has another common list than "
            + ", ".join(f"'{party}'" for party in others),
            hint="one of them has another table, linkage key or row order; nothing was masked; submit the study anew",
        )
    if statement.n_common >= minimum:
        catalogue.align(record.digest, n_common=statement.n_common, common_sha256=statement.common_sha256, bitmaps={})
    return statement.n_common


def _compare(catalogue: Catalogue, record: StudyRecord, study: Study, minimum: int) -> int:
    trees_by_party = catalogue.linkage.trees(record.digest)
    trees = {party: trees_by_party[party] for party in study.parties}
    tree = common_tree(record.study_id, trees)
    if tree.n_records >= minimum:
        catalogue.align(record.digest, n_common=tree.n_records, common_sha256=tree.root, bitmaps={})
    return tree.n_records
