"""Calls between parties: over real loopback mutual TLS and in memory alike, and wholes that travel in parts.

A party must reach the party that it means and nobody else, whatever stands at the address; a whole must arrive as it was sent or
not at all, also when streams break off and when the reader is killed.
"""

# ruff: noqa: N802 (a service's methods have the names of the wire contract)

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from support import PATIENCE_SECONDS
from support.refusals import fails
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    Credentials,
    certificate_sha256,
    load_credentials,
    read_certificates,
)
from verticil.shared.federation.transport import fetch
from verticil.shared.federation.transport.chunks import CHUNK_LIMIT, STREAM_LIMIT
from verticil.shared.federation.transport.client import Connection, GrpcPeer
from verticil.shared.federation.transport.errors_on_wire import retriable
from verticil.shared.federation.transport.fetch import fetch_bytes, fetch_file, send_parts
from verticil.shared.federation.transport.in_memory import InMemoryPeer
from verticil.shared.federation.transport.interface import Peer, bind
from verticil.shared.federation.transport.server import RpcServer
from verticil.wire.v1 import common_pb2, peer_pb2

BOB = Identity.parse("verticil://fed/party/bob")
ALICE = Identity.parse("verticil://fed/party/alice")
LONG = os.urandom(3 * CHUNK_LIMIT + 17)
HERE = ["127.0.0.1"]


class Party:
    """A service that tells what it was asked, and serves `LONG`."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.asked: list[object] = []

    def _note(self, identity: Identity, request: object) -> None:
        self.callers.append(identity.uri)
        self.asked.append(request)

    async def Hello(self, identity: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        self._note(identity, request)
        return common_pb2.HelloReply(software_version=request.software_version, federation=identity.federation)

    async def GetStudyDigest(
        self, identity: Identity, request: peer_pb2.GetStudyDigestRequest
    ) -> peer_pb2.GetStudyDigestReply:
        self._note(identity, request)
        return peer_pb2.GetStudyDigestReply(study_digest=request.study_digest[::-1], software=request.software)

    async def GetPseudonyms(
        self, identity: Identity, request: peer_pb2.GetPseudonymsRequest
    ) -> AsyncIterator[peer_pb2.Part]:
        self._note(identity, request)
        async for part in send_parts(LONG, offset=request.offset, what="pseudonyms"):
            yield part

    async def GetColumn(self, identity: Identity, request: peer_pb2.GetColumnRequest) -> AsyncIterator[peer_pb2.Part]:
        self._note(identity, request)
        raise PeerFault("NOT_OWNER", f"unit {request.unit}: '{identity.name}' does not read it")
        yield

    async def GetParameters(
        self, identity: Identity, request: peer_pb2.GetParametersRequest
    ) -> AsyncIterator[peer_pb2.Part]:
        self._note(identity, request)
        async for part in send_parts(b"", offset=request.offset, what="parameters"):
            yield part

    async def GetSignature(
        self, identity: Identity, request: peer_pb2.GetSignatureRequest
    ) -> peer_pb2.GetSignatureReply:
        self._note(identity, request)
        raise Refusal("STUDY_DENIED", "study: denied by 'bob'")

    async def GetDeletion(self, identity: Identity, request: peer_pb2.GetDeletionRequest) -> peer_pb2.GetDeletionReply:
        self._note(identity, request)
        raise PeerFault("NOT_READY", "the study has not ended here")

    async def ListMasked(self, identity: Identity, request: peer_pb2.ListMaskedRequest) -> peer_pb2.ListMaskedReply:
        self._note(identity, request)
        return peer_pb2.ListMaskedReply(index=set(range(5)) - set(request.have))

    async def GetMasked(self, identity: Identity, request: peer_pb2.GetMaskedRequest) -> AsyncIterator[peer_pb2.Part]:
        self._note(identity, request)
        async for part in send_parts(LONG, offset=request.offset, what=f"message {request.index}"):
            yield part


class Nodes:
    """Two authorities of one name; ``rob`` is a party whose certificate is not for servers."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for folder in ("fed", "twin"):
            create_authority(home / folder, "fed")
            for name, role, hosts in (
                ("alice", Role.PARTY, []),
                ("rob", Role.PARTY, []),
                ("bob", Role.PARTY, HERE),
                ("eve", Role.PARTY, HERE),
                ("miner", Role.MINER, HERE),
                ("lee", Role.ANALYST, []),
            ):
                issue(home / folder, name, role, home / folder / "nodes", hosts=hosts)

    def credentials(self, name: str, folder: str = "fed") -> Credentials:
        ca, base = self.home / folder / "ca.crt", self.home / folder / "nodes" / name
        federation = Federation(
            name="fed",
            ca_certificate=ca,
            ca_sha256=certificate_sha256(read_certificates(ca)[0]),
            endpoint=None,
            idle_timeout_seconds=PATIENCE_SECONDS,
            chunk_bytes=1024,
        )
        return load_credentials(base.with_suffix(".crt"), base.with_suffix(".key"), federation)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(tmp_path_factory.mktemp("peers"))


