"""Certificates that are renewed or revoked while connections live, over real mutual TLS. Clocks are turned by hand."""

# ruff: noqa: N802 (a service's methods have the names of the wire contract)

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from support import PATIENCE_SECONDS
from verticil.miner.rules.certificates import Certificates
from verticil.miner.storage.catalogue import Catalogue
from verticil.pki.register import revoke
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import (
    certify,
    chain_pem,
    create_authority,
    issue,
    open_authority,
    private_pem,
)
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    Credentials,
    certificate_sha256,
    load_credentials,
    read_certificates,
    utc_now,
)
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.federation.membership.current import FollowedCredentials
from verticil.shared.federation.membership.revocation import FILE_NAME, DenyList
from verticil.shared.federation.transport.channel import served_certificate
from verticil.shared.federation.transport.client import Connection, GrpcCoordinator
from verticil.shared.federation.transport.interface import Binding
from verticil.shared.federation.transport.server import RpcServer
from verticil.wire.v1 import common_pb2, coordinator_pb2

LOOK_SECONDS = 5.0
HELLO = common_pb2.HelloRequest(protocol_version=2)


class Coordinator:
    """Says who called; its poll and its streams wait until they are told to go on."""

    def __init__(self) -> None:
        self.parked, self.go_on = asyncio.Event(), asyncio.Event()
        self.begun = self.received = 0

    async def Hello(self, identity: Identity, request: common_pb2.HelloRequest) -> common_pb2.HelloReply:
        self.begun += 1
        return common_pb2.HelloReply(protocol_version=2, federation=identity.federation)

    async def Poll(self, identity: Identity, request: coordinator_pb2.PollRequest) -> coordinator_pb2.PollReply:
        self.parked.set()
        await self.go_on.wait()
        return coordinator_pb2.PollReply(lease_seconds=7)

    async def PutChunks(self, identity: Identity, requests: AsyncIterator[common_pb2.Chunk]) -> common_pb2.ChunkAck:
        self.begun += 1
        async for _ in requests:
            self.received += 1
            self.parked.set()
        return common_pb2.ChunkAck(committed_offset=self.received)


