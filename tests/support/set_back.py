"""A federation in which a study was carried out, and one of its sites that is set back to before it, in each way that happens."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import shutil
from collections.abc import AsyncGenerator, Callable, Collection
from pathlib import Path
from typing import Any

from support import PATIENCE_SECONDS
from verticil.party.config import load_party
from verticil.party.daemon import run_party
from verticil.party.operator.backup import backup, restore
from verticil.party.policy.ledger import Ledger
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.party.storage.database import Database
from verticil.party.storage.studies import PartyState
from verticil.shared.core.errors import PeerFault
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator, InMemoryPeer
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.simulation.in_memory_peers import run_peers, serving_miner
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision
from verticil.wire.v1 import control_pb2

PASSPHRASE = "correct horse battery"
PARTIES = ("clinic", "insurer", "bank")
LOSSES = ("database", "database and log", "restore")
"""What a site loses: its database is older than its audit log; both are older; it comes from a backup."""
_STUDY = """schema = 1
id = "{id}"
title = "Hearts"
purpose = "test"
model = "{model}"
expires = 2099-12-31
party = [{parties}]
linkage = {{ minimum_common_records = 10 }}
variable = [{variables}]
randomization_default = {{ scheme = "symmetric", epsilon = {epsilon} }}
release = {{ synthetic_records = 50, seed = 7 }}
"""


class SetBack:
    """A federation of the parties clinic, insurer and (Model III) bank, and the state of the clinic before a study and after.

    Args:
        root: a temporary folder.
        model: of the study.
        more: further lines of the study.
        numbers: the columns "x" are numbers whose bins are measured.
        ahead: how far the clocks of all nodes are ahead while studies are carried out; later they are right.
    """

    def __init__(
        self,
        root: Path,
        model: str,
        more: str = "",
        *,
        numbers: bool = False,
        ahead: dt.timedelta = dt.timedelta(),
    ) -> None:
        self.root, self.model, self.more, self._numbers, self._ahead = root, model, more, numbers, ahead
        self.parties = PARTIES if model == "masked" else PARTIES[:2]
        tables = root / "tables"
        tables.mkdir(parents=True)
        for name in self.parties:
            words = [str(i % 12) if numbers else ("no", "yes")[(i + len(name)) % 2] for i in range(60)]
            lines = [f"p{i},{word},{'fm'[i % 3 == 0]}" for i, word in enumerate(words)]
            (tables / f"{name}.csv").write_text("\n".join([f"id,{name}_x,{name}_y", *lines]) + "\n")
        self.made: Provisioned = provision(
            root / "nodes",
            federation="trial",
            sites=[csv_site(name, tables / f"{name}.csv") for name in self.parties],
            limits=OPEN_LIMITS,
            endpoint=None if model == "peer" else "localhost:1",
            listen="127.0.0.1:0",
            hosts=("localhost",),
            seed=1,
            peers=None if model == "central" else {name: f"localhost:{2 + i}" for i, name in enumerate(self.parties)},
            masked=model == "masked",
        )
        self.clinic = self.made.parties["clinic"]
        shutil.copytree(self.clinic / "state", root / "new")
        backup(load_party(self.clinic / "party.toml"), root / "backup", PASSPHRASE)

    def study(self, study_id: str = "hearts", epsilon: float = 3.0) -> Study:
        """The study, read from a file."""
        parties = ", ".join(f'{{ name = "{name}" }}' for name in self.parties)
        first = (
            'type = "integer", bins = "private", bounds = [0, 20]' if self._numbers else 'categories = ["no", "yes"]'
        )
        variables = ", ".join(
            f'{{ party = "{name}", name = "{name}_{column}", {values} }}'
            for name in self.parties
            for column, values in (("x", first), ("y", 'categories = ["f", "m"]'))
        )
        path = self.root / f"{study_id}.toml"
        named = {"id": study_id, "model": self.model, "parties": parties, "variables": variables, "epsilon": epsilon}
        path.write_text(_STUDY.format(**named) + self.more)
        return read_study(path)

    def carry_out(self, study_id: str = "hearts", epsilon: float = 3.0) -> None:
        """Carry the study out, and keep the clinic's state as it is when every thread of the nodes has ended."""
        run: Any = run_peers if self.model == "peer" else run_federation
        study, release = self.study(study_id, epsilon), self.root / f"release-{study_id}"
        asyncio.run(run(self.made, study, release, is_seeded=True, clock=lambda: utc_now() + self._ahead))
        shutil.rmtree(self.root / "after", ignore_errors=True)
        shutil.copytree(self.clinic / "state", self.root / "after")
        self.before = rows(self.clinic)

    def lose(self, loss: str) -> Path:
        """Set the clinic back to before the study; returns the folder of its node."""
        state = self.clinic / "state"
        shutil.rmtree(state, ignore_errors=True)
        if loss == "restore":
            folder = self.clinic.with_name("clinic-again")
            shutil.rmtree(folder, ignore_errors=True)
            restore(self.root / "backup", folder, PASSPHRASE)
            return folder
        if loss == "database":
            shutil.copytree(self.root / "after", state)
            for path in state.glob("party.sqlite*"):
                path.unlink()
            shutil.copyfile(self.root / "new" / "party.sqlite", state / "party.sqlite")
        else:
            shutil.copytree(self.root / "new", state)
        return self.clinic

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, *, accept_older: bool, miner: bool = True, peers: Collection[str] | None = None
    ) -> AsyncGenerator[Running]:
        """Run the clinic from a folder, with the miner and peers that are there.

        Args:
            folder: of the clinic's node.
            accept_older: as the operator says.
            miner: whether it is there.
            peers: who is there; None: all.
        """
        async with contextlib.AsyncExitStack() as stack:
            running = Running(self, folder, accept_older=accept_older)
            if miner and self.model != "peer":
                running.miner = await stack.enter_async_context(serving_miner(self.made, utc_now, is_seeded=True))
            stack.push_async_callback(running.stop)
            for name in self.parties[1:] if peers is None else peers:
                running.start(name)
            running.start("clinic")
            yield running


