"""The tables of a release as the Synthetic Data Vault describes tables: names, types, keys and which row belongs to whom.

The form is "V1" of that project's page "Metadata JSON" (docs.sdv.dev), for its `Metadata.load_from_dict` and for its metrics.
Nothing of the project is needed here, and its licence (Business Source License) keeps it from being a dependency.
"""

from __future__ import annotations

from typing import Any, Final

from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import Study
from verticil.shared.study.typed_variables import written_format
from verticil.shared.synthesis.related_rows import PEOPLE, key_rule, schemas_of, written_schemas

_WORDS: Final = (
    ("YYYY", "%Y"),
    ("YY", "%y"),
    ("MON", "%b"),
    ("MM", "%m"),
    ("DD", "%d"),
    ("hh", "%H"),
    ("mm", "%M"),
    ("ss", "%S"),
    (".f", ".%f"),
)
"""What a pattern of dates has, and what Python's `strptime` calls it."""


def sdv_metadata(study: Study) -> dict[str, Any]:
    """Return the description of a release's tables (`release.tables()`), as JSON has it.

    Args:
        study: of the release. Without related tables there is one table, ``people``.
    """
    key = key_rule(study).name if study.related else None if study.identifier is None else study.identifier.name
    schemas = written_schemas(study) if study.related else schemas_of(study)
    tables = {name: _table(schema, key, is_parent=name == PEOPLE) for name, schema in schemas.items()}
    relationships = [
        {
            "parent_table_name": PEOPLE,
            "parent_primary_key": key,
            "child_table_name": table.name,
            "child_foreign_key": key,
        }
        for table in study.related
    ]
    return {"METADATA_SPEC_VERSION": "V1", "tables": tables, "relationships": relationships}


def _table(schema: Schema, key: str | None, *, is_parent: bool) -> dict[str, Any]:
    """Return one table's description; rows of people have no key of one column of their own."""
    keys = {} if key is None else {key: {"sdtype": "id"}}
    columns = {**keys, **{variable.name: _column(variable) for variable in schema.variables}}
    return {**({"primary_key": key} if is_parent and key is not None else {}), "columns": columns}


def _column(variable: Variable) -> dict[str, str]:
    if variable.kind in ("date", "datetime"):
        return {"sdtype": "datetime", "datetime_format": _strptime(written_format(variable))}
    if variable.kind == "boolean":
        return {"sdtype": "boolean"}
    if variable.kind in ("integer", "number") or (variable.kind is None and variable.bins is not None):
        return {"sdtype": "numerical"}
    return {"sdtype": "categorical"}


def _strptime(pattern: str) -> str:
    """Return a pattern of dates as `strptime` takes it.

    >>> _strptime("DD.MM.YYYY hh:mm")
    '%d.%m.%Y %H:%M'
    """
    for word, sign in _WORDS:
        pattern = pattern.replace(word, sign)
    return pattern
