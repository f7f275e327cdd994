"""A miner process under attack: by strangers without a certificate, and by a party with a valid one that misbehaves.

Whatever arrives, the miner goes on, grows by less than 64 MiB, answers with a clear error where there is somebody to answer, and
serves an honest party meanwhile. In the default run the attacks are small; `pytest -m faults tests/faults` has them in full.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import ssl
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.pki import Credentials, load_credentials
from verticil.shared.federation.transport.client import CLIENT_OPTIONS, Connection, GrpcControl, GrpcCoordinator
from verticil.shared.federation.transport.errors_on_wire import ERROR_KEY
from verticil.shared.federation.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.reading import read_study
from verticil.simulation.provision import Provisioned, copy_federation, set_endpoint
from verticil.wire.v1 import common_pb2, control_pb2, coordinator_pb2

GROWTH_MIB = 64
COORDINATOR = coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"]
CONTROL = control_pb2.DESCRIPTOR.services_by_name["Control"]
HUGE = (2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
PATHS = ("../../x", "/etc/passwd", "..", "manifest.json\0", "a/../manifest.json", "\\\\host\\x", "é" * 70_000)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@contextlib.contextmanager
def suppress_deadline() -> Iterator[None]:
    """A machine that is busy may answer later than a call waits."""
    try:
        yield
    except VerticilError as error:
        if error.code != "DEADLINE":
            raise


class Miner:
    """The process, and who talks to it."""

    def __init__(self, made: Provisioned, cache: Path) -> None:
        self.made = made
        command = [sys.executable, "-m", "verticil.cli", "miner", "run", "--with-parent", "--format", "json"]
        self.log = (made.root / "miner.log").open("wb")
        self.process = subprocess.Popen(
            [*command, "--config", str(made.miner / "miner.toml")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        assert self.process.stdout is not None
        self.port = int(json.loads(self.process.stdout.readline())["port"])
        for node in (made.analyst, *made.parties.values()):
            set_endpoint(node, "faults", f"127.0.0.1:{self.port}", ca_sha256=made.ca_sha256)
        self.federation = load_federation(made.analyst / "federation.toml")
        end = time.monotonic() + PATIENCE_SECONDS
        while not (made.miner / "state" / "health").exists():  # what it writes of itself is nobody's attack
            assert time.monotonic() < end
            time.sleep(0.02)

    def credentials(self, name: str) -> Credentials:
        pki = self.made.root / name / "pki"
        return load_credentials(pki / f"{name}.crt", pki / f"{name}.key", self.federation)

    def connection(self, name: str) -> Connection:
        return Connection(f"127.0.0.1:{self.port}", self.credentials(name))

    @contextlib.asynccontextmanager
    async def channel(self, name: str, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
        """A connection without any of our checks."""
        own = self.credentials(name)
        secure = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.chain_pem)
        limits = [(key, value) for key, value in CLIENT_OPTIONS if "message_length" not in key and "config" not in key]
        limits += [("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
        async with grpc.aio.secure_channel(f"127.0.0.1:{self.port}", secure, options=limits, **options) as channel:
            yield channel

    def tls(self, name: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.made.ca_certificate))
        context.set_alpn_protocols(["h2"])
        if name is not None:
            pki = self.made.root / name / "pki"
            context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
        return context

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) / 1024

    async def serves_the_honest(self) -> float:
        """An honest party says hello over a connection of its own, as a party does until it is answered; how long that took."""
        begun, reply = time.monotonic(), None
        line = GrpcCoordinator(self.connection("insurer"))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while reply is None:
                    with suppress_deadline():
                        reply = await line.hello(common_pb2.HelloRequest(protocol_version=2))
        finally:
            await line.close()
        assert reply.federation == "faults"
        return time.monotonic() - begun

    async def submit(self) -> bytes:
        control = GrpcControl(self.connection("analyst"))
        try:
            proposal = to_bytes(read_study(self.made.analyst / "study.toml"))
            return (await control.submit_study(control_pb2.SubmitStudyRequest(proposal=proposal))).study_digest
        finally:
            await control.close()

    @contextlib.asynccontextmanager
    async def unharmed(self) -> AsyncIterator[None]:
        """After what happens here the miner is as it was."""
        await self.serves_the_honest()
        before = self.memory_mib()
        yield
        await self.serves_the_honest()
        assert self.process.poll() is None
        grown = self.memory_mib() - before
        assert grown < GROWTH_MIB, f"{grown:.0f} MiB more"

    def close(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE_SECONDS)
        for stream in (self.process.stdin, self.process.stdout, self.log):
            assert stream is not None
            stream.close()
        return code


@pytest.fixture(scope="module")
def miner(template: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Miner]:
    folder = tmp_path_factory.mktemp("hostile")
    found = Miner(copy_federation(template.template, folder / "federation"), folder)
    yield found
    assert found.close() == 0
    assert "Traceback" not in (found.made.root / "miner.log").read_text(), "an error that was not foreseen"


async def outcome(call: Any) -> str:
    """Our code of the error that a call ended with, or the status where there is none of ours; OK."""
    try:
        if isinstance(call, grpc.aio.UnaryStreamCall):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        told = [value for key, value in error.trailing_metadata() or () if key == ERROR_KEY]
        return common_pb2.ErrorDetail.FromString(told[0]).code if told else error.code().name
    return "OK"


def method(channel: grpc.aio.Channel, service: Any, name: str) -> Callable[..., Any]:
    found = service.methods_by_name[name]
    kind = ("stream" if found.client_streaming else "unary", "stream" if found.server_streaming else "unary")
    call = getattr(channel, "_".join(kind))(f"/{service.full_name}/{name}")
    return lambda *messages, timeout=PATIENCE_SECONDS: call(
        iter(messages) if found.client_streaming else messages[0],
        timeout=timeout,
        metadata=((PROTOCOL_KEY, str(PROTOCOL_VERSION)),),
    )


async def ask(channel: grpc.aio.Channel, name: str, *messages: Any, service: Any = COORDINATOR) -> str:
    raw = [message if isinstance(message, bytes) else message.SerializeToString() for message in messages]
    return await outcome(method(channel, service, name)(*raw))


async def shout(port: int, data: bytes, *, context: ssl.SSLContext | None = None) -> None:
    """Write bytes into a connection, and hear out what the other side says, if anything."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="127.0.0.1" if context else None
            )
            try:
                writer.write(data)
                await writer.drain()
                while await reader.read(65_536):
                    pass
            finally:
                writer.transport.abort()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """An HTTP/2 frame; its length may lie."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


SETTINGS = frame(4, 0, 0)
FRAMES = {
    "garbage in place of frames": PREFACE + bytes(range(256)) * 40,
    "a frame longer than any": PREFACE + SETTINGS + frame(0, 0, 1, b"x" * 1000, length=2**24 - 1),
    "data for a stream that is not open": PREFACE + SETTINGS + frame(0, 0, 7, b"x" * 1000),
    "headers that are no HPACK": PREFACE + SETTINGS + frame(1, 4, 1, b"\xff" * 4000),
    "headers that never end": PREFACE
    + SETTINGS
    + frame(1, 0, 1, b"\x00" * 100)
    + frame(9, 0, 1, b"\x00" * 16_000) * 500,
    "streams opened and reset at once": PREFACE
    + SETTINGS
    + b"".join(frame(1, 4, n, b"\x82") + frame(3, 0, n, bytes(4)) for n in range(1, 20_000, 2)),
    "a flood of settings": PREFACE + SETTINGS * 20_000,
    "a flood of pings": PREFACE + SETTINGS + frame(6, 0, 0, bytes(8)) * 20_000,
    "a window of 2^31 and one more": PREFACE + SETTINGS + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 3,
}


@pytest.mark.parametrize("certificate", [None, "clinic"], ids=["stranger", "party"])
async def test_bytes_that_are_no_protocol(miner: Miner, certificate: str | None) -> None:
    async with miner.unharmed():
        context = miner.tls(certificate)
        noise = (b"", b"\x00" * 100_000, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\x01" * 70_000)
        await asyncio.gather(
            *(shout(miner.port, data) for data in noise),
            *(shout(miner.port, data, context=context) for data in (*noise, *FRAMES.values())),
        )


async def test_messages_that_are_none_are_named_so_at_every_method(miner: Miner) -> None:
    async with miner.unharmed(), miner.channel("clinic") as party, miner.channel("analyst") as analyst:
        for service, channel in ((COORDINATOR, party), (CONTROL, analyst)):
            for found in service.methods:
                if not found.input_type.fields:
                    continue
                whole = GetMessageClass(found.input_type)()
                for raw in (b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x7f", b"\x12" * 3, b"\x08"):
                    assert await ask(channel, found.name, raw, service=service) == "MESSAGE_INVALID", found.name
                assert whole.SerializeToString() == b""


async def test_a_message_larger_than_any_is_refused(miner: Miner) -> None:
    async with miner.unharmed(), miner.channel("clinic") as channel:
        assert await ask(channel, "Hello", b"\x12" + b"\xff\xff\xff\x07" + bytes(16_777_215)) == "RESOURCE_EXHAUSTED"


async def test_a_compressed_message_does_not_become_large_here(miner: Miner) -> None:
    bomb = common_pb2.HelloRequest(software_version="0" * 100_000_000)
    before = miner.memory_mib()
    peak = before
    async with miner.unharmed(), miner.channel("clinic", compression=grpc.Compression.Gzip) as channel:
        asking = asyncio.ensure_future(ask(channel, "Hello", bomb))
        while not asking.done():
            peak = max(peak, miner.memory_mib())
            await asyncio.sleep(0.01)
        assert await asking != "OK"
        peak = max(peak, miner.memory_mib())
    assert peak - before < GROWTH_MIB


@pytest.mark.whole
async def test_lists_and_uploads_that_lie(miner: Miner) -> None:
    digest = await miner.submit()
    first = {"study_digest": digest, "sha256": bytes(32)}
    bomb = zlib.compress(bytes(128 * 2**20), 1)
    assert len(bomb) < 2**20
    async with miner.unharmed(), miner.channel("clinic") as channel:
        for size in HUGE:
            request = coordinator_pb2.PutPseudonymsRequest(**first, size=size)
            assert await ask(channel, "PutPseudonyms", request) != "OK"
            begin = coordinator_pb2.BeginUploadRequest(
                effective_digest=digest, unit=2**32 - 1, size=size, sha256=bytes(32)
            )
            assert await ask(channel, "BeginUpload", begin) != "OK"
            for offset in HUGE:
                chunk = common_pb2.Chunk(upload_id="x", offset=offset, data=b"x", crc32=zlib.crc32(b"x"))
                request = coordinator_pb2.PutPseudonymsRequest(**first, size=16_000, chunk=chunk)
                assert await ask(channel, "PutPseudonyms", request) != "OK"
                assert await ask(channel, "PutChunks", chunk) == "OFFSET_MISMATCH"
        packed = common_pb2.Chunk(data=bomb, encoding=common_pb2.ENCODING_ZLIB)
        request = coordinator_pb2.PutPseudonymsRequest(**first, size=16_000, chunk=packed)
        assert await ask(channel, "PutPseudonyms", request) != "OK"
        assert await ask(channel, "PutChunks") == "MESSAGE_INVALID"


@pytest.mark.parametrize("name", PATHS, ids=range(len(PATHS)))
async def test_names_that_look_like_paths_lead_nowhere(miner: Miner, name: str) -> None:
    digest = await miner.submit()
    made = {path for path in miner.made.root.parent.rglob("*") if "log" not in path.name}
    raw = name.encode()
    async with miner.unharmed(), miner.channel("clinic") as party, miner.channel("analyst") as analyst:
        for study in (digest, raw):
            release = common_pb2.GetReleaseRequest(study_digest=study, path=name)
            assert await ask(party, "GetRelease", release) not in {"OK", "INTERNAL"}
            assert await ask(analyst, "GetRelease", release, service=CONTROL) not in {"OK", "INTERNAL"}
        for call, message in (
            ("FinishUpload", coordinator_pb2.FinishUploadRequest(upload_id=name)),
            ("PutChunks", common_pb2.Chunk(upload_id=name, data=b"x", crc32=zlib.crc32(b"x"))),
            ("PutPseudonyms", coordinator_pb2.PutPseudonymsRequest(study_digest=raw, size=16, sha256=bytes(32))),
            ("PutPseudonyms", coordinator_pb2.PutPseudonymsRequest(study_digest=digest, size=16, sha256=raw)),
            ("BeginUpload", coordinator_pb2.BeginUploadRequest(effective_digest=raw, size=16, sha256=raw)),
            ("GetAlignment", coordinator_pb2.GetAlignmentRequest(study_digest=raw)),
        ):
            assert await ask(party, call, message) not in {"OK", "INTERNAL"}, call
        for call, question in (
            ("GetStudy", control_pb2.GetStudyRequest(study_id=name)),
            ("GetStudy", control_pb2.GetStudyRequest(study_digest=raw)),
            ("CancelStudy", control_pb2.CancelStudyRequest(study_digest=raw)),
            ("SubmitStudy", control_pb2.SubmitStudyRequest(proposal=raw)),
        ):
            assert await ask(analyst, call, question, service=CONTROL) not in {"OK", "INTERNAL"}, call
    new = {path for path in miner.made.root.parent.rglob("*") if "log" not in path.name} - made
    assert all(path.is_relative_to(miner.made.miner / "state") and path.suffix != "" for path in new), new


async def test_numbers_beyond_all_bounds(miner: Miner) -> None:
    digest = await miner.submit()
    async with miner.unharmed(), miner.channel("clinic") as channel:
        for number in HUGE:
            small = min(number, 2**32 - 1)
            for call, message in (
                ("Hello", common_pb2.HelloRequest(protocol_version=small)),
                ("Hello", common_pb2.HelloRequest(protocol_version=2, deny_list_number=number, session=number)),
                ("Report", coordinator_pb2.ReportRequest(
                    study_digest=digest,
                    progress=coordinator_pb2.Progress(
                        stage="uploading", percent=small, approvers=small, approvers_needed=small))),
                ("GetAlignment", coordinator_pb2.GetAlignmentRequest(study_digest=digest, offset=number)),
                ("GetRelease", common_pb2.GetReleaseRequest(study_digest=digest, path="x", offset=number)),
            ):  # fmt: skip
                assert await ask(channel, call, message) != "INTERNAL", call
            known = [coordinator_pb2.KnownStudy(study_digest=digest, version=number)] * 1000
            poll = coordinator_pb2.PollRequest(known=known, epoch=number, deny_list_number=number)
            assert await ask(channel, "Poll", poll) != "INTERNAL"
        await ask(channel, "Hello", common_pb2.HelloRequest(protocol_version=2))
        stage = coordinator_pb2.Progress(stage="x" * 3_000_000, percent=5)
        report = coordinator_pb2.ReportRequest(study_digest=digest, progress=stage)
        assert await ask(channel, "Report", report) != "INTERNAL"
    control = GrpcControl(miner.connection("analyst"))
    try:
        study = (await control.get_study(control_pb2.GetStudyRequest(study_digest=digest))).study
        assert all(len(party.stage) < 100 and party.percent <= 100 for party in study.parties)
    finally:
        await control.close()


@pytest.mark.whole
async def test_one_who_calls_without_end_keeps_nobody_out(miner: Miner) -> None:
    async with miner.unharmed(), miner.channel("clinic") as channel:
        parked = [
            asyncio.ensure_future(ask(channel, "Poll", coordinator_pb2.PollRequest(wait_seconds=60)))
            for _ in range(500)
        ]
        waiting = set(parked)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(waiting) > 128:  # the others are answered as fast as this machine can
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await miner.serves_the_honest()
        done = set(parked) - waiting
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert {task.result() for task in done} <= {"RESOURCE_EXHAUSTED", "SESSION_REPLACED", "OK"}


def _room(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, wanted + 500), hard), hard))
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)


async def slowly(miner: Miner, n_connections: int) -> str:
    """Half of them send a piece of a handshake and then nothing, half nothing at all; an honest party is served meanwhile."""
    held: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    await miner.serves_the_honest()
    before, slowest = miner.memory_mib(), 0.0
    try:
        for number in range(n_connections):
            line = socket.socket()
            line.setblocking(False)
            held.append(line)
            with contextlib.suppress(OSError):
                await loop.sock_connect(line, ("127.0.0.1", miner.port))
                if number % 2:
                    await loop.sock_sendall(line, b"\x16\x03\x01\x02\x00\x01")
            if number % max(1, n_connections // 5) == n_connections // 10:
                slowest = max(slowest, await miner.serves_the_honest())
        slowest = max(slowest, await miner.serves_the_honest())
        grown = miner.memory_mib() - before
    finally:
        for line in held:
            line.close()
    detail = f"{n_connections} connections: {grown:.0f} MiB more, an honest party answered in {slowest:.1f} s at most"
    assert grown < max(GROWTH_MIB, n_connections * 0.03), detail
    return detail


@pytest.mark.whole
async def test_two_hundred_connections_slowly_opened(miner: Miner) -> None:
    await slowly(miner, 200)


@pytest.mark.faults
@pytest.mark.timeout(600)
async def test_ten_thousand_connections_slowly_opened(
    template: Any, tmp_path: Path, in_the_table: Callable[..., None]
) -> None:
    n_connections = _room(10_000)
    miner = Miner(
        copy_federation(template.template, tmp_path / "federation"), tmp_path
    )  # with room for as many as we open
    try:
        detail = await slowly(miner, n_connections)
    finally:
        code = miner.close()
    assert code == 0
    in_the_table("connections slowly opened", times=n_connections, lost=[], detail=detail)


@pytest.mark.whole
async def test_after_all_that_a_stranger_is_still_a_stranger(miner: Miner) -> None:
    line = GrpcCoordinator(miner.connection("analyst"))
    try:
        with pytest.raises(VerticilError) as refused:
            await line.hello(common_pb2.HelloRequest(protocol_version=2))
    finally:
        await line.close()
    assert refused.value.code == "IDENTITY_REFUSED"


ATTACKS: dict[str, tuple[Callable[..., Any], tuple[tuple[Any, ...], ...]]] = {
    "malformed frames and bytes that are no protocol": (test_bytes_that_are_no_protocol, ((None,), ("clinic",))),
    "malformed messages at every method": (test_messages_that_are_none_are_named_so_at_every_method, ((),)),
    "oversized messages": (test_a_message_larger_than_any_is_refused, ((),)),
    "messages that become large when they are unpacked": (test_a_compressed_message_does_not_become_large_here, ((),)),
    "wrong offsets, enormous counts and lying digests": (test_lists_and_uploads_that_lie, ((),)),
    "enormous numbers in every field": (test_numbers_beyond_all_bounds, ((),)),
    "names that look like paths": (test_names_that_look_like_paths_lead_nowhere, tuple((name,) for name in PATHS)),
    "calls without end": (test_one_who_calls_without_end_keeps_nobody_out, ((),)),
}


@pytest.mark.faults
@pytest.mark.parametrize("injected", ATTACKS)
async def test_every_attack_is_in_the_table(injected: str, miner: Miner, in_the_table: Callable[..., None]) -> None:
    """The same as in the default run, counted."""
    attack, cases = ATTACKS[injected]
    for case in cases:
        await attack(miner, *case)
    in_the_table(injected, times=len(cases), lost=[])
