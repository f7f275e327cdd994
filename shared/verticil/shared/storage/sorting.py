"""Rows of bytes in ascending order, of more than fit into memory: sorted runs on the disk that are merged block by block.

A run is written to a file without a name (`unlinked_files`). Rows are compared as unsigned bytes from the left. Up to
`memory_rows` nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.storage.unlinked_files import Rows, check_room, nameless_file

BLOCK_ROWS: Final = 1 << 16
"""Most rows of a block that comes out, as long as nothing is merged."""
_NUMBER_BYTES: Final = 8
_LEAST_OF_A_RUN: Final = 512  # rows that are looked at together


def ascending(rows: Rows, key_bytes: int) -> NDArray[np.intp]:
    """Return the order in which rows ascend by their first bytes; rows with equal ones in any order.

    Args:
        rows: (n, width), uint8.
        key_bytes: 8 to width.

    Returns:
        (n,), positions.
    """
    first = _word(rows, 0, 8)
    order = np.argsort(first)  # of 64-bit numbers, which numpy sorts many times faster than byte strings
    first = first[order]
    equal = np.concatenate([[False], first[1:] == first[:-1], [False]])
    together = np.flatnonzero(equal[1:] | equal[:-1])
    if key_bytes > 8 and together.size:
        some = order[together]
        words = [_word(rows[some], start, min(start + 8, key_bytes)) for start in range(0, key_bytes, 8)]
        order[together] = some[np.lexsort(words[::-1])]
    return order


def _in_order(rows: Rows, key_bytes: int) -> Iterator[Rows]:
    """Yield rows in ascending order, in blocks. Rows that are one number each are sorted as numbers, which takes less."""
    if rows.shape[1] == key_bytes == _NUMBER_BYTES:
        numbers = _word(rows, 0, _NUMBER_BYTES)
        numbers.sort()
        for start in range(0, len(numbers), BLOCK_ROWS):
            yield numbers[start : start + BLOCK_ROWS].astype(">u8").view(np.uint8).reshape(-1, _NUMBER_BYTES)
        return
    order = ascending(rows, key_bytes)
    for start in range(0, len(order), BLOCK_ROWS):
        yield rows[order[start : start + BLOCK_ROWS]]


def keys_of(rows: Rows, key_bytes: int) -> NDArray[np.bytes_]:
    """(n,) the first bytes of rows, fixed-width byte strings, which compare as unsigned bytes and, of one width, exactly."""
    return np.ascontiguousarray(rows[:, :key_bytes]).view(f"S{key_bytes}").reshape(-1)


def _word(rows: Rows, start: int, stop: int) -> NDArray[np.uint64]:
    word = np.zeros((len(rows), 8), dtype=np.uint8)
    word[:, : stop - start] = rows[:, start:stop]
    return word.view(">u8").astype(np.uint64).reshape(-1)


class Sorter:
    """Takes rows in any order and gives them back in ascending order, once.

    Args:
        folder: where the runs are; it is asked for nothing as long as all rows fit into memory.
        width: bytes of a row.
        key_bytes: how many of them are compared, from the left; 8 to width.
        memory_rows: most rows that are held and sorted at once.

    Attributes:
        n_rows: how many have been taken.
    """

    def __init__(self, folder: Path, *, width: int, key_bytes: int, memory_rows: int) -> None:
        self.n_rows = 0
        self._folder, self._key_bytes = folder, key_bytes
        self._held: Rows = np.empty((memory_rows, width), dtype=np.uint8)  # pages that nobody writes to cost nothing
        self._n_held = 0
        self._file: IO[bytes] | None = None
        self._ends: list[int] = []

    def add(self, rows: Rows) -> None:
        """Take rows, (n, width).

        Raises:
            OSError: the disk.
        """
        self.n_rows += len(rows)
        while len(rows):
            if self._n_held == len(self._held):
                self._write_run()
            some = rows[: len(self._held) - self._n_held]
            self._held[self._n_held : self._n_held + len(some)] = some
            self._n_held += len(some)
            rows = rows[len(some) :]

    def blocks(self) -> Iterator[Rows]:
        """Yield all rows, ascending, in blocks; nothing can be taken afterwards.

        Raises:
            OSError: the disk.
        """
        if self._file is None:
            yield from _in_order(self._held[: self._n_held], self._key_bytes)
            return
        self._write_run()
        self._file.flush()
        width, room, ends = self._held.shape[1], len(self._held), self._ends
        self._held = np.empty((0, width), dtype=np.uint8)
        descriptor = self._file.fileno()

        def read(start: int, stop: int) -> Rows:  # of a mapped file every page that was looked at would count as ours
            raw = os.pread(descriptor, (stop - start) * width, start * width)
            return np.frombuffer(raw, dtype=np.uint8).reshape(-1, width)

        yield from _merge_runs(read, ends, self._key_bytes, max(_LEAST_OF_A_RUN, room // (2 * len(ends))))

    def _write_run(self) -> None:
        rows = self._held[: self._n_held]
        check_room(self._folder, rows.nbytes)
        if self._file is None:
            self._file = nameless_file(self, self._folder)
        for block in _in_order(rows, self._key_bytes):
            self._file.write(block.data)
        self._ends.append(len(rows) + (self._ends[-1] if self._ends else 0))
        self._n_held = 0


def _merge_runs(read: Callable[[int, int], Rows], ends: Sequence[int], key_bytes: int, at_once: int) -> Iterator[Rows]:
    """Ascending runs as one, in blocks: of each run as many rows are looked at together as `at_once` says.

    Args:
        read: rows from one to before another, of all runs one behind the other.
        ends: of the runs.
        key_bytes, at_once: see above.
    """
    starts = [0, *ends[:-1]]
    while open_runs := [i for i, end in enumerate(ends) if starts[i] < end]:
        heads = {i: read(starts[i], min(starts[i] + at_once, ends[i])) for i in open_runs}
        keys = {i: keys_of(head, key_bytes) for i, head in heads.items()}
        # Rows above the last one that is looked at of a run that goes on may still come before others of that run.
        goes_on = [keys[i][-1] for i in open_runs if starts[i] + len(heads[i]) < ends[i]]
        limit = min(goes_on) if goes_on else None
        for i in open_runs:
            size = len(heads[i]) if limit is None else int(np.searchsorted(keys[i], limit, side="right"))
            heads[i] = heads[i][:size]
            starts[i] += size
        yield from _in_order(np.concatenate(list(heads.values())), key_bytes)
