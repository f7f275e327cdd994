"""What the Synthetic Data Vault reads of a release's tables, by the rules of its page "Metadata JSON" (docs.sdv.dev)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.related import STUDY
from verticil.shared.release.formats.sdv_metadata import sdv_metadata
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.related_rows import tables_of_records
from verticil.shared.synthesis.synthesis import decode_of_study

KEYS_OF_TYPES = {
    "id": {"regex_format"},
    "numerical": set(),
    "categorical": {"order", "order_by"},
    "boolean": set(),
    "datetime": {"datetime_format"},
    "unknown": {"pii"},
}
"""Type of a column -> what may stand beside `sdtype`."""
TYPED = STUDY.replace(
    "[tables]",
    """[identifier]
name = "pid"
format = "P%04d"
[[variable]]
party = "clinic"
table = "visits"
name = "cost"
type = "number"
bins = [0, 10, 100]
decimals = 2
[[variable]]
party = "clinic"
name = "left"
type = "datetime"
bins = [2020-01-01T00:00:00Z, 2020-07-01T00:00:00Z, 2021-01-01T00:00:00Z]
format = "DD.MM.YYYY hh:mm"
[[variable]]
party = "clinic"
name = "insured"
type = "boolean"
categories = ["true", "false"]
[tables]""",
)


def problems(metadata: dict[str, Any]) -> list[str]:
    """Name what the page does not allow."""
    found = [] if metadata.keys() == {"METADATA_SPEC_VERSION", "tables", "relationships"} else ["keys"]
    found += [] if metadata["METADATA_SPEC_VERSION"] == "V1" else ["version"]
    tables = metadata["tables"]
    for name, table in tables.items():
        columns = table["columns"]
        found += [f"{name}: keys"] if set(table) - {"primary_key", "columns"} else []
        if "primary_key" in table and columns.get(table["primary_key"], {}).get("sdtype") != "id":
            found.append(f"{name}: primary key")
        for column, rule in columns.items():
            if set(rule) - {"sdtype"} - KEYS_OF_TYPES.get(rule["sdtype"], {"nothing"}):
                found.append(f"{name}.{column}")
    for each in metadata["relationships"]:
        parent, child = tables[each["parent_table_name"]], tables[each["child_table_name"]]
        if parent.get("primary_key") != each["parent_primary_key"] or parent is child:
            found.append("parent")
        if child["columns"].get(each["child_foreign_key"], {}).get("sdtype") != "id":
            found.append("child")
        if child.get("primary_key") == each["child_foreign_key"]:
            found.append("child key")
    return found


def study(text: str) -> Study:
    return read_study_text(text, Path(), by_owner=True)


@pytest.mark.parametrize("text", [STUDY, TYPED])
def test_tables_are_described_as_they_are(text: str) -> None:
    read = study(text)
    metadata = json.loads(json.dumps(sdv_metadata(read)))
    assert problems(metadata) == []
    codes = [np.zeros(4, variable.code_dtype) for variable in read.schema.variables]
    frames = next(tables_of_records([decode_of_study(read, codes, np.random.default_rng(1))], read))
    assert {name: list(table["columns"]) for name, table in metadata["tables"].items()} == {
        name: list(frame.columns) for name, frame in frames.items()
    }
    assert metadata["relationships"] == [
        {
            "parent_table_name": "people",
            "parent_primary_key": "person" if text == STUDY else "pid",
            "child_table_name": "visits",
            "child_foreign_key": "person" if text == STUDY else "pid",
        }
    ]


def test_types_are_those_of_the_columns() -> None:
    tables = sdv_metadata(study(TYPED))["tables"]
    people, visits = tables["people"]["columns"], tables["visits"]["columns"]
    assert people["left"] == {"sdtype": "datetime", "datetime_format": "%d.%m.%Y %H:%M"}
    assert people["insured"] == {"sdtype": "boolean"}
    assert people["age"] == {"sdtype": "numerical"}
    assert visits["admitted"] == {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"}
    assert visits["cost"] == {"sdtype": "numerical"}
    assert visits["ward"] == {"sdtype": "categorical"}
    assert visits["row"] == {"sdtype": "numerical"}


def test_the_rules_of_the_page_find_a_planted_fault() -> None:
    metadata = sdv_metadata(study(STUDY))
    metadata["tables"]["people"]["columns"]["person"] = {"sdtype": "categorical"}
    metadata["tables"]["visits"]["columns"]["ward"] = {"sdtype": "category"}
    metadata["relationships"][0]["child_foreign_key"] = "ward"
    assert problems(metadata) == ["people: primary key", "child"]
    metadata["tables"]["visits"]["columns"]["row"] = {"sdtype": "integer", "unit": "1"}
    assert "visits.row" in problems(metadata)
