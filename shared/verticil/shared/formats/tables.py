"""Writing tables: CSV and Parquet, each atomically, piece by piece, and with the same bytes for the same pieces.

A file appears under its name only when it is whole and on the disk. Categorical columns become dictionary columns in Parquet;
the CSV is UTF-8 with a header, commas, quotes only where they are needed, and line feeds. No index is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from verticil.shared.disk import is_disk_full
from verticil.shared.durable import rename, sync_file
from verticil.shared.errors import DataFault

if TYPE_CHECKING:
    import pandas as pd


def write_atomically(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Make a file whole or not at all: write beside it, flush to the disk, rename.

    Args:
        path: the file; one that exists is replaced.
        write: writes the content to the open file.

    Raises:
        DataFault: DISK_FULL.
    """
    staging = path.with_name(f".{path.name}.partial")
    try:
        with staging.open("wb") as file:
            write(file)
            file.flush()
            sync_file(file.fileno(), staging)
        rename(staging, path)
    except OSError as error:
        if is_disk_full(error):
            raise DataFault(
                "DISK_FULL",
                f"{path.name}: the disk is full",
                hint=f"make room on the file system of {path.parent} and run again",
            ) from None
        raise
    finally:
        staging.unlink(missing_ok=True)


def write_csv(frames: pd.DataFrame | Iterable[pd.DataFrame], path: Path) -> None:
    """Write a table, or its pieces one after the other, as CSV. Only one piece is held in memory.

    Raises:
        DataFault: DISK_FULL.
    """

    def write(file: BinaryIO) -> None:
        for number, frame in enumerate(_pieces(frames)):
            frame.to_csv(file, index=False, header=number == 0, encoding="utf-8", lineterminator="\n")

    write_atomically(path, write)


def write_parquet(
    frames: pd.DataFrame | Iterable[pd.DataFrame], path: Path, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a table, or its pieces one after the other, as Parquet (zstd); only one piece is held in memory.

    Args:
        frames: the table; pieces have the same columns, types and categories.
        path: the file.
        metadata: added to the file's key-value metadata.

    Raises:
        DataFault: DISK_FULL.
        ValueError: there is no piece.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    extra = {key.encode(): value.encode() for key, value in (metadata or {}).items()}

    def write(file: BinaryIO) -> None:
        with ExitStack() as stack:
            writer: pq.ParquetWriter | None = None
            for frame in _pieces(frames):
                table = pa.Table.from_pandas(frame, preserve_index=False)
                if writer is None:
                    schema = table.schema.with_metadata({**(table.schema.metadata or {}), **extra})
                    writer = stack.enter_context(pq.ParquetWriter(file, schema, compression="zstd"))
                writer.write_table(table.replace_schema_metadata(writer.schema.metadata))
            if writer is None:
                raise ValueError("a table without pieces has no columns")

    write_atomically(path, write)


def _pieces(frames: pd.DataFrame | Iterable[pd.DataFrame]) -> Iterable[pd.DataFrame]:
    import pandas as pd

    return [frames] if isinstance(frames, pd.DataFrame) else frames
