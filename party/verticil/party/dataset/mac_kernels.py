"""The compiled kernel of `macs`: HMAC-SHA-256 of many short texts; importing this module needs numba.

Sixteen texts go through SHA-256 (FIPS 180-4, section 6.2) together, one in each lane: every step of a round is one operation on
sixteen 32-bit words, which LLVM makes vector instructions of. The sixteen rows of a group are as long as the longest of its texts
needs; a lane that is done keeps its state. Signatures are explicit, so that nothing is compiled while a study is running; the GIL
is released. The plain statement is Python's `hmac`, which a test compares it with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from verticil.shared.core.compiled import compiled_for

Words = NDArray[np.uint32]
Bytes = NDArray[np.uint8]

_ROUND = np.array(
    [
        0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
        0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
        0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
        0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
        0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
        0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
        0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
        0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2,
    ],
    dtype=np.uint32,
)  # fmt: skip
_START = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], dtype=np.uint32
)


def _array(dtype: types.Type, ndim: int, *, readonly: bool) -> types.Array:
    return types.Array(dtype, ndim, "C", readonly=readonly)


_STATE = _array(types.uint32, 1, readonly=False)
_BYTES = _array(types.uint8, 1, readonly=True)
_ROOM = _array(types.uint8, 1, readonly=False)
_ENDS = _array(types.int64, 1, readonly=True)
_FILL = _ROOM(types.int64, types.int64, _BYTES, _BYTES, _ENDS, _array(types.int64, 1, readonly=False), _ROOM)
_MACS = types.void(_BYTES, _BYTES, _BYTES, _ENDS, _array(types.uint8, 2, readonly=False))


@njit
def _right(x: Any, n: Any) -> Any:
    return (x >> np.uint32(n)) | (x << np.uint32(32 - n))


@njit
def _round(  # noqa: PLR0917  compiled functions are called by position
    v: Words, w: Words, at: Any, k: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> None:
    """Compute a round; a to h are where the words of the standard are in `v`, constants at every call, so that LLVM, which
    has the round in its place, knows that the words do not overlap.

    One function, and no closure for each place: numba stores compiled code under names that closures share, so that code of one
    process, found in the cache by another one, could be linked with the wrong round.
    """
    for i in range(16):
        x, y = v[e + i], v[a + i]
        s1 = _right(x, 6) ^ _right(x, 11) ^ _right(x, 25)
        t = v[h + i] + s1 + (v[g + i] ^ (x & (v[f + i] ^ v[g + i]))) + k + w[at + i]
        s0 = _right(y, 2) ^ _right(y, 13) ^ _right(y, 22)
        v[d + i] += t
        v[h + i] = t + s0 + ((y & v[b + i]) | (v[c + i] & (y | v[b + i])))


@compiled_for(types.void(_STATE, _STATE, _STATE))
def _compress(state: Words, w: Words, v: Words) -> None:
    """Compress one block of every lane.

    Args:
        state: (8 x 16,), changed.
        w: (64 x 16,), the block's 16 words; the others are written.
        v: (8 x 16,), for work.
    """
    for t in range(16, 64):
        at = 16 * t
        for i in range(16):
            x, y = w[at - 240 + i], w[at - 32 + i]
            s0 = _right(x, 7) ^ _right(x, 18) ^ (x >> np.uint32(3))
            s1 = _right(y, 17) ^ _right(y, 19) ^ (y >> np.uint32(10))
            w[at + i] = w[at - 256 + i] + s0 + w[at - 112 + i] + s1
    for i in range(128):
        v[i] = state[i]
    for t in range(0, 64, 8):  # each round moves the words by one place: a becomes b, and so on
        at = 16 * t
        _round(v, w, at, _ROUND[t], 0, 16, 32, 48, 64, 80, 96, 112)
        _round(v, w, at + 16, _ROUND[t + 1], 112, 0, 16, 32, 48, 64, 80, 96)
        _round(v, w, at + 32, _ROUND[t + 2], 96, 112, 0, 16, 32, 48, 64, 80)
        _round(v, w, at + 48, _ROUND[t + 3], 80, 96, 112, 0, 16, 32, 48, 64)
        _round(v, w, at + 64, _ROUND[t + 4], 64, 80, 96, 112, 0, 16, 32, 48)
        _round(v, w, at + 80, _ROUND[t + 5], 48, 64, 80, 96, 112, 0, 16, 32)
        _round(v, w, at + 96, _ROUND[t + 6], 32, 48, 64, 80, 96, 112, 0, 16)
        _round(v, w, at + 112, _ROUND[t + 7], 16, 32, 48, 64, 80, 96, 112, 0)
    for i in range(128):
        state[i] += v[i]


@compiled_for(types.void(_BYTES, types.int64, _STATE, _STATE, _STATE))
def _after_key(key: Bytes, pad: int, state: Words, w: Words, v: Words) -> None:
    """Compute the state of every lane after the block that the padded key is."""
    for t in range(16):
        word = np.uint32(0)
        for j in range(4):
            byte = key[4 * t + j] if 4 * t + j < key.size else np.uint8(0)
            word = (word << np.uint32(8)) | np.uint32(byte ^ np.uint8(pad))
        for i in range(16):
            w[16 * t + i] = word
    for t in range(8):
        for i in range(16):
            state[16 * t + i] = _START[t]
    _compress(state, w, v)


@compiled_for(_FILL)
def _pad_messages(  # noqa: PLR0917  compiled functions are called by position
    first: int, here: int, prefix: Bytes, data: Bytes, ends: NDArray[np.int64], blocks: NDArray[np.int64], room: Bytes
) -> Bytes:
    """Pad the messages of a group, which follow the block of the key; make `room` larger where they need more.

    Args:
        first, here: which texts.
        prefix, data, ends: see `hmac_sha256`.
        blocks: (16,), written: of each message, 0 of a lane without one.
        room: as the last call returned it.
    """
    for i in range(16):
        length = prefix.size + ends[first + i] - (ends[first + i - 1] if first + i > 0 else 0) if i < here else -9
        blocks[i] = (length + 9 + 63) // 64
    width = 64 * blocks.max()
    if room.size < 16 * width:
        room = np.zeros(16 * width, np.uint8)
    room[: 16 * width] = 0
    for i in range(here):
        start = ends[first + i - 1] if first + i > 0 else 0
        length = ends[first + i] - start
        row = i * width
        for j in range(prefix.size):
            room[row + j] = prefix[j]
        row += prefix.size
        for j in range(length):
            room[row + j] = data[start + j]
        room[row + length] = 0x80
        bits = np.uint64(8) * np.uint64(64 + prefix.size + length)
        last = i * width + 64 * blocks[i] - 8
        for j in range(8):
            room[last + j] = np.uint8((bits >> np.uint64(56 - 8 * j)) & np.uint64(255))
    return room


@compiled_for(types.void(_STATE, _STATE, _STATE, _array(types.int64, 1, readonly=False), _ROOM))
def _absorb(state: Words, w: Words, v: Words, blocks: NDArray[np.int64], room: Bytes) -> None:
    """Behind the state, the messages of a group; a lane whose message has ended keeps its state."""
    most = blocks.max()
    width = 64 * most
    before = np.empty(128, np.uint32)
    for block in range(most):
        for t in range(16):
            for i in range(16):
                at = i * width + 64 * block + 4 * t
                w[16 * t + i] = (
                    np.uint32(room[at]) << np.uint32(24)
                    | np.uint32(room[at + 1]) << np.uint32(16)
                    | np.uint32(room[at + 2]) << np.uint32(8)
                    | np.uint32(room[at + 3])
                )
        before[:] = state
        _compress(state, w, v)
        for i in range(16):
            if block >= blocks[i]:
                for t in range(8):
                    state[16 * t + i] = before[16 * t + i]


@compiled_for(_MACS)
def hmac_sha256(key: Bytes, prefix: Bytes, data: Bytes, ends: NDArray[np.int64], macs: NDArray[np.uint8]) -> None:
    """Compute the first bytes of HMAC-SHA-256(key, prefix ‖ text) of each text (RFC 2104).

    Args:
        key: at most 64 bytes.
        prefix: of every message.
        data: the texts, one after the other.
        ends: (n,), where each text ends in `data`; ascending.
        macs: (n, at most 32), written.
    """
    n, size = macs.shape
    w, v = np.zeros(1024, np.uint32), np.zeros(128, np.uint32)
    inner, outer, state = np.zeros(128, np.uint32), np.zeros(128, np.uint32), np.zeros(128, np.uint32)
    _after_key(key, 0x36, inner, w, v)
    _after_key(key, 0x5C, outer, w, v)
    blocks, room = np.zeros(16, np.int64), np.zeros(0, np.uint8)
    for first in range(0, n, 16):
        here = min(16, n - first)
        room = _pad_messages(first, here, prefix, data, ends, blocks, room)
        state[:] = inner
        _absorb(state, w, v, blocks, room)
        w[:256] = 0
        w[:128] = state
        w[128:144] = 0x80000000
        w[240:256] = 8 * (64 + 32)  # bits behind the block that the key was
        state[:] = outer
        _compress(state, w, v)
        for i in range(here):
            for j in range(size):
                macs[first + i, j] = np.uint8(
                    (state[16 * (j // 4) + i] >> np.uint32(24 - 8 * (j % 4))) & np.uint32(255)
                )
