"""A table whose id repeats is drafted as a related table, or the message says how to; the draft says how its file is read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from support.related import people_with_visits
from verticil.analyst.draft import Wording, draft_study
from verticil.curator import synthesize
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.study.reading import read_study_text
from verticil.shared.study.related_tables import people_study, rows_study

N = 600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    people, visits = people_with_visits(N)
    people.to_csv(tmp_path / "people.csv", index=False)
    visits.to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path


def drafted(folder: Path, **wording: object) -> str:
    tables = {"clinic": folder / "people.csv", "clinic.visits": folder / "visits.csv"}
    given = Wording(title="T", purpose="P", public=True, id_column="pid", **wording)  # type: ignore[arg-type]  # of Wording
    return draft_study(tables, wording=given).text


def test_rows_of_people_are_drafted_as_a_related_table(folder: Path) -> None:
    text = drafted(folder)
    study = read_study_text(text, folder, by_owner=True)
    (table,) = study.related
    rows = pd.read_csv(folder / "visits.csv").groupby("pid").size()
    assert (table.name, table.party, table.order, table.columns) == (
        "visits",
        "clinic",
        "admitted",
        ("admitted", "ward"),
    )
    assert table.max_rows == int(
        rows.sort_values().iloc[-(len(rows) // 20) - 1]
    )  # 95 of 100 people have a slot for each row
    repeated, total = int(rows.sum()) - len(rows), int(rows.sum())
    assert f"'pid' repeats in {repeated:,} of {total:,} rows" in text
    assert set(rows_study(study, table).drafted) == {"clinic"}
    assert rows_study(study, table).drafted["clinic"]["columns"] == {"admitted": {"written": "DD.MM.YYYY"}}
    assert set(people_study(study).drafted) == {"clinic"}


@pytest.mark.whole
def test_what_was_drafted_can_be_carried_out(folder: Path) -> None:
    """The id and how dates are written come from the draft: nothing else is said of the files."""
    (folder / "study.toml").write_text(drafted(folder))
    found = synthesize(
        folder / "people.csv",
        folder / "study.toml",
        tables={"visits": folder / "visits.csv"},
        epsilon=50.0,
        state=folder / "state",
        accept_noise=True,
    )
    assert found.n_records == N
    assert not any("no value in the order column" in warning for warning in found.warnings)
    assert found.records["visits.rows"].sum() > 0


def test_an_id_that_repeats_is_answered_with_both_ways(folder: Path) -> None:
    with pytest.raises(DataFault, match=r"repeats in .* rows") as caught:
        draft_study({"clinic": folder / "visits.csv"}, wording=Wording(id_column="pid"))
    assert "PARTY.TABLE=ROWS" in caught.value.hint
    assert 'one_row = "first"' in caught.value.hint
    assert 'summary = "count"' in caught.value.hint


def test_people_with_an_id_alone_are_refused_with_what_is_missing(folder: Path) -> None:
    pd.read_csv(folder / "people.csv")[["pid"]].to_csv(folder / "people.csv", index=False)
    with pytest.raises(
        DataFault, match="it has only the id, and a study with related tables needs one column of the person"
    ):
        drafted(folder)


def test_rows_without_the_persons_id_are_refused(folder: Path) -> None:
    pd.read_csv(folder / "visits.csv").drop(columns="pid").to_csv(folder / "visits.csv", index=False)
    with pytest.raises(DataFault, match=r"visits\.csv: no column 'pid'"):
        drafted(folder)
    with pytest.raises(Misuse, match=r"party 'bank' has no table of people.*bank=FILE"):
        draft_study({"clinic": folder / "people.csv", "bank.visits": folder / "visits.csv"})
