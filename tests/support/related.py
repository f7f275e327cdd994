"""A study with a related table, and made-up people with visits."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

STUDY: Final = """
schema = 1
id = "visits"
purpose = "Visits"
expires = 2099-01-01
[draft]
reviewed = true
[draft.table."clinic.visits".columns.admitted]
written = "DD.MM.YYYY"
[[party]]
name = "clinic"
[[table]]
name = "visits"
party = "clinic"
max_rows = 3
order = "admitted"
[[variable]]
party = "clinic"
name = "sex"
categories = ["f", "m"]
from = "public"
[[variable]]
party = "clinic"
name = "age"
type = "integer"
bins = [0, 20, 40, 60, 100]
from = "public"
[[variable]]
party = "clinic"
table = "visits"
name = "admitted"
type = "date"
bins = [2020-01-01, 2020-07-01, 2021-01-01]
from = "public"
[[variable]]
party = "clinic"
table = "visits"
name = "ward"
categories = ["A", "B", "C"]
from = "public"
[tables]
epsilon = 1.0
delta = 1e-9
[randomization_default]
scheme = "symmetric"
epsilon = 3.0
"""

STAY: Final = 0.7
"""Chance that a visit is in the ward of the visit before; else it is in any of the three."""


def people_with_visits(n: int, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return people, and their visits in no order: older people have more, and the next one mostly is in the same ward."""
    draw = np.random.default_rng(seed)
    people = pd.DataFrame(
        {"pid": [f"p{i}" for i in range(n)], "sex": draw.choice(["f", "m"], n), "age": draw.integers(0, 100, n)}
    )
    counts = np.minimum(draw.poisson(0.5 + people["age"].to_numpy() / 60), 5)
    whose = np.repeat(np.arange(n), counts)
    first = np.cumsum(counts) - counts
    days = draw.integers(0, 150, n)[whose] + np.concatenate(
        [np.cumsum(draw.integers(0, 40, k)) if k else np.empty(0, np.int64) for k in counts]
    )
    wards = draw.integers(0, 3, len(whose))
    for row in np.setdiff1d(np.arange(len(whose)), first):
        wards[row] = wards[row - 1] if draw.random() < STAY else wards[row]
    visits = pd.DataFrame(
        {
            "pid": people["pid"].to_numpy()[whose],
            "admitted": (pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")).strftime("%d.%m.%Y"),
            "ward": np.array(list("ABC"))[wards],
        }
    )
    return people, visits.sample(frac=1, random_state=seed)
