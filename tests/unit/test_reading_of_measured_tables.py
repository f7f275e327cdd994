"""How an owner's table is read where noise protects people: as the study says, so that no row decides how others are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verticil.curator.reading import Table, read_table
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import DataFault
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study_text
from verticil.tables.settings import rule_for

SECRET = SiteSecret(value=b"s" * 32)
N = 400
STUDY = """
schema = 1
id = "read"
purpose = "p"
expires = 2099-01-01
[draft]
reviewed = true
TABLE
[[party]]
name = "owner"
[[variable]]
party = "owner"
name = "born"
type = "date"
bins = [1950-01-01, 1950-04-01, 1950-07-01, 1950-10-01, 1951-01-01]
[[variable]]
party = "owner"
name = "pay"
type = "number"
bins = [0, 10, 1000, 2000, 5000, 10000]
[randomization_default]
scheme = "symmetric"
epsilon = 3.0
"""
SAID = '[draft.table.owner]\nencoding = "utf-8"\ndelimiter = ";"\n'
BORN = '[draft.table.owner.columns.born]\nwritten = "DD/MM/YYYY"\n'


def study(table: str) -> Study:
    return read_study_text(STUDY.replace("TABLE", table), Path())


def table_of(folder: Path, table: str, *, born: str = "01/02/1950", pay: str = "2.500", delimiter: str = ";") -> Table:
    draw = np.random.default_rng(1)
    days = [f"{day:02d}/{month:02d}/1950" for day, month in draw.integers(1, 13, (N, 2)).tolist()]
    pays = [f"{number / 1000:.3f}" for number in draw.integers(1000, 9999, N).tolist()]
    rows = [*zip(days, pays, strict=True), (born, pay)]
    text = "\n".join(delimiter.join(row) for row in [("born", "pay"), *rows])
    (folder / "people.csv").write_text(text + "\n")
    return read_table(folder / "people.csv", study(table), dataset="people", id_column=None, secret=SECRET)


@pytest.mark.parametrize(
    "written",
    [
        BORN + '[draft.table.owner.columns.pay]\nwritten = "1.234,5"\n',
        BORN,  # so numbers are plain
    ],
)
@pytest.mark.parametrize("one", [{"born": "13/01/1950"}, {"born": "01/13/1950"}, {"pay": "1.250"}, {"pay": "250"}])
def test_one_persons_value_decides_nothing_about_others(tmp_path: Path, written: str, one: dict[str, str]) -> None:
    usual = table_of(tmp_path, SAID + written)
    changed = table_of(tmp_path, SAID + written, **one)
    assert changed.codebooks == usual.codebooks
    for before, after in zip(usual.codes, changed.codes, strict=True):
        assert np.array_equal(before[:-1], after[:-1])


@pytest.mark.parametrize("one", [{"born": "13/01/1950"}, {"born": "01/13/1950"}, {"pay": "1.250"}, {"pay": "250"}])
def test_what_the_study_does_not_say_is_asked_for(tmp_path: Path, one: dict[str, str]) -> None:
    with pytest.raises(DataFault, match=r"'(born|pay)' seems to be written as .* the study does not say so") as caught:
        table_of(tmp_path, "", delimiter=",", **one)
    assert f'with written = "{rule_for(study(""), "owner", tmp_path / "people.csv")[0].column("born").written}"' in str(
        caught.value
    )


def test_a_file_that_looks_otherwise_than_the_study_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFault, match=r'delimiter: the study says ";", the file looks like ","'):
        table_of(tmp_path, SAID, delimiter=",")
    with pytest.raises(DataFault, match=r'delimiter: the study does not say it, expected ",", the file looks like ";"'):
        table_of(tmp_path, "")
