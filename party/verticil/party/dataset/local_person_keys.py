"""Keys by which a site recognises its people in every study: they depend on the site secret and the ids, and on no study.

A study chooses how ids are normalised before they are linked, and with it the tags that noise is drawn by. What a site remembers
of people must not move when a study chooses otherwise. So every id has two keys of 8 bytes, a CBC-MAC with AES-256 under a key
that is derived from the site secret, with the id's length in front (Bellare, Kilian & Rogaway 2000):

    exact    of the id after ``nfkc``, ``trim`` and ``casefold``: two people of one table have different ones
    loose    of the id after all four steps, ``digits-only`` the last; of an id without digits the exact one

The loose key recognises a person whose id is spelled otherwise ("P-007", "p 007"). Ids that differ only in letters ("A7", "B7")
have the same one, so a comparison that must tell them apart uses the exact keys as well.

`TableKeys` collects the keys of all rows of a table that have an id, also of those that a study leaves out. Keys never leave the
site.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from verticil.party.dataset.macs import PackedIds
from verticil.party.dataset.pseudonyms import packed_ids
from verticil.shared.core.arrays import key_numbers
from verticil.shared.storage.sorting import Sorter
from verticil.shared.storage.unlinked_files import Rows, join_parts

Keys = NDArray[np.uint64]
KEY_BYTES: Final = 8
_BLOCK_BYTES: Final = 16
_LONGEST: Final = 95
"""Bytes of an id in six blocks; in place of a longer one stands its SHA-256, 64 hexadecimal digits."""
PAIR_BYTES: Final = 2 * KEY_BYTES
"""The exact key and the loose one, one behind the other."""
MEMORY_PEOPLE: Final = 1 << 20
"""People from which on their keys are sorted, and stored, outside memory: 8 MB."""

_KEY: Final = np.dtype("<u8")
_ALL: Final = slice(None)
_ZEROS_AT_ONCE: Final = 1 << 16
_BYTES: Final = [bytes([number]) for number in range(256)]
_IS_PLAIN: Final = np.array([byte.isascii() and not byte.decode("latin-1").isspace() for byte in _BYTES])
_IS_DIGIT: Final = np.array([byte.isdigit() for byte in _BYTES])
_LOWER: Final = np.frombuffer(b"".join(_BYTES).lower(), dtype=np.uint8)
_EXACT: Final = ("nfkc", "trim", "casefold")
_LOOSE: Final = (*_EXACT, "digits-only")


class PersonMacs:
    """Computes the two keys of ids.

    Args:
        site_secret: 32 bytes, never sent.
    """

    def __init__(self, site_secret: bytes) -> None:
        self._key = HKDF(hashes.SHA256(), 32, None, b"verticil/person-key/v1").derive(site_secret)

    def of(self, ids: Sequence[str]) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the keys of ids as they stand in the table, and which of them name somebody.

        Returns:
            (n, 16), uint8: exact ‖ loose, big-endian; (n,), bool.
        """
        exact, loose = _both(ids)
        pairs = np.empty((len(ids), PAIR_BYTES), dtype=np.uint8)
        pairs[:, :KEY_BYTES] = self.macs(exact)
        if _are_equal(exact, loose):  # ids of digits alone
            pairs[:, KEY_BYTES:] = pairs[:, :KEY_BYTES]
        else:
            pairs[:, KEY_BYTES:] = np.where(loose.empty[:, None], pairs[:, :KEY_BYTES], self.macs(loose))
        return pairs, ~exact.empty

    def macs(self, ids: PackedIds) -> Rows:
        """Compute the keys of normalised ids, (n, 8), uint8: each id in blocks of 16 bytes behind its length, all at once."""
        lengths = np.diff(ids.ends, prepend=0)
        if (lengths > _LONGEST).any():
            return self.macs(_shorten_ids(ids))
        longest = int(lengths.max(initial=0))
        width = -(-(longest + 1) // _BLOCK_BYTES) * _BLOCK_BYTES
        texts = np.zeros((len(ids), width), dtype=np.uint8)
        texts[:, 0] = lengths
        if (lengths == longest).all():
            texts[:, 1 : 1 + longest] = ids.data.reshape(len(ids), longest)
        else:
            texts[:, 1:][np.arange(width - 1) < lengths[:, None]] = ids.data
        encryptor = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()  # noqa: S305 (block by block, chained here)
        state = np.zeros((len(ids), _BLOCK_BYTES), dtype=np.uint8)
        for start in range(0, width, _BLOCK_BYTES):
            goes_on = _ALL if start == 0 else lengths + 1 > start
            block = state[goes_on] ^ texts[goes_on, start : start + _BLOCK_BYTES]
            cipher_words = np.frombuffer(encryptor.update(block.data), dtype=np.uint8)
            state[goes_on] = cipher_words.reshape(-1, _BLOCK_BYTES)
        return state[:, :KEY_BYTES]


def _shorten_ids(ids: PackedIds) -> PackedIds:
    """Ids of which those that are too long for a table of blocks have their SHA-256 in their place."""
    texts = [hashlib.sha256(text).hexdigest().encode() if len(text) > _LONGEST else text for text in ids.texts()]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return PackedIds(data=np.frombuffer(b"".join(texts), dtype=np.uint8), ends=ends)


def _both(ids: Sequence[str]) -> tuple[PackedIds, PackedIds]:
    """Return ids after the steps of either key; at once where all bytes are ASCII and none is a blank, as in most tables."""
    id_bytes = PackedIds.of(ids)
    if not _IS_PLAIN[id_bytes.data].all():
        return packed_ids(ids, _EXACT), packed_ids(ids, _LOOSE)
    is_digit = _IS_DIGIT[id_bytes.data]
    n_digits = np.concatenate([[0], np.cumsum(is_digit)])
    exact = PackedIds(data=_LOWER[id_bytes.data], ends=id_bytes.ends)
    return exact, PackedIds(data=id_bytes.data[is_digit], ends=n_digits[id_bytes.ends])


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
        self._exact, self._loose = self._sorter(), self._sorter()
        self._are_equal = True

    def take(self, pairs: Rows) -> None:
        """Take the keys of some rows that have an id, (n, 16); see `PersonMacs.of`.

        Raises:
            OSError: the disk.
        """
        exact, loose = pairs[:, :KEY_BYTES], pairs[:, KEY_BYTES:]
        self._are_equal = self._are_equal and np.array_equal(exact, loose)
        self._exact.add(exact)
        self._loose.add(loose)

    def finish(self) -> PeopleOfTable:
        """Return the keys of all rows; nothing can be taken afterwards.

        Raises:
            OSError: the disk.
        """
        exact = self._distinct(self._exact)
        return PeopleOfTable(exact=exact, loose=exact if self._are_equal else self._distinct(self._loose))

    def _sorter(self) -> Sorter:
        return Sorter(self._folder, width=KEY_BYTES, key_bytes=KEY_BYTES, memory_rows=self._memory_people)

    def _distinct(self, keys_of_rows: Sorter) -> Keys:
        n = keys_of_rows.n_rows
        counter = _Counted(_each_once(map(key_numbers, keys_of_rows.blocks())))
        keys = join_parts(self._folder if n > self._memory_people else None, n, _fill_up(counter, n), _KEY)
        return keys[: counter.n_keys]


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


def _fill_up(counter: _Counted, n: int) -> Iterator[Keys]:
    """Blocks, and zeros behind them up to `n` keys: a file must hold as many as were announced."""
    yield from counter
    for start in range(counter.n_keys, n, _ZEROS_AT_ONCE):
        yield np.zeros(min(_ZEROS_AT_ONCE, n - start), dtype=_KEY)
