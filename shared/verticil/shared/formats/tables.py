"""Writing tables: CSV and Parquet, each atomically and with the same bytes for the same table.

A file appears under its name only when it is whole and on the disk. Categorical columns become dictionary columns in Parquet;
the CSV is UTF-8 with a header, commas, quotes only where they are needed, and line feeds. No index is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from verticil.shared.disk import is_disk_full
from verticil.shared.errors import DataFault

__all__ = ["write_atomically", "write_csv", "write_parquet"]


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
            os.fsync(file.fileno())
        staging.replace(path)
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


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV.

    Raises:
        DataFault: DISK_FULL.
    """
    write_atomically(path, lambda file: frame.to_csv(file, index=False, encoding="utf-8", lineterminator="\n"))


def write_parquet(frame: pd.DataFrame, path: Path, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a table as Parquet (zstd), with `metadata` added to the file's key-value metadata.

    Raises:
        DataFault: DISK_FULL.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    extra = {key.encode(): value.encode() for key, value in (metadata or {}).items()}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **extra})

    def write(file: BinaryIO) -> None:
        pq.write_table(table, file, compression="zstd")

    write_atomically(path, write)
