"""Linkage order-commitment and dh-psi: whole studies of 2, 3 and 4 parties in memory, what breaks them, and what survives a kill.

Each party sends the three digits of a person's number as they are (scheme none), so that a test reads from the miner's columns
which row is whose, and one randomized column, whose values are recomputed here from the secret. Waiting is on conditions, never
for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from support import PATIENCE_SECONDS, daemons
from support.daemons import IdleLearning
from verticil.miner.config import ServiceLimits
from verticil.miner.service.node import MinerNode
from verticil.party import daemon
from verticil.party.config import load_party
from verticil.party.dataset.blinding import BlindingKey
from verticil.party.dataset.perturb import codebook_digest, perturb_numpy, record_tags, unit_key
from verticil.party.policy.ledger import Ledger
from verticil.party.protocol.context import StudyContext
from verticil.party.site import init_state
from verticil.party.storage.database import Database
from verticil.party.storage.secret import SiteSecret
from verticil.party.storage.studies import PartyState
from verticil.shared.core.errors import DataFault, PeerFault, Refusal, VerticilError
from verticil.shared.federation.alignment.statements import blinded_body
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.chunks import make_chunks
from verticil.shared.federation.transport.fetch import fetch_bytes
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.wire.v1 import control_pb2, coordinator_pb2

NAMES = ("north", "south", "east", "west")
MODES = ("keyed-hash", "order-commitment", "dh-psi")
LINKAGE_KEY = bytes(range(32))
N_COMMON = 60
CODES = [str(number) for number in range(10)]
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
allow_infinite = [{infinite}]
max_epsilon_per_column = 3.0
max_epsilon_per_study = 6.0
max_epsilon_lifetime = 8.0
minimum_common_records = {minimum}
recipients = ["miner"]
"""


class Wire:
    """A party's connection: keeps what is sent and what comes, and lets a test stop or falsify calls."""

    def __init__(self, inner: InMemoryCoordinator) -> None:
        self._inner = inner
        self.sent: list[bytes] = []
        self.got: list[bytes] = []
        self.calls: list[str] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.falsify: Callable[[str, object], object] = lambda _, reply: reply

    async def _enter(self, name: str) -> None:
        self.calls.append(name)
        if self.before is not None:
            await self.before(name)

    def __getattr__(self, name: str):
        async def one(request):
            await self._enter(f"report {request.WhichOneof('what')}" if name == "report" else name)
            self.sent.append(request.SerializeToString())
            reply = self.falsify(name, await getattr(self._inner, name)(request))
            self.got.append(reply.SerializeToString())
            return reply

        async def many(requests):
            await self._enter(name)

            async def passing():
                for request in requests:
                    await self._enter(f"{name}.message")
                    self.sent.append(request.SerializeToString())
                    yield request

            async with contextlib.aclosing(passing()) as messages:
                return await getattr(self._inner, name)(messages)

        async def parts(request):
            await self._enter(name)
            self.sent.append(request.SerializeToString())
            async with contextlib.aclosing(getattr(self._inner, name)(request)) as stream:
                async for part in stream:
                    falsified = self.falsify(name, part)
                    self.got.append(falsified.SerializeToString())
                    yield falsified

        if name in {"put_pseudonyms", "put_chunks", "put_blinded"}:
            return many
        return parts if name in {"get_alignment", "get_blinded", "get_release"} else one

    async def close(self) -> None:
        await self._inner.close()


def person(number: int) -> str:
    return f"person-{number:03d}"


