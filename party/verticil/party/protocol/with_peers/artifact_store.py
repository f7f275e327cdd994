"""What peers sent this party, and what it sends them: files in its state directory, each with a row in the database.

One folder for each study. A row is written when its file is whole and on the disk, and holds its SHA-256; a file without a row is
a file that does not count. Whatever is read is compared with that digest: a file that was lost or harmed is forgotten together
with its row, and the step that made it is planned again.

Nothing raw comes here: pseudonyms, blinded tokens, randomized columns, signed statements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.message import Message

from verticil.party.protocol.planning import LostError
from verticil.party.storage.database import Database
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.disk import replace_file
from verticil.shared.storage.durable import remove, remove_tree, sync_directory
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2


class Kind(StrEnum):
    """What an item is; what `name` says of it."""

    APPROVAL = "approval"  # party: a peer's signed approval
    RUNNING = "running"  # "": the running list that this party made
    # "": the common list; with order-commitment the root of the common tree, with dh-psi the places of the own people.
    COMMON = "common"
    COMMITMENT = "commitment"  # "": this party's commitment to the order of its rows; with dh-psi to the common list
    # Linkage dh-psi; see verticil.party.protocol.with_peers.ring. Owners are positions in the study.
    TAKEN = "taken"  # owner: what was signed of the list that this party was given
    SHUFFLE = "shuffle"  # owner: of which of its tokens (of which own seed) each token of `BLINDED` was made
    BLINDED = "blinded"  # owner: the list as this party blinded it
    STEPS = "steps"  # owner: what was signed of it, by this party, too
    FULL = "full"  # owner: the list when every party had blinded it
    TOKENS = "tokens"  # "": the common ones
    POSITIONS = "positions"  # owner: where the common people stand in the list that this party was given
    COLUMN = "column"  # unit: an artifact from its owner
    SCORES = "scores"  # "": what was sent to the miner
    STRUCTURE = "structure"  # "": what the miner signed
    STATEMENT = "statement"  # party: signed parameters, this party's own among them
    SIGNATURE = "signature"  # party: signed manifest, this party's own among them
    ROUND = "round"  # party: its own signatures under messages of a round among parties; stays for ever


_STAYS: Final = frozenset({Kind.ROUND})
"""What no end of a study drops: its party asks for it when its ledger was set back."""
_SOMEBODYS: Final = frozenset({Kind.COLUMN, Kind.STATEMENT})
"""What a party can recognize as its own by the digest, when a peer says that it was deleted."""


def _file_name(kind: Kind, name: str) -> str:
    return f"{kind}.{name}" if name else str(kind)


def kept_after(state: State) -> frozenset[Kind]:
    """Return the kinds that stay after a study has ended: peers may still ask for the signature of a release that is
    published.
    """
    return frozenset({Kind.SIGNATURE}) if state is State.PUBLISHED else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A file in the artifact store."""

    sha256: bytes
    size: int


class _Listed(NamedTuple):
    kind: str
    name: str
    sha256: bytes
    size: int


