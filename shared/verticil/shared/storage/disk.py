"""New files, whole or not at all, and what a full disk means.

`create_files` leaves either all of its files, flushed to the disk, or none: after a failure the same command can be given
again. (A process that is killed in the middle may leave a part.) Nothing is ever overwritten. `replace_file` is for files
that a program writes for itself.

Whatever must last goes through `verticil.shared.storage.durable`. Streams and databases have their own ways of writing;
`is_disk_full` and `write_fault` are for all.

`FollowedFiles`: whether files have changed since one last looked: what hot reload of certificates, keys and deny-lists rests on.

A file is known by inode, size and time of change, so that a replacement (`os.replace`) is seen even within one tick of the
clock. The disk is asked at most once in `every_seconds`: to follow files costs a running call nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import DataFault, Misuse, VerticilError
from verticil.shared.core.permissions import REFUSED, not_permitted
from verticil.shared.storage.durable import rename, sync_directory, sync_file

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_OURS: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_MORE_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_disk_full(error: OSError) -> bool:
    """Return whether an error means that the disk, the quota or the largest size of a file is exhausted."""
    return error.errno in _FULL


def files_exhausted(error: OSError, path: Path) -> DataFault | None:
    """Return the error for a process or machine that may open no more files; None when the system's error is another.

    It passes by itself, so the operation is tried again.
    """
    if error.errno not in _NO_MORE_FILES:
        return None
    return DataFault(
        "FILES_EXHAUSTED",
        f"{path}: cannot be opened ({error.strerror})",
        hint="it is tried again; raise the limit of open files (LimitNOFILE, ulimit -n) if it comes back",
    )


def unwritable(error: OSError | sqlite3.Error, path: Path) -> DataFault | None:
    """Return the error for a file of a node's state that cannot be written to; None when the system's error is another.

    In a folder that is read-only SQLite cannot make the files that it needs beside a database, and calls that SQLITE_CANTOPEN.
    Nothing is damaged then, and no backup need be restored.

    Args:
        error: what the operating system or SQLite said.
        path: the file.
    """
    if isinstance(error, OSError):
        is_refused = error.errno in _NOT_OURS
    else:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        is_refused_by_sqlite = code in {
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_IOERR,
        }
        is_refused = is_refused_by_sqlite and not (
            os.access(path.parent, os.W_OK | os.X_OK) and os.access(path, os.W_OK)
        )
    return read_only_fault(path) if is_refused else None


def read_only_fault(path: Path) -> DataFault:
    """Return the error for a state folder, or a file in it, that cannot be written to, or not even read by this user."""
    return not_permitted(REFUSED, path) or DataFault(
        "STATE_READ_ONLY",
        f"{path}: cannot be written to (a read-only file system, or another user's)",
        hint="nothing in it is damaged: have it mounted for writing, or give it to the user that runs the node",
    )


def write_obstacle(path: Path) -> OSError | None:
    """Try to write 4 KiB beside a file, and return what the operating system says against it; None: it can be done.

    SQLite calls a used-up quota, and a lack of inodes or file handles, an input/output error or a file that cannot be opened.
    The scratch file has no name. It is written where the file ends, so that the largest size of a file is met, too.
    """
    try:
        with tempfile.TemporaryFile(dir=path.parent) as scratch:
            scratch.seek(path.stat().st_size if path.exists() else 0)
            scratch.write(bytes(4096))
            scratch.flush()
    except OSError as error:
        return error
    return None


def looking_uri(path: Path) -> str:
    """Return the URI to open an SQLite database only to look at it, without making a file beside it or writing to one.

    A database at rest (not open, and its write-ahead log empty) is read as it is, in a read-only folder, too.
    """
    log, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    try:
        log_size = log.stat().st_size
    except FileNotFoundError:  # perhaps just now: the last connection takes it away when it is closed
        log_size = 0
    at_rest = not shared.exists() and not log_size
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if at_rest else ''}"


def is_database_full(error: sqlite3.Error) -> bool:
    """Return whether SQLite stopped for lack of room.

    On a full disk it cannot make room for the index of its write-ahead log, and calls that SQLITE_IOERR_SHMSIZE, an
    input/output error (seen with SQLite 3.40 on tmpfs). Nothing is damaged then, and no backup need be restored.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE


