"""What the pages of a Parquet file inflate to, read from the pages' own headers before any page is read.

Promises: the footer of a file and the header of a page are written by different hands and may differ; the library that reads
pages believes the header, allocates what it says, and inflates no more. So the header of every page is read here first, at the
places where the library will look for it, and nothing is inflated. A dictionary-encoded column is no larger than its pages while
it stays one (`verticil.party.dataset.sources.files` reads texts so); a column of values that share beginnings can be
(DELTA_BYTE_ARRAY), and `batch_rows` says how few rows of it are read at once.

The footer is read here, too: the library's own objects of a footer end the process where its parts do not fit together.

Source: Apache Parquet, "File Format" (parquet.thrift: FileMetaData, PageHeader); Apache Thrift,
"Thrift Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from verticil.shared.documents.foreign_files.limits import FOOTER_BYTES, PAGE_BYTES, PAGES_BYTES, PART_BYTES

_HEADER_BYTES: Final = 1 << 16
"""Read at once for one header; one with long statistics takes a second read of `_LONGEST_HEADER`."""
_LONGEST_HEADER: Final = 16 << 20
_DEEPEST: Final = 16
_SHARED_BEGINNINGS: Final = 7
"""The number of the encoding DELTA_BYTE_ARRAY."""
_LENGTHS_FIRST: Final = 6
"""The number of the encoding DELTA_LENGTH_BYTE_ARRAY."""
_I32: Final = 5
_I64: Final = 6
_BINARY: Final = 8
_LIST: Final = 9
_STRUCTURE: Final = 12
_FEWEST_BYTES: Final = 8
"""No page with its header takes fewer."""


class LargePagesError(ValueError):
    """A Parquet file whose pages or footer are larger than a reader takes; the text says which, and no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSizes:
    """What the pages of some columns of a Parquet file inflate to.

    Attributes:
        total: bytes of all pages.
        largest: bytes of the largest page of each column, by name.
        per_value: bytes of a value, of the page where that is most, of each column.
        sharing: columns with values that share beginnings, so that a page's values can be larger than the page.
        dense: of each row group the columns that the library cannot read as dictionaries.
    """

    total: int
    largest: dict[str, int]
    per_value: dict[str, float]
    sharing: frozenset[str]
    dense: tuple[frozenset[str], ...]

    def batch_rows(self, most: int, dense: Collection[str] = ()) -> int:
        """Return how many rows are read at once, so that their values stay within some `PART_BYTES`.

        Args:
            most: rows in any case.
            dense: columns of texts that are not kept as dictionaries: a page's values can be larger than the page.
        """
        shared = [self.largest.get(name, 0) for name in {*self.sharing, *dense}]
        return max(1, min(most, int(PART_BYTES / max(1.0, *shared, sum(self.per_value.values())))))


def check_footer(path: Path) -> None:
    """Check how large the footer of a Parquet file is.

    Raises:
        LargePagesError: it has more than `FOOTER_BYTES`.
        OSError: the file cannot be read.
    """
    if problem := footer_problem(path):
        raise LargePagesError(problem)