def secret(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def answer(name: str, who: str) -> str:
    return ANSWERS[hashlib.sha256(f"{name} {who}".encode()).digest()[0] % 3]


class Federation:
    """Party folders and a miner in a temporary folder."""

    def __init__(self, root: Path, pki: Path, parties: Sequence[str], mode: str, *, minimum: int = 10) -> None:
        self.root, self.pki, self.parties, self.mode = root, pki, tuple(parties), mode
        self.wires: dict[str, list[Wire]] = {name: [] for name in parties}
        self.interfere: Callable[[str, Wire], None] = lambda name, wire: None
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.node: MinerNode | None = None
        for position, name in enumerate(self.parties):
            self._set_up(name, minimum)
            own = [*range(N_COMMON), *range(100 + 20 * position, 100 + 20 * position + 13)]
            if mode == "order-commitment":
                own = list(range(N_COMMON))
            order = np.random.default_rng(0 if mode == "order-commitment" else position).permutation(len(own))
            self.write(name, [own[i] for i in order])

    def _set_up(self, name: str, minimum: int) -> None:
        folder = self.root / name
        (folder / "pki").mkdir(parents=True)
        for suffix in ("crt", "key", "sign"):
            (folder / "pki" / f"{name}.{suffix}").write_bytes((self.pki / f"{name}.{suffix}").read_bytes())
        (folder / "ca.crt").write_bytes((self.pki / "ca" / "ca.crt").read_bytes())
        (folder / "federation.toml").write_text(
            f'schema = 1\nname = "trial"\nca_certificate = "ca.crt"\nca_sha256 = "{(self.pki / "sha256").read_text()}"\n'
            '[miner]\nendpoint = "localhost:1"\n[transport]\nchunk_bytes = 1024\n'
        )
        (folder / "linkage.key").write_text(LINKAGE_KEY.hex() + "\n")
        (folder / "linkage.key").chmod(0o600)
        init_state(folder / "state", site_secret=secret(name))
        infinite = ", ".join(f'"{name}_{digit}"' for digit in range(3))
        (folder / "party.toml").write_text(PARTY.format(name=name, infinite=infinite, minimum=minimum))

    def write(self, name: str, numbers: Sequence[int]) -> None:
        """The party's table: these people in this order."""
        self.people = {**getattr(self, "people", {}), name: list(numbers)}
        header = ["id", *(f"{name}_{digit}" for digit in range(3)), f"{name}_x"]
        rows = [[person(n), *f"{n:03d}", answer(name, person(n))] for n in numbers]
        (self.root / name / "people.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")

    def study(self) -> str:
        parts = ['schema = 1\nid = "trial"\ntitle = "A trial"\npurpose = "test"\nexpires = 2099-12-31']
        parts += [f'[[party]]\nname = "{name}"' for name in self.parties]
        parts.append(f'[linkage]\nmode = "{self.mode}"\nminimum_common_records = 10')
        for name in self.parties:
            columns = [(f"{name}_{digit}", CODES) for digit in range(3)] + [(f"{name}_x", ANSWERS)]
            parts += [
                f'[[variable]]\nparty = "{name}"\nname = "{column}"\ncategories = {json.dumps(categories)}'
                for column, categories in columns
            ]
        digits = [f"{name}_{digit}" for name in self.parties for digit in range(3)]
        parts.append(f'[[randomization]]\nvariables = {json.dumps(digits)}\nscheme = "none"')
        parts.append('[randomization_default]\nscheme = "symmetric"\nepsilon = 2.0')
        parts.append('[structure]\nmethod = "tree"')
        return "\n".join(parts) + "\n"

    async def start_miner(self) -> None:
        self.node = MinerNode(
            self.root / "miner",
            identity=Identity(federation="trial", role=Role.MINER, name="miner"),
            authority=(self.pki / "ca" / "ca.crt").read_bytes(),
            signer=SigningKey.load(self.pki / "miner.sign", self.pki / "miner.crt"),
            executor=IdleLearning(),
            limits=ServiceLimits(disk_reserve_bytes=0),
            randomized_days=30,
        )
        await self.node.__aenter__()

    async def stop_miner(self) -> None:
        if self.node is not None:
            await self.node.__aexit__(None, None, None)
            self.node = None

    def client(self, name: str) -> InMemoryCoordinator:
        assert self.node is not None
        return InMemoryCoordinator(self.node.coordinator, Identity(federation="trial", role=Role.PARTY, name=name))

    def wire(self, name: str) -> Wire:
        wire = Wire(self.client(name))
        self.interfere(name, wire)
        self.wires[name].append(wire)
        return wire

    def start(self, *names: str) -> None:
        for name in names or self.parties:
            config = load_party(self.root / name / "party.toml")
            run = daemon.run_party(config, lambda name=name: self.wire(name), stop=asyncio.Event())
            self.tasks[name] = daemons.started(run)

    async def kill(self, *names: str) -> None:
        """End daemons without any of their own ado."""
        for name in names or tuple(self.tasks):
            task = self.tasks.pop(name)
            task.cancel()
            await daemons.ended(task)

    def control(self) -> InMemoryControl:
        assert self.node is not None
        return InMemoryControl(self.node.control, Identity(federation="trial", role=Role.ANALYST, name="lee"))

    async def submit(self) -> bytes:
        path = self.root / "study.toml"
        path.write_text(self.study())
        request = control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(read_study(path)))
        return (await self.control().submit_study(request)).study_digest

    async def until(self, digest: bytes, *states: State) -> control_pb2.StudySummary:
        """Wait for the study to be in one of the states; an end that is none of them is an error."""
        version = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                request = control_pb2.GetStudyRequest(study_digest=digest, known_version=version, wait_seconds=5)
                study = (await self.control().get_study(request)).study
                if study.state in states:
                    return study
                assert study.state < 20, study.failure
                version = study.version
                for task in self.tasks.values():
                    if task.done():
                        task.result()

    async def until_told(self, name: str) -> None:
        """Wait until the party knows that its study failed, and has dropped what was made for it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with Database(self.root / name / "state") as database:
                    studies = await asyncio.to_thread(PartyState(database).studies)
                if studies and studies[-1].task.state == State.FAILED and not self.left(name):
                    return
                await asyncio.sleep(0.01)

    def left(self, name: str) -> list[Path]:
        """What is on a party's disk of its linkage."""
        return sorted(path for path in (self.root / name / "state" / "linkage").rglob("*") if path.is_file())

    def ledger(self, name: str):
        with Database(self.root / name / "state") as database:
            return Ledger(database).rows()

    def sent(self, name: str) -> bytes:
        return b"\0".join(message for wire in self.wires[name] for message in wire.sent)

    def columns(self, digest: bytes) -> dict[str, list[int]]:
        """The miner's columns by variable."""
        assert self.node is not None
        study, files = read_study(self.root / "study.toml"), self.node.store.study(digest)
        return {
            unit.variables[0]: np.fromfile(files.column(index, 1), dtype=np.uint8).tolist()
            for index, unit in enumerate(study.units)
        }

    def released(self, digest: bytes) -> tuple[list[str], dict[str, dict[str, int]]]:
        """Who is in which row, and each party's randomized value of each person; all parties' rows are the same people's."""
        columns = self.columns(digest)
        rows = {
            name: [
                person(int("".join(map(str, digits))))
                for digits in zip(*(columns[f"{name}_{i}"] for i in range(3)), strict=True)
            ]
            for name in self.parties
        }
        first = rows[self.parties[0]]
        assert all(people == first for people in rows.values())
        return first, {name: dict(zip(first, columns[f"{name}_x"], strict=True)) for name in self.parties}

    def expected(self, name: str, people: Sequence[str]) -> dict[str, int]:
        """The sticky noise of contract section 2."""
        study = read_study(self.root / "study.toml")
        index = next(i for i, unit in enumerate(study.units) if unit.variables == (f"{name}_x",))
        key = unit_key(
            secret(name),
            dataset="people",
            source_columns=[f"{name}_x"],
            codebook_digest=codebook_digest(study.schema[index], {}),
            transition_digest=study.units[index].transition.digest(),
        )
        true = np.array([ANSWERS.index(answer(name, who)) for who in people], dtype=np.uint8)
        released = perturb_numpy(
            key, record_tags(SiteSecret(value=secret(name)).tag_key, people), true, study.units[index].transition
        )
        return dict(zip(people, released.tolist(), strict=True))


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    (folder / "sha256").write_text(create_authority(folder / "ca", "trial", demo=True))
    issue(folder / "ca", "miner", Role.MINER, folder, hosts=("localhost",), days=1)
    for name in NAMES:
        issue(folder / "ca", name, Role.PARTY, folder, days=1)
    return folder


