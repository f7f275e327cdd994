"""Hypothesis at every method of the access table: what anybody may send to a miner or to a party, and what comes of it.

Two studies, one with a miner and one between peers, are held in their middle: columns are on their way, the ledgers are charged.
The services are then asked by parties of the study, by strangers with valid certificates, by every other role. The messages come
from the wire contract's own descriptors, with hostile names, enormous counts, wrong offsets, and whatever digests, names and
signed statements crossed the wire until then, so that they get past the first checks. An answer or an error of the table of codes
is allowed; INTERNAL is not, nor an exception that nobody foresaw, nor memory. In the end both studies go on, and must publish
what they do undisturbed, at the same price. Most goes through the in-memory transport, some over mutual TLS.

What ends a study by right (a cancellation by its analyst, a denial by its party) is sent in the name of somebody who has none,
and so not over TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import resource
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from support import PATIENCE_SECONDS
from support.sameness import charged, differences, essence
from verticil.party.config import load_party
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.node.service import PeerService
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.site import Site
from verticil.shared.core.errors import CODES, PeerFault, VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import Credentials, load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.authorization import ROLES
from verticil.shared.federation.transport.client import Connection, GrpcControl, GrpcCoordinator, GrpcPeer
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator, InMemoryPeer
from verticil.shared.federation.transport.interface import Control, Coordinator, Peer, bind
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.release.statement import software_text
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.simulation.in_memory_peers import run_peers, serving_miner
from verticil.simulation.in_process import run_federation
from verticil.simulation.provision import OPEN_LIMITS, Provisioned, copy_federation, csv_site, provision
from verticil.wire.v1 import control_pb2

GROWTH_MIB = 64
INTEGERS = (0, 1, 2, 3, 7, 4000, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (
    "",
    "../../x",
    "/etc/passwd",
    "manifest.json",
    "manifest.json\0",
    "x" * 3000,
    "\0",
    "é\u202e",
    "faults",
    "clinic",
)
BYTES = (b"", bytes(32), b"\xff" * 33, b"x" * 600_000, b"../../x".ljust(32, b"x"))
BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64),
}
METHODS = tuple(name for name in ROLES if name.startswith("/verticil."))
STREAMED = {
    "get_alignment",
    "get_blinded",
    "get_release",
    "get_pseudonyms",
    "get_column",
    "get_parameters",
    "get_masked",
}
"""Calls whose answer is a stream."""
FINAL = {"denial", "failure", "withdrawal", "approval", "confirmed_common_sha256", "revocation"}
"""What a party may say about its own study for good."""


def rpc(name: str) -> MethodDescriptor:
    service, _, method = name[1:].partition("/")
    return descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]


def spelt(method: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in method).strip("_")


class Known:
    """What crossed the wire, by the name of the field: digests, names, numbers, statements."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Any, None]] = {}

    def hear(self, message: Message) -> None:
        for field, value in message.ListFields():
            for one in value if field.is_repeated else (value,):
                if isinstance(one, Message):
                    self.hear(one)
                elif not isinstance(one, bytes) or len(one) < 50_000:
                    known = self.values.setdefault(field.name, {})
                    if len(known) < 20:
                        known[one] = None


class Held:
    """Between a node and a service: hears what is said, and does not let some calls through."""

    def __init__(self, line: Any, known: Known, block: str, reached: Callable[[], None]) -> None:
        self._line, self._known, self._block, self._reached = line, known, block, reached

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._line, name)
        if name == "close":
            return real
        if name in STREAMED:

            async def many(request: Any) -> AsyncIterator[Any]:
                self._enter(name, request)
                async with contextlib.aclosing(real(request)) as parts:
                    async for part in parts:
                        yield part

            return many

        async def one(request: Any) -> Any:
            self._enter(name, request)
            reply = await real(request)
            self._known.hear(reply)
            return reply

        return one

    def _enter(self, name: str, request: Any) -> None:
        if isinstance(request, Message):
            self._known.hear(request)
        if name == self._block:
            self._reached()
            raise PeerFault("UNREACHABLE", "held by the test")


