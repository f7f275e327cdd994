"""The people of a table, gathered batch by batch: who is in it once, in the order that linkage needs, with their codes.

What is kept of a person is a row of bytes: tag, link (pseudonym, seed or number of the row), the two keys that no study chooses
(`person_keys`), one code for each variable: with pseudonyms and six small columns 52 bytes. Rows are sorted twice
(`verticil.shared.storage.sorting`): by tag, where rows with the tag of another one, which have the same id, fall out, and the
fingerprints of all units are computed at once; then by link. Up to `MEMORY_ROWS` all of it is in memory. Above, rows wait in
files without a name in the state directory, and so do the people that come out of it: memory stays flat, the files are gone
when nobody uses them any more or the process ends, and nobody else can open them.

Does not: read tables (`source`) or compute MACs (`macs`).
"""

from __future__ import annotations

import hashlib
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.dataset.local_person_keys import PAIR_BYTES
from verticil.party.dataset.macs import PackedIds
from verticil.party.dataset.perturb import TAG_BYTES, record_blocks
from verticil.shared.core.arrays import Codes, give_back, typed
from verticil.shared.storage.sorting import Sorter, keys_of
from verticil.shared.storage.unlinked_files import KeptRows, Rows

MEMORY_ROWS: Final = 1 << 17
"""People from which on they are sorted, and kept, outside memory."""
ROW_NUMBER_BYTES: Final = 8
_BLOCK: Final = 1 << 16
_IDS_IN_MEMORY: Final = 1 << 24

UnitCodes = Callable[[Mapping[str, Codes]], Codes]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """The people of one table, in ascending order of their links. Secret.

    Attributes:
        tags: (n, 14), uint8; see `perturb.record_tags`.
        links: (n, any), uint8, ascending and distinct.
        keys: (n, 16), uint8; see `person_keys.PersonMacs.of`.
        codes: variable -> (n,), uint8 or uint16.
        fingerprints: unit -> SHA-256; see `perturb.fingerprint`.
    """

    tags: NDArray[np.uint8] = field(repr=False)
    links: NDArray[np.uint8] = field(repr=False)
    keys: NDArray[np.uint8] = field(repr=False)
    codes: Mapping[str, Codes] = field(repr=False)
    fingerprints: Mapping[int, bytes] = field(repr=False)


class Gathering:
    """Takes the rows of a table in batches.

    Args:
        folder: for what does not fit into memory.
        link_bytes: of a link; 8 at least.
        columns: variable -> bytes of a code, 1 or 2.
        memory_rows: see `MEMORY_ROWS`.
    """

    def __init__(self, folder: Path, *, link_bytes: int, columns: Mapping[str, int], memory_rows: int) -> None:
        self._folder, self._memory_rows = folder, memory_rows
        self._link_bytes, self._columns = link_bytes, dict(columns)
        self._codes_at = TAG_BYTES + link_bytes + PAIR_BYTES
        self._width = self._codes_at + sum(columns.values())
        self._by_tag = Sorter(folder, width=self._width, key_bytes=TAG_BYTES, memory_rows=memory_rows)

    def take(
        self,
        tags: NDArray[np.uint8],
        links: NDArray[np.uint8],
        keys: NDArray[np.uint8],
        codes: Mapping[str, Codes],
        usable: NDArray[np.bool_],
    ) -> None:
        """Take some rows.

        Args:
            tags, links, keys: (n, ..).
            codes: of all columns, (n,).
            usable: (n,), rows that name somebody.

        Raises:
            OSError: the disk.
        """
        rows = np.empty((len(tags), self._width), dtype=np.uint8)
        rows[:, :TAG_BYTES] = tags
        at = self._codes_at
        rows[:, TAG_BYTES : at - PAIR_BYTES] = links
        rows[:, at - PAIR_BYTES : at] = keys
        for name, size in self._columns.items():
            column = codes[name].astype(f"u{size}", copy=False)
            rows[:, at : at + size] = np.ascontiguousarray(column).view(np.uint8).reshape(-1, size)
            at += size
        self._by_tag.add(rows[usable])

    def finish(self, units: Mapping[int, UnitCodes]) -> Gathered:
        """Return the people; nothing can be taken afterwards.

        Args:
            units: what the codes of each unit are, of those of the columns.

        Raises:
            OSError: the disk.
        """
        digests = {index: hashlib.sha256() for index in units}
        by_link = Sorter(self._folder, width=self._width, key_bytes=self._link_bytes, memory_rows=self._memory_rows)
        byte_order = [*range(TAG_BYTES, TAG_BYTES + self._link_bytes), *range(TAG_BYTES)]
        byte_order += range(len(byte_order), self._width)
        for rows in single(self._by_tag.blocks(), TAG_BYTES):
            tags, codes = np.ascontiguousarray(rows[:, :TAG_BYTES]), self._codes(rows)
            for index, codes_of in units.items():
                digests[index].update(record_blocks(tags, codes_of(codes)).data)
            by_link.add(rows[:, byte_order])
        del self._by_tag
        link = self._link_bytes
        at = self._codes_at
        spans = {"tags": (link, link + TAG_BYTES), "links": (0, link), "keys": (at - PAIR_BYTES, at)}
        for name, size in self._columns.items():
            spans[f"codes of {name}"] = (at, at + size)
            at += size
        widths = {name: stop - start for name, (start, stop) in spans.items()}
        linked_rows = KeptRows(self._folder if by_link.n_rows > self._memory_rows else None, by_link.n_rows, widths)
        n_done = 0
        for rows in by_link.blocks():
            for name, (start, stop) in spans.items():
                linked_rows.write(name, n_done, rows[:, start:stop])
            n_done += len(rows)
        arrays = linked_rows.arrays()
        return Gathered(
            tags=arrays["tags"],
            links=arrays["links"],
            keys=arrays["keys"],
            codes={name: typed(arrays[f"codes of {name}"].reshape(-1), size) for name, size in self._columns.items()},
            fingerprints={index: digest.digest() for index, digest in digests.items()},
        )

    def _codes(self, rows: Rows) -> dict[str, Codes]:
        at, codes = self._codes_at, dict[str, Codes]()
        for name, size in self._columns.items():
            codes[name] = typed(np.ascontiguousarray(rows[:, at : at + size]).reshape(-1), size)
            at += size
        return codes


