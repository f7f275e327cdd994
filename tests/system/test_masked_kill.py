"""SIGKILL of every node of a study of masked tables, as processes, at durable steps that are drawn: the release is the same.

`tests/protocol/test_masked_round.py` dies at each durable step of a round, in one process; here whole nodes die, over mutual TLS,
from the first step that a daemon takes to the last one before the release. Keys and secrets are those of one seed, so everything
that is drawn is the same, and every file of the release that has no time in it must be.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.sameness import charged, differences, essence
from verticil.shared.core.errors import VerticilError
from verticil.wire.v1 import common_pb2, control_pb2

PROGRAM = Path(__file__).with_name("dies_at_a_step.py")
PARTIES = ("clinic", "insurer", "tax_office")
NODES = ("miner", *PARTIES)
KILLS = 4
"""Of each node, in studies of their own, one of each node in each study."""
PATIENCE_SECONDS = 240


class Mortal:
    """A federation whose nodes die at steps that they are told, and are started again at once."""

    def __init__(self, nodes: Any, folder: Path) -> None:
        self.nodes, self._folder = nodes, folder
        self.deaths: list[str] = []
        nodes.program = (str(PROGRAM),)

    def steps(self, node: str) -> list[str]:
        """What a node has done so far, in all its lives."""
        return (self._folder / f"{node}.steps").read_text(encoding="utf-8").splitlines()

    def _start(self, node: str, dies_at: int) -> None:
        self.nodes.environment |= {"STEPS": str(self._folder / f"{node}.steps"), "DIES_AT": str(dies_at)}
        if node != "miner":
            self.nodes.start_party(node)
            return
        try:
            self.nodes.start_miner("--seed-derived")
        except AssertionError:  # it is dead before it listens
            self.bury(node)

    def bury(self, node: str) -> None:
        """Take note of a death, and start the node again; it lives on."""
        child = self.nodes.processes[node]
        assert child.wait(timeout=30) == -signal.SIGKILL, self.nodes.log(node)
        self.nodes.kill(node)
        self.deaths.append(f"{node}: {self.steps(node)[-1]}")
        self._start(node, 0)

    def publish(self, dies_at: Mapping[str, int]) -> dict[str, str]:
        """What is published and charged, when each node dies once at these of its steps."""
        for node in NODES:
            self._start(node, dies_at.get(node, 0))
            if node == "miner":
                self.nodes.point_to(self.nodes.port)
        digest, end = b"", time.monotonic() + PATIENCE_SECONDS
        while True:
            for node, child in list(self.nodes.processes.items()):
                if child.poll() is not None:
                    self.bury(node)
            try:
                digest = digest or self.nodes.submit()
                request = control_pb2.GetStudyRequest(study_digest=digest)
                study = self.nodes.control(lambda control, asked=request: control.get_study(asked)).study
            except VerticilError:  # nobody there to tell
                study = control_pb2.StudySummary()
            if study.state >= common_pb2.STUDY_STATE_PUBLISHED:
                break
            assert time.monotonic() < end, (study, self.deaths)
            time.sleep(0.1)
        assert study.state == common_pb2.STUDY_STATE_PUBLISHED, study
        time.sleep(2)  # a death may be due after the release, too
        for node, child in list(self.nodes.processes.items()):
            if child.poll() is not None:
                self.bury(node)
        self.nodes.stop()
        release = self.nodes.made.miner / "state" / "studies" / digest.hex() / "release"
        return {**essence(release), **{name: f"{cost:.9g}" for name, cost in charged(self.nodes.made.parties).items()}}


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("relay", [False, True], ids=["dialled", "relayed"])
def test_whole_nodes_that_are_killed_at_steps_that_are_drawn_publish_the_same(
    relay: bool, make_nodes: Callable[..., Any], write_tables_of_peers: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    tables = write_tables_of_peers(tmp_path / "tables", 2000)

    def federation(name: str) -> Mortal:
        (tmp_path / f"{name}-steps").mkdir()
        return Mortal(make_nodes(name, tables=tables, seed=5, masked=True, relay=relay), tmp_path / f"{name}-steps")

    calm = federation("undisturbed")
    expected = calm.publish({})
    assert calm.deaths == []
    assert {"model.json", "synthetic.csv", *PARTIES} <= expected.keys()
    taken = {node: len(calm.steps(node)) for node in NODES}
    deaths: list[str] = []
    for number in range(KILLS):
        draw = random.Random(number)
        killed = federation(f"killed-{number}")
        found = killed.publish({node: draw.randint(1, taken[node]) for node in NODES})
        deaths += killed.deaths
        assert differences(expected, found) == [], killed.deaths
    print(taken, *deaths, sep="\n")
    assert len(deaths) >= 0.75 * KILLS * len(NODES)  # a node that was started again takes other steps, maybe fewer
    assert {death.partition(":")[0] for death in deaths} == set(NODES)
