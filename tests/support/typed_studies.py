"""A study of dates, points and a key in each model, its tables, and what its records must be."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd

N = 1000
STUDY = """
schema = 1
id = "visits"
title = "Visits"
purpose = "A test"
expires = 2099-12-31
model = "{model}"
{keys}
[[party]]
name = "clinic"

[[party]]
name = "insurer"

[linkage]
minimum_common_records = 100

[structure]
method = "tree"
score = "mutual-information"
max_parents = 1

[identifier]
name = "pid"
format = "P%04d"

[[variable]]
party = "clinic"
name = "seen"
type = "date"
bins = [2019-01-01, 2019-07-01, 2020-01-01]
points = [1900-01-01]
format = "DD.MM.YYYY"
missing = {{ category = "unknown", spellings = ["NA"] }}

[[variable]]
party = "insurer"
name = "weight"
type = "number"
bins = [30, 60, 80, 120]
points = [0]
decimals = 1
unit = "kg"

[[variable]]
party = "insurer"
name = "moment"
type = "datetime"
timezone = "Europe/Berlin"
bins = [2019-01-01T00:00:00Z, 2019-07-01T12:00:00Z, 2020-01-01T00:00:00Z]
"""
KEYS = {
    "central": '[randomization_default]\nscheme = "symmetric"\nepsilon = 30.0',
    "peer": '[randomization_default]\nscheme = "symmetric"\nepsilon = 30.0',
    "masked": "[tables]\nepsilon = 4.0\ndelta = 1e-9",
}


def tables() -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(5)
    moments = pd.Timestamp("2019-01-01") + pd.to_timedelta(generator.integers(0, 365 * 86_400, N), unit="s")
    seen = np.array(moments.strftime("%d.%m.%Y"), dtype=object)
    seen[:200], seen[200:300] = "01.01.1900", "NA"
    weight = np.round(generator.uniform(30, 119, N), 1)
    weight[100:280] = 0
    return {
        "clinic": pd.DataFrame({"id": range(N), "seen": seen}),
        "insurer": pd.DataFrame({"id": range(N), "weight": weight, "moment": moments.strftime("%Y-%m-%dT%H:%M:%SZ")}),
    }


def check_records(release: Any) -> None:
    """Judge the table of a release of the study: types, points, missing values and keys.

    Each share is of `N` people. In Model III it has noise of about a point, and rounding to records adds one.
    """
    table = release.table()
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == {
        "pid": "string",
        "seen": "object",
        "weight": "Float64",
        "moment": "datetime64[us, Europe/Berlin]",
    }
    assert table["pid"].tolist() == [f"P{number:04d}" for number in range(1, N + 1)]
    assert abs((table["seen"] == dt.date(1900, 1, 1)).mean() - 0.2) < 0.04
    assert abs(table["seen"].isna().mean() - 0.1) < 0.04
    assert abs((table["weight"] == 0).mean() - 0.18) < 0.04
    assert release.sample(3, given={"weight": "0", "seen": "01.01.1900"})["pid"].tolist() == ["P0001", "P0002", "P0003"]
    assert release.table(binned=True)["seen"].cat.categories.tolist()[-1] == "1900-01-01"
    assert "weight in kg" in release.file("report.html").read_text()
