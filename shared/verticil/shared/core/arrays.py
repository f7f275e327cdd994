"""The arrays that numbers travel in, under the names that every signature uses; and arrays that lie in mapped files."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar, cast

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

A = TypeVar("A", bound=NDArray[np.generic])
R = TypeVar("R", bound=NDArray[np.integer])

Codes = NDArray[np.uint8] | NDArray[np.uint16]
"""Of the categories of a column, as they are stored and sent."""
AnyCodes = NDArray[np.unsignedinteger]
"""The same in whatever width."""
Counts = NDArray[np.int64] | NDArray[np.float64]
"""Of records: whole ones, or estimated ones."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_PACKED_BELOW: Final = 2**62
_ROWS_AT_ONCE: Final = 1 << 16
_GIVEN_BACK: Final = 1 << 21  # bytes, in whole parts of this size: the system brings neighbours of a page in with it


def read_only(array: Floats) -> Floats:
    """Return a copy that cannot be written to."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy


def give_back(array: NDArray[np.generic]) -> None:
    """Let the system take back the pages of a mapped file that an array lies in; of any other array nothing happens.

    Whoever looks at them again finds them in the file. Without this a process ends a pass with the whole file in its memory, by
    every count. A map that can be written is left alone.
    """
    owner = cast("object", array)
    while isinstance(owner, np.ndarray | memoryview):
        if isinstance(owner, np.ndarray) and owner.flags.writeable:
            return
        owner = cast("object", owner.base if isinstance(owner, np.ndarray) else owner.obj)
    if not isinstance(owner, mmap.mmap) or not array.size or not hasattr(mmap, "MADV_DONTNEED"):
        return
    origin = np.frombuffer(owner, dtype=np.uint8).ctypes.data
    low, high = (place - origin for place in byte_bounds(array))
    low = low // _GIVEN_BACK * _GIVEN_BACK
    high = min(-(-high // _GIVEN_BACK) * _GIVEN_BACK, len(owner))
    owner.madvise(mmap.MADV_DONTNEED, low, high - low)


def combination_numbers(columns: Sequence[NDArray[np.integer]]) -> Ints:
    """Give each combination of codes a number, the same one wherever it occurs.

    Args:
        columns: (n,) codes each, from 0; one at least.

    Returns:
        (n,); columns are taken as digits, and what came before is numbered anew where the next one would not fit.

    >>> combination_numbers([np.array([0, 1, 1, 0]), np.array([2, 0, 0, 1])]).tolist()
    [2, 3, 3, 1]
    """
    numbers, n_combinations = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if n_combinations * width >= _PACKED_BELOW:
            distinct, numbers = np.unique(numbers, return_inverse=True)
            n_combinations = len(distinct)
        numbers *= width
        numbers += column
        n_combinations *= width
    return numbers


def distinct_rows(codes: R) -> tuple[R, Ints, Ints]:
    """Return the different rows of (n, d) codes, as `numpy.unique` along the first axis, which compares them byte by byte.

    Returns:
        (m, d) in lexicographic order; (n,) the place of each row among them; (m,) how often each is there.

    >>> rows, place, counts = distinct_rows(np.array([[1, 0], [0, 2], [1, 0]], dtype=np.uint16))
    >>> rows.tolist(), place.tolist(), counts.tolist()
    ([[0, 2], [1, 0]], [1, 0, 1], [1, 2])
    """
    numbers = combination_numbers(list(codes.T))
    _, first, place, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    return cast("R", codes[first]), place, counts


def typed(raw: NDArray[np.uint8], size: int) -> Codes:
    """Return the codes of which these are the bytes, of 1 or 2 each."""
    return raw if size == 1 else raw.view(np.uint16)


def taken(array: A, rows: NDArray[np.int64]) -> A:
    """`array[rows]`, after which no page of either stays in memory where they are mapped; quick where rows are neighbours."""
    rows_out = cast("A", array[rows])
    if len(rows):
        give_back(array[int(rows.min()) : int(rows.max()) + 1])
        give_back(rows)
    return rows_out


def bytes_in_parts(array: NDArray[np.generic]) -> Iterator[memoryview]:
    """Yield the bytes of an array, (n,), some rows at a time; pages of a mapped file do not stay in memory."""
    for start in range(0, len(array), _ROWS_AT_ONCE):
        some = array[start : start + _ROWS_AT_ONCE]
        yield np.ascontiguousarray(some).data.cast("B")
        give_back(some)


def key_numbers(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the keys whose bytes these are, (n, 8), big-endian, as numbers, (n,), uint64."""
    return np.ascontiguousarray(rows).view(">u8").reshape(-1).astype(np.uint64)


def sha256_of(array: NDArray[np.generic]) -> bytes:
    """Return the SHA-256 of an array's bytes, 32 bytes."""
    digest = hashlib.sha256()
    for part in bytes_in_parts(array):
        digest.update(part)
    return digest.digest()
