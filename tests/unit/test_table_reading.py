"""How a file is read: delimiters, headers, encodings, open quotation marks, compressed files, workbooks, statistics programs."""

from __future__ import annotations

import base64
import bz2
import datetime as dt
import gzip
import lzma
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.party.config import dataset_rule
from verticil.party.dataset.sources.open_source import header, read_parts
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault, VerticilError
from verticil.shared.core.installation import install_command
from verticil.shared.documents.toml_table import Table
from verticil.tables.reading import guess_reading
from verticil.tables.texts import texts_of

ROWS = [
    [str(20 + place % 60), ("cook", "nurse, senior", "clerk")[place % 3], f"{place % 24:02d}:30"]
    for place in range(300)
]


def written(
    delimiter: str, *, above: str = "", names: tuple[str, ...] = ("age", "job", "seen"), end: str = "\n"
) -> str:
    def field(text: str) -> str:
        return f'"{text}"' if delimiter in text or '"' in text else text

    return above + "".join(delimiter.join(map(field, row)) + end for row in [list(names), *ROWS])


def rows_of(rule: DatasetRule) -> list[list[str]]:
    """All cells, as the node's reader has them."""
    names = header(rule)
    parts = [[part.columns[name].texts() for name in names] for part in read_parts(rule, names)]
    return [list(row) for part in parts for row in zip(*part, strict=True)]


@pytest.mark.parametrize(
    ("text", "delimiter", "skip"),
    [
        (written(","), ",", 0),
        (written(";", names=("age, now", "job, main, paid", "seen")), ";", 0),
        (written("\t", end="\r\n"), "\t", 0),
        (written("|"), "|", 0),
        (written("^"), "^", 0),
        (written(":"), ":", 0),
        (written(" "), " ", 0),
        (written(",", above="Export of 2024-01-01\nSite: A, ward 3\n\n"), ",", 3),
        (written(";", above="sep=;\n"), ";", 1),
        (written(",", above="Site A, ward 3, east\n"), ",", 1),
        (written(",", above="# made by a program\n# on Monday\n"), ",", 2),
    ],
)
def test_the_delimiter_and_the_header_are_found(tmp_path: Path, text: str, delimiter: str, skip: int) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, newline="")
    reading = guess_reading(path)
    assert (reading.rule.delimiter, reading.rule.skip) == (delimiter, skip)
    assert rows_of(reading.rule) == ROWS
    assert bool(skip) == any("above it" in remark for remark in reading.remarks)


def test_a_table_of_one_column_is_one_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job\n" + "".join(f"{row[1].partition(',')[0]}\n" for row in ROWS))
    assert header(guess_reading(path).rule) == ("job",)


