"""SIGKILL of a party while its approval with noisy counts of numbers leaves, as processes, in Models II and III.

A line that holds what it carries stops the approval in two places: charged and on its way, and stored by the miner before the
party knows. Either way the same approval leaves again, nothing is charged twice, and the release is that of a calm run.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.measured import STUDY, tables
from support.sameness import charged, differences, essence
from verticil.shared.study import canonical
from verticil.shared.study.profiles import profiles_of
from verticil.wire.v1 import common_pb2

VICTIM = "clinic"


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    """What a node's database has."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        return opened.execute(query).fetchall()


class Federation:
    """A federation whose parties reach the miner through a line that may hold.

    Args:
        nodes: of it, not started.
        proxy: the class of such lines.
    """

    def __init__(self, nodes: Any, proxy: type) -> None:
        self.nodes, self._proxy = nodes, proxy
        self._own = nodes.made.parties[VICTIM] / "state" / "party.sqlite"
        self._miner = nodes.made.miner / "state" / "catalogue.sqlite"

    def charges(self) -> list[tuple[Any, ...]]:
        """The rows of the victim's ledger that are about no column."""
        return rows(self._own, "SELECT event, recipient, charged FROM ledger WHERE event LIKE '%layer%'")

    def arrived(self) -> list[tuple[bytes]]:
        """The bodies of the victim's approvals that the miner has."""
        return rows(self._miner, f"SELECT body FROM approval WHERE party = '{VICTIM}'")

    def approved(self) -> list[tuple[bytes]]:
        """The body of the victim's approval at its own site."""
        return rows(self._own, "SELECT body FROM approval")

    def publish(self, held: Callable[[], object] | None, *, back: bool) -> dict[str, str]:
        """What is published and charged; the victim is killed once `held` is true, and started again."""
        port = self.nodes.start_miner("--seed-derived")
        with self._proxy(port, bytes_per_second=10**9, back=0 if back else None) as proxy:
            proxy.held = held or (lambda: False)
            self.nodes.point_to(proxy.port)
            for party in self.nodes.made.parties:
                self.nodes.start_party(party)
            digest = self.nodes.submit()
            if held is not None:
                self._kill_while(held, is_stored=back)
                (body,) = self.approved()
                counts = {item["variable"]: item["counts"] for item in json.loads(body[0])["profiles"]}
                proxy.held = lambda: False
                self.nodes.start_party(VICTIM)
            study = self.nodes.wait(digest, lambda found: False, seconds=900)
            assert study.state == common_pb2.STUDY_STATE_PUBLISHED, study
        self.nodes.stop()
        release = self.nodes.made.miner / "state" / "studies" / digest.hex() / "release"
        if held is not None:
            assert self.arrived() == [body]
            measured = profiles_of(canonical.from_bytes((release / "study.json").read_bytes(), wire=False))
            assert [list(measured[name]) for name in counts] == list(counts.values())
        costs = {name: f"{cost:.9g}" for name, cost in charged(self.nodes.made.parties).items()}
        return {**essence(release), **costs, "charges": json.dumps(self.charges())}

    def _kill_while(self, held: Callable[[], object], *, is_stored: bool) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not held():
            assert time.monotonic() < end, self.nodes.log(VICTIM)
            time.sleep(0.02)
        time.sleep(0.5)  # the approval is on its way, and waits in the line
        self.nodes.kill(VICTIM)
        assert bool(self.arrived()) == is_stored
        assert self.charges()


@pytest.mark.faults
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("model", ["central", "masked"])
def test_the_same_counts_leave_again_after_a_kill_while_they_leave(
    model: str, make_nodes: Callable[..., Any], slow_proxy: type, tmp_path: Path
) -> None:
    paths = {}
    for party, frame in tables().items():
        frame.to_csv(path := tmp_path / f"{party}.csv", index=False)
        paths[party] = path
    study = STUDY.replace("MODEL", f'model = "{model}"')

    def federation(name: str) -> Federation:
        nodes = make_nodes(name, seed=5, tables=paths, study=study, masked=model == "masked")
        return Federation(nodes, slow_proxy)

    expected = federation("calm").publish(None, back=False)
    assert {"model.json", "study.json", "synthetic.csv"} <= expected.keys()
    leaving, stored = federation("leaving"), federation("stored")
    assert differences(expected, leaving.publish(leaving.charges, back=False)) == []
    assert differences(expected, stored.publish(stored.arrived, back=True)) == []
