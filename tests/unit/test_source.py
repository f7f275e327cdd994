"""Reading tables: a damaged file gets its code, no value is a fault, everything is counted, no message carries a value."""

import csv
import dataclasses
import traceback
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from verticil.party.dataset import source as source_module
from verticil.party.dataset.encoding import Codebook, Outcome
from verticil.party.dataset.source import check_records, read_records
from verticil.party.dataset.sources import csv_files
from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.dataset.sources.source_table import ColumnRule, DatasetRule
from verticil.shared.core.errors import DataFault, Misuse, VerticilError
from verticil.shared.numerics.model.schema import Missing, Variable
from verticil.shared.storage import sorting

CANARY = "Kanarienvogel"
CANARY_ID = "4711-0815"

SEX = Variable(name="sex", owner="p", labels=("Female", "Male"))
AGE = Variable(name="age", owner="p", labels=("[17,30)", "[30,91)"), bins=(17.0, 30.0, 91.0), integer=True)
AREA = Variable(
    name="area",
    owner="p",
    labels=("north", "south", "elsewhere", "unknown"),
    other="elsewhere",
    missing=Missing(category="unknown", spellings=("?", "")),
)
FLAG = Variable(name="flag", owner="p", labels=("0", "1", "True"))
VARIABLES = (SEX, AGE, AREA)
TRIM = ("nfkc", "trim")

GOOD = "id,sex,age,area\n1,Male,17,north\n2,Female,29.5,?\n3,Male,90,Mars\n"


def rule_for(path, **changes):
    return DatasetRule(**{"path": path, "format": "csv", "id": "id", **changes})


@pytest.fixture
def table(tmp_path):
    def write(data, **changes):
        path = tmp_path / "people.csv"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return rule_for(path, **changes)

    return write


def write_parquet(path, columns):
    parquet.write_table(pa.table(columns), path)
    return rule_for(path, format="parquet")


# ---- tables in order


def test_a_table_in_order(table):
    records = read_records(table(GOOD), VARIABLES, TRIM)
    assert records.ids == ("1", "2", "3")
    assert records.n_records == 3
    assert {name: codes.tolist() for name, codes in records.codes.items()} == {
        "sex": [1, 0, 1],
        "age": [0, 0, 1],
        "area": [0, 3, 2],
    }
    assert all(codes.dtype == np.uint8 and not codes.flags.writeable for codes in records.codes.values())
    assert not any(undeclared.any() for undeclared in records.undeclared.values())
    assert set(records.undeclared) == {"sex", "age"}  # area has an `other`
    area = check_records(table(GOOD), VARIABLES, TRIM).counts[2]
    assert (area.missing, area.other, area.clamped, area.unseen) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (b"\xef\xbb\xbf" + GOOD.encode(), {}),
        (b"\xef\xbb\xbf" + GOOD.replace("id,", '"id",').encode(), {}),
        (GOOD.replace("\n", "\r\n"), {}),
        (GOOD.replace("\n", "\n\n"), {}),
        (GOOD.rstrip("\n"), {}),
        (GOOD.replace(",", ";"), {"delimiter": ";"}),
        (GOOD.replace(",", "\t"), {"delimiter": "\t"}),
        (GOOD.encode("utf-16"), {"encoding": "utf-16"}),
        (GOOD.replace("Mars", "Mär,s").replace("Mär,s", '"Mär,s"').encode("latin-1"), {"encoding": "latin-1"}),
        (GOOD.replace("\n1,", "\n 1 ,").replace("\n2,", "\n\uff12,"), {}),
        ("note," + GOOD.replace("\n", '\n"a ""quoted""\nnote",').removesuffix('"a ""quoted""\nnote",'), {}),
        (GOOD.replace("id,", "person,"), {"id": "person"}),
    ],
)
def test_the_same_table_written_otherwise(table, data, changes):
    plain = read_records(table(GOOD), VARIABLES, TRIM)
    other = read_records(table(data, **changes), VARIABLES, TRIM)
    assert other.ids == plain.ids
    assert {name: codes.tolist() for name, codes in other.codes.items()} == {
        name: codes.tolist() for name, codes in plain.codes.items()
    }