def test_runs_of_blanks_and_a_missing_header_are_said(tmp_path: Path) -> None:
    (tmp_path / "runs.txt").write_text("sex    age\n" + "".join(f"F     {place:4d}\n" for place in range(90)))
    with pytest.raises(DataFault, match="runs of blanks seem to separate 2 columns, expected one delimiter"):
        guess_reading(tmp_path / "runs.txt")
    (tmp_path / "bare.csv").write_text("".join(f"{'FM'[place % 2]},{place % 60}\n" for place in range(90)))
    assert any("is the first row one of the table" in remark for remark in guess_reading(tmp_path / "bare.csv").remarks)


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("cp1252", ["B\u00e4cker", "K\u00f6chin", "5 \u20ac"]),
        ("cp1251", ["\u043f\u043e\u0432\u0430\u0440", "\u043a\u043b\u0435\u0440\u043a"]),
        ("koi8_r", ["\u043f\u043e\u0432\u0430\u0440", "\u043a\u043b\u0435\u0440\u043a"]),
        ("cp1250", ["\u0141\u00f3d\u017a", "\u017c\u00f3\u0142ty"]),
        ("cp1253", ["\u0391\u03b8\u03ae\u03bd\u03b1", "\u03b3\u03b9\u03b1\u03c4\u03c1\u03cc\u03c2"]),
        ("mac_roman", ["K\u00f6ln", "M\u00e1laga", "K\u00fcche"]),
        ("shift_jis", ["\u533b\u8005", "\u770b\u8b77\u5e2b"]),
        ("utf-16", ["B\u00e4cker", "K\u00f6chin"]),
    ],
)
def test_an_encoding_is_found_and_said(tmp_path: Path, encoding: str, words: list[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        ("sex,job\n" + "".join(f"F,{words[place % len(words)]}\n" for place in range(90))).encode(encoding)
    )
    reading = guess_reading(path)
    assert {row[1] for row in rows_of(reading.rule)} == set(words)
    assert any("encoding was taken for" in remark for remark in reading.remarks) is (encoding != "utf-16")


def test_one_damaged_byte_leaves_the_other_rows_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [b"sex,job", *(("F,B\u00e4cker", "M,K\u00f6chin")[place % 2].encode() for place in range(300))]
    lines[7] = b"F,B\xe4cker"
    path.write_bytes(b"\n".join(lines) + b"\n")
    reading = guess_reading(path)
    assert reading.rule.encoding == "utf-8"
    assert any("line 8" in remark for remark in reading.remarks)
    assert [row[1] for row in rows_of(reading.rule)].count("K\u00f6chin") == 150


def test_an_open_quotation_mark_is_an_error_that_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = ["id,job,age", *(f"{place},cook,{place % 60}" for place in range(2000))]
    lines[101] = '100,"cook,40'
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataFault, match=r"line 102: a quotation mark is opened and not closed.*1,899 lines") as caught:
        texts_of("owner", path)
    assert "cook" not in str(caught.value)
    quoted = dataset_rule(Table({"path": "t.csv", "id": "id", "quote": False}, source="party.toml"), tmp_path)
    assert len(rows_of(quoted)) == 2000


def test_texts_with_line_breaks_are_no_open_quotation_marks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    note = '"first line\nsecond, with a comma\nthird ""line"""'
    path.write_text("note,job,more\n" + "".join(f"{note},cook,{note}\n" for _ in range(50)))
    table = texts_of("owner", path)
    assert (table.n_rows, table.notes) == (50, [])
    assert table.columns["note"].texts == ['first line\nsecond, with a comma\nthird "line"']


def test_a_file_without_a_fitting_row_is_not_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a,b\n" + "1,2\n" * 30)
    rule = DatasetRule(path=tmp_path / "t.csv", format="csv", id="")
    with pytest.raises(DataFault, match="30 lines have too many or too few fields") as caught:
        texts_of("owner", tmp_path / "t.csv", rule=rule)
    assert "no rows" not in str(caught.value)


def packed(text: str, kind: str, path: Path) -> Path:
    data, target = text.encode(), path / f"t.csv.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("t.csv", data)
    elif kind == "zst":
        import pyarrow as pa

        with pa.CompressedOutputStream(str(target), "zstd") as stream:
            stream.write(data)
    else:
        target.write_bytes({"gz": gzip, "bz2": bz2, "xz": lzma}[kind].compress(data))
    return target


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst", "zip"])
def test_a_compressed_file_is_read_and_one_that_is_cut_off_is_refused(tmp_path: Path, kind: str) -> None:
    path = packed(written(";"), kind, tmp_path)
    reading = guess_reading(path)
    assert rows_of(reading.rule) == ROWS
    assert any("compressed" in remark for remark in reading.remarks)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataFault, match="DATA_UNREADABLE"):
        rows_of(reading.rule)


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_file_that_inflates_without_end_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verticil.party.dataset.sources.opening._SPARE", 1 << 16)
    path = packed("a,b\n" + "1,2\n" * 2_000_000, kind, tmp_path)
    with pytest.raises(DataFault, match="inflates to more than 200 times its size"):
        rows_of(DatasetRule(path=path, format="csv", id=""))


