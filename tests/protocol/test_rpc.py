"""Calls over real loopback mutual TLS: who is let in, what errors become, streams, limits, stopping.

The same service object is also called through the in-memory transport, which must answer alike.
"""

# ruff: noqa: N802 (a service's methods have the names of the wire contract)

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import mmap
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # compiled, without stubs

from support import PATIENCE_SECONDS
from support.ports import free_port
from support.refusals import fails
from verticil.shared.core.errors import CODES, InternalFault, Misuse, PeerFault, Refusal, VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    Credentials,
    certificate_sha256,
    load_credentials,
    read_certificates,
    utc_now,
)
from verticil.shared.federation.transport.authorization import ROLES
from verticil.shared.federation.transport.channel import diagnose
from verticil.shared.federation.transport.chunks import STREAM_LIMIT, ChunkReader, make_chunks
from verticil.shared.federation.transport.client import CLIENT_OPTIONS, Connection, GrpcControl, GrpcCoordinator
from verticil.shared.federation.transport.errors_on_wire import retriable
from verticil.shared.federation.transport.health import check_health
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.federation.transport.interface import MESSAGE_LIMIT, Control, Coordinator, bind
from verticil.shared.federation.transport.server import SERVER_OPTIONS, RpcServer
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2, peer_pb2

CANARY = "canary-7f3a"
DIGEST = b"\x01" * 32


Part = common_pb2.ReleasePart


