"""Rows laid into slots and built again from them are the rows that were there, whatever the rows are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from support.related import STUDY
from verticil.shared.related.laying import Laid, Rows, lay
from verticil.shared.related.structure import records_fault
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.related_rows import tables_of_records
from verticil.shared.synthesis.synthesis import decode_of_study

MOST = 3
TEXT = STUDY.replace(
    'type = "date"\nbins = [2020-01-01, 2020-07-01, 2021-01-01]', 'type = "integer"\npoints = [0, 1, 2, 3, 4]'
)
STUDIES = {
    keep: read_study_text(
        TEXT.replace('order = "admitted"', f'order = "admitted"\nkeep = "{keep}"\ngaps = [0, 1, 2, 3, 4, 5]'), Path()
    )
    for keep in ("first", "last", "random")
}
"""Every value is a category, and every gap a bin of its own, so nothing is lost but rows without a slot."""

Row = tuple[int, int, int]
"""Person, value in the order column, ward."""
rows_of_people = st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 4), st.integers(0, 2)), max_size=30)


def laid(rows: list[Row], keep: str, n_people: int = 5, key: bytes = b"secret" * 4) -> Laid:
    study = STUDIES[keep]
    people, order, wards = (np.array([row[place] for row in rows], dtype=np.intp) for place in range(3))
    given_rows = Rows(
        people=people,
        codes={"admitted": order.astype(np.uint8), "ward": wards.astype(np.uint8)},
        undeclared={},
        order=order.astype(np.float64),
    )
    tags = np.arange(n_people, dtype=np.uint8)[:, None]
    return lay(study.related[0], study.schema, given_rows, tags, key=key)


def built(found: Laid, keep: str) -> pd.DataFrame:
    study = STUDIES[keep]
    n = len(next(iter(found.codes.values())))
    codes = [found.codes.get(name, np.zeros(n, np.uint8)) for name in study.schema.names]
    assert records_fault(study.related, study.schema, codes) == ""
    frame = decode_of_study(study, codes, np.random.default_rng(1))
    return next(tables_of_records([frame], study))["visits"]


@settings(deadline=None, max_examples=60)
@given(rows=rows_of_people, keep=st.sampled_from(["first", "last", "random"]))
def test_rows_come_back(rows: list[Row], keep: str) -> None:
    table = built(laid(rows, keep), keep)
    for person in range(5):
        own = sorted((order, ward) for who, order, ward in rows if who == person)
        back = [
            (int(order), "ABC".index(ward))
            for key, order, ward in zip(table["person"], table["admitted"], table["ward"], strict=True)
            if key == str(person + 1)
        ]
        assert [order for order, _ in back] == sorted(order for order, _ in back)
        if keep == "random":
            assert len(back) == min(len(own), MOST)
            left = list(own)
            for row in back:
                left.remove(row)  # each is one of the person's rows, and none comes twice
        else:
            assert back == (own[:MOST] if keep == "first" else own[-MOST:] if own else [])


@settings(deadline=None, max_examples=30)
@given(rows=rows_of_people, seed=st.integers(0, 1000), keep=st.sampled_from(["first", "last", "random"]))
def test_the_order_of_the_source_does_not_matter(rows: list[Row], seed: int, keep: str) -> None:
    one = laid(rows, keep)
    other = laid([rows[place] for place in np.random.default_rng(seed).permutation(len(rows))], keep)
    for name, codes in one.codes.items():
        assert np.array_equal(codes, other.codes[name]), name


@settings(deadline=None, max_examples=30)
@given(rows=rows_of_people)
def test_every_row_is_laid_or_counted(rows: list[Row]) -> None:
    found = laid(rows, "first")
    counts = found.codes["visits.rows"]
    sizes = [sum(row[0] == person for row in rows) for person in range(5)]
    assert counts.tolist() == [min(size, MOST) for size in sizes]
    assert found.n_rows == len(rows) == int(counts.sum()) + found.n_beyond + found.n_unknown
    assert found.n_unknown == sum(row[0] == -1 for row in rows)
    assert found.n_people_beyond == sum(size > MOST for size in sizes)
    assert found.n_without == sum(size == 0 for size in sizes)