def single(blocks: Iterator[Rows], key_bytes: int) -> Iterator[Rows]:
    """Yield the rows whose key no other row has, of ascending blocks."""
    last_row, again = (
        None,
        False,
    )  # the last row, of which the next one decides; and whether it has the key of one before
    for block in blocks:
        rows = block if last_row is None else np.concatenate([last_row, block])
        keys = keys_of(rows, key_bytes)
        equal = np.concatenate([[again], keys[1:] == keys[:-1], [False]])
        yield rows[:-1][~(equal[:-2] | equal[1:-1])]
        last_row, again = rows[-1:], bool(equal[-2])
    if last_row is not None and not again:
        yield last_row


Places = NDArray[np.int64]


def in_both(
    tags: NDArray[np.uint8], others: NDArray[np.uint8], folder: Path, *, memory_rows: int
) -> tuple[int, Iterator[tuple[Places, Places]]]:
    """Find the people whose tag is in both lists, each of distinct tags.

    Args:
        tags, others: (n, 14) and (m, 14), uint8.
        folder: for what does not fit into memory.
        memory_rows: see `MEMORY_ROWS`.

    Returns:
        How many there are; and, in blocks, their ascending places in the first list and the same people's in the other one.

    Raises:
        OSError: the disk; while blocks are taken, too.
    """
    by_tag = Sorter(folder, width=TAG_BYTES + 1 + 8, key_bytes=TAG_BYTES + 1, memory_rows=memory_rows)
    for which, tag_list in enumerate((tags, others)):
        for start in range(0, len(tag_list), _BLOCK):
            part = tag_list[start : start + _BLOCK]
            rows = np.empty((len(part), TAG_BYTES + 1 + 8), dtype=np.uint8)
            rows[:, :TAG_BYTES] = part
            rows[:, TAG_BYTES] = which
            rows[:, TAG_BYTES + 1 :] = np.arange(start, start + len(part)).astype(">i8").view(np.uint8).reshape(-1, 8)
            by_tag.add(rows)
            give_back(part)
    by_place = Sorter(folder, width=2 * 8, key_bytes=8, memory_rows=memory_rows)
    last_row = np.empty((0, TAG_BYTES + 1 + 8), dtype=np.uint8)
    for block in by_tag.blocks():
        rows = np.concatenate([last_row, block])
        keys = keys_of(rows, TAG_BYTES)
        first = np.flatnonzero(keys[1:] == keys[:-1])
        by_place.add(np.concatenate([rows[first, TAG_BYTES + 1 :], rows[first + 1, TAG_BYTES + 1 :]], axis=1))
        last_row = rows[-1:]
    pairs = (rows.view(">i8").astype(np.int64) for rows in by_place.blocks())
    return by_place.n_rows, ((some[:, 0], some[:, 1]) for some in pairs)


class IdSpool:
    """The ids of a table in its order, for a second look at them; in memory as long as they are few, else in a nameless file.

    Args:
        folder: for that file.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IDS_IN_MEMORY, dir=str(folder))  # noqa: SIM115  as long as this lives
        weakref.finalize(self, self._file.close)
        self._batches: list[int] = []

    def take(self, ids: PackedIds, index: NDArray[np.int32]) -> None:
        """Keep a batch: of row i the id at `index[i]`.

        Raises:
            OSError: the disk.
        """
        texts = ids.texts()
        rows = [texts[place] for place in index.tolist()]
        self._file.write(np.cumsum([0, *map(len, rows)], dtype=np.int64).tobytes())
        self._file.write(b"".join(rows))
        self._batches.append(len(rows))

    def at(self, numbers: NDArray[np.uint64]) -> Iterator[str]:
        """Yield the ids of rows with ascending numbers, distinct, from 0.

        Raises:
            OSError: the disk.
        """
        self._file.seek(0)
        n_done = 0
        for first, behind in pairwise(np.cumsum([0, *self._batches]).tolist()):
            ends = np.frombuffer(self._file.read(8 * (behind - first + 1)), dtype=np.int64)
            data = self._file.read(int(ends[-1]))
            some = numbers[n_done : n_done + behind - first].astype(np.uint64)  # no batch has more of them than rows
            give_back(numbers[n_done : n_done + behind - first])
            some = some[: np.searchsorted(some, np.uint64(behind))]
            n_done += len(some)
            for number in (some - np.uint64(first)).tolist():
                yield data[ends[number] : ends[number + 1]].decode("utf-8")
