"""One owner's costs are added up over people: the same rows under another name, in another study or with a row changed."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.curator import synthesize
from verticil.curator.measuring import measurement
from verticil.curator.people import other_states, read_whose
from verticil.curator.spending import UNLIMITED, Spending, charge
from verticil.curator.state import FOLDER, open_state
from verticil.curator.study import owners_study
from verticil.shared.core.errors import Refusal
from verticil.shared.privacy.accounts import Cost
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study

N = 400
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
STUDY = """
schema = 1
id = "alone"
purpose = "A clinic's own table"
expires = 2099-01-01
[[party]]
name = "clinic"
[[variable]]
party = "clinic"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "clinic"
name = "age"
bins = [0, 30, 60, 120]
[randomization_default]
scheme = "symmetric"
epsilon = 3.0
[structure]
method = "greedy"
max_parents = 1
seed = 1
[release]
synthetic_records = 100
seed = 1
"""


def people(first: int = 0, n: int = N, *, ids: bool = False) -> pd.DataFrame:
    """Rows that each depend on the number of a person."""
    numbers = np.arange(first, first + n)
    table = pd.DataFrame(
        {
            "sex": np.where(numbers * 7919 % 97 < 50, "f", "m"),
            "age": numbers * 104_729 % 90,
            "weight": 40 + numbers * 15_485_863 % 100_003 / 1000,
        }
    )
    return table.assign(number=[f"P-{number}" for number in numbers]) if ids else table


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "study.toml").write_text(STUDY)
    return read_study(tmp_path / "study.toml")


def charged(
    folder: Path, file: str, study: Study, *, epsilon: float = 1.0, budget: Cost = UNLIMITED, ids: bool = False
) -> tuple[Spending, tuple[str, ...]]:
    """Charge what `synthesize` would for a table, and what it says of its people."""
    owned = owners_study(study, method="network", epsilon=epsilon, delta=1e-9, seed=None)
    with open_state(folder / FOLDER, "clinic", now=NOON) as state:
        whose = read_whose(
            state,
            folder / file,
            owned,
            dataset=Path(file).stem,
            id_column="number" if ids else None,
            place=folder / file,
        )
        release = measurement(owned, whose.table, dataset=whose.name, secret=whose.state.secret)
        found = charge(whose.state, owned, release, budget=budget, now=NOON)
        whose.remember()
        return found, whose.remarks


def test_the_same_rows_under_another_name_and_study_are_the_same_people(tmp_path: Path, study: Study) -> None:
    """The sum over the data set was 1.00 where 5 had been spent."""
    people().to_csv(tmp_path / "people.csv", index=False)
    other = dataclasses.replace(study, id="other")
    assert charged(tmp_path, "people.csv", study, epsilon=3.0)[0].total.epsilon == pytest.approx(3)
    assert charged(tmp_path, "people.csv", other, epsilon=1.0)[0].total.epsilon == pytest.approx(4)
    people().to_csv(tmp_path / "copy.csv", index=False)
    found, remarks = charged(tmp_path, "copy.csv", other, epsilon=2.0)
    assert found.total.epsilon == pytest.approx(6)
    assert remarks == ("data set 'copy' is about the people of 'people': the costs of all of them are added up",)
    again, _ = charged(tmp_path, "copy.csv", study, epsilon=3.0)
    assert again.again  # and what was measured under the first name is measured again, and costs nothing
    assert again.total.epsilon == pytest.approx(6)


def test_a_changed_row_and_other_rows_of_the_same_people_count_in_their_account(tmp_path: Path, study: Study) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    charged(tmp_path, "people.csv", study)
    changed = people()
    changed.loc[0, "age"] = 77
    changed.sample(frac=1, random_state=1).to_csv(tmp_path / "changed.csv", index=False)
    assert charged(tmp_path, "changed.csv", study)[0].total.epsilon == pytest.approx(2)
    people(0, 2 * N).to_parquet(tmp_path / "grown.parquet", index=False)
    assert charged(tmp_path, "grown.parquet", study)[0].total.epsilon == pytest.approx(3)
    people(5000).to_csv(tmp_path / "others.csv", index=False)
    found, remarks = charged(tmp_path, "others.csv", study)
    assert found.total.epsilon == pytest.approx(1)
    assert remarks == ()


def test_ids_are_compared_where_a_table_has_them(tmp_path: Path, study: Study) -> None:
    people(ids=True).to_csv(tmp_path / "people.csv", index=False)
    charged(tmp_path, "people.csv", study, ids=True)
    years_later = people(9000, ids=True).assign(number=people(ids=True)["number"].str.lower().str.replace("-", ""))
    years_later.to_csv(tmp_path / "later.csv", index=False)
    assert charged(tmp_path, "later.csv", study, ids=True)[0].total.epsilon == pytest.approx(2)


def test_two_accounts_become_one_from_the_beginning(tmp_path: Path, study: Study) -> None:
    """A table that has people of both joins them, and a budget is held against the sum."""
    people(0).to_csv(tmp_path / "one.csv", index=False)
    people(5000).to_csv(tmp_path / "two.csv", index=False)
    pd.concat([people(0), people(5000)]).to_csv(tmp_path / "both.csv", index=False)
    charged(tmp_path, "one.csv", study)
    charged(tmp_path, "two.csv", study)
    with pytest.raises(Refusal, match=r"BUDGET_EXCEEDED.*spent before by study 'alone'.*; study 'alone'"):
        charged(tmp_path, "both.csv", study, budget=Cost(epsilon=2.5, delta=1e-6))
    found, _ = charged(tmp_path, "both.csv", study, budget=Cost(epsilon=3.0, delta=1e-6))
    assert found.total.epsilon == pytest.approx(3)
    assert charged(tmp_path, "two.csv", study)[0].total.epsilon == pytest.approx(3)


def test_another_state_beside_the_table_is_named(tmp_path: Path, study: Study) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    charged(tmp_path, "people.csv", study)
    assert other_states(tmp_path / "people.csv", tmp_path / FOLDER) == []
    found = synthesize(tmp_path / "people.csv", study, epsilon=1.0, delta=1e-9, state=tmp_path / "elsewhere")
    (said,) = [warning for warning in found.warnings if "another state" in warning]
    assert str(tmp_path / FOLDER) in said
    assert found.spending.total.epsilon == pytest.approx(1)
