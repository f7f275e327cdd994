"""A small federation of real processes that is disturbed while it works, and the table of what was done to it.

It is laid out once; every run gets a copy of its own, with the same keys and secrets, so that all runs must publish the same
release. The table is printed at the end, and written as JSON to the file that VERTICIL_FAULTS_JSON names.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from support.drill import keep_port
from support.line import Line
from support.sameness import charged, differences, essence
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.transport.client import Connection, GrpcControl
from verticil.shared.release.download import fetch_release
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.simulation.analyst import follow_study
from verticil.simulation.children import Children
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, copy_federation, csv_site, provision, set_endpoint
from verticil.wire.v1 import control_pb2

N = 4000
STUDY = """schema = 1
id = "faults"
title = "Faults"
purpose = "test"
model = "central"
expires = 2099-12-31
party = [{ name = "clinic" }, { name = "insurer" }]
linkage = { minimum_common_records = 1000 }
variable = [
  { party = "clinic", name = "smoker", categories = ["no", "yes"] },
  { party = "clinic", name = "town", categories = ["north", "south", "east", "west"] },
  { party = "insurer", name = "claims", categories = ["0", "1-2", "3+"] },
  { party = "insurer", name = "plan", categories = ["basic", "plus", "gold", "family"] },
]
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "given", parents = { claims = ["smoker", "town"], plan = ["claims"] } }
release = { synthetic_records = 500, seed = 7 }
"""
PARTIES = ("clinic", "insurer")
NODES = ("miner", *PARTIES)
PATIENCE_SECONDS = 600.0
"""Nothing waits so long; it names a hang, on a machine that does ten other things, too."""


@dataclass(kw_only=True)
class Row:
    """One line of the table."""

    injected: str
    runs: int = 0
    times: int = 0
    lost: int = 0
    details: list[str] = field(default_factory=list)


TABLE: dict[str, Row] = {}


def note(injected: str, *, times: int = 1, lost: list[str], detail: str = "") -> None:
    """Write a run into the table; a run that lost something fails."""
    row = TABLE.setdefault(injected, Row(injected=injected))
    row.runs += 1
    row.times += times
    row.lost += len(lost)
    row.details += [detail] if detail else []
    assert lost == [], f"{injected}: {lost}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not TABLE:
        return
    if path := os.environ.get("VERTICIL_FAULTS_JSON"):
        Path(path).write_text(json.dumps([asdict(row) for row in TABLE.values()], indent=1) + "\n", encoding="utf-8")
    terminalreporter.section("faults")
    width = max(len(row.injected) for row in TABLE.values())
    terminalreporter.write_line(f"{'injected':<{width}}  runs  times  lost")
    for row in TABLE.values():
        terminalreporter.write_line(f"{row.injected:<{width}}  {row.runs:>4}  {row.times:>5}  {row.lost or 'nothing'}")


class Run:
    """One life of the federation, and its study."""

    def __init__(self, made: Provisioned, *, cache: Path, idle_seconds: int) -> None:
        self.made = made
        self.idle_seconds = idle_seconds
        self.children = Children(
            folder=made.root,
            environment={"NUMBA_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        self.lines: dict[str, Line] = {}
        self.digest = b""
        self._federation = load_federation(made.analyst / "federation.toml").name
        self._control: GrpcControl | None = None

    async def start_miner(self) -> int:
        port = await self.children.start_miner(self.made.miner)
        keep_port(self.made.miner, port)
        return port

    async def start(self) -> None:
        """Start all nodes, each party with a line of its own to the miner, and submit the study."""
        port = await self.start_miner()
        self.lines = {party: Line(port) for party in PARTIES}
        for party, line in self.lines.items():
            await line.open()
            self._point(self.made.parties[party], line.port)
        self._point(self.made.analyst, port)
        for party in PARTIES:
            await self.children.start_party(party, self.made.parties[party])
        federation = load_federation(self.made.analyst / "federation.toml")
        pki = self.made.analyst / "pki"
        self._control = GrpcControl(
            Connection(
                federation.miner_endpoint, load_credentials(pki / "analyst.crt", pki / "analyst.key", federation)
            )
        )
        proposal = to_bytes(read_study(self.made.analyst / "study.toml"))
        self.digest = (await self._control.submit_study(control_pb2.SubmitStudyRequest(proposal=proposal))).study_digest

    def _point(self, node: Path, port: int) -> None:
        set_endpoint(node, self._federation, f"127.0.0.1:{port}", ca_sha256=self.made.ca_sha256)
        path = node / "federation.toml"
        path.write_text(
            path.read_text().replace("idle_timeout_seconds = 120", f"idle_timeout_seconds = {self.idle_seconds}")
        )

    async def restart(self, node: str) -> None:
        if node == "miner":
            await self.start_miner()
        else:
            await self.children.start_party(node, self.made.parties[node])

    async def kill(self, node: str) -> None:
        """SIGKILL and a new start."""
        await self.children.kill(node)
        await self.restart(node)

    async def state(self) -> control_pb2.StudySummary | None:
        """How far the study is; None when nobody tells."""
        assert self._control is not None
        request = control_pb2.GetStudyRequest(study_digest=self.digest)
        try:
            return (await self._control.get_study(request)).study
        except VerticilError:
            return None

    async def until(self, done: Callable[[control_pb2.StudySummary], bool]) -> control_pb2.StudySummary:
        end = time.monotonic() + PATIENCE_SECONDS
        while (study := await self.state()) is None or not done(study):
            assert time.monotonic() < end, study
            await asyncio.sleep(0.05)
        return study

    async def publish(self, disturb: Awaitable[None] | None = None) -> dict[str, str]:
        """What was published, and what each party paid; `disturb` runs meanwhile."""
        assert self._control is not None
        disturbing = asyncio.ensure_future(disturb) if disturb is not None else None
        async with asyncio.timeout(PATIENCE_SECONDS * 2):
            await follow_study(self._control, self.digest, check=self.children.check, patience_seconds=PATIENCE_SECONDS)
            if disturbing is not None:
                await disturbing
            release = self.made.root.parent / f"{self.made.root.name}-release"
            await fetch_release(self._control, self.digest, release)
        codes = await self.children.stop()
        # a node that was started a moment ago may not have come to listen to SIGTERM yet
        assert set(codes.values()) <= {0, -signal.SIGTERM}, codes
        ledger = {f"ledger of {party}": f"{cost:.9g}" for party, cost in charged(self.made.parties).items()}
        return {**essence(release), **ledger}

    async def close(self) -> None:
        for line in self.lines.values():
            await line.close()
        if self._control is not None:
            await self._control.close()
        await self.children.stop()


class Federation:
    """The template of all runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calm: dict[str, str] = {}
        self.calm_seconds = 0.0
        tables = folder / "template" / "tables"
        tables.mkdir(parents=True)
        generator = random.Random(3)
        texts = {"clinic": "id,smoker,town\n", "insurer": "id,claims,plan\n"}
        for i in range(N):
            smoker = generator.random() < 0.3
            town = generator.choice(("north", "south", "east", "west"))
            claims = generator.choice(("0", "1-2", "3+") if smoker else ("0", "0", "1-2"))
            texts["clinic"] += f"p{i},{'yes' if smoker else 'no'},{town}\n" if i % 50 else ""
            texts["insurer"] += f"p{i},{claims},{generator.choice(('basic', 'plus', 'gold', 'family'))}\n"
        for party, text in texts.items():
            (tables / f"{party}.csv").write_text(text)
        self.template = provision(
            folder / "template",
            federation="faults",
            sites=[csv_site(party, tables / f"{party}.csv") for party in PARTIES],
            limits=OPEN_LIMITS,
            endpoint="127.0.0.1:1",
            listen="127.0.0.1:0",
            hosts=("127.0.0.1",),
            seed=1,
        )
        (self.template.analyst / "study.toml").write_text(STUDY)
        self._runs = 0

    @asynccontextmanager
    async def run(
        self, before: Callable[[Provisioned], None] = lambda _: None, *, idle_seconds: int = 120
    ) -> AsyncIterator[Run]:
        """A life of its own. `before` changes the folders before anything starts; `idle_seconds` is the nodes' patience."""
        self._runs += 1
        made = copy_federation(self.template, self.folder / f"run-{self._runs}")
        before(made)
        run = Run(made, cache=self.folder / "compiled", idle_seconds=idle_seconds)
        try:
            await run.start()
            yield run
        finally:
            await run.close()

    async def undisturbed(self) -> dict[str, str]:
        """What is published when nothing happens; found once."""
        if not self.calm:
            for _ in range(2):  # the first one compiles
                async with self.run() as run:
                    begun = time.monotonic()
                    self.calm = await run.publish()
                    self.calm_seconds = time.monotonic() - begun
        return self.calm

    async def lost(self, run: Run, disturb: Awaitable[None] | None = None) -> list[str]:
        """Publish, and name what is not as without disturbance."""
        return differences(self.calm, await run.publish(disturb))


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("faults"))


@pytest.fixture
async def federation(template: Federation) -> Federation:
    """The federation, after one undisturbed run."""
    await template.undisturbed()
    return template


@pytest.fixture(scope="session")
def in_the_table() -> Callable[..., None]:
    return note
