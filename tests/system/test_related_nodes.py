"""Related tables of two parties between real processes, in Models II and III, from files written as people write them.

The rows of one person have a value and an id that must leave the party nowhere: in no slot, log, file of the miner or release.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import verticil.api as vt

pytestmark = pytest.mark.slow

N = 1200
CANARY_VALUE, CANARY_ID = "kanarienvogel-78", "canary-4712-id"
STUDY = """
schema = 1
id = "rows"
title = "Visits and claims"
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
[identifier]
name = "pid"
format = "P%04d"
[[table]]
name = "visits"
party = "clinic"
max_rows = 2
order = "seen"
[[table]]
name = "claims"
party = "insurer"
max_rows = 2
keep = "random"
[[variable]]
party = "clinic"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "insurer"
name = "plan"
categories = ["basic", "full"]
[[variable]]
party = "clinic"
table = "visits"
name = "seen"
type = "date"
bins = [2019-01-01, 2019-07-01, 2020-07-01]
[[variable]]
party = "clinic"
table = "visits"
name = "ward"
categories = ["surgery", "heart", "elsewhere"]
other = "elsewhere"
[[variable]]
party = "insurer"
table = "claims"
name = "amount"
type = "number"
bins = [0, 100, 1000]
decimals = 2
"""
KEYS = {
    "central": '[randomization_default]\nscheme = "symmetric"\nepsilon = 30.0',
    "masked": "[tables]\nepsilon = 8.0\ndelta = 1e-9",
}


def tables() -> dict[str, pd.DataFrame]:
    """Return people and rows: women have two visits, men one; the second visit is in the ward of the first."""
    draw = np.random.default_rng(5)
    ids = np.array([f"q{k:05d}" for k in range(N - 1)] + [CANARY_ID])
    is_woman = draw.random(N) < 0.5
    whose = np.repeat(np.arange(N), np.where(is_woman, 2, 1))
    days = pd.to_timedelta(draw.integers(0, 180, N)[whose] + 60 * (np.arange(len(whose)) % 2), unit="D")
    ward = np.where(draw.random(N) < 0.5, "surgery", "heart").astype(object)
    ward[-1] = CANARY_VALUE
    whose_claim = np.repeat(np.arange(N), draw.integers(0, 4, N))
    visits = pd.DataFrame(
        {
            "person": ids[whose],
            "seen": (pd.Timestamp("2019-01-01") + days).strftime("%d.%m.%Y"),
            "ward": ward[whose],
            "note": CANARY_VALUE,
        }
    )
    claims = pd.DataFrame(
        {
            "id": ids[whose_claim],
            "amount": [f"{x:.2f}".replace(".", ",") for x in draw.uniform(0, 999, len(whose_claim))],
        }
    )
    return {
        "clinic": pd.DataFrame({"id": ids, "sex": np.where(is_woman, "f", "m")}),
        "visits": visits.sample(frac=1, random_state=1),
        "insurer": pd.DataFrame({"id": ids, "plan": draw.choice(["basic", "full"], N)}),
        "claims": claims,
    }


def say_where_rows_are(folder: Path, party: Path, table: str, more: str) -> None:
    with (party / "party.toml").open("a", encoding="utf-8") as file:
        file.write(f'\n[dataset.people.tables.{table}]\npath = "{folder / table}.csv"\n{more}')


@pytest.mark.parametrize("model", ["central", "masked"])
def test_rows_of_two_parties_are_published_and_stay_where_they_are(
    model: str, make_nodes: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    for name, frame in tables().items():
        frame.to_csv(tmp_path / "files" / f"{name}.csv", index=False)
    paths = {party: tmp_path / "files" / f"{party}.csv" for party in ("clinic", "insurer")}
    study = STUDY.format(model=model, keys=KEYS[model])
    nodes = make_nodes(model, tables=paths, study=study, masked=model == "masked")
    say_where_rows_are(
        tmp_path / "files",
        nodes.made.parties["clinic"],
        "visits",
        'id = "person"\ncolumns.seen.written = "DD.MM.YYYY"\n',
    )
    say_where_rows_are(
        tmp_path / "files", nodes.made.parties["insurer"], "claims", 'columns.amount.written = "1234,5"\n'
    )
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)
    digest = nodes.submit()
    nodes.publish(digest)
    nodes.stop()
    release = vt.load(nodes.made.miner / "state" / "studies" / digest.hex() / "release", ca=nodes.made.ca_certificate)
    release.verify()
    check_tables(release.tables())
    elsewhere = [*nodes.made.miner.rglob("*"), *nodes.made.root.glob("*.log"), *nodes.made.analyst.rglob("*")]
    found = [path for path in elsewhere if path.is_file() and has_canary(path.read_bytes())]
    assert found == []
    assert has_canary(paths["clinic"].with_name("visits.csv").read_bytes())


def has_canary(blob: bytes) -> bool:
    needles = [text.encode(code) for text in (CANARY_VALUE, CANARY_ID) for code in ("utf-8", "utf-16-le")]
    return any(needle in blob for needle in needles)


def check_tables(made: dict[str, pd.DataFrame]) -> None:
    """Judge people, visits and claims: keys, types, order, and what goes with what.

    Shares are of 1,200 people; noise and rounding move each by less than 3 points, so limits of 8 are far.
    """
    people, visits, claims = made["people"], made["visits"], made["claims"]
    assert people["pid"].is_unique
    assert set(visits["pid"]) | set(claims["pid"]) <= set(people["pid"])
    assert isinstance(visits["seen"].dropna().iloc[0], dt.date)
    assert str(claims["amount"].dtype) == "Float64"
    seen = pd.to_datetime(visits["seen"])
    assert (seen.groupby(visits["pid"]).diff().dropna() >= pd.Timedelta(0)).all()
    rows = people.set_index("pid").join(visits.groupby("pid").size().rename("rows"))
    by_sex = rows.fillna({"rows": 0}).groupby("sex")["rows"].mean()
    assert abs(by_sex["f"] - 2) < 0.16
    assert abs(by_sex["m"] - 1) < 0.16
    wards = visits.pivot_table(index="pid", columns="row", values="ward", aggfunc="first").dropna()
    assert (wards[1] == wards[2]).mean() > 0.9
    assert abs(len(claims) / len(people) - 1.25) < 0.16  # of 0, 1, 2 and 3 claims at most two are laid