def test_texts_are_not_interpreted(table):
    """``None``, ``NA``, ``nan``, ``007``, ``1e3`` and blanks are texts: what pandas reads with its defaults would not be."""
    texts = ["None", "NA", "nan", "null", "007", "7", "1e3", " ", "", "TRUE", "-", "#N/A", '"']
    quoted = ['"' + text.replace('"', '""') + '"' if '"' in text else text for text in texts]
    rule = table("id,v\n" + "".join(f"{i},{text}\n" for i, text in enumerate(quoted)))
    (part,) = (part for part in read_parts(rule, ["v"]) if part.n_rows)
    assert part.columns["v"].texts() == texts
    frame = pd.read_csv(rule.path, dtype=str, keep_default_na=False)
    assert frame["v"].tolist() == texts  # the contract's reading rule, by the library it is written for


def test_rows_in_many_parts(table):
    """More than one block; the reference is Python's csv module."""
    n = 200_000
    generator = np.random.default_rng(0)
    sex, age = generator.integers(0, 2, n), generator.integers(17, 91, n)
    lines = [f"person {i},{SEX.labels[s]},{a},{'x' * 20}\n" for i, (s, a) in enumerate(zip(sex, age, strict=True))]
    rule = table("id,sex,age,note\n" + "".join(lines))
    assert sum(1 for _ in read_parts(rule, ["sex"])) > 2
    records = read_records(rule, (SEX, AGE), ())
    with rule.path.open(newline="") as file:
        assert list(records.ids) == [row["id"] for row in csv.DictReader(file)]
    assert (records.codes["sex"] == sex).all()
    assert (records.codes["age"] == (age >= 30)).all()


@pytest.mark.parametrize("longest", [csv_files.LONGEST_ROW_BYTES - 1_000_000, 2 * csv_files.LONGEST_ROW_BYTES])
def test_a_long_row_is_read_where_shorter_ones_have_been(table, longest: int) -> None:
    """Whoever reads blocks that it does not fit into begins anew: each row comes once, and each row left out is counted once."""
    generator = np.random.default_rng(0)
    lengths = [*generator.integers(10, 20_000, 300), longest, *generator.integers(10, 20_000, 300)]
    lines = [f'{i},Male,"{"x" * n}\n"\n' for i, n in enumerate(lengths)]
    lines[7] = lines[250] = lines[299] = lines[302] = "too,few\n"
    rule = table("id,sex,note\n" + "".join(lines))
    if longest > csv_files.LONGEST_ROW_BYTES:
        with pytest.raises(DataFault, match="a row is longer than 4 MiB or cut off"):
            list(read_parts(rule, ["id"]))
        return
    parts = list(read_parts(rule, ["id", "sex"]))
    assert len(parts) == 1  # few rows of many blocks are handed out together
    assert [name for part in parts if part.n_rows for name in part.columns["id"].texts()] == [
        str(i) for i in range(601) if i not in {7, 250, 299, 302}
    ]
    assert sum(part.n_ragged for part in parts) == 4
    assert next(part.first_ragged for part in parts if part.n_ragged) == 9


def test_recode_and_source(table):
    rule = table(
        "id,geschlecht\n1,m\n2,w\n3,Male\n",
        columns={"sex": ColumnRule(source="geschlecht", recode={"m": "Male", "w": "Female"})},
    )
    assert read_records(rule, [SEX], ()).codes["sex"].tolist() == [1, 0, 1]
    assert rule.column("other") == ColumnRule(source="other")


