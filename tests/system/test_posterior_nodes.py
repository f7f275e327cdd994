"""Sampled graphs between real processes, of randomized columns and of masked tables: published, verified, opened by others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from verticil.cli.main import main
from verticil.shared.release.formats import model_json
from verticil.shared.release.formats.posterior import read_networks

POSTERIOR = """[structure]
method = "posterior"
max_parents = 2

[posterior]
steps = 4000
data_sets = 3
statistics = [["chi-square", "smoker", "claims"]]

[release]
synthetic_records = 2000
seed = 7
"""
PAGE = Path(__file__).resolve().parents[2] / "deploy" / "docs" / "analyst" / "posterior.md"
FENCE = re.compile(r"^```python\n(.*?)```", re.DOTALL | re.MULTILINE)
SOURCES = {"central": "randomized", "masked": "noisy-tables"}


@pytest.fixture(scope="module", params=["central", pytest.param("masked", marks=pytest.mark.slow)])
def published(
    request: pytest.FixtureRequest,
    make_module_nodes: Callable[..., Any],
    study_text: str,
    masked_study_text: str,
) -> tuple[str, Any, Path]:
    """A release as the miner has it."""
    masked = request.param == "masked"
    text = masked_study_text if masked else study_text
    nodes = make_module_nodes(request.param, study=text[: text.index("[structure]")] + POSTERIOR, masked=masked)
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)
    digest = nodes.submit()
    nodes.publish(digest)
    nodes.stop()
    return request.param, nodes, nodes.made.miner / "state" / "studies" / digest.hex() / "release"


@pytest.mark.whole
def test_it_verifies_with_every_set(published: tuple[str, Any, Path], capsys: pytest.CaptureFixture[str]) -> None:
    model, nodes, release = published
    assert main(["release", "verify", str(release), "--ca", str(nodes.made.ca_certificate), "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {"posterior.json", "set-1.csv", "set-2.csv", "set-3.csv"} <= set(said["files"])
    assert isinstance(said["chains_agree"], bool)
    document = json.loads((release / "posterior.json").read_bytes())
    assert document["source"] == SOURCES[model]
    assert len(document["predictive"][0]["draws"]) >= 500
    assert len(read_networks(release)) == 3
    assert [len(pd.read_csv(release / f"set-{number}.csv")) for number in (1, 2, 3)] == [2000] * 3


@pytest.mark.whole
def test_smokers_claims_are_linked(published: tuple[str, Any, Path]) -> None:
    """What the tables were made with: claims follow from what is smoked."""
    document = json.loads((published[2] / "posterior.json").read_bytes())
    linked = {(edge["parent"], edge["child"]): edge["probability"] for edge in document["edges"]}
    pair = linked.get(("smoker", "claims"), 0.0) + linked.get(("claims", "smoker"), 0.0)
    print(published[0], document["diagnostics"], pair)
    assert pair > 0.5


@pytest.mark.whole
def test_other_programs_open_the_consensus(
    published: tuple[str, Any, Path], read_with_pgmpy: Callable[[Path], Any], read_with_pyagrum: Callable[[Path], Any]
) -> None:
    _, _, release = published
    network = model_json.read((release / "model.json").read_bytes())
    names = network.schema.names
    for reader in (read_with_pgmpy, read_with_pyagrum):
        read = reader(release / "network.bifxml")
        for child, family in enumerate(network.families):
            assert read.parents[names[child]] == frozenset(names[parent] for parent in family.parents)
            first = {names[parent]: network.schema[parent].labels[0] for parent in family.parents}
            row = read.row(names[child], first)
            labels = network.schema[child].labels
            np.testing.assert_allclose([row[label] for label in labels], family.probability[0], atol=1e-6)


@pytest.mark.whole
def test_what_the_page_says_in_python_runs(published: tuple[str, Any, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of a release, both pieces."""
    monkeypatch.chdir(published[2].parent)
    pieces = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(pieces) == 2
    for piece in pieces:
        exec(compile(piece, PAGE.name, "exec"), {})