def test_a_zip_file_has_one_file_in_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
        archive.writestr("b.csv", "a,b\n1,2\n")
    with pytest.raises(DataFault, match="has 2 files in it, expected one"):
        guess_reading(tmp_path / "t.csv.zip")


def write_ods(path: Path, rows: list[list[str]]) -> None:
    """Write a spreadsheet of OpenDocument by hand: numbers, truths, dates and texts as such programs write them."""

    def cell(text: str) -> str:
        if text in {"True", "False"}:
            return f'<table:table-cell office:value-type="boolean" office:boolean-value="{text.lower()}"/>'
        if re.fullmatch(r"[1-9][0-9.]*|0\.[0-9]+", text):
            return f'<table:table-cell office:value-type="float" office:value="{text}"/>'
        if re.fullmatch(r"[0-9]{4}-.*", text):
            moment = text.replace(" ", "T")
            return f'<table:table-cell office:value-type="date" office:date-value="{moment}"/>'
        inner = f"<text:p>{text}</text:p>" if text else ""
        return f'<table:table-cell office:value-type="string">{inner}</table:table-cell>'

    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    lines = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
    content = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document-content {spaces} office:version="1.2"><office:body>'
        f'<office:spreadsheet><table:table table:name="people">{lines}</table:table></office:spreadsheet></office:body>'
        "</office:document-content>"
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", content)
        manifest = '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
        archive.writestr("META-INF/manifest.xml", manifest)


