"""dh-psi with real processes: SIGKILL while lists are being blinded, of a party and of the miner; the people are the same."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

N = 9_000
"""Enough for a party to start processes for it."""


def blinding(nodes: Any, party: str) -> list[str]:
    """What stands in a party's blinding_state."""
    folder = nodes.made.parties[party] / "state" / "linkage"
    return [path.name for path in folder.rglob("*") if path.is_file()]


def workers(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for children in found for child in children]


def test_kills_while_lists_are_blinded_change_nobody(
    make_nodes: Callable[..., Any], write_federation_tables: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    tables = write_federation_tables(tmp_path, N)
    people = [{line.split(",", 1)[0] for line in path.read_text().splitlines()[1:]} for path in tables.values()]
    nodes = make_nodes("blinded", seed=5, tables=tables)
    nodes.study = dataclasses.replace(nodes.study, linkage=dataclasses.replace(nodes.study.linkage, mode="dh-psi"))
    port = nodes.start_miner()
    nodes.point_to(port)
    for party in nodes.made.parties:
        nodes.start_party(party)
    digest = nodes.submit()
    for name in (".own.list.part", "01-01.list"):
        end = time.monotonic() + 120
        while name not in blinding(nodes, "clinic"):
            assert time.monotonic() < end, (blinding(nodes, "clinic"), nodes.log("clinic"))
        victim = "clinic" if name.endswith("part") else "miner"
        started = workers(nodes.processes[victim].pid) if victim == "clinic" else []
        nodes.kill(victim)
        while any(Path(f"/proc/{pid}").exists() for pid in started):  # none is left behind
            assert time.monotonic() < end, started
        if victim == "miner":
            assert nodes.start_miner() == port
        else:
            nodes.start_party(victim)
    found = nodes.wait(digest, lambda study: study.n_common > 0, seconds=120)
    assert found.n_common == len(set.intersection(*people))
    nodes.publish(digest)
    for party in nodes.made.parties:
        assert "blinding.key" not in blinding(nodes, party)
    assert set(nodes.stop().values()) == {0}
