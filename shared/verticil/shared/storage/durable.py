"""The one way to the disk that lasts: every step after which something survives a power cut is taken here.

A step is the flush of a file or of a folder's names, a renaming, a removal, or the commit of a database. What a node promises
about crashes rests on the order of these steps, and so they have one seam: a watcher (`watch_steps`) is called with each step
right before and after it. The crash tests kill a process there, at every step that a run takes, so that a step that is added
later is covered by itself. A test reads the sources and keeps every other way shut.

Nothing but a test ever watches: there is no configuration for it, and without a watcher a step costs one comparison.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableStep:
    """One step, as a watcher gets it.

    Attributes:
        kind: what is done.
        moment: right before, or right after it.
        path: the file or folder that is flushed, removed or committed to; the new name of a renaming.
        source: the old name of a renaming.
    """

    kind: Literal["sync-file", "sync-directory", "rename", "remove", "commit"]
    moment: Literal["before", "after"]
    path: Path
    source: Path | None = None


_watcher: Callable[[DurableStep], None] | None = None


@contextlib.contextmanager
def watch_steps(watcher: Callable[[DurableStep], None]) -> Generator[None]:
    """Tell `watcher` of every step in this process, in the thread that takes it. For tests."""
    global _watcher  # noqa: PLW0603 (one seam for the whole process is the point)
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


@contextlib.contextmanager
def _step(
    kind: Literal["sync-file", "sync-directory", "rename", "remove", "commit"], path: Path, source: Path | None = None
) -> Generator[None]:
    if (watcher := _watcher) is None:
        yield
        return
    watcher(DurableStep(kind=kind, moment="before", path=path, source=source))
    yield
    watcher(DurableStep(kind=kind, moment="after", path=path, source=source))


def sync_file(descriptor: int, path: Path) -> None:
    """Make what was written to an open file durable; `path` says which file it is."""
    with _step("sync-file", path):
        os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    with _step("sync-directory", directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Give a file or folder another name; a file that has it is replaced. It lasts when the target's folder is flushed."""
    with _step("rename", target, source):
        os.replace(source, target)


def remove(path: Path) -> None:
    """Remove a file; nothing there is fine."""
    with _step("remove", path):
        path.unlink(missing_ok=True)


def remove_tree(path: Path, *, ignore_errors: bool = False) -> None:
    """Remove a folder with all in it; with `ignore_errors`, as far as that is possible."""
    with _step("remove", path):
        shutil.rmtree(path, ignore_errors=ignore_errors)


@contextlib.contextmanager
def commit(path: Path) -> Generator[None]:
    """Mark the block that commits a transaction of the database at `path`."""
    with _step("commit", path):
        yield