class Miner:
    """A service that does as it is told by the request."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.parked = asyncio.Event()
        self.release = asyncio.Event()
        self.cleaned_up = asyncio.Event()
        self.sent_parts = 0

    async def Hello(self, identity: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        self.callers.append(identity.uri)
        return common_pb2.HelloReply(
            protocol_version=2, software_version=request.software_version, federation=identity.federation
        )

    async def Poll(self, identity: Identity, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        self.parked.set()
        try:
            if request.wait_seconds:
                await self.release.wait()
        finally:
            self.cleaned_up.set()
        return coordinator_pb2.PollReply(lease_seconds=7)

    async def Report(self, identity: Identity, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        code = request.failure.code
        if code == "unforeseen":
            raise ValueError(CANARY)
        family = CODES[code][0]
        kind = next(kind for kind in VerticilError.__subclasses__() if kind.__name__ == family)
        raise kind(code, "unit 3: got 4, expected 5", hint="look again")

    async def PutPseudonyms(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutPseudonymsRequest]
    ) -> coordinator_pb2.PutPseudonymsReply:
        first = await anext(requests)
        reader = ChunkReader(offset=0, size=first.size)
        if first.HasField("chunk"):
            reader.read(first.chunk)
        async for request in requests:
            reader.read(request.chunk)
        return coordinator_pb2.PutPseudonymsReply(committed_offset=reader.offset, complete=reader.offset == first.size)

    async def GetAlignment(
        self, identity: Identity, request: coordinator_pb2.GetAlignmentRequest
    ) -> AsyncIterator[coordinator_pb2.AlignmentPart]:
        try:
            for chunk in make_chunks(os.urandom(STREAM_LIMIT), offset=request.offset):
                self.sent_parts += 1
                yield coordinator_pb2.AlignmentPart(chunk=chunk)
        finally:
            self.cleaned_up.set()

    async def PutBlinded(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutBlindedRequest]
    ) -> coordinator_pb2.PutBlindedReply:
        first = await anext(requests)
        reader = ChunkReader(offset=0, size=first.size)
        async for request in requests:
            reader.read(request.chunk)
        return coordinator_pb2.PutBlindedReply(committed_offset=reader.offset, complete=reader.offset == first.size)

    async def GetBlinded(
        self, identity: Identity, request: coordinator_pb2.GetBlindedRequest
    ) -> AsyncIterator[coordinator_pb2.BlindedPart]:
        for chunk in make_chunks(bytes(2000), offset=request.offset, chunk_bytes=1000):
            yield coordinator_pb2.BlindedPart(part=peer_pb2.Part(size=2000, chunk=chunk))

    async def PutRelay(
        self, identity: Identity, request: coordinator_pb2.PutRelayRequest
    ) -> coordinator_pb2.PutRelayReply:
        return coordinator_pb2.PutRelayReply()

    async def TakeRelay(
        self, identity: Identity, request: coordinator_pb2.TakeRelayRequest
    ) -> coordinator_pb2.TakeRelayReply:
        return coordinator_pb2.TakeRelayReply()

    async def ListMasked(self, identity: Identity, request: peer_pb2.ListMaskedRequest) -> peer_pb2.ListMaskedReply:
        return peer_pb2.ListMaskedReply(index=set(range(5)) - set(request.have))

    async def GetMasked(self, identity: Identity, request: peer_pb2.GetMaskedRequest) -> AsyncIterator[peer_pb2.Part]:
        for chunk in make_chunks(bytes(2000), offset=request.offset, chunk_bytes=1000):
            yield peer_pb2.Part(size=2000, chunk=chunk)

    async def PutMasked(
        self, identity: Identity, requests: AsyncIterator[coordinator_pb2.PutMaskedRequest]
    ) -> coordinator_pb2.PutMaskedReply:
        first = await anext(requests)
        reader = ChunkReader(offset=0, size=first.size)
        async for request in requests:
            reader.read(request.chunk)
        return coordinator_pb2.PutMaskedReply(committed_offset=reader.offset, complete=reader.offset == first.size)

    async def BeginUpload(
        self, identity: Identity, request: coordinator_pb2.BeginUploadRequest
    ) -> coordinator_pb2.BeginUploadReply:
        return coordinator_pb2.BeginUploadReply(upload_id="u" * request.unit)

    async def PutChunks(self, identity: Identity, requests: AsyncIterator[common_pb2.Chunk]) -> common_pb2.ChunkAck:
        reader = ChunkReader(offset=0, size=STREAM_LIMIT, upload_id="u")
        try:
            async for chunk in requests:
                if chunk.upload_id == "stop":
                    return common_pb2.ChunkAck(committed_offset=1)
                reader.read(chunk)
        finally:
            self.cleaned_up.set()
        return common_pb2.ChunkAck(committed_offset=reader.offset)

    async def FinishUpload(
        self, identity: Identity, request: coordinator_pb2.FinishUploadRequest
    ) -> coordinator_pb2.FinishUploadReply:
        raise AssertionError("not called")

    async def GetRelease(
        self, identity: Identity, request: common_pb2.GetReleaseRequest
    ) -> AsyncIterator[common_pb2.ReleasePart]:
        for part in make_chunks(b"release", offset=request.offset, chunk_bytes=4):
            yield common_pb2.ReleasePart(size=7, chunk=part)
        if request.path == "broken":
            raise Misuse("FILE_MISSING", "release: no such file")
        if request.path == "stalls":
            await asyncio.Event().wait()

    async def PutScores(
        self, identity: Identity, request: coordinator_pb2.PutScoresRequest
    ) -> coordinator_pb2.PutScoresReply:
        return coordinator_pb2.PutScoresReply(waiting_for=[identity.name] * len(request.information))


class Desk:
    async def SubmitStudy(
        self, identity: Identity, request: control_pb2.SubmitStudyRequest
    ) -> control_pb2.SubmitStudyReply:
        return control_pb2.SubmitStudyReply(study_digest=request.proposal)

    async def GetStudy(self, identity: Identity, request: control_pb2.GetStudyRequest) -> control_pb2.GetStudyReply:
        raise Misuse("STUDY_UNKNOWN", f"study '{request.study_id}': unknown", hint="verticil study list")

    async def ListStudies(
        self, identity: Identity, request: control_pb2.ListStudiesRequest
    ) -> control_pb2.ListStudiesReply:
        return control_pb2.ListStudiesReply(studies=[control_pb2.StudySummary(title=identity.name)])

    async def CancelStudy(
        self, identity: Identity, request: control_pb2.CancelStudyRequest
    ) -> control_pb2.CancelStudyReply:
        return control_pb2.CancelStudyReply(state=common_pb2.STUDY_STATE_WITHDRAWN)

    async def GetRelease(
        self, identity: Identity, request: common_pb2.GetReleaseRequest
    ) -> AsyncIterator[common_pb2.ReleasePart]:
        yield common_pb2.ReleasePart(size=1)


# --- a federation, another one with the same names, and one whose certificates have expired -------------------------------


class Federations:
    def __init__(self, home: Path) -> None:
        self.home = home
        past = utc_now() - dt.timedelta(days=300)
        for folder, name in (("fed", "fed"), ("twin", "fed")):
            create_authority(home / folder, name, at=past, days=3650)
            for node, role, hosts in (
                ("alice", Role.PARTY, []),
                ("bob", Role.PARTY, []),
                ("lee", Role.ANALYST, []),
                ("miner", Role.MINER, ["localhost", "127.0.0.1"]),
                ("elsewhere", Role.MINER, ["miner.example.org"]),
            ):
                issue(home / folder, node, role, home / folder / "nodes", hosts=hosts)
        issue(home / "fed", "late", Role.PARTY, home / "fed" / "nodes", at=past)
        issue(home / "fed", "old", Role.MINER, home / "fed" / "nodes", hosts=["localhost", "127.0.0.1"], at=past)

    def federation(self, folder: str) -> Federation:
        ca = self.home / folder / "ca.crt"
        sha256 = certificate_sha256(read_certificates(ca)[0])
        return Federation(
            name="fed",
            ca_certificate=ca,
            ca_sha256=sha256,
            endpoint="localhost:1",
            idle_timeout_seconds=PATIENCE_SECONDS,
            chunk_bytes=1024,
        )

    def credentials(self, name: str, folder: str = "fed", *, at: dt.datetime | None = None) -> Credentials:
        base = self.home / folder / "nodes" / name
        return load_credentials(base.with_suffix(".crt"), base.with_suffix(".key"), self.federation(folder), at=at)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Federations:
    return Federations(tmp_path_factory.mktemp("federations"))


@contextlib.asynccontextmanager
async def serving(
    credentials: Credentials,
    *,
    miner: Miner | None = None,
    grace: float = 5.0,
    listen: str = "127.0.0.1:0",
    **options: object,
) -> AsyncIterator[tuple[int, Miner]]:
    miner = miner or Miner()
    server = RpcServer(listen, credentials, [bind(Coordinator, miner), bind(Control, Desk())], **options)  # type: ignore[arg-type]
    port = await server.start()
    try:
        yield port, miner
    finally:
        await server.stop(grace_seconds=grace)
        await server.stop()


@contextlib.asynccontextmanager
async def party(
    port: int, credentials: Credentials, *, idle: float = PATIENCE_SECONDS, host: str = "127.0.0.1"
) -> AsyncIterator[GrpcCoordinator]:
    coordinator = GrpcCoordinator(Connection(f"{host}:{port}", credentials, idle_timeout_seconds=idle))
    try:
        yield coordinator
    finally:
        await coordinator.close()
        await coordinator.close()


def hello() -> common_pb2.HelloRequest:
    return common_pb2.HelloRequest(protocol_version=2, software_version="0.1.0")


def failure(code: str) -> coordinator_pb2.ReportRequest:
    return coordinator_pb2.ReportRequest(study_digest=DIGEST, failure=common_pb2.ErrorDetail(code=code))


# --- who is let in ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_party_is_known_by_its_certificate(nodes: Federations, host: str) -> None:
    async with (
        serving(nodes.credentials("miner")) as (port, miner),
        party(port, nodes.credentials("alice"), host=host) as alice,
    ):
        reply = await alice.hello(hello())
    assert (reply.software_version, reply.federation) == ("0.1.0", "fed")
    assert miner.callers == ["verticil://fed/party/alice"]


async def test_a_client_of_another_authority_is_refused_by_tls(nodes: Federations) -> None:
    twin = nodes.credentials("alice", "twin")
    trusting = replace(twin, ca_pem=nodes.credentials("alice").ca_pem)
    async with serving(nodes.credentials("miner")) as (port, miner), party(port, trusting) as alice:
        with fails("TLS_REFUSED", "does not accept our certificate", "verticil://fed/party/alice", "one authority"):
            await alice.hello(hello())
    assert miner.callers == []


async def test_a_client_without_a_certificate_is_refused_by_tls(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, miner):
        anonymous = grpc.ssl_channel_credentials(nodes.credentials("alice").ca_pem)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", anonymous) as channel:
            call = channel.unary_unary("/verticil.wire.v1.Coordinator/Hello")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"", timeout=PATIENCE_SECONDS)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/verticil.wire.v1.Coordinator/Hello")(b"", timeout=PATIENCE_SECONDS)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert miner.callers == []


async def test_a_signing_certificate_is_no_tls_certificate(nodes: Federations) -> None:
    base = nodes.home / "fed" / "nodes" / "alice"
    signing = b"-----BEGIN" + base.with_suffix(".crt").read_bytes().split(b"-----BEGIN")[2]
    credentials = grpc.ssl_channel_credentials(
        nodes.credentials("alice").ca_pem, base.with_suffix(".sign").read_bytes(), signing
    )
    async with (
        serving(nodes.credentials("miner")) as (port, miner),
        grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/verticil.wire.v1.Coordinator/Hello")(b"", timeout=PATIENCE_SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert miner.callers == []


async def test_a_client_whose_certificate_has_expired_is_told_so(nodes: Federations) -> None:
    with fails("CERTIFICATE_INVALID", "expired at"):
        nodes.credentials("late")
    late = nodes.credentials("late", at=utc_now() - dt.timedelta(days=299))
    async with serving(nodes.credentials("miner")) as (port, miner), party(port, late) as client:
        with fails("TLS_REFUSED", "our certificate late.crt expired at"):
            await client.hello(hello())
    assert miner.callers == []


async def test_a_certificate_that_expires_while_the_connection_lives_is_refused(nodes: Federations) -> None:
    now = [utc_now()]
    async with (
        serving(nodes.credentials("miner"), clock=lambda: now[0]) as (port, _),
        party(port, nodes.credentials("alice")) as alice,
    ):
        await alice.hello(hello())
        now[0] += dt.timedelta(days=91)
        with fails("CERTIFICATE_INVALID", "it expired at"):
            await alice.hello(hello())


@pytest.mark.parametrize(
    ("server", "folder", "host", "texts"),
    [
        ("miner", "twin", "127.0.0.1", ["its certificate does not hold", "another authority"]),
        ("elsewhere", "fed", "localhost", ["its certificate does not hold", "subject alternative name"]),
        ("old", "fed", "127.0.0.1", ["its certificate does not hold", "expired", "new certificate"]),
    ],
)
async def test_a_server_that_is_not_the_miner_gets_no_request(
    nodes: Federations, server: str, folder: str, host: str, texts: list[str]
) -> None:
    theirs = nodes.credentials(server, folder, at=utc_now() - dt.timedelta(days=299) if server == "old" else None)
    async with serving(theirs) as (port, miner), party(port, nodes.credentials("alice"), host=host) as alice:
        with fails("TLS_REFUSED", *texts):
            await alice.hello(hello())
    assert miner.callers == []


async def test_a_name_given_for_the_server_replaces_the_endpoints_host(nodes: Federations) -> None:
    async with serving(nodes.credentials("elsewhere")) as (port, _):
        for name, accepted in (("miner.example.org", True), ("other.example.org", False)):
            connection = Connection(f"127.0.0.1:{port}", nodes.credentials("alice"), server_name=name)
            with contextlib.nullcontext() if accepted else fails("TLS_REFUSED", "subject alternative name"):
                await GrpcCoordinator(connection).hello(hello())
            await connection.close()


async def test_a_party_cannot_serve(nodes: Federations) -> None:
    async with serving(nodes.credentials("alice")) as (port, miner), party(port, nodes.credentials("alice")) as alice:
        with fails("TLS_REFUSED"):
            await alice.hello(hello())
    assert miner.callers == []


@pytest.mark.parametrize("name", ["lee", "miner"])
async def test_another_role_is_refused_before_the_service(nodes: Federations, name: str) -> None:
    async with serving(nodes.credentials("miner")) as (port, miner), party(port, nodes.credentials(name)) as caller:
        with fails("IDENTITY_REFUSED", "Hello", "expected role party"):
            await caller.hello(hello())
        with fails("IDENTITY_REFUSED"):
            await caller.put_chunks([])
        with fails("IDENTITY_REFUSED"):
            await anext(caller.get_release(common_pb2.GetReleaseRequest()))
    assert miner.callers == []


async def test_another_federation_of_the_same_authority_is_refused(nodes: Federations) -> None:
    """TLS cannot tell federations of one authority apart; the identity does."""
    other = replace(nodes.credentials("miner"), identity=Identity.parse("verticil://other/miner/miner"))
    async with serving(other) as (port, miner), party(port, nodes.credentials("alice")) as alice:
        memory = InMemoryCoordinator(miner, Identity.parse("verticil://fed/party/alice"), federation="other")
        for coordinator in (alice, memory):
            with fails("IDENTITY_REFUSED", "federation 'fed', expected 'other'"):
                await coordinator.hello(hello())
    assert miner.callers == []


async def test_what_is_not_in_the_table_nobody_may_call(nodes: Federations) -> None:
    hidden = {method: roles for method, roles in ROLES.items() if not method.endswith("/Poll")}
    async with (
        serving(nodes.credentials("miner"), roles=hidden) as (port, _),
        party(port, nodes.credentials("alice")) as alice,
    ):
        await alice.hello(hello())
        with fails("IDENTITY_REFUSED", "no role may call it"):
            await alice.poll(coordinator_pb2.PollRequest())


async def test_an_unknown_method_is_another_version(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, _):
        connection = Connection(f"127.0.0.1:{port}", nodes.credentials("alice"))
        unknown = connection.channel.unary_unary(
            "/verticil.wire.v1.Coordinator/Fetch",
            request_serializer=common_pb2.HelloRequest.SerializeToString,
            response_deserializer=common_pb2.HelloReply.FromString,
        )
        with fails("VERSION_UNSUPPORTED", "does not know this call"):
            await connection.unary(unknown, hello(), timeout_seconds=10)
        await connection.close()


async def test_bytes_that_are_no_message_are_answered(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, miner):
        connection = Connection(f"127.0.0.1:{port}", nodes.credentials("alice"))
        garbage = connection.channel.unary_unary(
            "/verticil.wire.v1.Coordinator/Hello",
            request_serializer=lambda _: b"\xff\xff\xff",
            response_deserializer=common_pb2.HelloReply.FromString,
        )
        with fails("MESSAGE_INVALID", "not a HelloRequest"):
            await connection.unary(garbage, hello(), timeout_seconds=10)
        await connection.close()
    assert miner.callers == []


# --- errors -----------------------------------------------------------------------------------------------------------------


async def both(nodes: Federations, port: int, miner: Miner) -> AsyncIterator[Coordinator]:
    async with party(port, nodes.credentials("alice")) as remote:
        yield remote
    yield InMemoryCoordinator(miner, Identity.parse("verticil://fed/party/alice"))


async def test_every_error_of_ours_arrives_as_it_was_raised(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, miner):
        async for coordinator in both(nodes, port, miner):
            for code, (family, exit_code) in CODES.items():
                with pytest.raises(VerticilError) as caught:
                    await coordinator.report(failure(code))
                error = caught.value
                assert (error.code, type(error).__name__, error.exit_code) == (code, family, exit_code)
                assert error.message == "the miner says: unit 3: got 4, expected 5"
                assert (error.hint, error.teller) == ("the miner says: look again", "the miner")


async def test_an_unforeseen_exception_is_told_without_its_text(
    nodes: Federations, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(nodes.credentials("miner")) as (port, miner):
        async for coordinator in both(nodes, port, miner):
            with pytest.raises(InternalFault) as caught:
                await coordinator.report(failure("unforeseen"))
            assert CANARY not in str(caught.value)
            incident = caught.value.message.rpartition(" ")[2]
            assert any(incident in record.getMessage() for record in caplog.records)


async def test_both_transports_answer_alike(nodes: Federations) -> None:
    pieces = [coordinator_pb2.PutPseudonymsRequest(study_digest=DIGEST, size=5000)]
    pieces += [
        coordinator_pb2.PutPseudonymsRequest(chunk=chunk) for chunk in make_chunks(os.urandom(5000), chunk_bytes=1000)
    ]

    async def later() -> AsyncIterator[coordinator_pb2.PutPseudonymsRequest]:
        for piece in pieces:
            yield piece

    async with serving(nodes.credentials("miner")) as (port, miner):
        async for coordinator in both(nodes, port, miner):
            for source in (pieces, iter(pieces), later()):
                reply = await coordinator.put_pseudonyms(source)
                assert (reply.committed_offset, reply.complete) == (5000, True)
            assert not (await coordinator.put_pseudonyms(pieces[:1])).complete
            with fails("OFFSET_MISMATCH", "got a chunk at offset 1000, expected 0"):
                await coordinator.put_pseudonyms([pieces[0], pieces[2]])
            blinded = [coordinator_pb2.PutBlindedRequest(size=2000)]
            blinded += [coordinator_pb2.PutBlindedRequest(chunk=chunk) for chunk in make_chunks(bytes(2000))]
            assert (await coordinator.put_blinded(blinded)).complete
            lists = coordinator.get_blinded(coordinator_pb2.GetBlindedRequest(offset=1000))
            assert [item.part.chunk.offset async for item in lists] == [1000]
            masked = [coordinator_pb2.PutMaskedRequest(size=2000)]
            masked += [coordinator_pb2.PutMaskedRequest(chunk=chunk) for chunk in make_chunks(bytes(2000))]
            assert (await coordinator.put_masked(masked)).complete
            assert (await coordinator.list_masked(peer_pb2.ListMaskedRequest(have=[0, 2]))).index == [1, 3, 4]
            rest = coordinator.get_masked(peer_pb2.GetMaskedRequest(offset=1000))
            assert [item.chunk.offset async for item in rest] == [1000]
            assert (await coordinator.begin_upload(coordinator_pb2.BeginUploadRequest(unit=2))).upload_id == "uu"
            assert (await coordinator.poll(coordinator_pb2.PollRequest())).lease_seconds == 7
            scores = await coordinator.put_scores(coordinator_pb2.PutScoresRequest(information=[1, 2]))
            assert list(scores.waiting_for) == ["alice", "alice"]
            parts = [part async for part in coordinator.get_release(common_pb2.GetReleaseRequest(offset=2))]
            assert b"".join(part.chunk.data for part in parts) == b"lease"
            got = []
            with fails("FILE_MISSING"):
                async for part in coordinator.get_release(common_pb2.GetReleaseRequest(path="broken")):
                    got.append(part.chunk.data)
            assert b"".join(got) == b"release"
            await coordinator.close()
            with fails("UNREACHABLE"):
                await coordinator.hello(hello())


async def test_the_analysts_side(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, _):
        remote = GrpcControl(Connection(f"127.0.0.1:{port}", nodes.credentials("lee")))
        memory = InMemoryControl(Desk(), Identity.parse("verticil://fed/analyst/lee"))
        desks: tuple[Control, ...] = (remote, memory)
        for desk in desks:
            assert (await desk.submit_study(control_pb2.SubmitStudyRequest(proposal=b"p"))).study_digest == b"p"
            assert (await desk.list_studies(control_pb2.ListStudiesRequest())).studies[0].title == "lee"
            assert (await desk.cancel_study(control_pb2.CancelStudyRequest())).state == common_pb2.STUDY_STATE_WITHDRAWN
            assert [part.size async for part in desk.get_release(common_pb2.GetReleaseRequest())] == [1]
            with fails("STUDY_UNKNOWN", "study 'x': unknown", "verticil study list"):
                await desk.get_study(control_pb2.GetStudyRequest(study_id="x"))
            await desk.close()
        async with party(port, nodes.credentials("alice")) as alice:
            as_party = GrpcControl(alice._connection)
            with fails("IDENTITY_REFUSED", "expected role analyst"):
                await as_party.list_studies(control_pb2.ListStudiesRequest())


# --- nobody there -----------------------------------------------------------------------------------------------------------


async def test_a_miner_that_is_not_running_is_unreachable(nodes: Federations) -> None:
    async with party(free_port(), nodes.credentials("alice")) as alice:
        with fails("UNREACHABLE", "connection refused", "is the miner running"):
            await alice.hello(hello())
        with fails("UNREACHABLE", "connection refused"):
            await alice.put_chunks(make_chunks(b"x"))
        with fails("UNREACHABLE", "connection refused"):
            await anext(alice.get_release(common_pb2.GetReleaseRequest()))


async def test_the_diagnosis_tells_other_things_from_tls(nodes: Federations) -> None:
    alice = nodes.credentials("alice")

    async def closing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    for handler, code, text in (
        (closing, "UNREACHABLE", "handshake"),
        (plain, "TLS_REFUSED", "is this the miner's port"),
    ):
        other = await asyncio.start_server(handler, "127.0.0.1", 0)
        async with other:
            endpoint = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
            fault = await asyncio.to_thread(diagnose, endpoint, alice)
        assert fault.code == code
        assert text in str(fault)
    async with serving(nodes.credentials("miner")) as (port, _):
        assert "it answers again" in str(await asyncio.to_thread(diagnose, f"127.0.0.1:{port}", alice))
    assert "expected host:port" in str(diagnose("nowhere", alice))
    assert "no such host name" in str(await asyncio.to_thread(diagnose, "host.invalid:1", alice))


async def test_a_client_finds_the_miner_again(nodes: Federations) -> None:
    port = free_port()
    async with party(port, nodes.credentials("alice")) as alice:
        for _ in range(2):
            async with serving(nodes.credentials("miner"), listen=f"127.0.0.1:{port}"):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while True:
                        try:
                            await alice.hello(hello())
                            break
                        except PeerFault as error:
                            assert retriable(error), error  # noqa: PT017 (not every attempt fails)


def test_what_may_be_tried_again() -> None:
    codes = {code for code, (family, _) in CODES.items() if family == "PeerFault" and retriable(PeerFault(code, "x"))}
    assert codes == {"UNREACHABLE", "DEADLINE", "RESOURCE_EXHAUSTED", "CHUNK_CORRUPT", "OFFSET_MISMATCH", "NOT_READY"}
    assert not retriable(Refusal("NOT_APPROVED", "x"))


# --- streams and limits -------------------------------------------------------------------------------------------------------


@pytest.mark.whole
async def test_a_full_stream_arrives(nodes: Federations) -> None:
    content = os.urandom(STREAM_LIMIT)
    async with serving(nodes.credentials("miner")) as (port, _), party(port, nodes.credentials("alice")) as alice:
        assert (await alice.put_chunks(make_chunks(content, upload_id="u"))).committed_offset == STREAM_LIMIT


async def test_a_corrupt_chunk_ends_the_stream_with_its_error(nodes: Federations) -> None:
    def chunks() -> Iterator[common_pb2.Chunk]:
        for chunk in make_chunks(bytes(STREAM_LIMIT // 8), chunk_bytes=4096, upload_id="u"):
            yield common_pb2.Chunk(upload_id="u", offset=chunk.offset, data=b"x") if chunk.offset == 8192 else chunk

    async with serving(nodes.credentials("miner")) as (port, miner):
        async for coordinator in both(nodes, port, miner):
            with fails("CHUNK_CORRUPT", "chunk at offset 8192"):
                await coordinator.put_chunks(chunks())


async def test_an_early_answer_ends_the_sending(nodes: Federations) -> None:
    def endless() -> Iterator[common_pb2.Chunk]:
        while True:
            yield common_pb2.Chunk(upload_id="stop")

    async with serving(nodes.credentials("miner")) as (port, miner):
        async for coordinator in both(nodes, port, miner):
            assert (await coordinator.put_chunks(endless())).committed_offset == 1


async def test_an_error_while_reading_the_source_is_the_callers(nodes: Federations) -> None:
    def broken() -> Iterator[common_pb2.Chunk]:
        yield from make_chunks(b"x", upload_id="u")
        raise OSError("disk")

    async with serving(nodes.credentials("miner")) as (port, _), party(port, nodes.credentials("alice")) as alice:
        with pytest.raises(OSError, match="disk"):
            await alice.put_chunks(broken())
        await alice.hello(hello())


async def test_a_sender_that_stalls_is_given_up_by_the_miner(nodes: Federations) -> None:
    async def stalling() -> AsyncIterator[common_pb2.Chunk]:
        for chunk in make_chunks(b"x", upload_id="u"):
            yield chunk
        await miner.cleaned_up.wait()

    async with (
        serving(nodes.credentials("miner"), idle_timeout_seconds=0.2) as (port, miner),
        party(port, nodes.credentials("alice")) as alice,
    ):
        with fails("DEADLINE", "no progress for 0.2 s"):
            await alice.put_chunks(stalling())


async def test_a_miner_that_stalls_is_given_up_by_the_reader(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner"), grace=0.1) as (port, _):
        for patience in (0.2, 2, 20):  # a slow machine may need longer for the parts that come
            got = []
            async with party(port, nodes.credentials("alice"), idle=patience) as alice:
                with fails("DEADLINE", f"no progress for {patience} s"):
                    async for part in alice.get_release(common_pb2.GetReleaseRequest(path="stalls")):
                        got.append(part)
            if len(got) == 2:
                break
        assert len(got) == 2


async def test_a_reader_that_stalls_holds_the_miner_back_and_is_then_given_up(nodes: Federations) -> None:
    got = 0
    for patience in (0.3, 3, 30):  # a slow machine may need longer for the first part
        async with (
            serving(nodes.credentials("miner"), idle_timeout_seconds=patience) as (port, miner),
            party(port, nodes.credentials("alice")) as alice,
            contextlib.aclosing(alice.get_alignment(coordinator_pb2.GetAlignmentRequest())) as parts,
        ):
            with fails("DEADLINE"):
                await anext(parts)
                got += 1
                await asyncio.wait_for(miner.cleaned_up.wait(), PATIENCE_SECONDS)
                async for _ in parts:
                    pass
            assert miner.sent_parts < 64  # gRPC's windows hold some 10 MiB of the 32 MiB
        if got:
            break
    assert got


async def test_leaving_a_stream_early_ends_it_at_the_miner(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, miner):
        async for coordinator in both(nodes, port, miner):
            miner.cleaned_up.clear()
            parts = coordinator.get_alignment(coordinator_pb2.GetAlignmentRequest())
            await anext(parts)
            await parts.aclose()
            await asyncio.wait_for(miner.cleaned_up.wait(), PATIENCE_SECONDS)


async def test_giving_up_a_call_cancels_it_at_the_miner(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, miner), party(port, nodes.credentials("alice")) as alice:
        polling = asyncio.create_task(alice.poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await asyncio.wait_for(miner.parked.wait(), PATIENCE_SECONDS)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        await asyncio.wait_for(miner.cleaned_up.wait(), PATIENCE_SECONDS)


async def test_a_call_has_a_deadline(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner"), grace=0.1) as (port, miner):
        connection = Connection(f"127.0.0.1:{port}", nodes.credentials("alice"))
        poll = connection.channel.unary_unary(
            Coordinator.poll.path,
            request_serializer=coordinator_pb2.PollRequest.SerializeToString,
            response_deserializer=coordinator_pb2.PollReply.FromString,
        )
        for patience in (0.3, 3, 30):  # a slow machine may need longer until the miner has the call
            with fails("DEADLINE", "no answer in time"):
                await connection.unary(poll, coordinator_pb2.PollRequest(wait_seconds=60), timeout_seconds=patience)
            if miner.parked.is_set():
                break
        await asyncio.wait_for(miner.cleaned_up.wait(), PATIENCE_SECONDS)
        await connection.close()


async def test_a_message_over_the_limit_is_refused(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, _):
        connection = Connection(f"127.0.0.1:{port}", nodes.credentials("lee"))
        desk = GrpcControl(connection)
        fits = control_pb2.SubmitStudyRequest(proposal=bytes(MESSAGE_LIMIT - 1000))
        assert len((await desk.submit_study(fits)).study_digest) == MESSAGE_LIMIT - 1000
        with fails("MESSAGE_INVALID", "larger than 4194304 bytes"):
            await desk.submit_study(control_pb2.SubmitStudyRequest(proposal=bytes(MESSAGE_LIMIT)))
        await connection.close()


async def test_more_calls_than_allowed_are_turned_away(nodes: Federations) -> None:
    async with (
        serving(nodes.credentials("miner"), maximum_concurrent_rpcs=1) as (port, miner),
        party(port, nodes.credentials("alice")) as alice,
    ):
        polling = asyncio.create_task(alice.poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await asyncio.wait_for(miner.parked.wait(), PATIENCE_SECONDS)
        with fails("RESOURCE_EXHAUSTED", "try again later"):
            await alice.hello(hello())
        polling.cancel()
        await asyncio.wait([polling])


async def test_one_caller_cannot_keep_the_others_out(nodes: Federations) -> None:
    async with (
        serving(nodes.credentials("miner"), maximum_concurrent_rpcs=8) as (port, miner),
        party(port, nodes.credentials("alice")) as alice,
        party(port, nodes.credentials("bob")) as bob,
    ):
        waiting = coordinator_pb2.PollRequest(wait_seconds=60)
        polls = []
        for _ in range(2):
            miner.parked.clear()
            polls.append(asyncio.create_task(alice.poll(waiting)))
            await asyncio.wait_for(miner.parked.wait(), PATIENCE_SECONDS)
        for _ in range(20):
            with fails("RESOURCE_EXHAUSTED", "as many as allowed"):
                await asyncio.gather(alice.poll(waiting), alice.poll(waiting))
        await bob.hello(hello())
        miner.release.set()
        await asyncio.gather(*polls)
        await alice.hello(hello())  # what has ended does not count


def test_every_channel_option_is_one_that_this_grpc_knows() -> None:
    """gRPC ignores an unknown option in silence; the names stand in its binary."""
    with Path(cygrpc.__file__).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as binary:
        names = {name for name, _ in (*CLIENT_OPTIONS, *SERVER_OPTIONS)}
        assert {name for name in names if binary.find(name.encode() + b"\0") < 0} == set()
        assert binary.find(b"grpc.http2.min_recv_ping_interval_without_data_ms\0") < 0  # what the macro's name suggests
    client, server = dict(CLIENT_OPTIONS), dict(SERVER_OPTIONS)
    assert int(client["grpc.keepalive_time_ms"]) >= server["grpc.http2.min_ping_interval_without_data_ms"]


# --- starting and stopping ----------------------------------------------------------------------------------------------------


async def test_two_servers_cannot_share_a_port(nodes: Federations) -> None:
    async with serving(nodes.credentials("miner")) as (port, _):
        with fails("CONFIG_INVALID", f"cannot listen on 127.0.0.1:{port}"):
            async with serving(nodes.credentials("miner"), listen=f"127.0.0.1:{port}"):
                pass


@pytest.mark.parametrize("who", ["miner", "party"])
async def test_a_parked_call_ends_when_either_side_closes(nodes: Federations, who: str) -> None:
    miner = Miner()
    server = RpcServer("127.0.0.1:0", nodes.credentials("miner"), [bind(Coordinator, miner)])
    async with party(await server.start(), nodes.credentials("alice")) as alice:
        polling = asyncio.create_task(alice.poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await asyncio.wait_for(miner.parked.wait(), PATIENCE_SECONDS)
        await (server.stop(grace_seconds=0.2) if who == "miner" else alice.close())
        with fails("UNREACHABLE"):
            await polling
        await server.stop(grace_seconds=0.2)
        assert miner.cleaned_up.is_set()


async def test_a_call_under_way_may_end_while_the_server_stops(nodes: Federations) -> None:
    miner = Miner()
    server = RpcServer("127.0.0.1:0", nodes.credentials("miner"), [bind(Coordinator, miner)])
    async with party(await server.start(), nodes.credentials("alice")) as alice:
        polling = asyncio.create_task(alice.poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await asyncio.wait_for(miner.parked.wait(), PATIENCE_SECONDS)
        watch = alice._connection.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        await watch.read()
        stopping = asyncio.create_task(server.stop())
        assert await watch.read() == b"\x08\x02"  # NOT_SERVING: the server is stopping
        miner.release.set()
        assert (await polling).lease_seconds == 7
        await stopping


async def test_feature_34_health_is_told_to_any_node_and_ends_with_the_server(nodes: Federations) -> None:
    server = RpcServer(f"127.0.0.1:{free_port()}", nodes.credentials("miner"), [bind(Coordinator, Miner())])
    port = await server.start()
    connections = [Connection(f"127.0.0.1:{port}", nodes.credentials(name)) for name in ("alice", "lee", "miner")]
    for connection in connections:
        await check_health(connection)
    watch = connections[0].channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
    states = [await watch.read()]
    stopping = asyncio.create_task(server.stop())
    states.append(await watch.read())
    await stopping
    assert states == [b"\x08\x01", b"\x08\x02"]  # field 1: SERVING, NOT_SERVING (grpc.health.v1)
    with fails("UNREACHABLE"):
        await check_health(connections[1])
    for connection in connections:
        await connection.close()
