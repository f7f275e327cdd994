"""Three parties without a miner, or with one that searches, in memory, with wires that keep and can break what is sent."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import numpy as np
import pytest

import verticil.party.protocol.shipped.registrations  # noqa: F401  (the registry's entries)
from verticil.party.config import PartyConfig, load_party
from verticil.party.operator import peer_commands
from verticil.party.policy.ledger import Ledger
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.engine import Outcome
from verticil.party.protocol.node.service import PeerService
from verticil.party.protocol.peer.study import PeerStudy
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.protocol.with_peers.context import PeerContext
from verticil.party.protocol.with_peers.network import Peers
from verticil.party.protocol.with_peers.publication import release_folder
from verticil.party.site import Site, init_state
from verticil.party.storage.database import Database
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.federation.transport.fetch import fetch_bytes, send_parts
from verticil.shared.federation.transport.in_memory import InMemoryCoordinator, InMemoryPeer
from verticil.shared.release.statement import software_text
from verticil.wire.v1 import peer_pb2

NAMES = ("north", "south", "west")


N_COMMON = 300


ISSUED = dt.datetime.now(dt.UTC).replace(microsecond=0)


NOW = ISSUED + dt.timedelta(minutes=5)
"""Every party's clock stands still, a little after the certificates are issued: whenever in a long run they are."""


LINKAGE_KEY = bytes(range(32))


STUDY = """
schema = 1
id = "peers"
title = "Peers"
purpose = "test"
model = "peer"
expires = 2099-12-31
[[party]]
name = "north"
[[party]]
name = "south"
[[party]]
name = "west"
[linkage]
minimum_common_records = 100
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
[[variable]]
party = "west"
name = "visits"
categories = ["few", "many"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "given"
max_parents = 2
[structure.parents]
smoker = ["sex"]
income = ["sex"]
region = ["income"]
visits = ["region"]
[release]
synthetic_records = 50
seed = 1
"""