@pytest.fixture
async def federate(tmp_path, pki):
    made: list[Federation] = []

    async def make(n_parties: int, mode: str, **options) -> Federation:
        federation = Federation(tmp_path / str(len(made)), pki, NAMES[:n_parties], mode, **options)
        made.append(federation)
        await federation.start_miner()
        return federation

    yield make
    for federation in made:
        await federation.kill()
        await federation.stop_miner()


async def published_up_to_learning(federation: Federation) -> tuple[bytes, list[str]]:
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.ESTIMATING)
    assert summary.n_common == N_COMMON
    people, values = federation.released(digest)
    assert sorted(people) == [person(number) for number in range(N_COMMON)]
    for name in federation.parties:
        assert values[name] == federation.expected(name, people)
    return digest, people


@pytest.mark.parametrize(
    "n_parties", [2, pytest.param(3, marks=pytest.mark.whole), pytest.param(4, marks=pytest.mark.whole)]
)
@pytest.mark.parametrize("mode", MODES[1:])
async def test_each_mode_releases_the_sticky_values_of_exactly_the_common_people(federate, mode, n_parties):
    """So a record's value is the same under any mode: it is that of the plain recomputation here."""
    federation = await federate(n_parties, mode)
    _, people = await published_up_to_learning(federation)
    if mode == "order-commitment":
        assert people == [person(number) for number in federation.people["north"]]
    else:
        assert people != sorted(people)


