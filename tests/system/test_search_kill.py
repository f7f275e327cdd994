"""A real miner, killed while it searches: the next one goes on from the checkpoint. A study cancelled while it is searched.

Slow: two federations of real processes. `tests/protocol/test_search_interrupted.py` has the same for the learning process alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from verticil.shared.study.states import State
from verticil.wire.v1 import control_pb2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

GENERATIONS = 40_000
"""Far more than are made in the two seconds until the first checkpoint."""


def searching_for_long(nodes: Any, generations: int, study_id: str = "hearts") -> None:
    genetic = dataclasses.replace(nodes.study.structure.genetic, generations=generations)
    structure = dataclasses.replace(nodes.study.structure, genetic=genetic)
    nodes.study = dataclasses.replace(nodes.study, id=study_id, structure=structure)


def start(nodes: Any) -> None:
    nodes.point_to(nodes.start_miner())
    for party in nodes.made.parties:
        nodes.start_party(party)


def folder(nodes: Any, digest: bytes) -> Path:
    return Path(nodes.made.miner / "state" / "studies" / digest.hex())


def children(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


def published(nodes: Any, digest: bytes) -> None:
    found = nodes.wait(digest, lambda study: study.state == State.PUBLISHED, seconds=150)
    assert found.state == State.PUBLISHED, found


def released(nodes: Any, digest: bytes) -> dict[str, bytes]:
    files = folder(nodes, digest) / "release"
    return {name: (files / name).read_bytes() for name in ("model.json", "network.bifxml", "synthetic.csv")}


def test_feature_26_killed_while_it_searches_it_publishes_what_it_would_have(make_nodes: Callable[..., Any]) -> None:
    undisturbed = make_nodes("undisturbed", seed=3)
    searching_for_long(undisturbed, GENERATIONS)
    start(undisturbed)
    digest = undisturbed.submit()
    published(undisturbed, digest)
    expected = released(undisturbed, digest)
    assert set(undisturbed.stop().values()) == {0}

    nodes = make_nodes("killed", seed=3)
    searching_for_long(nodes, GENERATIONS)
    start(nodes)
    assert nodes.submit() == digest
    checkpoint = folder(nodes, digest) / "checkpoint"
    found = nodes.wait(digest, lambda _study: checkpoint.exists(), seconds=150)
    nodes.kill("miner")
    assert found.state == State.LEARNING
    assert not (folder(nodes, digest) / "release").exists()
    assert "goes on from its checkpoint" not in nodes.log("miner")
    nodes.start_miner()
    published(nodes, digest)
    assert nodes.log("miner").count("the search goes on from its checkpoint") == 1
    assert released(nodes, digest) == expected

    searching_for_long(nodes, 1_000_000, "cancelled")
    second = nodes.submit()
    nodes.wait(second, lambda _study: (folder(nodes, second) / "checkpoint").exists(), seconds=150)
    miner = nodes.processes["miner"].pid
    assert children(miner)
    begin = time.monotonic()
    nodes.control(lambda control: control.cancel_study(control_pb2.CancelStudyRequest(study_digest=second)))
    while children(miner):
        assert time.monotonic() - begin < PATIENCE_SECONDS, "the search goes on after its study was cancelled"
    # Withdrawn: what was derived from the columns goes with them.
    while any(path.is_file() for path in folder(nodes, second).rglob("*")):
        assert time.monotonic() - begin < PATIENCE_SECONDS
    assert set(nodes.stop().values()) == {0}
