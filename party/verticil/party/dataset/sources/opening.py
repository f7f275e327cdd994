"""The bytes and the lines of a CSV file, also of one that is compressed: gzip, bzip2, xz, zstd, or zip with one file in it.

What a compressed file is, its first bytes say. It is inflated while it is read, and never to more than `INFLATED` times its size.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import IO, Any, BinaryIO, Final, cast

import pyarrow as pa

from verticil.party.dataset.sources.source_table import DatasetRule, unreadable
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files.limits import INFLATED, MIB

LONGEST_LINE_BYTES: Final = 4 * MIB
"""Most bytes of a line of a text file before it is read as CSV: the header, and what is skipped."""
_SPARE: Final = 64 * MIB
"""So many bytes may any compressed file have, however small it is."""


def _open_zstd(file: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", pa.CompressedInputStream(file, "zstd"))


_OPENERS: Final[Mapping[bytes, Callable[[BinaryIO], Any]]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": _open_zstd,
}
ZIP: Final = b"PK\x03\x04"
_OF_A_FOLDER: Final = re.compile(r"(?:^|/)(?:__MACOSX/|\.[^/]*$|Thumbs\.db$|desktop\.ini$)")  # that file managers add
INFLATE_ERRORS: Final = (EOFError, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException, gzip.BadGzipFile)


class _Limited(io.RawIOBase):
    """The inflated bytes of a file, up to a limit."""

    def __init__(self, rule: DatasetRule, file: BinaryIO, inner: IO[bytes]) -> None:
        self._rule, self._file, self._inner = rule, file, inner
        self._left = _SPARE + INFLATED * rule.path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            part = self._inner.read(len(buffer))
        except INFLATE_ERRORS:
            raise unreadable(self._rule, "the compressed file is damaged or cut off", hint="copy it again") from None
        self._left -= len(part)
        if self._left < 0:
            raise unreadable(
                self._rule, f"it inflates to more than {INFLATED} times its size", hint="unpack it, if you trust it"
            )
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._inner.close()
        self._file.close()
        super().close()


def is_compressed(rule: DatasetRule) -> bool:
    """Return whether a CSV file is compressed; one that cannot be read is not."""
    try:
        with rule.path.open("rb") as file:
            start = file.read(6)
    except OSError:
        return False
    return start.startswith((*_OPENERS, ZIP))


def open_bytes(rule: DatasetRule) -> BinaryIO:
    """Open a CSV file, inflated.

    Raises:
        DataFault: DATA_UNREADABLE, a zip file has not exactly one file in it; when it is read, it inflates to too much.
        OSError: it cannot be opened.
    """
    file = rule.path.open("rb")
    start = file.read(6)
    file.seek(0)
    for mark, opener in _OPENERS.items():
        if start.startswith(mark):
            return cast("BinaryIO", io.BufferedReader(_Limited(rule, file, cast("IO[bytes]", opener(file))), MIB))
    if not start.startswith(ZIP):
        return file
    try:
        archive = zipfile.ZipFile(file)
        members = _members(rule, archive)
    except zipfile.BadZipFile:
        file.close()
        raise unreadable(rule, "the zip file is damaged or cut off", hint="copy it again") from None
    except DataFault:
        file.close()
        raise
    return cast("BinaryIO", io.BufferedReader(_Limited(rule, file, archive.open(members[0])), MIB))


def _members(rule: DatasetRule, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the one file of a zip file."""
    members = [item for item in archive.infolist() if not item.is_dir() and not _OF_A_FOLDER.search(item.filename)]
    names = {item.filename for item in members}
    if "[Content_Types].xml" in names or "mimetype" in names:
        raise unreadable(
            rule,
            "this is an Excel workbook or another spreadsheet, expected csv",
            hint='call it .xlsx or .ods, or set format = "xlsx"',
        )
    if len(members) != 1:
        raise unreadable(rule, f"the zip file has {len(members)} files in it, expected one", hint="unpack it")
    if members[0].flag_bits & 1:
        raise unreadable(rule, "the zip file has a password", hint="unpack it, or pack it without one")
    return members


def open_text(rule: DatasetRule, *, errors: str = "replace") -> io.TextIOWrapper:
    """Open a CSV file as text, behind the lines that are left out above its header; errors as of `open_bytes`."""
    encoding = "utf-8-sig" if codecs.lookup(rule.encoding).name == "utf-8" else rule.encoding
    file = io.TextIOWrapper(open_bytes(rule), encoding=encoding, errors=errors, newline="")
    for _ in range(rule.skip):
        file.readline(LONGEST_LINE_BYTES)
    return file


def lines_of(rule: DatasetRule, *, errors: str = "replace") -> Generator[str]:
    """Yield the physical lines of a CSV file from its header on, with their ends; a line of megabytes comes in pieces."""
    with open_text(rule, errors=errors) as file:
        yield from iter(partial(file.readline, LONGEST_LINE_BYTES), "")


def count_lines(rule: DatasetRule) -> int:
    """Count the physical lines of a CSV file from its header on, blank ones included."""
    end = "\n".encode(rule.encoding if rule.encoding.lower().startswith("utf-16-") else "utf-8")
    if codecs.lookup(rule.encoding).name == "utf-16":
        return sum(1 for _ in lines_of(rule))
    count, last = 0, b""
    with open_bytes(rule) as file:
        for chunk in iter(partial(file.read, MIB), b""):
            count += chunk.count(end)
            last = chunk
    return count + (not last.endswith(end)) * bool(last) - rule.skip