@contextlib.asynccontextmanager
async def serving(credentials: Credentials) -> AsyncIterator[tuple[str, Party]]:
    service = Party()
    server = RpcServer("127.0.0.1:0", credentials, [bind(Peer, service)])
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}", service
    finally:
        await server.stop(grace_seconds=1)


@contextlib.asynccontextmanager
async def dialled(address: str, credentials: Credentials, who: Identity = BOB) -> AsyncIterator[GrpcPeer]:
    peer = GrpcPeer(Connection(address, credentials, target=who, idle_timeout_seconds=PATIENCE_SECONDS))
    try:
        yield peer
    finally:
        await peer.close()
        await peer.close()


def hello() -> common_pb2.HelloRequest:
    return common_pb2.HelloRequest(protocol_version=2, software_version="0.1.0")


# --- who speaks to whom -------------------------------------------------------------------------------------------------------


async def test_both_transports_answer_alike(nodes: Nodes) -> None:
    async with (
        serving(nodes.credentials("bob")) as (address, service),
        dialled(address, nodes.credentials("alice")) as far,
    ):
        peers: tuple[Peer, ...] = (far, InMemoryPeer(service, ALICE))
        for peer in peers:
            assert (await peer.hello(hello())).federation == "fed"
            request = peer_pb2.GetStudyDigestRequest(study_id="s", study_digest=b"\x01\x02", software="x")
            assert (await peer.get_study_digest(request)).study_digest == b"\x02\x01"
            got = await fetch_bytes(
                lambda offset, peer=peer: peer.get_pseudonyms(  # type: ignore[misc] # one peer at a time
                    peer_pb2.GetPseudonymsRequest(list=peer_pb2.PSEUDONYM_LIST_COMMON, offset=offset)
                ),
                limit_bytes=len(LONG),
                what="common list of party 'bob'",
            )
            assert got == LONG
            empty = await fetch_bytes(
                lambda offset, peer=peer: peer.get_parameters(peer_pb2.GetParametersRequest(offset=offset)),  # type: ignore[misc]
                limit_bytes=10,
                what="parameters",
            )
            assert empty == b""
            with fails("NOT_OWNER", "unit 3: 'alice' does not read it"):
                await anext(peer.get_column(peer_pb2.GetColumnRequest(unit=3)))
            with fails("STUDY_DENIED", "denied by 'bob'"):
                await peer.get_signature(peer_pb2.GetSignatureRequest())
        half = len(service.asked) // 2
        assert service.asked[:half] == service.asked[half:]
        assert set(service.callers) == {"verticil://fed/party/alice"}
        for peer in peers:
            await peer.close()
            with fails("UNREACHABLE"):
                await peer.hello(hello())
            with fails("UNREACHABLE"):
                await anext(peer.get_column(peer_pb2.GetColumnRequest()))


