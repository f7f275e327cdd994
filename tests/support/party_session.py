"""Two parties' daemons and a real miner in memory, with a wire between them that keeps and can break what is sent."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verticil.party.protocol.shipped.registrations  # noqa: F401  (the registry's entries)
from support import PATIENCE_SECONDS, daemons
from support.daemons import IdleLearning
from verticil.miner.config import ServiceLimits
from verticil.miner.service.node import MinerNode
from verticil.party import daemon
from verticil.party.config import PartyConfig, load_party
from verticil.party.policy.ledger import Ledger
from verticil.party.site import init_state
from verticil.party.storage.database import Database
from verticil.party.storage.studies import PartyState
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.revocation import DenyList
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.wire.v1 import control_pb2, coordinator_pb2

N_COMMON = 800


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


class Wire:
    """A party's connection: records what is sent, and lets a test interfere."""

    def __init__(self, inner: InMemoryCoordinator) -> None:
        self._inner = inner
        self.sent: list[bytes] = []
        self.calls: list[str] = []
        self.reported: list[str] = []
        self.offsets: list[int] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.falsify: Callable[[str, object], object] = lambda _, reply: reply

    async def _call(self, name: str, request: Any) -> Any:
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
        self.reported.append(request.WhichOneof("what"))
        return await self._call("report", request)

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
                if name == "put_pseudonyms" and request.HasField("chunk"):
                    self.offsets.append(request.chunk.offset)
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
            limits=ServiceLimits(disk_reserve_bytes=0),
            randomized_days=30,
            revocations=DenyList(
                (self.pki / "ca" / "ca.crt").read_bytes(), [self.pki / "ca" / "revoked.crl"], every_seconds=0
            ),
        )
        await self.node.__aenter__()

    async def stop_miner(self) -> None:
        if self.node is not None:
            await self.node.__aexit__(None, None, None)
            self.node = None

    def start(self, *names: str) -> None:
        for name in names or self.wires:
            self.stops[name] = asyncio.Event()
            self.tasks[name] = daemons.started(
                daemon.run_party(self.config(name), lambda name=name: self.wire(name), stop=self.stops[name])
            )

    async def stop(self, *names: str) -> None:
        for name in names or tuple(self.tasks):
            self.stops[name].set()
            await daemons.ended(self.tasks.pop(name))

    async def kill(self, name: str) -> None:
        """End a daemon without any of its own ado."""
        task = self.tasks.pop(name)
        task.cancel()
        await daemons.ended(task)

    def control(self) -> InMemoryControl:
        assert self.node is not None
        return InMemoryControl(self.node.control, Identity(federation="trial", role=Role.ANALYST, name="lee"))

    async def submit(self, text: str = STUDY) -> bytes:
        path = self.root / "study.toml"
        path.write_text(text)
        request = control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(read_study(path)))
        return (await self.control().submit_study(request)).study_digest

    async def until(self, digest: bytes, *states: State) -> control_pb2.StudySummary:
        """Wait for the study to be in one of the states."""
        version = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                request = control_pb2.GetStudyRequest(study_digest=digest, known_version=version, wait_seconds=5)
                study = (await self.control().get_study(request)).study
                if study.state in states:
                    return study
                version = study.version
                for task in self.tasks.values():
                    if task.done():
                        task.result()

    async def until_stage(self, name: str, *stages: str, digest: bytes | None = None) -> None:
        """Wait for a party's daemon to show one of the stages for a study; None: for the one that it stored last."""

        def shown() -> str:
            with Database(self.root / name / "state") as database:
                studies = [study for study in PartyState(database).studies() if digest in {None, study.digest}]
            return studies[-1].stage if studies else ""

        stage = ""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (stage := await asyncio.to_thread(shown)) not in stages:
                    if name in self.tasks and self.tasks[name].done():
                        self.tasks[name].result()
                    await asyncio.sleep(0.01)  # so that the daemons get their turn on a machine with other work
        except TimeoutError:
            raise AssertionError(f"'{name}' shows '{stage}', expected one of {stages}") from None

    def sent(self, name: str) -> bytes:
        return b"\0".join(message for wire in self.wires[name] for message in wire.sent)

    def calls(self, name: str) -> list[str]:
        return [call for wire in self.wires[name] for call in wire.calls]

    def ledger(self, name: str):
        with Database(self.root / name / "state") as database:
            return Ledger(database).rows()

    def released(self, digest: bytes, unit: int):
        """What the miner's store holds of a unit."""
        assert self.node is not None
        return np.fromfile(self.node.store.study(digest).column(unit, 1), dtype=np.uint8)


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
    return make_pki(tmp_path_factory.mktemp("pki"))


def make_pki(folder: Path) -> Path:
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


DONE = ("all columns sent", "at the miner: estimating")


NOT_BEFORE_APPROVAL = {"put_pseudonyms", "get_alignment", "begin_upload", "put_chunks", "finish_upload"}


async def finished(federation: Federation, digest: bytes) -> dict[str, list[str]]:
    """Let the study reach its last unit, stop the daemons, and give the SHA-256 of what each party sent, by unit."""
    await federation.until(digest, State.ESTIMATING)
    for name in federation.wires:
        await federation.until_stage(name, *DONE, digest=digest)
    await federation.stop()
    return {name: artifacts(federation, name) for name in federation.wires}


def artifacts(federation: Federation, name: str) -> list[str]:
    return sorted({(row.variables, row.artifact_sha256) for row in federation.ledger(name)})


def order_of(digest: bytes) -> list[str]:
    """The common people in the common order."""

    def pseudonym(person: str) -> bytes:
        return hmac.digest(LINKAGE_KEY, b"verticil/linkage/v1" + digest + person.encode(), "sha256")

    return sorted((person for person in ids("north") if person in ids("south")), key=pseudonym)


CHANGED = (
    "waiting for approval again: study 'trial': the approval does not hold any more:"
    " column 'smoker': the data of data set 'people' changed"
)


def change_table(federation: Federation, old: str = ",yes", new: str = ",no") -> None:
    path = federation.root / "north" / "people.csv"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def audited(federation: Federation, name: str) -> list[str]:
    return [
        json.loads(line)["event"] for line in (federation.root / name / "state/audit.jsonl").read_text().splitlines()
    ]


def lies(call: str, change: Callable[[object], None]):
    """A miner whose replies to one call are changed on their way to north."""

    def interfere(name: str, wire: Wire) -> None:
        def falsify(called: str, reply: Any) -> Any:
            if called == call and name == "north":
                change(reply)
            return reply

        wire.falsify = falsify

    return interfere


def another_effective(change: Callable[[Study], Study]):
    def falsify(reply) -> None:
        for task in reply.tasks:
            if task.effective:
                study = change(canonical.from_bytes(task.effective))
                task.effective = canonical.to_bytes(study)
                task.effective_digest = canonical.digest(study)

    return falsify


def weaker_own(study: Study) -> Study:
    from verticil.shared.mechanisms.transition import quantize, symmetric

    unit = dataclasses.replace(study.units[0], transition=quantize(symmetric(2, epsilon=9.0)))
    return study.with_declaration({0: unit})


def later_expiry(study: Study) -> Study:
    return dataclasses.replace(study, expires=dt.date(2100, 1, 1))


def smaller_minimum(study: Study) -> Study:
    return dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, minimum_common_records=1))
