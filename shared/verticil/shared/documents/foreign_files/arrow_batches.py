"""What the batches of an Arrow file inflate to, read from their headers before any batch is read.

Promises: a compressed buffer begins with the length that it inflates to, and the library allocates that; so these lengths are
added up first, batch by batch, and nothing is inflated. A batch may be large where what is stored is large: many programs write a
table as one.

Source: Apache Arrow, "Arrow Columnar Format", Serialization and IPC (Message.fbs, File.fbs); FlatBuffers, "Internals".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from verticil.shared.documents.foreign_files.limits import BATCH_BYTES, FOOTER_BYTES, INFLATION

_MAGIC: Final = b"ARROW1"
_CONTINUES: Final = 0xFFFFFFFF
_DICTIONARY: Final = 2
_BATCH: Final = 3
_BLOCK_BYTES: Final = 24


class LargeBatchError(ValueError):
    """An Arrow file with a batch that inflates to more than a reader takes."""


def check_batches(path: Path) -> None:
    """Check what each batch of an Arrow file or stream inflates to.

    Raises:
        LargeBatchError: a batch inflates to more than `BATCH_BYTES` and to more than `INFLATION` times its stored bytes.
        ValueError: a header is damaged.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            for place in _places(file):
                plain_size, file_size = _sizes(file, place)
                if plain_size > max(BATCH_BYTES, INFLATION * file_size):
                    raise LargeBatchError(
                        f"a batch inflates to {plain_size >> 20} MiB, expected at most {BATCH_BYTES >> 20}, or {INFLATION} times "
                        "what is stored"
                    )
        except (struct.error, IndexError):
            raise ValueError("a damaged header") from None


def _places(file: BinaryIO) -> Iterator[int]:
    """Yield where each message with a batch begins: as the footer of a file says, or one behind the other in a stream."""
    size = file.seek(0, 2)
    file.seek(0)
    if file.read(len(_MAGIC)) == _MAGIC:
        file.seek(max(0, size - 10))
        (length,) = struct.unpack("<i", file.read(4))
        if not 0 < length <= min(size, FOOTER_BYTES):
            raise ValueError("a footer of another length")
        file.seek(size - 10 - length)
        footer = _Table.root(file.read(length))
        for field in (2, 3):
            start, n_blocks = footer.vector(field)
            for number in range(n_blocks):
                yield footer.number("<q", start + number * _BLOCK_BYTES)
        return
    place = 0
    while place < size:
        message, place = _message(file, place)
        if message is None:
            return
        yield place - message[1]
        place += message[0].field_number("<q", 3)


def _message(file: BinaryIO, place: int) -> tuple[tuple[_Table, int] | None, int]:
    """Read the message at a place: it and how many bytes it takes, and where its body begins; None: the stream ends."""
    file.seek(place)
    (length,) = struct.unpack("<I", file.read(4))
    prefix = 4
    if length == _CONTINUES:
        (length,) = struct.unpack("<I", file.read(4))
        prefix = 8
    if not length:
        return None, place
    if length > FOOTER_BYTES:
        raise ValueError("a header of another length")
    return (_Table.root(file.read(length)), prefix + length), place + prefix + length


def _sizes(file: BinaryIO, place: int) -> tuple[int, int]:
    """Return how many bytes a batch inflates to, and how many are stored; (0, 0): the message has none."""
    found, body = _message(file, place)
    if found is None:
        return 0, 0
    message = found[0]
    kind = message.field_number("<B", 1)
    if kind not in {_DICTIONARY, _BATCH}:
        return 0, 0
    batch = message.table(2)
    batch = batch.table(1) if kind == _DICTIONARY and batch is not None else batch
    file_size = message.field_number("<q", 3)
    if batch is None or batch.table(3) is None:
        return 0, file_size
    plain_size = 0
    start, n_buffers = batch.vector(2)
    for number in range(n_buffers):
        offset, length = batch.number("<q", start + number * 16), batch.number("<q", start + number * 16 + 8)
        if length:
            file.seek(body + offset)
            plain_size += max(length - 8, *struct.unpack("<q", file.read(8)))
    return plain_size, file_size


class _Table:
    """A table of FlatBuffers inside some bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """Return the outermost table."""
        return cls(data, *struct.unpack_from("<I", data))

    def number(self, form: str, at: int) -> int:
        """Read a number at a place."""
        return int(struct.unpack_from(form, self._data, at)[0])

    def _field(self, number: int) -> int:
        """Return where a field is; 0: it has its default."""
        table = self._at - self.number("<i", self._at)
        entry = 4 + 2 * number
        offset = self.number("<H", table + entry) if entry < self.number("<H", table) else 0
        return self._at + offset if offset else 0

    def field_number(self, form: str, number: int) -> int:
        """Read a field that is a number; 0 by default."""
        at = self._field(number)
        return self.number(form, at) if at else 0

    def table(self, number: int) -> _Table | None:
        """Return a field that is a table."""
        at = self._field(number)
        return _Table(self._data, at + self.number("<I", at)) if at else None

    def vector(self, number: int) -> tuple[int, int]:
        """Return where a field's items begin, and how many there are."""
        at = self._field(number)
        if not at:
            return 0, 0
        start = at + self.number("<I", at)
        return start + 4, self.number("<I", start)
