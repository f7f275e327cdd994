"""What pages and batches inflate to is read from their own headers, and is what the writers of the files say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.foreign_files import arrow_batches, parquet_pages
from verticil.shared.documents.foreign_files.arrow_batches import LargeBatchError, check_batches
from verticil.shared.documents.foreign_files.limits import PART_BYTES
from verticil.shared.documents.foreign_files.parquet_pages import LargePagesError, check_footer, page_sizes
from verticil.shared.documents.foreign_files.reading import TooLargeError, read_at_most

N = 30_000
TABLE = pa.table(
    {
        "text": [f"person {i}" for i in range(N)],
        "same": ["x", "y", None] * (N // 3),
        "number": np.arange(N) % 7,
        "share": np.arange(N) / 8,
    }
)
WRITERS: dict[str, dict[str, Any]] = {
    "as pandas does": {},
    "pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "checksums and indexes": {"write_page_checksum": True, "write_page_index": True, "compression": "none"},
    "small groups": {"row_group_size": 1000, "data_page_size": 100, "compression": "gzip"},
    "other encodings": {
        "use_dictionary": False,
        "column_encoding": {
            "text": "DELTA_BYTE_ARRAY",
            "same": "DELTA_LENGTH_BYTE_ARRAY",
            "number": "DELTA_BINARY_PACKED",
            "share": "BYTE_STREAM_SPLIT",
        },
    },
    "encodings by the group": {"use_dictionary": ["same"], "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
}


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
def test_the_headers_of_pages_say_what_the_footer_says(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    parquet.write_table(TABLE, path, **options)
    metadata = parquet.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    total = n_pages = 0
    with path.open("rb") as file:
        for column in columns:
            start = column.dictionary_page_offset or column.data_page_offset
            for page in parquet_pages._pages(file, start, start + column.total_compressed_size):
                total, n_pages = total + page.length + page.inflated, n_pages + 1
    assert total == sum(column.total_uncompressed_size for column in columns)
    assert n_pages >= len(columns)
    with path.open("rb") as file:
        read = [column for group in parquet_pages._row_groups(file, path.stat().st_size) for column in group]
    assert [(each.name, each.n_values, each.stored, each.first_page, each.dictionary_page) for each in read] == [
        (
            column.path_in_schema,
            column.num_values,
            column.total_compressed_size,
            column.data_page_offset,
            column.dictionary_page_offset,
        )
        for column in columns
    ]
    sizes = page_sizes(path)
    assert sizes.largest.keys() == set(TABLE.column_names)
    assert sizes.total < total
    rule = DatasetRule(path=path, format="parquet", id="text")
    parts = list(read_parts(rule, header(rule)))
    assert [text for part in parts for text in part.columns["text"].texts()] == TABLE["text"].to_pylist()
    assert [text for part in parts for text in part.columns["same"].texts()] == ["x", "y", ""] * (N // 3)


def test_columns_that_are_no_dictionaries_are_named_group_by_group(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    parquet.write_table(TABLE, path, row_group_size=20_000, **WRITERS["other encodings"])
    sizes = page_sizes(path)
    assert sizes.sharing == {"text"}
    assert sizes.dense == ({"text", "same"}, {"text", "same"})
    assert sizes.batch_rows(65_536) == PART_BYTES // sizes.largest["text"]
    assert page_sizes(path, ["same", "number"]).batch_rows(65_536) == 65_536


def test_pages_of_many_columns_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "people.parquet"
    parquet.write_table(TABLE, path)
    monkeypatch.setattr(parquet_pages, "PAGES_BYTES", 300_000)
    with pytest.raises(LargePagesError, match="pages of 4 columns inflate to"):
        page_sizes(path)
    page_sizes(path, ["same"])


def test_a_footer_that_names_the_same_pages_again_and_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a small footer makes a long work."""
    path = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"a": [1]}), path)
    groups = parquet_pages._row_groups
    monkeypatch.setattr(parquet_pages, "_row_groups", lambda file, size: 100 * groups(file, size))
    with pytest.raises(LargePagesError, match="the same pages several times"):
        page_sizes(path)


