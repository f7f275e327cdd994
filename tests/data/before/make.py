"""Make what this folder holds: run it with the program that is to be remembered, `python make.py FOLDER`.

A federation of each model is stopped by SIGKILL in the middle of its study, packed, and then carried to its end by the same
program; what that sent is written down. The authority and its certificates are valid from 2020 to 2099, so that the tests need
no other clock; it is no marked one, so the parties' people approve with their own keys.
"""

# pyright: basic
from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import numpy as np

from verticil.cli.main import main
from verticil.party import office
from verticil.party.config import load_party
from verticil.shared.federation.identity import authority
from verticil.simulation import provision as provisioning
from verticil.simulation.peers import free_addresses, load_everywhere, standing, take_home

N = 300
WORDS = "four words of passphrase"
CENTRAL = """schema = 1
id = "hearts"
title = "Smoking and claims"
purpose = "test"
model = "central"
expires = 2099-12-31

[[party]]
name = "clinic"
[[party]]
name = "insurer"

[linkage]
mode = "keyed-hash"
normalise = ["nfkc", "trim"]
minimum_common_records = 100

[[variable]]
party = "clinic"
name = "smoker"
categories = ["no", "yes"]

[[variable]]
party = "clinic"
name = "age"
bins = [0, 30, 45, 60, 75, 90]
outside = "clamp"
integer = true

[[variable]]
party = "clinic"
name = "town"
categories = ["north", "south", "elsewhere"]
other = "elsewhere"
missing = { spellings = [""], category = "elsewhere" }

[[variable]]
party = "insurer"
name = "claims"
categories = ["none", "some", "many"]

[[variable]]
party = "insurer"
name = "plan"
categories = ["basic", "plus", "gold"]

[[variable]]
party = "insurer"
name = "ward"
categories = ["a", "b"]

[randomization_default]
scheme = "symmetric"
epsilon = 3.0

[[randomization]]
jointly = ["claims", "plan"]
impossible = [["none", "gold"]]
scheme = "symmetric"
epsilon = 3.0

[structure]
method = "given"
[structure.parents]
age = ["smoker"]
claims = ["smoker", "age"]
plan = ["claims"]

[release]
synthetic_records = 100
seed = 7
"""
PEER = (
    CENTRAL[: CENTRAL.index("[[randomization]]")].replace('model = "central"', 'model = "peer"')
    + """[structure]
method = "given"
[structure.parents]
age = ["smoker"]
claims = ["smoker", "age"]
plan = ["claims"]

[share]
minimum_count = 5

[release]
synthetic_records = 100
seed = 7
"""
)


def tables(folder: Path) -> dict[str, Path]:
    """Two tables about mostly the same people."""
    draw = np.random.default_rng(11)
    folder.mkdir()
    clinic, insurer = ["id,smoker,age,town"], ["id,claims,plan,ward"]
    for number in range(N):
        smoker, age = draw.random() < 0.3, draw.integers(0, 100)
        claims = ("none", "some", "many")[min(2, draw.poisson(0.4 + 1.2 * smoker))]
        plan = draw.choice(["basic", "plus"] if claims == "none" else ["basic", "plus", "gold"])
        town = draw.choice(["north", "south", "west", ""])
        if number >= 10:
            clinic.append(f"p{number:05d},{'yes' if smoker else 'no'},{age},{town}")
        if number < N - 10:
            insurer.append(f"p{number:05d},{claims},{plan},{draw.choice(['a', 'b'])}")
    found = {"clinic": folder / "clinic.csv", "insurer": folder / "insurer.csv"}
    for path, lines in zip(found.values(), (clinic, insurer), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found


def layout(root: Path, *, peers: bool) -> provisioning.Provisioned:
    """The nodes' folders, under an authority of a usual kind that is valid for long."""
    starts, ends = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2020, 2100))
    setattr(authority, "_lifetime", lambda _days, _at: (starts, ends))  # noqa: B010
    usual = authority.create_authority
    setattr(provisioning, "create_authority", lambda folder, name, **_: usual(folder, name))  # noqa: B010
    root.mkdir()
    paths = tables(root / "tables")
    made = provisioning.provision(
        root,
        federation="trial",
        sites=[provisioning.Site(name=name, table=path, id_column="id") for name, path in paths.items()],
        limits=provisioning.OPEN_LIMITS,
        endpoint=None if peers else "127.0.0.1:1",
        listen="127.0.0.1:0",
        hosts=("127.0.0.1",),
        seed=5,
        peers=free_addresses(paths) if peers else None,
    )
    for node in made.parties.values():
        toml = (node / "party.toml").read_text(encoding="utf-8")
        (node / "party.toml").write_text(toml.replace('approval = "auto"', 'approval = "manual"'), encoding="utf-8")
    (made.analyst / "study.toml").write_text(PEER if peers else CENTRAL, encoding="utf-8")
    return made


class Nodes:
    """The federation's processes."""

    def __init__(self, made: provisioning.Provisioned) -> None:
        self.made = made
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """All of them."""
        if self.made.miner.exists():
            port = json.loads(cast("Any", self._start("miner", self.made.miner).stdout).readline())["port"]
            for node in (*self.made.parties.values(), self.made.analyst):
                provisioning.set_endpoint(node, "trial", f"127.0.0.1:{port}", ca_sha256=self.made.ca_sha256)
        for node in self.made.parties.values():
            self._start("party", node)

    def _start(self, role: str, node: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "verticil.cli", role, "run", "--config", str(node / f"{role}.toml")]
        words += ["--format", "json", "--with-parent"]
        with (self.made.root / f"{node.name}.log").open("ab") as log:
            child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.processes.append(child)
        return child

    def end(self, how: signal.Signals) -> None:
        """All of them, and wait."""
        for child in self.processes:
            child.send_signal(how)
        for child in self.processes:
            child.wait(60)
        self.processes.clear()

    def approve(self) -> None:
        """At every party, as soon as it knows a study."""
        for name, node in self.made.parties.items():
            config = load_party(node / "party.toml")
            until(lambda config=config: office.status(config)["studies"])
            words = ["hearts", "--as", f"demo@{name}", "--key", str(node / "secrets" / "approver.key")]
            assert main(["party", "approve", *words, "--config", str(node / "party.toml")]) == 0