READ = {(0, "south"), (3, "west")}
"""Cross parents: south reads sex of north, west reads region of south; west sends nothing."""


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
approval = "{approval}"
max_epsilon_per_column = 3.0
max_epsilon_per_study = 6.0
max_epsilon_lifetime = 8.0
minimum_common_records = 50
recipients = ["miner", "north", "south", "west"]
{policy}
[peer]
listen = "127.0.0.1:0"
advertise = "127.0.0.1:{port}"
"""


EXACT = "allow_exact_parameters = true"


def values(name: str) -> dict[str, list[str]]:
    n = N_COMMON + 11
    generator = np.random.default_rng(ord(name[0]))
    person = np.random.default_rng(1).integers(0, 2, n)  # what the parties' columns have in common
    columns = {
        "north": {
            "sex": np.where(person == 1, "m", "f"),
            "smoker": generator.choice(["no", "yes", ""], n, p=[0.6, 0.3, 0.1]),
        },
        "south": {
            "income": (person * 10 + generator.integers(0, 20, n)).astype(str),
            "region": generator.choice(list("abcd"), n),
        },
        "west": {"visits": generator.choice(["few", "many"], n)},
    }
    return {column: found.tolist() for column, found in columns[name].items()}


def table(name: str) -> str:
    ids = [f"person-{number:04d}" for number in range(N_COMMON)] + [f"{name}-{number}" for number in range(11)]
    columns = {"id": ids, **values(name)}
    rows = list(zip(*columns.values(), strict=True))
    shuffled = [rows[i] for i in np.random.default_rng(ord(name[0])).permutation(len(rows))]
    return "\n".join(",".join(row) for row in [tuple(columns), *shuffled]) + "\n"


class Wire:
    """The way from one party to another: looks the answering service up anew for each call."""

    def __init__(self, federation: Federation, caller: str, name: str) -> None:
        self._federation = federation
        self._caller = caller
        self._name = name

    def _peer(self, rpc: str, request: object) -> InMemoryPeer:
        self._federation.calls.append((self._caller, self._name, rpc, getattr(request, "unit", None)))
        self._federation.before(self._caller, self._name, rpc)
        service = self._federation.services.get(self._name)
        if service is None:
            raise PeerFault("UNREACHABLE", f"{self._name}: connection refused")
        return InMemoryPeer(service, Identity(federation="trial", role=Role.PARTY, name=self._caller))

    async def hello(self, request):
        return await self._peer("hello", request).hello(request)

    async def get_study_digest(self, request):
        return await self._peer("get_study_digest", request).get_study_digest(request)

    async def get_signature(self, request):
        return await self._peer("get_signature", request).get_signature(request)

    async def get_deletion(self, request):
        return await self._peer("get_deletion", request).get_deletion(request)

    async def _stream(self, rpc: str, request) -> AsyncGenerator[peer_pb2.Part]:
        peer = self._peer(rpc, request)
        other = self._federation.falsified.get((self._name, rpc))
        if other is not None:
            parts = send_parts(other(await self._whole(peer, rpc, request)), offset=request.offset, what=rpc)
        else:
            parts = getattr(peer, rpc)(request)
        async with contextlib.aclosing(parts):
            async for part in parts:
                yield part

    async def _whole(self, peer: InMemoryPeer, rpc: str, request) -> bytes:
        def again(offset: int):
            from_start = type(request)()
            from_start.CopyFrom(request)
            from_start.offset = offset
            return getattr(peer, rpc)(from_start)

        return await fetch_bytes(again, limit_bytes=10**7, what=rpc)

    def get_pseudonyms(self, request):
        return self._stream("get_pseudonyms", request)

    def get_column(self, request):
        return self._stream("get_column", request)

    def get_parameters(self, request):
        return self._stream("get_parameters", request)

    async def list_masked(self, request):
        return await self._peer("list_masked", request).list_masked(request)

    def get_masked(self, request):
        return self._stream("get_masked", request)

    async def close(self):
        pass


class Network:
    """`PeerNetwork` of one party."""

    def __init__(self, federation: Federation, name: str) -> None:
        self._federation = federation
        self._name = name

    def dial(self, name: str) -> Wire:
        return Wire(self._federation, self._name, name)

    @contextlib.asynccontextmanager
    async def serve(self, service):
        self._federation.services[self._name] = service
        try:
            yield None
        finally:
            del self._federation.services[self._name]


class Party:
    """One party's opened state, without a daemon."""

    def __init__(self, federation: Federation, name: str) -> None:
        self.config = federation.config(name)
        self.site = Site.open(self.config)
        node = PartyContext(
            site=self.site,
            spool=Spool(self.config.state_directory / "spool"),
            signing_key=SigningKey.load(self.config.signing_key, self.config.certificate),
            authority=self.config.federation.ca_certificate.read_bytes(),
            clock=lambda: federation.now,
            revocations=federation.revocations,
        )
        self.store = ArtifactStore(self.config.state_directory / "peer", self.site.database)
        self.work = PeerContext(
            node=node,
            store=self.store,
            peers=Peers(Network(federation, name), "trial", lambda: federation.now),
            coordinator=None if federation.dial is None else functools.partial(federation.dial, name),
            search_wait_seconds=0,
            software=federation.software.get(name, software_text()),
        )
        self.study = PeerStudy(self.work, federation.digest)
        federation.services[name] = PeerService(node, self.store, software=self.work.software)

    @property
    def record(self) -> StudyRecord:
        return self.site.state.study(self.study.digest)

    async def step(self) -> Outcome:
        """As the daemon does it: an error of this party ends the study."""
        try:
            return await self.study.step()
        except VerticilError as error:
            self.site.state.fail(self.record.digest, error, NOW)
            return Outcome.DONE


