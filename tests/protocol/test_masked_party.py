"""The parties of a study with masked tables: daemons of two and three in memory, what ends a round, and what survives a kill.

Against a real miner, which learns nothing. Each party has the same answer of each person, randomized; the tables that are opened
are compared with what is recomputed here from the parties' secrets, person by person, so that rows in another order would show.
Waiting is on conditions, never for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from support import PATIENCE_SECONDS, daemons
from support.daemons import IdleLearning
from verticil.miner.config import ServiceLimits
from verticil.miner.rules.rounds import Sealing
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.party import daemon
from verticil.party.config import load_party
from verticil.party.dataset.perturb import codebook_digest, perturb_numpy, record_tags, unit_key
from verticil.party.operator import backup, reports
from verticil.party.policy.ledger import Ledger
from verticil.party.protocol.masked.round_charge import PARTIES, ROWS
from verticil.party.protocol.masked.rounds import OpenRound, Rounds
from verticil.party.protocol.with_peers import context
from verticil.party.site import Site, init_state
from verticil.party.storage.database import Database
from verticil.party.storage.secret import SiteSecret
from verticil.party.storage.studies import PartyState, StudyRecord
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.key_words import key_words
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.installation import make_sealing_key, public_sealing_key
from verticil.shared.federation.transport import fetch
from verticil.shared.federation.transport.chunks import make_chunks
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator, InMemoryPeer
from verticil.shared.federation.transport.sealing import load_sealing_key
from verticil.shared.masked.round.opening import tables_from
from verticil.shared.masked.round.schedule import IN_SLOTS, Kind, messages_of
from verticil.shared.study import canonical
from verticil.shared.study.masked import plan_of
from verticil.shared.study.protocols import table_deviations
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.wire.v1 import control_pb2, peer_pb2

NAMES = ("north", "south", "west")
MODES = ("keyed-hash", "order-commitment", "dh-psi")
LINKAGE_KEY = bytes(range(32))
N_COMMON = 400
ANSWERS = ["a", "b", "c"]
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
[policy]
approval = "auto"
max_epsilon_per_column = 6.0
max_epsilon_per_study = 60.0
max_epsilon_lifetime = 60.0
minimum_common_records = 10
allow_masked = true
max_masked_epsilon = 4.0
max_masked_delta = 1e-5
max_floor_epsilon_per_study = 60.0
max_floor_delta_per_study = 1e-4
max_floor_epsilon_lifetime = 60.0
max_floor_delta_lifetime = 1e-3
max_public_epsilon = 4.0
max_public_delta = 1e-5
max_public_epsilon_lifetime = 8.0
max_public_delta_lifetime = 1e-4
recipients = ["miner", "north", "south", "west"]
{policy}
[policy.confirmed_keys]
{confirmed}
"""
PEER = """
[peer]
listen = "127.0.0.1:0"
advertise = "127.0.0.1:9"
"""