def test_more_than_256_categories(table):
    labels = tuple(f"c{i}" for i in range(300))
    rule = table("id,v\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    codes = read_records(rule, [Variable(name="v", owner="p", labels=labels)], ()).codes["v"]
    assert codes.dtype == np.uint16
    assert codes.tolist() == list(range(300))


# ---- bins


@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [
        ("17", 0, Outcome.CATEGORY),
        ("29.999", 0, Outcome.CATEGORY),
        ("30", 1, Outcome.CATEGORY),
        ("+3.0e1", 1, Outcome.CATEGORY),
        (" 90.5 ", 1, Outcome.CATEGORY),
        ("16.999", 0, Outcome.CLAMPED),
        ("91", 1, Outcome.CLAMPED),  # the last edge belongs to no bin
        ("-5", 0, Outcome.CLAMPED),
        ("1e999", 1, Outcome.CLAMPED),
        ("nan", -1, Outcome.UNDECLARED),
        ("inf", -1, Outcome.UNDECLARED),
        ("1_7", -1, Outcome.UNDECLARED),
        ("0x1f", -1, Outcome.UNDECLARED),
        ("17,5", -1, Outcome.UNDECLARED),
        ("\u0661\u0668", -1, Outcome.UNDECLARED),  # Arabic-Indic digits, which Python's float would take
        ("[17,30)", -1, Outcome.UNDECLARED),  # a label of a bin is a name for people
        ("", -1, Outcome.EMPTY),
    ],
)
@pytest.mark.parametrize("outside", ["error", "clamp"])
def test_numbers_and_bins(text, code, outcome, outside):
    """Whatever an older study says of `outside`."""
    codes, outcomes = Codebook(dataclasses.replace(AGE, outside=outside), {}, where="here").encode([text])
    assert (codes.tolist(), outcomes.tolist()) == ([code], [outcome])


def test_bins_with_other_missing_and_clamp():
    variable = Variable(
        name="v",
        owner="p",
        labels=("[0,1)", "[1,5)", "odd", "none"),
        bins=(0.0, 1.0, 5.0),
        outside="clamp",
        other="odd",
        missing=Missing(category="none", spellings=("", "-1")),
    )
    texts = ["-3", "0", "4.9", "5", "1e999", "", "-1", "n/a", "odd", "none"]
    codes, outcomes = Codebook(variable, {}, where="here").encode(texts)
    assert codes.tolist() == [0, 0, 1, 1, 1, 3, 3, 2, 2, 3]
    taken, missing, other, clamped = Outcome.CATEGORY, Outcome.MISSING, Outcome.OTHER, Outcome.CLAMPED
    assert outcomes.tolist() == [clamped, taken, taken, clamped, clamped, missing, missing, other, taken, taken]


def test_near_misses_are_told_apart():
    texts = ["", "  ", "1 ", "true", "1.0", "2.0", "x"]
    codes, outcomes = Codebook(FLAG, {}, where="here").encode(texts, closely=True)
    assert set(codes.tolist()) == {-1}
    assert [Outcome(outcome).name for outcome in outcomes] == [
        "EMPTY", "EMPTY", "BLANKS", "LETTER_CASE", "DECIMAL_POINT", "UNDECLARED", "UNDECLARED",
    ]  # fmt: skip
    # Who answers a study does not ask, and what is done for a text does not depend on how near it is.
    plain = Codebook(FLAG, {}, where="here").encode(texts)
    assert plain[0].tolist() == codes.tolist()
    assert [Outcome(outcome).name for outcome in plain[1]] == ["EMPTY"] * 2 + ["UNDECLARED"] * 5


def test_an_empty_value_is_missing_where_that_is_declared():
    """Also where the study forgot the spelling."""
    variable = Variable(name="v", owner="p", labels=("a", "none"), missing=Missing(category="none", spellings=("?",)))
    codes, outcomes = Codebook(variable, {}, where="here").encode(["", " \t", "?", "x"])
    assert codes.tolist() == [1, 1, 1, -1]
    assert outcomes.tolist() == [Outcome.EMPTY, Outcome.EMPTY, Outcome.MISSING, Outcome.UNDECLARED]


# ---- Parquet


