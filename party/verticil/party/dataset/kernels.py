"""Compiled kernels of `perturb`; importing this module needs numba and compiles (or loads from numba's cache).

The plain numpy statement of each kernel is in `perturb`, and a test compares them over their cross product. Signatures are
explicit, so that nothing is compiled while a study is running. Codes are uint16 here whatever they are outside: widening a
chunk costs next to nothing, a second signature would double the time to compile. The GIL is released.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from verticil.shared.core.compiled import compiled_for

Codes = NDArray[np.uint16]


def _array(dtype: types.Type, ndim: int, *, readonly: bool) -> types.Array:
    return types.Array(dtype, ndim, "C", readonly=readonly)


_CODES = _array(types.uint16, 1, readonly=True)
_WORDS = _array(types.uint64, 1, readonly=True)
_LIMITS = _array(types.uint64, 2, readonly=True)
_FILL = types.void(_array(types.uint16, 2, readonly=True), _CODES, _array(types.uint64, 1, readonly=False))
_COUNT = types.void(_WORDS, _CODES, _LIMITS, _CODES, _array(types.uint16, 1, readonly=False))


@compiled_for(_FILL)
def fill_blocks(tags: NDArray[np.uint16], codes: Codes, blocks: NDArray[np.uint64]) -> None:
    """Write tag ‖ code into each block.

    Args:
        tags: (n, 7), uint16: the 14 bytes of each tag.
        codes: (n,), true codes.
        blocks: (2n,), uint64, written. Composed of whole words: LLVM then reads a tag with two loads.
    """
    s16, s32, s48 = np.uint64(16), np.uint64(32), np.uint64(48)
    for i in range(codes.size):
        t0, t1, t2, t3 = np.uint64(tags[i, 0]), np.uint64(tags[i, 1]), np.uint64(tags[i, 2]), np.uint64(tags[i, 3])
        t4, t5, t6, code = np.uint64(tags[i, 4]), np.uint64(tags[i, 5]), np.uint64(tags[i, 6]), np.uint64(codes[i])
        blocks[2 * i] = t0 | t1 << s16 | t2 << s32 | t3 << s48
        blocks[2 * i + 1] = t4 | t5 << s16 | t6 << s32 | code << s48


@compiled_for(_COUNT)
def count_each(
    words: NDArray[np.uint64], codes: Codes, limits: NDArray[np.uint64], lead: Codes, reports: Codes
) -> None:
    """Released code = lead + number of limits below u, compared one by one: best for few categories.

    Args:
        words: (2n,), uint64: the encrypted blocks; u is the first word of each.
        codes: (n,), true codes, each less than K.
        limits: (K, any), uint64; lead: (K,); see `Transition.thresholds`.
        reports: (n,), written.
    """
    width = limits.shape[1]
    for i in range(codes.size):
        row = codes[i]
        u = words[2 * i]
        count = np.int64(lead[row])
        for j in range(width):
            count += u > limits[row, j]
        reports[i] = count


@compiled_for(_COUNT)
def count_four(
    words: NDArray[np.uint64], codes: Codes, limits: NDArray[np.uint64], lead: Codes, reports: Codes
) -> None:
    """Count as `count_each` does, for at most five categories: LLVM turns the four comparisons into one vector instruction.

    Args:
        words, codes, lead, reports: as in `count_each`.
        limits: (K, 4), uint64, filled up with limits that no u exceeds.
    """
    flat = limits.reshape(-1)
    four = np.uint64(4)
    for i in range(codes.size):
        row = np.uint64(codes[i])
        u = words[2 * i]
        count = np.uint64(lead[row])
        for j in range(4):
            count += np.uint64(u > flat[row * four + np.uint64(j)])
        reports[i] = count


@compiled_for(_COUNT)
def count_halving(
    words: NDArray[np.uint64], codes: Codes, limits: NDArray[np.uint64], lead: Codes, reports: Codes
) -> None:
    """Count as `count_each` does, by binary search without a branch on u: 256 records take each step together and loads
    overlap.

    Args:
        words, codes, lead, reports: as in `count_each`.
        limits: (K, 2^m - 1), uint64, each row ascending; filled up with limits that no u exceeds.
    """
    width = np.uint64(limits.shape[1])
    flat = limits.reshape(-1)
    one = np.uint64(1)
    position = np.empty(256, np.uint64)
    for start in range(0, codes.size, 256):
        n_here = min(256, codes.size - start)
        for i in range(n_here):
            position[i] = np.uint64(codes[start + i]) * width
        step = (width + one) >> one
        while step > 0:
            for i in range(n_here):
                position[i] += step * np.uint64(words[2 * (start + i)] > flat[position[i] + step - one])
            step >>= one
        for i in range(n_here):
            row = codes[start + i]
            reports[start + i] = np.uint64(lead[row]) + position[i] - np.uint64(row) * width
