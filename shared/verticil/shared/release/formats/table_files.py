"""The synthetic table as files: CSV and Parquet, and datapackage.json, which describes them.

Tables are written each atomically, piece by piece, and with the same bytes for the same pieces.

A file appears under its name only when it is whole and on the disk. Categorical columns become dictionary columns in Parquet;
the CSV is UTF-8 with a header, commas, quotes only where they are needed, and line feeds. No index is written.

datapackage.json is the table described as a Frictionless Data Package, version 2.

Categories are written twice: as `categories`, which version 2 of the standard knows, and as `constraints.enum`, which readers
enforce (frictionless-py 5.21 accepts `categories` without checking them). A variable with bins is a number inside the outer
edges, and null where the value is missing; when it has more categories besides (`Study.labels_missing_numbers`), the column holds
both and is text. The owner of each variable travels as `verticil:owner`.

Standard: Data Package 2.0, Frictionless Standards, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from verticil.shared.core.errors import DataFault
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.written_values.dates import strptime_format
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.formats.related_package import related_documents
from verticil.shared.storage.disk import is_disk_full, write_fault
from verticil.shared.storage.durable import rename, sync_file
from verticil.shared.study.document import IdentifierRule, Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.typed_variables import written_format
from verticil.shared.synthesis.identifier import add_identifier
from verticil.shared.synthesis.typed_columns import csv_frame

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_CELLS: Final = 1 << 20
"""Cells of a table that are written as text together."""


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


def write_csv(
    frames: pd.DataFrame | Iterable[pd.DataFrame],
    path: Path,
    *,
    schema: Schema | None = None,
    identifier: IdentifierRule | None = None,
) -> None:
    """Write a table, or its pieces one after the other, as CSV. Only one piece is held in memory.

    Args:
        frames, path: the table and its file.
        schema: of its columns, of which typed ones are written as their types say; None: none is typed.
        identifier: the key that is written in front; None: none is.

    Raises:
        DataFault: DISK_FULL.
    """

    def write(file: BinaryIO) -> None:
        for number, piece in enumerate(add_identifier(frames, identifier)):
            frame = piece if schema is None else csv_frame(piece, schema)
            if number == 0:
                _csv_of(frame.iloc[:0], file, header=True)
            _append_csv(frame, file)

    write_atomically(path, write)


def _append_csv(frame: pd.DataFrame, file: BinaryIO) -> None:
    """Write the rows of a table as pandas does, by pyarrow (a quarter of the time) where the bytes are the same."""
    import pyarrow as pa
    from pyarrow import csv

    table = pa.Table.from_pandas(frame, preserve_index=False)
    rows = max(_CELLS // max(len(table.columns), 1), 1)
    for start in range(0, len(frame), rows):
        columns = [_as_texts(column) for column in table.slice(start, rows).columns]
        if len(columns) > 1 and None not in columns:  # pandas quotes an empty line
            buffer = pa.BufferOutputStream()
            try:
                options = csv.WriteOptions(include_header=False, quoting_style="none")
                csv.write_csv(pa.table(columns, table.column_names), buffer, options)
            except pa.ArrowInvalid:  # a text that needs quotes; pyarrow quotes all texts of a column or none
                pass
            else:
                file.write(buffer.getvalue())
                continue
        _csv_of(frame.iloc[start : start + rows], file, header=False)


def _as_texts(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return a column that pyarrow writes as pandas does; None: there is none."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_float64(kind):
        numbers = column.to_numpy()
        size = np.abs(numbers[~np.isnan(numbers)])
        if ((size != 0) & ((size < 1e-4) | (size >= 1e9))).any():  # one of both writes these with an exponent
            return None
        texts = np.array(column.cast(pa.string()).to_numpy())
        texts[numbers == np.floor(numbers)] += ".0"
        return pa.chunked_array([pa.array(texts, type=pa.string())])
    same = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return column if same else None


def _csv_of(frame: pd.DataFrame, file: BinaryIO, *, header: bool) -> None:
    frame.to_csv(file, index=False, header=header, encoding="utf-8", lineterminator="\n")


def write_parquet(
    frames: pd.DataFrame | Iterable[pd.DataFrame],
    path: Path,
    *,
    metadata: Mapping[str, str] | None = None,
    identifier: IdentifierRule | None = None,
) -> None:
    """Write a table, or its pieces one after the other, as Parquet (zstd); only one piece is held in memory.

    Args:
        frames: the table; pieces have the same columns, types and categories.
        path: the file.
        metadata: added to the file's key-value metadata.
        identifier: the key that is written in front; None: none is.

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
            for frame in add_identifier(frames, identifier):
                table = pa.Table.from_pandas(frame, preserve_index=False)
                if writer is None:
                    schema = table.schema.with_metadata({**(table.schema.metadata or {}), **extra})
                    writer = stack.enter_context(pq.ParquetWriter(file, schema, compression="zstd"))
                writer.write_table(table.replace_schema_metadata(writer.schema.metadata))
            if writer is None:
                raise ValueError("a table without pieces has no columns")

    write_atomically(path, write)