async def halfway(run: Callable[[Callable[..., Any]], Coroutine[Any, Any, int]], known: Known, block: str) -> None:
    """Run a study until each of its parties has come to the call that is blocked; then everybody stops."""
    came: set[str] = set()
    reached = asyncio.Event()

    def arrived(party: str) -> None:
        came.add(party)
        if len(came) == 2:
            reached.set()

    def wrap(party: str, *rest: Any) -> Any:
        return Held(rest[-1], known, block, functools.partial(arrived, party))

    work = asyncio.create_task(run(wrap))
    waiting = asyncio.create_task(reached.wait())
    done, _ = await asyncio.wait({work, waiting}, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    assert done == {waiting}, "the study was not held"
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


def credentials(made: Provisioned, name: str) -> Credentials:
    pki, federation = made.root / name / "pki", load_federation(made.root / name / "federation.toml")
    return load_credentials(pki / f"{name}.crt", pki / f"{name}.key", federation)


class Stage:
    """Both federations, held, with their services open; in an event loop of its own thread."""

    def __init__(self, template: Any, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.known = Known()
        self.unforeseen: list[str] = []
        self._loop.set_exception_handler(lambda _, context: self.unforeseen.append(str(context)))
        self._open = contextlib.AsyncExitStack()
        self.central = copy_federation(template.template, folder / "central")
        tables = template.folder / "template" / "tables"
        self.peers = provision(
            folder / "peers",
            federation="faults",
            sites=[csv_site(name, tables / f"{name}.csv") for name in self.central.parties],
            limits=OPEN_LIMITS,
            endpoint=None,
            listen="127.0.0.1:0",
            hosts=("127.0.0.1",),
            seed=1,
            peers={name: f"127.0.0.1:{port}" for port, name in enumerate(self.central.parties, 1)},
        )
        text = (self.central.analyst / "study.toml").read_text()
        (self.peers.analyst / "study.toml").write_text(text.replace('"central"', '"peer"'))
        self._untouched = [copy_federation(made, folder / f"calm-{made.root.name}") for made in self.federations]
        self.services: dict[str, Any] = {}
        self._ports: dict[str, int] = {}
        self._dialled: dict[tuple[str, str], Any] = {}
        self.sites: dict[str, Site] = {}
        self.do(self._set_up())

    @property
    def federations(self) -> tuple[Provisioned, Provisioned]:
        return self.central, self.peers

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS * 2)

    def _run(self, made: Provisioned, wrap: Any = None) -> Coroutine[Any, Any, int]:
        study, release = read_study(made.analyst / "study.toml"), made.root / "release"
        if study.model == "peer":
            return run_peers(made, study, release, is_seeded=True, wrap_peer=wrap)
        return run_federation(made, study, release, is_seeded=True, wrap=wrap)

    def published(self, made: Provisioned) -> dict[str, str]:
        """What the study ends with, from where it is, and what each party paid."""
        self.do(self._run(made))
        costs = {party: f"{cost:.9g}" for party, cost in charged(made.parties).items()}
        return {**essence(made.root / "release"), **costs}

    def calm(self) -> list[dict[str, str]]:
        """What both studies end with when nobody disturbs them."""
        return [self.published(made) for made in self._untouched]

    async def _set_up(self) -> None:
        await halfway(functools.partial(self._run, self.central), self.known, "finish_upload")
        await halfway(functools.partial(self._run, self.peers), self.known, "get_parameters")
        for made in self.federations:
            proposal = to_bytes(read_study(made.analyst / "study.toml"))
            self.known.hear(control_pb2.SubmitStudyRequest(proposal=proposal))
        node = await self._open.enter_async_context(serving_miner(self.central, utc_now))
        self.services |= {"Coordinator": node.coordinator, "Control": node.control}
        self.miner = node
        for name, folder in self.peers.parties.items():
            config = load_party(folder / "party.toml")
            site = self._open.enter_context(Site.open(config))
            spool = Spool(config.state_directory / "spool")
            signing_key = SigningKey.load(config.signing_key, config.certificate)
            authority = config.federation.ca_certificate.read_bytes()
            own = PartyContext(site=site, spool=spool, signing_key=signing_key, authority=authority, clock=utc_now)
            store = ArtifactStore(config.state_directory / "peer", site.database)
            self.services[f"Peer of {name}"] = PeerService(own, store, software=software_text())
            self.sites[name] = site

    def line(self, service: str, identity: Identity) -> Any:
        kinds: dict[str, Any] = {"Coordinator": InMemoryCoordinator, "Control": InMemoryControl}
        kind = kinds.get(service, InMemoryPeer)
        return kind(self.services[service], identity, federation="faults")

    async def _serve(self) -> None:
        miner = [bind(Coordinator, self.services["Coordinator"]), bind(Control, self.services["Control"])]
        bound = [("miner", self.central, miner)]
        bound += [(name, self.peers, [bind(Peer, self.services[f"Peer of {name}"])]) for name in self.sites]
        for name, made, bindings in bound:
            server = RpcServer("127.0.0.1:0", credentials(made, name), bindings)
            self._ports[name] = await server.start()
            self._open.push_async_callback(server.stop, grace_seconds=1)

    async def _dial(self, service: str, caller: str) -> Any:
        if not self._ports:
            await self._serve()
        if service.startswith("Peer of "):
            there = service.removeprefix("Peer of ")
            identity = Identity(federation="faults", role=Role.PARTY, name=there)
            connection = Connection(f"127.0.0.1:{self._ports[there]}", credentials(self.peers, caller), target=identity)
            line: Any = GrpcPeer(connection)
        else:
            connection = Connection(f"127.0.0.1:{self._ports['miner']}", credentials(self.central, caller))
            line = GrpcCoordinator(connection) if service == "Coordinator" else GrpcControl(connection)
        self._open.push_async_callback(line.close)
        return line

    def line_over_tls(self, service: str, caller: str) -> Any:
        """A connection as somebody who has a certificate; kept for the next question."""
        if (service, caller) not in self._dialled:
            self._dialled[service, caller] = self.do(self._dial(service, caller))
        return self._dialled[service, caller]

    def standing(self) -> object:
        """What no message at `Control` or `Peer` may change."""
        catalogue = self.miner.session.catalogue
        return (
            [catalogue.study(digest) for digest in catalogue.digests()],
            {name: site.state.studies() for name, site in self.sites.items()},
        )

    def leave(self) -> None:
        """Close the services. Repeatable."""
        self.do(self._open.aclose())

    def close(self) -> None:
        self.leave()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Unforeseen(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self._found.append(f"{record.getMessage()} {record.exc_info}")


@pytest.fixture(scope="module")
def stage(template: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    found = Stage(template, tmp_path_factory.mktemp("stage"))
    handler = Unforeseen(found.unforeseen)
    logging.getLogger().addHandler(handler)
    yield found
    logging.getLogger().removeHandler(handler)
    found.close()


def single(field: FieldDescriptor, known: Known, depth: int) -> st.SearchStrategy[Any]:
    """A value of a field: twice in three times one that the field had, where it had any."""
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return message(field.message_type, known, depth + 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        other: st.SearchStrategy[Any] = st.sampled_from(BYTES) | st.binary(max_size=64)
    elif field.type == FieldDescriptor.TYPE_STRING:
        other = st.sampled_from(TEXTS) | st.text("aZ0./%\\\0\n é\u202e", max_size=20)
    elif field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    elif field.type == FieldDescriptor.TYPE_ENUM:
        other = st.integers(0, 7) | st.just(2**31 - 1)
    elif field.cpp_type in BITS:
        low, high = BITS[field.cpp_type]
        other = st.sampled_from([number for number in INTEGERS if number < high]) | st.integers(low, high - 1)
    else:
        return st.floats(width=32)
    had = [value for value in known.values.get(field.name, ()) if isinstance(value, type(field.default_value))]
    return (
        st.sampled_from(had * 2 + [None]).flatmap(lambda one: other if one is None else st.just(one)) if had else other
    )


@st.composite
def message(draw: st.DrawFn, kind: Descriptor, known: Known, depth: int = 0) -> Message:
    """A message with any of its fields, whose checksum is right now and then."""
    made: Any = GetMessageClass(kind)()
    for field in kind.fields:
        if depth > 3 or not draw(st.integers(0, 5)):
            continue
        one = single(field, known, depth)
        if field.is_repeated:
            getattr(made, field.name).extend(draw(st.lists(one, max_size=3)))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(made, field.name).CopyFrom(draw(one))
        else:
            setattr(made, field.name, draw(one))
    if kind.name == "Chunk" and draw(st.booleans()):
        made.crc32 = zlib.crc32(made.data)
    if "wait_seconds" in kind.fields_by_name:
        made.wait_seconds = 0
    return made


CALLERS = ("clinic", "insurer", "clinic", "insurer", "clinic", "insurer", "stranger")


@st.composite
def question(draw: st.DrawFn, name: str, known: Known) -> tuple[str, Identity, list[Message]]:
    """A service, who asks it, and what."""
    method = rpc(name)
    times = draw(st.integers(0, 3)) if method.client_streaming else 1
    sent = [draw(message(method.input_type, known)) for _ in range(times)]
    role = draw(st.sampled_from((*sorted(ROLES[name]) * 20, *Role)))
    caller = draw(st.sampled_from(CALLERS)) if role is Role.PARTY else str(role)
    if method.name == "CancelStudy" or any(
        each.WhichOneof("what") in FINAL for each in sent if "what" in each.DESCRIPTOR.oneofs_by_name
    ):
        caller = "stranger"
    service = method.containing_service.name
    if service == "Peer":
        service = f"Peer of {draw(st.sampled_from(('clinic', 'insurer')))}"
    federation = draw(st.sampled_from(("faults",) * 15 + ("another",)))
    return service, Identity(federation=federation, role=role, name=caller), sent


async def answer(line: Any, name: str, sent: list[Message]) -> str:
    """The code of the error that comes back, or OK."""
    method = rpc(name)
    call = getattr(line, spelt(method.name))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            if method.server_streaming:
                async with contextlib.aclosing(call(sent[0])) as parts:
                    async for _ in parts:
                        break
            else:
                await call(sent if method.client_streaming else sent[0])
    except VerticilError as error:
        str(error).encode()  # it can be shown
        return error.code
    return "OK"


def at_random(stage: Stage, name: str, examples: int, *, repeatable: bool, over_tls: bool = False) -> dict[str, int]:
    """Ask; how often which code came back. Over TLS those ask who have a certificate."""
    tally: dict[str, int] = {}

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=repeatable,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(asked=question(name, stage.known))
    def run(asked: tuple[str, Identity, list[Message]]) -> None:
        service, identity, sent = asked
        if over_tls:
            assume(identity.name in {"clinic", "insurer", "analyst"} and identity.federation == "faults")
            assume(service != f"Peer of {identity.name}")
            assume(identity.name != "analyst" or not service.startswith("Peer of "))  # they have no analyst
        line = stage.line_over_tls(service, identity.name) if over_tls else stage.line(service, identity)
        code = stage.do(answer(line, name, sent))
        tally[code] = tally.get(code, 0) + 1
        assert code == "OK" or code in CODES, code
        assert code != "INTERNAL", stage.unforeseen
        if identity.federation != "faults" or identity.role not in ROLES[name]:
            assert code == "IDENTITY_REFUSED"

    standing = stage.standing()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    assert stage.unforeseen == []
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < GROWTH_MIB
    if "/verticil.wire.v1.Coordinator/" not in name:
        assert stage.standing() == standing
    return tally


def test_the_studies_are_in_their_middle_and_their_words_are_known(stage: Stage) -> None:
    """Else the messages would end at the first check."""
    studies, _ = stage.standing()  # type: ignore[misc]  # a pair
    assert len(studies) == 1
    assert {
        "study_digest",
        "effective_digest",
        "upload_id",
        "common_sha256",
        "structure_sha256",
    } <= stage.known.values.keys()
    assert all(site.state.studies()[0].task.approved for site in stage.sites.values())


@pytest.mark.parametrize("name", METHODS)
def test_a_few_messages_at_random(name: str, stage: Stage) -> None:
    at_random(stage, name, 8, repeatable=True)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", METHODS)
def test_many_messages_at_random(name: str, stage: Stage, in_the_table: Callable[..., None]) -> None:
    tally = at_random(stage, name, 400, repeatable=False)
    detail = f"{name}: {', '.join(f'{code} {times}' for code, times in sorted(tally.items()))}"
    in_the_table("random messages at every method of every service", times=sum(tally.values()), lost=[], detail=detail)


@pytest.mark.parametrize("name", ["/verticil.wire.v1.Peer/GetColumn", "/verticil.wire.v1.Control/GetStudy"])
def test_a_few_over_tls(name: str, stage: Stage) -> None:
    at_random(stage, name, 5, repeatable=True, over_tls=True)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in METHODS if not name.endswith("/CancelStudy")])
def test_many_over_tls(name: str, stage: Stage, in_the_table: Callable[..., None]) -> None:
    tally = at_random(stage, name, 60, repeatable=False, over_tls=True)
    detail = f"{name}: {', '.join(f'{code} {times}' for code, times in sorted(tally.items()))}"
    in_the_table("random messages at every method, over mutual TLS", times=sum(tally.values()), lost=[], detail=detail)


@pytest.mark.faults
def test_both_studies_then_end_as_if_nothing_had_been_said(stage: Stage) -> None:
    stage.leave()
    for made, calm in zip(stage.federations, stage.calm(), strict=True):
        assert differences(calm, stage.published(made)) == []