def until(found: Callable[[], object], *, seconds: float = 60) -> None:
    """Look often."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "nothing"
        time.sleep(0.001)


def sent(node: Path) -> dict[str, str]:
    """SHA-256 of each column that a party has sent, from its ledger."""
    with rows(node / "state" / "party.sqlite", "SELECT unit, artifact_sha256 FROM ledger WHERE unit >= 0") as found:
        return {f"{node.name} {unit}": sha256.hex() for unit, sha256 in found}


def charged(made: provisioning.Provisioned) -> dict[str, Any]:
    """The ledger of each party: rows and sum."""
    found = {}
    for name, node in made.parties.items():
        with rows(node / "state" / "party.sqlite", "SELECT COUNT(*), TOTAL(charged) FROM ledger") as told:
            found[name] = list(told[0])
    return found


@contextlib.contextmanager
def rows(database: Path, query: str) -> Generator[list[Any]]:
    """What a query finds; the database is only read."""
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=10)) as opened:
        yield opened.execute(query).fetchall()


def pack(root: Path, out: Path, *names: str) -> None:
    """The folder without logs, in one file."""

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        unwanted = entry.name.endswith((".log", "-shm", "/cache", ".lock"))
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return None if unwanted or not (entry.isdir() or entry.isfile()) else entry

    with tarfile.open(out, "w:xz", preset=9) as packed:
        for name in names:
            packed.add(root / name, name, filter=kept)


def central(place: Path, out: Path) -> dict[str, Any]:
    """Stopped with some columns at the miner and others not; then carried on. The release and a backup besides."""
    nodes = Nodes(made := layout(place / "central", peers=False))
    nodes.start()
    as_analyst = ["--federation", str(made.analyst / "federation.toml")]
    as_analyst += ["--certificate", str(made.analyst / "pki" / "analyst.crt")]
    assert main(["study", "submit", str(made.analyst / "study.toml"), *as_analyst]) == 0
    nodes.approve()
    catalogue = made.miner / "state" / "catalogue.sqlite"

    def columns() -> dict[int, str]:
        with rows(catalogue, "SELECT unit, column_sha256 FROM stored_column") as found:
            return {unit: sha256.hex() for unit, sha256 in found}

    until(columns)
    nodes.end(signal.SIGKILL)
    stopped = {"columns": columns(), "ledger": charged(made)}
    assert len(columns()) < 5, "stopped too late: run it again"
    pack(made.root, out / "central.tar.xz", "tables", "miner", "analyst", *made.parties)
    (place / "words").write_text(WORDS + "\n", encoding="utf-8")
    (place / "words").chmod(0o600)
    backup = ["party", "backup", "--out", str(out / "clinic.backup"), "--passphrase-file", str(place / "words")]
    assert main([*backup, "--config", str(made.parties["clinic"] / "party.toml")]) == 0
    nodes.start()
    fetch = ["release", "fetch", "hearts", "--out", str(place / "release"), *as_analyst]
    until(lambda: time.sleep(0.5) or main(fetch) == 0)
    nodes.end(signal.SIGTERM)
    pack(place, out / "release.tar.xz", "release")
    (out / "ca.crt").write_bytes(made.ca_certificate.read_bytes())
    artifacts = {unit: sha256 for node in made.parties.values() for unit, sha256 in sent(node).items()}
    return {
        "stopped": stopped,
        "columns": columns(),
        "artifacts": artifacts,
        "ledger": charged(made),
        "ca_sha256": made.ca_sha256,
    }


def peer(place: Path, out: Path) -> dict[str, Any]:
    """Stopped as soon as a column has gone from one party to the other; then carried on."""
    nodes = Nodes(made := layout(place / "peer", peers=True))
    digest = load_everywhere(made.parties, made.analyst / "study.toml")
    nodes.start()
    nodes.approve()
    until(lambda: any(sent(node) for node in made.parties.values()))
    nodes.end(signal.SIGKILL)
    stopped = {"ledger": charged(made)}
    assert not standing(made.parties, digest).published, "stopped too late: run it again"
    pack(made.root, out / "peer.tar.xz", "tables", "analyst", *made.parties)
    nodes.start()
    until(lambda: standing(made.parties, digest).published)
    nodes.end(signal.SIGTERM)
    take_home(made.parties, digest, place / "releases", ca_certificate=made.ca_certificate.read_bytes())
    artifacts = {unit: sha256 for node in made.parties.values() for unit, sha256 in sent(node).items()}
    return {
        "digest": digest,
        "stopped": stopped,
        "artifacts": artifacts,
        "ledger": charged(made),
        "ca_sha256": made.ca_sha256,
        "addresses": dict(made.peers),
    }


if __name__ == "__main__":
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["NUMBA_CACHE_DIR"] = f"{temporary}/cache"
        recorded = {
            "central": central(Path(temporary), target),
            "peer": peer(Path(temporary), target),
        }
    (target / "recorded.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