def test_workbooks_are_read_cell_by_cell(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "zip": ["01024", "99502", None],
            "n": [1, 2, 3],
            "rate": [0.5, None, 12.25],
            "ok": [True, False, True],
            "day": [dt.date(2020, 1, 31), dt.date(1999, 12, 1), None],
            "at": [dt.datetime(2020, 1, 31, 8, 30), None, dt.datetime(2021, 2, 3, 4, 5, 6)],
        }
    )
    expected = [
        ["01024", "1", "0.5", "True", "2020-01-31", "2020-01-31 08:30:00"],
        ["99502", "2", "", "False", "1999-12-01", ""],
        ["", "3", "12.25", "True", "", "2021-02-03 04:05:06"],
    ]
    with pd.ExcelWriter(tmp_path / "t.xlsx") as writer:
        frame.to_excel(writer, sheet_name="people", index=False)
        frame.head(2).to_excel(writer, sheet_name="fewer", index=False)
    write_ods(tmp_path / "t.ods", [list(frame.columns), *expected])
    reading = guess_reading(tmp_path / "t.xlsx")
    assert rows_of(reading.rule) == expected
    assert any("'people' is read, not 'fewer'" in remark for remark in reading.remarks)
    assert rows_of(guess_reading(tmp_path / "t.xlsx", sheet="fewer").rule) == expected[:2]
    assert rows_of(guess_reading(tmp_path / "t.ods").rule) == expected
    with pytest.raises(DataFault, match="no sheet 'nobody', its sheets are 'people', 'fewer'"):
        rows_of(guess_reading(tmp_path / "t.xlsx", sheet="nobody").rule)
    (tmp_path / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
    with pytest.raises(DataFault, match="no Excel workbook"):
        guess_reading(tmp_path / "old.xls")


def test_a_workbook_that_inflates_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.DataFrame({"a": range(2000), "b": "x"}).to_excel(tmp_path / "t.xlsx", index=False)
    monkeypatch.setattr("verticil.party.dataset.sources.workbook_limits.WORKBOOK_BYTES", 1 << 14)
    with pytest.raises(DataFault, match="inflates to more than"):
        guess_reading(tmp_path / "t.xlsx")


def test_files_of_statistics_programs_are_read_with_their_labels(tmp_path: Path) -> None:
    import pyreadstat

    frame = pd.DataFrame({"sex": [1.0, 2.0, 9.0], "age": [30.0, np.nan, 41.5], "name": ["a", "b", "c"]})
    labels = {"sex": {1.0: "female", 2.0: "male", 9.0: "refused"}}
    pyreadstat.write_sav(frame, str(tmp_path / "t.sav"), variable_value_labels=labels, missing_ranges={"sex": [9.0]})
    pyreadstat.write_dta(
        frame, str(tmp_path / "t.dta"), variable_value_labels={"sex": {1: "female", 2: "male", 9: "refused"}}
    )
    assert rows_of(guess_reading(tmp_path / "t.sav").rule) == [
        ["female", "30", "a"],
        ["male", "", "b"],
        ["", "41.5", "c"],
    ]
    assert rows_of(guess_reading(tmp_path / "t.dta").rule)[0] == ["female", "30", "a"]
    (tmp_path / "bad.sav").write_bytes(b"$FL2 nothing")
    with pytest.raises(DataFault, match="no file of SPSS"):
        header(guess_reading(tmp_path / "bad.sav").rule)


def test_a_file_of_too_many_columns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyreadstat

    pyreadstat.write_dta(pd.DataFrame({f"v{place}": [1.0] for place in range(30)}), str(tmp_path / "t.dta"))
    monkeypatch.setattr("verticil.party.dataset.sources.statistics_files.STATISTICS_COLUMNS", 20)
    with pytest.raises(DataFault, match="30 columns, expected at most 20"):
        header(guess_reading(tmp_path / "t.dta").rule)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.sav").write_bytes(b"$FL2")
    monkeypatch.setattr("verticil.party.dataset.sources.optional_packages.find_spec", lambda _: None)
    with pytest.raises(VerticilError, match="needs pyreadstat, which is not installed") as caught:
        header(guess_reading(tmp_path / "t.sav").rule)
    assert install_command("formats") in str(caught.value)


def test_a_sheet_that_spans_far_more_cells_than_it_has_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_excel(tmp_path / "honest.xlsx", index=False)
    far = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    with zipfile.ZipFile(tmp_path / "honest.xlsx") as honest, zipfile.ZipFile(tmp_path / "t.xlsx", "w") as bomb:
        for item in honest.infolist():
            bomb.writestr(item.filename, honest.read(item).replace(b"</sheetData>", far))
    with pytest.raises(DataFault, match="few cells that stand very far apart"):
        guess_reading(tmp_path / "t.xlsx")


def test_a_sheet_whose_index_has_no_name_keeps_its_header_and_first_row(tmp_path: Path) -> None:
    pd.DataFrame(ROWS, columns=["age", "job", "seen"]).to_excel(tmp_path / "t.xlsx")
    rule = guess_reading(tmp_path / "t.xlsx").rule
    assert header(rule) == ("", "age", "job", "seen")
    assert [row[1:] for row in rows_of(rule)] == ROWS


def test_a_header_that_lacks_a_name_is_said_and_no_row_becomes_the_header(tmp_path: Path) -> None:
    rows = "".join(f'"{place}" "{"FM"[place % 2]}" {place % 60} "cook"\n' for place in range(90))
    (tmp_path / "t.txt").write_text('"sex" "age" "job"\n' + rows)
    with pytest.raises(DataFault, match="the header in line 1 has 3 names, and nearly all rows have 4 fields"):
        guess_reading(tmp_path / "t.txt")


def test_one_column_of_decimal_commas_keeps_its_name_and_first_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("weight\n" + "".join(f"{place % 90},{place % 7}\n" for place in range(90)))
    rule = guess_reading(tmp_path / "t.csv").rule
    assert header(rule) == ("weight",)
    assert rows_of(rule)[:2] == [["0,0"], ["1,1"]]


def test_a_few_damaged_bytes_leave_the_file_utf_8(tmp_path: Path) -> None:
    lines = [b"sex,job", *(("F,B\u00e4cker", "M,K\u00f6chin")[place % 2].encode() for place in range(60))]
    for place in (7, 20, 31):
        lines[place] = b"F,B\xe4cker"
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines) + b"\n")
    reading = guess_reading(tmp_path / "t.csv")
    assert reading.rule.encoding == "utf-8"
    assert any("line 8" in remark and "one of 3 damaged places" in remark for remark in reading.remarks)


