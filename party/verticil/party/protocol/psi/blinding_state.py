"""Where a party blinds the lists of one study: its key and its half-made lists, so that a kill costs seconds and changes nothing.

One folder for each study, 0700, files 0600. The key is drawn once for a study, from the operating system; it is deleted when this
party's people are found, and then nobody can blind another id for the study. A list is made in slices that are on the disk before
the next one is begun; the same key and the same input give the same bytes, so a party that was killed goes on where it stood. The
own list stays until the study ends: it says which of the party's records a token is.

Does not: talk to anybody (see `verticil.party.protocol.central.ring`).
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from verticil.party.protocol.psi.blinding import TOKEN_BYTES, BlindingKey, Pool
from verticil.shared.disk import replace_file
from verticil.shared.durable import remove, remove_tree, rename, sync_directory, sync_file
from verticil.shared.errors import PeerFault
from verticil.shared.storage.database import disk_fault

FOLDER: Final = "linkage"
BLINDING_KEY: Final = "blinding.key"


class Workshop:
    """The folder of one study. Methods block, but for `blinded`.

    Args:
        state_directory: of the party.
        study: SHA-256 of the proposal.
    """

    def __init__(self, state_directory: Path, study: bytes) -> None:
        self._folder = state_directory / FOLDER / study.hex()

    def path(self, name: str) -> Path:
        """A file of the study; its folder is made when absent.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise disk_fault(error, self._folder) from None
        return self._folder / name

    def exists(self) -> bool:
        """Whether anything of the study may be here."""
        return self._folder.exists()

    @property
    def has_key(self) -> bool:
        """Whether the study's key is there: drawn, and not yet forgotten."""
        return (self._folder / BLINDING_KEY).exists()

    def key(self) -> BlindingKey:
        """The study's key; drawn, and on the disk, when it is asked for the first time.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
            PeerFault: ALIGNMENT_MISMATCH, the file is not a key.
        """
        path = self.path(BLINDING_KEY)
        if path.exists():
            try:
                return BlindingKey(path.read_bytes())
            except ValueError:
                raise PeerFault(
                    "ALIGNMENT_MISMATCH",
                    "alignment: the blinding key of this study is damaged",
                    hint="nothing was randomized; the study must be submitted again under a new id",
                ) from None
        key = BlindingKey.draw()
        try:
            replace_file(path, key.secret, part=path.with_name(f".{BLINDING_KEY}.part"))
        except OSError as error:
            raise disk_fault(error, path) from None
        return key

    def forget_key(self) -> None:
        """Delete the key: this party's people are found. Repeatable."""
        if (path := self._folder / BLINDING_KEY).exists():
            remove(path)
            sync_directory(self._folder)

    def drop(self) -> None:
        """Delete everything: the study has ended. Repeatable."""
        remove_tree(self._folder, ignore_errors=True)

    def take(self, name: str) -> bytes | None:
        """A file's bytes; None when it is not there."""
        path = self._folder / name
        return path.read_bytes() if path.exists() else None

    def note(self, name: str, data: bytes) -> None:
        """Write a small file; whole and on the disk when it returns.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        path = self.path(name)
        try:
            replace_file(path, data, part=path.with_name(f".{name}.part"))
        except OSError as error:
            raise disk_fault(error, path) from None

    def accept(self, arrived: str, name: str) -> None:
        """Give a file that was checked the name under which it is believed."""
        rename(self._folder / arrived, self._folder / name)
        sync_directory(self._folder)

    def remove(self, name: str) -> None:
        """Delete a file that is not needed any more. Repeatable."""
        remove(self._folder / name)

    async def blinded(
        self,
        name: str,
        data: bytes,
        *,
        own: bool,
        heavily: Callable[[Callable[[], bytes]], Awaitable[bytes]],
        progress: Callable[[int], Awaitable[None]],
    ) -> None:
        """Blind a list into the file `name`, going on with what is there of it.

        Args:
            name: of the file; when it is there, nothing is done.
            data: seeds of this party's own people, or another party's tokens.
            own: which of the two.
            heavily: runs CPU work in a thread; studies take turns there, slice by slice.
            progress: told the percentage.

        Raises:
            TokenInvalidError: a token is not the x of a point.
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        target = self.path(name)
        if target.exists():
            return
        part, key, n_points = target.with_name(f".{name}.part"), self.key(), len(data) // TOKEN_BYTES
        with Pool(n_points) as pool:
            # The last slice may be on the disk in name only, after a power cut: it is made again.
            found = part.stat().st_size // TOKEN_BYTES if part.exists() else 0
            done = min(max(0, found - pool.slice_points), n_points)
            while done < n_points:
                end = min(done + pool.slice_points, n_points)
                piece = data[done * TOKEN_BYTES : end * TOKEN_BYTES]

                made = await heavily(functools.partial(pool.blind, key, piece, own=own))
                await asyncio.to_thread(_append, part, done * TOKEN_BYTES, made)
                done = end
                await progress(100 * done // n_points)
        rename(part, target)
        sync_directory(target.parent)


def _append(path: Path, offset: int, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with open(descriptor, "wb") as file:
            file.truncate(offset)
            file.seek(offset)
            file.write(data)
            file.flush()
            sync_file(descriptor, path)
    except OSError as error:
        raise disk_fault(error, path) from None
