"""What a data package says of related tables: their columns, the key of people, and that every row points to a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from verticil.shared.numerics.model.schema import Variable
from verticil.shared.related.tables import RelatedTable
from verticil.shared.study.document import Study
from verticil.shared.synthesis.related_rows import PEOPLE, key_rule, row_column, written_schemas

if TYPE_CHECKING:
    from verticil.shared.release.formats.table_files import Resource

FORMATS: Final = ("csv", "parquet")
"""Each table is written in both."""


def related_documents(
    study: Study,
    measure: Callable[[str], Resource],
    describe: Callable[[Resource, dict[str, Any]], dict[str, Any]],
    fields: Callable[[Variable], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the documents of the files of related tables; of a study without them none.

    Args:
        study: the study.
        measure: returns a file of the release as a resource.
        describe: returns the resource's document.
        fields: returns the document of a column.
    """
    if not study.related:
        return []
    key = key_rule(study).name
    words = "The number of the person, made up; it says nothing of people."
    documents: list[dict[str, Any]] = []
    tables = {table.name: table for table in study.related}
    for name, schema in written_schemas(study).items():
        table = tables.get(name)
        own = {"name": key, "type": "string", "description": words, "constraints": {"required": True}}
        if table is None:
            own["constraints"] = {"required": True, "unique": True}
        document: dict[str, Any] = {
            "fields": [own, *(_row_field(fields(variable), table) for variable in schema.variables)],
            "fieldsMatch": "exact",
            "missingValues": [""],
            "primaryKey": [key] if table is None else [key, row_column(table)],
        }
        for form in FORMATS:
            reference = {"fields": [key], "reference": {"resource": f"{PEOPLE}-{form}", "fields": [key]}}
            keys = {} if table is None else {"foreignKeys": [reference]}
            documents.append(describe(measure(f"{name}.{form}"), {**document, **keys}))
    return documents


def _row_field(field: dict[str, Any], table: RelatedTable | None) -> dict[str, Any]:
    """Return a column's document as rows keep it: a value that orders rows may lie beyond the last edge, as gaps add up."""
    if table is None or field["name"] != table.order or table.max_rows == 1:
        return field
    return {**field, "constraints": {key: value for key, value in field["constraints"].items() if key != "maximum"}}
