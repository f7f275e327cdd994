"""One study over real gRPC with mutual TLS whose miner goes away in the middle of an upload; what it shows is told once, below.

Miner and parties run in one event loop, so that what may not happen on a loop can be looked for: every step to the disk is seen
by `verticil.shared.storage.durable`, and every callback's own CPU time is taken (of the thread, so that a busy machine changes
nothing).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import gc
import re
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port
from verticil.miner.config import load_miner
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.party import daemon
from verticil.party.config import load_party
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.client import Connection, GrpcControl
from verticil.shared.federation.transport.interface import Control, Coordinator, bind
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.storage import durable
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.simulation.analyst import follow_study
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision, set_endpoint
from verticil.wire.v1 import control_pb2

N = 30_000
CHUNK = 1024
BATCH = 8  # chunks that the miner commits together
STUDY = """schema = 1
id = "cut"
purpose = "test"
expires = 2099-12-31
party = [{ name = "clinic" }, { name = "insurer" }]
linkage = { minimum_common_records = 10 }
variable = [
  { party = "clinic", name = "smoker", categories = ["no", "yes", "once", "daily", "unknown"] },
  { party = "insurer", name = "claims", categories = ["0", "1-2", "3+"] },
]
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "given", parents = { claims = ["smoker"] } }
release = { synthetic_records = 50, seed = 7 }
"""


class Wire:
    """A party's connection; keeps what was sent, finishes everything twice, and can have the network cut."""

    def __init__(self, inner: Any, run: Run, party: str) -> None:
        self._inner, self._run, self._party = inner, run, party

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_chunks(self, chunks: Any) -> Any:
        def keep() -> Iterator[Any]:
            for number, chunk in enumerate(chunks):
                if number == BATCH + 2 and self._party == "clinic" and not self._run.cut.is_set():
                    assert self._run.committed.wait(PATIENCE_SECONDS), "the miner committed nothing"
                    self._run.cut_off()
                self._run.sent[self._party].append(chunk.offset)
                yield chunk

        return self._inner.put_chunks(keep())

    async def finish_upload(self, request: Any) -> Any:
        first = await self._inner.finish_upload(request)
        again = await self._inner.finish_upload(request)
        self._run.receipts[self._party] = first.SerializeToString(), again.SerializeToString()
        return again