async def test_keyed_hash_releases_the_same_values(federate):
    await published_up_to_learning(await federate(2, "keyed-hash"))


# ---- order-commitment


async def failed_before_randomization(federation: Federation) -> control_pb2.StudySummary:
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    for name in federation.parties:
        await federation.until_told(name)
        assert not federation.ledger(name)
        assert "begin_upload" not in [call for wire in federation.wires[name] for call in wire.calls]
    told = f"{summary.failure.message} {summary.failure.hint}"
    assert "person" not in told
    return summary


async def test_feature_14_a_swapped_pair_of_rows_fails_before_any_randomization(federate):
    federation = await federate(3, "order-commitment")
    rows = federation.people["south"]
    rows[3], rows[4] = rows[4], rows[3]
    federation.write("south", rows)
    summary = await failed_before_randomization(federation)
    assert summary.failure.code == "ALIGNMENT_MISMATCH"
    assert "among 1 to 60 ('north', 'east' | 'south')" in summary.failure.message


async def test_feature_14_a_missing_row_fails_before_any_randomization(federate):
    federation = await federate(2, "order-commitment")
    federation.write("south", [number for number in federation.people["south"] if number != 7])
    summary = await failed_before_randomization(federation)
    assert summary.failure.code == "ALIGNMENT_MISMATCH"
    assert "do not have the same number of rows" in summary.failure.message


async def test_another_linkage_key_fails_as_an_order_does(federate):
    federation = await federate(2, "order-commitment")
    (federation.root / "south" / "linkage.key").write_text("ab" * 32 + "\n")
    summary = await failed_before_randomization(federation)
    assert summary.failure.code == "ALIGNMENT_MISMATCH"
    assert "check words" in summary.failure.hint


async def test_fewer_rows_than_the_minimum_never_reach_the_others(federate):
    federation = await federate(2, "order-commitment", minimum=61)
    summary = await failed_before_randomization(federation)  # a party that hears of it first does not tell it again
    assert summary.failure.code == "LINKAGE_TOO_SMALL"
    calls = {name: [call for wire in federation.wires[name] for call in wire.calls] for name in federation.parties}
    assert all("report approval" in called and "report commitment" not in called for called in calls.values())


@pytest.mark.parametrize("mode", MODES)
async def test_rows_without_an_id_of_their_own_are_left_out_and_the_study_goes_on(federate, mode):
    """Empty after normalisation, and equal only after it. Where the order of rows counts, all parties leave out the same."""
    federation = await federate(2, mode)
    for name in federation.parties if mode == "order-commitment" else ("south",):
        path = federation.root / name / "people.csv"
        header, *rows = path.read_text().splitlines()
        twice = rows[federation.people[name].index(7)]
        path.write_text("\n".join([header, *rows, "  ,1,2,3,a", f" {twice}"]) + "\n")
    digest = await federation.submit()
    federation.start()
    await federation.until(digest, State.ESTIMATING)
    people, answers = federation.released(digest)
    assert sorted(people) == [person(number) for number in range(N_COMMON) if number != 7]
    assert answers == {name: federation.expected(name, people) for name in federation.parties}


@pytest.mark.parametrize("mode", MODES)
async def test_a_table_without_a_usable_row_has_too_few_in_common(federate, mode):
    federation = await federate(2, mode)
    path = federation.root / "south" / "people.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *(f" ,{row.split(',', 1)[1]}" for row in rows)]) + "\n")
    await federation.submit()
    federation.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not any("report failure" in wire.calls for wire in federation.wires["south"]):
            await asyncio.sleep(0.01)
    with Database(federation.root / "south" / "state") as database:
        failure = PartyState(database).studies()[-1].failure
    assert failure is not None
    assert failure.code == "LINKAGE_TOO_SMALL"
    assert any("report approval" in wire.calls for wire in federation.wires["south"])