def secret(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def answer(who: str) -> str:
    return ANSWERS[hashlib.sha256(who.encode()).digest()[0] % 3]


def person(number: int) -> str:
    return f"person-{number:03d}"


class Wire:
    """A party's connection to the miner: keeps what is sent, and lets a test interfere."""

    def __init__(self, inner: InMemoryCoordinator, federation: Federation, name: str) -> None:
        self._inner, self._federation, self._name = inner, federation, name
        self.sent: list[bytes] = []

    def __getattr__(self, name: str):
        real = getattr(self._inner, name)

        async def one(request):
            self._federation.before(self._name, "miner", name, request)
            self.sent.append(request.SerializeToString())
            return await real(request)

        async def many(requests):
            self._federation.before(self._name, "miner", name, requests)
            messages = list(requests)
            self.sent += [message.SerializeToString() for message in messages]
            return await real(messages)

        if name == "put_masked":
            return many

        async def parts(request):
            self._federation.before(self._name, "miner", name, request)
            async with contextlib.aclosing(real(request)) as stream:
                async for part in stream:
                    yield part

        return real if name == "close" else parts if name in {"get_release", "get_masked"} else one


class Line:
    """A party's way to another one."""

    def __init__(self, federation: Federation, caller: str, name: str) -> None:
        self._federation, self._caller, self._name = federation, caller, name

    def __getattr__(self, name: str):
        def call(request):
            self._federation.before(self._caller, self._name, name, request)
            service = self._federation.services.get(self._name)
            if service is None:
                raise PeerFault("UNREACHABLE", f"{self._name}: connection refused")
            return getattr(InMemoryPeer(service, identity(self._caller)), name)(request)

        async def one(request):
            return await call(request)

        async def many(request) -> AsyncIterator[peer_pb2.Part]:
            async with contextlib.aclosing(call(request)) as parts:
                async for part in parts:
                    yield part

        return many if name in {"get_pseudonyms", "get_masked"} else one

    async def close(self) -> None:
        pass


class Network:
    """`PeerNetwork` of one party."""

    def __init__(self, federation: Federation, name: str) -> None:
        self._federation, self._name = federation, name

    def dial(self, name: str) -> Line:
        return Line(self._federation, self._name, name)

    @contextlib.asynccontextmanager
    async def serve(self, service):
        self._federation.services[self._name] = service
        try:
            yield None
        finally:
            del self._federation.services[self._name]


def identity(name: str) -> Identity:
    return Identity(federation="trial", role=Role.PARTY, name=name)


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Federation:
    """Party folders, a miner, and a post for its part of the round, in a temporary folder."""

    def __init__(self, root: Path, pki: Path, parties: Sequence[str], mode: str, *, policy: str = "") -> None:
        self.root, self.pki, self.parties, self.mode = root, pki, tuple(parties), mode
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.services: dict[str, Any] = {}
        self.wires: dict[str, list[Wire]] = {name: [] for name in parties}
        self.before: Callable[[str, str, str, object], None] = lambda caller, called, rpc, request: None
        self.node: MinerNode | None = None
        self.sealing = {name: make_sealing_key(root / f"{name}.seal")[0] for name in (*parties, "miner")}
        self.digest = b""
        self.failing = False
        self.may_fail: dict[str, str] = {}  # party -> the code with which it may say so
        self.executor: IdleLearning | InlineLearning = IdleLearning()
        self.publish = ""
        for position, name in enumerate(self.parties):
            self._set_up(name, policy)
            own = [*range(N_COMMON), *range(500 + 20 * position, 500 + 20 * position + 13)]
            if mode == "order-commitment":
                own = list(range(N_COMMON))
            order = np.random.default_rng(0 if mode == "order-commitment" else position).permutation(len(own))
            self.write(name, [own[i] for i in order])

    def pins(self) -> dict[str, str]:
        return {name: public_sealing_key(key) for name, key in self.sealing.items()}

    def _set_up(self, name: str, policy: str) -> None:
        folder = self.root / name
        (folder / "pki").mkdir(parents=True)
        for suffix in ("crt", "key", "sign"):
            (folder / "pki" / f"{name}.{suffix}").write_bytes((self.pki / f"{name}.{suffix}").read_bytes())
        (folder / "pki" / f"{name}.seal").write_bytes((self.root / f"{name}.seal").read_bytes())
        (folder / "pki" / f"{name}.seal").chmod(0o600)
        (folder / "ca.crt").write_bytes((self.pki / "ca" / "ca.crt").read_bytes())
        self.federate(name)
        (folder / "linkage.key").write_text(LINKAGE_KEY.hex() + "\n")
        (folder / "linkage.key").chmod(0o600)
        init_state(folder / "state", site_secret=secret(name))
        words = {who: key_words(who, bytes.fromhex(key)) for who, key in self.pins().items() if who != name}
        confirmed = "".join(f'{who} = "{said}"\n' for who, said in words.items())
        (folder / "party.toml").write_text(PARTY.format(name=name, policy=policy, confirmed=confirmed) + PEER)

    def federate(self, name: str, *, without: str = "") -> None:
        """Write a party's federation.toml, with or without somebody's sealing key."""
        pins = {who: key for who, key in self.pins().items() if who != without}
        miner = f'sealing_key = "{pins.pop("miner")}"\n' if "miner" in pins else ""
        (self.root / name / "federation.toml").write_text(
            f'schema = 1\nname = "trial"\nca_certificate = "ca.crt"\nca_sha256 = "{(self.pki / "sha256").read_text()}"\n'
            f'[miner]\nendpoint = "localhost:1"\n{miner}[transport]\nchunk_bytes = 4096\n[sealing]\n'
            + "".join(f'{who} = "{key}"\n' for who, key in pins.items())
        )

    def write(self, name: str, numbers: Sequence[int]) -> None:
        """The party's table: these people in this order."""
        rows = [[person(n), answer(person(n)), answer(f"{name} {n}")] for n in numbers]
        lines = [["id", f"{name}_x", f"{name}_y"], *rows]
        (self.root / name / "people.csv").write_text("\n".join(",".join(row) for row in lines) + "\n")

    def study(self) -> str:
        parts = [
            'schema = 1\nid = "trial"\ntitle = "A trial"\npurpose = "test"\nmodel = "masked"\nexpires = 2099-12-31'
        ]
        parts += [f'[[party]]\nname = "{name}"' for name in self.parties]
        parts.append(f'[linkage]\nmode = "{self.mode}"\nminimum_common_records = 10')
        for name, column in itertools.product(self.parties, "xy"):
            categories = json.dumps(ANSWERS)
            parts.append(f'[[variable]]\nparty = "{name}"\nname = "{name}_{column}"\ncategories = {categories}')
        parts.append('[randomization_default]\nscheme = "symmetric"\nepsilon = 5.0')
        parts.append("[tables]\nepsilon = 3.0\ndelta = 1e-6")
        parts.append('[structure]\nmethod = "hill-climb"')
        return "\n".join(parts) + "\n" + self.publish

    async def start_miner(self) -> None:
        self.node = MinerNode(
            self.root / "miner",
            identity=Identity(federation="trial", role=Role.MINER, name="miner"),
            authority=(self.pki / "ca" / "ca.crt").read_bytes(),
            signer=SigningKey.load(self.pki / "miner.sign", self.pki / "miner.crt"),
            executor=self.executor,
            limits=ServiceLimits(disk_reserve_bytes=0),
            randomized_days=30,
            sealing=Sealing(
                key=load_sealing_key(self.sealing["miner"], bytes.fromhex(self.pins()["miner"])),
                pinned={name: bytes.fromhex(key) for name, key in self.pins().items() if name != "miner"},
            ),
        )
        await self.node.__aenter__()

    def plan(self):
        """The plan of the round, as the miner makes it; None before the parties have said how many people are common."""
        assert self.node is not None
        record = self.node.session.record(self.digest)
        if record.n_common is None:
            return None
        return plan_of(canonical.from_bytes(record.effective), record.n_common, proposal=self.digest)

    def wire(self, name: str) -> Wire:
        assert self.node is not None
        wire = Wire(InMemoryCoordinator(self.node.coordinator, identity(name)), self, name)
        self.wires[name].append(wire)
        return wire

    def start(self, *names: str) -> None:
        for name in names or self.parties:
            config = load_party(self.root / name / "party.toml")
            network = Network(self, name) if config.peer is not None else None
            run = daemon.run_party(config, lambda name=name: self.wire(name), peers=network, stop=asyncio.Event())
            self.tasks[name] = daemons.started(run)

    async def kill(self, *names: str) -> None:
        """End daemons without any of their own ado."""
        for name in names or tuple(self.tasks):
            task = self.tasks.pop(name)
            task.cancel()
            await daemons.ended(task)

    async def submit(self) -> bytes:
        assert self.node is not None
        path = self.root / "study.toml"
        path.write_text(self.study())
        control = InMemoryControl(self.node.control, Identity(federation="trial", role=Role.ANALYST, name="lee"))
        request = control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(read_study(path)))
        self.digest = (await control.submit_study(request)).study_digest
        return self.digest

    def known(self, name: str) -> StudyRecord | None:
        with Database(self.root / name / "state") as database:
            state = PartyState(database)
            return state.study(self.digest) if state.knows(self.digest) else None

    def record(self, name: str) -> StudyRecord:
        found = self.known(name)
        assert found is not None
        return found

    def folder(self, name: str) -> Path:
        return self.root / name / "state" / "masked" / self.digest.hex()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; a daemon that ended is an error, and a failure of a party that may not fail so."""
        try:
            async with asyncio.timeout(2 * PATIENCE_SECONDS):  # for a whole round
                for turn in itertools.count():
                    if await asyncio.to_thread(holds):
                        break
                    if turn % 20 == 19:  # a look into every party's database costs more than the round does meanwhile
                        assert self.failing or not (found := self.failures()), found
                    for task in self.tasks.values():
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = {
                name: (record.stage, record.failure)
                for name in self.parties
                if (record := self.known(name)) is not None
            }
            raise AssertionError(f"waited in vain: {shown}") from None

    def failures(self) -> dict[str, VerticilError]:
        """Why parties cannot go on, but for what they may say."""
        known = {name: record.failure for name in self.parties if (record := self.known(name)) and record.failure}
        return {name: failure for name, failure in known.items() if failure.code != self.may_fail.get(name)}

    def closed(self) -> bool:
        """Whether the miner has heard of all parties that they have the opened tables."""
        record = self.node.session.record(self.digest) if self.digest else None
        begun = record is not None and record.learning is not None
        return begun and all((self.folder(name) / "tables").is_file() for name in self.parties)

    def opened(self, name: str) -> tuple[np.ndarray, ...]:
        """The tables that a party has."""
        return tables_from(self.plan(), (self.folder(name) / "tables").read_bytes())

    def failed(self, *names: str) -> Callable[[], bool]:
        """Whether these parties know that the study has ended, and have nothing of it left."""
        self.failing = True
        return lambda: all(
            (found := self.known(name)) and found.task.state == State.FAILED and self.left(name) <= {"ended"}
            for name in names or self.parties
        )

    def left(self, name: str) -> set[str]:
        """Files of the round, and what is kept for it, on a party's disk, which may be deleting them; peers' signatures stay."""
        state = self.root / name / "state"
        folders = (self.folder(name), state / "spool", state / "peer")
        found = {file for folder in folders for _, _, files in os.walk(folder) for file in files}
        return {file for file in found if not file.startswith("round.")}

    def released(self, unit: int) -> dict[str, int]:
        """The sticky noise of contract section 2: each common person's released code."""
        study = read_study(self.root / "study.toml")
        (variable,), name = study.units[unit].variables, study.units[unit].owner
        key = unit_key(
            secret(name),
            dataset="people",
            source_columns=[variable],
            codebook_digest=codebook_digest(study.schema[unit], {}),
            transition_digest=study.units[unit].transition.digest(),
        )
        people = [person(number) for number in range(N_COMMON)]
        said = people if variable.endswith("_x") else [f"{name} {number}" for number in range(N_COMMON)]
        true = np.array([ANSWERS.index(answer(who)) for who in said], dtype=np.uint8)
        tags = record_tags(SiteSecret(value=secret(name)).tag_key, people)
        codes = perturb_numpy(key, tags, true, study.units[unit].transition)
        return dict(zip(people, codes.tolist(), strict=True))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    fingerprint = create_authority(folder / "ca", "trial", demo=True)
    (folder / "sha256").write_text(fingerprint)
    for name in NAMES:
        issue(folder / "ca", name, Role.PARTY, folder)
    issue(folder / "ca", "miner", Role.MINER, folder, hosts=["localhost"])
    return folder


