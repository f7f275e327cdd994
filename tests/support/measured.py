"""A study of two parties that measure the bins of their numbers, its tables, and what a release of it has to have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.profiles import profiles_of
from verticil.shared.study.reading import read_study_text

N = 3000

STUDY = """
schema = 1
id = "measured"
title = "Ages and costs"
purpose = "a test"
expires = 2099-01-01
MODEL
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[[variable]]
party = "clinic"
name = "age"
type = "integer"
bins = "private"
bounds = [0, 120]
[[variable]]
party = "clinic"
name = "ward"
categories = ["a", "b", "c"]
[[variable]]
party = "insurer"
name = "cost"
type = "number"
decimals = 2
bins = "private"
bounds = [0, 1000000]
missing = { category = "unknown", spellings = [""] }
[[variable]]
party = "insurer"
name = "plan"
categories = ["basic", "full"]
[randomization_default]
scheme = "symmetric"
epsilon = 5.0
[tables]
epsilon = 6.0
delta = 1e-9
resolution = "two"
[structure]
seed = 1
[release]
seed = 1
[linkage]
minimum_common_records = 100
"""


def study(model: str) -> Study:
    """The study in a model."""
    return read_study_text(STUDY.replace("MODEL", f'model = "{model}"'), Path())


def tables(n: int = N, seed: int = 1) -> dict[str, pd.DataFrame]:
    """The tables of both parties."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(50, 18, n), 0, 99).astype(int)
    cost = np.round(np.exp(rng.normal(6 + age / 60, 1, n)), 2)
    cost[rng.random(n) < 0.2] = 0.0
    ward = np.where(age > 55, "a", np.where(cost > 500, "b", "c"))
    plan = np.where(cost > 800, "full", "basic")
    clinic = pd.DataFrame({"id": np.arange(n), "age": age, "ward": ward})
    insurer = pd.DataFrame({"id": np.arange(n), "cost": cost, "plan": plan})
    return {"clinic": clinic, "insurer": insurer.sample(frac=1, random_state=2)}


def check_release(release: Path, data: dict[str, pd.DataFrame]) -> None:
    """That a release has measured bins of both parties, and records of the same numbers as the tables."""
    own = canonical.from_bytes((release / "study.json").read_bytes(), wire=False)
    assert set(profiles_of(own)) == {"age", "cost"}
    cost = own.schema[own.schema.index("cost")]
    assert cost.points == (0.0,)
    records = pd.read_csv(release / "synthetic.csv")
    assert (records["cost"] == 0).mean() == pytest.approx(0.2, abs=0.06)
    real = data["insurer"]["cost"]
    for part in (0.3, 0.5, 0.7, 0.9):
        assert (records["cost"] < real.quantile(part)).mean() == pytest.approx(part, abs=0.08)
    report = (release / "report.html").read_text()
    assert "histograms of numbers" in report
    assert "bins of 2 columns (age, cost) are measured" in report