def write_fault(error: OSError, path: Path, *, hint: str = "make room there and try again") -> VerticilError:
    """Return the error of this program for a failed write to `path`.

    Args:
        error: what the operating system said.
        path: for the message.
        hint: for a full disk.

    Returns:
        DISK_FULL; FILES_EXHAUSTED; FILE_MISSING when the place cannot be written to at all.
    """
    if is_disk_full(error):
        return DataFault("DISK_FULL", f"{path}: no space left on the disk", hint=hint)
    if (fault := files_exhausted(error, path)) is not None:
        return fault
    return Misuse(
        "FILE_MISSING",
        f"{path}: cannot be written ({error.strerror or type(error).__name__})",
        hint="name a file in a folder that exists and that you may write to",
    )


def check_place(place: Path) -> None:
    """Refuse a place where no file or folder can be made, before the work whose result is written there.

    A folder beside it with a longer name is made and removed, as the place itself is made later.

    Raises:
        Misuse: FILE_MISSING, there is no such folder, or nothing can be made in it.
        DataFault: DISK_FULL, FILES_EXHAUSTED.
    """
    folder = place.absolute().parent
    if not folder.is_dir():
        raise Misuse("FILE_MISSING", f"{folder}: no such folder", hint="make it, or name another place")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=folder):
            pass
    except OSError as error:
        raise write_fault(error, place) from None


def create_file(path: Path, content: bytes, *, mode: int, exists_hint: str) -> None:
    """Make one new file; see `create_files`."""
    create_files({path: (content, mode)}, exists_hint=exists_hint)


def create_files(files: Mapping[Path, tuple[bytes, int]], *, exists_hint: str) -> None:
    """Make new files, all or none, flushed to the disk.

    Args:
        files: content and mode of each (the umask may take rights away); their folders exist.
        exists_hint: what to do about a file that is there already.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING when there is no such folder or it is not writable.
        DataFault: DISK_FULL.
    """
    paths: list[Path] = []
    path = Path()
    try:
        for path, (content, mode) in files.items():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            paths.append(path)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                sync_file(descriptor, path)
        for folder in {path.parent for path in paths}:
            sync_directory(folder)
    except BaseException as error:
        for remainder in paths:
            with contextlib.suppress(OSError):
                remainder.unlink()
        if isinstance(error, FileExistsError):
            raise Misuse("FILE_EXISTS", f"{path}: exists already and is not overwritten", hint=exists_hint) from None
        if isinstance(error, OSError):
            raise write_fault(error, path) from None
        raise


def replace_file(path: Path | Callable[[], Path], content: bytes | Iterable[bytes | memoryview], *, part: Path) -> None:
    """Put a file of mode 0600 in its place whole or not at all, flushed to the disk.

    Args:
        path: the file; one that exists is replaced. Where its name follows from its content: what tells it when that is written.
        content: of it, in one piece or in several.
        part: where it is written first, in the same folder; what a killed process leaves there is overwritten.

    Raises:
        OSError: nothing has changed.
    """
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for piece in (content,) if isinstance(content, bytes) else content:
                file.write(piece)
            file.flush()
            target = path if isinstance(path, Path) else path()
            sync_file(file.fileno(), part)
        rename(part, target)
        sync_directory(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


EVERY_SECONDS: Final = 5.0
"""How old what is known of a file may be. Twelve times shorter than what is promised for a revocation (a minute)."""


class FollowedFiles:
    """Some files that may be replaced, appear or vanish. Safe in several threads.

    Args:
        paths: the files.
        every_seconds: the disk is not asked more often.
        monotonic: clock in seconds that never jumps.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        every_seconds: float = EVERY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = tuple(paths)
        self._every = every_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known = self._look()
        self._looked = monotonic()

    def changed(self) -> bool:
        """Return whether a file is another than at the last call (or at construction)."""
        with self._lock:
            now = self._monotonic()
            if now - self._looked < self._every:
                return False
            self._looked = now
            state_before, self._known = self._known, self._look()
            return state_before != self._known

    def expect_change(self) -> None:
        """Let the next look at the disk find a change: a file could not be read, and may be readable then."""
        with self._lock:
            self._known = ()

    def _look(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(_stamp(path) for path in self._paths)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # A new mode or owner changes nothing but st_ctime_ns.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
