"""Calls between parties through a miner that may do what it likes with what it passes on.

The miner's relay is the real one; between it and a party stands `Way`, which keeps every envelope and lets a test change, repeat,
move or drop them. Alice asks, Bob answers, Eve is a party of the same federation.
"""

# ruff: noqa: N802 (a service's methods have the names of the wire contract)

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from support import PATIENCE_SECONDS
from verticil.miner.rules.leases import Changes
from verticil.miner.service.relay import Relay
from verticil.party.protocol.relay.client import RelayClient, RelayPeer
from verticil.party.protocol.relay.server import MESSAGES_IN_FLIGHT, RelayServer
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.transport.authorization import ROLES, RefusedCall
from verticil.shared.federation.transport.chunks import CHUNK_LIMIT
from verticil.shared.federation.transport.fetch import fetch_bytes, send_parts
from verticil.shared.federation.transport.in_memory import InMemoryCoordinator
from verticil.shared.federation.transport.interface import Peer
from verticil.shared.federation.transport.sealing import PIECE_LIMIT, Seals
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2, relay_pb2

NAMES = ("alice", "bob", "eve")
KEYS = {name: X25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i, name in enumerate(NAMES, 1)}
PINS = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}
LONG = os.urandom((2 * MESSAGES_IN_FLIGHT + 3) * CHUNK_LIMIT + 17)
SHORT = os.urandom(3 * CHUNK_LIMIT)
SECRET = b"what only bob and alice may know"


def identity(name: str) -> Identity:
    return Identity(federation="fed", role=Role.PARTY, name=name)


