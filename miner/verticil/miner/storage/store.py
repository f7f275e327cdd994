"""The miner's files: where each lies, how it becomes durable, how much room there is.

Promises: a name on disk is made of a digest's hex digits and small numbers only, so that nothing a peer says can become a path;
`write_durably` leaves either the old or the new file, whole, after a power cut; an exhausted disk is DISK_FULL and leaves what
was durable as it was. It knows nothing of studies' states; `catalogue` holds the facts, `intake` and `alignment` join the two.

Layout below the state directory::

    lock  catalogue.sqlite  audit.jsonl  audit.anchor  cache/
    studies/<proposal digest>/pseudonyms/00.part -> 00.list   alignment/00.bitmap   blinded/00-00.part -> 00-00.list
                              staging/003.part   columns/003.u8   tables/key  tables/noisy   masked/   proof/NAME   checkpoint
                              learning/   release/
    searches/<effective digest>    of studies between peers: the checkpoint of the search
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Final

from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault, PeerFault
from verticil.shared.storage.database import disk_full
from verticil.shared.storage.disk import files_exhausted, is_disk_full, unwritable
from verticil.shared.storage.durable import remove, remove_tree, rename, sync_directory, sync_file

NOISE_SEED: Final = "noise.seed"
"""A file of the state directory in trials with a seed: 64 hexadecimal digits that secrets of noise are derived from."""


@contextlib.contextmanager
def full_disk_is_an_error(where: str) -> Generator[None]:
    """Turn an exhausted disk or a lack of file handles, met inside the block, into an error; others pass unchanged.

    Raises:
        DataFault: DISK_FULL, FILES_EXHAUSTED.
    """
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(where, disk="the miner's disk") from error
        raise files_exhausted(error, Path(where)) or error from None


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    rest = memoryview(data).cast("B")
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


def append_durably(path: Path, offset: int, data: bytes | memoryview) -> None:
    """Write `data` at `offset` and fsync; whatever stood behind `offset` (an abandoned write) is gone.

    Raises:
        DataFault: DISK_FULL.
        FileNotFoundError: the file is shorter than `offset`, so bytes that were acknowledged are lost.
    """
    with full_disk_is_an_error("staging file"):
        descriptor = os.open(path, os.O_WRONLY | (os.O_CREAT if offset == 0 else 0), 0o600)
        try:
            if os.fstat(descriptor).st_size < offset:
                raise FileNotFoundError(errno.ENOENT, "the staging file is shorter than its committed offset")
            os.ftruncate(descriptor, offset)
            os.lseek(descriptor, offset, os.SEEK_SET)
            _write_all(descriptor, data)
            sync_file(descriptor, path)
        finally:
            os.close(descriptor)
        if offset == 0:
            sync_directory(path.parent)


def replace_durably(source: Path, target: Path) -> None:
    """Rename `source` (a synced file, or a folder) to `target`, durably; a file at `target` is replaced."""
    rename(source, target)
    sync_directory(target.parent)
    if source.parent != target.parent:
        sync_directory(source.parent)


def write_durably(path: Path, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a whole file, in one piece or in several: beside it, fsync, rename, fsync of the folder.

    Raises:
        DataFault: DISK_FULL; the file is as it was, as it is where the pieces fail.
    """
    beside = path.with_name(path.name + ".new")
    with full_disk_is_an_error(path.name):
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                _write_all(descriptor, piece)
            sync_file(descriptor, beside)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()  # on a full disk every block counts
            raise
        finally:
            os.close(descriptor)
        replace_durably(beside, path)


def remove_durably(path: Path) -> None:
    """Remove a file or a folder with all in it; nothing there is fine."""
    if path.is_dir():
        remove_tree(path)
    elif path.exists():
        remove(path)
    else:
        return
    sync_directory(path.parent)


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