def test_a_footer_whose_parts_do_not_fit_together_does_not_end_the_process(tmp_path: Path) -> None:
    """The library's own object of such a column throws where nothing catches: fuzzing has found it."""
    path = tmp_path / "people.parquet"
    parquet.write_table(pa.table({"a": ["x", "y", None] * 20}), path)
    data, optional = path.read_bytes(), b"\x25\x02\x18\x01a"  # of the schema: field 3 is 1, field 4 is the name
    assert data.count(optional) == 1
    path.write_bytes(data.replace(optional, b"\x25\x00" + optional[2:]))
    with pytest.raises(DataFault) as caught:
        list(read_parts(DatasetRule(path=path, format="parquet", id="a"), ["a"]))
    assert caught.value.code == "DATA_UNREADABLE"


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_a_footer_that_is_cut_off_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    parquet.write_table(TABLE, path)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - cut] + (length - cut).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=r"no footer|cut off"):
        page_sizes(path)


@pytest.mark.parametrize(
    ("header_bytes", "inflated"),
    [
        (b"\x15\x00\x15\x14\x15\x06\x00", 10),
        (b"\x15\x00\x15\x14\x06\x04\x06\x15\x06\x00", 10),  # a number of 64 bits is none of these fields
        (b"\x15\x00\x15\x94\x80\x80\x80\x10\x15\x06\x00", 10),  # of 33 bits, of which the library keeps 32
    ],
)
def test_a_header_is_read_as_the_library_reads_it(header_bytes: bytes, inflated: int) -> None:
    assert parquet_pages._Compact(header_bytes).page().inflated == inflated


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x00", b"\x1c" * 99, b"\x15\x00\x15\xff\xff", b"\x0d" * 30])
def test_a_damaged_header_is_an_error(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        parquet_pages._Compact(data).page()


def test_a_footer_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "people.parquet"
    parquet.write_table(TABLE, path)
    check_footer(path)
    monkeypatch.setattr(parquet_pages, "FOOTER_BYTES", 100)
    with pytest.raises(LargePagesError, match="its footer"):
        check_footer(path)


@pytest.mark.parametrize("packed", [None, "lz4", "zstd"])
@pytest.mark.parametrize("new", [ipc.new_file, ipc.new_stream])
def test_batches_of_arrow_say_what_they_inflate_to(
    new: Any, packed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "people.arrow"
    table = TABLE.append_column("kind", pa.array(["a", "b"] * (N // 2)).dictionary_encode())
    with new(str(path), table.schema, options=ipc.IpcWriteOptions(compression=packed)) as writer:
        writer.write_table(table, max_chunksize=N // 2)
    check_batches(path)
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES", 1000)
    check_batches(path)  # what is stored is large, too
    monkeypatch.setattr(arrow_batches, "INFLATION", 1)
    if packed is None:
        check_batches(path)
        return
    with pytest.raises(LargeBatchError, match="a batch inflates to"):
        check_batches(path)
    exact = max(batch.nbytes for batch in table.to_batches(max_chunksize=N // 2))
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES", exact + 1000)
    check_batches(path)
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES", exact // 2)
    with pytest.raises(LargeBatchError):
        check_batches(path)


def test_a_damaged_arrow_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "people.arrow"
    for data in (b"ARROW1", b"ARROW1\0\0" + b"\x7f" * 40, b"\xff\xff\xff\xff\x10\0\0\0" + b"\x7f" * 16, b"\x7f" * 100):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"header|footer"):
            check_batches(path)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b"12345")
    assert read_at_most(path, 5) == b"12345"
    with pytest.raises(TooLargeError, match="more than 4 bytes"):
        read_at_most(path, 4)