def test_parquet_values_as_text(tmp_path):
    n = None
    columns = {
        "id": pa.array([7, 8, 9], pa.int64()),
        "whole float": pa.array([1.0, -0.0, n]),
        "float": pa.array([0.5, float("nan"), 1e20]),
        "single": pa.array(np.array([0.1, 2, 3], dtype=np.float32)),
        "half": pa.array(np.array([0.5, 2, 3], dtype=np.float16)),
        "boolean": pa.array([True, False, n]),
        "text": pa.array(["a", "", n]),
        "view": pa.array(["a", "", n], pa.string_view()),
        "large": pa.array(["a", "b", "a"], pa.large_string()),
        "dictionary": pa.array(["a", n, "a"]).dictionary_encode(),
        "number dictionary": pa.array([1, 2, 1]).dictionary_encode(),
        "null": pa.array([n, n, n], pa.null()),
        "date": pa.array([0, 1, n], pa.date32()),
        "decimal": pa.array([Decimal("1.50"), n, Decimal("2.00")]),
        "a.b": pa.array(["x", "y", "x"]),
        "not asked for": pa.array([[1], [2], [3]]),
    }
    rule = write_parquet(tmp_path / "people.parquet", columns)
    assert header(rule) == tuple(columns)
    wanted = [name for name in columns if name != "not asked for"]
    (part,) = read_parts(rule, wanted)
    assert part.n_rows == 3
    assert {name: column.texts() for name, column in part.columns.items()} == {
        "id": ["7", "8", "9"],
        "whole float": ["1", "0", ""],
        "float": ["0.5", "", "100000000000000000000"],
        "single": ["0.1", "2", "3"],
        "half": ["0.5", "2", "3"],
        "boolean": ["True", "False", ""],
        "text": ["a", "", ""],
        "view": ["a", "", ""],
        "large": ["a", "b", "a"],
        "dictionary": ["a", "", "a"],
        "number dictionary": ["1", "2", "1"],
        "null": ["", "", ""],
        "date": ["1970-01-01", "1970-01-02", ""],
        "decimal": ["1.50", "", "2.00"],
        "a.b": ["x", "y", "x"],
    }


def test_csv_and_parquet_give_the_same_records(table, tmp_path):
    rule = table(GOOD)
    frame = pd.read_csv(rule.path, dtype=str, keep_default_na=False)
    frame["age"] = frame["age"].astype(float)
    frame["id"] = frame["id"].astype(int)
    frame["area"] = frame["area"].replace("?", None).astype("category")
    path = tmp_path / "people.parquet"
    frame.to_parquet(path)
    one, two = read_records(rule, VARIABLES, TRIM), read_records(rule_for(path, format="parquet"), VARIABLES, TRIM)
    assert one.ids == two.ids
    assert all(one.codes[name].tolist() == two.codes[name].tolist() for name in one.codes)


def test_parquet_in_many_parts(tmp_path):
    n = 150_000
    rule = write_parquet(tmp_path / "people.parquet", {"id": np.arange(n), "sex": np.resize(["Male", "Female"], n)})
    records = read_records(rule, [SEX], ())
    assert records.ids == tuple(map(str, range(n)))
    assert (records.codes["sex"] == np.resize([1, 0], n)).all()


def test_parquet_faults(tmp_path):
    path = tmp_path / "people.parquet"
    nested = write_parquet(path, {"id": [1], "sex": [["Male"]]})
    with pytest.raises(DataFault, match="column 'sex' has type list<"):
        read_records(nested, [SEX], ())
    empty = write_parquet(path, {"id": pa.array([], pa.string()), "sex": pa.array([], pa.string())})
    records = read_records(empty, [SEX], ())
    assert (records.ids, records.n_rows, records.codes["sex"].tolist()) == ((), 0, [])
    write_parquet(path, {"id": [str(i) for i in range(9000)], "sex": ["Male"] * 9000})
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:100], b"PAR1" + bytes(100), whole[:200] + bytes(2000) + whole[2200:]):
        path.write_bytes(damaged)
        with pytest.raises(DataFault) as caught:
            read_records(rule_for(path, format="parquet"), [SEX], ())
        assert caught.value.code == "DATA_UNREADABLE"


# ---- what is no fault: it is left out or drawn for, and counted

