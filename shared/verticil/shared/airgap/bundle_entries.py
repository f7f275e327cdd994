"""The content of a bundle as a folder: its entries in order, each with a file of what follows it.

A pouch is filled by the side that makes a bundle, and written out of a bundle by the side that takes one in. What is kept of it
(`keep`) can be read again by another process (`Pouch.read`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from verticil.shared.durable import sync_directory, sync_file
from verticil.shared.errors import DataFault, GateFailed
from verticil.wire.v1 import carried_pb2

ENTRY_LIMIT: Final = 32 * 2**20
"""Most bytes of an entry without its payload; a study's task is the largest."""
_INDEX: Final = "entries"
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """An entry and the file of its payload; None: it has none."""

    entry: carried_pb2.CarriedEntry
    payload: Path | None = None

    @property
    def what(self) -> str:
        """Which kind of entry it is; empty for one that this version does not know."""
        return self.entry.WhichOneof("what") or ""


def parse_entry(encoded: bytes) -> carried_pb2.CarriedEntry:
    """Read an entry.

    Raises:
        GateFailed: BUNDLE_INVALID.
    """
    try:
        return carried_pb2.CarriedEntry.FromString(encoded)
    except DecodeError:
        raise GateFailed("BUNDLE_INVALID", "an entry of its content cannot be read") from None


class Pouch:
    """Entries in order, in a folder of their own.

    Args:
        folder: exists.
        items: what is in it already.
    """

    def __init__(self, folder: Path, items: tuple[Item, ...] = ()) -> None:
        self.folder = folder
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(tuple(self._items))

    def payload(self) -> Path:
        """A name for the next payload's file."""
        return self.folder / f"{len(self._items):06d}.payload"

    def add(self, entry: carried_pb2.CarriedEntry, payload: Path | bytes | None = None) -> None:
        """Put an entry in.

        Args:
            entry: its ``payload_size`` is set here.
            payload: what follows it: bytes, or a file that does not change any more.

        Raises:
            OSError: the payload cannot be written.
        """
        if isinstance(payload, bytes):
            path = self.payload()
            path.write_bytes(payload)
            payload = path
        entry.payload_size = 0 if payload is None else payload.stat().st_size
        self._items.append(Item(entry=entry, payload=payload))

    def keep(self) -> None:
        """Write down what is in it and flush all of it to the disk.

        Raises:
            OSError: it cannot be written.
        """
        index = self.folder / _INDEX
        with index.open("wb") as file:
            for item in self._items:
                encoded = item.entry.SerializeToString()
                file.write(len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded)
            file.flush()
            sync_file(file.fileno(), index)
        for item in self._items:
            if item.payload is not None:
                with item.payload.open("rb") as payload:
                    sync_file(payload.fileno(), item.payload)
        sync_directory(self.folder)

    @classmethod
    def read(cls, folder: Path) -> Pouch | None:
        """What `keep` wrote; None when there is no such folder.

        Raises:
            DataFault: STATE_CORRUPT.
        """
        try:
            data = (folder / _INDEX).read_bytes()
        except FileNotFoundError:
            return None
        items: list[Item] = []
        at = 0
        try:
            while at < len(data):
                length = int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
                entry = parse_entry(data[at + _LENGTH_BYTES : at + _LENGTH_BYTES + length])
                at += _LENGTH_BYTES + length
                path = folder / f"{len(items):06d}.payload"
                items.append(Item(entry=entry, payload=path if entry.payload_size else None))
        except GateFailed as error:
            raise DataFault(
                "STATE_CORRUPT", f"{folder}: {error.message}", hint="import the last bundle again"
            ) from None
        return cls(folder, tuple(items))