async def test_rows_moved_after_the_commitment_are_noticed(federate):
    """The data are the approved ones, whatever their order: only the commitment sees that rows moved."""
    federation = await federate(2, "order-commitment")
    reached = block(federation, "south", "report confirmed_common_sha256", 1)
    digest = await federation.submit()
    federation.start()
    await reached.wait()
    await federation.kill("south")
    federation.write("south", federation.people["south"][::-1])
    federation.interfere = lambda name, wire: None
    federation.start("south")
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "ALIGNMENT_MISMATCH"
    assert not federation.ledger("north") + federation.ledger("south")


# ---- kills


def block(federation: Federation, name: str, call: str, count: int) -> asyncio.Event:
    """Let a party's `count`-th call of this name hang for good; the event says that it was reached."""
    reached, seen = asyncio.Event(), 0

    async def before(called: str) -> None:
        nonlocal seen
        seen += called == call
        if called == call and seen >= count:
            reached.set()
            await asyncio.Event().wait()

    def interfere(who: str, wire: Wire) -> None:
        if who == name:
            wire.before = before

    federation.interfere = interfere
    return reached


KILLS = [
    ("dh-psi", "put_blinded", 1),
    ("dh-psi", "put_blinded.message", 3),  # in the middle of the own list: two chunks have left
    ("dh-psi", "get_blinded", 1),
    ("dh-psi", "put_blinded", 3),
    ("dh-psi", "report commitment", 1),
    ("dh-psi", "get_alignment", 2),
    ("dh-psi", "begin_upload", 1),
    ("order-commitment", "report commitment", 1),
    ("order-commitment", "get_alignment", 1),
]


@pytest.mark.parametrize(("mode", "call", "count"), KILLS)
async def test_a_party_and_the_miner_killed_anywhere_come_to_the_same_people(federate, mode, call, count):
    federation = await federate(2, mode)
    reached = block(federation, "south", call, count)
    digest = await federation.submit()
    federation.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reached.wait()
    await federation.kill()
    await federation.stop_miner()
    federation.interfere = lambda name, wire: None
    await federation.start_miner()
    federation.start()
    await federation.until(digest, State.ESTIMATING)
    people, values = federation.released(digest)
    assert sorted(people) == [person(number) for number in range(N_COMMON)]
    assert all(values[name] == federation.expected(name, people) for name in federation.parties)


@pytest.mark.parametrize(
    ("call", "count", "gone", "told"),
    [
        ("report commitment", 1, {"own.list", "blinding.key"}, "is lost, and so is the key"),
        (
            "report commitment",
            1,
            {"own.list"},
            "is not the one that it sent to the miner",
        ),  # another key was drawn since
        ("report commitment", 1, {"own.list", "own.sent"}, "is not the one that it sent to the miner"),
        ("get_alignment", 2, {"own.list", "blinding.key"}, "is lost, and so is the key"),
    ],
)
async def test_feature_14_a_lost_own_list_is_never_made_up_anew(federate, call, count, gone, told):
    """South's state comes back without a part, as from an older backup: its rows would be other people's."""
    federation = await federate(2, "dh-psi")
    reached = block(federation, "south", call, count)
    digest = await federation.submit()
    federation.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reached.wait()
    await federation.kill()
    n_sent = len(federation.ledger("south"))
    for path in federation.left("south"):
        if path.name in gone:
            path.unlink()
        if path.name == "blinding.key" and path.name not in gone:
            path.write_bytes(BlindingKey.draw().secret)
    federation.interfere = lambda name, wire: None
    federation.start()
    study = await federation.until(digest, State.FAILED)
    assert study.failure.code == "ALIGNMENT_MISMATCH"
    assert f"the blinded list of this party, 'south', {told}" in study.failure.message
    assert len(federation.ledger("south")) == n_sent


async def test_the_key_is_private_while_it_is_needed_and_gone_when_the_people_are_found(federate):
    federation = await federate(2, "dh-psi")
    reached = block(federation, "south", "begin_upload", 1)
    keys: list[tuple[str, int]] = []
    inner = federation.interfere

    def interfere(name: str, wire: Wire) -> None:
        inner(name, wire)
        if wire.before is None:

            async def look(call: str) -> None:
                if call == "put_blinded":
                    keys.extend((path.name, path.stat().st_mode & 0o777) for path in federation.left(name))

            wire.before = look

    federation.interfere = interfere
    await federation.submit()
    federation.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reached.wait()
    assert ("blinding.key", 0o600) in keys
    assert {mode for _, mode in keys} == {0o600}
    assert "blinding.key" not in [path.name for path in federation.left("south")]


