"""Bins that parties measure, between real processes, in Models II and III."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import verticil.api as vt
from support.measured import STUDY, check_release, tables

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model", ["central", "masked"])
def test_with_a_miner(model: str, make_nodes: Callable[..., Any], tmp_path: Path) -> None:
    data, folder = tables(), tmp_path / "files"
    folder.mkdir()
    for party, frame in data.items():
        frame.to_csv(folder / f"{party}.csv", index=False)
    study = STUDY.replace("MODEL", f'model = "{model}"')
    paths = {party: folder / f"{party}.csv" for party in data}
    nodes = make_nodes(model, tables=paths, study=study, masked=model == "masked")
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)
    digest = nodes.submit()
    nodes.publish(digest)
    nodes.stop()
    folder = nodes.made.miner / "state" / "studies" / digest.hex() / "release"
    release = vt.load(folder, ca=nodes.made.ca_certificate)
    release.verify()
    check_release(folder, data)