@pytest.fixture
async def federate(tmp_path: Path, pki: Path):
    made: list[Federation] = []

    async def make(
        parties: Sequence[str], mode: str = "keyed-hash", *, policy: str = "", publish: str = ""
    ) -> Federation:
        federation = Federation(tmp_path, pki, parties, mode, policy=policy)
        if publish:
            federation.publish, federation.executor = publish, InlineLearning(clock=now)
        made.append(federation)
        await federation.start_miner()
        return federation

    yield make
    for federation in made:
        await federation.kill()
        if federation.node is not None:
            await federation.node.__aexit__(None, None, None)


def farthest(federation: Federation, opened, *, shifted: int = 0) -> float:
    """How far an opened count is from what it is of, at most, in deviations of its noise.

    Args:
        federation: whose tables.
        opened: in the plan's order.
        shifted: of the second column of each pair so many rows, to see that another order of people is noticed.
    """
    plan = federation.plan()
    study = canonical.from_bytes(federation.node.session.record(federation.digest).effective)
    codes = {unit: federation.released(unit) for unit in range(len(study.units))}
    people = sorted(codes[0])
    worst = 0.0
    for (one, other), table, deviation in zip(plan.tables, opened, table_deviations(study), strict=True):
        exact = np.zeros((3, 3))
        for position, who in enumerate(people):
            exact[codes[one][who], codes[other][people[(position + shifted) % len(people)]]] += 1
        worst = max(worst, float(np.abs(np.asarray(table, dtype=float).reshape(3, 3) - exact).max()) / deviation)
    return worst


