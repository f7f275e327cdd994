"""A whole that travels as `Part` messages: read to its end, resumed where it broke off, verified; and the side that sends it.

Reading trusts nothing. The size that the first part announces is checked against the caller's limit before anything is kept;
size and SHA-256 must stay the same in every part; offsets, checksums and the length of a stream are watched by `ChunkReader`; the
SHA-256 of the whole is verified at the end, and only then is anything handed over. A stream carries at most 32 MiB, so a longer
whole takes several; one that breaks off is followed by another at the offset that was reached, until one brings not a single
new byte. A stream that goes on for ten minutes is broken off; when it had brought next to nothing that is an error, too
(DEADLINE), so that a byte now and then keeps no caller waiting. Parts without a byte are no parts. That error is the caller's,
who waits as it sees fit and calls again: `fetch_file` then goes on with what is on the disk, also after a kill.

That the right node sent the bytes is the connection's promise, what they mean is the caller's to check.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import hashlib
import itertools
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeAlias

from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.core.threads import to_the_end
from verticil.shared.federation.transport.chunks import BATCH, ChunkReader, make_chunks
from verticil.shared.federation.transport.errors_on_wire import retriable
from verticil.shared.storage.disk import write_fault
from verticil.shared.storage.durable import remove, rename, sync_directory, sync_file
from verticil.wire.v1 import common_pb2, peer_pb2

Call: TypeAlias = Callable[[int], AsyncGenerator[peer_pb2.Part, None]]
"""Begins a stream of the whole at an offset."""

_SHA256_BYTES: Final = 32
_BLOCK: Final = 1 << 20
STREAM_SECONDS: Final = 600.0
LEAST_BYTES: Final = 65_536
"""What a stream that lasts so long has to bring, for another one to be begun at once; and what has to come of a file of a release
that is not whole after so many seconds, and again in each such time that follows."""


async def fetch_bytes(call: Call, *, limit_bytes: int, what: str) -> bytes:
    """Read a whole into memory.

    Args:
        call: begins a stream at an offset.
        limit_bytes: most bytes of the whole.
        what: what is read and from whom, for messages (``parameters of party 'hospital'``).

    Returns:
        The verified bytes.

    Raises:
        PeerFault: ARTIFACT_INVALID when it is too large, changes while it is read or is not what its SHA-256 says;
            MESSAGE_INVALID, OFFSET_MISMATCH or CHUNK_CORRUPT for parts that are wrong.
        VerticilError: what the peer answered or the connection met, once a stream brought nothing new.
    """
    sink = _Memory()
    await _fetch(call, sink, limit_bytes=limit_bytes, what=what)
    return bytes(sink.data)


async def fetch_file(call: Call, target: Path, *, limit_bytes: int, what: str) -> bytes:
    """Read a whole into the file `target`, which appears when every byte of it is verified and on the disk.

    What has arrived so far stands beside it as ``.NAME.SHA256.part``; a later call goes on with that as far as it belongs to
    the same whole. One call at a time for one target; one that is cancelled has ended when it does nothing more there.

    Args:
        call: begins a stream at an offset.
        target: replaced when it exists; its folder exists.
        limit_bytes: most bytes of the whole.
        what: what is read and from whom, for messages.

    Returns:
        SHA-256 of the whole, 32 bytes.

    Raises:
        PeerFault: as `fetch_bytes`.
        VerticilError: as `fetch_bytes`.
        DataFault: DISK_FULL, on this side; its cause is an OSError.
        Misuse: FILE_MISSING, nothing can be written there; its cause is an OSError.
    """
    sink = _File(target)
    try:
        return await _fetch(call, sink, limit_bytes=limit_bytes, what=what)
    except OSError as error:
        raise write_fault(error, target) from error  # its cause distinguishes it from a fault that the other side sent
    finally:
        await asyncio.to_thread(sink.close)


async def send_parts(
    source: bytes | Path, *, offset: int, what: str, sha256: bytes | None = None
) -> AsyncGenerator[peer_pb2.Part, None]:
    """Return one stream of a whole, from `offset`: its rest, but at most 32 MiB.

    There is at least one part, so that an empty rest still tells size and SHA-256. A file must not change while it is sent.
    Nothing is compressed: how long a part is depends on how long the whole is, and on nothing else in it.

    Args:
        source: the bytes, or their file.
        offset: where to begin.
        what: what is sent, for messages.
        sha256: of the whole; needed with a file, so that it is not computed at every call.

    Raises:
        PeerFault: MESSAGE_INVALID, an offset behind the end; NOT_READY, as `read_chunks`.
        ValueError: a file without its SHA-256.
    """
    if isinstance(source, Path):
        if sha256 is None:
            raise ValueError(f"{what}: a file is sent with its SHA-256")
        with _not_ready_when_deleted(what):
            size = (await asyncio.to_thread(source.stat)).st_size
    else:
        size = len(source)
        sha256 = hashlib.sha256(source).digest() if sha256 is None else sha256
    if offset > size:
        raise PeerFault("MESSAGE_INVALID", f"{what}: offset {offset}, expected at most {size}")
    if offset == size:
        yield peer_pb2.Part(size=size, sha256=sha256)
        return
    async for chunk in read_chunks(source, offset=offset, what=what, compress=False):
        yield peer_pb2.Part(size=size, sha256=sha256, chunk=chunk)


async def read_chunks(
    source: bytes | Path, *, offset: int, what: str, compress: bool = True
) -> AsyncIterator[common_pb2.Chunk]:
    """Yield the chunks of one stream, as `make_chunks` says, read and packed in a worker thread, at most 4 MiB at a time.

    Args:
        source: the bytes, or their file.
        offset: where to begin.
        what: what is sent, for messages.
        compress: whether chunks that zlib makes smaller are; see `make_chunks`.

    Raises:
        PeerFault: NOT_READY, the file was deleted after the caller had looked: a study that ends takes its files away.
    """
    chunks = make_chunks(source, offset=offset, compress=compress)
    while True:
        with _not_ready_when_deleted(what):
            batch = await asyncio.to_thread(lambda: list(itertools.islice(chunks, BATCH)))
        if not batch:
            return
        for chunk in batch:
            yield chunk


@contextmanager
def _not_ready_when_deleted(what: str) -> Generator[None]:
    """Raise NOT_READY in place of the error of a file that is not there."""
    try:
        yield
    except FileNotFoundError:
        raise PeerFault("NOT_READY", f"{what}: is not here any more", hint="poll for the state of the study") from None


class _Sink(Protocol):
    """Where a whole goes. Its methods block."""

    def begin(self, size: int, sha256: bytes) -> int:
        """Prepare for this whole; bytes of it that are here already, at most `size`."""
        ...

    def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        ...

    def end(self) -> bool:
        """Keep the whole if it has the digest that was announced; else drop it."""
        ...


class _Memory:
    def __init__(self) -> None:
        self.data = bytearray()
        self._sha256 = b""

    def begin(self, size: int, sha256: bytes) -> int:
        del size
        self._sha256 = sha256
        return 0

    def write(self, data: bytes) -> None:
        self.data += data

    def end(self) -> bool:
        return hashlib.sha256(self.data).digest() == self._sha256


class _File:
    """The partial file's name has the digest, so that it is never continued with another whole."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._open: tuple[Path, BinaryIO] | None = None
        self._hasher = hashlib.sha256()
        self._sha256 = b""

    def begin(self, size: int, sha256: bytes) -> int:
        self.close()
        partial = self._target.with_name(f".{self._target.name}.{sha256.hex()}.part")
        for other in self._target.parent.glob(f".{glob.escape(self._target.name)}.*.part"):
            if other != partial:
                other.unlink()
        file = open(os.open(partial, os.O_RDWR | os.O_CREAT, 0o600), "r+b")  # noqa: SIM115 (closed by `close`)
        self._open, self._hasher, self._sha256 = (partial, file), hashlib.sha256(), sha256
        if os.fstat(file.fileno()).st_size > size:
            file.truncate(0)
        while block := file.read(_BLOCK):
            self._hasher.update(block)
        return file.tell()

    def write(self, data: bytes) -> None:
        assert self._open is not None  # begin() comes first
        self._open[1].write(data)
        self._hasher.update(data)

    def end(self) -> bool:
        assert self._open is not None  # begin() comes first
        partial, file = self._open
        holds = self._hasher.digest() == self._sha256
        if holds:
            file.flush()
            sync_file(file.fileno(), partial)
            rename(partial, self._target)
        else:
            remove(partial)
        self.close()
        sync_directory(self._target.parent)
        return holds

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