class ArtifactStore:
    """The folder and its rows.

    Args:
        directory: made (0700) when absent.
        database: the party's.

    Raises:
        DataFault: DISK_FULL, STATE_CORRUPT.
    """

    def __init__(self, directory: Path, database: Database) -> None:
        self._directory = directory
        self._database = database
        self._make(directory)

    def folder(self, digest: bytes) -> Path:
        """Return the folder of a study's items, which may be absent."""
        return self._directory / digest.hex()

    def target(self, digest: bytes, kind: Kind, name: str = "") -> Path:
        """Return the item's file, present or future; create its folder when absent.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT.
        """
        folder = self.folder(digest)
        if not folder.is_dir():
            self._make(folder)
        return folder / _file_name(kind, name)

    def put(self, digest: bytes, kind: Kind, content: bytes | Message, name: str = "") -> None:
        """Store bytes, or a message of the wire; on the disk when it returns.

        Raises:
            DataFault: DISK_FULL, STATE_CORRUPT; nothing was stored.
        """
        data = content if isinstance(content, bytes) else content.SerializeToString(deterministic=True)
        target = self.target(digest, kind, name)
        part = target.with_name(f".{target.name}.part")
        with disk_faults(target):
            replace_file(target, data, part=part)
        self.enter(digest, kind, name, Item(sha256=hashlib.sha256(data).digest(), size=len(data)))

    def enter(self, digest: bytes, kind: Kind, name: str, item: Item) -> None:
        """Enter the file at `target` as an item; the file is whole and on the disk."""
        self._insert("peer_item", digest, kind, name, item)

    def _insert(self, table: str, digest: bytes, kind: Kind, name: str, item: Item) -> None:
        self._database.insert(table, item, digest=digest, kind=str(kind), name=name, conflict="REPLACE")

    def items(self, digest: bytes) -> Mapping[tuple[Kind, str], Item]:
        """Return the items of a study."""
        return self._list_items("peer_item", digest)

    def _list_items(self, table: str, digest: bytes) -> Mapping[tuple[Kind, str], Item]:
        query = f"SELECT kind, name, sha256, size FROM {table} WHERE digest = ?"  # noqa: S608 (constant names)
        rows = self._database.read(_Listed, query, (digest,))
        return {(Kind(row.kind), row.name): Item(sha256=row.sha256, size=row.size) for row in rows}

    def item(self, digest: bytes, kind: Kind, name: str = "") -> Item:
        """Return one item of a study.

        Raises:
            LostError: it is not there.
        """
        item = self.items(digest).get((kind, name))
        if item is None:
            raise LostError(f"{kind} {name}")
        return item

    def read(self, digest: bytes, kind: Kind, name: str = "") -> bytes:
        """Return the bytes of an item after a comparison with the stored digest.

        Raises:
            LostError: they are not there, or are not those that were stored; the item is forgotten then.
        """
        item, data = self.item(digest, kind, name), b""
        with suppress(OSError):
            data = self.target(digest, kind, name).read_bytes()
        self._compare(digest, kind, name, item, hashlib.sha256(data).digest())
        return data

    def signed(self, digest: bytes, kind: Kind, name: str = "") -> common_pb2.Signed:
        """Return a signed statement among the items; raises as `read`."""
        return common_pb2.Signed.FromString(self.read(digest, kind, name))

    def find_intact(self, digest: bytes, kind: Kind, name: str = "") -> tuple[Path, Item]:
        """Return the file of an item, after its bytes were compared with what was stored.

        Raises:
            LostError: as `read`.
        """
        item, target, sha256 = self.item(digest, kind, name), self.target(digest, kind, name), b""
        with suppress(OSError), target.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").digest()
        self._compare(digest, kind, name, item, sha256)
        return target, item

    def _compare(self, digest: bytes, kind: Kind, name: str, item: Item, sha256: bytes) -> None:
        if sha256 != item.sha256:
            self.forget(digest, kind, name)
            raise LostError(f"{kind} {name}")

    def forget(self, digest: bytes, kind: Kind, name: str = "") -> None:
        """Delete one item of a study."""
        self._database.write(
            "DELETE FROM peer_item WHERE digest = ? AND kind = ? AND name = ?", (digest, str(kind), name)
        )

    def clear(self, digest: bytes, *, keep: frozenset[Kind] = frozenset()) -> None:
        """Drop what no party needs any more: rows first, then files. What had been a peer's stays known by its digest,
        and a peer's approval as it was signed: who restores an old backup asks for both.

        Args:
            digest: of the study.
            keep: the kinds that stay.

        Raises:
            DataFault: STATE_CORRUPT, a file cannot be removed.
        """
        folder = self.folder(digest)
        with self._database.transaction():
            for (kind, name), item in self.items(digest).items():
                if kind in keep | _STAYS:
                    continue
                if kind is Kind.APPROVAL:
                    with suppress(LostError):
                        signed = self.read(digest, kind, name)
                        self._database.insert(
                            "kept_approval", digest=digest, party=name, signed=signed, conflict="REPLACE"
                        )
                if kind in _SOMEBODYS:
                    self._insert("dropped_item", digest, kind, name, item)
                self.forget(digest, kind, name)
        files = self._files(digest)
        with disk_faults(folder):
            if files:
                for path in set(folder.iterdir()) - files:
                    remove(path)
                sync_directory(folder)
            elif folder.exists():
                remove_tree(folder)
                sync_directory(self._directory)

    def holds(self, digest: bytes, *, keep: frozenset[Kind] = frozenset()) -> bool:
        """Return whether anything of a study exists but the kinds that stay: an item, or a file that lost its row to a
        kill.
        """
        if any(kind not in keep | _STAYS for kind, _ in self.items(digest)):
            return True
        folder = self.folder(digest)
        return folder.is_dir() and bool(set(folder.iterdir()) - self._files(digest))

    def leftovers(self, digest: bytes) -> list[Path]:
        """Return the files of a study but those that stay for ever."""
        folder = self.folder(digest)
        stays = {folder / _file_name(kind, name) for kind, name in self.items(digest) if kind in _STAYS}
        return [path for path in folder.rglob("*") if path.is_file() and path not in stays]

    def list_dropped(self, digest: bytes) -> Mapping[tuple[Kind, str], Item]:
        """Columns and parameters that were there, and that `clear` dropped."""
        return self._list_items("dropped_item", digest)

    def approval(self, digest: bytes, party: str) -> bytes:
        """Return a peer's approval as it signed it (a serialized `Signed`), also of a study that has ended; empty: there
        is none.
        """
        query = "SELECT signed FROM kept_approval WHERE digest = ? AND party = ?"
        try:
            approval = self._database.first(bytes, query, (digest, party))
            return self.read(digest, Kind.APPROVAL, party) if approval is None else approval
        except LostError:
            return b""

    def _files(self, digest: bytes) -> set[Path]:
        folder = self.folder(digest)
        return {folder / _file_name(kind, name) for kind, name in self.items(digest)}

    def _make(self, folder: Path) -> None:
        with disk_faults(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