def footer_problem(path: Path) -> str:
    """Say what is wrong with the length of a footer; empty: nothing.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(-min(8, path.stat().st_size), 2)
        end = file.read(8)
    is_large = len(end) == 8 and end.endswith(b"PAR1") and int.from_bytes(end[:4], "little") > FOOTER_BYTES
    return f"its footer has more than {FOOTER_BYTES >> 20} MiB" if is_large else ""


def page_sizes(path: Path, wanted: Collection[str] | None = None) -> PageSizes:
    """Read the headers of all pages of some columns.

    Args:
        path: the file.
        wanted: names of the columns; None: all.

    Raises:
        LargePagesError: a page inflates to more than `PAGE_BYTES`, or the columns' largest pages to more than `PAGES_BYTES`.
        ValueError: the footer or a header is damaged.
        OSError: the file cannot be read.
    """
    largest: dict[str, int] = {}
    per_value: dict[str, float] = {}
    sharing: set[str] = set()
    dense: list[frozenset[str]] = []
    n_pages = total = 0
    with path.open("rb") as file:
        size = file.seek(0, 2)
        for columns in _row_groups(file, size):
            not_kept = set[str]()
            for column in columns:
                name = column.name
                if column.n_values <= 0 or (wanted is not None and name not in wanted):
                    continue  # of no values the library reads no page
                start = column.first_page
                if column.dictionary_page:
                    start = min(start, column.dictionary_page)
                for page in _pages(file, start, start + column.stored):
                    n_pages, total = n_pages + 1, total + page.inflated
                    if n_pages * _FEWEST_BYTES > size:
                        raise LargePagesError("its columns name the same pages several times")
                    if page.encoding in {_SHARED_BEGINNINGS, _LENGTHS_FIRST}:
                        not_kept.add(name)
                        if page.encoding == _SHARED_BEGINNINGS or column.dictionary_page is not None:
                            sharing.add(name)
                    if page.inflated > PAGE_BYTES:
                        raise LargePagesError(
                            f"column '{name}': a page inflates to {page.inflated >> 20} MiB, expected at most {PAGE_BYTES >> 20}"
                        )
                    largest[name] = max(largest.get(name, 0), page.inflated)
                    if page.n_values:
                        per_value[name] = max(per_value.get(name, 0.0), page.inflated / page.n_values)
            dense.append(frozenset(not_kept))
    if (together := sum(largest.values())) > PAGES_BYTES:
        raise LargePagesError(
            f"pages of {len(largest)} columns inflate to {together >> 20} MiB together, expected at most {PAGES_BYTES >> 20}"
        )
    return PageSizes(total=total, largest=largest, per_value=per_value, sharing=frozenset(sharing), dense=tuple(dense))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """What the footer says of a column of a row group.

    Attributes:
        name: of the column, or of the one that it is a part of.
        n_values: that it has.
        stored: bytes of all its pages with their headers.
        first_page, dictionary_page: where they begin; None: it says nothing of a dictionary.
    """

    name: str
    n_values: int
    stored: int
    first_page: int
    dictionary_page: int | None


def _row_groups(file: BinaryIO, size: int) -> list[list[_Column]]:
    """Read the footer of a file of so many bytes: of each row group its columns."""
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if len(end) < 8 or not end.endswith(b"PAR1") or length > min(FOOTER_BYTES, size - 8):
        raise ValueError("no footer")
    file.seek(size - 8 - length)
    try:
        return _Compact(file.read(length)).row_groups()
    except IndexError:
        raise ValueError("a footer that is cut off") from None


@dataclass(frozen=True, slots=True)
class _Page:
    """The header of a page.

    Attributes:
        length: its own bytes.
        stored, inflated: bytes of the page.
        encoding: the number of how its values are encoded.
        n_values: that it has; 0: it is a dictionary.
    """

    length: int
    stored: int
    inflated: int
    encoding: int
    n_values: int


def _pages(file: BinaryIO, start: int, end: int) -> Iterator[_Page]:
    """Yield the headers of the pages that begin between two places of a file.

    For files of an old writer the library looks 100 bytes further (PARQUET-816), which inflate to little.
    """
    while start < end:
        page = _header_at(file, start)
        if min(page.stored, page.inflated, page.n_values) < 0:
            raise ValueError("a page of a negative size")
        yield page
        start += page.length + page.stored


def _header_at(file: BinaryIO, start: int) -> _Page:
    for most in (_HEADER_BYTES, _LONGEST_HEADER):
        file.seek(start)
        data = file.read(most)
        try:
            return _Compact(data).page()
        except IndexError:
            if len(data) < most:
                break
    raise ValueError("a page without a header")


def _unfolded(value: int) -> int:
    """Return the signed number behind a zigzag one."""
    return (value >> 1) ^ -(value & 1)


class _Compact:
    """A reader of Thrift's compact protocol, of as much of it as a footer and the header of a page need."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def row_groups(self) -> list[list[_Column]]:
        """Read a FileMetaData: field 4 are the row groups, their field 1 the columns, whose field 3 says where they are."""
        groups: list[list[_Column]] = []
        for number, kind in self._fields():
            if (number, kind) == (4, _LIST):
                groups = [self._row_group() for _ in range(self._list_of(_STRUCTURE))]
            else:
                self._skip(kind, 0)
        return groups

    def _row_group(self) -> list[_Column]:
        columns: list[_Column] = []
        for number, kind in self._fields():
            if (number, kind) == (1, _LIST):
                columns = [self._column() for _ in range(self._list_of(_STRUCTURE))]
            else:
                self._skip(kind, 1)
        return columns

    def _column(self) -> _Column:
        """Read a Parquet ColumnChunk."""
        numbers: dict[int, int] = {}
        path: list[bytes] = []
        for number, kind in self._fields():
            if (number, kind) != (3, _STRUCTURE):
                self._skip(kind, 2)
                continue
            for inner, kind_of_inner in self._fields():
                if kind_of_inner == _I64:
                    numbers[inner] = self._i64()
                elif (inner, kind_of_inner) == (3, _LIST):
                    path = self._texts()
                else:
                    self._skip(kind_of_inner, 3)
        if not {5, 7, 9} <= numbers.keys() or not path:
            raise ValueError("a column without a place")
        name = b".".join(path).decode("utf-8", "replace").partition(".")[0]
        return _Column(
            name=name, n_values=numbers[5], stored=numbers[7], first_page=numbers[9], dictionary_page=numbers.get(11)
        )

    def _texts(self) -> list[bytes]:
        texts: list[bytes] = []
        for _ in range(self._list_of(_BINARY)):
            length = self._varint()
            texts.append(self._data[self._at : self._at + length])
            self._at += length
            if self._at > len(self._data):
                raise IndexError
        return texts

    def _list_of(self, expected: int) -> int:
        """Read the head of a list whose values have a type; return how many they are."""
        length, kind = self._list()
        if kind != expected:
            raise ValueError("a list of values of another type")
        return length

    def _list(self) -> tuple[int, int]:
        """Read the head of a list: how many values it has, and their type."""
        head = self._byte()
        return head >> 4 if head >> 4 < 15 else self._varint(), head & 0x0F

    def page(self) -> _Page:
        """Read a PageHeader: field 2 is the inflated size, 3 the stored one, 5, 7 and 8 are the headers of its kinds."""
        numbers: dict[int, int] = {}
        n_values = encoding = 0
        for number, kind in self._fields():
            if kind == _I32:
                numbers[number] = self._i32()
            elif kind == 12 and number in {5, 7, 8}:
                inner = self._numbers()
                encoding = inner.get(4 if number == 8 else 2, 0)
                n_values = 0 if number == 7 else inner.get(1, 0)
            else:
                self._skip(kind, 0)
        if not {2, 3} <= numbers.keys():
            raise ValueError("a page without a size")
        return _Page(self._at, numbers[3], numbers[2], encoding, n_values)

    def _numbers(self) -> dict[int, int]:
        """Read the 32-bit numbers of a structure, by their fields."""
        numbers: dict[int, int] = {}
        for number, kind in self._fields():
            if kind == _I32:
                numbers[number] = self._i32()
            else:
                self._skip(kind, 1)
        return numbers

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number without an end")

    def _i32(self) -> int:
        """Read a number as the library does, which keeps its last 32 bits."""
        return _unfolded(self._varint() & 0xFFFFFFFF)

    def _i64(self) -> int:
        """Read a number as the library does, which keeps its last 64 bits."""
        return _unfolded(self._varint() & 0xFFFFFFFFFFFFFFFF)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a structure; who takes one reads its value."""
        number = 0
        while byte := self._byte():
            number = number + (byte >> 4) if byte >> 4 else _unfolded(self._varint() & 0xFFFF)
            number = (number + 0x8000) % 0x10000 - 0x8000
            yield number, byte & 0x0F

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        if kind in {1, 2}:
            return
        if kind == 3:
            self._at += 1
        elif kind in {4, 5, 6}:
            self._varint()
        elif kind == 7:
            self._at += 8
        elif kind == 8:
            length = self._varint()
            self._at += length
        elif kind in {9, 10}:
            length, inner = self._list()
            for _ in range(length):
                # A truth value takes a byte in a list, and none in a structure.
                self._skip(3 if inner in {1, 2} else inner, depth + 1)
        elif kind == 12:
            for _, kind_of_field in self._fields():
                self._skip(kind_of_field, depth + 1)
        else:
            raise ValueError("a type that no header has")
        if self._at > len(self._data):
            raise IndexError
