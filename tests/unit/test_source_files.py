"""Tables in many files, and of Arrow: the same records however they are laid out, and what is wrong with them is said."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts
from verticil.party.dataset.sources.source_table import PART_ROWS, DatasetRule, Format
from verticil.party.dataset.sources.texts import text_column
from verticil.shared.core.errors import DataFault

TABLE = pa.table(
    {
        "id": pa.array([f"{i:03d}" for i in range(90)]),
        "sex": pa.array(["F", "M", None] * 30),
        "age": pa.array(range(90), pa.int16()),
        "note": pa.array(["not asked for"] * 90),
    }
)


def rows(rule: DatasetRule, *wanted: str) -> list[tuple[str, ...]]:
    """What is read, in order."""
    assert missing_columns(rule, header(rule), wanted) is None
    parts = [part for part in read_parts(rule, wanted) if part.n_rows]
    assert all(set(part.columns) == set(wanted) for part in parts)
    return [row for part in parts for row in zip(*(part.columns[name].texts() for name in wanted), strict=True)]


def write(path: Path, table: pa.Table, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        parquet.write_table(table, path, **more)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    else:
        feather.write_feather(table, str(path), **more)


def rule_of(path: Path, kind: Format) -> DatasetRule:
    return DatasetRule(path=path, format=kind, id="id")


def fault(rule: DatasetRule, *wanted: str) -> DataFault:
    with pytest.raises(DataFault) as caught:
        rows(rule, *wanted)
    assert not any(value in str(caught.value) for value in ("2019", "2020", "north"))
    return caught.value


EXPECTED = [(i, sex or "", str(age)) for i, sex, age, _ in zip(*TABLE.to_pydict().values(), strict=True)]


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "arrows"])
def test_one_file_a_folder_and_a_pattern_give_the_same_rows(tmp_path: Path, ending: str) -> None:
    """Also with the columns of one file in another order, and what lies beside the files."""
    kind: Format = "arrow" if ending in {"feather", "arrows"} else ending  # type: ignore[assignment]
    one = tmp_path / f"one.{ending}"
    write(one, TABLE)
    for number, names in enumerate((TABLE.column_names, TABLE.column_names[::-1], TABLE.column_names)):
        write(tmp_path / "many" / f"part-{number}.{ending}", TABLE[number * 30 : number * 30 + 30].select(names))
    (tmp_path / "many" / "_SUCCESS").touch()
    (tmp_path / "many" / "notes.doc").write_text("x")
    for path in (one, tmp_path / "many", tmp_path / "many" / f"part-*.{ending}"):
        assert rows(rule_of(path, kind), "id", "sex", "age") == EXPECTED


def test_folders_that_say_a_value_are_a_column(tmp_path: Path) -> None:
    """As Hive, Spark and pyarrow write them, also with signs that no folder can have, and without a value."""
    for folder, start in (("year=2020/area=a%2Fb", 0), ("year=2019/area=__HIVE_DEFAULT_PARTITION__", 30)):
        write(tmp_path / "lake" / folder / "x.parquet", TABLE[start : start + 30])
    expected = [(i, "2019", "") for i, _, _ in EXPECTED[30:60]] + [(i, "2020", "a/b") for i, _, _ in EXPECTED[:30]]
    for path in (tmp_path / "lake", tmp_path / "lake" / "*" / "*" / "*.parquet"):
        rule = rule_of(path, "parquet")
        assert header(rule) == (*TABLE.column_names, "year", "area")
        assert rows(rule, "id", "year", "area") == expected
    assert rows(rule_of(tmp_path / "lake", "parquet"), "year") == [("2019",)] * 30 + [("2020",)] * 30


def test_a_large_batch_becomes_parts(tmp_path: Path) -> None:
    n = PART_ROWS + 1000
    write(tmp_path / "t.feather", pa.table({"id": range(n), "x": [None] * n}), chunksize=n, compression="zstd")
    parts = list(read_parts(rule_of(tmp_path / "t.feather", "arrow"), ["id"]))
    assert [part.n_rows for part in parts] == [PART_ROWS, 1000]
    assert parts[1].columns["id"].texts()[-1] == str(n - 1)


def test_times_and_decimals_are_the_same_text_in_every_unit(tmp_path: Path) -> None:
    at = dt.datetime(2020, 1, 2, 3, 4, 5, 500_000)
    instant = at.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))
    columns = {
        **{unit: pa.array([at, None], pa.timestamp(unit)) for unit in ("ms", "us", "ns")},
        "s": pa.array([at.replace(microsecond=0), None], pa.timestamp("s")),
        "utc": pa.array([instant, None], pa.timestamp("us", "UTC")),
        "berlin": pa.array([instant, None], pa.timestamp("ns", "Europe/Berlin")),
        "time": pa.array([at.time(), None], pa.time64("us")),
        "small": pa.array(["0.0000001", None]).cast(pa.decimal128(12, 7)),
        "large": pa.array(["-12", None]).cast(pa.decimal256(60, 0)),
        "narrow": pa.array(["1.5", None]).cast(pa.decimal32(5, 2)),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None])),
    }
    write(tmp_path / "t.parquet", pa.table(columns))
    first, second = rows(rule_of(tmp_path / "t.parquet", "parquet"), *columns)
    assert dict(zip(columns, first, strict=True)) == {
        **dict.fromkeys(("ms", "us", "ns"), "2020-01-02 03:04:05.5"),
        "s": "2020-01-02 03:04:05",
        **dict.fromkeys(("utc", "berlin"), "2020-01-02 01:04:05.5Z"),
        "time": "03:04:05.5",
        "small": "0.0000001",
        "large": "-12",
        "narrow": "1.50",
        "json": '{"a": 1}',
    }
    assert set(second) == {""}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("values", [["ab", "", "c"], ["ab", "é", ""], ["ab", None, "c"], ["", ""], ["x"] * 9, []])
def test_texts_are_what_was_written_wherever_a_batch_begins(values: list[str | None], kind: pa.DataType) -> None:
    """Whether all are ASCII, which is read faster, or not."""
    column = pa.array(["longer", *values, "behind"], kind)[1:-1]
    expected = [value or "" for value in values]
    assert text_column(column).texts() == expected
    encoded = pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int8()), column)
    assert text_column(encoded).texts() == expected
    assert text_column(encoded[1:]).texts() == expected[1:]


# ---- what is wrong


def test_a_type_that_changes_between_files(tmp_path: Path) -> None:
    """Numbers may be whole ones in one file and not in another, and nothing but nulls has no type: writers do that."""
    for number, ages in enumerate((pa.array([1, 2]), pa.array([1.0, None]), pa.nulls(2))):
        write(tmp_path / "t" / f"{number}.parquet", pa.table({"id": ["a", "b"], "age": ages}))
    rule = rule_of(tmp_path / "t", "parquet")
    assert [age for (age,) in rows(rule, "age")] == ["1", "2", "1", "", "", ""]
    write(tmp_path / "t" / "3.parquet", pa.table({"id": ["a", "b"], "age": ["1", "2"]}))
    found = fault(rule, "age")
    assert found.message == "t: column 'age' is text in file 4 of 4 and a number in an earlier one, expected one type"
    assert rows(rule, "id")  # which nothing is wrong with


def test_a_column_that_one_file_lacks_is_no_column_of_the_table(tmp_path: Path) -> None:
    write(tmp_path / "t" / "0.parquet", TABLE)
    write(tmp_path / "t" / "1.parquet", TABLE.select(["age", "id"]))
    rule = rule_of(tmp_path / "t", "parquet")
    assert header(rule) == ("id", "age")
    absent = missing_columns(rule, header(rule), ["id", "sex"])
    assert absent is not None
    assert absent.code == "DATA_COLUMN_MISSING"


def test_a_partition_without_a_file_and_one_outside(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for year in (2019, 2020):
        write(lake / f"year={year}" / "x.parquet", TABLE)
    rule = rule_of(lake, "parquet")
    (lake / "year=2020" / "x.parquet").unlink()
    found = fault(rule, "id")
    assert (found.code, found.message) == (
        "DATA_FILE_MISSING",
        "lake: 1 of its 2 partitions have no parquet file",
    )
    (lake / "year=2020").rmdir()
    assert len(rows(rule, "id")) == 90
    write(lake / "x.parquet", TABLE)
    assert "in folders that others are not in" in fault(rule, "id").message
    assert fault(rule_of(lake, "arrow"), "id").code == "DATA_FILE_MISSING"
    assert fault(rule_of(tmp_path / "*.parquet", "parquet"), "id").code == "DATA_FILE_MISSING"


def test_a_table_whose_files_are_chosen_by_a_log_is_refused(tmp_path: Path) -> None:
    """Files that a later state of such a table has removed still lie there."""
    write(tmp_path / "t" / "x.parquet", TABLE)
    (tmp_path / "t" / "_delta_log").mkdir()
    assert "a Delta table" in fault(rule_of(tmp_path / "t", "parquet"), "id").message


@pytest.mark.parametrize("how", ["longer", "another", "one more", "one less"])
def test_a_table_that_changes_while_it_is_read(tmp_path: Path, how: str) -> None:
    for number in range(2):
        write(tmp_path / "t" / f"{number}.csv", TABLE)
    rule = rule_of(tmp_path / "t", "csv")
    reading = read_parts(rule, ["id"])
    next(reading)
    last = tmp_path / "t" / "1.csv"
    if how == "longer":
        with last.open("a") as file:
            file.write("901,F,1,x\n")
    elif how == "another":
        (tmp_path / "new").write_bytes(last.read_bytes())
        os.replace(tmp_path / "new", last)
    elif how == "one more":
        write(tmp_path / "t" / "2.csv", TABLE)
    else:
        (tmp_path / "t" / "0.csv").unlink()
    with pytest.raises(DataFault) as caught:
        list(reading)
    assert (caught.value.code, caught.value.message) == ("DATA_INTERRUPTED", "t: changed while it was read")


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_a_column_that_goes_between_its_name_and_its_rows(tmp_path: Path, ending: str) -> None:
    rule = rule_of(tmp_path / f"t.{ending}", "arrow" if ending == "feather" else ending)  # type: ignore[arg-type]
    write(rule.path, TABLE)
    reading = read_parts(rule, ["id", "sex"])
    write(rule.path, TABLE.select(["age", "id"]))
    with pytest.raises(DataFault) as caught:
        list(reading)
    assert caught.value.code == "DATA_INTERRUPTED"


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    for name, kind, said in (("t.feather", "parquet", "an Arrow"), ("t.parquet", "arrow", "a Parquet")):
        write(tmp_path / name, TABLE)
        assert f"this is {said} file" in fault(rule_of(tmp_path / name, kind), "id").message
    (tmp_path / "t.arrows").write_bytes(b"no table at all, whatever its name says")
    assert fault(rule_of(tmp_path / "t.arrows", "arrow"), "id").message == "t.arrows: not an Arrow file, or damaged"
