"""datapackage.json and the tables it describes; frictionless-py is the other program."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.shared.documents.json_document import to_text
from verticil.shared.release.formats import table_files as tables
from verticil.shared.release.formats.table_files import Resource, datapackage, write_csv, write_parquet
from verticil.shared.storage.disk import is_disk_full


@pytest.fixture
def package(release_content, tmp_path: Path) -> Path:
    path = tmp_path / "synthetic.csv"
    write_csv(release_content.synthetic, path)
    resource = Resource(
        name="synthetic-csv",
        path=path.name,
        format="csv",
        size=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    document = datapackage(
        release_content.study.schema, release_content.study, [resource], created="2026-11-21T10:00:00Z"
    )
    (tmp_path / "datapackage.json").write_bytes(to_text(document))
    return tmp_path / "datapackage.json"


def test_fields_say_categories_limits_and_owners(package: Path):
    document = json.loads(package.read_text())
    fields = {field["name"]: field for field in document["resources"][0]["schema"]["fields"]}
    assert fields["region"] == {
        "name": "region", "type": "string", "categories": ["north & east", "south"],
        "constraints": {"required": True, "enum": ["north & east", "south"]}, "verticil:owner": "registry",
    }  # fmt: skip
    assert fields["age"]["type"] == "integer"
    assert fields["age"]["constraints"] == {"required": True, "minimum": 0, "maximum": 119}
    assert fields["weight"]["type"] == "number"
    assert fields["weight"]["description"] == "null: unknown"
    assert fields["weight"]["constraints"] == {"minimum": 0, "maximum": 300}
    assert document["resources"][0]["schema"]["missingValues"] == [""]
    assert [field["verticil:owner"] for field in fields.values()] == [
        "clinic",
        "clinic",
        "registry",
        "registry",
        "registry",
    ]
    assert document["title"].startswith("SYNTHETIC")


@pytest.mark.whole
def test_frictionless_accepts_the_table_and_enforces_categories_and_limits(package: Path):
    import frictionless

    report = frictionless.validate(str(package))
    assert report.valid, report.flatten(["type", "message"])
    text = (package.parent / "synthetic.csv").read_text()
    lines = text.splitlines()
    assert lines[0] == "age,smoker,income,weight,region"
    planted = [
        lines[0],
        lines[1].replace("north & east", "west").replace("south", "west"),
        "120" + lines[2][lines[2].index(",") :],
    ]
    (package.parent / "synthetic.csv").write_text("\n".join(planted) + "\n")
    document = json.loads(package.read_text())
    for key in ("bytes", "hash"):
        del document["resources"][0][key]
    package.write_text(json.dumps(document))
    errors = frictionless.validate(str(package)).flatten(["type", "fieldName"])
    assert sorted(errors) == [["constraint-error", "age"], ["constraint-error", "region"]]


def test_parquet_keeps_categories_and_the_same_table_gives_the_same_bytes(release_content, tmp_path: Path):
    for name in ("a", "b"):
        write_parquet(release_content.synthetic, tmp_path / name, metadata={"verticil:synthetic": "true"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = pd.read_parquet(tmp_path / "a")
    pd.testing.assert_frame_equal(again, release_content.synthetic)
    assert list(again["region"].cat.categories) == ["north & east", "south"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path: Path):
    with pytest.raises(Exception, match=r"."):
        write_parquet(pd.DataFrame({"x": [1, "a", object()]}), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_recognised():
    """`/dev/full` answers every write with ENOSPC."""
    with pytest.raises(OSError, match="space") as caught, Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    assert is_disk_full(caught.value)
    assert not is_disk_full(PermissionError(13, "denied"))


def _of(labels: list[str]) -> pd.Categorical:
    return pd.Categorical.from_codes(np.arange(300) % (len(labels) + 1) - 1, categories=pd.Index(labels, dtype="str"))


_SIZES = np.random.default_rng(5).random(300) * 10.0 ** (np.arange(300) % 50 - 25)
_COLUMNS = {
    "labels": _of(["x", "y z", " l", "ü", ""]),
    "quoted": _of(["x", "y,z"]), "quotes": _of(['say "x"', "y"]), "breaks": _of(["x", "y\rz", "y\nz"]),
    "whole": np.arange(300) - 7, "missing": pd.Series(np.arange(300), dtype="Int64").mask(np.arange(300) % 3 == 0),
    "plain": np.round(_SIZES.clip(0.01, 1e6), 3), "all sizes": _SIZES, "small": _SIZES.clip(1e-7, 1.0),
    "large": np.round(_SIZES.clip(1e9, 1e15)),
    "none": pd.Series(_SIZES.clip(0.01, 1e6)).mask(np.arange(300) % 4 == 0), "zeros": _SIZES * -0.0,
    "texts": pd.Series([f"{number:.2f}" for number in range(300)], dtype="str"), "flags": np.arange(300) % 2 == 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "names", [*((name, "whole") for name in _COLUMNS), ("labels",), ("plain",), tuple(_COLUMNS)], ids=",".join
)
def test_the_table_is_written_as_pandas_writes_it(names: tuple[str, ...], tmp_path: Path, monkeypatch) -> None:
    """Byte for byte, whether pyarrow writes the rows or pandas itself."""
    monkeypatch.setattr(tables, "_CELLS", 256)
    frame = pd.DataFrame({f"a,{place}": _COLUMNS[name] for place, name in enumerate(names)})
    write_csv(frame, tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_bytes() == frame.to_csv(index=False, lineterminator="\n").encode()
    empty = frame.iloc[:0]
    write_csv(empty, tmp_path / "empty.csv")
    assert (tmp_path / "empty.csv").read_bytes() == empty.to_csv(index=False, lineterminator="\n").encode()
