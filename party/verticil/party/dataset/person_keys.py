"""Keys by which a site recognises its people in every study: they depend on the site secret and the ids, and on no study.

A study chooses how ids are normalised before they are linked, and with it the tags that noise is drawn by. What a site remembers
of people must not move when a study chooses otherwise. So every id has two keys of 8 bytes, HMAC-SHA-256 under a key that is
derived from the site secret:

    exact    of the id after ``nfkc``, ``trim`` and ``casefold``: two people of one table have different ones
    loose    of the id after all four steps, ``digits-only`` the last; of an id without digits the exact one

The loose key recognises a person whose id is spelled otherwise ("P-007", "p 007"). Ids that differ only in letters ("A7", "B7")
have the same one, so a comparison that must tell them apart uses the exact keys as well.

`TableKeys` collects the keys of all rows of a table that have an id, also of those that a study leaves out. Keys never leave the
site.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from verticil.party.dataset.linkage import packed_ids
from verticil.party.dataset.macs import Macs, PackedIds
from verticil.shared.nameless import Rows, kept
from verticil.shared.sorting import Sorter

Keys = NDArray[np.uint64]
KEY_BYTES: Final = 8
PAIR_BYTES: Final = 2 * KEY_BYTES
"""The exact key and the loose one, one behind the other."""
MEMORY_PEOPLE: Final = 1 << 20
"""People from which on their keys are sorted, and stored, outside memory: 8 MB."""

_KEY: Final = np.dtype("<u8")
_ZEROS_AT_ONCE: Final = 1 << 16
_EXACT: Final = ("nfkc", "trim", "casefold")
_LOOSE: Final = (*_EXACT, "digits-only")


class PersonMacs:
    """Computes the two keys of ids.

    Args:
        site_secret: 32 bytes, never sent.
    """

    def __init__(self, site_secret: bytes) -> None:
        key = HKDF(hashes.SHA256(), 32, None, b"verticil/person-key/v1").derive(site_secret)
        self._exact, self._loose = (Macs(key, size=KEY_BYTES) for _ in range(2))

    def of(self, ids: Sequence[str]) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the keys of ids as they stand in the table, and which of them name somebody.

        Returns:
            (n, 16), uint8: exact ‖ loose, big-endian; (n,), bool.
        """
        exact, loose = packed_ids(ids, _EXACT), packed_ids(ids, _LOOSE)
        pairs = np.empty((len(ids), PAIR_BYTES), dtype=np.uint8)
        pairs[:, :KEY_BYTES] = self._exact.of(exact)
        if _are_equal(exact, loose):  # ids of digits alone
            pairs[:, KEY_BYTES:] = pairs[:, :KEY_BYTES]
        else:
            pairs[:, KEY_BYTES:] = np.where(loose.empty[:, None], pairs[:, :KEY_BYTES], self._loose.of(loose))
        return pairs, ~exact.empty


def _are_equal(some: PackedIds, others: PackedIds) -> bool:
    return np.array_equal(some.ends, others.ends) and np.array_equal(some.data, others.data)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeopleOfTable:
    """The keys of everybody whom a table names, whatever a study does with its rows. Secret.

    Attributes:
        exact, loose: uint64, ascending, each key once; there are at most as many loose ones.
    """

    exact: Keys = field(repr=False)
    loose: Keys = field(repr=False)


class TableKeys:
    """Collects the keys of a table's rows in batches.

    Args:
        folder: for what does not fit into memory.
        memory_people: see `MEMORY_PEOPLE`.
    """

    def __init__(self, folder: Path, *, memory_people: int = MEMORY_PEOPLE) -> None:
        self._folder, self._memory_people = folder, memory_people
        self._exact, self._loose = (
            Sorter(folder, width=KEY_BYTES, key_bytes=KEY_BYTES, memory_rows=memory_people) for _ in range(2)
        )

    def take(self, pairs: Rows) -> None:
        """Take the keys of some rows that have an id, (n, 16); see `PersonMacs.of`.

        Raises:
            OSError: the disk.
        """
        self._exact.add(pairs[:, :KEY_BYTES])
        self._loose.add(pairs[:, KEY_BYTES:])

    def finish(self) -> PeopleOfTable:
        """Return the keys of all rows; nothing can be taken afterwards.

        Raises:
            OSError: the disk.
        """
        exact, loose = (
            ascending_keys(sorter, self._folder, distinct=True, memory_people=self._memory_people)
            for sorter in (self._exact, self._loose)
        )
        return PeopleOfTable(exact=exact, loose=loose)


def ascending_keys(sorter: Sorter, folder: Path, *, distinct: bool = False, memory_people: int = MEMORY_PEOPLE) -> Keys:
    """Return the keys that a sorter took, ascending, uint64; read-only.

    Args:
        sorter: of rows of 8 bytes, big-endian.
        folder: for what does not fit into memory.
        distinct: each key once, however often it was taken.
        memory_people: see `MEMORY_PEOPLE`.

    Raises:
        OSError: the disk.
    """
    blocks = (block.view(">u8").reshape(-1).astype(_KEY) for block in sorter.blocks())
    counted = _Counted(_each_once(blocks) if distinct else blocks)
    place = folder if sorter.n_rows > memory_people else None
    keys = kept(place, sorter.n_rows, _filled(counted, sorter.n_rows), _KEY)
    return keys[: counted.n_keys]


class _Counted:
    """Blocks of keys that are counted as they pass."""

    def __init__(self, blocks: Iterator[Keys]) -> None:
        self._blocks = blocks
        self.n_keys = 0

    def __iter__(self) -> Iterator[Keys]:
        for block in self._blocks:
            self.n_keys += len(block)
            yield block


def _each_once(blocks: Iterator[Keys]) -> Iterator[Keys]:
    last: Keys = np.empty(0, dtype=_KEY)
    for block in blocks:
        is_new = np.concatenate(
            [block[:1] != last if last.size else np.ones(len(block[:1]), dtype=bool), np.diff(block) > 0]
        )
        yield block[is_new]
        last = block[-1:]


def _filled(counted: _Counted, n: int) -> Iterator[Keys]:
    """Blocks, and zeros behind them up to `n` keys: a file must hold as many as were announced."""
    yield from counted
    for start in range(counted.n_keys, n, _ZEROS_AT_ONCE):
        yield np.zeros(min(_ZEROS_AT_ONCE, n - start), dtype=_KEY)
