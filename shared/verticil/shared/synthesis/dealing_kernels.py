"""The compiled form of `dealing.assign_by_rank_plain`: categories by the rank of a random key within a group.

Sorting every group would do (the plain form does that). Here keys are spread over buckets of a few records, in key order. A
bucket whose ranks all belong to one category needs no order inside; only the others are sorted. The result is the same, cell
by cell, whatever the buckets' size.

Imports numba; `dealing` imports this module only where numba is installed and the work is worth a compiler.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.shared.core.compiled import compiled

_PER_BUCKET = 16
_PER_FINE_BUCKET = 3  # where most buckets hold a boundary and have to be sorted
_FINE_BELOW = 64  # records for each category
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@compiled
def _key(start: np.uint64, i: int) -> np.uint64:
    z = start + np.uint64(i) * _GOLDEN
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@compiled
def group_sizes(group: NDArray[np.uint32], n_groups: int) -> NDArray[np.int64]:
    """Number of records in each group: `np.bincount` without its conversions."""
    sizes = np.zeros(n_groups, dtype=np.int64)
    for i in range(group.shape[0]):
        sizes[group[i]] += 1
    return sizes


@compiled
def assign_by_rank(  # noqa: PLR0912, PLR0915  # one pass structure; its parts would not be shorter apart
    group: NDArray[np.uint32], sizes: NDArray[np.int64], start: np.uint64, boundaries: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Give every record the category that its key's rank within its group falls into.

    Args:
        group: (n,) group of each record, 0 .. J-1.
        sizes: (J,) records in each group.
        start: what the keys are made from (`dealing.record_keys`).
        boundaries: (J, K) ranks at which the categories end, ascending; the last is the group's size.

    Returns:
        (n,) categories; the record with rank r has category #{k : boundaries[k] <= r}.
    """
    n, n_groups = group.shape[0], sizes.shape[0]
    n_buckets = np.empty(n_groups, dtype=np.int64)  # signed: numba adds int64 and uint64 in float64
    first = np.empty(n_groups, dtype=np.int64)
    total = 0
    for j in range(n_groups):
        fine = sizes[j] < _FINE_BELOW * boundaries.shape[1]
        n_buckets[j] = sizes[j] // (_PER_FINE_BUCKET if fine else _PER_BUCKET) + 1
        first[j] = total
        total += n_buckets[j]
    bucket = np.empty(n, dtype=np.uint32)
    group_sizes = np.zeros(total, dtype=np.int32)
    for i in range(n):
        j = group[i]
        b = first[j] + np.int64(((_key(start, i) >> _S32) * np.uint64(n_buckets[j])) >> _S32)
        bucket[i] = b
        group_sizes[b] += 1
    # A bucket's category where all its ranks have the same; else minus its place in the list of those to sort, minus 1.
    category = np.empty(total, dtype=np.int32)
    start_of = np.empty(total + 1, dtype=np.int64)
    low_of = np.empty(total, dtype=np.int64)
    group_of = np.empty(total, dtype=np.uint32)
    n_sorted = 0
    waiting = 0
    for j in range(n_groups):
        rank = 0
        k = 0
        for b in range(first[j], first[j] + n_buckets[j]):
            size = group_sizes[b]
            while k < boundaries.shape[1] - 1 and boundaries[j, k] <= rank:
                k += 1
            if rank + size <= boundaries[j, k]:
                category[b] = k
            else:
                category[b] = -n_sorted - 1
                start_of[n_sorted] = waiting
                low_of[n_sorted] = rank
                group_of[n_sorted] = j
                n_sorted += 1
                waiting += size
            rank += size
    start_of[n_sorted] = waiting
    result = np.empty(n, dtype=np.uint16)
    fill = start_of[:n_sorted].copy()
    rows = np.empty(waiting, dtype=np.int64)
    for i in range(n):
        c = category[bucket[i]]
        if c >= 0:
            result[i] = c
        else:
            rows[fill[-c - 1]] = i
            fill[-c - 1] += 1
    for s in range(n_sorted):
        begin, end = start_of[s], start_of[s + 1]
        for q in range(begin + 1, end):  # insertion sort; keys are distinct
            row = rows[q]
            key = _key(start, row)
            p = q - 1
            while p >= begin and _key(start, rows[p]) > key:
                rows[p + 1] = rows[p]
                p -= 1
            rows[p + 1] = row
        j = group_of[s]
        k = 0
        for q in range(begin, end):
            rank = low_of[s] + q - begin
            while boundaries[j, k] <= rank:
                k += 1
            result[rows[q]] = k
    return result