# ---- what is on the wire


@pytest.mark.whole
@pytest.mark.parametrize("mode", MODES[1:])
async def test_no_id_seed_key_or_unblinded_point_is_ever_sent(federate, mode):
    federation = await federate(3, mode)
    digest, _ = await published_up_to_learning(federation)
    derived = [
        HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info + digest).derive(LINKAGE_KEY)
        for info in (b"verticil/psi/v1", b"verticil/order/v1")
    ]
    for name in federation.parties:
        sent = federation.sent(name)
        assert (
            b"verticil/blinded/v1" if mode == "dh-psi" else b"verticil/common/v1"
        ) in sent  # the search would find something
        forbidden = [b"person-", LINKAGE_KEY, LINKAGE_KEY.hex().encode(), secret(name), *derived]
        for number in federation.people[name]:
            who = person(number).encode()
            seed = hmac.digest(derived[0], who, "sha256")
            forbidden += [hashlib.sha256(who).digest(), seed, hmac.digest(secret(name), who, "sha256")[:14]]
            forbidden += [
                hashlib.sha256(b"verticil/psi/point/v1" + counter.to_bytes(4, "big") + seed).digest()
                for counter in range(8)
            ]
        assert not [item for item in forbidden if item in sent]


@pytest.mark.whole
async def test_a_party_sees_no_list_but_those_it_has_to_blind_and_its_own(federate):
    federation = await federate(3, "dh-psi")
    digest, _ = await published_up_to_learning(federation)
    for position, name in enumerate(federation.parties):
        for owner in range(3):
            for hop in range(3):
                request = coordinator_pb2.GetBlindedRequest(study_digest=digest, owner=owner, hop=hop)
                stream = federation.client(name).get_blinded(request)
                if (owner + hop + 1) % 3 == position:
                    continue
                with pytest.raises(PeerFault) as caught:
                    await anext(stream)
                assert caught.value.code == "NOT_OWNER"


# ---- whoever does not follow the protocol


async def put(federation: Federation, digest: bytes, name: str, data: bytes, **changes):
    """Send a party's own list as it would, signed by it; with other fields than those that it signed."""
    owner, hop = federation.parties.index(name), 0
    signer = SigningKey.load(federation.pki / f"{name}.sign", federation.pki / f"{name}.crt")
    sha256 = hashlib.sha256(data).digest()
    owner_name = federation.parties[owner]
    body = blinded_body(study=digest, owner=owner_name, hop=hop, party=name, size=len(data), sha256=sha256)
    head = coordinator_pb2.PutBlindedRequest(
        study_digest=digest, owner=owner, hop=hop, size=len(data), sha256=sha256, statement=signer.sign(body)
    )
    for field, value in changes.items():
        setattr(head, field, value)
    chunks = [coordinator_pb2.PutBlindedRequest(chunk=chunk) for chunk in make_chunks(data)]
    return await federation.client(name).put_blinded([head, *chunks])


async def without_the_first_list_of(federation: Federation, name: str) -> bytes:
    """A study that waits for this party's own list, and its daemon dead."""
    reached = block(federation, name, "put_blinded", 1)
    digest = await federation.submit()
    federation.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reached.wait()
    await federation.kill(name)
    return digest


async def test_tokens_that_are_no_points_end_the_study_and_name_who_sent_them(federate):
    federation = await federate(2, "dh-psi")
    digest = await without_the_first_list_of(federation, "south")
    tokens = b"".join([b"\xff" * 31 + bytes([number]) for number in range(N_COMMON)])
    assert (await put(federation, digest, "south", tokens)).complete
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "MESSAGE_INVALID"
    assert "sent by party 'south': token 0 is not a point of P-256" in summary.failure.message
    assert not federation.ledger("north")


async def test_points_that_come_back_end_the_study_and_name_who_sent_them(federate):
    """South sends north's own list for its own: north would blind it once more, and find all its people common."""
    federation = await federate(2, "dh-psi")
    digest = await without_the_first_list_of(federation, "south")
    owner, south = federation.parties.index("north"), federation.client("south")

    async def parts(offset: int):
        request = coordinator_pb2.GetBlindedRequest(study_digest=digest, owner=owner, hop=0, offset=offset)
        async for item in south.get_blinded(request):
            yield item.part

    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                stolen = await fetch_bytes(parts, limit_bytes=2**20, what="north's list")
                break
            except PeerFault:  # not ready
                await asyncio.sleep(0.05)
    assert (await put(federation, digest, "south", stolen)).complete
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "MESSAGE_INVALID"
    assert "sent by party 'south': it has points that are also in a list" in summary.failure.message
    assert not federation.ledger("north")