class StudyFiles:
    """The folder of one study. Parties and units are numbers: their positions in the study."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def pseudonyms(self, party: int, *, complete: bool) -> Path:
        """Return the sorted list of one party: while it arrives, or whole."""
        return self.root / "pseudonyms" / f"{party:02d}.{'list' if complete else 'part'}"

    def blinded(self, owner: int, hop: int, *, complete: bool) -> Path:
        """Return the blinded list of one party behind one hop: while it arrives, or whole."""
        return self.root / "blinded" / f"{owner:02d}-{hop:02d}.{'list' if complete else 'part'}"

    def bitmap(self, party: int) -> Path:
        """Return the place of the bits that say which records of the party's list are common."""
        return self.root / "alignment" / f"{party:02d}.bitmap"

    def staging(self, unit: int) -> Path:
        """Return the place of one unit's artifact while it arrives."""
        return self.root / "staging" / f"{unit:03d}.part"

    def column(self, unit: int, item_bytes: int) -> Path:
        """Return the unit's randomized codes in common order, those of one record together: little-endian, no header."""
        return self.root / "columns" / f"{unit:03d}.u{8 * item_bytes}"

    @property
    def noise_key(self) -> Path:
        """The secret of the noise on the study's tables (`noise`); whoever has it can take the noise out."""
        return self.root / "tables" / "key"

    @property
    def noisy_tables(self) -> Path:
        """The study's tables with noise (`measured`)."""
        return self.root / "tables" / "noisy"

    @property
    def masked(self) -> Path:
        """The miner's part of the round of masked tables: keys, noise, shares, messages; in no backup."""
        return self.root / "masked"

    def proof(self, party: str) -> Path:
        """Return the file of a party's signatures in the round (`verticil.shared.masked.round.proof`); they stay when it ends."""
        return self.root / "proof" / party

    def remove_masked(self) -> None:
        """Delete that part; whoever is killed in between leaves no folder that looks like a round."""
        old = self.root / "masked.ended"
        if self.masked.exists():
            replace_durably(self.masked, old)
        remove_durably(old)

    @property
    def learning(self) -> Path:
        """What the learning process writes; removed before each attempt."""
        return self.root / "learning"

    @property
    def checkpoint(self) -> Path:
        """Where the search or estimate stood (`checkpoint`); there from its first seconds until the study has ended."""
        return self.root / "checkpoint"

    @property
    def release(self) -> Path:
        """The release folder, signed; it appears by one rename."""
        return self.root / "release"

    def prepare(self) -> None:
        """Make the folders of the study."""
        for name in ("pseudonyms", "alignment", "blinded", "staging", "columns"):
            (self.root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_directory(self.root)
        sync_directory(self.root.parent)

    def prepare_tables(self) -> None:
        """Make the folder of the noise and the noisy tables, durably."""
        self.noise_key.parent.mkdir(mode=0o700, exist_ok=True)
        sync_directory(self.root)

    def remove_linkage(self) -> None:
        """Delete pseudonyms, blinded lists, bitmaps, whatever is in transit, and the checkpoint."""
        for name in ("pseudonyms", "alignment", "blinded", "staging", "learning", "checkpoint", "checkpoint.new"):
            remove_durably(self.root / name)

    def remove_columns(self) -> None:
        """Delete the randomized columns, and the noise on their tables, which nobody can then take out of what is published.

        Of masked tables, what there is of the round.
        """
        self.remove_masked()
        for name in ("tables", "columns"):
            remove_durably(self.root / name)

    def write_column(self, unit: int, item_bytes: int, parts: Iterable[Codes]) -> Path:
        """Store a unit's codes; the same codes written twice give the same file."""
        path = self.column(unit, item_bytes)
        write_durably(path, (part.astype(f"<u{item_bytes}", copy=False).data.cast("B") for part in parts))
        return path


class Store:
    """The state directory.

    Args:
        root: made when absent, mode 0700.
        max_bytes_per_study: quota.
        disk_reserve_bytes: free space that is never touched.
        free_bytes: how much is free on the disk of a path; of the operating system unless given.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_bytes_per_study: int,
        disk_reserve_bytes: int,
        free_bytes: Callable[[Path], int] | None = None,
    ) -> None:
        self.root = root
        self._quota = max_bytes_per_study
        self._reserve = disk_reserve_bytes
        self._free_bytes = free_bytes or _free_bytes
        self._lock: int | None = None
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            (root / "studies").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise unwritable(error, root) or error from None
        sync_directory(root)

    def lock(self) -> None:
        """Hold the state directory for this process, until `unlock` or its end.

        Raises:
            DataFault: STATE_LOCKED, another process holds it; STATE_READ_ONLY.
        """
        try:
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unwritable(error, self.root) or error from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DataFault(
                "STATE_LOCKED",
                f"{self.root}: another miner uses this state directory",
                hint="stop it, or use another directory",
            ) from None
        self._lock = descriptor

    def unlock(self) -> None:
        """Let the state directory go."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def study(self, digest: bytes) -> StudyFiles:
        """Return the files of the study with this proposal digest."""
        if len(digest) != 32:
            raise ValueError(f"a study digest has 32 bytes, got {len(digest)}")
        return StudyFiles(self.root / "studies" / digest.hex())

    @property
    def searches(self) -> Path:
        """For the checkpoints of searches between peers; made when absent."""
        folder = self.root / "searches"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def is_full(self) -> bool:
        """Return whether less than the reserve is free on the disk, so that nothing more is taken in."""
        return self._free_bytes(self.root) < self._reserve

    def ensure_room(self, what: str, *, needed_bytes: int, used_bytes: int, promised_bytes: int = 0) -> None:
        """Refuse up front what would break the study's quota or the disk's reserve.

        Args:
            what: for the message.
            needed_bytes: bytes that are still to be written.
            used_bytes: bytes that the study has promised or stored already.
            promised_bytes: bytes that are still to come of what others, of any study, have begun; they need the same disk.

        Raises:
            PeerFault: RESOURCE_EXHAUSTED.
        """
        if used_bytes + needed_bytes > self._quota:
            raise PeerFault(
                "RESOURCE_EXHAUSTED",
                f"{what}: the study would take {used_bytes + needed_bytes} bytes at the miner, expected at most {self._quota}",
                hint="the miner's operator can raise limits.max_bytes_per_study",
            )
        if (free := self._free_bytes(self.root) - promised_bytes) - needed_bytes < self._reserve:
            raise PeerFault(
                "RESOURCE_EXHAUSTED",
                f"{what}: needs {needed_bytes} bytes, the miner's disk has {max(free - self._reserve, 0)} above its reserve"
                f" of {self._reserve}",
                hint="the miner's operator must free disk space; the upload is tried again by itself",
            )