@pytest.mark.parametrize("name", ["lee", "miner"])
async def test_only_parties_may_ask(nodes: Nodes, name: str) -> None:
    caller = nodes.credentials(name)
    async with serving(nodes.credentials("bob")) as (address, service), dialled(address, caller) as far:
        peers: tuple[Peer, ...] = (far, InMemoryPeer(service, caller.identity))
        for peer in peers:
            for call in (
                peer.hello(hello()),
                peer.get_study_digest(peer_pb2.GetStudyDigestRequest()),
                anext(peer.get_pseudonyms(peer_pb2.GetPseudonymsRequest())),
                anext(peer.get_column(peer_pb2.GetColumnRequest())),
                anext(peer.get_parameters(peer_pb2.GetParametersRequest())),
                peer.get_signature(peer_pb2.GetSignatureRequest()),
                peer.list_masked(peer_pb2.ListMaskedRequest()),
                anext(peer.get_masked(peer_pb2.GetMaskedRequest())),
            ):
                with fails("IDENTITY_REFUSED", "expected role party"):
                    await call
    assert service.callers == []


@pytest.mark.parametrize(
    ("server", "folder", "texts"),
    [
        ("eve", "fed", ["got verticil://fed/party/eve, expected verticil://fed/party/bob", "check [peers] bob"]),
        ("miner", "fed", ["got verticil://fed/miner/miner, expected verticil://fed/party/bob"]),
        ("bob", "twin", ["its certificate does not hold", "another authority"]),
        ("rob", "fed", ["its certificate does not hold", "not one for servers"]),
    ],
)
async def test_whoever_else_is_at_the_address_gets_no_request(
    nodes: Nodes, server: str, folder: str, texts: list[str]
) -> None:
    async with (
        serving(nodes.credentials(server, folder)) as (address, service),
        dialled(address, nodes.credentials("alice")) as peer,
    ):
        for _ in range(2):  # a connection that was refused is not let in later
            with fails("TLS_REFUSED", f"party 'bob' at {address}", *texts):
                await peer.hello(hello())
    assert service.callers == []


async def test_a_party_of_another_authority_is_let_in_by_no_peer(nodes: Nodes) -> None:
    async with (
        serving(nodes.credentials("bob", "twin")) as (address, service),
        dialled(address, nodes.credentials("alice")) as peer,
    ):
        with fails("TLS_REFUSED", "another authority"):
            await peer.hello(hello())
    assert service.callers == []


async def test_a_peer_that_is_not_there_is_named(nodes: Nodes) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with dialled("127.0.0.1:1", nodes.credentials("alice")) as peer:
        with fails("UNREACHABLE", "party 'bob' at 127.0.0.1:1: connection refused", "is party 'bob' running"):
            await peer.hello(hello())
    async with dialled("bob.invalid:1", nodes.credentials("alice")) as peer:
        with fails("UNREACHABLE", "no such host name", "check [peers] bob in federation.toml"):
            await peer.hello(hello())
    async with await asyncio.start_server(plain, "127.0.0.1", 0) as other:
        address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
        async with dialled(address, nodes.credentials("alice")) as peer:
            with fails("TLS_REFUSED", "is this party 'bob''s port"):
                await peer.hello(hello())


