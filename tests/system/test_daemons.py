"""The daemons in the foreground: what they print, how they stop, what the health check says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.cli.main import main


def verticil(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "verticil.cli", *arguments, "--format", "json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(ready: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def healthy(config: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    code = main(["healthcheck", "--config", str(config), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (code == 0) == (found.get("serving") is True)
    if code:
        assert code == 5, found
    return code == 0


def set_port(nodes: Any) -> None:
    """A free port, since a daemon of its own announces none."""
    nodes.port = free_port()
    config = nodes.made.miner / "miner.toml"
    config.write_text(config.read_text().replace('"127.0.0.1:0"', f'"127.0.0.1:{nodes.port}"'))
    nodes.point_to(nodes.port)


@pytest.mark.whole
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_miner_and_party_say_one_object_and_exit_0(
    make_nodes: Callable[..., Any], capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    nodes = make_nodes(n=1200)
    set_port(nodes)
    party_toml = nodes.made.parties["clinic"] / "party.toml"
    party = verticil("party", "run", "--config", str(party_toml))
    until(lambda: healthy(party_toml, capsys))  # alive, though no miner answers yet
    miner = verticil("miner", "run", "--config", str(nodes.made.miner / "miner.toml"))
    until(lambda: healthy(nodes.made.miner / "miner.toml", capsys))
    for child, expected in (
        (party, {"party": "clinic", "stopped": True}),
        (miner, {"miner": "miner", "port": nodes.port, "stopped": True}),
    ):
        child.send_signal(number)
        out, err = child.communicate(timeout=PATIENCE_SECONDS)
        assert child.returncode == 0, err
        assert json.loads(out) == expected
        assert all(json.loads(line)["level"] for line in err.splitlines())
    assert not healthy(nodes.made.miner / "miner.toml", capsys)


@pytest.mark.whole
def test_a_second_daemon_on_the_same_state_is_refused(
    make_nodes: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = make_nodes(n=1200)
    nodes.point_to(nodes.start_miner())
    nodes.start_party("clinic")
    party_toml = nodes.made.parties["clinic"] / "party.toml"
    until(lambda: healthy(party_toml, capsys))
    second = verticil("party", "run", "--config", str(party_toml))
    out, _ = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 1
    assert json.loads(out)["error"]["code"] == "STATE_LOCKED"
    second = verticil("miner", "run", "--config", str(nodes.made.miner / "miner.toml"))
    out, _ = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 1
    assert json.loads(out)["error"]["code"] == "STATE_LOCKED"