ROW = f"{CANARY_ID},Male,20,{CANARY}\n"
REMARKS = {
    "unseen": (
        f"id,sex,age,area\n1,{CANARY},20,x\n2,,20,x\n3,male,20,x\n4, Male,12,x\n{CANARY_ID},x,{CANARY},x\n",
        5,
        [
            (
                "DATA_CATEGORY_UNSEEN",
                "5 rows, of which some have no declared category: column 'sex' 5, column 'age' 1; the node draws one for each",
                '1 are empty (declare `missing` with the spelling "" in the study); 1 differ only in blanks',
            ),
            (
                "DATA_VALUE_OUTSIDE",
                "of 5 rows, values outside the bins, put into the nearest one: column 'age' 1",
                "unit",
            ),
        ],
    ),
    "outside": (GOOD + f"{CANARY_ID},Male,1234567,x\n", 4, [("DATA_VALUE_OUTSIDE", "column 'age' 1", "")]),
    "duplicate ids": (
        GOOD + ROW + f" {CANARY_ID} ,Male,20,x\n{CANARY_ID},Male,20,x\n",
        3,
        [
            (
                "DATA_ID_DUPLICATE",
                "column 'id': 3 of 6 rows are left out: each has the id of another one",
                "one row for each",
            )
        ],
    ),
    "empty ids": (
        GOOD + f"  ,Male,20,{CANARY}\n",
        3,
        [("DATA_ID_MISSING", "1 of 4 rows are left out", "mend these rows")],
    ),
    "too many fields": (
        GOOD + f"{CANARY_ID},Male,20,{CANARY},{CANARY}\n",
        3,
        [("DATA_UNREADABLE", "1 rows have too many or too few fields and are left out, the first is row 5", "quote")],
    ),
    "too few fields": (
        GOOD + f"{CANARY_ID},{CANARY}\n{CANARY}\n",
        3,
        [("DATA_UNREADABLE", "2 rows have too many", "")],
    ),
    "only ragged rows": (
        f"id,sex,age,area\n{CANARY_ID},{CANARY}\n",
        0,
        [("DATA_UNREADABLE", "1 rows have too many", "")],
    ),
    "only a header": ("id,sex,age,area\n", 0, []),
    "only a header, cut off": ("id,sex,age,area", 0, []),
    "not UTF-8": (
        GOOD.encode() + f"{CANARY_ID},M\xe4le {CANARY},20,x\n".encode("latin-1"),
        4,
        [("DATA_CATEGORY_UNSEEN", "column 'sex' 1", "declare the category")],
    ),
    "id not UTF-8": (
        GOOD.encode() + f"\xe4{CANARY_ID},Male,20,x\n".encode("latin-1"),
        3,
        [("DATA_ID_MISSING", "1 of 4 rows are left out", "")],
    ),
}


@pytest.mark.parametrize("name", REMARKS)
def test_no_value_is_a_fault_and_every_one_is_counted(table, name):
    data, n_used, remarks = REMARKS[name]
    rule = table(data)
    records = read_records(rule, VARIABLES, TRIM)
    assert records.n_records == n_used
    assert all(len(column) == n_used for column in (*records.codes.values(), *records.undeclared.values()))
    assert CANARY_ID not in records.ids or name in {"unseen", "outside", "not UTF-8"}
    report = check_records(rule, VARIABLES, TRIM)
    assert (report.n_records, report.faults) == (n_used, ())
    assert report.n_rows == records.n_rows == n_used + report.n_ragged + report.n_empty_ids + report.n_repeated_ids
    assert [remark.code for remark in report.remarks] == [code for code, _, _ in remarks]
    for remark, (_, message, hint) in zip(report.remarks, remarks, strict=True):
        assert remark.message.startswith("people.csv: ")
        assert message in remark.message
        assert hint in remark.hint
    for secret in (CANARY, CANARY_ID, "Mars", "1234567"):
        assert secret not in repr(report)
        assert secret not in repr(records)


def test_bytes_that_are_no_text_are_no_declared_category(table, tmp_path):
    """Also where the category that is declared is the sign for such bytes; the same in Parquet."""
    variable = Variable(name="v", owner="p", labels=("\ufffd", "b"))
    rule = table(b"id,v\n1,\xff\n2,\xef\xbf\xbd\n3,b\n")
    assert read_records(rule, [variable], ()).undeclared["v"].tolist() == [True, False, False]
    offsets, text = pa.py_buffer(np.array([0, 1, 4, 5], dtype=np.int32)), pa.py_buffer(b"\xff\xef\xbf\xbdb")
    column = pa.Array.from_buffers(pa.string(), 3, [None, offsets, text])
    rule = write_parquet(tmp_path / "people.parquet", {"id": ["1", "2", "3"], "v": column})
    records = read_records(rule, [variable], ())
    assert records.undeclared["v"].tolist() == [True, False, False]
    assert records.codes["v"].tolist() == [0, 0, 1]


# ---- bad input: code, message, and no value of the table anywhere

