"""Every method of every service, called with a certificate of every role, over real mutual TLS.

The methods come from the protocol's own descriptors, so a new one is in the matrix by itself: until somebody puts it into
the role table (and into the expectation here) it is refused to all. The service behind the gate answers anything, so what
is refused was refused before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    Credentials,
    certificate_sha256,
    load_credentials,
    read_certificates,
)
from verticil.shared.federation.transport.authorization import ROLES, RefusedCall, check_access
from verticil.shared.federation.transport.client import client_channel
from verticil.shared.federation.transport.interface import Binding
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.federation.transport.version import PROTOCOL_KEY, PROTOCOL_VERSION
from verticil.wire.v1 import control_pb2, coordinator_pb2, peer_pb2

SERVICES: list[ServiceDescriptor] = [
    *(file.DESCRIPTOR.services_by_name[name] for file, name in
      ((coordinator_pb2, "Coordinator"), (control_pb2, "Control"), (peer_pb2, "Peer"))),
    health_pb2.DESCRIPTOR.services_by_name["Health"],
]  # fmt: skip
METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for service in SERVICES
    for method in service.methods
    if method.name != "List"  # of the health service; not served
}
READ = {"Control/GetStudy", "Control/ListStudies"}
PROBE = {"Health/Check", "Health/Watch"}
EXPECTED: dict[Role, Callable[[str], bool]] = {
    Role.PARTY: lambda method: method.startswith(("Coordinator/", "Peer/")) or method in PROBE,
    Role.ANALYST: lambda method: method.startswith("Control/") or method in PROBE,
    Role.CONSUMER: lambda method: method in READ | PROBE | {"Control/GetRelease"},
    Role.AUDITOR: lambda method: method in READ | PROBE,
    Role.MINER: lambda method: method in PROBE,
}
"""Written here a second time, so that a slip in the table is one of two."""


class AnswersEverything:
    """A service object for any descriptor; it counts who came through."""

    def __init__(self, service: ServiceDescriptor, reached: list[tuple[str, str]]) -> None:
        for method in service.methods:
            setattr(self, method.name, self._answer(f"/{service.full_name}/{method.name}", method, reached))

    @staticmethod
    def _answer(path: str, method: MethodDescriptor, reached: list[tuple[str, str]]) -> Any:
        reply = GetMessageClass(method.output_type)

        async def one(identity: Identity, _request: Any) -> Any:
            reached.append((path, identity.role))
            return reply()

        async def many(identity: Identity, _request: Any) -> AsyncIterator[object]:
            reached.append((path, identity.role))
            yield reply()

        return many if method.server_streaming else one


class Trial:
    """Credentials of every role."""

    def __init__(self, home: Path) -> None:
        create_authority(home / "ca", "fed")
        for role in Role:
            hosts = ["127.0.0.1"] if role is Role.MINER else []
            issue(home / "ca", role.value, role, home / "nodes", hosts=hosts)
        self.home = home
        self.federation = Federation(
            name="fed",
            ca_certificate=home / "ca" / "ca.crt",
            ca_sha256=certificate_sha256(read_certificates(home / "ca" / "ca.crt")[0]),
            endpoint="127.0.0.1:1",
            idle_timeout_seconds=PATIENCE_SECONDS,
            chunk_bytes=1024,
        )

    def credentials(self, role: Role) -> Credentials:
        base = self.home / "nodes" / role.value
        return load_credentials(base.with_suffix(".crt"), base.with_suffix(".key"), self.federation)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("roles"))


@contextlib.asynccontextmanager
async def serving(
    trial: Trial, reached: list[tuple[str, str]], roles: Mapping[str, frozenset[Role]], heard: list[RefusedCall]
) -> AsyncIterator[int]:
    bindings = [
        Binding(descriptor=service, service=AnswersEverything(service, reached))
        for service in SERVICES
        if not service.full_name.startswith("grpc.health")
    ]
    server = RpcServer("127.0.0.1:0", trial.credentials(Role.MINER), bindings, roles=roles, on_refusal=heard.append)
    try:
        yield await server.start()
    finally:
        await server.stop(grace_seconds=0)


async def outcome(channel: grpc.aio.Channel, path: str, method: MethodDescriptor) -> grpc.StatusCode:
    """Call a method with an empty request."""
    kind = "stream" if method.client_streaming else "unary"
    make: Callable[[str], Callable[..., object]] = getattr(
        channel, f"{kind}_{'stream' if method.server_streaming else 'unary'}"
    )
    request: object = iter([b""]) if method.client_streaming else b""
    call = make(path)(request, timeout=PATIENCE_SECONDS, metadata=((PROTOCOL_KEY, str(PROTOCOL_VERSION)),))
    try:
        if method.server_streaming:
            await anext(aiter(call))
        else:
            await call  # type: ignore[misc]
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_feature_37_the_matrix_has_every_method() -> None:
    assert len(METHODS) > 20
    assert set(ROLES) <= set(METHODS), "the table names a method that does not exist"


@pytest.mark.parametrize("role", list(Role))
async def test_feature_37_every_rpc_with_every_role(trial: Trial, role: Role) -> None:
    reached: list[tuple[str, str]] = []
    heard: list[RefusedCall] = []
    async with serving(trial, reached, ROLES, heard) as port:
        channel = client_channel(f"127.0.0.1:{port}", trial.credentials(role))
        for path, method in METHODS.items():
            short = path.rpartition(".")[2]
            allowed = EXPECTED[role](short)
            assert (role in ROLES.get(path, frozenset())) is allowed, f"{short}: the table and the expectation differ"
            found = await outcome(channel, path, method)
            assert found is (grpc.StatusCode.OK if allowed else grpc.StatusCode.PERMISSION_DENIED), short
        await channel.close()
    refused = [path for path in METHODS if not EXPECTED[role](path.rpartition(".")[2])]
    assert [call.method for call in heard] == refused
    assert {(call.caller, call.code) for call in heard} == {(f"verticil://fed/{role}/{role}", "IDENTITY_REFUSED")}
    assert {path for path, _ in reached} == {p for p in METHODS if p not in refused and "grpc.health" not in p}


async def test_feature_37_a_method_that_is_not_in_the_table_is_refused_to_all(trial: Trial) -> None:
    """With an empty table, as a new method is before anybody decided on it."""
    reached: list[tuple[str, str]] = []
    async with serving(trial, reached, {}, []) as port:
        for role in Role:
            channel = client_channel(f"127.0.0.1:{port}", trial.credentials(role))
            found = await asyncio.gather(*(outcome(channel, path, method) for path, method in METHODS.items()))
            assert set(found) == {grpc.StatusCode.PERMISSION_DENIED}
            await channel.close()
    assert reached == []


@pytest.mark.parametrize("role", list(Role))
def test_feature_37_the_same_gate_stands_in_memory(role: Role) -> None:
    identity = Identity(federation="fed", role=role, name="a")
    for path in [*METHODS, "/verticil.wire.v1.Control/New"]:
        allowed = EXPECTED[role](path.rpartition(".")[2]) and path in METHODS
        with contextlib.nullcontext() if allowed else pytest.raises(VerticilError) as caught:
            check_access(identity, path, federation="fed")
        assert allowed or caught.value.code == "IDENTITY_REFUSED"


async def test_feature_07_a_method_that_there_is_not_is_refused_and_noted(trial: Trial) -> None:
    reached: list[tuple[str, str]] = []
    heard: list[RefusedCall] = []
    async with serving(trial, reached, ROLES, heard) as port:
        channel = client_channel(f"127.0.0.1:{port}", trial.credentials(Role.ANALYST))
        method = METHODS["/verticil.wire.v1.Control/GetStudy"]
        for path in ("/verticil.wire.v1.Control/New", "/other.Service/Call", "/odd name/" + "x" * 500):
            assert await outcome(channel, path, method) is grpc.StatusCode.UNIMPLEMENTED
        await channel.close()
    assert [(call.caller, call.method, call.code) for call in heard] == [
        ("verticil://fed/analyst/analyst", path, "IDENTITY_REFUSED")
        for path in ("/verticil.wire.v1.Control/New", "/other.Service/Call", "?")
    ]
    assert reached == []


# --- feature 7 ---

SENDER_WORDS = {"sender", "from", "caller", "identity", "self", "me", "role"}
"""Not `owner`: whose list a blinded list is, which says by the hop who has to send it, and that is compared with the caller."""


def fields_of(message: Descriptor, seen: set[str] | None = None) -> list[FieldDescriptor]:
    seen = seen if seen is not None else set()
    if message.full_name in seen:
        return []
    seen.add(message.full_name)
    found = list(message.fields)
    for field in message.fields:
        if field.message_type is not None:
            found += fields_of(field.message_type, seen)
    return found


def test_feature_07_no_request_names_its_sender() -> None:
    named = [
        f"{path}: {field.full_name}"
        for path, method in METHODS.items()
        for field in fields_of(method.input_type)
        if field.name in SENDER_WORDS | {"party", "name"}
    ]
    assert named == []


async def test_feature_07_a_refusal_tells_the_audit_who_really_called(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[RefusedCall] = []
    async with serving(trial, [], ROLES, heard) as port:
        channel = client_channel(f"127.0.0.1:{port}", trial.credentials(Role.CONSUMER))
        method = METHODS["/verticil.wire.v1.Coordinator/Report"]
        assert (
            await outcome(channel, "/verticil.wire.v1.Coordinator/Report", method) is grpc.StatusCode.PERMISSION_DENIED
        )
        await channel.close()
    serial = read_certificates(trial.home / "nodes" / "consumer.crt")[0].serial_number
    (call,) = heard
    assert (call.caller, call.serial) == ("verticil://fed/consumer/consumer", f"{serial:x}")
    assert f"{serial:x}" in caplog.text
