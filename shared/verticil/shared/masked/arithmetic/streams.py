"""Uniform words of the field from a key, in blocks of rows that can each be made without the others.

    E(x, y, ..) = L(x) ‖ L(y) ‖ ..,   L(x) = length of x in bytes as uint64 big-endian ‖ x; x is bytes, UTF-8, or decimal digits
    key = HKDF-SHA-256(secret, info = E("verticil/masked/v1", field 1, field 2, ..)), without salt, 32 bytes

(model-three.md section 3). E can be cut in one way only, as eight bytes say where each field ends: two lists that differ in the
bytes or the number of their fields have different keys, ("ab", "c") and ("a", "bc"), too (RFC 5869, section 3.2: `info` binds a
key to its context). A field does not say of what type it was: 1 and "1" are one. So what a place of a list holds is always of
one type, and a list within a list is one field, its own E.

    words = ChaCha20(key, counter 0, nonce 0) (RFC 8439, section 2.4) as uint32 little-endian, those of p or more left out

A word is left out with the chance 5/2^32, and those behind it move up *within their block*: a block's words are those of a key
of its own, so no other block is moved, and blocks can be made in any order. Word k of row r of a block E words wide is its word
r E + k. A key makes one block: 2^38 bytes, where the counter would begin again, are far beyond `MAX_WORDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from verticil.shared.masked.arithmetic.field import P, Words
from verticil.shared.mechanisms.gaussian import derived_key

Field = bytes | str | int

MAX_WORDS: Final = 2**32
"""Of one key."""
BLOCK_WORDS: Final = 2**19
"""Of a block of rows, where that is `LEAST_ROWS` rows or more."""
LEAST_ROWS: Final = 512
"""Of a block but the last: with fewer, adding up a pair's tables of blocks would take longer than making them."""

_CHUNK: Final = 2**14  # words drawn at a time: they stay in the processor's cache
_PURPOSE: Final = b"verticil/masked/v1"


def encode_fields(*fields: Field) -> bytes:
    """E of some fields, to be hashed, signed, or a field itself; see the module.

    Args:
        fields: bytes, texts, and whole numbers from 0 on.

    Raises:
        ValueError: a field is none of these.

    >>> encode_fields("ab", 12).hex()
    '0000000000000002616200000000000000023132'
    """
    parts = [_plain(field, place) for place, field in enumerate(fields, 1)]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def decode_fields(data: bytes) -> tuple[bytes, ...]:
    """Return the fields of an E, as bytes.

    Raises:
        ValueError: it is none.

    >>> decode_fields(encode_fields("ab", 12))
    (b'ab', b'12')
    """
    fields: list[bytes] = []
    start = 0
    while start < len(data):
        end = start + 8 + int.from_bytes(data[start : start + 8], "big")
        if end > len(data) or start + 8 > len(data):
            raise ValueError("not a list of fields")
        fields.append(data[start + 8 : end])
        start = end
    return tuple(fields)


def _plain(field: Field, place: int) -> bytes:
    match field:
        case bytes():
            return field
        case str():
            return field.encode()
        case int() if not isinstance(field, bool) and field >= 0:
            return b"%d" % field
        case _:
            kind = type(field).__name__
            raise ValueError(f"field {place}: {kind}, expected bytes, text, or a whole number from 0 on")


def key_of(secret: bytes, *fields: Field) -> bytes:
    """Derive a key, a function of the secret and of the list of fields; see the module.

    Args:
        secret: 32 bytes.
        fields: as in `encode_fields`.

    Returns:
        32 bytes.

    Raises:
        ValueError: the secret is not 32 bytes, or a field is of another kind.
    """
    if len(secret) != 32:
        raise ValueError(f"secret: {len(secret)} bytes, expected 32")
    return derived_key(secret, encode_fields(_PURPOSE, *fields))


def words(key: bytes, shape: tuple[int, ...]) -> Words:
    """Uniform words, a function of the key; those of a smaller shape are the first of a larger one's.

    Args:
        key: 32 bytes, secret, of this one use.
        shape: at most `MAX_WORDS` words.

    Raises:
        ValueError: the key is not 32 bytes, or there are too many words.
    """
    if len(key) != 32:
        raise ValueError(f"key: {len(key)} bytes, expected 32")
    if (count := math.prod(shape)) > MAX_WORDS:
        raise ValueError(f"{count} words of one key, expected at most {MAX_WORDS}")
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return accept_words(lambda size: encryptor.update(bytes(size)), count).reshape(shape)


def accept_words(stream: Callable[[int], bytes], count: int) -> Words:
    """Return the first so many words below p of a stream.

    Args:
        stream: gives its next so many bytes.
        count: of words.

    Returns:
        (count,), to be written to.
    """
    words = np.empty(count, np.uint32)
    n_done = 0
    while n_done < count:
        candidates = np.frombuffer(stream(4 * min(_CHUNK, count - n_done)), "<u4")
        below = candidates[candidates < P]
        words[n_done : n_done + below.size] = below
        n_done += below.size
    return words


def block_rows(width: int) -> int:
    """Return how many rows a block is to have.

    Args:
        width: words of a row, at least 1; of a pair of parties both sides' together, so that both have the same blocks.
    """
    return max(LEAST_ROWS, BLOCK_WORDS // width)


def row_blocks(n_rows: int, rows: int) -> Iterator[slice]:
    """Return the rows of each block: so many, and in the last what is left."""
    for start in range(0, n_rows, rows):
        yield slice(start, min(start + rows, n_rows))
