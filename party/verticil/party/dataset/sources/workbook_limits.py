"""What a workbook may hold, looked at before it is read: it is read as a whole, and its reader has no limits of its own.

A small file can say that it is large in several ways: its parts inflate to more than it says, two cells stand at the ends of a
sheet, one cell or row is repeated (.ods), one long text stands in many cells (.xlsx). Each is counted as the file is inflated,
a piece at a time.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Final

import numpy as np

from verticil.party.dataset.sources.source_table import DatasetRule, attempt, unreadable
from verticil.shared.documents.foreign_files.limits import MIB, SPARSE_CELLS, SPARSENESS, WORKBOOK_BYTES

_ERRORS: Final = (zipfile.BadZipFile, OSError, RuntimeError, EOFError, zlib.error, NotImplementedError)
_OVERLAP: Final = 512  # bytes of a piece that are looked at again with the next one
_CELL: Final = re.compile(rb'<c\s[^>]{0,80}?\br="([A-Z]{1,3})([0-9]{1,7})"')
_SHARED: Final = re.compile(rb't="s"[^>]{0,80}>\s{0,8}<v>([0-9]{1,9})</v>')
_TABLE: Final = re.compile(rb"<table:table-(row|cell)\b([^>]{0,4096})>|</table:table-(row|cell)>")
_REPEATED: Final = re.compile(rb'table:number-(?:rows|columns)-repeated="([0-9]{1,9})"')
_LOCAL_HEADER: Final = 30  # bytes before the name of a part


def check_workbook(rule: DatasetRule) -> None:
    """Refuse a workbook that would fill the memory, or has a password; one that is damaged is for its reader to name.

    Raises:
        DataFault: DATA_UNREADABLE.
    """
    if "EncryptedPackage".encode("utf-16-le") in (attempt(lambda: _ole_names(rule), OSError) or b""):
        raise _locked(rule)
    if not zipfile.is_zipfile(rule.path):
        return
    attempt(lambda: _check_archive(rule), *_ERRORS)


def _locked(rule: DatasetRule) -> Exception:
    return unreadable(rule, "the workbook has a password", hint="save it without one, or save the sheet as .csv")


def _ole_names(rule: DatasetRule) -> bytes:
    """Return the first names that a compound file (MS-CFB) says it holds; empty: it is none."""
    with rule.path.open("rb") as file:
        head = file.read(512)
        if not head.startswith(b"\xd0\xcf\x11\xe0"):
            return b""
        sector = 1 << min(head[30], 12)
        file.seek(sector * (int.from_bytes(head[48:52], "little") + 1))
        return file.read(sector * 4)


def _check_archive(rule: DatasetRule) -> None:
    with rule.path.open("rb") as file, zipfile.ZipFile(file) as archive:
        items = archive.infolist()
        is_locked = any(item.flag_bits & 1 for item in items) or _is_locked_sheet(archive)
        if is_locked:
            raise _locked(rule)
        sizes = (_inflated_size(file, item) for item in items)
        if sum(item.file_size for item in items) > WORKBOOK_BYTES or not _sum_is_below(sizes, WORKBOOK_BYTES):
            raise unreadable(
                rule, f"the workbook inflates to more than {WORKBOOK_BYTES // MIB} MiB", hint="save the sheet as .csv"
            )
        spans, size = _spans_of_ods(archive) if "content.xml" in archive.namelist() else _spans_of_xlsx(archive)
        if any(spanned > max(SPARSE_CELLS, SPARSENESS * n_cells) for spanned, n_cells in spans):
            raise unreadable(
                rule, "a sheet has few cells that stand very far apart", hint="save the rows of the table as .csv"
            )
        if size > WORKBOOK_BYTES:
            raise unreadable(
                rule,
                f"the texts of all cells have more than {WORKBOOK_BYTES // MIB} MiB: long ones stand in many",
                hint="leave out columns of free text",
            )


def _is_locked_sheet(archive: zipfile.ZipFile) -> bool:
    """Return whether a spreadsheet of OpenDocument is encrypted."""
    name = "META-INF/manifest.xml"
    if name not in archive.namelist():
        return False
    with archive.open(name) as file:
        return b"encryption-data" in file.read(MIB)


def _sum_is_below(sizes: Iterator[int], limit: int) -> bool:
    total = 0
    for size in sizes:
        total += size
        if total > limit:
            return False
    return True


def _inflated_size(file: IO[bytes], item: zipfile.ZipInfo) -> int:
    """Return to how many bytes a part inflates, whatever the archive says; above `WORKBOOK_BYTES` some number above it."""
    if item.compress_type != zipfile.ZIP_DEFLATED:
        return item.compress_size
    file.seek(item.header_offset + _LOCAL_HEADER - 4)
    lengths = file.read(4)
    file.seek(int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little"), 1)
    inflate, left, size = zlib.decompressobj(-zlib.MAX_WBITS), item.compress_size, 0
    while left > 0 and not inflate.eof and size <= WORKBOOK_BYTES:
        piece = file.read(min(left, MIB))
        if not piece:
            break
        left -= len(piece)
        while piece and size <= WORKBOOK_BYTES:
            size += len(inflate.decompress(piece, MIB))
            piece = inflate.unconsumed_tail
    return size


def _pieces(archive: zipfile.ZipFile, item: zipfile.ZipInfo | str) -> Iterator[bytes]:
    with archive.open(item) as file:
        while piece := file.read(MIB):
            yield piece


def _spans_of_xlsx(archive: zipfile.ZipFile) -> tuple[list[tuple[int, int]], int]:
    """Return how many cells each sheet spans and has, and the bytes of the texts of all cells, each counted where it stands."""
    strings = "xl/sharedStrings.xml"
    lengths, rest = list[int](), 0
    for piece in _pieces(archive, strings) if strings in archive.namelist() else ():
        *whole, last = piece.split(b"</si>")
        for part in whole:
            lengths.append(rest + len(part))
            rest = 0
        rest += len(last)
    sizes = np.array(lengths or [0], dtype=np.int64)
    spans, size = list[tuple[int, int]](), 0
    for item in archive.infolist():
        if item.filename.startswith("xl/worksheets/"):
            spanned, n_cells, texts = _span_of_sheet(archive, item, sizes)
            spans.append((spanned, n_cells))
            size += texts
    return spans, size


def _span_of_sheet(
    archive: zipfile.ZipFile, item: zipfile.ZipInfo, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[int, int, int]:
    n_cells, texts, rows, columns, rest = 0, 0, [1 << 30, 0], [1 << 30, 0], b""
    for chunk in _pieces(archive, item):
        piece = rest + chunk
        end = 0
        for match in _CELL.finditer(piece):
            column = 0
            for letter in match[1]:
                column = column * 26 + letter - 64
            row, end, n_cells = int(match[2]), match.end(), n_cells + 1
            rows, columns = (
                [min(rows[0], row), max(rows[1], row)],
                [min(columns[0], column), max(columns[1], column)],
            )
        places = [(int(match[1]), match.end()) for match in _SHARED.finditer(piece)]
        if places:
            known = np.array([place for place, _ in places if place < len(sizes)], dtype=np.int64)
            texts += int(sizes[known].sum())
            end = max(end, places[-1][1])
        rest = piece[max(end, len(piece) - _OVERLAP) :]
    spanned = (rows[1] - rows[0] + 1) * (columns[1] - columns[0] + 1) if n_cells else 0
    return spanned, n_cells, texts


def _spans_of_ods(archive: zipfile.ZipFile) -> tuple[list[tuple[int, int]], int]:
    """Return as `_spans_of_xlsx`, of all sheets together: a cell or a row of this format says how often it is repeated."""
    n_cells = size = height = width = last = 0
    row_times = column = times = offset = begun = row_size = 0
    has_value = row_has_value = False
    rest = b""
    for chunk in _pieces(archive, "content.xml"):
        piece = rest + chunk
        end = 0
        for match in _TABLE.finditer(piece):
            end = match.end()
            if match[3]:  # an end
                if match[3] == b"cell" and has_value:
                    row_size += times * (offset + match.start() - begun)
                    has_value = False
                if match[3] == b"row":
                    height, last = height + row_times, height + row_times if row_has_value else last
                    size += row_times * row_size
                continue
            repeated = _REPEATED.search(match[2])
            times = 1 if repeated is None else int(repeated[1])
            if match[1] == b"row":
                row_times, column, row_size, row_has_value = times, 0, 0, False
                height += times * match[2].endswith(b"/")
                continue
            column += times
            if b"value-type" in match[2]:
                n_cells, row_has_value, width = n_cells + 1, True, max(width, column)
                has_value, begun = not match[2].endswith(b"/"), offset + end
        kept = max(end, len(piece) - 4 * 1200)
        offset, rest = offset + kept, piece[kept:]
    return [(last * width, n_cells)], size