@dataclasses.dataclass
class Run:
    """What happened."""

    made: Provisioned
    loop: asyncio.AbstractEventLoop
    node: MinerNode
    server: RpcServer
    port: int = 0
    sent: dict[str, list[int]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    receipts: dict[str, tuple[bytes, bytes]] = dataclasses.field(default_factory=dict)
    committed: threading.Event = dataclasses.field(default_factory=threading.Event)
    cut: threading.Event = dataclasses.field(default_factory=threading.Event)
    gone: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    dials: list[str] = dataclasses.field(default_factory=list)
    online: list[bool] = dataclasses.field(default_factory=list)
    on_the_loop: list[str] = dataclasses.field(default_factory=list)
    longest: tuple[float, str] = (0.0, "")

    def cut_off(self) -> None:
        """The miner's port is gone at once; called from the thread that reads the chunks."""

        async def stop() -> None:
            await self.server.stop(grace_seconds=0)
            self.gone.set()

        self.cut.set()
        asyncio.run_coroutine_threadsafe(stop(), self.loop).result(PATIENCE_SECONDS)

    def see(self, step: durable.DurableStep) -> None:
        if threading.current_thread() is threading.main_thread():
            self.on_the_loop.append(f"{step.kind} {step.path.name}")
        if step.kind == "commit" and step.moment == "after" and step.path.name == "catalogue.sqlite":
            found = [
                upload
                for study in self.node.catalogue.digests()
                for upload in self.node.catalogue.uploads.of_study(study)
            ]
            if any(upload.committed >= BATCH * CHUNK and upload.unit == 0 for upload in found):
                self.committed.set()


@contextlib.contextmanager
def watched_loop(run: Run) -> Iterator[None]:
    """Take the CPU time that every callback of the loop uses in its own thread.

    The garbage of the whole test run would be collected in one callback or another: it waits.
    """
    plain = asyncio.events.Handle._run

    def measured(handle: Any) -> Any:
        before = time.thread_time()
        result = plain(handle)
        took = time.thread_time() - before
        if took > run.longest[0] and not gc.isenabled():  # the last one collects what has waited
            run.longest = (took, repr(handle))
        return result

    setattr(asyncio.events.Handle, "_run", measured)  # noqa: B010 - its type is that of a bound method
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        asyncio.events.Handle._run = plain  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def serving(run: Run) -> AsyncIterator[None]:
    """Bring the miner's port back when it was cut off and a party has dialled in vain."""

    async def come_back() -> None:
        await run.gone.wait()
        dialled = len(run.dials)
        while len(run.dials) < dialled + 2:
            await asyncio.sleep(0.01)
        run.server = server(run.made, run.node, run.port)
        await run.server.start()

    task = asyncio.create_task(come_back())
    try:
        yield
        await task
    finally:
        task.cancel()
        await run.server.stop(grace_seconds=5)


def server(made: Provisioned, node: MinerNode, port: int) -> RpcServer:
    config = load_miner(made.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    bindings = [bind(Coordinator, node.coordinator), bind(Control, node.control)]
    return RpcServer(f"127.0.0.1:{port}", credentials, bindings)


async def carry_out(root: Path) -> Run:
    tables = root / "tables"
    tables.mkdir()
    smoker, claims = ("no", "yes", "once", "daily", "unknown"), ("0", "1-2", "3+")
    (tables / "clinic.csv").write_text("id,smoker\n" + "".join(f"p{i},{smoker[i % 5]}\n" for i in range(N)))
    (tables / "insurer.csv").write_text("id,claims\n" + "".join(f"p{i},{claims[i % 3]}\n" for i in range(N)))
    (root / "study.toml").write_text(STUDY)
    made = provision(
        root / "federation",
        federation="trial",
        sites=[csv_site(name, tables / f"{name}.csv") for name in ("clinic", "insurer")],
        limits=OPEN_LIMITS,
        endpoint="127.0.0.1:1",
        listen="127.0.0.1:0",
        hosts=("127.0.0.1",),
        seed=1,
    )
    config = load_miner(made.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    node = MinerNode(
        config.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=SigningKey.load(config.signing_key, config.certificate),
        executor=InlineLearning(clock=lambda: dt.datetime.now(dt.UTC)),
        limits=config.limits,
        randomized_days=30,
        simulation=True,
    )
    run = Run(made=made, loop=asyncio.get_running_loop(), node=node, server=server(made, node, free_port()))
    run.port = await run.server.start()
    for folder in (*made.parties.values(), made.analyst):
        set_endpoint(folder, "trial", f"127.0.0.1:{run.port}", ca_sha256=made.ca_sha256)
        text = (folder / "federation.toml").read_text()
        (folder / "federation.toml").write_text(re.sub(r"chunk_bytes = \d+", f"chunk_bytes = {CHUNK}", text))
    stop = asyncio.Event()
    async with node, serving(run):
        parties = []
        for name, folder in made.parties.items():
            party = load_party(folder / "party.toml")
            own = load_credentials(party.certificate, party.key, party.federation)

            def dial(name: str = name, party: Any = party, own: Any = own) -> Any:
                run.dials.append(name)
                return Wire(daemon.dial(party, own), run, name)

            parties.append(asyncio.create_task(daemon.run_party(party, dial, stop=stop)))
        analyst = load_credentials(
            made.analyst / "pki" / "analyst.crt", made.analyst / "pki" / "analyst.key", party.federation
        )
        study = read_study(root / "study.toml")
        digest = node.submissions.submit("analyst", to_bytes(study))
        node.changes.notify()
        with durable.watch_steps(run.see), watched_loop(run):
            await asyncio.wait(
                [gone := asyncio.ensure_future(run.gone.wait()), *parties], return_when="FIRST_COMPLETED"
            )
            assert gone.done(), [party.exception() for party in parties if party.done()]
            line = Connection(f"127.0.0.1:{run.port}", analyst)
            control = GrpcControl(line)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while run.online != [True, True]:
                    with contextlib.suppress(Exception):
                        request = control_pb2.GetStudyRequest(study_digest=digest)
                        run.online = [one.online for one in (await control.get_study(request)).study.parties]
            await follow_study(control, digest)
            await control.close()
        stop.set()
        node.changes.close()
        await asyncio.gather(*parties)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return asyncio.run(carry_out(tmp_path_factory.mktemp("cut")))


@pytest.mark.whole
def test_feature_20_parties_come_back_by_themselves(run: Run) -> None:
    assert run.gone.is_set()
    assert set(run.dials) == {"clinic", "insurer"}
    assert len(run.dials) >= 4  # each came in, lost the miner and dialled again
    assert run.online == [True, True]


@pytest.mark.whole
def test_feature_9_an_upload_goes_on_at_the_committed_offset(run: Run) -> None:
    sent = run.sent["clinic"]
    starts = [at for at, offset in enumerate(sent) if at == 0 or offset <= sent[at - 1]]
    assert len(starts) == 2, "cut once"
    again = sent[starts[1]]
    assert again >= BATCH * CHUNK  # what the miner had acknowledged was not sent again
    assert again % CHUNK == 0


def test_feature_9_finishing_twice_gives_the_same_receipt(run: Run) -> None:
    assert "clinic" in run.receipts  # the insurer may have been cut off between its two
    for first, again in run.receipts.values():
        assert first == again


def test_feature_25_no_disk_and_no_computing_on_the_event_loop(run: Run) -> None:
    """Else the answers of health, and of every other call, would wait for them."""
    assert run.on_the_loop == []
    seconds, where = run.longest
    print(f"longest callback: {1000 * seconds:.1f} ms, {where}")
    assert seconds < 0.05, where
