"""Real daemons and their health: what systemd is told, a daemon that hangs or dies, a disk that is full or read-only."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.cli.main import main
from verticil.shared.core.errors import CODES

PROBE = Path(__file__).resolve().parents[2] / "deploy" / "verticil-probe"
NODES = ("miner", "clinic")


def until(ready: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


class Node:
    """One daemon with a folder of its own, started as systemd starts it, and asked every second whether it hangs.

    Not more often: what is told is lost where more than ten words wait to be heard, and a test may be slow to hear.
    """

    def __init__(self, made: Any, name: str, work: Path) -> None:
        self.folder = made.miner if name == "miner" else made.parties[name]
        self.role = "miner" if name == "miner" else "party"
        self.config, self.state = self.folder / f"{self.role}.toml", self.folder / "state"
        self._address = work / "notify"
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.bind(str(self._address))
        self._told.settimeout(PATIENCE_SECONDS)
        self._log = work / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "verticil.cli", self.role, "run", "--config", str(self.config), "--log-json"]
        watched = {"NOTIFY_SOCKET": str(self._address), "WATCHDOG_USEC": "3000000"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **watched})
        return self._process

    def hear(self) -> str:
        return self._told.recv(4096).decode()

    def hear_until(self, word: str) -> list[str]:
        heard = [self.hear()]
        while heard[-1] != word:
            heard.append(self.hear())
        return heard

    def silent(self) -> None:
        """Read what was sent, until nothing more comes."""
        self._told.settimeout(1.0)
        try:
            while True:
                self._told.recv(4096)
        except TimeoutError:
            self._told.settimeout(PATIENCE_SECONDS)

    def probed(self, *seconds: str) -> tuple[int, str]:
        done = subprocess.run([PROBE, self.state, *seconds], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def said(self, level: str) -> list[str]:
        whole = self._log.read_text().rpartition("\n")[0]  # the last line may be on its way
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line["message"] for line in lines if line["level"] == level]

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._told.close()


@pytest.fixture
def node(request: pytest.FixtureRequest, make_nodes: Callable[..., Any], tmp_path: Path) -> Iterator[Node]:
    made = make_nodes(n=1200).made
    config = made.miner / "miner.toml"
    config.write_text(config.read_text().replace('"127.0.0.1:0"', f'"127.0.0.1:{free_port()}"'))
    (work := tmp_path / "work").mkdir()
    found = Node(made, request.param, work)
    yield found
    found.end()


def healthchecked(node: Node, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["healthcheck", "--config", str(node.config), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.whole
@pytest.mark.parametrize("node", NODES, indirect=True)
def test_systemd_is_told_when_a_node_serves_that_it_does_not_hang_and_when_it_stops(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    process = node.start()
    assert node.hear() == "READY=1"
    node.hear_until("WATCHDOG=1")
    until(lambda: healthchecked(node, capsys)[0] == 0)  # the party lives, though no miner answers
    assert node.probed()[0] == 0

    process.send_signal(signal.SIGSTOP)
    node.silent()
    until(lambda: node.probed("1")[0] == 5)  # it hangs as its event loop might: nothing is said any more
    assert "the daemon hangs: no sign of life" in node.probed("1")[1]
    assert "start it:" not in node.probed("1")[1]
    process.send_signal(signal.SIGCONT)
    node.hear_until("WATCHDOG=1")
    until(lambda: node.probed("1")[0] == 0)

    process.terminate()
    heard = node.hear_until("STOPPING=1")
    assert process.wait(timeout=PATIENCE_SECONDS) == 0
    assert "READY=1" not in heard
    assert node.probed()[0] == 5
    assert "error NOT_READY: the daemon was stopped\nhint: start it: " in node.probed()[1]


@pytest.mark.whole
@pytest.mark.parametrize("node", NODES, indirect=True)
def test_a_full_disk_is_a_warning_and_the_healthcheck_says_so_and_the_node_goes_on_when_there_is_room(
    node: Node, mounted: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack:
        shutil.move(node.state, aside := node.folder / "aside")
        disk = stack.enter_context(mounted(node.state))
        shutil.copytree(aside, node.state, dirs_exist_ok=True)
        node.config.write_text(
            node.config.read_text().replace("disk_reserve_bytes = 16777216", "disk_reserve_bytes = 0")
        )
        process = node.start()
        node.hear_until("READY=1")
        until(lambda: node.probed()[0] == 0)

        disk.fill()
        until(lambda: node.probed()[0] == 1)
        code, found = healthchecked(node, capsys)
        assert (code, found["error"]["code"]) == (1, "DISK_FULL")
        assert "make room there; the daemon goes on by itself" in found["error"]["hint"]
        assert "start it" not in json.dumps(found)
        assert "error DISK_FULL: " in node.probed()[1]
        until(lambda: any("DISK_FULL" in line and str(node.state) in line for line in node.said("warning")))
        node.hear_until("WATCHDOG=1")  # it is not to be started again for that

        disk.free()
        until(lambda: healthchecked(node, capsys)[0] == 0)
        assert node.probed()[0] == 0
        until(lambda: "DISK_FULL is over" in node.said("info"))
        assert process.poll() is None
        process.kill()
        process.wait()
        until(lambda: "the daemon is dead: its process is gone" in node.probed("1")[1])
        node.end()


COMMANDS = {
    "miner": ("miner run", "doctor", "healthcheck"),
    "clinic": (
        "party run",
        "doctor",
        "healthcheck",
        "party status",
        "party inbox",
        "party audit verify",
        "party ledger",
    ),
}


@pytest.mark.parametrize("node", NODES, indirect=True)
def test_a_state_folder_that_is_read_only_is_named_and_nobody_is_sent_to_a_backup(
    node: Node, mounted: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted(node.folder / "read-only") as disk:
        shutil.move(node.state, aside := node.folder / "aside")
        shutil.copytree(aside, disk.path, dirs_exist_ok=True)
        node.config.write_text(node.config.read_text().replace('"state"', '"read-only"'))
        subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
        for command in COMMANDS["miner" if node.role == "miner" else "clinic"]:
            config = [str(node.config)] if command == "doctor" else ["--config", str(node.config)]
            code = main([*command.split(), *config, "--format", "json"])
            said = capsys.readouterr().out
            assert code != 0, command
            assert "INTERNAL" not in said, command
            assert "backup" not in said.replace("no backup", ""), command
            if command == "healthcheck":
                assert "NOT_READY" in said
                continue
            assert "STATE_READ_ONLY" in said, command
            assert CODES["STATE_READ_ONLY"] == ("DataFault", 1)
        assert sorted(path.name for path in disk.path.iterdir()) == sorted(path.name for path in aside.iterdir())
