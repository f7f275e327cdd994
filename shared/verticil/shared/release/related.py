"""The related tables of a release: files with several rows a person, joined to the people by a made-up key.

They say nothing that the records do not say: both are read off the synthetic records, so who checks a release makes them again
and compares.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.shared.core.errors import GateFailed
from verticil.shared.documents.foreign_files.parquet_pages import LargePagesError
from verticil.shared.numerics.knowledge.columns import columns
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.release.formats.related_package import FORMATS
from verticil.shared.release.formats.table_files import write_csv, write_parquet
from verticil.shared.study.document import IdentifierRule, Study
from verticil.shared.synthesis.record_checks import check_parquet, table_bytes
from verticil.shared.synthesis.related_rows import PEOPLE, key_rule, tables_of_records, written_schemas

if TYPE_CHECKING:
    import pandas as pd


def related_files(study: Study) -> Mapping[str, str]:
    """Return the further files of a release of a study with related tables, with what each is; of another study nothing."""
    if not study.related:
        return {}
    key = key_rule(study).name
    words = {PEOPLE: f"The people of the synthetic records, a row each, with the made-up key '{key}'."} | {
        table.name: f"The rows of '{table.name}', up to {table.max_rows} of each person of people by '{key}'."
        for table in study.related
    }
    return {f"{name}.{form}": text for name, text in words.items() for form in FORMATS}


def related_limits(study: Study, n_records: int) -> dict[str, int]:
    """Return the most bytes of each file that `related_files` names: every person has all rows at most."""
    most = {table.name: table.max_rows for table in study.related}
    return {
        f"{name}.{form}": table_bytes(schema, n_records * most.get(name, 1), key_rule(study))
        for name, schema in (written_schemas(study) if study.related else {}).items()
        for form in FORMATS
    }


def write_related(folder: Path, pieces: Callable[[], Iterator[pd.DataFrame]], study: Study) -> list[str]:
    """Write the tables of a study; return the names of the files. A study without related tables has none.

    Args:
        folder: of the release.
        pieces: yields the synthetic records from the first one on, each time it is called.
        study: the study.
    """
    schemas, paths = written_schemas(study) if study.related else {}, list[str]()
    for name, schema in schemas.items():
        for form in FORMATS:
            frames = (tables[name] for tables in tables_of_records(pieces(), study))
            path = folder / f"{name}.{form}"
            if form == "csv":
                write_csv(frames, path, schema=schema)
            else:
                write_parquet(frames, path, metadata={"verticil:synthetic": "true"})
            paths.append(path.name)
    return paths


def check_related(directory: Path, study: Study, n_records: int) -> None:
    """Check that the tables of a release are those of its synthetic records, which were checked before.

    Raises:
        GateFailed: RELEASE_INVALID.
    """
    import pyarrow as pa

    schemas = written_schemas(study) if study.related else {}
    published, keys = columns(study.knowledge, study.schema).published, study.identifier

    def records() -> Iterator[pd.DataFrame]:
        for frame in _frames(directory / "synthetic.parquet", published, n_records, keys):
            yield frame if keys is None else frame.drop(columns=[keys.name])

    for name, schema in schemas.items():
        binary, text = directory / f"{name}.parquet", directory / f"{name}.csv"
        with tempfile.TemporaryDirectory(prefix="verticil-related-") as folder:
            again = Path(folder) / text.name
            write_csv((tables[name] for tables in tables_of_records(records(), study)), again, schema=schema)
            expected, n_rows = _digest(again), _n_lines(again) - 1
            if _digest(text) != expected:
                raise _invalid(text)
            try:
                write_csv(_frames(binary, schema, n_rows, key_rule(study)), again, schema=schema)
            except (pa.ArrowException, LargePagesError, OSError, ValueError, KeyError, TypeError) as error:
                raise _invalid(binary) from error
            if _digest(again) != expected:
                raise _invalid(binary)


def _frames(path: Path, schema: Schema, n_rows: int, keys: IdentifierRule | None) -> Iterator[pd.DataFrame]:
    """Read a Parquet file of a release piece by piece, after a look at its sizes; raises as `check_parquet`."""
    import pyarrow as pa
    from pyarrow import parquet

    rows, _ = check_parquet(path, schema, n_rows, identifier=keys)
    with parquet.ParquetFile(path) as file:
        if not n_rows:  # a file without rows has no batch, and a header all the same
            yield file.read().to_pandas()
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            yield pa.Table.from_batches([batch]).to_pandas()


def _invalid(path: Path) -> GateFailed:
    return GateFailed(
        "RELEASE_INVALID",
        f"{path}: does not hold the rows of the synthetic records",
        hint="do not use these tables",
    )


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _n_lines(path: Path) -> int:
    """Count the records of a CSV file, its header among them; a quoted line end is no end of a record."""
    import csv

    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.reader(file))
