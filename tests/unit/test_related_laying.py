"""Rows of files in slots: ties, holes, unknown people, very many rows, and values that a study does not declare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.related import STUDY
from verticil.party.dataset import related_rows
from verticil.party.dataset.related_rows import counts_of, people_by_id, people_by_tag, read_rows
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault
from verticil.shared.related.laying import Laid
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study_text


def study(**keys: str) -> Study:
    more = "".join(f'\n{key} = "{value}"' for key, value in keys.items())
    return read_study_text(STUDY.replace('order = "admitted"', f'order = "admitted"{more}'), Path())


def read(folder: Path, rows: list[tuple[str, str, str]], ids: list[str], of: Study | None = None, key: int = 0) -> Laid:
    pd.DataFrame(rows, columns=["pid", "admitted", "ward"]).to_csv(folder / "visits.csv", index=False)
    of = of or study()
    rule = DatasetRule(path=folder / "visits.csv", format="csv", id="pid")
    people = people_by_id(ids, np.arange(len(ids), dtype=np.uint8)[:, None], ["trim"])
    return read_rows(rule, of.related[0], of.schema, people, key=bytes([key]) * 32)


def labels(found: Laid, of: Study, person: int) -> list[str]:
    return [
        of.schema[of.schema.index(name)].labels[codes[person]] for name, codes in found.codes.items() if "[" in name
    ]


def words_of(found: Laid) -> str:
    return " ".join(remark.message for remark in counts_of(study().related[0], found))


def test_ties_and_holes_have_a_place(tmp_path: Path) -> None:
    """Rows of one day are in the order of their categories; a row without a day comes last, with a gap that is drawn."""
    rows = [("a", "2020-03-02", "C"), ("a", "", "A"), ("a", "2020-03-02", "B"), ("b", "2020-03-01", "A")]
    found = read(tmp_path, rows, ["a", "b", "c"])
    assert found.codes["visits.rows"].tolist() == [3, 1, 0]
    date, first, gap, second, _, third = labels(found, study(), 0)
    assert (date, first, gap, second, third) == ("[2020-01-01,2020-07-01)", "B", "[0,1)", "C", "A")
    assert found.undeclared["visits[3].admitted.gap"].tolist() == [True, False, False]
    assert not found.undeclared["visits[2].admitted.gap"].any()
    assert (found.n_unordered, found.n_without, found.n_tied) == (1, 1, 1)
    assert "1 rows have the 'admitted' of the person's row before" in words_of(found)
    assert labels(found, study(), 2) == ["no row"] * 6


def test_unknown_people_and_a_person_with_ten_thousand_rows_are_counted(tmp_path: Path) -> None:
    days = pd.date_range("2020-01-01", periods=366).strftime("%Y-%m-%d")
    many = [("a", days[n % 366], "ABC"[n % 3]) for n in range(10_000)]
    found = read(tmp_path, [*many, ("x", "2020-01-01", "A"), ("", "2020-01-01", "A")], ["a", "b"])
    assert (found.n_beyond, found.n_people_beyond, found.n_unknown) == (9_997, 1, 2)
    texts = [remark.message for remark in counts_of(study().related[0], found)]
    assert "9,997 rows of 1 people are beyond max_rows = 3" in " ".join(texts)
    assert "2 of 10,002 rows are of people who are not in the table of people" in " ".join(texts)
    assert not any("2020" in text for text in texts)


def test_values_without_a_category_and_lines_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    rows = [("a", "2020-03-02", "Z"), ("a", "2020-03-03", "A"), ("x", "2020-03-02", "Y"), ("b", "soon", "B")]
    found = read(tmp_path, rows, ["a", "b"])
    assert found.n_undeclared == {"ward": 2}
    assert found.n_tied == 0
    with (tmp_path / "visits.csv").open("a") as file:
        file.write("a,2020-03-02\na,2020-03-02,A,A\n")
    people = people_by_id(["a", "b"], np.arange(2, dtype=np.uint8)[:, None], ["trim"])
    rule = DatasetRule(path=tmp_path / "visits.csv", format="csv", id="pid")
    found = read_rows(rule, study().related[0], study().schema, people, key=bytes(32))
    assert (found.n_rows, found.n_ragged) == (4, 2)
    texts = words_of(found)
    assert "of 4 rows, values without a declared category, in place of which one is drawn: column 'ward' 2" in texts
    assert "2 lines have too many or too few fields and are left out" in texts
    assert not any(value in texts for value in ("Z", "soon", "Y"))


def test_rows_at_random_are_the_same_ones_under_one_secret(tmp_path: Path) -> None:
    of = study(keep="random")
    rows = [("a", f"2020-0{1 + n}-01", "ABC"[n % 3]) for n in range(9)]
    once, again, other = (labels(read(tmp_path, rows, ["a"], of, key), of, 0) for key in (1, 1, 2))
    assert once == again
    assert once != other


def test_an_undeclared_category_is_drawn_and_no_row_is_never_drawn(tmp_path: Path) -> None:
    found = read(tmp_path, [("a", "2020-03-02", "Z")], ["a"])
    assert found.undeclared["visits[1].ward"].tolist() == [True]
    assert found.codes["visits.rows"].tolist() == [1]


def test_a_table_without_rows_is_a_table(tmp_path: Path) -> None:
    found = read(tmp_path, [], ["a", "b"])
    assert found.codes["visits.rows"].tolist() == [0, 0]
    assert found.n_without == 2


def test_a_table_without_the_persons_id_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("admitted,ward\n2020-01-01,A\n")
    rule = DatasetRule(path=tmp_path / "visits.csv", format="csv", id="pid")
    people = people_by_id(["a"], np.zeros((1, 1), np.uint8), [])
    with pytest.raises(DataFault, match=r"DATA_COLUMN_MISSING.*pid"):
        read_rows(rule, study().related[0], study().schema, people, key=bytes(32))


def test_a_row_whose_day_is_declared_missing_has_that_category_as_its_gap(tmp_path: Path) -> None:
    text = STUDY.replace(
        "bins = [2020-01-01, 2020-07-01, 2021-01-01]",
        'bins = [2020-01-01, 2020-07-01, 2021-01-01]\nmissing = { category = "unknown", spellings = ["NA"] }',
    )
    of = read_study_text(text, Path())
    found = read(tmp_path, [("a", "NA", "A"), ("a", "2020-03-02", "B")], ["a", "b"], of)
    assert labels(found, of, 0) == ["[2020-01-01,2020-07-01)", "B", "unknown", "A", "unknown", "no row"]
    assert not found.undeclared["visits[2].admitted.gap"].any()
    assert found.n_unordered == 1


@pytest.mark.parametrize("keep", ["first", "last", "random"])
def test_rows_that_do_not_fit_into_memory_are_laid_as_those_that_do(
    keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine hundred rows of forty people, one of them with every second row, sorted by sixteen at a time."""
    draw = np.random.default_rng(1)
    whose = np.where(draw.random(900) < 0.5, 7, draw.integers(0, 45, 900))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 300, 900), unit="D")
    rows = [
        (f"p{person}", day if n % 50 else "", "ABCx"[n % 4])
        for n, (person, day) in enumerate(zip(whose, days.strftime("%Y-%m-%d"), strict=True))
    ]
    of, ids = study(keep=keep), [f"p{n}" for n in range(40)]
    whole = read(tmp_path, rows, ids, of)
    monkeypatch.setattr(related_rows, "MEMORY_ROWS", 16)
    in_parts = read(tmp_path, rows, ids, of)
    for name, codes in whole.codes.items():
        assert np.array_equal(codes, in_parts.codes[name]), name
    for name, is_open in whole.undeclared.items():
        assert np.array_equal(is_open, in_parts.undeclared[name]), name
    for name in ("n_rows", "n_beyond", "n_people_beyond", "n_unknown", "n_without", "n_unordered"):
        assert getattr(whole, name) == getattr(in_parts, name)
    assert whole.n_people_beyond > 10
    assert whole.n_unknown > 10
    assert whole.n_unordered == 18


def test_people_are_found_by_their_tags_whatever_the_bytes_are() -> None:
    """Also by a tag that ends in zeros, and nobody by the tag of an empty id."""
    tags = np.array([[5, 0, 0], [0, 0, 7], [5, 0, 1]], np.uint8)
    by_text = {"a": tags[0], "b": tags[1], "c": tags[2], "": np.zeros(3, np.uint8), "x": np.array([5, 1, 0], np.uint8)}
    people = people_by_tag(tags, lambda texts: np.array([by_text[text] for text in texts], np.uint8).reshape(-1, 3))
    assert people.find(["c", "", "a", "x", "b"]).tolist() == [2, -1, 0, -1, 1]
    assert people.find([]).tolist() == []