class Federation:
    """Three folders, and the wires between."""

    def __init__(
        self,
        root: Path,
        pki: Path,
        *,
        approval: str = "auto",
        policy: str = EXACT,
        study: str = STUDY,
        miner: bool = False,
    ) -> None:
        self.root = root
        self.pki = pki
        self.miner = miner
        self.now = NOW
        self.revocations: Revocations = EMPTY_DENY_LIST
        self.services: dict[str, PeerService] = {}
        self.parties: dict[str, Party] = {}
        self.software: dict[str, str] = {}
        self.calls: list[tuple[str, str, str, int | None]] = []
        self.before: Callable[[str, str, str], None] = lambda caller, name, rpc: None
        self.falsified: dict[tuple[str, str], Callable[[bytes], bytes]] = {}
        for name in NAMES:
            self.set_up(name, approval=approval, policy=policy)
        self.study_file = root / "study.toml"
        self.study_file.write_text(study)
        self.digest = b""
        self.dial: Callable[[str], InMemoryCoordinator] | None = None

    def set_up(self, name: str, *, approval: str, policy: str) -> None:
        folder = self.root / name
        (folder / "pki").mkdir(parents=True)
        for suffix in ("crt", "key", "sign"):
            (folder / "pki" / f"{name}.{suffix}").write_bytes((self.pki / f"{name}.{suffix}").read_bytes())
        (folder / "ca.crt").write_bytes((self.pki / "ca" / "ca.crt").read_bytes())
        peers = "".join(f'{other} = "127.0.0.1:{port}"\n' for port, other in enumerate(NAMES, 1))
        (folder / "federation.toml").write_text(
            f'schema = 1\nname = "trial"\nca_certificate = "ca.crt"\nca_sha256 = "{(self.pki / "sha256").read_text()}"\n'
            f"[peers]\n{peers}" + ('[miner]\nendpoint = "localhost:9"\n' if self.miner else "")
        )
        (folder / "linkage.key").write_text(LINKAGE_KEY.hex() + "\n")
        (folder / "linkage.key").chmod(0o600)
        init_state(folder / "state", site_secret=name.encode().ljust(32, b"."))
        (folder / "people.csv").write_text(table(name))
        (folder / "party.toml").write_text(
            PARTY.format(name=name, approval=approval, policy=policy, port=1 + NAMES.index(name))
        )

    def config(self, name: str) -> PartyConfig:
        return load_party(self.root / name / "party.toml")

    def load(self, *names: str) -> bytes:
        for name in names or NAMES:
            facts = peer_commands.load_study(self.config(name), self.study_file, at=self.now)
            self.digest = bytes.fromhex(facts.digest)
        return self.digest

    def open(self, *names: str) -> None:
        for name in names or NAMES:
            self.parties[name] = Party(self, name)

    def close(self) -> None:
        for party in self.parties.values():
            party.site.database.close()
        self.parties.clear()
        self.services.clear()

    def reopen(self) -> None:
        """All processes are killed and started again."""
        names = tuple(self.parties)
        self.close()
        self.open(*names)

    async def run(self, *, after_step: Callable[[], None] = lambda: None) -> None:
        """Let the parties take turns until nobody can do anything more."""
        idle = 0
        while idle < 2:  # once more: what a party waited for may have come after its turn
            idle += 1
            for name in tuple(self.parties):
                while await self.parties[name].step() is Outcome.DONE:
                    idle = 0
                    after_step()

    def record(self, name: str) -> StudyRecord:
        return self.parties[name].record

    def stage(self, name: str) -> str:
        return self.record(name).stage

    def ledger(self, name: str) -> tuple[LedgerRow, ...]:
        with Database(self.root / name / "state") as database:
            return Ledger(database).rows()

    def manifests(self) -> dict[str, bytes]:
        folders = {name: release_folder(party.site, self.digest) for name, party in self.parties.items()}
        return {name: (folder / "manifest.json").read_bytes() for name, folder in folders.items()}


@pytest.fixture(scope="module")
def pki(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    (folder / "sha256").write_text(create_authority(folder / "ca", "trial", demo=True, at=ISSUED))
    issue(folder / "ca", "miner", Role.MINER, folder, hosts=("localhost",), days=1, at=ISSUED)
    for name in (*NAMES, "stranger"):
        issue(folder / "ca", name, Role.PARTY, folder, hosts=("localhost",), days=1, at=ISSUED)
    return folder


@pytest.fixture
def make(tmp_path, pki):
    made: list[Federation] = []

    def federation(folder: str = "one", **options) -> Federation:
        made.append(Federation(tmp_path / folder, pki, **options))
        return made[-1]

    yield federation
    for item in made:
        item.close()


@pytest.fixture(scope="module")
def published(tmp_path_factory, pki):
    """A study that was carried out without disturbance. Tests only look at it."""
    federation = Federation(tmp_path_factory.mktemp("published"), pki)
    federation.load()
    federation.open()
    asyncio.run(federation.run())
    yield federation
    federation.close()


@pytest.fixture
async def exchanging(make):
    """Everybody has learned; the parameters do not arrive, so that lists and columns are still kept."""
    federation = make()
    federation.load()
    federation.open()

    def hold(caller: str, name: str, rpc: str) -> None:
        if rpc == "get_parameters" and caller != "test":
            raise PeerFault("UNREACHABLE", "held back")

    federation.before = hold
    await federation.run()
    return federation


LEARNED = (
    STUDY[: STUDY.index("[structure]")]
    + """[structure]
method = "genetic"
max_parents = 2
seed = 1
[structure.genetic]
population = 20
selected = 5
generations = 10
[release]
synthetic_records = 50
seed = 1
"""
)
