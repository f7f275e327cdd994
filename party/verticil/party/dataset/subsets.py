"""Sticky subset selection: a record is released as a set of w of the K categories (see `verticil.shared.mechanisms.subset`).

What is said in `perturb` holds here too: the set is a function of the unit key, the record's tag and its true code, and of
nothing that others control. With the same block B = tag ‖ true code of the record,

    u      = first 8 bytes of AES-256(unit key, B), little-endian; the true category is in the set iff u < weight (units of 2^-64)
    key_j  = HKDF-SHA-256(unit key, info = "verticil/subset/v1" ‖ j as uint32 big-endian), without salt
    r_x    = half x mod 2 (8 bytes, little-endian) of AES-256(key_j, B), j = round * ceil(K/2) + x // 2, for each category x

and the other members are those of the K - 1 other categories with the smallest r_x: w - 1 of them when the true category is in
the set, else w. Every counter j has a key of its own and B is distinct for every record and code, so no input of the
pseudo-random function is ever used twice: all r_x are independent uniform 64-bit numbers. The first round is 0; where the largest
chosen and the smallest left number are equal (probability about 2^-64 per pair) the record draws all its numbers again in the
next round. Being redrawn does not depend on which category has which number, so the others are, given the pseudo-random
function, exactly uniform among all sets of their size: no modulo, no rounding, no floating point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from verticil.party.dataset.perturb import checked_records, record_blocks
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms.subset import Subset

Numbers = NDArray[np.uint64]

_INFO: Final = b"verticil/subset/v1"
_CHUNK: Final = 8_192  # records at a time, and fewer for many categories, so that their numbers stay in the cache
_LEAST: Final = 256
_NUMBERS: Final = 1 << 19
_LAST: Final = np.iinfo(np.uint64).max


def select(key: bytes, tags: NDArray[np.uint8], codes: Codes, subset: Subset) -> Codes:
    """Released sets of one unit.

    Args:
        key: see `perturb.unit_key`.
        tags: (n, 14), uint8; see `perturb.record_tags`.
        codes: (n,), uint8 or uint16, true codes, each less than K.
        subset: the quantized channel.

    Returns:
        (n * w,), uint8 up to 256 categories, else uint16: the w members of each record ascending, record after record. The set
        of record i depends on nothing but the key, tag i and code i.

    Raises:
        ValueError: shapes, dtypes or key length do not fit, or a code is not less than K.
    """
    tags, codes = checked_records(key, tags, codes, subset.n_states)
    shape = (len(codes), subset.size)
    reports: Codes = np.empty(shape, np.uint8) if subset.n_states <= 256 else np.empty(shape, np.uint16)
    ciphers = _Ciphers(key)
    step = max(_LEAST, min(_CHUNK, _NUMBERS // subset.n_states))
    for start in range(0, len(codes), step):
        part = slice(start, start + step)
        blocks = record_blocks(tags[part], codes[part])
        inside = ciphers.words(None, blocks)[:, 0] < np.uint64(subset.weight)
        draw = _draw(ciphers, blocks, subset.n_states)
        reports[part] = members(draw, codes[part], inside, subset.size)
    return reports.reshape(-1)


def members(
    draw: Callable[[int, NDArray[np.intp]], Numbers], codes: Codes, inside: NDArray[np.bool_], size: int
) -> NDArray[np.intp]:
    """Return the sets that belong to given random numbers.

    Args:
        draw: (round, records) -> (len(records), K), uint64, writable: the numbers of these records in this round.
        codes: (n,), true codes.
        inside: (n,), whether the true category is a member.
        size: w, less than K.

    Returns:
        (n, w), each row ascending.
    """
    subsets = np.empty((len(codes), size), dtype=np.intp)
    waiting = np.arange(len(codes))
    number = 0
    while waiting.size:
        numbers = draw(number, waiting)
        # The true category comes before, or behind, all others. A number of another one that equals the bound does no harm: were
        # it decisive, the row would have more than w numbers up to its limit.
        numbers[np.arange(len(waiting)), codes[waiting]] = np.where(inside[waiting], 0, _LAST)
        limit = np.partition(numbers, size - 1, axis=1)[:, size - 1 : size]
        is_member = numbers <= limit
        hits = np.flatnonzero(is_member)
        if hits.size == size * len(waiting):  # every row has at least w, so here each has exactly w
            subsets[waiting] = (hits % is_member.shape[1]).reshape(-1, size)
            break
        equal = np.count_nonzero(is_member, axis=1) > size
        subsets[waiting[~equal]] = np.nonzero(is_member[~equal])[1].reshape(-1, size)
        waiting = waiting[equal]
        number += 1
    return subsets


def _draw(ciphers: _Ciphers, blocks: NDArray[np.uint8], n_states: int) -> Callable[[int, NDArray[np.intp]], Numbers]:
    n_pairs = -(-n_states // 2)

    def draw(number: int, records: NDArray[np.intp]) -> Numbers:
        part_blocks = blocks if len(records) == len(blocks) else blocks[records]
        numbers = np.empty((len(records), n_pairs, 2), dtype=np.uint64)
        for pair in range(n_pairs):
            numbers[:, pair] = ciphers.words(number * n_pairs + pair, part_blocks)
        return numbers.reshape(len(records), -1)[:, :n_states]

    return draw


class _Ciphers:
    """AES-256 under the unit key and under the keys of the counters, each made when it is first needed."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._contexts: dict[int | None, CipherContext] = {}

    def words(self, counter: int | None, blocks: NDArray[np.uint8]) -> Numbers:
        """(n, 2): the encrypted blocks as little-endian words; under the unit key itself for None."""
        if counter not in self._contexts:
            key = self._key if counter is None else self._derive_key(counter)
            cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305  a pseudo-random function of distinct blocks
            self._contexts[counter] = cipher.encryptor()
        cipher_bytes = self._contexts[counter].update(blocks.data)
        return np.frombuffer(cipher_bytes, dtype="<u8").astype(np.uint64, copy=False).reshape(-1, 2)

    def _derive_key(self, counter: int) -> bytes:
        info = _INFO + counter.to_bytes(4, "big")
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(self._key)