class Service:
    """Answers a peer; tells who asked."""

    def __init__(self) -> None:
        self.callers: list[tuple[str, str]] = []
        self.at_once = 0
        self.gate: asyncio.Event | None = None
        self.refusal: VerticilError | None = None

    def _note(self, who: Identity, method: str) -> None:
        self.callers.append((who.name, method))

    async def Hello(self, who: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        self._note(who, "Hello")
        return common_pb2.HelloReply(software_version=request.software_version, federation=who.federation)

    async def GetStudyDigest(
        self, who: Identity, request: peer_pb2.GetStudyDigestRequest
    ) -> peer_pb2.GetStudyDigestReply:
        self._note(who, "GetStudyDigest")
        if self.refusal is not None:
            raise self.refusal
        self.at_once += 1
        if self.gate is not None:
            await self.gate.wait()
        return peer_pb2.GetStudyDigestReply(study_digest=SECRET, software="x" * (2 * PIECE_LIMIT))

    async def _parts(self, data: bytes, offset: int) -> AsyncIterator[peer_pb2.Part]:
        async for part in send_parts(data, offset=offset, what="whole"):
            yield part

    def GetPseudonyms(self, who: Identity, request: peer_pb2.GetPseudonymsRequest) -> AsyncIterator[peer_pb2.Part]:
        self._note(who, "GetPseudonyms")
        return self._parts(LONG, request.offset)

    def GetColumn(self, who: Identity, request: peer_pb2.GetColumnRequest) -> AsyncIterator[peer_pb2.Part]:
        self._note(who, "GetColumn")
        return self._parts(SHORT, request.offset)

    async def GetParameters(
        self, who: Identity, request: peer_pb2.GetParametersRequest
    ) -> AsyncIterator[peer_pb2.Part]:
        self._note(who, "GetParameters")
        raise RuntimeError("a value of the table")
        yield

    async def GetSignature(self, who: Identity, request: peer_pb2.GetSignatureRequest) -> peer_pb2.GetSignatureReply:
        self._note(who, "GetSignature")
        raise Refusal("STUDY_DENIED", "study: denied by 'bob'")

    async def GetDeletion(self, who: Identity, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        self._note(who, "GetDeletion")
        raise PeerFault("NOT_READY", "the study has not ended here")

    async def ListMasked(self, who: Identity, request: peer_pb2.ListMaskedRequest) -> peer_pb2.ListMaskedReply:
        self._note(who, "ListMasked")
        return peer_pb2.ListMaskedReply(index=set(range(5)) - set(request.have))

    def GetMasked(self, who: Identity, request: peer_pb2.GetMaskedRequest) -> AsyncIterator[peer_pb2.Part]:
        self._note(who, "GetMasked")
        return self._parts(LONG, request.offset)


class Miner:
    """The coordinator's two methods on a real relay, and what a dishonest one may do."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, str, bytes]] = []
        self.deliver: Callable[[str, str, bytes], list[tuple[str, bytes]]] = lambda source, _, sealed: [
            (source, sealed)
        ]
        """(source, recipient, envelope) -> what is told instead."""
        self.accept: Callable[[str, str, bytes], list[bytes]] = lambda source, recipient, sealed: [sealed]
        """The same -> what is kept instead."""
        self.open()

    def open(self) -> None:
        """Start, or start anew."""
        self.changes = Changes()
        self.relay = Relay(self.changes, max_bytes=1 << 28, monotonic=asyncio.get_running_loop().time)

    async def PutRelay(self, who: Identity, request: coordinator_pb2.PutRelayRequest) -> coordinator_pb2.PutRelayReply:
        self.passed.append((who.name, request.recipient, request.sealed))
        for sealed in self.accept(who.name, request.recipient, request.sealed):
            self.relay.put(who.name, request.recipient, sealed)
        return coordinator_pb2.PutRelayReply()

    async def TakeRelay(
        self, who: Identity, request: coordinator_pb2.TakeRelayRequest
    ) -> coordinator_pb2.TakeRelayReply:
        reply = await self.relay.take(who.name, request)
        told = coordinator_pb2.TakeRelayReply(box=reply.box)
        for envelope in reply.envelopes:
            for source, sealed in self.deliver(envelope.source, who.name, envelope.sealed):
                told.envelopes.add(number=envelope.number, source=source, sealed=sealed)
        return told


class Site:
    """A running party's side of the relay."""

    def __init__(
        self,
        miner: Miner,
        name: str,
        *,
        answers: bool = True,
        idle: float = PATIENCE_SECONDS,
        line: type[InMemoryCoordinator] = InMemoryCoordinator,
    ) -> None:
        self.name, self.service, self._idle = name, Service(), idle
        seals = Seals(identity(name), KEYS[name], PINS)
        self.post = RelayClient(seals, lambda: line(miner, identity(name)), patience_seconds=idle)
        self.refused: list[RefusedCall] = []
        self.answering = RelayServer(self.service if answers else None, "fed", self.post, self.refused.append)
        self.challenges: dict[str, bytes] = {}

    def peer(self, name: str, *, idle: float | None = None) -> RelayPeer:
        return RelayPeer(self.post, name, self.challenges, idle_timeout_seconds=self._idle if idle is None else idle)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Site]:
        task = asyncio.create_task(self.post.run(self.answering))
        try:
            await until(lambda: self.post._line is not None)
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self.answering.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def federation(*names: str, miner: Miner | None = None) -> AsyncIterator[tuple[Miner, dict[str, Site]]]:
    relay = miner if miner is not None else Miner()
    async with contextlib.AsyncExitStack() as stack:
        sites = {
            name: await stack.enter_async_context(Site(relay, name).running()) for name in names or ("alice", "bob")
        }
        yield relay, sites


async def read(peer: Peer, method: str = "get_pseudonyms") -> bytes:
    requests = {
        "get_pseudonyms": peer_pb2.GetPseudonymsRequest,
        "get_column": peer_pb2.GetColumnRequest,
        "get_masked": peer_pb2.GetMaskedRequest,
    }
    return await fetch_bytes(
        lambda offset: getattr(peer, method)(requests[method](offset=offset)), limit_bytes=1 << 26, what="whole"
    )


async def fails(code: str, call: object) -> VerticilError:
    with pytest.raises(VerticilError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code == code, caught.value
    return caught.value


def opened(passed: list[tuple[str, str, bytes]]) -> Iterator[tuple[str, str, relay_pb2.RelayMessage]]:
    """What the envelopes say, to whoever has the recipients' keys."""
    for source, recipient, sealed in passed:
        plain = Seals(identity(recipient), KEYS[recipient], PINS).open(source, sealed)
        yield source, recipient, relay_pb2.RelayMessage.FromString(plain)


# --- calls pass ---


async def test_feature_12_every_call_passes_with_both_sides_only_dialling_out() -> None:
    async with federation() as (_, sites):
        alice, bob = sites["alice"].peer("bob"), sites["bob"].service
        assert (await alice.hello(common_pb2.HelloRequest(software_version="1"))).federation == "fed"
        told = await alice.get_study_digest(peer_pb2.GetStudyDigestRequest())
        assert (told.study_digest, len(told.software)) == (SECRET, 2 * PIECE_LIMIT), "a reply in three pieces"
        assert await read(alice) == LONG
        assert await read(alice, "get_column") == SHORT
        error = await fails("STUDY_DENIED", alice.get_signature(peer_pb2.GetSignatureRequest()))
        assert isinstance(error, Refusal)
        with pytest.raises(VerticilError) as caught:
            async for _ in alice.get_parameters(peer_pb2.GetParametersRequest()):
                pass
        assert caught.value.code == "INTERNAL"
        assert "value" not in caught.value.message
        await fails("NOT_READY", alice.get_deletion(peer_pb2.GetDeletionRequest()))
        assert (await alice.list_masked(peer_pb2.ListMaskedRequest(have=[0, 2]))).index == [1, 3, 4]
        assert await read(alice, "get_masked") == LONG
        assert {caller for caller, _ in bob.callers} == {"alice"}
        assert {f"/verticil.wire.v1.Peer/{method}" for _, method in bob.callers} == {m for m in ROLES if "Peer/" in m}
        # the other way round, at the same time
        assert (await sites["bob"].peer("alice").hello(common_pb2.HelloRequest())).federation == "fed"
        await alice.close()
        await fails("UNREACHABLE", alice.hello(common_pb2.HelloRequest()))


async def test_feature_12_a_stream_is_read_in_windows_and_the_miner_never_holds_more() -> None:
    async with federation() as (miner, sites):
        held: list[int] = []
        put = miner.relay.put

        def watched(sender: str, recipient: str, sealed: bytes) -> None:
            put(sender, recipient, sealed)
            held.append(miner.relay._bytes_from["bob"])

        miner.relay.put = watched  # type: ignore[method-assign]
        assert await read(sites["alice"].peer("bob")) == LONG
        assert sum(method == "GetPseudonyms" for _, method in sites["bob"].service.callers) == 3
        assert max(held) < (MESSAGES_IN_FLIGHT + 1) * 2**19


async def test_feature_12_who_is_not_there_is_named_at_once() -> None:
    async with federation("alice") as (_, sites):
        error = await fails("UNREACHABLE", sites["alice"].peer("bob").hello(common_pb2.HelloRequest()))
        assert "'bob'" in error.message


async def test_feature_12_a_party_that_is_dialled_answers_nothing_here() -> None:
    miner = Miner()
    async with Site(miner, "alice").running() as alice, Site(miner, "bob", answers=False).running():
        error = await fails("UNREACHABLE", alice.peer("bob").hello(common_pb2.HelloRequest()))
        assert "federation.toml" in error.hint


async def test_feature_07_who_is_refused_through_the_relay_is_told_to_the_audit() -> None:
    async with federation() as (_, sites):
        sites["bob"].service.refusal = PeerFault("PARTY_UNKNOWN", "not in this study")
        await fails("PARTY_UNKNOWN", sites["alice"].peer("bob").get_study_digest(peer_pb2.GetStudyDigestRequest()))
        await until(lambda: bool(sites["bob"].refused))
        (call,) = sites["bob"].refused
    assert (call.caller, call.code) == ("verticil://fed/party/alice", "PARTY_UNKNOWN")
    assert call.method == "/verticil.wire.v1.Peer/GetStudyDigest"
    assert sites["alice"].refused == []


async def test_calls_of_one_peer_are_bounded() -> None:
    async with federation() as (_, sites):
        bob = sites["bob"].service
        bob.gate = asyncio.Event()
        alice = sites["alice"].peer("bob")
        await alice.hello(common_pb2.HelloRequest())
        asked = [asyncio.create_task(alice.get_study_digest(peer_pb2.GetStudyDigestRequest())) for _ in range(12)]
        await until(lambda: (sum(task.done() for task in asked), bob.at_once) == (4, 8))
        bob.gate.set()
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert {found.code for found in done if isinstance(found, PeerFault)} == {"RESOURCE_EXHAUSTED"}
        assert sum(isinstance(found, peer_pb2.GetStudyDigestReply) for found in done) == 8


# --- what the miner sees, and what it cannot do ---


async def test_feature_13_the_miner_sees_no_byte_of_what_is_told() -> None:
    async with federation() as (miner, sites):
        alice = sites["alice"].peer("bob")
        await alice.get_study_digest(peer_pb2.GetStudyDigestRequest(study_id="a-study", study_digest=b"d" * 32))
        assert await read(alice, "get_column") == SHORT
        seen = b"".join(sealed for *_, sealed in miner.passed)
        needles = [
            SECRET,
            b"a-study",
            b"d" * 16,
            b"GetColumn",
            b"xxxxxxxx",
            *(SHORT[i : i + 8] for i in (0, 5000, 10**6)),
        ]
        assert [needle for needle in needles if needle in seen] == []
        plain = b"".join(message.SerializeToString() for *_, message in opened(miner.passed))
        assert [needle for needle in needles if needle not in plain] == [], "the search would have found them"


@pytest.mark.parametrize("recipient", ["bob", "alice"], ids=["request", "answer"])
async def test_feature_13_a_tampered_envelope_is_dropped(recipient: str) -> None:
    async with federation() as (miner, sites):
        await sites["alice"].peer("bob").hello(common_pb2.HelloRequest())
        asked = len(sites["bob"].service.callers)

        def tamper(source: str, to: str, sealed: bytes) -> list[tuple[str, bytes]]:
            changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
            return [(source, changed if to == recipient else sealed)]

        miner.deliver = tamper
        alice = sites["alice"].peer("bob", idle=0.2)

        def told() -> bool:
            return len(sites["bob"].service.callers) > asked

        # On a slow machine a question may not even leave in time, and something else than its answer be refused first.
        while not (sites[recipient].post.refused and (recipient == "bob" or told())):
            await fails("DEADLINE", alice.get_study_digest(peer_pb2.GetStudyDigestRequest()))
        assert told() == (recipient == "alice")


async def test_feature_13_nothing_is_accepted_from_a_wrong_sender() -> None:
    """The miner gives Eve's envelopes out as Alice's, and Eve, who has a pinned key, writes as well as she can."""
    async with federation(*NAMES) as (miner, sites):
        miner.deliver = lambda source, _, sealed: [("alice" if source == "eve" else source, sealed)]
        while not sites["bob"].post.refused:
            await fails("DEADLINE", sites["eve"].peer("bob", idle=0.2).hello(common_pb2.HelloRequest()))
        assert sites["bob"].service.callers == []
        miner.deliver = lambda source, _, sealed: [(source, sealed), ("nobody", sealed), ("", sealed)]
        assert (await sites["alice"].peer("bob").hello(common_pb2.HelloRequest())).federation == "fed"
        assert {caller for caller, _ in sites["bob"].service.callers} == {"alice"}


async def test_feature_13_an_answer_of_another_party_is_no_answer() -> None:
    """Eve has heard of Alice's call by magic, and answers it under her own name."""
    async with federation(*NAMES) as (miner, sites):
        bob = sites["bob"].service
        bob.gate = asyncio.Event()
        asked = asyncio.create_task(sites["alice"].peer("bob").get_study_digest(peer_pb2.GetStudyDigestRequest()))
        await until(lambda: bob.at_once > 0)
        call = next(m.call for s, r, m in reversed(list(opened(miner.passed))) if (s, r) == ("alice", "bob"))
        forged = peer_pb2.GetStudyDigestReply(study_digest=b"forged").SerializeToString()
        for number, reply in enumerate(
            (relay_pb2.RelayReply(data=forged, whole=True), relay_pb2.RelayReply(last=True))
        ):
            await sites["eve"].post.send("alice", relay_pb2.RelayMessage(call=call, sequence=number, reply=reply))
        await sites["eve"].post.send("alice", relay_pb2.RelayMessage(call=call, challenge=b"c" * 16))
        bob.gate.set()
        assert (await asked).study_digest == SECRET


async def test_feature_13_a_replayed_request_is_answered_once() -> None:
    async with federation() as (miner, sites):
        miner.deliver = lambda source, _, sealed: [(source, sealed)] * 3
        alice, bob = sites["alice"].peer("bob"), sites["bob"].service
        for expected in (1, 2):
            await alice.hello(common_pb2.HelloRequest())
            assert bob.callers == [("alice", "Hello")] * expected
        assert await read(alice, "get_column") == SHORT, "answers that come three times are read once"


async def test_feature_13_a_request_of_before_a_restart_is_not_answered() -> None:
    """The miner has kept it and gives it to Bob's next process, which asks for a fresh one; nobody waits for that."""
    miner = Miner()
    async with Site(miner, "alice").running() as alice:
        async with Site(miner, "bob").running():
            await alice.peer("bob").hello(common_pb2.HelloRequest())
        kept = [
            passed[2]
            for passed, (*_, message) in zip(miner.passed, opened(miner.passed), strict=True)
            if message.WhichOneof("what") == "request"
        ]
        assert len(kept) >= 2, "without a challenge, and with it"
        async with Site(miner, "bob").running() as anew:
            before = len(miner.passed)
            for sealed in kept:
                miner.relay.put("alice", "bob", sealed)
            kinds: list[str | None] = []

            def told() -> bool:
                kinds[:] = [message.WhichOneof("what") for *_, message in opened(miner.passed[before:])]
                return kinds.count("challenge") >= len(kept)

            await until(told)
            assert "reply" not in kinds
            assert anew.service.callers == []
            assert (await alice.peer("bob").hello(common_pb2.HelloRequest())).federation == "fed"


async def test_feature_13_reordered_and_missing_pieces_are_refused() -> None:
    """Two pieces change places, or one is dropped: the call fails, and no message of a wrong order is told."""
    async with federation() as (miner, sites):
        alice = sites["alice"].peer("bob")
        await alice.hello(common_pb2.HelloRequest())
        held: list[bytes] = []

        def swap(_: str, to: str, sealed: bytes) -> list[bytes]:
            if to == "alice" and len(sealed) > PIECE_LIMIT and not held:
                held.append(sealed)
                return []
            return [sealed, *(held if to == "alice" else [])]

        def drop(_: str, to: str, sealed: bytes) -> list[bytes]:
            return [] if to == "alice" and len(sealed) > PIECE_LIMIT else [sealed]

        for accept in (swap, drop):
            miner.accept = accept
            error = await fails("CHUNK_CORRUPT", alice.get_study_digest(peer_pb2.GetStudyDigestRequest()))
            assert "expected 0" in error.message


async def test_feature_13_a_truncated_answer_is_not_taken_for_a_whole() -> None:
    """The mark of the end never comes. What came before it in a stream is kept, and read on."""
    async with federation() as (miner, sites):
        await sites["alice"].peer("bob").hello(common_pb2.HelloRequest())
        alice = sites["alice"].peer("bob", idle=1)
        dropped = 0

        def truncate(source: str, to: str, sealed: bytes) -> list[bytes]:
            nonlocal dropped
            message = relay_pb2.RelayMessage.FromString(Seals(identity(to), KEYS[to], PINS).open(source, sealed))
            end = message.reply.last or message.sequence >= 2
            dropped += to == "alice" and end
            return [] if to == "alice" and end else [sealed]

        miner.accept = truncate
        parts: list[peer_pb2.Part] = []

        async def read_once() -> None:
            async for part in alice.get_column(peer_pb2.GetColumnRequest()):
                parts.append(part)

        await fails("DEADLINE", read_once())
        assert len(parts) <= 2
        found = b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not found:
                with contextlib.suppress(PeerFault):  # on a slow machine a call may bring nothing in a second
                    found = await read(alice, "get_column")
        assert found == SHORT
        assert dropped > 1


async def test_feature_13_the_miner_cannot_send_an_envelope_back() -> None:
    async with federation() as (miner, sites):
        miner.deliver = lambda source, _, sealed: [(source, sealed)]
        alice = sites["alice"].peer("bob")
        await alice.hello(common_pb2.HelloRequest())
        mine = next(sealed for source, _, sealed in miner.passed if source == "alice")
        refused = sites["alice"].post.refused
        miner.relay.put("bob", "alice", mine)
        await until(lambda: sites["alice"].post.refused == refused + 1)
        assert sites["alice"].service.callers == []


# --- whatever breaks is only a retry ---


async def test_feature_12_calls_go_on_at_once_when_the_miner_is_started_anew() -> None:
    async with federation() as (miner, sites):
        alice, bob = sites["alice"].peer("bob"), sites["bob"].service
        await alice.hello(common_pb2.HelloRequest())
        bob.gate = asyncio.Event()
        asked = asyncio.create_task(alice.get_study_digest(peer_pb2.GetStudyDigestRequest()))
        await until(lambda: bob.at_once == 1)
        miner.changes.close()  # every box is lost, and whoever waits is answered
        miner.open()
        await until(lambda: {"alice", "bob"} <= set(miner.relay._boxes))
        bob.gate.set()
        done = await asyncio.gather(
            asked, return_exceptions=True
        )  # asked again before the deadline, if Bob was there first
        assert isinstance(done[0], PeerFault | peer_pb2.GetStudyDigestReply)
        assert (await alice.get_study_digest(peer_pb2.GetStudyDigestRequest())).study_digest == SECRET


async def test_feature_12_a_miner_that_is_started_anew_amid_a_stream_costs_its_rest() -> None:
    async with federation() as (miner, sites):
        restarts = 0

        def restart(source: str, to: str, sealed: bytes) -> list[tuple[str, bytes]]:
            nonlocal restarts
            if to == "alice" and len(sealed) > CHUNK_LIMIT and restarts < 3:
                restarts += 1
                miner.changes.close()
                miner.open()
            return [(source, sealed)]

        miner.deliver = restart
        data = b""
        for _ in range(20):
            await until(lambda: {"alice", "bob"} <= set(miner.relay._boxes))
            with contextlib.suppress(PeerFault):  # as the party's daemon: it asks again
                data = await read(sites["alice"].peer("bob"))
                break
        assert data == LONG
        assert restarts == 3


async def test_feature_12_a_peer_that_is_started_anew_is_asked_again() -> None:
    miner = Miner()
    async with Site(miner, "alice").running() as alice:
        async with Site(miner, "bob").running() as bob:
            bob.service.gate = asyncio.Event()
            asked = asyncio.create_task(alice.peer("bob").get_study_digest(peer_pb2.GetStudyDigestRequest()))
            await until(lambda: bob.service.at_once == 1)
        assert not asked.done(), "a killed party says nothing"
        async with Site(miner, "bob").running():
            assert (await asked).study_digest == SECRET, "it was asked again by itself"
            assert await read(alice.peer("bob")) == LONG


async def test_feature_12_lost_replies_of_the_miner_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third answer of the miner is lost on its way, after it has acted."""
    n_calls = 0

    class Unsteady(InMemoryCoordinator):
        async def put_relay(self, request: coordinator_pb2.PutRelayRequest) -> coordinator_pb2.PutRelayReply:
            return await self._maybe(await super().put_relay(request))

        async def take_relay(self, request: coordinator_pb2.TakeRelayRequest) -> coordinator_pb2.TakeRelayReply:
            return await self._maybe(await super().take_relay(request))

        async def _maybe(self, reply):
            nonlocal n_calls
            n_calls += 1
            if n_calls % 3 == 0:
                raise PeerFault("UNREACHABLE", "the reply was lost")
            return reply

    monkeypatch.setattr("verticil.party.protocol.retry.secrets.SystemRandom.random", lambda _: 0.01)
    miner = Miner()
    async with Site(miner, "alice", line=Unsteady).running() as alice, Site(miner, "bob", line=Unsteady).running():
        peer = alice.peer("bob")
        n_read = 0
        while n_calls <= 60 or not n_read:
            with contextlib.suppress(PeerFault):  # the request itself is not repeated; whoever asks does that
                assert await read(peer, "get_column") == SHORT
                n_read += 1
            await asyncio.sleep(0.01)  # a request whose reply was lost may fail at once