def test_utf_32_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("sex,job\nF,K\u00f6chin\nM,cook\n", encoding="utf-32")
    assert rows_of(guess_reading(tmp_path / "t.csv").rule) == [["F", "K\u00f6chin"], ["M", "cook"]]


def test_two_open_marks_in_lines_that_follow_are_counted(tmp_path: Path) -> None:
    lines = ["id,job,age", *(f"{place},cook,{place % 60}" for place in range(2000))]
    lines[50], lines[51] = '49,"cook,40', '50,"nurse,41'
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    assert texts_of("owner", tmp_path / "t.csv").notes == [
        "line 51: a quotation mark is opened and not closed in its line: 1 lines become no row"
    ]


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("cp1250", ["P\u0159\u00edbram", "l\u00e9ka\u0159", "\u017eena"]),
        ("cp1250", ["\u0141\u00f3d\u017a", "\u017c\u00f3\u0142ty"]),
        ("cp1252", ["Besan\u00e7on", "infirmi\u00e8re"]),
        ("cp1254", ["\u0130stanbul", "\u00f6\u011fretmen", "a\u015f\u00e7\u0131"]),
        ("cp1251", ["\u0434\u0430", "\u043d\u0435\u0442"]),
        ("cp1256", ["\u0637\u0628\u064a\u0628"]),
        ("cp866", ["\u043f\u043e\u0432\u0430\u0440", "\u043a\u043b\u0435\u0440\u043a"]),
        ("cp850", ["K\u00f6ln", "M\u00e1laga"]),
        ("gb18030", ["\u5317\u4eac", "\u533b\u751f"]),
        ("cp1254", ["Mu\u011fla", "\u0130zmir", "\u015fehir"]),
        ("cp1252", ["\u00de\u00f3r", "b\u00fad", "sj\u00fakrah\u00fas"]),
        ("cp1255", ["\u05d7\u05d9\u05e4\u05d4", "\u05d9\u05e8\u05d5\u05e9\u05dc\u05d9\u05dd"]),
    ],
)
def test_code_pages_are_told_apart_by_the_words_of_languages(tmp_path: Path, encoding: str, words: list[str]) -> None:
    rows = [["F", word] for word in words * 20]
    (tmp_path / "t.csv").write_bytes(("sex,job\n" + "".join(f"{','.join(row)}\n" for row in rows)).encode(encoding))
    assert rows_of(guess_reading(tmp_path / "t.csv").rule) == rows


def test_an_index_without_a_name_and_moments_are_cut_at_commas(tmp_path: Path) -> None:
    rows = [f"{place},2020-10-{1 + place % 28:02} 10:{place % 60:02}:00,{'ABC'[place % 3]}" for place in range(60)]
    (tmp_path / "t.csv").write_text("\n".join([",when,ward", *rows]) + "\n")
    rule = guess_reading(tmp_path / "t.csv").rule
    assert header(rule) == ("", "when", "ward")
    assert rows_of(rule) == [row.split(",") for row in rows]


