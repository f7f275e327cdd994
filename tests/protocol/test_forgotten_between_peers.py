"""Between peers only the peers can say what an old backup forgot: they sign it, and it is charged when people ask for that."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import AsyncIterator, Callable, MutableMapping
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from verticil.party.config import load_party
from verticil.party.daemon import run_party
from verticil.party.operator.backup import BETWEEN_PEERS, backup, restore
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.party.site import Site
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.in_memory import InMemoryPeer
from verticil.shared.federation.transport.interface import Peer, Service
from verticil.shared.study.reading import read_study
from verticil.simulation.in_memory_peers import run_peers
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, csv_site, provision
from verticil.wire.v1 import common_pb2, peer_pb2

WORDS = "nine people in a garden"
STUDY = """schema = 1
id = "hearts"
title = "Hearts"
purpose = "test"
model = "peer"
expires = 2099-12-31
party = [{ name = "clinic" }, { name = "insurer" }]
linkage = { minimum_common_records = 10 }
variable = [
  { party = "clinic", name = "smoker", categories = ["no", "yes"] },
  { party = "clinic", name = "sex", categories = ["f", "m"] },
  { party = "insurer", name = "claims", categories = ["0", "1-2", "3+"] },
]
randomization_default = { scheme = "symmetric", epsilon = 3.0 }
structure = { method = "given", parents = { claims = ["smoker", "sex"] } }
share = { noise = "discrete-gaussian", epsilon = 2.0, delta = 1e-6 }
release = { synthetic_records = 50, seed = 7 }
"""
Lie = Callable[[peer_pb2.Held], None]


class Restored:
    """A party whose backup is older than the study that it took part in."""

    def __init__(self, root: Path) -> None:
        (root / "tables").mkdir(parents=True)
        clinic = "".join(f"p{i},{('no', 'yes')[i % 2]},{'fm'[i % 3 == 0]}\n" for i in range(60))
        claims = "".join(f"p{i},{('0', '1-2', '3+')[i % 3]}\n" for i in range(60))
        (root / "tables" / "clinic.csv").write_text("id,smoker,sex\n" + clinic)
        (root / "tables" / "insurer.csv").write_text("id,claims\n" + claims)
        self.made: Provisioned = provision(
            root / "nodes",
            federation="trial",
            sites=[csv_site(name, root / "tables" / f"{name}.csv") for name in ("clinic", "insurer")],
            limits=OPEN_LIMITS,
            endpoint=None,
            listen="127.0.0.1:0",
            hosts=("localhost",),
            seed=1,
            peers={"clinic": "localhost:2", "insurer": "localhost:3"},
        )
        self.clinic, self.insurer = (self.made.parties[name] / "party.toml" for name in ("clinic", "insurer"))
        backup(load_party(self.clinic), root / "old", WORDS)
        (root / "study.toml").write_text(STUDY)
        asyncio.run(run_peers(self.made, read_study(root / "study.toml"), root / "release", is_seeded=True))
        self.before = rows(self.clinic)
        self.folder = self.clinic.parent.with_name("clinic-again")
        self.root = root

    def anew(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        restore(self.root / "old", self.folder, WORDS)
        return self.folder / "party.toml"


def rows(toml: Path) -> tuple[LedgerRow, ...]:
    with Site.open(load_party(toml)) as site:
        return site.ledger.rows()


class Line(InMemoryPeer):
    """A peer that may lie about what it has."""

    lie: Lie | None = None
    charged: asyncio.Event

    async def get_deletion(self, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        if request.study_digest:  # it goes on after what it was told first
            self.charged.set()
        reply = await super().get_deletion(request)
        for held in reply.held:
            if self.lie is not None:
                self.lie(held)
        return reply


class Network:
    """How one party reaches the others, in one process."""

    def __init__(self, services: MutableMapping[str, Service], name: str, lie: Lie | None = None) -> None:
        self._services, self._name, self._lie = services, name, lie
        self.charged = asyncio.Event()

    def dial(self, name: str) -> Peer:
        if name not in self._services:
            raise PeerFault("UNREACHABLE", f"'{name}' does not serve its peers yet")
        line = Line(self._services[name], Identity(federation="trial", role=Role.PARTY, name=self._name))
        line.lie, line.charged = self._lie, self.charged
        return line

    @contextlib.asynccontextmanager
    async def serve(self, service: Service) -> AsyncIterator[None]:
        self._services[self._name] = service
        yield None


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    return Restored(tmp_path_factory.mktemp("peers"))


async def start(
    restored: Restored,
    toml: Path,
    *,
    accept_older: bool,
    lie: Lie | None = None,
    later: bool = False,
    forever: bool = False,
) -> tuple[LedgerRow, ...]:
    """Run both daemons until the restored one has heard its peer and works; its ledger."""
    services: dict[str, Service] = {}
    stop, network = asyncio.Event(), Network(services, "clinic", lie)

    def insurer() -> asyncio.Task[None]:
        return asyncio.create_task(
            run_party(load_party(restored.insurer), peers=Network(services, "insurer"), stop=stop)
        )

    async def until(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)

    running = [] if later else [insurer()]
    await until(lambda: later or "insurer" in services)
    running.append(
        asyncio.create_task(run_party(load_party(toml), peers=network, accept_older=accept_older, stop=stop))
    )
    await until(lambda: "clinic" in services or running[-1].done())
    if running[-1].done():
        stop.set()
    if later:
        running.append(insurer())
    if accept_older:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await network.charged.wait()
    if forever:
        await until(running[int(not later)].done)
    stop.set()
    for outcome in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
    return rows(toml)


def told(ledger: tuple[LedgerRow, ...]) -> set[tuple[object, ...]]:
    return {
        (row.variables, row.dataset, row.epsilon, row.charged, row.recipient, row.artifact_sha256) for row in ledger
    }


@pytest.mark.whole
@pytest.mark.parametrize("later", [pytest.param(False, marks=pytest.mark.whole), True])
async def test_accept_older_charges_what_peers_sign_that_they_have(
    restored: Restored, caplog: pytest.LogCaptureFixture, later: bool
) -> None:
    toml = restored.anew()
    with caplog.at_level(logging.INFO, logger="verticil"), pytest.raises(Refusal, match="LEDGER_OLDER"):
        await start(restored, toml, accept_older=False, forever=True)
    assert rows(toml) == ()
    assert any(BETWEEN_PEERS in record.getMessage() for record in caplog.records)
    mended = await start(restored, toml, accept_older=True, later=later)
    assert told(mended) == told(restored.before)
    assert sum(row.charged for row in mended) == pytest.approx(8.0)  # two columns, and what was shared
    assert await start(restored, toml, accept_older=True) == mended  # once
    caplog.clear()
    assert await start(restored, toml, accept_older=False) == mended
    assert not any(BETWEEN_PEERS in record.getMessage() for record in caplog.records)


async def test_what_a_peer_does_not_prove_is_not_charged(restored: Restored) -> None:
    clinic, insurer = (
        SigningKey.load(config.signing_key, config.certificate)
        for config in map(load_party, (restored.clinic, restored.insurer))
    )

    def changed(**said: object) -> Lie:
        def lie(held: peer_pb2.Held) -> None:
            body = json.dumps({**json.loads(held.statement.body), **said}, sort_keys=True, separators=(",", ":"))
            held.statement.CopyFrom(insurer.sign(body.encode()))

        return lie

    lies: tuple[Lie, ...] = (
        lambda held: held.ClearField("approval"),
        lambda held: held.approval.CopyFrom(insurer.sign(held.approval.body)),
        lambda held: held.approval.CopyFrom(clinic.sign(held.approval.body.replace(b'"clinic"', b'"insurer"'))),
        lambda held: held.statement.CopyFrom(clinic.sign(held.statement.body)),
        lambda held: held.statement.CopyFrom(common_pb2.Signed(body=held.statement.body)),
        lambda held: setattr(held, "proposal", held.proposal.replace(b"Hearts", b"Lungs")),
        changed(party="insurer"),
        changed(peer="bank"),
        changed(study_digest="00" * 32),
        changed(
            columns=[{"unit": 2, "sha256": "00" * 32, "bytes": 9}, {"unit": 7, "sha256": "00" * 32, "bytes": 9}],
            parameters=None,
        ),
        changed(columns=7),
    )
    toml = restored.anew()
    for number, lie in enumerate(lies):
        assert await start(restored, toml, accept_older=True, lie=lie) == (), number
    assert told(await start(restored, toml, accept_older=True, lie=changed())) == told(restored.before)


async def test_the_daemon_refuses_without_the_database_and_reads_the_log_back_when_people_say_so(
    restored: Restored,
) -> None:
    for path in (restored.clinic.parent / "state").glob("party.sqlite*"):
        path.unlink()
    with pytest.raises(Refusal, match="LEDGER_OLDER"):
        await start(restored, restored.clinic, accept_older=False)
    mended = await start(restored, restored.clinic, accept_older=True)
    assert told(mended) == told(restored.before)  # by the log; that the peer has it, too, is not charged again
