"""Two parties and a miner that are stepped by hand, under any protocol, to stop right before an act and to repeat it there.

`Stepped.stops` carries a study out until a party has done something, and gives copies of that party's folder from before each
such act. `Alone` opens a copy: the party with its own state, a line to the miner that repeats the miner's answers and lets
nothing else pass, and no peers. What it tries to send is recorded, so a test sees an act whether or not somebody gets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import shutil
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from copy import copy as shallow_copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.message import Message as WireMessage

import verticil.party.protocol.shipped.registrations  # noqa: F401  (the registry's entries)
from verticil.miner.config import ServiceLimits
from verticil.miner.rules.rounds import Sealing
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.party.config import load_party
from verticil.party.operator import peer_commands
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.engine import Meaning, Outcome, StudyRun, meaning_of
from verticil.party.protocol.masked.rounds import folder_of
from verticil.party.protocol.node.registry import rounds_of_protocols, study_of_miner, study_of_parties
from verticil.party.protocol.node.service import PeerService
from verticil.party.protocol.node.task_ingest import read_proposal, remember
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.protocol.with_peers.context import PeerContext
from verticil.party.protocol.with_peers.network import Peers
from verticil.party.site import Site, init_state
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.record import decode
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.key_words import key_words
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.installation import make_sealing_key, public_sealing_key
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator, InMemoryPeer
from verticil.shared.federation.transport.sealing import load_sealing_key
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.schedule import Kind as Message
from verticil.shared.masked.round.schedule import messages_of
from verticil.shared.release.statement import software_text
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study
from verticil.shared.study.structure_document import given_structure
from verticil.wire.v1 import control_pb2, coordinator_pb2, peer_pb2

NAMES: Final = ("north", "south")
OFFICERS: Final = ("officer", "deputy")
N_COMMON: Final = 120
REVIEWED: Final = "countersign"
"""The act before which a person is waited for, who is told of it by the step before."""
_LINKAGE_KEY: Final = bytes(range(32))
_MOST_TURNS: Final = 400

_HEAD: Final = """
schema = 1
id = "trial"
title = "A trial"
purpose = "test"
model = "{model}"
expires = 2099-12-31
[[party]]
name = "north"
[[party]]
name = "south"
[linkage]
minimum_common_records = 10
"""
_VARIABLES: Final = """
[[variable]]
party = "north"
name = "sex"
categories = ["f", "m"]
[[variable]]
party = "north"
name = "smoker"
categories = ["no", "yes", "unknown"]
[[variable]]
party = "north"
name = "ward"
categories = ["a", "b"]
[[variable]]
party = "south"
name = "income"
categories = ["low", "middle", "high"]
[[variable]]
party = "south"
name = "region"
categories = ["a", "b"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[[randomization]]
variables = ["ward"]
scheme = "none"
[structure]
method = "given"
max_parents = 2
[structure.parents]
income = ["sex", "smoker"]
region = ["ward"]
[release]
synthetic_records = 20
seed = 1
"""
_COUNTERSIGN: Final = '[publish]\ncountersign = "all"\n'
_SHARE: Final = '[share]\nnoise = "discrete-gaussian"\nepsilon = 1.5\ndelta = 1e-6\n'
_TABLES: Final = "[tables]\nepsilon = 3.0\ndelta = 1e-6\n"
STUDIES: Final[Mapping[str, str]] = {
    "central": _HEAD.format(model="central") + _VARIABLES + _COUNTERSIGN,
    "peer": _HEAD.format(model="peer") + _VARIABLES + _SHARE,
    "exact": _HEAD.format(model="peer") + _VARIABLES,
    "masked": _HEAD.format(model="masked")
    + _VARIABLES.replace('method = "given"', 'method = "hill-climb"').replace(
        '[structure.parents]\nincome = ["sex", "smoker"]\nregion = ["ward"]\n', ""
    )
    + _TABLES
    + '[masked]\nunchecked = ["south"]\n'
    + _COUNTERSIGN,
}
"""A study for each protocol; ``exact`` is one between peers whose parameters have no noise."""

POLICY: Final[Mapping[str, str]] = {
    "approval": '"manual"',
    "approvers_needed": "1",
    "max_epsilon_per_column": "6.0",
    "max_epsilon_per_study": "60.0",
    "max_epsilon_lifetime": "60.0",
    "allow_infinite": '["ward"]',
    "minimum_common_records": "10",
    "minimum_parties": "2",
    "max_categories": "50",
    "deny_columns": "[]",
    "recipients": '["miner", "north", "south"]',
    "allow_exact_parameters": "true",
    "max_share_epsilon": "4.0",
    "max_share_delta": "1e-5",
    "max_delta_lifetime": "1e-4",
    "max_public_epsilon": "60.0",
    "max_public_delta": "1e-3",
    "max_public_epsilon_lifetime": "60.0",
    "max_public_delta_lifetime": "1e-3",
    "max_floor_epsilon_per_study": "60.0",
    "max_floor_delta_per_study": "1e-3",
    "max_floor_epsilon_lifetime": "60.0",
    "max_floor_delta_lifetime": "1e-3",
    "max_floor_epsilon_per_column": "6.0",
    "minimum_rows": "10",
    "max_days": "100000",
    "allow_masked": "true",
    "max_masked_epsilon": "4.0",
    "max_masked_delta": "1e-5",
    "allow_raw_under_masks": '["ward"]',
    "allow_unchecked_partners": "true",
    "max_linkages": "3",
}
"""What each party's ``[policy]`` says: room for every study."""
_PARTY: Final = """
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
[peer]
listen = "127.0.0.1:0"
advertise = "127.0.0.1:9"
{approvers}
[policy]
{policy}
[policy.confirmed_keys]
{confirmed}
"""


def party_toml(
    name: str,
    folder: Path,
    *,
    changed: Mapping[str, str] | None = None,
    without: str = "",
    unconfirmed: str = "",
    misspoken: str = "",
) -> str:
    """A party's party.toml.

    Args:
        name: of the party.
        folder: its folder, with its approvers' public keys and the words of others' sealing keys.
        changed: keys of ``[policy]`` with another value than `POLICY` has.
        without: an approver who is left out.
        unconfirmed: whose key nobody confirmed.
        misspoken: whose confirmed words are those of another key.
    """
    approvers = "".join(
        f'[[approver]]\nname = "{who}"\npublic_key = "{(folder / f"{who}.public").read_text()}"\n'
        for who in OFFICERS
        if who != without
    )
    words = dict(line.split("=", 1) for line in (folder / "words").read_text().splitlines())
    words.pop(unconfirmed, None)
    if misspoken:
        words[misspoken] = key_words(misspoken, bytes(32))
    return _PARTY.format(
        name=name,
        approvers=approvers,
        policy="".join(f"{key} = {value}\n" for key, value in {**POLICY, **(changed or {})}.items()),
        confirmed="".join(f'{who} = "{said}"\n' for who, said in words.items()),
    )


def table_of(name: str, *, seed: int = 0) -> str:
    """A party's table, as CSV; the values differ with the seed."""
    rng = np.random.default_rng([ord(name[0]), seed])
    n = N_COMMON + 5
    ids = [f"person-{i:03d}" for i in range(N_COMMON)] + [f"{name}-{i}" for i in range(5)]
    choices = {
        "north": {"sex": ["f", "m"], "smoker": ["no", "yes", "unknown"], "ward": ["a", "b"]},
        "south": {"income": ["low", "middle", "high"], "region": ["a", "b"]},
    }[name]
    columns = {"id": ids, **{column: rng.choice(labels, n).tolist() for column, labels in choices.items()}}
    rows = zip(*columns.values(), strict=True)
    return "\n".join(",".join(row) for row in [tuple(columns), *rows]) + "\n"


@dataclass
class Seen:
    """What a party tried to do.

    Attributes:
        calls: to the miner: names of calls, and of a report what it reports.
        streams: what peers got, by the name of the call.
        sizes: of every message that peers got, with the name of the call.
    """

    calls: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    sizes: list[tuple[str, int]] = field(default_factory=list)


class Line:
    """A party's line to the miner, which keeps what it passes.

    Args:
        inner: the connection; None: nothing passes but reports, and `said` is answered again.
        seen: gets the names of calls.
        said: what the miner answered to `get_alignment`.
    """

    def __init__(
        self, inner: InMemoryCoordinator | None, seen: Seen, said: list[coordinator_pb2.AlignmentPart]
    ) -> None:
        self._inner, self._seen, self.said = inner, seen, said
        self.before: Callable[[str], Awaitable[None]] | None = None

    def __getattr__(self, name: str):
        async def one(request):
            await self._note(name, request)
            if self._inner is not None:
                return await getattr(self._inner, name)(request)
            if name == "report":
                return coordinator_pb2.ReportReply()
            raise PeerFault("UNREACHABLE", "the miner is away")

        return one

    async def _note(self, name: str, request: Any) -> None:
        named = f"report {request.WhichOneof('what')}" if name == "report" else name
        if self.before is not None:
            await self.before(named)
        self._seen.calls.append(named)

    async def get_alignment(self, request) -> AsyncIterator[coordinator_pb2.AlignmentPart]:
        await self._note("get_alignment", request)
        if self._inner is not None:
            self.said.clear()
            async for part in self._inner.get_alignment(request):
                self.said.append(part)
        for part in self.said:
            yield part
        if not self.said:
            raise PeerFault("UNREACHABLE", "the miner is away")

    def get_masked(self, request):
        return self._streamed("get_masked", request)

    def get_release(self, request):
        return self._streamed("get_release", request)

    async def _streamed(self, name: str, request):
        await self._note(name, request)
        if self._inner is None:
            raise PeerFault("UNREACHABLE", "the miner is away")
        async with contextlib.aclosing(getattr(self._inner, name)(request)) as parts:
            async for part in parts:
                yield part

    async def close(self) -> None:
        pass


class _Network:
    """How parties of one process reach each other."""

    def __init__(self, caller: str, services: Mapping[str, PeerService], seen: Callable[[str], Seen]) -> None:
        self._caller, self._services, self._seen = caller, services, seen

    def dial(self, name: str) -> _Way:
        return _Way(self, name)

    def peer(self, name: str, rpc: str) -> InMemoryPeer:
        if name not in self._services:
            raise PeerFault("UNREACHABLE", f"{name}: connection refused")
        return InMemoryPeer(self._services[name], identity(self._caller))

    def note(self, name: str, rpc: str) -> None:
        self._seen(name).streams.append(rpc)

    def measure(self, name: str, rpc: str, reply: WireMessage) -> None:
        self._seen(name).sizes.append((rpc, reply.ByteSize()))


class _Way:
    def __init__(self, network: _Network, name: str) -> None:
        self._network, self._name = network, name

    def __getattr__(self, rpc: str):
        async def one(request):
            reply = await getattr(self._network.peer(self._name, rpc), rpc)(request)
            if rpc == "get_signature":
                self._network.note(self._name, rpc)
            self._network.measure(self._name, rpc, reply)
            return reply

        async def many(request) -> AsyncIterator[peer_pb2.Part]:
            async with contextlib.aclosing(getattr(self._network.peer(self._name, rpc), rpc)(request)) as parts:
                async for part in parts:
                    self._network.note(self._name, rpc)
                    self._network.measure(self._name, rpc, part)
                    yield part

        return many if rpc in {"get_pseudonyms", "get_column", "get_parameters", "get_masked"} else one

    async def close(self) -> None:
        pass


def identity(name: str) -> Identity:
    """A party's identity, as the transport has it."""
    return Identity(federation="trial", role=Role.PARTY, name=name)


class Stepper:
    """A party whose steps are taken one by one.

    Args:
        folder: of the party; its name is the party's.
        digest: of the study; empty: it is not known yet.
        coordinator: the line to the miner.
        services: of the parties that can be reached; this one's is added.
        seen: gives what a party did.
        clock: UTC now.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        coordinator: Line,
        services: dict[str, PeerService],
        seen: Callable[[str], Seen],
        clock: Callable[[], dt.datetime],
    ) -> None:
        self.folder, self.name, self.coordinator, self.clock = folder, name, coordinator, clock
        self.config = load_party(folder / "party.toml")
        self.site = Site.open(self.config)
        self.node = PartyContext(
            site=self.site,
            spool=Spool(self.config.state_directory / "spool"),
            signing_key=SigningKey.load(self.config.signing_key, self.config.certificate),
            authority=self.config.federation.ca_certificate.read_bytes(),
            clock=clock,
        )
        network = _Network(name, services, seen)
        self.between = PeerContext(
            node=self.node,
            store=ArtifactStore(self.config.state_directory / "peer", self.site.database),
            peers=Peers(network, "trial", clock),
            coordinator=None,
            software=software_text(),
            rounds=rounds_of_protocols(),
        )
        self.service = PeerService(self.node, self.between.store, software=software_text(), rounds=self.between.rounds)
        services[name] = self.service
        self.study: StudyRun | None = None

    def close(self) -> None:
        """Close the state, as a kill does."""
        self.site.database.close()

    def take_up(self, digest: bytes, *, coordinated: bool) -> StudyRun:
        """Make the work on a study."""
        if self.study is None:
            self.study = (
                study_of_miner(self.node, self.between, digest)
                if coordinated
                else study_of_parties(self.between, digest)
            )
            vars(self.study)["coordinator"] = self.coordinator
        return self.study

    async def hear(self) -> None:
        """Take in what the miner says of its studies."""
        reply = await self.coordinator.poll(coordinator_pb2.PollRequest(wait_seconds=0))
        for task in reply.tasks:
            remember(self.node, task, read_proposal(self.node, task), fresh=True)

    def approve(self, digest: bytes) -> None:
        """Approve as the first officer, unless it is approved."""
        record = self.site.state.study(digest)
        if record.approval is None and record.failure is None and record.denial_sent is None:
            key = ApproverKey.load(self.folder / f"{OFFICERS[0]}.key")
            assert self.site.voting.approve(record, OFFICERS[0], self.clock(), key=key).complete

    async def step(self) -> Outcome:
        """Take the next step, as the engine does: an error of this party ends the study, or is tried again."""
        assert self.study is not None
        return await self._handled(self.study.step())

    async def step_as_planned(self, meanwhile: Callable[[], None]) -> Outcome:
        """Plan the next step, let something happen, and take the step as it was planned."""
        assert self.study is not None
        planned = self.study.plan
        before = planned()
        meanwhile()
        self.study.plan = lambda: before  # type: ignore[method-assign]
        try:
            return await self._handled(self.study.step())
        finally:
            del self.study.plan

    async def _handled(self, work: Awaitable[Outcome]) -> Outcome:
        assert self.study is not None
        try:
            return await work
        except VerticilError as error:
            record = self.site.state.study(self.study.digest)
            meaning = meaning_of(error, waited_out=self.study.waited_out, has_failed=record.failure is not None)
            if meaning not in {Meaning.FAILS, Meaning.ENDS_THE_DAEMON}:
                return Outcome.WAITING
            self.node.fail(self.study.digest, error)
            return Outcome.DONE


@dataclass(frozen=True)
class Done:
    """What a party has done of a study so far: what a test compares.

    Attributes:
        linked: the linkage is in the ledger.
        drawn: columns are randomized.
        charged: rows of the ledger that are no linkage.
        statistics: those of them that are of no column.
        masked, shared: masked rows are made; shares of tables are.
        reviewed: a release lies there for people to look at.
        countersigned: it is countersigned.
    """

    linked: bool
    drawn: bool
    charged: int
    statistics: int
    masked: bool
    shared: bool
    reviewed: bool
    countersigned: bool

    @classmethod
    def by(cls, party: Stepper, digest: bytes) -> Done:
        """Look at a party's state."""
        site = party.site
        rows = [row for row in site.ledger.rows() if row.study_digest == digest.hex()]
        linkages = [row for row in rows if row.recipient.startswith("the other parties")]
        record = site.state.study(digest) if site.state.knows(digest) else None
        review = site.decisions.review(digest)
        kinds = _made_kinds(folder_of(site.config.state_directory, digest))
        spool = site.config.state_directory / "spool"
        return cls(
            linked=bool(linkages),
            drawn=any(spool.iterdir())
            or (record is not None and bool(site.state.artifacts(digest, record.task.effective_digest))),
            charged=len(rows) - len(linkages),
            statistics=sum(row.unit is None for row in rows) - len(linkages),
            masked=Message.MASKED in kinds,
            shared=Message.SHARE in kinds,
            reviewed=review is not None and review.fetched,
            countersigned=review is not None and review.body is not None,
        )


def _made_kinds(folder: Path) -> set[Message]:
    """The kinds of messages of a round that lie there, made by this party."""
    if not (folder / "plan.json").is_file():
        return set()
    plan = decode(Plan, (folder / "plan.json").read_bytes(), source="plan.json")
    messages = messages_of(plan)
    return {messages[int(path.name)].kind for path in (folder / "sent").iterdir() if path.name.isdecimal()}


class Stepped:
    """Two parties and a miner, in a folder.

    Args:
        root: empty.
        protocol: a key of `STUDIES`.
    """

    def __init__(self, root: Path, protocol: str) -> None:
        self.root, self.protocol = root, protocol
        self.coordinated = protocol in {"central", "masked"}
        pki = root / "pki"
        pki.mkdir(parents=True)
        fingerprint = create_authority(pki / "ca", "trial")
        issue(pki / "ca", "miner", Role.MINER, pki, hosts=("localhost",), days=2)
        for name in NAMES:
            issue(pki / "ca", name, Role.PARTY, pki, hosts=("localhost",), days=2)
        sealing = {name: make_sealing_key(root / f"{name}.seal")[0] for name in (*NAMES, "miner")}
        self._sealing = sealing
        self._pins = {name: public_sealing_key(path) for name, path in sealing.items()}
        for name in NAMES:
            self._set_up(name, fingerprint)
        (root / "study.toml").write_text(STUDIES[protocol])
        self._now = dt.datetime.now(dt.UTC)
        self.seen = {name: Seen() for name in NAMES}
        self.said: dict[str, list[coordinator_pb2.AlignmentPart]] = {name: [] for name in NAMES}
        self.services: dict[str, PeerService] = {}
        self.parties: dict[str, Stepper] = {}
        self.digest = b""

    def _set_up(self, name: str, fingerprint: str) -> None:
        folder, pki = self.root / name, self.root / "pki"
        (folder / "pki").mkdir(parents=True)
        for suffix in ("crt", "key", "sign"):
            shutil.copy(pki / f"{name}.{suffix}", folder / "pki")
        shutil.copy(self.root / f"{name}.seal", folder / "pki" / f"{name}.seal")
        shutil.copy(pki / "ca" / "ca.crt", folder)
        pins = "".join(f'{who} = "{key}"\n' for who, key in self._pins.items() if who != "miner")
        (folder / "federation.toml").write_text(
            f'schema = 1\nname = "trial"\nca_certificate = "ca.crt"\nca_sha256 = "{fingerprint}"\n'
            f'[miner]\nendpoint = "localhost:1"\nsealing_key = "{self._pins["miner"]}"\n[transport]\nchunk_bytes = 4096\n'
            f'[peers]\nnorth = "127.0.0.1:1"\nsouth = "127.0.0.1:2"\n[sealing]\n{pins}'
        )
        (folder / "linkage.key").write_text(_LINKAGE_KEY.hex() + "\n")
        (folder / "linkage.key").chmod(0o600)
        (folder / "people.csv").write_text(table_of(name))
        for who in OFFICERS:
            key = ApproverKey.create(folder / f"{who}.key")
            (folder / f"{who}.public").write_text(b64encode(key.public).decode())
        words = {who: key_words(who, bytes.fromhex(key)) for who, key in self._pins.items() if who != name}
        (folder / "words").write_text("".join(f"{who}={said}\n" for who, said in words.items()))
        (folder / "party.toml").write_text(party_toml(name, folder))
        init_state(folder / "state", site_secret=name.encode().ljust(32, b"."))

    def twin(self, root: Path, *, seed: int) -> Stepped:
        """The same federation, before anything has happened, with other values in its tables about the same people."""
        shutil.copytree(self.root, root)
        for name in NAMES:
            (root / name / "people.csv").write_text(table_of(name, seed=seed))
        other = shallow_copy(self)
        other.root, other.services, other.parties, other.digest = root, {}, {}, b""
        other.seen, other.said = {name: Seen() for name in NAMES}, {name: [] for name in NAMES}
        return other

    def tick(self) -> dt.datetime:
        """Return a time that is a second later at each look, so that no slot of a round is waited for."""
        self._now += dt.timedelta(seconds=1)
        return self._now

    @contextlib.asynccontextmanager
    async def _miner(self) -> AsyncIterator[MinerNode]:
        pki = self.root / "pki"
        async with MinerNode(
            self.root / "miner",
            identity=Identity(federation="trial", role=Role.MINER, name="miner"),
            authority=(pki / "ca" / "ca.crt").read_bytes(),
            signer=SigningKey.load(pki / "miner.sign", pki / "miner.crt"),
            executor=InlineLearning(clock=lambda: dt.datetime.now(dt.UTC)),
            limits=ServiceLimits(disk_reserve_bytes=0),
            randomized_days=30,
            sealing=Sealing(
                key=load_sealing_key(self._sealing["miner"], bytes.fromhex(self._pins["miner"])),
                pinned={name: bytes.fromhex(self._pins[name]) for name in NAMES},
            ),
        ) as node:
            yield node

    def stops(self, acts: Mapping[str, Callable[[Done, Seen], bool]]) -> dict[str, Path]:
        """Carry the study out until north has done all acts; blocks.

        Args:
            acts: by name, whether what north has done shows the act.

        Returns:
            By act, a folder with copies of both parties' folders from right before the step in which it was done; of `REVIEWED`
            from after it.
        """
        return asyncio.run(self._stops(dict(acts)))

    async def _stops(self, left: dict[str, Callable[[Done, Seen], bool]]) -> dict[str, Path]:
        async with contextlib.AsyncExitStack() as ending:
            node = await ending.enter_async_context(self._miner()) if self.coordinated else None
            for name in NAMES:
                inner = None if node is None else InMemoryCoordinator(node.coordinator, identity(name))
                party = Stepper(
                    self.root / name,
                    name,
                    coordinator=Line(inner, self.seen[name], self.said[name]),
                    services=self.services,
                    seen=self.seen.__getitem__,
                    clock=self.tick,
                )
                ending.callback(party.close)
                self.parties[name] = party
            await self._begin(node)
            found: dict[str, Path] = {}
            for turn in range(_MOST_TURNS):
                for name, party in self.parties.items():
                    if self.coordinated:
                        await party.hear()
                    if not party.site.state.knows(self.digest):
                        continue
                    await asyncio.to_thread(party.approve, self.digest)
                    party.take_up(self.digest, coordinated=self.coordinated)
                    copy = self.root / "before" / f"{turn}-{name}"
                    self._copy(copy)
                    await party.step()
                    north = Done.by(self.parties["north"], self.digest)
                    reached = [act for act, shows in left.items() if shows(north, self.seen["north"])]
                    for act in reached:
                        found[act] = copy
                        del left[act]
                        if act == REVIEWED:
                            shutil.rmtree(copy)
                            self._copy(copy)
                    if not reached:
                        shutil.rmtree(copy)
                if not left:
                    return found
                await asyncio.sleep(0.01)  # the miner's own tasks
        shown = {name: party.site.state.study(self.digest) for name, party in self.parties.items()}
        raise AssertionError(f"never done: {sorted(left)}; {shown}")

    def _copy(self, target: Path) -> None:
        for name in NAMES:
            shutil.copytree(self.root / name, target / name)

    async def _begin(self, node: MinerNode | None) -> None:
        if node is not None:
            control = InMemoryControl(node.control, Identity(federation="trial", role=Role.ANALYST, name="lee"))
            proposal = canonical.to_bytes(read_study(self.root / "study.toml"))
            submitted = await control.submit_study(control_pb2.SubmitStudyRequest(proposal=proposal))
            self.digest = submitted.study_digest
            return
        for party in self.parties.values():
            facts = peer_commands.load_study(party.config, self.root / "study.toml", at=self.tick())
            self.digest = bytes.fromhex(facts.digest)


class Alone:
    """A party on a copy of its folder, with a miner that only repeats what it said, and peers that do nothing.

    Args:
        folder: the copy.
        beside: a copy of another party's folder, whose service answers; None: nobody can be reached.
        name: the party.
        digest: of the study.
        coordinated: a miner tells it.
        said: the miner's answers to `get_alignment`.
        at: the time of the first look at the clock.

    Attributes:
        party: opened.
        seen, done: what it tried, and what it had done at the beginning and after each step.
        deletions: statements of a deletion that a peer got.
        errors: codes with which people were refused.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        digest: bytes,
        *,
        coordinated: bool,
        said: list[coordinator_pb2.AlignmentPart],
        at: dt.datetime,
        beside: Path | None = None,
    ) -> None:
        self._now, self.seen = at, Seen()
        self._digest = digest
        self.deletions = 0
        self.errors: list[str] = []
        line, services = Line(None, self.seen, said), dict[str, PeerService]()
        self.party = Stepper(
            folder, name, coordinator=line, services=services, seen=lambda _: self.seen, clock=self.tick
        )
        self.beside = None
        if beside is not None:
            self.beside = Stepper(
                beside,
                beside.name,
                coordinator=Line(None, Seen(), []),
                services=services,
                seen=lambda _: Seen(),
                clock=self.tick,
            )
        self.party.take_up(digest, coordinated=coordinated)
        self.done = [self.look()]

    def tick(self) -> dt.datetime:
        """Return a time that is a second later at each look."""
        self._now += dt.timedelta(seconds=1)
        return self._now

    def look(self) -> Done:
        """Return what the party has done."""
        return Done.by(self.party, self._digest)

    @property
    def record(self) -> StudyRecord:
        """What the party remembers of the study."""
        return self.party.site.state.study(self._digest)

    async def go_on(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Take steps until nothing more can be done, and let a peer ask for everything; `done` has all that could be seen.

        Args:
            meanwhile: happens between the planning of the first step and its being taken.
        """
        outcome = Outcome.DONE
        for number in range(12):
            first = number == 0 and meanwhile is not None
            outcome = await (self.party.step_as_planned(meanwhile) if first and meanwhile else self.party.step())
            await self._ask_for_all()
            self.done.append(self.look())
            if outcome is not Outcome.DONE:
                return
        raise AssertionError("the party takes steps without end")

    async def _ask_for_all(self) -> None:
        """As the other party: every list, column, parameter and message of a round that this one has for it."""
        record = self.record
        effective, common = record.task.effective_digest, record.common_sha256 or b""
        peer = InMemoryPeer(self.party.service, identity(NAMES[1]))
        study = canonical.from_bytes(record.task.effective or record.task.proposal)
        structure = given_structure(study, effective) if study.model == "peer" else None
        named = structure.sha256 if structure is not None else b""
        await self._hear("get_pseudonyms", peer.get_pseudonyms(
            peer_pb2.GetPseudonymsRequest(effective_digest=effective, list=peer_pb2.PSEUDONYM_LIST_RUNNING)))  # fmt: skip
        for unit in study.units_of(self.party.name):
            await self._hear("get_column", peer.get_column(peer_pb2.GetColumnRequest(
                effective_digest=effective, unit=unit, common_sha256=common, structure_sha256=named)))  # fmt: skip
        await self._hear("get_parameters", peer.get_parameters(
            peer_pb2.GetParametersRequest(effective_digest=effective)))  # fmt: skip
        with contextlib.suppress(VerticilError):
            await peer.get_signature(peer_pb2.GetSignatureRequest(effective_digest=effective))
            self.seen.streams.append("get_signature")
        with contextlib.suppress(VerticilError):
            reply = await peer.list_masked(peer_pb2.ListMaskedRequest(effective_digest=effective))
            for index in reply.index:
                await self._hear("get_masked", peer.get_masked(
                    peer_pb2.GetMaskedRequest(effective_digest=effective, index=index)))  # fmt: skip

    async def ask_for_deletion(self) -> None:
        """As the other party: the statement of what this party deleted; `deletions` counts those that came."""
        peer = InMemoryPeer(self.party.service, identity(NAMES[1]))
        with contextlib.suppress(VerticilError):
            await peer.get_deletion(peer_pb2.GetDeletionRequest(study_digest=self._digest))
            self.deletions += 1

    async def _hear(self, rpc: str, stream: AsyncIterator[peer_pb2.Part]) -> None:
        with contextlib.suppress(VerticilError):
            async for _ in stream:
                self.seen.streams.append(rpc)

    def close(self) -> None:
        """Close what is open."""
        self.party.close()
        if self.beside is not None:
            self.beside.close()


__all__ = [
    "NAMES", "N_COMMON", "OFFICERS", "POLICY", "REVIEWED", "STUDIES", "Alone", "Done", "Line", "Seen", "Stepped", "Stepper",
    "identity", "load_party", "party_toml", "table_of",
]  # fmt: skip