@pytest.mark.whole
@pytest.mark.parametrize(
    ("parties", "mode"),
    [
        (2, "keyed-hash"),
        pytest.param(2, "order-commitment", marks=pytest.mark.whole),
        pytest.param(3, "keyed-hash", marks=pytest.mark.whole),
        pytest.param(3, "dh-psi", marks=pytest.mark.whole),
    ],
)
async def test_the_tables_of_all_parties_are_opened_and_no_unit_leaves(federate, parties: int, mode: str) -> None:
    """Fifteen tables of nine cells at most: with honest noise a count is 8 deviations off in fewer than 2e-13 of all trials."""
    federation = await federate(NAMES[:parties], mode)
    await federation.submit()
    federation.start()
    await federation.until(federation.closed)
    opened = federation.opened("north")
    assert farthest(federation, opened) < 8
    assert farthest(federation, opened, shifted=1) > 8, "people in another order would be noticed"
    for name in federation.parties:
        record = federation.record(name)
        assert (record.n_common, record.failure) == (N_COMMON, None)
        assert all(map(np.array_equal, federation.opened(name), opened))
        assert record.task.units_received == ()
        t1 = (federation.folder(name) / "t1").read_bytes()
        with Database(federation.root / name / "state") as database:
            rows = Ledger(database).rows()
        assert {row.artifact_sha256 for row in rows} == {"", t1.hex()}, "a linkage, and one round"
        assert {row.recipient for row in rows} >= {"everyone", PARTIES, ROWS}
        sent = b"\0".join(message for wire in federation.wires[name] for message in wire.sent)
        for item in (federation.root / name / "state" / "spool").iterdir():
            assert item.read_bytes()[16:48] not in sent
    if mode == "keyed-hash":
        common = federation.node.session.record(federation.digest).common_sha256
        assert common not in {federation.record(name).common_sha256 for name in federation.parties}


