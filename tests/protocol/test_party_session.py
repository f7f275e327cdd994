"""The party's daemon against the real miner in memory: a whole study, what it refuses, and what survives being killed.

Between the two stands `Wire`, which keeps every message that a party sends (what could be captured) and can break, delay or
falsify calls. Waiting is on conditions, never for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import hashlib
import hmac
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from verticil.miner.config import Limits
from verticil.miner.service.job import LearningJob, Progress
from verticil.miner.service.node import MinerNode
from verticil.party import daemon, office
from verticil.party.config import PartyConfig, load_party
from verticil.party.control.database import Database
from verticil.party.control.ledger import Ledger
from verticil.party.control.site import Site, init_state
from verticil.party.control.state import PartyState
from verticil.party.exchange import delivery
from verticil.party.records.perturb import codebook_digest, perturb_numpy, record_tags, unit_key
from verticil.shared.errors import DataFault, Misuse, PeerFault, Refusal, VerticilError
from verticil.shared.formats.artifact import unpack
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.shared.transport.authority import create_authority, issue
from verticil.shared.transport.chunks import plain_data
from verticil.shared.transport.identity import Identity, Role
from verticil.shared.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.transport.signing import SigningKey
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

N_COMMON = 240
LINKAGE_KEY = bytes(range(32))
SECRETS = {"north": b"n" * 32, "south": b"s" * 32}
STUDY = """
schema = 1
id = "trial"
title = "A trial"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "north"
[[party]]
name = "south"
[linkage]
minimum_common_records = 200
[[variable]]
party = "north"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "north"
name = "smoker"
categories = ["no", "yes", "unknown"]
missing = { category = "unknown", spellings = [""] }
[[variable]]
party = "south"
name = "income"
bins = [0, 10, 20, 30]
[[variable]]
party = "south"
name = "region"
categories = ["a", "b", "c", "d"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "genetic"
seed = 1
"""
PARTY = """
schema = 1
name = "{name}"
federation = "federation.toml"
state_directory = "state"
[identity]
certificate = "pki/{name}.crt"
key = "pki/{name}.key"
[linkage]
key = "linkage.key"
[dataset.people]
path = "people.csv"
id = "id"
{columns}
[policy]
approval = "{approval}"
max_epsilon_per_column = 3.0
max_epsilon_per_study = 6.0
max_epsilon_lifetime = 8.0
minimum_common_records = 100
recipients = ["miner"]
{policy}
"""


class IdleLearning:
    """Learning is not this test's matter: the study stays where the last unit has arrived."""

    async def run(self, job: LearningJob, progress: Progress) -> None:
        """Wait until cancelled."""
        del job, progress
        await asyncio.Event().wait()


class Wire:
    """A party's connection: records what is sent, and lets a test interfere."""

    def __init__(self, inner: InMemoryCoordinator) -> None:
        self._inner = inner
        self.sent: list[bytes] = []
        self.calls: list[str] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.falsify: Callable[[str, object], object] = lambda _, reply: reply

    async def _call(self, name: str, request: object) -> object:
        self.calls.append(name)
        if self.before is not None:
            await self.before(name)
        self.sent.append(request.SerializeToString())
        return self.falsify(name, await getattr(self._inner, name)(request))

    async def hello(self, request):
        return await self._call("hello", request)

    async def poll(self, request):
        return await self._call("poll", request)

    async def report(self, request):
        return await self._call(f"report {request.WhichOneof('what')}" if False else "report", request)

    async def begin_upload(self, request):
        return await self._call("begin_upload", request)

    async def finish_upload(self, request):
        return await self._call("finish_upload", request)

    async def _stream(self, name, requests):
        self.calls.append(name)
        if self.before is not None:
            await self.before(name)

        async def passing():
            for request in requests:
                if self.before is not None:
                    await self.before(f"{name}.message")
                self.sent.append(request.SerializeToString())
                yield request

        async with contextlib.aclosing(passing()) as messages:
            return self.falsify(name, await getattr(self._inner, name)(messages))

    async def put_pseudonyms(self, requests):
        return await self._stream("put_pseudonyms", requests)

    async def put_chunks(self, chunks):
        return await self._stream("put_chunks", chunks)

    async def get_alignment(self, request) -> AsyncIterator[coordinator_pb2.AlignmentPart]:
        self.calls.append("get_alignment")
        self.sent.append(request.SerializeToString())
        async with contextlib.aclosing(self._inner.get_alignment(request)) as parts:
            async for part in parts:
                yield self.falsify("get_alignment", part)

    async def get_release(self, request):
        async with contextlib.aclosing(self._inner.get_release(request)) as parts:
            async for part in parts:
                yield part

    async def close(self):
        await self._inner.close()


class Federation:
    """Two party folders and a miner in a temporary folder."""

    def __init__(self, root: Path, pki: Path, *, approval: str = "auto") -> None:
        self.root = root
        self.pki = pki
        self.wires: dict[str, list[Wire]] = {"north": [], "south": []}
        self.interfere: Callable[[str, Wire], None] = lambda name, wire: None
        self.stops: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.node: MinerNode | None = None
        for name in self.wires:
            self.set_up(name, approval=approval)

    def set_up(self, name: str, *, approval: str = "auto", policy: str = "", columns: str = "") -> None:
        folder = self.root / name
        (folder / "pki").mkdir(parents=True, exist_ok=True)
        for suffix in ("crt", "key", "sign"):
            (folder / "pki" / f"{name}.{suffix}").write_bytes((self.pki / f"{name}.{suffix}").read_bytes())
        (folder / "ca.crt").write_bytes((self.pki / "ca" / "ca.crt").read_bytes())
        sha256 = (self.pki / "sha256").read_text()
        (folder / "federation.toml").write_text(
            f'schema = 1\nname = "trial"\nca_certificate = "ca.crt"\nca_sha256 = "{sha256}"\n'
            '[miner]\nendpoint = "localhost:1"\n[transport]\nchunk_bytes = 1024\n'
        )
        if not (folder / "linkage.key").exists():
            (folder / "linkage.key").write_text(LINKAGE_KEY.hex() + "\n")
            (folder / "linkage.key").chmod(0o600)
            init_state(folder / "state", site_secret=SECRETS[name])
            (folder / "people.csv").write_text(table(name))
        (folder / "party.toml").write_text(PARTY.format(name=name, approval=approval, policy=policy, columns=columns))

    def config(self, name: str) -> PartyConfig:
        return load_party(self.root / name / "party.toml")

    def wire(self, name: str) -> Wire:
        assert self.node is not None
        identity = Identity(federation="trial", role=Role.PARTY, name=name)
        wire = Wire(InMemoryCoordinator(self.node.coordinator, identity))
        self.interfere(name, wire)
        self.wires[name].append(wire)
        return wire

    async def start_miner(self) -> None:
        self.node = MinerNode(
            self.root / "miner",
            identity=Identity(federation="trial", role=Role.MINER, name="miner"),
            authority=(self.pki / "ca" / "ca.crt").read_bytes(),
            signer=SigningKey.load(self.pki / "miner.sign", self.pki / "miner.crt"),
            executor=IdleLearning(),
            limits=Limits(disk_reserve_bytes=0),
            randomized_days=30,
        )
        await self.node.__aenter__()

    async def stop_miner(self) -> None:
        if self.node is not None:
            await self.node.__aexit__(None, None, None)
            self.node = None

    def start(self, *names: str) -> None:
        for name in names or self.wires:
            self.stops[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(
                daemon.run_party(self.config(name), lambda name=name: self.wire(name), stop=self.stops[name])
            )

    async def stop(self, *names: str) -> None:
        for name in names or tuple(self.tasks):
            self.stops[name].set()
            await asyncio.gather(self.tasks.pop(name), return_exceptions=True)

    async def kill(self, name: str) -> None:
        """End a daemon without any of its own ado."""
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def control(self) -> InMemoryControl:
        assert self.node is not None
        return InMemoryControl(
            self.node.control, Identity(federation="trial", role=Role.ANALYST, name="lee")
        )

    async def submit(self, text: str = STUDY) -> bytes:
        path = self.root / "study.toml"
        path.write_text(text)
        request = control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(read_study(path)))
        return (await self.control().submit_study(request)).study_digest

    async def until(self, digest: bytes, *states: State) -> control_pb2.StudySummary:
        """Wait for the study to be in one of the states."""
        version = 0
        async with asyncio.timeout(20):
            while True:
                request = control_pb2.GetStudyRequest(study_digest=digest, known_version=version, wait_seconds=5)
                study = (await self.control().get_study(request)).study
                if study.state in states:
                    return study
                version = study.version
                for task in self.tasks.values():
                    if task.done():
                        task.result()

    def sent(self, name: str) -> bytes:
        return b"\0".join(message for wire in self.wires[name] for message in wire.sent)

    def calls(self, name: str) -> list[str]:
        return [call for wire in self.wires[name] for call in wire.calls]

    def ledger(self, name: str):
        with Database(self.root / name / "state") as database:
            return Ledger(database).rows()

    def released(self, study: Study, digest: bytes, unit: int):
        """What the miner's store holds of a unit."""
        assert self.node is not None
        record = self.node.session.record(digest)
        return np.array(self.node.store.column(digest, unit, record.columns[unit]))


def ids(name: str) -> list[str]:
    return [f"person-{number:04d}" for number in range(N_COMMON)] + [f"{name}-{number}" for number in range(17)]


def values(name: str) -> dict[str, list[str]]:
    generator = np.random.default_rng(len(name) + ord(name[0]))
    n = len(ids(name))
    if name == "north":
        return {
            "sex": generator.choice(["f", "m"], n).tolist(),
            "smoker": generator.choice(["no", "yes", ""], n, p=[0.6, 0.3, 0.1]).tolist(),
        }
    return {
        "income": [str(value) for value in generator.integers(0, 30, n).tolist()],
        "region": generator.choice(list("abcd"), n).tolist(),
    }


def table(name: str, *, order: int = 0) -> str:
    columns = {"id": ids(name), **values(name)}
    rows = list(zip(*columns.values(), strict=True))
    shuffled = [rows[i] for i in np.random.default_rng(order).permutation(len(rows))]
    return "\n".join(",".join(row) for row in [tuple(columns), *shuffled]) + "\n"


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    (folder / "sha256").write_text(create_authority(folder / "ca", "trial", demo=True))
    issue(folder / "ca", "miner", Role.MINER, folder, hosts=("localhost",), days=1)
    for name in ("north", "south"):
        issue(folder / "ca", name, Role.PARTY, folder, days=1)
    return folder


@pytest.fixture
async def federation(tmp_path, pki):
    made = Federation(tmp_path, pki)
    await made.start_miner()
    yield made
    await made.stop()
    await made.stop_miner()


@pytest.fixture
async def manual(tmp_path, pki):
    made = Federation(tmp_path, pki, approval="manual")
    await made.start_miner()
    yield made
    await made.stop()
    await made.stop_miner()


async def test_a_study_from_submission_to_the_last_unit(federation):
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.ESTIMATING)
    assert summary.n_common == N_COMMON
    await federation.stop()
    for name in ("north", "south"):
        rows = federation.ledger(name)
        assert [row.charged for row in rows] == pytest.approx([2.0, 2.0])
        with Site.open(federation.config(name)) as site:
            (study,) = site.state.studies()
            assert study.n_common == N_COMMON
            assert study.stage in {"all columns sent", "at the miner: estimating"}