class Trial:
    """An authority and its nodes; a clock for everything that follows files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.seconds = 0.0
        create_authority(home / "ca", "fed")
        issue(home / "ca", "miner", Role.MINER, home / "miner", hosts=["localhost"])
        issue(home / "ca", "alice", Role.PARTY, home / "alice")
        self.federation = Federation(
            name="fed",
            ca_certificate=home / "ca" / "ca.crt",
            ca_sha256=certificate_sha256(read_certificates(home / "ca" / "ca.crt")[0]),
            endpoint="localhost:1",
            idle_timeout_seconds=PATIENCE_SECONDS,
            chunk_bytes=1024,
        )

    def read(self, name: str) -> Credentials:
        return load_credentials(self.home / name / f"{name}.crt", self.home / name / f"{name}.key", self.federation)

    def follow(self, name: str) -> FollowedCredentials:
        return FollowedCredentials(self.read(name), self.federation, monotonic=lambda: self.seconds)

    def denied(self) -> DenyList:
        return DenyList(self.read("miner").ca_pem, [self.home / "ca" / FILE_NAME], monotonic=lambda: self.seconds)

    def renew(self, name: str, *, only: str = "") -> None:
        """New keys and certificates in place of the old ones."""
        made = self.home / "made"
        role, hosts = (Role.MINER, ["localhost"]) if name == "miner" else (Role.PARTY, [])
        if not made.exists():
            issue(self.home / "ca", name, role, made, hosts=hosts)
        for path in made.iterdir():
            if path.suffix == only or not only:
                os.replace(path, self.home / name / path.name)
        if not only:
            made.rmdir()
        self.seconds += LOOK_SECONDS

    def revoke(self, target: str) -> None:
        revoke(open_authority(self.home / "ca"), target)
        self.seconds += LOOK_SECONDS

    def serial(self, name: str) -> int:
        return read_certificates(self.home / name / f"{name}.crt")[0].serial_number


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


@contextlib.asynccontextmanager
async def serving(trial: Trial, denied: DenyList | None = None, **more: Any) -> AsyncIterator[tuple[int, Coordinator]]:
    service = Coordinator()
    binding = Binding(
        descriptor=coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"],
        service=service,
        omitted=frozenset(
            m.name
            for m in coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"].methods
            if not hasattr(service, m.name)
        ),
    )
    options = more if denied is None else {"revocations": denied, **more}
    server = RpcServer("127.0.0.1:0", trial.follow("miner"), [binding], **options)
    try:
        yield await server.start(), service
    finally:
        service.go_on.set()
        await server.stop(grace_seconds=1)


@contextlib.asynccontextmanager
async def party(
    trial: Trial, port: int, denied: DenyList | None = None
) -> AsyncIterator[tuple[GrpcCoordinator, Connection]]:
    options = {} if denied is None else {"revocations": denied}
    line = Connection(f"localhost:{port}", trial.follow("alice"), **options)  # type: ignore[arg-type]
    try:
        yield GrpcCoordinator(line), line
    finally:
        await line.close()


async def code_of(call: object) -> str:
    try:
        await call  # type: ignore[misc]
    except VerticilError as error:
        return error.code
    return ""


async def shown(trial: Trial, port: int) -> int:
    found = await asyncio.to_thread(served_certificate, f"localhost:{port}", trial.read("alice"))
    return found.serial_number


# --- feature 29: hot reload ---


async def test_feature_29_a_server_shows_a_renewed_certificate_to_new_connections(trial: Trial) -> None:
    async with serving(trial) as (port, service), party(trial, port) as (alice, _):
        old = trial.serial("miner")
        assert await shown(trial, port) == old
        parked = asyncio.ensure_future(alice.poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await service.parked.wait()
        trial.renew("miner")
        assert await shown(trial, port) == trial.serial("miner") != old
        service.go_on.set()
        assert (await parked).lease_seconds == 7  # what was under way goes on


async def test_feature_29_a_client_shows_a_renewed_certificate_with_its_next_call(trial: Trial) -> None:
    denied = trial.denied()
    async with serving(trial, denied) as (port, service), party(trial, port) as (alice, _):
        old = trial.serial("alice")
        await alice.hello(HELLO)
        parked = asyncio.ensure_future(alice.poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await service.parked.wait()
        trial.renew("alice")
        await alice.hello(HELLO)
        service.go_on.set()
        assert (await parked).lease_seconds == 7  # over the connection with the old certificate
        trial.revoke(f"{old:x}")
        await alice.hello(HELLO)  # the old serial is not shown any more


async def test_feature_29_half_a_renewal_leaves_the_old_certificate_in_use(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    followed = trial.follow("alice")
    before = followed.current()
    trial.renew("alice", only=".crt")  # its key is not there yet
    assert followed.current() is before
    assert "the one read before stays in use" in caplog.text
    trial.renew("alice", only=".key")
    assert followed.current().chain_pem == (trial.home / "alice" / "alice.crt").read_bytes() != before.chain_pem


def test_feature_29_statements_are_signed_with_the_renewed_certificate(trial: Trial) -> None:
    base = trial.home / "alice" / "alice"
    signer = SigningKey.load(base.with_suffix(".sign"), base.with_suffix(".crt"))
    signer._files._every = 0.0
    first = signer.sign(b"{}")
    trial.renew("alice")
    second = signer.sign(b"{}")
    assert second.certificate != first.certificate
    for signed in (first, second):
        verify_signed(signed, trial.read("alice").ca_pem, role=Role.PARTY, name="alice", at=utc_now())


def test_feature_29_warnings_at_30_7_and_1_days(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    end = trial.read("alice").not_after
    now = [end - dt.timedelta(days=40)]
    followed = FollowedCredentials(trial.read("alice"), trial.federation, clock=lambda: now[0])
    heard = []
    for hours in range(40 * 24 + 2):
        now[0] = end - dt.timedelta(days=40) + dt.timedelta(hours=hours)
        caplog.clear()
        days_left = (followed.current().not_after - now[0]) / dt.timedelta(days=1)
        heard += [(round(days_left), record.levelname) for record in caplog.records]
    assert heard == [(30, "WARNING"), (7, "WARNING"), (1, "WARNING"), (0, "WARNING")]


# --- feature 29: revocation ---


async def test_the_miner_remembers_whom_it_saw_and_says_revoked_or_expired(trial: Trial, tmp_path: Path) -> None:
    """From real calls, refused ones too; over a restart; and a former certificate does not speak for the present one."""
    clock, denied = [utc_now()], trial.denied()
    catalogue = Catalogue(tmp_path / "catalogue.sqlite")
    seen = Certificates(catalogue.certificates, denied, lambda: clock[0])
    former = read_certificates(trial.home / "alice" / "alice.crt")[0]
    who = trial.read("alice").identity
    assert seen.standing("alice") == ("", "")
    async with serving(trial, denied, on_caller=seen.see) as (port, _), party(trial, port) as (alice, _):
        await alice.hello(HELLO)
        assert seen.standing("alice") == ("", "")
        trial.revoke("alice")
        with pytest.raises(VerticilError, match="CERTIFICATE_REVOKED"):
            await alice.hello(HELLO)
    assert seen.standing("alice")[0] == "revoked"
    seen.keep()
    assert Certificates(catalogue.certificates, denied, lambda: clock[0]).standing("alice")[0] == "revoked"
    clock[0] += dt.timedelta(seconds=2)
    issue(trial.home / "ca", "alice", Role.PARTY, tmp_path / "anew", days=30, at=clock[0] + dt.timedelta(minutes=1))
    anew = read_certificates(tmp_path / "anew" / "alice.crt")[0]
    seen.see(who, anew)
    seen.see(who, former)  # whoever still has the old key calls again, and is refused
    assert seen.standing("alice") == ("", "")
    seen.see(who, anew, is_carried=True)
    assert seen.standing("alice")[0] == "carried"
    clock[0] += dt.timedelta(days=31)
    assert seen.standing("alice") == ("expired", f"{anew.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}")
    catalogue.close()


async def test_feature_29_a_client_revoked_while_connected_is_refused(trial: Trial) -> None:
    denied = trial.denied()
    async with serving(trial, denied) as (port, service), party(trial, port) as (alice, _):
        await alice.hello(HELLO)
        parked = asyncio.ensure_future(alice.poll(coordinator_pb2.PollRequest(wait_seconds=60)))
        await service.parked.wait()
        service.parked.clear()
        revoked = asyncio.Event()

        async def chunks() -> AsyncIterator[common_pb2.Chunk]:
            yield common_pb2.Chunk()
            await revoked.wait()
            for _ in range(1000):  # far more than the server hears, which ends the stream
                yield common_pb2.Chunk()
                await asyncio.sleep(0)

        streaming = asyncio.ensure_future(alice.put_chunks(chunks()))
        await service.parked.wait()
        trial.revoke("alice")
        revoked.set()
        assert await code_of(streaming) == "CERTIFICATE_REVOKED"  # in the middle of a stream
        assert service.received == 1
        service.go_on.set()
        assert await code_of(parked) == "CERTIFICATE_REVOKED"  # what it had asked before is not answered
        assert await code_of(alice.hello(HELLO)) == "CERTIFICATE_REVOKED"  # on the same connection
    async with serving(trial, trial.denied()) as (port, _), party(trial, port) as (alice, _):
        assert await code_of(alice.hello(HELLO)) == "CERTIFICATE_REVOKED"  # and on a new one


async def test_a_revoked_callers_request_has_no_effect(trial: Trial) -> None:
    """It never reaches the service: to refuse the reply alone would come after whatever the service does."""
    denied = trial.denied()
    async with serving(trial, denied) as (port, service), party(trial, port) as (alice, _):
        await alice.hello(HELLO)
        await alice.put_chunks([common_pb2.Chunk()])
        assert service.begun == 2
        trial.revoke("alice")
        assert await code_of(alice.hello(HELLO)) == "CERTIFICATE_REVOKED"
        assert await code_of(alice.put_chunks([common_pb2.Chunk()])) == "CERTIFICATE_REVOKED"
        assert (service.begun, service.received) == (2, 1)


async def test_feature_29_a_revoked_server_is_refused_by_its_clients(trial: Trial) -> None:
    denied = trial.denied()
    async with serving(trial) as (port, _), party(trial, port, denied) as (alice, _):
        await alice.hello(HELLO)
        trial.revoke("miner")
        assert await code_of(alice.hello(HELLO)) == "CERTIFICATE_REVOKED"
        trial.renew("miner")  # the miner joins anew; no party does anything
        assert await code_of(alice.hello(HELLO)) == ""
        trial.renew("miner")  # and renews once more, while the channel trusts the former certificate only
        assert await code_of(alice.hello(HELLO)) == ""


async def test_feature_29_what_was_checked_is_what_is_spoken_to(trial: Trial) -> None:
    """A server that shows a good certificate to the check and the revoked one to the call gets no call."""
    denied = trial.denied()
    issue(trial.home / "ca", "good", Role.MINER, trial.home / "good", hosts=["localhost"])
    trial.revoke("miner")
    good = x509.load_pem_x509_certificate(trial.read("good").chain_pem)
    async with serving(trial) as (port, service), party(trial, port, denied) as (alice, line):
        line._line._server_certificate = lambda _: good
        assert await code_of(alice.hello(HELLO)) != ""
        assert await code_of(alice.put_chunks([common_pb2.Chunk()])) != ""
        assert service.received == 0


async def test_a_certificate_of_another_node_is_not_taken_up(trial: Trial) -> None:
    followed = trial.follow("alice")
    before = followed.current()
    issue(trial.home / "ca", "bob", Role.PARTY, trial.home / "bob")
    for suffix in (".key", ".crt"):
        os.replace(trial.home / "bob" / f"bob{suffix}", trial.home / "alice" / f"alice{suffix}")
    trial.seconds += LOOK_SECONDS
    assert followed.current() is before


def test_a_statement_is_never_signed_with_another_nodes_certificate(trial: Trial) -> None:
    base = trial.home / "alice" / "alice"
    signer = SigningKey.load(base.with_suffix(".sign"), base.with_suffix(".crt"))
    signer._files._every = 0.0
    before = signer.sign(b"{}")
    issue(trial.home / "ca", "bob", Role.PARTY, trial.home / "bob")
    for suffix in (".crt", ".key", ".sign"):
        os.replace(trial.home / "bob" / f"bob{suffix}", base.with_suffix(suffix))
    assert signer.sign(b"{}") == before


async def test_a_caller_of_another_federation_has_no_effect(trial: Trial) -> None:
    """The same authority signed its certificate, which names another federation: TLS is content, the gate is not."""
    authority = open_authority(trial.home / "ca")
    stranger = dataclasses.replace(authority, federation="other")
    key, signing = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    who = Identity(federation="other", role=Role.PARTY, name="alice")
    certificates = certify(stranger, who, key.public_key(), signing.public_key())
    for suffix, data in ((".crt", chain_pem(certificates)), (".key", private_pem(key))):
        (trial.home / "alice" / f"alice{suffix}").write_bytes(data)
    async with serving(trial) as (port, service):
        trial.federation = dataclasses.replace(trial.federation, name="other")
        async with party(trial, port) as (alice, _):
            assert await code_of(alice.hello(HELLO)) == "IDENTITY_REFUSED"
        assert service.begun == 0