BAD = {
    "empty file": ("", {}, "DATA_EMPTY", "file is empty"),
    "only blank lines": ("\n\n", {}, "DATA_EMPTY", "no row"),
    "wrong delimiter": (
        GOOD.replace(",", ";") + ROW.replace(",", ";"),
        {},
        "DATA_UNREADABLE",
        'wrong delimiter: with a comma none of 4 expected columns is found, with a semicolon 4 (hint: set delimiter = ";"',
    ),
    "tab": (GOOD.replace(",", "\t"), {"delimiter": "|"}, "DATA_UNREADABLE", 'set delimiter = "\\t"'),
    "absent column": (
        GOOD.replace("sex", "Sexx").replace("age", "alter") + ROW,
        {},
        "DATA_COLUMN_MISSING",
        "no column 'sex', 'age'; the table has 4 columns (hint: 'Sexx' for 'sex'?)",
    ),
    "absent id": (GOOD.replace("id,", "person,"), {}, "DATA_COLUMN_MISSING", "no column 'id'"),
    "no header": (
        f"{CANARY_ID},{CANARY},20,sex {CANARY}\n" + ROW,
        {},
        "DATA_COLUMN_MISSING",
        "is the first row a header",
    ),
    "column twice": (GOOD.replace("age", "sex"), {}, "DATA_UNREADABLE", "column 'sex' occurs 2 times"),
    "not ASCII": (
        GOOD + f"{CANARY_ID},M\xe4le {CANARY},20,x\n",
        {"encoding": "ascii"},
        "DATA_UNREADABLE",
        f"not ascii at byte {len(GOOD) + len(CANARY_ID) + 2}",
    ),
    "UTF-16 taken for UTF-8": ((GOOD + ROW).encode("utf-16"), {}, "DATA_COLUMN_MISSING", "no column 'id'"),
    "open quotation mark": (
        f'id,sex,age,area\n{CANARY_ID},"{CANARY},20,x\n' + ROW * 300_000,
        {},
        "DATA_UNREADABLE",
        "quotation mark that is never closed",
    ),
    "Parquet taken for CSV": (b"PAR1" + CANARY.encode(), {}, "DATA_UNREADABLE", 'set format = "parquet"'),
    "CSV taken for Parquet": (GOOD + ROW, {"format": "parquet"}, "DATA_UNREADABLE", 'set format = "csv"'),
    "compressed": (b"\x1f\x8b" + CANARY.encode(), {}, "DATA_UNREADABLE", "compressed file is damaged or cut off"),
}


def everything_said(error):
    """All texts that a log or a terminal could show of an error, with whatever is chained to it."""
    texts = ["".join(traceback.format_exception(error))]
    link = error
    while link is not None:
        texts += [str(link), repr(link), repr(link.args), repr(vars(link)) if hasattr(link, "__dict__") else ""]
        link = link.__cause__ or link.__context__
    return "\n".join(texts)


@pytest.mark.parametrize("name", BAD)
def test_bad_input(table, name):
    data, changes, code, text = BAD[name]
    rule = table(data, **changes)
    with pytest.raises(DataFault) as caught:
        read_records(rule, VARIABLES, TRIM)
    error = caught.value
    said = everything_said(error)
    assert (error.code, error.exit_code) == (code, 1)
    assert text in str(error)
    assert error.message.startswith("people.csv: ")
    assert error.hint or code == "DATA_EMPTY" or "occurs" in error.message
    for secret in (CANARY, CANARY_ID, "Mars", "1234567"):
        assert secret not in said
    # `party check` tells the same without raising, where there is something to count.
    try:
        report = check_records(rule, VARIABLES, TRIM)
    except VerticilError as raised:
        assert str(raised) == str(error)  # noqa: PT017  either way of telling is right
    else:
        assert str(report.faults[0]) == str(error)
        assert CANARY not in repr(report)
        assert CANARY_ID not in repr(report)


def test_bytes_of_other_columns_do_not_matter(table):
    """A column that is not asked for may be in another encoding, wherever in the file the first such byte stands."""
    for n_before in (0, 20_000):
        rows = "".join(f"p{i},Male,ok\n" for i in range(n_before))
        rule = table(b"id,sex,caf\xe9\n" + rows.encode() + b"1,Male,\xe9\n")
        assert read_records(rule, [SEX], ()).n_records == n_before + 1


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataFault, match="no such file") as caught:
        read_records(rule_for(tmp_path / "absent.csv"), VARIABLES, TRIM)
    assert caught.value.code == "DATA_FILE_MISSING"
    with pytest.raises(DataFault, match="no csv file") as caught:
        read_records(rule_for(tmp_path), VARIABLES, TRIM)
    assert caught.value.code == "DATA_FILE_MISSING"


