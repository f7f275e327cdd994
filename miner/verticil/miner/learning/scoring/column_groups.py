"""Counting groups of columns with the compiled kernel, in one pass over columns that may be larger than memory.

Columns are read in blocks of records. A block is copied, and its codes are checked in the copy, before any is used as an index;
what a memory map has brought into memory is given back, so that a pass holds its blocks and its tables and no more. Groups whose
tables are larger than `TUNING.pass_cells` together are counted in several passes.

With two threads each counts blocks of its own into tables of its own; whole numbers are added, so that the counts are the same
on any number of threads. No group is counted twice in a pass and none is left out: what the groups are is the caller's business.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import cast

import numpy as np

from verticil.miner.learning.scoring.tuning import TUNING
from verticil.shared.core.arrays import Codes, Ints, give_back

Group = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pass:
    """The groups of one pass as the kernel takes them.

    Attributes:
        used: columns that are read, ascending.
        n_states: (len(used),), int64.
        members: places of the groups' columns in `used`, one group after the other.
        starts, offsets: (G + 1,), where each group starts in `members`, and its table in the tables.
    """

    used: tuple[int, ...]
    n_states: Ints
    members: Ints
    starts: Ints
    offsets: Ints

    @property
    def n_cells(self) -> int:
        return int(self.offsets[-1])


def count_groups(
    columns: Sequence[Codes],
    n_states: Sequence[int],
    groups: Sequence[Group],
    *,
    threads: int | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[tuple[Group, Ints]]:
    """Count groups of columns.

    Args:
        columns: arrays of n codes each.
        n_states: number of categories of each column.
        groups: positions of columns, at least one each.
        threads: None: two where there is much to do and the machine has as many processors.
        check: called between blocks; may raise.

    Yields:
        Each group with its table, one axis for each column in the group's order; int64.

    Raises:
        ValueError: a code is not below its column's number of categories.
    """
    for some in count_passes(columns, n_states, groups, threads=threads, check=check):
        for place, group in enumerate(some.groups):
            table = some.counts[some.offsets[place] : some.offsets[place + 1]]
            yield group, table.reshape([n_states[c] for c in group])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """What one pass counted.

    Attributes:
        groups: in the caller's order.
        offsets: (G + 1,), where the table of each starts in `counts`.
        counts: the tables, one after the other, each in C order; int64.
    """

    groups: Sequence[Group]
    offsets: Ints
    counts: Ints


def count_passes(
    columns: Sequence[Codes],
    n_states: Sequence[int],
    groups: Sequence[Group],
    *,
    threads: int | None = None,
    check: Callable[[], None] | None = None,
) -> Iterator[Counted]:
    """Count groups of columns; see `count_groups`, whose tables these are, pass by pass."""
    n = len(columns[0])
    if threads is None:
        much = n * len(groups) >= TUNING.threaded_increments
        threads = min(2, processors()) if much else 1
    first = 0
    while first < len(groups):
        last, cells = first, 0
        while last < len(groups):
            more = math.prod(n_states[c] for c in groups[last])
            if last > first and cells + more > TUNING.pass_cells:
                break
            last, cells = last + 1, cells + more
        job = _plan_pass(n_states, groups[first:last])
        tables = _count(columns, n_states, job, threads if cells <= TUNING.pass_cells else 1, check)
        yield Counted(groups=groups[first:last], offsets=job.offsets, counts=tables)
        first = last


def blocks(
    columns: Sequence[Codes], n_states: Sequence[int], starts: Sequence[int], size: int, selection: Sequence[int]
) -> Iterator[Codes]:
    """Read some blocks of some columns.

    Args:
        columns, n_states: all columns.
        starts: first record of each block.
        size: records of a block; the last of all may have fewer.
        selection: which columns.

    Yields:
        (len(used), size) checked codes, uint8 where all columns have at most 256 categories; overwritten by the next.

    Raises:
        ValueError: a code is not below its column's number of categories.
    """
    n = len(columns[0])
    dtype = np.uint8 if all(n_states[c] <= 256 for c in selection) else np.uint16
    buffer = np.empty((len(selection), min(n, size)), dtype=dtype)
    for start in starts:
        length = min(size, n - start)
        block = buffer if length == buffer.shape[1] else np.empty((len(selection), length), dtype=dtype)
        for row, c in zip(block, selection, strict=True):
            piece = columns[c][start : start + length]
            if piece.dtype.itemsize > dtype().itemsize:  # wide numbers for few categories: checked before they are cut
                _check_codes(piece, n_states[c])
            np.copyto(row, piece, casting="unsafe")
            _check_codes(cast("Codes", row), n_states[c])
            give_back(piece)
        yield cast("Codes", block)


def block_records(n_columns: int) -> int:
    """Return the number of records of a block of so many columns: a multiple of 4096."""
    return max(min(TUNING.block_records, TUNING.block_bytes // (2 * n_columns) // 4096 * 4096), 4096)


def processors() -> int:
    """Return how many processors this process may use, where the system tells it.

    A container is often given less than the machine has.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _plan_pass(n_states: Sequence[int], groups: Sequence[Group]) -> _Pass:
    columns = tuple(sorted({c for group in groups for c in group}))
    places = {c: place for place, c in enumerate(columns)}
    sizes = [math.prod(n_states[c] for c in group) for group in groups]
    return _Pass(
        used=columns,
        n_states=np.array([n_states[c] for c in columns], dtype=np.int64),
        members=np.array([places[c] for group in groups for c in group], dtype=np.int64),
        starts=np.cumsum([0, *map(len, groups)], dtype=np.int64),
        offsets=np.cumsum([0, *sizes], dtype=np.int64),
    )


def _count(
    columns: Sequence[Codes],
    n_states: Sequence[int],
    job: _Pass,
    threads: int,
    check: Callable[[], None] | None,
) -> Ints:
    size = block_records(len(job.used))
    starts = range(0, len(columns[0]), size)
    threads = max(min(threads, len(starts)), 1)
    stop = Event()  # where one thread fails, the others end with their block

    def share(thread: int) -> Ints:
        """Count every `threads`-th block; thread 0 is the caller's own."""
        tables = np.zeros(job.n_cells, dtype=np.int64)
        scratch = np.zeros((4, 2**16), dtype=np.uint16)
        try:
            for block in blocks(columns, n_states, starts[thread::threads], size, job.used):
                if thread == 0 and check is not None:
                    check()
                if stop.is_set():
                    break
                kernels.count_groups(block, job.n_states, job.members, job.starts, job.offsets, tables, scratch)
        except BaseException:
            stop.set()
            raise
        return tables

    from verticil.miner.learning.scoring import kernels

    if threads == 1:
        return share(0)
    with ThreadPoolExecutor(threads - 1, thread_name_prefix="counting") as pool:
        others = [pool.submit(share, thread) for thread in range(1, threads)]
        tables = share(0)
        for other in others:
            tables += other.result()
    return tables


def _check_codes(codes: Codes, n_states: int) -> None:
    if len(codes) and (highest := int(codes.max())) >= n_states:
        raise ValueError(f"code {highest} in a column of {n_states} categories")
