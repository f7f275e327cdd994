"""Files that are no table, or one that needs a word: what each is called, and what is said."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

import pandas as pd
import pytest

from support.bombs import repeated_cells
from verticil.party.dataset.sources.open_source import header
from verticil.shared.core.errors import DataFault
from verticil.tables.columns import TableProfile
from verticil.tables.profile import profile_table
from verticil.tables.reading import guess_reading

PEOPLE: Final = [["FM"[place % 2], str(18 + place % 60), ("cook", "nurse", "clerk")[place % 3]] for place in range(300)]
NAMES: Final = ("sex", "age", "job")


def lines(delimiter: str = ",", names: tuple[str, ...] = NAMES) -> list[str]:
    return [delimiter.join(row) for row in [list(names), *PEOPLE]]


def profile_of(tmp_path: Path, content: list[str] | bytes) -> TableProfile:
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else "\n".join([*content, ""]).encode())
    return profile_table("owner", path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"%PDF-1.7\n%\xe2\xe3\n" + b"x" * 500, "a PDF document"),
        (b"<!DOCTYPE html><html><table><tr><td>sex</td></tr></table></html>", "a page of the web"),
        (b'[{"sex": "F", "age": 3}]', "JSON"),
        (b'{"sex": "F"}\n{"sex": "M"}\n', "JSON"),
        (b"PAR1" + bytes(range(1, 200)) * 9, "a Parquet file"),
        (bytes(place * 89 % 251 for place in range(5000)), "no text"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "an old Excel workbook"),
    ],
)
def test_a_file_that_is_no_table_of_text_is_called_what_it_is(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(DataFault, match=f"this is {what}.*expected CSV"):
        profile_of(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lines("||"), r"'\|\|' stands between the columns"),
        (lines(names=("sex", "age", "age")), "column 'age' occurs 2 times, expected once"),
        (["sex,age,job", *(f"{line}," for line in lines()[1:])], "each row ends with a delimiter"),
        (["sex,age,job", *(f"{row[0]},{row[1]},'{row[2]}, paid'" for row in PEOPLE)], "stand between apostrophes"),
    ],
)
def test_a_header_and_rows_that_do_not_fit_are_explained(tmp_path: Path, content: list[str], words: str) -> None:
    with pytest.raises(DataFault, match=words):
        profile_of(tmp_path, content)


def test_a_column_without_a_name_is_no_doubled_delimiter(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, lines(names=("sex", "", "job")))
    assert [bool(column.left_out) for column in profile.columns] == [False, True, False]


@pytest.mark.parametrize("mark", "~^|:")
def test_rare_delimiters_are_found(tmp_path: Path, mark: str) -> None:
    assert len(profile_of(tmp_path, lines(mark)).columns) == 3


def test_comments_amid_the_rows_are_said(tmp_path: Path) -> None:
    rows = lines()
    short = profile_of(tmp_path, [*rows[:50], "# second ward", *rows[50:]])
    assert short.notes == (
        "1 row has too many or too few fields and is left out, the first is row 51 (the header is row 1); 1 line begins with "
        "#, as comments do",
    )
    whole = profile_of(tmp_path, [*rows[:50], "# a,b,c", *rows[50:]])
    assert whole.notes == (
        "1 row begins with #, as comments do, and became part of the table: take such lines out of the file",
    )
    colours = ["colour,sex", *(f"#{place % 9:06d},{'FM'[place % 2]}" for place in range(300))]
    assert profile_of(tmp_path, colours).notes == ()


def test_many_rows_that_are_left_out_are_a_share(tmp_path: Path) -> None:
    rows = [line if place % 3 else f"{line},x" for place, line in enumerate(lines(), 1)]
    assert (
        "100 rows have too many or too few fields and are left out (33% of all)" in profile_of(tmp_path, rows).notes[0]
    )


def test_a_file_whose_most_rows_do_not_fit_is_refused(tmp_path: Path) -> None:
    rows = [line + ",x" * (place % 3) for place, line in enumerate(lines())]
    with pytest.raises(
        DataFault, match="200 lines have too many or too few fields, the first is row 2, and only 100 have"
    ):
        profile_of(tmp_path, rows)


@pytest.mark.parametrize("units", [",years,", "(-),(a),(-)", ",a,a", ",years,text"])
def test_a_line_of_units_below_the_header_is_said_and_is_not_the_header(tmp_path: Path, units: str) -> None:
    profile = profile_of(tmp_path, [lines()[0], units, *lines()[1:]])
    assert tuple(column.name for column in profile.columns) == NAMES
    assert profile.columns[1].kind == "integer"
    assert profile.notes == ("line 2 seems to hold units, and is a row of the table: take it out of the file",)
    assert profile_of(tmp_path, [lines()[0], "F,,", *lines()[1:]]).notes == ()


def test_quotation_marks_behind_a_reversed_stroke_are_said(tmp_path: Path) -> None:
    rows = ["sex,note", *(f'{row[0]},"{row[2]} \\"x\\""' for row in PEOPLE)]
    assert any("reversed stroke" in note for note in profile_of(tmp_path, rows).notes)


def test_files_that_a_file_manager_packs_besides_are_no_tables(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("people.csv", "\n".join(lines()))
        archive.writestr("__MACOSX/._people.csv", "x")
        archive.writestr(".DS_Store", "x")
    assert header(guess_reading(tmp_path / "t.csv.zip").rule) == NAMES


def test_what_has_a_password_is_said_to_have_one(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("people.csv", "\n".join(lines()))
    content = bytearray((tmp_path / "t.csv.zip").read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "t.csv.zip").write_bytes(content)
    head = bytearray(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(512, b"\0"))
    head[30] = 9  # sectors of 512 bytes, the first of which holds names
    directory = "".join(name.ljust(64, "\0") for name in ("Root Entry", "EncryptedPackage")).encode("utf-16-le")
    (tmp_path / "t.xlsx").write_bytes(bytes(head) + directory)
    sheet = repeated_cells(2, 2)(tmp_path)
    with zipfile.ZipFile(sheet) as plain, zipfile.ZipFile(tmp_path / "t.ods", "w") as locked:
        for item in plain.infolist():
            locked.writestr(
                item.filename, plain.read(item).replace(b"<manifest:manifest", b"<manifest:encryption-data/>")
            )
    for name, what in (("t.csv.zip", "the zip file"), ("t.xlsx", "the workbook"), ("t.ods", "the workbook")):
        with pytest.raises(DataFault, match=f"{what} has a password"):
            profile_table("owner", tmp_path / name)


def test_of_several_sheets_the_first_table_is_read_and_named(tmp_path: Path) -> None:
    frame = pd.DataFrame(PEOPLE, columns=list(NAMES))
    with pd.ExcelWriter(tmp_path / "t.xlsx") as writer:
        pd.DataFrame({"note": ["read me", "nothing here"]}).to_excel(writer, sheet_name="About", index=False)
        frame.to_excel(writer, sheet_name="People", index=False)
        frame.to_excel(writer, sheet_name="Old", index=False)
    reading = guess_reading(tmp_path / "t.xlsx")
    assert reading.rule.sheet == "People"
    assert (
        "'People' is read, the first one that holds a table, not 'About', 'Old'; --sheet names one"
        in reading.remarks[0]
    )
    assert guess_reading(tmp_path / "t.xlsx", sheet="About").rule.sheet == "About"


def test_a_workbook_with_macros_is_read_as_its_cells(tmp_path: Path) -> None:
    pd.DataFrame(PEOPLE, columns=list(NAMES)).to_excel(tmp_path / "plain.xlsx", index=False)
    with zipfile.ZipFile(tmp_path / "plain.xlsx") as plain, zipfile.ZipFile(tmp_path / "t.xlsm", "w") as macros:
        for item in plain.infolist():
            macros.writestr(item.filename, plain.read(item))
        macros.writestr("xl/vbaProject.bin", bytes(2000))
    assert [column.name for column in profile_table("owner", tmp_path / "t.xlsm").columns] == list(NAMES)


@pytest.mark.whole
def test_a_stata_file_of_too_many_columns_is_refused_by_them(tmp_path: Path) -> None:
    import pyreadstat

    pyreadstat.write_dta(
        pd.DataFrame([[1.0] * 10_001], columns=[f"v{n}" for n in range(10_001)]), str(tmp_path / "t.dta")
    )
    with pytest.raises(DataFault, match="10,001 columns, expected at most 10,000"):
        profile_table("owner", tmp_path / "t.dta")


def test_a_file_of_spss_longer_than_a_part_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyreadstat

    monkeypatch.setattr("verticil.party.dataset.sources.statistics_files.PART_ROWS", 100)
    pyreadstat.write_sav(pd.DataFrame({"age": [float(place) for place in range(250)]}), str(tmp_path / "t.sav"))
    assert profile_table("owner", tmp_path / "t.sav").columns[0].n_distinct == 250
