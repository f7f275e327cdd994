"""Files without a name, for what does not fit into memory: gone when nobody uses them any more, or when the process ends.

However it ends: nothing is left to be removed, and nobody else can open them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

Rows = NDArray[np.uint8]

RESERVE: Final = 1 << 24
"""Bytes that are left to others on the disk."""


def nameless_file(owner: object, folder: Path) -> IO[bytes]:
    """Open a file that has no name in `folder`, 0600; it is closed when its owner is gone.

    Raises:
        OSError: the folder.
    """
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  it is open as long as its owner lives
    weakref.finalize(owner, _discard, file)
    return file


def _discard(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # what was not written yet has no room, and nobody needs it
        file.close()


def check_room(folder: Path, n_bytes: int) -> None:
    """Refuse to fill a disk: what else is written there, a ledger or a catalogue, needs room, too.

    Raises:
        OSError: ENOSPC, there would be less than `RESERVE` left.
    """
    if shutil.disk_usage(folder).free < n_bytes + RESERVE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def join_parts(folder: Path | None, n: int, parts: Iterable[NDArray[T]], dtype: np.dtype[T]) -> NDArray[T]:
    """Join an array that comes in parts, read-only: in memory, or in a file without a name.

    Args:
        folder: for that file; None: it is in memory.
        n: how long all parts are together.
        parts: of that type.
        dtype: of the array.

    Raises:
        OSError: the disk.
    """
    rows, at = KeptRows(folder, n, {"": dtype.itemsize}), 0
    for part in parts:
        rows.write("", at, part)
        at += len(part)
    return rows.arrays()[""].reshape(-1).view(dtype)


class KeptRows:
    """Tables of bytes with n rows each that are written from above to below: in memory, or in a file without a name.

    Args:
        folder: for that file; None: they are in memory.
        n: rows.
        widths: bytes of a row of each table.

    Raises:
        OSError: the disk.
    """

    def __init__(self, folder: Path | None, n: int, widths: Mapping[str, int]) -> None:
        ends = np.cumsum(
            [-(-n * width // 64) * 64 for width in widths.values()]
        ).tolist()  # each begins at a whole line
        self._n, self._widths = n, dict(widths)
        self._starts = dict(zip(widths, [0, *ends], strict=False))
        self._file: IO[bytes] | None = None
        if folder is not None:
            check_room(folder, ends[-1])
            self._file = nameless_file(self, folder)
        self._bytes: Rows = np.empty(ends[-1] if folder is None else 0, dtype=np.uint8)

    def write(self, name: str, at: int, rows: NDArray[np.generic]) -> None:
        """Write some rows of a table from row `at` on.

        Raises:
            OSError: the disk.
        """
        raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        start = self._starts[name] + at * self._widths[name]
        if self._file is None:
            self._bytes[start : start + raw.size] = raw
        else:
            self._file.seek(start)
            self._file.write(raw.data)

    def arrays(self) -> dict[str, Rows]:
        """Return the tables, (n, width), read-only; nothing is written any more.

        Raises:
            OSError: the disk.
        """
        whole = self._bytes
        if self._file is not None:
            self._file.flush()
            whole = np.memmap(self._file, dtype=np.uint8, mode="r")
        whole.setflags(write=False)
        return {
            name: np.asarray(whole[start : start + self._n * self._widths[name]]).reshape(self._n, self._widths[name])
            for name, start in self._starts.items()
        }
