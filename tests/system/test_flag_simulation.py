"""A flag of a rule through the real protocol: no table has it, and every synthetic record has it as its columns say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from verticil.shared.study.reading import read_study
from verticil.simulation import simulate
from verticil.simulation.federations import adult

FLAG = """
[[variable]]
party = "{party}"
name = "spouse"
categories = ["no", "yes"]
"""
RULE = """
[[knowledge.rule]]
kind = "implication"
name = "spouses are married"
if = { relationship = ["Husband", "Wife"] }
then = { marital-status = ["Married-civ-spouse", "Married-AF-spouse"] }
flag = "spouse"
"""


@pytest.mark.parametrize("model", ["central", "peer"])
def test_a_flag_is_sent_learned_and_drawn(model: str, tmp_path: Path) -> None:
    text = adult.study_text(model)
    study = read_study(written(tmp_path, text))
    owner = study.schema[study.schema.index("relationship")].owner
    found = read_study(written(tmp_path, text, owner))
    tables = adult.write_tables(tmp_path / "tables", rows=1500)
    assert all("spouse" not in pd.read_csv(path, nrows=1).columns for path in tables.values())
    simulate(found, tables, seed=5, out=tmp_path / "release")
    records = pd.read_csv(tmp_path / "release" / "synthetic.csv")
    spouse = records["relationship"].isin(["Husband", "Wife"])
    assert list(records["spouse"]) == ["yes" if it else "no" for it in spouse]
    assert 0.3 < spouse.mean() < 0.6  # of the people in Adult 46 %
    assert set(records["marital-status"][spouse]) <= {"Married-civ-spouse", "Married-AF-spouse"}
    document = json.loads((tmp_path / "release" / "model.json").read_bytes())
    (column,) = [each for each in document["privacy"]["columns"] if each["variables"] == ["spouse"]]
    assert column["epsilon"] > 0
    assert "spouse" in [variable["name"] for variable in document["variables"]]


def written(folder: Path, text: str, owner: str = "") -> Path:
    """The shipped study, small; with the flag of a party that has the rule's columns."""
    if 'method = "genetic"' in text:
        text = (
            text[: text.index("[structure]")]
            + '[structure]\nmethod = "tree"\n[release]\nsample_from = "network"\nseed = 7\n'
        )
    if owner:
        at = text.index("[[variable]]")
        text = text[:at] + FLAG.format(party=owner).lstrip() + text[at:] + RULE
    (path := folder / "study.toml").write_text(text, encoding="utf-8")
    return path