def write_table(
    frames: pd.DataFrame | Iterable[pd.DataFrame],
    path: Path,
    *,
    schema: Schema,
    identifier: IdentifierRule | None = None,
) -> None:
    """Write a table as its file's ending says: CSV, else Parquet; arguments as of `write_csv`.

    Raises:
        DataFault: DISK_FULL, FILES_EXHAUSTED.
        Misuse: FILE_MISSING, the file cannot be written.
    """
    try:
        if path.suffix.lower() == ".csv":
            write_csv(frames, path, schema=schema, identifier=identifier)
        else:
            write_parquet(frames, path, identifier=identifier)
    except OSError as error:
        raise write_fault(error, path) from None


_PROFILE = "https://datapackage.org/profiles/2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One file of the package that holds the synthetic table.

    Attributes:
        name: name of the resource.
        path: file name inside the package.
        format: ``csv`` or ``parquet``.
        size: bytes.
        sha256: lower-case hex.
    """

    name: str
    path: str
    format: str
    size: int
    sha256: str


def datapackage(
    schema: Schema,
    study: Study,
    resources: Sequence[Resource] = (),
    *,
    created: str | None = None,
    bounded: bool = True,
    measure: Callable[[str], Resource] | None = None,
) -> Json:
    """Describe a release's synthetic table.

    Args:
        schema: columns in their order.
        study: for name, title and description.
        resources: the files that hold the table, all with the same columns.
        created: ISO 8601 time of publication.
        bounded: whether a bound holds for everybody.
        measure: returns a file of the release; needed for a study with related tables.

    Returns:
        The document; write it with `json_document.to_text`.
    """
    fields: list[Any] = [_field(variable, labelled=study.labels_missing_numbers) for variable in schema.variables]
    if (identifier := study.identifier) is not None:
        limits: dict[str, Json] = {"required": True, "unique": True}
        words = "The number of the record, made up; it says nothing of people."
        fields.insert(0, {"name": identifier.name, "type": "string", "description": words, "constraints": limits})
    table: dict[str, Json] = {
        "$schema": f"{_PROFILE}/tableschema.json",
        "fields": fields,
        "fieldsMatch": "exact",
        **({} if identifier is None else {"primaryKey": [identifier.name]}),
        # Among categories nothing is missing: missing values are one of their own.
        "missingValues": [] if all(field["constraints"].get("required") for field in fields) else [""],
    }
    return {
        "$schema": f"{_PROFILE}/datapackage.json",
        "name": study.id,
        "title": f"SYNTHETIC: {study.title}",
        "description": (
            f"{study.purpose}. Synthetic records drawn from a Bayesian network that was estimated from "
            f"{protocol_of(study).learned_from(study)}"
            + ("; no record is a real person's." if bounded else "; no bound covers them.")
        ),
        **({"created": created} if created is not None else {}),
        "contributors": [{"title": party, "roles": ["contributor"]} for party in study.parties],
        "resources": [
            *(_described(resource, table) for resource in resources),
            *(related_documents(study, measure, _described, _field_of(study)) if measure is not None else ()),
        ],
    }


def _field_of(study: Study) -> Callable[[Variable], dict[str, Json]]:
    return lambda variable: _field(variable, labelled=study.labels_missing_numbers)


def _described(resource: Resource, table: Mapping[str, Json]) -> dict[str, Json]:
    """Return the document of a file with a table."""
    return {
        "$schema": f"{_PROFILE}/dataresource.json",
        "name": resource.name,
        "path": resource.path,
        "type": "table",
        "format": resource.format,
        "mediatype": "text/csv" if resource.format == "csv" else "application/vnd.apache.parquet",
        **({"encoding": "utf-8"} if resource.format == "csv" else {}),
        # frictionless-py 5.21 measures no Parquet file, and finds any number of bytes wrong; the hash covers the size
        **({"bytes": resource.size} if resource.format == "csv" else {}),
        "hash": f"sha256:{resource.sha256}",
        "schema": {"$schema": f"{_PROFILE}/tableschema.json", **table},
    }


def _field(variable: Variable, *, labelled: bool) -> dict[str, Json]:
    owner = {"verticil:owner": variable.owner}
    if variable.kind is not None:
        return {**_typed_field(variable), **owner}
    if variable.bins is None:
        labels = list(variable.labels)
        return {
            "name": variable.name,
            "type": "string",
            "categories": labels,
            "constraints": {"required": True, "enum": labels},
            **owner,
        }
    low, high = variable.bins[0], variable.bins[-1]
    bins: dict[str, Json] = {"verticil:bins": list(variable.bins)}
    words = list(variable.labels[variable.n_bins :])
    if len(words) > 1 or (words and labelled):
        kind = "whole numbers" if variable.integer else "numbers"
        description = f"{kind} from {low:.15g} to below {high:.15g}, or one of: {', '.join(words)}"
        return {
            "name": variable.name,
            "type": "string",
            "description": description,
            "constraints": {"required": True},
            **bins,
            **owner,
        }
    constraints: dict[str, Json] = {} if words else {"required": True}
    if words:
        bins = {"description": f"null: {words[0]}", **bins}
    if variable.integer:
        limits: Json = {**constraints, "minimum": math.ceil(low), "maximum": math.ceil(high) - 1}
        return {"name": variable.name, "type": "integer", "constraints": limits, **bins, **owner}
    # `maximum` besides `exclusiveMaximum`, for readers of version 1: rounding can make a value equal to the upper edge
    limits = {**constraints, "minimum": low, "maximum": high}
    return {"name": variable.name, "type": "number", "constraints": limits, **bins, **owner}


def _typed_field(variable: Variable) -> dict[str, Json]:
    """Describe a typed column: a record without a value is an empty field."""
    words = {variable.other, None if variable.missing is None else variable.missing.category} - {None}
    required: dict[str, Json] = {} if words else {"required": True}
    kind = str(variable.kind)
    field: dict[str, Json] = {
        "name": variable.name,
        "type": {"category": "string", "ordered": "string"}.get(kind, kind),
    }
    if variable.unit is not None:
        field["verticil:unit"] = variable.unit
    if variable.bins is not None:
        field["verticil:bins"] = list(variable.labels[: variable.n_bins])
    if variable.points:
        field["verticil:points"] = list(variable.labels[variable.n_bins : variable.n_valued])
    if kind in {"category", "ordered"}:
        missing = None if variable.missing is None else variable.missing.category
        labels: list[Json] = [label for label in variable.labels if label != missing]
        field |= {"categories": labels, **({"categoriesOrdered": True} if kind == "ordered" else {})}
        required = {**({"required": True} if missing is None else {}), "enum": labels}
    elif kind == "boolean":
        truths = {label.casefold(): label for label in variable.labels}
        field |= {"trueValues": [truths["true"]], "falseValues": [truths["false"]]}
    elif kind in {"date", "datetime", "time"}:
        field["format"] = strptime_format(written_format(variable))
    else:
        values = [*(variable.bins or ()), *variable.points]
        low, high = min(values), max(values)
        if variable.integer and high not in variable.points:
            high = math.ceil(high) - 1  # the upper edge is outside its bin
        ends = (math.ceil(low), int(high)) if variable.integer else (low, high)
        limits: dict[str, Json] = dict(zip(("minimum", "maximum"), ends, strict=True))
        required = {**required, **limits}
    return {**field, "constraints": required}