def test_texts_of_a_single_column_are_not_cut(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job\n" + "x y\ny z\nz x\n" * 20)
    rule = guess_reading(tmp_path / "t.csv").rule
    assert header(rule) == ("job",)
    assert rows_of(rule) == [["x y"], ["y z"], ["z x"]] * 20


SAS_FILE = (  # test_data/basic/sample.sas7bdat of pyreadstat (Apache-2.0), which SAS wrote, packed
    "/Td6WFoAAATm1rRGAgAhARwAAAAQz1jM4f//A0RdAABsVp1CzvFLONQu8+tepEAstmgmXu20wXP/5H2DnZWPMVEl6MpAeOwwtqh5CanpSsNn"
    "TNngiZcTvLUOcWCL28w7rlg5G8N7u+zh0aIaqFEgYX5dLnKLeTkZPkGLhnve2/XyidQI1M2siGPIZcLhRGK45pr+MH6nurB0MXqTqCyHvMS2"
    "GIUHKRs3Defcs7itMaT0cUtmtCZaGUBBhsym4eaiQvQPo5VNJSARSrY7bw2dimygRbaIW5U/8F8GGA8uFUmrrbJneB6yF8f2hnWWklQLhshv"
    "R//10iThckOuDLDmX6uiFohB5twL22Rd5VLgFBqADitbXPNJNlekodUc7bkuIFrqH9vjD6y9h42SEZEd9Tq3Vd/V+Mb0+t55PBzXso4hhkwL"
    "O6fQ8veXK05Qtg8BhNwLt0jyfdVKvzkqI8A1CEVxUm+J+j1mM+bit4yyQR2I1JO+QQrA+fKKjWX+JRdB5bE8OuBtH/lgOfY5N7ZU/y5akRrU"
    "deWU2BrICvDp3A+fx6adB+mrKPK9nAIBW4m438aysfHgnPNilfAxYhkXYrnopiKuZbdq4LQPs7iwkw5bMp5mPLGoI8FW63YrUKBpBYPt6Ziy"
    "ktHvLoN7RrorNxj+CtlK78FG6sg9K4J0lZMUVj4gZhZFNYx2u7PxdOviTOW7GNyfJULPC9rPznetG9Z8xKAe1uVmfs6lAbficLbfs/XW3YT4"
    "tbDIrXzpcAQhrWSY3SiMH9GPR07e2DgpSpD0YbZ8U0cGEno7iTHBrdFkXtPipRcjRaNRLYkCi7ypXft0fB917WUJE5I+3PsOJdooaMKdalFc"
    "1v6F3oJhYmp5NhpWL71JeJoTZUFbFEy3dWydvWfFcEEq964sxj+e4aNfH2QOLzyqh/mfSDfeEB/oCrrZNPuwnE2oufe+6RZ4SQYM2bt9MV2h"
    "RJ02D5cHMVRYbPG7IHwU7imsFSp3jkcQe5Z/T6m6OJ4M0wo9Zx9zvU+MwmMYPpHUYc0vt9J4Op8hf2ZfJCbyetwwAaMZSCYRmRd/+lhhkEyp"
    "fByNGw5jkmLcWk562To3Z7huvIwh5nOVq1S0HJFW52Juz2GRfqDvzCPQ8JRkeQePiEZjE7dekroAAPUTnYtRcjEDAAHgBoCACABMHeSescRn"
    "+wIAAAAABFla"
)


def test_a_file_of_sas_is_read_cell_by_cell(tmp_path: Path) -> None:
    (tmp_path / "t.sas7bdat").write_bytes(lzma.decompress(base64.b64decode(SAS_FILE)))
    rule = guess_reading(tmp_path / "t.sas7bdat").rule
    assert header(rule) == ("mychar", "mynum", "mydate", "dtime", "mylabl", "myord", "mytime")
    assert rows_of(rule) == [
        ["a", "1.1", "2018-05-06", "2018-05-06 10:10:10", "1", "1", "10:10:10"],
        ["b", "1.2", "1880-05-06", "1880-05-06 10:10:10", "2", "2", "23:10:10"],
        ["c", "-1000.3", "1960-01-01", "1960-01-01", "1", "3", "00:00:00"],
        ["d", "-1.4", "1583-01-01", "1583-01-01", "2", "1", "16:10:10"],
        ["e", "1000.3", "", "", "1", "1", ""],
    ]


def test_what_is_no_file_is_refused_by_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for name, words in (
        (".", "is a folder"),
        ("gone.csv", "no such file"),
        ("gone.xlsx", "no such file"),
        ("pipe.csv", "is a pipe or a device, expected a file"),
    ):
        with pytest.raises(DataFault, match=words) as caught:
            guess_reading(tmp_path / name)
        assert caught.value.code == "DATA_FILE_MISSING"
        assert "party.toml" not in caught.value.hint  # the path was given on the command line