class Running:
    """Daemons in this process.

    Args:
        of: the federation.
        folder: of the clinic's node.
        accept_older: of the clinic.

    Attributes:
        miner: None: it is away.
        clinic: the clinic's daemon.
        attempts: how often the clinic asked what others have of it, or to be connected with the miner.
    """

    def __init__(self, of: SetBack, folder: Path, *, accept_older: bool) -> None:
        self._of, self._folder, self._accept_older = of, folder, accept_older
        self._services: dict[str, Any] = {}
        self._stop = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.miner: Any = None
        self.attempts = 0
        self._answered: set[str] = set()
        self._held: set[str] = set()

    @property
    def clinic(self) -> asyncio.Task[None]:
        return self._tasks["clinic"]

    @property
    def heard(self) -> bool:
        """Whether the miner and all peers have told the clinic what they have of it."""
        peers = set() if self._of.model == "central" else set(self._of.parties[1:])
        return {*peers, *({"miner"} if self.miner is not None else ())} <= self._answered

    def start_late(self, name: str) -> None:
        """Start a party that does not say yet what it has of the clinic."""
        self._held.add(name)
        self.start(name)

    def let(self, name: str) -> None:
        """Let a party say what it has of the clinic."""
        self._held.discard(name)

    def start(self, name: str) -> None:
        """Start a party."""
        folder = self._folder if name == "clinic" else self._of.made.parties[name]
        identity = Identity(federation="trial", role=Role.PARTY, name=name)

        def dial() -> InMemoryCoordinator:
            self.attempts += name == "clinic"
            line = _MinerLine(None if self.miner is None else self.miner.coordinator, identity)
            line.running = self
            return line

        work = run_party(
            load_party(folder / "party.toml"),
            None if self._of.model == "peer" else dial,
            peers=None if self._of.model == "central" else _Network(self, self._services, name),
            accept_older=self._accept_older and name == "clinic",
            stop=self._stop,
            simulation=True,
            seed_derived=True,
        )
        self._tasks[name] = asyncio.create_task(work, name=name)

    def check(self, name: str) -> None:
        """Refuse to ask a party that does not say yet what it has of the clinic."""
        if name in self._held:
            raise PeerFault("UNREACHABLE", f"'{name}' is held by the test")

    def note(self, name: str) -> None:
        """Note that a node has told the clinic what it has of it."""
        self._answered.add(name)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something holds; raise what ended a daemon before."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await asyncio.to_thread(condition):
                for task in self._tasks.values():
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)

    def rows(self) -> tuple[LedgerRow, ...]:
        """The clinic's ledger."""
        return rows(self._folder)

    def stage(self, study_id: str) -> str:
        """What the clinic does about a study; empty: it does not know it."""
        with Database(self._folder / "state") as database:
            return next((item.stage for item in PartyState(database).studies() if item.study_id == study_id), "")

    async def submit(self, study: Study) -> None:
        """Submit a study to the miner."""
        control = InMemoryControl(self.miner.control, Identity(federation="trial", role=Role.ANALYST, name="analyst"))
        await control.submit_study(control_pb2.SubmitStudyRequest(proposal=to_bytes(study)))

    async def stop(self) -> None:
        """Stop all daemons in good order."""
        self._stop.set()
        if self.miner is not None:
            self.miner.changes.close()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class _MinerLine(InMemoryCoordinator):
    running: Running

    async def hello(self, request: Any) -> Any:
        if self.running.miner is None:
            raise PeerFault("UNREACHABLE", "the miner is away")
        return await super().hello(request)

    async def poll(self, request: Any) -> Any:
        if request.wait_seconds:  # the first poll has brought everything
            self.running.note("miner")
        return await super().poll(request)


class _Line(InMemoryPeer):
    running: Running
    name: str

    async def get_deletion(self, request: Any) -> Any:
        self.running.check(self.name)
        reply = await super().get_deletion(request)
        self.running.note(self.name)
        return reply


class _Network:
    def __init__(self, running: Running, services: dict[str, Any], name: str) -> None:
        self._running, self._services, self._name = running, services, name

    def dial(self, name: str) -> InMemoryPeer:
        self._running.attempts += self._name == "clinic"
        if name not in self._services:
            raise PeerFault("UNREACHABLE", f"'{name}' does not serve its peers yet")
        identity = Identity(federation="trial", role=Role.PARTY, name=self._name)
        if self._name != "clinic":
            return InMemoryPeer(self._services[name], identity)
        line = _Line(self._services[name], identity)
        line.running, line.name = self._running, name
        return line

    @contextlib.asynccontextmanager
    async def serve(self, service: Any) -> AsyncGenerator[None]:
        self._services[self._name] = service
        try:
            yield None
        finally:
            del self._services[self._name]


def rows(folder: Path) -> tuple[LedgerRow, ...]:
    """The ledger of a node."""
    with Database(folder / "state") as database:
        return Ledger(database).rows()


def charges(ledger: Collection[LedgerRow]) -> set[tuple[object, ...]]:
    """What ledgers are compared by: everything but when, of what data, and how many bytes."""
    return {
        (row.study_digest, row.variables, row.dataset, row.drawn, row.charged, row.charged_delta, row.recipient)
        for row in ledger
    }