class _Reading:
    """One whole while it arrives.

    Attributes:
        offset: bytes that are in the sink.
        gained: bytes that the present stream has brought.
        size, sha256: as announced; None and empty before the first part.
        resumed: some of the bytes were in the sink before.
    """

    def __init__(self, sink: _Sink, *, limit_bytes: int, what: str) -> None:
        self.offset = 0
        self.gained = 0
        self.size: int | None = None
        self.sha256 = b""
        self.resumed = False
        self._sink = sink
        self._limit = limit_bytes
        self._what = what
        self._reader = ChunkReader(offset=0, size=0)
        self._empty = False

    def is_complete(self) -> bool:
        """Return whether as many bytes are there as were announced."""
        return self.offset == self.size

    def open(self) -> None:
        """Begin a new stream at `offset`."""
        self.gained = 0
        self._empty = False
        self._reader = ChunkReader(offset=self.offset, size=self.size or 0)

    def take(self, part: peer_pb2.Part) -> bool:
        """Take in a part; blocks.

        Returns:
            False when the stream began at another offset than the one to go on at, so that a new one is needed.
        """
        if self.size is None:
            self._check_announcement(part)
            if self.offset:
                return False
        elif (part.size, part.sha256) != (self.size, self.sha256):
            raise self._invalid("changed while it was read", hint="ask that party's operator what happened there")
        if part.HasField("chunk"):
            try:
                plain = self._reader.read(part.chunk)
            except PeerFault as fault:
                raise PeerFault(fault.code, f"{self._what}: {fault.message}", hint=fault.hint) from None
            self._sink.write(plain)
            self.offset += len(plain)
            self.gained += len(plain)
        elif self._empty:
            raise PeerFault("MESSAGE_INVALID", f"{self._what}: a stream of parts without a byte")
        else:
            self._empty = True  # one such part says that the rest is empty
        return True

    def _check_announcement(self, part: peer_pb2.Part) -> None:
        if len(part.sha256) != _SHA256_BYTES:
            raise PeerFault("MESSAGE_INVALID", f"{self._what}: SHA-256 of {len(part.sha256)} bytes, expected 32")
        if part.size > self._limit:
            raise self._invalid(f"{part.size} bytes, expected at most {self._limit}")
        self.offset = self._sink.begin(part.size, part.sha256)
        self.resumed = self.offset > 0
        self.size, self.sha256 = part.size, part.sha256
        self.open()

    def end(self) -> bool:
        """Verify the whole; False when what was there before the first part is to blame, perhaps: read it again then."""
        if self._sink.end():
            return True
        if self.resumed:
            return False
        raise self._invalid(
            "its SHA-256 is not the announced one", hint="the other party's disk or software is at fault"
        )

    def _invalid(self, problem: str, *, hint: str = "") -> PeerFault:
        return PeerFault("ARTIFACT_INVALID", f"{self._what}: {problem}", hint=hint)

    def too_slow(self) -> PeerFault:
        """Return the fault of a stream that had its time."""
        amount = f"{self.gained} bytes in {STREAM_SECONDS:g} s"
        return PeerFault("DEADLINE", f"{self._what}: {amount}", hint="try again: it goes on where it was")

    def cut_off(self) -> PeerFault:
        """Return the fault of a stream that ended early and brought nothing."""
        size_text = "its size" if self.size is None else f"{self.size} bytes"
        return PeerFault("MESSAGE_INVALID", f"{self._what}: the stream ended at {self.offset}, expected {size_text}")


async def _fetch(call: Call, sink: _Sink, *, limit_bytes: int, what: str) -> bytes:
    while True:
        reading = _Reading(sink, limit_bytes=limit_bytes, what=what)
        await _read(call, reading)
        if await to_the_end(reading.end):
            return reading.sha256


async def _read(call: Call, reading: _Reading) -> None:
    while not reading.is_complete():
        reading.open()
        has_size = reading.size is not None
        try:
            async with contextlib.aclosing(call(reading.offset)) as parts:
                try:
                    async with asyncio.timeout(STREAM_SECONDS):
                        async for part in parts:
                            if not await to_the_end(reading.take, part):
                                break
                except TimeoutError:
                    raise reading.too_slow() from None
        except VerticilError as error:
            if error.code == "DEADLINE" and reading.gained < LEAST_BYTES:
                raise
            if not retriable(error) or not reading.gained:
                raise
            continue
        if not reading.is_complete() and not reading.gained and (has_size or not reading.resumed):
            raise reading.cut_off()
