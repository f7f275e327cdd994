"""Rules across two parties between real processes, in each model: no party can check them, every synthetic record keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from verticil.cli.main import main

N = 1500
SENIOR = """[[variable]]
party = "insurer"
name = "senior"
categories = ["no", "yes"]

"""
"""Of the insurer, whose table has no such column; it follows from the clinic's ages."""
WORN = """[[variable]]
party = "clinic"
name = "worn"
categories = ["no", "yes"]

"""
"""The flag of a rule: the clinic writes it from two of its columns; no table has it, and it is sent as a column is."""
KNOWLEDGE = """
[[knowledge.rule]]
kind = "function"
column = "senior"
of = ["age"]
values = [["[60,75)", "yes"], ["[75,120)", "yes"]]
otherwise = "no"

[[knowledge.rule]]
kind = "implication"
name = "families are younger"
if = { senior = "yes" }
then = { plan = ["basic", "plus", "gold"] }

[[knowledge.rule]]
kind = "forbidden"
name = "no gold for the young"
all = { age = "[0,30)", plan = "gold" }

[[knowledge.rule]]
kind = "property"
column = "town"
values = [["north", "Northam", 3], ["north", "Norwell"], ["south", "Southam"]]

[[knowledge.rule]]
kind = "soft"
if = { smoker = "yes", age = { from = 45 } }
then = { claims = ["1-2", "3+"] }
probability = 0.8
flag = "worn"
"""
"""Of the people in the tables, whose plans are drawn at random, about every seventh breaks a rule: they are not asked."""


def knowing(text: str, structure: str = "") -> str:
    """A study of the tests with the knowledge; `structure` in place of its own."""
    if structure:
        text = text[: text.index("[structure]")] + structure
    for declared, before in ((WORN, "claims"), (SENIOR, "plan")):
        head = f'[[variable]]\nparty = "insurer"\nname = "{before}"'
        text = text.replace(head, declared + head)
    return text + KNOWLEDGE


def check(release: Path, ca: Path, capsys: pytest.CaptureFixture[str], parties: Mapping[str, Path]) -> None:
    """It verifies; so says whoever reads the table with nothing of ours; and at each site it was shown what is stated."""
    study = json.loads((release / "manifest.json").read_bytes())["study"]["id"]
    for folder in parties.values():
        capsys.readouterr()
        assert main(["party", "show", study, "--config", str(folder / "party.toml")]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        for words in (
            "Stated, not learned",
            "no gold for the young: never together: age is below 30 and plan is 'gold'.",
            "senior follows from age and is sent by nobody",
            "worn is 'yes', else 'no'; its party writes it from them.",
        ):
            assert words in shown
    capsys.readouterr()
    assert main(["release", "verify", str(release), "--ca", str(ca), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"]
    for table in (pd.read_csv(release / "synthetic.csv"), pd.read_parquet(release / "synthetic.parquet")):
        assert len(table) == 2000
        assert list(table.columns)[:7] == ["smoker", "age", "town", "worn", "claims", "senior", "plan"]
        old = table["age"] >= 60
        assert list(table["senior"]) == ["yes" if it else "no" for it in old]
        assert old.any()
        assert not (old & (table["plan"] == "family")).any()
        assert not ((table["age"] < 30) & (table["plan"] == "gold")).any()
        worn = (table["smoker"] == "yes") & (table["age"] >= 45)
        assert list(table["worn"]) == ["yes" if it else "no" for it in worn]
        assert 0.1 < worn.mean() < 0.3  # of the people in the tables 30 % smoke, 65 % are that old
        assert set(table["plan"]) == {"basic", "plus", "gold", "family"}
        assert {"Northam", "Norwell", "Southam"} <= set(table["town"]) <= {"Northam", "Norwell", "Southam", "elsewhere"}
    document = json.loads((release / "model.json").read_bytes())
    names = [variable["name"] for variable in document["variables"]]
    charged = {name: column["epsilon"] for column in document["privacy"]["columns"] for name in column["variables"]}
    assert "senior" not in {*names, *charged}
    assert "worn" in names
    assert charged["worn"] > 0


@pytest.mark.whole
@pytest.mark.parametrize("model", ["central", pytest.param("masked", marks=pytest.mark.slow)])
def test_with_a_miner(
    model: str,
    make_nodes: Callable[..., Any],
    study_text: str,
    masked_study_text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = knowing(study_text)
    if model == "masked":
        release = '[release]\nsynthetic_records = 2000\nseed = 7\nsample_from = "network"\n'
        text = knowing(masked_study_text, f'[structure]\nmethod = "tree"\n\n{release}')
    nodes = make_nodes(model, n=N, study=text, masked=model == "masked")
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)
    digest = nodes.submit()
    nodes.publish(digest)
    nodes.stop()
    release = nodes.made.miner / "state" / "studies" / digest.hex() / "release"
    check(release, nodes.made.ca_certificate, capsys, nodes.made.parties)


@pytest.mark.slow
def test_between_peers(
    make_peers: Callable[..., Any], peer_study_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = make_peers("peers", n=N, study=knowing(peer_study_text))
    peers.reach()
    peers.load()
    peers.start()
    releases = peers.releases(tmp_path / "releases")
    assert len(releases) == 3
    check(releases["insurer"], peers.made.ca_certificate, capsys, peers.made.parties)