@pytest.mark.whole
async def test_nothing_is_asked_while_something_that_is_made_waits_for_its_slot(federate, monkeypatch) -> None:
    """At parties that lack what only studies between peers take."""
    monkeypatch.setattr(context, "find_spec", lambda name: None)
    federation = await federate(NAMES[:2])
    early, held = list[str](), set[Kind]()

    def look(caller: str, called: str, rpc: str, request: Any) -> None:
        if not rpc.endswith("masked") or (plan := federation.plan()) is None:
            return
        slot = plan.slot_milliseconds * 1_000_000
        for message in messages_of(plan):
            path = federation.folder(caller) / "sent" / str(message.index)
            if message.sender == caller and message.kind in IN_SLOTS and path.exists():
                held.add(message.kind)
                if time.time_ns() + 5_000_000 < (path.stat().st_mtime_ns // slot + 1) * slot:
                    early.append(f"{caller} {rpc}: {message.kind}")

    federation.before = look
    await federation.submit()
    federation.start()
    await federation.until(federation.closed)
    assert held == IN_SLOTS - {Kind.OPENED}
    assert not early


# ---- kills


@pytest.mark.whole
async def test_a_party_that_is_killed_anywhere_goes_on_with_the_same_messages(federate) -> None:
    """South is killed at many of its calls, whatever they are about; nobody gets a second message in the place of a first."""
    federation = await federate(NAMES)
    calls, kills = itertools.count(1), asyncio.Event()
    deadly = {10 * number * (number + 1) // 2 for number in range(1, 10)}

    def count(caller: str, called: str, rpc: str, request: Any) -> None:
        if caller == "south" and rpc.endswith("masked") and next(calls) in deadly:
            kills.set()
            raise PeerFault("UNREACHABLE", "the line is cut")

    await federation.submit()
    federation.before = count
    federation.start()
    times = 0

    async def killing() -> None:
        nonlocal times
        while True:
            await kills.wait()
            kills.clear()
            await federation.kill("south")
            federation.start("south")
            times += 1

    killer = asyncio.create_task(killing())
    await federation.until(federation.closed)
    killer.cancel()
    assert times > 2
    assert farthest(federation, federation.opened("south")) < 8


@pytest.mark.whole
async def test_what_was_made_stays_for_others_after_a_restart(federate) -> None:
    """South has made its share when all daemons are killed; north, which was held back, still gets all that it needs."""
    federation = await federate(NAMES)

    def hold(caller: str, called: str, rpc: str, request: Any) -> None:
        if caller == "north" and shares(federation, "south") and rpc.endswith("masked"):
            raise PeerFault("UNREACHABLE", "held by the test")

    await federation.submit()
    federation.before = hold
    federation.start()
    await federation.until(lambda: bool(shares(federation, "south")))
    await federation.kill()
    federation.before = lambda *_: None
    federation.start()
    await federation.until(federation.closed)


def shares(federation: Federation, name: str) -> list[int]:
    """Shares of a party that are made."""
    made = {int(path.name) for path in (federation.folder(name) / "sent").glob("*") if path.name.isdecimal()}
    return (
        []
        if (plan := federation.plan()) is None
        else [m.index for m in messages_of(plan) if m.sender == name and m.kind is Kind.SHARE and m.index in made]
    )


# ---- ends


async def test_a_changed_message_ends_the_round_for_all_and_names_its_sender(federate) -> None:
    federation = await federate(NAMES)
    await federation.submit()
    changed: list[int] = []

    def change(caller: str, called: str, rpc: str, request: Any) -> None:
        begun = all((federation.folder(name) / "hello.json").is_file() for name in NAMES)  # so that all have one to end
        if (caller, called, rpc) == ("west", "south", "get_masked") and begun and not changed:
            path = federation.folder("south") / "sent" / str(request.index)
            changed.append(request.index)
            data = bytearray(path.read_bytes())
            data[16] ^= 1  # the first byte of the first sealed frame, behind magic, count and length
            path.write_bytes(data)

    federation.before = change
    federation.start()
    await federation.until(federation.failed())
    failure = federation.record("west").failure
    assert failure is not None
    assert "'south'" in failure.message
    assert failure.code == "MESSAGE_INVALID"
    assert all((federation.folder(name) / "ended").is_file() for name in NAMES)


@pytest.mark.whole
async def test_a_revocation_ends_the_round_and_leaves_a_line(federate) -> None:
    federation = await federate(NAMES)
    await federation.submit()
    federation.start()
    await federation.until(lambda: (federation.folder("north") / "t1").is_file())
    config = load_party(federation.root / "north" / "party.toml")
    # One of the others may send the miner something before it hears of the end, and is refused.
    federation.may_fail = dict.fromkeys(("south", "west"), "STUDY_WITHDRAWN")
    await asyncio.to_thread(reports.revoke, config, federation.digest.hex(), "sam", "changed our minds")

    def gone() -> bool:
        return all(federation.left(name) <= {"ended"} for name in NAMES)

    await federation.until(gone)
    await federation.until(lambda: bool(federation.record("north").revocation_sent))
    for name in NAMES:
        line = json.loads((federation.folder(name) / "ended").read_text())
        assert line["study"] == federation.digest.hex()
    await federation.until(lambda: confirmed(federation, "north") == {"south", "west"})


def confirmed(federation: Federation, name: str) -> set[str]:
    """Peers that signed that they deleted what they had of a party."""
    with Site.look(load_party(federation.root / name / "party.toml")) as site:
        awaited = site.revocations.awaited_of(federation.digest)
        return set() if awaited is None else set(awaited.confirmed)


async def test_a_revocation_deletes_a_round_though_the_miner_is_away(federate):
    federation = await federate(NAMES[:2])
    await federation.submit()
    federation.start()
    await federation.until(lambda: (federation.folder("north") / "t1").is_file())
    await federation.kill("north")

    def away(caller, called, rpc, request):
        del rpc, request
        if caller == "north" and called == "miner":
            raise PeerFault("UNREACHABLE", "away")

    federation.before = away
    federation.start("north")
    config = load_party(federation.root / "north" / "party.toml")
    await asyncio.to_thread(reports.revoke, config, federation.digest.hex(), "sam", "changed our minds")
    await federation.until(lambda: [path.name for path in federation.folder("north").iterdir()] == ["ended"])


@pytest.mark.whole
async def test_a_miner_that_stops_lets_a_round_end_with_the_studys_last_day(federate) -> None:
    """Nothing is sent for it, nothing repeated: what is left is the line."""
    federation = await federate(NAMES[:2])
    await federation.submit()
    federation.start()
    await federation.until(lambda: all((federation.folder(name) / "t1").is_file() for name in NAMES[:2]))
    await federation.kill()
    after = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    for name, at, left in (("north", now(), False), ("north", after, True), ("south", after, True)):
        with Site.look(load_party(federation.root / name / "party.toml")) as site:
            Rounds().end_over(site, at, lambda _: False)
        assert ([path.name for path in federation.folder(name).iterdir()] == ["ended"]) is left
    federation.start()  # and no daemon takes it up again
    await federation.until(federation.failed())
    assert {failure.code for failure in federation.failures().values()} == {"APPROVAL_VOID"}


@pytest.mark.whole
async def test_a_peer_of_a_version_before_is_named_and_nothing_is_charged_until_it_is_upgraded(federate) -> None:
    """It does not know the call: what the wire says then (`errors_on_wire`)."""
    federation = await federate(NAMES[:2])

    def unknown(caller: str, called: str, rpc: str, request: Any) -> None:
        if called == "south" and rpc.endswith("masked"):
            raise PeerFault("VERSION_UNSUPPORTED", "party 'south' does not know this call", hint="use the same version")

    federation.before = unknown
    await federation.submit()
    federation.start()
    told = "VERSION_UNSUPPORTED: party 'south' does not know this call; use the same version"
    await federation.until(lambda: told in getattr(federation.known("north"), "stage", ""))
    assert not any((federation.folder(name) / "charged").exists() for name in NAMES[:2])
    federation.before = lambda *_: None
    await federation.kill()
    federation.start()
    await federation.until(federation.closed)


async def test_data_that_change_under_a_round_end_it(federate) -> None:
    federation = await federate(NAMES[:2], "order-commitment")

    def hold(caller: str, called: str, rpc: str, request: Any) -> None:
        if "south" in {caller, called} and rpc.endswith("masked"):
            raise PeerFault("UNREACHABLE", "held by the test")

    await federation.submit()
    federation.before = hold
    federation.start()
    await federation.until(lambda: (federation.folder("south") / "hello.json").is_file())
    await federation.kill("south")
    federation.before = lambda *_: None
    for item in (federation.root / "south" / "state" / "spool").iterdir():
        item.unlink()
    federation.write("south", list(range(N_COMMON))[::-1])
    federation.start("south")
    await federation.until(federation.failed())
    assert not (federation.folder("north") / "charged").exists()


@pytest.mark.parametrize("missing", ["miner", "west"])
async def test_without_a_pinned_key_a_party_does_not_approve(federate, missing: str) -> None:
    federation = await federate(NAMES)
    federation.federate("south", without=missing)
    await federation.submit()
    federation.start()
    await federation.until(federation.failed("south"))
    failure = federation.record("south").failure
    assert failure is not None
    assert (failure.code, f"public sealing key of '{missing}'" in failure.message) == ("CONFIG_INVALID", True)
    assert not federation.record("south").task.approved
    assert not any(federation.folder(name).exists() for name in NAMES)


async def test_without_a_way_to_its_peers_a_party_does_not_approve(federate) -> None:
    federation = await federate(NAMES[:2])
    toml = federation.root / "south" / "party.toml"
    toml.write_text(toml.read_text().replace(PEER, ""))
    await federation.submit()
    federation.start()
    await federation.until(federation.failed("south"))
    failure = federation.record("south").failure
    assert failure is not None
    assert (failure.code, "peer: missing" in failure.message) == ("CONFIG_INVALID", True)


@pytest.mark.parametrize(
    "limit", ["allow_masked = true", "max_masked_epsilon = 4.0", "max_floor_epsilon_per_study = 60.0"]
)
async def test_a_policy_refuses_before_anybody_says_hello(federate, limit: str) -> None:
    federation = await federate(NAMES[:2])
    toml = federation.root / "south" / "party.toml"
    key, _, value = limit.partition(" = ")
    toml.write_text(toml.read_text().replace(limit, f"{key} = {'false' if value == 'true' else '2.0'}"))
    await federation.submit()
    federation.start()
    ended, federation.failing = {State.DENIED, State.FAILED}, True
    await federation.until(lambda: (found := federation.known("north")) is not None and found.task.state in ended)
    assert federation.plan() is None  # nobody was asked who is common
    assert not any(federation.folder(name).exists() for name in NAMES[:2])
    assert charges(federation) == {"north": set(), "south": set()}


@pytest.mark.parametrize(
    ("before", "after"), [("max_public_epsilon_lifetime = 8.0", "1.0"), ("max_floor_epsilon_lifetime = 60.0", "2.0")]
)
async def test_a_ledger_that_has_no_room_any_more_keeps_every_masked_byte_here(
    federate, before: str, after: str
) -> None:
    """The limit is lowered when south has approved and said hello."""
    federation = await federate(NAMES[:2])
    hold_back(federation, lambda caller, called: "south" in {caller, called})
    await federation.submit()
    federation.start()
    await federation.until(lambda: (federation.folder("south") / "hello.json").is_file())
    await federation.kill("south")
    toml = federation.root / "south" / "party.toml"
    toml.write_text(toml.read_text().replace(before, f"{before.partition(' = ')[0]} = {after}"))
    federation.before = lambda *_: None
    federation.start("south")
    await federation.until(federation.failed())
    failure = federation.record("south").failure  # None: north asked for its message, was told, and ended the study
    code = federation.known("south").task.failure if failure is None else failure.code
    assert code in {"BUDGET_EXCEEDED", "POLICY_REFUSED"}
    assert charges(federation)["south"] == {"linkage"}


def hold_back(federation: Federation, held: Callable[[str, str], bool]) -> None:
    """Let no message of a round pass between some."""

    def hold(caller: str, called: str, rpc: str, request: Any) -> None:
        if held(caller, called) and rpc.endswith("masked"):
            raise PeerFault("UNREACHABLE", "held by the test")

    federation.before = hold


def charges(federation: Federation) -> dict[str, set[str]]:
    """What stands in each party's ledger."""
    found = {}
    for name in federation.parties:
        with Database(federation.root / name / "state") as database:
            found[name] = {"round" if row.charged else "linkage" for row in Ledger(database).rows()}
    return found


# ---- the release

COUNTERSIGNED = '[publish]\ncountersign = "all"\n'


@pytest.mark.whole
async def test_parties_countersign_what_follows_from_the_tables_that_they_have(federate) -> None:
    federation = await federate(NAMES[:2], publish=COUNTERSIGNED)
    await federation.submit()
    federation.start()
    await federation.until(lambda: all(federation.left(name) == {"ended"} for name in NAMES[:2]))
    for name in federation.parties:
        record = federation.record(name)
        assert (record.task.state, record.failure) == (State.PUBLISHED, None)


@pytest.mark.whole
async def test_a_party_does_not_countersign_what_follows_from_other_tables(federate) -> None:
    """South's tables are changed by one count before it looks at the release."""
    federation = await federate(NAMES[:2], publish=COUNTERSIGNED)
    changed: list[bytes] = []

    def change(caller: str, called: str, rpc: str, request: Any) -> None:
        if (caller, rpc) == ("south", "get_release") and not changed:
            path = federation.folder("south") / "tables"
            data = bytearray(path.read_bytes())
            data[0] ^= 1
            changed.append(bytes(data))
            path.write_bytes(data)

    federation.before = change
    await federation.submit()
    federation.start()
    await federation.until(federation.failed("south"))
    failure = federation.record("south").failure
    assert failure is not None
    assert (failure.code, "other tables" in failure.message) == ("RELEASE_INVALID", True)
    assert changed


# ---- who gets what


@pytest.mark.whole
async def test_a_message_is_for_its_recipient_and_for_nobody_after_the_end(federate, monkeypatch) -> None:
    federation = await federate(NAMES)
    await federation.submit()
    federation.start()
    await federation.until(federation.closed)
    effective = federation.record("north").task.effective_digest
    south = InMemoryPeer(federation.services["south"], identity("north"))
    listed = (await south.list_masked(peer_pb2.ListMaskedRequest(effective_digest=effective))).index
    told = [
        message.index
        for message in messages_of(federation.plan())
        if (message.sender, message.recipient) == ("south", "north")
    ]
    assert listed == told
    assert (
        await south.list_masked(peer_pb2.ListMaskedRequest(effective_digest=effective, have=told[1:]))
    ).index == told[:1]
    west = InMemoryPeer(federation.services["south"], identity("west"))

    async def asked(peer: InMemoryPeer, index: int) -> str:
        with pytest.raises(PeerFault) as error:
            async for _ in peer.get_masked(peer_pb2.GetMaskedRequest(effective_digest=effective, index=index)):
                pass
        return error.value.code

    assert await asked(west, told[0]) == "NOT_OWNER"
    assert await asked(south, 10**6) == "NOT_READY"
    column = south.get_column(peer_pb2.GetColumnRequest(effective_digest=effective))
    with pytest.raises(PeerFault, match="not every party's approval"):
        await anext(column)
    reply = peer_pb2.GetStudyDigestRequest(study_id="trial", study_digest=federation.digest)
    with pytest.raises(PeerFault, match="was not loaded here"):
        await south.get_study_digest(reply)
    eve = InMemoryPeer(federation.services["south"], identity("eve"))
    with pytest.raises(PeerFault, match="is not one of its parties"):
        await eve.list_masked(peer_pb2.ListMaskedRequest(effective_digest=effective))
    monkeypatch.setattr(fetch, "make_chunks", functools.partial(make_chunks, chunk_bytes=64))
    parts = south.get_masked(peer_pb2.GetMaskedRequest(effective_digest=effective, index=told[0]))
    async with contextlib.aclosing(parts):
        first = await anext(parts)
        assert 64 == len(first.chunk.data) < first.size
        fault = PeerFault("MESSAGE_INVALID", "a trial")
        await asyncio.to_thread(federation.services["south"]._site.state.fail, federation.digest, fault, now())
        with pytest.raises(PeerFault, match="the study has ended here"):
            await anext(parts)


async def test_a_round_that_is_opened_twice_at_once_is_one() -> None:
    """Two threads, the second of which begins while the first is at it."""
    under_way, of_study, made = threading.Event(), Rounds(), list[OpenRound]()

    def begin() -> OpenRound:
        under_way.set()
        time.sleep(0.1)
        made.append(cast("OpenRound", object()))
        return made[-1]

    one = asyncio.create_task(asyncio.to_thread(of_study.open, b"study", begin))
    await asyncio.to_thread(under_way.wait)
    assert await asyncio.to_thread(of_study.open, b"study", begin) is await one
    assert len(made) == 1


# ---- backups


async def test_a_restored_site_ends_its_studies_and_has_no_round(federate, tmp_path: Path) -> None:
    federation = await federate(NAMES[:2])
    await federation.submit()
    federation.start()
    await federation.until(federation.closed)
    await federation.kill()
    config = load_party(federation.root / "south" / "party.toml")
    folder = federation.folder("south")
    assert (folder / "tables").is_file()
    passphrase = "twelve letters at least"
    backup.backup(config, tmp_path / "south.backup", passphrase)
    restored = backup.restore(tmp_path / "south.backup", tmp_path / "restored", passphrase)
    assert restored.problem == ""
    state = next((tmp_path / "restored").rglob("site.secret")).parent
    assert not (state / "masked").exists()
    with Database(state) as database:
        failure = PartyState(database).study(federation.digest).failure
    assert failure is not None
    assert (failure.code, "restored" in failure.message) == ("APPROVAL_VOID", True)
