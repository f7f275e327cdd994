"""The federation of deploy/compose.yaml under a real engine: cut off and killed in mid-upload, it publishes what it would have.

Not part of the default run: ``pytest -m container`` (root, Docker's engine and command installed; a few minutes). What is
compared is a run of the demonstration with the same seed, as plain processes and undisturbed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from verticil.shared.release.verification import verify_release
from verticil.shared.study.canonical import from_bytes
from verticil.simulation.processes import run_demo

pytestmark = [pytest.mark.container, pytest.mark.timeout(1200)]

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
DAEMONS = ("miner", "census_bureau", "employer", "tax_office")
SEED = 7
VICTIM, LATE = "tax_office", "census_bureau"
SLOW = "16kbit"  # a column of the demonstration has up to 15 kB: seconds
PATIENCE_SECONDS = 240


class Federation:
    """The containers of one project; with masked tables those of deploy/compose-masked.yaml, too."""

    def __init__(self, engine: Any, folder: Path, image: str, *, masked: bool = False) -> None:
        self.engine = engine
        built = {"build": {"args": {"BASE": image, "REQUIREMENTS": "/wheels"}}}
        seeded = {
            "version": "3.8",
            "services": {
                **dict.fromkeys(("analyst", "census_bureau", "employer", "tax_office"), built),
                "keys": {
                    **built,
                    "command": ["--out", "/federation", "--endpoint", "miner:8443", "--seed", str(SEED)]
                    + (["--model", "masked"] if masked else []),
                },
                "miner": {
                    **built,
                    "command": ["miner", "run", "--config", "/federation/miner/miner.toml", "--seed-derived"],
                },
            },
        }
        shipped = ["compose.yaml", "compose-masked.yaml"] if masked else ["compose.yaml"]
        self._files = [*(DEPLOY / name for name in shipped), folder / "seeded.yaml"]
        self._files[-1].write_text(yaml.safe_dump(seeded))

    def compose(self, *words: str) -> str:
        return self.engine.run("docker-compose", *(word for file in self._files for word in ("-f", str(file))), *words)

    def container(self, service: str) -> str:
        return f"verticil_{service}_1"

    def inspect(self, service: str) -> dict[str, Any]:
        (found,) = json.loads(self.engine.docker("inspect", self.container(service)))
        return found

    def slow(self, service: str, rate: str) -> None:
        """Limit what a container sends."""
        inside = ("nsenter", "-t", str(self.inspect(service)["State"]["Pid"]), "-n")
        links = self.engine.enter(*inside, "ip", "-o", "link", "show", "type", "veth")
        (name,) = re.findall(r"^\d+: (\w+)@", links, re.MULTILINE)  # another one after each reconnection
        limit = ("tbf", "rate", rate, "burst", "1540", "latency", "50ms")
        self.engine.enter(*inside, "tc", "qdisc", "replace", "dev", name, "root", *limit)

    def network(self, verb: str, service: str) -> None:
        alias = ("--alias", service) if verb == "connect" else ()
        self.engine.docker("network", verb, *alias, f"verticil_{service}", self.container(service))

    def miner_says(self, question: str, *values: object) -> list[Any]:
        catalogue = self.engine.volume("verticil_miner") / "state" / "catalogue.sqlite"
        if not catalogue.exists():
            return []
        with contextlib.closing(sqlite3.connect(f"file:{catalogue}?mode=ro", uri=True)) as opened:
            try:
                return opened.execute(question, values).fetchall()
            except sqlite3.OperationalError:
                return []

    def wait(self, what: str, found: Callable[[], object]) -> float:
        """Wait until `found` is true; the seconds that it took."""
        begun = time.monotonic()
        while not found():
            assert time.monotonic() < begun + PATIENCE_SECONDS, f"{what}: never\n{self.compose('logs', '--tail', '20')}"
            time.sleep(0.05)
        return time.monotonic() - begun

    def uploading(self, party: str) -> list[Any]:
        """Uploads of a party that the miner has begun to take in and not finished: unit, size, committed."""
        own = self.units(party)
        return [row for row in self.miner_says("SELECT unit, size, committed FROM upload") if row[0] in own]

    def units(self, party: str | None = None) -> set[int]:
        """Units of the study, all or a party's; none before it is submitted."""
        studies = [from_bytes(proposal) for (proposal,) in self.miner_says("SELECT proposal FROM study")]
        return {index for study in studies for index, unit in enumerate(study.units) if party in {None, unit.owner}}

    def stored(self) -> set[tuple[int, bytes]]:
        return set(self.miner_says("SELECT unit, artifact_sha256 FROM stored_column"))