@pytest.mark.parametrize("mode", ["keyed-hash", "dh-psi"])
async def test_common_people_are_compared_again_after_a_fault_on_the_way(federate, monkeypatch, mode):
    """A comparison that another process kept from its end has accepted nobody."""
    calls = Counter[str]()

    def accept_people(self: StudyContext, *_: object) -> None:
        calls[self.me] += 1
        if calls[self.me] == 1:
            raise DataFault("STATE_LOCKED", "another process holds the database")
        raise Refusal("COMMON_SET_TOO_SIMILAR", "nearly the people of an earlier study")

    monkeypatch.setattr(StudyContext, "accept_people", accept_people)
    federation = await federate(2, mode)
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "COMMON_SET_TOO_SIMILAR"
    assert not [row for name in federation.parties for row in federation.ledger(name)]


NO_LISTS = [
    (bytes(32) * 20, {}, "ARTIFACT_INVALID", "19 of 20 tokens are there twice"),
    (b"".join(bytes([9 - i]) * 32 for i in range(10)), {}, "ARTIFACT_INVALID", "expected an ascending list"),
    (bytes(33), {}, "MESSAGE_INVALID", "positive multiple of 32"),
    (b"", {}, "MESSAGE_INVALID", "positive multiple of 32"),
    (bytes(64), {}, "LINKAGE_TOO_SMALL", "fewer records than the 10"),
    (bytes(320), {"owner": 0}, "NOT_OWNER", "is sent by 'north'"),
    (bytes(320), {"hop": 7}, "MESSAGE_INVALID", "no blinded list 1 behind hop 7"),
    (bytes(320), {"size": 352}, "MESSAGE_INVALID", "signed something else"),
]


async def test_a_list_that_is_none_is_refused(federate):
    federation = await federate(2, "dh-psi")
    digest = await without_the_first_list_of(federation, "south")
    for data, changes, code, text in NO_LISTS:
        with pytest.raises(VerticilError, match=text) as caught:
            await put(federation, digest, "south", data, **changes)
        assert caught.value.code == code


@pytest.mark.parametrize("mode", MODES[1:])
async def test_nothing_is_randomized_without_every_partys_signature_on_the_common_list(federate, mode):
    """A miner that hides, or swaps, what another party signed."""
    federation = await federate(2, mode)

    def falsify(call: str, reply):
        if call == "get_alignment":
            told = [item for item in reply.statements if b'"south"' not in item.body]
            del reply.statements[:]
            reply.statements.extend(told)
        return reply

    def interfere(name: str, wire: Wire) -> None:
        if name == "north":
            wire.falsify = falsify

    federation.interfere = interfere
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "ALIGNMENT_MISMATCH"
    assert "no statement of party 'south'" in summary.failure.message
    assert not federation.ledger("north")


async def test_a_common_list_that_the_miner_makes_up_is_refused(federate):
    """One person more is marked, and the digest is that of the longer list: the other party has not signed that."""
    federation = await federate(2, "dh-psi")
    full: list[bytes] = []

    def falsify(call: str, reply):
        if call == "get_alignment" and reply.HasField("chunk"):
            path = next(p for p in federation.left("north") if p.name in {"full.list", "full.in"}) if full else None
            bits = np.unpackbits(np.frombuffer(reply.chunk.data, dtype=np.uint8), bitorder="little")
            if path is not None:
                tokens = np.frombuffer(path.read_bytes(), dtype="S32")
                bits[np.flatnonzero(bits[: len(tokens)] == 0)[0]] = 1
                marked = np.sort(tokens[np.flatnonzero(bits[: len(tokens)])])
                reply.n_common += 1
                reply.common_sha256 = hashlib.sha256(marked.tobytes()).digest()
                replaced = next(iter(make_chunks(np.packbits(bits, bitorder="little").tobytes())))
                reply.chunk.CopyFrom(replaced)
            full.append(b"")
        return reply

    def interfere(name: str, wire: Wire) -> None:
        if name == "north":
            wire.falsify = falsify

    federation.interfere = interfere
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "ALIGNMENT_MISMATCH"
    assert not federation.ledger("north")
