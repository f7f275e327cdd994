"""Uniform words of the field from a key, in blocks of rows that can each be made without the others.

    key   = HKDF-SHA-256(secret, info = "verticil/masked/v1" ‖ L(T(field 1)) ‖ L(T(field 2)) ‖ ..), without salt, 32 bytes
    L(x)  = length of x in bytes as uint32 big-endian ‖ x
    T(x)  = "b" ‖ x of bytes; "s" ‖ UTF-8 of a text; "i" ‖ x as uint64 big-endian of a whole number from 0 on

What stands behind "verticil/masked/v1" can be cut in one way only: four bytes say where a field ends, and its first byte what
it is. So two lists of fields have one key only if they are equal, in number, order, types and values: ("ab", "c") is not ("a",
"bc"), 1 is not "1", a text is not its UTF-8, and a list is not another with an empty field more (RFC 5869, section 3.2: `info`
binds a key to its context).

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

from verticil.shared.channels.gaussian import derived_key
from verticil.shared.masked.field import P, Words

Field = bytes | str | int

MAX_WORDS: Final = 2**32
"""Of one key."""
BLOCK_WORDS: Final = 2**19
"""Of a block of rows, where that is `LEAST_ROWS` rows or more."""
LEAST_ROWS: Final = 512
"""Of a block but the last: with fewer, adding up a pair's tables of blocks would take longer than making them."""

_CHUNK: Final = 2**14  # words drawn at a time: they stay in the processor's cache
_PURPOSE: Final = b"verticil/masked/v1"


def key_of(secret: bytes, *fields: Field) -> bytes:
    """A key, a function of the secret and of the list of fields; see the module.

    Args:
        secret: 32 bytes.
        fields: bytes, texts, and whole numbers from 0 to 2^64 - 1.

    Returns:
        32 bytes.

    Raises:
        ValueError: the secret is not 32 bytes, or a field is none of these.
    """
    if len(secret) != 32:
        raise ValueError(f"secret: {len(secret)} bytes, expected 32")
    return derived_key(secret, _PURPOSE, *(_typed(field, place) for place, field in enumerate(fields, 1)))


def _typed(field: Field, place: int) -> bytes:
    match field:
        case bytes():
            return b"b" + field
        case str():
            return b"s" + field.encode()
        case int() if not isinstance(field, bool) and 0 <= field < 2**64:
            return b"i" + field.to_bytes(8, "big")
        case _:
            kind = type(field).__name__
            raise ValueError(f"field {place}: {kind}, expected bytes, text, or a whole number from 0 to 2^64 - 1")


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
    return accepted(lambda size: encryptor.update(bytes(size)), count).reshape(shape)


def accepted(stream: Callable[[int], bytes], count: int) -> Words:
    """The first so many words below p of a stream.

    Args:
        stream: gives its next so many bytes.
        count: of words.

    Returns:
        (count,), to be written to.
    """
    found = np.empty(count, np.uint32)
    done = 0
    while done < count:
        drawn = np.frombuffer(stream(4 * min(_CHUNK, count - done)), "<u4")
        below = drawn[drawn < P]
        found[done : done + below.size] = below
        done += below.size
    return found


def row_blocks(n_rows: int, width: int) -> Iterator[slice]:
    """The rows of each block, a function of the arguments alone.

    Args:
        n_rows: of all people, at least 0.
        width: words of a row, at least 1; of a pair of parties both sides' together, so that both have the same blocks.
    """
    rows = max(LEAST_ROWS, BLOCK_WORDS // width)
    for start in range(0, n_rows, rows):
        yield slice(start, min(start + rows, n_rows))
