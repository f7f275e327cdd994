"""The types that a file itself gives its columns: of Parquet; of other files none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.documents.foreign_files.parquet_pages import check_footer, page_sizes
from verticil.shared.documents.written_values.reading import Kind

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceType:
    """The type that a file gives a column.

    Attributes:
        kind: of a study.
        categories: of an ordered column, lowest first.
        timezone: of moments; empty: they have none.
    """

    kind: Kind
    categories: tuple[str, ...] = ()
    timezone: str = ""


def source_types(rule: DatasetRule) -> Mapping[str, SourceType]:
    """Return the type of each column that the file says one of."""
    if rule.format != "parquet" or not rule.path.is_file():
        return {}
    import pyarrow as pa
    from pyarrow import parquet

    try:
        check_footer(rule.path)
        schema = parquet.read_schema(rule.path)
        return {
            field.name: SourceType(
                kind=kind,
                categories=_categories(rule, field.name) if kind == "ordered" else (),
                timezone=(field.type.tz or "") if kind == "datetime" else "",
            )
            for field in schema
            if (kind := _kind(field.type)) is not None
        }
    except (pa.ArrowException, OSError, ValueError):  # for the reader of its rows to say
        return {}


def _categories(rule: DatasetRule, name: str) -> tuple[str, ...]:
    from pyarrow import parquet

    page_sizes(rule.path, [name])  # raises where a page inflates to too much
    with parquet.ParquetFile(rule.path) as file:
        for batch in file.iter_batches(batch_size=1, columns=[name]):
            return tuple(str(value) for value in batch.column(0).dictionary.to_pylist())
    return ()


def _kind(kind: pa.DataType) -> Kind | None:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return "ordered" if kind.ordered else "category"
    tests: tuple[tuple[Kind, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
        ("boolean", (pa.types.is_boolean,)),
        ("integer", (pa.types.is_integer,)),
        ("number", (pa.types.is_floating, pa.types.is_decimal)),
        ("date", (pa.types.is_date,)),
        ("datetime", (pa.types.is_timestamp,)),
        ("time", (pa.types.is_time,)),
    )
    return next((name for name, checks in tests if any(check(kind) for check in checks)), None)
