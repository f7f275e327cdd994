"""A round on one node's disk: everything that it knows of it, so that a node that was killed anywhere goes on.

    plan.json        the plan, canonical
    secrets.json     what was drawn, as long as somebody needs it
    hello.json, statement.json   the bodies of what this node says to all
    t0, t1           the transcripts, written once, before anything that is derived of them
    charged          the ledger has been charged
    sent/INDEX       sealed messages that this node made; sent again as they are
    got/INDEX        sealed messages for this node, verified
    received.json    SHA-256 of those that are deleted already, by index
    f/INDEX          this node's own shares of f, before they are told
    tables           the opened tables
    ended            the line that stays for ever

Files are whole, or not there. The folder is in no backup.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import DataFault, Refusal
from verticil.shared.documents import record
from verticil.shared.masked.round.secrets import Secrets
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.disk import replace_file
from verticil.shared.storage.durable import remove, remove_tree, rename, sync_directory, sync_file

_SENT: Final = "sent"
_GOT: Final = "got"


class RoundFolder:
    """The files of a round.

    Args:
        path: the folder; made (0700) when absent.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_faults(path):
            for folder in (path, path / _SENT, path / _GOT, path / "f"):
                if not folder.is_dir() and not self.end_line:
                    folder.mkdir(mode=0o700, parents=True)
                    sync_directory(folder.parent)

    # ---- small files

    def write(self, name: str, content: bytes) -> None:
        """Put a file in its place, durably.

        Raises:
            DataFault: DISK_FULL.
        """
        target = self.path / name
        with disk_faults(target):
            replace_file(target, content, part=target.with_name(f".{target.name}.part"))

    def write_once(self, name: str, content: bytes, what: str) -> None:
        """Write what is written once: the same again is no change, and another content is refused.

        Raises:
            Refusal: APPROVAL_VOID, it is there and is another.
        """
        old = self.read(name)
        if old is None:
            self.write(name, content)
        elif old != content:
            raise Refusal(
                "APPROVAL_VOID",
                f"masked tables: {what} is another than this round began with",
                hint="a round is of one plan, one list and one table; submit the study again under a new id, with a new approval",
            )

    def read(self, name: str) -> bytes | None:
        """Read a file's bytes; None: it is not there."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    # ---- secrets

    @property
    def secrets(self) -> Secrets | None:
        """What was drawn; None before, and after it was forgotten.

        Raises:
            DataFault: STATE_CORRUPT.
        """
        content = self.read("secrets.json")
        if content is None:
            return None
        return record.decode(Secrets, content, source="secrets.json", fault=lambda _: self._corrupt("secrets.json"))

    def keep(self, secrets: Secrets) -> None:
        """Write the secrets, in place of those that are there."""
        self.write("secrets.json", record.encode(secrets))

    def forget_secrets(self) -> None:
        """Delete the secrets of the round."""
        remove(self.path / "secrets.json")
        sync_directory(self.path)

    def _corrupt(self, name: str) -> DataFault:
        return DataFault(
            "STATE_CORRUPT",
            f"{self.path / name}: not what this program wrote",
            hint="the round cannot go on: cancel the study and submit it again under a new id",
        )

    # ---- messages

    def sent_path(self, index: int) -> Path:
        """Return where a message that this node made is, or will be."""
        return self.path / _SENT / str(index)

    def arrival_path(self, index: int) -> Path:
        """Return where a message for this node is, or will be."""
        return self.path / _GOT / str(index)

    def take(self, index: int, path: Path) -> None:
        """Put the file of a message that was verified into its place, durably.

        Raises:
            DataFault: DISK_FULL.
        """
        target = self.arrival_path(index)
        with disk_faults(target):
            with path.open("rb") as file:
                sync_file(file.fileno(), path)
            rename(path, target)
            sync_directory(target.parent)

    def all_sent(self) -> set[int]:
        """Return the numbers of the messages of this node that are there."""
        return _numbers(self.path / _SENT)

    def all_got(self) -> set[int]:
        """Return the numbers of the messages for this node that are there, or were."""
        return _numbers(self.path / _GOT) | set(self.deleted_digests())

    def deleted_digests(self) -> Mapping[int, str]:
        """Return SHA-256 of messages that came and are deleted."""
        content = self.read("received.json")
        return {} if content is None else {int(index): sha256 for index, sha256 in json.loads(content).items()}

    @property
    def last_came(self) -> dt.datetime:
        """When the last message came; before the first, when the round began."""
        folder = self.path / _GOT
        return dt.datetime.fromtimestamp(folder.stat().st_mtime if folder.is_dir() else 0, dt.UTC)

    def drop_got(self, indices: set[int]) -> None:
        """Delete messages that came; that they came stays known."""
        there = {index for index in indices if self.arrival_path(index).exists()}
        if not there:
            return
        digests = dict(self.deleted_digests()) | {index: file_sha256(self.arrival_path(index)) for index in there}
        self.write("received.json", json.dumps({str(k): v for k, v in sorted(digests.items())}).encode())
        for index in sorted(there):
            remove(self.arrival_path(index))
        sync_directory(self.path / _GOT)

    # ---- the end

    @property
    def end_line(self) -> str:
        """The line of an ended round; empty: it has not ended."""
        content = self.read("ended")
        return "" if content is None else content.decode()

    def end(self, line: str) -> None:
        """Write the line that stays, then delete everything else."""
        if not self.path.is_dir():
            self.path.mkdir(mode=0o700, parents=True)
        if not self.end_line:
            self.write("ended", line.encode())
        for item in sorted(self.path.iterdir()):
            if item.name == "ended":
                continue
            remove_tree(item) if item.is_dir() else remove(item)
        sync_directory(self.path)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _numbers(folder: Path) -> set[int]:
    return {int(item.name) for item in folder.iterdir() if item.name.isdecimal()} if folder.is_dir() else set()