@pytest.fixture(scope="module")
def federation(engine: Any, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(engine, tmp_path_factory.mktemp("compose"), base_image)
    made.compose("build", "keys")
    yield made
    made.compose("down", "--volumes", "--timeout", "5")


def carried_out(federation: Federation, target: Path) -> None:
    """Wait for the analyst, take the release that it fetched, and verify it."""
    federation.wait("the analyst's end", lambda: not federation.inspect("analyst")["State"]["Running"])
    told = federation.engine.docker("logs", federation.container("analyst"))
    assert federation.inspect("analyst")["State"]["ExitCode"] == 0, told
    federation.engine.docker("cp", f"{federation.container('analyst')}:/federation/analyst/release", str(target))
    authority = (federation.engine.volume("verticil_analyst") / "ca.crt").read_bytes()
    verify_release(target, ca_certificate=authority)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    asyncio.run(run_demo(folder, seed=SEED, step=lambda _line: None))
    return folder / "release"


def test_a_partition_and_a_kill_in_mid_upload_change_nothing(
    federation: Federation, undisturbed: Path, tmp_path: Path
) -> None:
    federation.compose("up", "--detach", *DAEMONS)
    # Its pseudonyms come last, so the others are waiting with their columns when the victim's line becomes slow.
    federation.slow(LATE, "64kbit")
    federation.compose("up", "--detach", "--no-deps", "analyst")
    complete = "SELECT 1 FROM pseudonyms WHERE party = ? AND complete = 1"
    federation.wait("the victim's pseudonyms", lambda: federation.miner_says(complete, VICTIM))
    assert not federation.miner_says(complete, LATE)
    federation.slow(VICTIM, SLOW)
    federation.slow(LATE, "1gbit")

    federation.wait("an upload under way", lambda: federation.uploading(VICTIM))
    federation.network("disconnect", VICTIM)
    cut_off = federation.uploading(VICTIM)
    assert cut_off, "it was cut off too late to disturb an upload"
    others = federation.units() - federation.units(VICTIM)
    federation.wait("the others' columns", lambda: {unit for unit, _ in federation.stored()} >= others)
    assert federation.uploading(VICTIM) == cut_off  # nothing came through
    stored = federation.stored()

    federation.network("connect", VICTIM)
    federation.slow(VICTIM, SLOW)
    recovered = federation.wait("the upload goes on", lambda: federation.stored() - stored)
    federation.wait("an upload under way", lambda: federation.uploading(VICTIM))
    federation.engine.docker("kill", federation.container("miner"))
    assert federation.uploading(VICTIM), "the miner was killed too late to disturb an upload"
    federation.slow(VICTIM, "1gbit")
    federation.engine.docker("start", federation.container("miner"))

    carried_out(federation, tmp_path / "release")
    print(f"cut off with {cut_off}; went on {recovered:.1f} s after the network came back")
    same_release(tmp_path / "release", undisturbed)


def same_release(found: Path, expected: Path) -> None:
    """Network, parameters, intervals, synthetic records: every byte. The rest names moments, and is the same but for them."""
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in found.iterdir()) == names
    differ = {name for name in names if (found / name).read_bytes() != (expected / name).read_bytes()}
    assert differ <= {"datapackage.json", "manifest.json", "manifest.sig", "report.html"}
    packages = [json.loads((folder / "datapackage.json").read_bytes()) for folder in (found, expected)]
    assert {**packages[0], "created": ""} == {**packages[1], "created": ""}
    assert artifacts(found) == artifacts(expected)


def artifacts(release: Path) -> dict[int, str]:
    """What the miner receipted: SHA-256 of each unit's randomized column."""
    receipts = json.loads((release / "manifest.json").read_bytes()).get("receipts", [])
    bodies = [json.loads(receipt["body"]) for receipt in receipts]
    return {body["unit"]: body["artifact_sha256"] for body in bodies}


@pytest.mark.parametrize("name", DAEMONS)
def test_daemons_run_confined(federation: Federation, name: str) -> None:
    found = federation.inspect(name)
    assert found["State"]["Running"]
    assert found["Config"]["User"] == "10001:10001"
    assert found["HostConfig"]["ReadonlyRootfs"]
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    federation.wait("a healthy daemon", lambda: federation.inspect(name)["State"]["Health"]["Status"] == "healthy")
    said = "import os, pathlib; print(os.getuid(), pathlib.Path('/proc/self/status').read_text())"
    inside = federation.engine.docker("exec", federation.container(name), "python3", "-c", said)
    assert inside.startswith("10001 ")
    assert "CapEff:\t0000000000000000" in inside
    assert "NoNewPrivs:\t1" in inside
    write = federation.engine.docker(
        "exec", federation.container(name), "sh", "-c", ": > /opt/verticil/x; echo $?", check=False
    )
    assert write.strip() != "0"


def test_the_secrets_are_files_of_their_node_only(federation: Federation) -> None:
    for name in DAEMONS:
        found = federation.inspect(name)
        assert not [value for value in found["Config"]["Env"] if "SECRET" in value.upper() or "KEY" in value.upper()]
        volume = federation.engine.volume(f"verticil_{name}")
        private = [*volume.glob("pki/*.key"), *volume.glob("secrets/*"), *volume.glob("state/site.secret")]
        assert private
        assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
        assert {path.stat().st_uid for path in private} == {10001}


def test_parties_reach_the_miner_and_nobody_else(federation: Federation) -> None:
    program = "import socket, sys; [socket.create_connection((name, 8443), 3) for name in sys.argv[1:]]"

    def reaches(name: str) -> bool:
        words = ("docker", "exec", federation.container("employer"), "python3", "-c", program, name)
        return subprocess.run(words, env=dict(federation.engine.environment), capture_output=True).returncode == 0

    assert reaches("miner")
    assert not reaches("tax_office")
    assert not reaches("192.0.2.1")


def test_masked_tables_pass_through_the_miner_and_a_party_that_is_killed_goes_on(
    federation: Federation, engine: Any, base_image: str, tmp_path: Path
) -> None:
    """The same project, laid out anew for the other model: parties still meet nobody but the miner. The last test here."""
    federation.compose("down", "--volumes", "--timeout", "5")
    masked = Federation(engine, tmp_path, base_image, masked=True)
    try:
        masked.compose("up", "--detach")
        state = engine.volume(f"verticil_{VICTIM}") / "state"
        masked.wait("the round's messages", lambda: list(state.rglob("sent/*")))
        engine.docker("kill", masked.container(VICTIM))
        engine.docker("start", masked.container(VICTIM))
        carried_out(masked, tmp_path / "release")
    finally:
        masked.compose("down", "--volumes", "--timeout", "5")
    (calm := tmp_path / "calm").mkdir()
    asyncio.run(run_demo(calm, model="masked", relay=True, seed=SEED, step=lambda _line: None))
    same_release(tmp_path / "release", calm / "release")
