"""A bundle as one file: ``VERTICIL-CARRIED-1``, the signed statement, the content in pieces.

The content is the entries of a `Pouch`: for each the length of its message (4 bytes, big endian), the message
(`verticil.wire.v1.carried_pb2.CarriedEntry`) and its payload. It is cut into pieces of 512 KiB, each sealed for the recipient or
plain, and the statement lists the SHA-256 of each as it stands in the file: whatever was changed or is missing is found before
anything is believed, and its place is named.

`pack` leaves the whole file or none. `unpack` leaves the whole content or none, in memory for a piece at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from google.protobuf.message import DecodeError

from verticil.shared.airgap.bundle_encryption import Cover
from verticil.shared.airgap.bundle_entries import ENTRY_LIMIT, Pouch, parse_entry
from verticil.shared.airgap.statement import STATEMENT_LIMIT, Statement, parse_statement
from verticil.shared.disk import write_fault
from verticil.shared.durable import rename, sync_directory, sync_file
from verticil.shared.errors import GateFailed, Misuse
from verticil.shared.record import encode
from verticil.shared.transport.sealing import OVERHEAD
from verticil.wire.v1 import common_pb2

PIECE_BYTES: Final = 524_288
_MAGIC: Final = b"VERTICIL-CARRIED-1\n"
_LENGTH_BYTES: Final = 4
_BLOCK: Final = 1 << 20

Sign = Callable[[bytes], common_pb2.Signed]


def pack(
    pouch: Pouch,
    target: Path,
    statement: Statement,
    *,
    sign: Sign,
    cover: Cover | None,
    before: Callable[[bytes], None],
) -> Statement:
    """Write a bundle.

    Args:
        pouch: what is in it.
        target: the file to make.
        statement: what to say of it; `sealed`, `size` and `pieces` are filled in here.
        sign: signs the statement.
        cover: seals the pieces; None: they are plain.
        before: called with the statement's bytes when all is ready, right before the file is written.

    Returns:
        The statement as it was signed.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING, nothing can be written there.
        DataFault: DISK_FULL.
    """
    if target.exists():
        raise Misuse("FILE_EXISTS", f"{target}: exists already and is not overwritten", hint="name another file")
    body = pouch.folder / "content.part"
    try:
        digests, size = [], 0
        with body.open("wb") as file:
            for place, piece in enumerate(_pieces(pouch)):
                size += len(piece)
                stored = piece
                if cover is not None:
                    stored = cover.seal(piece, direction=statement.direction, number=statement.number, place=place)
                file.write(stored)
                digests.append(hashlib.sha256(stored).digest())
        said = replace(statement, sealed=cover is not None, size=size, pieces=tuple(digests))
        body_of_it = encode(said)
        signed = sign(body_of_it).SerializeToString()
        before(body_of_it)
        _write(target, signed, body)
    except OSError as error:
        raise write_fault(error, target) from None
    return said


def look(path: Path) -> tuple[Statement, common_pb2.Signed]:
    """What a file says of itself; nothing of it is verified.

    Raises:
        Misuse: FILE_MISSING.
        GateFailed: BUNDLE_INVALID.
    """
    with _opened(path) as file:
        return _head(file, path)


def unpack(path: Path, folder: Path, *, cover: Cover | None) -> Pouch:
    """Write the content of a bundle, whose statement the caller has verified, into a new folder.

    Args:
        path: the bundle.
        folder: to be made; the caller removes it if this raises.
        cover: opens sealed pieces; None: there is no key.

    Raises:
        Misuse: FILE_MISSING; CONFIG_INVALID, it is sealed and there is no key.
        GateFailed: BUNDLE_INVALID, with the place.
        DataFault: DISK_FULL.
    """
    with _opened(path) as file:
        statement, _ = _head(file, path)
        if statement.sealed and cover is None:
            raise Misuse(
                "CONFIG_INVALID",
                f"{path.name}: is sealed, and federation.toml does not pin the sealing keys of both sides",
                hint="the party's in [sealing], the miner's as sealing_key in [miner]: verticil pki seal NAME.crt",
            )
        try:
            folder.mkdir(mode=0o700)
            pouch = Pouch(folder)
            content = _Content(_stored(file, path, statement, cover))
            while (length := content.exactly(_LENGTH_BYTES, or_end=True)) is not None:
                entry = parse_entry(content.exactly(int.from_bytes(length, "big")) or b"")
                payload = pouch.payload() if entry.payload_size else None
                if payload is not None:
                    with payload.open("wb") as out:
                        content.copy(entry.payload_size, out)
                pouch.add(entry, payload)
            pouch.keep()
        except OSError as error:
            raise write_fault(error, folder) from None
        except GateFailed as error:
            raise GateFailed(error.code, f"{path.name}: {error.message}", hint=error.hint) from None
    return pouch


def _pieces(pouch: Pouch) -> Iterator[bytes]:
    waiting = bytearray()
    for item in pouch:
        encoded = item.entry.SerializeToString()
        waiting += len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded
        if item.payload is not None:
            with item.payload.open("rb") as file:
                while block := file.read(_BLOCK):
                    waiting += block
                    while len(waiting) >= PIECE_BYTES:
                        yield bytes(waiting[:PIECE_BYTES])
                        del waiting[:PIECE_BYTES]
    while waiting:
        yield bytes(waiting[:PIECE_BYTES])
        del waiting[:PIECE_BYTES]


def _write(target: Path, signed: bytes, body: Path) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        with open(descriptor, "wb") as file, body.open("rb") as content:
            file.write(_MAGIC + len(signed).to_bytes(_LENGTH_BYTES, "big") + signed)
            while block := content.read(_BLOCK):
                file.write(block)
            file.flush()
            sync_file(file.fileno(), part)
        rename(part, target)
        sync_directory(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def _opened(path: Path) -> Generator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise Misuse("FILE_MISSING", f"{path}: cannot be read ({error.strerror})", hint="name a bundle") from None
    with file:
        yield file


def _head(file: BinaryIO, path: Path) -> tuple[Statement, common_pb2.Signed]:
    begin = file.read(len(_MAGIC) + _LENGTH_BYTES)
    if not begin.startswith(_MAGIC):
        raise GateFailed("BUNDLE_INVALID", f"{path.name}: is not a bundle of this program", hint="name another file")
    length = int.from_bytes(begin[len(_MAGIC) :], "big")
    left = os.fstat(file.fileno()).st_size - file.tell()
    if len(begin) < len(_MAGIC) + _LENGTH_BYTES or length > min(left, STATEMENT_LIMIT):
        raise _cut_off(path, "in the statement at its beginning")
    try:
        signed = common_pb2.Signed.FromString(file.read(length))
    except DecodeError:
        raise GateFailed("BUNDLE_INVALID", f"{path.name}: the statement at its beginning was altered") from None
    try:
        return parse_statement(signed.body), signed
    except GateFailed as error:
        raise GateFailed(error.code, f"{path.name}: {error.message}") from None


def _stored(file: BinaryIO, path: Path, statement: Statement, cover: Cover | None) -> Iterator[bytes]:
    """The verified plain pieces of the content."""
    overhead = OVERHEAD if statement.sealed else 0
    for place, expected in enumerate(statement.pieces):
        begin, left = file.tell(), statement.size - place * PIECE_BYTES
        length = min(PIECE_BYTES, left) + overhead
        if left <= 0:
            raise GateFailed("BUNDLE_INVALID", "the statement lists more pieces than its size has")
        stored = file.read(length)
        if len(stored) < length:
            raise _cut_off(path, f"after {begin + len(stored):,} bytes, in piece {place} of {len(statement.pieces)}")
        if hashlib.sha256(stored).digest() != expected:
            raise GateFailed(
                "BUNDLE_INVALID",
                f"was altered in piece {place}, bytes {begin:,} to {begin + length:,} of the file",
                hint="nothing of it was taken in; have the file copied again from where it was made",
            )
        if statement.sealed and cover is not None:
            stored = cover.open(stored, direction=statement.direction, number=statement.number, place=place)
        yield stored
    if len(statement.pieces) * PIECE_BYTES < statement.size:
        raise GateFailed("BUNDLE_INVALID", "the statement lists fewer pieces than its size has")
    if file.read(1):
        raise GateFailed("BUNDLE_INVALID", f"has bytes after its end at {file.tell() - 1:,}")


def _cut_off(path: Path, where: str) -> GateFailed:
    return GateFailed(
        "BUNDLE_INVALID",
        f"{path.name}: is cut off {where}" if not where.startswith("after") else f"is cut off {where}",
        hint="nothing of it was taken in; have the file copied again from where it was made",
    )


class _Content:
    """Reads the pieces as one stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = bytearray()

    def exactly(self, size: int, *, or_end: bool = False) -> bytes | None:
        """The next `size` bytes; None at the end, where that is allowed."""
        if size > ENTRY_LIMIT:
            raise GateFailed("BUNDLE_INVALID", f"an entry of {size} bytes, expected at most {ENTRY_LIMIT}")
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                if or_end and not self._held:
                    return None
                raise GateFailed("BUNDLE_INVALID", "its content ends within an entry")
            self._held += piece
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def copy(self, size: int, out: BinaryIO) -> None:
        """Write the next `size` bytes to a file."""
        while size:
            if not self._held:
                self._held += next(self._pieces, b"")
                if not self._held:
                    raise GateFailed("BUNDLE_INVALID", "its content ends within a payload")
            block = self._held[:size]
            out.write(block)
            size -= len(block)
            del self._held[: len(block)]