async def test_a_server_certificate_without_the_name_is_told_apart(nodes: Nodes, tmp_path: Path) -> None:
    """The party that is meant answers, but its certificate was made by another program, or an earlier version of this one."""
    issued = issue(nodes.home / "fed", "carol", Role.PARTY, nodes.home / "fed" / "nodes", hosts=HERE)
    ca_key = load_pem_private_key((nodes.home / "fed" / "ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    leaf, signing = read_certificates(issued.certificate)
    builder = x509.CertificateBuilder(
        leaf.issuer, leaf.subject, leaf.public_key(), 7, leaf.not_valid_before_utc, leaf.not_valid_after_utc
    )
    for extension in leaf.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            value = x509.SubjectAlternativeName(n for n in value if not isinstance(n, x509.DNSName))
        builder = builder.add_extension(value, extension.critical)
    chain = builder.sign(ca_key, hashes.SHA256()), signing
    issued.certificate.write_bytes(b"".join(one.public_bytes(Encoding.PEM) for one in chain))
    carol = nodes.credentials("carol")
    async with serving(carol) as (address, _), dialled(address, nodes.credentials("alice"), carol.identity) as peer:
        with fails("TLS_REFUSED", "party 'carol'", "lacks the name that peers ask for", "issued anew"):
            await peer.hello(hello())


# --- wholes in parts ----------------------------------------------------------------------------------------------------------


@dataclass
class Source:
    """A peer that serves `content` and does to each stream what `faults` says, in turn; then nothing more."""

    content: bytes
    faults: list[Callable[[AsyncIterator[peer_pb2.Part]], AsyncIterator[peer_pb2.Part]]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def __call__(self, offset: int) -> AsyncIterator[peer_pb2.Part]:
        self.offsets.append(offset)
        parts = send_parts(self.content, offset=offset, what="whole")
        return self.faults.pop(0)(parts) if self.faults else parts


def after(n_parts: int, *then: peer_pb2.Part | VerticilError) -> Callable[..., AsyncIterator[peer_pb2.Part]]:
    """Some good parts, then something else."""

    async def stream(parts: AsyncIterator[peer_pb2.Part]) -> AsyncIterator[peer_pb2.Part]:
        for _ in range(n_parts):
            yield await anext(parts)
        for item in then:
            if isinstance(item, VerticilError):
                raise item
            yield item

    return stream


def part(content: bytes, offset: int, data: bytes, *, crc: int | None = None, upload: str = "") -> peer_pb2.Part:
    return peer_pb2.Part(
        size=len(content),
        sha256=hashlib.sha256(content).digest(),
        chunk=common_pb2.Chunk(
            offset=offset, data=data, crc32=zlib.crc32(data) if crc is None else crc, upload_id=upload
        ),
    )


BROKEN = PeerFault("UNREACHABLE", "party 'bob': the call was broken off")


async def read(source: Source, *, limit: int = 2**30) -> bytes:
    return await fetch_bytes(source, limit_bytes=limit, what="unit 3 of party 'bob'")


async def test_a_stream_is_resumed_where_it_broke_off() -> None:
    """By a break, by a break in the middle of a piece, and by a piece at the wrong place after a good one."""
    c = CHUNK_LIMIT
    content = os.urandom(5 * c)
    some, overlap = part(content, 2 * c, content[2 * c :][:100]), part(content, 0, content[:5])
    source = Source(content, [after(2, BROKEN), after(0, some, BROKEN), after(1, overlap)])
    assert await read(source) == content
    assert source.offsets == [0, 2 * c, 2 * c + 100, 3 * c + 100]


async def test_a_whole_of_more_than_one_stream_arrives() -> None:
    content = bytes(STREAM_LIMIT + 1000)
    source = Source(content)
    assert await read(source) == content
    assert source.offsets == [0, STREAM_LIMIT]


async def test_a_stream_that_brings_nothing_new_ends_it_with_its_error() -> None:
    for error in (BROKEN, PeerFault("NOT_READY", "study: not approved yet")):
        source = Source(LONG, [after(1, BROKEN), after(0, error)])
        with fails(error.code):
            await read(source)
        assert source.offsets == [0, CHUNK_LIMIT]
    denied = Refusal("STUDY_DENIED", "study: denied")
    with fails("STUDY_DENIED"):  # never tried again, whatever came before
        await read(Source(LONG, [after(2, denied)]))
    for faults in ([after(0)], [after(1), after(0)]):
        with fails("MESSAGE_INVALID", "unit 3 of party 'bob': the stream ended at"):
            await read(Source(LONG, faults))


@pytest.mark.parametrize(
    ("bad", "code", "text"),
    [
        (part(LONG, 5, b"x"), "OFFSET_MISMATCH", "got a chunk at offset 5, expected 0"),
        (part(LONG, 0, b"x", crc=1), "CHUNK_CORRUPT", "CRC-32"),
        (part(LONG, 0, b""), "CHUNK_CORRUPT", "no bytes"),
        (part(LONG, 0, bytes(CHUNK_LIMIT + 1)), "CHUNK_CORRUPT", "more than"),
        (part(b"ab", 0, b"abc"), "CHUNK_CORRUPT", "ends at 3, expected at most 2"),
        (part(LONG, 0, b"x", upload="u"), "MESSAGE_INVALID", "another upload"),
        (peer_pb2.Part(size=1, sha256=b"short"), "MESSAGE_INVALID", "SHA-256 of 5 bytes"),
        (peer_pb2.Part(size=2**40, sha256=bytes(32)), "ARTIFACT_INVALID", "1099511627776 bytes, expected at most"),
        (part(b"abc", 0, b"abd"), "ARTIFACT_INVALID", "SHA-256 is not the announced one"),
    ],
)
async def test_a_wrong_part_is_refused_and_the_peer_is_named(bad: peer_pb2.Part, code: str, text: str) -> None:
    with fails(code, "unit 3 of party 'bob'", text):
        await read(Source(LONG, [after(0, bad)]))


@pytest.mark.parametrize("in_one_stream", [True, False])
async def test_what_changes_while_it_is_read_is_refused(in_one_stream: bool) -> None:
    other = part(LONG[::-1], CHUNK_LIMIT, b"x")
    faults = [after(1, other)] if in_one_stream else [after(1, BROKEN), after(0, other)]
    with fails("ARTIFACT_INVALID", "changed while it was read"):
        await read(Source(LONG, faults))


@pytest.mark.whole
async def test_a_stream_of_more_than_its_limit_is_refused() -> None:
    content = bytes(STREAM_LIMIT + CHUNK_LIMIT)

    async def endless(_: AsyncIterator[peer_pb2.Part]) -> AsyncIterator[peer_pb2.Part]:
        for offset in range(0, len(content), CHUNK_LIMIT):
            yield part(content, offset, bytes(CHUNK_LIMIT))

    with fails("MESSAGE_INVALID", f"more than {STREAM_LIMIT} bytes"):
        await read(Source(content, [endless]))


async def test_the_senders_side_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "column"
    file.write_bytes(LONG)
    with fails("MESSAGE_INVALID", "column: offset 4, expected at most 3"):
        await anext(send_parts(b"abc", offset=4, what="column"))
    with pytest.raises(ValueError, match="with its SHA-256"):
        await anext(send_parts(file, offset=0, what="column"))
    digest = hashlib.sha256(LONG).digest()
    whole = [piece async for piece in send_parts(file, offset=0, what="column", sha256=digest)]
    assert whole == [piece async for piece in send_parts(LONG, offset=0, what="column")]
    rest = [piece async for piece in send_parts(file, offset=len(LONG), what="column", sha256=digest)]
    assert rest == [peer_pb2.Part(size=len(LONG), sha256=digest)]


@pytest.mark.parametrize(
    "looks_first", [False, True], ids=["before its size is read", "between its size and its bytes"]
)
async def test_a_file_that_is_deleted_while_it_is_asked_for_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_first: bool
) -> None:
    file = tmp_path / "message"
    if looks_first:
        file.write_bytes(LONG)
        real = Path.stat

        def look_and_delete(path: Path, **options: bool) -> os.stat_result:
            status = real(path, **options)
            if path == file:
                path.unlink()
            return status

        monkeypatch.setattr(Path, "stat", look_and_delete)
    with pytest.raises(PeerFault, match="message 3: is not here any more") as raised:
        [piece async for piece in send_parts(file, offset=0, what="message 3", sha256=bytes(32))]
    assert raised.value.code == "NOT_READY"


# --- into a file --------------------------------------------------------------------------------------------------------------


async def keep(source: Source, target: Path) -> bytes:
    return await fetch_file(source, target, limit_bytes=2**30, what="unit 3 of party 'bob'")


async def test_a_file_appears_whole_and_an_interrupted_one_goes_on_later(tmp_path: Path) -> None:
    target = tmp_path / "unit-3"
    with fails("UNREACHABLE"):
        await keep(Source(LONG, [after(2, BROKEN), after(0, BROKEN)]), target)
    assert not target.exists()
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [2 * CHUNK_LIMIT]
    source = Source(LONG)
    assert await keep(source, target) == hashlib.sha256(LONG).digest()
    assert source.offsets == [0, 2 * CHUNK_LIMIT]
    assert target.read_bytes() == LONG
    assert [path.name for path in tmp_path.iterdir()] == ["unit-3"]
    assert target.stat().st_mode & 0o777 == 0o600


async def test_what_is_on_the_disk_of_another_whole_or_damaged_is_not_used(tmp_path: Path) -> None:
    target, other = tmp_path / "unit-3", LONG[::-1]
    with fails("UNREACHABLE"):
        await keep(Source(other, [after(2, BROKEN), after(0, BROKEN)]), target)
    assert await keep(Source(LONG), target) == hashlib.sha256(LONG).digest()
    assert [path.name for path in tmp_path.iterdir()] == ["unit-3"]

    damages: list[Callable[[bytes], bytes]] = [
        lambda data: b"\0" + data[1:],
        lambda data: data + bytes(len(LONG)),
        lambda data: data[:7],
    ]
    for damage in damages:
        target.unlink()
        with fails("UNREACHABLE"):
            await keep(Source(LONG, [after(2, BROKEN), after(0, BROKEN)]), target)
        (partial,) = tmp_path.iterdir()
        partial.write_bytes(damage(partial.read_bytes()))
        assert await keep(Source(LONG), target) == hashlib.sha256(LONG).digest()
        assert target.read_bytes() == LONG


async def test_a_whole_that_is_already_there_but_for_its_name_is_only_verified(tmp_path: Path) -> None:
    target = tmp_path / "unit-3"
    (tmp_path / f".unit-3.{hashlib.sha256(LONG).hexdigest()}.part").write_bytes(LONG)
    source = Source(LONG)
    assert await keep(source, target) == hashlib.sha256(LONG).digest()
    assert source.offsets == [0]


async def test_a_wrong_file_leaves_nothing(tmp_path: Path) -> None:
    with fails("ARTIFACT_INVALID", "SHA-256"):
        await keep(Source(LONG, [after(0, part(b"abc", 0, b"abd"))]), tmp_path / "unit-3")
    assert list(tmp_path.iterdir()) == []
    with fails("FILE_MISSING"):
        await keep(Source(LONG), tmp_path / "nowhere" / "unit-3")


async def test_a_reader_that_is_cancelled_leaves_what_it_has(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def stalls(parts: AsyncIterator[peer_pb2.Part]) -> AsyncIterator[peer_pb2.Part]:
        yield await anext(parts)
        started.set()
        await asyncio.Event().wait()

    reading = asyncio.create_task(keep(Source(LONG, [stalls]), tmp_path / "unit-3"))
    await started.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [CHUNK_LIMIT]


async def test_a_reader_that_is_cancelled_ends_when_nothing_is_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is deleted, or read anew, right after it would be written into."""
    begun, may_end, write = threading.Event(), threading.Event(), fetch._File.write

    def held(file: fetch._File, data: bytes) -> None:
        begun.set()
        assert may_end.wait(PATIENCE_SECONDS)
        write(file, data)

    monkeypatch.setattr(fetch._File, "write", held)
    reading = asyncio.create_task(keep(Source(LONG), tmp_path / "unit-3"))
    assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    reading.cancel()
    await asyncio.wait([reading], timeout=0.2)
    assert not reading.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [CHUNK_LIMIT]


def test_an_unreachable_peer_may_be_asked_again_and_a_wrong_whole_may_not() -> None:
    assert retriable(BROKEN)
    assert not retriable(PeerFault("ARTIFACT_INVALID", "unit 3"))
