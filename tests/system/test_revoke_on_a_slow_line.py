"""Feature 24 with real processes: an upload over a slow line stops when another process revokes, and the miner deletes.

The small version of this, in one process, is in ``tests/protocol/test_record.py`` and always runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from verticil.cli.main import main
from verticil.wire.v1 import common_pb2

RATE = 2000
"""Bytes in a second: the first column takes longer than the test has patience for."""


def entries(state: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (state / "audit.jsonl").read_text(encoding="utf-8").splitlines()]


def until(done: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not done():
        assert time.monotonic() - begun < PATIENCE_SECONDS
        time.sleep(0.01)


@pytest.mark.slow
def test_feature_24_revoke_from_another_process_on_a_slow_line(
    make_nodes: Callable[..., Any],
    slow_proxy: type,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = make_nodes(n=40_000)
    party_toml, state = nodes.made.parties["clinic"] / "party.toml", nodes.made.parties["clinic"] / "state"
    port = nodes.start_miner()
    with slow_proxy(port) as proxy:
        nodes.point_to(proxy.port)
        for party in nodes.made.parties:
            nodes.start_party(party)
        digest = nodes.submit()
        nodes.wait(digest, lambda study: all(party.pseudonyms_complete for party in study.parties))
        proxy.bytes_per_second = RATE
        until(lambda: any(entry["event"] == "send" for entry in entries(state)))
        arguments = ["party", "revoke", "hearts", "--reason", "consent withdrawn", "--as", "demo@clinic"]
        arguments += ["--config", str(party_toml), "--format", "json"]
        assert main(arguments) == 0
        until(lambda: entries(state)[-1]["event"] == "transfer-stopped")
        proxy.bytes_per_second = 0
        study = nodes.wait(digest, lambda study: False)
        assert study.state == common_pb2.STUDY_STATE_WITHDRAWN
        assert study.failure.message == "revoked by party 'clinic': consent withdrawn"
        until(lambda: entries(state)[-1]["event"] == "deletion")
    folder = nodes.made.miner / "state" / "studies" / digest.hex()
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    capsys.readouterr()
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["deletion"]["why"] == "revoked"
    assert set(nodes.stop().values()) == {0}
    assert main(["party", "audit", "verify", "--config", str(party_toml)]) == 0