def test_misuse_of_rules(table):
    for changes in (
        {"delimiter": ""},
        {"delimiter": ";;"},
        {"delimiter": "\n"},
        {"delimiter": "§"},
        {"encoding": "utf-9"},
    ):
        with pytest.raises(Misuse) as caught:
            table(GOOD, **changes)
        assert caught.value.code == "CONFIG_INVALID"
    rule = table(GOOD, columns={"sex": ColumnRule(source="sex", recode={CANARY: "Mal", "F": "Female"})})
    with pytest.raises(Misuse, match="column 'sex': 1 of 2 recode targets are no category of variable 'sex'") as caught:
        read_records(rule, VARIABLES, TRIM)
    assert caught.value.code == "CONFIG_INVALID"
    assert CANARY not in everything_said(caught.value)


@pytest.mark.parametrize("memory_rows", [10_000, 64])
def test_check_counts_outside_memory_as_pandas_does(table, tmp_path, monkeypatch, memory_rows):
    """Of people who are there once; rows wait in a file without a name."""
    monkeypatch.setattr(source_module, "MEMORY_ROWS", memory_rows)
    monkeypatch.setattr(sorting, "_LEAST_OF_A_RUN", 5)
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"p{i}" if i % 50 else " " for i in generator.integers(0, 600, 1000)],
            "sex": generator.choice(["Male", "Female", "male", ""], 1000),
            "area": generator.choice(["north", "south", "Mars", "?"], 1000),
        }
    )
    (folder := tmp_path / "state").mkdir()
    report = check_records(table(frame.to_csv(index=False)), (SEX, AREA), TRIM, folder=folder)
    people = frame[(frame["id"].str.strip() != "") & ~frame["id"].duplicated(keep=False)]
    assert 100 < len(people) < 500
    assert (report.n_rows, report.n_records) == (1000, len(people))
    assert report.n_empty_ids == (frame["id"] == " ").sum()
    assert report.n_repeated_ids == 1000 - report.n_empty_ids - len(people)
    sex, area = report.counts
    assert sex.unseen == people["sex"].isin(["male", ""]).sum()
    assert sex.near_misses == {"letter_case": (people["sex"] == "male").sum(), "empty": (people["sex"] == "").sum()}
    assert (area.other, area.missing) == ((people["area"] == "Mars").sum(), (people["area"] == "?").sum())
    assert area.absent == 0
    assert list(folder.iterdir()) == []


def test_check_reports_everything_at_once(table):
    rule = table(
        "id,sex,area\n1,Male,north\n1,male,south\n,Male,Mars\n2,Male\n3,1.0,?\n4,x,north\n",
        columns={"flag": ColumnRule(source="sex")},
    )
    report = check_records(rule, (SEX, AGE, AREA, FLAG), TRIM)
    assert (report.n_rows, report.n_records) == (6, 2)
    assert (report.n_ragged, report.n_empty_ids, report.n_repeated_ids) == (1, 1, 2)
    assert [fault.code for fault in report.faults] == ["DATA_COLUMN_MISSING"]
    assert [remark.code for remark in report.remarks] == [
        "DATA_UNREADABLE",
        "DATA_ID_MISSING",
        "DATA_ID_DUPLICATE",
        "DATA_CATEGORY_UNSEEN",
    ]
    counts = {column.variable: column for column in report.counts}
    assert set(counts) == {"sex", "area", "flag"}
    assert (counts["sex"].unseen, counts["sex"].near_misses) == (2, {})
    assert (counts["flag"].unseen, counts["flag"].near_misses) == (2, {"decimal_point": 1})
    assert (counts["area"].missing, counts["area"].other, counts["area"].unseen) == (1, 0, 0)


def test_check_of_a_table_in_order(table):
    report = check_records(table(GOOD), VARIABLES, TRIM)
    assert (report.faults, report.remarks) == ((), ())
    assert report.n_records == report.n_rows == 3
