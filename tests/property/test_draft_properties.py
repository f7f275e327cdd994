"""Drafts of random tables: every study is read, every value lies in what was drafted, and columns come back without noise."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from verticil.analyst.draft import Wording, draft
from verticil.party.dataset.source import read_records
from verticil.shared.documents.written_values.reading import value_reader
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study_text
from verticil.shared.synthesis.synthesis import decode
from verticil.shared.synthesis.typed_columns import csv_frame, numbers_of_values
from verticil.tables.ranges import FEWEST_ROWS
from verticil.tables.settings import rule_for

N = 600
MISSING_WORDS = ["", "NA", "-", "unknown"]
DAY = dt.datetime(2011, 3, 1)
Column = tuple[list[str], list[float] | None]
"""Texts as the table has them; their values on the study's scale, or None where they are words."""


def numbers(values: np.ndarray, decimals: int, comma: bool, unit: str) -> Column:
    texts = [f"{value:.{decimals}f}" for value in values]
    return [(text.replace(".", ",") if comma else text) + unit for text in texts], [float(text) for text in texts]


def draw_number(r: np.random.Generator) -> Column:
    decimals, comma = int(r.choice([0, 1, 2, 3, 15])), bool(r.integers(2))
    shape = r.integers(5)
    scale = 10.0 ** r.integers(-1, 6)
    values = (
        (r.normal(30, 8, N), r.gamma(1.5, 1, N) * scale, r.lognormal(2, 1.5, N), r.integers(0, 200, N), -r.exponential(scale, N))
    )[shape].astype(float)  # fmt: skip
    values[r.random(N) < r.choice([0, 0.2, 0.7])] = 0
    while len(set(np.round(values, decimals))) < 20:  # fewer could be categories, and a word for missing one of them
        decimals += 1
    return numbers(np.round(values, decimals) + 0.0, decimals, comma, r.choice(["", "", " kg", "%"]))


def draw_date(r: np.random.Generator) -> Column:
    pattern = r.choice(["%Y-%m-%d", "%d.%m.%Y", "%Y%m%d", "%Y-%m-%d %H:%M:%S", "%d %b %Y"])
    days = r.integers(0, int(r.choice([40, 900, 30_000])), N)
    seconds = r.integers(0, 86_400, N) if "%H" in pattern else np.zeros(N, int)
    moments = [
        DAY + dt.timedelta(days=int(day), seconds=int(second)) for day, second in zip(days, seconds, strict=True)
    ]
    read = value_reader("datetime" if "%H" in pattern else "date")
    iso = [moment.isoformat(sep=" ") if "%H" in pattern else moment.date().isoformat() for moment in moments]
    return [moment.strftime(pattern) for moment in moments], [read(text) for text in iso]


def draw_words(r: np.random.Generator) -> Column:
    words = [
        ["no", "yes"],
        ["A10.1", "B20", "C3"],
        ["007", "011", "120"],
        [f"w{i}" for i in range(60)],
        ["True", "False"],
    ]
    chosen = words[r.integers(len(words))]
    return list(r.choice(chosen, N, p=r.dirichlet(np.full(len(chosen), 3.0)))), None


def draw_codes(r: np.random.Generator) -> Column:
    codes = np.sort(r.choice(np.arange(1, 999), 8, replace=False))
    return [str(value) for value in r.choice(codes, N)], None


KINDS: dict[str, Callable[[np.random.Generator], Column]] = {
    "number": draw_number,
    "date": draw_date,
    "words": draw_words,
    "codes": draw_codes,
}


def write_and_draft(folder: Path, table: pd.DataFrame) -> tuple[Study, dict[str, np.ndarray]]:
    """Draft the table of a file, and encode the file by the draft: only values that few rows have may lack a category."""
    table.to_csv(path := folder / "owner.csv", index=False, sep=";")
    text = draft({"owner": path}, wording=Wording(public=True, title="Random", purpose="A property"))
    study = read_study_text(text, Path())
    rule, _ = rule_for(study, "owner", path, "")
    records = read_records(rule, study.schema.variables, study.linkage.normalise)
    for variable in study.schema.variables:
        texts = table[variable.name]
        if variable.other is not None:
            continue
        is_lost = records.undeclared[variable.name] & (texts.map(texts.value_counts()) >= FEWEST_ROWS).to_numpy()
        assert not is_lost.any(), (variable, texts[is_lost].tolist()[:5])
    return study, dict(records.codes)


def check_column(variable: Variable, written: pd.Series, column: Column, is_missing: np.ndarray) -> None:
    """Compare a column's records without noise with its values.

    Records differ from their people inside bins alone. Kolmogorov's distance of two samples of 540 of one distribution is above
    .12 in one pair of a thousand, and a bin of a draft holds a small part of the people, so in none of the examples.
    """
    texts, values = column
    if values is None:  # a word for missing among words may be a category
        assert set(written) <= {*texts, *MISSING_WORDS, variable.other}, variable
        return
    is_empty = written == ""
    assert abs(is_empty.mean() - is_missing.mean()) < 0.03, variable
    records = np.sort(numbers_of_values(variable, written[~is_empty].tolist()))
    assert np.isfinite(records).all()
    people = np.sort(np.array(values)[~is_missing])
    grid = np.concatenate([records, people])
    below = [np.searchsorted(sample, grid, "right") / len(sample) for sample in (records, people)]
    assert np.abs(below[0] - below[1]).max() < 0.12, variable


@pytest.mark.whole
@settings(
    derandomize=True, deadline=None, max_examples=25, database=None, phases=[Phase.generate]
)  # to shrink takes minutes
@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_a_draft_is_a_study_that_holds_every_value_and_gives_each_column_back(kinds: list[str], seed: int) -> None:
    r = np.random.default_rng(seed)
    columns = {f"c{number}": KINDS[kind](r) for number, kind in enumerate(kinds)}
    is_missing = r.random((N, len(kinds))) < 0.1
    table = pd.DataFrame({name: texts for name, (texts, _) in columns.items()})
    table = table.mask(is_missing, str(r.choice(MISSING_WORDS)))
    with tempfile.TemporaryDirectory() as folder:
        study, codes = write_and_draft(Path(folder), table)
    schema = study.schema
    records = csv_frame(decode(schema, [codes[name] for name in schema.names], r), schema)
    for variable in schema.variables:
        place = list(columns).index(variable.name)
        check_column(variable, records[variable.name], columns[variable.name], is_missing[:, place])
